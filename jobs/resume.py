"""Lets the runs of the alias go on that `ingest pause` made wait."""

from __future__ import annotations

import argparse

from ingest.state import Operator
from jobs import options
from jobs.ledger import opened


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)


def run(args: argparse.Namespace) -> int:
    """Ends the pause and returns 0."""
    config = options.load(args)
    with opened(config) as ledger:
        waited = Operator(ledger).resume(config.index.alias)
    print(f"runs of alias {config.index.alias} {'go on within seconds' if waited else 'were not paused'}")
    return 0
