"""What each answer of the index means."""

from __future__ import annotations

import pickle

import opensearchpy.exceptions as foreign
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import StoreError, StoreRefused, StoreThrottled, StoreUnavailable
from ingest.index.client import Reply, reply_of, translate
from ingest.index.verdict import Verdict, classify, classify_request, never_fits

PRESSURE = (
    "rejected execution of coordinating operation [coordinating_and_primary_bytes={used}, replica_bytes=0, "
    "all_bytes={used}, coordinating_operation_bytes={own}, max_coordinating_and_primary_bytes={limit}]"
)
TOO_LARGE = PRESSURE.format(used=0, own=1260439, limit=1048576)
BUSY = PRESSURE.format(used=900000, own=200000, limit=1048576)
REJECTED = "rejected_execution_exception"
MAPPER = "mapper_parsing_exception"
FLOOD = "index [a] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, ...]"

ITEMS = [
    (200, "", "", "index", Verdict.SUCCESS),
    (201, "", "", "index", Verdict.SUCCESS),
    (200, "", "", "delete", Verdict.SUCCESS),
    (404, "", "", "delete", Verdict.SUCCESS),
    (409, "version_conflict_engine_exception", "current version [5] is higher", "index", Verdict.SUPERSEDED),
    (409, "version_conflict_engine_exception", "current version [5] is higher", "delete", Verdict.SUPERSEDED),
    (429, REJECTED, BUSY, "index", Verdict.THROTTLED),
    (429, "opensearch_rejected_execution_exception", "queue is full", "index", Verdict.THROTTLED),
    (429, "es_rejected_execution_exception", "queue is full", "index", Verdict.THROTTLED),
    (429, "circuit_breaking_exception", "[parent] Data too large", "index", Verdict.THROTTLED),
    (429, REJECTED, TOO_LARGE, "index", Verdict.PAYLOAD),
    (429, "cluster_block_exception", FLOOD, "index", Verdict.PERMANENT_SETUP),
    (429, "cluster_block_exception", FLOOD, "delete", Verdict.PERMANENT_SETUP),
    (502, "", "", "index", Verdict.TRANSIENT),
    (503, "unavailable_shards_exception", "", "index", Verdict.TRANSIENT),
    (504, "", "", "index", Verdict.TRANSIENT),
    (500, "node_closed_exception", "", "index", Verdict.TRANSIENT),
    (413, "", "", "index", Verdict.PAYLOAD),
    (400, MAPPER, "failed to parse; Vector dimension mismatch", "index", Verdict.PERMANENT_DOC),
    (400, "strict_dynamic_mapping_exception", "", "index", Verdict.PERMANENT_DOC),
    (400, "illegal_argument_exception", "immense term", "index", Verdict.PERMANENT_DOC),
    (
        400,
        "illegal_argument_exception",
        "Limit of total fields [1000] has been exceeded",
        "index",
        Verdict.PERMANENT_DOC,
    ),
    (400, "document_parsing_exception", "", "index", Verdict.PERMANENT_DOC),
    (400, "illegal_argument_exception", "no write index is defined for alias [a]", "index", Verdict.PERMANENT_SETUP),
    (400, "index_closed_exception", "closed", "index", Verdict.PERMANENT_SETUP),
    (400, "validation_exception", "[1000]/[1000] maximum shards open", "index", Verdict.PERMANENT_SETUP),
    (400, MAPPER, "failed to parse; … as the circuit breaker triggered.", "index", Verdict.PERMANENT_SETUP),
    (404, "index_not_found_exception", "no such index", "index", Verdict.PERMANENT_SETUP),
    (404, "index_not_found_exception", "no such index", "delete", Verdict.PERMANENT_SETUP),
    (401, "security_exception", "", "index", Verdict.PERMANENT_SETUP),
    (403, "security_exception", "no permissions", "index", Verdict.PERMANENT_SETUP),
    (403, "cluster_block_exception", "FORBIDDEN/8/index write (api)", "index", Verdict.PERMANENT_SETUP),
    (404, "", "", "index", Verdict.UNKNOWN),
    (409, "something_new_exception", "", "index", Verdict.UNKNOWN),
]


@pytest.mark.parametrize(("status", "kind", "reason", "op", "verdict"), ITEMS)
def test_every_item_answer_has_its_verdict(status: int, kind: str, reason: str, op: str, verdict: Verdict) -> None:
    assert classify(status, kind, reason, op) is verdict


REQUESTS = [
    (Reply(200, {"items": []}), Verdict.SUCCESS),
    (Reply(413), Verdict.PAYLOAD),
    (Reply(413, None, "", '{"Message":"Request size exceeded 10485760 bytes"}'), Verdict.PAYLOAD),
    (Reply(429, None, REJECTED, TOO_LARGE), Verdict.PAYLOAD),
    (Reply(429, None, REJECTED, BUSY), Verdict.THROTTLED),
    (Reply(429, None, "", "Too Many Requests"), Verdict.THROTTLED),
    (Reply(429, None, "cluster_block_exception", FLOOD), Verdict.PERMANENT_SETUP),
    (Reply(400, None, "action_request_validation_exception", "id is too long"), Verdict.MALFORMED),
    (Reply(400, None, "illegal_argument_exception", "Malformed action/metadata line"), Verdict.MALFORMED),
    (Reply(400, None, "parse_exception", "request body is required"), Verdict.MALFORMED),
    (Reply(400, None, "illegal_argument_exception", "Document ID is not supported in create"), Verdict.PERMANENT_SETUP),
    (Reply(400, None, "", "Bad Request"), Verdict.PERMANENT_SETUP),
    (Reply(401), Verdict.PERMANENT_SETUP),
    (Reply(403), Verdict.PERMANENT_SETUP),
    (Reply(404, None, "index_not_found_exception"), Verdict.PERMANENT_SETUP),
    (Reply(302), Verdict.PERMANENT_SETUP),
    (Reply(500), Verdict.TRANSIENT),
    (Reply(503), Verdict.TRANSIENT),
    (Reply(0, None, "timeout"), Verdict.TRANSIENT),
    (Reply(0, None, "connection"), Verdict.TRANSIENT),
    (Reply(0, None, "unreadable"), Verdict.UNKNOWN),
    (Reply(0, None, "certificate"), Verdict.PERMANENT_SETUP),
]


@pytest.mark.parametrize(("reply", "verdict"), REQUESTS)
def test_every_request_answer_has_its_verdict(reply: Reply, verdict: Verdict) -> None:
    assert classify_request(reply, alone=False) is verdict


def test_a_full_node_means_the_request_itself_when_nothing_else_is_in_flight() -> None:
    assert classify_request(Reply(429, None, REJECTED, BUSY), alone=True) is Verdict.PAYLOAD
    assert classify_request(Reply(429, None, REJECTED, "queue capacity"), alone=True) is Verdict.THROTTLED


def test_an_operation_above_the_limit_never_fits() -> None:
    assert never_fits(TOO_LARGE)
    assert not never_fits(BUSY)
    assert never_fits(
        "rejected execution of primary operation [primary_operation_bytes=9, max_coordinating_and_primary_bytes=8]"
    )


@given(
    status=st.sampled_from([401, 403, 404, 408, 429, 500, 502, 503, 504]),
    kind=st.text(max_size=30),
    reason=st.text(max_size=60),
    op=st.sampled_from(["index", "delete"]),
)
def test_only_a_400_or_its_size_blames_a_chunk(status: int, kind: str, reason: str, op: str) -> None:
    assert classify(status, kind, reason, op) not in (Verdict.PERMANENT_DOC, Verdict.MALFORMED)


def _foreign() -> list[type[foreign.OpenSearchException]]:
    found = [getattr(foreign, name) for name in foreign.__all__]
    return [kind for kind in found if issubclass(kind, foreign.OpenSearchException)]


@pytest.mark.parametrize("kind", _foreign())
def test_every_exception_of_the_client_is_translated_and_survives_pickling(
    kind: type[foreign.OpenSearchException],
) -> None:
    error = translate(reply_of(kind("N/A", "text", ValueError("cause"))))
    assert isinstance(error, StoreError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


TRANSLATED = [
    (Reply(429, None, "", "slow", 7.0), StoreThrottled),
    (Reply(429, None, "cluster_block_exception", FLOOD), StoreRefused),
    (Reply(0, None, "timeout", "read"), StoreUnavailable),
    (Reply(0, None, "certificate", "self-signed"), StoreRefused),
    (Reply(500), StoreUnavailable),
    (Reply(503), StoreUnavailable),
    (Reply(503, None, "too_many_buckets_exception"), StoreRefused),
    (Reply(400), StoreRefused),
    (Reply(401), StoreRefused),
    (Reply(403), StoreRefused),
    (Reply(404, None, "index_not_found_exception"), StoreRefused),
]


@pytest.mark.parametrize(("reply", "error"), TRANSLATED)
def test_every_status_has_its_error(reply: Reply, error: type[StoreError]) -> None:
    assert type(translate(reply)) is error


def test_a_throttled_answer_keeps_what_the_server_asked_for() -> None:
    error = translate(Reply(429, None, "", "slow", 7.0))
    assert isinstance(error, StoreThrottled)
    assert error.retry_after_s == 7.0


def test_an_untrusted_certificate_is_not_tried_again_and_a_broken_handshake_is() -> None:
    untrusted = foreign.SSLError("N/A", "", ValueError("CERTIFICATE_VERIFY_FAILED self-signed"))
    broken = foreign.SSLError("N/A", "", ValueError("EOF occurred in violation of protocol"))
    assert isinstance(translate(reply_of(untrusted)), StoreRefused)
    assert isinstance(translate(reply_of(broken)), StoreUnavailable)


def test_the_cause_is_told_with_the_reason() -> None:
    cause = {"type": "illegal_argument_exception", "reason": "dimension mismatch"}
    info = {"error": {"type": MAPPER, "reason": "failed", "caused_by": cause}}
    reply = reply_of(foreign.RequestError(400, MAPPER, info))
    assert (reply.status, reply.kind, reply.reason) == (400, MAPPER, "failed; dimension mismatch")


def test_words_of_a_document_never_stop_a_run() -> None:
    quoted = "failed to parse field [revision]. Preview of field's value: 'no write index is defined for alias [a]'"
    reply = reply_of(foreign.RequestError(400, MAPPER, {"error": {"type": MAPPER, "reason": quoted}}))
    assert reply.reason == "failed to parse field [revision]."
    assert classify(400, reply.kind, reply.reason, "index") is Verdict.PERMANENT_DOC
