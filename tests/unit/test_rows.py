"""Types to Arrow columns and back, without a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest import rows
from ingest.model import Chunk, Document, IndexChunk, Receipt, Segment
from tests.strategies import DOCUMENTS, INDEX_CHUNKS, RECEIPTS, SEGMENTS

Pair = tuple[Callable[[Any], pa.Table], Callable[[pa.Table], list[Any]], pa.Schema]
PAIRS: dict[str, Pair] = {
    "documents": (rows.documents_to_table, rows.documents, rows.DOCUMENT),
    "segments": (rows.segments_to_table, rows.segments, rows.SEGMENT),
    "chunks": (rows.chunks_to_table, rows.chunks, rows.CHUNK),
    "receipts": (rows.receipts_to_table, rows.receipts, rows.RECEIPT),
}


@given(st.lists(DOCUMENTS, max_size=4))
@settings(deadline=None)
def test_documents_come_back_equal(made: list[Document]) -> None:
    assert rows.documents(rows.documents_to_table(made)) == made


@given(st.lists(SEGMENTS, max_size=4))
@settings(deadline=None)
def test_segments_come_back_equal(made: list[Segment]) -> None:
    assert rows.segments(rows.segments_to_table(made)) == made


@given(st.lists(INDEX_CHUNKS, max_size=4))
@settings(deadline=None)
def test_chunks_come_back_equal(made: list[IndexChunk]) -> None:
    assert rows.chunks(rows.chunks_to_table(made)) == made


@given(st.lists(RECEIPTS, max_size=4))
def test_receipts_come_back_equal(made: list[Receipt]) -> None:
    assert rows.receipts(rows.receipts_to_table(made)) == made


@pytest.mark.parametrize("kind", PAIRS)
def test_no_rows_still_have_the_schema(kind: str) -> None:
    to_table, back, schema = PAIRS[kind]
    empty = to_table([])
    assert empty.schema == schema
    assert back(empty) == []


@given(INDEX_CHUNKS)
@settings(deadline=None, max_examples=10)
def test_full_and_empty_tables_can_be_put_together(item: IndexChunk) -> None:
    both = pa.concat_tables([rows.chunks_to_table([]), rows.chunks_to_table([item])])
    assert rows.chunks(both) == [item]


def test_no_column_holds_python_objects() -> None:
    kinds = {str(field.type) for _, _, schema in PAIRS.values() for field in schema}
    assert kinds == {"string", "int64", "int32", "bool", "binary", "list<item: string>"}


def test_every_field_of_a_type_has_its_column() -> None:
    """A field that is added to a type and forgotten here would be lost between two stages."""
    own = set(Document.__slots__)
    assert set(rows.DOCUMENT.names) == own
    assert set(rows.SEGMENT.names) == own | set(Segment.__slots__) - {"document"}
    assert set(rows.RECEIPT.names) == set(Receipt.__slots__)


# ---------------------------------------------------------------- vectors


def table(count: int) -> pa.Table:
    document = Document("d" * 64, "b", "k", "v", "v", 1, 1)
    return rows.chunks_to_table([_item(document, n) for n in range(count)])


def _item(document: Document, number: int) -> IndexChunk:
    return IndexChunk(f"{number:064d}", document, Chunk(number, 0, 1, "t", 1, 1, (), "", 1), 1, "h", "", "")


@pytest.mark.parametrize("count", [0, 1, 7])
def test_vectors_come_back_bit_by_bit(count: int) -> None:
    made = np.random.default_rng(1).normal(size=(count, 5)).astype(np.float32)
    full = rows.with_vectors(table(count), made)
    back = rows.vectors(full)
    assert back.shape == (count, 5)
    assert back.dtype == np.float32
    assert np.array_equal(back, made)
    assert len(rows.chunks(full)) == count


def test_half_precision_and_strided_vectors_are_stored_as_float32() -> None:
    made = np.arange(24, dtype=np.float16).reshape(4, 6)[:, ::2]
    assert np.array_equal(rows.vectors(rows.with_vectors(table(4), made)), made.astype(np.float32))


def test_a_slice_has_the_vectors_of_its_own_rows() -> None:
    made = np.arange(20, dtype=np.float32).reshape(10, 2)
    full = rows.with_vectors(table(10), made)
    assert np.array_equal(rows.vectors(full.slice(3, 4)), made[3:7])
    assert np.array_equal(rows.vectors(full.slice(3, 0)), made[3:3])


def test_blocks_put_together_keep_their_vectors() -> None:
    made = np.arange(20, dtype=np.float32).reshape(10, 2)
    parts = [rows.with_vectors(table(n), made[low : low + n]) for low, n in ((0, 4), (4, 0), (4, 6))]
    assert np.array_equal(rows.vectors(pa.concat_tables(parts)), made)
