"""What every stage of one run knows and does alike."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from ingest import failure, observe
from ingest.config import Config
from ingest.model import Document, Failure, Fingerprints
from ingest.state import Ledger


@dataclass(frozen=True, slots=True)
class Run:
    """What every stage of one run knows."""

    run_id: str
    config: Config
    generation: str  # name of the physical index
    fingerprints: Fingerprints


def hand_over(ledger: Ledger, run: Run, stats: observe.Stats) -> None:
    """Adds the process's counters to those of the run."""
    ledger.add_stats(run.run_id, stats.drain())


def end_document(ledger: Ledger, run: Run, document: Document, what: Failure) -> None:
    """Ends a document that has nothing to serve; an older version that serves stays and is marked stale."""
    observe.event("document.ended", level=logging.WARNING, key=document.key, reason=what.reason, sentence=what.sentence)
    ledger.end(run.generation, document.document_id, failure.end_state(what), what)


class InFlight:
    """Counts the calls that run at the same time in this process and keeps the peak."""

    def __init__(self, stats: observe.Stats, name: str) -> None:
        self._stats = stats
        self._name = name
        self._lock = threading.Lock()
        self._now = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self._stats.peak(self._name, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1
