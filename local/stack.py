"""The laptop stack as a whole: services up side by side, down without a trace, and the environment that names them."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local import moto, net, opensearch, postgres, ray_head, service
from local.errors import StartFailed
from local.layout import CACHE, DATA, ROOT, RUN, STATE, http_url, ports
from local.service import Service

QUEUE = "documents-events"
ENV_FILE = STATE / "env"
LEDGER_FILE = STATE / "ledger.db"
NAMES = ("postgres", "opensearch", "moto", "ray")


@dataclass(frozen=True, slots=True)
class Status:
    """What became of one service: `state` is started, kept, yours (given by URL) or down."""

    name: str
    state: str
    url: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name:<11}{self.state:<8}{self.seconds:5.1f} s  {self.url}"


def up(say: Callable[[object], None]) -> None:
    """Start what is not running, side by side; `say` gets a Status as each service answers, and notes.

    Raises ExceptionGroup of StackError if any service failed; the others stay up.
    """
    with _exclusive():
        _forget_what_moto_forgot(say)
        if "postgres" in _wanted():
            _up_one("postgres", lambda: postgres.start(DATA / "postgres"), say)
        if not opensearch.is_prepared(_line()):
            say(
                "note: the first start fetches OpenSearch from Maven Central and trains a startup cache, about a minute"
            )
        starts = _starts(variables())
        with ThreadPoolExecutor(len(starts)) as pool:
            pending = [pool.submit(_up_one, name, start, say) for name, start in starts.items()]
        _write_env(variables())
    failures = [error for done in pending if (error := done.exception()) is not None]
    if failures:
        raise BaseExceptionGroup("services that did not start", failures)


def down() -> list[str]:
    """End every recorded service and all that it started; gives the names of those that ran."""
    with _exclusive():
        return _down()


def clean() -> None:
    """`down`, then remove everything but the cache of downloads."""
    with _exclusive():
        _down()
        shutil.rmtree(ray_head.temp_dir(DATA / "ray"), ignore_errors=True)
        for path in STATE.iterdir():
            if path not in (CACHE, RUN):
                _remove(path)


def status() -> list[Status]:
    """The state of every wanted service; starts nothing."""
    return [_status(name) for name in NAMES if name in _wanted()]


def variables() -> dict[str, str]:
    """The environment of the jobs, as `up` writes it to `.local/env`."""
    return {
        "OPENSEARCH_URL": _url("opensearch"),
        "AWS_ENDPOINT_URL": _url("moto"),
        **moto.CREDENTIALS,
        "LEDGER_URL": _url("postgres") if "postgres" in _wanted() else f"sqlite:///{LEDGER_FILE}",
        "INGEST_CONFIG": str(ROOT / "local" / "config.yaml"),
        "INGEST_BUCKET": moto.DOCUMENTS,
        "INGEST_ARTIFACTS": moto.ARTIFACTS,
        "INGEST_QUEUE": QUEUE,
        "INGEST_MODELS": str(STATE / "models"),
        "INGEST_FILES": str(STATE / "files"),
        "RAY_ADDRESS": _url("ray"),
        # a proxy of the user's network cannot reach this machine's loopback
        "no_proxy": ",".join(filter(None, ["127.0.0.1,localhost", os.environ.get("no_proxy", "")])),
    }


@contextmanager
def _exclusive() -> Iterator[None]:
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _wanted() -> set[str]:
    return set(NAMES) if os.environ.get("LEDGER") == "postgres" else set(NAMES) - {"postgres"}


def _line() -> str:
    return os.environ.get("OPENSEARCH") or "2"


def _homes() -> dict[str, Path]:
    return {**{name: DATA / name for name in NAMES}, "opensearch": DATA / f"opensearch-{_line()}"}


def _url(name: str) -> str:
    chosen = ports()
    if name == "postgres":
        found = service.load(name, RUN)
        return found.url if found else ""
    if name == "opensearch":
        return external_opensearch() or http_url(chosen.opensearch)
    return http_url({"moto": chosen.moto, "ray": chosen.ray_dashboard}[name])


def external_opensearch() -> str | None:
    """A server that the user names by ``OPENSEARCH_URL``, if it is not ours."""
    url = os.environ.get("OPENSEARCH_URL", "").rstrip("/")
    # a shell that sourced .local/env carries our own address
    return url if url and url != http_url(ports().opensearch) else None


def _starts(environment: Mapping[str, str]) -> dict[str, Callable[[], Service]]:
    chosen, homes = ports(), _homes()
    head = ray_head.Head(ray_head.HeadPorts(chosen.ray, chosen.ray_dashboard, chosen.ray_agent), env=environment)
    return {
        "opensearch": lambda: opensearch.start(homes["opensearch"], port=chosen.opensearch, line=_line()),
        "moto": lambda: moto.start(homes["moto"], port=chosen.moto),
        "ray": lambda: ray_head.start(homes["ray"], head),
    }


def _up_one(name: str, start: Callable[[], Service], say: Callable[[object], None]) -> None:
    began = time.monotonic()
    found = _status(name)
    if found.state == "down":
        if found.url:
            raise StartFailed(f"OPENSEARCH_URL={found.url} does not answer; unset it to get a node of our own")
        _stop_recorded(name)
        started = start()
        started.save(RUN)
        found = Status(name, "started", started.url, time.monotonic() - began)
    say(found)


def _status(name: str) -> Status:
    if name == "opensearch" and (url := external_opensearch()) is not None:
        return Status(name, "yours" if net.answers(url) else "down", url)
    found = service.load(name, RUN)
    # another port or OpenSearch line than the one that runs means: start it anew
    if found is None or not found.is_running() or (found.url, found.home) != (_url(name), _homes()[name]):
        return Status(name, "down", "")
    return Status(name, "kept", found.url)


def _stop_recorded(name: str) -> bool:
    found = service.load(name, RUN)
    if found is None:
        return False
    running = found.is_running()
    found.stop()  # also if it ended by itself: what it started may be alive
    (RUN / f"{name}.json").unlink(missing_ok=True)
    return running


def _down() -> list[str]:
    with ThreadPoolExecutor(len(NAMES)) as pool:
        stopped = list(pool.map(_stop_recorded, NAMES))
    return [name for name, was_running in zip(NAMES, stopped, strict=True) if was_running]


def _forget_what_moto_forgot(say: Callable[[object], None]) -> None:
    """Without its documents, which moto loses when it ends, a ledger or an index speaks of things that are gone."""
    if _status("moto").state == "kept" or not (LEDGER_FILE.exists() or DATA.exists()):
        return
    if any(_status(name).state == "kept" for name in NAMES):
        say("note: moto had ended, its buckets are empty now; `make clean` forgets the old ledger and index too")
        return
    for path in (DATA, *STATE.glob(f"{LEDGER_FILE.name}*")):
        _remove(path)
    say("note: moto keeps its objects in memory, so this session starts with empty buckets, ledger and index")


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _write_env(values: Mapping[str, str]) -> None:
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in values.items()]
    ENV_FILE.write_text("".join(lines))
