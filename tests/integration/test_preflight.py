"""What is wrong with the world is said before a run begins, with what to do."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import boto3
import pytest

from ingest import preflight
from ingest.config import Config, parse
from ingest.errors import PreflightError
from local.moto import ARTIFACTS, DOCUMENTS
from tests.proxy import faulty, first_of_each

_numbers = itertools.count()


@pytest.fixture
def sections(aws_url: str, opensearch_url: str, tmp_path: Path) -> dict[str, dict[str, Any]]:
    return {
        "source": {"bucket": DOCUMENTS},
        "artifacts": {"bucket": ARTIFACTS},
        "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
        "index": {"url": opensearch_url, "alias": f"preflight{next(_numbers)}", "retry_budget_s": 0},
        "embed": {"model": "hashing:8"},
    }


def configured(sections: dict[str, dict[str, Any]], dotted: str = "", value: Any = None) -> Config:
    section, _, key = dotted.partition(".")
    changed = {section: sections[section] | {key: value}} if dotted else {}
    return parse(sections | changed)


def failed(config: Config) -> dict[str, str]:
    return {check.name: check.detail for check in preflight.quick(config) if not check.ok}


def test_a_good_world_passes_and_the_model_is_used_once(sections: dict[str, dict[str, Any]]) -> None:
    found = {check.name: check for check in preflight.thorough(configured(sections))}
    assert [name for name, check in found.items() if not check.ok] == []
    assert found["model loads"].detail == "vector of length 1.000000"
    assert found["source bucket"].detail == f"s3://{DOCUMENTS}, versioned"
    preflight.require(configured(sections))


@pytest.mark.parametrize(
    ("dotted", "name"), [("source.bucket", "source bucket"), ("artifacts.bucket", "artifact bucket")]
)
def test_a_missing_bucket_is_told_with_its_name(sections: dict[str, dict[str, Any]], dotted: str, name: str) -> None:
    told = failed(configured(sections, dotted, "no-such-bucket"))
    assert list(told) == [name]
    assert "s3://no-such-bucket" in told[name]
    assert "check the bucket name" in told[name]


def test_a_bucket_without_versions_is_no_error_and_not_hidden(sections: dict[str, dict[str, Any]]) -> None:
    boto3.client("s3").create_bucket(Bucket="plain-bucket")
    found = {check.name: check for check in preflight.quick(configured(sections, "source.bucket", "plain-bucket"))}
    assert found["source bucket"].ok
    assert "is not versioned (never switched on)" in found["source bucket"].detail


def test_several_wrongs_are_told_at_once(sections: dict[str, dict[str, Any]]) -> None:
    broken = configured(sections | {"artifacts": {"bucket": "none-1"}}, "source.bucket", "none-2")
    with pytest.raises(PreflightError) as caught:
        preflight.require(broken)
    assert "none-1" in str(caught.value)
    assert "none-2" in str(caught.value)


def test_a_password_of_the_ledger_is_not_shown(sections: dict[str, dict[str, Any]]) -> None:
    url = "postgresql+psycopg://user:secret@127.0.0.1:9/none"
    told = failed(configured(sections, "ledger.url", url))
    assert list(told) == ["ledger"]
    assert "secret" not in told["ledger"]


@pytest.mark.parametrize("status", [429, 503])
def test_a_cluster_that_is_busy_for_a_moment_is_asked_again(sections: dict[str, dict[str, Any]], status: int) -> None:
    with faulty(sections["index"]["url"], first_of_each(status)) as url:
        assert failed(configured(sections, "index.url", url)) == {}
