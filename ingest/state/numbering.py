"""Pure: which versions of a key are new, which is the newest, and what revision each gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from ingest.model import ObjectVersion

BEFORE_COUNTING = 0  # revision of a version found later that is older than what was counted already


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of a version of the key."""

    document_id: str
    revision: int
    last_modified: float
    is_newest: bool
    is_delete_marker: bool


@dataclass(frozen=True, slots=True)
class Numbering:
    """Document ids with their revision: ``added`` were unknown, ``renumbered`` are known and came back as newest."""

    added: Mapping[str, int]
    renumbered: Mapping[str, int]
    newest: str | None
    newest_is_marker: bool

    @property
    def changed(self) -> bool:
        return bool(self.added or self.renumbered)


def number(known: Mapping[str, Known], versions: Mapping[str, ObjectVersion], all_versions: bool) -> Numbering:
    """Revisions for one key's ``versions`` (by document id, newest first): the newest gets one more than the highest.

    Only the newest is taken unless ``all_versions``. What is older than the newest known never gets a higher revision.
    """
    newest = next((row for row in known.values() if row.is_newest), None)
    top = max((row.revision for row in known.values()), default=0)
    added: dict[str, int] = {}
    renumbered: dict[str, int] = {}
    last, marker = (newest.document_id, newest.is_delete_marker) if newest else (None, False)
    order = {name: place for place, name in enumerate(versions)}
    for name, version in reversed(list(versions.items())):
        before = known.get(name)
        if before is not None and not _came_back(before, version):
            continue
        if newest is not None and _is_older(name, version, newest, order):
            if all_versions and before is None:
                added[name] = BEFORE_COUNTING
        elif version.is_latest or all_versions:
            top += 1
            (renumbered if before else added)[name] = top
            last, marker = name, version.is_delete_marker
    return Numbering(added, renumbered, last, marker)


def _came_back(known: Known, version: ObjectVersion) -> bool:
    # Without version ids equal content gives an equal version: A, B, A again is a third revision.
    unversioned = version.version.startswith("null:")
    return unversioned and not known.is_newest and version.is_latest and version.last_modified > known.last_modified


def _is_older(name: str, version: ObjectVersion, newest: Known, order: Mapping[str, int]) -> bool:
    if newest.document_id in order:
        return order[name] > order[newest.document_id]
    return _time(version.last_modified, newest.last_modified) < _time(newest.last_modified, version.last_modified)


def _time(one: float, other: float) -> float:
    # Listings tell whole seconds, events milliseconds: 10.0 may be later than 10.4, so compare what both tell.
    return float(floor(one)) if floor(one) == one or floor(other) == other else one
