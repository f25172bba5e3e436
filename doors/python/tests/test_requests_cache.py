"""The backend of requests-cache, before a server that counts."""

import picaflor
import pytest
from conftest import served
from picaflor.requests_cache import PicaflorCache
from requests_cache import CachedSession


@pytest.fixture
def server():
    class Answers:
        def do_GET(self):
            self.asked.append(self.path)
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/there")
                self.end_headers()
                return
            body = f"this is {self.path}".encode() * 1000
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with served(Answers) as server:
        yield server


def test_responses_survive_and_are_hits(tmp_path, server):
    url, asked = server
    with CachedSession(backend="memory") as session:
        for path in ["/a", "/b", "/moved"]:
            session.get(url + path)
        kept = [len(session.cache.responses), len(session.cache.redirects)]
    asked.clear()
    options = {"capacity": 64 << 20, "memory": 16 << 20}
    for turn in range(2):
        with CachedSession(backend=PicaflorCache(tmp_path / "http.store", store_options=options)) as session:
            for path in ["/a", "/b", "/moved"]:
                response = session.get(url + path)
                assert response.from_cache == (turn == 1)
                assert response.text.startswith("this is")
            assert session.get(url + "/a").from_cache
            # As many as a backend of requests-cache's own has.
            assert [len(session.cache.responses), len(session.cache.redirects)] == kept
            assert session.cache.contains(url=url + "/a")
            if turn == 1:
                session.cache.delete(urls=[url + "/a"])
                assert not session.get(url + "/a").from_cache
                session.cache.clear()
                assert len(session.cache.responses) == 0
    assert asked == ["/a", "/b", "/moved", "/there", "/a"]


def test_a_store_that_is_open_stays_open(tmp_path, server):
    with picaflor.Store(tmp_path / "http.store", capacity=64 << 20) as store:
        with CachedSession(backend=PicaflorCache(store)) as session:
            session.get(server[0] + "/a")
        assert len(store) == 1
