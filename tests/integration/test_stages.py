"""Each stage called as a plain object, on real S3, a real ledger, a real sandbox and a real index."""

from __future__ import annotations

import itertools
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pytest

from ingest import embed, extract, rows, stages
from ingest.config import Config, parse
from ingest.errors import PreflightError
from ingest.failure import failure
from ingest.index.client import Cluster, connect
from ingest.index.sink import IndexSink, open_sink
from ingest.index.throttle import Throttle
from ingest.model import Document, IndexChunk, Segment, State, chunk_id
from ingest.observe import Stats
from ingest.parse.result import ParsedPages
from ingest.parse.sandbox import Sandbox
from ingest.runs import ensure_generation, fingerprints_of
from ingest.source.listing import selected
from ingest.stages import Embed, Index, Parse, Triage
from ingest.state import Ledger, Operator, Selection
from ingest.verify import Verifier
from ingest.work import Run
from tests import corpus
from tests.faulty_embedders import POISON

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class World:
    """A bucket, a ledger and an empty generation, and a run on them."""

    run: Run
    ledger: Ledger
    sink: IndexSink
    cluster: Cluster
    client: Any

    @property
    def config(self) -> Config:
        return self.run.config

    def put(self, key: str, body: bytes) -> str:
        """Its version id."""
        return str(self.client.put_object(Bucket=self.config.source.bucket, Key=key, Body=body)["VersionId"])

    def admit(self) -> list[Document]:
        """What is listed and not known yet, taken by the run, by key."""
        for batch in selected(self.client, self.config.source, Counter()):
            self.ledger.admit(self.run.generation, batch, self.config.source)
        return sorted(self.ledger.take(self.run.generation, self.run.run_id, 100, 3600), key=lambda d: d.key)

    def states(self) -> dict[State, int]:
        return self.ledger.counts(self.run.generation)

    def reasons(self) -> dict[str, str]:
        """Key → reason of the documents that ended with a failure."""
        found = self.ledger.failures(self.run.generation)
        return {row.key: row.failure.reason for row in found if row.unit == "document"}

    def stats(self) -> dict[str, float]:
        return self.ledger.stats(self.run.run_id)

    def verify(self) -> int:
        return Verifier(self.run, self.ledger, self.sink, Stats()).window()

    def with_run(self, **values: Any) -> Run:
        return replace(self.run, **values)


@pytest.fixture
def sandboxes(monkeypatch: pytest.MonkeyPatch) -> list[Sandbox]:
    """Those that the stages start: in a run they end with their actor, here somebody has to end them."""
    made: list[Sandbox] = []

    def start(*limits: Any) -> Sandbox:
        made.append(Sandbox(*limits))
        return made[-1]

    monkeypatch.setattr(stages, "Sandbox", start)
    monkeypatch.setattr(extract, "Sandbox", start)
    return made


@pytest.fixture
def world(aws_url: str, opensearch_url: str, tmp_path: Path, sandboxes: list[Sandbox]) -> Iterator[World]:
    number = next(_numbers)
    client: Any = boto3.client("s3")
    for bucket in (f"stages-{number}", f"stages-artifacts-{number}"):
        client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=f"stages-{number}", VersioningConfiguration={"Status": "Enabled"})
    config = parse(
        {
            "source": {"bucket": f"stages-{number}", "principals": ["public"], "max_object_mb": 1},
            "artifacts": {"bucket": f"stages-artifacts-{number}"},
            "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "index": {"url": opensearch_url, "alias": f"stages{number}", "retry_budget_s": 0},
            "embed": {"model": "hashing:16", "batch": 4, "retry_budget_s": 0},
            "segments": {"pages": 10},
        }
    )
    ledger = Ledger(config.ledger.url)
    ledger.migrate()
    ledger.start_run("run-1", "backfill", "host:1:1", "config-1")
    generation = ensure_generation(config, ledger, fingerprints_of(config))
    cluster = connect(config.index)
    sink = open_sink(config.index, generation.name, Throttle(1))
    yield World(Run("run-1", config, generation.name, generation.fingerprints), ledger, sink, cluster, client)
    if cluster.find("GET", f"/{generation.name}"):
        cluster.call("DELETE", f"/{generation.name}")
    for opened in (sink, cluster, ledger, client):
        opened.close()
    for sandbox in sandboxes:
        sandbox.close()


def triaged(world: World, documents: list[Document]) -> list[Segment]:
    return rows.segments(Triage(world.run)(rows.documents_to_table(documents)))


def parsed(world: World, segments: list[Segment], stage: Any = None) -> list[IndexChunk]:
    return rows.chunks((stage or Parse(world.run))(rows.segments_to_table(segments)))


def embedded(world: World, chunks: list[IndexChunk]) -> pa.Table:
    stage, table = Embed(world.run), rows.chunks_to_table(chunks)
    size = world.config.embed.batch
    return pa.concat_tables([stage(table.slice(low, size)) for low in range(0, table.num_rows, size)])


def index_stage(world: World) -> Index:
    return Index(world.run, partial(Throttle, world.config.index.in_flight))


def stored(world: World) -> dict[str, dict[str, Any]]:
    world.sink.refresh()
    hits = world.cluster.search(world.run.generation, {"size": 1000})["hits"]["hits"]
    return {hit["_id"]: hit["_source"] for hit in hits}


# ---------------------------------------------------------------- all of them


def test_from_a_document_to_ready_chunks_by_plain_calls(world: World) -> None:
    version = world.put("a/report.pdf", corpus.make_pdf(12, title="Report"))
    chunks = parsed(world, triaged(world, world.admit()))
    receipts = rows.receipts(index_stage(world)(embedded(world, chunks)))
    assert (receipts[0].written, receipts[0].failed) == (len(chunks), 0)
    assert world.states() == {State.VERIFYING: 1}
    assert world.verify() == 1
    assert world.states() == {State.READY: 1}

    found = stored(world)
    bucket = world.config.source.bucket
    assert set(found) == {chunk_id(bucket, "a/report.pdf", version, n) for n in range(len(chunks))}
    assert {fields["chunk_count"] for fields in found.values()} == {len(chunks)}
    assert {tuple(fields["principals"]) for fields in found.values()} == {("public",)}
    told = " ".join(fields["text"] for fields in sorted(found.values(), key=lambda fields: fields["chunk_index"]))
    assert [n for n in range(1, 13) if corpus.page_mark(n, 12) not in told] == []


# ---------------------------------------------------------------- triage


def test_triage_cuts_documents_into_segments(world: World) -> None:
    world.put("long.pdf", corpus.make_pdf(25))
    world.put("note.md", corpus.make_markdown())
    segments = triaged(world, world.admit())
    ranges = [(s.document.key, s.number, s.total, s.page_from, s.page_to, s.format) for s in segments]
    assert ranges[:3] == [
        ("long.pdf", 0, 3, 1, 10, "pdf"), ("long.pdf", 1, 3, 11, 20, "pdf"), ("long.pdf", 2, 3, 21, 25, "pdf"),
    ]  # fmt: skip
    assert {(key, total, kind) for key, _, total, _, _, kind in ranges[3:]} == {("note.md", 1, "markdown")}
    assert world.states() == {State.PARSING: 2}
    assert world.stats()["triage.documents"] == 2


def test_triage_ends_what_can_not_be_read_and_lets_the_rest_pass(world: World) -> None:
    world.put("empty.txt", b"")
    world.put("locked.pdf", corpus.make_encrypted())
    world.put("fake.pdf", b"<html><body>no</body></html>")
    world.put("large.txt", b"x" * (1 << 20) + b"y" * (1 << 20))
    world.put("good.txt", corpus.make_text())
    gone = world.put("gone.txt", b"words")
    documents = world.admit()
    world.client.delete_object(Bucket=world.config.source.bucket, Key="gone.txt", VersionId=gone)
    assert [segment.document.key for segment in triaged(world, documents)] == ["good.txt"]
    assert world.reasons() == {
        "empty.txt": "empty_file", "locked.pdf": "password_required", "fake.pdf": "not_a_pdf",
        "large.txt": "too_large", "gone.txt": "version_gone",
    }  # fmt: skip
    assert world.states() == {State.UNSUPPORTED: 5, State.PARSING: 1}


def test_a_repeated_triage_answers_the_same_and_reads_nothing_again(world: World) -> None:
    world.put("long.pdf", corpus.make_pdf(25))
    documents = world.admit()
    first = triaged(world, documents)
    pages = world.stats()["triage.pages"]
    assert triaged(world, documents) == first
    assert world.stats()["triage.pages"] == pages


def test_a_resumed_document_brings_only_what_is_open_and_at_last_its_closer(world: World) -> None:
    world.put("long.pdf", corpus.make_pdf(25))
    documents = world.admit()
    segments = triaged(world, documents)
    stage = Parse(world.run)
    assert parsed(world, [segments[1]], stage) == []
    assert [s.number for s in triaged(world, documents)] == [0, 2]
    assert parsed(world, [segments[2]], stage) == []
    chunks = parsed(world, [segments[0]], stage)
    assert chunks
    (closer,) = triaged(world, documents)
    assert closer.number == 0
    assert parsed(world, [closer]) == chunks  # by another process: from the artifacts, not from the document


# ---------------------------------------------------------------- parse and construct


def test_a_repeated_parse_parses_nothing_and_gives_the_same_chunks(world: World) -> None:
    world.put("note.txt", corpus.make_text())
    segments = triaged(world, world.admit())
    first = parsed(world, segments)
    assert parsed(world, segments) == first
    assert world.stats()["parse.segments_parsed.none"] == 1
    assert world.states() == {State.EMBEDDING: 1}


def test_a_document_without_text_ends_with_its_reason(world: World) -> None:
    world.put("scan.pdf", corpus.make_scan(2))
    assert parsed(world, triaged(world, world.admit())) == []
    assert world.reasons()["scan.pdf"] in ("no_text", "no_ocr_engine")
    assert world.states() == {State.NEEDS_REVIEW: 1}


def test_an_artifact_store_that_is_gone_stops_the_run_and_blames_no_document(world: World) -> None:
    world.put("note.txt", corpus.make_text())
    segments = triaged(world, world.admit())
    world.client.delete_bucket(Bucket=world.config.artifacts.bucket)
    assert parsed(world, segments) == []
    assert "NoSuchBucket" in world.ledger.stop_reason("run-1")
    assert world.reasons() == {}
    assert world.states() == {State.PARSING: 1}


def test_a_second_attempt_sends_only_the_chunks_that_the_index_lacks(world: World) -> None:
    world.put("note.md", corpus.make_markdown(8))
    segments = triaged(world, world.admit())
    chunks = parsed(world, segments)
    assert len(chunks) > 4
    index_stage(world)(embedded(world, chunks[:3]))
    world.ledger.requeue(world.run.generation, [segments[0].document.document_id], 3)
    (again,) = world.admit()
    assert again.attempt == 2
    missing = parsed(world, triaged(world, [again]))
    assert [item.chunk_id for item in missing] == [item.chunk_id for item in chunks[3:]]
    index_stage(world)(embedded(world, missing))
    assert world.verify() == 1
    assert len(stored(world)) == len(chunks)


# ---------------------------------------------------------------- embed


def some_chunks(world: World, text: str = "") -> list[IndexChunk]:
    world.put("note.md", corpus.make_markdown(8, mark=text))
    return parsed(world, triaged(world, world.admit()))


def test_embed_gives_every_chunk_a_vector_of_length_one(world: World) -> None:
    chunks = some_chunks(world)[:6]
    table = embedded(world, chunks)
    assert rows.chunks(table) == chunks
    assert rows.vectors(table).shape == (6, 16)
    assert np.allclose(np.linalg.norm(rows.vectors(table), axis=1), 1, atol=1e-6)
    stats = world.stats()
    assert (stats["embed.calls_full"], stats["embed.calls_short"], stats["embed.chunks"]) == (1, 1, 6)
    assert stats["embed.tokens"] == sum(item.chunk.tokens for item in chunks)


def test_a_chunk_without_a_usable_vector_is_buried_and_the_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(embed.BACKENDS, "hashing", "tests.faulty_embedders:open_nan")
    chunks = some_chunks(world, POISON)
    table = embedded(world, chunks)
    assert 0 < table.num_rows == sum(POISON not in item.chunk.text for item in chunks) < len(chunks)
    index_stage(world)(table)
    assert world.verify() == 1
    assert world.states() == {State.PARTIAL: 1}
    letters = [row for row in world.ledger.failures(world.run.generation) if row.unit == "chunk"]
    assert {row.failure.reason for row in letters} == {"bad_vector"}


def test_a_call_that_fails_loses_no_chunk_and_is_not_counted_as_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(embed.BACKENDS, "hashing", "tests.faulty_embedders:open_dead")
    table = embedded(world, some_chunks(world)[:6])
    assert table.num_rows == 0
    assert rows.vectors(table).shape == (0, 16)
    stats = world.stats()
    assert stats["embed.calls_failed"] == 2
    assert not {"embed.calls_full", "embed.calls_short", "embed.chunks"} & set(stats)
    assert world.states() == {State.EMBEDDING: 1}  # unfinished: the next attempt finds what is missing
    assert world.ledger.failures(world.run.generation) == []


def test_a_node_that_would_embed_otherwise_does_not_start(world: World) -> None:
    prints = replace(world.run.fingerprints, embedder="another-0123456789ab")
    with pytest.raises(PreflightError, match="this node would embed as hashing-16-"):
        Embed(world.with_run(fingerprints=prints))


def test_a_model_that_changed_under_its_name_does_not_start(world: World) -> None:
    Embed(world.run)
    vector = [1.0, *[0.0] * 15]
    other = world.with_run(generation="another-generation")
    world.ledger.add_generation(
        replace(world.ledger.generations(world.config.index.alias)[0], name="another-generation", alias="another")
    )
    world.ledger.canary("another-generation", vector)
    with pytest.raises(PreflightError, match="embeds a known text at cosine"):
        Embed(other)


# ---------------------------------------------------------------- index


def test_a_repeated_write_changes_nothing(world: World) -> None:
    table = embedded(world, some_chunks(world))
    stage = index_stage(world)
    stage(table)
    before = stored(world)
    (receipt,) = rows.receipts(stage(table))
    assert receipt.failed == 0
    assert stored(world).keys() == before.keys()


def test_a_version_that_was_overtaken_is_not_written(world: World) -> None:
    table = embedded(world, some_chunks(world))
    world.put("note.md", b"# New\n\nOnly this.\n")
    world.admit()
    assert rows.receipts(index_stage(world)(table)) == []
    assert stored(world) == {}


def test_an_index_that_is_gone_stops_the_run_and_blames_no_document(world: World) -> None:
    table = embedded(world, some_chunks(world))
    stage = index_stage(world)
    world.cluster.call("DELETE", f"/{world.run.generation}")
    assert rows.receipts(stage(table)) == []
    assert world.run.generation in world.ledger.stop_reason("run-1")
    assert world.ledger.failures(world.run.generation) == []
    started = time.monotonic()
    assert rows.receipts(stage(table)) == []  # not even asked any more
    assert time.monotonic() - started < 0.5
    assert world.cluster.find("GET", f"/{world.run.generation}") is None  # and not made anew by guess


def test_an_empty_table_is_no_bulk(world: World) -> None:
    table = rows.with_vectors(rows.chunks_to_table([]), np.zeros((0, 16), np.float32))
    assert rows.receipts(index_stage(world)(table)) == []
    assert "index.requests" not in world.stats()


def test_a_run_survives_the_way_to_its_actors(world: World) -> None:
    assert pickle.loads(pickle.dumps(world.run)) == world.run


# ---------------------------------------------------------------- what a redrive reads again


def faulty(monkeypatch: pytest.MonkeyPatch, pages: set[int]) -> None:
    """Sandboxes whose engine fails on these pages of a PDF."""
    real = Sandbox.parse

    def parse(self: Sandbox, path: str, kind: str, first: int, last: int) -> ParsedPages:
        lost = [page for page in range(first, last + 1) if page in pages]
        found = real(self, path, kind, first, last)
        return replace(
            found,
            pages=tuple(page for page in found.pages if page.number not in lost),
            failed_pages=tuple((page, failure("timeout")) for page in lost),
        )

    monkeypatch.setattr(Sandbox, "parse", parse)


def finished(world: World, documents: list[Document]) -> list[IndexChunk]:
    chunks = parsed(world, triaged(world, documents))
    index_stage(world)(embedded(world, chunks))
    world.verify()
    return chunks


def test_only_failed_pages_are_read_again_and_the_document_is_as_if_they_had_never_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("long.pdf", corpus.make_pdf(25))
    (document,) = world.admit()
    with monkeypatch.context() as patch:
        faulty(patch, {4, 5, 9, *range(11, 21)})  # of segment 0 three pages, of segment 1 all
        finished(world, [document])
    assert world.states() == {State.PARTIAL: 1}
    rows_ = world.ledger.segments(world.run.fingerprints.parser, document.document_id)
    assert [(row.state, [page for page, _ in row.failed_pages]) for row in rows_] == [
        ("parsed", [4, 5, 9]), ("failed", []), ("parsed", []),
    ]  # fmt: skip
    pages = world.stats()["parse.pages"]
    operator = Operator(world.ledger)
    (units,) = operator.units(world.run.generation, Selection())
    assert operator.redrive(world.run.generation, units, "run-1") == 1
    finished(world, world.ledger.take(world.run.generation, "run-1", 9, 3600))

    assert world.stats()["parse.pages"] - pages == 3 + 10
    assert world.states() == {State.READY: 1}
    redriven = {name: (row["text"], row["page_from"], row["page_to"]) for name, row in stored(world).items()}
    world.put("same.pdf", corpus.make_pdf(25))
    finished(world, world.admit())
    fresh = [row for row in stored(world).values() if row["doc_key"] == "same.pdf"]
    assert sorted(redriven.values()) == sorted((row["text"], row["page_from"], row["page_to"]) for row in fresh)


def test_a_segment_that_takes_its_actor_down_is_found_and_the_others_settle(world: World) -> None:
    world.put("long.pdf", corpus.make_pdf(35))
    segments = triaged(world, world.admit())
    units = [f"parse:{s.document.document_id}:{s.number}" for s in segments]
    world.ledger.begin("run-1", units)  # as an actor that died in the middle of the call leaves it
    world.ledger.begin_alone("run-1", units[2])
    world.ledger.begin_alone("run-1", units[2])  # and two more, each on the third segment alone
    chunks = parsed(world, segments)
    rows_ = world.ledger.segments(world.run.fingerprints.parser, segments[0].document.document_id)
    assert [row.state for row in rows_] == ["parsed", "parsed", "failed", "parsed"]
    assert rows_[2].failure is not None
    assert rows_[2].failure.reason == "engine_crashed"
    assert {item.chunk.page_from for item in chunks} >= {1, 11, 31}
    assert world.ledger.begin("run-1", units) == {}, "the call came through"


def test_a_document_whose_cutting_takes_its_actor_down_ends_with_that_reason(world: World) -> None:
    world.put("note.txt", corpus.make_text())
    segments = triaged(world, world.admit())
    unit = f"construct:{segments[0].document.document_id}"
    world.ledger.begin("run-1", [unit])
    for _ in range(2):
        world.ledger.begin_alone("run-1", unit)
    assert parsed(world, segments) == []
    assert world.reasons() == {"note.txt": "actor_died"}


# ---------------------------------------------------------------- batches, and a model that fails


def test_batches_are_paid_and_settled_once_and_close_their_documents(world: World) -> None:
    chunks = some_chunks(world)
    table = embedded(world, chunks)
    names = table.column("batch_id").to_pylist()
    assert len(set(names)) == -(-len(chunks) // 4)
    stage = index_stage(world)
    early = rows.receipts(stage(table.slice(0, 4)))
    assert [receipt.is_last for receipt in early] == [False]
    late = rows.receipts(stage(table.slice(4)))
    assert [receipt.is_last for receipt in late] == [True]
    assert world.states() == {State.VERIFYING: 1}


def test_the_text_that_breaks_a_call_is_buried_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embed.BACKENDS, "hashing", "tests.faulty_embedders:open_fragile")
    chunks = some_chunks(world, POISON)
    index_stage(world)(embedded(world, chunks))
    world.verify()
    assert world.states() == {State.PARTIAL: 1}
    letters = [row for row in world.ledger.failures(world.run.generation) if row.unit == "chunk"]
    assert {row.failure.reason for row in letters} == {"embed_failed"}
    assert len(letters) == sum(POISON in item.chunk.text for item in chunks)


# ---------------------------------------------------------------- equal bytes, equal chunks


def through(world: World, documents: list[Document]) -> None:
    """From triage to ready."""
    index_stage(world)(embedded(world, parsed(world, triaged(world, documents))))
    world.verify()


def test_equal_bytes_are_parsed_and_embedded_once_and_indexed_for_each_key(world: World) -> None:
    body = corpus.make_pdf(12, title="Report")
    versions = {key: world.put(key, body) for key in ("a/report.pdf", "b/copy.pdf")}
    (first,) = world.admit()
    through(world, [first])
    paid = world.stats()
    (other,) = world.admit()
    through(world, [other])
    assert world.states() == {State.READY: 2}

    bucket, found = world.config.source.bucket, stored(world)
    count = len(found) // 2
    assert set(found) == {chunk_id(bucket, key, v, n) for key, v in versions.items() for n in range(count)}
    by_key: dict[str, dict[int, Any]] = {key: {} for key in versions}
    for fields in found.values():
        same = (fields["text"], fields["header"], fields["page_from"], fields["vector"])
        by_key[fields["doc_key"]][fields["chunk_index"]] = same
    assert by_key["a/report.pdf"] == by_key["b/copy.pdf"]

    now = world.stats()
    assert now["parse.pages"] == paid["parse.pages"] == 12
    assert now["embed.chunks"] == paid["embed.chunks"] == count
    assert now["embed.reused"] == count
    assert now["embed.calls_full"] == paid["embed.calls_full"]
    own = world.ledger.segments(world.run.fingerprints.parser, other.document_id)
    assert all(other.document_id in row.artifact for row in own), "each document has artifacts of its own"


def test_an_artifact_that_is_gone_is_read_again(world: World) -> None:
    body = corpus.make_pdf(12)
    for key in ("a.pdf", "b.pdf"):
        world.put(key, body)
    (first,) = world.admit()
    through(world, [first])
    for row in world.ledger.segments(world.run.fingerprints.parser, first.document_id):
        world.client.delete_object(Bucket=world.config.artifacts.bucket, Key=row.artifact)
    through(world, world.admit())
    assert world.states() == {State.READY: 2}
    assert world.stats()["parse.pages"] == 24


def test_a_new_version_embeds_only_what_it_changed(world: World) -> None:
    pages = [f"Page {n} tells of matter {n}. " * 40 for n in range(8)]
    world.put("note.txt", "\n\n".join(pages).encode())
    through(world, world.admit())
    before = world.stats()["embed.chunks"]
    world.put("note.txt", "\n\n".join([*pages, "A word at the end."]).encode())
    through(world, world.admit())
    count = len(stored(world))  # the older version's went once this one was verified
    changed = world.stats()["embed.chunks"] - before
    assert 0 < changed <= 2 < count
    assert world.stats()["embed.reused"] == count - changed
