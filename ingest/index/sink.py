"""What the pipeline asks of an index: the Protocol, and its OpenSearch implementation.

``tests/contract/test_sink.py`` is the promise; every implementation passes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from ingest.config import IndexConfig
from ingest.errors import StoreUnavailable
from ingest.failure import Backoff, with_retries
from ingest.index import generations
from ingest.index.bulk import Bulk, BulkItem, BulkLimits, Written
from ingest.index.client import Cluster, connect, whole
from ingest.index.mapping import VECTOR, WriteMeta, source
from ingest.index.throttle import Gate
from ingest.model import Document, IndexChunk

T = TypeVar("T")
Vectors = npt.NDArray[np.float32]

COUNT_PAGE = 10_000  # buckets of one answer; the server's bound is 65,535
GET_PAGE = 1_000
REWRITE_PAGE = 500  # with text and vector: about 4 MB of an answer
SCAN_PAGE = 10_000  # the server's bound of hits in one answer
FIELDS = ("document_id", "chunk_index", "chunk_count", "revision", "content_hash", "embedder")


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """What the index says of one of its chunks."""

    chunk_id: str
    document_id: str
    chunk_index: int
    chunk_count: int
    revision: int
    content_hash: str
    embedder: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Chunks of one document version in the index, and the highest chunk index among them (-1 without any)."""

    chunks: int = 0
    last: int = -1


class Sink(Protocol):
    """An index of one generation. Each call may be repeated; StoreRefused from any of them ends the run."""

    def write(self, chunks: Sequence[IndexChunk], vectors: Vectors, meta: WriteMeta) -> Written:
        """Writes chunks, each with its row of ``vectors`` (float32, unit length); outcomes in their order."""
        ...

    def delete(self, chunks: Sequence[tuple[str, int]]) -> Written:
        """Deletes (chunk id, revision); one that is not there is a success."""
        ...

    def change_access(self, document: Document) -> Written:
        """Writes tenant and principals of a document on its refreshed chunks; text and vector stay."""
        ...

    def recount(self, document: Document, chunk_count: int) -> Written:
        """Writes the number of a document's chunks on those of its refreshed chunks that carry another."""
        ...

    def refresh(self) -> None:
        """Makes everything written so far countable."""
        ...

    def count_by_document(self, document_ids: Sequence[str]) -> dict[str, Counted]:
        """Refreshed chunks of each document version."""
        ...

    def existing(self, chunk_ids: Sequence[str]) -> dict[str, StoredChunk]:
        """The chunks that are there, refreshed or not."""
        ...

    def ids_of_document(self, document_id: str) -> list[StoredChunk]:
        """All refreshed chunks of a document version, by chunk index."""
        ...

    def vectors(self, document_id: str, content_hashes: Collection[str], embedder: str) -> dict[str, bytes]:
        """By content hash, float32 vectors of those of a document's refreshed chunks that this embedder made."""
        ...

    def total(self) -> int:
        """Refreshed chunks in the index."""
        ...


def open_sink(config: IndexConfig, index: str, gate: Gate, expected_uuid: str = "") -> IndexSink:
    """The sink for a physical index, checked to be there before anything is written. Raises StoreError."""
    cluster = connect(config)
    sink = IndexSink(cluster, index, config, gate)
    sink.check(expected_uuid)
    return sink


class IndexSink:
    """An OpenSearch index; safe to share between threads, not picklable."""

    def __init__(
        self,
        cluster: Cluster,
        index: str,
        config: IndexConfig,
        gate: Gate,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.index = index
        self._cluster = cluster
        self._backoff = Backoff(budget_s=config.retry_budget_s)
        self._sleep = sleep
        alias = generations.write_alias(index)
        limits = BulkLimits(config.bulk_max_bytes, config.bulk_max_chunks, self._backoff)
        self._bulk = Bulk(lambda body: cluster.bulk(alias, body), limits, gate, sleep)

    def check(self, expected_uuid: str = "") -> None:
        """Raises StoreRefused unless the index is there and is the one expected."""
        self._patiently(lambda: generations.require(self._cluster, self.index, expected_uuid))

    def write(self, chunks: Sequence[IndexChunk], vectors: Vectors, meta: WriteMeta) -> Written:
        return self._bulk.write([_item(chunk, vector, meta) for chunk, vector in zip(chunks, vectors, strict=True)])

    def delete(self, chunks: Sequence[tuple[str, int]]) -> Written:
        return self._bulk.write([BulkItem("delete", chunk_id, revision) for chunk_id, revision in chunks])

    def change_access(self, document: Document) -> Written:
        of_document = {"term": {"document_id": document.document_id}}
        return self._rewrite(of_document, lambda fields: _with_access(fields, document))

    def recount(self, document: Document, chunk_count: int) -> Written:
        of_document = {"term": {"document_id": document.document_id}}
        others = {"bool": {"filter": [of_document], "must_not": [{"term": {"chunk_count": chunk_count}}]}}
        return self._rewrite(others, lambda fields: {**fields, "chunk_count": chunk_count})

    def _rewrite(self, query: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> Written:
        """Writes the chunks again with some fields changed; text and vector stay."""
        body = {"size": REWRITE_PAGE, "query": query, "sort": ["chunk_index"]}
        sources = {hit["_id"]: hit["_source"] for hit in self._patiently(lambda: self._hits(body))}
        items = [
            BulkItem("index", name, fields["revision"], orjson.dumps(change(fields)))
            for name, fields in sources.items()
        ]
        return self._bulk.write(items)

    def refresh(self) -> None:
        self._patiently(lambda: whole(self._cluster.call("POST", f"/{self.index}/_refresh")))

    def count_by_document(self, document_ids: Sequence[str]) -> dict[str, Counted]:
        counts = dict.fromkeys(document_ids, Counted())
        for page in _pages(list(counts), COUNT_PAGE):
            counts |= self._patiently(partial(self._counts, page))
        return counts

    def existing(self, chunk_ids: Sequence[str]) -> dict[str, StoredChunk]:
        found: dict[str, StoredChunk] = {}
        for page in _pages(list(dict.fromkeys(chunk_ids)), GET_PAGE):
            found |= self._patiently(partial(self._get, page))
        return found

    def ids_of_document(self, document_id: str) -> list[StoredChunk]:
        return self._patiently(lambda: self._scan({"term": {"document_id": document_id}}))

    def vectors(self, document_id: str, content_hashes: Collection[str], embedder: str) -> dict[str, bytes]:
        rows = self.ids_of_document(document_id)
        by_hash = {row.content_hash: row.chunk_id for row in rows if row.embedder == embedder}
        wanted = {name: by_hash[name] for name in content_hashes if name in by_hash}
        found: dict[str, bytes] = {}
        for page in _pages(sorted(wanted.values()), REWRITE_PAGE):
            found |= self._patiently(partial(self._vectors, page))
        return {name: found[chunk_id] for name, chunk_id in wanted.items() if chunk_id in found}

    def _vectors(self, chunk_ids: Sequence[str]) -> dict[str, bytes]:
        found = self._sources(chunk_ids, VECTOR)
        return {name: np.asarray(fields[VECTOR], np.float32).tobytes() for name, fields in found.items()}

    def total(self) -> int:
        return self._patiently(lambda: int(whole(self._cluster.call("GET", f"/{self.index}/_count"))["count"]))

    def close(self) -> None:
        self._cluster.close()

    def _patiently(self, call: Callable[[], T]) -> T:
        return with_retries(call, self._backoff, self._sleep)

    def _counts(self, document_ids: Sequence[str]) -> dict[str, Counted]:
        query = {"terms": {"document_id": document_ids}}
        per_document = {
            "terms": {"field": "document_id", "size": len(document_ids)},
            "aggs": {"last": {"max": {"field": "chunk_index"}}},
        }
        body = {"size": 0, "track_total_hits": True, "query": query, "aggs": {"documents": per_document}}
        answer = self._cluster.search(self.index, body)
        buckets = answer["aggregations"]["documents"]["buckets"]
        counted, total = sum(bucket["doc_count"] for bucket in buckets), answer["hits"]["total"]["value"]
        if counted != total:
            raise StoreUnavailable(f"counts by document add up to {counted}, the query says {total}")
        return {b["key"]: Counted(int(b["doc_count"]), int(b["last"]["value"])) for b in buckets}

    def _get(self, chunk_ids: Sequence[str]) -> dict[str, StoredChunk]:
        return {name: _stored(name, fields) for name, fields in self._sources(chunk_ids, ",".join(FIELDS)).items()}

    def _sources(self, chunk_ids: Sequence[str], fields: str) -> dict[str, Any]:
        answer = self._cluster.call("POST", f"/{self.index}/_mget", {"ids": chunk_ids}, _source=fields)
        failed = [doc["error"] for doc in answer["docs"] if "error" in doc]
        if failed:
            raise StoreUnavailable(f"{len(failed)} of {len(chunk_ids)} chunks could not be read: {failed[0]}")
        return {doc["_id"]: doc["_source"] for doc in answer["docs"] if doc["found"]}

    def _scan(self, query: Mapping[str, Any]) -> list[StoredChunk]:
        body = {
            "size": SCAN_PAGE,
            "query": query,
            "sort": ["document_id", "chunk_index"],
            "_source": False,
            "docvalue_fields": list(FIELDS),
        }
        fields = ((hit["_id"], hit["fields"]) for hit in self._hits(body))
        return [_stored(name, {field: values[0] for field, values in found.items()}) for name, found in fields]

    def _hits(self, body: dict[str, Any]) -> list[Any]:
        hits: list[Any] = self._cluster.search(self.index, body)["hits"]["hits"]
        # as many as asked for: there may be more, begin again on a snapshot
        return list(self._pit_pages(body)) if len(hits) == body["size"] else hits

    def _pit_pages(self, body: dict[str, Any]) -> Iterator[Any]:
        path = f"/{self.index}/_search/point_in_time"
        pit = self._cluster.call("POST", path, keep_alive="5m")["pit_id"]
        try:
            after: dict[str, Any] = {}
            while True:
                page = {**body, **after, "pit": {"id": pit, "keep_alive": "5m"}}
                hits = self._cluster.search("", page)["hits"]["hits"]
                yield from hits
                if len(hits) < body["size"]:
                    return
                after = {"search_after": hits[-1]["sort"]}
        finally:
            self._cluster.send("DELETE", "/_search/point_in_time", {"pit_id": [pit]})


def _item(chunk: IndexChunk, vector: Vectors, meta: WriteMeta) -> BulkItem:
    return BulkItem("index", chunk.chunk_id, chunk.document.revision, orjson.dumps(source(chunk, meta)), vector)


def _with_access(fields: Mapping[str, Any], document: Document) -> dict[str, Any]:
    return {
        **fields,
        "tenant": document.tenant,
        "principals": list(document.principals),
        "principals_version": fields["principals_version"] + 1,
    }


def _stored(chunk_id: str, fields: Mapping[str, Any]) -> StoredChunk:
    return StoredChunk(chunk_id, *(fields[name] for name in FIELDS))


def _pages(ids: list[str], size: int) -> Iterator[list[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
