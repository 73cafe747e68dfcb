"""The S3 client, and the one seam where its errors are translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError

from ingest.errors import SourceError, StoreRefused, StoreUnavailable

# PreconditionFailed: without version ids the ETag pins the content, and another one is there by now
ARCHIVED = "InvalidObjectState"  # Glacier, Deep Archive, an archive tier: GET is refused until somebody restores it
GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound", "MethodNotAllowed", "PreconditionFailed", "412"})
REFUSED = frozenset(
    {
        "AccessDenied",
        "403",
        "NoSuchBucket",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
    }
)


def connect(threads: int = 8) -> Any:
    """An S3 client from boto3's own chain of credentials and ``AWS_ENDPOINT_URL*``; it retries what is transient."""
    retries: Any = {"mode": "standard", "max_attempts": 8}
    return boto3.client("s3", config=BotoConfig(retries=retries, max_pool_connections=max(10, threads)))


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raises SourceError for a version that is gone or archived, StoreRefused for rights, else StoreUnavailable."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in GONE:
            raise SourceError("version_gone", what) from error
        if code == ARCHIVED:
            raise SourceError("archived", what) from error
        if code in REFUSED:
            raise StoreRefused(f"{what}: {code}; check the bucket name and the rights of this role") from error
        raise StoreUnavailable(f"{what}: {code or error}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"{what}: {error}; check AWS_ENDPOINT_URL, the network and the credentials") from error
