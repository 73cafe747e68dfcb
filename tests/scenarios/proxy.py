"""A proxy before the real OpenSearch with the faults of a scenario, and counts of what went through it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "keep-alive"}
REFUSED_IDS = "Document ID is not supported in create/index operation request"
Items = list[tuple[str, dict[str, Any], bytes]]  # operation, its action, its lines


@dataclass(slots=True)
class Faults:
    """The faults that are on, and what was counted; changed by the scenario, read by the proxy's threads."""

    on: list[dict[str, Any]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    lock: Any = field(default_factory=threading.Lock)

    def active(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        return [f for f in self.on if f.get("until", now) >= now and f.get("left", 1) > 0]

    def use(self, fault: dict[str, Any]) -> None:
        """One of its uses is gone, where it has a number of them."""
        with self.lock:
            if "left" in fault:
                fault["left"] -= 1


@contextmanager
def before(upstream: str, faults: Faults) -> Iterator[str]:
    """The URL of the proxy."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(urlsplit(upstream).netloc, faults))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parsed(body: bytes) -> Items:
    """The operations of a bulk body."""
    lines, found = body.splitlines(keepends=True), []
    while lines:
        head = lines.pop(0)
        (operation, action), *_ = json.loads(head).items()
        rest = b"" if operation == "delete" else lines.pop(0)
        found.append((operation, action, head + rest))
    return found


def _handler(upstream: str, faults: Faults) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if "/_bulk" in self.path:
                self._bulk(body)
                return
            if _writes_with_id(self.command, self.path):
                for fault in faults.active():
                    if fault["does"] == "refuse_ids":
                        self._error(400, "illegal_argument_exception", REFUSED_IDS)
                        return
            self._reply(*self._onward(body))

        def _bulk(self, body: bytes) -> None:
            items = parsed(body)
            faults.seen["bulk_requests"] += 1
            faults.seen["bulk_items"] += len(items)
            for fault in faults.active():
                if self._whole(fault, body):
                    return
            told: dict[int, dict[str, Any]] = {}
            for fault in faults.active():
                told |= _item_answers(fault, items, faults)
            passed = [lines for n, (_, _, lines) in enumerate(items) if n not in told]
            status, headers, answer = self._onward(b"".join(passed)) if passed else (200, {}, b'{"items":[]}')
            if status == 200:
                answer = _merged(answer, told, len(items), any(f["does"] == "item_404" for f in faults.active()))
            self._reply(status, headers, answer)

        def _whole(self, fault: dict[str, Any], body: bytes) -> bool:
            does = fault["does"]
            if does == "html_502":
                faults.use(fault)
                self._reply(502, {"content-type": "text/html"}, b"<html><body>502 Bad Gateway</body></html>")
            elif does == "413" and len(body) > fault["over_bytes"]:
                faults.use(fault)
                self._reply(413, {}, b"")
            elif does == "refuse_ids":
                self._error(400, "illegal_argument_exception", REFUSED_IDS)
            elif does == "drop_connection_after_write":
                faults.use(fault)
                self._onward(body)
                self.close_connection = True
            else:
                return False
            return True

        def _onward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            onward = http.client.HTTPConnection(upstream, timeout=120)
            kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
            onward.request(self.command, self.path, body, kept)
            reply = onward.getresponse()
            answer = reply.read()
            onward.close()
            return reply.status, dict(reply.getheaders()), answer

        def _error(self, status: int, kind: str, reason: str) -> None:
            body = json.dumps({"error": {"type": kind, "reason": reason}, "status": status}).encode()
            self._reply(status, {"content-type": "application/json"}, body)

        def _reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _writes_with_id(method: str, path: str) -> bool:
    return method in ("PUT", "POST") and "/_doc/" in path


ITEM_FAULTS = {
    "item_429": (429, "rejected_execution_exception", "rejected execution of primary operation"),
    "item_400_mapper_parsing": (400, "mapper_parsing_exception", "failed to parse field"),
}


def _item_answers(fault: dict[str, Any], items: Items, faults: Faults) -> dict[int, dict[str, Any]]:
    """Position → answer of the items that this fault hits."""
    does = fault["does"]
    if does == "leave_out_last_items":
        faults.use(fault)
        return {n: {} for n in range(len(items) - fault["items"], len(items))}
    hit = [
        n
        for n, (operation, _, lines) in enumerate(items)
        if fault.get("ops", operation) == operation
        and any(word.encode() in lines for word in fault.get("texts", [""]))
        and (operation != "delete" or "ops" in fault)
    ]
    if does not in ITEM_FAULTS:
        return {}
    fresh = [n for n in hit if _is_new(fault, items[n][1]["_id"])]
    faults.seen[f"{does}s"] += len(fresh)
    return {n: _answer(items[n], *ITEM_FAULTS[does]) for n in fresh}


def _is_new(fault: dict[str, Any], name: str) -> bool:
    """Whether an item may be hit: with ``times``, each so often."""
    if "times" not in fault:
        return True
    counts = fault.setdefault("by_item", Counter())
    counts[name] += 1
    return bool(counts[name] <= fault["times"])


def _answer(item: tuple[str, dict[str, Any], bytes], status: int, kind: str, reason: str) -> dict[str, Any]:
    operation, action, _ = item
    told: dict[str, Any] = {"_id": action["_id"], "status": status}
    if kind:
        told["error"] = {"type": kind, "reason": reason}
    return {operation: told}


def _merged(answer: bytes, told: Mapping[int, dict[str, Any]], number: int, deletes_404: bool) -> bytes:
    """The real answer with the faulty items in their places; one that is left out is not there at all."""
    body = json.loads(answer)
    real = iter(body["items"])
    items = [item for n in range(number) if (item := told[n] if n in told else next(real))]
    for item in items if deletes_404 else ():
        if "delete" in item:
            item["delete"] |= {"status": 404, "result": "not_found"}
    return json.dumps({"took": 1, **body, "errors": bool(told), "items": items}).encode()
