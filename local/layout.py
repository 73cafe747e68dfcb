"""Where the laptop stack keeps its files and which ports it asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
ROOT = SOURCE.parent
STATE = ROOT / ".local"
CACHE = STATE / "cache"
RUN = STATE / "run"
DATA = STATE / "data"
LEDGER_FILE = STATE / "ledger.db"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """The fixed ports of `up`, each overridable by the environment."""

    opensearch: int
    moto: int
    ray: int
    ray_dashboard: int

    @property
    def ray_agent(self) -> int:
        """Ray's per-node agent, through which jobs are submitted."""
        return self.ray_dashboard + 1


def ports() -> Ports:
    """Read the ports from the environment; ValueError names a variable that is no port number."""
    return Ports(
        opensearch=_port("OPENSEARCH_PORT", 19200),
        moto=_port("MOTO_PORT", 15000),
        ray=_port("RAY_PORT", 16379),
        ray_dashboard=_port("RAY_DASHBOARD_PORT", 18265),
    )


def http_url(port: int) -> str:
    """The loopback URL of a port."""
    return f"http://{LOOPBACK}:{port}"


def _port(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdigit() or not 0 < int(text) < 65535:
        raise ValueError(f"{variable}={text} is not a port number between 1 and 65534")
    return int(text)
