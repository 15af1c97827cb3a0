"""What is stored grows with what happens, not with what is stored already; both databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.dialects import sqlite

from edgeyard.plugins.testing import sample_snapshot
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.record import Recorder, cycle_input_of
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.rating import PlacementRating
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.scoring import _ENDED
from tests.builders.decision import plugins, policy
from tests.builders.records import NOW, an_outcome


@pytest.fixture
def growing_store(database_url: str) -> Iterator[SqlStore]:
    store = SqlStore(database_url)
    yield store
    store.close()


def stored_bytes(database_url: str) -> int:
    """Of recorded cycles: what they say and what they share."""
    engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        found = connection.execute(
            text(
                "SELECT (SELECT COALESCE(sum(length(data)), 0) FROM part_contents)"
                " + (SELECT COALESCE(sum(length(name) + length(sha256)), 0) FROM cycle_parts)"
            )
        ).scalar_one()
    engine.dispose()
    return int(found)


def record_ends(store: SqlStore, count: int, past: PastRuns, recorder: Recorder) -> None:
    """As many runs end as are counted, and after each end there is a cycle."""
    for number in range(count):
        with store.write() as uow:
            uow.attempts.add_outcome(
                an_outcome(
                    f"b-{count}-{number}",
                    target_uid="rpi4b-0001-0001",
                    ended_at=NOW + timedelta(seconds=number),
                )
            )
        with store.read() as uow:
            runs = past.read(uow, NOW + timedelta(seconds=number))
        given = CycleInput(
            snapshot=sample_snapshot(2),
            pending=[],
            now=NOW + timedelta(seconds=number),
            knowledge=Knowledge(runs=runs),
        )
        record = recorder.record(given, decide(given, policy(), plugins()))
        with store.write() as uow:
            uow.cycles.add(record)


def test_an_end_stores_no_run_of_the_day_again(growing_store: SqlStore, database_url: str) -> None:
    past, recorder = PastRuns(), Recorder()
    sizes = [0]
    for count in (50, 51, 52, 53):
        record_ends(growing_store, count, past, recorder)
        sizes.append(stored_bytes(database_url))
    added = [(after - before) / 50 for before, after in pairwise(sizes)]
    assert added[-1] < 1.1 * added[0], added


def test_a_recorded_cycle_knows_the_runs_that_it_knew(growing_store: SqlStore) -> None:
    past, recorder = PastRuns(max_runs=10), Recorder()
    record_ends(growing_store, 25, past, recorder)
    with growing_store.read() as uow:
        heads = uow.cycles.page(limit=100)
        known = [cycle_input_of(uow.cycles.get(head.seq)).knowledge.runs for head in heads]
    assert [len(runs) for runs in known] == [min(number, 10) for number in range(1, 26)]
    assert [run.benchmark_id for run in known[14]] == [f"b-25-{n}" for n in range(5, 15)]
    with growing_store.read() as uow:  # in any order
        again = [cycle_input_of(uow.cycles.get(head.seq)).knowledge.runs for head in heads[::-1]]
    assert [list(runs) for runs in again[::-1]] == [list(runs) for runs in known]


def test_rated_ends_are_found_without_a_walk_through_all_ends(sqlite_store: SqlStore) -> None:
    with sqlite_store.write() as uow:
        for number in range(500):
            uow.attempts.add_outcome(an_outcome(f"b-{number}", ended_at=NOW))
        uow.scoring.add_ratings(
            [
                PlacementRating(
                    benchmark_id="b-499",
                    attempt=1,
                    policy="default/1",
                    normalized_scores={"a": 1.0},
                    expected_s=None,
                )
            ]
        )
    path = str(sqlite_store._reader.url).removeprefix("sqlite:///")
    connection = sqlite3.connect(path)
    statement = str(_ENDED.compile(dialect=sqlite.dialect()))
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", ("", 9, 0))]
    connection.close()
    assert not any("outcomes" in line and line.startswith("SCAN") for line in plan), plan
