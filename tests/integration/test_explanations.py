"""Explanations over HTTP, of cycles that were really decided, against the published schema."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edgeyard.benchmark_api.app import openapi_document
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.explanations import Explanations
from edgeyard.scheduler.engine.forecaster import Forecaster
from edgeyard.scheduler.engine.retry import RETRY_BACKOFF_S
from edgeyard.scheduler.engine.twin_refresher import TwinRefresher
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.twin.twin import Twin
from tests.builders.api import BOARDS, Api, running
from tests.builders.engine import A, Lab

BOARD = "rpi4b-0001-0001"


class Deciding:
    """An API whose engine explains what a real cycle decided."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        policy, plugins = load_policy("default"), registry()
        self.cycle = Cycle(
            api.store,
            TwinRefresher(Twin(BOARDS), api.cluster, api.clock),
            policy,
            plugins.resolve(policy),
            api.clock,
        )
        self.recorded = Explanations(api.store, plugins, api.clock)
        live = Explanations(api.store, plugins, api.clock, lambda: self.cycle.latest)
        forecaster = Forecaster(self.cycle, api.store, api.clock, lambda name, value, labels: None)
        self._forecast = forecaster.run
        monkeypatch.setattr(api.engine, "explanation", live.of)
        monkeypatch.setattr(api.engine, "forecast", forecaster.of)
        monkeypatch.setattr(
            api.engine,
            "changes",
            lambda benchmark_id, bounds: live.changes(
                benchmark_id, bounds, forecaster.of(benchmark_id)
            ),
        )

    def run(self) -> None:
        self.cycle.run()
        self._forecast()

    def explain(self, benchmark_id: str, query: str = "", who: str = "alice") -> Any:
        answer = self.api.as_(who).get(f"/v1/benchmarks/{benchmark_id}/explanation{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def deciding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deciding]:
    with running(tmp_path) as api:
        for who in ("alice", "bob"):
            api.upload(who=who)
        yield Deciding(api, monkeypatch)


def closed(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(each) for key, each in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def test_explanations_match_their_schema(deciding: Deciding) -> None:
    placed = deciding.api.submit(target_uid=BOARD)
    deciding.run()
    waits = deciding.api.submit(target_uid=BOARD, user_priority=1)
    late = deciding.api.submit(target_uid=BOARD, deadline=soon(deciding.api.clock.now()))
    deciding.run()
    documented = openapi_document()
    operation = documented["paths"]["/v1/benchmarks/{benchmark_id}/explanation"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    schema = closed({**schema, "components": {"schemas": documented["components"]["schemas"]}})
    of_placed = deciding.explain(placed, "?changes")
    of_waiting = deciding.explain(waits, "?changes")
    of_late = deciding.explain(late, "?changes")
    for reported in (of_placed, of_waiting, of_late, deciding.explain(waits)):
        jsonschema.validate(reported, schema)
    assert of_placed["placement"]["target_uid"] == BOARD
    assert of_placed["changes"] is None
    [fits] = [each for each in of_placed["verdicts"] if each["target_uid"] == BOARD]
    assert fits["scores"]["least_loaded"] is not None
    parts = [part for part in fits["cost_parts_s"].values() if part is not None]
    assert fits["cost_s"] is None or fits["cost_s"] == pytest.approx(sum(parts))
    changes = of_waiting["changes"]
    assert "target_uid" in {each["field"] for each in changes["changes"]}
    assert changes["start"] == of_waiting["forecast"]["start"]
    assert changes["age_s"] >= 0.0
    assert of_late["changes"]["reachable_deadline"] > of_late["changes"]["deadline"]


def test_while_the_cluster_does_not_answer_nothing_is_shown_as_if_it_did(
    deciding: Deciding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a wait rests on is the last answer, and when it ends nobody knows."""
    api = deciding.api
    runs = api.submit(target_uid=BOARD)
    deciding.run()
    waits = api.submit(target_uid=BOARD, user_priority=1)
    deciding.run()

    def shown(benchmark_id: str) -> tuple[Any, Any, Any]:
        of_queue = api.as_().get("/v1/queue").json()["items"]
        [in_queue] = [each for each in of_queue if each["benchmark_id"] == waits]
        return (
            api.as_().get(f"/v1/benchmarks/{benchmark_id}").json(),
            deciding.explain(benchmark_id),
            in_queue,
        )

    monkeypatch.setattr(api.engine, "order", (waits,))
    one, explained, in_queue = shown(waits)
    assert one["waiting_reason"]["code"] == in_queue["waiting_reason"]["code"] == "board_busy"
    assert explained["waiting"]["reason"] == "board_busy"
    assert (one["cluster_problem"], explained["cluster_problem"]) == ("", "")
    before = one["waiting_reason"]["sentence"]
    assert None not in (one["forecast"], explained["forecast"], in_queue["forecast"])

    monkeypatch.setattr(api.engine, "cluster_problem", lambda: "connection refused")
    monkeypatch.setattr(api.engine, "age_s", 20.0)
    one, explained, in_queue = shown(waits)
    sentence = f"the cluster does not answer: connection refused; as it last answered: {before}"
    for reason in (one["waiting_reason"], in_queue["waiting_reason"]):
        assert reason == {"code": "cluster_unreachable", "sentence": sentence}
    assert explained["waiting"] == {"reason": "cluster_unreachable", "sentence": sentence}
    listed = api.as_().get("/v1/benchmarks?status=pending").json()["items"]
    assert [each["waiting_reason"]["code"] for each in listed] == ["cluster_unreachable"]
    for answer in (one, explained):
        assert (answer["age_s"], answer["cluster_problem"]) == (20.0, "connection refused")
    assert one["forecast"] is explained["forecast"] is in_queue["forecast"] is None
    assert deciding.explain(runs)["age_s"] == 20.0


def test_a_job_that_the_cluster_does_not_start_is_explained_by_what_it_waits_for(
    deciding: Deciding,
) -> None:
    """Its decision gave it a board; no host has the datacenter that its job names."""
    placed = deciding.api.submit(target_uid=BOARD)
    deciding.run()
    assert deciding.explain(placed)["waiting"] is None
    sentence = "no host of its datacenters is ready"
    with deciding.api.store.write() as uow:
        lifecycle.blocked(
            uow,
            [(uow.benchmarks.get(placed), uow.attempts.of(placed)[-1], sentence)],
            deciding.api.clock.now(),
        )
    explained = deciding.explain(placed)
    assert explained["placement"]["target_uid"] == BOARD
    assert explained["waiting"] == {"reason": "cluster_constraint", "sentence": sentence}


def test_what_runs_has_no_place_and_its_end_is_not_past(deciding: Deciding) -> None:
    """While nothing waits no newer forecast is made than the one of before its start."""
    api = deciding.api
    first = api.submit(target_uid=BOARD)
    deciding.run()
    api.clock.ahead += timedelta(seconds=30)
    with api.store.write() as uow:
        (attempt,) = uow.attempts.of(first)
        now = api.clock.now()
        for state in (AttemptState.DISPATCHING, AttemptState.QUEUED):
            attempt = lifecycle.to_state(uow, attempt, state, now)
        lifecycle.task_started(uow, attempt, BOARD, now, now)

    def shown() -> list[Any]:
        one = api.as_().get(f"/v1/benchmarks/{first}").json()
        assert datetime.fromisoformat(one["started_at"]) == now
        return [one["forecast"], deciding.explain(first)["forecast"]]

    def times(forecast: dict[str, Any], of: str) -> list[datetime]:
        return [datetime.fromisoformat(forecast[f"{of}{end}"]) for end in ("_low", "", "_high")]

    for forecast in shown():
        assert forecast["place"] is None
        assert times(forecast, "start") == [now] * 3
    ends = times(forecast, "finish")
    api.clock.ahead += ends[1] - api.clock.now() + timedelta(seconds=1)
    for forecast in shown():
        low, middle, high = times(forecast, "finish")
        assert ends[1] < low == middle < high == ends[2]
    api.clock.ahead += ends[2] - api.clock.now() + timedelta(seconds=1)
    assert shown() == [None, None]


def soon(now: datetime) -> str:
    return (now + timedelta(seconds=60)).isoformat()


def test_nothing_is_offered_that_the_account_may_not_ask_for(deciding: Deciding) -> None:
    deciding.api.submit(target_uid=BOARD)
    deciding.api.submit("bob", target_uid=BOARD, user_priority=5)
    mine = deciding.api.submit(target_uid=BOARD, user_priority=5)  # alice may have 5
    deciding.run()
    fields = {
        who: priorities(deciding.explain(mine, "?changes", who)) for who in ("alice", "operator")
    }
    assert fields == {"alice": [], "operator": [6]}
    answer = deciding.api.as_().post(f"/v1/benchmarks/{mine}/priority", json={"user_priority": 6})
    assert answer.status_code == 422


def priorities(expected: Any) -> list[int]:
    return [
        each["value"] for each in expected["changes"]["changes"] if each["field"] == "user_priority"
    ]


def test_the_newest_recorded_cycle_is_decided_again_and_its_age_shown(deciding: Deciding) -> None:
    """As after a restart of the server: nothing but records."""
    api, recorded = deciding.api, deciding.recorded
    api.submit(target_uid=BOARD)
    waits = api.submit(target_uid=BOARD)
    deciding.run()
    first = api.clock.now()
    api.clock.ahead += timedelta(seconds=3)
    api.submit(target_uid=BOARD)
    deciding.run()  # with news, none of them of the one that waits
    api.clock.ahead += timedelta(seconds=40)
    found = recorded.changes(waits)
    assert found is not None
    assert first < found.decided_at < api.clock.now() - timedelta(seconds=39)
    assert found.changes
    assert all(each.start >= api.clock.now() - timedelta(seconds=5) for each in found.changes)
    api.as_().post(f"/v1/benchmarks/{waits}/cancel")
    assert recorded.changes(waits) is None


def test_a_benchmark_that_returns_to_the_queue_gets_a_new_waiting_reason(tmp_path: Path) -> None:
    """Also where that is word for word what it waited for before it ran."""
    lab = Lab(tmp_path, A)
    explanations = Explanations(lab.store, registry(), lab.clock)

    def drain(drained: bool) -> None:
        override = BoardOverride(
            target_uid=A, drained=drained, reason="cleaning", by_user_id="op", at=lab.clock.now()
        )
        with lab.store.write() as uow:
            uow.board_overrides.put(override)

    drain(True)
    benchmark_id = lab.submit(target_uid=A)
    lab.turn()
    before = explanations.of(benchmark_id).waiting
    assert before is not None
    drain(False)
    job_id = lab.running(benchmark_id)
    assert explanations.of(benchmark_id).placement is not None
    assert explanations.changes(benchmark_id) is None
    drain(True)
    lab.cluster.end(job_id, Failure(category=FailureCategory.BOARD_FAULT, sentence="it froze"))
    lab.reconciler.run()
    lab.clock.forward(RETRY_BACKOFF_S)  # before it is tried again on the board that it names
    lab.turn()
    assert lab.show(benchmark_id).status is Status.PENDING
    assert explanations.of(benchmark_id).waiting == before
    assert explanations.changes(benchmark_id) is not None
