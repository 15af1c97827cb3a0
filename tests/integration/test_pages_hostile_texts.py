"""What users and hosts state is text on each page that shows it, and no page is widened by it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from edgeyard.devices.model import Board
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
from edgeyard.scheduler.ports import LogChunk
from edgeyard.scheduler.twin.twin import BoardState, BoardView
from tests.builders.api import BOARDS, UPLOAD_TOKEN, Api, FakeEngine, running
from tests.builders.measured import Measured, store_measured
from tests.builders.pages import HOSTILE, Browser, Parts, as_

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")

ESCAPED = "&lt;script&gt;alert(1)"
LONG = "W" * 10_000
BOARD = BOARDS[0].target_uid


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("hostile")) as found:
        found.upload()
        yield found


def shown(browser: Browser, path: str, status: int = 200) -> str:
    """A page, after what each page has to keep to."""
    answer = browser.get(path)
    assert answer.status_code == status, f"{path}: {answer.text[:300]}"
    parts = Parts()
    parts.feed(answer.text)
    assert parts.wrong == [], path
    assert parts.scripts == 4, path
    assert "\u202e" not in answer.text, f"{path}: would reorder what stands beside it"
    assert ESCAPED in answer.text, f"{path}: is to show it as text"
    return answer.text


def test_the_log_of_a_run_is_text(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{HOSTILE}\n\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\n{LONG}\n".encode()

    def logs(job_id: str, stream: str, offset: int) -> LogChunk:
        return LogChunk(data=text[offset:], next_offset=len(text), ended=True)

    monkeypatch.setattr(api.cluster, "logs", logs)
    benchmark_id = api.submit()
    api.dispatched(benchmark_id)
    page = shown(as_(api), f"/ui/benchmarks/{benchmark_id}/log")
    assert "red link" in page
    assert "\x1b" not in page
    assert LONG in page, "all of a long line is there"
    found = as_(api).http.get(f"/ui/benchmarks/{benchmark_id}/log", params={"contains": HOSTILE})
    assert 'value="&lt;/script&gt;' in found.text, "the filter keeps what was typed"


def test_what_the_report_of_a_run_states_is_text(api: Api) -> None:
    benchmark_id = api.submit(name=f"report {HOSTILE[:80]}", tags=[HOSTILE[:60]])
    job = api.dispatched(benchmark_id).job_id
    report = {
        "schema": "edgeyard/result/v1",
        "status": "ok",
        "benchmark_id": benchmark_id,
        "inference_latency": {"unit": "ms", "p50": 12.5},
        "engine_facts": {"version": HOSTILE},
        "board": {"kernel": HOSTILE, "firmware": LONG},
        "verdict": {
            "verdict": "suspect",
            "reasons": [{"code": "other_load", "sentence": f"{HOSTILE} {LONG}"}],
        },
    }
    headers = {"Authorization": f"Bearer {UPLOAD_TOKEN}"}
    answer = api.as_(None).put(
        f"/upload/{job}/report.json", content=json.dumps(report).encode(), headers=headers
    )
    assert answer.status_code == 201, answer.text
    api.ended(benchmark_id)
    other = api.submit()
    api.dispatched(other)
    api.measured(other, 10.0)
    browser = as_(api)
    shown(browser, f"/ui/benchmarks/{benchmark_id}")
    shown(browser, f"/ui/compare?benchmark_id={benchmark_id}&benchmark_id={other}")
    shown(browser, "/ui/benchmarks")
    made = api.as_().post("/v1/shares", json={"benchmark_ids": [benchmark_id, other]}).json()
    shown(Browser(api), made["url"].removeprefix(api.url))


def test_why_a_benchmark_failed_and_its_job_are_text(api: Api) -> None:
    benchmark_id = api.submit(
        constraints=[{"attribute": "engine.ort.version", "operator": "!=", "value": HOSTILE}]
    )
    attempt = api.dispatched(benchmark_id)
    hcl = f'job "x" {{\n  # {HOSTILE}\n  meta {{ note = "{HOSTILE} {LONG}" }}\n}}\n'
    with api.store.write() as uow:
        uow.attempts.save(replace(attempt, hcl=hcl))
    api.ended(
        benchmark_id,
        Failure(category=FailureCategory.USER_MODEL, sentence=f"the model says {HOSTILE} {LONG}"),
    )
    page = shown(as_(api), f"/ui/benchmarks/{benchmark_id}")
    assert re.search(r"# &lt;/script&gt;&lt;script&gt;alert", page), "the HCL is there"
    shown(as_(api), "/ui/benchmarks?status=failed")


def test_what_a_host_publishes_of_its_boards_is_text(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = {"note": f"{HOSTILE} {LONG}", "cpu.model": HOSTILE, "os.name": HOSTILE}
    board: Board = replace(BOARDS[0], attributes={**BOARDS[0].attributes, **notes})

    def boards(engine: FakeEngine) -> tuple[BoardView, ...]:
        return (
            BoardView(
                board=board,
                state=BoardState.UNHEALTHY,
                reason=f"its host says {HOSTILE} {LONG}",
                host=f"host {HOSTILE}",
                expected=True,
                online=True,
                drained=False,
                holder=None,
            ),
        )

    monkeypatch.setattr(FakeEngine, "boards", boards)
    for path in ("/ui", "/ui/boards", f"/ui/boards/{BOARD}"):
        shown(as_(api, "operator"), path)


def test_what_people_write_about_acts_and_links_is_text(api: Api) -> None:
    operator, page = as_(api, "operator"), f"/ui/boards/{BOARD}"
    for act in ("drain", "resume"):
        assert operator.post(f"{page}/{act}", page, reason=HOSTILE + "W" * 200).status_code == 303
    shown(operator, page)
    shown(operator, f"/ui/events?board={BOARD}")
    benchmark_id = api.submit()
    api.as_().post("/v1/shares", json={"benchmark_id": benchmark_id, "label": HOSTILE})
    shown(as_(api), "/ui/shares")
    store_measured(api.store, [Measured(benchmark_id="in-a-series", series=HOSTILE)])
    subscription = {"topic": "series", "about": HOSTILE, "channel": "webhook"}
    api.as_().put("/v1/users/alice/webhook", json={"url": "https://example.org/hook"})
    made = api.as_().post("/v1/subscriptions", json=subscription)
    assert made.status_code == 201, made.text
    shown(as_(api), "/ui/subscriptions")
    page = f"/ui/benchmarks/{benchmark_id}"
    assert as_(api).post(f"{page}/cancel", page, reason=HOSTILE).status_code == 303
    assert "Cancelled by alice" in shown(as_(api), page)


def test_a_name_of_somebody_who_waits_is_text(api: Api) -> None:
    start = (datetime.now(UTC) + timedelta(hours=5)).isoformat()
    benchmark_id = api.submit(name=HOSTILE[:100], start_time=start)
    api.engine.order = (benchmark_id,)
    try:
        page = shown(as_(api), "/ui/queue")
    finally:
        api.engine.order = ()
    assert "<bdi>" in page, "what is not plain ASCII keeps its direction of writing to itself"


def test_the_model_of_a_result_is_text_in_lists_and_figures(api: Api) -> None:
    name = f"{HOSTILE}{'W' * 200}.onnx"
    ended = datetime.now(UTC)
    store_measured(
        api.store,
        [
            Measured(benchmark_id=f"named-{number}", model=name, series=HOSTILE, ended_at=ended)
            for number in range(3)
        ],
    )
    failed = replace(
        Measured(benchmark_id="named-failed", model=name, ended_at=ended).benchmark(),
        status=Status.FAILED,
        failure=Failure(category=FailureCategory.USER_MODEL, sentence=HOSTILE),
    )
    with api.store.write() as uow:
        uow.benchmarks.add(failed)
    ids = "&".join(f"benchmark_id=named-{number}" for number in range(3))
    for path in ("/ui", "/ui/benchmarks", f"/ui/compare?{ids}", f"/ui/boards/{BOARD}"):
        shown(as_(api), path)
