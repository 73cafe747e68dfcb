"""Runs and windows: who holds which document, and how it comes back."""

from __future__ import annotations

import pickle
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest.errors import StoreRefused
from ingest.failure import failure
from ingest.model import State
from ingest.state import ConstructRecord, Ledger, Operator, Settlement, Verified
from tests.ledger_steps import (
    GEN,
    LATEST,
    PARSER,
    add_generation,
    admitted,
    constructed,
    open_segments,
    plan_of,
    ready,
    redriven,
    state_of,
    version,
)


def test_large_documents_are_taken_first(ledger: Ledger) -> None:
    taken = admitted(ledger, *(version(f"{size}.pdf", 1, size=size) for size in (5, 500, 50)))
    assert [d.size for d in taken] == [500, 50, 5]
    assert taken[0].tenant == "t"
    assert taken[0].principals == ("staff",)
    assert ledger.counts(GEN, "run-1") == {State.ADMITTED: 3}


def test_two_runs_never_take_the_same_document(ledger: Ledger, ledger_url: str) -> None:
    add_generation(ledger)
    ledger.admit(GEN, [version(f"{n}.pdf", 1, size=n) for n in range(60)], LATEST)
    ledgers = [Ledger(ledger_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        windows = pool.map(
            lambda pair: [d.document_id for _ in range(6) for d in pair[1].take(GEN, f"run-{pair[0]}", 5, 60)],
            enumerate(ledgers),
        )
        taken = [name for window in windows for name in window]
    for opened in ledgers:
        opened.close()
    rest = [d.document_id for d in ledger.take(GEN, "last", 100, 60)]
    assert len(taken + rest) == 60
    assert len(set(taken + rest)) == 60


def test_state_only_moves_forward(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    assert ledger.advance(GEN, [name], State.TRIAGING) == [name]
    assert ledger.advance(GEN, [name], State.CHUNKING) == [name]
    assert ledger.advance(GEN, [name], State.PARSING) == []
    assert ledger.advance(GEN, [name], State.CHUNKING) == []
    assert ledger.end(GEN, name, State.FAILED, failure("timeout"))
    assert not ledger.end(GEN, name, State.READY)
    assert ledger.advance(GEN, [name], State.VERIFYING) == []
    moves = [(change.from_state, change.to_state) for change in ledger.history(name)]
    assert moves == [
        (None, State.QUEUED),
        (State.QUEUED, State.ADMITTED),
        (State.ADMITTED, State.TRIAGING),
        (State.TRIAGING, State.CHUNKING),
        (State.CHUNKING, State.FAILED),
    ]
    assert ledger.history(name)[-1].reason == "timeout"
    assert ledger.history(name)[-1].run_id == "run-1"


def test_dead_run_gives_its_documents_back(ledger: Ledger) -> None:
    unfinished, done = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    ready(ledger, [done])
    ledger.advance(GEN, [unfinished.document_id], State.TRIAGING)
    ledger.start_run("run-2", "backfill", "host:2:2", "config-1")
    assert ledger.release_dead(lambda owner: True, GEN) == 0
    assert ledger.release_dead(lambda owner: owner == "host:2:2", GEN) == 1
    assert [(d.document_id, d.attempt) for d in ledger.take(GEN, "run-2", 9, 60)] == [(unfinished.document_id, 2)]
    released = [c for c in ledger.history(unfinished.document_id) if c.reason == "released"]
    assert [(c.from_state, c.to_state) for c in released] == [(State.TRIAGING, State.QUEUED)]
    run = ledger.run("run-1")
    assert run is not None
    assert run.state == "dead"
    assert [r.run_id for r in ledger.live_runs()] == ["run-2"]


def test_ended_run_gives_back_what_it_left(ledger: Ledger) -> None:
    admitted(ledger, version("a.pdf", 1))
    ledger.end_run("run-1", "interrupted")
    assert ledger.release_dead(lambda owner: True, GEN) == 1


def with_a_lease_that_ran_out(ledger: Ledger, owner: str) -> None:
    add_generation(ledger)
    ledger.start_run("run-1", "backfill", owner, "c")
    ledger.admit(GEN, [version("a.pdf", 1), version("b.pdf", 1)], LATEST)
    ledger.take(GEN, "run-1", 1, -1.0)
    ledger.take(GEN, "run-1", 1, 60.0)


def test_lease_that_ran_out_is_taken_from_a_run_on_another_host(ledger: Ledger) -> None:
    with_a_lease_that_ran_out(ledger, "host:with:colons:1:1")
    assert ledger.release_dead(lambda owner: True, GEN) == 1
    assert ledger.held_by_others(GEN, "run-2") == {"run-1": 1}
    assert ledger.held_by_others(GEN, "run-1") == {}


def test_run_that_lives_on_this_host_keeps_its_documents_however_old_their_lease(ledger: Ledger) -> None:
    with_a_lease_that_ran_out(ledger, f"{socket.gethostname()}:1:1")
    assert ledger.release_dead(lambda owner: True, GEN) == 0
    assert ledger.held_by_others(GEN, "run-2") == {"run-1": 2}
    assert ledger.release_dead(lambda owner: False, GEN) == 2


def test_unfinished_document_is_tried_again_until_its_tries_are_used_up(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    for attempt in (1, 2):
        assert ledger.requeue(GEN, [document.document_id], max_attempts=3) == 1
        assert ledger.take(GEN, "run-1", 9, 60)[0].attempt == attempt + 1
    assert ledger.requeue(GEN, [document.document_id], max_attempts=3) == 0
    assert state_of(ledger, document.document_id) is State.FAILED
    (row,) = ledger.failures(GEN, "run-1")
    assert (row.unit, row.key, row.failure.reason) == ("document", "a.pdf", "chunks_missing")
    ledger.admit(GEN, [version("a.pdf", 1)], LATEST)
    ledger.take(GEN, "run-2", 9, 60)
    assert ledger.requeue(GEN, [document.document_id], max_attempts=3) == 1, "a later run has its own tries"


def test_requeue_leaves_finished_documents_alone(ledger: Ledger) -> None:
    documents = admitted(ledger, version("a.pdf", 1))
    ready(ledger, documents)
    assert ledger.requeue(GEN, [documents[0].document_id], max_attempts=3) == 0
    assert state_of(ledger, documents[0].document_id) is State.READY


def test_requeue_leaves_what_another_run_holds(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    for max_attempts in (1, 3):
        assert ledger.requeue(GEN, [document.document_id], max_attempts, run_id="run-2") == 0
        assert state_of(ledger, document.document_id) is State.ADMITTED
    assert ledger.requeue(GEN, [document.document_id], 3, run_id="run-1") == 1


def test_verbs_move_no_job_that_another_run_holds(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    assert ledger.advance(GEN, [name], State.TRIAGING, run_id="run-2") == []
    assert ledger.indexed(GEN, [name], run_id="run-2") == []
    assert not ledger.end(GEN, name, State.FAILED, failure("timeout"), run_id="run-2")
    ledger.record_chunks(GEN, ConstructRecord(name, 7), run_id="run-2")
    assert state_of(ledger, name) is State.ADMITTED
    assert Operator(ledger).versions(GEN, document.key)[0].chunk_count is None
    ledger.record_chunks(GEN, ConstructRecord(name, 7), run_id="run-1")
    assert ledger.indexed(GEN, [name], run_id="run-1") == [name]
    assert ledger.end(GEN, name, State.FAILED, failure("timeout"), run_id="run-1")


def test_transient_failure_is_tried_again_within_the_run(ledger: Ledger) -> None:
    failed, poison = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    names = [failed.document_id, poison.document_id]
    ledger.end(GEN, failed.document_id, State.FAILED, failure("source_unavailable"))
    ledger.end(GEN, poison.document_id, State.UNSUPPORTED, failure("truncated"))
    assert ledger.requeue(GEN, names, 2, run_id="run-2") == 0
    assert ledger.requeue(GEN, names, 2, run_id="run-1") == 1
    assert [d.document_id for d in ledger.take(GEN, "run-1", 9, 60)] == names[:1]
    ledger.end(GEN, failed.document_id, State.FAILED, failure("source_unavailable"))
    assert ledger.requeue(GEN, names, 2, run_id="run-1") == 0, "its tries are used up"
    (row, _) = ledger.failures(GEN)
    assert row.failure.reason == "source_unavailable", "and it keeps its own reason"


def test_partial_document_is_tried_again_with_its_transient_segments_open(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 3)])
    fates = [failure("source_unavailable"), None, failure("truncated")]
    ledger.settle(GEN, PARSER, [Settlement(name, n, what, artifact=f"a/{n}") for n, what in enumerate(fates)])
    ledger.record_chunks(GEN, ConstructRecord(name, 5))
    assert ledger.verified(GEN, [Verified(name, 5)]) == {name: State.PARTIAL}
    assert ledger.requeue(GEN, [name], 3) == 1
    assert open_segments(ledger, name) == (0,)


def test_document_that_failed_with_chunks_in_the_index_is_broken_until_they_are_gone(ledger: Ledger) -> None:
    written, served, empty = admitted(ledger, *(version(f"{n}.pdf", 1) for n in "abc"))
    ready(ledger, [served])
    constructed(ledger, written.document_id, 3)
    assert ledger.broken(GEN) == [], "a run works on it"
    ledger.requeue(GEN, [written.document_id, empty.document_id], max_attempts=1)
    assert ledger.broken(GEN) == [written]
    assert ledger.retire(GEN, [written.document_id, empty.document_id], State.FAILED) == []
    assert ledger.broken(GEN) == []
    assert ledger.counts(GEN) == {State.READY: 1, State.FAILED: 2}


def test_chunks_of_a_broken_document_that_was_taken_again_are_not_forgotten(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, document.document_id, 3)
    ledger.requeue(GEN, [document.document_id], max_attempts=1)
    assert redriven(ledger) == 1
    assert ledger.retire(GEN, [document.document_id], State.FAILED) == []
    assert ledger.queued(GEN) == 1


def test_older_version_that_serves_is_not_reopened(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    assert ledger.reopen(GEN, [old.document_id], "chunks are gone") == 0
    assert state_of(ledger, old.document_id) is State.READY
    assert ledger.reopen(GEN, [old.document_id], "chunks are gone", all_versions=True) == 1


def test_run_id_that_is_taken_is_refused(ledger: Ledger) -> None:
    ledger.start_run("run-1", "backfill", "o", "c")
    with pytest.raises(StoreRefused, match="run id run-1 is taken"):
        ledger.start_run("run-1", "backfill", "o", "c")
    assert [r.verb for r in ledger.runs()] == ["backfill"]


def test_reopened_document_is_queued_with_a_reason(ledger: Ledger) -> None:
    documents = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    ready(ledger, documents[:1])
    assert ledger.reopen(GEN, [d.document_id for d in documents], "chunks are gone") == 1
    assert ledger.history(documents[0].document_id)[-1].reason == "chunks are gone"
    assert ledger.expected_chunks(GEN) == 0


def test_thrown_away_index_queues_everything_again(ledger: Ledger) -> None:
    documents = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    ready(ledger, documents)
    assert ledger.forget_jobs(GEN) == 2
    assert ledger.expected_chunks(GEN) == 0
    again = ledger.take(GEN, "run-2", 9, 60)
    assert [d.attempt for d in again] == [1, 1], "nothing to look for in an empty index"
    assert ledger.to_verify(GEN, "run-2") == []


def test_run_is_told_to_stop_once(ledger: Ledger) -> None:
    ledger.start_run("run-1", "backfill", "o", "c")
    assert ledger.stop_reason("run-1") == ""
    ledger.stop_run("run-1", "403 from the index")
    ledger.stop_run("run-1", "later")
    assert ledger.stop_reason("run-1") == "403 from the index"


def test_run_keeps_its_first_end_and_report(ledger: Ledger) -> None:
    ledger.start_run("run-1", "backfill", "o", "c")
    ledger.end_run("run-1", "ended", {"ready": 3})
    ledger.end_run("run-1", "failed")
    run = ledger.run("run-1")
    assert run is not None
    assert (run.verb, run.state, run.report) == ("backfill", "ended", {"ready": 3})
    assert ledger.run("none") is None
    assert [r.run_id for r in ledger.runs()] == ["run-1"]


def test_counters_add_up_and_peaks_stay(ledger: Ledger) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: ledger.add_stats("run-1", {"parse.pages": 2, "peak.rss": n}), range(8)))
    ledger.add_stats("run-1", {})
    assert ledger.stats("run-1") == {"parse.pages": 16.0, "peak.rss": 7.0}


def test_ledger_travels_as_its_url(ledger: Ledger) -> None:
    other: Ledger = pickle.loads(pickle.dumps(ledger))
    assert other.runs() == []
    assert other.url == ledger.url
    other.close()


def test_marked_stale_only_while_the_newest_version_is_broken(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST)
    (broken,) = ledger.take(GEN, "run-1", 9, 60)
    ledger.end(GEN, broken.document_id, State.UNSUPPORTED, failure("truncated"))
    assert ledger.counts(GEN) == {State.READY: 1, State.UNSUPPORTED: 1}
    ledger.admit(GEN, [version("a.pdf", 3)], LATEST)
    (new,) = ledger.take(GEN, "run-1", 9, 60)
    constructed(ledger, new.document_id, 4)
    ledger.verified(GEN, [Verified(new.document_id, 4)])
    assert [d.version for d in ledger.older(GEN, [new.document_id])] == ["v1"]
