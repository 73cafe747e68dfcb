"""The laptop stack as a whole: services up side by side, down without a trace, and the environment that names them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local import given, moto, net, opensearch, postgres, ray_head, service
from local.errors import StartFailed
from local.layout import CACHE, DATA, LEDGER_FILE, ROOT, RUN, STATE, http_url, ports
from local.service import Service

ENV_FILE = STATE / "env"
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
        if given.server("opensearch") is None and not opensearch.is_prepared(_line()):
            say(
                "note: the first start fetches OpenSearch from Maven Central and trains a startup cache, about a minute"
            )
        starts = _starts(variables())
        with ThreadPoolExecutor(len(starts)) as pool:
            pending = [pool.submit(_up_one, name, start, say) for name, start in starts.items()]
        for found in _own_ledger():
            say(found)
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
        for home in DATA.glob("ray-*"):
            shutil.rmtree(ray_head.temp_dir(home), ignore_errors=True)
        for path in STATE.iterdir():
            if path not in (CACHE, RUN):
                _remove(path)


def status() -> list[Status]:
    """The state of every wanted service; starts nothing."""
    return [*(_status(name) for name in NAMES if name in _wanted()), *_own_ledger()]


def variables() -> dict[str, str]:
    """The environment of the jobs, as `up` writes it to `.local/env`."""
    return {
        "OPENSEARCH_URL": _url("opensearch"),
        **given.object_store(),
        "LEDGER_URL": given.ledger() or (_url("postgres") if "postgres" in _wanted() else given.our_ledger()),
        "INGEST_CONFIG": str(ROOT / "local" / "config.yaml"),
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
    is_asked_for = os.environ.get("LEDGER") == "postgres" and given.ledger() is None
    return set(NAMES) if is_asked_for else set(NAMES) - {"postgres"}


def _line() -> str:
    return os.environ.get("OPENSEARCH") or "2"


def _homes() -> dict[str, Path]:
    places = {"opensearch": DATA / f"opensearch-{_line()}", "ray": DATA / f"ray-{_places()}"}
    return {**{name: DATA / name for name in NAMES}, **places}


def _places() -> str:
    """Short hash of what jobs find in the environment of Ray's head: with other servers or keys it starts anew."""
    environment = {**os.environ, **variables()}
    told = {
        name: value for name, value in environment.items() if name.startswith(("AWS_", "LEDGER_URL", "OPENSEARCH_"))
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]


def _url(name: str) -> str:
    if name == "postgres":
        found = service.load(name, RUN)
        return found.url if found else ""
    if name == "ray":
        return http_url(ports().ray_dashboard)
    return given.server(name) or given.our_url(name)


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
            raise StartFailed(f"{given.VARIABLES[name]}={found.url} does not answer; unset it to get one of our own")
        _stop_recorded(name)
        started = start()
        started.save(RUN)
        found = Status(name, "started", started.url, time.monotonic() - began)
    say(found)


def _status(name: str) -> Status:
    if name in given.VARIABLES and (url := given.server(name)) is not None:
        return Status(name, "yours" if net.is_open(url) else "down", url)
    found = service.load(name, RUN)
    # another port or OpenSearch line than the one that runs means: start it anew
    if found is None or not found.is_running() or (found.url, found.home) != (_url(name), _homes()[name]):
        return Status(name, "down", "")
    return Status(name, "kept", found.url)


def _own_ledger() -> list[Status]:
    """The user's database without its password; whether it answers is asked where a run begins."""
    return [Status("ledger", "yours", re.sub(r":[^:@/]*@", ":***@", url))] if (url := given.ledger()) else []


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
    if given.server("moto") or _status("moto").state == "kept" or not (LEDGER_FILE.exists() or DATA.exists()):
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
    ENV_FILE.touch(mode=0o600)
    ENV_FILE.chmod(0o600)  # a database of the user's own has its password in the URL
    ENV_FILE.write_text("".join(lines))
