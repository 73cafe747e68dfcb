"""Shows the report of a run again: as text, as JSON, or as one page to look at."""

from __future__ import annotations

import argparse
from pathlib import Path

from ingest import report
from ingest.errors import ConfigError
from ingest.report import Report
from ingest.report_page import page
from ingest.state import Ledger, Operator, Run
from jobs import options
from jobs.ledger import opened

SIZE = "construct.tokens_from."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("run_id", nargs="?", default="latest", metavar="RUN", help="its id; default: the newest")
    parser.add_argument("--html", metavar="FILE", help="write the page there")


def run(args: argparse.Namespace) -> int:
    """Prints the report or writes the page, and returns 0."""
    config = options.load(args)
    with opened(config) as ledger:
        found = _found(ledger, args.run_id)
        data = dict(found.report or {})
        if args.html:
            samples = Operator(ledger).samples(found.run_id)
            Path(args.html).write_text(page(data, samples, chunk_sizes(ledger, found.run_id), config.chunk.size))
            print(f"{args.html}: report of {found.run_id}")
            return 0
    options.emit(args, data, report.text(Report(**data)))
    return 0


def _found(ledger: Ledger, run_id: str) -> Run:
    """The run, which has a report. Raises ConfigError that names those that have one."""
    known = [one for one in ledger.runs() if one.report]
    matching = known[-1:] if run_id == "latest" else [one for one in known if one.run_id == run_id]
    if not matching:
        last = ", ".join(one.run_id for one in known[-5:]) or "none"
        raise ConfigError(f"{run_id}: no report of such a run in the ledger; the last ones are {last}")
    return matching[0]


def chunk_sizes(ledger: Ledger, run_id: str) -> dict[int, int]:
    """Chunks that the run cut, by the tokens that a bin starts at."""
    stats = ledger.stats(run_id)
    return {int(name.removeprefix(SIZE)): int(value) for name, value in stats.items() if name.startswith(SIZE)}
