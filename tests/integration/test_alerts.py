"""Alerts by HTTP, SDK, command line and pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.routes import alerts
from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.sdk.errors import StateConflict, ValidationFailed
from edgeyard.devices.model import BoardEngine
from edgeyard.scheduler.engine.series_watch import SeriesWatch
from edgeyard.scheduler.model.series import SeriesKey
from edgeyard.scheduler.model.series_changes import ChangeStatus, SeriesChange
from edgeyard.scheduler.model.subscriptions import (
    Channel,
    Subscription,
    Topic,
    alert_types,
    new_subscription_id,
)
from edgeyard.scheduler.model.users import Login
from tests.builders.api import BOARDS, Api, running
from tests.builders.cli import printed, refusal, run
from tests.builders.measured import Measured, store_measured
from tests.builders.model_files import a_model_file
from tests.builders.notifier import notifier_of
from tests.builders.pages import HOSTILE, Parts, as_
from tests.builders.records import an_outcome
from tests.builders.series import change, key
from tests.integration.test_confirmation import measured, nights, regression

pytestmark = pytest.mark.one_database("the repository of series has a contract suite")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("alerts")) as found:
        for name in ("old.onnx", "new.onnx"):
            found.upload(name, a_model_file(fill=name[:1].encode()))
        yield found


@pytest.fixture
def shell(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are alice's."""
    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens["alice"])


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with Client(api.url, token=api.tokens["alice"]) as found:
        yield found


def stored(api: Api, change_id: str, **fields: Any) -> SeriesChange:
    """A confirmed change of a series of alice's that is named like it."""
    known: dict[str, Any] = {
        "change_id": change_id,
        "key": key(lineage=change_id),
        "found_at": api.clock.now(),
    }
    made = replace(change(status=ChangeStatus.CONFIRMED), **(known | fields))
    with api.store.write() as uow:
        uow.series.mark_due([made.key], api.clock.now())
        uow.series.add_change(made)
    return made


def ids(api: Api, query: str = "", who: str = "alice") -> set[str]:
    items = api.as_(who).get(f"/v1/alerts?limit=100{query}").json()["items"]
    return {each["change_id"] for each in items}


def test_alerts_are_listed_by_status_series_and_board_to_whom_they_belong(api: Api) -> None:
    resolved_before = ids(api, "&status=resolved")  # by another test
    stored(api, "alert-a")
    stored(api, "alert-b", status=ChangeStatus.OPEN, key=key(lineage="b", target_uid="gone-1"))
    stored(api, "alert-c", status=ChangeStatus.RESOLVED)
    stored(api, "alert-noise", status=ChangeStatus.NOISE)
    stored(api, "alert-bob", key=key(lineage="bob's", user_id="bob"))
    assert {"alert-a", "alert-b", "alert-c"} <= ids(api)
    assert not {"alert-noise", "alert-bob"} & ids(api)
    assert {"alert-a", "alert-b"} <= ids(api, "&status=active")
    assert ids(api, "&status=resolved") - resolved_before == {"alert-c"}
    assert ids(api, "&series=b") == ids(api, "&target_uid=gone-1") == {"alert-b"}
    assert "alert-bob" in ids(api, who="operator")
    assert api.as_().get("/v1/alerts?status=odd").status_code == 422
    noise = api.as_().get("/v1/alerts/alert-noise").json()
    assert (noise["status"], noise["lineage"]) == ("noise", "alert-noise")


def test_an_alert_is_resolved_or_dismissed_with_a_reason_and_once(api: Api, client: Client) -> None:
    stored(api, "alert-1")
    with pytest.raises(ValidationFailed, match="reason"):
        client.dismiss_alert("alert-1")
    for body, header in (({"reason": "   "}, {}), (None, {"X-Edgeyard-Reason": "%20%20"})):
        refused = api.as_().post("/v1/alerts/alert-1/dismiss", json=body, headers=header)
        assert refused.json()["errors"][0]["pointer"] == "/reason", refused.text
    found = client.dismiss_alert("alert-1", "the new model does more")
    assert (found.status, found.by_user_id, found.note) == (
        "dismissed",
        "alice",
        "the new model does more",
    )
    assert client.dismiss_alert("alert-1", "again").note == "the new model does more"
    with pytest.raises(StateConflict, match="is dismissed: only alerts"):
        client.resolve_alert("alert-1")
    stored(api, "alert-2")
    assert client.resolve_alert("alert-2").status == "resolved"
    events = api.as_("operator").get("/v1/events?limit=100").json()["items"]
    acts = {each["kind"]: each for each in events if each["kind"].startswith("alert.")}
    assert acts["alert.dismissed"]["user_id"] == "alice"
    assert acts["alert.dismissed"]["data"]["change_id"] == "alert-1"
    sentence = acts["alert.dismissed"]["data"]["sentence"]
    assert sentence.endswith("(dismissed). alice: the new model does more")


def test_the_log_of_acts_names_the_alert_and_the_series(api: Api, shell: None) -> None:
    made = stored(api, "alert-acts", key=key(lineage="series-of-acts"))
    api.as_().post("/v1/alerts/alert-acts/dismiss", json={"reason": "a new fan"})
    series_id, lineage = made.key.series_id, made.key.lineage
    with api.store.write() as uow:
        series = replace(uow.series.watched(series_id), threshold=0.1)
        uow.series.save_watched(replace(series, threshold_at=api.clock.now()))
    run("series", "reset-threshold", series_id)
    lines = printed(run("events")).splitlines()
    (dismissed,) = [each for each in lines if "alert-acts" in each]
    assert dismissed.rstrip().endswith("a new fan")
    assert lineage in dismissed
    (changed,) = [each for each in lines if "series.changed" in each and series_id in each]
    assert lineage in changed
    assert "threshold: 0.1 -> 0" in changed
    assert "alert_unconfirmed" not in changed
    page = as_(api).get("/ui/events").text
    assert page.count(lineage) >= 2


def test_the_log_of_messages_names_the_alert(api: Api, client: Client, shell: None) -> None:
    stored(api, "alert-message")
    with api.store.write() as uow:
        subscription = Subscription(
            subscription_id=new_subscription_id(),
            user_id="alice",
            topic=Topic.USER,
            about="alice",
            channel=Channel.WEBHOOK,
            events=("alert.resolved",),
            created_at=api.clock.now(),
            since_seq=uow.log.last_seq(),
        )
        uow.subscriptions.add(subscription)
    client.resolve_alert("alert-message")
    notifier_of(api.store, api.clock).run()
    with api.store.write() as uow:
        uow.subscriptions.remove(subscription.subscription_id, "alice")
    (logged,) = api.as_().get("/v1/deliveries").json()["items"]
    assert (logged["about"], logged["benchmark_id"]) == ("alert-message", None)
    assert "alert-message" in printed(run("subscriptions", "messages"))
    assert 'href="/ui/alerts/alert-message"' in as_(api).get("/ui/subscriptions").text


def test_a_threshold_is_reset_and_unconfirmed_alerts_are_asked_for(
    api: Api, client: Client, shell: None
) -> None:
    made = stored(api, "alert-3")
    series_id = made.key.series_id
    with api.store.write() as uow:
        series = uow.series.watched(series_id)
        now = api.clock.now()
        uow.series.save_watched(replace(series, threshold=0.05, threshold_at=now))
    shown = api.as_().get(f"/v1/series/{series_id}").json()
    assert shown["threshold"] == pytest.approx(0.05, rel=0.01)
    run("series", "reset-threshold", series_id)
    run("series", "set", series_id, "--alert-unconfirmed")
    found = client.watched_series(series_id)
    assert (found.threshold, found.threshold_at, found.alert_unconfirmed) == (0.0, None, True)
    assert client.reset_threshold(series_id).threshold == 0.0
    assert not client.set_series(series_id, alert_unconfirmed=False).alert_unconfirmed
    assert "series-none" in refusal(run("series", "reset-threshold", "series-none"))


def test_commands_list_show_and_end_alerts(api: Api, shell: None) -> None:
    stored(
        api,
        "alert-4",
        cause="model",
        blame="the model: its version is slower",
        not_tested=("the firmware",),
        check_ids=("check-1",),
        confirmed_size=0.081,
        confirmed_low=0.07,
        confirmed_high=0.09,
    )
    listed = printed(run("alerts", "list", "--series", "alert-4"))
    assert "+8.1 % (+7.0 to +9.0)" in listed
    rows = json.loads(printed(run("alerts", "list", "--series", "alert-4", "--json")))
    assert [each["change_id"] for each in rows] == ["alert-4"]
    text = printed(run("alerts", "show", "alert-4"))
    for part in ("is worse since b-2", "the model: its version", "the firmware", "check-1"):
        assert part in text
    assert "--reason: is missing" in refusal(run("alerts", "dismiss", "alert-4"))
    ended = run("alerts", "dismiss", "alert-4", "--reason", "known")
    assert "alert-4 is dismissed" in ended.stderr
    assert "known" in printed(run("alerts", "show", "alert-4"))


def test_an_alert_is_shown_with_its_origin_and_both_levels(api: Api, shell: None) -> None:
    stated = {"git_commit": "0123abc", "link": "https://ci.example.org/7"}
    for night in range(12):
        api.clock.ahead += timedelta(days=1)
        model, level = ("old.onnx", 10.0) if night < 8 else ("new.onnx", 10.8)
        made = api.submit(model=model, series="levels", nb_inference=20, **stated)
        measured(api, made, level + 0.01 * (night % 2))
        SeriesWatch(api.store, api.clock).turn()
    (found,) = api.as_().get("/v1/series/points?series=levels").json()["changes"]
    one = api.as_().get(f"/v1/alerts/{found['change_id']}").json()
    assert (one["model"], one["git_commit"], one["link"]) == ("new.onnx", *stated.values())
    assert (one["before_value"], one["unit"]) == (pytest.approx(10.0, rel=0.01), "ms")
    assert one["after_value"] == pytest.approx(10.805)
    text = printed(run("alerts", "show", found["change_id"]))
    assert "level:      10 ms before, 10.8 ms after" in text
    assert "commit:     0123abc" in text
    assert "link:       https://ci.example.org/7" in text


def test_the_levels_of_an_alert_end_where_other_levels_begin(api: Api) -> None:
    levels = [8.0] * 4 + [10.0] * 4 + [10.8] * 3 + [10.0] * 8
    now = api.clock.now()
    of_them = [
        Measured(
            benchmark_id=f"back-{night}",
            series="back",
            user_id="alice",
            p50_ms=level,
            ended_at=now - timedelta(days=len(levels) - night),
        )
        for night, level in enumerate(levels)
    ]
    store_measured(api.store, of_them)
    with api.store.write() as uow:
        for each in of_them:
            outcome = an_outcome(each.benchmark_id, primary_value=each.p50_ms, primary_metric="p50")
            uow.attempts.add_outcome(outcome)
    series = SeriesKey.of(of_them[0].benchmark())
    assert series is not None
    alert = stored(api, "alert-8", key=series, begin_id="back-8", before_id="back-7")
    with api.store.write() as uow:
        for begin, status in ((4, ChangeStatus.RESOLVED), (11, ChangeStatus.MERGED)):
            name, first = f"other-{begin}", f"back-{begin}"
            uow.series.add_change(replace(alert, change_id=name, begin_id=first, status=status))
        noise = ChangeStatus.NOISE
        uow.series.add_change(
            replace(alert, change_id="alert-8-noise", begin_id="back-9", status=noise)
        )
    one = api.as_().get("/v1/alerts/alert-8").json()
    assert (one["before_value"], one["after_value"]) == (10.0, 10.8)
    page = as_(api).get("/ui/alerts/alert-8").text
    assert "median latency, 10 ms → 10.8 ms" in page


def test_the_page_of_noise_and_of_a_dismissed_alert_say_what_they_mean(api: Api) -> None:
    check = {"confirmed_size": 0.0048, "confirmed_low": -0.004, "confirmed_high": 0.012}
    stored(api, "alert-10", status=ChangeStatus.NOISE, reason="at most 4.30%", **check)
    page = as_(api).get("/ui/alerts/alert-10").text
    assert "suspected were +5.00 %, between +4.00 % and +6.00 %, worse" in page
    assert "</strong> worse" not in page
    stored(api, "alert-11", reason="the slowdown is more than 5.00%")
    form = {"seen_on": "/ui/alerts/alert-11", "reason": "the model does more"}
    as_(api).post("/ui/alerts/alert-11/dismiss", **form)
    page = as_(api).get("/ui/alerts/alert-11").text
    assert "</span> by alice: the model does more</p>" in page
    assert "<dt>Confirmation</dt><dd>the slowdown is more than 5.00%</dd>" in page


@pytest.mark.parametrize("page", ["/ui/history?series=levels&", "/ui/benchmarks?"])
def test_lists_are_filtered_by_types_that_engines_declare(
    api: Api, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = BoardEngine(name="memory", supported_types=frozenset({"TYPE10", "TYPE9"}))
    board = replace(BOARDS[0], target_uid="rpi4b-0009-0001", engines=(engine,))
    monkeypatch.setattr(api.engine, "unknown", [board])
    shown = as_(api).get(page)
    types = re.findall(r'<option value="(TYPE\d+|GENAI)"', shown.text)
    assert types == ["TYPE1", "TYPE2", "TYPE3", "GENAI", "TYPE9", "TYPE10"]
    assert as_(api).get(f"{page}type=TYPE44").status_code == 200
    assert as_(api).get(f"{page}type=TYPE100").status_code == 422


def test_much_noise_hides_no_alert_that_is_active(api: Api) -> None:
    point = Measured(benchmark_id="noisy", series="noisy", user_id="alice")
    store_measured(api.store, [point])
    of_it = SeriesKey.of(point.benchmark())
    assert of_it is not None
    alert = stored(api, "alert-old", key=of_it)
    with api.store.write() as uow:
        for number in range(510):
            found_at = alert.found_at + timedelta(seconds=1 + number)
            uow.series.add_change(
                replace(
                    alert,
                    change_id=f"noise-{number}",
                    found_at=found_at,
                    status=ChangeStatus.NOISE,
                )
            )
    (listed,) = api.as_().get("/v1/series?series=noisy").json()["items"]
    assert listed["alert_id"] == "alert-old"
    shown = api.as_().get("/v1/series/points?series=noisy").json()["changes"]
    assert len(shown) == 200
    assert [each["change_id"] for each in shown][:: len(shown) - 1] == ["noise-509", "alert-old"]


def test_a_series_shows_what_became_of_its_changes(api: Api, shell: None) -> None:
    regression(api)
    found = api.as_().get("/v1/series/points?series=detector").json()
    (suspected,) = found["changes"]
    assert suspected["status"] == "suspected"
    assert found["watched"][0]["series_id"] == suspected["series_id"]
    (listed,) = api.as_().get("/v1/series?series=detector").json()["items"]
    assert (listed["threshold"], listed["alert_id"]) == (0.0, None)
    assert suspected["change_id"] in printed(run("series", "show", "detector"))
    shown = json.loads(printed(run("series", "show", "detector", "--json")))
    assert shown["changes"] == [suspected]
    assert len(shown["items"]) == 12
    assert [each["series_id"] for each in shown["watched"]] == [suspected["series_id"]]
    history = as_(api).get("/ui/history?series=detector").text
    assert '<input type="hidden" name="about" value="detector">' in history
    page = as_(api).get(f"/ui/alerts/{suspected['change_id']}").text
    parts = Parts()
    parts.feed(page)
    assert not parts.wrong
    assert "<svg" in page
    nights(api, "new.onnx", 1, 10.8)


def test_alerts_of_a_series_are_subscribed_to_with_its_submission_or_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(a_model_file())
    words = ["submit", "-m", str(model), "-r", "ort", "-t", "TYPE1", "--target", "rpi4b"]
    with running(tmp_path, smtp_host="127.0.0.1", smtp_from="lab@example.org") as api:
        monkeypatch.setenv("EDGEYARD_URL", api.url)
        monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens["alice"])
        refused = run(*words, "--series", "nightly", "--alerts", "mail")
        assert "--alerts: your account has no e-mail address" in refusal(refused)
        assert not refused.stdout.strip()
        assert api.as_().get("/v1/benchmarks").json()["items"] == []
        with api.store.write() as uow:
            mail = "alice@example.org"
            now = api.clock.now()
            uow.accounts.put_login(
                Login(user_id="alice", email=mail, password_hash="x", changed_at=now)
            )
        first, again = (run(*words, "--series", "nightly", "--alerts", "mail") for _ in range(2))
        assert "alerts of nightly are sent to you by mail" in first.stderr
        assert again.exit_code == 0
        run(*words, "--alerts", "mail")
        run(*words, "--name", "weekly", "--cron", "0 2 * * 0", "--alerts", "mail")
        form = {"topic": "series", "about": "net.onnx", "only": "alerts", "channel": "mail"}
        subscription = api.as_().get("/v1/subscriptions").json()["items"][1]["subscription_id"]
        api.as_().delete(f"/v1/subscriptions/{subscription}")
        page = as_(api)
        answer = page.post("/ui/subscriptions", seen_on="/ui/subscriptions", **form)
        assert answer.status_code == 303
        found = api.as_().get("/v1/subscriptions").json()["items"]
    assert [each["about"] for each in found] == ["nightly", "weekly", "net.onnx"]
    assert all(each["events"] == list(alert_types()) for each in found)


def listed(api: Api) -> list[Any]:
    """Benchmarks, newest first."""
    return list(api.as_().get("/v1/benchmarks").json()["items"])


def test_nothing_is_submitted_where_its_alerts_can_not_be_sent(
    api: Api, shell: None, tmp_path: Path
) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(a_model_file())
    words = ["submit", "-m", str(model), "-r", "ort", "-t", "TYPE1", "--target", "rpi4b"]
    benchmark_id = api.submit(model="old.onnx")
    clone = ["submit", "--clone", benchmark_id, "--parameter", "threads=1"]
    before = [each["benchmark_id"] for each in listed(api)]
    for each in (words, [*words, "--wait"], clone):
        refused = run(*each, "--alerts", "mail")
        assert refused.exit_code == 1, refused.output
        assert "--alerts: this server sends no mail" in refusal(refused)
    assert [each["benchmark_id"] for each in listed(api)] == before
    files = [each["name"] for each in api.as_().get("/v1/files").json()["items"]]
    assert "net.onnx" not in files
    assert api.as_().get("/v1/subscriptions").json()["items"] == []


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--link", "example.org/7", "--link: is not a URL (accepted: http(s)://HOST/PATH"),
        ("--link", "https://example.org/a b", "--link: is not a URL"),
        ("--link", "https://example.org/" + "x" * 3000, "--link: is too long (accepted: at most"),
        ("--git-commit", "main branch", "--git-commit: is not a commit (accepted: its hash"),
        ("--git-commit", "a" * 65, "--git-commit: is too long (accepted: at most 64)"),
        ("--series", "s" * 200, "--series: is too long (accepted: at most 128)"),
    ],
)
def test_a_flag_about_a_series_is_named_with_what_is_accepted(
    api: Api, shell: None, flag: str, value: str, expected: str
) -> None:
    words = ("submit", "-m", "old.onnx", "-r", "ort", "-t", "TYPE1", "--target", "rpi4b")
    assert expected in refusal(run(*words, flag, value))


def test_the_link_of_a_ci_may_be_long(api: Api, shell: None) -> None:
    link = "https://ci.example.org/" + "x" * 1000
    words = ("submit", "-m", "old.onnx", "-r", "ort", "-t", "TYPE1", "--target", "rpi4b")
    assert run(*words, "--link", link).exit_code == 0


def test_a_schedule_that_is_a_clone_has_the_series_of_the_name_that_it_keeps(
    api: Api, shell: None
) -> None:
    hook = {"url": "https://example.org/hook"}
    assert api.as_().put("/v1/users/alice/webhook", json=hook).is_success
    benchmark_id = api.submit(model="old.onnx", name="every-night")
    cron = ("--cron", "0 2 * * *", "--alerts", "webhook")
    shown = run("submit", "--clone", benchmark_id, *cron)
    assert shown.exit_code == 0, shown.output
    topics = {each["about"] for each in api.as_().get("/v1/subscriptions").json()["items"]}
    assert "every-night" in topics


def test_pages_list_and_end_alerts_and_hide_nothing_in_names(api: Api) -> None:
    stored(api, "alert-5", key=key(lineage=f"net {HOSTILE}"))
    browser = as_(api)
    listed = browser.get("/ui/alerts").text
    parts = Parts()
    parts.feed(listed)
    assert not parts.wrong
    assert 'href="/ui/alerts/alert-5"' in listed
    assert HOSTILE not in listed
    assert "is none of" in browser.get("/ui/alerts?status=odd").text
    assert as_(api, "bob").get("/ui/alerts/alert-5").status_code == 404
    shown = browser.get("/ui/alerts/alert-5").text
    parts = Parts()
    parts.feed(shown)
    assert not parts.wrong
    assert HOSTILE not in shown
    assert "no longer stored" in shown
    assert "the level of a series changed" in browser.get("/ui").text
    assert "the level of a series changed" not in as_(api, "viewer").get("/ui").text
    answer = browser.post("/ui/alerts/alert-5/resolve", "/ui/alerts/alert-5", reason="fixed")
    assert answer.status_code == 303
    assert "The alert is resolved" in browser.get(answer.headers["location"]).text
    assert "fixed" in browser.get("/ui/alerts/alert-5").text


def test_the_page_of_an_alert_has_values_commits_and_what_became_of_it(api: Api) -> None:
    now = api.clock.now()
    nightly = [
        Measured(
            benchmark_id=f"built-{night}",
            series="built",
            p50_ms=10.0 if night < 8 else 10.8,
            ended_at=now - timedelta(days=20 - night),
            git_commit=f"{night:02}bcdef0123456789",
            link=f"https://ci.example.org/{night}",
        )
        for night in range(12)
    ]
    store_measured(api.store, nightly)
    of_them = SeriesKey.of(nightly[0].benchmark())
    assert of_them is not None
    with api.store.write() as uow:
        found = change(
            change_id="alert-built",
            key=of_them,
            before_id="built-7",
            begin_id="built-8",
            found_at=now - timedelta(days=9),
            status=ChangeStatus.CONFIRMED,
            confirmed_size=0.08,
            confirmed_low=0.07,
            confirmed_high=0.09,
        )
        uow.series.add_change(found)
    page = as_(api).get("/ui/alerts/alert-built").text
    assert "median latency, 10 ms → 10.8 ms" in page
    for night in (7, 8):
        link = f'href="https://ci.example.org/{night}" rel="noreferrer">0{night}bcdef012</a>'
        assert link in page
    assert 'class="edgeyard-large"' in page
    assert "+8.0 % (+7.0 to +9.0) confirmed" in page
    assert "suspected</" not in page
    history = as_(api).get("/ui/history?series=built").text
    assert 'href="/ui/alerts/alert-built">+8.0 % (+7.0 to +9.0), worse</a>' in history
    assert "+8.0 % (+7.0 to +9.0) confirmed" in history


def test_an_alert_with_many_later_results_keeps_its_levels(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "_POINTS", 12)
    for night in range(24):
        api.clock.ahead += timedelta(days=1)
        model, level = ("old.onnx", 10.0) if night < 8 else ("new.onnx", 10.8)
        made = api.submit(model=model, series="long-ago", nb_inference=20)
        measured(api, made, level + 0.01 * (night % 2))
        if night < 12:
            SeriesWatch(api.store, api.clock).turn()
    (found,) = api.as_().get("/v1/series/points?series=long-ago").json()["changes"]
    one = api.as_().get(f"/v1/alerts/{found['change_id']}").json()
    assert one["before_value"] == pytest.approx(10.0, rel=0.01)
    assert one["after_value"] == pytest.approx(10.8, rel=0.01)
    page = as_(api).get(f"/ui/alerts/{found['change_id']}").text
    assert 'class="edgeyard-large"' in page
