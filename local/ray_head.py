"""A Ray head node as our own child process, on loopback only."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local import net, service
from local.layout import LOOPBACK, http_url
from local.service import Service

OBJECT_STORE_BYTES = 512 * 1024 * 1024
# Ray appends about 65 characters for its sockets, and macOS allows 103 in a socket's path.
LONGEST_TEMP_DIR = 38


@dataclass(frozen=True, slots=True)
class HeadPorts:
    """GCS, dashboard and per-node agent (job submission goes through the last two); 0 picks a free one."""

    gcs: int = 0
    dashboard: int = 0
    agent: int = 0

    def resolved(self) -> HeadPorts:
        """The same with every 0 replaced."""
        return HeadPorts(*(port or net.free_port() for port in (self.gcs, self.dashboard, self.agent)))


@dataclass(frozen=True, slots=True)
class Head:
    """How large the head is, and what the processes it starts find in their environment."""

    ports: HeadPorts = field(default_factory=HeadPorts)
    cpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict)


def start(home: Path, head: Head | None = None) -> Service:
    """Start a head node and wait until it takes jobs; the URL is the dashboard's, for job submission.

    Raises PortTaken, StartFailed.
    """
    head = head or Head()
    _require_free(head.ports)
    ports = head.ports.resolved()
    command = service.Command("ray", _argv(home, ports, head.cpus), home.resolve(), {**head.env, **_environment()})
    return service.start(command, lambda: _ready(ports))


def temp_dir(home: Path) -> Path:
    """Ray's folder for sessions and sockets: inside `home` if that is short enough for a socket's path."""
    inside = home.resolve() / "tmp"
    if len(str(inside)) <= LONGEST_TEMP_DIR:
        return inside
    name = "doc-ingest-" + hashlib.sha256(str(inside).encode()).hexdigest()[:8]
    folders = (Path(tempfile.gettempdir()), Path("/tmp"))
    return next((f / name for f in folders if len(str(f / name)) <= LONGEST_TEMP_DIR), folders[-1] / name)


def cpu_count() -> int:
    """CPUs to announce: at least two, because a pipeline needs one beside its actors."""
    return max(2, os.cpu_count() or 2)


def _require_free(ports: HeadPorts) -> None:
    for port, what, variable in (
        (ports.gcs, "Ray's head", "RAY_PORT"),
        (ports.dashboard, "Ray's dashboard", "RAY_DASHBOARD_PORT"),
        (ports.agent, "Ray's agent (dashboard port + 1)", "RAY_DASHBOARD_PORT"),
    ):
        if port:
            net.require_free(port, what, variable)


def _argv(home: Path, ports: HeadPorts, cpus: int) -> list[str]:
    options = {
        "node-ip-address": LOOPBACK,
        "port": ports.gcs,
        "dashboard-host": LOOPBACK,
        "dashboard-port": ports.dashboard,
        "dashboard-agent-listen-port": ports.agent,
        # 0 = any free port; Ray's default range 10002-19999 covers the ports of the other services
        "min-worker-port": 0,
        "max-worker-port": 0,
        "ray-client-server-port": net.free_port(),  # unused; the default 10001 may be another cluster's
        "num-cpus": cpus or cpu_count(),
        "object-store-memory": OBJECT_STORE_BYTES,
        "temp-dir": temp_dir(home),
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats", *flags]


def _environment() -> dict[str, str]:
    return {
        # the entrypoint of a job is a shell command: `python` must be this one
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "RAY_AUTH_MODE": "disabled",  # loopback only; later versions of Ray ask for a token by default
        "RAY_USAGE_STATS_ENABLED": "0",
        # despite its name the switch that keeps the node's address 127.0.0.1 on Linux too; --node-ip-address alone
        # is replaced by the address of the network interface
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_ADDRESS": "",
    }


def _ready(ports: HeadPorts) -> str | None:
    url = http_url(ports.dashboard)
    agent = f"{http_url(ports.agent)}/api/local_raylet_healthz"
    return url if net.answers(f"{url}/api/version") and net.answers(agent) else None
