"""What one user may take of the server: files, bytes, places in the queue, schedules, tokens."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest

from edgeyard.benchmark_api.settings import Settings
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.housekeeping import collect_garbage
from edgeyard.scheduler.engine.intake import fire_due
from edgeyard.scheduler.model.retention import RetentionClass
from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.builders.model_files import a_model_file

TOKEN = "upload-token-1"
KIB = 1024


@pytest.fixture(name="api")
def an_api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(
        tmp_path_factory.mktemp("quotas"),
        user_max_bytes=100 * KIB,
        user_max_files=10,
        user_max_pending=5,
        user_max_live=6,
        user_max_schedules=2,
        user_max_bookings=2,
        user_max_tokens=3,
        run_max_files=4,
        run_max_bytes=20 * KIB,
        max_pending_total=8,
        user_max_registrations=3,
        max_registrations_total=5,
    ) as found:
        found.upload(content=a_model_file(KIB, b"m"))
        yield found


def refused(answer: httpx.Response, status: int, limit: str, whose: str = "user alice") -> Any:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["limit"]["name"] == limit
    assert body["limit"]["whose"] == whose
    assert limit in body["detail"]
    if status == 429:
        assert int(answer.headers["Retry-After"]) >= 1
    return body


def send(api: Api, name: str, content: bytes, who: str = "alice") -> httpx.Response:
    return api.as_(who).post("/v1/files", files={"file": (name, content)})


def stored_bytes(api: Api, who: str = "alice") -> int:
    with api.store.read() as uow:
        return uow.usage.stored_bytes(who)


def on_disk(api: Api) -> int:
    return sum(path.stat().st_size for path in api.files._root.glob("??/??/*"))


def submit_all(api: Api, count: int, who: str = "alice") -> list[httpx.Response]:
    return [api.as_(who).post("/v1/benchmarks", json=description()) for _ in range(count)]


def finished(api: Api, benchmark_id: str) -> None:
    """As if its task had run, reported and ended."""
    attempt = api.dispatched(benchmark_id)
    answer = result(api, attempt.job_id, "report.json", b'{"status": "ok"}')
    assert answer.status_code == 201, answer.text
    api.ended(benchmark_id)


def result(api: Api, job_id: str, name: str, content: bytes) -> httpx.Response:
    job = job_id.removeprefix("benchmark-")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return api.as_(None).put(f"/upload/{job}/{name}", content=content, headers=headers)


def test_a_user_stores_no_more_than_their_bytes(api: Api) -> None:
    assert send(api, "a", os.urandom(60 * KIB)).status_code == 201
    reported = refused(send(api, "b", os.urandom(60 * KIB)), 507, "max_bytes")
    assert reported["code"] == "quota_exceeded"
    assert reported["limit"]["value"] == 100 * KIB
    assert "edgeyard files delete" in reported["detail"]
    assert on_disk(api) == stored_bytes(api) == 61 * KIB  # nothing is left of what was refused
    assert send(api, "b", os.urandom(60 * KIB), who="bob").status_code == 201
    assert send(api, "c", os.urandom(200 * KIB), who="operator").status_code == 201


def test_what_can_never_fit_is_not_written_to_disk(api: Api) -> None:
    refused(send(api, "a", os.urandom(300 * KIB)), 413, "max_bytes")
    assert not api.leftovers()


def test_deleting_frees_disk_and_quota_at_once(api: Api) -> None:
    before = on_disk(api)
    for _ in range(3):
        made = send(api, "big", os.urandom(90 * KIB)).json()
        assert api.as_().delete(f"/v1/files/{made['file_id']}").status_code == 204
        assert on_disk(api) == stored_bytes(api) == before


def test_content_counts_once_for_each_user_who_has_it(api: Api) -> None:
    content = os.urandom(40 * KIB)
    one = send(api, "one", content).json()
    two = send(api, "two", content).json()
    assert send(api, "two", content).json()["file_id"] == two["file_id"]  # renewed
    theirs = send(api, "three", content, who="bob").json()
    assert stored_bytes(api) == 41 * KIB
    assert stored_bytes(api, "bob") == 40 * KIB
    assert on_disk(api) == 41 * KIB
    api.as_().delete(f"/v1/files/{one['file_id']}")
    assert stored_bytes(api) == 41 * KIB
    api.as_().delete(f"/v1/files/{two['file_id']}")
    assert stored_bytes(api) == KIB
    assert on_disk(api) == 41 * KIB  # bob's
    api.as_("bob").delete(f"/v1/files/{theirs['file_id']}")
    assert on_disk(api) == KIB


def test_a_live_benchmark_keeps_its_content_and_an_ended_one_does_not(api: Api) -> None:
    made = send(api, "net.onnx", a_model_file(30 * KIB, os.urandom(64))).json()
    benchmark_id = api.submit(model="net.onnx")
    api.as_().delete(f"/v1/files/{made['file_id']}")
    assert stored_bytes(api) == 31 * KIB  # its benchmark has yet to run
    api.as_().post(f"/v1/benchmarks/{benchmark_id}/cancel")
    answer = api.as_().delete(f"/v1/benchmarks/{benchmark_id}/files")
    assert answer.status_code == 204, answer.text
    assert on_disk(api) == stored_bytes(api) == KIB

    made = send(api, "net.onnx", a_model_file(30 * KIB, os.urandom(64))).json()
    api.as_().post(f"/v1/benchmarks/{api.submit(model='net.onnx')}/cancel")
    api.as_().delete(f"/v1/files/{made['file_id']}")
    assert on_disk(api) == stored_bytes(api) == KIB


def test_files_of_a_live_benchmark_or_of_others_are_not_dropped(api: Api) -> None:
    benchmark_id = api.submit()
    assert api.as_().delete(f"/v1/benchmarks/{benchmark_id}/files").status_code == 409
    assert api.as_("bob").delete(f"/v1/benchmarks/{benchmark_id}/files").status_code == 404


def test_a_file_of_an_active_schedule_is_not_deleted(api: Api) -> None:
    made = send(api, "net.onnx", a_model_file(KIB, os.urandom(64))).json()
    planned = description(model="net.onnx", cron="0 3 * * *")
    schedule = api.as_().post("/v1/benchmarks", json=planned).json()["schedule_id"]
    answer = api.as_().delete(f"/v1/files/{made['file_id']}")
    assert answer.status_code == 409
    assert schedule in answer.text
    api.as_().delete(f"/v1/schedules/{schedule}")
    assert api.as_().delete(f"/v1/files/{made['file_id']}").status_code == 204


def test_results_count_and_can_be_deleted(api: Api) -> None:
    benchmark_id = api.submit()
    attempt = api.dispatched(benchmark_id)
    assert result(api, attempt.job_id, "raw.npy", os.urandom(10 * KIB)).status_code == 201
    assert stored_bytes(api) == 11 * KIB
    assert result(api, attempt.job_id, "raw.npy", os.urandom(5 * KIB)).status_code == 201
    assert stored_bytes(api) == 6 * KIB  # replaced
    assert result(api, attempt.job_id, "report.json", b'{"status": "ok"}').status_code == 201
    api.ended(benchmark_id)
    assert api.as_().delete(f"/v1/benchmarks/{benchmark_id}/files").status_code == 204
    assert stored_bytes(api) == KIB  # the model's own name is left
    shown = api.as_().get(f"/v1/benchmarks/{benchmark_id}/results").json()
    assert shown["reports"]


def test_a_run_uploads_no_more_files_and_bytes_than_it_may(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    whose = "each run of user alice"
    for number in range(3):
        answer = result(api, attempt.job_id, f"{number}.npy", os.urandom(5 * KIB))
        assert answer.status_code == 201
    refused(result(api, attempt.job_id, "x.npy", os.urandom(6 * KIB)), 413, "max_run_bytes", whose)
    assert result(api, attempt.job_id, "report.json", b'{"status": "ok"}').status_code == 201
    other = api.dispatched(api.submit())
    for number in range(4):
        assert result(api, other.job_id, f"{number}.npy", bytes([number])).status_code == 201
    refused(result(api, other.job_id, "4.npy", b"4"), 413, "max_run_files", whose)
    assert result(api, other.job_id, "report.json", b'{"status": "ok"}').status_code == 201


def test_a_run_keeps_its_numbers_where_there_is_no_room_for_its_files(api: Api) -> None:
    attempts = [api.dispatched(api.submit()) for _ in range(2)]
    send(api, "a", os.urandom(98 * KIB))
    assert result(api, attempts[0].job_id, "raw.npy", os.urandom(19 * KIB)).status_code == 201
    over = result(api, attempts[1].job_id, "raw.npy", os.urandom(19 * KIB))
    refused(over, 413, "max_bytes")
    report = result(api, attempts[1].job_id, "report.json", b'{"status": "ok"}')
    assert report.status_code == 201, report.text


def test_a_run_that_was_admitted_reports_although_its_user_is_full(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    send(api, "a", os.urandom(98 * KIB))
    assert result(api, attempt.job_id, "raw.npy", os.urandom(15 * KIB)).status_code == 201
    assert result(api, attempt.job_id, "report.json", b'{"status": "ok"}').status_code == 201
    assert stored_bytes(api) > 100 * KIB
    refused(submit_all(api, 1)[0], 507, "max_bytes")
    refused(send(api, "b", b"b"), 507, "max_bytes")


def test_a_user_has_no_more_files_than_they_may(api: Api) -> None:
    for number in range(9):
        assert send(api, f"{number}", bytes([number])).status_code == 201
    refused(send(api, "10", b"ten"), 507, "max_files")
    assert send(api, "8", bytes([8])).status_code == 201  # the same again is no other file


def test_a_user_has_no_more_pending_benchmarks_than_they_may(api: Api) -> None:
    many = {"matrix": {"target": ["rpi4b", "rpi5"]}, "description": description(target=...)}
    dry = {"dry_run": "true"}
    assert {answer.status_code for answer in submit_all(api, 4)} == {202}
    refused(api.as_().post("/v1/campaigns", json=many, params=dry), 429, "max_pending")
    assert api.as_().post("/v1/benchmarks", json=description(), params=dry).status_code == 200
    assert {answer.status_code for answer in submit_all(api, 1)} == {202}
    (answer,) = submit_all(api, 1)
    refused(answer, 429, "max_pending")
    refused(api.as_().post("/v1/benchmarks", json=description(), params=dry), 429, "max_pending")
    with api.store.read() as uow:
        assert uow.usage.pending("alice") == 5
    refused(api.as_().post("/v1/campaigns", json=many), 429, "max_pending")
    first = api.as_().get("/v1/benchmarks").json()["items"][0]["benchmark_id"]
    api.dispatched(first)  # waits no longer
    (answer,) = submit_all(api, 1)
    assert answer.status_code == 202
    api.dispatched(api.as_().get("/v1/benchmarks").json()["items"][0]["benchmark_id"])
    (answer,) = submit_all(api, 1)
    refused(answer, 429, "max_live")


def test_all_users_together_have_no_more_pending_than_the_server_bears(api: Api) -> None:
    api.upload(content=a_model_file(KIB, b"b"), who="bob")
    api.upload(content=a_model_file(KIB, b"o"), who="operator")
    submit_all(api, 5)
    assert [each.status_code for each in submit_all(api, 4, "bob")] == [202, 202, 202, 429]
    (answer,) = submit_all(api, 1, "bob")
    refused(answer, 429, "max_pending_total", "all users together")
    dry = {"dry_run": "true"}
    would = api.as_("bob").post("/v1/benchmarks", json=description(), params=dry)
    refused(would, 429, "max_pending_total", "all users together")
    would = api.as_("operator").post("/v1/benchmarks", json=description(), params=dry)
    assert would.status_code == 200
    assert {each.status_code for each in submit_all(api, 3, "operator")} == {202}


def test_schedules_and_tokens_are_bounded(api: Api) -> None:
    cron = description(cron="0 3 * * *")
    answers = [api.as_().post("/v1/benchmarks", json=cron) for _ in range(3)]
    assert [each.status_code for each in answers] == [202, 202, 507]
    refused(answers[-1], 507, "max_schedules")
    api.as_().delete(f"/v1/schedules/{answers[0].json()['schedule_id']}")
    assert api.as_().post("/v1/benchmarks", json=cron).status_code == 202
    made = [api.as_().post("/v1/tokens", json={}) for _ in range(3)]
    assert [each.status_code for each in made] == [201, 201, 507]
    refused(made[-1], 507, "max_tokens")
    api.as_().delete(f"/v1/tokens/{made[0].json()['token_id']}")
    assert api.as_().post("/v1/tokens", json={}).status_code == 201


def test_starts_that_are_still_to_come_are_bounded(api: Api) -> None:
    """Also those of a gang, of a matrix and of a dry run; without a start, or past it, none is."""
    client, dry = api.as_(), {"dry_run": "true"}

    def booked(**more: Any) -> dict[str, Any]:
        start = api.services.clock.now() + timedelta(minutes=9)
        return description(start_time=start.isoformat(), **more)

    with api.store.read() as uow:
        assert uow.usage.bookings("alice", api.services.clock.now()) == 0
    made = [client.post("/v1/benchmarks", json=booked()) for _ in range(3)]
    assert [each.status_code for each in made] == [202, 202, 507]
    body = refused(made[-1], 507, "max_bookings")
    assert "start_time" in body["detail"]
    assert "cancel" in body["detail"]
    refused(client.post("/v1/benchmarks", json=booked(), params=dry), 507, "max_bookings")
    matrix = {"matrix": {"target": ["rpi4b", "rpi5"]}, "description": booked(target=...)}
    refused(client.post("/v1/campaigns", json=matrix), 507, "max_bookings")
    assert client.post("/v1/benchmarks", json=description()).status_code == 202
    used = {each["name"]: each for each in client.get("/v1/limits").json()["items"]}
    assert (used["max_bookings"]["used"], used["max_bookings"]["value"]) == (2, 2)
    client.post(f"/v1/benchmarks/{made[0].json()['benchmark_id']}/cancel")
    refused(client.post("/v1/benchmarks", json=booked(count=2)), 507, "max_bookings")
    assert client.post("/v1/benchmarks", json=booked()).status_code == 202
    api.clock.ahead += timedelta(minutes=10)  # the starts have come
    assert client.post("/v1/benchmarks", json=booked()).status_code == 202


def test_an_account_has_quotas_of_its_own(api: Api) -> None:
    op = api.as_("operator")
    changed = op.patch("/v1/users/alice", json={"max_pending": 7, "max_live": 100})
    assert changed.json()["max_pending"] == 7
    assert {each.status_code for each in submit_all(api, 7)} == {202}
    reported = refused(submit_all(api, 1)[0], 429, "max_pending")
    assert reported["limit"]["value"] == 7
    assert op.patch("/v1/users/alice", json={"max_pending": None}).json()["max_pending"] is None
    assert refused(submit_all(api, 1)[0], 429, "max_pending")["limit"]["value"] == 5
    assert op.patch("/v1/users/alice", json={"max_pending": -1}).status_code == 422
    op.patch("/v1/users/operator", json={"max_files": 0})
    refused(send(api, "x", b"x", "operator"), 507, "max_files", "user operator")


def test_limits_are_shown_with_value_source_and_use(api: Api) -> None:
    submit_all(api, 2)
    api.as_("operator").patch("/v1/users/alice", json={"max_files": 77})
    body = api.as_().get("/v1/limits").json()
    limits = {each["name"]: each for each in body["items"]}
    assert (limits["max_pending"]["used"], limits["max_pending"]["value"]) == (2, 5)
    assert limits["max_pending"]["source"] == "setting"
    assert limits["max_pending"]["setting"] == "user_max_pending"
    assert (limits["max_files"]["value"], limits["max_files"]["source"]) == (77, "account")
    assert limits["max_bytes"]["used"] == KIB
    assert limits["max_pending_total"]["used"] == 2
    assert limits["result_limit_bytes"]["source"] == "default"
    assert api.as_().get("/v1/limits?user_id=bob").status_code == 404
    seen = api.as_("operator").get("/v1/limits?user_id=alice").json()
    assert seen["items"] == body["items"]
    own = {each["name"]: each for each in api.as_("operator").get("/v1/limits").json()["items"]}
    assert (own["max_bytes"]["value"], own["max_bytes"]["source"]) == (None, "role")
    (alice,) = [
        each
        for each in api.as_("operator").get("/v1/limits/users").json()["items"]
        if each["user_id"] == "alice"
    ]
    assert (alice["pending"], alice["max_pending"], alice["max_files"]) == (2, 5, 77)


def test_every_limit_of_the_settings_is_shown(api: Api) -> None:
    """A new setting that bounds something has to be listed, or named here."""
    shown = {each["setting"] for each in api.as_().get("/v1/limits").json()["items"]}
    bounds = {
        name
        for name in Settings.model_fields
        if any(part in name for part in ("limit", "max_", "per_minute", "per_user", "login_"))
        or name == "reserve_bytes"
    }
    assert bounds - shown <= {"twin_max_age_s"}


@pytest.mark.parametrize("kind", ["uploads", "submissions", "registrations"])
def test_concurrent_requests_do_not_pass_together_over_a_quota(api: Api, kind: str) -> None:
    together = threading.Barrier(12)
    api.upload(who="bob")

    def one(number: int) -> int:
        with httpx.Client(
            base_url=api.url,
            headers={"Authorization": f"Bearer {api.tokens['alice']}"},
            timeout=60,
            trust_env=False,
            verify=False,
        ) as client:
            together.wait(60)
            if kind == "uploads":
                files = {"file": (f"{number}", os.urandom(30 * KIB))}
                return client.post("/v1/files", files=files).status_code
            if kind == "registrations":
                return register(client, f"family{number}").status_code
            return client.post("/v1/benchmarks", json=description()).status_code

    with ThreadPoolExecutor(12) as pool:
        answers = sorted(pool.map(one, range(12)))
    if kind == "uploads":
        assert answers.count(201) <= 3  # with the model 91 of 100 KiB
        assert set(answers) <= {201, 413, 507}
        assert stored_bytes(api) <= 100 * KIB
        assert on_disk(api) == stored_bytes(api) + stored_bytes(api, "bob")
    elif kind == "registrations":
        assert answers == [201] * 3 + [507] * 9
    else:
        assert answers == [202] * 5 + [429] * 7


def test_users_register_no_more_than_each_and_all_together_may(api: Api) -> None:
    """The lists of families and engines need no token: they are bounded as a whole."""
    engine = {"name": "engine", "display_name": "x"}
    assert api.as_().post("/api/targets/engines", json=engine).status_code == 201
    parameter = {"key": "level", "display_name": "x", "type": "string"}
    assert api.as_().post("/api/targets/engine-parameters", json=parameter).status_code == 201
    board = {"hardware_type_id": "rpi4b", "engine_ids": ["ort"]}
    boards = [api.as_().post("/api/targets/hardware-instances", json=board) for _ in range(2)]
    assert boards[0].status_code == 201
    refused(boards[1], 507, "user_max_registrations")
    refused(register(api.as_(), "family"), 507, "user_max_registrations")
    assert [register(api.as_("bob"), f"ofbob{n}").status_code for n in range(2)] == [201, 201]
    whose = "all users together"
    refused(register(api.as_("bob"), "family"), 507, "max_registrations_total", whose)
    assert register(api.as_("operator"), "ofoperator").status_code == 201
    limits = api.as_().get("/v1/limits").json()["items"]
    used = {each["name"]: (each["used"], each["value"], each["whose"]) for each in limits}
    assert used["user_max_registrations"] == (3, 3, "user alice")
    assert used["max_registrations_total"] == (6, 5, whose)

    uid = boards[0].json()["inventory_id"]
    assert api.as_().delete(f"/api/targets/hardware-instances/{uid}").status_code == 200
    assert api.as_("operator").delete("/api/targets/hardware-types/ofoperator").is_success
    assert register(api.as_(), "family").status_code == 201


def register(client: httpx.Client, name: str) -> httpx.Response:
    return client.post("/api/targets/hardware-types", json={"name": name, "display_name": "x"})


def test_a_schedule_of_a_user_whose_queue_is_full_is_skipped(api: Api) -> None:
    cron = description(cron="* * * * *")
    assert api.as_().post("/v1/benchmarks", json=cron).status_code == 202
    submit_all(api, 5)
    api.clock.ahead = timedelta(minutes=2)
    settings = api.services.settings
    assert fire_due(api.store, api.clock, settings.quotas, settings.max_pending_total) == 0
    with api.store.read() as uow:
        events = uow.log.events(after=0, limit=999)
        assert uow.usage.pending("alice") == 5
    (skipped,) = [each for each in events if each.kind == "schedule.skipped"]
    assert "max_pending" in str(skipped.data["sentence"])


def test_retention_gives_the_quota_back(api: Api) -> None:
    benchmark_id = api.submit()
    finished(api, benchmark_id)
    assert stored_bytes(api) > KIB
    api.clock.ahead = timedelta(days=30)
    kept = {
        RetentionClass.RESULTS: 86400.0,
        RetentionClass.FILES: 86400.0,
        RetentionClass.BENCHMARKS: 86400.0,
    }
    collect_garbage(api.store, api.files, api.clock, kept)
    assert stored_bytes(api) == 0


def test_a_failed_upload_leaves_nothing_to_count(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    now = api.clock.now()
    with api.store.write() as uow:
        lifecycle.cancel(uow, attempt.benchmark_id, now, "alice")
    before = stored_bytes(api)
    assert result(api, attempt.job_id, "raw.npy", os.urandom(9 * KIB)).status_code == 401
    assert stored_bytes(api) == before
