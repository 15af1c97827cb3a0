"""Pages of benchmarks: figures of a run, waits by reason, why, the log, filters, raising."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.benchmark_api.figures.runs import read_latencies
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.ports import LogChunk
from tests.builders.answers import concurrency_report, report, soak_report
from tests.builders.api import Api, running
from tests.builders.pages import as_
from tests.builders.records import an_outcome

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")

LATENCIES = np.array([1.0, 2.0, 3.0, 50.0])


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("results")) as found:
        found.upload()
        yield found


def npy(values: NDArray[Any]) -> bytes:
    data = io.BytesIO()
    np.save(data, values)
    return data.getvalue()


def test_the_fields_of_a_load_have_units(api: Api) -> None:
    load: dict[str, Any] = {"load": "server", "load_bound": "20 ms", "load_duration": "30 s"}
    benchmark_id = api.submit(**load, load_rate=50, load_percentile=97.5)
    page = as_(api).get(f"/ui/benchmarks/{benchmark_id}").text
    for stated in ("20 ms", "30 s", "50 queries/s", "97.5 %"):
        assert f'<dd class="lines">{stated}</dd>' in page


DESCRIPTIONS: Mapping[str, Mapping[str, Any]] = {
    "soak": {"soak": "10m"},
    "concurrency": {"concurrency": "1,2,4,8", "parameters": {"threads": 1}},
}


def measured(api: Api, latencies: bytes, **more: Any) -> str:
    """A benchmark whose result is there."""
    kind = more.get("benchmark_type", "TYPE1")
    wanted = next((each for name, each in DESCRIPTIONS.items() if name in more), {})
    benchmark_id = api.submit(**wanted) if kind == "TYPE1" else api.submitted_as(kind)
    job = api.dispatched(benchmark_id).job_id
    headers = {"Authorization": "Bearer upload-token-1"}
    for name, content in (
        ("latencies.npy", latencies),
        ("report.json", _report(benchmark_id, **more)),
    ):
        where = f"/upload/{job}/{name}"
        answer = api.as_(None).put(where, content=content, headers=headers)
        assert answer.status_code < 300, answer.text
    return benchmark_id


def _report(benchmark_id: str, **more: Any) -> bytes:
    warmup = {
        "settled": True,
        "runs": 2,
        "seconds": 0.1,
        "window": 2,
        "rule": "x",
        "latencies_ms": [9.0, 8.0],
    }
    return json.dumps(report(benchmark_id=benchmark_id, warmup=warmup, **more)).encode()


def test_a_result_shows_its_distribution_and_its_run_with_the_warm_up(api: Api) -> None:
    page = as_(api).get(f"/ui/benchmarks/{measured(api, npy(LATENCIES))}").text
    assert page.count('<figure class="edgeyard-figure">') == 2
    assert "Distribution of the latencies" in page
    assert "edgeyard-warm-up" in page
    assert "<td>50<td>1<td>" in page.replace("\u2068", "").replace("\u2069", "")


def test_the_warm_up_of_a_language_model_is_not_drawn_with_its_tokens(api: Api) -> None:
    asked_for = {"prompt_length": 16, "output_length": 8, "requests": 4, "preset": None}
    page = as_(api).get(f"/ui/benchmarks/{measured(api, npy(LATENCIES), generation=asked_for)}")
    assert "Latencies in their order" in page.text
    assert "edgeyard-warm-up" not in page.text


def test_an_interval_of_callers_that_is_not_known_is_a_dash_and_an_end_a_question_mark(
    api: Api,
) -> None:
    curve = concurrency_report()
    unknown = {"runs_per_s_low": None, "runs_per_s_high": None, "p99_high_ms": None}
    curve["levels"] = [each | unknown for each in curve["levels"]]
    page = as_(api).get(f"/ui/benchmarks/{measured(api, npy(LATENCIES), concurrency=curve)}").text
    assert "– to –" not in page
    assert '<td class="n" data-none>–</td>' in page
    assert " to ?</td>" in page


def test_the_interval_of_a_repeated_run_is_named_so(api: Api) -> None:
    page = as_(api).get(f"/ui/benchmarks/{measured(api, npy(LATENCIES))}").text
    assert "95 % interval of a repeated run" in page


def test_a_soak_shows_its_windows_with_temperature_and_when_it_was_steady(api: Api) -> None:
    page = as_(api).get(f"/ui/benchmarks/{measured(api, npy(LATENCIES), soak=soak_report())}").text
    assert "Steady from 4 min on, p50 150 ms" in page
    assert "Median latency of each 60 s" in page
    assert "Temperature at the end of each window" in page
    assert "Mean clock" not in page, "this board does not report its clock"
    assert page.count('<figure class="edgeyard-figure">') == 4
    assert "Windows of 60" in page


def test_callers_at_once_show_their_curve_and_its_knee(api: Api) -> None:
    curve = concurrency_report()
    page = as_(api).get(f"/ui/benchmarks/{measured(api, npy(LATENCIES), concurrency=curve)}").text
    assert "The knee is at 2 callers" in page
    assert "Throughput of all callers together" in page
    assert "Latency of an inference" in page
    assert page.count('<figure class="edgeyard-figure">') == 4


@pytest.mark.parametrize(
    ("load", "reported", "parts"),
    [("soak", soak_report(), "windows"), ("concurrency", concurrency_report(), "levels")],
    ids=["soak", "concurrency"],
)
def test_parts_of_a_load_have_joules_where_they_are_known(
    api: Api, load: str, reported: dict[str, Any], parts: str
) -> None:
    def page_of(**changes: object) -> str:
        rows = [each | changes for each in reported[parts]]
        report: Any = {load: reported | {parts: rows}}
        return as_(api).get(f"/ui/benchmarks/{measured(api, npy(LATENCIES), **report)}").text

    assert "Energy of an inference</th>" not in page_of()
    page = page_of(energy_j=0.123, energy_low_j=0.12, energy_high_j=0.13)
    assert "Energy of an inference</th>" in page
    assert page.count("0.123 J") == len(reported[parts])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        npy(LATENCIES)[:-1],
        npy(np.array([[1.0]])),
        npy(np.array(["x"])),
        npy(LATENCIES).replace(b"(4,)", b"(9,)"),
        npy(np.array([np.nan, -1.0])),
    ],
)
def test_a_file_that_is_no_list_of_latencies_shows_no_figure(data: bytes) -> None:
    assert read_latencies(io.BytesIO(data)) == []


def test_the_timeline_splits_waits_by_their_reason(api: Api) -> None:
    benchmark_id = api.submit()
    reasons = (
        (WaitingReason.PRIORITY, "1 benchmark comes first", 0),
        (WaitingReason.BOARD_BUSY, "its board is busy", 60),
        (WaitingReason.PRIORITY, "2 benchmarks come first", 180),
    )
    with api.store.write() as uow:
        begun = uow.benchmarks.get(benchmark_id).submit_time
        for reason, sentence, after_s in reasons:
            benchmark = uow.benchmarks.get(benchmark_id)
            waiting = WaitReason(reason=reason, sentence=sentence)
            lifecycle.wait(uow, [(benchmark, waiting, 50)], begun + timedelta(seconds=after_s))
    api.clock.ahead += timedelta(seconds=1000)
    try:
        page = as_(api).get(f"/ui/benchmarks/{benchmark_id}").text
    finally:
        api.clock.ahead -= timedelta(seconds=1000)
    waits = re.findall(r"</progress> ([a-z ]+) (\d[^<]*)</li>", page)
    assert [reason for reason, _ in waits] == ["priority", "board busy"]
    assert waits[1][1] == "2 min 0 s"
    assert "waited 2 min 0 s: its board is busy" in page
    assert page.index("waited 2 min 0 s: its board") < page.rindex("2 benchmarks come first")


def test_why_compares_boards_costs_and_scorers_and_says_what_would_change_it(api: Api) -> None:
    benchmark_id = api.submit()
    page = as_(api).get(f"/ui/benchmarks/{benchmark_id}/why")
    assert page.status_code == 200
    plain = re.sub(r"<[^>]+>", "", page.text)
    explanation = api.as_().get(f"/v1/benchmarks/{benchmark_id}/explanation?changes=1")
    if explanation.status_code == 404:
        assert "No decision on it is known yet" in plain
        return
    for verdict in explanation.json()["verdicts"]:
        assert verdict["target_uid"] in plain


def test_the_log_of_a_run_is_read_again_and_shows_codes_as_texts(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_id = api.submit()
    api.dispatched(benchmark_id)
    text = b"\x1b[31mred\x1b[0m <b>bold</b>\nsecond line\n"

    def logs(job_id: str, stream: str, offset: int) -> LogChunk:
        return LogChunk(data=text[offset:], next_offset=len(text), ended=True)

    monkeypatch.setattr(api.cluster, "logs", logs)
    browser, where = as_(api), f"/ui/benchmarks/{benchmark_id}/log"
    page = browser.get(where).text
    assert "red &lt;b&gt;bold" in page
    assert "\x1b" not in page
    assert '<a href="#L2">2</a>' in page
    assert 'hx-trigger="every 4s"' in page
    filtered = browser.get(f"{where}?contains=SECOND").text
    assert 'id="L2"' in filtered
    assert 'id="L1"' not in filtered
    assert "contains=SECOND" in filtered
    api.as_().post(f"/v1/benchmarks/{benchmark_id}/cancel")


def test_benchmarks_are_filtered_by_the_verdict_of_their_result(api: Api) -> None:
    marks = {verdict: api.submit(name=f"is {verdict}") for verdict in ("suspect", "invalid")}
    with api.store.write() as uow:
        for verdict, benchmark_id in marks.items():
            made = replace(an_outcome(), benchmark_id=benchmark_id, verdict=verdict)
            uow.attempts.add_outcome(made)
    found = api.as_().get("/v1/benchmarks?verdict=suspect&total=1").json()
    assert [each["benchmark_id"] for each in found["items"]] == [marks["suspect"]]
    assert found["total"] == 1
    page = as_(api).get("/ui/benchmarks?verdict=invalid").text
    assert "is invalid" in page
    assert "is suspect" not in page
    assert as_(api).get("/ui/benchmarks?verdict=good").status_code == 422
    assert api.as_().get("/v1/benchmarks?verdict=good").status_code == 422


def test_a_benchmark_is_raised_in_the_queue(api: Api) -> None:
    benchmark_id = api.submit()
    api.engine.order = (benchmark_id,)
    try:
        browser = as_(api)
        page = browser.get("/ui/queue").text
        assert f'action="/ui/benchmarks/{benchmark_id}/priority"' in page
        answer = browser.post(
            f"/ui/benchmarks/{benchmark_id}/priority",
            "/ui/queue",
            user_priority="4",
            next="/ui/queue",
        )
    finally:
        api.engine.order = ()
    assert answer.headers["location"] == "/ui/queue?done=prioritised"
    assert api.as_().get(f"/v1/benchmarks/{benchmark_id}").json()["user_priority"] == 4


def test_an_operator_probes_a_quarantined_board_now_and_reads_its_history(api: Api) -> None:
    uid, now = "rpi5-0001-0001", api.clock.now()
    browser, where = as_(api, "operator"), f"/ui/boards/{uid}"
    assert browser.post(f"{where}/probe", where).status_code == 409  # it is not in quarantine
    due = now + timedelta(hours=3)
    failed = Quarantine(target_uid=uid, since=now, reason="failed 3 of 4", next_probe_at=due)
    with api.store.write() as uow:
        uow.reservations.set_quarantine(failed)
    page = browser.get(where).text
    assert f'action="{where}/probe"' in page
    answer = browser.post(f"{where}/probe", where)
    assert answer.headers["location"] == f"{where}?done=probed"
    with api.store.read() as uow:
        found = uow.reservations.quarantines()[uid].next_probe_at
    assert found is not None
    assert found <= api.clock.now()
    browser.post(f"{where}/drain", where, reason="new fan")
    browser.post(f"{where}/resume", where)
    page = re.sub(r"<[^>]+>", "", browser.get(where).text)
    assert "It was taken out of service by operator: new fan" in page
    assert "The probe of it in quarantine was brought forward" in page
    with api.store.write() as uow:
        uow.reservations.set_quarantine(replace(failed, by_user_id="operator", next_probe_at=None))
    refused = api.as_("operator").post(f"/v1/boards/{uid}/probe")
    assert refused.status_code == 409
    assert "into quarantine by operator: lift it" in refused.json()["detail"]
    browser.post(f"{where}/unquarantine", where)


def test_a_board_shows_its_temperature_where_it_is_known(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = api.engine.boards()
    hot = [
        replace(each, board=replace(each.board, attributes={"dynamic.temperature_c": 61.5}))
        for each in seen
    ]
    monkeypatch.setattr(api.engine, "boards", lambda: hot)
    boards = api.as_().get("/v1/boards").json()["items"]
    assert {each["temperature_c"] for each in boards} == {61.5}
    assert "61.5 °C" in as_(api).get("/ui/boards").text
    assert "61.5 °C" in as_(api).get("/ui/boards/rpi4b-0001-0001").text


def test_the_overview_names_faulty_scorers_and_what_helps(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.services.inventory_problem, before = "boards: rpi9 is no family", ""
    try:
        page = as_(api, "operator").get("/ui").text
    finally:
        api.services.inventory_problem = before
    assert "boards: rpi9 is no family" in page
    assert "<code>edgeyard boards check</code>" in page


def test_the_time_in_no_layer_stands_next_to_the_shares_of_layers(api: Api) -> None:
    profile = {
        **{"runs": 20, "count": 1, "profiled_p50_ms": 0.026, "overhead": 0.1, "outside_ms": 0.0234},
        "layers": [
            {
                **{"name": "dense", "operator": "MatMul", "provider": "CPU", "time_ms": 0.0026},
                **{"share": 1.0, "calls_per_run": 1.0},
            }
        ],
        "operators": [],
        "providers": [],
    }
    benchmark_id = measured(api, npy(LATENCIES), layers=profile)
    page = as_(api).get(f"/ui/benchmarks/{benchmark_id}").text
    assert "Share of all layers" in page
    assert "0.0234 ms of a profiled run of 0.026 ms are in no layer." in page


def test_the_numbers_of_a_language_model_are_in_words(api: Api) -> None:
    rate = {"value": 41.5, "unit": "1/s", "title": "tokens written per second", "better": "higher"}
    first: dict[str, Any] = {"value": 812.0, "unit": "ms", "title": "time to first token"}
    first |= {"better": "lower", "ci95": [796.0, 828.0]}
    benchmark_id = measured(
        api,
        npy(LATENCIES),
        benchmark_type="GENAI",
        primary_metric="decode_tokens_per_s",
        results={"decode_tokens_per_s": rate, "time_to_first_token_ms": first},
        generation={
            **{"preset": "pp512+tg128", "prompt_length": 512, "output_length": 128},
            "requests": 10,
        },
    )
    page = as_(api).get(f"/ui/benchmarks/{benchmark_id}").text
    for words in (
        "41.5 1/s",
        "tokens written per second",
        "time to first token",
        "812 ms (796 to 828)",
    ):
        assert words in page
    request = "a prompt of 512 tokens and 128 generated (pp512+tg128), measured 10 times"
    assert request in page
    link = api.as_().post("/v1/shares", json={"benchmark_id": benchmark_id}).json()["url"]
    assert request in api.as_(None).get(link).text
    assert "<dt>inferences</dt>" not in page
