"""Results state what their board's repeated numbers vary by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgeyard.benchmark_api.sdk.comparison import compare
from tests.builders.api import Api, running
from tests.builders.descriptions import description


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload("model.onnx")
        yield found


def measured(
    api: Api, p50: float, verdict: str = "comparable", half: float = 0.002, **changes: Any
) -> str:
    """A benchmark that ended with this number, by itself known to 0.2 % unless stated; its id."""
    body = api.as_().post("/v1/benchmarks", json=description(**changes)).json()
    benchmark_id = str(body["benchmark_id"])
    api.dispatched(benchmark_id)
    interval = {"p50_ci95": [p50 * (1 - half), p50 * (1 + half)], "p50_ci95_degrees": 3.0}
    api.measured(
        benchmark_id,
        p50,
        inference_latency={"unit": "ms", "p50": p50, **interval},
        verdict={"verdict": verdict, "reasons": []},
    )
    return benchmark_id


def rows(api: Api, *benchmark_ids: str) -> list[dict[str, Any]]:
    answer = api.as_().get("/v1/results", params={"benchmark_id": benchmark_ids})
    return list(answer.json()["items"])


def test_a_result_includes_what_its_board_varies_by_between_runs(api: Api) -> None:
    first = measured(api, 10.0)
    (row,) = rows(api, first)
    assert row["between_runs"]["source"] == "default", "it is not judged by itself"
    assert row["primary_repeat_low"] < row["p50_low_ms"] < row["p50_high_ms"]
    assert row["p50_high_ms"] < row["primary_repeat_high"]

    others = [measured(api, p50) for p50 in (10.1, 9.8, 10.3, 9.9, 10.4, 9.7, 10.2)]
    measured(api, 99.0, verdict="suspect")  # no comparable number
    measured(api, 50.0, parameters={"threads": 2})  # other work, once
    (row,) = rows(api, first)
    between = row["between_runs"]
    assert (between["source"], between["numbers"]) == ("board", 7)
    assert 0.01 < between["share"] < 0.05
    summary = api.as_().get(f"/v1/benchmarks/{first}/results").json()["summary"]
    assert summary["between_runs"] == between

    pair = {one["benchmark_id"]: one for one in compare(rows(api, first, others[3]))}
    slower = pair[first]
    assert isinstance(slower["ratio_low"], float)
    assert slower["ratio_low"] < 1, "1 % is less than it varies by"


def test_boards_without_repeated_numbers_use_those_of_their_family(api: Api) -> None:
    for p50 in (10.0, 10.4, 9.7, 10.2):
        measured(api, p50)
    waiting = api.as_().post("/v1/benchmarks", json=description()).json()["benchmark_id"]
    assert api.dispatched(waiting).target_uid == "rpi4b-0001-0001"  # holds the first board
    (row,) = rows(api, measured(api, 12.0))
    assert row["target_uid"] == "rpi4b-0001-0002"
    assert row["between_runs"]["source"] == "family"
    assert row["between_runs"]["numbers"] == 4
    assert "its family's boards" in row["between_runs"]["sentence"]


def test_a_number_that_is_hardly_known_has_no_interval_of_repeats(api: Api) -> None:
    wide, usual = measured(api, 0.009, verdict="suspect", half=684.0), measured(api, 0.01)
    known, unknown = sorted(rows(api, wide, usual), key=lambda row: row["benchmark_id"] == wide)
    assert unknown["p50_ms"] == 0.009
    assert (unknown["primary_repeat_low"], unknown["primary_repeat_high"]) == (None, None)
    assert known["primary_repeat_low"] < 0.01 < known["primary_repeat_high"]
    assert [one["ratio_low"] for one in compare([known, unknown])] == [None, None]
