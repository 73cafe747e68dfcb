"""Lets all runs of the alias wait: they end the calls in flight, free their actors, and take no more documents."""

from __future__ import annotations

import argparse
import getpass
import socket

from ingest.observe import moment
from ingest.state import Operator
from jobs import options
from jobs.ledger import opened


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    parser.add_argument("--why", default="", help="told by the runs that wait, and by `ingest status`")


def run(args: argparse.Namespace) -> int:
    """Pauses and returns 0."""
    config = options.load(args)
    with opened(config) as ledger:
        who = f"{getpass.getuser()} on {socket.gethostname()}"
        begun = Operator(ledger).pause(config.index.alias, who, args.why)
        pause = ledger.paused(config.index.alias)
    if pause and not begun:
        print(f"runs of alias {config.index.alias} wait since {moment(pause.since)}, by {pause.who}")
    else:
        print(f"runs of alias {config.index.alias} wait now; `ingest resume` lets them go on")
    return 0
