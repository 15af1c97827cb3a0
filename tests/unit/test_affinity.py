"""Affinities: wishes that decide between boards that are predicted to be equally good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from edgeyard.benchmark_api.schemas import notation
from edgeyard.benchmark_api.schemas.description import parse_description, to_description
from edgeyard.devices.model import Host
from edgeyard.errors import InvalidInput
from edgeyard.plugins.testing import NOW, board, pending
from edgeyard.scheduler.clusters.local.admission import admit
from edgeyard.scheduler.clusters.local.boards import BoardPool
from edgeyard.scheduler.clusters.nomad.expected import api_job
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.benchmark import Affinity, Binding
from edgeyard.scheduler.model.decision import Snapshot
from edgeyard.scheduler.twin.twin import Twin
from tests.builders.cluster import a_board
from tests.builders.decision import cycle, places
from tests.builders.hcl import PLATFORM_DESCRIPTION, PLATFORM_SETTINGS, a_request
from tests.builders.hcl import RAW_EXEC as EMBEDDED

A, B, C = (f"rpi4b-0001-000{number}" for number in range(1, 4))
RACK_B = Affinity(attribute="rack", operator="=", value="b")


def lab(racks: Mapping[str, str]) -> Snapshot:
    """Boards in racks."""
    boards = [board(uid, attributes={"rack": rack}) for uid, rack in racks.items()]
    twin = Twin(boards)
    twin.refresh([Host("h", "h", True, tuple(boards))], NOW)
    return twin.snapshot(NOW, drained={}, holders={})


@pytest.mark.parametrize("seed", range(5))
def test_the_board_that_meets_the_wish_is_taken(seed: int) -> None:
    snapshot = lab({A: "a", B: "b", C: "a"})
    assert places(cycle(snapshot, [pending("b-1", affinities=(RACK_B,))], seed=seed)) == {"b-1": B}


@pytest.mark.parametrize("seed", range(5))
def test_a_negative_weight_keeps_away_and_the_heavier_wish_wins(seed: int) -> None:
    snapshot = lab({A: "a", B: "b", C: "c"})
    own = (
        replace(RACK_B, weight=-80),
        replace(RACK_B, value="a", weight=20),
        replace(RACK_B, value="c", weight=60),
    )
    assert places(cycle(snapshot, [pending("b-1", affinities=own)], seed=seed)) == {"b-1": C}


def test_a_wish_refuses_no_board() -> None:
    snapshot = lab({A: "a"})
    assert places(cycle(snapshot, [pending("b-1", affinities=(RACK_B,))])) == {"b-1": A}


@pytest.mark.parametrize("binding", list(Binding))
def test_the_job_has_them_where_the_cluster_chooses(binding: Binding) -> None:
    of_node = Affinity(attribute="${attr.cpu.arch}", operator="!=", value="arm64", weight=-5)
    wanted = replace(PLATFORM_DESCRIPTION, affinities=(RACK_B, of_node))
    request = a_request(description=wanted, binding=binding, target_uid=A)
    job = build_job(request, PLATFORM_SETTINGS)
    check_round_trip(job, render(job))
    groups: Any = api_job(job)["TaskGroups"]
    (device,) = groups[0]["Tasks"][0]["Resources"]["Devices"]
    if binding is Binding.STRICT:
        assert "Affinities" not in api_job(job)
        assert "Affinities" not in device
        return
    assert api_job(job)["Affinities"] == [
        {"LTarget": "${attr.cpu.arch}", "Operand": "!=", "RTarget": "arm64", "Weight": -5}
    ]
    assert device["Affinities"] == [
        {"LTarget": "${device.attr.rack}", "Operand": "=", "RTarget": "b", "Weight": 50}
    ]


def test_the_embedded_cluster_chooses_by_them_among_free_boards() -> None:
    boards = [a_board(uid, attributes={"rack": rack}) for uid, rack in ((A, "a"), (B, "b"))]
    wanted = replace(PLATFORM_DESCRIPTION, affinities=(RACK_B,), job_completion_threshold=None)
    job = admit(build_job(a_request(description=replace(wanted, ram=0, storage=0)), EMBEDDED))
    pool = BoardPool(boards)
    for running, chosen in (({}, B), ({B: "other"}, A)):
        found, why = pool.choose(job, running)
        assert found is not None, why
        assert found.target_uid == chosen


def described(**affinity: object) -> dict[str, object]:
    return {
        "model": "net.onnx",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        "affinities": [{"attribute": "rack", "operator": "=", "value": "b", **affinity}],
    }


def test_they_are_read_with_their_weight() -> None:
    assert to_description(parse_description(described())).affinities == (RACK_B,)
    size = described(attribute="memory.ram", operator=">=", value="8 GiB", weight=-5)
    (found,) = to_description(parse_description(size)).affinities
    assert (found.value, found.weight) == (str(8 * 2**30), -5)


@pytest.mark.parametrize("weight", [0, 101, -101, 1.5, "50", True])
def test_a_weight_that_nomad_refuses_is_refused(weight: object) -> None:
    with pytest.raises(InvalidInput, match="/affinities/0/weight"):
        parse_description(described(weight=weight))


def test_flags_state_a_weight_or_none() -> None:
    assert notation.affinities(["80 memory.ram >= 8 GiB", "-5 ${meta.rack} = b", "npu is_set"]) == [
        {"attribute": "memory.ram", "operator": ">=", "value": "8 GiB", "weight": 80},
        {"attribute": "${meta.rack}", "operator": "=", "value": "b", "weight": -5},
        {"attribute": "npu", "operator": "is_set", "value": ""},
    ]
    with pytest.raises(InvalidInput, match="--affinity"):
        notation.affinities(["80"])
