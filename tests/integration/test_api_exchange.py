"""A run that Nomad started exchanges its schedule's token for its task, and nobody else does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeyard.benchmark_api.sdk.submission import UploadedFile, with_uploads
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.recurring import RecurringStarts
from edgeyard.scheduler.hcl.build import UPLOAD_TOKEN, RenderSettings
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.model.benchmark import Status
from tests.builders.api import Api, running
from tests.builders.descriptions import description

OWN = "eyu_the-run-s-own"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path, clusters={"lab": {"address": "http://127.0.0.1:9"}}) as started:
        started.upload()
        yield started


class Starts:
    """The schedules of an API, their jobs in a fake Nomad, and the runs of these."""

    def __init__(self, api: Api) -> None:
        self._api = api
        settings = RenderSettings(public_url=api.url, driver="raw_exec", command="runner")
        self._starts = RecurringStarts(
            api.store, api.cluster, api.clock, settings, check_round_trip, max_run_s=60
        )
        self._launched = 0

    def turn(self) -> None:
        self._starts.turn(refresh=True)

    def scheduled(self, **changes: object) -> str:
        """The id of a new schedule's parent job."""
        body = description(cron="*/5 * * * *", cron_by="nomad", **changes)
        made = self._api.as_().post("/v1/benchmarks", json=body)
        assert made.status_code == 202, made.text
        self.turn()
        return f"benchmark-{made.json()['schedule_id']}-1"

    def launch(self, parent: str) -> tuple[str, str]:
        self._launched += 1
        at = self._api.clock.now() + timedelta(seconds=self._launched)
        return self._api.cluster.launch(parent, at)

    def token(self, parent: str) -> str:
        return self._api.cluster.secrets[parent][UPLOAD_TOKEN]


@pytest.fixture
def starts(api: Api) -> Starts:
    return Starts(api)


def exchange(
    api: Api, parent: str, token: str | None, allocation: str, own: str = OWN
) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return api.as_(None).post(
        f"/v1/runs/{parent.removeprefix('benchmark-')}/exchange",
        json={
            "allocation_id": allocation,
            "token_sha256": hashlib.sha256(own.encode()).hexdigest(),
        },
        headers=headers,
    )


def progress(api: Api, spec: dict[str, Any], token: str) -> int:
    path = httpx.URL(spec["progress_url"]).path
    headers = {"Authorization": f"Bearer {token}"}
    body = {"progress": 5, "phase": "measuring"}
    return api.as_(None).post(path, json=body, headers=headers).status_code


def upload(api: Api, spec: dict[str, Any], token: str) -> int:
    path = httpx.URL(spec["upload_url"]).path
    headers = {"Authorization": f"Bearer {token}"}
    return api.as_(None).put(f"{path}notes.txt", content=b"x", headers=headers).status_code


def test_a_run_gets_its_task_and_its_own_token_works(api: Api, starts: Starts) -> None:
    parent = starts.scheduled()
    run, allocation = starts.launch(parent)
    early = exchange(api, parent, starts.token(parent), allocation)
    assert early.status_code == 503  # no server has seen the run
    assert early.headers["Retry-After"] == "1"
    starts.turn()

    spec = exchange(api, parent, starts.token(parent), allocation).json()["spec"]
    assert spec["job_id"] == run
    assert spec["model"]["filename"] == "model.onnx"
    shown = api.as_().get(f"/v1/benchmarks/{spec['benchmark_id']}").json()
    assert shown["schedule_id"] == parent.removeprefix("benchmark-").removesuffix("-1")
    assert "cron_by" not in shown["description"]  # its schedule states it
    schedule = api.as_().get(f"/v1/schedules/{shown['schedule_id']}").json()
    assert schedule["cron_by"] == "nomad"
    assert progress(api, spec, OWN) == 204
    assert upload(api, spec, OWN) == 201


def test_the_board_of_a_run_is_explained_as_what_nomad_chooses(api: Api, starts: Starts) -> None:
    parent = starts.scheduled()
    _, allocation = starts.launch(parent)
    starts.turn()
    spec = exchange(api, parent, starts.token(parent), allocation).json()["spec"]
    answer = api.as_().get(f"/v1/benchmarks/{spec['benchmark_id']}/explanation")
    assert answer.status_code == 404
    assert "leaves its starts to Nomad (cron_by)" in answer.json()["detail"]
    assert "no cycle has considered it yet" not in answer.json()["detail"]


def test_a_schedules_token_is_valid_for_its_own_routes_only(api: Api, starts: Starts) -> None:
    parent = starts.scheduled()
    _, allocation = starts.launch(parent)
    starts.turn()
    token = starts.token(parent)
    spec = exchange(api, parent, token, allocation).json()["spec"]
    assert progress(api, spec, token) == 401
    assert upload(api, spec, token) == 401
    bearer = {"Authorization": f"Bearer {token}"}
    assert api.as_(None).get("/v1/benchmarks", headers=bearer).status_code == 401


def test_a_lost_answer_is_had_again_and_another_token_is_refused(api: Api, starts: Starts) -> None:
    parent = starts.scheduled()
    _, allocation = starts.launch(parent)
    starts.turn()
    token = starts.token(parent)
    first = exchange(api, parent, token, allocation)
    again = exchange(api, parent, token, allocation)
    assert (first.status_code, again.json()) == (200, first.json())
    assert exchange(api, parent, token, allocation, own="eyu_a-thief-s").status_code == 409
    assert upload(api, first.json()["spec"], "eyu_a-thief-s") == 401
    assert upload(api, first.json()["spec"], OWN) == 201


def test_only_an_allocation_that_runs_for_this_very_job_gets_a_task(
    api: Api, starts: Starts
) -> None:
    parent, other = starts.scheduled(), starts.scheduled()
    run, allocation = starts.launch(parent)
    _, foreign = starts.launch(other)
    starts.turn()
    token = starts.token(parent)
    unknown = "00000000-0000-0000-0000-000000000000"
    api.cluster.allocations["11111111-1111-1111-1111-111111111111"] = parent
    for refused in (foreign, unknown, "11111111-1111-1111-1111-111111111111"):
        assert exchange(api, parent, token, refused).status_code == 403
    api.cluster.end(run)
    assert exchange(api, parent, token, allocation).status_code == 403
    with api.store.read() as uow:
        assert all(each.upload_token_sha256 is None for each in uow.attempts.live())


@pytest.mark.parametrize("token", [None, "eys_guessed", "the other schedule's"])
def test_another_token_is_refused_as_one_of_a_job_that_is_not_there(
    api: Api, starts: Starts, token: str | None
) -> None:
    parent, other = starts.scheduled(), starts.scheduled()
    _, allocation = starts.launch(parent)
    starts.turn()
    if token == "the other schedule's":
        token = starts.token(other)
    refused = exchange(api, parent, token, allocation)
    absent = exchange(api, "benchmark-cron-0123456789abcdef-1", token, allocation)
    assert (refused.status_code, absent.status_code) == (401, 401)
    assert refused.json()["detail"] == absent.json()["detail"]


def test_a_cancelled_run_gets_no_task(api: Api, starts: Starts) -> None:
    parent = starts.scheduled()
    _, allocation = starts.launch(parent)
    starts.turn()
    with api.store.write() as uow:
        (attempt,) = uow.attempts.live()
        lifecycle.cancel(uow, attempt.benchmark_id, api.clock.now(), "alice")
        assert uow.benchmarks.get(attempt.benchmark_id).status is Status.CANCELLED
    assert exchange(api, parent, starts.token(parent), allocation).status_code == 409


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"allocation_id": 'a" or ID != "'}, "/allocation_id"),
        ({"allocation_id": ""}, "/allocation_id"),
        ({"token_sha256": "short"}, "/token_sha256"),
        ({"more": 1}, "/more"),
    ],
)
def test_an_invalid_request_is_refused(
    api: Api, starts: Starts, changes: dict[str, object], field: str
) -> None:
    parent = starts.scheduled()
    _, allocation = starts.launch(parent)
    body = {"allocation_id": allocation, "token_sha256": "a" * 64, **changes}
    refused = api.as_(None).post(
        f"/v1/runs/{parent.removeprefix('benchmark-')}/exchange",
        json=body,
        headers={"Authorization": f"Bearer {starts.token(parent)}"},
    )
    assert refused.status_code == 422
    assert field in {each["pointer"] for each in refused.json()["errors"]}


def test_the_files_of_a_schedule_s_runs_are_there_until_its_job_has_ended(
    api: Api, starts: Starts
) -> None:
    parent = starts.scheduled()
    paths = [httpx.URL(each.source).path for each in parse_job(api.cluster.texts[parent]).artifacts]
    assert [api.as_(None).get(path).status_code for path in paths] == [200, 200]
    schedule_id = parent.removeprefix("benchmark-").removesuffix("-1")
    assert api.as_().delete(f"/v1/schedules/{schedule_id}").status_code == 204
    starts.turn()
    starts.turn()
    assert [api.as_(None).get(path).status_code for path in paths] == [404, 404]
    assert api.cluster.stopped == [parent]


def test_a_file_that_was_uploaded_is_named_by_its_url_as_clients_do(
    api: Api, starts: Starts
) -> None:
    file = api.upload("own.onnx")
    sent = with_uploads(
        {"model": __file__, "runtime": "ort"},
        Path.cwd(),
        lambda _: UploadedFile(
            file_id=file["file_id"],
            name=file["name"],
            sha256=file["sha256"],
            size_bytes=file["size"],
            url=file["url"],
        ),
    )
    assert sent["model_url"] == file["url"]
    parent = starts.scheduled(**sent)
    _, allocation = starts.launch(parent)
    starts.turn()
    spec = exchange(api, parent, starts.token(parent), allocation).json()["spec"]
    assert spec["model"]["sha256"] == file["sha256"]


@pytest.mark.parametrize(
    ("changes", "field", "accepted"),
    [
        ({"cron": ...}, "/cron_by", "a cron"),
        ({"cron_by": "cron"}, "/cron_by", "nomad"),
        ({"cron": "0 3 last * *"}, "/cron", "three-letter names"),
        ({"cron": "0 3 L * *"}, "/cron", "three-letter names"),
        ({"cron": "0 3 13 * fri"}, "/cron", "one of the two"),
        ({"cron": "0 0 3 13 * fri *"}, "/cron", "one of the two"),
        ({"binding": "strict"}, "/binding", "target_uid"),
        ({"model": "https://models.example/net.onnx"}, "/model", "uploaded"),
        ({"model": ..., "model_url": "https://models.example/net.onnx"}, "/model_url", "uploaded"),
    ],
)
def test_what_nomad_can_t_start_is_refused(
    api: Api, changes: dict[str, object], field: str, accepted: str
) -> None:
    body = description(**({"cron": "0 3 * * *", "cron_by": "nomad"} | changes))
    refused = api.as_().post("/v1/benchmarks", json=body)
    assert refused.status_code == 422, refused.text
    errors = {each["pointer"]: each for each in refused.json()["errors"]}
    assert field in errors, refused.text
    assert accepted in str(errors[field]["accepted"])


def test_the_embedded_cluster_leaves_nothing_to_nomad(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        api.upload()
        body = description(cron="0 3 * * *", cron_by="nomad")
        refused = api.as_().post("/v1/benchmarks", json=body)
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["pointer"] == "/cron_by"
        assert "embedded" in error["reason"]
        made = api.as_().post("/v1/benchmarks", json={**body, "cron_by": "edgeyard"})
        shown = api.as_().get(f"/v1/schedules/{made.json()['schedule_id']}").json()
        assert shown["cron_by"] == "edgeyard"
