"""ScenarioDB: what every store keeps to of scenarios and simulations, on both databases."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from edgeyard.errors import Conflict, InvalidInput, NotFound
from edgeyard.scheduler.model.scenarios import SimulationState, StoredScenario, StoredSimulation
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make


def a_scenario(number: int = 1, **fields: object) -> StoredScenario:
    body = body_of(number)
    known: dict[str, object] = {
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
        "name": f"lab-{number}",
        "world": "boards",
        "seed": number,
        "duration_s": 3600.0,
        "size_bytes": len(body),
        "created_at": make.at(number),
    }
    return StoredScenario(**(known | fields))  # type: ignore[arg-type]


def body_of(number: int) -> str:
    return json.dumps({"name": f"größe-{number}", "jobs": [[number, 0.5]] * 100})


def a_run(number: int = 1, of: StoredScenario | None = None, **fields: object) -> StoredSimulation:
    scenario = of or a_scenario()
    known: dict[str, object] = {
        "run_id": f"run-{number}",
        "scenario": scenario.sha256,
        "scenario_name": scenario.name,
        "policy": "default/1",
        "seed": 7,
        "metrics": {"mean_wait_s": 1.5, "per_user": {"ada": [1, None]}},
        "created_at": make.at(number),
    }
    return StoredSimulation(**(known | fields))  # type: ignore[arg-type]


def add(store: SqlStore, *numbers: int, **fields: object) -> list[StoredScenario]:
    added = [a_scenario(number, **fields) for number in numbers]
    with store.write() as uow:
        for number, each in zip(numbers, added, strict=True):
            assert uow.scenarios.add(each, body_of(number))
    return added


def test_a_scenario_comes_back_by_hash_beginning_and_name(store: SqlStore) -> None:
    (stored,) = add(store, 1, tags=("b", "a/1"), source="generate bursts", jobs=100)
    with store.read() as uow:
        found = uow.scenarios.get(stored.sha256)
        assert found == replace(stored, tags=("a/1", "b"))
        assert uow.scenarios.get(stored.sha256[:6]) == found
        assert uow.scenarios.get("lab-1") == found
        assert uow.scenarios.body(stored.sha256) == body_of(1)
        for unknown in ("lab-2", stored.sha256[:5], "0" * 64, "%", ""):
            with pytest.raises(NotFound):
                uow.scenarios.get(unknown)
        with pytest.raises(NotFound):
            uow.scenarios.body("0" * 64)


def test_a_name_means_the_newest_scenario_that_has_it(store: SqlStore) -> None:
    older, newer = add(store, 1, 2, name="lab")
    with store.read() as uow:
        assert uow.scenarios.get("lab").sha256 == newer.sha256
        assert uow.scenarios.get(older.sha256).sha256 == older.sha256


def test_the_same_content_is_stored_once_and_collects_tags(store: SqlStore) -> None:
    (stored,) = add(store, 1, tags=("first",))
    with store.write() as uow:
        again = replace(stored, name="other", tags=("second",), created_at=make.at(99))
        assert not uow.scenarios.add(again, body_of(1))
    with store.read() as uow:
        assert uow.scenarios.get(stored.sha256) == replace(stored, tags=("first", "second"))


def test_a_beginning_of_two_hashes_is_ambiguous(store: SqlStore) -> None:
    with store.write() as uow:
        for number, tail in ((1, "0"), (2, "1")):
            uow.scenarios.add(a_scenario(number, sha256="abcdef" + tail * 58), body_of(number))
    with store.read() as uow, pytest.raises(Conflict, match="more digits"):
        uow.scenarios.get("abcdef")


def test_tags_are_added_removed_and_checked(store: SqlStore) -> None:
    (stored,) = add(store, 1, tags=("old",))
    with store.write() as uow:
        changed = uow.scenarios.tag(stored.sha256, add=["new", "new"], remove=["old", "absent"])
    assert changed.tags == ("new",)
    for wrong in (["a b"], [""], ["x" * 65], [f"t{number}" for number in range(51)]):
        with pytest.raises(InvalidInput, match="tag"), store.write() as uow:
            uow.scenarios.tag(stored.sha256, add=wrong)
    with store.read() as uow:
        assert uow.scenarios.get(stored.sha256).tags == ("new",)
    with pytest.raises(NotFound), store.write() as uow:
        uow.scenarios.tag("0" * 64, add=["x"])


def test_pages_are_newest_first_and_filtered(store: SqlStore) -> None:
    add(store, 1, 3, 5, tags=("odd",))
    add(store, 2, 4, world="nodes")
    with store.read() as uow:
        first, cursor = uow.scenarios.page(limit=2)
        second, later = uow.scenarios.page(limit=2, cursor=cursor)
        third, last = uow.scenarios.page(limit=2, cursor=later)
        names = [[each.name for each in page] for page in (first, second, third)]
        assert names == [["lab-5", "lab-4"], ["lab-3", "lab-2"], ["lab-1"]]
        assert last is None
        odd, _ = uow.scenarios.page(tags=["odd"])
        assert [each.seed for each in odd] == [5, 3, 1]
        assert uow.scenarios.page(tags=["odd", "even"]) == ([], None)
        nodes, _ = uow.scenarios.page(world="nodes", name="lab-4")
        assert [each.seed for each in nodes] == [4]
        with pytest.raises(InvalidInput, match="cursor"):
            uow.scenarios.page(cursor="nonsense")


def test_pages_of_one_instant_are_complete(store: SqlStore) -> None:
    add(store, *range(1, 8), created_at=make.NOW)
    seen: list[int] = []
    cursor = None
    with store.read() as uow:
        while True:
            page, cursor = uow.scenarios.page(limit=3, cursor=cursor)
            seen += [each.seed for each in page]
            if cursor is None:
                break
    assert sorted(seen) == list(range(1, 8))


def test_a_simulation_is_saved_and_replaced_by_its_id(store: SqlStore) -> None:
    (stored,) = add(store, 1)
    run = a_run(of=stored, kind="ste", columns_file="/x/run.parquet", wall_s=0.25)
    with store.write() as uow:
        uow.simulations.save_run(replace(run, state=SimulationState.RUNNING))
        uow.simulations.save_run(run)
    with store.read() as uow:
        assert uow.simulations.run("run-1") == run
        assert uow.simulations.runs() == ([run], None)
        with pytest.raises(NotFound):
            uow.simulations.run("run-2")
    with pytest.raises(NotFound), store.write() as uow:
        uow.simulations.save_run(a_run(2, a_scenario(9)))
    with pytest.raises(InvalidInput, match="finite"), store.write() as uow:
        uow.simulations.save_run(replace(run, metrics={"mean_wait_s": float("nan")}))


def test_simulations_are_listed_by_scenario_policy_and_kind(store: SqlStore) -> None:
    one, two = add(store, 1, 2)
    with store.write() as uow:
        uow.simulations.save_run(a_run(1, one))
        uow.simulations.save_run(a_run(2, two))
        uow.simulations.save_run(a_run(3, one, policy="mine/2"))
        uow.simulations.save_run(a_run(4, one, kind="ste"))
    with store.read() as uow:
        listed = uow.simulations.runs(scenario=one.sha256, kind="sim")[0]
        assert [each.run_id for each in listed] == ["run-3", "run-1"]
        assert [each.run_id for each in uow.simulations.runs(policy="mine/2")[0]] == ["run-3"]
        first, cursor = uow.simulations.runs(limit=3)
        rest, last = uow.simulations.runs(limit=3, cursor=cursor)
        assert [each.run_id for each in (*first, *rest)] == ["run-4", "run-3", "run-2", "run-1"]
        assert last is None


def test_a_scenario_with_simulations_is_not_removed(store: SqlStore) -> None:
    (stored,) = add(store, 1, tags=("x",))
    with store.write() as uow:
        uow.simulations.save_run(a_run(1, stored))
    with pytest.raises(Conflict, match="1 simulation of scenario"), store.write() as uow:
        uow.scenarios.remove(stored.sha256)
    with store.write() as uow:
        uow.simulations.remove("run-1")
        uow.scenarios.remove(stored.sha256)
        with pytest.raises(NotFound):
            uow.scenarios.remove(stored.sha256)
        with pytest.raises(NotFound):
            uow.simulations.remove("run-1")
    add(store, 1)


def test_what_a_user_stores_counts_for_their_quota(store: SqlStore) -> None:
    (stored,) = add(store, 1, by_user_id="ada", size_bytes=1000)
    run = a_run(1, stored, by_user_id="ada", metrics={})
    with store.write() as uow:
        uow.simulations.save_run(run)
        assert uow.usage.stored_bytes("ada") == 1000 + len("{}")
    with store.write() as uow:
        uow.simulations.save_run(replace(run, metrics={"a": 1}))
    with store.write() as uow:
        assert uow.usage.stored_bytes("ada") == 1000 + len('{"a":1}')
        uow.simulations.remove("run-1")
        uow.scenarios.remove(stored.sha256)
        assert uow.usage.stored_bytes("ada") == 0
