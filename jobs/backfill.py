"""Brings the index in line with the bucket."""

from __future__ import annotations

import argparse
import signal
import time
from functools import partial

from ingest import preflight, report
from ingest.pipeline import backfill, start_ray
from ingest.progress import Ticker
from ingest.runs import new_run_id, opened
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("--prefix", help="only keys that start with this")
    parser.add_argument("--limit", type=int, help="at most this many document versions")
    parser.add_argument("--since", help="only versions modified at or after this ISO date")
    parser.add_argument("--include", action="append", help="glob a key must match; may be repeated")
    parser.add_argument("--exclude", action="append", help="glob whose keys are left out; may be repeated")
    parser.add_argument("--all-versions", action="store_const", const=True, help="index older versions too")
    parser.add_argument("--run-id", help="name of the run; default: verb, time and four hex digits")


def run(args: argparse.Namespace) -> int:
    """Runs the job and returns its exit code."""
    started = time.monotonic()
    config = options.load(
        args,
        source__prefix=args.prefix,
        source__limit=args.limit,
        source__since=args.since,
        source__include=args.include,
        source__exclude=args.exclude,
        source__all_versions=args.all_versions,
    )
    preflight.require(config)
    start_ray()
    signal.signal(signal.SIGTERM, _interrupt)  # after ray.init: a handler set before is replaced
    run_id = args.run_id or new_run_id("backfill")
    say = partial(print, flush=True)
    with opened(config, "backfill", run_id) as (run, ledger, sink):
        ticker = Ticker(run, ledger, say)
        skipped = backfill(run, ledger, sink, ticker)
        ledger.add_stats(run_id, ticker.stats.drain())
        result = report.build(run, ledger, skipped, started)
        ledger.end_run(run_id, "ended", result.as_json())
    options.emit(args, result.as_json(), report.text(result))
    return result.exit_code


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
