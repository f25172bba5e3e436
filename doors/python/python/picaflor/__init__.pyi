"""A crash-safe cache and store for small objects on disk."""

from os import PathLike
from types import TracebackType
from typing import Any, Literal, final

from collections.abc import Buffer

class Error(Exception):
    """What picaflor says; the message names the place and what to do."""

class Full(Error):
    """A store has no room for the object without dropping another."""

class Refused(Error):
    """The put was declined: the object is not in the store."""

@final
class Object:
    """What a get returns. It pins its bytes: they stay though the object is replaced, deleted or evicted."""

    @property
    def body(self) -> memoryview:
        """The whole body, read-only; without a copy if it fits in a cluster of 256 KiB."""
    @property
    def key(self) -> bytes: ...
    @property
    def metadata(self) -> bytes: ...
    @property
    def expires(self) -> float | None:
        """Seconds since the Unix epoch."""
    @property
    def group(self) -> int:
        """0 is none."""
    def __len__(self) -> int:
        """Bytes of the body."""

@final
class Store:
    """A store of objects in one file, which one process has open at a time; any thread may call it.

    Keys are bytes, or text, which stands for its UTF-8; bodies are anything with a buffer of bytes. Each call that may
    wait has a twin named ``_async``, for which no thread waits.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        capacity: int = 0,
        memory: int = 64 << 20,
        mode: Literal["cache", "store"] = "cache",
        durable_within: float | None = 1.0,
        ttl: float | None = None,
    ) -> None:
        """Opens the store, making it first if there is none.

        :param capacity: hard cap of bytes on the device; 0 is that of the file, or 1 GiB for a new one.
        :param memory: hard cap of bytes in memory, for index, buffers and objects together.
        :param mode: a cache evicts what was not used, a store never does. Fixed when it is made.
        :param durable_within: seconds of puts that a crash may cost; 0: each put returns when it is durable; None: all
            since the last flush.
        :param ttl: seconds after which objects expire that were put without one.
        :raises OSError: what the system says, such as FileNotFoundError.
        :raises ValueError: for what cannot work.
        :raises Error: for a file that is something else, or damaged.
        """
    def put(
        self,
        key: bytes | str,
        body: Buffer,
        *,
        metadata: bytes | None = None,
        ttl: float | None = None,
        group: int = 0,
        neighbour: bytes | str | None = None,
    ) -> None:
        """Puts an object, replacing the one before.

        :param ttl: seconds until it expires.
        :param group: a number for objects that belong together.
        :param neighbour: key of an object to lie beside, such as the page of this image.
        :raises Full: a store has no room.
        :raises Refused: a cache, or a store opened for reading only, declined it.
        """
    async def put_async(
        self,
        key: bytes | str,
        body: Buffer,
        *,
        metadata: bytes | None = None,
        ttl: float | None = None,
        group: int = 0,
        neighbour: bytes | str | None = None,
    ) -> None:
        """As :meth:`put`, for a task."""
    def get(self, key: bytes | str) -> memoryview | None:
        """The body, read-only, on the store's own bytes, which the view pins; None if there is none."""
    async def get_async(self, key: bytes | str) -> memoryview | None:
        """As :meth:`get`, for a task."""
    def get_object(self, key: bytes | str) -> Object | None:
        """Body, metadata and the rest."""
    async def get_object_async(self, key: bytes | str) -> Object | None:
        """As :meth:`get_object`, for a task."""
    def delete(self, key: bytes | str) -> bool:
        """Deletes an object and says whether it was there. Durable within a second; then no crash brings it back."""
    async def delete_async(self, key: bytes | str) -> bool:
        """As :meth:`delete`, for a task."""
    def flush(self) -> None:
        """Returns when everything put and deleted before is durable."""
    async def flush_async(self) -> None:
        """As :meth:`flush`, for a task."""
    def close(self) -> None:
        """Makes everything durable and lets others open the file. Views stay. A second time it does nothing."""
    async def close_async(self) -> None:
        """As :meth:`close`, for a task."""
    async def contains_async(self, key: bytes | str) -> bool:
        """Whether there is an object with this key, for a task; ``key in store`` for others."""
    async def keys_async(self) -> list[bytes]:
        """As :meth:`keys`, for a task."""
    def keys(self) -> list[bytes]:
        """All keys, in the order in which they lie on the device, which is read from end to end."""
    def stats(self) -> dict[str, Any]:
        """What it holds, and why gets missed and puts were refused."""
    def __getitem__(self, key: bytes | str) -> memoryview: ...
    def __setitem__(self, key: bytes | str, body: Buffer) -> None: ...
    def __delitem__(self, key: bytes | str) -> None: ...
    def __contains__(self, key: bytes | str) -> bool: ...
    def __len__(self) -> int: ...
    async def __aenter__(self) -> Store: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __enter__(self) -> Store: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
