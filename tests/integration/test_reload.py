"""SIGHUP: a running server takes up what changed in its settings, and says what it can't."""

from __future__ import annotations

import logging

import pytest

from edgeyard.benchmark_api.cluster_settings import ClusterSettings
from edgeyard.benchmark_api.reloading import Reloader
from edgeyard.benchmark_api.settings import Settings
from edgeyard.devices.inventory import Inventory
from edgeyard.errors import ConfigError
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.twin.twin import BoardState, Twin
from tests.builders.api import BOARDS, Api
from tests.fakes.cluster import board


def reloads(api: Api) -> list[Event]:
    with api.store.read() as uow:
        found = uow.log.events(after=0, limit=1000)
    return [event for event in found if event.kind.startswith("server.reload")]


def test_what_may_change_is_taken_up_and_the_rest_is_named(api: Api) -> None:
    applied: list[tuple[int, int]] = []

    def apply(settings: Settings, inventory: Inventory) -> set[str]:
        applied.append((settings.campaign_limit, len(inventory.boards)))
        return {"policy"}

    services = api.services
    more = Inventory((*services.inventory.boards, board("rpi5-0009-0009")))
    nomad = {"lab": ClusterSettings(address="http://127.0.0.1:9", timeout_s=5)}
    services.settings = services.settings.model_copy(update={"clusters": nomad})
    reloader = Reloader(
        services,
        lambda settings: more,
        apply,
    )
    now = {"lab": ClusterSettings(address="http://127.0.0.1:9", memory_mib=512, timeout_s=7)}
    changed = {"campaign_limit": 2, "port": 1, "clusters": now}
    wanted = services.settings.model_copy(update=changed)
    result = reloader.reload(lambda: wanted)
    assert result.changed == ("campaign_limit", "clusters.lab.timeout_s", "inventory", "policy")
    assert result.restart_needed == ("clusters.lab.memory_mib", "port")
    cluster = services.settings.cluster
    assert (cluster.timeout_s, cluster.memory_mib) == (7, None)
    assert (services.settings.campaign_limit, services.settings.port) != (2, 1)
    assert services.settings.campaign_limit == 2
    assert applied == [(2, len(more.boards))]
    body = api.as_().get("/v1/inventory").json()
    assert "rpi5-0009-0009" in {each["target_uid"] for each in body["boards"]}
    (event,) = reloads(api)
    assert event.kind == "server.reloaded"
    assert event.data["restart_needed"] == ["clusters.lab.memory_mib", "port"]


@pytest.mark.parametrize("broken", ["settings", "inventory"])
def test_a_broken_file_keeps_all_old_values_and_says_why(
    api: Api, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    services = api.services
    before, boards = services.settings, services.inventory
    wanted = before.model_copy(update={"campaign_limit": 2})
    problem = ConfigError([f"{broken}.toml: line 3 is wrong"])

    def load() -> Settings:
        if broken == "settings":
            raise problem
        return wanted

    def inventory(settings: Settings) -> Inventory:
        raise problem

    def never(settings: Settings, inventory: Inventory) -> set[str]:
        raise AssertionError("nothing is to be applied")

    with caplog.at_level(logging.ERROR):
        result = Reloader(services, inventory, never).reload(load)
    assert result.problems == (f"{broken}.toml: line 3 is wrong",)
    assert services.settings is before
    assert services.inventory is boards
    (event,) = reloads(api)
    assert (event.kind, event.data["problems"]) == ("server.reload_failed", [*result.problems])
    assert any("stay as they were" in record.getMessage() for record in caplog.records)


def test_the_twin_takes_another_inventory() -> None:
    one, other = BOARDS[0], board("rpi5-0009-0009")
    twin = Twin([one])
    twin.set_inventory([other])
    (view,) = twin.views(drained={}, holders={})
    assert (view.board.target_uid, view.state) == ("rpi5-0009-0009", BoardState.OFFLINE)
