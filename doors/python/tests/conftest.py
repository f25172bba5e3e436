"""What tests of several caches need."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def served(answers: type) -> Iterator[tuple[str, list[str]]]:
    """A server whose requests are handled by these methods: its address, and the paths that were asked for."""

    class Handler(answers, http.server.BaseHTTPRequestHandler):
        asked: list[str] = []

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", Handler.asked
    finally:
        server.shutdown()
