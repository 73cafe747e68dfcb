"""Checks bucket, index, model and ledger, and says what to do about what is wrong."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ingest import preflight
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Prints every check and returns 0, or 5 when one failed."""
    config = options.load(args)
    checks = list(preflight.thorough(config))
    lines = [f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<18} {check.detail}" for check in checks]
    ok = all(check.ok for check in checks)
    options.emit(args, {"ok": ok, "checks": [asdict(check) for check in checks]}, "\n".join(lines))
    return 0 if ok else 5
