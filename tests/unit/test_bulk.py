"""The bulk writer against a node that behaves, and misbehaves on demand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.errors import StoreRefused
from ingest.failure import Backoff
from ingest.index.bulk import (
    HARD_MAX_BYTES,
    Bulk,
    BulkItem,
    BulkLimits,
    BulkStats,
    Outcome,
    batches,
    item_replies,
    ndjson,
)
from ingest.index.client import Reply
from ingest.index.throttle import POLL_S, Throttle
from ingest.index.verdict import Verdict

CONFLICT = {"type": "version_conflict_engine_exception", "reason": "current version is higher"}
REFUSED = {"type": "mapper_parsing_exception", "reason": "failed to parse"}
BUSY = {"type": "rejected_execution_exception", "reason": "queue is full"}
Trouble = Callable[[bytes, list[tuple[str, dict[str, Any]]]], Reply | None]


@dataclass(slots=True)
class Node:
    """Keeps revisions as `external_gte`; ``troubles`` answer first, each once; ``always`` before every answer."""

    revisions: dict[str, int] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    always: Trouble | None = None
    item_errors: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    def __call__(self, body: bytes) -> Reply:
        self.bodies.append(body)
        actions = list(_actions(body))
        trouble = self.troubles.pop(0) if self.troubles else self.always
        reply = trouble(body, actions) if trouble else None
        return reply or Reply(200, {"items": [self._answer(op, action) for op, action in actions]})

    def ids(self) -> list[list[str]]:
        return [[action["_id"] for _, action in _actions(body)] for body in self.bodies]

    def _answer(self, op: str, action: dict[str, Any]) -> dict[str, Any]:
        chunk_id, revision = action["_id"], action["version"]
        if self.item_errors.get(chunk_id):
            status, error = self.item_errors[chunk_id].pop(0)
            return {op: {"_id": chunk_id, "status": status, "error": error}}
        if revision < self.revisions.get(chunk_id, 0):
            return {op: {"_id": chunk_id, "status": 409, "error": CONFLICT}}
        self.revisions[chunk_id] = revision
        return {op: {"_id": chunk_id, "status": 201}}


def _actions(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    lines = [orjson.loads(line) for line in body.splitlines()]
    actions = [line for line in lines if line.keys() & {"index", "delete"}]
    return [next(iter(line.items())) for line in actions]


def writer(node: Node, budget_s: float = 1000.0, **limits: int) -> tuple[Bulk, list[float]]:
    pauses: list[float] = []
    random.seed(7)
    throttle = Throttle(2, clock=lambda: sum(pauses))
    return Bulk(node, BulkLimits(backoff=Backoff(budget_s=budget_s), **limits), throttle, pauses.append), pauses


def items(count: int, revision: int = 1, size: int = 10) -> list[BulkItem]:
    source = orjson.dumps({"text": "x" * size})
    return [BulkItem("index", f"c{n}", revision, source) for n in range(count)]


def verdicts(outcomes: Sequence[Outcome]) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes]


def answer(status: int, kind: str = "", reason: str = "", retry_after_s: float = 0.0) -> Trouble:
    return lambda body, actions: Reply(status, None, kind, reason, retry_after_s)


def test_an_item_carries_its_revision_and_its_vector() -> None:
    vector = np.array([0.1, -1.5, 3e-8], dtype=np.float32)
    raw = ndjson([BulkItem("index", "a", 7, b'{"text":"x"}', vector), BulkItem("delete", "b", 8)])
    head, body = (orjson.loads(line) for line in raw[0].splitlines())
    assert head == {"index": {"_id": "a", "version": 7, "version_type": "external_gte"}}
    assert np.array_equal(np.array(body.pop("vector"), dtype=np.float32), vector)
    assert body == {"text": "x"}
    assert orjson.loads(raw[1]) == {"delete": {"_id": "b", "version": 8, "version_type": "external_gte"}}
    assert all(line.endswith(b"\n") for line in raw)


def test_an_empty_source_takes_a_vector_too() -> None:
    raw = ndjson([BulkItem("index", "a", 1, b"{}", np.zeros(2, dtype=np.float32))])
    assert orjson.loads(raw[0].splitlines()[1]) == {"vector": [0.0, 0.0]}


def test_a_row_of_a_matrix_in_any_layout_can_be_written() -> None:
    matrix = np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3))
    raw = ndjson([BulkItem("index", "a", 1, b"{}", matrix[1])])
    assert orjson.loads(raw[0].splitlines()[1]) == {"vector": [3.0, 4.0, 5.0]}


@given(sizes=st.lists(st.integers(1, 50)), max_bytes=st.integers(1, 100), max_chunks=st.integers(1, 10))
def test_batches_lose_nothing_and_keep_both_bounds(sizes: list[int], max_bytes: int, max_chunks: int) -> None:
    lines = [(position, b"x" * size) for position, size in enumerate(sizes)]
    cut = list(batches(lines, max_bytes, max_chunks))
    assert [line for batch in cut for line in batch] == lines
    assert all(0 < len(batch) <= max_chunks for batch in cut)
    assert all(len(batch) == 1 or sum(len(raw) for _, raw in batch) <= max_bytes for batch in cut)


GOOD = [{"index": {"_id": "c0", "status": 201}}, {"index": {"_id": "c1", "status": 201}}]
WRONG = [
    None,
    {},
    "<html>",
    {"items": GOOD[:1]},
    {"items": GOOD[::-1]},
    {"items": [*GOOD, GOOD[0]]},
    {"items": [GOOD[0], {"delete": {"_id": "c1", "status": 200}}]},
    {"items": [GOOD[0], {"index": {"_id": "c1"}}]},
]


@pytest.mark.parametrize("body", WRONG)
def test_an_answer_that_does_not_name_the_items_in_order_says_nothing(body: Any) -> None:
    assert item_replies(body, items(2)) is None


def test_a_good_answer_is_read_item_by_item() -> None:
    replies = item_replies({"items": GOOD}, items(2))
    assert replies is not None
    assert [reply.status for reply in replies] == [201, 201]


def test_stats_add_up() -> None:
    one = BulkStats({"success": 2}, {"throttled": 1}, 1, 10, 0.5, 1)
    assert one + BulkStats() == one
    assert (one + one).items == {"success": 4}
    assert (one + one).request_bytes == 20


# ---------------------------------------------------------------- writing


def test_outcomes_come_in_the_order_of_the_items() -> None:
    node = Node(revisions={"c1": 9}, item_errors={"c2": [(400, REFUSED)]})
    bulk, _ = writer(node, max_chunks=2)
    written = bulk.write(items(5))
    assert [outcome.chunk_id for outcome in written.outcomes] == ["c0", "c1", "c2", "c3", "c4"]
    expected = ["success", "superseded", "permanent_doc", "success", "success"]
    assert [verdict.value for verdict in verdicts(written.outcomes)] == expected
    assert written.stats.items == {"success": 3, "superseded": 1, "permanent_doc": 1}
    assert written.stats.requests == 3


def test_a_refused_chunk_carries_a_sentence_and_nothing_else_does() -> None:
    node = Node(item_errors={"c0": [(400, REFUSED)]})
    outcomes = writer(node)[0].write(items(2)).outcomes
    assert outcomes[0].failure is not None
    assert outcomes[0].failure.reason == "mapping_rejected"
    assert "failed to parse" in outcomes[0].failure.sentence
    assert outcomes[1].failure is None


def test_nothing_to_write_sends_nothing() -> None:
    node = Node()
    assert writer(node)[0].write([]).outcomes == ()
    assert node.bodies == []


def test_only_what_failed_is_sent_again() -> None:
    node = Node(item_errors={"c1": [(429, BUSY), (503, {"type": "unavailable_shards_exception"})]})
    bulk, pauses = writer(node)
    written = bulk.write(items(3))
    assert set(verdicts(written.outcomes)) == {Verdict.SUCCESS}
    assert node.ids() == [["c0", "c1", "c2"], ["c1"], ["c1"]]
    assert written.stats.retries == {"throttled": 1, "transient": 1}
    assert len(pauses) == 2


def test_a_pause_is_never_shorter_than_the_server_asked_for() -> None:
    bulk, pauses = writer(Node(troubles=[answer(429, retry_after_s=33.0)]))
    bulk.write(items(1))
    assert pauses == [33.0]


@pytest.mark.parametrize(
    "trouble",
    [answer(0, "timeout"), answer(0, "connection"), answer(0, "unreadable"), answer(503), answer(429, reason="slow")],
)
def test_a_request_without_a_good_answer_is_sent_again_as_a_whole(trouble: Trouble) -> None:
    node = Node(troubles=[trouble])
    assert set(verdicts(writer(node)[0].write(items(3)).outcomes)) == {Verdict.SUCCESS}
    assert node.ids() == [["c0", "c1", "c2"]] * 2


@pytest.mark.parametrize("body", [*WRONG[:3], {"items": [{"index": {"_id": "c0", "status": 201}}]}])
def test_a_short_answer_is_in_doubt_and_sent_again(body: Any) -> None:
    node = Node(troubles=[lambda raw, actions: Reply(200, body)])
    written = writer(node)[0].write(items(2))
    assert set(verdicts(written.outcomes)) == {Verdict.SUCCESS}
    assert written.stats.retries == {"unknown": 2}


def test_a_request_that_landed_before_its_answer_was_lost_changes_nothing_when_repeated() -> None:
    node = Node()

    def land_and_lose(body: bytes, actions: list[tuple[str, dict[str, Any]]]) -> Reply:
        node.revisions |= {action["_id"]: action["version"] for _, action in actions}
        return Reply(0, None, "timeout")

    node.troubles.append(land_and_lose)
    assert set(verdicts(writer(node)[0].write(items(3, revision=4)).outcomes)) == {Verdict.SUCCESS}
    assert node.revisions == {"c0": 4, "c1": 4, "c2": 4}


@pytest.mark.parametrize(
    ("trouble", "reason"), [(answer(429, reason="slow"), "index_throttled"), (answer(503), "index_unavailable")]
)
def test_a_spent_budget_ends_in_outcomes_and_not_in_an_exception(trouble: Trouble, reason: str) -> None:
    bulk, pauses = writer(Node(always=trouble), budget_s=20.0)
    outcomes = bulk.write(items(2)).outcomes
    assert [outcome.failure.reason for outcome in outcomes if outcome.failure] == [reason] * 2
    waits_for_its_turn = [pause for pause in pauses if pause == POLL_S]  # the breaker's, which no budget here sees
    assert sum(pauses) - sum(waits_for_its_turn) <= 20.0
    assert sum(waits_for_its_turn) <= 30.0


def test_what_landed_stays_landed_when_the_budget_is_spent() -> None:
    node = Node(item_errors={"c1": [(503, {"type": "unavailable_shards_exception"})] * 1000})
    written = writer(node, budget_s=5.0)[0].write(items(3))
    assert verdicts(written.outcomes) == [Verdict.SUCCESS, Verdict.TRANSIENT, Verdict.SUCCESS]
    assert written.stats.items == {"success": 2, "transient": 1}


# ---------------------------------------------------------------- too large, malformed, not set up


def too_large(limit: int) -> Trouble:
    return lambda body, actions: Reply(413) if len(body) > limit else None


def test_a_413_is_halved_until_all_lands_and_the_next_write_is_cut_smaller() -> None:
    node = Node(always=too_large(2000))
    bulk, pauses = writer(node)
    written = bulk.write(items(50, size=100))
    assert set(verdicts(written.outcomes)) == {Verdict.SUCCESS}
    assert written.stats.splits > 0
    assert not pauses
    sent = len(node.bodies)
    bulk.write(items(50, size=100))
    assert all(len(body) <= 2000 for body in node.bodies[sent:])


def test_one_chunk_alone_too_large_costs_only_itself() -> None:
    node = Node(always=too_large(2000))
    load = items(5, size=100)
    load[2] = BulkItem("index", "c2", 1, orjson.dumps({"text": "x" * 5000}))
    written = writer(node)[0].write(load)
    assert [n for n, verdict in enumerate(verdicts(written.outcomes)) if verdict is not Verdict.SUCCESS] == [2]
    assert written.outcomes[2].failure is not None
    assert written.outcomes[2].failure.reason == "chunk_too_large"


def pressure(limit: int) -> Trouble:
    def refuse(body: bytes, actions: list[tuple[str, dict[str, Any]]]) -> Reply | None:
        text = (
            f"rejected execution of coordinating operation [coordinating_and_primary_bytes=0, "
            f"coordinating_operation_bytes={len(body)}, max_coordinating_and_primary_bytes={limit}]"
        )
        return Reply(429, None, "rejected_execution_exception", text) if len(body) > limit else None

    return refuse


def test_a_request_above_the_memory_limit_of_the_node_is_halved_and_not_repeated_for_ever() -> None:
    bulk, pauses = writer(Node(always=pressure(2000)))
    written = bulk.write(items(50, size=100))
    assert set(verdicts(written.outcomes)) == {Verdict.SUCCESS}
    assert not pauses


def test_one_chunk_above_the_memory_limit_costs_only_itself() -> None:
    outcomes = writer(Node(always=pressure(300)))[0].write(items(1, size=400)).outcomes
    assert outcomes[0].failure is not None
    assert outcomes[0].failure.reason == "chunk_too_large"


def test_a_full_node_that_names_no_numbers_halves_a_lonely_request_and_blames_no_chunk() -> None:
    full = answer(429, "rejected_execution_exception", "rejected execution of coordinating operation")
    node = Node(troubles=[full, full, full])
    written = writer(node)[0].write(items(2))
    assert [len(ids) for ids in node.ids()[:3]] == [2, 1, 1]
    assert set(verdicts(written.outcomes)) == {Verdict.SUCCESS}


def malformed(bad: set[str]) -> Trouble:
    def refuse(body: bytes, actions: list[tuple[str, dict[str, Any]]]) -> Reply | None:
        hit = any(action["_id"] in bad for _, action in actions)
        return Reply(400, None, "action_request_validation_exception", "id is too long") if hit else None

    return refuse


@settings(deadline=None)
@given(bad=st.sets(st.integers(0, 19), max_size=6))
def test_bisecting_finds_exactly_the_items_that_spoil_a_request(bad: set[int]) -> None:
    node = Node(always=malformed({f"c{n}" for n in bad}))
    written = writer(node)[0].write(items(20))
    assert {n for n, verdict in enumerate(verdicts(written.outcomes)) if verdict is Verdict.PERMANENT_DOC} == bad
    assert len(node.revisions) == 20 - len(bad)


def test_a_request_whose_every_item_is_refused_alone_stops_the_run() -> None:
    node = Node(always=malformed({f"c{n}" for n in range(4)}))
    with pytest.raises(StoreRefused):
        writer(node)[0].write(items(4))


@pytest.mark.parametrize(
    "trouble",
    [
        answer(401),
        answer(403, "security_exception"),
        answer(429, "cluster_block_exception", "flood-stage"),
        answer(400, "illegal_argument_exception", "Document ID is not supported in create/index operation request"),
    ],
)
def test_a_cluster_that_takes_nothing_stops_the_run_at_once(trouble: Trouble) -> None:
    node = Node(always=trouble)
    with pytest.raises(StoreRefused):
        writer(node)[0].write(items(3))
    assert len(node.bodies) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, "index_not_found_exception"), (403, "cluster_block_exception"), (429, "cluster_block_exception")],
)
def test_one_item_that_tells_of_a_broken_setup_stops_the_run(status: int, kind: str) -> None:
    node = Node(item_errors={"c1": [(status, {"type": kind, "reason": "blocked"})]})
    with pytest.raises(StoreRefused, match="blocked"):
        writer(node)[0].write(items(3))


# ---------------------------------------------------------------- bounds and the throttle


def test_no_request_passes_the_hard_cap_whatever_is_configured() -> None:
    node = Node()
    bulk, _ = writer(node, max_bytes=1 << 30, max_chunks=10_000)
    bulk.write(items(12, size=1 << 20))
    assert len(node.bodies) > 1
    assert all(len(body) <= HARD_MAX_BYTES for body in node.bodies)


def test_every_token_goes_back_and_congestion_narrows_the_window() -> None:
    gate = Throttle(4)
    node = Node(troubles=[answer(0, "timeout"), answer(429), answer(503), answer(413)])
    Bulk(node, BulkLimits(), gate, lambda _: None).write(items(2))
    report = gate.report()
    assert report.in_flight == 0
    assert report.decreases == 2
    assert report.requests == len(node.bodies)


def test_a_token_goes_back_even_when_the_writer_dies() -> None:
    def die(body: bytes) -> Reply:
        raise RuntimeError("bug")

    gate = Throttle(1)
    with pytest.raises(RuntimeError):
        Bulk(die, BulkLimits(), gate).write(items(1))
    assert gate.report().in_flight == 0


@settings(deadline=None)
@given(data=st.data(), count=st.integers(1, 15))
def test_whatever_happens_on_the_way_everything_lands_once(data: st.DataObject, count: int) -> None:
    kinds = st.sampled_from([answer(0, "timeout"), answer(429), answer(503), answer(0, "unreadable")])
    node = Node(troubles=data.draw(st.lists(kinds, max_size=6)))
    flaky = data.draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from([429, 503]), max_size=5))
    node.item_errors = {f"c{n}": [(status, BUSY)] for n, status in flaky.items()}
    written = writer(node, budget_s=1e6, max_chunks=4)[0].write(items(count, revision=3))
    assert set(verdicts(written.outcomes)) == {Verdict.SUCCESS}
    assert node.revisions == {f"c{n}": 3 for n in range(count)}
