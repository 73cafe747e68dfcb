"""The one place that talks to OpenSearch: requests go in, a ``Reply`` or one of our errors comes out.

``Cluster.send`` answers with a ``Reply`` whatever happened; ``Cluster.call`` raises by the table of ``translate``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
from opensearchpy import OpenSearch, Urllib3AWSV4SignerAuth, Urllib3HttpConnection
from opensearchpy.exceptions import (
    ConnectionError as LostConnection,
)
from opensearchpy.exceptions import (
    ConnectionTimeout,
    OpenSearchException,
    SerializationError,
    SSLError,
    TransportError,
)

from ingest.config import IndexConfig
from ingest.errors import ConfigError, StoreError, StoreRefused, StoreThrottled, StoreUnavailable

LOOPBACK = ("localhost", "127.0.0.1", "::1")
NO_ANSWER = 0  # the status of a Reply that never came, or came unreadable
BULK_FIELDS = "errors,error,status,items.*.status,items.*._id,items.*.result,items.*.error"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the cluster answered: HTTP status (0 = nothing readable), parsed body, error type and reason."""

    status: int
    body: Any = None
    kind: str = ""
    reason: str = ""
    retry_after_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.status or 'no answer'} {self.kind}: {self.reason}"[:1000]


class Cluster:
    """An OpenSearch cluster; safe to share between threads, not picklable: each process connects by itself."""

    def __init__(self, client: OpenSearch, url: str) -> None:
        self.url = url
        self._client = client

    def send(self, method: str, path: str, body: Any = None, **params: Any) -> Reply:
        """The reply to one request, never an exception; ``body`` is bytes or what JSON can hold."""
        raw = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        timeout_s = params.pop("request_timeout", None)
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items()}
        try:
            answer = self._client.transport.perform_request(method, path, params=query, body=raw, timeout=timeout_s)
        except OpenSearchException as error:
            return reply_of(error)
        return Reply(200, answer)

    def call(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """The body of a good answer; any other is raised as a ``StoreError``."""
        reply = self.send(method, path, body, **params)
        if not reply.is_ok:
            raise translate(reply)
        return reply.body

    def find(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """As ``call``, and None where the cluster says 404."""
        reply = self.send(method, path, body, **params)
        if reply.status == 404:
            return None
        if not reply.is_ok:
            raise translate(reply)
        return reply.body

    def search(self, index: str, body: Mapping[str, Any], **params: Any) -> Any:
        """A search that every shard answered in time; a partial one is ``StoreUnavailable``."""
        return whole(self.call("POST", f"/{index}/_search" if index else "/_search", body, **params))

    def bulk(self, alias: str, body: bytes) -> Reply:
        """One bulk request through ``alias``: a vanished index answers 404 and is not made anew by guess."""
        return self.send("POST", f"/{alias}/_bulk", body, require_alias=True, filter_path=BULK_FIELDS)

    def close(self) -> None:
        self._client.close()


def whole(answer: Any) -> Any:
    """``answer`` of a search or count, or StoreUnavailable when a shard failed or time ran out."""
    failed = answer["_shards"]["failed"]
    if failed or answer.get("timed_out"):
        raise StoreUnavailable(f"{failed} shards failed, timed out: {bool(answer.get('timed_out'))}; no count to trust")
    return answer


# ---------------------------------------------------------------- connecting


def connect(config: IndexConfig) -> Cluster:
    """A connection pool to the cluster of ``config``; nothing is sent yet. Raises ConfigError."""
    url = urlsplit(config.url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"index.url: {config.url!r} is no http(s)://host:port")
    options: dict[str, Any] = {"ca_certs": config.ca_file} if config.ca_file else {}
    if config.auth != "none":
        options["http_auth"] = _AUTH[config.auth](config)
    # Each failed request is in the run's own counters; the client would log a traceback for every retry.
    logging.getLogger("opensearch").setLevel(logging.CRITICAL)
    client = OpenSearch(
        [config.url],
        connection_class=_Connection,
        timeout=config.timeout_s,
        max_retries=0,  # its own tries have neither pause nor jitter
        pool_maxsize=max(8, config.concurrency),
        http_compress=url.hostname not in LOOPBACK,
        **options,
    )
    return Cluster(client, config.url)


def _basic(config: IndexConfig) -> tuple[str, str]:
    try:
        return os.environ["OPENSEARCH_USER"], os.environ["OPENSEARCH_PASSWORD"]
    except KeyError as error:
        raise ConfigError(f"index.auth is basic: set the environment variable {error.args[0]}") from error


def _sigv4(config: IndexConfig) -> Urllib3AWSV4SignerAuth:
    import boto3

    session = boto3.Session()
    region, credentials = config.region or session.region_name, session.get_credentials()
    if not region or not credentials:
        raise ConfigError("index.auth is sigv4: no AWS region or no credentials found; set index.region or AWS_PROFILE")
    return Urllib3AWSV4SignerAuth(credentials, region, "es")


_AUTH: dict[str, Callable[[IndexConfig], Any]] = {"basic": _basic, "sigv4": _sigv4}


class _RefusedError(TransportError):
    """A refusal with the seconds of its ``Retry-After`` as last argument."""


class _Connection(Urllib3HttpConnection):
    """Keeps ``Retry-After``, which the client drops from its exceptions."""

    _seen = threading.local()

    def get_response_headers(self, response: Any) -> Any:
        headers = super().get_response_headers(response)
        self._seen.retry_after = headers.get("retry-after", "")
        return headers

    def _raise_error(self, status_code: int, raw_data: Any, content_type: str | None = None) -> None:
        try:
            super()._raise_error(status_code, raw_data, content_type)
        except TransportError as error:
            raise _RefusedError(*error.args, _seconds(getattr(self._seen, "retry_after", ""))) from error


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else 0.0


# ---------------------------------------------------------------- errors


def reply_of(error: OpenSearchException) -> Reply:
    """The reply behind an exception of the client: first row of the table that fits."""
    for foreign, make in _FOREIGN:
        if isinstance(error, foreign):
            return make(error)
    return Reply(NO_ANSWER, None, "client_error", f"{type(error).__name__}: {error}")


def translate(reply: Reply) -> StoreError:
    """Our error for a reply that is no good answer."""
    if (reply.status, reply.kind) in _NEVER_AGAIN:
        return StoreRefused(str(reply))
    if reply.status == 429:
        return StoreThrottled(str(reply), reply.retry_after_s)
    if reply.status in _LATER:
        return StoreUnavailable(str(reply))
    return StoreRefused(str(reply))


_LATER = (NO_ANSWER, 408, 500, 502, 503, 504)
_NEVER_AGAIN = {
    (429, "cluster_block_exception"),  # disk over the flood stage: answers 429 until somebody frees space
    (503, "too_many_buckets_exception"),
    (NO_ANSWER, "certificate"),
    (NO_ANSWER, "client_error"),
}


def _lost(error: LostConnection) -> Reply:
    return Reply(NO_ANSWER, None, "connection", str(error.info))


def _tls(error: SSLError) -> Reply:
    text = str(error.info)
    is_certificate = "CERTIFICATE_VERIFY_FAILED" in text or "doesn't match" in text
    return Reply(NO_ANSWER, None, "certificate" if is_certificate else "connection", text)


def _status(error: TransportError) -> Reply:
    kind, reason = _told(error.info, str(error.error))
    status = error.status_code if isinstance(error.status_code, int) else NO_ANSWER
    return Reply(status, error.info, kind, reason, error.args[-1] if isinstance(error, _RefusedError) else 0.0)


def _told(info: Any, text: str) -> tuple[str, str]:
    problem = info.get("error") if isinstance(info, Mapping) else None
    return (str(problem.get("type", "")), reasons(problem)) if isinstance(problem, Mapping) else ("", text[:1000])


def reasons(problem: Mapping[str, Any]) -> str:
    """The reason of an error object and of what caused it: the k-NN plugin puts its text only into the cause."""
    cause = problem.get("caused_by")
    # Some repeat the field's value: words of a document belong neither into a log nor before a classifier.
    own = str(problem.get("reason", "")).partition(" Preview of field's value")[0][:500]
    return f"{own}; {reasons(cause)}" if isinstance(cause, Mapping) else own


_FOREIGN: tuple[tuple[type[OpenSearchException], Callable[[Any], Reply]], ...] = (
    (ConnectionTimeout, lambda error: Reply(NO_ANSWER, None, "timeout", str(error.info))),
    (SSLError, _tls),
    (LostConnection, _lost),
    (TransportError, _status),
    (SerializationError, lambda error: Reply(NO_ANSWER, None, "unreadable", str(error)[:200])),
)
