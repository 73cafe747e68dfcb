"""One callable class per actor pool: columns → types → pure functions → columns.

Nothing is raised inside Ray: what goes wrong with a unit is written to the ledger where it happens. Only a constructor
may raise, because an actor that can't start must end the run.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ingest import failure, observe, rows
from ingest.artifacts import Artifacts
from ingest.chunk.context import embed_text
from ingest.construct import Construct
from ingest.embed import canary_vector, check_canary, open_embedder
from ingest.embed.isolate import Embedded, embed
from ingest.errors import IngestError, ParseError, PreflightError, StoreRefused
from ingest.extract import Extract
from ingest.index.bulk import Outcome, Written
from ingest.index.mapping import WriteMeta
from ingest.index.sink import open_sink
from ingest.index.throttle import Gate
from ingest.index.verdict import Verdict
from ingest.model import (
    Branch,
    ChunkFailure,
    Document,
    IndexChunk,
    Receipt,
    Segment,
    State,
    batch_id,
)
from ingest.parse.sandbox import Sandbox
from ingest.source import s3
from ingest.source.fetch import VersionCache
from ingest.state import Batch, Ledger, Plan, Planned, SegmentRow, Settled, Settlement
from ingest.triage import lane, plan
from ingest.work import InFlight, Run, Stop, Watch, end_document, hand_over

SETTLE_EVERY_S = 5.0  # a block of pages that hang takes hours; what it parsed before must not be lost with it


class Triage:
    """Documents → segments: what is it, how many pages, where to cut."""

    def __init__(self, run: Run) -> None:
        observe.configure_logging()
        self._run = run
        self._stats = observe.Stats()
        self._ledger = Ledger(run.config.ledger.url)
        self._files = VersionCache(s3.connect(), run.config.parse.cache_dir, run.config.parse.cache_mb << 20)
        self._sandbox = Sandbox(run.config.parse.timeout_s, run.config.parse.memory_mb)
        self._sandbox.start()
        self._stop = Stop(self._ledger, run)

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._stop.is_set():
            return rows.segments_to_table([])
        documents = rows.documents(table)
        try:
            with self._stats.timed("triage"):
                self._plan_new(documents)
                segments = list(self._open_segments(documents))
        except StoreRefused as error:
            self._stop.set("triage", error)
            segments, documents = [], []
        self._stats.add("triage.documents", len(documents))
        hand_over(self._ledger, self._run, self._stats)
        return rows.segments_to_table(segments)

    def _plan_new(self, documents: Sequence[Document]) -> None:
        self._ledger.advance(self._run.generation, [d.document_id for d in documents], State.TRIAGING)
        parser = self._run.fingerprints.parser
        known = self._ledger.planned(parser, [d.document_id for d in documents])
        plans = [_plan_of(known[d.document_id]) if d.document_id in known else self._inspect(d) for d in documents]
        self._ledger.plan(self._run.generation, parser, [p for p in plans if p])

    def _inspect(self, document: Document) -> Plan | None:
        try:
            limit = self._run.config.source.max_object_mb
            if document.size > limit << 20:
                raise ParseError("too_large", f"{document.size >> 20} MiB, the limit is {limit} MiB")
            if document.size == 0:
                raise ParseError("empty_file")
            found = self._files.read(document, lambda path: self._sandbox.inspect(path, document.key))
            content = self._files.read(document, sha256_of)
        except StoreRefused:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this document's fate, not the run's
            end_document(self._ledger, self._run, document, failure.classify(error))
            return None
        ranges = plan(found.pages, self._run.config.segments.pages)
        self._stats.add("triage.pages", found.pages)
        return Plan(document.document_id, found.format, lane(found.format), found.pages, ranges, found.title, content)

    def _open_segments(self, documents: Sequence[Document]) -> Iterator[Segment]:
        planned = self._ledger.planned(self._run.fingerprints.parser, [d.document_id for d in documents])
        for document in documents:
            if found := planned.get(document.document_id):
                for number in found.open_numbers:
                    yield Segment(
                        document, number, len(found.segments), *found.segments[number], found.format, found.lane
                    )


def _plan_of(known: Planned) -> Plan:
    return Plan(known.document_id, known.format, known.lane, known.pages, known.segments, known.title)


def sha256_of(path: str) -> str:
    """Of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Parse:
    """Segments → chunks: parse, store, settle; the call that settles a document's last segment constructs it."""

    def __init__(self, run: Run) -> None:
        observe.configure_logging()
        self._run = run
        self._stats = observe.Stats()
        self._ledger = Ledger(run.config.ledger.url)
        client = s3.connect()
        artifacts = Artifacts(client, run.config.artifacts)
        self._extract = Extract(run, client, artifacts, self._stats)
        self._construct = Construct(run, self._ledger, artifacts, self._stats)
        self._stop = Stop(self._ledger, run)

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._stop.is_set():
            return rows.chunks_to_table([])
        segments = rows.segments(table)
        try:
            with self._stats.timed("parse"):
                closed = self._settle(segments)
            with self._stats.timed("construct"):
                chunks = list(self._constructed(closed))
        except StoreRefused as error:
            self._stop.set("parse", error)
            chunks = []
        hand_over(self._ledger, self._run, self._stats)
        return rows.chunks_to_table(chunks)

    def _constructed(self, closed: Sequence[Document]) -> Iterator[IndexChunk]:
        with Watch(self._ledger, self._run, [f"construct:{d.document_id}" for d in closed]) as watch:
            for document in closed:
                if watch.is_guilty(f"construct:{document.document_id}"):
                    end_document(self._ledger, self._run, document, failure.failure("actor_died"))
                else:
                    yield from self._construct(document)

    def _settle(self, segments: Sequence[Segment]) -> list[Document]:
        """Documents whose last segment is among these, in their order."""
        plans = self._ledger.planned(self._run.fingerprints.parser, {s.document.document_id for s in segments})
        known = [plans[s.document.document_id].rows[s.number] for s in segments]
        answers: list[Settled] = []
        waiting: list[Settlement] = []
        flushed_at = time.monotonic()
        with Watch(self._ledger, self._run, [_unit(row) for row in known if not row.ordinal]) as watch:
            for segment, row in zip(segments, known, strict=True):
                waiting.append(self._settlement(segment, row, watch))
                if watch.is_careful or time.monotonic() - flushed_at > SETTLE_EVERY_S:
                    answers += self._flush(waiting)
                    waiting, flushed_at = [], time.monotonic()
            answers += self._flush(waiting)
        closers = {(a.document_id, a.number) for a in answers if a.is_closer}
        return [s.document for s in segments if (s.document.document_id, s.number) in closers]

    def _flush(self, waiting: Sequence[Settlement]) -> list[Settled]:
        return self._ledger.settle(self._run.generation, self._run.fingerprints.parser, waiting)

    def _settlement(self, segment: Segment, row: SegmentRow, watch: Watch) -> Settlement:
        if row.ordinal:
            return row.settlement
        if watch.is_guilty(_unit(row)):
            return Settlement(row.document_id, row.number, failure=failure.failure("engine_crashed", "its actor too"))
        return self._extract(segment, row)


def _unit(row: SegmentRow) -> str:
    return f"parse:{row.document_id}:{row.number}"


class Embed:
    """Chunks → chunks with vectors, exactly ``embed.batch`` rows a call; a chunk without a usable vector is buried."""

    def __init__(self, run: Run) -> None:
        observe.configure_logging()
        self._run = run
        self._stats = observe.Stats()
        self._ledger = Ledger(run.config.ledger.url)
        self._embedder = open_embedder(run.config.embed, run.config.embed.gpus, run.config.run.nodes)
        self._breaker = failure.Breaker()
        self._patience = failure.Backoff(budget_s=run.config.embed.retry_budget_s)
        self._in_flight = InFlight(self._stats, "embed.in_flight")
        self._stop = Stop(self._ledger, run)
        if self._embedder.fingerprint != run.fingerprints.embedder:
            raise PreflightError(
                f"this node would embed as {self._embedder.fingerprint}, the run was planned for "
                f"{run.fingerprints.embedder}: set embed.backend and embed.dtype so that all nodes agree"
            )
        check_canary(self._embedder, self._ledger.canary(run.generation, canary_vector(self._embedder)))

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._stop.is_set():
            return self._nothing(table)
        with self._in_flight, self._stats.timed("embed"):
            embedded = self._embed(table)
        hand_over(self._ledger, self._run, self._stats)
        return embedded

    def _embed(self, table: pa.Table) -> pa.Table:
        fresh, there = rows.by_vector(table)
        passages = self._passages(fresh)
        try:
            found = failure.with_retries(partial(self._asked, passages), self._patience, time.sleep)
            self._stats.add("embed.truncated", self._embedder.count_truncated(passages))
        except Exception as error:  # noqa: BLE001 - the chunks stay missing, the next attempt finds that
            observe.event("embed.call_failed", level=logging.ERROR, exc=error, rows=table.num_rows)
            self._stats.add("embed.calls_failed")
            return self._nothing(table)
        name = batch_id(table.column("chunk_id").to_pylist())
        shares = Counter(table.column("document_id").to_pylist())
        self._ledger.embedded(self._run.generation, self._run.run_id, [Batch(name, shares)])
        self._count(fresh, there)
        good, refused = found.vectors.good, found.refused
        self._bury(fresh.filter(pa.array(refused)), "embed_failed")
        self._bury(fresh.filter(pa.array(~good & ~refused)), "bad_vector")
        vectors = np.concatenate([found.vectors.vectors[good], rows.reused(there, self._embedder.dimension)])
        return rows.with_vectors(pa.concat_tables([fresh.filter(pa.array(good)), there]), vectors, name)

    def _passages(self, table: pa.Table) -> list[str]:
        prefix = self._run.config.embed.passage_prefix
        headers, texts = table.column("header").to_pylist(), table.column("text").to_pylist()
        return [prefix + embed_text(h, t) for h, t in zip(headers, texts, strict=True)]

    def _asked(self, passages: Sequence[str]) -> Embedded:
        return self._breaker.through(lambda: embed(self._embedder, passages))

    def _nothing(self, table: pa.Table) -> pa.Table:
        return rows.with_vectors(table.slice(0, 0), np.zeros((0, self._embedder.dimension), np.float32))

    def _bury(self, table: pa.Table, reason: str) -> None:
        pairs = zip(table.column("chunk_id").to_pylist(), table.column("document_id").to_pylist(), strict=True)
        what = failure.failure(reason)
        self._ledger.bury(self._run.generation, [ChunkFailure(c, d, "embed", what) for c, d in pairs])

    def _count(self, fresh: pa.Table, there: pa.Table) -> None:
        if fresh.num_rows:
            full = fresh.num_rows + there.num_rows == self._run.config.embed.batch
            self._stats.add("embed.calls_full" if full else "embed.calls_short")
        self._stats.add("embed.chunks", fresh.num_rows)
        self._stats.add("embed.reused", there.num_rows)
        self._stats.add("embed.tokens", sum(fresh.column("tokens").to_pylist()))


class Index:
    """Chunks with vectors → receipts: fence, bulk, dead letters. A refused write stops the run, not the document."""

    def __init__(self, run: Run, gate: Callable[[], Gate]) -> None:
        observe.configure_logging()
        self._run = run
        self._stats = observe.Stats()
        self._ledger = Ledger(run.config.ledger.url)
        self._gate = gate()
        self._sink = open_sink(run.config.index, run.generation, self._gate)
        self._stop = Stop(self._ledger, run)

    def __call__(self, table: pa.Table) -> pa.Table:
        if not table.num_rows or self._stop.is_set():
            return rows.receipts_to_table([])
        with self._stats.timed("index"):
            receipts = self._write(rows.chunks(table), rows.vectors(table), table.column(rows.BATCH).to_pylist())
        self._stats.add("index.chunks", sum(receipt.written for receipt in receipts))
        hand_over(self._ledger, self._run, self._stats)
        return rows.receipts_to_table(receipts)

    def _write(self, chunks: list[IndexChunk], vectors: np.ndarray[Any, Any], names: list[str]) -> list[Receipt]:
        ids = sorted({item.document.document_id for item in chunks})
        stale = self._superseded(ids)
        fresh = [n for n, item in enumerate(chunks) if item.document.document_id not in stale]
        current = [i for i in ids if i not in stale]
        self._ledger.indexed(self._run.generation, current)  # before the first write: from here it may hold chunks
        prints = self._run.fingerprints
        meta = WriteMeta(prints.parser, prints.chunker, prints.embedder, self._run.run_id, time.time())
        try:
            written = self._sink.write([chunks[n] for n in fresh], vectors[fresh], meta)
            self._withdraw([chunks[n] for n in fresh], self._superseded(current))
        except StoreRefused as error:
            self._stop.set("index", error)
            return []
        except IngestError as error:  # the chunks stay missing, the next attempt finds that
            observe.event("index.bulk_failed", level=logging.ERROR, chunks=len(fresh), error=str(error))
            return []
        fresh_chunks = [chunks[n] for n in fresh]
        self._bury(fresh_chunks, written)
        self._count(written)
        failed = Counter(names[n] for n, outcome in zip(fresh, written.outcomes, strict=True) if outcome.failure)
        last = self._ledger.settle_batches(self._run.generation, batches_of(chunks, names, failed))
        return receipts_of(fresh_chunks, written.outcomes, set(last))

    def _superseded(self, ids: Sequence[str]) -> set[str]:
        every = self._run.config.source.all_versions
        return self._ledger.superseded(self._run.generation, ids, all_versions=every)

    def _withdraw(self, chunks: Sequence[IndexChunk], overtaken: set[str]) -> None:
        """Deletes what was written for versions that a newer one overtook meanwhile; what stays, verify deletes."""
        gone = [item for item in chunks if item.document.document_id in overtaken]
        if not gone:
            return
        newest = self._ledger.newest_revisions({(item.document.bucket, item.document.key) for item in gone})
        revisions = (newest.get((i.document.bucket, i.document.key), i.document.revision) for i in gone)
        self._sink.delete([(item.chunk_id, revision) for item, revision in zip(gone, revisions, strict=True)])
        self._stats.add("index.withdrawn", len(gone))

    def _bury(self, chunks: Sequence[IndexChunk], written: Written) -> None:
        """Dead-letters what will never go in; what is only late stays missing and is found by the next attempt."""
        lost = [
            ChunkFailure(item.chunk_id, item.document.document_id, "index", outcome.failure)
            for item, outcome in zip(chunks, written.outcomes, strict=True)
            if outcome.failure and outcome.failure.branch is not Branch.TRANSIENT
        ]
        if lost:
            self._ledger.bury(self._run.generation, lost)

    def _count(self, written: Written) -> None:
        for verdict, number in written.stats.items.items():
            self._stats.add(f"index.items.{verdict}", number)
        for verdict, number in written.stats.retries.items():
            self._stats.add(f"index.retries.{verdict}", number)
        self._stats.add("index.requests", written.stats.requests)
        self._stats.add("index.bytes", written.stats.request_bytes)
        throttle = self._gate.report()  # of all index actors
        self._stats.now("index.window", throttle.window)
        self._stats.now("index.in_flight", throttle.in_flight)
        self._stats.peak("index.window", throttle.peak_window)
        self._stats.peak("index.in_flight", throttle.peak_in_flight)


def batches_of(chunks: Sequence[IndexChunk], names: Sequence[str], failed: Mapping[str, int]) -> list[Batch]:
    """The batches of these chunks; ``names[n]`` is that of ``chunks[n]``."""
    shares: dict[str, Counter[str]] = defaultdict(Counter)
    for item, name in zip(chunks, names, strict=True):
        shares[name][item.document.document_id] += 1
    return [Batch(name, share, failed.get(name, 0)) for name, share in shares.items()]


def receipts_of(chunks: Sequence[IndexChunk], outcomes: Sequence[Outcome], last: Collection[str]) -> list[Receipt]:
    """The outcomes summed up by document; of those in ``last`` no further chunk is on its way."""
    by_document: dict[str, list[Outcome]] = defaultdict(list)
    for item, outcome in zip(chunks, outcomes, strict=True):
        by_document[item.document.document_id].append(outcome)
    return [
        Receipt(
            document_id=document_id,
            written=sum(not o.failure and o.verdict is Verdict.SUCCESS for o in told),
            superseded=sum(o.verdict is Verdict.SUPERSEDED for o in told),
            failed=sum(bool(o.failure) for o in told),
            is_last=document_id in last,
        )
        for document_id, told in by_document.items()
    ]
