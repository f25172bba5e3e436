"""The storage of hishel, before a server that counts."""

import asyncio
import multiprocessing
import os
import signal

import httpx
import picaflor
import pytest
from conftest import served
from hishel import Headers, Request, Response
from hishel.httpx import AsyncCacheClient, CacheClient
from picaflor.hishel import SLOTS, AsyncPicaflorStorage, PicaflorStorage

OPTIONS = {"capacity": 64 << 20, "memory": 16 << 20, "durable_within": 0}


@pytest.fixture
def server():
    class Answers:
        def do_GET(self):
            self.asked.append(self.path)
            language = self.headers.get("Accept-Language", "")
            if self.path == "/checked" and self.headers.get("If-None-Match") == '"1"':
                self.send_response(304)
                self.send_header("ETag", '"1"')
                self.send_header("X-Times", str(len(self.asked)))
                self.end_headers()
                return
            body = f"this is {self.path} {language}".encode() * (50_000 if self.path == "/large" else 10)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "max-age=0" if self.path == "/checked" else "max-age=600")
            if self.path == "/checked":
                self.send_header("ETag", '"1"')
            if self.path == "/vary":
                self.send_header("Vary", "Accept-Language")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.send_response(204)
            self.end_headers()

    with served(Answers) as server:
        yield server


def _hit(response):
    return response.extensions["caching"]["from_cache"]


def test_responses_survive_and_are_hits(tmp_path, server):
    url, asked = server
    for turn in range(2):
        storage = PicaflorStorage(tmp_path / "http.store", store_options=OPTIONS)
        with CacheClient(storage=storage, rfc=True) as client:
            for path in ["/a", "/b", "/large"]:
                response = client.get(url + path)
                assert _hit(response) == (turn == 1)
                assert response.text.startswith(f"this is {path}")
            assert _hit(client.get(url + "/a"))
        storage.close()
    assert asked == ["/a", "/b", "/large"]


def _fetch_and_die(store, urls):
    client = CacheClient(storage=PicaflorStorage(store, store_options=OPTIONS), rfc=True)
    for url in urls:
        client.get(url)
    os.kill(os.getpid(), signal.SIGKILL)


def test_after_kill_9_responses_are_hits(tmp_path, server):
    url, asked = server
    store, urls = tmp_path / "http.store", [url + path for path in ["/a", "/large"]]
    child = multiprocessing.get_context("spawn").Process(target=_fetch_and_die, args=(store, urls))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    storage = PicaflorStorage(store, store_options=OPTIONS)
    with CacheClient(storage=storage, rfc=True) as client:
        assert all(_hit(client.get(each)) for each in urls)
    storage.close()
    assert asked == ["/a", "/large"]


def test_variants_validation_and_invalidation(tmp_path, server):
    url, asked = server
    storage = PicaflorStorage(tmp_path / "http.store", store_options=OPTIONS)
    with CacheClient(storage=storage, rfc=True) as client:
        for turn in range(2):
            for language in ["en", "es"]:
                response = client.get(url + "/vary", headers={"Accept-Language": language})
                assert _hit(response) == (turn == 1) and language in response.text
        for turn in range(3):
            response = client.get(url + "/checked")
            assert response.text.startswith("this is /checked")
            assert response.extensions["caching"]["revalidated"] == (turn > 0)
        # A 304 has brought newer headers.
        assert response.headers["x-times"] == "5"
        client.get(url + "/a")
        client.post(url + "/a")
        assert not _hit(client.get(url + "/a"))
    storage.close()


def test_a_fill_that_breaks_off_is_not_there(tmp_path):
    storage = PicaflorStorage(tmp_path / "http.store", store_options=OPTIONS)

    def pieces():
        yield b"one"
        raise OSError("the network is gone")

    request, head = Request("GET", "http://x/"), Headers({"a": ["1", "2"]})
    entry = storage.create_entry(request, Response(200, head, pieces()), "key")
    assert storage.get_entries("key") == []
    with pytest.raises(OSError):
        list(entry.response.stream)
    assert storage.get_entries("key") == []
    entry = storage.create_entry(request, Response(200, head, iter([b"one", b"two"])), "key")
    assert list(entry.response.stream) == [b"one", b"two"]
    (found,) = storage.get_entries("key")
    assert (found.id, found.request.url, found.response.status_code) == (entry.id, "http://x/", 200)
    assert found.response.headers.get_list("a") == ["1", "2"]
    storage.remove_entry(entry.id)
    storage.remove_entry(entry.id)
    storage.update_headers(entry.id, Headers({}))
    assert storage.get_entries("key") == []
    # What was found before is still whole.
    assert b"".join(found.response.stream) == b"onetwo"
    storage.close()


def test_limits(tmp_path):
    storage = PicaflorStorage(tmp_path / "http.store", store_options=OPTIONS, max_stream_size=1000)
    request = Request("GET", "http://x/")

    def kept(key, body, **limits):
        entry = storage.create_entry(request, Response(200, Headers({}), iter([body])), key, **limits)
        assert b"".join(entry.response.stream) == body
        return [b"".join(found.response.stream) for found in storage.get_entries(key)]

    assert kept("small", b"x" * 1000) == [b"x" * 1000]
    assert kept("large", b"x" * 1001) == []
    assert kept("short", b"x", ttl=-1.0) == []
    assert kept("long", b"x", ttl=600.0, tti=300.0) == [b"x"]
    # Of more responses of one key than there are places for, the oldest leave.
    for number in range(SLOTS + 2):
        found = kept("many", str(number).encode())
    assert sorted(found) == [str(number).encode() for number in range(2, SLOTS + 2)]
    # A store that refuses does not fail the request.
    storage.store.close()
    entry = storage.create_entry(request, Response(200, Headers({}), iter([b"x"])), "key")
    assert list(entry.response.stream) == [b"x"]
    assert storage.get_entries("key") == []


def test_async(tmp_path, server):
    url, asked = server

    async def turn(is_hit):
        storage = AsyncPicaflorStorage(tmp_path / "http.store", store_options=OPTIONS)
        async with AsyncCacheClient(storage=storage, rfc=True) as client:
            for path in ["/a", "/large", "/checked", "/checked"]:
                response = await client.get(url + path)
                assert response.text.startswith(f"this is {path}")
                assert path == "/checked" or _hit(response) == is_hit
            both = await asyncio.gather(*(client.get(url + f"/{number}") for number in range(20)))
            assert all(_hit(response) == is_hit for response in both)
            await client.post(url + "/a")
            assert not _hit(await client.get(url + "/a"))
        await storage.close()

    asyncio.run(turn(False))
    asyncio.run(turn(True))


def test_a_store_that_is_open_stays_open(tmp_path, server):
    with picaflor.Store(tmp_path / "http.store", capacity=64 << 20) as store:
        storage = PicaflorStorage(store)
        with CacheClient(storage=storage) as client:
            client.get(server[0] + "/a")
        storage.close()
        assert len(store) == 1
    assert httpx.__version__
