"""Short ways to bring a ledger into a situation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingest.config import SourceConfig
from ingest.model import Document, Fingerprints, ObjectVersion, State
from ingest.state import (
    ConstructRecord,
    Generation,
    Ledger,
    Operator,
    Plan,
    Selection,
    Settled,
    Settlement,
    Verified,
)

GEN = "documents-recursive-1"
PARSER = "parser-000000000001"
FINGERPRINTS = Fingerprints(PARSER, "chunker-1", "embedder-1", "mapping-1")
LATEST = SourceConfig(bucket="b", tenant="t", principals=("staff",))
ALL = SourceConfig(bucket="b", tenant="t", principals=("staff",), all_versions=True)


def version(key: str, number: int, *, at: float | None = None, latest: bool = True, size: int = 100) -> ObjectVersion:
    """Version ``v<number>`` of a key, written at second ``number`` unless said otherwise."""
    return ObjectVersion(
        "b", key, f"v{number}", f"etag-{key}-{number}", size, float(number if at is None else at), latest
    )


def marker(key: str, number: int) -> ObjectVersion:
    """A delete marker that is the newest of its key."""
    return ObjectVersion("b", key, f"v{number}", "", 0, float(number), True, True)


def add_generation(ledger: Ledger, name: str = GEN) -> None:
    """One of the same parser; another name has another mapping."""
    prints = FINGERPRINTS if name == GEN else replace(FINGERPRINTS, mapping=f"mapping-{name}")
    ledger.add_generation(Generation(name, "documents", prints, "uuid-1"))


def admitted(ledger: Ledger, *versions: ObjectVersion, run_id: str = "run-1") -> list[Document]:
    """Listed and taken by a run."""
    add_generation(ledger)
    if ledger.run(run_id) is None:
        ledger.start_run(run_id, "backfill", "host:1:1", "config-1")
    ledger.admit(GEN, versions, LATEST)
    return ledger.take(GEN, run_id, 1000, 3600)


def plan_of(document_id: str, segments: int) -> Plan:
    ranges = tuple((20 * n + 1, 20 * n + 20) for n in range(segments))
    return Plan(document_id, "pdf", "plain", 20 * segments, ranges, "Title")


def settle_all(ledger: Ledger, document_id: str, segments: int) -> list[Settled]:
    settlements = [Settlement(document_id, n, engine="pymupdf", artifact=f"a/{n}") for n in range(segments)]
    return ledger.settle(GEN, PARSER, settlements)


def constructed(ledger: Ledger, document_id: str, chunks: int, segments: int = 1) -> None:
    """Parsed, cut, and on its way to the index."""
    ledger.plan(GEN, PARSER, [plan_of(document_id, segments)])
    settle_all(ledger, document_id, segments)
    ledger.record_chunks(GEN, ConstructRecord(document_id, chunks, tokens=10 * chunks))


def ready(ledger: Ledger, documents: Sequence[Document], chunks: int = 3) -> None:
    for document in documents:
        constructed(ledger, document.document_id, chunks)
        assert ledger.verified(GEN, [Verified(document.document_id, chunks)]) == {document.document_id: State.READY}


def open_segments(ledger: Ledger, document_id: str) -> tuple[int, ...]:
    """Segments that are not settled, or the closing one where all are."""
    found = ledger.planned(PARSER, [document_id]).get(document_id)
    return found.open_numbers if found else ()


def redriven(ledger: Ledger, selection: Selection | None = None, run_id: str = "again") -> int:
    """How many documents a redrive of this selection puts back into the queue."""
    operator = Operator(ledger)
    pages = operator.units(GEN, selection or Selection())
    return sum(operator.redrive(GEN, units, run_id) for units in pages)


def state_of(ledger: Ledger, document_id: str, generation: str = GEN) -> State:
    """The state that the document's history ends in."""
    return [change.to_state for change in ledger.history(document_id) if change.generation == generation][-1]
