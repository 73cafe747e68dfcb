"""What a person watches while a run goes on: a line every few seconds, and the verify windows behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from ingest import metrics
from ingest.errors import IngestError, StoreRefused, StoreThrottled, StoreUnavailable
from ingest.failure import Backoff, with_retries
from ingest.model import ENDS, Receipt
from ingest.observe import Stats, duration, event
from ingest.state import Ledger, Pause, Sample
from ingest.state.mirror import Mirror, push
from ingest.verify import Verifier
from ingest.work import Run, hand_over

LAST_TICK_S = 5.0  # what a tick gets to end when the run breaks off
PAUSE_POLL_S = 2.0
AT_ONCE = Backoff(budget_s=0.0)
LINE_PAUSES = 20  # times what a line cost: counting 10^7 documents takes seconds, and must not be all that is done


class Ticker:
    """Every ``verify.every_s`` seconds verifies what was written and says how far the run is."""

    def __init__(self, run: Run, ledger: Ledger, say: Callable[[str], None], started: float) -> None:
        self.stats = Stats()
        self._run = run
        self._ledger = ledger
        self._say = say
        self._lock = threading.Lock()
        self._touched: set[str] = set()
        self._stopped: IngestError | None = None
        self._started = started  # of the job, by ``time.monotonic``
        self._first_chunk = 0.0
        self._mirror = Mirror(run.config.mirror.table) if run.config.mirror.table else None
        self._next_line = 0.0

    def received(self, receipts: Sequence[Receipt]) -> None:
        """Notes which documents to verify next. Raises StoreRefused once a stage has stopped the run."""
        with self._lock:
            self._touched.update(receipt.document_id for receipt in receipts if receipt.is_last)
            if receipts and not self._first_chunk:
                self._first_chunk = time.monotonic() - self._started
                self.stats.peak("first_chunk_s", self._first_chunk)
        if self._stopped:
            raise self._stopped

    @contextmanager
    def watching(self, verifier: Verifier) -> Iterator[None]:
        """Ticks in a thread while the body runs."""
        done = threading.Event()
        thread = threading.Thread(target=self._loop, args=(verifier, done), name="ticker", daemon=True)
        thread.start()
        try:
            yield
        except BaseException:  # a Ctrl-C must not wait for a tick that waits for a server
            done.set()
            thread.join(LAST_TICK_S)
            raise
        done.set()
        thread.join()
        self._sample()
        self._ask_whether_to_stop()
        if self._stopped:
            raise self._stopped

    def wait_while_paused(self) -> None:
        """Returns when no operator's pause is on the alias. Raises StoreRefused once the run is to stop."""
        told: Pause | None = None
        while pause := self._ledger.paused(self._run.config.index.alias):
            if pause != told:
                self._say(
                    f"paused by {pause.who}{f': {pause.why}' if pause.why else ''}; `ingest resume` lets it go on"
                )
            told = pause
            time.sleep(PAUSE_POLL_S)
            self._ask_whether_to_stop()
            if self._stopped:
                raise self._stopped

    def _loop(self, verifier: Verifier, done: threading.Event) -> None:
        while not done.wait(self._run.config.verify.every_s):
            try:
                self._tick(verifier)
            except (
                StoreUnavailable,
                StoreThrottled,
            ) as error:  # the next tick asks again; the last word is spoken after the window
                event("verify.unavailable", level=30, error=str(error))
            except IngestError as error:
                self._stopped = error

    def _tick(self, verifier: Verifier) -> None:
        with self._lock:
            touched, self._touched = self._touched, set()
        if touched:
            verifier.window(touched)
            hand_over(self._ledger, self._run, self.stats)
        self.push_status()
        self._ask_whether_to_stop()
        if (began := time.monotonic()) >= self._next_line:
            self._say(self.line())
            self._sample()
            ended = time.monotonic()
            self._next_line = ended + LINE_PAUSES * (ended - began)

    def push_status(self, patience: Backoff = AT_ONCE) -> None:
        """Brings the status mirror up to date, if there is one; what it does not take now, a later push brings."""
        if self._mirror is None:
            return
        try:
            with_retries(partial(push, self._mirror, self._ledger, self._run.generation), patience, time.sleep)
        except IngestError as error:  # front ends see older states for a while; the index is not worse for it
            event("mirror.unavailable", level=30, error=str(error))

    def _sample(self) -> None:
        self._ledger.add_sample(self._run.run_id, Sample(time.time(), self._ledger.stats(self._run.run_id)))

    def _ask_whether_to_stop(self) -> None:
        if reason := self._ledger.stop_reason(self._run.run_id):
            self._stopped = StoreRefused(reason)

    def line(self) -> str:
        """One line: documents at an end, chunks written, rate, remaining time."""
        states = self._ledger.counts(self._run.generation, self._run.run_id)
        metrics.export({f"now.documents.{state}": number for state, number in states.items()})
        stats = self._ledger.stats(self._run.run_id)
        ended = sum(number for state, number in states.items() if state in ENDS)
        total = sum(states.values()) + self._ledger.queued(self._run.generation, self._run.listed_by)
        seconds = time.monotonic() - self._started
        written, left = stats.get("index.chunks", 0.0), chunks_left(stats, total)
        rate = written / max(1e-9, seconds - self._first_chunk) if written else 0.0
        eta = f", about {duration(left / rate)} left" if rate and left > 0 else ""
        return (
            f"{duration(seconds):>10}  {ended:,}/{total:,} documents, "
            f"{int(stats.get('parse.pages', 0)):,} pages parsed, {int(written):,} chunks indexed, {rate:.0f}/s{eta}"
        )


def chunks_left(stats: Mapping[str, float], documents: int) -> float:
    """Chunks still to write, from the chunks a parsed page gave so far and the pages known and guessed."""
    parsed, triaged = stats.get("parse.pages", 0.0), stats.get("triage.documents", 0.0)
    if not parsed or not triaged:
        return 0.0
    pages = stats.get("triage.pages", 0.0) * max(1.0, documents / triaged)
    return stats.get("construct.chunks", 0.0) / parsed * pages - stats.get("index.chunks", 0.0)
