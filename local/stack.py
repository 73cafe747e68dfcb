"""The laptop stack as a whole: all services up side by side, down without a trace, and the environment that names them."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from local import moto, net, opensearch, postgres, ray_head, service
from local.errors import StackError
from local.layout import CACHE, RUN, STATE, http_url, ports
from local.service import Service

QUEUE = "documents-events"
ENV_FILE = STATE / "env"
LEDGER_FILE = STATE / "ledger.db"
DATA = STATE / "data"
NAMES = ("opensearch", "moto", "postgres", "ray")


@dataclass(frozen=True, slots=True)
class Status:
    """What became of one service: `state` is started, kept, yours (given by URL) or down."""

    name: str
    state: str
    url: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name:<11}{self.state:<9}{self.seconds:5.1f} s  {self.url}"


def up(report: Callable[[Status], None]) -> None:
    """Start what is not running, side by side; `report` is called as each service answers.

    Raises ExceptionGroup of StackError if any service failed; the others stay up.
    """
    with _exclusive():
        _forget_derived_state()
        environment = variables()
        starts = {name: start for name, start in _starts(environment).items() if name in _wanted()}
        with ThreadPoolExecutor(len(starts)) as pool:
            pending = [pool.submit(_up_one, name, start, report) for name, start in starts.items()]
        _raise_failures(pending)
        _write_env(variables())


def down() -> list[str]:
    """End every recorded service and all it started; gives the names of those that were running."""
    with _exclusive():
        return _down()


def clean() -> None:
    """`down`, then remove everything but the download cache."""
    with _exclusive():
        _down()
        shutil.rmtree(ray_head.temp_dir(DATA / "ray"), ignore_errors=True)
        for path in STATE.iterdir():
            if path not in (CACHE, RUN):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def status() -> list[Status]:
    """The state of every wanted service, without starting any."""
    return [_status(name) for name in NAMES if name in _wanted()]


def variables() -> dict[str, str]:
    """The environment of the jobs, as `up` writes it to `.local/env`."""
    from local.layout import ROOT

    chosen = ports()
    return {
        "OPENSEARCH_URL": _external_opensearch() or http_url(chosen.opensearch),
        "AWS_ENDPOINT_URL": http_url(chosen.moto),
        **moto.CREDENTIALS,
        "LEDGER_URL": _ledger_url(),
        "INGEST_CONFIG": str(ROOT / "local" / "config.yaml"),
        "INGEST_BUCKET": moto.DOCUMENTS,
        "INGEST_ARTIFACTS": moto.ARTIFACTS,
        "INGEST_QUEUE": QUEUE,
        "RAY_ADDRESS": http_url(chosen.ray_dashboard),
    }


@contextmanager
def _exclusive() -> Iterator[None]:
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _starts(environment: Mapping[str, str]) -> dict[str, Callable[[], Service]]:
    chosen = ports()
    head = ray_head.Head(
        ray_head.HeadPorts(chosen.ray, chosen.ray_dashboard, chosen.ray_agent), env=environment
    )
    line = os.environ.get("OPENSEARCH", "2")
    return {
        "opensearch": lambda: opensearch.start(DATA / f"opensearch-{line}", port=chosen.opensearch, line=line),
        "moto": lambda: moto.start(DATA / "moto", port=chosen.moto),
        "postgres": lambda: postgres.start(DATA / "postgres"),
        "ray": lambda: ray_head.start(DATA / "ray", head),
    }


def _wanted() -> set[str]:
    unwanted = set() if os.environ.get("LEDGER") == "postgres" else {"postgres"}
    return set(NAMES) - unwanted


def _up_one(name: str, start: Callable[[], Service], report: Callable[[Status], None]) -> None:
    began = time.monotonic()
    found = _status(name)
    if found.state == "down":
        if (dead := service.load(name, RUN)) is not None:
            dead.stop()  # it ended by itself; what it started may not have
        started = start()
        started.save(RUN)
        found = Status(name, "started", started.url, time.monotonic() - began)
    report(found)


def _status(name: str) -> Status:
    if name == "opensearch" and (url := _external_opensearch()) is not None:
        return Status(name, "yours" if net.answers(url) else "down", url)
    found = service.load(name, RUN)
    if found is None or not found.is_running():
        return Status(name, "down", "")
    return Status(name, "kept", found.url)


def _external_opensearch() -> str | None:
    url = os.environ.get("OPENSEARCH_URL", "").rstrip("/")
    # a shell that sourced .local/env has our own address in it
    return url if url and url != http_url(ports().opensearch) else None
