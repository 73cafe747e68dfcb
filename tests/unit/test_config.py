"""One file, checked before anything is read or written; a message tells what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from ingest.config import Config, keys, load, parse
from ingest.errors import ConfigError

MINIMAL: dict[str, dict[str, Any]] = {
    "source": {"bucket": "documents"},
    "artifacts": {"bucket": "artifacts"},
    "ledger": {"url": "sqlite:///ledger.db"},
    "index": {"url": "http://127.0.0.1:9200"},
}


def merged(**sections: dict[str, Any]) -> dict[str, Any]:
    return {name: MINIMAL.get(name, {}) | sections.get(name, {}) for name in MINIMAL | sections}


def message(**sections: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(merged(**sections), "my.yaml")
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


def test_four_keys_are_enough() -> None:
    config = parse(MINIMAL)
    assert config.embed.batch == 96
    assert config.index.in_flight < config.embed.in_flight


@pytest.mark.parametrize(
    ("section", "key", "meant"),
    [("chunk", "sise", "chunk.size"), ("embed", "batch_size", "embed.batch"), ("index", "aliass", "index.alias")],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(section: str, key: str, meant: str) -> None:
    assert message(**{section: {key: 1}}) == f"my.yaml: {section}.{key}: no such key; did you mean {meant}?"


def test_an_unknown_section_is_refused_with_the_nearest_name() -> None:
    assert message(chunks={}) == "my.yaml: chunks: no such key; did you mean chunk?"


def test_a_key_that_is_near_to_nothing_gets_no_guess() -> None:
    assert message(zzzzzz={}) == "my.yaml: zzzzzz: no such key"


def test_every_wrong_key_has_a_line_of_its_own() -> None:
    lines = message(chunk={"sise": 1}, embed={"batch": 0}).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["chunk.sise", "embed.batch"]


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"source: Field required"):
        parse({name: value for name, value in MINIMAL.items() if name != "source"})


@pytest.mark.parametrize(
    ("sections", "numbers"),
    [
        ({"chunk": {"size": 100, "overlap": 100, "header_tokens": 0}}, ("overlap (100)", "size (100)")),
        ({"chunk": {"size": 90, "header_tokens": 46}}, ("header_tokens (46)", "size (90)")),
        (
            {"index": {"actors": 2, "concurrency": 3}, "embed": {"actors": 3, "concurrency": 2}},
            ("index: actors x concurrency (6)", "(6), or a slow index"),
        ),
        (
            {"index": {"actors": 3, "concurrency": 3}, "embed": {"actors": 1, "concurrency": 4}},
            ("concurrency (9)", "concurrency (4)"),
        ),
        ({"run": {"nodes": 3}}, ("SQLite works on one node", "run.nodes is 3")),
        (
            {"parse": {"timeout_s": 500}, "run": {"lease_s": 400, "no_progress_s": 1e6}},
            ("parse.timeout_s (500.0)", "run.lease_s (400.0)"),
        ),
        ({"run": {"no_progress_s": 1800}}, ("run.no_progress_s (1800)", "may wait (1920)")),
        ({"index": {"retry_budget_s": 3000}}, ("run.no_progress_s (2400)", "may wait (3090)")),
    ],
)
def test_keys_that_do_not_go_together_are_named_with_both_values(
    sections: dict[str, dict[str, Any]], numbers: tuple[str, str]
) -> None:
    found = message(**sections)
    assert found.startswith("my.yaml: ")
    assert [number for number in numbers if number not in found] == []


def test_at_the_border_the_cross_checks_pass() -> None:
    found = parse(
        merged(
            chunk={"size": 90, "overlap": 89, "header_tokens": 45},
            index={"actors": 1, "concurrency": 3},
            embed={"actors": 2, "concurrency": 2},
            parse={"timeout_s": 399.9},
            run={"lease_s": 400, "nodes": 1, "no_progress_s": 12797},
        )
    )
    assert (found.index.in_flight, found.embed.in_flight) == (3, 4)


def test_postgresql_may_have_many_nodes() -> None:
    assert parse(merged(ledger={"url": "postgresql+psycopg://host/db"}, run={"nodes": 5})).run.nodes == 5


@pytest.mark.parametrize("since", ["2026-11-30", "2026-11-30T12:00:00", "2026-11-30T12:00:00+02:00", ""])
def test_a_date_may_have_time_and_zone(since: str) -> None:
    assert parse(merged(source={"since": since})).source.since == since


def test_what_is_no_date_is_found_before_the_bucket_is_listed() -> None:
    assert "source.since: 'yesterday' is no ISO date" in message(source={"since": "yesterday"})


# ---------------------------------------------------------------- file, variables, overrides


def test_a_variable_is_put_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_PASSWORD", "p:w")
    path = tmp_path / "my.yaml"
    nested = merged(
        ledger={"url": "postgresql+psycopg://u:${LEDGER_PASSWORD}@h/d"},
        source={"principals": ["${LEDGER_PASSWORD}", "b"]},
    )
    path.write_text(yaml.safe_dump(nested))
    config = load(path)
    assert config.ledger.url == "postgresql+psycopg://u:p:w@h/d"
    assert config.source.principals == ("p:w", "b")


def test_a_variable_that_is_not_set_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    with pytest.raises(ConfigError, match=r"my\.yaml: environment variable NOT_SET_ANYWHERE is not set"):
        load(file, {"source.tenant": "${NOT_SET_ANYWHERE}"})


def test_overrides_win_over_the_file_and_make_sections(file: Path) -> None:
    config = load(file, {"source.bucket": "others", "chunk.size": 200})
    assert (config.source.bucket, config.chunk.size, config.artifacts.bucket) == ("others", 200, "artifacts")


def test_an_override_goes_into_a_section_that_is_there_but_empty(file: Path) -> None:
    file.write_text(file.read_text() + "chunk:\n")
    assert load(file, {"chunk.size": 200}).chunk.size == 200


def test_an_override_below_what_is_no_section_is_refused(file: Path) -> None:
    file.write_text(file.read_text() + "chunk: 7\n")
    with pytest.raises(ConfigError, match="chunk: a mapping of keys is expected"):
        load(file, {"chunk.size": 200})


def test_an_unknown_override_is_refused_like_a_key_of_the_file(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean chunk\.size"):
        load(file, {"chunk.sise": 200})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: No such file or directory; give another file with --config"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize(("text", "complaint"), [("a: [", "not YAML"), ("- 1\n- 2\n", "a mapping of sections")])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load(path)


# ---------------------------------------------------------------- what is told about the keys


def leaves(model: BaseModel, prefix: str = "") -> set[str]:
    found = set()
    for name in type(model).model_fields:
        value = getattr(model, name)
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, BaseModel) else {f"{prefix}{name}"}
    return found


def test_keys_lists_every_key_with_default_and_meaning() -> None:
    listed = {key: (default, meaning) for key, default, meaning in keys()}
    assert set(listed) == leaves(parse(MINIMAL))
    assert [key for key, (_, meaning) in listed.items() if len(meaning) < 4] == []
    assert listed["chunk.size"][0] == "254"
    assert listed["source.bucket"][0] == "required"


def test_only_the_four_keys_have_no_default() -> None:
    required = [key for key, default, _ in keys() if default == "required"]
    assert required == ["source.bucket", "artifacts.bucket", "ledger.url", "index.url"]


# ---------------------------------------------------------------- the cluster


def sized(parse_actors: int) -> Config:
    return parse(merged(parse={"actors": parse_actors, "cpus": 1}, triage={"cpus": 0.5}, index={"cpus": 0.25}))


def test_the_pools_must_leave_a_cpu_free() -> None:
    config = sized(2)
    assert config.pool_cpus == 3.0
    config.check_cluster(4, 0)
    with pytest.raises(ConfigError) as caught:
        config.check_cluster(3.5, 0)
    assert "the pools hold 3 CPUs and the cluster has 3.5" in str(caught.value)
    assert "by 0.5 in all" in str(caught.value)


def test_gpus_that_are_not_there_are_named() -> None:
    config = parse(MINIMAL | {"embed": {"actors": 2, "gpus": 1.0}})
    config.check_cluster(8, 2)
    with pytest.raises(ConfigError, match="embed wants 2 x 1 GPUs and the cluster has 1"):
        config.check_cluster(8, 1)


def test_the_defaults_run_on_two_cpus() -> None:
    parse(MINIMAL).check_cluster(2, 0)
