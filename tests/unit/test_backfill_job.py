"""What ``backfill`` refuses before it touches anything, and what ``config`` keeps to itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from ingest.config import IndexConfig, load
from ingest.errors import ConfigError, PreflightError, StoreUnavailable
from ingest.failure import Backoff
from ingest.state import Ledger
from jobs import running
from jobs.__main__ import main

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
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


@pytest.mark.parametrize(
    ("error", "outcome", "told", "code"),
    [
        (PreflightError("source bucket: not there"), "stopped", "source bucket: not there", 5),
        (StoreUnavailable("the index is away"), "stopped", "the index is away", 5),
        (ConfigError("the pools hold 9 CPUs"), "stopped", "the pools hold 9 CPUs", 2),
        (KeyboardInterrupt(), "interrupted", "interrupted; the same command goes on", 130),
        (ZeroDivisionError("a bug"), "stopped", "ZeroDivisionError: a bug", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("done", [0, 7])
def test_however_a_run_ends_its_report_says_what_was_done_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, outcome: str, told: str, code: int, done: int
) -> None:
    def breaks_off(job: running._Job) -> None:
        ledger.start_run("mine", "backfill", "me", "config")
        if done:
            job.result = replace(job.result, outcome="ready", documents_touched=done)
        raise error

    monkeypatch.setattr(running, "_work", breaks_off)
    file, written = tmp_path / "config.yaml", tmp_path / "report.json"
    file.write_text(CONFIG.format(folder=tmp_path, more=""))
    ledger = Ledger(load(file).ledger.url)
    ledger.migrate()
    written.write_text("of an earlier run")
    arguments = ["backfill", "--config", str(file), "--report", str(written), "--run-id", "mine"]
    if code == 1:
        with pytest.raises(ZeroDivisionError):
            main(arguments)
    else:
        assert main(arguments) == code
    found = json.loads(written.read_text())
    jsonschema.validate(found, SCHEMA)
    assert (found["outcome"], found["error"], found["exit_code"]) == (outcome, told, code)
    assert (found["run_id"], found["verb"], found["documents_touched"]) == ("mine", "backfill", done)
    assert (run := ledger.run("mine")) is not None
    assert run.state == outcome


def test_an_old_report_does_not_outlive_a_configuration_that_can_not_be_read(tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    written.write_text("of an earlier run")
    assert main(["backfill", "--config", str(tmp_path / "none.yaml"), "--report", str(written)]) == 2
    assert not written.exists()


def test_a_password_in_a_url_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(folder=tmp_path, more="").replace("http://", "https://me:secret@"))
    assert main(["config", "--config", str(file), "--set", "embed.model=hashing:8"]) == 0
    told = capsys.readouterr().out
    assert "https://me:***@127.0.0.1:9" in told
    assert "secret" not in told


def test_a_report_is_not_lost_when_nobody_says_what_the_alias_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ASKING", Backoff(budget_s=0))
    assert running._serving(IndexConfig(url="http://127.0.0.1:9", alias="documents")) == ""
