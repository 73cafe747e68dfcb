"""Documents say what the code says."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from ingest.config import IndexConfig
from ingest.failure import table
from ingest.index.mapping import properties
from ingest.model import State
from ingest.report import Report
from jobs.__main__ import VERBS
from jobs.config import table as config_table

ROOT = Path(__file__).parents[2]


def test_every_reason_stands_in_the_failure_table() -> None:
    assert table() in (ROOT / "docs" / "failures.md").read_text()


def test_every_configuration_key_stands_in_the_readme() -> None:
    assert config_table() in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_stands_in_the_readme(verb: str) -> None:
    assert f"`ingest {verb}`" in (ROOT / "README.md").read_text()


def test_every_field_of_the_index_is_documented() -> None:
    page = (ROOT / "docs" / "index.md").read_text()
    assert [name for name in properties(IndexConfig(url="http://localhost:9200"), 8) if f"`{name}`" not in page] == []


def test_schema_names_every_field_of_the_report_and_every_state() -> None:
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    assert set(schema["properties"]) == {field.name for field in fields(Report)}
    assert set(schema["properties"]["documents"]["propertyNames"]["enum"]) == set(State)
