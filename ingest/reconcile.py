"""Expected against found: what to keep, write and delete. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Chunk ids, sorted; ``delete`` with the revision that is stored."""

    keep: tuple[str, ...]
    write: tuple[str, ...]
    delete: tuple[tuple[str, int], ...]

    @property
    def is_empty(self) -> bool:
        return not self.write and not self.delete


def reconcile(expected: Mapping[str, str], found: Mapping[str, tuple[str, int]]) -> Plan:
    """The plan that turns ``found`` (id to content hash and revision) into ``expected`` (id to content hash)."""
    same = {chunk_id for chunk_id, content in expected.items() if chunk_id in found and found[chunk_id][0] == content}
    return Plan(
        keep=tuple(sorted(same)),
        write=tuple(sorted(expected.keys() - same)),
        delete=tuple((chunk_id, found[chunk_id][1]) for chunk_id in sorted(found.keys() - expected.keys())),
    )
