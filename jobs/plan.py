"""Estimates a backfill before it is started: documents, pages, chunks, hours, index size and cost; writes nothing."""

from __future__ import annotations

import argparse
import sys

from ingest import plan
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("--prefix", help="only keys that start with this")
    parser.add_argument("--limit", type=int, help="at most this many document versions")
    parser.add_argument("--sample", type=int, default=60, help="documents that are really read")
    parser.add_argument("--seed", type=int, default=0, help="another number draws another sample")


def run(args: argparse.Namespace) -> int:
    """Prints the estimate and returns 0."""
    config = options.load(args, source__prefix=args.prefix, source__limit=args.limit)
    found = plan.make(config, args.sample, args.seed, lambda line: print(line, file=sys.stderr, flush=True))
    options.emit(args, found.as_json(), plan.text(found))
    return 0
