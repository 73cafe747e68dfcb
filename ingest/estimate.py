"""Totals of a corpus from a stratified sample: a separate ratio estimator on bytes, with 95 % intervals.

W. G. Cochran, Sampling Techniques, 3rd ed., chapters 5 and 6.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

SIZES = ((100_000, "under 100 KB"), (1_000_000, "under 1 MB"), (10_000_000, "under 10 MB"))
KINDS = 12  # extensions with strata of their own; what comes later counts as "other"
LEAST = 2  # documents of a stratum that are read, or no spread is known
Z = 1.959964  # of a normal distribution, 95 %


@dataclass(frozen=True, slots=True)
class Item:
    """A document that may be drawn; ``size`` in bytes."""

    name: str
    size: int


@dataclass(slots=True)
class Stratum:
    """Documents of one kind and size class: how many, their bytes, and the ones that are drawn first."""

    keep: int
    seed: int
    documents: int = 0
    size: int = 0
    _drawn: list[tuple[int, str, Item]] = field(default_factory=list)

    def add(self, item: Item) -> None:
        """Counts a document and may keep it: those whose hash is smallest are a random sample of any size."""
        self.documents += 1
        self.size += item.size
        rank = -int.from_bytes(hashlib.sha256(f"{self.seed}\0{item.name}".encode()).digest()[:8], "big")
        keep = heapq.heappush if len(self._drawn) < self.keep else heapq.heappushpop
        keep(self._drawn, (rank, item.name, item))

    def sample(self, number: int) -> list[Item]:
        """The first ``number`` that are drawn, the same for the same seed."""
        return [item for _, _, item in sorted(self._drawn, reverse=True)[:number]]


class Strata:
    """Strata by file extension and size class; memory does not grow with the number of documents."""

    def __init__(self, keep: int, seed: int) -> None:
        self._keep = keep
        self._seed = seed
        self._kinds: set[str] = set()
        self.by_name: dict[str, Stratum] = {}

    def add(self, item: Item) -> None:
        """Puts a document into its stratum."""
        size = next((name for limit, name in SIZES if item.size < limit), "10 MB and more")
        name = f"{self._kind(item.name)}, {size}"
        if name not in self.by_name:
            self.by_name[name] = Stratum(self._keep, self._seed)
        self.by_name[name].add(item)

    def _kind(self, name: str) -> str:
        file = name.rpartition("/")[2]
        kind = file.rpartition(".")[2].lower() if "." in file else "none"
        if kind not in self._kinds and len(self._kinds) >= KINDS:
            return "other"
        self._kinds.add(kind)
        return kind

    def draw(self, number: int) -> dict[str, list[Item]]:
        """About ``number`` documents: two of each stratum, the rest in proportion to the strata's bytes."""
        counts = allocate({name: (one.documents, one.size) for name, one in self.by_name.items()}, number)
        return {name: self.by_name[name].sample(count) for name, count in counts.items()}


def allocate(strata: Mapping[str, tuple[int, int]], number: int) -> dict[str, int]:
    """Documents to read of each stratum of (documents, bytes); each gives at least ``LEAST`` if it has them."""
    counts = {name: min(LEAST, documents) for name, (documents, _) in strata.items()}
    total = sum(size for _, size in strata.values()) or 1
    spare = max(0, number - sum(counts.values()))
    for name, (documents, size) in sorted(strata.items(), key=lambda pair: -pair[1][1]):
        counts[name] += min(documents - counts[name], round(spare * size / total))
    return counts


# ---------------------------------------------------------------- estimates


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a stratum's sample gave: (bytes, value) of each document read, of ``documents`` with ``size`` bytes."""

    documents: int
    size: int
    values: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Total:
    """An estimated total and its 95 % interval."""

    value: float
    low: float
    high: float


def total(strata: Iterable[Drawn]) -> Total:
    """The total over all strata: of each, the sample's value per byte times the stratum's bytes."""
    value = variance = freedom = 0.0
    for one in strata:
        if one.values:
            own, spread = _stratum(one)
            value, variance = value + own, variance + spread
            freedom += len(one.values) - 1
    reach = _student(max(1.0, freedom)) * sqrt(variance)
    return Total(value, max(0.0, value - reach), value + reach)


def _stratum(one: Drawn) -> tuple[float, float]:
    """The stratum's total and the variance of it; a stratum that was read whole has none."""
    read = len(one.values)
    size, found = sum(x for x, _ in one.values), sum(y for _, y in one.values)
    if read >= one.documents:
        return found, 0.0
    if not size:
        return found / read * one.documents, 0.0
    ratio = found / size
    squares = sum((y - ratio * x) ** 2 for x, y in one.values)
    spread = squares / (read - 1) if read > 1 else found**2  # of one alone nothing is known
    return ratio * one.size, one.documents**2 * (1 - read / one.documents) / read * spread


def _student(freedom: float) -> float:
    """The 97.5 % quantile of Student's t (Cornish-Fisher expansion; 1 % off at 3 degrees of freedom)."""
    z = Z
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
