"""What hypothesis makes of our types."""

from __future__ import annotations

from hypothesis import strategies as st

from ingest.failure import REASONS, failure
from ingest.model import Block, Chunk, Document, IndexChunk, Page, ParsedSegment, Receipt, Segment

TEXT = st.text(max_size=20)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNT = st.integers(0, 2**31 - 1)
POINTS = st.floats(-1e6, 1e6, allow_nan=False)
FAILURES = st.builds(failure, st.sampled_from(sorted(REASONS)), TEXT)

DOCUMENTS = st.builds(
    Document,
    document_id=HEX,
    bucket=TEXT,
    key=TEXT,
    version=TEXT,
    version_id=TEXT,
    revision=st.integers(0, 2**63 - 1),
    size=st.integers(0, 2**63 - 1),
    tenant=TEXT,
    principals=st.lists(TEXT, max_size=3).map(tuple),
    attempt=COUNT,
)
SEGMENTS = st.builds(
    Segment,
    document=DOCUMENTS,
    number=COUNT,
    total=COUNT,
    page_from=COUNT,
    page_to=COUNT,
    format=TEXT,
    lane=TEXT,
)
CHUNKS = st.builds(
    Chunk,
    index=COUNT,
    start=st.integers(0, 2**62),
    end=st.integers(0, 2**62),
    text=TEXT,
    page_from=COUNT,
    page_to=COUNT,
    headings=st.lists(TEXT, max_size=3).map(tuple),
    header=TEXT,
    tokens=COUNT,
    unknown_tokens=COUNT,
    parent_id=TEXT,
)
INDEX_CHUNKS = st.builds(
    IndexChunk,
    chunk_id=HEX,
    document=DOCUMENTS,
    chunk=CHUNKS,
    chunk_count=COUNT,
    content_hash=HEX,
    title=TEXT,
    language=TEXT,
)
RECEIPTS = st.builds(Receipt, document_id=HEX, written=COUNT, superseded=COUNT, failed=COUNT)

BLOCKS = st.builds(
    Block,
    kind=st.sampled_from(["text", "heading", "table", "code", "list"]),
    text=TEXT,
    level=st.integers(0, 6),
    bbox=st.none() | st.tuples(POINTS, POINTS, POINTS, POINTS),
    hidden=st.booleans(),
)
PAGES = st.builds(
    Page,
    number=COUNT,
    blocks=st.lists(BLOCKS, max_size=3).map(tuple),
    width=POINTS,
    height=POINTS,
    quality=st.floats(0, 1),
    notes=st.lists(TEXT, max_size=2).map(tuple),
)
PARSED_SEGMENTS = st.builds(
    ParsedSegment,
    document_id=HEX,
    number=st.integers(0, 99_999),
    page_from=COUNT,
    page_to=COUNT,
    pages=st.lists(PAGES, max_size=3).map(tuple),
    engine=TEXT,
    parser=st.just("parse-0123456789ab"),
    title=TEXT,
    outline=st.lists(st.tuples(COUNT, TEXT, COUNT), max_size=2).map(tuple),
    failed_pages=st.lists(st.tuples(COUNT, FAILURES), max_size=2).map(tuple),
    repairs=COUNT,
)
