"""What ``backfill`` refuses before it touches anything, and what ``config`` keeps to itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config import IndexConfig
from ingest.failure import Backoff
from jobs import backfill
from jobs.__main__ import main

CONFIG = """
source: {{bucket: b{more}}}
artifacts: {{bucket: a}}
ledger: {{url: "sqlite:///{folder}/ledger.db"}}
index: {{url: "http://127.0.0.1:9"}}
"""


@pytest.mark.parametrize(
    ("more", "options", "named"),
    [
        ("", ["--limit", "10"], "--limit, source.limit"),
        ("", ["--prefix", "typo/"], "--prefix"),
        ("", ["--include", "*.pdf", "--exclude", "a*"], "--include, --exclude"),
        (", since: '2026-01-01'", [], "source.since"),
    ],
)
def test_readers_are_not_led_to_a_part_of_the_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, options: list[str], named: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(folder=tmp_path, more=more))
    assert main(["backfill", "--config", str(file), "--promote", *options]) == 2
    assert f"--promote is for a run over the whole corpus: leave out {named}" in capsys.readouterr().err
    assert not (tmp_path / "ledger.db").exists()


def test_a_password_in_a_url_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(folder=tmp_path, more="").replace("http://", "https://me:secret@"))
    assert main(["config", "--config", str(file), "--set", "embed.model=hashing:8"]) == 0
    told = capsys.readouterr().out
    assert "https://me:***@127.0.0.1:9" in told
    assert "secret" not in told


def test_a_report_is_not_lost_when_nobody_says_what_the_alias_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "ASKING", Backoff(budget_s=0))
    assert backfill._serving(IndexConfig(url="http://127.0.0.1:9", alias="documents")) == ""
