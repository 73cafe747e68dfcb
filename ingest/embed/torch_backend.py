"""Any sentence-transformers model on torch: the backend of GPUs, and of models that OpenVINO does not take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingest.embed.choice import Choice, Description
from ingest.embed.guard import unit_rows
from ingest.embed.model_files import read_model
from ingest.embed.token_rows import TokenRows
from ingest.errors import PreflightError


def open_torch(folder: Path, choice: Choice, description: Description) -> TorchEmbedder:
    """The model on ``choice.device``. Raises PreflightError when it or its GPU is not there."""
    import torch
    from sentence_transformers import SentenceTransformer

    if choice.device == "cuda" and not torch.cuda.is_available():
        raise PreflightError("embed.device: cuda, but torch sees no GPU here; set embed.gpus, or device: cpu")
    # Ray sets OMP_NUM_THREADS from an actor's logical CPUs, which says nothing about the cores it may use.
    torch.set_num_threads(choice.threads)
    try:
        model = SentenceTransformer(
            str(folder),
            device=choice.device,
            model_kwargs={"dtype": getattr(torch, choice.dtype)},
            local_files_only=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise PreflightError(f"{description.model} can't be loaded: {type(error).__name__}: {error}") from error
    return TorchEmbedder(model.eval(), TokenRows(read_model(folder)), choice, description)


class TorchEmbedder:
    """All modules of the model in ``dtype``, unit length in fp32."""

    def __init__(self, model: Any, rows: TokenRows, choice: Choice, description: Description) -> None:
        self.fingerprint = description.fingerprint
        self.dimension = description.dimension
        self.max_tokens = description.max_tokens
        self.backend = description.backend
        self._model = model
        self._rows = rows
        self._device = choice.device
        self._micro_batch = choice.micro_batch
        self._has_types = getattr(model[0].auto_model.config, "type_vocab_size", 0) > 1

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (n, dimension), unit length, in the order of ``texts``."""
        import torch

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        with torch.inference_mode():  # of this thread only
            pending = [
                (batch.rows, self._model(self._features(batch.ids, batch.mask))["sentence_embedding"])
                for batch in self._rows.batches(texts, self._micro_batch)
            ]
            for rows, tensor in pending:  # copied at the end: a GPU computes meanwhile
                vectors[rows] = tensor.float().cpu().numpy()
        return unit_rows(vectors)

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Number of texts whose end the model does not read."""
        return self._rows.count_truncated(texts)

    def _features(self, ids: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
        import torch

        features = {
            "input_ids": torch.from_numpy(ids).to(self._device),
            "attention_mask": torch.from_numpy(mask).to(self._device),
        }
        if self._has_types:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return features
