"""A folder of cases: what lies in it, and the input files that its own program makes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Case:
    """An input file of a case and what must come out of it."""

    slug: str
    file: str  # below the slug's folder
    path: Path
    wanted: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Under which it is stored."""
        return str(self.wanted.get("key", f"{self.slug}/{self.file}"))


@dataclass(frozen=True, slots=True)
class Folder:
    """All of a folder: files with outcomes, healthy neighbours (key → file), scenarios, and events by id."""

    cases: list[Case]
    healthy: Mapping[str, Path]
    scenarios: list[Mapping[str, Any]]
    events: Mapping[str, str]
    files: Path

    @property
    def slugs(self) -> list[str]:
        return [*dict.fromkeys(case.slug for case in self.cases), *(one["slug"] for one in self.scenarios)]


def read(folder: Path, made: Path, only: str = "") -> Folder:
    """The cases of ``folder``, whose files are made in ``made``; ``only`` one slug of them."""
    subprocess.run([sys.executable, str(folder / "make_cases.py"), "--out", str(made)], check=True)
    expected = json.loads((folder / "expected.json").read_text())
    scenarios = yaml.safe_load((folder / "scenarios.yaml").read_text()) or []
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines() if line.strip()]
    return Folder(
        cases=[
            Case(slug, file, made / slug / file, wanted)
            for slug, case in expected.items()
            if only in ("", slug)
            for file, wanted in case["files"].items()
        ],
        healthy={path.name: path for path in sorted((made / HEALTHY).iterdir())},
        scenarios=[one for one in scenarios if only in ("", one["slug"])],
        events={event["id"]: event["body"] for event in events},
        files=made,
    )
