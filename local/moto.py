"""S3, SQS and DynamoDB on loopback, from moto's server; it keeps everything in memory."""

from __future__ import annotations

import sys
from pathlib import Path

from local import net, service
from local.layout import LOOPBACK, http_url
from local.service import Service

DOCUMENTS = "documents"
ARTIFACTS = "artifacts"
QUEUE = "documents-events"
REGION = "us-east-1"
# moto takes any credentials; these are no secret
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_DEFAULT_REGION": REGION}


def start(home: Path, *, port: int = 0) -> Service:
    """Start an empty server with the versioned bucket `documents`, the bucket `artifacts` and a queue for events.

    Port 0 picks a free one.

    Raises PortTaken, StartFailed.
    """
    if port:
        net.require_free(port, "The S3, SQS and DynamoDB server (moto)", "MOTO_PORT")
    port = port or net.free_port()
    url = http_url(port)
    argv = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    command = service.Command("moto", argv, home.resolve())
    started = service.start(command, lambda: url if net.answers(f"{url}/moto-api/") else None)
    try:
        _furnish(url)
    except BaseException:
        started.stop()
        raise
    return started


def _furnish(url: str) -> None:
    import boto3

    session = boto3.Session(CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"], region_name=REGION)
    s3, sqs = session.client("s3", endpoint_url=url), session.client("sqs", endpoint_url=url)
    sqs.create_queue(QueueName=QUEUE)
    sqs.close()
    for bucket in (DOCUMENTS, ARTIFACTS):
        s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=DOCUMENTS, VersioningConfiguration={"Status": "Enabled"})
    s3.close()
