"""What a server says of the leader, and what one that follows answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.bootstrap import ADMIN, ensure_admin, keys_of_webhooks
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError, NotFound
from edgeyard.scheduler.model.webhooks import Webhook
from edgeyard.scheduler.store import SqlStore
from tests.builders.api import NOON, Api, leader_view, running


def test_readiness_and_figures_show_who_leads(api: Api) -> None:
    answer = api.as_(None).get("/readyz?verbose").json()["checks"]["leader"]
    assert answer == {"status": "ok", "detail": "this server leads (epoch 3)"}
    assert "edgeyard_leader 1.0" in api.as_().get("/metrics").text
    api.engine.led = leader_view(leads=False)
    answer = api.as_(None).get("/readyz?verbose").json()["checks"]["leader"]["detail"]
    assert answer == "server-a at http://a.test leads (epoch 3); this server follows"
    text = api.as_().get("/metrics").text
    assert "edgeyard_leader 0.0" in text
    assert "edgeyard_leader_epoch 3.0" in text


@pytest.mark.parametrize(("ahead_s", "way"), [(601.2, "ahead of"), (-600.8, "behind")])
def test_readiness_and_figures_show_how_far_this_servers_clock_differs(
    api: Api, ahead_s: float, way: str
) -> None:
    assert "clock" not in api.as_(None).get("/readyz?verbose").json()["checks"]
    api.engine.led = leader_view(leads=False, clock_ahead_s=ahead_s)
    answer = api.as_(None).get("/readyz?verbose")
    assert answer.status_code == 200
    assert f"this server's clock is 601 s {way} the time" in answer.json()["checks"]["clock"]
    assert f"edgeyard_clock_ahead_seconds {ahead_s}" in api.as_().get("/metrics").text


def test_without_a_leader_a_server_is_ready_until_no_server_takes_over(api: Api) -> None:
    api.engine.led = leader_view(leads=False, silent_s=20.0)
    answer = api.as_(None).get("/readyz?verbose")
    assert answer.status_code == 200
    assert "no server leads" in answer.json()["checks"]["leader"]
    api.engine.led = leader_view(leads=False, silent_s=61.0)
    assert api.as_(None).get("/readyz").status_code == 503


def test_the_log_of_a_task_within_another_server_is_there(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(job_id: str, stream: str, offset: int) -> None:
        raise NotFound("log", job_id)

    api.upload()
    benchmark_id = api.submit()
    api.dispatched(benchmark_id)
    monkeypatch.setattr(api.cluster, "logs", gone)
    api.engine.led = leader_view(leads=False)
    answer = api.as_().get(f"/v1/benchmarks/{benchmark_id}/logs")
    assert answer.status_code == 409
    assert "http://a.test" in answer.json()["detail"]
    api.engine.led = leader_view()
    assert api.as_().get(f"/v1/benchmarks/{benchmark_id}/logs").status_code == 200


def test_a_server_of_role_engine_serves_no_api(tmp_path: Path) -> None:
    with running(tmp_path, role="engine") as api:
        assert api.as_(None).get("/livez").is_success
        assert api.as_(None).get("/readyz").is_success
        assert api.as_().get("/v1/benchmarks").status_code == 404


def test_a_server_of_role_engine_names_the_address_that_boards_upload_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="public_url"):
        Settings.load(data_dir=tmp_path, role="engine")
    assert Settings.load(data_dir=tmp_path, role="api").role == "api"


def test_servers_with_the_same_key_sign_webhooks_equally(tmp_path: Path) -> None:
    webhook = Webhook(user_id="ann", url="http://a.test", salt="s", created_at=NOON)

    def signed(name: str, **changes: Any) -> object:
        (tmp_path / name).mkdir(exist_ok=True)
        keys = keys_of_webhooks(Settings.load(data_dir=tmp_path / name, **changes))
        return keys.sign(webhook, b"{}", NOON)

    assert signed("a", webhook_key="k" * 32) == signed("b", webhook_key="k" * 32)
    assert signed("a") != signed("b")
    with pytest.raises(ConfigError, match="webhook_key"):
        Settings.load(data_dir=tmp_path, webhook_key="short")


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"database_url": "postgresql://edgeyard@db.test/edgeyard"}, True),
        (
            {"database_url": "postgresql://edgeyard@db.test/edgeyard", "webhook_key": "k" * 32},
            False,
        ),
        ({}, False),
    ],
)
def test_a_server_on_postgresql_warns_without_a_webhook_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], warned: bool
) -> None:
    with caplog.at_level("WARNING"):
        keys_of_webhooks(Settings.load(data_dir=tmp_path, **settings))
    assert ("webhook_key" in caplog.text) is warned


def test_of_servers_that_start_together_one_makes_the_admin(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()

    def another_is_quicker(step: str) -> None:
        if step == "admin:named":
            monkeypatch.undo()
            ensure_admin(store, second, NOON)

    monkeypatch.setattr("edgeyard.benchmark_api.bootstrap.failpoint", another_is_quicker)
    ensure_admin(store, first, NOON)
    assert [folder.name for folder in (first, second) if list(folder.iterdir())] == ["second"]
    with store.read() as uow:
        assert len(uow.accounts.tokens(ADMIN)) == 1
