"""Groups of users: what their members share, and who is refused what."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest

from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.sdk.errors import ApiError
from edgeyard.scheduler.engine.entitlements import entitlements, group_entitlements
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from tests.builders.api import Api, running
from tests.builders.cli import printed, run
from tests.builders.descriptions import description
from tests.builders.pages import as_

BROKEN = Failure(category=FailureCategory.USER_MODEL, sentence="a bad model")


@pytest.fixture
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("groups")) as found:
        for who in ("alice", "bob"):
            found.upload(who=who)
        yield found


def grouped(api: Api, *users: str, name: str = "vision", **limits: Any) -> None:
    operator = api.as_("operator")
    made = operator.post("/v1/groups", json={"group_id": name, **limits})
    assert made.status_code == 201, made.text
    for user in users:
        answer = operator.patch(f"/v1/users/{user}", json={"group_id": name})
        assert answer.status_code == 200, answer.text


def shown(api: Api, name: str = "vision", who: str = "operator") -> dict[str, Any]:
    answer = api.as_(who).get(f"/v1/groups/{name}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ran(api: Api, who: str, run_s: float) -> str:
    benchmark_id = api.submit(who)
    api.started(benchmark_id)
    api.ended(benchmark_id, BROKEN, run_s=run_s)
    return benchmark_id


def refused(api: Api, who: str, **of: Any) -> dict[str, Any]:
    answer = api.as_(who).post("/v1/benchmarks", json=description(**of))
    assert answer.status_code == 429, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_members_share_the_places_in_the_queue(api: Api) -> None:
    grouped(api, "alice", "bob", max_live=3)
    for who in ("alice", "alice", "bob"):
        api.submit(who)
    for who in ("alice", "bob"):
        body = refused(api, who)
        assert body["limit"]["name"] == "max_live"
        assert body["limit"]["whose"] == "group vision"
        assert "max_live of group vision is 3" in body["detail"]
        assert "its members share it: " in body["detail"]
    dry = api.as_("bob").post("/v1/benchmarks?dry_run=1", json=description())
    assert dry.status_code == 429
    assert api.as_("operator").patch("/v1/users/bob", json={"group_id": None}).status_code == 200
    api.submit("bob")
    api.submit("alice")
    assert shown(api)["live"] == 3


def test_members_share_stored_bytes_and_files(api: Api) -> None:
    grouped(api, "alice", "bob")
    before = shown(api)
    assert before["files"] == 2
    limits = {"max_files": 3, "max_bytes": before["stored_bytes"] + 100}
    assert api.as_("operator").patch("/v1/groups/vision", json=limits).status_code == 200
    sent = api.as_("alice").post("/v1/files", files={"file": ("big.bin", b"x" * 200)})
    assert sent.status_code == 507
    assert sent.json()["limit"] == {
        **sent.json()["limit"],
        "name": "max_bytes",
        "value": limits["max_bytes"],
    }
    assert sent.json()["limit"]["whose"] == "group vision"
    small = api.as_("alice").post("/v1/files", files={"file": ("small.bin", b"x")})
    assert small.status_code == 201, small.text
    more = api.as_("bob").post("/v1/files", files={"file": ("more.bin", b"y")})
    assert (more.status_code, more.json()["limit"]["name"]) == (507, "max_files")


def test_members_share_boards_and_credits(api: Api) -> None:
    """The transaction that places checks both, whatever the policy's filters are."""
    grouped(api, "alice", "bob", max_running=1, credits=100)
    first, second = api.submit("alice", user_time=30), api.submit("bob", user_time=30)
    api.started(first)
    with api.store.read() as uow:
        charges, now = uow.credits.open_charges(), api.clock.now()
        known = group_entitlements(uow, charges, now)["vision"]
        assert entitlements(uow, charges, now)["bob"].group_id == "vision"
    assert (known.running, known.max_running, known.credits_left) == (1, 1, 70)
    with pytest.raises(ValueError, match="not enough values"):  # of the two, none is placed
        api.dispatched(second)
    api.ended(first, BROKEN, run_s=20.0)
    after = shown(api)
    assert (after["running"], after["reserved"]) == (0, 0)
    assert 100 - after["credits"] == pytest.approx(20.0, abs=2.0)
    api.started(second)
    assert shown(api)["reserved"] == 30


def test_what_the_group_could_never_run_is_refused_at_submission(api: Api) -> None:
    grouped(api, "alice", credits=50)
    answer = api.as_("alice").post("/v1/benchmarks", json=description(user_time=60))
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["reason"] == "a run of 60 s may cost 60 credits, and your group vision has 50"
    assert error["accepted"] == "at most 50 s, or more credits"
    api.submit("bob", user_time=60)
    api.as_("operator").patch("/v1/groups/vision", json={"max_running": 0})
    answer = api.as_("alice").post("/v1/benchmarks", json=description(user_time=1))
    assert "your group vision may have no benchmarks on boards" in answer.text


def test_use_counts_for_the_group_in_which_it_was_placed(api: Api) -> None:
    grouped(api, "alice", name="vision", credits=1000)
    grouped(api, name="audio", credits=1000)
    moving = api.submit("alice")
    api.started(moving)
    assert (
        api.as_("operator").patch("/v1/users/alice", json={"group_id": "audio"}).status_code == 200
    )
    api.ended(moving, BROKEN, run_s=100.0)
    ran(api, "alice", 40.0)
    used = {name: shown(api, name) for name in ("vision", "audio")}
    assert used["vision"]["usage_board_s"] == pytest.approx(100.0, abs=3.0)
    assert used["audio"]["usage_board_s"] == pytest.approx(40.0, abs=3.0)
    assert 1000 - used["vision"]["credits"] == pytest.approx(100.0, abs=3.0)
    api.clock.ahead += timedelta(days=7)
    assert shown(api, "vision")["usage_board_s"] == pytest.approx(50.0, abs=3.0)
    api.clock.ahead -= timedelta(days=30)  # it was set back
    assert shown(api, "vision")["usage_board_s"] == pytest.approx(100.0, abs=3.0)


def test_a_removed_group_leaves_its_members_and_its_past(api: Api) -> None:
    grouped(api, "alice", "bob", max_live=2)
    ran(api, "alice", 600.0)
    waiting, underway = api.submit("alice"), api.submit("bob")
    api.started(underway)
    refused(api, "alice")
    gone = api.as_("operator").delete("/v1/groups/vision", headers={"X-Edgeyard-Reason": "merged"})
    assert gone.status_code == 204
    assert api.as_("operator").get("/v1/groups/vision").status_code == 404
    users = api.as_("operator").get("/v1/users").json()["items"]
    assert {each["group_id"] for each in users} == {None}
    api.ended(underway, BROKEN, run_s=100.0)
    api.started(waiting)
    api.ended(waiting, BROKEN, run_s=10.0)
    ran(api, "alice", 50.0)
    report = api.as_("operator").get("/v1/usage", params={"by": "group"}).json()
    hours = {each["key"]: each["board_hours"] * 3600 for each in report["items"]}
    assert hours["vision"] == pytest.approx(700.0, rel=0.1)
    assert hours[None] == pytest.approx(60.0, rel=0.2)
    record = api.as_("operator").get("/v1/events?type=group.removed").json()["items"][0]
    assert record["before"]["group_id"] == "vision"
    assert record["data"]["members"] == ["alice", "bob"]


def test_all_reports_add_up_to_the_same_attempts(api: Api) -> None:
    """The stored attempts are added up, not the charges that the reports add up."""
    grouped(api, "alice", name="vision")
    grouped(api, name="audio")
    done = [ran(api, "alice", 300.0), ran(api, "bob", 120.0)]
    api.as_("operator").patch("/v1/users/alice", json={"group_id": "audio"})
    done.append(ran(api, "alice", 77.0))
    total = {"runs": 0, "failures": 0, "board_hours": 0.0}
    with api.store.read() as uow:
        for benchmark_id in done:
            for each in uow.attempts.of(benchmark_id):
                assert each.started_at is not None
                assert each.task_ended_at is not None
                total["runs"] += 1
                total["failures"] += each.failure is not None
                total["board_hours"] += (
                    each.task_ended_at - each.started_at
                ).total_seconds() / 3600
    for by in ("group", "user", "board", "family", "engine"):
        found = api.as_("operator").get("/v1/usage", params={"by": by}).json()
        for name, value in total.items():
            assert sum(each[name] for each in found["items"]) == pytest.approx(value)
            assert found["total"][name] == pytest.approx(value)


@pytest.mark.parametrize("name", ["", "a b", "../x", "<b>", "-x", "x" * 65, "a\nb", None, 7])
def test_what_is_no_name_is_refused(api: Api, name: object) -> None:
    answer = api.as_("operator").post("/v1/groups", json={"group_id": name})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/group_id"


def test_an_account_is_in_a_group_that_there_is(api: Api) -> None:
    grouped(api)
    for answer in (
        api.as_("operator").patch("/v1/users/alice", json={"group_id": "visoin"}),
        api.as_("operator").post("/v1/users", json={"user_id": "x", "group_id": "visoin"}),
    ):
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert (error["pointer"], error["accepted"]) == ("/group_id", "vision")
        assert "edgeyard groups add visoin" in error["reason"]
    assert api.as_("operator").post("/v1/groups", json={"group_id": "vision"}).status_code == 409
    assert api.as_("operator").delete("/v1/groups/visoin").status_code == 404


def test_groups_are_kept_by_commands(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens["operator"])
    printed(run("groups", "add", "vision", "--share", "2", "--quota", "max_live=4"))
    printed(run("users", "update", "alice", "--group", "vision"))
    changed = ("groups", "change", "vision", "--credits", "50", "--quota", "max_live=default")
    printed(run(*changed, "--max-running", "3", "--reason", "new budget"))
    found = json.loads(printed(run("groups", "show", "vision", "--json")))
    assert (found["share"], found["credits"], found["max_live"]) == (2, 50, None)
    assert found["members"] == ["alice"]
    assert "vision" in printed(run("groups", "list"))
    records = api.as_("operator").get("/v1/events?type=group.changed").json()["items"]
    assert records[0]["reason"] == "new budget"
    shown_acts = printed(run("events", "--limit", "20"))
    assert "vision credits: none -> 50" in shown_acts
    assert "alice group_id: none -> vision" in shown_acts
    assert records[0]["before"] == {"credits": None, "max_running": None, "max_live": 4}
    assert records[0]["after"] == {"credits": 50, "max_running": 3, "max_live": None}
    assert run("groups", "change", "vision").exit_code == 1
    assert run("groups", "change", "vision", "--credits", "lots").exit_code == 1
    with Client(api.url, api.tokens["alice"]) as client:
        assert [each.group_id for each in client.groups()] == ["vision"]
        with pytest.raises(ApiError):
            client.change_group("vision", share=3)
    with Client(api.url, api.tokens["bob"]) as client:
        assert client.groups() == []
    printed(run("groups", "remove", "vision"))
    assert json.loads(printed(run("groups", "list", "--json"))) == []


def test_members_at_once_do_not_pass_together_over_a_limit_of_their_group(api: Api) -> None:
    """Each of them has room as a user: what is checked is the sum over both."""
    grouped(api, "alice", "bob", max_live=3)
    together = threading.Barrier(8)

    def one(number: int) -> int:
        who = ("alice", "bob")[number % 2]
        headers = {"Authorization": f"Bearer {api.tokens[who]}"}
        with httpx.Client(
            base_url=api.url, headers=headers, timeout=60, trust_env=False, verify=False
        ) as client:
            together.wait(60)
            return client.post("/v1/benchmarks", json=description()).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(one, range(8)))
    assert answers == [202] * 3 + [429] * 5
    assert shown(api)["live"] == 3


def test_limits_state_those_of_the_group_with_what_all_members_have(api: Api) -> None:
    grouped(api, "alice", "bob", max_live=3)
    for who in ("alice", "bob"):
        api.submit(who)

    def of_group(who: str, **params: str) -> list[dict[str, Any]]:
        items = api.as_(who).get("/v1/limits", params=params).json()["items"]
        return [each for each in items if each["whose"] == "group vision"]

    (limit,) = of_group("alice")
    assert (limit["name"], limit["value"], limit["used"]) == ("max_live", 3, 2)
    assert (limit["source"], limit["setting"], limit["status"]) == ("group", "", 429)
    assert of_group("operator", user_id="bob") == [limit]
    assert of_group("operator") == []  # in no group
    server = ("--url", api.url, "--token", api.tokens["alice"])
    assert "group vision" in printed(run("limits", *server))


def test_an_account_is_shown_with_its_group(api: Api) -> None:
    grouped(api, "alice", "bob", credits=100, max_running=2)
    api.started(api.submit("bob", user_time=30))
    account = api.as_("alice").get("/v1/users/alice/account").json()
    assert account["group"] == shown(api, who="alice")
    assert (account["group"]["reserved"], account["reserved"]) == (30, 0)
    assert api.as_("operator").get("/v1/users/operator/account").json()["group"] is None
    text = printed(run("users", "account", "--url", api.url, "--token", api.tokens["alice"]))
    assert "vision" in text
    assert "credits of all members: 100, 30 reserved" in text
    assert "running of all members: 1 of at most 2" in text
    browser = as_(api)
    page = browser.get("/ui/usage").text
    words = " ".join(re.sub("<[^>]*>", "", page).split())
    assert "Group: vision" in words
    assert "has 1 of at most 2 benchmarks on boards, and 70 credits left" in words
    assert api.as_("operator").delete("/v1/groups/vision").status_code == 204
    assert "vision" not in browser.get("/ui/usage").text


def test_a_month_without_runs_has_groups_in_no_row(api: Api) -> None:
    grouped(api, "alice", credits=10)
    report = api.as_("operator").get("/v1/usage?by=group&month=2020-02").json()
    assert report["items"] == []
    assert (report["total"]["runs"], report["total"]["board_hours"]) == (0, 0)
    assert report["total"]["mean_wait_s"] is None
    server = ("--url", api.url, "--token", api.tokens["operator"])
    words = ("report", "usage", "--by", "group", "--month", "2020-02")
    assert json.loads(printed(run(*words, *server, "--json"))) == []
    assert run(*words, *server).exit_code == 0


def test_a_clock_that_jumped_forward_takes_no_more_than_was_reserved(api: Api) -> None:
    grouped(api, "alice", credits=1000)
    moving = api.submit("alice", user_time=30)
    api.started(moving)
    api.ended(moving, BROKEN, run_s=timedelta(days=400).total_seconds())
    after = shown(api)
    assert (after["credits"], after["reserved"]) == (970, 0)
    used = after["usage_board_s"]
    assert 0 < used <= timedelta(days=401).total_seconds()
    later = api.clock.now().strftime("%Y-%m")
    report = api.as_("operator").get(f"/v1/usage?by=group&month={later}").json()
    (row,) = [each for each in report["items"] if each["key"] == "vision"]
    assert (row["runs"], row["credits"]) == (1, 30)
    api.clock.ahead += timedelta(days=70)
    assert shown(api)["usage_board_s"] == pytest.approx(used / 1024, rel=0.01)
