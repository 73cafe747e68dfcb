"""Admission: revisions, delete markers, what is queued and what is not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ingest.config import SourceConfig
from ingest.errors import StoreError
from ingest.failure import failure
from ingest.model import ObjectVersion, State
from ingest.state import Admission, ConstructRecord, Ledger, Settlement, Verified
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
    settle_all,
    state_of,
    version,
)


def revisions(ledger: Ledger, *versions: ObjectVersion) -> list[int]:
    """Revisions as the pipeline sees them, of versions that can be taken."""
    found = {document.document_id: document.revision for document in ledger.take(GEN, "look", 1000, 60)}
    return [found[one.document_id] for one in versions]


def newest(ledger: Ledger, key: str = "a.pdf") -> int | None:
    return ledger.newest_revisions([("b", key)]).get(("b", key))


@pytest.fixture(autouse=True)
def _generation(ledger: Ledger) -> None:
    add_generation(ledger)


def test_first_listing_takes_only_the_newest_version(ledger: Ledger) -> None:
    page = [version("a.pdf", 3), version("a.pdf", 2, latest=False), version("a.pdf", 1, latest=False)]
    assert ledger.admit(GEN, page, LATEST) == Admission(new=1, older=2)
    assert [(d.version, d.revision) for d in ledger.take(GEN, "run", 9, 60)] == [("v3", 1)]


def test_first_listing_of_all_versions_numbers_the_oldest_one(ledger: Ledger) -> None:
    page = [version("a.pdf", 3), version("a.pdf", 2, latest=False), version("a.pdf", 1, latest=False)]
    assert ledger.admit(GEN, page, ALL) == Admission(new=3)
    assert revisions(ledger, *page) == [3, 2, 1]


def test_listing_again_changes_nothing(ledger: Ledger) -> None:
    page = [version("a.pdf", 1), version("b.pdf", 1)]
    ledger.admit(GEN, page, LATEST)
    assert ledger.admit(GEN, page, LATEST) == Admission(known=2)
    assert len(ledger.history(page[0].document_id)) == 1
    assert ledger.queued(GEN) == 2


def test_newer_version_gets_the_next_revision(ledger: Ledger) -> None:
    ledger.admit(GEN, [version("a.pdf", 1)], LATEST)
    assert ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST).new == 1
    assert newest(ledger) == 2


def test_version_that_waits_is_superseded_by_a_newer_one(ledger: Ledger) -> None:
    old = version("a.pdf", 1)
    ledger.admit(GEN, [old], LATEST)
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST)
    assert state_of(ledger, old.document_id) is State.SUPERSEDED
    assert [d.version for d in ledger.take(GEN, "run", 9, 60)] == ["v2"]


def test_older_version_that_is_not_the_latest_is_left_out(ledger: Ledger) -> None:
    ledger.admit(GEN, [version("a.pdf", 5)], LATEST)
    assert ledger.admit(GEN, [version("a.pdf", 4, latest=False)], LATEST) == Admission(older=1)
    assert newest(ledger) == 1


def test_version_under_a_removed_delete_marker_is_queued_again(ledger: Ledger) -> None:
    ready(ledger, admitted(ledger, version("a.pdf", 1)))
    ledger.admit(GEN, [marker("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    ledger.retire(GEN, [d.document_id for d in ledger.to_delete(GEN)], State.DELETED)
    assert ledger.admit(GEN, [version("a.pdf", 1)], LATEST) == Admission(retried=1)
    assert ledger.admit(GEN, [version("a.pdf", 1)], LATEST) == Admission(known=1)
    assert ledger.to_delete(GEN) == []
    (again,) = ledger.take(GEN, "run-1", 9, 60)
    assert (again.version, again.revision) == ("v1", 3)
    assert ledger.superseded(GEN, [again.document_id]) == set()


def test_version_under_a_removed_delete_marker_is_indexed_even_where_it_was_never_known(ledger: Ledger) -> None:
    ledger.admit(GEN, [marker("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    assert ledger.admit(GEN, [version("a.pdf", 1)], LATEST) == Admission(new=1)
    assert newest(ledger) == 2


@pytest.mark.parametrize("source", [LATEST, ALL], ids=["latest", "all"])
def test_rollback_serves_the_older_version_and_then_drops_the_vanished_one(
    ledger: Ledger, source: SourceConfig
) -> None:
    old = admitted(ledger, version("a.pdf", 1))
    ready(ledger, old)
    ready(ledger, admitted(ledger, version("a.pdf", 2), version("a.pdf", 1, latest=False)))
    assert ledger.admit(GEN, [version("a.pdf", 1)], source) == Admission(retried=1)
    assert ledger.older(GEN) == [], "the vanished version serves until the older one does"
    (again,) = ledger.take(GEN, "run-1", 9, 60)
    assert (again.version, again.revision, again.attempt) == ("v1", 3, 2)
    ready(ledger, [again])
    assert [d.version for d in ledger.older(GEN)] == ["v2"]


def test_version_that_vanished_before_it_was_taken_is_superseded(ledger: Ledger) -> None:
    ready(ledger, admitted(ledger, version("a.pdf", 1)))
    vanished = version("a.pdf", 2)
    ledger.admit(GEN, [vanished, version("a.pdf", 1, latest=False)], LATEST)
    ledger.admit(GEN, [version("a.pdf", 1)], LATEST)
    assert state_of(ledger, vanished.document_id) is State.SUPERSEDED
    assert [d.version for d in ledger.take(GEN, "run-1", 9, 60)] == ["v1"]


def test_version_that_comes_back_while_a_run_holds_it_stays_with_the_run(ledger: Ledger) -> None:
    (held,) = admitted(ledger, version("a.pdf", 1))
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    ledger.admit(GEN, [version("a.pdf", 1)], LATEST)
    assert state_of(ledger, held.document_id) is State.ADMITTED
    assert ledger.superseded(GEN, [held.document_id]) == set()


def test_served_version_that_waits_to_be_tried_again_serves_on_under_a_newer_one(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.reopen(GEN, [old.document_id], "chunks are gone")
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    assert state_of(ledger, old.document_id) is State.PARTIAL
    (new,) = ledger.take(GEN, "run-1", 9, 60)
    ledger.end(GEN, new.document_id, State.UNSUPPORTED, failure("truncated"))
    assert ledger.expected_chunks(GEN) == 3
    assert ledger.older(GEN) == []


def test_older_version_found_later_stays_below_what_was_counted(ledger: Ledger) -> None:
    new, old = version("a.pdf", 2), version("a.pdf", 1, latest=False)
    ledger.admit(GEN, [new], LATEST)
    assert ledger.admit(GEN, [new, old], ALL) == Admission(new=1, known=1)
    assert revisions(ledger, new, old) == [1, 0]


def test_listing_in_whole_seconds_is_not_older_than_an_event_in_the_same_second(ledger: Ledger) -> None:
    ledger.admit(GEN, [version("a.pdf", 1, at=10.5)], LATEST)
    assert ledger.admit(GEN, [version("a.pdf", 2, at=10.0)], LATEST).new == 1


def test_versions_of_one_second_are_ordered_by_their_milliseconds(ledger: Ledger) -> None:
    ledger.admit(GEN, [version("a.pdf", 2, at=10.9)], LATEST)
    ledger.admit(GEN, [version("a.pdf", 1, at=10.5, latest=False)], ALL)
    assert newest(ledger) == 1
    ledger.admit(GEN, [version("a.pdf", 3, at=10.95, latest=False)], ALL)
    assert newest(ledger) == 2


def test_delete_marker_is_a_revision_and_ends_what_is_under_way(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    assert ledger.admit(GEN, [marker("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST) == Admission(
        older=1, deleted=1
    )
    assert newest(ledger) == 2
    assert state_of(ledger, document.document_id) is State.DELETED
    assert ledger.superseded(GEN, [document.document_id]) == {document.document_id}
    assert ledger.superseded(GEN, [document.document_id], all_versions=True) == {document.document_id}


def test_served_document_under_a_delete_marker_is_to_be_deleted_until_it_was(ledger: Ledger) -> None:
    documents = admitted(ledger, version("a.pdf", 1))
    ready(ledger, documents)
    ledger.admit(GEN, [marker("a.pdf", 2)], LATEST)
    assert ledger.to_delete(GEN) == documents
    ledger.retire(GEN, [documents[0].document_id], State.DELETED)
    assert ledger.to_delete(GEN) == []
    assert state_of(ledger, documents[0].document_id) is State.DELETED


def test_document_deleted_in_flight_is_to_be_deleted_too(ledger: Ledger) -> None:
    documents = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, documents[0].document_id, 3)
    ledger.admit(GEN, [marker("a.pdf", 2)], LATEST)
    assert [d.document_id for d in ledger.to_delete(GEN)] == [documents[0].document_id]


def test_known_delete_marker_counts_as_known(ledger: Ledger) -> None:
    ledger.admit(GEN, [marker("a.pdf", 2)], LATEST)
    assert ledger.admit(GEN, [marker("a.pdf", 2)], LATEST) == Admission(known=1)
    assert ledger.queued(GEN) == 0


def test_upload_after_a_delete_marker_is_indexed(ledger: Ledger) -> None:
    ledger.admit(GEN, [version("a.pdf", 1)], LATEST)
    ledger.admit(GEN, [marker("a.pdf", 2)], LATEST)
    assert ledger.admit(GEN, [version("a.pdf", 3)], LATEST).new == 1
    assert newest(ledger) == 3


def test_unversioned_object_that_comes_back_with_old_content_is_a_third_revision(ledger: Ledger) -> None:
    def upload(etag: str, at: float) -> ObjectVersion:
        return ObjectVersion("b", "a.pdf", "null", etag, 1, at)

    ready(ledger, admitted(ledger, upload("A", 1)))
    ledger.admit(GEN, [upload("B", 2)], LATEST)
    newer = ledger.take(GEN, "run-1", 9, 60)
    ready(ledger, newer)
    ledger.retire(GEN, [d.document_id for d in ledger.older(GEN, [newer[0].document_id])], State.SUPERSEDED)
    assert ledger.admit(GEN, [upload("A", 3)], LATEST) == Admission(retried=1)
    (again,) = ledger.take(GEN, "run-1", 9, 60)
    assert (again.version, again.revision, again.attempt) == ("null:A", 3, 2)


def test_transient_end_is_tried_again_and_other_ends_stay(ledger: Ledger) -> None:
    one, other = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    ledger.end(GEN, one.document_id, State.FAILED, failure("source_unavailable"))
    ledger.end(GEN, other.document_id, State.UNSUPPORTED, failure("truncated"))
    page = [version("a.pdf", 1), version("b.pdf", 1)]
    assert ledger.admit(GEN, page, LATEST) == Admission(known=1, retried=1)
    assert [(d.document_id, d.attempt) for d in ledger.take(GEN, "run-2", 9, 60)] == [(one.document_id, 2)]


def test_retry_opens_only_the_segments_whose_failure_was_transient(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 4)])
    fates = [failure("source_unavailable"), None, failure("timeout"), None]
    ledger.settle(GEN, PARSER, [Settlement(name, n, what, artifact=f"a/{n}") for n, what in enumerate(fates)])
    constructed_chunks = 5
    ledger.record_chunks(GEN, *[_record(name, constructed_chunks)])
    assert ledger.verified(GEN, [Verified(name, constructed_chunks)]) == {name: State.PARTIAL}
    assert ledger.admit(GEN, [version("a.pdf", 1)], LATEST).retried == 1
    assert open_segments(ledger, name) == (0,)
    assert [row.ordinal for row in ledger.segments(PARSER, name)] == [None, 1, 2, 3]
    (answer,) = ledger.settle(GEN, PARSER, [Settlement(name, 0, artifact="a/0")])
    assert (answer.ordinal, answer.is_closer) == (4, True)


def _record(name: str, chunks: int) -> ConstructRecord:
    return ConstructRecord(name, chunks)


def test_changed_principals_are_noted_for_chunks_that_carry_the_old_ones(ledger: Ledger) -> None:
    ready(ledger, admitted(ledger, version("a.pdf", 1)))
    closed = SourceConfig(bucket="b", tenant="t", principals=())
    ledger.admit(GEN, [version("a.pdf", 1)], closed)
    (document,) = ledger.access_changed(GEN, 10)
    assert document.principals == ()
    ledger.admit(GEN, [version("a.pdf", 1)], LATEST)
    ledger.access_written(GEN, [document])
    assert ledger.access_changed(GEN, 10)[0].principals == ("staff",), "what was written is outdated already"
    ledger.access_written(GEN, ledger.access_changed(GEN, 10))
    assert ledger.access_changed(GEN, 10) == []


def test_run_over_a_part_takes_only_what_its_own_listing_named(ledger: Ledger) -> None:
    a, b, c = (version(key, 1) for key in ("a.pdf", "b.pdf", "c.pdf"))
    ledger.admit(GEN, [a, b], LATEST)  # of a run over the whole bucket that was killed
    ledger.admit(GEN, [b], LATEST, listed_by="part")
    ledger.admit(GEN, [c], LATEST, listed_by="part")
    ledger.admit(GEN, [c], LATEST, listed_by="later")

    assert (ledger.queued(GEN), ledger.queued(GEN, "part"), ledger.queued(GEN, "later")) == (3, 1, 1)
    assert [d.key for d in ledger.take(GEN, "part", 9, 60, listed_by="part")] == ["b.pdf"]
    assert ledger.take(GEN, "part", 9, 60, listed_by="part") == []
    assert [d.key for d in ledger.take(GEN, "whole", 9, 60)] == ["a.pdf", "c.pdf"]
    assert ledger.take(GEN, "later", 9, 60, listed_by="later") == []


def test_run_over_a_part_takes_its_documents_again_after_a_passing_failure(ledger: Ledger) -> None:
    ledger.admit(GEN, [version("a.pdf", 1)], LATEST, listed_by="part")
    (document,) = ledger.take(GEN, "part", 9, 60, listed_by="part")
    ledger.end(GEN, document.document_id, State.FAILED, failure("source_unavailable"))
    assert ledger.requeue(GEN, [document.document_id], 3, run_id="part") == 1
    assert ledger.take(GEN, "part", 9, 60, listed_by="part") == [replace(document, attempt=2)]


def test_run_over_a_part_takes_what_is_queued_again_by_its_listing(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.end(GEN, document.document_id, State.FAILED, failure("source_unavailable"))
    assert ledger.admit(GEN, [version("a.pdf", 1)], LATEST, listed_by="part").retried == 1
    assert len(ledger.take(GEN, "part", 9, 60, listed_by="part")) == 1


def test_unknown_generation_is_refused(ledger: Ledger) -> None:
    with pytest.raises(StoreError, match="not in the ledger"):
        ledger.admit("other", [version("a.pdf", 1)], LATEST)


def test_two_processes_that_admit_the_same_keys_agree(ledger: Ledger, ledger_url: str) -> None:
    def listing(latest: int) -> list[ObjectVersion]:
        return [version(f"{n}.pdf", number, latest=number == 4) for n in range(20) for number in range(latest, 0, -1)]

    pages = [listing(number) for number in (1, 2, 3, 4)] * 2
    ledgers = [Ledger(ledger_url) for _ in pages]
    with ThreadPoolExecutor(len(pages)) as pool:
        list(pool.map(lambda pair: pair[0].admit(GEN, pair[1], LATEST), zip(ledgers, pages, strict=True)))
    for opened in ledgers:
        opened.close()
    taken = ledger.take(GEN, "run", 1000, 60)
    assert sorted((d.key, d.version) for d in taken) == sorted((f"{n}.pdf", "v4") for n in range(20))
    assert all(ledger.newest_revisions([("b", d.key)])["b", d.key] == d.revision for d in taken)


def test_second_generation_admits_documents_that_the_first_one_knows(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [document])
    add_generation(ledger, "second")
    assert ledger.admit("second", [version("a.pdf", 1)], LATEST).new == 1
    ledger.take("second", "run-2", 9, 60)
    (answer,) = ledger.settle("second", PARSER, [Settlement(document.document_id, 0)])
    assert answer.is_closer
    assert state_of(ledger, document.document_id, "second") is State.ASSEMBLING
    assert settle_all(ledger, document.document_id, 1) == [answer]
