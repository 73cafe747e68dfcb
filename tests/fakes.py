"""Stand-ins that behave: they keep what the real thing keeps and refuse what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ingest.index.bulk import BulkStats, Outcome, Written
from ingest.index.mapping import WriteMeta
from ingest.index.sink import Counted, StoredChunk
from ingest.index.verdict import Verdict
from ingest.model import Document, IndexChunk


@dataclass(slots=True)
class MemorySink:
    """An index in memory: revisions as `external_gte`, tombstones, and nothing countable before a refresh."""

    revisions: dict[str, int] = field(default_factory=dict)
    live: dict[str, tuple[IndexChunk, npt.NDArray[np.float32], WriteMeta]] = field(default_factory=dict)
    refreshed: dict[str, tuple[IndexChunk, npt.NDArray[np.float32], WriteMeta]] = field(default_factory=dict)

    def write(self, chunks: Sequence[IndexChunk], vectors: npt.NDArray[np.float32], meta: WriteMeta) -> Written:
        verdicts = []
        for chunk, vector in zip(chunks, vectors, strict=True):
            verdicts.append(self._accept(chunk.chunk_id, chunk.document.revision))
            if verdicts[-1] is Verdict.SUCCESS:
                self.live[chunk.chunk_id] = (chunk, vector, meta)
        return _written([chunk.chunk_id for chunk in chunks], verdicts)

    def delete(self, chunks: Sequence[tuple[str, int]]) -> Written:
        verdicts = []
        for chunk_id, revision in chunks:
            verdicts.append(self._accept(chunk_id, revision))
            if verdicts[-1] is Verdict.SUCCESS:
                self.live.pop(chunk_id, None)
        return _written([chunk_id for chunk_id, _ in chunks], verdicts)

    def change_access(self, document: Document) -> Written:
        names = [
            name for name, (chunk, _, _) in self.refreshed.items() if chunk.document.document_id == document.document_id
        ]
        for name in names:
            chunk, vector, meta = self.live[name]
            owner = replace(chunk.document, tenant=document.tenant, principals=document.principals)
            self.live[name] = (replace(chunk, document=owner), vector, meta)
        return _written(names, [Verdict.SUCCESS] * len(names))

    def recount(self, document: Document, chunk_count: int) -> Written:
        names = [
            name
            for name, (chunk, _, _) in self.refreshed.items()
            if chunk.document.document_id == document.document_id and chunk.chunk_count != chunk_count
        ]
        for name in names:
            chunk, vector, meta = self.live[name]
            self.live[name] = (replace(chunk, chunk_count=chunk_count), vector, meta)
        return _written(names, [Verdict.SUCCESS] * len(names))

    def refresh(self) -> None:
        self.refreshed = dict(self.live)

    def count_by_document(self, document_ids: Sequence[str]) -> dict[str, Counted]:
        return {document_id: self._counted(document_id) for document_id in document_ids}

    def _counted(self, document_id: str) -> Counted:
        found = [row.chunk_index for row in self.ids_of_document(document_id)]
        return Counted(len(found), max(found, default=-1))

    def existing(self, chunk_ids: Sequence[str]) -> dict[str, StoredChunk]:
        return {chunk_id: _stored(*self.live[chunk_id]) for chunk_id in chunk_ids if chunk_id in self.live}

    def ids_of_document(self, document_id: str) -> list[StoredChunk]:
        return [chunk for chunk in self._sorted() if chunk.document_id == document_id]

    def vectors(self, document_id: str, content_hashes: Collection[str], embedder: str) -> dict[str, bytes]:
        return {
            chunk.content_hash: vector.tobytes()
            for chunk, vector, meta in self.refreshed.values()
            if chunk.document.document_id == document_id and meta.embedder == embedder
            if chunk.content_hash in content_hashes
        }

    def total(self) -> int:
        return len(self.refreshed)

    def _accept(self, chunk_id: str, revision: int) -> Verdict:
        if revision < self.revisions.get(chunk_id, 0):
            return Verdict.SUPERSEDED
        self.revisions[chunk_id] = revision
        return Verdict.SUCCESS

    def _sorted(self) -> list[StoredChunk]:
        chunks = [_stored(*entry) for entry in self.refreshed.values()]
        return sorted(chunks, key=lambda chunk: (chunk.document_id, chunk.chunk_index))


def _stored(chunk: IndexChunk, _vector: npt.NDArray[np.float32], meta: WriteMeta) -> StoredChunk:
    return StoredChunk(
        chunk_id=chunk.chunk_id,
        document_id=chunk.document.document_id,
        chunk_index=chunk.chunk.index,
        chunk_count=chunk.chunk_count,
        revision=chunk.document.revision,
        content_hash=chunk.content_hash,
        embedder=meta.embedder,
    )


def _written(chunk_ids: Sequence[str], verdicts: Sequence[Verdict]) -> Written:
    outcomes = tuple(Outcome(chunk_id, verdict) for chunk_id, verdict in zip(chunk_ids, verdicts, strict=True))
    return Written(outcomes, BulkStats(items=Counter(verdict.value for verdict in verdicts), requests=1))
