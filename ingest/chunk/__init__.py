"""Cuts an assembled document into chunks that fit the embedder.

A strategy is ``(Assembled, ChunkConfig, Tokenizer) -> list[Chunk]``, named in ``STRATEGIES`` or by ``module:function``.
What every strategy promises is ``tests/contract/test_chunker.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from ingest.chunk.context import embed_text
from ingest.chunk.tokens import Tokenizer
from ingest.config import ChunkConfig
from ingest.errors import ConfigError
from ingest.model import Assembled, Chunk, fingerprint

Strategy = Callable[[Assembled, ChunkConfig, Tokenizer], list[Chunk]]

STRATEGIES: dict[str, str] = {
    "recursive": "ingest.chunk.recursive:recursive",  # sections share a chunk until it is half full
    "structure": "ingest.chunk.recursive:structure",  # every heading starts a chunk
}
VERSION = "1"  # goes up when a strategy cuts differently

__all__ = ["STRATEGIES", "Strategy", "Tokenizer", "check_budget", "chunk", "chunker_fingerprint", "embed_text"]


def chunk(assembled: Assembled, config: ChunkConfig, tokenizer: Tokenizer) -> list[Chunk]:
    """The document's chunks in order, by the strategy that ``config`` names; none for a text of whitespace only."""
    return _strategy(config.strategy)(assembled, config, tokenizer)


def chunker_fingerprint(config: ChunkConfig, tokenizer_name: str) -> str:
    """Short name of everything that decides where chunks begin and end, and what their headers say."""
    return fingerprint(config.strategy, VERSION, {**config.model_dump(mode="json"), "tokenizer": tokenizer_name})


def check_budget(config: ChunkConfig, tokenizer: Tokenizer, model_limit: int, prefix: str = "") -> None:
    """Raises ConfigError unless a full chunk with prefix and special tokens fits into the model's ``model_limit``.

    And unless the strategy is there: a wrong name must not make an index first.
    """
    _strategy(config.strategy)
    around = tokenizer.specials + tokenizer.count(prefix)
    if config.size + around > model_limit:
        raise ConfigError(
            f"chunk.size ({config.size}) and {around} tokens around it are more than the {model_limit} tokens that the "
            f"model reads: the end of each chunk would never be embedded; set chunk.size to {model_limit - around}"
        )


def _strategy(name: str) -> Strategy:
    path = STRATEGIES.get(name, name)
    module, _, function = path.partition(":")
    if not function:
        raise ConfigError(f"chunk.strategy: {name} is none of {', '.join(STRATEGIES)}, nor module:function")
    try:
        return cast(Strategy, getattr(import_module(module), function))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"chunk.strategy: {name} can't be loaded: {error}") from error
