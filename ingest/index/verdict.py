"""What an answer of ``_bulk`` means: one table for its items, one for the request as a whole; the first row that fits.

Status alone does not tell: 429 and 400 mean three things each, 404 two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ingest.index.client import NO_ANSWER, Reply


class Verdict(StrEnum):
    """Meaning of an answer; the value is the ``status`` label of the metrics."""

    SUCCESS = "success"
    SUPERSEDED = "superseded"  # a newer revision is there: as good as success
    THROTTLED = "throttled"  # send again, slower
    TRANSIENT = "transient"  # send again
    PAYLOAD = "payload"  # too much at once: halve
    PERMANENT_DOC = "permanent_doc"  # this chunk will never go in
    PERMANENT_SETUP = "permanent_setup"  # no chunk will go in until somebody repairs the cluster: stop, blame no chunk
    MALFORMED = "malformed"  # the request was refused as a whole because of one item: bisect
    UNKNOWN = "unknown"  # nobody knows what landed: send again, ids and revisions make that safe


AGAIN = (Verdict.THROTTLED, Verdict.TRANSIENT, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Row:
    """Statuses, and where given the error types, a pattern in the reason and the operation, that give a verdict."""

    statuses: tuple[int, ...]
    verdict: Verdict
    kinds: tuple[str, ...] = ()
    pattern: str = ""
    op: str = ""

    def fits(self, status: int, kind: str, reason: str, op: str) -> bool:
        return (
            status in self.statuses
            and (not self.kinds or kind in self.kinds)
            and (not self.pattern or re.search(self.pattern, reason, re.IGNORECASE) is not None)
            and (not self.op or op == self.op)
        )


# Texts of a 400 that speak of the cluster and not of the chunk.
_SETUP_TEXT = (
    "no write index is defined|maximum (normal )?shards open|circuit breaker triggered|document id is not supported"
)
_BLOCKS = Row((429,), Verdict.PERMANENT_SETUP, kinds=("cluster_block_exception",))  # disk over the flood stage
_SERVER = Row((408, 500, 502, 503, 504), Verdict.TRANSIENT)

ITEM_ROWS = (
    Row((200, 201), Verdict.SUCCESS),
    Row((404,), Verdict.SUCCESS, kinds=("",), op="delete"),  # nothing there to delete; a tombstone is left
    Row((409,), Verdict.SUPERSEDED, kinds=("version_conflict_engine_exception",)),
    _BLOCKS,
    Row((429,), Verdict.THROTTLED),
    Row((400, 500), Verdict.PERMANENT_SETUP, pattern=_SETUP_TEXT),
    Row((400,), Verdict.PERMANENT_SETUP, kinds=("index_closed_exception",)),
    Row((404,), Verdict.PERMANENT_SETUP, kinds=("index_not_found_exception",)),
    Row((401, 403), Verdict.PERMANENT_SETUP),
    Row((413,), Verdict.PAYLOAD),
    Row((400,), Verdict.PERMANENT_DOC),
    _SERVER,
)
REQUEST_ROWS = (
    Row((200, 201), Verdict.SUCCESS),
    Row((413,), Verdict.PAYLOAD),
    _BLOCKS,
    Row((429,), Verdict.THROTTLED),
    Row((400,), Verdict.PERMANENT_SETUP, pattern=_SETUP_TEXT),
    Row(
        (400,),
        Verdict.MALFORMED,
        kinds=(
            "action_request_validation_exception", "illegal_argument_exception", "parse_exception",
            "parsing_exception", "json_parse_exception", "x_content_parse_exception",
        ),
    ),
    _SERVER,
    Row((NO_ANSWER,), Verdict.PERMANENT_SETUP, kinds=("certificate", "client_error")),
    Row((NO_ANSWER,), Verdict.TRANSIENT, kinds=("connection", "timeout")),
    Row((NO_ANSWER,), Verdict.UNKNOWN),
    Row(tuple(range(300, 500)), Verdict.PERMANENT_SETUP),
)  # fmt: skip


def classify(status: int, kind: str, reason: str, op: str) -> Verdict:
    """The verdict on one item; ``kind`` and ``reason`` are its error's type and texts, empty where it has none."""
    if status == 429 and never_fits(reason):
        return Verdict.PAYLOAD
    return _first(ITEM_ROWS, status, kind, reason, op)


def classify_request(reply: Reply, alone: bool) -> Verdict:
    """The verdict on a request; ``alone``: no other of ours was in flight, so a full node means the request itself."""
    if reply.status == 429 and reply.kind != "cluster_block_exception":
        is_pressure = "rejected execution of coordinating operation" in reply.reason
        if never_fits(reply.reason) or (is_pressure and alone):
            return Verdict.PAYLOAD
    return _first(REQUEST_ROWS, reply.status, reply.kind, reply.reason, "")


_PRESSURE = re.compile(r"(?:coordinating|primary)_operation_bytes=(\d+).*?max_coordinating_and_primary_bytes=(\d+)")


def never_fits(reason: str) -> bool:
    """Whether a node's indexing pressure refused an operation that is above the limit all by itself."""
    found = _PRESSURE.search(reason)
    return found is not None and int(found[1]) > int(found[2])


def _first(rows: tuple[Row, ...], status: int, kind: str, reason: str, op: str) -> Verdict:
    return next((row.verdict for row in rows if row.fits(status, kind, reason, op)), Verdict.UNKNOWN)
