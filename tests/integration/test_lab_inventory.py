"""Boards that are added and removed while the server runs, by its file, by API and by CLI."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import light
from edgeyard import Client
from edgeyard.benchmark_api.lab_inventory import LabInventory
from edgeyard.benchmark_api.reloading import Reloader
from edgeyard.benchmark_api.sdk import NotFoundError
from edgeyard.benchmark_api.settings import Settings
from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.model import Host
from edgeyard.scheduler.clusters.nomad.nodes import hosts_of
from edgeyard.scheduler.twin.twin import BoardState, Twin
from tests.acceptance.lives import a_life
from tests.builders.api import Api
from tests.integration.test_reload_live import until

ENGINES = {"ort": {"supported_types": ["TYPE1", "TYPE2"]}}
MEMORY = {"ram": "4 GiB", "storage": "32 GiB"}


def entry(uid: str, **changes: object) -> dict[str, object]:
    return {"target_uid": uid, "memory": MEMORY, "engines": ENGINES, **changes}


def known(api: Api) -> set[str]:
    return {each["target_uid"] for each in api.as_().get("/v1/inventory").json()["boards"]}


def test_a_board_of_a_new_family_is_added_and_removed(api: Api) -> None:
    operator = api.as_("operator")
    added = operator.post("/v1/inventory/boards", json=entry("newfamily-0001-0001"))
    assert added.status_code == 201
    assert added.json()["family"] == "newfamily"
    assert "newfamily-0001-0001" in known(api)
    assert "newfamily" in api.as_().get("/v1/inventory").json()["families"]
    again = operator.post("/v1/inventory/boards", json=entry("newfamily-0001-0001"))
    assert again.status_code == 409
    assert operator.delete("/v1/inventory/boards/newfamily-0001-0001").status_code == 204
    assert operator.delete("/v1/inventory/boards/newfamily-0001-0001").status_code == 404
    assert "newfamily-0001-0001" not in known(api)


def test_the_client_adds_and_removes_a_board(api: Api) -> None:
    with Client(api.url, api.tokens["operator"]) as client:
        added = client.add_board(entry("newfamily-0001-0001"))
        assert (added.target_uid, added.family) == ("newfamily-0001-0001", "newfamily")
        assert "newfamily-0001-0001" in known(api)
        client.remove_board("newfamily-0001-0001")
        assert "newfamily-0001-0001" not in known(api)
        with pytest.raises(NotFoundError):
            client.remove_board("../boards/newfamily-0001-0001")


def test_a_board_of_the_file_is_removed_and_comes_back_when_it_is_added(api: Api) -> None:
    operator = api.as_("operator")
    uid = min(known(api))
    assert operator.delete(f"/v1/inventory/boards/{uid}").status_code == 204
    assert uid not in known(api)
    assert operator.post("/v1/inventory/boards", json=entry(uid)).status_code == 201
    assert uid in known(api)


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"target_uid": "rpi5"}, "/target_uid"),
        ({"memory": {"ram": "lots", "storage": 1}}, "/memory/ram"),
        ({"colour": "red"}, "/colour"),
        ({"attributes": {"memory.ram": 1}}, "/attributes/memory/ram"),
        ({"local": {"cpus": [0]}}, "/local"),
    ],
)
def test_a_wrong_entry_names_its_field_and_adds_nothing(
    api: Api, wrong: Mapping[str, Any], pointer: str
) -> None:
    before = known(api)
    answer = api.as_("operator").post(
        "/v1/inventory/boards", json={**entry("rpi5-0088-0001"), **wrong}
    )
    assert answer.status_code == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    assert known(api) == before


def test_a_broken_file_keeps_the_old_boards_says_why_once_and_is_used_when_mended(
    api: Api, tmp_path: Path
) -> None:
    path = tmp_path / "target.json"
    path.write_text(json.dumps({"rpi5": [entry("rpi5-0001-0001")]}))
    services = api.services
    services.settings = services.settings.model_copy(update={"inventory": path})

    def file(settings: Settings) -> Inventory:
        return Inventory.from_file(path)

    lab = LabInventory(api.store, services.clock, file)
    reloader = Reloader(services, lab.load, lambda settings, inventory: ())
    assert reloader.reload_inventory().changed == ("inventory",)
    assert known(api) == {"rpi5-0001-0001"}
    state = lab.state(services.settings)

    path.write_text('{"rpi5": [')
    os.utime(path, ns=(1, 1))
    assert lab.state(services.settings) != state
    for _ in range(2):
        assert "not JSON" in reloader.reload_inventory().problems[0]
    shown = api.as_().get("/v1/inventory").json()
    assert [each["target_uid"] for each in shown["boards"]] == ["rpi5-0001-0001"]
    assert "not JSON" in shown["problem"]

    path.write_text(json.dumps({"rpi5": [entry("rpi5-0001-0001"), entry("rpi5-0001-0002")]}))
    assert reloader.reload_inventory().changed == ("inventory",)
    assert known(api) == {"rpi5-0001-0001", "rpi5-0001-0002"}
    assert api.as_().get("/v1/inventory").json()["problem"] == ""
    with api.store.read() as uow:
        events = [
            (each.kind, each.data.get("added"))
            for each in uow.log.events(after=0, limit=1000)
            if each.kind.startswith("inventory.")
        ]
    assert [kind for kind, _ in events] == [
        "inventory.reloaded",
        "inventory.reload_failed",
        "inventory.reloaded",
    ]
    assert events[-1][1] == ["rpi5-0001-0002"]


def test_the_sample_has_the_platform_s_three_families() -> None:
    sample = Path(__file__).parents[2] / "docs" / "examples" / "target.json"
    inventory = Inventory.from_file(sample)
    assert inventory.families() == ("jetsonorinnano", "rpi4b", "rpi5")
    board = inventory.of_family("rpi5")[0]
    assert attributes_of(board)["soc.vendor"] == "broadcom"
    assert Inventory.from_json(inventory.to_json()).boards == inventory.boards


def test_a_board_in_another_device_group_says_so() -> None:
    uid = "rpi5-0001-0001"
    expected = Inventory.from_json({"rpi5": [entry(uid)]}).boards
    group = {
        "Vendor": "acme",
        "Type": "board",
        "Attributes": {},
        "Instances": [{"ID": uid, "Healthy": True}],
    }
    node = {"ID": "n1", "Name": "host-1", "Status": "ready", "NodeResources": {"Devices": [group]}}
    twin = Twin(expected)

    def shown(hosts: tuple[Host, ...]) -> tuple[BoardState, str]:
        twin.refresh(hosts, _now())
        (view,) = twin.views(drained={}, holders={})
        return view.state, view.reason

    state, reason = shown(hosts_of([node], "daiedge/edgedevice"))
    assert state is BoardState.UNHEALTHY
    assert reason == "host-1 reports it as a device acme/board, not daiedge/edgedevice"
    comparison = twin.comparison()
    assert comparison is not None
    assert comparison.missing[0].reason == reason
    node["NodeResources"] = {"Devices": []}
    assert shown(hosts_of([node], "daiedge/edgedevice"))[0] is BoardState.OFFLINE


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


@pytest.mark.slow
def test_a_server_takes_boards_up_and_what_runs_on_a_removed_one_ends_well(
    tmp_path: Path,
) -> None:
    path = tmp_path / "target.json"
    cpu = min(os.sched_getaffinity(0))
    boards = [entry("emumid-0001-0001", local={"cpus": [cpu]})]
    path.write_text(json.dumps({"emumid": boards}))
    config = tmp_path / "server.toml"
    config.write_text(f'inventory = "{path}"\n')
    with a_life(tmp_path / "data", environment={"EDGEYARD_CONFIG": str(config)}) as life:
        server = life.ready()

        def states() -> dict[str, str]:
            found = server.call("GET", "/v1/boards")
            return {each["target_uid"]: each["state"] for each in found["items"]}

        path.write_text(json.dumps({"emumid": boards, "rpi5": [entry("rpi5-0001-0001")]}))
        until(lambda: states().get("rpi5-0001-0001") == "offline")
        model = str(server.upload(light("squeezenet"))["name"])
        made = server.call(
            "POST",
            "/v1/benchmarks",
            {
                "model": model,
                "runtime": "ort",
                "benchmark_type": "TYPE1",
                "target": "emumid",
                "nb_inference": 300,
            },
        )
        benchmark_id = str(made["benchmark_id"])
        server.wait(benchmark_id, ("running",))
        server.call("DELETE", "/v1/inventory/boards/emumid-0001-0001")
        assert server.wait(benchmark_id, ("completed",))["status"] == "completed"
        until(lambda: states().get("emumid-0001-0001") == "unknown")
        assert life.end() == 0
