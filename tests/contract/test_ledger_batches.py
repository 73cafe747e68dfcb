"""The fan-in of batches: one batch brings a document's last chunk to index, and always the same one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.failure import failure
from ingest.model import ChunkFailure, State
from ingest.state import Batch, ConstructRecord, Ledger, Verified
from ingest.state.tables import batches, shares
from tests.ledger_steps import GEN, admitted, constructed, state_of, version


def rows(ledger: Ledger, table: object) -> list[dict[str, object]]:
    return ledger.read(lambda connection: [dict(row._mapping) for row in connection.execute(table.select())])  # type: ignore[attr-defined]


def test_the_batch_with_the_last_chunk_sends_its_document_to_verify(ledger: Ledger) -> None:
    a, b = (d.document_id for d in admitted(ledger, version("a.pdf", 1), version("b.pdf", 1)))
    constructed(ledger, a, 10)
    constructed(ledger, b, 3)
    assert ledger.settle_batches(GEN, [Batch("one", {a: 6})]) == []
    assert ledger.settle_batches(GEN, [Batch("two", {a: 4, b: 2})]) == [a]
    assert (state_of(ledger, a), state_of(ledger, b)) == (State.VERIFYING, State.EMBEDDING)
    assert ledger.settle_batches(GEN, [Batch("three", {b: 1})]) == [b]


def test_a_repeat_answers_as_the_first_call_did_and_counts_nothing_twice(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 10)
    first, last = Batch("one", {name: 6}), Batch("two", {name: 4})
    for _ in range(3):
        assert ledger.settle_batches(GEN, [first]) == []
    for _ in range(3):
        assert ledger.settle_batches(GEN, [last]) == [name]
    assert ledger.settle_batches(GEN, [first]) == []


def test_chunks_that_never_come_to_index_are_not_waited_for(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 10)
    ledger.record_chunks(GEN, ConstructRecord(name, 10, unchanged=5))
    ledger.bury(GEN, [ChunkFailure("c1", name, "embed", failure("bad_vector"))])
    ledger.bury(GEN, [ChunkFailure("c2", name, "index", failure("mapping_rejected"))])
    assert ledger.settle_batches(GEN, [Batch("one", {name: 3})]) == []
    assert ledger.settle_batches(GEN, [Batch("two", {name: 1})]) == [name], "the one refused by the index came there"


def test_a_new_attempt_counts_from_nothing(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 4)
    assert ledger.settle_batches(GEN, [Batch("one", {name: 3})]) == []
    ledger.give_back(GEN, "run-1")
    ledger.take(GEN, "run-1", 1, 60)
    ledger.record_chunks(GEN, ConstructRecord(name, 4))
    assert ledger.settle_batches(GEN, [Batch("one", {name: 3})]) == []
    assert ledger.settle_batches(GEN, [Batch("two", {name: 1})]) == [name]


def test_a_document_that_came_to_its_end_leaves_no_share_behind(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, document.document_id, 2)
    ledger.settle_batches(GEN, [Batch("one", {document.document_id: 2})])
    assert len(rows(ledger, shares)) == 1
    ledger.verified(GEN, [Verified(document.document_id, 2)])
    assert rows(ledger, shares) == []


def test_a_batch_is_known_by_its_state_and_how_often_it_was_paid(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 4)
    ledger.embedded(GEN, "run-1", [Batch("one", {name: 3}), Batch("two", {name: 1})])
    ledger.settle_batches(GEN, [Batch("one", {name: 3}, failed_items=2)])
    ledger.embedded(GEN, "run-1", [Batch("two", {name: 1})])
    found = {
        row["batch_id"]: (row["state"], row["chunks"], row["attempts"], row["failed_items"])
        for row in rows(ledger, batches)
    }
    assert found == {"one": ("failed", 3, 1, 2), "two": ("embedded", 1, 2, 0)}
    ledger.settle_batches(GEN, [Batch("one", {name: 3}), Batch("two", {name: 1})])
    ledger.embedded(GEN, "run-1", [Batch("two", {name: 1})])
    states = {row["batch_id"]: row["state"] for row in rows(ledger, batches)}
    assert states == {"one": "indexed", "two": "indexed"}


def test_settling_nothing_or_what_nobody_knows_closes_nothing(ledger: Ledger) -> None:
    assert ledger.settle_batches(GEN, []) == []
    assert ledger.settle_batches(GEN, [Batch("one", {"unknown": 3})]) == []


@pytest.fixture
def names() -> count[int]:
    return count()


# A document's chunks lie in some batches; calls settle some of these, and repeats are calls whose answer was lost.
CASES = st.lists(st.integers(1, 5), min_size=1, max_size=6).flatmap(
    lambda sizes: st.tuples(
        st.just(sizes),
        st.lists(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True), max_size=8),
        st.permutations(range(len(sizes))),
    )
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=CASES)
def test_exactly_one_batch_closes_and_always_the_same(
    ledger: Ledger, names: count[int], case: tuple[list[int], list[list[int]], Sequence[int]]
) -> None:
    sizes, calls, rest = case
    number = next(names)
    one, two = (d.document_id for d in admitted(ledger, version(f"{number}a.pdf", 1), version(f"{number}b.pdf", 1)))
    constructed(ledger, one, sum(sizes))
    constructed(ledger, two, len(sizes))

    def call(chosen: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
        closed = ledger.settle_batches(GEN, [Batch(f"{number}-{n}", {one: sizes[n], two: 1}) for n in chosen])
        return [(name, tuple(chosen)) for name in closed]

    with ThreadPoolExecutor(4) as pool:
        early = [pair for part in pool.map(call, calls) for pair in part]
    late = [pair for n in rest for pair in call([n])]
    again = [pair for n in rest for pair in call([n])]
    for name in (one, two):
        closers = {chosen[0] for who, chosen in again if who == name}
        assert len(closers) == 1, "one batch closes, at every repeat the same"
        assert all(closers <= set(chosen) for who, chosen in (*early, *late) if who == name)
        assert state_of(ledger, name) is State.VERIFYING
