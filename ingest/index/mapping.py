"""What the index holds: mapping and settings of a new index, and a chunk as a document of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingest.config import IndexConfig
from ingest.model import IndexChunk, fingerprint, key_hash

VERSION = "1"
VECTOR = "vector"
# Vectors have unit length, so the inner product is the cosine; unlike `cosinesimil` it stores them as they were sent
# on both engines (faiss normalises again), so what is read back equals what was written.
SPACE = "innerproduct"

_KEYWORDS = (
    "document_id", "doc_bucket", "doc_key", "doc_key_hash", "doc_version", "parent_id", "tenant", "principals",
    "principals_deny", "language", "parser", "chunker", "embedder", "run_id",
)  # fmt: skip
_NUMBERS = {
    "revision": "long", "principals_version": "long", "chunk_index": "integer", "chunk_count": "integer",
    "page_from": "integer", "page_to": "integer", "char_start": "integer", "char_end": "integer",
}  # fmt: skip
_TEXTS = ("text", "header", "headings", "title")


@dataclass(frozen=True, slots=True)
class WriteMeta:
    """Who wrote a chunk: the fingerprints, the run and the time in seconds since 1970."""

    parser: str
    chunker: str
    embedder: str
    run_id: str
    written_at: float


def properties(config: IndexConfig, dimension: int) -> dict[str, Any]:
    """Every field of the index."""
    fields: dict[str, Any] = {name: {"type": "keyword"} for name in _KEYWORDS}
    fields |= {name: {"type": kind} for name, kind in _NUMBERS.items()}
    fields |= {name: {"type": "text"} for name in _TEXTS}
    fields["content_hash"] = {"type": "keyword", "index": False}
    fields["written_at"] = {"type": "date", "format": "epoch_millis||strict_date_optional_time"}
    fields[VECTOR] = {
        "type": "knn_vector",
        "dimension": dimension,
        "space_type": SPACE,
        "method": {
            "name": "hnsw",
            # Always named: the default needs native libraries, and a node without them dies at its first refresh.
            "engine": config.engine,
            "parameters": {"m": config.m, "ef_construction": config.ef_construction},
        },
    }
    return fields


def mapping_fingerprint(config: IndexConfig, dimension: int) -> str:
    """Name of the mapping: another field, engine, dimension or graph parameter gives another one."""
    return fingerprint("mapping", VERSION, properties(config, dimension))


def index_body(config: IndexConfig, dimension: int, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Body that creates an index; ``meta`` (the fingerprints) is kept in it as ``_meta``."""
    return {
        "settings": {
            "index": {
                "knn": True,
                "number_of_shards": config.shards,
                "number_of_replicas": config.replicas,
                "refresh_interval": config.refresh_interval,
            }
        },
        "mappings": {
            "dynamic": "strict",
            "_meta": {**meta, "mapping": mapping_fingerprint(config, dimension), "dimension": dimension},
            "properties": properties(config, dimension),
        },
    }


def source(item: IndexChunk, meta: WriteMeta) -> dict[str, Any]:
    """A chunk's fields but the vector."""
    document, chunk = item.document, item.chunk
    return {
        "document_id": document.document_id,
        "doc_bucket": document.bucket,
        "doc_key": document.key,
        "doc_key_hash": key_hash(document.bucket, document.key),
        "doc_version": document.version,
        "revision": document.revision,
        "chunk_index": chunk.index,
        "chunk_count": item.chunk_count,
        "parent_id": chunk.parent_id,
        "text": chunk.text,
        "header": chunk.header,
        "headings": list(chunk.headings),
        "title": item.title,
        "page_from": chunk.page_from,
        "page_to": chunk.page_to,
        "char_start": chunk.start,
        "char_end": chunk.end,
        "language": item.language,
        "tenant": document.tenant,
        "principals": list(document.principals),
        "principals_deny": [],
        "principals_version": 0,  # the list as admitted; a later change of access alone counts up from here
        "content_hash": item.content_hash,
        "parser": meta.parser,
        "chunker": meta.chunker,
        "embedder": meta.embedder,
        "run_id": meta.run_id,
        "written_at": int(meta.written_at * 1000),
    }
