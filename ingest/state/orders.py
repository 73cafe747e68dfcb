"""What a person asks of the ledger and orders through it; what runs need of it is in ``Ledger``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from ingest.model import State
from ingest.state import life, redriving, reports, watching, windows
from ingest.state.ledger import Ledger
from ingest.state.records import JobRow, Oldest, Pause, Sample, Slow, UnknownShare
from ingest.state.redriving import Selection, Unit

DOCUMENTS_AT_ONCE = 500


class Operator:
    """A person in front of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # ------------------------------------------------------------ redrive

    def units(self, generation: str, selection: Selection) -> Iterator[list[Unit]]:
        """The failed units that are meant, page by page, all of a document in one page."""
        after = ""
        while True:
            found, after = self._ledger.ask(generation, redriving.units, selection, after, DOCUMENTS_AT_ONCE)
            yield found
            if not after:
                return

    def redrive(self, generation: str, units: Sequence[Unit], run_id: str) -> int:
        """How many documents of these units are queued for ``run_id``; of their segments only these are open."""
        return self._ledger.do(generation, redriving.redrive, units, run_id)

    # ------------------------------------------------------------ pause

    def pause(self, alias: str, who: str, why: str) -> bool:
        """Lets all runs of an alias wait; False where they do already, and the first pause stays."""
        return self._ledger.write(lambda connection: watching.pause(connection, alias, Pause(time.time(), who, why)))

    def resume(self, alias: str) -> bool:
        """Lets them go on; False where they were not waiting."""
        return self._ledger.write(lambda connection: watching.resume(connection, alias))

    # ------------------------------------------------------------ look

    def samples(self, run_id: str, since: float = 0.0) -> list[Sample]:
        """The run's counters over time, oldest first."""
        return self._ledger.read(lambda connection: watching.read_samples(connection, run_id, since))

    def reasons(self, generation: str, run_id: str | None = None) -> dict[str, int]:
        """Documents by the reason of their end, the commonest first."""
        return self._ledger.ask(generation, reports.failure_reasons, run_id)

    def served(self, generation: str, document_ids: Sequence[str]) -> set[str]:
        """Those of these documents that serve."""
        return self._ledger.ask(generation, life.served, document_ids)

    def oldest(self, generation: str) -> Oldest | None:
        """The document that is in flight longest, or None."""
        return self._ledger.ask(generation, life.oldest)

    def orphans(self, generation: str, is_alive: Callable[[str], bool]) -> dict[State, int]:
        """Documents that dead runs and lapsed leases left behind, by the state that they stand in."""
        return self._ledger.ask(generation, windows.orphans, *self._ledger.judged(is_alive))

    def to_retry(self, generation: str) -> int:
        """Segments of partial documents that failed, or of which a page did."""
        return self._ledger.ask(generation, life.to_retry)

    def versions(self, generation: str, key: str) -> list[JobRow]:
        """All versions of a key, newest first."""
        return self._ledger.ask(generation, life.versions, key)

    def slowest(self, generation: str, run_id: str | None = None, limit: int = 10) -> list[Slow]:
        """The documents whose segments took longest to parse."""
        return self._ledger.ask(generation, reports.slowest, run_id, limit)

    def unknown_token_shares(
        self, generation: str, run_id: str | None = None, above: float = 0.05
    ) -> list[UnknownShare]:
        """Documents of whose tokens more than ``above`` are unknown to the embedder, worst first."""
        return self._ledger.ask(generation, reports.unknown_token_shares, run_id, above)

    def unknown_token_count(self, generation: str, above: float = 0.05) -> int:
        """Documents of whose tokens more than ``above`` are unknown to the embedder."""
        return self._ledger.ask(generation, reports.unknown_token_count, above)
