"""The verbs as people call them: help with examples, and exit codes that tell what to do."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingest import __version__
from ingest.config import keys
from ingest.errors import (
    ConfigError,
    EmbedError,
    PreflightError,
    StoreRefused,
    StoreUnavailable,
)
from jobs import options
from jobs.__main__ import VERBS, guarded, main
from jobs.config import table

ROOT = Path(__file__).parents[2]
MINIMAL: dict[str, dict[str, Any]] = {
    "source": {"bucket": "documents"},
    "artifacts": {"bucket": "artifacts"},
    "ledger": {"url": "sqlite:///ledger.db"},
    "index": {"url": "http://127.0.0.1:9200"},
    "embed": {"model": "hashing:8"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


def jobs(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m jobs``, in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "RAY_"))}
    return subprocess.run(
        [sys.executable, "-m", "jobs", *args],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**plain, "COLUMNS": "120", **environment},
    )  # fmt: skip


# ---------------------------------------------------------------- help


def test_help_names_every_verb_and_exit_code() -> None:
    told = jobs("--help")
    assert told.returncode == 0
    assert [verb for verb in VERBS if f"    {verb}" not in told.stdout] == []
    assert all(f"\n  {code}  " in told.stdout for code in (0, 1, 2, 3, 4, 5, 130))
    assert "examples:" in told.stdout


def test_the_version_is_told() -> None:
    told = jobs("--version")
    assert (told.returncode, told.stdout) == (0, f"ingest {__version__}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert VERBS[verb] in " ".join(told.split())
    assert "examples:" in told
    assert "exit codes:" in told


def test_every_option_of_every_verb_has_a_help_text() -> None:
    import importlib

    bare = []
    for verb in VERBS:
        parser = argparse.ArgumentParser(verb)
        importlib.import_module(f"jobs.{verb}").arguments(parser)
        bare += [f"{verb} {action.dest}" for action in parser._actions if not action.help]
    assert bare == []


def test_no_verb_and_an_unknown_verb_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["backfil"], ["backfill", "--no-such-option"], ["search", " "], ["search", "-k", "0", "x"]):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 2
    assert "usage: ingest" in capsys.readouterr().err


def test_a_verb_pays_only_for_its_own_imports() -> None:
    code = "import sys; from jobs.__main__ import main; main(['config', '--keys']); print('ray' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout.splitlines()[-1] == "False"


# ---------------------------------------------------------------- exit codes


@pytest.mark.parametrize("verb", ["backfill", "doctor", "config"])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"chunk": {"sise": 3}}, "chunk.sise: no such key; did you mean chunk.size?"),
        ({"index": {"url": "http://h:1", "concurrency": 9}}, "must be below embed: actors x concurrency (2)"),
    ],
)
def test_a_wrong_configuration_ends_with_2_and_one_message(
    file: Path, verb: str, change: dict[str, Any], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(yaml.safe_dump(MINIMAL | change))
    assert main([verb, "--config", str(file)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("ingest: ")
    assert complaint in told.err
    assert told.out == ""


def test_a_wrong_configuration_as_people_see_it(tmp_path: Path) -> None:
    told = jobs("config", "--config", str(tmp_path / "none.yaml"))
    assert told.returncode == 2
    assert (
        told.stderr.strip()
        == f"ingest: {tmp_path}/none.yaml: No such file or directory; give another file with --config"
    )


def test_no_configuration_at_all_says_how_to_give_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INGEST_CONFIG", raising=False)
    assert main(["config"]) == 2
    assert "give --config FILE or set INGEST_CONFIG" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (PreflightError("x"), 5),
        (StoreRefused("x"), 5),
        (StoreUnavailable("x"), 5),
        (EmbedError("bad_vector", "x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_has_its_exit_code_and_one_line(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise error

    assert guarded(argparse.Namespace(run=fail)) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ingest: ")


@pytest.mark.parametrize("code", [0, 3, 4])
def test_the_verbs_own_exit_code_is_passed_on(code: int) -> None:
    assert guarded(argparse.Namespace(run=lambda _: code)) == code


def test_submit_without_a_server_says_how_to_get_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--", "backfill"]) == 5
    assert "no job server: give --address or set RAY_ADDRESS" in capsys.readouterr().err


# ---------------------------------------------------------------- config


def shown(file: Path, capsys: pytest.CaptureFixture[str], *args: str) -> Mapping[str, Any]:
    assert main(["config", "--config", str(file), *args]) == 0
    resolved, fingerprints = capsys.readouterr().out.split("# fingerprints")
    return {**yaml.safe_load(resolved), "fingerprints": yaml.safe_load(fingerprints)}


def test_config_shows_what_is_resolved_and_can_be_read_again(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = shown(file, capsys, "--set", "chunk.size=200", "--set", "source.tenant=acme")
    assert (first["chunk"]["size"], first["source"]["tenant"], first["embed"]["batch"]) == (200, "acme", 96)
    assert set(first["fingerprints"]) == {"config", "parser", "chunker", "embedder", "mapping"}
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump({name: value for name, value in first.items() if name != "fingerprints"}))
    assert shown(again, capsys) == first


def test_config_keys_prints_every_key_with_default_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--keys"]) == 0
    told = capsys.readouterr().out
    assert told.strip() == table()
    rows = told.splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [key for key, _, _ in keys()]
    assert all(len(row.replace(r"\|", "").split("|")) == 5 for row in rows)


def test_the_readme_holds_the_same_table() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [row for row in table().splitlines() if row not in readme] == []


# ---------------------------------------------------------------- options


def loaded(file: Path, *sets: str, **extra: Any) -> Any:
    return options.load(argparse.Namespace(config=str(file), set=list(sets)), **extra)


@pytest.mark.parametrize(
    ("item", "key", "value"),
    [
        ("chunk.size=200", ("chunk", "size"), 200),
        ("parse.timeout_s=1.5", ("parse", "timeout_s"), 1.5),
        ("source.all_versions=true", ("source", "all_versions"), True),
        ("source.prefix=a=b", ("source", "prefix"), "a=b"),
        ('source.principals=["x","y"]', ("source", "principals"), ("x", "y")),
        ("source.tenant=plain text", ("source", "tenant"), "plain text"),
    ],
)
def test_set_takes_json_or_text(file: Path, item: str, key: tuple[str, str], value: Any) -> None:
    assert getattr(getattr(loaded(file, item), key[0]), key[1]) == value


def test_set_without_a_value_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"--set chunk\.size: KEY=VALUE is expected"):
        loaded(file, "chunk.size")


def test_an_option_that_was_not_given_leaves_the_file_alone(file: Path) -> None:
    file.write_text(yaml.safe_dump(MINIMAL | {"source": {"bucket": "b", "limit": 9, "prefix": "p/"}}))
    config = loaded(file, source__limit=None, source__prefix=None, source__include=None)
    assert (config.source.limit, config.source.prefix) == (9, "p/")


def test_an_option_wins_over_the_file_also_when_it_takes_a_bound_away(file: Path) -> None:
    file.write_text(yaml.safe_dump(MINIMAL | {"source": {"bucket": "b", "limit": 9, "prefix": "p/"}}))
    config = loaded(file, source__limit=0, source__prefix="")
    assert (config.source.limit, config.source.prefix) == (0, "")


def test_an_option_wins_over_set(file: Path) -> None:
    assert loaded(file, "source.limit=5", source__limit=7).source.limit == 7


@pytest.mark.parametrize("as_json", [True, False])
def test_a_report_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    target = tmp_path / "new" / "report.json"
    options.emit(argparse.Namespace(report=str(target), json=as_json), {"n": 1, "key": "Grüße"}, "in words")
    assert json.loads(target.read_text()) == {"n": 1, "key": "Grüße"}
    told = capsys.readouterr().out
    assert (json.loads(told) if as_json else told) == ({"n": 1, "key": "Grüße"} if as_json else "in words\n")
