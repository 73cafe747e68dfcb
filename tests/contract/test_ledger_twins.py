"""Equal bytes under several keys, as the ledger knows them: one goes ahead, the others begin with what it left."""

from __future__ import annotations

from dataclasses import replace

from ingest.failure import failure
from ingest.model import Document, ObjectVersion
from ingest.state import Ledger, Settlement, Verified
from tests.ledger_steps import GEN, LATEST, PARSER, admitted, constructed, plan_of, ready, settle_all, version

SAME = "5a" * 32


def copy(key: str, etag: str = "same", size: int = 100) -> ObjectVersion:
    return replace(version(key, 1, size=size), etag=etag)


def planned(ledger: Ledger, document: Document, segments: int = 2, content: str = SAME, kind: str = "pdf") -> list[str]:
    """Artifacts that its segments begin with."""
    plan = replace(plan_of(document.document_id, segments), content_hash=content, format=kind)
    ledger.plan(GEN, PARSER, [plan])
    return [row.artifact for row in ledger.segments(PARSER, document.document_id)]


def take(ledger: Ledger) -> list[str]:
    return sorted(document.key for document in ledger.take(GEN, "run-1", 1000, 3600))


def test_of_copies_one_goes_ahead_and_the_others_wait_once(ledger: Ledger) -> None:
    first = admitted(ledger, *(copy(f"{n}.pdf") for n in range(4)), version("other.pdf", 1))
    assert sorted(document.key.startswith("other") for document in first) == [False, True]
    assert len(take(ledger)) == 3
    assert take(ledger) == []


def test_a_later_copy_waits_for_none_that_is_at_work(ledger: Ledger) -> None:
    admitted(ledger, copy("a.pdf"))
    ledger.admit(GEN, [copy("b.pdf")], LATEST)
    assert take(ledger) == ["b.pdf"], "nobody knows when the other one ends"


def test_equal_etags_of_other_sizes_and_empty_objects_are_no_copies(ledger: Ledger) -> None:
    admitted(ledger, copy("a", size=1), copy("b", size=2), copy("c", "empty", 0), copy("d", "empty", 0))
    assert take(ledger) == []


def test_segments_of_equal_bytes_begin_with_the_artifacts_that_are_there(ledger: Ledger) -> None:
    one, other = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    assert planned(ledger, one) == ["", ""]
    ledger.settle(GEN, PARSER, [Settlement(one.document_id, 0, engine="pymupdf", artifact="there/0")])
    assert planned(ledger, other) == ["there/0", ""], "the second was not read yet"
    assert ledger.planned(PARSER, [other.document_id])[other.document_id].open_numbers == (0, 1)


def test_a_failed_segment_is_read_again_under_the_other_key(ledger: Ledger) -> None:
    one, other = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    planned(ledger, one, 1)
    ledger.settle(GEN, PARSER, [Settlement(one.document_id, 0, failure("timeout"))])
    assert planned(ledger, other, 1) == [""]


def test_other_bytes_another_format_or_another_cut_begin_with_nothing(ledger: Ledger) -> None:
    one, *others = admitted(ledger, *(version(key, 1) for key in "abcde"))
    planned(ledger, one)
    settle_all(ledger, one.document_id, 2)
    assert planned(ledger, others[0], content="77" * 32) == ["", ""]
    assert planned(ledger, others[1], kind="text") == ["", ""]
    assert planned(ledger, others[2], content="") == ["", ""]
    assert planned(ledger, others[3], segments=3) == ["a/0", "a/1", ""], "of the same pages"


def test_relatives_are_other_versions_and_equal_bytes_that_are_in_the_index(ledger: Ledger) -> None:
    one, twin, stranger = sorted(
        admitted(ledger, version("a.pdf", 1), version("b.pdf", 1), version("c.pdf", 1)), key=lambda d: d.key
    )
    for document, content in ((one, SAME), (twin, SAME), (stranger, "77" * 32)):
        planned(ledger, document, 1, content)
    assert ledger.relatives(GEN, twin.document_id) == [], "nothing is in the index yet"
    constructed(ledger, one.document_id, 3)
    assert ledger.relatives(GEN, twin.document_id) == [], "its chunks were not counted yet"
    ledger.verified(GEN, [Verified(one.document_id, 3)])
    ready(ledger, [stranger])
    assert ledger.relatives(GEN, twin.document_id) == [one.document_id]
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    (newer,) = ledger.take(GEN, "run-1", 10, 3600)
    assert ledger.relatives(GEN, newer.document_id) == [one.document_id]
