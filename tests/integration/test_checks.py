"""Checks that the server drives: two versions, in turns on one board, until it is decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.checks import advance_checks
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from edgeyard.scheduler.model.checks import CHECK_TAG
from edgeyard.scheduler.model.decision import Preemption
from edgeyard.scheduler.model.quotas import Quotas
from edgeyard.scheduler.model.retention import RetentionClass
from tests.builders.api import Api, running
from tests.builders.crashes import Died, dying_at
from tests.builders.descriptions import description
from tests.builders.model_files import a_model_file

BOARD = "rpi4b-0001-0001"
TOKENS = {
    "value": 50.0,
    "unit": "1/s",
    "title": "decoded tokens per second",
    "better": "higher",
    "ci95": [49.0, 51.0],
    "ci95_degrees": 3.0,
}


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload("old.onnx", a_model_file(fill=b"o"))
        found.upload("new.onnx", a_model_file(fill=b"n"))
        yield found


def started(api: Api, who: str = "alice", **changes: object) -> dict[str, Any]:
    """A check of two models."""
    body = {
        "baseline": {"description": description(model="old.onnx")},
        "candidate": description(model="new.onnx"),
        **changes,
    }
    answer = api.as_(who).post("/v1/checks", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"].endswith(answer.json()["check_id"])
    return dict(answer.json())


def shown(api: Api, check: dict[str, Any]) -> dict[str, Any]:
    return dict(api.as_().get(f"/v1/checks/{check['check_id']}").json())


def step(api: Api) -> int:
    """One turn of whichever server leads now: nothing is kept between two of them."""
    return advance_checks(api.store, api.clock)


def runs(api: Api) -> list[Any]:
    """All runs of checks, in the order of their submission."""
    items = api.as_().get(f"/v1/benchmarks?tag={CHECK_TAG}").json()["items"]
    return sorted(items, key=lambda each: str(each["submit_time"]))


def measured(api: Api, benchmark_id: str, p50: float, **changes: Any) -> None:
    """As if it had run on its board, with this number."""
    api.dispatched(benchmark_id)
    api.measured(benchmark_id, p50, **changes)


def driven(
    api: Api, check: dict[str, Any], ratios: Sequence[float], **changes: object
) -> dict[str, Any]:
    """Measure pairs of these ratios, until it has ended or they are used up."""
    for ratio in ratios:
        for _ in range(2):
            assert step(api) == 1
            run = shown(api, check)["run_id"]
            model = api.as_().get(f"/v1/benchmarks/{run}").json()["description"]["model"]
            slower = model == "new.onnx"
            measured(api, run, 10.0 * (ratio if slower else 1.0), **(changes if slower else {}))
    step(api)
    return shown(api, check)


def test_pairs_alternate_on_one_board_until_it_is_decided(api: Api) -> None:
    check = started(api)
    assert (check["status"], check["baseline"], check["candidate"]) == (
        "running",
        "old.onnx",
        "new.onnx",
    )
    found = driven(api, check, [1.001, 0.999, 1.0])
    assert (found["status"], found["reason"]) == ("passed", "the slowdown is at most 3.00%")
    assert found["high"] < 0.03
    assert found["target_uid"] == BOARD
    assert found["run_id"] is None
    models = [each["description"]["model"] for each in runs(api)]
    assert models == [
        *("old.onnx", "new.onnx"),
        *("new.onnx", "old.onnx"),
        *("old.onnx", "new.onnx"),
    ]
    assert {each["target_uid"] for each in runs(api)} == {BOARD}
    ids = {each["benchmark_id"] for each in runs(api)}
    assert {
        pair[side] for pair in found["pairs"] for side in ("baseline_id", "candidate_id")
    } == ids
    assert step(api) == 0


def test_a_slower_candidate_fails_and_a_noisy_one_is_undecided(api: Api) -> None:
    assert driven(api, started(api), [1.10, 1.101, 1.099])["status"] == "failed"
    found = driven(api, started(api, max_pairs=3), [1.0, 1.2, 0.9])
    assert (found["status"], found["reason"]) == ("undecided", "3 pairs did not decide it")


def test_a_benchmark_is_a_baseline_with_its_board_and_its_description(api: Api) -> None:
    origin = api.submit(model="old.onnx", tags=["main"], parameters={"threads": 2})
    body = {"baseline": {"benchmark_id": origin}, "candidate": {"model": "new.onnx"}}
    early = api.as_().post("/v1/checks", json=body)
    assert early.json()["errors"][0]["pointer"] == "/baseline"
    assert "is pending and has no result" in early.text
    measured(api, origin, 10.0)
    nothing = api.as_().post("/v1/checks", json={**body, "candidate": {}})
    assert "nothing differs from the baseline" in nothing.text
    check = api.as_().post("/v1/checks", json=body).json()
    assert (check["baseline"], check["target_uid"]) == (origin, BOARD)
    assert driven(api, check, [1.0, 1.0, 1.0])["status"] == "passed"
    run = api.as_().get(f"/v1/benchmarks/{runs(api)[0]['benchmark_id']}").json()
    first = run["description"]
    assert first["parameters"] == {"threads": 2}
    assert (run["check_id"], first["tags"]) == (check["check_id"], [CHECK_TAG, check["check_id"]])
    assert (first["target_uid"], first["if_unavailable"]) == (BOARD, "notify")


def test_the_metric_of_a_baseline_is_known_before_the_first_pair(api: Api) -> None:
    origin = api.submit(model="old.onnx")
    rate = {"primary_metric": "tokens_per_s", "results": {"tokens_per_s": TOKENS}}
    measured(api, origin, 10.0, **rate)
    body = {"baseline": {"benchmark_id": origin}, "candidate": {"model": "new.onnx"}}
    check = api.as_().post("/v1/checks", json=body).json()
    assert (check["metric"]["name"], check["metric"]["better"]) == ("tokens_per_s", "higher")
    refused = api.as_().post("/v1/checks", json={**body, "max_slowdown": 5})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "/max_slowdown"
    assert "tokens_per_s cannot fall that far" in error["reason"]


def test_a_slowdown_that_a_run_has_shown_to_be_too_large_is_stated_in_words(api: Api) -> None:
    check = started(api, max_slowdown=5)
    rate = {"primary_metric": "tokens_per_s", "results": {"tokens_per_s": TOKENS}}
    for _ in range(2):
        step(api)
        measured(api, shown(api, check)["run_id"], 10.0, **rate)
    step(api)
    found = shown(api, check)
    assert found["status"] == "error"
    assert found["reason"].startswith("the accepted slowdown is 500.00%, and tokens_per_s cannot")
    assert found["errors"][0]["pointer"] == "/max_slowdown"


@pytest.mark.parametrize("point", ["commit:before", "commit:after"])
def test_a_server_that_dies_between_any_two_steps_loses_and_doubles_nothing(
    api: Api, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is taken by a server that dies around its commit, then by another one."""

    check = started(api)
    for ratio in (1.001, 0.999, 1.0):
        for _ in range(2):
            with dying_at(point, monkeypatch), pytest.raises(Died):
                step(api)
            step(api)
            run = shown(api, check)["run_id"]
            model = api.as_().get(f"/v1/benchmarks/{run}").json()["description"]["model"]
            measured(api, run, 10.0 * (ratio if model == "new.onnx" else 1.0))
            assert [each["status"] for each in runs(api)] == ["completed"] * len(runs(api))
    with dying_at(point, monkeypatch), pytest.raises(Died):
        step(api)
    step(api)
    found = shown(api, check)
    assert (found["status"], len(found["pairs"]), len(runs(api))) == ("passed", 3, 6)


def test_a_spent_budget_ends_it_and_cancels_what_runs(api: Api) -> None:
    check = started(api, budget_s=60)
    driven(api, check, [1.0])
    running_one = shown(api, check)["run_id"]
    api.clock.ahead += timedelta(seconds=61)
    assert step(api) == 1
    found = shown(api, check)
    assert (found["status"], found["reason"]) == (
        "undecided",
        "the budget of 60 s was spent after 1 pair",
    )
    assert api.as_().get(f"/v1/benchmarks/{running_one}").json()["status"] == "cancelled"


def test_what_was_measured_before_the_budget_was_spent_still_decides(api: Api) -> None:
    check = started(api, budget_s=60)
    for ratio in (1.0, 1.001, 0.999):
        for _ in range(2):
            step(api)
            run = shown(api, check)["run_id"]
            measured(api, run, 10.0 * ratio)
    api.clock.ahead += timedelta(seconds=3600)  # no server was there
    step(api)
    assert shown(api, check)["status"] == "passed"


def test_a_run_without_a_result_ends_it_and_is_named(api: Api) -> None:
    check = started(api)
    step(api)
    run = shown(api, check)["run_id"]
    failure = Failure(category=FailureCategory.USER_MODEL, sentence="it is no model")
    with api.store.write() as uow:
        lifecycle.fail(uow, run, failure, api.clock.now())
    step(api)
    found = shown(api, check)
    assert (found["status"], found["run_id"]) == ("error", run)
    assert found["reason"] == f"its run {run} failed: it is no model"


def test_a_run_that_made_way_too_often_is_measured_again_within_the_budget(api: Api) -> None:
    check = started(api, budget_s=600)
    step(api)
    measured(api, shown(api, check)["run_id"], 10.0)
    step(api)
    stopped = shown(api, check)["run_id"]
    too_often = Failure(category=FailureCategory.PREEMPTED_TOO_OFTEN, sentence="it was stopped")
    with api.store.write() as uow:
        lifecycle.fail(uow, stopped, too_often, api.clock.now())
    assert step(api) == 1
    again = shown(api, check)
    assert (again["status"], again["reason"]) == ("running", "")
    assert again["run_id"] != stopped
    models = [each["description"]["model"] for each in runs(api)]
    assert models == ["old.onnx", "new.onnx", "new.onnx"]
    measured(api, again["run_id"], 10.0)
    assert len(driven(api, check, [1.001, 0.999])["pairs"]) == 3
    late = started(api, budget_s=600)
    step(api)
    with api.store.write() as uow:
        lifecycle.fail(uow, shown(api, late)["run_id"], too_often, api.clock.now())
    api.clock.ahead += timedelta(seconds=601)
    step(api)
    assert shown(api, late)["status"] == "undecided"


def test_a_run_that_made_way_before_it_began_is_measured_again(api: Api) -> None:
    """As one of a canary does, which is cancelled where its task does not run yet."""
    check = started(api, budget_s=600)
    step(api)
    first = shown(api, check)["run_id"]
    attempt = api.dispatched(first)
    urgent = Preemption(
        benchmark_id=api.submit(model="old.onnx"),
        victim_id=first,
        target_uid=str(attempt.target_uid),
        priority=80,
        victim_priority=0,
        threshold=0,
        progress=0.0,
        of_canary=True,
    )
    with api.store.write() as uow:
        lifecycle.preempt_canary(uow, urgent, api.clock.now())
    assert step(api) == 1
    again = shown(api, check)
    assert (again["status"], again["reason"]) == ("running", "")
    assert again["run_id"] != first
    # one that somebody cancels is not
    api.as_().post(f"/v1/benchmarks/{again['run_id']}/cancel").raise_for_status()
    step(api)
    assert shown(api, check)["status"] == "error"


def test_other_work_is_refused_at_once_or_after_the_first_pair(api: Api) -> None:
    body = {
        "baseline": {"description": description(model="old.onnx")},
        "candidate": description(model="new.onnx", benchmark_type="TYPE3"),
    }
    refused = api.as_().post("/v1/checks", json=body)
    assert refused.status_code == 422, refused.text
    feeds = {"x": {"shape": [32, 64], "dtype": "float32"}}
    found = driven(api, started(api), [1.0], feeds=feeds)
    assert found["status"] == "error"
    assert found["errors"][0]["pointer"] == "/baseline"
    assert found["reason"].startswith("the baseline does other work than the candidate: inputs")
    assert found["pairs"] == []


def test_nothing_that_differs_is_refused_unless_it_is_a_self_test(api: Api) -> None:
    origin = api.submit(model="old.onnx", parameters={"threads": 2})
    measured(api, origin, 10.0)
    again = {"benchmark_id": origin}
    bodies: list[dict[str, Any]] = [
        {"baseline": again, "candidate": {"model": "old.onnx"}},
        {"baseline": again, "candidate": {"parameters": {"threads": 2}, "nb_inference": 50}},
        {"baseline": again, "candidate": {"target": "rpi4b", "tags": ["x"], "user_priority": 1}},
        {
            "baseline": {"description": description(model="old.onnx")},
            "candidate": description(model="old.onnx", name="other"),
        },
    ]
    for body in bodies:
        refused = api.as_().post("/v1/checks", json=body)
        assert refused.status_code == 422, body
        assert refused.json()["code"] == "nothing_differs", body
        (error,) = refused.json()["errors"]
        assert error["pointer"] == "/candidate/model", body
        assert "nothing else that a version may change differs" in error["reason"]
        accepted = api.as_().post("/v1/checks", json={**body, "self_test": True})
        assert accepted.status_code == 202, accepted.text
    for changes in ({"parameters": {"threads": 1}}, {"model": "new.onnx"}):
        body = {"baseline": again, "candidate": changes}
        assert api.as_().post("/v1/checks", json=body).status_code == 202
    empty = {"baseline": again, "candidate": {}, "self_test": True}
    assert api.as_().post("/v1/checks", json=empty).status_code == 202


def test_a_field_of_the_wrong_type_is_named(api: Api) -> None:
    origin = api.submit(model="old.onnx")
    measured(api, origin, 10.0)
    wrong_values: dict[str, tuple[object, ...]] = {
        "tags": ("x", 5, {"a": "b"}, [["a"]]),
        "series": (5, True, ["a"]),
        "parameters": ("x", 5, [1]),
        "input": ("x", [["a"]]),
        "benchmark_type": (5, {}, ["TYPE1"]),
        "model": (5, {}, ["net.onnx"]),
        "target": (5, {}, ["rpi4b"]),
        "keep_outputs": ("yes", []),
        "colour": ("red",),
    }
    for field, value in [(name, each) for name in wrong_values for each in wrong_values[name]]:
        wrong, right = description(**{field: value}), description(model="old.onnx")
        for body, pointer in (
            ({"baseline": {"benchmark_id": origin}, "candidate": {field: value}}, "/candidate/"),
            ({"baseline": {"description": right}, "candidate": wrong}, "/candidate/"),
            ({"baseline": {"description": wrong}, "candidate": right}, "/baseline/description/"),
        ):
            refused = api.as_().post("/v1/checks", json=body)
            assert refused.status_code == 422, (body, refused.text)
            pointers = [each["pointer"] for each in refused.json()["errors"]]
            assert any(each.startswith(f"{pointer}{field}") for each in pointers), (body, pointers)


def test_two_boards_are_no_two_versions(api: Api) -> None:
    body = {
        "baseline": {"description": description(model="old.onnx", target_uid=BOARD)},
        "candidate": description(model="new.onnx", target_uid="rpi4b-0001-0002"),
    }
    (error,) = api.as_().post("/v1/checks", json=body).json()["errors"]
    assert error["pointer"] == "/candidate/target_uid"
    assert "both versions run on one board" in error["reason"]


def test_a_number_that_its_run_calls_invalid_does_not_count(api: Api) -> None:
    busy = {"code": "other_load", "sentence": "The runs waited 85% of the time."}
    verdict = {"verdict": "invalid", "reasons": [busy]}
    found = driven(api, started(api), [1.01, 1.0, 1.0], verdict=verdict)
    assert found["status"] == "undecided"
    assert found["pairs"][0]["reasons"] == [
        "the candidate is invalid: The runs waited 85% of the time"
    ]
    assert (found["pairs"][0]["counts"], found["slowdown"]) == (False, None)


def test_cancelling_ends_it_with_its_run_and_twice_is_no_error(api: Api) -> None:
    check = started(api)
    step(api)
    run = shown(api, check)["run_id"]
    path = f"/v1/checks/{check['check_id']}/cancel"
    ended = api.as_().post(path)
    assert (ended.status_code, ended.json()["status"]) == (202, "cancelled")
    assert (ended.json()["run_id"], ended.json()["reason"]) == (run, "alice cancelled it")
    assert api.as_().get(f"/v1/benchmarks/{run}").json()["status"] == "cancelled"
    assert api.as_().post(path).json()["ended_at"] == ended.json()["ended_at"]
    assert step(api) == 0
    acts = api.as_("operator").get("/v1/events").json()["items"]
    kinds = [each["kind"] for each in acts if each["kind"].startswith("check.")]
    assert kinds == ["check.cancelled", "check.started"]


def test_checks_are_listed_newest_first_to_whom_they_belong(api: Api) -> None:
    first = started(api)
    api.clock.ahead += timedelta(seconds=5)
    second = started(api)
    api.as_().post(f"/v1/checks/{first['check_id']}/cancel")

    def ids(query: str = "", who: str = "alice") -> list[str]:
        return [each["check_id"] for each in api.as_(who).get(f"/v1/checks{query}").json()["items"]]

    assert ids() == [second["check_id"], first["check_id"]]
    assert ids("?status=running") == [second["check_id"]]
    page = api.as_().get("/v1/checks?limit=1").json()
    assert ids(f"?limit=1&cursor={page['next_cursor']}") == [first["check_id"]]
    assert ids(who="bob") == []
    assert len(ids(who="operator")) == 2


def test_the_same_key_starts_one_check(api: Api) -> None:
    body = {
        "baseline": {"description": description(model="old.onnx")},
        "candidate": description(model="new.onnx"),
    }
    made = [
        api.as_().post("/v1/checks", json=body, headers={"Idempotency-Key": "k"}).json()["check_id"]
        for _ in range(2)
    ]
    assert made[0] == made[1]


def test_a_full_queue_is_waited_for(api: Api) -> None:
    check = started(api)
    api.submit(model="old.onnx")
    full = Quotas(max_pending=1)
    assert advance_checks(api.store, api.clock, full) == 0
    assert shown(api, check)["reason"].startswith("it waits: ")
    assert advance_checks(api.store, api.clock, Quotas()) == 1
    assert shown(api, check)["reason"] == ""


def test_an_account_that_may_submit_nothing_any_more_ends_it(api: Api) -> None:
    check = started(api)
    api.as_("operator").patch("/v1/users/alice", json={"role": "viewer"})
    assert step(api) == 0
    found = api.as_("operator").get(f"/v1/checks/{check['check_id']}").json()
    assert found["status"] == "error"
    assert "may submit nothing" in found["reason"]


def test_files_of_a_check_stay_until_it_has_ended_and_it_is_pruned_with_benchmarks(
    api: Api,
) -> None:
    check = started(api)
    files = {each["name"]: each["file_id"] for each in api.as_().get("/v1/files").json()["items"]}
    kept = api.as_().delete(f"/v1/files/{files['new.onnx']}")
    assert kept.status_code == 409
    assert "cancel the check first" in kept.json()["detail"]
    later = api.clock.now() + timedelta(days=1)
    api.store.prune({RetentionClass.BENCHMARKS: later, RetentionClass.FILES: later})
    assert shown(api, check)["status"] == "running"
    api.as_().post(f"/v1/checks/{check['check_id']}/cancel")
    assert api.as_().delete(f"/v1/files/{files['new.onnx']}").status_code == 204
    api.store.prune({RetentionClass.BENCHMARKS: later})
    assert api.as_().get(f"/v1/checks/{check['check_id']}").status_code == 404


def test_a_clock_that_is_set_for_good_leaves_the_budget_as_it_is(api: Api) -> None:
    check = started(api, budget_s=60)
    api.store.transact(lambda uow: uow.checks.move_times(3600))
    api.clock.ahead += timedelta(seconds=3600)
    step(api)
    assert shown(api, check)["status"] == "running"
