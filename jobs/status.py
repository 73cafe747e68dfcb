"""Tells how far the runs are: documents by state, rates, time left, what failed and what can be run again."""

from __future__ import annotations

import argparse
import time

from ingest import status
from ingest.errors import ConfigError
from ingest.status import Status
from jobs import options
from jobs.ledger import generation_of, opened


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("--run", dest="run_id", help="only what this run works on")
    parser.add_argument("--watch", action="store_true", help="again and again until no run is live")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks")


def run(args: argparse.Namespace) -> int:
    """Prints and returns 0."""
    config = options.load(args)
    with opened(config) as ledger:
        generation = generation_of(config, ledger)
        if args.run_id and ledger.run(args.run_id) is None:
            known = ", ".join(one.run_id for one in ledger.runs()[-5:]) or "none"
            raise ConfigError(f"--run {args.run_id}: the ledger knows no such run; the last ones are {known}")
        while True:
            seen = status.look(ledger, generation, args.run_id)
            _show(args, seen)
            if not args.watch or status.is_over(seen):
                return 0
            time.sleep(args.every)


def _show(args: argparse.Namespace, seen: Status) -> None:
    options.emit(args, seen.as_json(), status.text(seen))
