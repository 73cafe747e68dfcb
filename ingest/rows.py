"""Types ↔ Arrow columns, in one place. Python objects in a column would be pickled: ten times slower."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.model import Chunk, Document, IndexChunk, Receipt, Segment

VECTOR = "vector"
BATCH = "batch_id"
REUSED = "reused"

DOCUMENT = pa.schema(
    [
        ("document_id", pa.string()),
        ("bucket", pa.string()),
        ("key", pa.string()),
        ("version", pa.string()),
        ("version_id", pa.string()),
        ("revision", pa.int64()),
        ("size", pa.int64()),
        ("tenant", pa.string()),
        ("principals", pa.list_(pa.string())),
        ("attempt", pa.int32()),
    ]
)
SEGMENT = pa.schema(
    [
        *DOCUMENT,
        ("number", pa.int32()),
        ("total", pa.int32()),
        ("page_from", pa.int32()),
        ("page_to", pa.int32()),
        ("format", pa.string()),
        ("lane", pa.string()),
    ]
)
CHUNK = pa.schema(
    [
        *DOCUMENT,
        ("chunk_id", pa.string()),
        ("chunk_index", pa.int32()),
        ("chunk_count", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("text", pa.string()),
        ("page_from", pa.int32()),
        ("page_to", pa.int32()),
        ("headings", pa.list_(pa.string())),
        ("header", pa.string()),
        ("tokens", pa.int32()),
        ("unknown_tokens", pa.int32()),
        ("parent_id", pa.string()),
        ("content_hash", pa.string()),
        ("title", pa.string()),
        ("language", pa.string()),
        (REUSED, pa.binary()),  # its vector as float32, where there was one already
    ]
)
RECEIPT = pa.schema(
    [
        ("document_id", pa.string()),
        ("written", pa.int32()),
        ("superseded", pa.int32()),
        ("failed", pa.int32()),
        ("is_last", pa.bool_()),
    ]
)


def _table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def _document_row(document: Document) -> dict[str, Any]:
    return {name: getattr(document, name) for name in DOCUMENT.names}


def _document(row: dict[str, Any]) -> Document:
    fields = {name: row[name] for name in DOCUMENT.names}
    fields["principals"] = tuple(fields["principals"])
    return Document(**fields)


def documents_to_table(documents: Iterable[Document]) -> pa.Table:
    """One row a document."""
    return _table(map(_document_row, documents), DOCUMENT)


def documents(table: pa.Table) -> list[Document]:
    """The documents of a table, in its order."""
    return [_document(row) for row in table.to_pylist()]


def segments_to_table(segments: Iterable[Segment]) -> pa.Table:
    """One row a segment; its document's columns are repeated."""
    own = SEGMENT.names[len(DOCUMENT.names) :]
    return _table(
        ({**_document_row(s.document), **{name: getattr(s, name) for name in own}} for s in segments), SEGMENT
    )


def segments(table: pa.Table) -> list[Segment]:
    """The segments of a table, in its order."""
    own = SEGMENT.names[len(DOCUMENT.names) :]
    return [Segment(document=_document(row), **{name: row[name] for name in own}) for row in table.to_pylist()]


_CHUNK_FIELDS = [
    "start",
    "end",
    "text",
    "page_from",
    "page_to",
    "headings",
    "header",
    "tokens",
    "unknown_tokens",
    "parent_id",
]  # of Chunk, named alike in both


def chunks_to_table(chunks: Iterable[IndexChunk]) -> pa.Table:
    """One row a chunk; its document's columns are repeated."""
    return _table(map(_chunk_row, chunks), CHUNK)


def _chunk_row(item: IndexChunk) -> dict[str, Any]:
    return {
        **_document_row(item.document),
        **{name: getattr(item.chunk, name) for name in _CHUNK_FIELDS},
        "chunk_index": item.chunk.index,
        "chunk_id": item.chunk_id,
        "chunk_count": item.chunk_count,
        "content_hash": item.content_hash,
        "title": item.title,
        "language": item.language,
        REUSED: item.vector,
    }


def chunks(table: pa.Table) -> list[IndexChunk]:
    """The chunks of a table, in its order; what embed added is left out."""
    rest = table.drop_columns([name for name in (VECTOR, BATCH) if name in table.column_names])
    return [_chunk(row) for row in rest.to_pylist()]


def _chunk(row: dict[str, Any]) -> IndexChunk:
    fields = {name: row[name] for name in _CHUNK_FIELDS}
    fields["headings"] = tuple(fields["headings"])
    return IndexChunk(
        chunk_id=row["chunk_id"],
        document=_document(row),
        chunk=Chunk(index=row["chunk_index"], **fields),
        chunk_count=row["chunk_count"],
        content_hash=row["content_hash"],
        title=row["title"],
        language=row["language"],
        vector=row[REUSED],
    )


def by_vector(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that are to be embedded, and those that bring their vector."""
    there = pc.greater(pc.binary_length(table.column(REUSED)), 0)
    return table.filter(pc.invert(there)), table.filter(there)


def reused(table: pa.Table, dimension: int) -> np.ndarray[Any, Any]:
    """The vectors that the rows bring, float32 of shape (rows, dimension)."""
    return np.frombuffer(b"".join(table.column(REUSED).to_pylist()), np.float32).reshape(-1, dimension)


def with_vectors(table: pa.Table, vectors: np.ndarray[Any, Any], batch_id: str = "") -> pa.Table:
    """The table with a fixed-size list column of float32 vectors, shape (rows, dimension), and its batch's name."""
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
    named = table.append_column(BATCH, pa.array([batch_id] * table.num_rows, pa.string()))
    return named.append_column(VECTOR, pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]))


def vectors(table: pa.Table) -> np.ndarray[Any, Any]:
    """The vector column as float32, shape (rows, dimension)."""
    column = table.column(VECTOR).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(column.flatten()).reshape(len(column), column.type.list_size)


def receipts_to_table(receipts: Sequence[Receipt]) -> pa.Table:
    """One row a document that the bulk call touched."""
    return _table(({name: getattr(r, name) for name in RECEIPT.names} for r in receipts), RECEIPT)


def receipts(table: pa.Table) -> list[Receipt]:
    """The receipts of a table."""
    return [Receipt(**row) for row in table.to_pylist()]
