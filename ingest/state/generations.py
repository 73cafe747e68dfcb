"""Generations: which components own which index, and what was saved about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from ingest.model import Fingerprints
from ingest.state.moves import upsert
from ingest.state.records import Generation
from ingest.state.tables import generations

IDENTITY = ("alias", "parser", "chunker", "embedder", "mapping")


def add_generation(connection: Connection, generation: Generation, now: float) -> None:
    """Writes a generation down; where it is known, its index has a new ``uuid``."""
    store = upsert(connection, "generations")
    again = {"index_uuid": store.excluded.index_uuid}
    row = _row(generation, now)
    connection.execute(store.on_conflict_do_update(index_elements=["name"], set_=again), [row])


def claim_generation(connection: Connection, generation: Generation, now: float) -> Generation:
    """The alias's one generation of these components: the one that is there, or this."""
    store = upsert(connection, "generations").on_conflict_do_nothing(index_elements=list(IDENTITY))
    connection.execute(store, [_row(generation, now)])
    row = _row(generation, now)
    return read_generations(connection, *(generations.c[name] == row[name] for name in IDENTITY))[0]


def _row(generation: Generation, now: float) -> dict[str, Any]:
    prints = generation.fingerprints
    return {
        "name": generation.name,
        "alias": generation.alias,
        "state": generation.state,
        "parser": prints.parser,
        "chunker": prints.chunker,
        "embedder": prints.embedder,
        "mapping": prints.mapping,
        "extra": dict(prints.extra),
        "index_uuid": generation.uuid,
        "created_at": generation.created_at or now,
    }


def read_generations(connection: Connection, *where: Any) -> list[Generation]:
    """Generations, newest first."""
    rows = connection.execute(select(generations).where(*where).order_by(generations.c.created_at.desc()))
    return [
        Generation(
            name=row.name,
            alias=row.alias,
            fingerprints=Fingerprints(row.parser, row.chunker, row.embedder, row.mapping, row.extra),
            uuid=row.index_uuid,
            state=row.state,
            created_at=row.created_at,
        )
        for row in rows
    ]


def find_generation(connection: Connection, alias: str, prints: Fingerprints) -> Generation | None:
    """The newest generation of the alias that these components make."""
    found = read_generations(connection, generations.c.alias == alias)
    return next((one for one in found if one.fingerprints == prints), None)


def save(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    """Assigns columns of a generation."""
    connection.execute(update(generations).where(generations.c.name == name).values(dict(values)))


def saved_settings(connection: Connection, name: str) -> dict[str, Any] | None:
    """The index settings that were saved, or None."""
    found = connection.execute(select(generations.c.saved_settings).where(generations.c.name == name)).scalar()
    return None if found is None else dict(found)


def keep_settings(connection: Connection, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The index settings to be restored: those that are kept already, else these."""
    query = select(generations.c.saved_settings).where(generations.c.name == name).with_for_update()
    if kept := connection.execute(query).scalar():
        return dict(kept)
    save(connection, name, {"saved_settings": dict(settings)})
    return dict(settings)


def canary(connection: Connection, name: str, vector: Sequence[float]) -> list[float]:
    """The generation's canary vector: the first one that was given for it."""
    query = select(generations.c.canary).where(generations.c.name == name).with_for_update()
    stored = connection.execute(query).scalar()
    if stored is not None:
        return [float(value) for value in stored]
    save(connection, name, {"canary": list(vector)})
    return list(vector)
