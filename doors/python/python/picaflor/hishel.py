"""A storage for hishel, the cache of httpx: ``CacheClient(storage=PicaflorStorage("http.store"))``.

A response is one object: what hishel wants to know of it is the metadata, its body the body. A key of hishel's has
``SLOTS`` places for responses that differ (``Vary``); the oldest of them gives way. No list of them is kept, so there is
none that a crash could leave wrong. A reader has the whole body pinned, whatever is removed or evicted meanwhile.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple

import anyio
import msgpack
from hishel import AsyncBaseStorage, BaseStorage, Entry, Headers, Request, Response

from . import Error, Object
from ._place import Place, opened

__all__ = ["AsyncPicaflorStorage", "PicaflorStorage"]

SLOTS = 4

_logger = logging.getLogger(__name__)

# What a failing store says; hishel wants the request to go on.
_FAILURES = (Error, OSError, ValueError)


class _Record(NamedTuple):
    """The metadata of an object."""

    id: bytes
    key: str
    created: float
    deadline: float | None
    tti: float | None
    expires: float | None
    request: tuple[str, str, dict[str, list[str]]]
    status: int
    headers: dict[str, list[str]]

    def pack(self) -> bytes:
        return msgpack.packb(tuple(self))

    def entry(self, stream: Any) -> Entry:
        method, url, headers = self.request
        return Entry(
            id=uuid.UUID(bytes=self.id),
            request=Request(method=method, url=url, headers=Headers(headers)),
            response=Response(status_code=self.status, headers=Headers(self.headers), stream=stream),
        )


def _record(found: Object | None) -> _Record | None:
    """None of what is not there, or was written by another version: that is a miss."""
    if found is None:
        return None
    try:
        return _Record(*msgpack.unpackb(found.metadata))
    except (ValueError, TypeError, msgpack.UnpackException):
        return None


def _pairs(headers: Headers) -> dict[str, list[str]]:
    return {name: headers.get_list(name) or [] for name in headers}


def _slots(key: str) -> list[bytes]:
    """The places of a key: the begin of its hash, and a number. An id begins with its place."""
    begin = hashlib.sha256(key.encode()).digest()[:8]
    return [begin + bytes([slot]) for slot in range(SLOTS)]


class _Common:
    """What both storages do alike."""

    _limits: Callable[[float | None, float | None, float], tuple[float | None, float | None]]
    _expires_at: Callable[[float | None, float | None, float], float | None]
    max_stream_size: int | None
    _new_lock: Callable[[], Any]

    def __init__(
        self, store: Place = "http.store", *, store_options: dict[str, Any] | None = None, **limits: Any
    ) -> None:
        super().__init__(**limits)
        self.store, self._is_ours = opened(store, store_options)
        self._lock = self._new_lock()
        # No object may be longer than a quarter of the device.
        longest = self.store.stats()["capacity"] // 4
        self._longest = longest if self.max_stream_size is None else min(longest, self.max_stream_size)

    def _made(self, request: Request, response: Response, key: str, ttl: float | None, tti: float | None) -> _Record:
        now = time.time()
        deadline, tti = self._limits(ttl, tti, now)
        return _Record(
            id=bytes(9) + os.urandom(7),
            key=key,
            created=now,
            deadline=deadline,
            tti=tti,
            expires=None,
            request=(request.method, request.url, _pairs(request.headers)),
            status=response.status_code,
            headers=_pairs(response.headers),
        )

    def _in_slot(self, record: _Record, taken: list[_Record | None]) -> tuple[bytes, _Record]:
        """A free place for a record, or that of the oldest."""
        oldest = min(range(SLOTS), key=lambda slot: held.created if (held := taken[slot]) else 0.0)
        place = _slots(record.key)[oldest]
        return place, record._replace(id=place + record.id[9:])

    def _lived(self, record: _Record, now: float) -> _Record | None:
        """The record of a response that was returned just now, if its time is to be written anew."""
        expires = self._expires_at(record.deadline, record.tti, now)
        if record.tti is None or record.expires is None or expires is None:
            return None
        return record._replace(expires=expires) if expires - record.expires >= record.tti / 2 else None

    def _arguments(self, record: _Record, body: Any) -> dict[str, Any] | None:
        """What is put; None of what has expired."""
        ttl = None if record.expires is None else record.expires - time.time()
        if ttl is not None and ttl <= 0:
            return None
        return {"body": body, "metadata": record.pack(), "ttl": ttl}


class _Body:
    """A body on its way to the client, of which a copy is kept while it may be stored."""

    def __init__(self, longest: int) -> None:
        self._pieces: list[bytes] | None = []
        self._left = longest

    def add(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._pieces is not None:
            self._pieces.append(piece)
            if self._left < 0:
                self._pieces = None

    def whole(self) -> bytes | None:
        return None if self._pieces is None else b"".join(self._pieces)


class PicaflorStorage(_Common, BaseStorage):
    """hishel's storage on a store, which :class:`picaflor.Store` opens with these options.

    :param store: where, or a store that is open; one that is opened here is closed by ``close()``.
    """

    _new_lock = Lock

    def create_entry(
        self, request: Request, response: Response, key: str, *, ttl: float | None = None, tti: float | None = None
    ) -> Entry:
        record = self._made(request, response, key, ttl, tti)
        taken = [_record(self._found(place)) for place in _slots(key)]
        place, record = self._in_slot(record, taken)
        body = response.stream if response.stream is not None else []
        kept = replace(response, stream=self._kept(place, record, body))
        return replace(record.entry(None), request=request, response=kept)

    def _kept(self, place: bytes, record: _Record, stream: Iterable[bytes]) -> Iterator[bytes]:
        body = _Body(self._longest)
        for piece in stream:
            body.add(piece)
            yield piece
        if (whole := body.whole()) is not None:
            with self._lock:
                record = record._replace(expires=self._expires_at(record.deadline, record.tti, time.time()))
                self._put(place, record, whole)

    def get_entries(self, key: str) -> list[Entry]:
        entries = []
        for place in _slots(key):
            found = self._found(place)
            record = _record(found)
            if found is None or record is None or record.key != key:
                continue
            body = found.body
            if self._lived(record, time.time()):
                self._change(record.id, lambda record: self._lived(record, time.time()))
            entries.append(record.entry(iter([bytes(body)])))
        return entries

    def update_headers(self, id: uuid.UUID, headers: Headers) -> None:
        self._change(id.bytes, lambda record: record._replace(headers=_pairs(headers)))

    def remove_entry(self, id: uuid.UUID) -> None:
        with self._lock:
            record = _record(self._found(id.bytes[:9]))
            if record is not None and record.id == id.bytes:
                try:
                    self.store.delete(id.bytes[:9])
                except _FAILURES:
                    _logger.exception("picaflor: a response could not be removed, so it can still be served")

    def close(self) -> None:
        if self._is_ours:
            self.store.close()

    def _found(self, place: bytes) -> Object | None:
        try:
            return self.store.get_object(place)
        except _FAILURES:
            _logger.exception("picaflor: a response cannot be read, which is a miss")
            return None

    def _put(self, place: bytes, record: _Record, body: Any) -> None:
        arguments = self._arguments(record, body)
        try:
            if arguments is not None:
                self.store.put(place, **arguments)
        except _FAILURES:
            _logger.exception("picaflor: a response is not stored")

    def _change(self, id: bytes, change: Callable[[_Record], _Record | None]) -> None:
        """Puts a response again with another record, if it is still the same."""
        with self._lock:
            found = self._found(id[:9])
            record = _record(found)
            if found is not None and record is not None and record.id == id and (changed := change(record)):
                self._put(id[:9], changed, found.body)


class AsyncPicaflorStorage(_Common, AsyncBaseStorage):
    """As :class:`PicaflorStorage`, for httpx's asynchronous client."""

    _new_lock = anyio.Lock

    async def create_entry(
        self, request: Request, response: Response, key: str, *, ttl: float | None = None, tti: float | None = None
    ) -> Entry:
        record = self._made(request, response, key, ttl, tti)
        taken = [_record(await self._found(place)) for place in _slots(key)]
        place, record = self._in_slot(record, taken)
        kept = replace(response, stream=self._kept(place, record, response.stream))
        return replace(record.entry(None), request=request, response=kept)

    async def _kept(self, place: bytes, record: _Record, stream: AsyncIterable[bytes] | None) -> AsyncIterator[bytes]:
        body = _Body(self._longest)
        if stream is not None:
            async for piece in stream:
                body.add(piece)
                yield piece
        if (whole := body.whole()) is not None:
            async with self._lock:
                record = record._replace(expires=self._expires_at(record.deadline, record.tti, time.time()))
                await self._put(place, record, whole)

    async def get_entries(self, key: str) -> list[Entry]:
        entries = []
        for place in _slots(key):
            found = await self._found(place)
            record = _record(found)
            if found is None or record is None or record.key != key:
                continue
            body = found.body
            if self._lived(record, time.time()):
                await self._change(record.id, lambda record: self._lived(record, time.time()))
            entries.append(record.entry(_stream(body)))
        return entries

    async def update_headers(self, id: uuid.UUID, headers: Headers) -> None:
        await self._change(id.bytes, lambda record: record._replace(headers=_pairs(headers)))

    async def remove_entry(self, id: uuid.UUID) -> None:
        async with self._lock:
            record = _record(await self._found(id.bytes[:9]))
            if record is not None and record.id == id.bytes:
                try:
                    await self.store.delete_async(id.bytes[:9])
                except _FAILURES:
                    _logger.exception("picaflor: a response could not be removed, so it can still be served")

    async def close(self) -> None:
        if self._is_ours:
            await anyio.to_thread.run_sync(self.store.close)

    async def _found(self, place: bytes) -> Object | None:
        try:
            return await self.store.get_object_async(place)
        except _FAILURES:
            _logger.exception("picaflor: a response cannot be read, which is a miss")
            return None

    async def _put(self, place: bytes, record: _Record, body: Any) -> None:
        arguments = self._arguments(record, body)
        try:
            if arguments is not None:
                await self.store.put_async(place, **arguments)
        except _FAILURES:
            _logger.exception("picaflor: a response is not stored")

    async def _change(self, id: bytes, change: Callable[[_Record], _Record | None]) -> None:
        """Puts a response again with another record, if it is still the same."""
        async with self._lock:
            found = await self._found(id[:9])
            record = _record(found)
            if found is not None and record is not None and record.id == id and (changed := change(record)):
                await self._put(id[:9], changed, found.body)


async def _stream(body: memoryview) -> AsyncIterator[bytes]:
    yield bytes(body)
