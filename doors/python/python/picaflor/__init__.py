"""A crash-safe cache and store for small objects on disk; the stub file beside this one describes all of it."""

from ._picaflor import Error, Full, Object, Refused, Store

__all__ = ["Error", "Full", "Object", "Refused", "Store"]
