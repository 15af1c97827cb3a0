"""The tables of trained models in generated labs, made small."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import trained_models

pytestmark = pytest.mark.slow


def test_tables_have_a_row_for_each_model_and_size_of_a_lab() -> None:
    gates = trained_models.gate_table(20)
    assert [line.split("`")[1] for line in gates[2:]] == [
        *("run_time", "failure", "loading", "measurement")
    ]
    reported: list[str] = []
    coverage = trained_models.coverage_table([20, 24], 1, reported.append)
    assert reported == ["lab 1 of 1, 160 runs", "lab 1 of 1, 192 runs"]
    assert [line.split(" | ")[0] for line in coverage[2:]] == [
        *("| `run_time`, 160", "| `run_time`, 192", "| `loading`, 160", "| `loading`, 192")
    ]
    widths = {line.count("|") for line in coverage}
    assert len(widths) == 1


def test_a_lab_without_a_cause_has_loading_and_verdicts_too() -> None:
    rows = trained_models.lab_rows(3, 1, cause=False)
    assert len(rows) == 3 * trained_models.BOARDS
    assert (rows.loading_s > 0).all()
    judged = rows.incomparable[np.isfinite(rows.incomparable)]  # not the runs that failed
    assert set(judged.tolist()) == {0.0, 1.0}
