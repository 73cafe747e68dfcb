"""One callable class per actor pool: columns → types → pure functions → columns.

Nothing is raised inside Ray: what goes wrong with a unit is written to the ledger where it happens. Only a constructor
may raise, because an actor that can't start must end the run.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ingest import failure, observe, rows
from ingest.artifacts import Artifacts
from ingest.chunk.context import embed_text
from ingest.construct import Construct
from ingest.embed import canary_vector, check_canary, checked, open_embedder
from ingest.errors import IngestError, ParseError, PreflightError, StoreRefused
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
    ParsedSegment,
    Receipt,
    Segment,
    State,
)
from ingest.parse.sandbox import Sandbox
from ingest.source import s3
from ingest.source.fetch import VersionCache
from ingest.state import Ledger, Plan, Planned, Settled, Settlement
from ingest.triage import lane, plan
from ingest.work import InFlight, Run, Stop, end_document, hand_over

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
        except StoreRefused:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this document's fate, not the run's
            end_document(self._ledger, self._run, document, failure.classify(error))
            return None
        ranges = plan(found.pages, self._run.config.segments.pages)
        self._stats.add("triage.pages", found.pages)
        return Plan(document.document_id, found.format, lane(found.format), found.pages, ranges, found.title)

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


class Parse:
    """Segments → chunks: parse, store, settle; the call that settles a document's last segment constructs it."""

    def __init__(self, run: Run) -> None:
        observe.configure_logging()
        self._run = run
        self._stats = observe.Stats()
        self._ledger = Ledger(run.config.ledger.url)
        client = s3.connect()
        self._files = VersionCache(client, run.config.parse.cache_dir, run.config.parse.cache_mb << 20)
        self._artifacts = Artifacts(client, run.config.artifacts)
        self._sandbox = Sandbox(run.config.parse.timeout_s, run.config.parse.memory_mb)
        self._sandbox.start()
        self._construct = Construct(run, self._ledger, self._artifacts, self._stats)
        self._stop = Stop(self._ledger, run)

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._stop.is_set():
            return rows.chunks_to_table([])
        segments = rows.segments(table)
        try:
            with self._stats.timed("parse"):
                closed = self._settle(segments)
            with self._stats.timed("construct"):
                chunks = [chunk for document in closed for chunk in self._construct(document)]
        except StoreRefused as error:
            self._stop.set("parse", error)
            chunks = []
        hand_over(self._ledger, self._run, self._stats)
        return rows.chunks_to_table(chunks)

    def _settle(self, segments: Sequence[Segment]) -> list[Document]:
        """Documents whose last segment is among these, in their order."""
        parser = self._run.fingerprints.parser
        done = self._ledger.settled(parser, [s.document.document_id for s in segments])
        answers: list[Settled] = []
        waiting: list[Settlement] = []
        flushed_at = time.monotonic()
        for segment in segments:
            waiting.append(done.get((segment.document.document_id, segment.number)) or self._parse(segment))
            if time.monotonic() - flushed_at > SETTLE_EVERY_S:
                answers += self._ledger.settle(self._run.generation, parser, waiting)
                waiting, flushed_at = [], time.monotonic()
        answers += self._ledger.settle(self._run.generation, parser, waiting)
        closers = {(a.document_id, a.number) for a in answers if a.is_closer}
        return [s.document for s in segments if (s.document.document_id, s.number) in closers]

    def _parse(self, segment: Segment) -> Settlement:
        document, number = segment.document, segment.number
        began = time.monotonic()
        try:
            artifact, parsed = self._stored(segment)
        except StoreRefused:
            raise
        except Exception as error:  # noqa: BLE001 - recorded as the segment's fate
            observe.event(
                "parse.segment_failed", level=logging.WARNING, key=document.key, segment=number, error=str(error)
            )
            self._stats.add("parse.segments_failed")
            lost = failure.classify(error)
            return Settlement(document.document_id, number, failure=lost, seconds=time.monotonic() - began)
        self._stats.add("parse.segments")
        self._stats.add("parse.pages", len(parsed.pages))
        self._stats.add("parse.repairs", parsed.repairs)
        return Settlement(
            document.document_id,
            number,
            engine=parsed.engine,
            artifact=artifact,
            failed_pages=parsed.failed_pages,
            quality=min((page.quality for page in parsed.pages), default=0.0),
            repairs=parsed.repairs,
            seconds=time.monotonic() - began,
        )

    def _stored(self, segment: Segment) -> tuple[str, ParsedSegment]:
        """The artifact's key and what it holds: the ledger must say the same as what a re-chunk will read."""
        if segment.document.attempt > 1:  # an earlier one may have died between storing and settling
            pages, parser = (segment.page_from, segment.page_to), self._run.fingerprints.parser
            key = self._artifacts.key(parser, segment.document.document_id, segment.number, pages)
            if found := self._artifacts.find(key):
                return key, found
        return self._artifacts.put(self._read(segment))

    def _read(self, segment: Segment) -> ParsedSegment:
        found = self._files.read(
            segment.document,
            lambda path: self._sandbox.parse(path, segment.format, segment.page_from, segment.page_to),
        )
        return ParsedSegment(
            document_id=segment.document.document_id,
            number=segment.number,
            page_from=segment.page_from,
            page_to=segment.page_to,
            pages=found.pages,
            engine=found.engine,
            parser=self._run.fingerprints.parser,
            title=found.title,
            outline=found.outline,
            failed_pages=found.failed_pages,
            repairs=found.repairs,
        )


class Embed:
    """Chunks → chunks with vectors, exactly ``embed.batch`` rows a call; a chunk without a usable vector is buried."""

    def __init__(self, run: Run) -> None:
        observe.configure_logging()
        self._run = run
        self._stats = observe.Stats()
        self._ledger = Ledger(run.config.ledger.url)
        self._embedder = open_embedder(run.config.embed, run.config.embed.gpus, run.config.run.nodes)
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
        prefix = self._run.config.embed.passage_prefix
        headers, texts = table.column("header").to_pylist(), table.column("text").to_pylist()
        try:
            passages = [prefix + embed_text(h, t) for h, t in zip(headers, texts, strict=True)]
            found = checked(self._embedder.embed(passages), len(passages))
            self._stats.add("embed.truncated", self._embedder.count_truncated(passages))
        except Exception as error:  # noqa: BLE001 - the chunks stay missing, the next attempt finds that
            observe.event("embed.call_failed", level=logging.ERROR, exc=error, rows=table.num_rows)
            self._stats.add("embed.calls_failed")
            return self._nothing(table)
        self._count(table)
        if not found.good.all():
            self._bury(table.filter(pa.array(~found.good)))
        return rows.with_vectors(table.filter(pa.array(found.good)), found.vectors[found.good])

    def _nothing(self, table: pa.Table) -> pa.Table:
        return rows.with_vectors(table.slice(0, 0), np.zeros((0, self._embedder.dimension), np.float32))

    def _bury(self, table: pa.Table) -> None:
        pairs = zip(table.column("chunk_id").to_pylist(), table.column("document_id").to_pylist(), strict=True)
        what = failure.failure("bad_vector")
        self._ledger.bury(self._run.generation, [ChunkFailure(c, d, "embed", what) for c, d in pairs])

    def _count(self, table: pa.Table) -> None:
        full = table.num_rows == self._run.config.embed.batch
        self._stats.add("embed.calls_full" if full else "embed.calls_short")
        self._stats.add("embed.chunks", table.num_rows)
        self._stats.add("embed.tokens", sum(table.column("tokens").to_pylist()))


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
            receipts = self._write(rows.chunks(table), rows.vectors(table))
        self._stats.add("index.chunks", sum(receipt.written for receipt in receipts))
        hand_over(self._ledger, self._run, self._stats)
        return rows.receipts_to_table(receipts)

    def _write(self, chunks: list[IndexChunk], vectors: np.ndarray[Any, Any]) -> list[Receipt]:
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
        return receipts_of(fresh_chunks, written.outcomes)

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
        self._stats.peak("index.window", throttle.peak_window)
        self._stats.peak("index.in_flight", throttle.peak_in_flight)


def receipts_of(chunks: Sequence[IndexChunk], outcomes: Sequence[Outcome]) -> list[Receipt]:
    """The outcomes summed up by document."""
    by_document: dict[str, list[Outcome]] = defaultdict(list)
    for item, outcome in zip(chunks, outcomes, strict=True):
        by_document[item.document.document_id].append(outcome)
    return [
        Receipt(
            document_id=document_id,
            written=sum(not o.failure and o.verdict is Verdict.SUCCESS for o in told),
            superseded=sum(o.verdict is Verdict.SUPERSEDED for o in told),
            failed=sum(bool(o.failure) for o in told),
        )
        for document_id, told in by_document.items()
    ]
