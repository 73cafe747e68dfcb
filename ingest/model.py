"""Frozen types that flow through the engine, and every function that makes an identity.

Pages are counted from 1. Offsets are code points, ranges are half-open ``[start, end)``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# ---------------------------------------------------------------- identity


def encode(*parts: str) -> bytes:
    """Parts as netstrings (``5:hello,``), so that no two different tuples give the same bytes."""
    return b"".join(b"%d:%s," % (len(raw), raw) for raw in (part.encode() for part in parts))


def digest(*parts: str) -> str:
    """SHA-256 of the encoded parts: 64 hex digits."""
    return hashlib.sha256(encode(*parts)).hexdigest()


def version_of(version_id: str | None, etag: str) -> str:
    """The version that identity uses: the S3 version id, or ``null:<etag>`` where the bucket has none."""
    return version_id if version_id and version_id != "null" else f"null:{etag.strip(chr(34))}"


def document_id(bucket: str, key: str, version: str) -> str:
    """Id of one document version: 64 hex digits."""
    return digest(bucket, key, version)


def chunk_id(bucket: str, key: str, version: str, chunk_index: int) -> str:
    """Id of one chunk and its ``_id`` in the index: 64 hex digits. ``docs/index.md`` tells how to recompute it."""
    return digest(bucket, key, version, str(chunk_index))


def batch_id(chunk_ids: Iterable[str]) -> str:
    """Name of the call that embeds these chunks, in their order: 64 hex digits; a repeat has the same."""
    return digest(*chunk_ids)


def key_hash(bucket: str, key: str) -> str:
    """Id of a key over all its versions: 64 hex digits."""
    return digest(bucket, key)


def content_hash(header: str, text: str) -> str:
    """Hash of what is embedded: equal hash and equal embedder fingerprint mean an equal vector."""
    return digest(header, text)


def fingerprint(name: str, version: str, options: Mapping[str, Any]) -> str:
    """Short stable name of a component as configured: ``name-`` and 12 hex digits."""
    canonical = json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"{name}-{digest(name, version, canonical)[:12]}"


# ---------------------------------------------------------------- states


class State(StrEnum):
    """Life of a document version in one generation, strictly forward in this order; then the ends."""

    QUEUED = "queued"  # listed; nothing done yet (also: waits for capacity)
    ADMITTED = "admitted"  # taken by a run, lease running
    TRIAGING = "triaging"  # format, page count and segments are being found
    PARSING = "parsing"  # segments known, at least one not settled
    ASSEMBLING = "assembling"  # last segment settled
    CHUNKING = "chunking"  # one text, not yet cut
    EMBEDDING = "embedding"  # chunk count known, chunks on their way to a vector
    INDEXING = "indexing"  # first bulk of it answered
    VERIFYING = "verifying"  # all chunks sent, not yet counted
    READY = "ready"  # counted: found = expected
    PARTIAL = "partial"  # counted, but a segment or a chunk of it failed
    FAILED = "failed"  # nothing of it could be served
    UNSUPPORTED = "unsupported"  # poison: will never work as it is
    NEEDS_REVIEW = "needs_review"  # a person has to look; not served
    SUPERSEDED = "superseded"  # a newer version of the key took over
    DELETED = "deleted"  # the key's newest revision is a delete marker


FORWARD = (
    State.QUEUED,
    State.ADMITTED,
    State.TRIAGING,
    State.PARSING,
    State.ASSEMBLING,
    State.CHUNKING,
    State.EMBEDDING,
    State.INDEXING,
    State.VERIFYING,
)
IN_FLIGHT = tuple(state for state in FORWARD if state is not State.QUEUED)
ENDS = tuple(state for state in State if state not in FORWARD)
RANK = {state: rank for rank, state in enumerate(FORWARD)} | {state: len(FORWARD) for state in ENDS}


class Branch(StrEnum):
    """What "failed" means; decided in ``failure.py`` only."""

    TRANSIENT = "transient"  # same stage again, backoff with jitter
    ESCALATE = "escalate"  # another engine, at most two
    DEGRADE = "degrade"  # this unit is lost, the document goes on and ends partial
    HUMAN = "human"  # needs_review, not served
    POISON = "poison"  # unsupported, with a reason a user understands
    CAPACITY = "capacity"  # not an error: wait


# ---------------------------------------------------------------- source


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One row of an S3 version listing, or one S3 event. ``last_modified`` in seconds since 1970."""

    bucket: str
    key: str
    version_id: str
    etag: str
    size: int
    last_modified: float
    is_latest: bool = True
    is_delete_marker: bool = False

    @property
    def version(self) -> str:
        return version_of(self.version_id, self.etag)

    @property
    def document_id(self) -> str:
        return document_id(self.bucket, self.key, self.version)


@dataclass(frozen=True, slots=True)
class Document:
    """Reference to one document version on its way through the pipeline; never its bytes."""

    document_id: str
    bucket: str
    key: str
    version: str
    version_id: str
    revision: int
    size: int
    tenant: str = ""
    principals: tuple[str, ...] = ()
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Segment:
    """A page range of a document: the unit that is parsed, retried and settled. ``number`` counts from 0."""

    document: Document
    number: int
    total: int
    page_from: int
    page_to: int
    format: str
    lane: str = "plain"


# ---------------------------------------------------------------- parsed


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, heading, table, list or code block as the engine found it; ``bbox`` in points, origin top left."""

    kind: str  # text | heading | table | code | list
    text: str
    level: int = 0  # heading level from 1; 0 otherwise
    bbox: tuple[float, float, float, float] | None = None
    hidden: bool = False  # invisible on the page (render mode 3, background colour)


@dataclass(frozen=True, slots=True)
class Page:
    """One page's blocks in reading order."""

    number: int
    blocks: tuple[Block, ...]
    width: float = 0.0
    height: float = 0.0
    quality: float = 1.0
    notes: tuple[str, ...] = ()  # named reasons for a quality below 1


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with one unit: the reason slug, a sentence a person understands, and the branch taken."""

    branch: Branch
    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ParsedSegment:
    """What an engine made of a segment; stored once as an artifact."""

    document_id: str
    number: int
    page_from: int
    page_to: int
    pages: tuple[Page, ...]
    engine: str
    parser: str  # fingerprint
    title: str = ""
    outline: tuple[tuple[int, str, int], ...] = ()  # (level, title, page), of the whole document
    failed_pages: tuple[tuple[int, Failure], ...] = ()
    repairs: int = 0  # characters removed or replaced (lone surrogates, NUL, …)
    edition: int = 0  # how often failed pages of it were read again


# ---------------------------------------------------------------- assembled and chunked


@dataclass(frozen=True, slots=True)
class Span:
    """``text[start:end]`` of an assembled document on one page; ``kind`` and ``level`` as in ``Block``."""

    start: int
    end: int
    kind: str
    page: int
    level: int = 0
    bbox: tuple[float, float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """One document as one text.

    ``text`` is NFKC. ``flow_end`` splits it: before it the text that is chunked, behind it what is kept but never
    chunked (running headers and footers, hidden text), so chunks run across page borders with exact offsets.
    ``spans`` are the blocks of the flow in order, ``marked`` those behind it. ``page_starts[i]`` is where the flow of
    page ``pages[i]`` begins. ``raw_offsets`` are (offset in ``text``, offset in the text before NFKC) breakpoints.
    """

    document: Document
    text: str
    flow_end: int
    spans: tuple[Span, ...]
    marked: tuple[Span, ...] = ()
    pages: tuple[int, ...] = ()
    page_starts: tuple[int, ...] = ()
    page_count: int = 0
    title: str = ""
    language: str = ""
    repairs: int = 0
    raw_offsets: tuple[tuple[int, int], ...] = ((0, 0),)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A child chunk: ``text == assembled.text[start:end]``. ``tokens`` counts header, text and special tokens."""

    index: int
    start: int
    end: int
    text: str
    page_from: int
    page_to: int
    headings: tuple[str, ...]
    header: str
    tokens: int
    unknown_tokens: int = 0
    parent_id: str = ""


@dataclass(frozen=True, slots=True)
class IndexChunk:
    """A chunk with all that goes into the index; its vector only where that was there already."""

    chunk_id: str
    document: Document
    chunk: Chunk
    chunk_count: int
    content_hash: str
    title: str
    language: str
    vector: bytes = b""  # float32, of equal text under an equal embedder; empty: to be embedded


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one document's chunks in one bulk call."""

    document_id: str
    written: int = 0
    superseded: int = 0
    failed: int = 0
    is_last: bool = False  # no further chunk of it is on its way


@dataclass(frozen=True, slots=True)
class ChunkFailure:
    """One chunk that can not be served: goes to the dead letters."""

    chunk_id: str
    document_id: str
    stage: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Names of the components that decide what an index holds."""

    parser: str
    chunker: str
    embedder: str
    mapping: str
    extra: Mapping[str, Any] = field(default_factory=dict)
