"""Goes on where dead runs stood, and where the index holds another number of chunks than it should; lists nothing."""

from __future__ import annotations

import argparse
import time

from ingest.config import Config
from ingest.model import State
from ingest.pipeline import go_on
from ingest.runs import is_alive
from ingest.state import Operator
from jobs import options
from jobs.ledger import generation_of, opened
from jobs.running import Opened, Verb, add_run_id, carry_out

MEANING = {
    State.ASSEMBLING: "last segment settled, not assembled",
    State.CHUNKING: "assembled, not cut",
    State.EMBEDDING: "cut, not wholly embedded",
    State.INDEXING: "not wholly written",
    State.VERIFYING: "written, not verified",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("--dry-run", action="store_true", help="tell what dead runs left, and end")
    add_run_id(parser)


def run(args: argparse.Namespace) -> int:
    """Works on what was left and returns the job's exit code; with ``--dry-run`` tells it and returns 0."""
    started = time.monotonic()
    config = options.load(args)
    if args.dry_run:
        found = _left(config)
        options.emit(args, found, _told(found))
        return 0
    return carry_out(Verb("reconcile", _body), args, config, started)


def _body(there: Opened) -> None:
    go_on(there.run, there.ledger, there.sink, there.ticker)


def _left(config: Config) -> dict[str, int]:
    with opened(config) as ledger:
        found = Operator(ledger).orphans(generation_of(config, ledger).name, is_alive)
    return {state.value: found[state] for state in State if state in found}


def _told(found: dict[str, int]) -> str:
    if not found:
        return "no dead run left a document"
    rows = [f"  {state:<11}{number:>9,}  {MEANING.get(State(state), 'not parsed')}" for state, number in found.items()]
    return "\n".join([f"dead runs left {sum(found.values()):,} documents, where `ingest reconcile` goes on:", *rows])
