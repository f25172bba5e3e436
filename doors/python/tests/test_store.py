"""The store as a Python program sees it."""

import ast
import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import picaflor
import pytest


@pytest.fixture
def store(tmp_path):
    with picaflor.Store(tmp_path / "cache.store", capacity=64 << 20, memory=16 << 20) as store:
        yield store


def noise(length, seed=0):
    return bytes((at * 31 + at // 251 + seed) & 255 for at in range(length))


@pytest.mark.parametrize("length", [0, 1, 4096, 300_000, 3_000_001])
def test_bodies_come_back(store, length):
    store.put(b"key", noise(length))
    view = store.get("key")
    assert isinstance(view, memoryview) and view.readonly and view == noise(length)
    assert len(store.get_object(b"key")) == length


def test_a_view_is_the_stores_own_bytes_and_outlives_all(tmp_path):
    store = picaflor.Store(tmp_path / "cache.store", capacity=64 << 20, memory=16 << 20)
    store.put("pinned", noise(100_000))
    view = store.get("pinned")
    part = view[50_000:]
    with pytest.raises(TypeError):
        view[0] = 1
    store.put("pinned", b"other")
    assert store.delete("pinned")
    store.close()
    del store, view
    gc.collect()
    assert part == noise(100_000)[50_000:]


def test_what_a_body_may_be(store):
    for number, body in enumerate([b"bytes", bytearray(b"bytes"), memoryview(b"-bytes-")[1:6]]):
        store.put(str(number), body)
        assert store.get(str(number)) == b"bytes"
    with pytest.raises(TypeError):
        store.put("key", 7)
    with pytest.raises(TypeError):
        store.put(7, b"body")


def test_metadata_expiry_and_hints(store):
    store.put("page", b"<html>", metadata=b"text/html", ttl=600, group=3)
    store.put("image", b"PNG", neighbour="page")
    found = store.get_object("page")
    assert (found.key, found.metadata, found.group, found.body) == (b"page", b"text/html", 3, b"<html>")
    assert found.expires > 0 and store.get_object("image").expires is None
    with pytest.raises(ValueError, match="ttl is -1"):
        store.put("page", b"", ttl=-1)


def test_as_a_dictionary(store):
    store["a"] = b"1"
    store[b"b"] = b"2"
    assert "a" in store and "c" not in store and len(store) == 2
    assert store["b"] == b"2" and sorted(store.keys()) == [b"a", b"b"]
    del store["a"]
    for ask in (lambda: store["a"], lambda: store.__delitem__("a")):
        with pytest.raises(KeyError, match="a"):
            ask()
    assert store.stats()["objects"] == 1 and store.stats()["misses"]["absent"] > 0


def test_async_twins(store):
    async def use():
        await asyncio.gather(*(store.put_async(f"{n}", noise(5000, n)) for n in range(200)))
        found = await asyncio.gather(*(store.get_async(f"{n}") for n in range(200)))
        assert all(view == noise(5000, n) for n, view in enumerate(found))
        await store.put_async("large", noise(2_000_000), metadata=b"m")
        assert (await store.get_object_async("large")).metadata == b"m"
        assert await store.get_async("large") == noise(2_000_000)
        await store.flush_async()
        assert await store.delete_async("large") and await store.get_async("large") is None

    asyncio.run(use())


def test_async_from_open_to_close(tmp_path):
    async def use():
        async with picaflor.Store(tmp_path / "cache.store", capacity=64 << 20) as store:
            await store.put_async("a", b"1")
            assert await store.contains_async("a") and not await store.contains_async("b")
            assert await store.keys_async() == [b"a"]
        await store.close_async()
        with pytest.raises(picaflor.Error, match="closed"):
            await store.get_async("a")

    asyncio.run(use())


def test_the_stub_is_what_is_there_with_words_and_twins():
    stub = ast.parse((Path(picaflor.__file__).parent / "__init__.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    for kind in [picaflor.Store, picaflor.Object]:
        told = dict(told_of(classes[kind.__name__]))
        there = {name for name, value in vars(kind).items() if callable(value) or hasattr(value, "__get__")}
        public = {name for name in there if not name.startswith("_")}
        assert public == {name for name in told if not name.startswith("_")}
        assert {name for name in told if name.startswith("_")} <= there | {"__init__"}
    for name, node in told_of(classes["Store"]):
        if name.startswith("_"):
            continue
        assert ast.get_docstring(node) and getattr(picaflor.Store, name).__doc__, name
        # Statistics do not wait.
        assert name == "stats" or name.endswith("_async") or hasattr(picaflor.Store, name + "_async"), name


def told_of(node):
    return [(each.name, each) for each in node.body if hasattr(each, "args")]


def test_threads_share_a_store(store):
    def use(number):
        for turn in range(200):
            store.put(f"{number}/{turn}", noise(1000, turn))
            assert store.get(f"{number}/{turn}") == noise(1000, turn)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store) == 800


def test_closed_is_an_error_and_closing_twice_is_none(tmp_path):
    store = picaflor.Store(tmp_path / "cache.store", capacity=64 << 20)
    store.close()
    store.close()
    with pytest.raises(picaflor.Error, match="closed"):
        store.get("key")


def test_errors_are_pythons_in_our_words(tmp_path):
    with pytest.raises(FileNotFoundError, match="none/cache.store"):
        picaflor.Store(tmp_path / "none" / "cache.store")
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"x" * (8 << 20))
    with pytest.raises(picaflor.Error, match="damaged"):
        picaflor.Store(foreign)
    with pytest.raises(OSError, match="(?i)space|large"):
        picaflor.Store(tmp_path / "full", capacity=1 << 44)
    with pytest.raises(ValueError, match="mode is 'chache'"):
        picaflor.Store(tmp_path / "new", mode="chache")
    with pytest.raises(ValueError, match="option memory"):
        picaflor.Store(tmp_path / "new", memory=1)
    with picaflor.Store(tmp_path / "store", mode="store", capacity=16 << 20, memory=16 << 20) as store:
        with pytest.raises(picaflor.Full, match="bytes needed"):
            for number in range(1000):
                store.put(f"{number}", noise(100_000))
        with pytest.raises(picaflor.Refused, match="too large"):
            store.put("large", bytes(10 << 20))
        with pytest.raises(ValueError, match="key of"):
            store.put(b"k" * 9000, b"")


# What the README shows, killed at its end.
README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLE = README.split("```python\n")[1].split("```")[0]


def test_the_readme_runs_and_what_it_put_survives_kill_9(tmp_path):
    killed = EXAMPLE + "\nimport os, signal\nstore.put('last', b'put', metadata=b'm')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    child = subprocess.run([sys.executable, "-c", killed], cwd=tmp_path)
    assert child.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["cache.store"]
    with picaflor.Store(tmp_path / "cache.store") as store:
        assert store["/logo.png"] == b"PNG"
        assert store.get_object("last").metadata == b"m"
