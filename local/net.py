"""Loopback ports and HTTP probes."""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import psutil

from local.errors import PortTaken
from local.layout import LOOPBACK


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def require_free(port: int, service: str, variable: str) -> None:
    """Raise PortTaken, with the holder's name and pid, if something listens on the port."""
    if not _is_listening(port) and _can_bind(port):
        return
    raise PortTaken(
        f"{service} needs port {port}, which {holder(port)} holds. End that process, or choose another port: {variable}=…"
    )


def holder(port: int) -> str:
    """Name and pid of the process that listens on a port, as far as this user may see."""
    for pid in _listeners(port):
        try:
            return f"{psutil.Process(pid).name()} (pid {pid})"
        except psutil.Error:
            return f"pid {pid}"
    return "a process of another user"


def answers(url: str, timeout_s: float = 2.0) -> bool:
    """True if a GET answers with a status below 400."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:  # noqa: S310 - loopback or the user's own URL
            return bool(response.status < 400)
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        # connections of the last run linger in TIME_WAIT and block nobody
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _listeners(port: int) -> Iterator[int]:
    for process in psutil.process_iter():
        # per process, because the system-wide listing needs root on macOS
        try:
            connections = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        if any(c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port for c in connections):
            yield process.pid
