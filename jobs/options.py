"""Options that several verbs share."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from ingest import config
from ingest.config import Config
from ingest.errors import ConfigError


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config`` and ``--set``."""
    parser.add_argument(
        "--config", metavar="FILE", default=os.environ.get("INGEST_CONFIG"), help="YAML; default $INGEST_CONFIG"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override a key, e.g. --set chunk.size=200"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """``--report`` and ``--json``."""
    parser.add_argument("--report", metavar="FILE", help="write the report as JSON there too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def load(args: argparse.Namespace, **extra: Any) -> Config:
    """The configuration the arguments ask for. Raises ConfigError."""
    if not args.config:
        raise ConfigError("no configuration: give --config FILE or set INGEST_CONFIG (`. .local/env` does)")
    overrides: dict[str, Any] = dict(_pair(item) for item in args.set)
    overrides |= {key.replace("__", "."): value for key, value in extra.items() if value is not None}
    return config.load(args.config, overrides)


def _pair(item: str) -> tuple[str, Any]:
    key, found, value = item.partition("=")
    if not found:
        raise ConfigError(f"--set {item}: KEY=VALUE is expected")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def emit(args: argparse.Namespace, data: Any, text: str) -> None:
    """Prints the report as text or JSON and writes it where ``--report`` says."""
    body = json.dumps(data, indent=1, ensure_ascii=False, default=str)
    if args.report:
        target = Path(args.report)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(body + "\n")
    print(body if args.json else text, flush=True)
