"""What goes into the ledger and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ingest.model import Document, Failure, Fingerprints, State


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job. ``owner`` is ``host:pid:start-time``; ``state`` is running, dead, or what it ended as."""

    run_id: str
    verb: str
    owner: str
    state: str
    config_fingerprint: str
    started_at: float
    ended_at: float | None
    report: Mapping[str, Any] | None
    stop_reason: str


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of the versions of a listing page; the counts add up to them."""

    new: int = 0
    known: int = 0
    older: int = 0
    deleted: int = 0
    retried: int = 0

    def __add__(self, other: Admission) -> Admission:
        return Admission(
            self.new + other.new,
            self.known + other.known,
            self.older + other.older,
            self.deleted + other.deleted,
            self.retried + other.retried,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """How a document is to be parsed: ``segments`` are (page_from, page_to), from page 1, both inclusive."""

    document_id: str
    format: str
    lane: str
    pages: int
    segments: tuple[tuple[int, int], ...]
    title: str = ""
    content_hash: str = ""  # sha256 of the version's bytes


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment as the ledger knows it; ``state`` is open, parsed or failed."""

    document_id: str
    number: int
    page_from: int
    page_to: int
    state: str
    ordinal: int | None
    engine: str
    artifact: str
    failure: Failure | None
    failed_pages: tuple[tuple[int, Failure], ...]
    quality: float | None
    repairs: int
    transient_retries: int = 0
    escalations: int = 0
    seconds: float = 0.0
    edition: int = 0  # how often failed pages of it were read again

    @property
    def settlement(self) -> Settlement:
        """What it was settled with."""
        own = [field.name for field in fields(Settlement)]
        return Settlement(**{name: getattr(self, name) for name in own})


@dataclass(frozen=True, slots=True)
class Planned:
    """A stored plan and how far it got; ``segments[number]`` is (page_from, page_to), ``rows[number]`` all of it."""

    document_id: str
    format: str
    lane: str
    pages: int
    title: str
    settled: int
    rows: tuple[SegmentRow, ...]

    @property
    def segments(self) -> tuple[tuple[int, int], ...]:
        return tuple((row.page_from, row.page_to) for row in self.rows)

    @property
    def open_numbers(self) -> tuple[int, ...]:
        """Segments to work on: those not settled, or the closing one where all are, so that it carries on."""
        if self.settled < len(self.rows):
            return tuple(row.number for row in self.rows if row.ordinal is None)
        return tuple(row.number for row in self.rows if row.ordinal == len(self.rows))


@dataclass(frozen=True, slots=True)
class Settlement:
    """A segment reached its end: parsed where ``failure`` is None."""

    document_id: str
    number: int
    failure: Failure | None = None
    engine: str = ""
    artifact: str = ""
    failed_pages: tuple[tuple[int, Failure], ...] = ()
    quality: float | None = None
    repairs: int = 0
    transient_retries: int = 0
    escalations: int = 0
    seconds: float = 0.0  # that the engine took, the fetch included


@dataclass(frozen=True, slots=True)
class Settled:
    """The stored answer to a settlement: as which of ``total`` the segment settled, the same at every repeat."""

    document_id: str
    number: int
    ordinal: int
    total: int

    @property
    def is_closer(self) -> bool:
        """Whether this segment carries its document on."""
        return self.ordinal == self.total


@dataclass(frozen=True, slots=True)
class ConstructRecord:
    """What construct made of a document; ``unchanged`` chunks are in the index already as they should be."""

    document_id: str
    chunk_count: int
    unchanged: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    language: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """The chunks of one embed call: how many of each document, and of how many items index lost track or hope."""

    batch_id: str
    shares: Mapping[str, int]
    failed_items: int = 0

    @property
    def chunks(self) -> int:
        return sum(self.shares.values())


@dataclass(frozen=True, slots=True)
class Pending:
    """A document that waits to be counted; ``failed_segments`` has those with a failed page too."""

    document: Document
    chunk_count: int
    failed_chunks: int
    failed_segments: int
    segments: int


@dataclass(frozen=True, slots=True)
class Verified:
    """How many chunks of a document a refreshed count found in the index."""

    document_id: str
    found: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One chunker, embedder and mapping; ``name`` is its physical index, ``uuid`` that index's own id."""

    name: str
    alias: str
    fingerprints: Fingerprints
    uuid: str
    state: str = "building"
    created_at: float = 0.0


# ---------------------------------------------------------------- reports


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a document's history; ``from_state`` is None where the job was made."""

    generation: str
    from_state: State | None
    to_state: State
    at: float
    run_id: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class SegmentCount:
    """Segments in one state (open, parsed, failed), by engine."""

    state: str
    engine: str
    segments: int
    pages: int
    transient_retries: int
    escalations: int


@dataclass(frozen=True, slots=True)
class FailureRow:
    """One failed unit: ``unit`` is document, segment, page or chunk; pages are 0 where they do not apply."""

    unit: str
    document_id: str
    key: str
    version: str
    failure: Failure
    page_from: int = 0
    page_to: int = 0
    chunk_id: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """A document of which the index should hold ``chunk_count - failed_chunks`` chunks."""

    document_id: str
    bucket: str
    key: str
    version: str
    revision: int
    chunk_count: int
    failed_chunks: int


@dataclass(frozen=True, slots=True)
class Slow:
    """A document and the seconds that parsing its segments took, summed up."""

    document_id: str
    key: str
    seconds: float
    pages: int
    chunks: int


@dataclass(frozen=True, slots=True)
class UnknownShare:
    """A document and the share of its tokens that the embedder does not know."""

    document_id: str
    key: str
    share: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A run's counters at a moment (seconds since 1970), cumulative; those named ``now.…`` as they are."""

    at: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when (seconds since 1970), by whom and why all runs of an alias wait."""

    since: float
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Oldest:
    """The document in flight that was taken first."""

    key: str
    version: str
    state: State
    run_id: str
    taken_at: float


@dataclass(frozen=True, slots=True)
class JobRow:
    """One document version in one generation, as the ledger knows it; times in seconds since 1970."""

    document_id: str
    key: str
    version: str
    revision: int
    is_newest: bool
    is_delete_marker: bool
    size: int
    state: State | None  # None: listed, but never to be indexed
    attempt: int
    run_id: str
    lease_until: float | None
    failure: Failure | None
    chunk_count: int | None
    failed_chunks: int
    found: int | None
    stale: bool
    principals: tuple[str, ...]
    tenant: str
    language: str
