"""Rails of power sensors, traces of them, and the energy between two instants."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.sdk.energy import energy_sentence
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.model import LocalSlice
from edgeyard.devices.power_rails import (
    BOARD,
    COUNTER,
    PROCESSOR,
    Choice,
    choose,
    rails_of,
    read_listing,
)
from edgeyard.devices.probe import Prober
from edgeyard.devices.runner.energy import (
    EnergyMeasurement,
    EnergyUnknown,
    Measuring,
    MeterSource,
    RailSource,
    Trace,
    energy_of,
    parts_of,
)
from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.interval import MIN_SAMPLES
from edgeyard.errors import ConfigError
from tests.builders.edgedevice import board_entry
from tests.builders.sensors import HWMON, ORIN_NX, package, write_tree


def choice(root: Path, files: dict[str, str], named: str = "") -> Choice:
    return choose(rails_of(read_listing(write_tree(root, files))), named)


def test_a_jetson_is_measured_at_its_input_by_current_times_voltage(tmp_path: Path) -> None:
    listing = read_listing(write_tree(tmp_path, ORIN_NX))
    rails = rails_of(listing)
    assert [each.name for each in rails] == [
        "ina3221/VDD_IN",
        "ina3221/VDD_CPU_GPU_CV",
        "ina3221/VDD_SOC",
    ], "channel 4 is a sum of currents beside the voltage of a shunt"
    found = choose(rails)
    assert found.rail is not None
    assert (found.rail.label, found.scope) == ("VDD_IN", BOARD)
    assert found.rail.watts(listing) == pytest.approx(6.0), "not with its own parts"


def test_the_health_check_reports_what_a_jetson_draws(tmp_path: Path) -> None:
    (board,) = Inventory.from_json({"rpi4b": [board_entry()]}).boards
    assert Prober(root=write_tree(tmp_path, ORIN_NX)).look(board).power_w == pytest.approx(6.0)
    own = {**board_entry(), "energy_rail": "VDD_SOC"}
    (board,) = Inventory.from_json({"rpi4b": [own]}).boards
    assert Prober(root=tmp_path).look(board).power_w == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(package(1, 2**38), ("rapl/package-0", PROCESSOR), id="one package"),
        pytest.param({**package(1, 2**38), **package(1, 2**38, number=1)}, None, id="two packages"),
        pytest.param(
            {
                **package(1, 2**38),
                "sys/class/powercap/intel-rapl:1/name": "psys",
                "sys/class/powercap/intel-rapl:1/energy_uj": "5",
            },
            ("rapl/psys", BOARD),
            id="the platform holds the package",
        ),
        pytest.param(
            {f"{HWMON}/hwmon0/name": "ina219", f"{HWMON}/hwmon0/power1_input": "5000000"},
            ("ina219/power1", BOARD),
            id="one monitor",
        ),
        pytest.param(
            {f"{HWMON}/hwmon0/name": "amdgpu", f"{HWMON}/hwmon0/power1_average": "5000000"},
            None,
            id="a GPU is no board",
        ),
        pytest.param(
            {f"{HWMON}/hwmon0/name": "power_meter", f"{HWMON}/hwmon0/power1_average": "9000000"},
            ("power_meter/power1", BOARD),
            id="ACPI",
        ),
        pytest.param(
            {k: v for k, v in ORIN_NX.items() if "in1_" not in k and "curr1_" not in k},
            None,
            id="the input is missing",
        ),
        pytest.param(
            {
                f"{HWMON}/hwmon0/name": "ina260",
                f"{HWMON}/hwmon0/power1_input": "5000000",
                f"{HWMON}/hwmon0/energy1_input": "77",
            },
            ("ina260/power1", BOARD),
            id="counted and sampled",
        ),
    ],
)
def test_the_rail_is_the_boards_input_or_none(
    tmp_path: Path, files: dict[str, str], expected: tuple[str, str] | None
) -> None:
    found = choice(tmp_path, files)
    if expected is None:
        assert found.rail is None
        assert "energy_rail" in found.reason
    else:
        assert found.rail is not None
        assert (found.rail.name, found.scope) == expected
        assert (found.rail.kind == COUNTER) == any("energy" in each for each in files)


def test_a_named_rail_is_taken_and_one_that_is_missing_is_named(tmp_path: Path) -> None:
    found = choice(tmp_path, ORIN_NX, "ina3221/VDD_SOC")
    assert found.rail is not None
    assert (found.rail.label, found.scope) == ("VDD_SOC", "part")
    missing = choice(tmp_path, ORIN_NX, "VDD_5V")
    assert missing.rail is None
    assert "boards file names the rail 'VDD_5V'" in missing.reason
    assert "ina3221/VDD_IN" in missing.reason
    two = {path.replace("hwmon1", "hwmon2"): text for path, text in ORIN_NX.items()}
    assert "several times" in choice(tmp_path, {**ORIN_NX, **two}, "VDD_IN").reason
    assert choice(tmp_path / "none", {}) == Choice()


def replay(root: Path, steps: Sequence[dict[str, str]], trace: Trace) -> Trace:
    """Read a tree once a tenth of a second while its files change."""
    instants: Iterator[float] = iter([index / 10 for index in range(len(steps)) for _ in "12"])
    write_tree(root, steps[0])
    rail = choose(rails_of(read_listing(root))).rail
    assert rail is not None
    source = RailSource(rail, root, clock=lambda: next(instants))
    for step in steps:
        write_tree(root, step)
        source.read_into(trace)
    return trace


def test_a_counter_that_begins_again_loses_nothing(tmp_path: Path) -> None:
    max_uj = 262_143_328_850
    first = max_uj - 1_000_000  # 1 J before the end, and 2 W: 0.2 J a step
    steps = [package((first + 200_000 * index) % max_uj, max_uj) for index in range(21)]
    trace = replay(tmp_path, steps, Trace("rapl/package-0", 0.1))
    assert trace.between(0.0, 2.0) == pytest.approx(4.0)
    assert trace.between(0.45, 0.65) == pytest.approx(0.4), "across the end"


def test_a_counter_that_runs_backwards_is_void_and_never_a_negative_joule(tmp_path: Path) -> None:
    counts = [1_000_000 + 300_000 * index for index in range(10)]
    counts[5:] = [each - 1_400_000 for each in counts[5:]]
    trace = replay(tmp_path, [package(each, 2**38) for each in counts], Trace("rapl/pkg", 0.1))
    with pytest.raises(EnergyUnknown, match=r"rapl/pkg ran backwards.*not of the model"):
        trace.between(0.2, 0.8)
    assert trace.between(0.0, 0.4) == pytest.approx(1.2), "what came before it holds"
    assert trace.between(0.5, 0.9) == pytest.approx(1.2)
    small = Trace("rapl/pkg", 0.1)
    for place, joules in enumerate((50.5, 49.5, 50.0)):
        small.add_count(place / 10, joules, 100.0)
    with pytest.raises(EnergyUnknown, match="ran backwards"):
        small.between(0.0, 0.2)  # 99 J in 0.1 s would be below the largest power
    plain = Trace("meter", 1.0)
    for at_s, joules in ((0.0, 9.0), (1.0, 4.0), (2.0, 5.0)):
        plain.add_count(at_s, joules, None)
    with pytest.raises(EnergyUnknown, match="ran backwards, from 9 to 4 J"):
        plain.between(0.0, 2.0)


def test_power_is_integrated_and_nonsense_is_dropped(tmp_path: Path) -> None:
    currents = ["1000", "1200", "1400", "", "-7", "99999999999", "1400", "1400"]
    steps = [{**ORIN_NX, f"{HWMON}/hwmon1/curr1_input": each} for each in currents]
    trace = replay(tmp_path, steps, Trace("ina3221/VDD_IN", 0.1))
    assert (trace.readings, trace.dropped) == (5, 3)
    # 5 V: 5 to 6 to 7 W in 0.2 s, then 7 W
    assert trace.between(0.0, 0.7) == pytest.approx(0.55 + 0.65 + 0.5 * 7)


def power_trace(*watts: float) -> Trace:
    trace = Trace("ina3221/VDD_GPU", 0.1)
    for number, each in enumerate(watts):
        trace.add_power(number / 10, each)
    return trace


def test_a_single_zero_is_a_slip_and_several_are_a_part_that_is_off() -> None:
    slip = power_trace(4.0, 4.0, 0.0, 4.0, 4.0)
    assert (slip.readings, slip.dropped) == (4, 1)
    assert slip.between(0.0, 0.4) == pytest.approx(1.6)
    off = power_trace(0.0, 0.0, 0.0, 4.0, 4.0, 0.0, 0.0, 4.0)
    assert (off.readings, off.dropped) == (8, 0)
    assert off.between(0.0, 0.7) == pytest.approx(0.1 * (0 + 0 + 2 + 4 + 2 + 0 + 2))
    with pytest.raises(EnergyUnknown, match="stood still"):
        power_trace(*[0.0] * 5).between(0.0, 0.4)


def test_gaps_still_counters_and_times_that_were_not_read_are_void() -> None:
    power = Trace("ina219/power1", 0.1)
    for at_s in (0.0, 0.1, 1.0, 1.1):
        power.add_power(at_s, 5.0)
    with pytest.raises(EnergyUnknown, match=r"no plausible power for 0\.9 s"):
        power.between(0.05, 1.05)
    with pytest.raises(EnergyUnknown, match="was not read during all"):
        power.between(1.0, 1.2)
    still = Trace("rapl/package-0", 0.1)
    for at_s in (0.0, 0.1, 0.2):
        still.add_count(at_s, 3.0, None)
    with pytest.raises(EnergyUnknown, match="stood still"):
        still.between(0.0, 0.2)
    with pytest.raises(EnergyUnknown, match="no two readings"):
        Trace("x", 0.1).between(0.0, 1.0)


def test_parts_have_equal_times_and_lose_no_inference() -> None:
    spans = [(0.0, 1.0, 10.0), (2.0, 2.5, 5.0), (3.0, 5.0, 20.0)]
    parts = parts_of(spans, 0.7)
    times = [sum(end - begin for begin, end, _ in part) for part in parts]
    assert times == pytest.approx([0.7] * 5)
    assert [sum(runs for *_, runs in part) for part in parts] == pytest.approx([7.0] * 5)
    assert all(end <= 1.0 or begin >= 2.0 for part in parts for begin, end, _ in part)


class Supply:
    """A source whose power is known at every time."""

    cpu_s = 0.0

    def __init__(self, watts: float) -> None:
        self.watts = watts

    def read_into(self, trace: Trace) -> None:
        trace.add_power(time.monotonic(), self.watts)


def measured_for(
    seconds: float, idle_w: float, run_w: float, **changes: float
) -> tuple[EnergyMeasurement, float, float]:
    """Measure idle power and then a run.

    Returns:
        The measurement, and when the run began and ended.
    """
    measuring = Measuring(
        sensor="ina219",
        rail="power1",
        method="power",
        scope=BOARD,
        chosen="test",
        **changes,
    )
    supply = Supply(idle_w)
    measured = EnergyMeasurement(measuring, supply)
    measured.observe_idle()
    supply.watts = run_w
    measured.on_progress(None)
    while measured._run.trace.readings < 2:
        time.sleep(0.005)
    began_s = time.monotonic()
    time.sleep(seconds)
    ended_s = time.monotonic()
    measured.stop()
    return measured, began_s, ended_s


def test_the_energy_of_an_inference_has_an_interval_and_what_is_above_idle_apart() -> None:
    measured, began_s, ended_s = measured_for(0.5, 2.0, 5.0, part_s=0.05, idle_s=0.4)
    runs = (ended_s - began_s) / 0.01
    found = measured.report([[(began_s, ended_s, runs)]])
    assert found["void"] is None
    assert found["power_w"] == pytest.approx(5.0)
    each, above, idle = (
        found[name] for name in ("per_inference", "per_inference_above_idle", "idle")
    )
    assert isinstance(each, dict)
    assert isinstance(above, dict)
    assert isinstance(idle, dict)
    assert idle["value"] == pytest.approx(2.0)
    assert each["value"] == pytest.approx(0.05)
    assert above["value"] == pytest.approx(0.03)
    assert each["ci95"][0] <= each["value"] <= each["ci95"][1]
    assert found["cpu_share"] is not None
    wrongs: list[object] = [
        [],
        [[]],
        [[(2, 1, 5)]],
        [[(began_s, ended_s, 0)]],
        "x",
        [[("a", 2, 3)]],
    ]
    for wrong in wrongs:
        void = measured.report(wrong)
        assert void["per_inference"] is None, wrong
        assert "did not state when" in str(void["void"])
    short = measured.report([[(began_s, began_s + 0.01, 1.0)]])
    assert "longer user_time" in str(short["void"])


def test_inferences_of_different_length_are_not_above_idle_by_their_length() -> None:
    measured, at_s, _ = measured_for(0.3, 6.0, 6.0, part_s=0.02, idle_s=0.2)
    spans: list[tuple[float, float, float]] = []
    for place in range(28):  # the median of the parts is not their mean
        spans.append((at_s, at_s + 0.01, 0.3 if place < 8 else 1.0))
        at_s += 0.01
    found = measured.report([spans])
    assert found["void"] is None
    assert found["per_inference"]["value"] == pytest.approx(0.06)  # type: ignore[index]
    assert found["per_inference_above_idle"] is None


def read_of(
    read: Callable[[Trace, float, bool], None], *, run_s: float, **changes: Any
) -> EnergyMeasurement:
    """Return a measurement whose readings come at exact times: idle before 0, the run from 0 on.

    Args:
        read: Adds one reading to a trace, at a time, of the idle board or of the run.
    """
    measuring = Measuring(
        **{"sensor": "ina219", "rail": "power1", "scope": BOARD, "chosen": "test", **changes}
    )
    measured = EnergyMeasurement(measuring, Supply(0.0))
    period_s = 1 / measuring.samples_per_s
    for number in range(round(measuring.idle_s / period_s)):
        read(measured._idle.trace, number * period_s - measuring.idle_s, True)
    for number in range(round(run_s / period_s) + 1):
        read(measured._run.trace, number * period_s, False)
    return measured


def test_an_energy_above_idle_whose_interval_contains_0_is_not_known() -> None:
    def unquiet(trace: Trace, at_s: float, idle: bool) -> None:
        other_w = 1.0 if at_s % 0.2 < 0.1 else -1.0
        trace.add_power(at_s, 6.0 + other_w if idle else 6.5)

    measured = read_of(
        unquiet, run_s=0.6, method="power", part_s=0.05, samples_per_s=100.0, idle_s=0.6
    )
    found: Any = measured.report([[(0.05, 0.5, 40.0)]])
    assert found["idle"]["ci95"][0] < 5.5 < 6.5 < found["idle"]["ci95"][1]
    assert found["per_inference"]["value"] == pytest.approx(6.5 * 0.45 / 40, rel=0.1)
    above = found["per_inference_above_idle"]
    assert above is None or above["ci95"][0] > 0


def test_a_meter_that_stands_still_is_stated_with_the_time_for_which_it_did() -> None:
    measured = read_of(
        lambda trace, at_s, idle: trace.add_count(at_s, 7.0, None),
        run_s=0.4, sensor="meter", rail="", method=COUNTER, scope="meter", samples_per_s=100.0,
        part_s=0.05, idle_s=0.1,
    )  # fmt: skip
    spans = [(0.05 + at / 1000, 0.05 + (at + 1) / 1000, 1.0) for at in range(200)]
    void = str(measured.report([spans])["void"])
    found = re.search(r"stood still for ([0-9.]+) s", void)
    assert found, void
    assert float(found[1]) >= 0.05, "not of a single inference"


def test_a_counter_may_stand_still_for_a_single_inference() -> None:
    def coarse(trace: Trace, at_s: float, idle: bool) -> None:
        trace.add_count(at_s, 100 + 0.2 * ((at_s + 1.0) * 5 // 0.2), None)  # steps of 40 ms

    measured = read_of(
        coarse,
        run_s=0.6, sensor="meter", rail="", method=COUNTER, scope="meter", samples_per_s=200.0,
        part_s=0.1, idle_s=0.2,
    )  # fmt: skip
    spans = [(0.05 + at / 1000, 0.05 + (at + 1) / 1000, 1.0) for at in range(400)]
    found: Any = measured.report([spans])
    assert found["void"] is None
    assert found["per_inference"]["value"] == pytest.approx(0.005, rel=0.5)


def test_a_launch_that_drew_less_than_the_idle_board_leaves_nothing_above_idle() -> None:
    """A meter of 5 W: what is above is noise, without an interval that could leave out 0."""

    def steady(trace: Trace, at_s: float, idle: bool) -> None:
        trace.add_power(at_s, 5.0 if idle else (5.001, 5.003, 4.999)[min(int(at_s / 0.3), 2)])

    measured = read_of(
        steady,
        run_s=0.9, sensor="meter", rail="", method=COUNTER, scope="meter", samples_per_s=100.0,
        part_s=0.05, idle_s=0.4,
    )  # fmt: skip
    launches = [[(0.3 * each + 0.03, 0.3 * each + 0.28, 25.0)] for each in range(3)]
    found = measured.report(launches)
    assert found["void"] is None
    assert found["per_inference"]["ci95"] is not None  # type: ignore[index]
    assert found["per_inference_above_idle"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("/no/such/meter",), "can't be started"),
        ((sys.executable, "-c", "print('lots')"), "'lots', which is no number"),
        ((sys.executable, "-c", "print('1_975')"), "'1_975', which is no number"),
        ((sys.executable, "-c", "print('nan')"), "'nan', which is no number"),
        ((sys.executable, "-c", "print('1e999')"), "'1e999', which is no number"),
        ((sys.executable, "-c", "print()"), "'', which is no number"),
        ((sys.executable, "-c", "print(-3)"), "printed -3, and joules since some start are never"),
        ((sys.executable, "-c", "raise SystemExit(7)"), "ended with status 7"),
    ],
)
def test_a_meter_that_does_not_work_is_the_labs_to_mend(words: tuple[str, ...], said: str) -> None:
    measured, why = energy_of(BoardFacts(energy_command=words), Path("/none"))
    assert why is None
    assert measured is not None
    assert isinstance(measured._source, MeterSource)
    measured._source.read_into(measured._run.trace)
    found = measured.report([[(0.0, 1.0, 5.0)]])
    assert said in str(found["void"])
    assert "for the lab to mend" in str(found["void"])
    assert found["joules"] is found["power_w"] is found["per_inference"] is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 60; echo 1", "took longer than 0.3 s"),
        ("echo 5; sleep 60 &", "took longer than 0.3 s"),
        ("yes", "printed more than 1000 bytes"),
    ],
)
def test_a_meter_that_does_not_end_is_left_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr("edgeyard.devices.runner.energy._METER_TIMEOUT_S", 0.3)
    source = MeterSource(["sh", "-c", script])
    began_s = time.monotonic()
    source.read_into(Trace("meter", 1.0))
    assert time.monotonic() - began_s < 20
    assert source.problem == said


@pytest.mark.parametrize("days", [1, 196, 2000])
def test_parts_are_found_however_long_the_host_is_up(days: int) -> None:
    for number in range(40):
        begin_s = days * 86_400.0 + 0.123456789 * number
        steps = [0.0137 + 1e-4 * (each % 7) for each in range(300)]
        ends = list(itertools.accumulate(steps, initial=begin_s))
        parts = parts_of([(a, b, 1.0) for a, b in itertools.pairwise(ends)], 0.5)
        assert sum(runs for part in parts for _, _, runs in part) == pytest.approx(300)


def test_what_a_run_states_of_its_inferences_is_not_believed() -> None:
    measured, _ = energy_of(BoardFacts(energy_command=("/no/such/meter",)), Path("/none"))
    assert measured is not None
    assert measured.report([[[10**400, 1, 1]]])["per_inference"] is None
    assert measured.of_part([[10**400, 1, 1]])["energy_j"] is None


def test_a_slice_of_a_machine_has_no_sensors_of_its_own(tmp_path: Path) -> None:
    write_tree(tmp_path, ORIN_NX)
    assert energy_of(BoardFacts(emulated=True), tmp_path) == (None, None)
    assert energy_of(BoardFacts(energy_s=6.0), tmp_path) == (None, None), "the host's meter does"
    named, _ = energy_of(BoardFacts(emulated=True, energy_rail="VDD_IN"), tmp_path)
    assert named is not None
    assert energy_of(BoardFacts(), tmp_path / "none") == (None, None)
    _, why = energy_of(BoardFacts(energy_rail="VDD_X"), tmp_path)
    assert "VDD_X" in str(why)


def test_the_boards_file_names_a_rail_or_a_meter() -> None:
    entry = board_entry(energy_command=["/usr/local/bin/joules", "--socket", "3"])
    inventory = Inventory.from_json({"rpi4b": [entry]})
    assert inventory.boards[0].energy_command == ("/usr/local/bin/joules", "--socket", "3")
    assert inventory.to_json()["rpi4b"][0]["energy_command"] == entry["energy_command"]
    for wrong, said in (
        ({"energy_command": []}, "energy_command"),
        ({"energy_command": [""]}, "begin with a program"),
        ({"energy_rail": "a\nb"}, "energy_rail"),
        ({"energy_rail": "VDD_IN", "energy_command": ["/x"]}, "not both"),
    ):
        with pytest.raises(ConfigError, match=said):
            Inventory.from_json({"rpi4b": [board_entry(**wrong)]})


def test_facts_of_a_slice_go_on(tmp_path: Path) -> None:
    entry = board_entry(local={"cpus": [0]}, energy_rail="VDD_IN")
    (board,) = Inventory.from_json({"rpi4b": [entry]}).boards
    assert board.local == LocalSlice(cpus=(0,), threads=1)
    assert board.energy_rail == "VDD_IN"


def test_the_clock_of_a_board_behind_its_host_is_brought_to_the_hosts() -> None:
    measuring = Measuring(
        sensor="meter", rail="", method=COUNTER, scope="meter", chosen="test", part_s=0.05
    )
    measured = EnergyMeasurement(measuring, Supply(4.0))
    ahead_s = 1234.5  # of the board's clock
    measured.on_progress(time.monotonic() + ahead_s - 0.2)  # a slow message
    time.sleep(0.01)
    measured.on_progress(time.monotonic() + ahead_s)
    began_s = time.monotonic()
    time.sleep(0.15)
    ended_s = time.monotonic()
    measured.stop()
    found = measured.report([[(began_s + ahead_s, ended_s + ahead_s, 10.0)]])
    assert "no two readings" in str(found["void"]), "no idle power was observed"
    assert found["power_w"] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("energy", "said"),
    [
        (None, ""),
        ({"void": "no rail"}, "Energy is not known: no rail."),
        (
            {
                **{"sensor": "joules", "scope": "meter", "method": "energy counter"},
                **{"per_inference": {"value": 0.1}, "idle": {"value": 5.0}},
            },
            "Energy by joules (an external meter): energy counter. Its power does not differ from "
            "that of the idle board.",
        ),
        (
            {
                **{"sensor": "joules", "scope": "meter", "method": "energy counter"},
                **{"per_inference": {"value": 0.1}, "idle": {"value": 5.0}, "samples_per_s": 1.0},
                "per_inference_above_idle": {"value": 1e-3, "ci95": [0.0, 0.002]},
            },
            "Energy by joules (an external meter): energy counter, read once a second. Its "
            "power does not differ from that of the idle board.",
        ),
        (
            {
                **{"sensor": "joules", "scope": "meter", "method": "energy counter"},
                **{"per_inference": {"value": 0.1, "ci95": None, "parts": 4}, "joules": 9.0},
                "void": "joules ended with status 1",
            },
            "Energy by joules (an external meter): energy counter. Its 4 parts are too few for an "
            "interval: state more inferences, a longer load_duration or a longer user_time. Some "
            "of it is void: joules ended with status 1.",
        ),
        *(
            (
                {
                    **{"sensor": "joules", "scope": "meter", "method": "energy counter"},
                    **{"joules": None, "void": "it stood still", **known},
                },
                "Energy by joules (an external meter): energy counter. Some of it is void: it "
                "stood still.",
            )
            for known in ({"power_w": 5.0}, {"idle": {"value": 5.0}})
        ),
        (
            {
                **{"sensor": "joules", "scope": "meter", "method": "energy counter"},
                **{"joules": None, "idle": None, "void": "joules ended with status 1"},
            },
            "Energy by joules (an external meter): energy counter. All of it is void: joules ended "
            "with status 1.",
        ),
        (
            {
                "sensor": "ina3221",
                "rail": "VDD_IN",
                "scope": "board",
                "method": "power",
                "samples_per_s": 10.0,
                "void": None,
            },
            "Energy by ina3221/VDD_IN (the whole board): power, read 10 times a second.",
        ),
    ],
)
def test_people_read_what_was_measured(energy: object, said: str) -> None:
    assert energy_sentence({"energy": energy}) == said


@pytest.mark.parametrize("parts", [MIN_SAMPLES - 1, MIN_SAMPLES])
def test_parts_are_too_few_where_they_are_too_few_samples_of_an_interval(parts: int) -> None:
    per_inference = {"value": 0.1, "ci95": None, "parts": parts}
    sentence = energy_sentence({"energy": {"sensor": "joules", "per_inference": per_inference}})
    assert ("too few for an interval" in sentence) == (parts < MIN_SAMPLES)
