"""A client and an empty bucket of moto's server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from ingest.source import s3

_numbers = itertools.count()


@pytest.fixture
def client(aws_url: str) -> Iterator[Any]:
    opened = s3.connect()
    yield opened
    opened.close()


@pytest.fixture
def bucket(client: Any) -> str:
    name = f"integration-tests-{next(_numbers)}"
    client.create_bucket(Bucket=name)
    return name
