"""What the shipped models are trained and judged on."""

import numpy as np
import pytest

from benchmarks.examples import BEGAN, Run, examples, sweep_runs
from benchmarks.judge import brier_and_auc, pinball_and_mape
from benchmarks.mlperf import FILE, TRACES, chip_of, read_runs
from benchmarks.train import COLUMNS, SWEEP, seen
from edgeyard.scheduler.learning.features import COLUMNS as KNOWN

QUANTILES = (0.1, 0.5, 0.9)


def made(number: int, **more: object) -> Run:
    values: dict[str, object] = {
        "system": f"s{number % 3}",
        "family": "emu",
        "model": f"m{number % 2}",
        "engine": "ort",
        "variant": "",
        "nb_inference": 10,
        "run_s": 1.0 + number,
    }
    return Run(**{**values, **more})  # type: ignore[arg-type]


def test_the_sweep_is_small_and_holds_failures_that_happened() -> None:
    assert SWEEP.stat().st_size < 1_000_000
    runs = sweep_runs(SWEEP)
    assert len({run.system for run in runs}) >= 20
    assert {"", "timeout", "out_of_memory"} <= {run.failure for run in runs}
    timed_out = [run for run in runs if run.failure == "timeout"]
    assert all(run.user_time_s and run.run_s >= 0.9 * run.user_time_s for run in timed_out)
    assert set(COLUMNS) <= set(KNOWN)


def test_a_run_is_never_in_the_past_that_it_is_seen_with() -> None:
    """Of a lone model with one run, nothing but broader groups can be known."""
    runs = [made(number) for number in range(12)] + [made(1, model="lone", run_s=4000.0)]
    found = seen(runs, seed=0)
    lone = found.models == "lone"
    reported = found.values["log_history_s"][lone]
    assert (reported[~np.isnan(reported)] < np.log(400)).all()


def test_examples_show_what_the_scheduler_would_see() -> None:
    past = [made(0, run_s=2.0), made(0, run_s=2.0)]
    reported = examples(
        [made(0, threads=4, host_cpu=0.25, user_time_s=60.0)], past, COLUMNS, QUANTILES
    )
    values = {name: float(value[0]) for name, value in reported.values.items()}
    assert values["log_board_threads"] == 2.0
    assert values["host_cpu"] == 0.25
    assert values["log_user_time_s"] == pytest.approx(np.log(60))
    assert values["log_history_s"] == pytest.approx(np.log(2), abs=0.05)
    assert np.isnan(values["log_model_bytes"])
    assert BEGAN.tzinfo is not None


def test_figures_are_those_of_their_definitions() -> None:
    known = examples([made(n, model="m") for n in range(4)], [], COLUMNS, QUANTILES)
    tested = examples([made(3, model="m")], [made(3, model="m")] * 2, COLUMNS, QUANTILES)
    predicted = np.log([[2.0, 4.0, 8.0]])
    (learned, *_) = pinball_and_mape("new", [(tested, predicted, np.zeros(1), known)], QUANTILES)
    # The run took 4 s: 0.1 * ln(4/2) below, nothing in the middle, 0.1 * ln(8/4) above.
    assert learned.figures["pinball"] == pytest.approx(0.2 * np.log(2) / 3)
    assert learned.figures["MAPE"] == pytest.approx(0.0)
    assert learned.figures["coverage"] == 1.0
    two = examples([made(0, failure="timeout"), made(1)], [], COLUMNS, QUANTILES)
    (risk, *_) = brier_and_auc("new", [(two, np.zeros((2, 3)), np.array([0.8, 0.4]), known)])
    assert risk.figures["Brier"] == pytest.approx((0.04 + 0.16) / 2)
    assert risk.figures["AUC"] == 1.0


@pytest.mark.parametrize(
    ("processor", "accelerator", "chip"),
    [
        ("Arm Cortex-A72 MP4", "-", "bcm2711"),
        ("BCM2835 Arm Cortex-A72 r0p3", "-", "bcm2711"),
        ("Arm Cortex-A72 MP4", "Coral USB Accelerator", "bcm2711"),
        ("NVIDIA Carmel (ARMv8.2)", "NVIDIA AGX Xavier", "xavier"),
        ("AMD EPYC 7742", "NVIDIA A100-SXM-80GB (1x1g.10gb MIG)", "a100"),
        ("Intel(R) Core(TM) i7-7820HQ CPU @ 2.90GHz", "Hailo8", "hailo8"),
    ],
)
def test_one_chip_is_one_board(processor: str, accelerator: str, chip: str) -> None:
    assert chip_of(processor, accelerator) == chip


def test_the_threads_of_one_machine_are_no_boards_of_their_own() -> None:
    if not (TRACES / FILE).is_file():
        pytest.skip(f"{FILE} is not beside this checkout: it is not part of Edgeyard")
    runs = read_runs(TRACES)
    chips = {run.system for run in runs}
    boards = {run.board for run in runs}
    assert len(chips) < len(boards) / 3
    of_xavier = {run.board for run in runs if run.system == "xavier"}
    assert len(of_xavier) > 10  # power modes, fans, frameworks of one board
