"""A proxy before a real server that answers some requests itself, as a loaded or restarting cluster would."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Fault = Callable[[str, str], int]  # (method, path) → the status to answer instead, or 0
HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "keep-alive"}


@contextmanager
def faulty(upstream: str, fault: Fault) -> Iterator[str]:
    """The URL of a proxy before ``upstream``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(upstream, fault))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def first_of_each(status: int) -> Fault:
    """Answers ``status`` to the first request of each kind, whatever the index is called."""
    seen: set[tuple[str, str]] = set()

    def fault(method: str, path: str) -> int:
        kind = (method, urlsplit(path).path.rpartition("/")[2] if "/_" in path else "index")
        if kind in seen:
            return 0
        seen.add(kind)
        return status

    return fault


def _handler(upstream: str, fault: Fault) -> type[BaseHTTPRequestHandler]:
    netloc = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if status := fault(self.command, self.path):
                self._send(status, {"content-type": "application/json"}, b'{"error":{"type":"busy","reason":"busy"}}')
                return
            onward = http.client.HTTPConnection(netloc, timeout=60)
            onward.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k != "Host"})
            reply = onward.getresponse()
            self._send(reply.status, dict(reply.getheaders()), reply.read())
            onward.close()

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _answer  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            pass

    return Handler
