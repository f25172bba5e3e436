"""What the caches of other packages open: a store of their own, or one that is open."""

from __future__ import annotations

from os import PathLike
from typing import Any

from . import Store

Place = Store | str | PathLike[str]


def opened(place: Place, options: dict[str, Any] | None) -> tuple[Store, bool]:
    """The store there, and whether it was opened here and is to be closed here."""
    if isinstance(place, Store):
        return place, False
    return Store(place, **(options or {})), True
