"""A suspected change of a series: confirmed or refuted by runs of the lab's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from edgeyard.scheduler.engine import confirmation
from edgeyard.scheduler.engine.checks import advance_checks
from edgeyard.scheduler.engine.confirmation import (
    MAX_BOARD_SHARE,
    MAX_WAIT,
    SHARE_WINDOW,
    advance_changes,
)
from edgeyard.scheduler.engine.series_watch import SeriesWatch
from edgeyard.scheduler.model.accounting import month_of
from edgeyard.scheduler.model.accounts import Charge, ChargeKind
from edgeyard.scheduler.model.benchmark import Benchmark, Status, WaitingReason, WaitReason
from edgeyard.scheduler.model.checks import BISECTION_TAG, CHECK_TAG, CONFIRMATION_TAG
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.series_changes import ChangeStatus, SeriesChange
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.twin.twin import BoardState, BoardView
from tests.builders.api import BOARDS, Api, running
from tests.builders.crashes import Died, dying_at
from tests.builders.descriptions import description
from tests.builders.model_files import a_model_file

BOARD = BOARDS[0].target_uid
NOISE = (1.0, 1.002, 0.998, 1.001, 0.999)
RUN_S = 10.0

Measure = Callable[[str], float]
"""What a run of a model measures now, ms."""


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        for name in ("old.onnx", "new.onnx"):
            found.upload(name, a_model_file(fill=name[:1].encode()))
        yield found


def point(api: Api, model: str, p50: float, **report: object) -> str:
    """A night: the model is measured."""
    api.clock.ahead += timedelta(days=1)
    made = api.submit(model=model, series="detector", nb_inference=20)
    measured(api, made, p50, **report)
    return made


def measured(api: Api, benchmark_id: str, p50: float, **changes: object) -> None:
    """As if it had run, with this number."""
    api.dispatched(benchmark_id)
    api.measured(benchmark_id, p50, run_s=RUN_S, **changes)


def nights(api: Api, model: str, count: int, p50: float) -> list[str]:
    """So many nights, of which each is looked at."""
    found = []
    for number in range(count):
        found.append(point(api, model, p50 * NOISE[number % len(NOISE)]))
        SeriesWatch(api.store, api.clock).turn()
    return found


def regression(api: Api, *, new: float = 10.8) -> tuple[list[str], list[str]]:
    """Eight nights of the old model, then nights of another one until it is suspected."""
    return nights(api, "old.onnx", 8, 10.0), nights(api, "new.onnx", 4, new)


def changes(api: Api) -> Sequence[SeriesChange]:
    """All changes, newest first."""
    with api.store.read() as uow:
        found, _ = uow.series.changes_page(
            user_id=None,
            status=list(ChangeStatus),
            lineage=None,
            target_uid=None,
            limit=50,
            cursor=None,
        )
    return found


def change(api: Api) -> SeriesChange:
    """The newest."""
    return changes(api)[0]


def views(state: BoardState = BoardState.IDLE, reason: str = "") -> list[BoardView]:
    return [
        BoardView(
            board=each,
            state=state,
            reason=reason,
            host="host-1",
            expected=True,
            online=True,
            drained=False,
            holder=None,
        )
        for each in BOARDS
    ]


def steps(
    api: Api, boards: Sequence[BoardView] | None = None, budget_s: float = 3600.0
) -> Sequence[Callable[[], object]]:
    """The parts of a turn of the leading server: nothing is kept between two of them."""
    known = views() if boards is None else boards
    return (
        partial(advance_changes, api.store, api.files, api.clock, known, budget_s),
        partial(advance_checks, api.store, api.clock),
    )


def step(api: Api, boards: Sequence[BoardView] | None = None, budget_s: float = 3600.0) -> None:
    for each in steps(api, boards, budget_s):
        each()


def waiting_run(api: Api) -> Benchmark | None:
    """The run of a check that is to be measured."""
    which = BenchmarkFilter(tag=CHECK_TAG, status=frozenset({Status.PENDING}))
    with api.store.read() as uow:
        found, _ = uow.benchmarks.page(which, limit=5, cursor=None)
    assert len(found) <= 1
    return found[0] if found else None


def driven(
    api: Api, measure: Measure, *, turns: int = 60, step: Callable[[Api], None] = step
) -> SeriesChange:
    """Take steps, and measure what is to be measured, until the newest change is decided."""
    for turn in range(turns):
        step(api)
        if change(api).status not in (ChangeStatus.SUSPECTED, ChangeStatus.CONFIRMING):
            break
        if (run := waiting_run(api)) is not None:
            measured(api, run.benchmark_id, measure(run.description.model) * NOISE[turn % 5])
    return change(api)


def by_model(values: Mapping[str, float]) -> Measure:
    return lambda model: values[model]


SLOWER = by_model({"old.onnx": 10.0, "new.onnx": 10.8})


def kinds(api: Api) -> list[str]:
    """Events of changes, in order."""
    return [each.kind for each in events(api)]


def events(api: Api) -> list[Event]:
    with api.store.read() as uow:
        every = uow.log.events(after=0, limit=10_000)
    return [each for each in every if each.kind.split(".")[0] in ("series", "alert")]


def test_a_model_that_is_slower_is_suspected_confirmed_against_its_old_version_and_an_alert(
    api: Api,
) -> None:
    old, new = regression(api)
    found = change(api)
    assert (found.status, found.begin_id, found.before_id) == (
        ChangeStatus.SUSPECTED,
        new[0],
        old[-1],
    )
    step(api)
    run = waiting_run(api)
    assert run is not None
    assert (run.user_id, run.description.target_uid) == ("alice", BOARD)
    assert run.description.tags[:-1] == (CHECK_TAG, CONFIRMATION_TAG)
    assert run.check_id == change(api).check_ids[-1]
    assert run.description.user_priority == 5  # alice's own maximum
    found = driven(api, SLOWER)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")
    assert found.confirmed_low is not None
    assert found.confirmed_high is not None
    assert found.confirmed_low < 0.08 < found.confirmed_high
    assert "slower" in found.blame
    assert kinds(api) == ["series.suspected", "alert.confirmed"]
    event = events(api)[-1]
    assert (event.user_id, event.data["change_id"]) == ("alice", found.change_id)
    assert event.data["sentence"] == f"{found.sentence()}. {found.blame}"
    assert set(event.data) == {
        *("change_id", "series_id", "lineage", "target_uid", "runtime", "metric"),
        *("size", "low", "high", "cause", "sentence"),
        *("not_tested", "model", "git_commit", "link"),
    }
    assert event.data["model"] == "new.onnx"
    assert event.data["not_tested"] == " ".join(found.not_tested)
    nights(api, "new.onnx", 3, 10.8)
    assert len(changes(api)) == 1  # no repeats
    with api.store.read() as uow:
        (check_id,) = found.check_ids
        assert uow.checks.get(check_id).max_slowdown == pytest.approx(found.size / 2)


def test_much_noise_while_an_alert_is_active_leads_to_no_second_alert(api: Api) -> None:
    regression(api)
    alert = driven(api, SLOWER)
    with api.store.write() as uow:
        for number in range(60):
            noise = replace(alert, change_id=f"noise-{number}", status=ChangeStatus.NOISE)
            uow.series.add_change(replace(noise, found_at=api.clock.now()))
    nights(api, "new.onnx", 4, 10.8)
    nights(api, "new.onnx", 6, 11.3)
    assert not [each for each in changes(api) if each.status is ChangeStatus.SUSPECTED]


def test_runs_of_a_confirmation_are_charged_as_a_kind_of_their_own(api: Api) -> None:
    months = {month_of(api.clock.now())}
    regression(api)
    driven(api, SLOWER)
    months.add(month_of(api.clock.now()))
    runs: Counter[str] = Counter()
    for month in months:
        report = api.as_().get(f"/v1/usage?by=kind&month={month}").json()
        runs.update({each["key"]: each["runs"] for each in report["items"]})
    assert runs["benchmark"] == 12
    assert runs["confirmation"] >= 6
    with api.store.read() as uow:
        (charge, *_) = uow.credits.charges("alice", limit=1)
    assert (charge.kind, charge.user_id) == (ChargeKind.CONFIRMATION, "alice")


def test_tags_of_confirmations_are_for_these_alone(api: Api) -> None:
    """They decide what a run is charged as, and what a board spends on confirmations."""
    for tag in (CONFIRMATION_TAG, BISECTION_TAG):
        body = description(model="old.onnx", tags=[tag])
        refused = api.as_().post("/v1/benchmarks", json=body)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/tags"
    regression(api)
    step(api)
    run = waiting_run(api)
    assert run is not None
    measured(api, run.benchmark_id, 10.0)
    for how in ("retry", "clone"):
        again = api.as_().post(f"/v1/benchmarks/{run.benchmark_id}/{how}", json={})
        made = api.as_().get(f"/v1/benchmarks/{again.json()['benchmark_id']}").json()
        assert CHECK_TAG in made["description"]["tags"]
        assert CONFIRMATION_TAG not in made["description"]["tags"]


def test_a_board_that_moved_is_confirmed_against_recorded_results(api: Api) -> None:
    old = nights(api, "old.onnx", 8, 10.0)
    nights(api, "old.onnx", 4, 10.8)
    found = driven(api, lambda _: 10.8)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "unknown")
    with api.store.read() as uow:
        check = uow.checks.get(found.check_ids[0])
    assert check.recorded_ids == tuple(reversed(old))
    assert [each.baseline_id for each in check.pairs] == old[::-1][: len(check.pairs)]


def test_another_series_with_one_result_since_is_no_proof_until_it_has_more(api: Api) -> None:
    def other(p50: float) -> None:
        made = api.submit(model="old.onnx", series="other", parameters={"threads": 2})
        measured(api, made, p50)

    for _ in range(8):
        nights(api, "old.onnx", 1, 10.0)
        other(20.0)
    nights(api, "old.onnx", 4, 10.8)
    other(21.6)
    found = driven(api, lambda model: 10.8)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "unknown")
    assert found.not_tested[0].startswith("other had fewer than 3 results")
    other(21.7)
    other(21.5)
    nights(api, "old.onnx", 1, 10.8)
    (alert,) = [each for each in changes(api) if each.key.lineage == "detector"]
    assert (alert.status, alert.cause) == (ChangeStatus.CONFIRMED, "board")
    assert "1 of 1 other series" in alert.blame
    assert "fewer than 3 results" not in " ".join(alert.not_tested)
    nights(api, "old.onnx", 1, 10.8)
    assert [each for each in kinds(api) if each.startswith(("alert", "series.b"))] == [
        "alert.confirmed",
        "series.blamed",
    ]


def test_a_new_engine_is_blamed_with_its_versions_and_what_was_not_tested(api: Api) -> None:
    for _ in range(8):
        point(api, "old.onnx", 10.0, engine_facts={"version": "1.22"})
    for _ in range(4):
        point(api, "old.onnx", 10.8, engine_facts={"version": "1.23"})
    watch = SeriesWatch(api.store, api.clock)
    watch.turn()
    found = driven(api, lambda _: 10.8)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "engine")
    assert "its engine changed from 1.22 to 1.23" in found.blame
    assert f"No canary ran on {BOARD} before and after the change." in found.not_tested
    assert str(events(api)[-1].data["sentence"]).endswith(f"%. {found.blame}")


def test_another_model_that_is_no_slower_is_not_to_blame_for_a_level_that_is_real(
    api: Api,
) -> None:
    regression(api)
    found = driven(api, lambda _: 10.8)  # both are slow now
    assert (found.status, found.cause, len(found.check_ids)) == (
        ChangeStatus.CONFIRMED,
        "unknown",
        2,
    )


def test_noise_is_recorded_and_raises_the_threshold_of_its_series(api: Api) -> None:
    regression(api)
    found = driven(api, lambda _: 10.0)
    assert found.status is ChangeStatus.NOISE
    assert found.reason.startswith("the slowdown is at most")
    assert kinds(api) == ["series.suspected", "series.noise"]
    with api.store.read() as uow:
        series = uow.series.watched(found.key.series_id)
    now = api.clock.now()
    assert series.threshold_now(now) == pytest.approx(1.25 * found.size, rel=0.1)


def test_the_end_of_what_was_noise_is_no_change(api: Api) -> None:
    nights(api, "old.onnx", 10, 10.0)
    nights(api, "old.onnx", 4, 8.6)
    assert driven(api, lambda _: 10.0).status is ChangeStatus.NOISE
    nights(api, "old.onnx", 6, 10.0)
    driven(api, lambda _: 10.0)
    assert {each.status for each in changes(api)} == {ChangeStatus.NOISE}


def test_a_level_that_goes_on_in_its_direction_is_an_alert_that_ends_the_one_before(
    api: Api,
) -> None:
    regression(api)
    first = driven(api, SLOWER)
    nights(api, "new.onnx", 3, 10.8)
    nights(api, "new.onnx", 4, 30.0)
    second = driven(api, lambda _: 30.0)
    assert (second.status, second.alert_id) == (ChangeStatus.CONFIRMED, None)
    assert second.best_size == pytest.approx(30 / 10.8 - 1, rel=0.05)
    ended = changes(api)[-1]
    assert (ended.change_id, ended.status) == (first.change_id, ChangeStatus.RESOLVED)
    assert second.change_id in ended.reason


def test_a_model_that_is_faster_is_confirmed_as_better(api: Api) -> None:
    regression(api, new=9.2)
    found = driven(api, by_model({"old.onnx": 10.0, "new.onnx": 9.2}))
    assert (found.status, found.worse) == (ChangeStatus.CONFIRMED, False)
    assert found.confirmed_size == pytest.approx(-0.08, abs=0.01)
    assert found.reason.startswith("it is faster by at least")


def test_the_old_level_ends_the_alert_and_it_is_reopened_if_it_comes_back(api: Api) -> None:
    regression(api)
    alert = driven(api, SLOWER)
    nights(api, "new.onnx", 3, 10.8)
    nights(api, "old.onnx", 4, 10.0)
    back = driven(api, SLOWER)
    assert (back.status, back.alert_id) == (ChangeStatus.MERGED, alert.change_id)
    resolved = changes(api)[-1]
    assert resolved.status is ChangeStatus.RESOLVED
    assert resolved.reason == f"the level before it is back since {back.begin_id}"
    nights(api, "old.onnx", 3, 10.0)
    nights(api, "new.onnx", 4, 11.0)
    again = driven(api, by_model({"old.onnx": 10.0, "new.onnx": 11.0}))
    assert again.status is ChangeStatus.MERGED
    by_id = {each.change_id: each for each in changes(api)}
    reopened = by_id.pop(alert.change_id)
    assert (reopened.status, reopened.ended_at) == (ChangeStatus.CONFIRMED, None)
    assert reopened.reopened_at is not None
    assert (reopened.begin_id, reopened.before_id) == (again.begin_id, again.before_id)
    assert (reopened.size, reopened.confirmed_size) == (again.size, again.confirmed_size)
    assert (reopened.blame, reopened.check_ids) == (again.blame, again.check_ids)
    (before,) = [each for each in by_id.values() if each.begin_id == alert.begin_id]
    assert (before.status, before.alert_id) == (ChangeStatus.MERGED, alert.change_id)
    assert (before.confirmed_size, before.blame) == (alert.confirmed_size, alert.blame)
    assert events(api)[-1].data["size"] == reopened.best_size
    assert [each for each in kinds(api) if each.startswith("alert.")] == [
        "alert.confirmed",
        "alert.resolved",
        "alert.reopened",
    ]


def gone(api: Api, benchmark_id: str) -> None:
    """As if its model had been pruned."""
    with api.store.read() as uow:
        for file in uow.benchmarks.get(benchmark_id).files:
            assert file.sha256 is not None
            api.files.path(file.sha256).unlink()


def test_an_old_version_that_is_gone_is_listed_as_not_tested(api: Api) -> None:
    old, _ = regression(api)
    gone(api, old[-1])
    found = driven(api, SLOWER)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")  # all that changed
    assert found.not_tested[0].endswith(
        ": the old version of the model: its file is no longer stored."
    )


def test_without_the_present_version_nothing_can_be_run(api: Api) -> None:
    _, new = regression(api)
    gone(api, new[0])
    step(api)
    found = change(api)
    assert found.status is ChangeStatus.UNCONFIRMED
    assert f"the files of {new[0]} are no longer stored" in found.reason
    assert kinds(api) == ["series.suspected", "series.unconfirmed"]


def test_what_cannot_be_confirmed_is_an_alert_only_where_that_is_asked_for(api: Api) -> None:
    regression(api)
    with api.store.write() as uow:
        series = uow.series.watched(change(api).key.series_id)
        uow.series.save_watched(replace(series, alert_unconfirmed=True))
    step(api, budget_s=0.0)
    found = change(api)
    assert found.status is ChangeStatus.OPEN
    assert found.reason == "the lab confirms no changes (confirm_budget_s is 0)"
    assert kinds(api) == ["series.suspected", "alert.open"]


def test_an_alert_that_comes_back_without_a_confirmation_is_open_and_its_end_is_not(
    api: Api,
) -> None:
    regression(api)
    driven(api, SLOWER)
    with api.store.write() as uow:
        series = uow.series.watched(change(api).key.series_id)
        uow.series.save_watched(replace(series, alert_unconfirmed=True))
    nights(api, "new.onnx", 3, 10.8)
    nights(api, "old.onnx", 4, 10.0)
    step(api, budget_s=0.0)
    assert change(api).status is ChangeStatus.UNCONFIRMED
    nights(api, "old.onnx", 12, 10.0)
    assert driven(api, SLOWER).status is ChangeStatus.MERGED
    nights(api, "new.onnx", 4, 10.8)
    assert change(api).alert_id is not None
    step(api, budget_s=0.0)
    assert (change(api).status, change(api).alert_id) == (ChangeStatus.OPEN, None)
    assert kinds(api)[-1] == "alert.open"


def remove_credits(api: Api) -> None:
    answer = api.as_("operator").post("/v1/users/alice/credits", json={"credits": 0})
    assert answer.status_code == 200, answer.text


def make_viewer(api: Api) -> None:
    api.as_("operator").patch("/v1/users/alice", json={"role": "viewer"})


@pytest.mark.parametrize(
    ("prepare", "boards", "why"),
    [
        (remove_credits, None, "has no credits left"),
        (make_viewer, None, "is disabled or may submit nothing"),
        (lambda api: None, [], f"the board {BOARD} is no longer in the lab"),
    ],
)
def test_an_owner_without_means_and_a_board_that_is_gone_end_it_with_a_sentence(
    api: Api, prepare: Callable[[Api], object], boards: list[BoardView] | None, why: str
) -> None:
    regression(api)
    prepare(api)
    step(api, boards)
    assert change(api).status is ChangeStatus.UNCONFIRMED
    assert why in change(api).reason


def test_a_board_that_is_away_is_waited_for_but_not_for_ever(api: Api) -> None:
    regression(api)
    away = views(BoardState.DRAINED, "a new fan")
    step(api, away)
    found = change(api)
    assert found.status is ChangeStatus.SUSPECTED
    assert found.reason == f"it waits: the board {BOARD} is drained (a new fan)"
    step(api)
    assert change(api).status is ChangeStatus.CONFIRMING
    assert change(api).reason == ""


def test_a_board_that_stays_away_ends_it(api: Api) -> None:
    regression(api)
    api.clock.ahead += MAX_WAIT + timedelta(hours=1)
    step(api, views(BoardState.QUARANTINED))
    assert change(api).status is ChangeStatus.UNCONFIRMED
    assert "it waited for 7 days" in change(api).reason


def test_a_board_that_goes_away_between_two_checks_ends_it_with_that_reason(api: Api) -> None:
    regression(api)
    step(api, budget_s=60)
    api.clock.ahead += timedelta(seconds=61)
    step(api, budget_s=60)  # ends the check of the old version against the new one
    step(api, views(BoardState.OFFLINE, "no heartbeat"))
    found = change(api)
    assert (found.status, len(found.check_ids)) == (ChangeStatus.UNCONFIRMED, 1)
    assert found.reason == f"the board {BOARD} is offline (no heartbeat)"


def check_of(api: Api, change: SeriesChange) -> Mapping[str, Any]:
    """The newest check of a change, over HTTP."""
    found = api.as_("operator").get(f"/v1/checks/{change.check_ids[-1]}")
    return dict(found.json())


def test_a_board_that_leaves_the_lab_during_a_check_ends_both_and_its_run(api: Api) -> None:
    regression(api)
    step(api)
    run = waiting_run(api)
    assert run is not None
    step(api, [each for each in views() if each.board.target_uid != BOARD])
    found = change(api)
    why = f"the board {BOARD} is no longer in the lab"
    assert (found.status, found.reason) == (ChangeStatus.UNCONFIRMED, why)
    assert len(found.check_ids) == 1
    check = check_of(api, found)
    assert (check["status"], check["reason"]) == ("error", why)
    shown = api.as_().get(f"/v1/benchmarks/{run.benchmark_id}").json()
    assert shown["status"] == "cancelled"


def test_a_board_that_is_drained_during_a_check_is_stated_until_it_is_back(api: Api) -> None:
    regression(api)
    step(api)
    step(api, views(BoardState.DRAINED, "a new fan"))
    found = change(api)
    assert found.status is ChangeStatus.CONFIRMING
    assert found.reason == f"it waits: the board {BOARD} is drained (a new fan)"
    step(api)
    assert (change(api).status, change(api).reason) == (ChangeStatus.CONFIRMING, "")
    assert driven(api, SLOWER).status is ChangeStatus.CONFIRMED


def test_a_check_that_runs_states_why_its_run_waits(api: Api) -> None:
    regression(api)
    step(api)
    assert check_of(api, change(api))["reason"] == ""
    run = waiting_run(api)
    assert run is not None
    why = WaitReason(reason=WaitingReason.BOARD_DRAINED, sentence=f"{BOARD} is drained")
    with api.store.write() as uow:
        uow.benchmarks.save_waiting([replace(run, waiting=why)])
    waits = f"its run {run.benchmark_id} waits: {BOARD} is drained"
    assert check_of(api, change(api))["reason"] == waits
    (listed,) = api.as_().get("/v1/checks").json()["items"]
    assert listed["reason"] == waits
    measured(api, run.benchmark_id, 10.0)
    assert check_of(api, change(api))["reason"] == ""


def test_the_check_of_a_change_states_the_metric_of_its_series(api: Api) -> None:
    for night in range(12):
        value = (50.0 if night < 8 else 45.0) * NOISE[night % len(NOISE)]
        rate = {"value": value, "unit": "1/s", "title": "decoded tokens", "better": "higher"}
        point(api, "old.onnx", 10.0, primary_metric="tokens", results={"tokens": rate})
    SeriesWatch(api.store, api.clock).turn()
    step(api)
    metric = check_of(api, change(api))["metric"]
    assert (metric["name"], metric["better"]) == ("tokens", "higher")


def test_boards_that_are_away_hold_up_no_confirmation_on_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmation, "MAX_CONFIRMATIONS", 1)
    regression(api)
    step(api)
    other = BOARDS[1].target_uid
    suspected = replace(
        change(api),
        change_id="alert-other",
        key=replace(change(api).key, target_uid=other, user_id="bob"),
        status=ChangeStatus.SUSPECTED,
        check_ids=(),
    )
    with api.store.write() as uow:
        uow.series.add_change(suspected)
    step(api)
    with api.store.read() as uow:
        assert "1 other changes are being confirmed" in uow.series.change("alert-other").reason
    step(api, [*views(BoardState.DRAINED)[:1], *views()[1:]])
    with api.store.read() as uow:
        assert "other changes" not in uow.series.change("alert-other").reason


def spent(api: Api, user_id: str, share: float) -> None:
    """As if confirmations of a user had taken this part of what a board spends on them."""
    now = api.clock.now()
    used = Charge(
        benchmark_id=f"b-earlier-{user_id}",
        attempt=1,
        user_id=user_id,
        family="rpi4b",
        rate=1.0,
        time_limit_s=1.0,
        reserved=0.0,
        reserved_at=now,
        target_uid=BOARD,
        board_s=share * MAX_BOARD_SHARE * SHARE_WINDOW.total_seconds(),
        settled_at=now - timedelta(days=29),
        kind=ChargeKind.CONFIRMATION,
    )
    with api.store.write() as uow:
        uow.credits.add_charges([used])


def test_a_board_spends_a_small_share_of_its_time_with_confirmations(api: Api) -> None:
    regression(api)
    spent(api, "bob", 0.6)
    spent(api, "carol", 0.4)
    step(api)
    assert "confirmations took 2% of the time" in change(api).reason
    api.clock.ahead += timedelta(days=2)
    step(api)
    assert change(api).status is ChangeStatus.CONFIRMING


def of_owners(api: Api, *others: str) -> None:
    """Changes that are suspected on one board: two of alice, and then one of each other."""
    for who in others:
        for name in ("old.onnx", "new.onnx"):
            api.upload(name, a_model_file(fill=name[:1].encode()), who=who)
    for night in range(12):
        api.clock.ahead += timedelta(days=1)
        model, level = ("old.onnx", 10.0) if night < 8 else ("new.onnx", 10.8)
        for who, series in (
            ("alice", "first"),
            ("alice", "second"),
            *((one, one) for one in others),
        ):
            made = api.submit(who, model=model, series=series, nb_inference=20)
            measured(api, made, level * NOISE[night % len(NOISE)])
            SeriesWatch(api.store, api.clock).turn()


def of(api: Api, lineage: str) -> SeriesChange:
    return next(each for each in changes(api) if each.key.lineage == lineage)


def test_an_owner_that_used_its_part_of_a_board_waits_and_no_other_one_does(api: Api) -> None:
    of_owners(api, "bob")
    spent(api, "alice", 0.5)
    step(api)
    waits = of(api, "first")
    assert (waits.status, waits.reason) == (
        ChangeStatus.SUSPECTED,
        f"it waits: confirmations of alice took 1.00% of the time of {BOARD} within 30 days, and "
        f"the part of an owner of series there is 1.00%",
    )
    assert of(api, "bob").status is ChangeStatus.CONFIRMING
    assert driven(api, SLOWER).key.lineage == "bob"
    assert of(api, "bob").status is ChangeStatus.CONFIRMED
    shown = api.as_().get("/v1/series/points?series=first").json()
    assert shown["changes"][0]["reason"] == waits.reason
    api.clock.ahead += timedelta(days=2)
    step(api)
    assert of(api, "first").status is ChangeStatus.CONFIRMING


def test_owners_of_series_on_a_board_take_turns(api: Api) -> None:
    of_owners(api, "bob")
    spent(api, "alice", 0.01)
    step(api)
    assert of(api, "first").reason == f"it waits: another change is being confirmed on {BOARD}"
    assert [each.key.lineage for each in changes(api) if each.check_ids] == ["bob"]


def test_more_owners_have_smaller_parts(api: Api) -> None:
    of_owners(api, "bob", "operator")
    spent(api, "alice", 0.34)
    step(api)
    assert "the part of an owner of series there is 0.67%" in of(api, "first").reason


def test_a_check_that_is_cancelled_ends_it(api: Api) -> None:
    regression(api)
    step(api)
    (check_id,) = change(api).check_ids
    api.as_().post(f"/v1/checks/{check_id}/cancel")
    step(api)
    assert (change(api).status, change(api).reason) == (
        ChangeStatus.UNCONFIRMED,
        "alice cancelled it",
    )


def test_a_budget_that_is_spent_ends_it(api: Api) -> None:
    regression(api)
    for _ in range(2):  # the old version against the new one, then recorded results
        step(api, budget_s=60)
        api.clock.ahead += timedelta(seconds=61)
        step(api, budget_s=60)
    step(api, budget_s=60)
    found = change(api)
    assert found.status is ChangeStatus.UNCONFIRMED
    assert found.reason == "the budget of 60 s was spent after 0 pairs"
    assert found.not_tested[0].startswith("whether the model is the cause: ")


def twice(turn: Callable[[], object], where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a step by a server that dies around its commit, then by another one."""
    # a turn that has nothing to store lives
    with dying_at(where, monkeypatch), suppress(Died):
        turn()
    turn()


def step_twice(api: Api, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in steps(api):
        twice(each, where, monkeypatch)


@pytest.mark.parametrize("where", ["commit:before", "commit:after"])
def test_a_server_that_dies_between_any_two_steps_loses_and_doubles_nothing(
    api: Api, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch() -> object:
        return SeriesWatch(api.store, api.clock).turn()

    for model, count, level in (("old.onnx", 8, 10.0), ("new.onnx", 4, 10.8)):
        for number in range(count):
            point(api, model, level * NOISE[number % 5])
            twice(watch, where, monkeypatch)
    crashing = partial(step_twice, where=where, monkeypatch=monkeypatch)
    found = driven(api, SLOWER, turns=40, step=crashing)
    assert len(changes(api)) == 1
    assert len(found.check_ids) == 1
    assert kinds(api) == ["series.suspected", "alert.confirmed"]
    with api.store.read() as uow:
        check = uow.checks.get(found.check_ids[0])
    runs, _ = page_of_runs(api)
    assert len(runs) == 2 * len(check.pairs)


VERSIONS = {"old.onnx": 10.0, "v1.onnx": 10.0, "v2.onnx": 10.0, "v3.onnx": 10.8, "v4.onnx": 10.8}


def versions_elsewhere(api: Api) -> dict[str, str]:
    """The board of the series measures the old version and, after four others, the new one.

    Returns:
        The benchmark of each of the four, on another board.
    """
    for name in VERSIONS:
        api.upload(name, a_model_file(fill=name[:2].encode()))
    nights(api, "old.onnx", 8, 10.0)
    holder = api.submit(model="old.onnx")
    api.dispatched(holder)
    found = {name: point(api, name, 5.0) for name in list(VERSIONS)[1:]}
    api.measured(holder, 10.0, run_s=RUN_S)
    nights(api, "new.onnx", 4, 10.8)
    return found


BISECTED = by_model({**VERSIONS, "new.onnx": 10.8})


def candidates(api: Api, found: SeriesChange) -> list[str]:
    with api.store.read() as uow:
        return [uow.checks.get(each).candidate for each in found.check_ids]


def test_the_first_version_that_is_slower_is_found_among_those_that_other_boards_measured(
    api: Api,
) -> None:
    between = versions_elsewhere(api)
    found = driven(api, BISECTED, turns=120)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")
    assert candidates(api, found) == ["new.onnx", "v3.onnx", "v2.onnx"]
    assert f"({between['v3.onnx']}), " in found.blame
    assert "the first version that differs is " in found.blame
    first = found.blame.split(between["v3.onnx"])[1]
    assert "% slower (95 %: " in first.split("the last one")[0]
    assert between["v2.onnx"] in first.split("the last one that does not is ")[1]
    assert kinds(api) == ["series.suspected", "alert.confirmed"]
    checks = [api.as_().get(f"/v1/checks/{each}").json() for each in found.check_ids]
    assert {each["target_uid"] for each in checks} == {BOARD}
    assert [each["purpose"] for each in checks] == ["confirmation", "bisection", "bisection"]


def test_versions_whose_files_are_gone_are_left_out_and_named(api: Api) -> None:
    between = versions_elsewhere(api)
    gone(api, between["v3.onnx"])
    found = driven(api, BISECTED, turns=120)
    assert found.status is ChangeStatus.CONFIRMED
    assert "v3.onnx" not in candidates(api, found)
    assert between["v4.onnx"] in found.blame
    assert any(
        between["v3.onnx"] in each and each.endswith("its files are no longer stored.")
        for each in found.not_tested
    )


def test_a_bisection_that_may_not_go_on_ends_in_an_alert_that_says_so(api: Api) -> None:
    versions_elsewhere(api)
    while not change(api).confirmed_size:
        step(api)
        if (run := waiting_run(api)) is not None:
            measured(api, run.benchmark_id, BISECTED(run.description.model))
    (_, bisecting) = change(api).check_ids
    api.as_().post(f"/v1/checks/{bisecting}/cancel")
    step(api, views(BoardState.OFFLINE))
    found = change(api)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")
    assert found.not_tested[-1] == (
        f"Which of 4 versions between them is the first was not found out: the board {BOARD} is "
        f"offline."
    )
    assert "alice cancelled it" in " ".join(found.not_tested)


def broken(*_: object, **__: object) -> object:
    raise ValueError("no such file")


def test_a_bisection_that_breaks_keeps_what_was_confirmed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions_elsewhere(api)
    while not change(api).confirmed_size:
        step(api)
        if (run := waiting_run(api)) is not None:
            measured(api, run.benchmark_id, BISECTED(run.description.model))
    monkeypatch.setattr("edgeyard.scheduler.engine.confirmation.next_version", broken)
    found = driven(api, BISECTED)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")
    assert "% slower (95 %: " in found.blame
    assert found.not_tested[-1].endswith("because of an error: ValueError.")
    assert kinds(api) == ["series.suspected", "alert.confirmed"]


def test_a_cause_that_can_not_be_looked_for_leaves_the_alert(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeyard.scheduler.engine.confirmation.blame", broken)
    regression(api)
    found = driven(api, SLOWER)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")
    assert found.confirmed_size == pytest.approx(0.08, abs=0.01)


def test_results_that_are_deleted_during_the_check_leave_what_it_confirmed(api: Api) -> None:
    old, new = regression(api)
    step(api)
    with api.store.write() as uow:
        for each in (*old, *new):
            uow.benchmarks.delete(each, api.clock.now())
    found = driven(api, SLOWER)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")
    assert found.not_tested[-1].startswith("The results around the change were deleted")


def test_versions_of_successive_nights_are_distinguished_although_the_place_is_not_exact(
    api: Api,
) -> None:
    levels = {f"n{number}.onnx": 10.0 if number < 8 else 10.8 for number in range(12)}
    for name in levels:
        api.upload(name, a_model_file(fill=name[:3].encode()))
    made = {}
    for number, (name, level) in enumerate(levels.items()):
        # the last night before the change was slow by chance
        p50 = 10.8 if name == "n7.onnx" else level * NOISE[number % 5]
        made[name] = point(api, name, p50)
        SeriesWatch(api.store, api.clock).turn()
    assert change(api).begin_id == made["n7.onnx"]
    found = driven(api, by_model(levels), turns=150)
    assert (found.status, found.cause) == (ChangeStatus.CONFIRMED, "model")
    assert f"the first version that differs is {model_of(api, made['n8.onnx'])}" in found.blame


@pytest.mark.parametrize("where", ["commit:before", "commit:after"])
def test_a_server_that_dies_in_a_bisection_loses_and_doubles_nothing(
    api: Api, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = versions_elsewhere(api)
    crashing = partial(step_twice, where=where, monkeypatch=monkeypatch)
    found = driven(api, BISECTED, turns=120, step=crashing)
    assert candidates(api, found) == ["new.onnx", "v3.onnx", "v2.onnx"]
    assert between["v3.onnx"] in found.blame
    with api.store.read() as uow:
        checks = [uow.checks.get(each) for each in found.check_ids]
    runs, _ = page_of_runs(api)
    assert len(runs) == sum(2 * len(each.pairs) for each in checks)
    assert kinds(api) == ["series.suspected", "alert.confirmed"]


def model_of(api: Api, benchmark_id: str) -> str:
    """The hash of its model as sentences have it."""
    with api.store.read() as uow:
        return str(uow.benchmarks.get(benchmark_id).files[0].sha256)[:12]


def page_of_runs(api: Api) -> Any:
    with api.store.read() as uow:
        return uow.benchmarks.page(BenchmarkFilter(tag=CHECK_TAG), limit=100, cursor=None)


def test_a_watch_that_breaks_on_one_series_goes_on_with_the_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(api, "old.onnx", 1, 10.0)
    with api.store.write() as uow:
        (known,) = [uow.series.watched(each) for each in [series_id(api)]]
        other = replace(known.key, lineage="another")
        uow.series.mark_due([known.key, other], api.clock.now())

    def broken(points: object, earlier: object, threshold: float, now: object) -> None:
        raise ValueError("no such noise")

    monkeypatch.setattr("edgeyard.scheduler.engine.series_watch.suspicion", broken)
    assert SeriesWatch(api.store, api.clock).turn() == 0
    with api.store.read() as uow:
        assert uow.series.due(10) == []


def series_id(api: Api) -> str:
    found = api.as_().get("/v1/series").json()["items"]
    return str(found[0]["series_id"])


def test_ten_thousand_series_at_once_are_looked_at_a_few_a_turn(api: Api) -> None:
    point(api, "old.onnx", 10.0)
    SeriesWatch(api.store, api.clock).turn()
    with api.store.write() as uow:
        known = uow.series.watched(series_id(api)).key
        many = [replace(known, lineage=f"series {number}") for number in range(120)]
        uow.series.mark_due(many, api.clock.now())
    watch = SeriesWatch(api.store, api.clock)
    left = []
    for _ in range(4):
        watch.turn()
        with api.store.read() as uow:
            left.append(len(uow.series.due(1000)))
    assert left == [70, 20, 0, 0]


def test_times_of_a_clock_that_was_ahead_are_left_out(api: Api) -> None:
    nights(api, "old.onnx", 8, 10.0)
    api.clock.ahead += timedelta(days=400)
    nights(api, "old.onnx", 3, 10.8)
    api.clock.ahead -= timedelta(days=400)
    before = len(changes(api))
    nights(api, "old.onnx", 3, 10.0)
    assert len(changes(api)) == before


def test_two_models_of_other_inputs_under_one_lineage_are_two_series(api: Api) -> None:
    feeds = {"x": {"shape": [32, 64], "dtype": "float32"}}
    nights(api, "old.onnx", 8, 10.0)
    for number in range(4):
        point(api, "new.onnx", 20.0 * NOISE[number], feeds=feeds)
        SeriesWatch(api.store, api.clock).turn()
    assert not changes(api)
