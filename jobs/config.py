"""Prints the resolved configuration, its fingerprints, or every key with unit and default."""

from __future__ import annotations

import argparse
import dataclasses
import re
from typing import Any

import yaml

from ingest.config import Config, keys
from ingest.runs import config_fingerprint, fingerprints_of
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("--show", action="store_true", help="the resolved file and its fingerprints (the default)")
    parser.add_argument("--keys", action="store_true", help="every key with default and meaning, as a Markdown table")


def run(args: argparse.Namespace) -> int:
    """Prints and returns 0."""
    if args.keys:
        rows = [{"key": key, "default": default, "meaning": meaning} for key, default, meaning in keys()]
        options.emit(args, rows, table())
        return 0
    config = options.load(args)
    resolved = _without_password(config.model_dump(mode="json"))
    prints = {"config": config_fingerprint(config), **_fingerprints(config)}
    text = yaml.safe_dump(resolved, sort_keys=False) + "\n# fingerprints\n" + yaml.safe_dump(prints, sort_keys=False)
    options.emit(args, {"config": resolved, "fingerprints": prints}, text.rstrip())
    return 0


def _without_password(resolved: dict[str, Any]) -> dict[str, Any]:
    masked = {name: {**resolved[name], "url": _masked(resolved[name]["url"])} for name in ("ledger", "index")}
    return {**resolved, **masked}


def _masked(url: str) -> str:
    return re.sub(r"(://[^:/@\s]+):[^@\s]+@", r"\1:***@", url)


def table() -> str:
    """Every configuration key as a Markdown table; the README holds the same."""
    rows = [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in keys()]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def _fingerprints(config: Config) -> dict[str, str]:
    found = dataclasses.asdict(fingerprints_of(config))
    return {name: value for name, value in found.items() if value}
