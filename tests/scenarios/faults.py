"""The faults of one scenario: those inside a job's processes (``hooks.py``) and those of the proxy (``proxy.py``)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingest.parse import LADDERS
from tests.harness import Site, digest
from tests.scenarios.proxy import Faults

INSIDE = ("engine", "chunker", "embed", "process")


def pages_of(text: str) -> list[int]:
    """``7``, ``41-60`` or ``2,5-7`` as page numbers."""
    found: list[int] = []
    for part in filter(None, str(text).split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


class Switches:
    """Turns faults on and off."""

    def __init__(self, folder: Path, proxy: Faults) -> None:
        self.file = folder / "faults.json"
        self._folder = folder
        self._proxy = proxy
        self._inside: list[dict[str, Any]] = []
        self._keys: list[str] = []
        self.waits_for = ""  # what the product lacks for a fault that is on

    def on(self, step: Mapping[str, Any]) -> None:
        """From now until ``heal``, or as often or long as the step says."""
        times = step.get("times") if isinstance(step.get("times"), int) else None
        if step.get("engines") == "first" and len(LADDERS["pdf"]) == 1:
            self.waits_for = "a second engine for pdf"
        if step["at"] == "opensearch":
            self._proxy.on.append(_of_proxy(step, times))
            return
        counter = self._folder / f"uses-{len(self._inside)}"
        counter.mkdir(exist_ok=True)
        words = step.get("texts") or ([step["text"]] if step["at"] == "embed" and "text" in step else [])
        self._inside.append(
            {
                **step,
                "pages": pages_of(step.get("pages", "")),
                "texts": words,
                "times": times,
                "counter": str(counter),
                "does": step.get("does", "exit"),
            }
        )
        self._keys.append(step.get("key", ""))

    def heal(self) -> None:
        """All faults are off."""
        self._inside, self._keys, self.waits_for = [], [], ""
        self._proxy.on.clear()

    def write(self, site: Site) -> dict[str, str]:
        """What a job's environment needs for the faults that are on, at the documents as they are in the bucket now."""
        versions = site.s3.list_object_versions(Bucket=site.bucket).get("Versions", ())
        rows = [
            {**fault, "ids": _ids(site.bucket, key, versions)}
            for fault, key in zip(self._inside, self._keys, strict=True)
        ]
        self.file.write_text(json.dumps(rows))
        return {"INGEST_FAULTS": str(self.file)} if rows else {}


def _ids(bucket: str, key: str, versions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [digest(bucket, row["Key"], row["VersionId"]) for row in versions if key and row["Key"] == key]


def _of_proxy(step: Mapping[str, Any], times: int | None) -> dict[str, Any]:
    fault = dict(step)
    if "for_s" in step:
        fault["until"] = time.monotonic() + step["for_s"]
    if times is not None and not step["does"].startswith("item_"):
        fault["left"] = times
    return fault
