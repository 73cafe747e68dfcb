"""What broke and was then overtaken: it counts as a failure no more, and never takes away what serves."""

from __future__ import annotations

import pytest

from ingest.config import SourceConfig
from ingest.failure import failure
from ingest.model import ChunkFailure, Document, ObjectVersion, State
from ingest.state import ConstructRecord, Ledger, Operator, Settlement, Verified
from tests.ledger_steps import (
    ALL,
    GEN,
    LATEST,
    PARSER,
    add_generation,
    admitted,
    constructed,
    marker,
    open_segments,
    plan_of,
    ready,
    state_of,
    version,
)

BROKEN = [(State.FAILED, "timeout"), (State.UNSUPPORTED, "truncated"), (State.NEEDS_REVIEW, "no_text")]


def upload(number: int, key: str = "a.pdf") -> list[ObjectVersion]:
    """A listing of the key after its ``number``th upload."""
    return [version(key, n, latest=n == number) for n in range(number, 0, -1)]


def taken(ledger: Ledger, number: int) -> Document:
    ledger.admit(GEN, upload(number), LATEST)
    (document,) = ledger.take(GEN, "run-1", 9, 60)
    return document


def broken(ledger: Ledger, number: int = 1) -> Document:
    add_generation(ledger)
    document = taken(ledger, number)
    ledger.end(GEN, document.document_id, State.UNSUPPORTED, failure("truncated"))
    return document


@pytest.mark.parametrize(("state", "reason"), BROKEN)
def test_failure_of_an_older_version_is_over_with_the_newer_one(ledger: Ledger, state: State, reason: str) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ledger.end(GEN, old.document_id, state, failure(reason))
    new = taken(ledger, 2)
    assert state_of(ledger, old.document_id) is State.SUPERSEDED
    ready(ledger, [new])
    assert ledger.counts(GEN) == {State.READY: 1, State.SUPERSEDED: 1}
    assert ledger.failures(GEN) == []
    assert ledger.failures(GEN, "run-1") == []
    assert ledger.failure_counts(GEN) == {}
    assert ledger.expected_chunks(GEN) == 3


@pytest.mark.parametrize(("state", "reason"), BROKEN)
@pytest.mark.parametrize("source", [LATEST, ALL], ids=["latest", "all"])
def test_failure_is_over_with_a_delete_marker(ledger: Ledger, state: State, reason: str, source: SourceConfig) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ledger.end(GEN, old.document_id, state, failure(reason))
    ledger.admit(GEN, [marker("a.pdf", 2), version("a.pdf", 1, latest=False)], source)
    assert ledger.counts(GEN) == {State.DELETED: 1}
    assert ledger.failures(GEN) == []
    assert ledger.failure_counts(GEN) == {}


def test_failure_left_by_an_earlier_listing_is_over_with_the_next_one(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    new = taken(ledger, 2)
    ledger.end(GEN, old.document_id, State.FAILED, failure("timeout"))
    ready(ledger, [new])
    assert ledger.counts(GEN) == {State.READY: 1, State.FAILED: 1}
    ledger.admit(GEN, upload(2), LATEST)
    assert ledger.counts(GEN) == {State.READY: 1, State.SUPERSEDED: 1}


def test_failed_versions_of_other_keys_stay_failed(ledger: Ledger) -> None:
    broken(ledger)
    ledger.admit(GEN, [version("b.pdf", 1)], LATEST)
    ledger.admit(GEN, upload(1), LATEST)
    assert ledger.counts(GEN) == {State.UNSUPPORTED: 1, State.QUEUED: 1}


def test_with_all_versions_a_failed_one_stays_failed(ledger: Ledger) -> None:
    old = broken(ledger)
    ledger.admit(GEN, upload(2), ALL)
    assert state_of(ledger, old.document_id) is State.UNSUPPORTED
    assert [row.document_id for row in ledger.failures(GEN)] == [old.document_id]


def test_failed_version_that_is_newest_again_is_tried_again(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    name = old.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 2)])
    fates = [failure("source_unavailable"), failure("truncated")]
    ledger.settle(GEN, PARSER, [Settlement(name, n, what) for n, what in enumerate(fates)])
    ledger.end(GEN, name, State.FAILED, failure("source_unavailable"))
    ready(ledger, [taken(ledger, 2)])
    ledger.admit(GEN, upload(1), LATEST)
    (again,) = ledger.take(GEN, "run-1", 9, 60)
    assert again.document_id == name
    assert open_segments(ledger, name) == (0,), "what failed for a passing reason is open again"


def test_rollback_ends_the_failure_of_the_version_that_vanished(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    vanished = broken(ledger, 2)
    ledger.admit(GEN, upload(1), LATEST)
    assert state_of(ledger, vanished.document_id) is State.SUPERSEDED
    ready(ledger, ledger.take(GEN, "run-1", 9, 60))
    assert ledger.counts(GEN) == {State.READY: 1, State.SUPERSEDED: 1}


# ---------------------------------------------------------------- what serves


def test_served_version_outlives_two_failed_ones(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    second = broken(ledger, 2)
    third = broken(ledger, 3)
    assert state_of(ledger, second.document_id) is State.SUPERSEDED
    assert [row.document_id for row in ledger.failures(GEN)] == [third.document_id]
    assert ledger.counts(GEN) == {State.READY: 1, State.SUPERSEDED: 1, State.UNSUPPORTED: 1}
    assert (ledger.expected_chunks(GEN), ledger.older(GEN)) == (3, [])
    new = taken(ledger, 4)
    ready(ledger, [new])
    assert ledger.older(GEN, [new.document_id]) == [old]


def partial(ledger: Ledger) -> Document:
    """A version with a failed page, a dead letter, and two chunks that serve."""
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 2)])
    page = ((3, failure("no_text")),)
    ledger.settle(GEN, PARSER, [Settlement(name, 0, failed_pages=page), Settlement(name, 1, failure("timeout"))])
    ledger.record_chunks(GEN, ConstructRecord(name, 3))
    ledger.bury(GEN, [ChunkFailure("chunk-0", name, "embed", failure("bad_vector"))])
    assert ledger.verified(GEN, [Verified(name, 2)]) == {name: State.PARTIAL}
    return document


def test_partial_version_serves_on_until_the_newer_one_does(ledger: Ledger) -> None:
    old = partial(ledger)
    new = taken(ledger, 2)
    assert state_of(ledger, old.document_id) is State.PARTIAL
    assert sorted(row.unit for row in ledger.failures(GEN)) == ["chunk", "page", "segment"]
    assert ledger.expected_chunks(GEN) == 2
    ready(ledger, [new])
    assert ledger.retire(GEN, [d.document_id for d in ledger.older(GEN)], State.SUPERSEDED) == [old.document_id]
    assert ledger.failures(GEN) == [], "its segments and dead letters are of no document that is served"
    assert ledger.expected_chunks(GEN) == 3


def failed_with_chunks(ledger: Ledger) -> Document:
    (document,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, document.document_id, 3)
    ledger.requeue(GEN, [document.document_id], max_attempts=1)
    assert ledger.broken(GEN) == [document]
    return document


def test_failed_version_with_chunks_in_the_index_is_still_found_until_they_are_gone(ledger: Ledger) -> None:
    old = failed_with_chunks(ledger)
    new = taken(ledger, 2)
    assert ledger.broken(GEN) == [old]
    ready(ledger, [new])
    assert ledger.older(GEN, [new.document_id]) == [old]
    assert ledger.retire(GEN, [old.document_id], State.SUPERSEDED) == [old.document_id]
    assert (ledger.older(GEN), ledger.broken(GEN)) == ([], [])
    assert ledger.counts(GEN) == {State.READY: 1, State.SUPERSEDED: 1}
    assert ledger.failures(GEN) == []


def test_failed_version_with_chunks_in_the_index_is_deleted_under_a_marker(ledger: Ledger) -> None:
    old = failed_with_chunks(ledger)
    ledger.admit(GEN, [marker("a.pdf", 2)], LATEST)
    assert ledger.to_delete(GEN) == [old]
    ledger.retire(GEN, [old.document_id], State.DELETED)
    assert (ledger.to_delete(GEN), ledger.broken(GEN)) == ([], [])
    assert ledger.counts(GEN) == {State.DELETED: 1}


def test_unknown_tokens_of_a_superseded_version_are_not_told(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ledger.record_chunks(GEN, ConstructRecord(old.document_id, 1, tokens=10, unknown_tokens=9))
    ledger.retire(GEN, [old.document_id], State.SUPERSEDED)
    assert Operator(ledger).unknown_token_shares(GEN, above=0.1) == []
    assert Operator(ledger).unknown_token_count(GEN, above=0.1) == 0
