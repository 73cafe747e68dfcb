"""Tells the life of one document: its versions, segments, engines, failures, chunks expected and found, history."""

from __future__ import annotations

import argparse

from ingest import life
from ingest.errors import ConfigError
from jobs import options
from jobs.ledger import generation_of, opened


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("key", metavar="KEY", help="the document's key in the bucket")
    parser.add_argument("--version", help="only this version; default: all that are known")


def run(args: argparse.Namespace) -> int:
    """Prints and returns 0."""
    config = options.load(args)
    with opened(config) as ledger:
        known = life.lives(ledger, generation_of(config, ledger), args.key)
    found = [one for one in known if args.version in (None, one.job.version)]
    if not found:
        versions = ", ".join(one.job.version for one in known)
        more = f"; its versions are {versions}" if versions else "; `ingest backfill` lists the bucket"
        raise ConfigError(f"{args.key}: the ledger knows no such document{more}")
    options.emit(args, life.as_json(found), life.text(found))
    return 0
