"""The six branches: the only place that decides what "failed" means.

``REASONS`` is the whole table; ``docs/failures.md`` is printed from it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ingest.errors import StoreThrottled, StoreUnavailable, UnitError
from ingest.model import Branch, Failure, State

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reason:
    """A row of the table: what it means and what a person can do."""

    branch: Branch
    sentence: str


REASONS: dict[str, Reason] = {
    # poison: the document will never work as it is; first attempt, no second engine
    "password_required": Reason(Branch.POISON, "The file is locked with a password. Upload a copy without one."),
    "not_a_pdf": Reason(Branch.POISON, "The name says PDF, the content does not. Upload the right file."),
    "truncated": Reason(Branch.POISON, "The file ends too early, probably a broken upload. Upload it again."),
    "empty_file": Reason(Branch.POISON, "The file has no bytes. Upload it again."),
    "unsupported_type": Reason(Branch.POISON, "This kind of file can not be read yet."),
    "zip_bomb": Reason(Branch.POISON, "The file grows beyond all bounds when unpacked."),
    "too_large": Reason(Branch.POISON, "The file is over the configured limit."),
    "corrupt_file": Reason(Branch.POISON, "The file is damaged. Upload a good copy."),
    "macro_only": Reason(Branch.POISON, "The workbook holds macros and no data."),
    "external_content_only": Reason(Branch.POISON, "The content lies in another file that is not here."),
    # human: not served until a person looks
    "no_text": Reason(Branch.HUMAN, "No words were found: blank pages or drawings."),
    "no_ocr_engine": Reason(Branch.HUMAN, "No selectable text, and no OCR engine is installed."),
    "unmapped_glyphs": Reason(
        Branch.HUMAN, "The font does not say which letters it draws; the text would be nonsense."
    ),
    "garbled_text": Reason(Branch.HUMAN, "The text looks like nonsense."),
    "reversed_text": Reason(Branch.HUMAN, "Right-to-left text came out reversed."),
    # degrade: this unit is lost, its document goes on
    "timeout": Reason(Branch.DEGRADE, "Reading these pages took longer than allowed."),
    "engine_crashed": Reason(Branch.DEGRADE, "The engine crashed on these pages."),
    "actor_died": Reason(
        Branch.DEGRADE, "The process that worked on this died each time, and only then; its log may say why."
    ),
    "out_of_memory": Reason(Branch.DEGRADE, "Reading these pages took more memory than allowed."),
    "pages_missing": Reason(Branch.DEGRADE, "The engine gave back fewer pages than there are."),
    "empty_segment": Reason(Branch.DEGRADE, "No text came out where text was expected."),
    "bad_vector": Reason(Branch.DEGRADE, "The model gave a vector with NaN, infinity or only zeros."),
    "embed_failed": Reason(Branch.DEGRADE, "The model failed on this text while it answered for others."),
    "mapping_rejected": Reason(Branch.DEGRADE, "The index refused this chunk's fields."),
    "chunk_too_large": Reason(Branch.DEGRADE, "This chunk alone is larger than the index takes."),
    # transient: the same again later
    "source_unavailable": Reason(Branch.TRANSIENT, "The object store could not be reached."),
    "index_unavailable": Reason(Branch.TRANSIENT, "The index could not be reached long enough."),
    "index_throttled": Reason(Branch.TRANSIENT, "The index kept answering 429."),
    "embed_unavailable": Reason(Branch.TRANSIENT, "The embedder could not be reached or failed."),
    "chunks_missing": Reason(Branch.TRANSIENT, "Fewer chunks were found in the index than expected."),
    "internal_error": Reason(Branch.TRANSIENT, "An unexpected error in the engine; see the log."),
    # there, but not to be had before a person acts
    "archived": Reason(Branch.TRANSIENT, "The object is in an archive storage class. Restore it, then run again."),
    # the version is gone: nothing to do
    "version_gone": Reason(Branch.POISON, "This version does not exist any more."),
    # capacity: no error
    "capacity": Reason(Branch.CAPACITY, "Waits for free capacity."),
}


def table() -> str:
    """``REASONS`` as a Markdown table."""
    rows = [f"| `{slug}` | {reason.branch} | {reason.sentence} |" for slug, reason in REASONS.items()]
    return "\n".join(["| reason | branch | what it says |", "|---|---|---|", *rows])


def classify(error: BaseException) -> Failure:
    """The branch, slug and sentence of an error; what nobody foresaw is ``internal_error``."""
    if isinstance(error, UnitError) and error.reason in REASONS:  # an engine of the user's may make one up
        return failure(error.reason, error.detail)
    if isinstance(error, StoreThrottled):
        return failure("index_throttled", str(error))
    if isinstance(error, StoreUnavailable):
        return failure("index_unavailable", str(error))
    return failure("internal_error", f"{type(error).__name__}: {error}")


def failure(slug: str, detail: str = "") -> Failure:
    """A failure of the table's row ``slug``, with ``detail`` behind the sentence."""
    reason = REASONS[slug]
    return Failure(reason.branch, slug, f"{reason.sentence} ({detail})" if detail else reason.sentence)


def end_state(what: Failure) -> State:
    """Where a document ends that has nothing to serve because of this failure."""
    return {Branch.POISON: State.UNSUPPORTED, Branch.HUMAN: State.NEEDS_REVIEW}.get(what.branch, State.FAILED)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: the n-th pause is uniform in [0, min(cap_s, base_s * 2**n)]; ends when ``budget_s`` is spent."""

    base_s: float = 0.5
    cap_s: float = 60.0
    budget_s: float = 1800.0

    def pauses(self, draw: Callable[[], float] = random.random) -> Iterator[float]:
        """Seconds to sleep before each further try, until their sum would pass the budget."""
        spent, bound = 0.0, self.base_s
        while True:
            pause = draw() * bound
            if spent + pause > self.budget_s:
                return
            spent += pause
            bound = min(self.cap_s, bound * 2)
            yield pause


class Breaker:
    """Keeps callers off a service that is down; thread-safe.

    After ``threshold`` calls in a row without an answer nobody calls for ``cool_s``, longer each time, up to ``cap_s``.
    Then one caller may try; an answer lets all through again.
    """

    def __init__(self, threshold: int = 3, cool_s: float = 1.0, cap_s: float = 30.0) -> None:
        self._threshold = threshold
        self._cool_s = cool_s
        self._cap_s = cap_s
        self._failed = 0
        self._until = 0.0
        self._lock = threading.Lock()

    def wait(self, now: float) -> float:
        """Seconds after which to ask again, 0 for a caller who may call now."""
        with self._lock:
            if self._failed < self._threshold:
                return 0.0
            if now < self._until:
                return self._until - now
            self._until = now + self._pause_s()  # for the others: this one tries
            return 0.0

    def failed(self, now: float) -> None:
        """A call got no answer."""
        with self._lock:
            self._failed += 1
            self._until = now + self._pause_s()

    def passed(self) -> None:
        """The service answered, whatever it said."""
        with self._lock:
            self._failed = 0

    def _pause_s(self) -> float:
        return float(min(self._cap_s, self._cool_s * 2.0 ** max(0, self._failed - self._threshold)))

    def through(
        self,
        call: Callable[[], T],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> T:
        """The result of ``call``, made when it is this caller's turn; StoreUnavailable counts as no answer."""
        while wait := self.wait(clock()):
            sleep(wait)
        try:
            result = call()
        except StoreUnavailable:
            self.failed(clock())
            raise
        self.passed()
        return result


def with_retries(
    call: Callable[[], T],
    backoff: Backoff,
    sleep: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
    passing: tuple[type[Exception], ...] = (StoreThrottled, StoreUnavailable),
) -> T:
    """The result of ``call``, tried again on the ``passing`` errors until the budget is spent.

    The budget counts the calls' own time too: against a server that hangs, the pauses are the smaller part. What a
    ``Retry-After`` asks for is waited for up to ``cap_s``.
    """
    end = clock() + backoff.budget_s
    for pause in backoff.pauses():
        try:
            return call()
        except passing as error:
            wait = max(pause, min(backoff.cap_s, getattr(error, "retry_after_s", 0.0)))
            if clock() + wait > end:
                raise
            sleep(wait)
    return call()
