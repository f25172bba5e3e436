"""A backend for requests-cache: ``CachedSession(backend=PicaflorCache("http.store"))``.

Responses and redirects lie in one store, told apart by the first letter of the key. A cache evicts a response when its
place is needed; requests-cache then fetches it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from requests_cache.backends import BaseCache, BaseStorage

from . import Store
from ._place import Place, opened

__all__ = ["PicaflorCache"]


class PicaflorCache(BaseCache):
    """requests-cache on a store, which :class:`picaflor.Store` opens with these options.

    :param store: where, or a store that is open; one that is opened here is closed by ``close()``.
    """

    def __init__(
        self,
        store: Place = "http.store",
        *,
        store_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cache_name="picaflor", **kwargs)
        self.store, self._is_ours = opened(store, store_options)
        self.responses = _Part(self.store, b"r", **kwargs)
        self.redirects = _Part(self.store, b"d", **{**kwargs, "serializer": None})

    def close(self) -> None:
        if self._is_ours:
            self.store.close()


class _Part(BaseStorage):
    """The objects whose keys begin with one letter, as a dictionary."""

    def __init__(self, store: Store, letter: bytes, **kwargs: Any) -> None:
        kwargs.setdefault("serializer", "pickle")
        super().__init__(**kwargs)
        self._store = store
        self._letter = letter

    def _key(self, key: str) -> bytes:
        return self._letter + key.encode()

    def __getitem__(self, key: str) -> Any:
        found = self._store.get(self._key(key))
        if found is None:
            raise KeyError(key)
        return self.deserialize(key, bytes(found)) if self.serializer else str(found, "utf-8")

    def __setitem__(self, key: str, value: Any) -> None:
        value = self.serialize(value)
        self._store.put(self._key(key), value.encode() if isinstance(value, str) else value)

    def __delitem__(self, key: str) -> None:
        if not self._store.delete(self._key(key)):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        own = (key[1:].decode() for key in self._store.keys() if key[:1] == self._letter)
        # A key may be listed twice when its object moves meanwhile.
        return iter(dict.fromkeys(own))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        for key in list(self):
            self._store.delete(self._key(key))
