"""Is the world as the configuration says? Every check says what to do when it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ingest.chunk import Tokenizer, check_budget
from ingest.config import Config
from ingest.embed import describe_embedder, open_embedder, resolve_model
from ingest.errors import ConfigError, IngestError, PreflightError, StoreError
from ingest.index import preflight as index_checks
from ingest.index.client import connect
from ingest.source import s3
from ingest.state import Ledger
from ingest.state.mirror import Mirror


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer: ``ok``, and what was found or what to do."""

    name: str
    ok: bool
    detail: str


def require(config: Config) -> None:
    """Raises PreflightError with every failed check of ``quick``."""
    failed = [f"{check.name}: {check.detail}" for check in quick(config) if not check.ok]
    if failed:
        raise PreflightError("not ready:\n  " + "\n  ".join(failed))


def quick(config: Config) -> Iterator[Check]:
    """What every start checks; writes nothing but a throw-away index."""
    yield _ask("source bucket", lambda: _bucket(config))
    yield _ask("artifact bucket", lambda: _artifacts(config))
    yield _ask("ledger", lambda: _ledger(config))
    if config.mirror.table:
        yield _ask("mirror", lambda: Mirror(config.mirror.table).check())
    model = _ask("model files", lambda: _described(config))
    yield model
    yield from _index(config, model.ok)


def thorough(config: Config) -> Iterator[Check]:
    """``quick``, and the model loaded and used once."""
    yield from quick(config)
    yield _ask("model loads", lambda: _loaded(config))


def _index(config: Config, with_model: bool) -> Iterator[Check]:
    if not with_model:  # its dimension is asked for
        return
    dimension = describe_embedder(config.embed).dimension
    for found in index_checks.checks(connect(config.index), config.index, dimension):
        yield Check(found.name, found.is_ok, found.sentence)


def _ask(name: str, question: Callable[[], str]) -> Check:
    try:
        return Check(name, True, question())
    except ConfigError:
        raise
    except (IngestError, ClientError, BotoCoreError) as error:
        return Check(name, False, str(error))


def _bucket(config: Config) -> str:
    client, bucket = s3.connect(), config.source.bucket
    with s3.translated(f"s3://{bucket}"):
        status = client.get_bucket_versioning(Bucket=bucket).get("Status", "never switched on")
    if status != "Enabled":
        return f"s3://{bucket} is not versioned ({status}): the ETag stands for the version, older content is lost"
    return f"s3://{bucket}, versioned"


def _artifacts(config: Config) -> str:
    client: Any = s3.connect()
    bucket = config.artifacts.bucket
    with s3.translated(f"s3://{bucket}"):
        client.list_objects_v2(Bucket=bucket, Prefix=config.artifacts.prefix, MaxKeys=1)  # HEAD's 404 says no code
    return f"s3://{bucket}/{config.artifacts.prefix}"


def _ledger(config: Config) -> str:
    ledger = Ledger(config.ledger.url)
    try:
        ledger.migrate()
    except StoreError as error:
        raise PreflightError(f"{error}; start the database, or correct ledger.url and its rights") from error
    finally:
        ledger.close()
    return config.ledger.url.split("@")[-1]


def _described(config: Config) -> str:
    found = describe_embedder(config.embed)
    tokenizer = Tokenizer.load(resolve_model(config.embed))
    check_budget(config.chunk, tokenizer, found.max_tokens, config.embed.passage_prefix)
    return f"{found.model}, {found.dimension} dimensions, {found.max_tokens} tokens, {found.backend} {found.dtype}"


def _loaded(config: Config) -> str:
    vector = open_embedder(config.embed, gpus=config.embed.gpus).embed(["a short text"])[0]
    return f"vector of length {float((vector**2).sum()) ** 0.5:.6f}"
