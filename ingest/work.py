"""What every stage of one run knows and does alike."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from ingest import failure, observe
from ingest.config import Config
from ingest.errors import StoreRefused
from ingest.model import Document, Failure, Fingerprints
from ingest.state import Ledger


@dataclass(frozen=True, slots=True)
class Run:
    """What every stage of one run knows."""

    run_id: str
    config: Config
    generation: str  # name of the physical index
    fingerprints: Fingerprints

    @property
    def listed_by(self) -> str:
        """The run itself where it works on what its own listing named, empty where on all that is queued."""
        return self.run_id if self.config.source.is_narrowed else ""


def hand_over(ledger: Ledger, run: Run, stats: observe.Stats) -> None:
    """Adds the process's counters to those of the run."""
    ledger.add_stats(run.run_id, stats.drain())


def end_document(ledger: Ledger, run: Run, document: Document, what: Failure) -> None:
    """Ends a document that has nothing to serve; an older version that serves stays and is marked stale."""
    observe.event("document.ended", level=logging.WARNING, key=document.key, reason=what.reason, sentence=what.sentence)
    ledger.end(run.generation, document.document_id, failure.end_state(what), what)


class Stop:
    """Whether the run is to stop: because this process met a refusal, or because the ledger says so."""

    def __init__(self, ledger: Ledger, run: Run, every_s: float = 5.0) -> None:
        self._ledger = ledger
        self._run = run
        self._every_s = every_s
        self._asked_at = float("-inf")
        self._is_set = False

    def is_set(self) -> bool:
        """Asks the ledger every ``every_s`` seconds at most; once true it stays true."""
        now = time.monotonic()
        if not self._is_set and now - self._asked_at >= self._every_s:
            self._asked_at = now
            self._is_set = bool(self._ledger.stop_reason(self._run.run_id))
        return self._is_set

    def set(self, stage: str, error: StoreRefused) -> None:
        """Stops the run for every process; no document is blamed."""
        self._is_set = True
        observe.event(f"{stage}.run_stopped", level=logging.CRITICAL, error=str(error))
        self._ledger.stop_run(self._run.run_id, str(error))


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
