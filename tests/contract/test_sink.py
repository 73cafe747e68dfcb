"""What every sink promises."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from ingest.config import IndexConfig
from ingest.index import generations, sink
from ingest.index.client import connect
from ingest.index.mapping import WriteMeta, index_body
from ingest.index.sink import Counted, Sink, open_sink
from ingest.index.throttle import Throttle
from ingest.index.verdict import Verdict
from ingest.model import Chunk, Document, IndexChunk, chunk_id, content_hash, document_id
from tests.fakes import MemorySink

DIMENSION = 8
META = WriteMeta(parser="p", chunker="c", embedder="e", run_id="r", written_at=1.5)
_numbers = itertools.count()


@pytest.fixture(params=["memory", "opensearch"])
def index(request: pytest.FixtureRequest) -> Iterator[Sink]:
    if request.param == "memory":
        yield MemorySink()
        return
    config = IndexConfig(url=request.getfixturevalue("opensearch_url"), retry_budget_s=10)
    cluster, name = connect(config), f"contract-{next(_numbers)}"
    generations.create(cluster, name, index_body(config, DIMENSION, {}))
    generations.bulk_settings_on(cluster, name)  # refresh off, so that only a refresh makes things countable
    real = open_sink(config, name, Throttle(2))
    yield real
    real.close()
    cluster.call("DELETE", f"/{name}")
    cluster.close()


def document(version: str = "v1", revision: int = 1, key: str = "a.pdf") -> Document:
    return Document(document_id("b", key, version), "b", key, version, version, revision, 10, "", ("alice",))


def chunks(owner: Document, count: int, text: str = "text") -> list[IndexChunk]:
    return [
        IndexChunk(
            chunk_id=chunk_id(owner.bucket, owner.key, owner.version, n),
            document=owner,
            chunk=Chunk(n, 0, 4, f"{text} {n}", 1, 1, (), "", 4),
            chunk_count=count,
            content_hash=content_hash("", f"{text} {n}"),
            title="",
            language="",
        )
        for n in range(count)
    ]


def vectors(count: int) -> npt.NDArray[np.float32]:
    return np.eye(DIMENSION, dtype=np.float32)[np.arange(count) % DIMENSION]


def put(index: Sink, made: Sequence[IndexChunk]) -> list[Verdict]:
    written = index.write(made, vectors(len(made)), META)
    assert [outcome.chunk_id for outcome in written.outcomes] == [chunk.chunk_id for chunk in made]
    return [outcome.verdict for outcome in written.outcomes]


def test_what_is_written_counts_after_a_refresh_and_not_before(index: Sink) -> None:
    made = chunks(document(), 3)
    assert put(index, made) == [Verdict.SUCCESS] * 3
    assert index.total() == 0
    index.refresh()
    assert index.total() == 3
    assert index.count_by_document([document().document_id, "f" * 64]) == {
        document().document_id: Counted(3, 2),
        "f" * 64: Counted(),
    }


def test_vectors_of_a_document_are_found_by_content_where_this_embedder_made_them(index: Sink) -> None:
    made = chunks(document(), 3)
    put(index, made)
    index.refresh()
    wanted = {made[0].content_hash, made[2].content_hash, content_hash("", "of no chunk")}
    found = index.vectors(document().document_id, wanted, META.embedder)
    assert found == {made[n].content_hash: vectors(3)[n].tobytes() for n in (0, 2)}
    assert index.vectors(document().document_id, wanted, "another") == {}
    assert index.vectors(document(version="v2").document_id, wanted, META.embedder) == {}


def test_writing_again_changes_nothing(index: Sink) -> None:
    made = chunks(document(), 4)
    assert put(index, made) == put(index, made) == [Verdict.SUCCESS] * 4
    index.refresh()
    assert index.total() == 4


def test_an_older_revision_is_superseded_and_does_not_overwrite(index: Sink) -> None:
    put(index, chunks(document(revision=5), 2, "new"))
    assert put(index, chunks(document(revision=4), 2, "old")) == [Verdict.SUPERSEDED] * 2
    stored = index.existing([chunk.chunk_id for chunk in chunks(document(), 2)])
    assert {chunk.content_hash for chunk in stored.values()} == {content_hash("", f"new {n}") for n in range(2)}


def test_a_newer_revision_overwrites(index: Sink) -> None:
    put(index, chunks(document(revision=1), 1, "old"))
    put(index, chunks(document(revision=2), 1, "new"))
    (stored,) = index.existing([chunks(document(), 1)[0].chunk_id]).values()
    assert (stored.revision, stored.content_hash) == (2, content_hash("", "new 0"))


def test_existing_sees_what_is_not_refreshed_and_leaves_out_what_is_missing(index: Sink) -> None:
    made = chunks(document(), 1)
    put(index, made)
    stored = index.existing([made[0].chunk_id, made[0].chunk_id, "0" * 64])
    assert list(stored) == [made[0].chunk_id]
    found = stored[made[0].chunk_id]
    assert (found.document_id, found.chunk_index, found.embedder) == (document().document_id, 0, "e")


def test_a_delete_takes_exactly_what_it_names_and_may_be_repeated(index: Sink) -> None:
    made = chunks(document(), 3)
    put(index, made)
    for _ in range(2):
        outcomes = index.delete([(made[2].chunk_id, 1), ("0" * 64, 1)]).outcomes
        assert [outcome.verdict for outcome in outcomes] == [Verdict.SUCCESS] * 2
    index.refresh()
    assert [chunk.chunk_index for chunk in index.ids_of_document(document().document_id)] == [0, 1]


def test_a_late_write_does_not_bring_back_what_a_newer_revision_deleted(index: Sink) -> None:
    made = chunks(document(revision=3), 1)
    put(index, made)
    index.delete([(made[0].chunk_id, 4)])
    assert put(index, made) == [Verdict.SUPERSEDED]
    index.refresh()
    assert index.total() == 0


def test_a_delete_of_an_older_revision_leaves_the_newer_chunk(index: Sink) -> None:
    made = chunks(document(revision=3), 1)
    put(index, made)
    assert index.delete([(made[0].chunk_id, 2)]).outcomes[0].verdict is Verdict.SUPERSEDED
    index.refresh()
    assert index.total() == 1


def test_a_change_of_access_leaves_everything_else(index: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "REWRITE_PAGE", 3)
    owner, other = document(), document(key="other.pdf")
    put(index, [*chunks(owner, 7), *chunks(other, 1)])
    index.refresh()
    before = index.existing([chunk.chunk_id for chunk in chunks(owner, 7)])
    written = index.change_access(replace(owner, tenant="t", principals=("bob",)))

    assert [outcome.verdict for outcome in written.outcomes] == [Verdict.SUCCESS] * 7
    index.refresh()
    assert index.total() == 8
    assert index.existing(list(before)) == before


def test_chunks_of_a_document_come_by_index(index: Sink) -> None:
    put(index, chunks(document(), 12)[::-1])
    put(index, chunks(document(key="other.pdf"), 2))
    index.refresh()
    assert [chunk.chunk_index for chunk in index.ids_of_document(document().document_id)] == list(range(12))


def test_a_recount_changes_the_count_and_nothing_else(index: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "REWRITE_PAGE", 3)
    owner, other = document(), document(key="other.pdf")
    put(index, [*chunks(owner, 7), *chunks(other, 1)])
    index.refresh()
    before = index.existing([chunk.chunk_id for chunk in chunks(owner, 7)])
    assert {row.chunk_count for row in before.values()} == {7}
    assert len(index.recount(owner, 9).outcomes) == 7
    index.refresh()
    assert index.recount(owner, 9).outcomes == ()
    assert index.existing(list(before)) == {name: replace(row, chunk_count=9) for name, row in before.items()}
    (untouched,) = index.ids_of_document(other.document_id)
    assert untouched.chunk_count == 1


def test_pages_of_an_answer_are_put_together(index: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SCAN_PAGE", "COUNT_PAGE", "GET_PAGE"):
        monkeypatch.setattr(sink, name, 3)
    owners = [document(key=f"{n}.pdf") for n in range(4)]
    for owner in owners:
        put(index, chunks(owner, 7))
    index.refresh()
    assert index.count_by_document([owner.document_id for owner in owners]) == {
        o.document_id: Counted(7, 6) for o in owners
    }
    assert [chunk.chunk_index for chunk in index.ids_of_document(owners[0].document_id)] == list(range(7))
    assert len(index.existing([chunk.chunk_id for chunk in chunks(owners[1], 7)])) == 7


def test_nothing_in_gives_nothing_out(index: Sink) -> None:
    assert index.write([], vectors(0), META).outcomes == ()
    assert index.delete([]).outcomes == ()
    assert index.count_by_document([]) == {}
    assert index.existing([]) == {}
