"""From construct to the end of a document: chunk counts, dead letters, verification, older versions, reports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ingest.failure import failure
from ingest.model import Branch, ChunkFailure, Fingerprints, State
from ingest.state import ConstructRecord, Expected, Generation, Ledger, Operator, Settlement, Slow, Verified
from tests.ledger_steps import (
    ALL,
    FINGERPRINTS,
    GEN,
    LATEST,
    PARSER,
    add_generation,
    admitted,
    constructed,
    marker,
    plan_of,
    ready,
    state_of,
    version,
)


def lost(document_id: str, number: int, slug: str = "bad_vector") -> ChunkFailure:
    return ChunkFailure(f"{document_id[:8]}-{number}", document_id, "embed", failure(slug))


def test_chunk_counts_are_assigned_not_added(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, document.document_id, 5)
    ledger.record_chunks(GEN, ConstructRecord(document.document_id, 5, 1, 50, 4, "en"))
    (row,) = Operator(ledger).versions(GEN, "a.pdf")
    assert (row.chunk_count, row.language) == (5, "en")
    assert [found.share for found in Operator(ledger).unknown_token_shares(GEN)] == [4 / 50]
    assert state_of(ledger, document.document_id) is State.EMBEDDING


def test_document_without_changes_goes_straight_to_verifying(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.record_chunks(GEN, ConstructRecord(document.document_id, 5, unchanged=5))
    assert state_of(ledger, document.document_id) is State.VERIFYING


def test_all_chunks_found_makes_a_document_ready(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 3, segments=2)
    ledger.indexed(GEN, [name])
    (pending,) = ledger.to_verify(GEN, "run-1")
    assert (pending.document, pending.chunk_count, pending.failed_chunks) == (document, 3, 0)
    assert (pending.failed_segments, pending.segments) == (0, 2)
    assert ledger.verified(GEN, [Verified(name, 2)]) == {}
    assert ledger.verified(GEN, [Verified(name, 3)]) == {name: State.READY}
    assert ledger.verified(GEN, [Verified(name, 3)]) == {}, "it has its end already"
    assert ledger.to_verify(GEN, "run-1") == []
    assert ledger.expected_documents(GEN) == [Expected(name, "b", "a.pdf", "v1", 1, 3, 0)]


def test_pending_documents_are_those_of_the_run(ledger: Ledger) -> None:
    one, other = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    for document in (one, other):
        constructed(ledger, document.document_id, 2)
    assert [p.document for p in ledger.to_verify(GEN, "run-1", [one.document_id])] == [one]
    assert ledger.to_verify(GEN, "run-2") == []
    assert ledger.to_verify(GEN, "run-1", []) == []


def test_failed_segment_makes_a_document_partial(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 3)])
    bad_page = ((45, failure("no_text")),)
    settlements = [
        Settlement(name, 0),
        Settlement(name, 1, failure("timeout")),
        Settlement(name, 2, failed_pages=bad_page),
    ]
    ledger.settle(GEN, PARSER, settlements)
    ledger.record_chunks(GEN, ConstructRecord(name, 4))
    assert ledger.to_verify(GEN, "run-1")[0].failed_segments == 2
    assert ledger.verified(GEN, [Verified(name, 4)]) == {name: State.PARTIAL}
    rows = ledger.failures(GEN, "run-1")
    assert [(r.unit, r.page_from, r.page_to, r.failure.reason) for r in rows] == [
        ("segment", 21, 40, "timeout"),
        ("page", 45, 45, "no_text"),
    ]
    assert ledger.history(name)[-1].reason == "timeout"
    assert [(c.state, c.engine, c.segments, c.pages) for c in ledger.segment_counts(GEN, "run-1")] == [
        ("failed", "", 1, 20),
        ("parsed", "", 2, 40),
    ]


def test_burying_twice_counts_once(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 4)
    ledger.bury(GEN, [lost(name, 0), lost(name, 1)])
    ledger.bury(GEN, [lost(name, 1), lost(name, 1)])
    ledger.bury(GEN, [])
    assert ledger.to_verify(GEN, "run-1")[0].failed_chunks == 2
    assert ledger.verified(GEN, [Verified(name, 3)]) == {}
    assert ledger.verified(GEN, [Verified(name, 2)]) == {name: State.PARTIAL}
    assert ledger.expected_chunks(GEN) == 2
    assert [r.chunk_id for r in ledger.failures(GEN)] == [lost(name, 0).chunk_id, lost(name, 1).chunk_id]


def test_burials_at_the_same_time_are_all_counted(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, document.document_id, 100)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: ledger.bury(GEN, [lost(document.document_id, n)]), range(24)))
    assert ledger.to_verify(GEN, "run-1")[0].failed_chunks == 24


def test_buried_chunk_that_a_repeat_wrote_counts_as_written(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 4)
    ledger.bury(GEN, [lost(name, 0)])
    assert ledger.verified(GEN, [Verified(name, 4)]) == {name: State.READY}
    assert ledger.expected_chunks(GEN) == 4
    assert ledger.failures(GEN) == []


def test_document_of_which_nothing_could_be_served_is_failed(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 2)
    ledger.bury(GEN, [lost(name, 0), lost(name, 1)])
    assert ledger.verified(GEN, [Verified(name, 0)]) == {name: State.FAILED}


def test_document_without_a_chunk_is_never_ready(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.record_chunks(GEN, ConstructRecord(document.document_id, 0))
    assert ledger.verified(GEN, [Verified(document.document_id, 0)]) == {}


def test_transient_failure_decides_over_others(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    constructed(ledger, name, 4)
    ledger.bury(GEN, [lost(name, 0, "bad_vector"), lost(name, 1, "index_unavailable")])
    ledger.verified(GEN, [Verified(name, 2)])
    assert ledger.history(name)[-1].reason == "index_unavailable"
    assert ledger.admit(GEN, [version("a.pdf", 1)], LATEST).retried == 1
    assert ledger.failures(GEN) == [], "the next attempt buries anew what fails again"


def test_older_version_goes_only_after_the_new_one_serves(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST)
    (new,) = ledger.take(GEN, "run-1", 9, 60)
    constructed(ledger, new.document_id, 2)
    assert ledger.superseded(GEN, [old.document_id, new.document_id]) == {old.document_id}
    assert ledger.superseded(GEN, [old.document_id], all_versions=True) == set()
    assert ledger.older(GEN, [new.document_id]) == []
    ledger.verified(GEN, [Verified(new.document_id, 2)])
    assert ledger.older(GEN, [new.document_id]) == [old]
    assert ledger.retire(GEN, [old.document_id], State.SUPERSEDED) == [old.document_id]
    assert ledger.retire(GEN, [old.document_id], State.SUPERSEDED) == []
    assert ledger.older(GEN, [new.document_id]) == []
    assert ledger.expected_chunks(GEN) == 2


def test_overtaken_document_does_not_delete_what_overtook_it(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST)
    ready(ledger, ledger.take(GEN, "run-1", 9, 60))
    assert ledger.older(GEN, [old.document_id]) == []


def test_chunks_of_a_reopened_older_version_are_still_deleted(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.reopen(GEN, [old.document_id], "count differs")
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST)
    (new,) = ledger.take(GEN, "run-1", 9, 60)
    ready(ledger, [new])
    assert [d.document_id for d in ledger.older(GEN, [new.document_id])] == [old.document_id]


def test_document_overtaken_in_flight_is_retired_as_superseded(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, old.document_id, 3)
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST)
    assert ledger.retire(GEN, [old.document_id], State.SUPERSEDED) == [old.document_id]
    assert ledger.verified(GEN, [Verified(old.document_id, 3)]) == {}


def test_all_versions_are_served_side_by_side_until_a_delete_marker(ledger: Ledger) -> None:
    add_generation(ledger)
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], ALL)
    documents = ledger.take(GEN, "run-1", 9, 60)
    ready(ledger, documents)
    assert ledger.superseded(GEN, [d.document_id for d in documents], all_versions=True) == set()
    ledger.admit(GEN, [marker("a.pdf", 3)], ALL)
    assert sorted(d.version for d in ledger.to_delete(GEN)) == ["v1", "v2"]


def test_expected_documents_come_page_by_page(ledger: Ledger) -> None:
    documents = admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(5)))
    ready(ledger, documents, chunks=2)
    pages, after = [], ""
    while page := ledger.expected_documents(GEN, after, 2):
        pages.append(len(page))
        after = page[-1].document_id
    assert pages == [2, 2, 1]
    assert ledger.expected_chunks(GEN) == 10


def test_slow_documents_are_those_that_took_longest_to_parse(ledger: Ledger) -> None:
    documents = {d.key: d.document_id for d in admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(3)))}
    for seconds, name in enumerate(documents.values()):
        ledger.plan(GEN, PARSER, [plan_of(name, 2)])
        took = [Settlement(name, number, None, "pymupdf", "a", seconds=seconds) for number in (0, 1)]
        ledger.settle(GEN, PARSER, took)
        ledger.settle(GEN, PARSER, [replace(one, seconds=99.0) for one in took])  # a repeat changes nothing
    slow = [Slow(name, key, 2.0 * seconds, 40, 0) for seconds, (key, name) in enumerate(documents.items())]
    assert Operator(ledger).slowest(GEN, "run-1", 9) == [slow[2], slow[1]]
    assert Operator(ledger).slowest(GEN, "run-1", 1) == [slow[2]]
    assert Operator(ledger).slowest(GEN, "run-2", 9) == []


def test_unknown_tokens_are_reported(ledger: Ledger) -> None:
    documents = admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(3)))
    for unknown, document in enumerate(documents):
        constructed(ledger, document.document_id, 1)
        ledger.record_chunks(GEN, ConstructRecord(document.document_id, 1, tokens=10, unknown_tokens=unknown))
        ledger.verified(GEN, [Verified(document.document_id, 1)])
    shares = Operator(ledger).unknown_token_shares(GEN, "run-1", above=0.1)
    assert [row.document_id for row in shares] == [documents[2].document_id]
    assert shares[0].share == pytest.approx(0.2)


def test_failures_stop_at_the_limit(ledger: Ledger) -> None:
    names = [d.document_id for d in admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(5)))]
    assert all(ledger.end(GEN, name, State.UNSUPPORTED, failure("truncated")) for name in names)
    assert [row.key for row in ledger.failures(GEN, "run-1", limit=3)] == ["0.pdf", "1.pdf", "2.pdf"]
    assert ledger.counts(GEN) == {State.UNSUPPORTED: 5}


# ---------------------------------------------------------------- generations


def test_generation_is_found_by_what_makes_it(ledger: Ledger) -> None:
    add_generation(ledger)
    found = ledger.generation("documents", FINGERPRINTS)
    assert found is not None
    assert (found.name, found.uuid, found.state, found.fingerprints) == (GEN, "uuid-1", "building", FINGERPRINTS)
    assert ledger.generation("documents", Fingerprints(PARSER, "chunker-2", "embedder-1", "mapping-1")) is None
    assert ledger.generation("other", FINGERPRINTS) is None


def test_index_made_anew_changes_only_the_uuid(ledger: Ledger) -> None:
    add_generation(ledger)
    ledger.set_generation_state(GEN, "serving")
    ledger.add_generation(Generation(GEN, "documents", FINGERPRINTS, "uuid-2"))
    (found,) = ledger.generations("documents")
    assert (found.uuid, found.state) == ("uuid-2", "serving")


def test_saved_settings_are_kept_until_forgotten(ledger: Ledger) -> None:
    add_generation(ledger)
    assert ledger.saved_settings(GEN) is None
    assert ledger.keep_settings(GEN, {"refresh_interval": "1s"}) == {"refresh_interval": "1s"}
    assert ledger.keep_settings(GEN, {"refresh_interval": "-1"}) == {"refresh_interval": "1s"}
    assert ledger.saved_settings(GEN) == {"refresh_interval": "1s"}
    ledger.forget_settings(GEN)
    assert ledger.saved_settings(GEN) is None


def test_first_canary_stays(ledger: Ledger) -> None:
    add_generation(ledger)
    assert ledger.canary(GEN, [0.5, 0.25]) == [0.5, 0.25]
    assert ledger.canary(GEN, [9.0, 9.0]) == [0.5, 0.25]


def test_first_runs_that_claim_at_once_make_one_generation(ledger_url: str) -> None:
    ledgers = [Ledger(ledger_url) for _ in range(4)]

    def claim(pair: tuple[int, Ledger]) -> Generation:
        return pair[1].claim_generation(Generation(f"documents-{pair[0]}", "documents", FINGERPRINTS, ""))

    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(claim, enumerate(ledgers)))
    assert {one.name for one in claimed} == {claimed[0].name}
    assert claimed[0].uuid == "", "its index is still to be made"
    ledgers[0].set_uuid(claimed[0].name, "uuid-9")
    assert ledgers[1].claim_generation(Generation("later", "documents", FINGERPRINTS, "")).uuid == "uuid-9"
    assert [one.name for one in ledgers[1].generations("documents")] == [claimed[0].name]
    other = Fingerprints(PARSER, "chunker-2", "embedder-1", "mapping-1")
    assert ledgers[1].claim_generation(Generation("other", "documents", other, "")).name == "other"
    for opened in ledgers:
        opened.close()


def test_failures_are_counted_by_branch_without_a_limit(ledger: Ledger) -> None:
    documents = admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(4)))
    for document, what in zip(documents, ("truncated", "truncated", "source_unavailable"), strict=False):
        ledger.end(GEN, document.document_id, State.FAILED, failure(what))
    assert ledger.failure_counts(GEN) == {Branch.POISON: 2, Branch.TRANSIENT: 1}


def test_documents_with_unknown_tokens_are_counted(ledger: Ledger) -> None:
    for document, unknown in zip(admitted(ledger, *(version(f"{n}.pdf", 1) for n in "abc")), (0, 2, 5), strict=True):
        ledger.record_chunks(GEN, ConstructRecord(document.document_id, 1, tokens=10, unknown_tokens=unknown))
    assert Operator(ledger).unknown_token_count(GEN, above=0.1) == 2
    assert Operator(ledger).unknown_token_count(GEN, above=0.3) == 1
