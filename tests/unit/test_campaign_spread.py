"""Spreads: the benchmarks of a campaign go to different values of an attribute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from edgeyard.benchmark_api.schemas import notation
from edgeyard.benchmark_api.schemas.description import parse_description, to_description
from edgeyard.devices.model import Host
from edgeyard.errors import InvalidInput
from edgeyard.plugins.scorers import affinity, campaign_spread
from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.clusters.nomad.expected import api_job
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.batch import AttributeColumn, Batch, attribute_column
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.benchmark import Affinity, Binding, Spread
from edgeyard.scheduler.model.decision import PendingBenchmark, Snapshot
from edgeyard.scheduler.twin.twin import Twin
from tests.builders.decision import cycle, places
from tests.builders.hcl import PLATFORM_DESCRIPTION, PLATFORM_SETTINGS, a_request

RACK = Spread(attribute="rack")
SEEDS = pytest.mark.parametrize("seed", range(5))


def lab(racks: Mapping[str, int]) -> Snapshot:
    """So many boards in each rack; their names begin with that of the rack."""
    boards = [
        board(f"rpi4b-000{rack}-000{number}", attributes={"rack": name})
        for rack, (name, count) in enumerate(racks.items(), 1)
        for number in range(1, count + 1)
    ]
    twin = Twin(boards)
    twin.refresh([Host("h", "h", True, tuple(boards))], NOW)
    return twin.snapshot(NOW, drained={}, holders={})


def campaign(size: int, name: str = "c", **more: object) -> list[PendingBenchmark]:
    own: dict[str, object] = {"spreads": (RACK,), "spread_group": name, "campaign_id": name}
    return [pending(f"{name}-{number}", **{**own, **more}) for number in range(size)]


def racks_of(snapshot: Snapshot, result: CycleResult, name: str = "c") -> Counter[object]:
    rack_of_uid = {
        uid: attributes["rack"]
        for uid, attributes in zip(snapshot.uids, snapshot.attributes, strict=True)
    }
    placed = places(result).items()
    return Counter(rack_of_uid[uid] for each, uid in placed if each.startswith(f"{name}-"))


@SEEDS
def test_the_benchmarks_of_one_cycle_go_to_different_values(seed: int) -> None:
    snapshot = lab({"a": 9, "b": 3, "c": 3})
    result = cycle(snapshot, campaign(6), seed=seed)
    assert racks_of(snapshot, result) == {"a": 2, "b": 2, "c": 2}


@SEEDS
def test_what_the_campaign_ran_before_counts(seed: int) -> None:
    snapshot = lab({"a": 4, "b": 4})
    counts = (("rpi4b-0001-0001", 2), ("rpi4b-gone-0001", 7))
    result = cycle(snapshot, campaign(4, spread_counts=counts), seed=seed)
    assert racks_of(snapshot, result) == {"a": 1, "b": 3}


@SEEDS
def test_each_campaign_is_spread_by_itself(seed: int) -> None:
    snapshot = lab({"a": 4, "b": 4})
    mixed = [
        replace(each, submit_time=NOW - timedelta(seconds=9 - number))  # in turn
        for name in ("c", "d")
        for number, each in enumerate(campaign(4, name))
    ]
    result = cycle(snapshot, mixed, seed=seed)
    assert racks_of(snapshot, result, "c") == {"a": 2, "b": 2}
    assert racks_of(snapshot, result, "d") == {"a": 2, "b": 2}


@SEEDS
def test_targets_state_shares_and_the_others_share_the_rest(seed: int) -> None:
    snapshot = lab({"a": 9, "b": 9, "c": 9})
    own = (Spread(attribute="rack", targets=(("a", 60),)),)
    result = cycle(snapshot, campaign(10, spreads=own), seed=seed)
    assert racks_of(snapshot, result) == {"a": 6, "b": 2, "c": 2}


def test_no_board_is_refused() -> None:
    snapshot = lab({"a": 1, "b": 3})
    own = (Spread(attribute="rack", targets=(("a", 100),)), Spread(attribute="unknown"))
    result = cycle(snapshot, campaign(4, spreads=own))
    assert racks_of(snapshot, result) == {"a": 1, "b": 3}


@SEEDS
def test_the_heavier_spread_counts_more(seed: int) -> None:
    boards = [
        board(f"rpi4b-0001-000{number}", attributes={"rack": rack, "shelf": shelf})
        for number, (rack, shelf) in enumerate((("a", "1"), ("a", "2"), ("b", "1")), 1)
    ]
    twin = Twin(boards)
    twin.refresh([Host("h", "h", True, tuple(boards))], NOW)
    snapshot = twin.snapshot(NOW, drained={}, holders={})
    counts = (("rpi4b-0001-0001", 1),)
    for shelf_weight, other in ((10, "rpi4b-0001-0003"), (90, "rpi4b-0001-0002")):
        own = (replace(RACK, weight=50), Spread(attribute="shelf", weight=shelf_weight))
        result = cycle(snapshot, campaign(1, spreads=own, spread_counts=counts), seed=seed)
        assert places(result) == {"c-0": other}


@SEEDS
def test_of_boards_with_the_same_value_other_preferences_choose(seed: int) -> None:
    busy, beside, quiet = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi4b-0002-0001"
    snapshot = snapshot_of(
        [board(uid, attributes={"rack": "a"}, busy=uid == busy) for uid in (busy, beside, quiet)],
        hosts={busy: "loud", beside: "loud", quiet: "quiet"},
    )
    assert places(cycle(snapshot, campaign(1), seed=seed)) == {"c-0": quiet}


@SEEDS
def test_a_gang_is_spread(seed: int) -> None:
    snapshot = lab({"a": 6, "b": 2})
    gang = campaign(4, gang_id="c", gang_size=4)
    assert racks_of(snapshot, cycle(snapshot, gang, seed=seed)) == {"a": 2, "b": 2}


def test_the_explanation_states_what_the_spread_scored() -> None:
    snapshot = lab({"a": 1, "b": 1})
    counts = (("rpi4b-0001-0001", 1),)
    result = cycle(snapshot, campaign(1, spread_counts=counts))
    scores = {
        each.target_uid: each.scores["campaign_spread"]
        for each in result.explanation("c-0").verdicts
    }
    assert scores == {"rpi4b-0001-0001": pytest.approx(0.225), "rpi4b-0002-0001": 1.0}


@pytest.mark.parametrize("binding", list(Binding))
def test_the_job_has_those_over_nodes_where_the_cluster_chooses(binding: Binding) -> None:
    of_node = Spread(attribute="${node.datacenter}", weight=20, targets=(("dc1", 70),))
    wanted = replace(PLATFORM_DESCRIPTION, spreads=(RACK, of_node))
    request = a_request(description=wanted, binding=binding, target_uid="rpi4b-0001-0001")
    job = build_job(request, PLATFORM_SETTINGS)
    check_round_trip(job, render(job))
    stated: Any = api_job(job).get("Spreads")
    if binding is Binding.STRICT:
        assert stated is None
        return
    assert stated == [
        {
            "Attribute": "${node.datacenter}",
            "Weight": 20,
            "SpreadTarget": [{"Value": "dc1", "Percent": 70}],
        }
    ]


def test_a_target_that_no_job_can_carry_is_refused() -> None:
    own = Spread(attribute="${meta.rack}", targets=(("a", 50), ("${upper(x)}", 50)))
    request = a_request(description=replace(PLATFORM_DESCRIPTION, spreads=(own,)))
    with pytest.raises(InvalidInput, match="/spreads/0/targets/1"):
        build_job(request, PLATFORM_SETTINGS)


def described(**spread: object) -> dict[str, object]:
    return {
        "model": "net.onnx",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        "spreads": [{"attribute": "${device.attr.rack}", **spread}],
    }


def test_they_are_read_with_their_defaults() -> None:
    assert to_description(parse_description(described())).spreads == (RACK,)


@pytest.mark.parametrize(
    ("spread", "field"),
    [
        ({"weight": 0}, "/spreads/0/weight"),
        ({"weight": 101}, "/spreads/0/weight"),
        ({"targets": {"a": 0}}, "/spreads/0/targets"),
        ({"targets": {"a": "50"}}, "/spreads/0/targets"),
        ({"targets": {"a": 60, "b": 50}}, "/spreads/0.*more than 100"),
        ({"targets": {str(number): 1 for number in range(33)}}, "/spreads/0/targets"),
        ({"attribute": "family"}, "/spreads/0.*target states the family"),
    ],
)
def test_what_has_no_meaning_is_refused(spread: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        parse_description(described(**spread))


def test_an_attribute_is_stated_once() -> None:
    twice = {**described(), "spreads": [{"attribute": "rack"}, {"attribute": "rack", "weight": 3}]}
    with pytest.raises(InvalidInput, match="/spreads"):
        parse_description(twice)


def test_flags_state_weight_and_targets_or_none() -> None:
    assert notation.spreads(["${node.datacenter}", "80 rack a=70 b=30"]) == [
        {"attribute": "${node.datacenter}"},
        {"attribute": "rack", "weight": 80, "targets": {"a": 70, "b": 30}},
    ]


@pytest.mark.parametrize("value", ["", "80", "rack a", "rack a=x", "rack a=1 a=2"])
def test_flags_that_cannot_be_read_are_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="--spread"):
        notation.spreads([value])


def test_benchmarks_past_the_plan_get_boards_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_spread, "MAX_PLANNED", 2)
    snapshot = lab({"a": 3, "b": 3})
    assert racks_of(snapshot, cycle(snapshot, campaign(6))) == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    ("module", "wish"),
    [
        (campaign_spread, {"spreads": (RACK,)}),
        (affinity, {"affinities": (Affinity(attribute="rack", operator="=", value="b"),)}),
    ],
)
def test_the_boards_attributes_are_read_once_for_all_classes(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, wish: dict[str, object]
) -> None:
    read = []

    def column(batch: Batch, name: str) -> AttributeColumn:
        read.append(name)
        return attribute_column(batch, name)

    monkeypatch.setattr(module, "attribute_column", column)
    own = [pending(f"b-{number}", nb_inference=number, **wish) for number in range(1, 5)]
    assert len(places(cycle(lab({"a": 4}), own))) == 4
    assert read == ["rack"]


def test_values_are_compared_with_targets_once_for_all_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: Counter[object] = Counter()

    def text(value: object) -> str:
        read[value] += 1
        return str(value)

    monkeypatch.setattr(campaign_spread, "_text", text)
    wishes = [(Spread(attribute="rack", weight=weight),) for weight in range(1, 5)]
    own = [pending(f"b-{number}", spreads=wish) for number, wish in enumerate(wishes)]
    assert len(places(cycle(lab({"a": 2, "b": 2}), own))) == 4
    assert read == {"a": 1, "b": 1}
