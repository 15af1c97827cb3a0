"""What is blamed for a change of the level of a series."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.devices.metrics import P50
from edgeyard.scheduler.decide.blame import (
    Blame,
    Cause,
    Evidence,
    MeasuredVersion,
    Neighbour,
    Shift,
    Sister,
    Trial,
    blame,
    lacks_results,
    next_version,
)

BOARD = "rpi4b-0001-0001"
FACTS = {
    Cause.MODEL: "aaaaaaaaaaaaaaaa",
    Cause.ENGINE: "1.23",
    Cause.FIRMWARE: "2026-05",
    Cause.KERNEL: "6.6",
    Cause.RUNNER: "0.9",
    Cause.GOVERNOR: "performance",
}
OTHER_MODEL = {Cause.MODEL: "bbbbbbbbbbbbbbbb"}
OTHER_ENGINE = {Cause.ENGINE: "1.24"}


def by(percent: float) -> Shift:
    return Shift(slowdown=percent / 100, low=(percent - 1) / 100, high=(percent + 1) / 100)


def canary(name: str, percent: float) -> Neighbour:
    return Neighbour(name=f"canary/{name}", canary=True, shift=by(percent))


def sister(number: int, percent: float, *changes: Cause) -> Sister:
    return Sister(target_uid=f"rpi4b-{number}", shift=by(percent), changes=frozenset(changes))


def blamed(after: dict[Cause, str] | None = None, percent: float = 5.0, **more: Any) -> Blame:
    given = Evidence(
        target_uid=BOARD,
        shift=by(percent),
        before=FACTS,
        after={**FACTS, **(after or {})},
        **more,
    )
    found = blame(given)
    assert found.sentence.endswith(".")
    assert found.sentence.count(". ") == 0
    assert f"{abs(percent):.1f} %" in found.sentence
    return found


def test_an_experiment_that_found_the_versions_to_differ_blames_the_model() -> None:
    found = blamed(
        {**OTHER_MODEL, **OTHER_ENGINE}, trial=Trial.DIFFERENT, neighbours=[canary("a", 5.0)]
    )
    assert found.cause is Cause.MODEL
    assert "from aaaaaaaaaaaa to bbbbbbbbbbbb" in found.sentence
    assert "5.0 % slower (95 %: 4.0 to 6.0)" in found.sentence
    assert found.not_tested == ()


def test_canaries_that_changed_too_blame_the_board_and_name_what_changed_on_it() -> None:
    canaries = [canary("a", 4.8), canary("b", 5.2), canary("c", 0.1)]
    found = blamed({Cause.FIRMWARE: "2026-10"}, neighbours=canaries, warmer_c=14.2)
    assert found.cause is Cause.BOARD
    assert "2 of 3 canaries" in found.sentence
    assert "canary/a 4.8 % slower" in found.sentence
    assert "firmware changed from 2026-05 to 2026-10" in found.sentence
    assert "14 °C warmer" in found.sentence
    assert found.not_tested == ("No other board with the same change of firmware ran the model.",)


def test_canaries_that_changed_by_little_or_the_other_way_do_not_blame_the_board() -> None:
    still = [canary("a", 1.2), canary("b", -5.0), canary("c", 0.0)]
    assert blamed(OTHER_MODEL, neighbours=still).cause is Cause.MODEL


def test_without_canaries_the_other_series_of_the_board_count() -> None:
    others = [Neighbour(name=name, canary=False, shift=by(5.0)) for name in ("x", "y")]
    found = blamed(neighbours=others)
    assert found.cause is Cause.BOARD
    assert "2 of 2 other series" in found.sentence
    assert f"No canary ran on {BOARD} before and after the change." in found.not_tested
    quiet = [canary("a", 0.0)]
    assert blamed(OTHER_MODEL, neighbours=[*others, *quiet]).cause is Cause.MODEL


NOISE = [10.0, 10.1, 9.9, 10.05, 9.95]


def of_results(after: int) -> Shift:
    """The shift of a series that became 5 % slower, by so many results after it."""
    found = Shift.between(NOISE * 10, [10.5 * each / 10 for each in NOISE[:after]], P50)
    assert found is not None
    return found


@pytest.mark.parametrize("results", [1, 2])
def test_a_canary_with_one_or_two_results_is_no_proof_and_is_named(results: int) -> None:
    young = [Neighbour(name="canary/a", canary=True, shift=of_results(results))]
    alone = [sister(1, 0.0), sister(2, 0.0)]
    found = blamed(neighbours=young, sisters=alone)
    assert found.cause is Cause.UNKNOWN
    assert found.not_tested[0].startswith("canary/a had fewer than 3 results")
    assert lacks_results(found.not_tested)
    known = [Neighbour(name="canary/a", canary=True, shift=of_results(3))]
    found = blamed(neighbours=known, sisters=alone)
    assert found.cause is Cause.BOARD
    assert not lacks_results(found.not_tested)
    three = [Neighbour(name=f"canary/{each}", canary=True, shift=of_results(1)) for each in "abc"]
    together = blamed(neighbours=three, sisters=alone)
    assert (together.cause, lacks_results(together.not_tested)) == (Cause.BOARD, False)
    two_moved = [*three[:2], canary("c", 0.0)]
    assert blamed(neighbours=two_moved, sisters=alone).cause is Cause.UNKNOWN


def test_boards_with_one_result_since_exclude_nothing() -> None:
    young = Sister(target_uid="rpi4b-9", shift=of_results(1))
    found = blamed(sisters=[young])
    assert found.cause is Cause.UNKNOWN
    assert "(rpi4b-9) the model had fewer than 3 results" in " ".join(found.not_tested)
    same = Sister(target_uid="rpi4b-9", shift=of_results(1), changes=frozenset({Cause.ENGINE}))
    assert blamed(OTHER_ENGINE, sisters=[same]).cause is Cause.ENGINE  # it contradicts nothing


@pytest.mark.parametrize("cause", [Cause.ENGINE, Cause.FIRMWARE, Cause.KERNEL])
def test_other_boards_that_moved_with_the_same_change_blame_that_change(cause: Cause) -> None:
    sisters = [sister(1, 5.5, cause), sister(2, 4.5, cause), sister(3, 0.0)]
    found = blamed({cause: "new"}, sisters=sisters, neighbours=[canary("a", 5.0)])
    assert found.cause is cause
    assert f"from {FACTS[cause]} to new" in found.sentence
    assert "2 of 2 other boards" in found.sentence
    assert "0 of 1 boards without it" in found.sentence
    assert found.not_tested == ()


def test_a_change_that_did_nothing_on_other_boards_is_not_blamed() -> None:
    sisters = [sister(1, 0.1, Cause.ENGINE), sister(2, -0.1, Cause.ENGINE)]
    assert blamed(OTHER_ENGINE, sisters=sisters).cause is Cause.BOARD
    changed = {**OTHER_ENGINE, Cause.KERNEL: "6.12"}
    assert blamed(changed, sisters=sisters).cause is Cause.KERNEL


def test_only_the_models_content_changed() -> None:
    why = "the files of the old version were deleted"
    found = blamed(OTHER_MODEL, neighbours=[canary("a", 0.1)], trial_note=why)
    assert found.cause is Cause.MODEL
    assert (
        found.not_tested[0]
        == f"Both versions of the model were not measured against each other: {why}."
    )


def test_versions_that_are_equally_fast_exclude_the_model() -> None:
    assert blamed(OTHER_MODEL, trial=Trial.EQUAL).cause is Cause.UNKNOWN
    both = {**OTHER_MODEL, **OTHER_ENGINE}
    assert blamed(both, trial=Trial.EQUAL).cause is Cause.ENGINE


def test_model_and_engine_that_changed_at_once_are_distinguished_by_other_boards_only() -> None:
    both = {**OTHER_MODEL, **OTHER_ENGINE}
    found = blamed(both)
    assert found.cause is Cause.UNKNOWN
    assert "model, engine changed at the same time" in found.sentence
    together = [sister(1, 5.0, Cause.MODEL, Cause.ENGINE)]
    assert blamed(both, sisters=together).cause is Cause.UNKNOWN
    assert blamed(both, sisters=[sister(1, 5.0, Cause.ENGINE)]).cause is Cause.ENGINE
    assert blamed(both, sisters=[sister(1, 5.0, Cause.MODEL)]).cause is Cause.MODEL


def test_nothing_that_is_known_changed() -> None:
    found = blamed(neighbours=[canary("a", 0.0)], sisters=[sister(1, 0.0)])
    assert found.cause is Cause.UNKNOWN
    assert "no fact that is recorded changed" in found.sentence
    alone = blamed(percent=-5.0)
    assert alone.cause is Cause.UNKNOWN
    assert "5.0 % faster (95 %: 4.0 to 6.0)" in alone.sentence
    assert alone.not_tested == (
        f"No canary ran on {BOARD} before and after the change.",
        "No other board ran the model before and after the change.",
    )


def test_facts_that_are_not_known_are_no_change_and_are_named() -> None:
    before = {Cause.MODEL: "a", Cause.ENGINE: "1.23"}
    found = blame(
        Evidence(target_uid=BOARD, shift=by(5.0), before=before, after={**FACTS, **before})
    )
    assert found.cause is Cause.UNKNOWN
    assert found.not_tested[-1] == (
        "Not known before and after the change: firmware, kernel, runner, governor."
    )


@given(st.integers(1, 200), st.data())
def test_bisection_finds_the_first_version_in_at_most_log2_checks(
    count: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, count - 1))
    versions = [f"v{number}" for number in range(count)]
    differs = {"of another time": True}
    while (version := next_version(versions, differs)) is not None:
        assert version not in differs
        differs[version] = versions.index(version) >= first
    found = [each for each in versions if differs.get(each)] or versions[-1:]
    assert found[0] == versions[first]
    assert len(differs) - 1 <= math.ceil(math.log2(count))


def test_a_bisection_goes_on_without_a_version_that_was_lost_meanwhile() -> None:
    assert next_version(["a", "b", "c", "d", "new"], {}) == "c"
    assert next_version(["a", "b", "d", "new"], {"c": True}) == "b"
    assert next_version(["a", "d", "new"], {"b": False, "a": False}) == "d"
    assert next_version(["new"], {}) is None


def test_the_first_version_that_differs_is_named_with_its_figures() -> None:
    measured = [
        MeasuredVersion(sha256="c1" * 32, benchmark_id="b-1", differs=False, shift=by(0.1)),
        MeasuredVersion(sha256="c2" * 32, benchmark_id="b-2", differs=True, shift=by(4.9)),
    ]
    found = blamed(OTHER_MODEL, trial=Trial.DIFFERENT, versions=measured)
    assert "the first version that differs is c2c2c2c2c2c2 (b-2), 4.9 % slower" in found.sentence
    assert "the last one that does not is c1c1c1c1c1c1 (b-1), 0.1 % slower" in found.sentence
    found = blamed(OTHER_MODEL, trial=Trial.DIFFERENT, versions=measured[:1])
    assert "it is the first version that differs" in found.sentence
    open_one = MeasuredVersion(
        sha256="c3" * 32, benchmark_id="b-3", differs=None, reason="the budget was spent"
    )
    found = blamed(OTHER_MODEL, trial=Trial.DIFFERENT, versions=[open_one])
    assert found.not_tested == (
        "Whether version c3c3c3c3c3c3 (b-3) differs was not decided: the budget was spent.",
    )
