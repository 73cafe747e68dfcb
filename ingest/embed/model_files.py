"""Finds a sentence-transformers model's folder and reads what its files say; loads no weights."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ingest.config import EmbedConfig
from ingest.errors import PreflightError

HASHING = "hashing"
# Of a hub repository: other formats of the same weights (onnx, tf, gguf) are not fetched.
_WANTED = ("*.json", "*.safetensors", "pytorch_model*.bin", "*.txt", "*.model", "*/config.json", "*/*.safetensors")
_ENCODERS = {"bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "electra", "camembert", "albert"}


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What a model's files say. ``pooling`` is ``mean``, ``cls`` or ``other``; ``modules`` their class names."""

    folder: Path
    dimension: int
    max_tokens: int
    pooling: str
    modules: tuple[str, ...]
    architecture: str
    lower_case: bool
    pad_id: int

    @property
    def is_plain(self) -> bool:
        """Encoder, mean or CLS pooling, perhaps normalisation: what the OpenVINO backend computes."""
        plain = self.modules in (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize"))
        return plain and self.pooling in ("mean", "cls") and self.architecture in _ENCODERS


def resolve_model(config: EmbedConfig) -> Path:
    """Folder of the model, fetched from the hub if need be; for the hashing embedder the folder of a tokenizer."""
    model = config.model
    if model.partition(":")[0] == HASHING:
        model = str(EmbedConfig.model_fields["model"].default)
    if model.startswith("package:"):
        return _in_package(model.removeprefix("package:"))
    if Path(model).expanduser().is_dir():
        return Path(model).expanduser().resolve()
    return _from_hub(model, config.revision)


def _in_package(name: str) -> Path:
    spec = importlib.util.find_spec(name)  # finds without importing, so without what the package imports
    roots = list(spec.submodule_search_locations or ()) if spec else []
    if not roots:
        raise PreflightError(f"embed.model: no package {name} is installed (python -m pip install {name})")
    found = sorted(path.parent for root in roots for path in Path(root).rglob("modules.json"))
    if not found:
        raise PreflightError(f"embed.model: package {name} holds no modules.json, so no sentence-transformers model")
    return found[0]


def _from_hub(model: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, revision=revision or None, allow_patterns=list(_WANTED)))
    except Exception as error:  # the hub raises its own, HTTP and socket errors
        raise PreflightError(
            f"embed.model: {model} is no folder and can't be had from the model hub ({type(error).__name__}: {error}); "
            "give a folder, a package:NAME, or set HF_HOME to a filled cache"
        ) from error


@cache
def read_model(folder: Path) -> ModelFiles:
    """What the files in ``folder`` say. Raises PreflightError."""
    encoder = _json(folder / "config.json")
    modules = _json(folder / "modules.json", [])
    names = tuple(str(m["type"]).rpartition(".")[2] for m in modules) or ("Transformer", "Pooling")
    by_name = {name: folder / m["path"] for name, m in zip(names, modules, strict=False)}
    pooling = _json(by_name.get("Pooling", folder / "1_Pooling") / "config.json", {})
    sentence = _json(folder / "sentence_bert_config.json", {})
    tokenizer = _json(folder / "tokenizer_config.json", {})
    hidden = int(encoder.get("hidden_size") or encoder.get("dim") or 0)
    dense = _json(by_name["Dense"] / "config.json", {}) if "Dense" in by_name else {}
    return ModelFiles(
        folder=folder,
        dimension=int(dense.get("out_features") or pooling.get("word_embedding_dimension") or hidden),
        max_tokens=_max_tokens(sentence, tokenizer, encoder),
        pooling=_pooling(pooling),
        modules=names,
        architecture=str(encoder.get("model_type", "")),
        lower_case=bool(sentence.get("do_lower_case", False)),
        pad_id=int(encoder.get("pad_token_id") or 0),
    )


@cache
def weights_hash(folder: Path) -> str:
    """12 hex digits over weights, tokenizer and settings: the model's revision, wherever it was loaded from."""
    found = hashlib.sha256()
    for path in sorted(_deciding(folder)):
        with path.open("rb") as file:
            one = hashlib.file_digest(file, "sha256").hexdigest()
        found.update(f"{path.relative_to(folder).as_posix()} {one}\n".encode())
    return found.hexdigest()[:12]


def _deciding(folder: Path) -> set[Path]:
    weights = set(folder.glob("*.safetensors")) or set(folder.glob("pytorch_model*.bin"))
    names = ("config.json", "modules.json", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json")
    settings = {folder / name for name in names if (folder / name).is_file()}
    modules = {folder / m["path"] for m in _json(folder / "modules.json", []) if m["path"]}
    inner = {
        path for module in modules for path in module.glob("*") if path.suffix in (".json", ".safetensors", ".bin")
    }
    if not weights:
        raise PreflightError(f"{folder}: no *.safetensors and no pytorch_model.bin, so no weights")
    return weights | settings | inner


def _pooling(config: dict[str, Any]) -> str:
    if "pooling_mode" in config:
        mode = str(config["pooling_mode"])
        return mode if mode in ("mean", "cls") else "other"
    on = {key for key, value in config.items() if key.startswith("pooling_mode_") and value is True}
    one = {frozenset({"pooling_mode_mean_tokens"}): "mean", frozenset({"pooling_mode_cls_token"}): "cls"}
    return one.get(frozenset(on), "other") if config else "mean"


def _max_tokens(sentence: dict[str, Any], tokenizer: dict[str, Any], encoder: dict[str, Any]) -> int:
    # transformers writes 1e30 for "no limit"
    limits = (tokenizer.get("model_max_length"), encoder.get("max_position_embeddings"))
    known = [int(limit) for limit in limits if limit and limit < 1 << 20]
    return int(sentence.get("max_seq_length") or min(known, default=512))


def _json(path: Path, default: Any = None) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        if default is None:
            raise PreflightError(f"{path} is missing: not a sentence-transformers model") from error
        return default
    except ValueError as error:
        raise PreflightError(f"{path}: not JSON: {error}") from error
