"""Loopback ports and HTTP probes."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil

from local.errors import PortTaken
from local.layout import LOOPBACK

# no proxy: one of the user's network cannot reach this machine's loopback
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


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
        f"{service} needs port {port}, which {holder(port)} holds. "
        f"End that process, or choose another port with {variable}=…"
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
        with _DIRECT.open(url, timeout=timeout_s) as response:
            return bool(response.status < 400)
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False


def is_open(url: str, timeout_s: float = 2.0) -> bool:
    """True if something listens at the URL's host and port, whatever it would answer."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout_s).close()
    except OSError:
        return False
    return True


def send_json(method: str, url: str, body: object) -> object:
    """Send a JSON body past any proxy and parse the answer; HTTPError on a status of 400 and more."""
    request = urllib.request.Request(  # noqa: S310 - loopback only
        url, data=json.dumps(body).encode(), method=method, headers={"Content-Type": "application/json"}
    )
    with _DIRECT.open(request, timeout=30) as response:
        return json.load(response)


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
