"""What runs and operators tell each other through the ledger: samples, pauses, and what an actor is at."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, select, update

from ingest.state.moves import slices, upsert
from ingest.state.records import Pause, Sample
from ingest.state.tables import begun, pauses, runs, samples

# ---------------------------------------------------------------- samples


def add_sample(connection: Connection, run_id: str, sample: Sample) -> None:
    """Keeps the run's counters as they are now."""
    row = {"run_id": run_id, "at": sample.at, "values": dict(sample.values)}
    connection.execute(upsert(connection, "samples").on_conflict_do_nothing(index_elements=["run_id", "at"]), [row])


def read_samples(connection: Connection, run_id: str, since: float) -> list[Sample]:
    """The run's counters over time, oldest first, taken at or after ``since``."""
    query = select(samples).where(samples.c.run_id == run_id, samples.c.at >= since).order_by(samples.c.at)
    return [Sample(row.at, row._mapping["values"]) for row in connection.execute(query)]


# ---------------------------------------------------------------- pauses


def pause(connection: Connection, alias: str, pause_: Pause) -> bool:
    """Lets all runs of an alias wait; False where they do already, and the first pause stays."""
    row = {"alias": alias, "since": pause_.since, "who": pause_.who, "why": pause_.why}
    store = upsert(connection, "pauses").on_conflict_do_nothing(index_elements=["alias"])
    return bool(connection.execute(store.returning(pauses.c.alias), [row]).first())


def resume(connection: Connection, alias: str) -> bool:
    """Lets them go on; False where they were not waiting."""
    return bool(connection.execute(delete(pauses).where(pauses.c.alias == alias)).rowcount)


def paused(connection: Connection, alias: str) -> Pause | None:
    """The pause of an alias, or None."""
    row = connection.execute(select(pauses).where(pauses.c.alias == alias)).first()
    return Pause(row.since, row.who, row.why) if row else None


def stop_reason(connection: Connection, run_id: str, alias: str) -> str:
    """Why an actor of the run is to do nothing more, or an empty string."""
    row = connection.execute(select(runs.c.stop_reason).where(runs.c.run_id == run_id)).first()
    if row and row.stop_reason:
        return str(row.stop_reason)
    return "paused" if paused(connection, alias) else ""


# ---------------------------------------------------------------- what an actor is at


def begin(connection: Connection, run_id: str, units: Collection[str]) -> dict[str, int]:
    """Notes that a call works on these units. Those that stood there already lost an actor: how often alone."""
    known: dict[str, int] = {}
    for part in slices(units):
        query = select(begun.c.unit, begun.c.alone).where(begun.c.run_id == run_id, begun.c.unit.in_(part))
        known |= {row.unit: row.alone for row in connection.execute(query)}
    fresh = [{"run_id": run_id, "unit": unit, "alone": 0} for unit in units if unit not in known]
    if fresh:
        store = upsert(connection, "begun").on_conflict_do_nothing(index_elements=["run_id", "unit"])
        connection.execute(store, fresh)
    return known


def begin_alone(connection: Connection, run_id: str, unit: str) -> None:
    """Notes that an actor works on this unit and on nothing else."""
    here = (begun.c.run_id == run_id, begun.c.unit == unit)
    connection.execute(update(begun).where(*here).values(alone=begun.c.alone + 1))


def ended(connection: Connection, run_id: str, units: Collection[str]) -> None:
    """Notes that the call came through with these."""
    for part in slices(units):
        connection.execute(delete(begun).where(begun.c.run_id == run_id, begun.c.unit.in_(part)))


def forget_begun(connection: Connection, run_ids: Collection[str]) -> None:
    """Forgets what ended runs were at: their last actors died with them."""
    for part in slices(run_ids):
        connection.execute(delete(begun).where(begun.c.run_id.in_(part)))
