"""Servers of the user's own: named by a URL in the environment, and used instead of one that we would start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import unquote

from local import moto, net, service
from local.layout import DATA, LEDGER_FILE, RUN, http_url, ports

VARIABLES: Mapping[str, str] = {"opensearch": "OPENSEARCH_URL", "moto": "AWS_ENDPOINT_URL"}


def server(name: str) -> str | None:
    """The URL that the environment names instead of our ``opensearch`` or ``moto``, if any.

    A shell that sourced ``.local/env`` carries our own address: it is the user's only where something answers there
    that we did not start, as a container does.
    """
    url = os.environ.get(VARIABLES[name], "").rstrip("/")
    if not url or url != our_url(name):
        return url or None
    found = service.load(name, RUN)
    is_ours = found is not None and found.is_running()
    return url if not is_ours and net.is_open(url) else None


def our_url(name: str) -> str:
    """Where our own service of that name listens."""
    return http_url({"opensearch": ports().opensearch, "moto": ports().moto}[name])


def ledger() -> str | None:
    """The database that ``LEDGER_URL`` names, unless it is one of ours."""
    url = os.environ.get("LEDGER_URL", "")
    is_ours = url == our_ledger() or str(DATA) in unquote(url)  # our PostgreSQL listens on a socket among its data
    return None if is_ours else url or None


def our_ledger() -> str:
    """The SQLite file of the laptop stack."""
    return f"sqlite:///{LEDGER_FILE}"


def object_store() -> dict[str, str]:
    """The variables of S3, SQS and DynamoDB. Keys of the user's own stay where they are: in the environment."""
    names = {"INGEST_BUCKET": moto.DOCUMENTS, "INGEST_ARTIFACTS": moto.ARTIFACTS, "INGEST_QUEUE": moto.QUEUE}
    if (url := server("moto")) is None:
        return {"AWS_ENDPOINT_URL": our_url("moto"), **moto.CREDENTIALS, **names}
    missing = {name: value for name, value in moto.CREDENTIALS.items() if name not in os.environ}
    return {"AWS_ENDPOINT_URL": url, **missing, **{name: os.environ.get(name, value) for name, value in names.items()}}
