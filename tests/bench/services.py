"""The bench's own OpenSearch, S3 and Ray head on free ports, so that it disturbs no stack of the user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingest.config import EmbedConfig, VerifyConfig
from ingest.embed import resolve_model
from ingest.embed.convert import converted
from local import moto, opensearch, ray_head
from local.moto import CREDENTIALS
from local.service import Service
from tests.harness import Site, Stack

# what the tests' configuration sets otherwise than a user's, set back
REAL = {
    "embed.model": EmbedConfig.model_fields["model"].default,
    "verify.every_s": VerifyConfig.model_fields["every_s"].default,
}


@dataclass(frozen=True, slots=True)
class Services:
    """What runs, and where: ``model_xml`` is the model converted for OpenVINO, made before anything is measured."""

    stack: Stack
    opensearch: Service
    moto: Service
    ray: Service
    model_xml: Path
    folder: Path

    @property
    def pids(self) -> list[int]:
        """Of the three services."""
        return [self.opensearch.pid, self.moto.pid, self.ray.pid]

    def site(self, name: str, documents: Path, copies: int = 1, **overrides: object) -> Site:
        """A bucket with the documents, ``copies`` times under other keys, and a configuration; not measured."""
        folder = self.folder / name
        folder.mkdir()
        site = Site(self.stack, folder, {**REAL, **overrides})
        for path in sorted(documents.rglob("*.pdf")):
            key, body = path.relative_to(documents).as_posix(), path.read_bytes()
            site.put({(f"{n}/{key}" if n else key): body for n in range(copies)})
        return site


@contextmanager
def running(folder: Path, models: Path) -> Iterator[Services]:
    """The services until the body ends. ``models`` keeps the converted model from one bench to the next."""
    for name in list(os.environ):
        if name.startswith(("INGEST_", "LEDGER_", "RAY_ADDRESS", "AWS_")):
            del os.environ[name]
    xml = converted(resolve_model(EmbedConfig()), models)
    with ExitStack() as ended:
        node = opensearch.start(folder / "opensearch")
        ended.callback(node.stop)
        s3 = moto.start(folder / "moto")
        ended.callback(s3.stop)
        environment = {"AWS_ENDPOINT_URL": s3.url, **CREDENTIALS}
        os.environ.update(environment)
        head = ray_head.start(folder / "ray", ray_head.Head(env=environment))
        ended.callback(head.stop)
        yield Services(Stack(node.url, s3.url, head.url, head.pid, models), node, s3, head, xml, folder)
