"""Scenarios as compressed JSON by their hash, and simulations with their metrics."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, cast

import zstandard
from sqlalchemy import bindparam, delete, func, select

from edgeyard.errors import Conflict, InvalidInput, NotFound
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.scenarios import (
    MAX_TAGS,
    MIN_HASH_DIGITS,
    TAG,
    SimulationState,
    StoredScenario,
    StoredSimulation,
)
from edgeyard.scheduler.ports import Scenarios, Simulations
from edgeyard.scheduler.store.cursors import newest_page
from edgeyard.scheduler.store.rows import flat_row
from edgeyard.scheduler.store.tables import (
    scenario_bodies,
    scenario_tags,
    scenarios,
    simulations,
)
from edgeyard.scheduler.store.transaction import Row, Transaction, among

_BEGINNING = re.compile(f"[0-9a-f]{{{MIN_HASH_DIGITS},64}}")
_TAGS = select(scenario_tags).where(among(scenario_tags.c.sha256)).order_by(scenario_tags.c.tag)
_OF_HASH = scenarios.c.sha256 == bindparam("of")
_LOCK = select(scenarios.c.sha256).where(_OF_HASH).with_for_update()
_NEWEST = (scenarios.c.created_at.desc(), scenarios.c.sha256.desc())
_RUNS = select(func.count()).where(simulations.c.scenario == bindparam("of"))


class SqlScenarios(Scenarios):
    """`Scenarios` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, scenario: StoredScenario, body: str) -> bool:
        row = flat_row(scenario)
        del row["tags"]
        new = self._tx.insert(scenarios, row)
        if new:
            data = zstandard.compress(body.encode())
            self._tx.insert(scenario_bodies, {"sha256": scenario.sha256, "json_zstd": data})
            if scenario.by_user_id:
                self._tx.name(scenario.by_user_id, scenario.sha256, scenario.size_bytes)
        self._add_tags(scenario.sha256, scenario.tags)
        return new

    def get(self, reference: str) -> StoredScenario:
        named = scenarios.c.name == reference
        row = self._tx.row(select(scenarios).where(_OF_HASH), {"of": reference}) or self._tx.row(
            select(scenarios).where(named).order_by(*_NEWEST).limit(1)
        )
        if row is None and _BEGINNING.fullmatch(reference):
            begins = scenarios.c.sha256.startswith(reference)
            rows = self._tx.rows(select(scenarios).where(begins).limit(2))
            if len(rows) > 1:
                raise Conflict(
                    f"several hashes of scenarios begin with {reference!r}: give more digits"
                )
            row = rows[0] if rows else None
        if row is None:
            raise NotFound("scenario", reference)
        return self._with_tags([row])[0]

    def body(self, sha256: str) -> str:
        query = select(scenario_bodies.c.json_zstd).where(scenario_bodies.c.sha256 == sha256)
        data = self._tx.value(query)
        if data is None:
            raise NotFound("scenario", sha256)
        return zstandard.decompress(cast(bytes, data)).decode()

    def page(
        self,
        *,
        name: str | None = None,
        world: str | None = None,
        tags: Collection[str] = (),
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Sequence[StoredScenario], str | None]:
        query = select(scenarios)
        if name is not None:
            query = query.where(scenarios.c.name == name)
        if world is not None:
            query = query.where(scenarios.c.world == world)
        for tag in tags:
            tagged = select(scenario_tags.c.sha256).where(scenario_tags.c.tag == tag)
            query = query.where(scenarios.c.sha256.in_(tagged))
        rows, following = newest_page(self._tx, query, scenarios.c.sha256, limit, cursor)
        return self._with_tags(rows), following

    def tag(
        self, sha256: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> StoredScenario:
        self._lock(sha256)
        if remove:
            self._tx.run(
                delete(scenario_tags).where(
                    scenario_tags.c.sha256 == sha256, scenario_tags.c.tag.in_(list(remove))
                )
            )
        self._add_tags(sha256, add)
        return self.get(sha256)

    def remove(self, sha256: str) -> None:
        self._lock(sha256)
        if runs := cast(int, self._tx.value(_RUNS, {"of": sha256})):
            raise Conflict(
                f"{runs} simulation{'s' * (runs != 1)} of scenario {sha256[:12]} "
                f"{'are' if runs != 1 else 'is'} stored: remove {'them' if runs != 1 else 'it'} "
                "first"
            )
        stored = self.get(sha256)
        for table in (scenario_tags, scenario_bodies, scenarios):
            self._tx.run(delete(table).where(table.c.sha256 == sha256))
        if stored.by_user_id:
            self._tx.name(stored.by_user_id, sha256, stored.size_bytes, -1)

    def _lock(self, sha256: str) -> None:
        if self._tx.row(_LOCK, {"of": sha256}) is None:
            raise NotFound("scenario", sha256)

    def _add_tags(self, sha256: str, tags: Collection[str]) -> None:
        if not tags:
            return
        for tag in tags:
            if not TAG.fullmatch(tag):
                raise InvalidInput.at(
                    "/tags",
                    f"{tag[:80]!r} is not a tag",
                    "1 to 64 letters, digits, '.', '_', ':', '/' and '-'",
                )
        self._lock(sha256)
        self._tx.insert(
            scenario_tags, [{"sha256": sha256, "tag": tag} for tag in sorted(set(tags))]
        )
        count = len(self._tx.rows(_TAGS, {"ids": [sha256]}))
        if count > MAX_TAGS:
            raise InvalidInput.at(
                "/tags", f"the scenario would have {count} tags", f"at most {MAX_TAGS}"
            )

    def _with_tags(self, rows: Sequence[Row]) -> list[StoredScenario]:
        tags: dict[str, list[str]] = {cast(str, row["sha256"]): [] for row in rows}
        for row in self._tx.rows_of(_TAGS, list(tags)):
            tags[cast(str, row["sha256"])].append(cast(str, row["tag"]))
        return [
            StoredScenario(
                **cast("dict[str, Any]", dict(row)), tags=tuple(tags[cast(str, row["sha256"])])
            )
            for row in rows
        ]


class SqlSimulations(Simulations):
    """`Simulations` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def save_run(self, run: StoredSimulation) -> None:
        if self._tx.row(select(scenarios.c.sha256).where(_OF_HASH), {"of": run.scenario}) is None:
            raise NotFound("scenario", run.scenario)
        metrics = strict_json.dumps(run.metrics, "/metrics")
        before = self._row(run.run_id)
        self._tx.replace(simulations, {**flat_row(run), "metrics": metrics})
        if before is not None:
            self._count(before, -1)
        self._count({**flat_row(run), "metrics": metrics}, 1)

    def run(self, run_id: str) -> StoredSimulation:
        row = self._row(run_id)
        if row is None:
            raise NotFound("simulation", run_id)
        return _simulation(row)

    def runs(
        self,
        *,
        scenario: str | None = None,
        policy: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Sequence[StoredSimulation], str | None]:
        query = select(simulations)
        for column, value in (("scenario", scenario), ("policy", policy), ("kind", kind)):
            if value is not None:
                query = query.where(simulations.c[column] == value)
        rows, following = newest_page(self._tx, query, simulations.c.run_id, limit, cursor)
        return [_simulation(row) for row in rows], following

    def remove(self, run_id: str) -> None:
        row = self._row(run_id)
        if row is None:
            raise NotFound("simulation", run_id)
        self._tx.run(delete(simulations).where(simulations.c.run_id == run_id))
        self._count(row, -1)

    def _row(self, run_id: str) -> Row | None:
        return self._tx.row(select(simulations).where(simulations.c.run_id == run_id))

    def _count(self, row: Row, more: int) -> None:
        """Count what a run stores among the bytes of its user."""
        if user_id := cast(str, row["by_user_id"]):
            size = len(cast(str, row["metrics"]).encode())
            self._tx.name(user_id, f"simulation/{row['run_id']}/{size}", size, more)


def _simulation(row: Row) -> StoredSimulation:
    values: dict[str, Any] = dict(row)
    values["metrics"] = strict_json.loads(values["metrics"])
    values["state"] = SimulationState(values["state"])
    return StoredSimulation(**values)
