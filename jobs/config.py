"""Prints the resolved configuration, its fingerprints, or every key with unit and default."""

from __future__ import annotations

import argparse
import dataclasses
import re

import yaml

from ingest.config import Config, keys
from ingest.runs import config_fingerprint, fingerprints_of
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    parser.add_argument("--show", action="store_true", help="the resolved file and its fingerprints (the default)")
    parser.add_argument("--keys", action="store_true", help="every key with default and meaning, as a Markdown table")


def run(args: argparse.Namespace) -> int:
    """Prints and returns 0."""
    if args.keys:
        print(table())
        return 0
    config = options.load(args)
    print(
        re.sub(r"(://[^:/@\s]+):[^@\s]+@", r"\1:***@", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    )
    print("# fingerprints")
    print(yaml.safe_dump({"config": config_fingerprint(config), **_fingerprints(config)}, sort_keys=False), end="")
    return 0


def table() -> str:
    """Every configuration key as a Markdown table; the README holds the same."""
    rows = [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in keys()]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def _fingerprints(config: Config) -> dict[str, str]:
    found = dataclasses.asdict(fingerprints_of(config))
    return {name: value for name, value in found.items() if value}
