"""Ready is a count in the index, and nothing old goes before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from ingest.config import Config, parse
from ingest.errors import StoreUnavailable
from ingest.failure import failure
from ingest.index.bulk import BulkStats, Outcome, Written
from ingest.index.mapping import WriteMeta
from ingest.index.verdict import Verdict
from ingest.model import Chunk, ChunkFailure, Document, IndexChunk, State, chunk_id
from ingest.observe import Stats
from ingest.state import Ledger
from ingest.verify import Verifier
from ingest.work import Run
from tests.fakes import MemorySink
from tests.ledger_steps import (
    ALL,
    FINGERPRINTS,
    GEN,
    LATEST,
    add_generation,
    admitted,
    constructed,
    marker,
    state_of,
    version,
)

META = WriteMeta("p", "c", "e", "run-1", 1.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


def configured(ledger: Ledger, *, all_versions: bool = False) -> Config:
    return parse(
        {
            "source": {"bucket": "b", "all_versions": all_versions},
            "artifacts": {"bucket": "a"},
            "ledger": {"url": ledger.url},
            "index": {"url": "http://127.0.0.1:9200"},
        }
    )


def verifier(ledger: Ledger, sink: MemorySink, **options: Any) -> Verifier:
    return Verifier(Run("run-1", configured(ledger, **options), GEN, FINGERPRINTS), ledger, sink, Stats())


def write(sink: MemorySink, document: Document, numbers: Sequence[int]) -> None:
    """Chunks of a document into the index, not refreshed."""
    made = [
        IndexChunk(
            chunk_id=chunk_id(document.bucket, document.key, document.version, n),
            document=document,
            chunk=Chunk(n, 0, 1, "t", 1, 1, (), "", 1),
            chunk_count=len(numbers),
            content_hash=str(n),
            title="",
            language="",
        )
        for n in numbers
    ]
    sink.write(made, np.ones((len(made), 2), np.float32), META)


def holds(sink: MemorySink, document: Document) -> int:
    return sum(item.document.document_id == document.document_id for item, _, _ in sink.live.values())


def served(ledger: Ledger, sink: MemorySink, key: str = "k", chunks: int = 3) -> Document:
    """A first version of the key that is ready and in the index."""
    (document,) = admitted(ledger, version(key, 1))
    constructed(ledger, document.document_id, chunks)
    write(sink, document, range(chunks))
    assert verifier(ledger, sink).window() == 1
    return document


def newer(ledger: Ledger, number: int = 2, key: str = "k") -> Document:
    """A further version of the key, taken by the same run."""
    ledger.admit(GEN, [version(key, number)], LATEST)
    (document,) = ledger.take(GEN, "run-1", 10, 3600)
    return document


# ---------------------------------------------------------------- the count


def test_ready_is_what_was_counted_after_a_refresh(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1))
    constructed(ledger, document.document_id, 3)
    write(sink, document, range(3))
    assert sink.total() == 0  # written, and not to be counted yet
    assert verifier(ledger, sink).window() == 1
    assert state_of(ledger, document.document_id) is State.READY


@pytest.mark.parametrize("there", [0, 1, 2])
def test_with_a_chunk_missing_a_document_is_not_ready(ledger: Ledger, sink: MemorySink, there: int) -> None:
    (document,) = admitted(ledger, version("k", 1))
    constructed(ledger, document.document_id, 3)
    write(sink, document, range(there))
    before = state_of(ledger, document.document_id)
    assert verifier(ledger, sink).window() == 0
    assert state_of(ledger, document.document_id) is before


def test_what_comes_late_makes_it_ready_in_a_later_window(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1))
    constructed(ledger, document.document_id, 3)
    write(sink, document, [0, 1])
    look = verifier(ledger, sink)
    assert look.window() == 0
    write(sink, document, [2])
    assert look.window() == 1
    assert look.window() == 0  # it is settled


def test_a_buried_chunk_makes_it_partial(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1))
    constructed(ledger, document.document_id, 3)
    write(sink, document, [0, 2])
    lost = chunk_id("b", "k", "v1", 1)
    ledger.bury(GEN, [ChunkFailure(lost, document.document_id, "embed", failure("bad_vector"))])
    assert verifier(ledger, sink).window() == 1
    assert state_of(ledger, document.document_id) is State.PARTIAL


def test_a_window_of_some_leaves_the_others(ledger: Ledger, sink: MemorySink) -> None:
    one, two = admitted(ledger, version("a", 1), version("b", 1))
    for document in (one, two):
        constructed(ledger, document.document_id, 1)
        write(sink, document, [0])
    look = verifier(ledger, sink)
    assert look.window({one.document_id}) == 1
    assert state_of(ledger, two.document_id) is not State.READY
    assert look.window() == 1
    assert look.window(set()) == 0


def test_documents_of_another_run_are_its_own_affair(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1), run_id="run-2")
    constructed(ledger, document.document_id, 1)
    write(sink, document, [0])
    assert verifier(ledger, sink).window() == 0


# ---------------------------------------------------------------- a longer cut of the same version


def test_a_tail_is_deleted_and_the_rest_is_ready(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1))
    write(sink, document, range(7))  # an earlier attempt cut it into seven
    constructed(ledger, document.document_id, 4)
    assert verifier(ledger, sink).window() == 1
    assert state_of(ledger, document.document_id) is State.READY
    assert {item.chunk.index for item, _, _ in sink.live.values()} == {0, 1, 2, 3}


def test_a_tail_does_not_stand_in_for_a_chunk_that_is_missing(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1))
    write(sink, document, [0, 1, 3, 4, 5, 6])
    constructed(ledger, document.document_id, 4)
    assert verifier(ledger, sink).window() == 0
    assert {item.chunk.index for item, _, _ in sink.live.values()} == {0, 1, 3}


def test_one_chunk_too_many_does_not_hide_one_too_few(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1))
    write(sink, document, [0, 1, 3, 4])  # as many as are expected
    constructed(ledger, document.document_id, 4)
    assert verifier(ledger, sink).window() == 0
    assert {item.chunk.index for item, _, _ in sink.live.values()} == {0, 1, 3}


# ---------------------------------------------------------------- versions


def test_the_old_version_goes_when_the_new_one_is_ready_and_not_before(ledger: Ledger, sink: MemorySink) -> None:
    old = served(ledger, sink)
    new = newer(ledger)
    look = verifier(ledger, sink)
    constructed(ledger, new.document_id, 2)
    write(sink, new, [0])
    assert look.window() == 0
    assert holds(sink, old) == 3  # the new one is not whole: the old one serves
    assert state_of(ledger, old.document_id) is State.READY
    write(sink, new, [1])
    assert look.window() == 1
    assert (holds(sink, old), holds(sink, new)) == (0, 2)
    assert state_of(ledger, old.document_id) is State.SUPERSEDED


def test_the_deleted_chunks_are_counted(ledger: Ledger, sink: MemorySink) -> None:
    served(ledger, sink)
    new = newer(ledger)
    constructed(ledger, new.document_id, 1)
    write(sink, new, [0])
    stats = Stats()
    Verifier(Run("run-1", configured(ledger), GEN, FINGERPRINTS), ledger, sink, stats).window()
    drained = stats.drain()
    assert (drained["index.deleted"], drained["verify.documents"], drained["verify.calls"]) == (3, 1, 1)


def test_a_new_version_that_fails_leaves_the_old_one_serving(ledger: Ledger, sink: MemorySink) -> None:
    old = served(ledger, sink)
    new = newer(ledger)
    ledger.end(GEN, new.document_id, State.UNSUPPORTED, failure("password_required"))
    assert verifier(ledger, sink).window() == 0
    assert holds(sink, old) == 3
    assert state_of(ledger, old.document_id) is State.READY


def test_a_version_that_was_overtaken_deletes_what_it_wrote(ledger: Ledger, sink: MemorySink) -> None:
    """Not refreshed yet, as all that a load writes: it has to be made visible before it can be found and deleted."""
    (old,) = admitted(ledger, version("k", 1))
    constructed(ledger, old.document_id, 3)
    write(sink, old, range(3))
    ledger.admit(GEN, [version("k", 2)], LATEST)  # by an event, while the first one was on its way
    assert verifier(ledger, sink).window() == 0
    assert holds(sink, old) == 0
    assert state_of(ledger, old.document_id) is State.SUPERSEDED


def test_what_an_overtaken_writer_still_sends_is_refused(ledger: Ledger, sink: MemorySink) -> None:
    (old,) = admitted(ledger, version("k", 1))
    constructed(ledger, old.document_id, 1)
    write(sink, old, [0])
    ledger.admit(GEN, [version("k", 2)], LATEST)
    verifier(ledger, sink).window()
    write(sink, old, [0])  # the delete carried the newer revision
    assert holds(sink, old) == 0


def test_a_key_that_was_deleted_on_the_way_is_not_served(ledger: Ledger, sink: MemorySink) -> None:
    (document,) = admitted(ledger, version("k", 1))
    constructed(ledger, document.document_id, 2)
    write(sink, document, range(2))
    ledger.admit(GEN, [marker("k", 2)], LATEST)
    look = verifier(ledger, sink)
    assert look.window() == 0
    assert state_of(ledger, document.document_id) is State.DELETED
    assert ledger.to_delete(GEN) == [document]  # for this run or the next: what was written must go
    look.delete_all(ledger.to_delete(GEN), State.DELETED)
    assert holds(sink, document) == 0
    assert ledger.to_delete(GEN) == []


def test_a_deleted_keys_chunks_go(ledger: Ledger, sink: MemorySink) -> None:
    document = served(ledger, sink)
    ledger.admit(GEN, [marker("k", 2)], LATEST)
    verifier(ledger, sink).delete_all(ledger.to_delete(GEN), State.DELETED)
    assert holds(sink, document) == 0
    assert state_of(ledger, document.document_id) is State.DELETED
    assert ledger.to_delete(GEN) == []


@pytest.mark.parametrize("at_once", [1, 2, 5, 500])
def test_deletes_are_taken_page_by_page_till_none_is_left(ledger: Ledger, sink: MemorySink, at_once: int) -> None:
    documents = admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(5)))
    for document in documents:
        constructed(ledger, document.document_id, 2)
        write(sink, document, range(2))
    look = verifier(ledger, sink)
    look.window()
    ledger.admit(GEN, [marker(f"{n}.pdf", 2) for n in range(5)], LATEST)
    assert len(ledger.to_delete(GEN, limit=at_once)) == min(5, at_once)
    with patch("ingest.verify.DELETED_AT_ONCE", at_once):
        look.finish_deletes()
    assert [holds(sink, document) for document in documents] == [0] * 5
    assert ledger.counts(GEN) == {State.DELETED: 5}


def test_with_all_versions_the_old_one_stays(ledger: Ledger, sink: MemorySink) -> None:
    add_generation(ledger)
    ledger.start_run("run-1", "backfill", "host:1:1", "config-1")
    ledger.admit(GEN, [version("k", 2), version("k", 1, latest=False)], ALL)
    both = ledger.take(GEN, "run-1", 10, 3600)
    for document in both:
        constructed(ledger, document.document_id, 2)
        write(sink, document, range(2))
    assert verifier(ledger, sink, all_versions=True).window() == 2
    assert [holds(sink, document) for document in both] == [2, 2]


def test_a_change_of_access_is_written_once_and_only_on_what_serves(ledger: Ledger, sink: MemorySink) -> None:
    document = served(ledger, sink)
    ledger.admit(GEN, [version("k", 1)], LATEST.model_copy(update={"principals": ("board",)}))
    for _ in range(2):
        verifier(ledger, sink).write_access()

    assert {item.document.principals for item, _, _ in sink.live.values()} == {("board",)}
    assert holds(sink, document) == 3
    assert ledger.access_changed(GEN, 10) == []


# ---------------------------------------------------------------- when the index does not do as told


class Stubborn(MemorySink):
    """Deletes nothing."""

    def delete(self, chunks: Sequence[tuple[str, int]]) -> Written:
        late = failure("index_unavailable", "503")
        return Written(tuple(Outcome(name, Verdict.TRANSIENT, late) for name, _ in chunks), BulkStats())


def test_a_delete_that_failed_is_told_and_its_document_is_not_called_gone(ledger: Ledger) -> None:
    sink = Stubborn()
    old = served(ledger, sink)
    new = newer(ledger)
    constructed(ledger, new.document_id, 1)
    write(sink, new, [0])
    with pytest.raises(StoreUnavailable, match="3 of 3 chunks could not be deleted"):
        verifier(ledger, sink).window()
    assert state_of(ledger, new.document_id) is State.READY
    assert state_of(ledger, old.document_id) is State.READY  # still in the index, so still to be deleted
    assert ledger.older(GEN, [new.document_id]) == [old]
