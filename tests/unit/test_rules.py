"""Rules of the tree that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("ingest", "jobs") for path in (ROOT / folder).rglob("*.py"))
ENDS = {"FAILED", "UNSUPPORTED", "NEEDS_REVIEW", "PARTIAL"}
# Where a document's end is written down; which one, ``failure.end_state`` and what was counted decide.
ENDED_IN = {"failure.py", "model.py", "state", "report.py", "reconcile.py", "redrive.py", "verify.py"}


def retry_loops(source: str) -> list[int]:
    """Lines of loops that sleep and go on after an exception: what ``failure.with_retries`` is for."""
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.While | ast.For | ast.AsyncFor)]
    return [loop.lineno for loop in loops if _sleeps(loop) and any(map(_goes_on, _handlers(loop)))]


def _sleeps(loop: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return any("sleep" in (getattr(call, "attr", "") or getattr(call, "id", "")) for call in calls)


def _handlers(loop: ast.AST) -> Iterator[ast.ExceptHandler]:
    return (node for node in ast.walk(loop) if isinstance(node, ast.ExceptHandler))


def _goes_on(handler: ast.ExceptHandler) -> bool:
    return not isinstance(handler.body[-1], ast.Raise | ast.Return)


def named_ends(source: str) -> set[str]:
    """Ends of a document that the source names as ``State.…``."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and node.attr in ENDS]
    return {node.attr for node in found if isinstance(node.value, ast.Name) and node.value.id == "State"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_failure_retries(path: Path) -> None:
    assert path.name == "failure.py" or retry_loops(path.read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_stage_decides_a_documents_fate(path: Path) -> None:
    assert ENDED_IN & set(path.parts) or named_ends(path.read_text()) == set()


def test_a_retry_loop_is_seen() -> None:
    loop = """
while True:
    try:
        call()
    except OSError:
        time.sleep(1)
"""
    assert retry_loops(loop) == [2]
    assert retry_loops(loop.replace("time.sleep(1)", "raise")) == []
    assert named_ends("ledger.end(one, State.FAILED)") == {"FAILED"}
