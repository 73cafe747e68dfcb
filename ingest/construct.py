"""A document whose segments are all settled → its chunks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from ingest import failure, observe
from ingest.artifacts import Artifacts
from ingest.assemble import assemble
from ingest.chunk import chunk as cut
from ingest.chunk.tokens import Tokenizer
from ingest.embed import resolve_model
from ingest.errors import StoreRefused, StoreUnavailable
from ingest.index.sink import Sink, StoredChunk, open_sink
from ingest.index.throttle import Throttle
from ingest.model import Document, Failure, IndexChunk, State, chunk_id, content_hash
from ingest.state import ConstructRecord, Ledger, SegmentRow
from ingest.work import Run, end_document

SIZE_BINS = 16  # of the histogram of chunk sizes


class Stored:
    """What earlier attempts left of a document in the index: kept where it is as it should be, else deleted."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._is_refreshed = False

    def missing(self, document: Document, items: Sequence[IndexChunk], embedder: str) -> list[IndexChunk]:
        """The chunks to be written; any other content goes first, so that counting ids proves what they hold."""
        if not self._is_refreshed:  # once: an actor lives for one window, and earlier attempts wrote before it
            self._sink.refresh()
            self._is_refreshed = True
        wanted = {item.chunk_id: (item.content_hash, embedder) for item in items}
        found = {row.chunk_id: row for row in self._sink.ids_of_document(document.document_id)}
        there = {n: row for n, row in found.items() if n not in wanted} | self._sink.existing(list(wanted))
        stale = [row for row in there.values() if wanted.get(row.chunk_id) != (row.content_hash, row.embedder)]
        self._delete(document, stale)
        kept = there.keys() - {row.chunk_id for row in stale}
        if any(there[name].chunk_count != len(items) for name in kept):
            self._sink.recount(document, len(items)).require("recounted")
        return [item for item in items if item.chunk_id not in kept]

    def vectors(self, document_id: str, content_hashes: Collection[str], embedder: str) -> dict[str, bytes]:
        """See Sink."""
        return self._sink.vectors(document_id, content_hashes, embedder)

    def _delete(self, document: Document, stale: Sequence[StoredChunk]) -> None:
        if not stale:
            return
        self._sink.delete([(row.chunk_id, document.revision) for row in stale]).require("deleted")


class Construct:
    """A document whose segments are all settled → its chunks; lives in the parse actor and saves one pool."""

    def __init__(self, run: Run, ledger: Ledger, artifacts: Artifacts, stats: observe.Stats) -> None:
        self._run = run
        self._ledger = ledger
        self._artifacts = artifacts
        self._stats = stats
        self._tokenizer = Tokenizer.load(resolve_model(run.config.embed))
        self._stored = Stored(open_sink(run.config.index, run.generation, Throttle(1)))

    def __call__(self, document: Document) -> list[IndexChunk]:
        try:
            return self._chunks(document)
        except StoreRefused:  # whatever the document: the run stops
            raise
        except Exception as error:  # noqa: BLE001 - recorded as the document's fate
            observe.event("construct.document_failed", level=logging.ERROR, exc=error, key=document.key)
            end_document(self._ledger, self._run, document, failure.classify(error))
            return []

    def _chunks(self, document: Document) -> list[IndexChunk]:
        settled = self._ledger.segments(self._run.fingerprints.parser, document.document_id)
        if any(segment.ordinal is None for segment in settled):
            raise StoreUnavailable("another run has taken up a segment of it again; the next attempt waits for that")
        parts = [self._artifacts.get(segment.artifact) for segment in settled if segment.artifact]
        self._ledger.advance(self._run.generation, [document.document_id], State.CHUNKING)
        assembled = assemble(document, parts, max((s.page_to for s in settled), default=0))
        chunks = cut(assembled, self._run.config.chunk, self._tokenizer)
        if not chunks:
            end_document(self._ledger, self._run, document, _nothing_to_show(settled))
            return []
        items = [
            IndexChunk(
                chunk_id=chunk_id(document.bucket, document.key, document.version, chunk.index),
                document=document,
                chunk=chunk,
                chunk_count=len(chunks),
                content_hash=content_hash(chunk.header, chunk.text),
                title=assembled.title,
                language=assembled.language,
            )
            for chunk in chunks
        ]
        missing = self._with_vectors(document, self._missing(document, items))
        self._record(document, items, len(items) - len(missing), assembled.language)
        return missing

    def _missing(self, document: Document, items: Sequence[IndexChunk]) -> list[IndexChunk]:
        """The chunks that the index lacks: asked only when an earlier attempt may have written some."""
        if document.attempt == 1:
            return list(items)
        return self._stored.missing(document, items, self._run.fingerprints.embedder)

    def _with_vectors(self, document: Document, items: Sequence[IndexChunk]) -> list[IndexChunk]:
        """The chunks, those with a vector for which an equal one is in the index already."""
        found: dict[str, bytes] = {}
        for relative in self._ledger.relatives(self._run.generation, document.document_id) if items else ():
            wanted = {item.content_hash for item in items} - found.keys()
            found |= self._stored.vectors(relative, wanted, self._run.fingerprints.embedder)
        return [replace(item, vector=found.get(item.content_hash, b"")) for item in items]

    def _record(self, document: Document, items: Sequence[IndexChunk], unchanged: int, language: str) -> None:
        self._stats.add("construct.documents")
        self._stats.add("construct.chunks", len(items))
        self._stats.add("construct.unchanged", unchanged)
        width = max(1, self._run.config.chunk.size // SIZE_BINS)
        for low, number in Counter(item.chunk.tokens // width * width for item in items).items():
            self._stats.add(f"construct.tokens_from.{low}", number)
        self._ledger.record_chunks(
            self._run.generation,
            ConstructRecord(
                document_id=document.document_id,
                chunk_count=len(items),
                unchanged=unchanged,
                tokens=sum(item.chunk.tokens for item in items),
                unknown_tokens=sum(item.chunk.unknown_tokens for item in items),
                language=language,
            ),
        )


def _nothing_to_show(settled: Sequence[SegmentRow]) -> Failure:
    """Why a document without a chunk has none: the first failure of a segment or page, else that it holds no text."""
    whole = [segment.failure for segment in settled if segment.failure]
    pages = [reason for segment in settled for _, reason in segment.failed_pages]
    return next(iter(whole + pages), None) or failure.failure("no_text")
