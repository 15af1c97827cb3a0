"""What was used in a month, against what the attempts themselves state."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from edgeyard.benchmark_api.sdk import Client
from edgeyard.scheduler.engine import charging
from edgeyard.scheduler.model.accounting import BoardMonth, month_bounds, month_of
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
from edgeyard.scheduler.model.decision import KeptIdle
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.model.tariff import Tariff
from tests.builders.api import Api, running
from tests.builders.cli import printed, run

BOARD = "rpi4b-0001-0001"
BROKEN = Failure(category=FailureCategory.USER_MODEL, sentence="a bad model")
PREEMPTED = Failure(category=FailureCategory.PREEMPTED, sentence="for another")
DRAINED = Failure(category=FailureCategory.CLUSTER, sentence="its host was drained")
LOST = Failure(category=FailureCategory.BOARD_FAULT, sentence="it is gone")


@pytest.fixture
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("usage")) as found:
        go_to(found, datetime(2031, 10, 3, 12, tzinfo=UTC))
        for who in ("alice", "bob"):
            found.upload(who=who)
        yield found


def go_to(api: Api, moment: datetime) -> None:
    api.clock.ahead += moment - api.clock.now()


def begun(api: Api, benchmark_id: str, wait_s: float = 0.0) -> None:
    """It is placed, and its task starts after it has waited."""
    api.clock.ahead += timedelta(seconds=wait_s)
    api.started(benchmark_id, BOARD)


def ended(api: Api, benchmark_id: str, run_s: float, failure: Failure | None = BROKEN) -> None:
    """Its task ends after a time, without a report."""
    api.ended(benchmark_id, failure, run_s=run_s)


def ran(
    api: Api, who: str = "alice", run_s: float = 60.0, failure: Failure | None = BROKEN, **of: Any
) -> str:
    benchmark_id = api.submit(who, **of)
    begun(api, benchmark_id, wait_s=30.0)
    ended(api, benchmark_id, run_s, failure)
    return benchmark_id


def report(api: Api, by: str = "user", who: str = "operator", **params: Any) -> dict[str, Any]:
    answer = api.as_(who).get("/v1/usage", params={"by": by, **params})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def rows(found: dict[str, Any]) -> dict[str | None, dict[str, Any]]:
    return {each["key"]: each for each in found["items"]}


def test_a_months_report_is_the_sum_of_its_attempts(api: Api) -> None:
    """Another way: each benchmark's attempts and each account's charges, over HTTP."""
    operator = api.as_("operator")
    assert operator.put("/v1/rates/rpi4b", json={"rate": 2.5}).status_code == 200
    tried_again = ran(api, "alice", 100.0, LOST)
    begun(api, tried_again, wait_s=7.0)
    ended(api, tried_again, 50.0)
    done = [tried_again, ran(api, "alice", 10.0), ran(api, "bob", 3000.0)]
    cancelled = api.submit("bob")
    begun(api, cancelled, wait_s=5.0)
    assert api.as_("bob").post(f"/v1/benchmarks/{cancelled}/cancel").status_code in (200, 202)
    ended(api, cancelled, 20.0)  # its task is killed
    never = api.submit("bob")
    api.dispatched(never)
    ended(api, never, 9.0)
    go_to(api, datetime(2031, 10, 31, 23, 59, tzinfo=UTC))
    done += [cancelled, never, ran(api, "bob", 600.0)]  # the last one ends in November

    since, until = month_bounds("2031-10")
    hours: defaultdict[tuple[str, str], float] = defaultdict(float)
    runs: defaultdict[tuple[str, str], int] = defaultdict(int)
    failures: defaultdict[tuple[str, str], int] = defaultdict(int)
    for benchmark_id in done:
        benchmark = operator.get(f"/v1/benchmarks/{benchmark_id}").json()
        for each in benchmark["attempts"]:
            at = datetime.fromisoformat(each["ended_at"])
            if each["started_at"] is None or not since <= at < until:
                continue
            took_s = (
                datetime.fromisoformat(each["task_ended_at"])
                - datetime.fromisoformat(each["started_at"])
            ).total_seconds()
            for key in (
                ("user", benchmark["user_id"]),
                ("board", each["target_uid"]),
                ("family", "rpi4b"),
                ("engine", benchmark["description"]["runtime"]),
            ):
                hours[key] += took_s / 3600
                runs[key] += 1
                failures[key] += each["failure"] is not None
    credits = {
        who: sum(
            each["charged"] or 0.0
            for each in operator.get(f"/v1/users/{who}/account").json()["charges"]
            if each["settled_at"] and since <= datetime.fromisoformat(each["settled_at"]) < until
        )
        for who in ("alice", "bob")
    }
    for by in ("user", "board", "family", "engine"):
        found = report(api, by, month="2031-10")
        of = {key: row for key, row in rows(found).items() if row["runs"]}
        assert {(by, key) for key in of} == {key for key in runs if key[0] == by}
        for name, row in of.items():
            assert row["runs"] == runs[by, str(name)]
            assert row["failures"] == failures[by, str(name)]
            assert row["board_hours"] == pytest.approx(hours[by, str(name)])
        assert found["total"]["credits"] == pytest.approx(sum(credits.values()))
        assert found["total"]["not_started"] == 1
    of_users = rows(report(api, "user", month="2031-10"))
    assert {key: row["credits"] for key, row in of_users.items()} == pytest.approx(credits)
    # the failure of the board was free
    assert 2.5 * 60.0 <= credits["alice"] < 2.5 * 160.0
    november = rows(report(api, "user", month="2031-11"))
    assert november["bob"]["board_hours"] == pytest.approx(600 / 3600, rel=0.2)


def test_a_benchmark_waits_once(api: Api) -> None:
    benchmark_id = api.submit()
    begun(api, benchmark_id, wait_s=30.0)
    ended(api, benchmark_id, 1000.0, LOST)
    begun(api, benchmark_id)
    ended(api, benchmark_id, 10.0)
    row = report(api)["total"]
    assert (row["runs"], row["failures"], row["starts"]) == (2, 2, 1)
    assert row["mean_wait_s"] == row["max_wait_s"] == pytest.approx(30.0, abs=25.0)


def test_what_was_stopped_for_others_did_not_fail(api: Api) -> None:
    ran(api, failure=PREEMPTED)
    total = report(api)["total"]
    assert (total["runs"], total["failures"], total["preempted"]) == (1, 0, 1)


def test_what_the_cluster_ended_did_not_fail(api: Api) -> None:
    ran(api, failure=DRAINED)
    total = report(api)["total"]
    assert (total["runs"], total["failures"], total["interrupted"]) == (1, 0, 1)


def test_a_booked_start_is_not_waited_for(api: Api) -> None:
    """Its wait begins when it is due."""
    due = api.clock.now() + timedelta(minutes=10)
    booked = api.submit(start_time=due.isoformat())
    begun(api, booked, wait_s=605.0)
    ended(api, booked, 10.0)
    row = report(api)["total"]
    assert row["starts"] == 1
    assert row["max_wait_s"] == pytest.approx(5.0, abs=4.0)


def test_everybody_sees_what_they_used_and_operators_all(api: Api) -> None:
    ran(api, "alice")
    ran(api, "bob")
    assert list(rows(report(api))) == ["alice", "bob"]
    for by in ("user", "board", "family", "engine"):
        assert report(api, by, "alice")["total"]["runs"] == 1
        assert report(api, by, "viewer")["total"]["runs"] == 0
    assert list(rows(report(api, who="alice"))) == ["alice"]


@pytest.mark.parametrize(
    "month", ["2026-13", "2026-1", "26-10", "october", "2026-10-01", "9999-12"]
)
def test_what_is_no_month_is_refused(api: Api, month: str) -> None:
    answer = api.as_().get("/v1/usage", params={"month": month})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/month"


def test_a_month_without_runs_is_empty(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(api)
    found = report(api, month="2026-02")
    assert found["items"] == []
    assert (found["total"]["runs"], found["total"]["mean_wait_s"]) == (0, None)
    assert found["until"].startswith("2026-03-01")
    use(api, monkeypatch)
    quiet = run("report", "usage", "--month", "2026-02")
    assert (printed(quiet), quiet.stderr) == ("", "nothing was used in 2026-02\n")
    assert json.loads(printed(run("report", "usage", "--month", "2026-02", "--json"))) == []


def use(api: Api, monkeypatch: pytest.MonkeyPatch, who: str = "operator") -> None:
    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens[who])


def test_the_report_is_printed_as_table_csv_and_json(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for who, run_s in (("alice", 3600.0), ("bob", 1800.0)):
        ran(api, who, run_s)
    use(api, monkeypatch)
    month = month_of(api.clock.now())
    words = ("report", "usage", "--by", "user", "--month", month)
    lines = [line.split() for line in printed(run(*words)).splitlines()]
    assert [line[0] for line in lines] == ["USER", "alice", "bob", "total"]
    assert [line[6] for line in lines[1:]] == ["1.00", "0.50", "1.50"]
    table = list(csv.DictReader(io.StringIO(printed(run(*words, "-o", "csv")))))
    assert [round(float(row["board_hours"]), 2) for row in table] == [1.0, 0.5]
    read = json.loads(printed(run(*words, "--json")))
    assert [row["key"] for row in read] == ["alice", "bob"]
    with Client(api.url, api.tokens["operator"]) as client:
        assert [each.key for each in client.usage("engine", month).items] == ["ort"]


def test_a_clock_that_was_set_back_takes_nothing_away(api: Api) -> None:
    benchmark_id = api.submit()
    begun(api, benchmark_id)
    ended(api, benchmark_id, -86400.0 * 40)
    row = report(api)["total"]
    assert (row["runs"], row["board_hours"], row["credits"]) == (1, 0.0, 0.0)
    later = api.submit()
    api.clock.ahead -= timedelta(days=1)
    begun(api, later)
    ended(api, later, 3600.0)
    found = report(api)["total"]
    assert found["board_hours"] == pytest.approx(1.0, rel=0.1)
    assert found["max_wait_s"] == pytest.approx(0.0, abs=60.0)


def test_what_boards_were_kept_idle_for_counts_in_its_month(api: Api) -> None:
    kept = KeptIdle(
        keeper_id="lease-1", user_id="alice", family="rpi5", target_uid="rpi5-0001-0001"
    )
    for day, board_s in ((30, 1800.0), (31, 3600.0)):
        at = datetime(2031, 3, 1, tzinfo=UTC) + timedelta(days=day - 1)
        for moment in (at, at + timedelta(days=1)):
            with api.store.write() as uow:
                charging.charge_idle_times(uow, {kept: (at, board_s)}, moment, Tariff())
    march, april = report(api, month="2031-03"), report(api, month="2031-04")
    # two at 30 March and 31 March, then one at 31 March and one at 1 April
    assert march["total"]["idle_board_hours"] == pytest.approx(2.0)
    assert april["total"]["idle_board_hours"] == pytest.approx(1.0)
    assert rows(march)["alice"]["credits"] == pytest.approx(7200.0)
    assert rows(report(api, "family", month="2031-03"))["rpi5"]["idle_board_hours"] == 2.0
    assert rows(report(api, "engine", month="2031-03"))[None]["credits"] == pytest.approx(7200.0)
    account = api.as_().get("/v1/users/alice/account").json()
    assert [each["month"] for each in account["idle_times"]] == ["2031-04", "2031-03"]


def test_utilisation_and_availability_of_boards(api: Api) -> None:
    month = "2031-10"
    days = [
        BoardMonth(target_uid=BOARD, month=month, family="rpi4b", busy_s=900.0, idle_s=1800.0),
        BoardMonth(target_uid=BOARD, month=month, family="rpi4b", down_s=900.0),
        BoardMonth(target_uid="rpi4b-0001-0002", month=month, family="rpi4b", down_s=3600.0),
        BoardMonth(target_uid=BOARD, month="2031-11", family="rpi4b", busy_s=1.0),
    ]
    for each in days:
        with api.store.write() as uow:
            uow.accounting.add_board_months([each])
    of_boards = rows(report(api, "board", month=month))
    board, other = of_boards[BOARD], of_boards["rpi4b-0001-0002"]
    assert board["utilisation"] == pytest.approx(900 / 2700)
    assert board["availability"] == pytest.approx(2700 / 3600)
    assert board["known_board_hours"] == pytest.approx(1.0)
    assert (other["utilisation"], other["availability"]) == (None, 0.0)
    family = rows(report(api, "family", month=month))["rpi4b"]
    assert family["availability"] == pytest.approx(2700 / 7200)
    assert report(api, "user", month=month)["total"]["availability"] is None


def test_the_server_that_leads_stores_what_boards_did(api: Api) -> None:
    times = api.services.board_times
    times.sample()
    for _ in range(3):
        api.clock.ahead += timedelta(seconds=30)
        times.sample()
    of_boards = rows(report(api, "board"))
    assert of_boards[BOARD]["availability"] == 1.0
    assert of_boards[BOARD]["known_board_hours"] * 3600 >= 59


def test_energy_is_known_where_reports_state_it(api: Api) -> None:
    for stated in (
        {"results": {"energy": {"value": 12.5, "unit": "J"}}},
        {"results": {"energy": {"value": 3, "unit": "mAh"}}},
        {"energy": {"joules": 30.0, "scope": "board", "void": None}},
        {"energy": {"joules": 40.0, "scope": "processor", "void": None}},
        {"energy": {"joules": None, "scope": "board", "void": "ran backwards"}},
    ):
        benchmark_id = api.submit()
        begun(api, benchmark_id)
        answer = api.uploaded(benchmark_id, {"status": "ok", **stated})
        assert answer.status_code == 201, answer.text
        api.ended(benchmark_id)
    total = report(api)["total"]
    assert (total["runs"], total["failures"]) == (5, 0)
    assert (total["joules"], total["joules_runs"]) == (42.5, 2)


def test_what_was_used_outlives_benchmarks_that_are_deleted_by_age(api: Api) -> None:
    ran(api)
    month = month_of(api.clock.now())
    before = report(api, month=month)["items"]
    for days, left in ((200, before), (400, [])):
        api.clock.ahead += timedelta(days=days)
        old = api.clock.now() - timedelta(days=30)
        api.store.prune({RetentionClass.BENCHMARKS: old})
        with api.store.read() as uow:
            assert not uow.benchmarks.counts_by_status().get(Status.FAILED)
        assert report(api, month=month)["items"] == left


def test_use_counts_for_the_group_that_the_user_was_in(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(api, monkeypatch)
    for name in ("vision", "audio"):
        printed(run("groups", "add", name))
    printed(run("users", "update", "alice", "--group", "vision"))
    printed(run("users", "create", "carol", "--group", "vision"))
    ran(api, "alice", 600.0)
    assert "audio" in printed(run("users", "update", "alice", "--group", "audio"))
    ran(api, "alice", 300.0)
    printed(run("users", "update", "alice", "--group", ""))
    ran(api, "alice", 100.0)
    ran(api, "bob", 50.0)
    found = rows(report(api, "group"))
    seconds = {key: row["board_hours"] * 3600 for key, row in found.items()}
    assert seconds == pytest.approx({"audio": 300.0, "vision": 600.0, None: 150.0}, rel=0.2)
    accounts = api.as_("operator").get("/v1/users").json()["items"]
    groups = {each["user_id"]: each["group_id"] for each in accounts}
    assert (groups["alice"], groups["carol"]) == (None, "vision")
    records = api.as_("operator").get("/v1/events?type=user.changed").json()["items"]
    assert records[0]["before"] == {"group_id": "audio"}
    wrong = api.as_("operator").patch("/v1/users/alice", json={"group_id": "a group"})
    assert wrong.status_code == 422
