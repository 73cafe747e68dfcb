"""The client against a server that answers what proxies and overloaded nodes answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from ingest.config import IndexConfig
from ingest.errors import ConfigError, StoreRefused, StoreThrottled, StoreUnavailable
from ingest.index.client import Cluster, connect, translate, whole
from ingest.index.verdict import Verdict, classify_request


class Door(BaseHTTPRequestHandler):
    """Answers by path: (status, headers, body)."""

    seen: ClassVar[list[dict[str, str]]] = []
    answers: ClassVar[dict[str, tuple[int, dict[str, str], bytes]]] = {
        "/throttled": (429, {"Retry-After": "17"}, b"slow down"),
        "/date": (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, b""),
        "/good": (200, {"Content-Type": "application/json; charset=UTF-8"}, b'{"a": 1}'),
        "/html": (200, {"Content-Type": "text/html"}, b"<html>welcome</html>"),
        "/cut": (200, {"Content-Type": "application/json"}, b'{"items": [{"index"'),
        "/large": (413, {}, b""),
        "/gateway": (502, {"Content-Type": "text/html"}, b"<html>bad gateway</html>"),
        "/refused": (
            400,
            {"Content-Type": "application/json"},
            b'{"error": {"type": "parse_exception", "reason": "request body is required"}, "status": 400}',
        ),
        "/forbidden": (403, {}, b"User is not authorized"),
        "/missing": (404, {}, b""),
    }

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append(dict(self.headers.items()))
        path = self.path.partition("?")[0]
        if path == "/hangs":
            time.sleep(1.0)
        status, headers, body = self.answers.get(path, (200, {}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cluster(url: str) -> Iterator[Cluster]:
    found = connect(IndexConfig(url=url, timeout_s=0.3))
    yield found
    found.close()


def test_a_good_answer_is_its_body(cluster: Cluster) -> None:
    assert cluster.call("POST", "/good") == {"a": 1}


def test_retry_after_reaches_the_writer_and_does_not_stick_to_later_answers(cluster: Cluster) -> None:
    assert cluster.send("POST", "/throttled").retry_after_s == 17.0
    assert cluster.send("POST", "/date").retry_after_s == 0.0
    assert cluster.send("POST", "/gateway").retry_after_s == 0.0
    with pytest.raises(StoreThrottled, match="slow down") as caught:
        cluster.call("POST", "/throttled")
    assert caught.value.retry_after_s == 17.0


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("/html", Verdict.UNKNOWN),
        ("/cut", Verdict.UNKNOWN),
        ("/hangs", Verdict.TRANSIENT),
        ("/gateway", Verdict.TRANSIENT),
        ("/throttled", Verdict.THROTTLED),
        ("/large", Verdict.PAYLOAD),
        ("/refused", Verdict.MALFORMED),
        ("/forbidden", Verdict.PERMANENT_SETUP),
    ],
)
def test_what_proxies_answer_has_its_verdict(cluster: Cluster, path: str, verdict: Verdict) -> None:
    assert classify_request(cluster.send("POST", path, b"{}\n"), alone=False) is verdict


def test_nobody_there_is_tried_again_later() -> None:
    gone = connect(IndexConfig(url="http://127.0.0.1:9"))
    with pytest.raises(StoreUnavailable, match="connection"):
        gone.call("GET", "/")
    gone.close()


def test_a_refusal_says_what_the_cluster_said(cluster: Cluster) -> None:
    with pytest.raises(StoreRefused, match="400 parse_exception: request body is required"):
        cluster.call("POST", "/refused")


def test_only_a_missing_thing_is_none(cluster: Cluster) -> None:
    assert cluster.find("POST", "/missing") is None
    with pytest.raises(StoreRefused):
        cluster.find("POST", "/forbidden")


def test_the_client_does_not_try_again_by_itself(cluster: Cluster) -> None:
    before = len(Door.seen)
    translate(cluster.send("POST", "/gateway"))
    assert len(Door.seen) == before + 1


def test_basic_authentication_comes_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSEARCH_USER", "me")
    monkeypatch.setenv("OPENSEARCH_PASSWORD", "secret")
    cluster = connect(IndexConfig(url=url, auth="basic"))
    cluster.call("POST", "/good")
    cluster.close()
    assert {name.lower(): value for name, value in Door.seen[-1].items()}["authorization"] == "Basic bWU6c2VjcmV0"


def test_requests_are_signed_for_aws(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    cluster = connect(IndexConfig(url=url, auth="sigv4", region="eu-central-1"))
    cluster.call("POST", "/good", b"{}")
    cluster.close()
    headers = {name.lower(): value for name, value in Door.seen[-1].items()}
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/eu-central-1/es/aws4_request" in headers["authorization"]


def test_a_configuration_that_can_not_connect_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENSEARCH_USER", raising=False)
    with pytest.raises(ConfigError, match="OPENSEARCH_USER"):
        connect(IndexConfig(url="http://127.0.0.1:9", auth="basic"))
    with pytest.raises(ConfigError, match="no http"):
        connect(IndexConfig(url="127.0.0.1:9200"))


def test_an_answer_of_some_shards_is_no_answer() -> None:
    good = {"_shards": {"failed": 0}, "timed_out": False, "count": 3}
    assert whole(good) is good
    with pytest.raises(StoreUnavailable):
        whole({"_shards": {"failed": 1}})
    with pytest.raises(StoreUnavailable):
        whole({"_shards": {"failed": 0}, "timed_out": True})
