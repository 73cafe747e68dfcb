"""The page of a run: everything the report says stands on it, and nothing a document says is taken for HTML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ingest.config import load
from ingest.report_page import page, rates, throttle
from ingest.state import Ledger
from jobs.__main__ import main
from tests.run_report import SAMPLES, empty, full

CONFIG = """
source: {{bucket: b}}
artifacts: {{bucket: a}}
ledger: {{url: "sqlite:///{folder}/ledger.db"}}
index: {{url: "http://127.0.0.1:9"}}
embed: {{model: "hashing:8"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "config.yaml"
    written.write_text(CONFIG.format(folder=tmp_path))
    return written


@pytest.fixture
def report() -> dict[str, Any]:
    return full()


def text_of(html: str) -> str:
    body = html.split("</style>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_every_number_of_the_report_is_on_the_page(report: dict[str, Any]) -> None:
    told = text_of(page(report, SAMPLES, {240: 777}, 254))
    for words in (
        "run-1 partial", "documents-1", "1,023 documents", "ready 1,001 (97.8%)", "partial 12", "queued 7", "2,002",
        "40,004", "50,005", "49,990", "61.5", "2,415", "9,999", "exit code 3", "limit 254", "777 chunks",
    ):  # fmt: skip
        assert words in told, words


def test_what_a_document_says_is_no_html(report: dict[str, Any]) -> None:
    html = page(report, SAMPLES, {}, 254)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;.pdf" in html
    assert "the model does not know &lt;this&gt;" in html


def test_the_page_needs_nothing_from_outside(report: dict[str, Any]) -> None:
    html = page(report, SAMPLES, {16: 3}, 254)
    assert re.findall(r"(?:src|href|url)\s*[=(]", html) == []
    assert "http" not in html


def test_failures_are_grouped_with_examples_and_the_command_that_runs_them_again(report: dict[str, Any]) -> None:
    html = page(report, SAMPLES, {}, 254)
    told = text_of(html)
    assert "timeout degrade, 8 units" in told
    assert ", page 15" in told
    assert ", page 16" not in told
    assert "and 3 more in the JSON report" in told
    assert "ingest redrive --reason timeout<" in html
    assert "ingest redrive --reason no_text --state needs_review,partial<" in html
    assert "redrive --reason password_required" not in html, "it waits for another version"
    assert told.index("timeout degrade") < told.index("password_required poison"), "the most frequent first"


def test_an_empty_run_says_so_in_words() -> None:
    told = text_of(page(empty(), [], {}, 254))
    for words in ("No document is known.", "too short to draw this", "Nothing failed.", "No chunk was cut"):
        assert words in told


def test_rates_are_taken_between_samples() -> None:
    found = {line.name: list(line.points) for line in rates(SAMPLES)}
    assert found["pages parsed"] == [(10.0 * n, 5.0) for n in range(1, 6)]
    assert found["chunks embedded"][0] == (10.0, 9.6)
    window, refused = throttle(SAMPLES)
    assert list(window.points) == [(10.0 * n, 2.0) for n in range(6)]
    assert list(refused.points) == [(10.0 * n, 3.0) for n in range(1, 6)]


@pytest.fixture
def ledger(file: Path, report: dict[str, Any]) -> Ledger:
    opened = Ledger(load(file).ledger.url)
    opened.migrate()
    for name in ("run-0", "run-1", "run-2"):
        opened.start_run(name, "backfill", "host:1:1", "config")
    opened.add_stats("run-1", {"construct.tokens_from.240": 777})
    for name in ("run-0", "run-1"):
        opened.end_run(name, "partial", {**report, "run_id": name})
    return opened


def test_the_newest_report_is_shown_again(ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--config", str(file), "--json"]) == 0
    assert '"run_id": "run-1"' in capsys.readouterr().out


def test_the_page_is_written(ledger: Ledger, file: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    assert main(["report", "--config", str(file), "run-1", "--html", str(target)]) == 0
    assert "777 chunks" in target.read_text()


def test_an_unknown_run_is_named_with_those_that_are_known(
    ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--config", str(file), "run-9"]) == 2
    assert "run-9: no report of such a run in the ledger; the last ones are run-0, run-1" in capsys.readouterr().err
