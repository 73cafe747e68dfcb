"""What the stages do when others move meanwhile, on a store, an index and a ledger that are in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from ingest import construct, extract, rows, stages
from ingest.artifacts import Artifacts
from ingest.config import parse
from ingest.construct import Stored
from ingest.errors import StoreRefused
from ingest.index.bulk import Written
from ingest.index.mapping import WriteMeta
from ingest.index.throttle import Throttle
from ingest.model import Branch, IndexChunk, Segment, State
from ingest.parse.sandbox import Sandbox
from ingest.runs import fingerprints_of
from ingest.source.listing import selected
from ingest.stages import Embed, Index, Parse, Triage
from ingest.state import Generation, Ledger, Settled, Settlement
from ingest.work import Run, Stop
from tests import corpus
from tests.fake_s3 import FakeS3, refused
from tests.fakes import MemorySink

segments = Ledger.segments
META = WriteMeta("p", "c", "e", "run-1", 1.0)


class Guarded(FakeS3):
    """Refuses to give or take what ``closed`` names."""

    closed: str = ""

    def put_object(self, **asked: Any) -> dict[str, str]:
        self._check(asked["Key"])
        return FakeS3.put_object(self, **asked)

    def get_object(self, **asked: Any) -> dict[str, Any]:
        self._check(asked["Key"])
        return FakeS3.get_object(self, **asked)

    def _check(self, key: str) -> None:
        if self.closed and key.startswith(self.closed):
            raise refused("ExpiredToken", 400, "GetObject")


@dataclass(slots=True)
class World:
    run: Run
    ledger: Ledger
    s3: Guarded
    sink: MemorySink

    def admit(self, *keys: str, body: bytes = b"") -> list[Segment]:
        """New versions of these keys, taken and triaged."""
        for key in keys:
            self.s3.put_object(Bucket="b", Key=key, Body=body or f"Words of {key}.\n".encode())
        return rows.segments(Triage(self.run)(self.take()))

    def take(self) -> pa.Table:
        for batch in selected(self.s3, self.run.config.source, Counter()):
            fresh = [row for row in batch if not row.key.startswith("artifacts/")]
            self.ledger.admit(self.run.generation, fresh, self.run.config.source)
        return rows.documents_to_table(self.ledger.take(self.run.generation, "run-1", 100, 3600))

    def states(self) -> dict[State, int]:
        return self.ledger.counts(self.run.generation)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    s3, sink, sandboxes = Guarded(), MemorySink(), list[Sandbox]()

    def sandbox(*limits: Any) -> Sandbox:
        sandboxes.append(Sandbox(*limits))
        return sandboxes[-1]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("ingest.source.s3.connect", lambda: s3)
    for module in (stages, extract):
        monkeypatch.setattr(module, "Sandbox", sandbox)
    for module in (stages, construct):
        monkeypatch.setattr(module, "open_sink", lambda *_: sink)
    config = parse(
        {
            "source": {"bucket": "b", "principals": ["public"], "exclude": ["artifacts/*"]},
            "artifacts": {"bucket": "b", "prefix": "artifacts/"},
            "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "index": {"url": "http://127.0.0.1:9"},
            "embed": {"model": "hashing:16", "batch": 4},
        }
    )
    ledger = Ledger(config.ledger.url)
    ledger.migrate()
    ledger.start_run("run-1", "backfill", "host:1:1", "config-1")
    prints = fingerprints_of(config)
    ledger.add_generation(Generation("gen", config.index.alias, prints, "uuid"))
    yield World(Run("run-1", config, "gen", prints), ledger, s3, sink)
    ledger.close()
    for opened in sandboxes:
        opened.close()


def parsed(world: World, segments: list[Segment]) -> list[IndexChunk]:
    return rows.chunks(Parse(world.run)(rows.segments_to_table(segments)))


def again(segment: Segment) -> Segment:
    return replace(segment, document=replace(segment.document, attempt=2))


def fill(world: World, chunks: list[IndexChunk], embedder: str) -> None:
    world.sink.write(chunks, np.ones((len(chunks), 16), np.float32), replace(META, embedder=embedder))


# ---------------------------------------------------------------- what an earlier attempt left


def test_other_content_under_the_same_ids_goes_before_it_is_counted(world: World) -> None:
    chunks = parsed(world, world.admit("a.md", body=corpus.make_markdown(8)))
    document, mine = chunks[0].document, world.run.fingerprints.embedder
    beyond = replace(chunks[0], chunk_id="beyond", chunk=replace(chunks[0].chunk, index=len(chunks)))
    fill(world, [chunks[0], replace(chunks[1], content_hash="other"), beyond], mine)
    fill(world, [chunks[2]], "another embedder")
    missing = Stored(world.sink).missing(document, chunks, mine)
    assert missing == chunks[1:]
    assert world.sink.live.keys() == {chunks[0].chunk_id}
    fill(world, missing, mine)  # the deletes do not outrank the writes
    assert world.sink.live.keys() == {item.chunk_id for item in chunks}


def test_a_later_attempt_settles_what_an_earlier_one_stored_and_parses_nothing(world: World) -> None:
    (segment,) = world.admit("a.txt")
    parser, document = world.run.fingerprints.parser, segment.document.document_id
    (first,) = parsed(world, [segment])
    key = world.ledger.segments(parser, document)[0].artifact
    kept = Artifacts(world.s3, world.run.config.artifacts).get(key)
    other = world.admit("b.txt", body=b"Other words.\n")[0]
    stands = replace(kept, document_id=other.document.document_id, engine="earlier", repairs=7)
    Artifacts(world.s3, world.run.config.artifacts).put(stands)
    puts = world.s3.calls["put"]
    (chunk,) = parsed(world, [again(other)])
    assert world.s3.calls["put"] == puts
    (row,) = world.ledger.segments(parser, other.document.document_id)
    assert (row.engine, row.repairs, chunk.chunk.text) == ("earlier", 7, first.chunk.text)


def test_a_document_is_not_cut_while_another_run_has_a_segment_of_it_open(world: World) -> None:
    (segment,) = world.admit("a.txt")
    with patch.object(Ledger, "segments", lambda *_: [replace(row, ordinal=None) for row in segments(*_)]):
        assert parsed(world, [segment]) == []
    assert world.states() == {State.FAILED: 1}
    assert world.ledger.failure_counts("gen") == {Branch.TRANSIENT: 1}


def test_a_first_attempt_that_comes_second_settles_what_stands(world: World) -> None:
    (segment,) = world.admit("a.txt")
    (other,) = world.admit("b.txt", body=b"Other words.\n")
    parser = world.run.fingerprints.parser
    parsed(world, [segment])
    key = world.ledger.segments(parser, segment.document.document_id)[0].artifact
    artifacts = Artifacts(world.s3, world.run.config.artifacts)
    artifacts.put(replace(artifacts.get(key), document_id=other.document.document_id, engine="earlier"))
    parsed(world, [other])
    assert world.ledger.segments(parser, other.document.document_id)[0].engine == "earlier"


# ---------------------------------------------------------------- refused


def test_triage_that_is_refused_stops_the_run_and_ends_no_document(world: World) -> None:
    for key in ("a.txt", "b.txt"):
        world.s3.put_object(Bucket="b", Key=key, Body=key.encode())
    table = world.take()
    world.s3.closed = "b"
    stage = Triage(world.run)
    assert stage(table).num_rows == 0
    assert "ExpiredToken" in world.ledger.stop_reason("run-1")
    assert world.states() == {State.TRIAGING: 2}
    world.s3.closed = ""
    assert stage(table).num_rows == 0  # not even asked any more


def test_parse_that_may_not_store_stops_the_run_and_settles_nothing(world: World) -> None:
    segments = world.admit("a.txt")
    world.s3.closed = "artifacts/"
    assert parsed(world, segments) == []
    assert "ExpiredToken" in world.ledger.stop_reason("run-1")
    assert world.states() == {State.PARSING: 1}
    assert world.ledger.failures("gen") == []


def test_embed_does_nothing_for_a_run_that_is_to_stop(world: World) -> None:
    chunks = rows.chunks_to_table(parsed(world, world.admit("a.txt")))
    assert Embed(world.run)(chunks).num_rows == 1
    world.ledger.stop_run("run-1", "403")
    stopped = Embed(world.run)(chunks)
    assert (stopped.num_rows, rows.vectors(stopped).shape) == (0, (0, 16))


def test_the_ledger_is_not_asked_at_each_call_and_its_yes_stays(world: World) -> None:
    rarely, always = Stop(world.ledger, world.run, every_s=3600), Stop(world.ledger, world.run, every_s=0)
    assert not rarely.is_set()
    assert not always.is_set()
    always.set("parse", StoreRefused("403"))
    assert always.is_set()
    assert not rarely.is_set()
    assert Stop(world.ledger, world.run).is_set()


# ---------------------------------------------------------------- slow blocks


class Counting(Ledger):
    """Keeps how many were settled together."""

    together: list[int] = []  # noqa: RUF012 - the stage makes the instance

    def settle(self, generation: str, parser: str, settlements: Any) -> list[Settled]:
        if settlements:
            self.together.append(len(settlements))
        given: list[Settlement] = list(settlements)
        return super().settle(generation, parser, given)


@pytest.mark.parametrize(("every_s", "together"), [(5.0, [3]), (-1.0, [1, 1, 1])])
def test_a_block_that_takes_long_settles_on_the_way(
    world: World, monkeypatch: pytest.MonkeyPatch, every_s: float, together: list[int]
) -> None:
    segments = world.admit("a.txt", "b.txt", "c.txt")
    monkeypatch.setattr(stages, "SETTLE_EVERY_S", every_s)
    monkeypatch.setattr(stages, "Ledger", Counting)
    monkeypatch.setattr(Counting, "together", [])
    chunks = parsed(world, segments)
    assert Counting.together == together
    assert [item.document for item in chunks] == [segment.document for segment in segments]


# ---------------------------------------------------------------- overtaken


def test_a_version_that_is_overtaken_while_it_is_written_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Embed(world.run)(rows.chunks_to_table(parsed(world, world.admit("a.txt", "b.txt"))))

    class Slow(MemorySink):
        def write(self, chunks: Any, vectors: Any, meta: Any) -> Written:
            world.s3.put_object(Bucket="b", Key="a.txt", Body=b"newer")
            world.take()
            return MemorySink.write(self, chunks, vectors, meta)

    sink = Slow()
    monkeypatch.setattr(stages, "open_sink", lambda *_: sink)
    Index(world.run, lambda: Throttle(1))(table)
    assert {item.document.key for item, _, _ in sink.live.values()} == {"b.txt"}
