"""The ledger as verbs open it that only look or order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ingest.config import Config
from ingest.errors import PreflightError
from ingest.runs import fingerprints_of
from ingest.state import Generation, Ledger


@contextmanager
def opened(config: Config) -> Iterator[Ledger]:
    """The ledger, brought to the newest schema."""
    ledger = Ledger(config.ledger.url)
    try:
        ledger.migrate()
        yield ledger
    finally:
        ledger.close()


def generation_of(config: Config, ledger: Ledger) -> Generation:
    """The generation that this configuration makes. Raises PreflightError where none was made yet."""
    if found := ledger.generation(config.index.alias, fingerprints_of(config)):
        return found
    known = ", ".join(one.name for one in ledger.generations(config.index.alias)) or "none"
    raise PreflightError(
        f"the ledger knows no index of this configuration under alias {config.index.alias} (it knows: {known}): run "
        "`ingest backfill` first, or use the configuration that made it"
    )
