"""Runs a folder of cases against the real stack and says of each: as expected, or what differs, or not yet.

``python -m tests.scenarios [DIR] [--only SLUG] [--json FILE]`` (``make scenarios``). Exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from local import moto, opensearch, ray_head
from local.moto import CREDENTIALS
from tests.harness import Stack
from tests.scenarios import cases, files, steps
from tests.scenarios.proxy import Faults, before

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 4  # differences of a case on its line; the JSON has all
SITE = Path(__file__).parent / "site"


def main() -> int:
    """The exit code."""
    args = _arguments()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="scenarios-") as name, running(Path(name)) as stack:
        work = Path(name)
        folder = cases.read(Path(args.dir), work / "made", args.only)
        if not folder.slugs:
            sys.exit(f"{args.dir} has no case {args.only}")
        if folder.cases:
            for slug, (differs, waits) in files.judge(stack, folder, work / "files").items():
                _tell(results, slug, differs, waits, 0.0)
        for script in folder.scenarios:
            _play(results, stack, folder, work, script)
    Path(args.json).write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return int(any(result["status"] == "differs" for result in results.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("scenarios", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dir", nargs="?", default=os.environ.get("DIR") or str(ROOT.parent / "shared" / "cases"))
    parser.add_argument("--only", default=os.environ.get("ONLY", ""), metavar="SLUG")
    parser.add_argument("--json", default=str(ROOT / ".local" / "scenarios.json"), metavar="FILE")
    return parser.parse_args()


def _play(results: dict[str, dict[str, Any]], stack: Stack, folder: cases.Folder, work: Path, script: Any) -> None:
    slug, started, faults = script["slug"], time.monotonic(), Faults()
    place = work / slug
    place.mkdir()
    differs: list[str] = []
    waits = ""
    with before(stack.opensearch_url, faults) as url:
        try:
            scenario = steps.Scenario(stack, folder, place, script, (url, faults))
        except steps.NotYet as missing:
            _tell(results, slug, [], str(missing), 0.0)
            return
        try:
            scenario.play()
        except steps.NotYet as missing:
            waits = str(missing)
        except Exception as error:  # noqa: BLE001 - a case that can't be played says so, and the others are
            traceback.print_exc()
            scenario.differences.append(f"it could not be played: {type(error).__name__}: {error}")
        differs = scenario.differences
        waits = ", ".join(filter(None, [waits, *sorted(scenario.waits_for)]))
    _tell(results, slug, differs, waits, time.monotonic() - started)


def _tell(results: dict[str, dict[str, Any]], slug: str, differs: list[str], waits: str, seconds: float) -> None:
    status = "differs" if differs else "not yet" if waits else "as expected"
    results[slug] = {"status": status, "differences": differs, "waits_for": waits, "seconds": round(seconds, 1)}
    rest = [f"and {len(differs) - SHOWN} more"] if len(differs) > SHOWN else []
    more = "; ".join([*differs[:SHOWN], *rest]) if differs else waits
    print(f"{slug:<28} {status}{f': {more}' if more else ''}", flush=True)


@contextmanager
def running(folder: Path) -> Iterator[Stack]:
    """OpenSearch, S3 and a Ray head whose processes take faults."""
    for name in list(os.environ):
        if name.startswith(("INGEST_", "LEDGER_", "RAY_ADDRESS", "AWS_")):
            del os.environ[name]
    with ExitStack() as ended:
        node = opensearch.start(folder / "opensearch")
        ended.callback(node.stop)
        s3 = moto.start(folder / "moto")
        ended.callback(s3.stop)
        environment = {"AWS_ENDPOINT_URL": s3.url, **CREDENTIALS}
        os.environ.update(environment)
        head = ray_head.start(folder / "ray", ray_head.Head(env={**environment, "PYTHONPATH": str(SITE)}))
        ended.callback(head.stop)
        yield Stack(node.url, s3.url, head.url, head.pid, folder / "models")


if __name__ == "__main__":
    sys.exit(main())
