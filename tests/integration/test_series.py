"""Series of results over time, by the API, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from tests.builders.api import Api, running
from tests.builders.measured import DAY, Measured, store_failed, store_measured

BOARD = "rpi4b-0001-0001"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, each_database: str) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp(each_database)) as started:
        yield started


def measured(series: str, number: int, **more: Any) -> Measured:
    given: dict[str, Any] = {"model": "net.onnx", "ended_at": DAY + timedelta(days=number)}
    return Measured(benchmark_id=f"{series}-{number}", series=series, **(given | more))


def points(api: Api, series: str, user: str = "alice", **query: str) -> dict[str, Any]:
    answer = api.as_(user).get("/v1/series/points", params={"series": series, **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_new_versions_stay_in_a_series_and_points_state_what_may_explain_them(api: Api) -> None:
    store_measured(
        api.store,
        [
            measured("detector", 0, model="net-1.onnx", p50_ms=10.0),
            measured("detector", 1, p50_ms=50.0, tags=("edgeyard-check",)),
            measured("detector", 2, model="net-2.onnx", p50_ms=12.0, git_commit="abc1234"),
            measured("detector", 3, model="net-2.onnx", p50_ms=70.0, verdict="invalid"),
            measured("detector", 60, model="net-2.onnx", version="1.24.0", p50_ms=6.0, kernel="7"),
        ],
    )
    found = points(api, "detector")
    rows = found["items"]
    assert [each["benchmark_id"] for each in rows] == [f"detector-{day}" for day in (0, 2, 3, 60)]
    assert [each["ratio"] for each in rows] == [None, pytest.approx(1.2), None, pytest.approx(0.5)]
    assert len({each["series_id"] for each in rows}) == 1
    assert rows[1]["changes"] == [f"model {rows[1]['workload']['model_sha256'][:8]}"]
    assert rows[3]["changes"] == ["ort version 1.24.0", "kernel 7"]
    explained = ("git_commit", "runner", "governor", "temperature_c", "other_load", "firmware")
    assert [rows[1][name] for name in explained] == [
        "abc1234",
        "0.9",
        "performance",
        51.5,
        0.02,
        "2026-05-11",
    ]
    assert (found["left_out"], found["truncated"]) == (0, False)
    assert points(api, "detector", user="bob")["items"] == []
    assert len(points(api, "detector", user="operator")["items"]) == 4
    since = "2026-11-03T12:00:00Z"
    assert len(points(api, "detector", submitted_from=since)["items"]) == 3
    (listed,) = api.as_().get("/v1/series", params={"series": "detector"}).json()["items"]
    assert listed["series_id"] == rows[0]["series_id"]
    assert (listed["points"], listed["target_uid"]) == (4, BOARD)
    assert listed["last_at"].startswith("2027-01-01")


def test_other_inputs_parameters_or_boards_under_one_lineage_are_series_of_their_own(
    api: Api,
) -> None:
    wide = {"input": {"shape": [8, 3, 224, 224], "dtype": "float32"}}
    store_measured(
        api.store,
        [
            measured("mixed", 0),
            measured("mixed", 1, feeds=wide),
            measured("mixed", 2, parameters={"threads": 2}),
            measured("mixed", 3, board="rpi4b-0001-0002"),
            measured("mixed", 4),
        ],
    )
    rows = points(api, "mixed")["items"]
    assert [each["group"] for each in rows] == [1, 2, 3, 4, 1]
    listed = api.as_().get("/v1/series", params={"series": "mixed"}).json()["items"]
    assert {each["series_id"] for each in listed} == {each["series_id"] for each in rows}
    assert sorted(each["points"] for each in listed) == [1, 1, 1, 2]
    assert sorted(each["measures"] for each in listed) == ["", "", "", "threads=2"]


def test_a_benchmark_that_states_no_series_is_in_that_of_its_model(api: Api) -> None:
    store_measured(api.store, [measured("", 0, model="unnamed.onnx")])
    (row,) = points(api, "unnamed.onnx")["items"]
    assert row["ratio"] is None
    assert api.as_().get("/v1/benchmarks/-0").json()["series"] == "unnamed.onnx"


def test_constant_values_have_ratios_of_one_and_are_not_shown_to_differ(api: Api) -> None:
    store_measured(api.store, [measured("constant", day, half_width=0.0) for day in range(3)])
    rows = points(api, "constant")["items"]
    assert [each["ratio"] for each in rows] == [None, 1.0, 1.0]
    assert not any(each["shown_to_differ"] for each in rows)


def test_a_shift_of_a_series_is_suspected_where_it_begins(api: Api) -> None:
    levels = [10.0 + 0.1 * (day % 3) + (0.8 if day >= 20 else 0.0) for day in range(30)]
    store_measured(
        api.store,
        [measured("shifted", day, p50_ms=level) for day, level in enumerate(levels)]
        + [measured("shifted", day, parameters={"threads": 2}) for day in range(40, 43)],
    )
    rows = points(api, "shifted")["items"]
    (first,) = [each for each in rows if each["suspected"]]
    assert first["benchmark_id"] == "shifted-20"
    found = first["suspected"]
    assert found["low"] < 0.08 < found["high"]


def test_values_that_no_model_has_leave_the_page_readable(api: Api) -> None:
    levels = (1e-300, 1e12, 1.0, 1e-17)
    store_measured(
        api.store,
        [
            measured("odd", number, p50_ms=level * (1 + 0.001 * (number % 3)))
            for number, level in enumerate(each for each in levels for _ in range(6))
        ],
    )
    assert len(points(api, "odd")["items"]) == 24


def test_clocks_that_jumped_leave_each_point_once_and_suspect_nothing(api: Api) -> None:
    jumps = {10: timedelta(days=400), 11: -timedelta(days=400), 20: timedelta(0)}
    store_measured(
        api.store,
        [
            measured("jumped", day, p50_ms=10.0 + 0.1 * (day % 3))
            if day not in jumps
            else measured("jumped", day, ended_at=DAY + jumps[day], p50_ms=10.0)
            for day in range(30)
        ],
    )
    rows = points(api, "jumped")["items"]
    assert len({each["benchmark_id"] for each in rows}) == len(rows) == 30
    times = [each["ended_at"] for each in rows]
    assert times == sorted(times)
    assert not any(each["suspected"] for each in rows)
    (listed,) = api.as_().get("/v1/series", params={"series": "jumped"}).json()["items"]
    assert listed["points"] == 30


def test_500_points_take_as_many_statements_as_five(api: Api) -> None:
    store_measured(api.store, [measured("short", number) for number in range(5)])
    many = [measured("long", n, ended_at=DAY + timedelta(minutes=n)) for n in range(501)]
    store_measured(api.store, many)
    counts = []
    for series, expected in (("short", 5), ("long", 500), ("short", 5), ("long", 500)):
        heard: list[str] = []

        def note(*given: object, heard: list[str] = heard) -> None:
            heard.append(str(given[2]))

        event.listen(api.store._reader, "before_cursor_execute", note)
        found = points(api, series)
        event.remove(api.store._reader, "before_cursor_execute", note)
        assert len(found["items"]) == expected
        assert found["truncated"] is (series == "long")
        of_results = [each for each in heard if "benchmarks" in each or "reports" in each]
        counts.append(len(of_results))
    assert counts[2] == counts[3] > 0, counts
    assert counts[3] <= 4, counts  # benchmarks and those that failed, files, reports


def test_series_come_in_bounded_pages_each_once(api: Api) -> None:
    store_measured(api.store, [measured(f"paged-{n:03}", 0, user_id="bob") for n in range(23)])
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "10"} | ({"cursor": cursor} if cursor else {})
        answer = api.as_("bob").get("/v1/series", params=params).json()
        assert len(answer["items"]) <= 10
        seen += [each["lineage"] for each in answer["items"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [f"paged-{n:03}" for n in range(23)]
    refused = api.as_("bob").get("/v1/series", params={"cursor": "bm9uc2Vuc2U"})
    assert refused.status_code == 422
    assert api.as_("bob").get("/v1/series", params={"limit": "501"}).status_code == 422


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("series", "x" * 129),
        ("series", "canary/digits-ort"),
        ("name", "canary/digits-ort"),
        ("git_commit", "a b"),
        ("git_commit", "a" * 65),
        ("link", "javascript:alert(1)"),
        ("link", "https://user:secret@ci.example.org/7"),
        ("link", "HTTPS://token@ci.example.org"),
        ("series", "   "),
        ("name", " "),
    ],
)
def test_what_cannot_be_a_series_a_commit_or_a_link_is_refused(
    api: Api, field: str, value: str
) -> None:
    body = {
        "model": "https://example.org/net.onnx",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        field: value,
    }
    answer = api.as_().post("/v1/benchmarks", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/{field}"


def test_runs_that_failed_are_with_the_series_in_the_time_of_its_results(api: Api) -> None:
    store_measured(api.store, [measured("breaks", 1), measured("breaks", 3)])
    memory = Failure(category=FailureCategory.OUT_OF_MEMORY, sentence="It needs 5 GiB.")
    store_failed(api.store, [measured("breaks", 2), measured("breaks", 4)], memory)
    found = points(api, "breaks")
    assert len(found["items"]) == 2
    first, last = found["failed"]
    assert first["failure"] == {"category": "out_of_memory", "sentence": "It needs 5 GiB."}
    assert first["ended_at"] < found["items"][1]["ended_at"] < last["ended_at"]
    assert points(api, "breaks", user="bob")["failed"] == []
    assert points(api, "breaks", target_uid="rpi4b-0001-0009")["failed"] == []
