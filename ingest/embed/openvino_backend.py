"""Encoder models on the CPU with OpenVINO: no torch in the process, several times faster than it in bfloat16."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ingest.embed.choice import Choice, Description
from ingest.embed.convert import converted
from ingest.embed.guard import unit_rows
from ingest.embed.model_files import ModelFiles, read_model
from ingest.embed.token_rows import Batch, TokenRows
from ingest.errors import PreflightError

_CAPABILITIES = {"FP32": "float32", "BF16": "bfloat16", "FP16": "float16"}


@cache
def dtypes() -> tuple[str, ...]:
    """The dtypes that this CPU computes natively."""
    import openvino

    there = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return tuple(dtype for capability, dtype in _CAPABILITIES.items() if capability in there)


def open_openvino(folder: Path, choice: Choice, description: Description) -> OpenVinoEmbedder:
    """The model compiled for this CPU, converted first where the cache has it not yet. Raises PreflightError."""
    files = read_model(folder)
    if not files.is_plain:
        raise PreflightError(f"{description.model}: OpenVINO computes an encoder with mean or CLS pooling only")
    return OpenVinoEmbedder(files, choice, description)


class OpenVinoEmbedder:
    """``streams`` share the ``threads``; micro-batches of all calls in flight share the streams."""

    def __init__(self, files: ModelFiles, choice: Choice, description: Description) -> None:
        self.fingerprint = description.fingerprint
        self.dimension = description.dimension
        self.max_tokens = description.max_tokens
        self.backend = description.backend
        self._rows = TokenRows(files)
        self._micro_batch = choice.micro_batch
        self._is_mean = files.pooling == "mean"
        network = compiled(converted(files.folder, choice.cache_dir), choice)
        self._inputs = {name for port in network.inputs for name in port.get_names()}
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(choice.streams):
            self._requests.put(network.create_infer_request())
        self._pool = ThreadPoolExecutor(choice.streams, thread_name_prefix="embed")
        self.embed([""])  # two threads that make the process's first inference at once wait for each other for ever

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (n, dimension), unit length, in the order of ``texts``."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        pending = [
            (batch.rows, self._pool.submit(self._pooled, batch))
            for batch in self._rows.batches(texts, self._micro_batch)
        ]
        for rows, future in pending:
            vectors[rows] = future.result()
        return unit_rows(vectors)

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Number of texts whose end the model does not read."""
        return self._rows.count_truncated(texts)

    def _pooled(self, batch: Batch) -> np.ndarray:
        feeds = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.zeros_like(batch.ids)
        request = self._requests.get()
        try:
            request.infer(feeds, share_inputs=True)
            return self._pool_tokens(request.get_output_tensor(0).data, batch.mask)
        finally:
            self._requests.put(request)

    def _pool_tokens(self, hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(b, longest, d) to (b, d) in fp32, whatever the network computed in."""
        if not self._is_mean:
            return np.array(hidden[:, 0], np.float32)
        weights = mask.astype(np.float32)
        summed = np.matmul(weights[:, None, :], hidden.astype(np.float32, copy=False))[:, 0]
        return np.asarray(summed / weights.sum(axis=1, keepdims=True), np.float32)


def compiled(model: Path, choice: Choice) -> Any:
    """The network in ``choice.dtype``, with its threads and streams; ``OMP_NUM_THREADS`` plays no part."""
    import openvino
    from openvino import Type
    from openvino.properties import hint, inference_num_threads, streams

    types = {"float32": Type.f32, "bfloat16": Type.bf16, "float16": Type.f16}
    options = {
        hint.inference_precision: types[choice.dtype],
        inference_num_threads: choice.threads,
        streams.num: choice.streams,
        hint.enable_cpu_pinning: False,  # two actors on one node would be pinned to the same cores
    }
    return openvino.Core().compile_model(model, "CPU", options)
