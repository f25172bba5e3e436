"""The same program on diskcache: puts, gets, deletes, opens again. Every change is committed, and synced."""
import sys

from diskcache import Cache

with Cache(sys.argv[1], sqlite_synchronous=2) as cache:
    cache.set("a", b"one")
    cache.set("b", b"two")
    cache.delete("a")

with Cache(sys.argv[1], sqlite_synchronous=2) as cache:
    assert cache.get("a") is None
    assert cache.get("b") == b"two"
