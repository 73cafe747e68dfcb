"""Runs failed units again: of a document only the pages that failed, and no other document."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain

from ingest.config import Config
from ingest.errors import ConfigError
from ingest.failure import REASONS
from ingest.model import Branch, State
from ingest.pipeline import go_on
from ingest.state import Operator, Selection, Unit
from ingest.state.redriving import REDRIVEN
from jobs import options
from jobs.ledger import generation_of, opened
from jobs.running import Opened, Verb, add_run_id, carry_out

SHOWN = 40
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("key", nargs="*", metavar="KEY", help="only documents under these keys")
    parser.add_argument("--prefix", default="", help="only keys that start with this")
    parser.add_argument("--state", default="partial,failed", help=f"of {', '.join(REDRIVEN)}; several with commas")
    parser.add_argument("--branch", default="", help=f"of {', '.join(Branch)}; several with commas")
    parser.add_argument("--reason", default="", help="slugs as in docs/failures.md; several with commas")
    parser.add_argument("--since", default="", help="only what ended in this time, such as 90m, 2h or 7d")
    parser.add_argument("--segments", default="", help="only these segments, counted from 0, such as 2 or 0-3,7")
    parser.add_argument("--dry-run", action="store_true", help="list the units and end")
    add_run_id(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the units again and returns the job's exit code; with ``--dry-run`` lists them and returns 0."""
    started = time.monotonic()
    config, selection = options.load(args), selection_of(args, time.time())
    if args.dry_run:
        found = list(chain.from_iterable(_known_units(config, selection)))
        options.emit(args, [asdict(unit) for unit in found], "\n".join(lines(found)))
        return 0
    return carry_out(Verb("redrive", partial(_body, selection), is_narrowed=True), args, config, started)


def _body(selection: Selection, there: Opened) -> None:
    operator, run_ = Operator(there.ledger), there.run
    for units in operator.units(run_.generation, selection):
        if units:
            operator.redrive(run_.generation, units, run_.run_id)
    go_on(run_, there.ledger, there.sink, there.ticker)


def _known_units(config: Config, selection: Selection) -> Iterator[list[Unit]]:
    with opened(config) as ledger:
        yield from Operator(ledger).units(generation_of(config, ledger).name, selection)


def lines(found: Sequence[Unit]) -> Iterator[str]:
    """What ``--dry-run`` says."""
    documents = len({unit.document_id for unit in found})
    yield f"{len(found):,} failed units of {documents:,} documents would be run again"
    for unit in found[:SHOWN]:
        yield f"  {unit.state:<12} {unit.key}{_place(unit)}: {unit.failure.reason} ({unit.failure.branch})"
    if len(found) > SHOWN:
        yield f"  … --json lists all {len(found):,}"


def _place(unit: Unit) -> str:
    if unit.kind == "chunk":
        return f" chunk {unit.chunk_id[:12]}"
    if unit.page_from is None:
        return ""
    pages = f"page {unit.page_from}" if unit.page_from == unit.page_to else f"pages {unit.page_from}-{unit.page_to}"
    return f" segment {unit.segment}, {pages}"


# ---------------------------------------------------------------- what was asked for


def selection_of(args: argparse.Namespace, now: float) -> Selection:
    """The options as a selection; ``now`` in seconds since 1970. Raises ConfigError for a word that none has."""
    return Selection(
        states=tuple(State(word) for word in _words("--state", args.state, [str(state) for state in REDRIVEN])),
        branches=tuple(Branch(word) for word in _words("--branch", args.branch, [str(branch) for branch in Branch])),
        reasons=tuple(_words("--reason", args.reason, list(REASONS))),
        ended_since=now - _seconds(args.since) if args.since else 0.0,
        keys=tuple(args.key),
        prefix=args.prefix,
        segments=tuple(_numbers(args.segments)),
    )


def _words(option: str, text: str, known: Sequence[str]) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if wrong := [word for word in words if word not in known]:
        raise ConfigError(f"{option} {wrong[0]}: there is {', '.join(known)}")
    return words


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not found:
        raise ConfigError(f"--since {text}: a number with s, m, h or d is expected, such as 90m or 2h")
    return float(found[1]) * SECONDS[found[2]]


def _numbers(text: str) -> Iterator[int]:
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not found:
            raise ConfigError(f"--segments {text}: numbers or ranges are expected, such as 2 or 0-3,7")
        yield from range(int(found[1]), int(found[2] or found[1]) + 1)
