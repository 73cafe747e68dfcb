"""Brings the index in line with the bucket."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from ingest import report
from ingest.config import Config
from ingest.errors import ConfigError
from ingest.index import generations
from ingest.index.client import connect
from ingest.pipeline import backfill
from ingest.report import Report
from ingest.work import Run
from jobs import options
from jobs.running import Opened, Verb, add_run_id, carry_out


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
    parser.add_argument("--promote", action="store_true", help="let the alias serve this index if nothing is missing")
    add_run_id(parser)


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
    if args.promote:
        _require_whole_corpus(args, config)
        return carry_out(Verb("backfill", _body, at_the_end=_promoted), args, config, started)
    return carry_out(Verb("backfill", _body), args, config, started)


def _body(there: Opened) -> None:
    backfill(there.run, there.ledger, there.sink, there.ticker, there.skipped)


def _require_whole_corpus(args: argparse.Namespace, config: Config) -> None:
    """Readers must not be led to a part of the corpus because one run was narrowed. Raises ConfigError."""
    narrowed = [f"--{name}" for name in ("prefix", "limit", "since", "include", "exclude") if getattr(args, name)]
    narrowed += [f"source.{name}" for name in ("limit", "since") if getattr(config.source, name)]
    if narrowed:
        raise ConfigError(f"--promote is for a run over the whole corpus: leave out {', '.join(narrowed)}")


def _promoted(run: Run, result: Report) -> Report | None:
    """Lets the alias serve the run's index; the report that says why not, where that would harm readers."""
    if why := report.why_not_promoted(result.documents):
        return replace(result, warnings=[f"not promoted: {why}", *result.warnings])
    generations.promote(connect(run.config.index), run.config.index.alias, run.generation)
    return None
