"""Pages that compare results, and show one model over time."""

from __future__ import annotations

import csv
import gzip
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape

import httpx
import pytest

from edgeyard.benchmark_api.pages.compare import MAX_PLAIN, pack, unpack
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import BenchmarkType, Failure, FailureCategory
from edgeyard.scheduler.model.files import Report
from tests.builders.api import Api, running
from tests.builders.measured import (
    DAY,
    Generated,
    Measured,
    many,
    over_days,
    store_failed,
    store_measured,
)
from tests.builders.pages import HOSTILE, Browser, Parts, as_

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")


class Speech(Measured):
    """A result of a type whose primary metric is not the latency."""

    def report(self) -> Report:
        report = super().report()
        score = {"value": 0.93, "title": "words heard right", "better": "higher"}
        body = {**report.report, "primary_metric": "heard", "results": {"heard": score}}
        return replace(report, report=body)


DEFAULT_REQUEST = {"preset": "pp512+tg128"}
SHORT_REQUEST = {"prompt_length": 64, "output_length": 32}
PREFILL = {"preset": "pp512"}


class Accuracy(Measured):
    """A result of TYPE2."""

    def report(self) -> Report:
        report = super().report()
        accuracy = {"metric": "classification", "top1": 0.9833, "count": 360}
        return replace(report, report={**report.report, "accuracy": accuracy})


BOARDS = tuple(f"rpi4b-0001-{number:04}" for number in range(1, 18))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("compare")) as found:
        found.upload()
        store_measured(
            found.store,
            [
                Measured(benchmark_id="a", p50_ms=10.0),
                Measured(benchmark_id="b", p50_ms=15.0, board="rpi4b-0001-0002"),
                Measured(benchmark_id="noise", p50_ms=10.02),
                Measured(benchmark_id="lite", model="mobilenet.tflite", engine="tflite", p50_ms=8),
                Measured(benchmark_id="evil", model=f"{HOSTILE}.onnx", board=HOSTILE, p50_ms=9),
                Speech(benchmark_id="speech", p50_ms=77.7, campaign_id="words"),
                Speech(benchmark_id="speech-2", p50_ms=78.7, campaign_id="words"),
                Measured(benchmark_id="bad", p50_ms=9.0, verdict="invalid"),
                Accuracy(
                    benchmark_id="digits",
                    model="digits.onnx",
                    benchmark_type=BenchmarkType.TYPE2,
                ),
                Generated(benchmark_id="lm", tokens_per_s=20),
                Generated(benchmark_id="lm-stated", tokens_per_s=30, parameters=DEFAULT_REQUEST),
                Generated(benchmark_id="lm-short", tokens_per_s=60, parameters=SHORT_REQUEST),
                Generated(benchmark_id="lm-prefill", tokens_per_s=300, parameters=PREFILL),
                Generated(benchmark_id="lm-prefill-2", tokens_per_s=310, parameters=PREFILL),
                *(
                    Measured(
                        benchmark_id=f"sweep-{threads}",
                        parameters={"mode": "fast", "threads": threads},
                        p50_ms=10 / threads,
                    )
                    for threads in (1, 2, 4)
                ),
                *(
                    Measured(
                        benchmark_id=f"of-{number}-{engine}",
                        engine=engine,
                        board=f"rpi5-0001-{number:04}",
                    )
                    for number in range(1, 30)
                    for engine in ("ort", "openvino")
                ),
                Measured(
                    benchmark_id="built",
                    series="built",
                    git_commit="0123456789abcdef",
                    link="https://ci.example.org/7",
                ),
                *many(500, BOARDS),
                *over_days(40, model="nightly.onnx"),
            ],
        )
        yield found


@pytest.fixture
def browser(api: Api) -> Browser:
    return as_(api, "alice")


def shown(browser: Browser, path: str) -> str:
    """The page, also where a form's address is made shorter first."""
    answer = browser.get(path)
    if answer.status_code == 303:
        answer = browser.get(answer.headers["location"])
    assert answer.status_code == 200, answer.text
    return answer.text


def addresses(text: str, start: str) -> list[str]:
    return [unescape(each) for each in re.findall(rf'href="({start}[^"]*)"', text)]


def test_two_results_are_next_to_each_other_and_can_be_swapped(browser: Browser) -> None:
    text = shown(browser, "/ui/compare?benchmark_id=a&benchmark_id=b")
    assert "1.50× (" in text
    assert ", worse" in text
    (swapped,) = [each for each in addresses(text, "/ui/compare") if "baseline=b" in each]
    again = shown(browser, swapped)
    assert "0.67× (" in again
    assert ", better" in again
    texts = re.sub(r"<[^>]+>", "", again)
    assert texts.index("rpi4b-0001-0002") < texts.index("rpi4b-0001-0001")


def test_only_what_differs_leaves_out_equal_facts_and_noise(browser: Browser) -> None:
    two = "/ui/compare?benchmark_id=a&benchmark_id=b"
    assert '<th scope="row">Kernel</th>' in shown(browser, two)
    assert '<th scope="row">Kernel</th>' not in shown(browser, f"{two}&only=1")
    several = f"{two}&benchmark_id=noise"
    assert "≈ 1.00×" in shown(browser, several)
    only = shown(browser, f"{several}&only=1")
    assert '<button form="chosen" name="baseline" value="noise"' not in only
    assert "1 that is not shown to differ is left out" in only


def test_a_baseline_is_chosen_by_a_form_whose_address_is_the_whole_state(browser: Browser) -> None:
    text = shown(browser, "/ui/compare?benchmark_id=a&benchmark_id=b&benchmark_id=lite&only=1")
    assert 'name="baseline" value="lite"' in text
    assert '<input type="checkbox" name="only" value="1" checked>' in text
    text = shown(browser, "/ui/compare?benchmark_id=a&benchmark_id=b&benchmark_id=lite&baseline=b")
    assert "relative to" in text
    assert "0.53×" in text


def test_formats_of_one_model_stand_in_one_row(browser: Browser) -> None:
    ids = "&".join(f"benchmark_id={each}" for each in ("a", "b", "lite"))
    text = shown(browser, f"/ui/compare?{ids}&across=engine")
    row = re.search(r'<tr><th scope="row">mobilenet <[^\n]*?rpi4b-0001-0001.*?</tr>', text)
    assert row
    assert '<th scope="col">ort</th><th scope="col">tflite</th>' in text
    assert row[0].count('<a href="/ui/benchmarks/') == 2
    assert "0.80×" in row[0]


def test_five_hundred_results_fit_an_address_and_a_page(api: Api, browser: Browser) -> None:
    ids = [each.benchmark_id for each in many(500, BOARDS)]
    assert unpack(pack(ids)) == ids
    address = f"/ui/compare?ids={pack(ids)}"
    assert len(address) < 8000  # what nginx takes
    answer = browser.get(address)
    assert answer.status_code == 200
    overview = answer.text[: answer.text.index('<h2 id="one-by-one">')]
    assert overview.count('<a href="/ui/benchmarks/') == 501  # and the baseline's
    assert answer.text.count('data-label="Baseline"') == 25
    assert '<button form="chosen" name="page" value="2">Next</button>' in answer.text
    assert len(gzip.compress(answer.content, 4)) < 39_000  # of 60 kB, with the files of all pages
    assert shown(browser, f"{address}&page=2").count('data-label="Baseline"') == 25
    largest = shown(browser, f"{address}&sort=ratio")
    assert "keyword_spotter.onnx" in largest
    assert "squeezenet.onnx" not in largest  # on a later page
    more = f"{address}&benchmark_id=a"
    location = browser.get(more).headers["location"]
    refused = browser.get(location)
    assert refused.status_code == 422
    assert "500" in refused.text


def test_few_are_named_one_by_one_and_what_a_form_sends_besides_is_left_out(
    browser: Browser,
) -> None:
    answer = browser.get("/ui/compare?status=completed&benchmark_id=a&benchmark_id=b&only=")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui/compare?benchmark_id=a&benchmark_id=b"
    many_ids = "&".join(f"benchmark_id=x{number}" for number in range(MAX_PLAIN + 1))
    assert browser.get(f"/ui/compare?{many_ids}").headers["location"].startswith("/ui/compare?ids=")


@pytest.mark.parametrize("word", ["x", "!", "eJw", pack(["a"])[:-4], "%FF"])
def test_a_link_that_is_not_whole_is_refused(browser: Browser, word: str) -> None:
    answer = browser.get(f"/ui/compare?ids={word}")
    assert answer.status_code == 422
    assert "the link is not whole" in answer.text


def test_packed_ids_are_never_more_than_a_list_may_be() -> None:
    bomb = pack(["x" * 20_000_000])
    with pytest.raises(InvalidInput):
        unpack(bomb)


def test_the_table_and_the_drawing_can_be_taken_along(browser: Browser) -> None:
    text = shown(browser, "/ui/compare?benchmark_id=a&benchmark_id=b&benchmark_id=evil")
    (table,) = addresses(text, "/ui/compare.csv")
    (drawing,) = addresses(text, "/ui/compare.svg")
    answer = browser.get(table)
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["benchmark_id"] for row in rows] == ["a", "b", "evil"]
    assert float(rows[1]["ratio"]) == pytest.approx(1.5)
    assert rows[2]["differs"] == "model's content"
    svg = browser.get(drawing)
    assert svg.headers["content-type"].startswith("image/svg+xml")
    assert svg.headers["content-disposition"].startswith("attachment")
    assert ET.fromstring(svg.text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "http://127.0.0.1" in text  # the link


def test_the_link_to_a_comparison_or_a_history_can_be_copied(browser: Browser) -> None:
    for path in ("/ui/compare?benchmark_id=a&benchmark_id=b", "/ui/history?series=nightly.onnx"):
        assert '<button type="button" data-copy="link">' in shown(browser, path)


def test_of_a_stranger_and_of_nobody_nothing_is_compared(api: Api) -> None:
    foreign, absent = (
        as_(api, "bob").get(f"/ui/compare?benchmark_id={each}") for each in ("a", "none")
    )
    assert foreign.status_code == absent.status_code == 404


def test_without_ids_the_page_says_how_to_choose(browser: Browser) -> None:
    text = shown(browser, "/ui/compare")
    assert "/ui/benchmarks?status=completed" in text
    assert "edgeyard results" in text


def test_rows_are_ticked_on_the_page_of_benchmarks_and_stay_so_on_the_next(
    browser: Browser,
) -> None:
    text = shown(browser, "/ui/benchmarks?status=completed&model=nightly.onnx")
    ticks = re.findall(r'<input type="checkbox" name="benchmark_id" value="([^"]+)"', text)
    assert len(ticks) == 40
    assert '<form method="get" action="/ui/compare">' in text
    first = shown(browser, "/ui/benchmarks?status=completed&benchmark_id=a")
    assert "1 ticked so far" in first
    packed = re.search(r'name="ids" value="([^"]+)"', first)
    assert packed
    assert unpack(packed[1]) == ["a"]
    cursor = re.search(r'name="cursor" value="([^"]+)" formaction="/ui/benchmarks"', first)
    assert cursor
    other = "&".join(f"benchmark_id={each}" for each in ticks[:2])
    second = shown(
        browser, f"/ui/benchmarks?status=completed&ids={packed[1]}&{other}&cursor={cursor[1]}"
    )
    assert "3 ticked so far" in second


def test_a_comparison_is_shared_with_its_baseline_first(api: Api, browser: Browser) -> None:
    page = shown(browser, "/ui/compare?benchmark_id=a&benchmark_id=b&baseline=b")
    fields = dict(re.findall(r'<input type="hidden" name="(ids|baseline)" value="([^"]+)"', page))
    answer = browser.post("/ui/shares", "/ui/shares", days="7", **fields)
    link = re.search(r"/ui/shared/[\w-]+", answer.text)
    assert link, answer.text
    assert "Comparison of 2 results" in Browser(api).get(link[0]).text
    with api.store.read() as uow:
        assert uow.shares.of("alice", api.clock.now())[0].benchmark_ids == ("b", "a")
    broken = browser.post("/ui/shares", "/ui/shares", days="7", ids="nonsense")
    assert broken.status_code == 422


def test_a_result_leads_to_those_of_the_same_model_on_its_board(browser: Browser) -> None:
    page = shown(browser, "/ui/benchmarks/a")
    link = re.search(r'href="(/ui/history\?series=[^"]+)"', page)
    assert link
    assert "mobilenet" in shown(browser, unescape(link[1]))


def test_a_history_has_a_drawing_with_marks_and_a_table(browser: Browser) -> None:
    text = shown(browser, "/ui/history?series=nightly.onnx&target_uid=rpi4b-0001-0001&runtime=ort")
    # at four places facts changed, at two of them the level, too; for large and small screens
    assert text.count('class="edgeyard-change"') == 2 * 4
    assert re.findall(r'font-size="10">([^<]+)</text>', text) == 2 * ["1, 2", "3", "4", "5, 6"]
    for change in ("ort version 1.23.1", "kernel 6.12.9", "firmware 2026-10-02", "model "):
        assert change in text
    assert text.count('data-label="Ended"') == 0
    assert len(re.findall(r'<tr[^>]*><th scope="row"><a href="/ui/benchmarks/', text)) == 25
    assert "Page 1 of 2: 40 results" in text
    (drawing,) = addresses(text, "/ui/history.svg")
    (table,) = addresses(text, "/ui/history.csv")
    assert 'href="/ui/alerts?series=nightly.onnx&amp;target_uid=rpi4b-0001-0001"' in text
    assert ET.fromstring(browser.get(drawing).text).tag.endswith("svg")
    rows = list(csv.DictReader(io.StringIO(browser.get(table).text)))
    assert len(rows) == 40
    assert {row["changes"] for row in rows} > {"", "kernel 6.12.9"}


def test_a_history_shows_runs_that_failed_as_marks_without_a_value(
    api: Api, browser: Browser
) -> None:
    days = [DAY + timedelta(days=number) for number in range(3)]
    first, broken, last = (
        Measured(benchmark_id=f"shaky-{number}", series="shaky", ended_at=day)
        for number, day in enumerate(days)
    )
    memory = Failure(category=FailureCategory.OUT_OF_MEMORY, sentence=f"It needs 5 GiB{HOSTILE}")
    store_measured(api.store, [first, last])
    store_failed(api.store, [broken], memory)
    text = shown(browser, "/ui/history?series=shaky")
    assert text.count("<title>failed: out of memory on rpi4b-0001-0001</title>") == 2
    assert "cross: failed" in text
    row = text[text.index('<a href="/ui/benchmarks/shaky-1">') :].split("</tr>")[0]
    assert "Failed: out of memory" in row
    assert "It needs 5 GiB" in row
    ended = re.findall(r'<th scope="row"><a href="/ui/benchmarks/shaky-(\d)">', text)
    assert ended == ["2", "1", "0"], "newest first"
    store_failed(api.store, [replace(broken, benchmark_id="never", series="never")], memory)
    assert "Failed: out of memory" in shown(browser, "/ui/history?series=never")


def test_a_filter_of_a_history_that_is_nonsense_is_named(browser: Browser) -> None:
    answer = browser.get("/ui/history?series=nightly.onnx&type=TYPE100&since=yesterday")
    assert answer.status_code == 422
    assert 'id="wrong-type"' in answer.text
    assert 'id="wrong-since"' in answer.text
    assert "No completed result is like that" in shown(browser, "/ui/history?series=none")
    assert "Which series?" in shown(browser, "/ui/history")
    assert ET.fromstring(browser.get("/ui/history.svg?series=none").text).tag.endswith("svg")
    assert browser.get("/ui/history.svg").status_code == 422
    assert browser.get("/ui/history.csv").status_code == 422


def test_hostile_texts_are_shown_as_texts(api: Api, browser: Browser) -> None:
    later = DAY + timedelta(days=1)
    store_measured(
        api.store, [Measured(benchmark_id="evil2", model=f"{HOSTILE}.onnx", ended_at=later)]
    )
    series = httpx.QueryParams({"series": f"{HOSTILE}.onnx"})
    for path in (
        "/ui/compare?benchmark_id=evil&benchmark_id=a",
        "/ui/compare?benchmark_id=evil&benchmark_id=a&benchmark_id=b",
        f"/ui/history?{series}",
    ):
        text = shown(browser, path)
        parts = Parts()
        parts.feed(text)
        assert parts.wrong == [], path
        assert parts.scripts == 4, path
        assert "&lt;script&gt;alert(1)" in text


def headline(text: str) -> str:
    """The large number of a page."""
    found = re.search(r'<strong class="big">([^<]+)</strong> ([^<,]+)', text)
    assert found
    return f"{found[1]} {found[2]}"


def test_lists_of_benchmarks_show_the_primary_metric(browser: Browser) -> None:
    text = shown(browser, "/ui/benchmarks?campaign_id=words")
    assert text.count("0.93") == 2
    assert "words heard right" in text
    assert "77.7" not in text
    assert "10 ms" in shown(browser, "/ui/benchmarks?name=&model=mobilenet.onnx")


def test_lists_of_benchmarks_show_an_accuracy_beside_the_latency(browser: Browser) -> None:
    text = shown(browser, "/ui/benchmarks?model=digits.onnx")
    assert "accuracy 98.33 %</span>" in text
    assert "median latency of a batch" in text


def test_a_result_shows_its_primary_metric_first(browser: Browser, api: Api) -> None:
    text = shown(browser, "/ui/benchmarks/speech")
    assert headline(text) == "0.93 words heard right"
    assert "<dt>median latency</dt><dd>77.7 ms</dd>" in text
    assert headline(shown(browser, "/ui/benchmarks/a")).startswith("10 ms median latency")
    made = api.as_().post("/v1/shares", json={"benchmark_ids": ["speech", "speech-2"]}).json()
    text = Browser(api).get(made["url"].removeprefix(api.url)).text
    assert text.count("0.93") >= 2
    assert "words heard right" in text
    assert "77.7" not in text


def test_two_results_with_other_metrics_have_their_own_titles(browser: Browser) -> None:
    text = shown(browser, "/ui/compare?benchmark_id=a&benchmark_id=speech")
    assert "Median latency</" in text
    assert "Words heard right</" in text


@pytest.mark.parametrize(
    "ids", ["benchmark_id=a&benchmark_id=bad", "benchmark_id=bad&benchmark_id=a"]
)
def test_an_invalid_number_is_the_reason_why_there_is_no_ratio(browser: Browser, ids: str) -> None:
    text = shown(browser, f"/ui/compare?{ids}")
    assert "none: a number is invalid" in text
    assert "other work" not in text.replace("Other work had", "")


def test_language_models_are_compared_by_named_metrics_for_the_same_request_alone(
    browser: Browser,
) -> None:
    text = shown(browser, "/ui/compare?benchmark_id=lm&benchmark_id=lm-prefill")
    assert "tokens written per second" in text
    assert "Tokens of the prompt read per second" in text
    assert "none: another metric" in text
    assert "percentile</th>" in text
    assert "of the latency of a token" not in text, "that of the other one is of the first"
    text = shown(browser, "/ui/compare?benchmark_id=lm&benchmark_id=lm-short")
    assert "Tokens written per second</th>" in text
    assert "none: another request" in text
    assert "a prompt of 64 tokens and 32 generated" in text
    assert "has no front: prompts and outputs of other lengths are other work." in text
    text = shown(browser, "/ui/compare?benchmark_id=lm&benchmark_id=lm-stated")
    assert "1.50× (" in text
    assert '<th scope="row">Parameters</th>' not in text, "the same request in other words"
    text = shown(browser, "/ui/compare?benchmark_id=lm-prefill&benchmark_id=lm-prefill-2")
    assert "percentile of the latency of the first token</th>" in text
    every = "&".join(
        f"benchmark_id={each}" for each in ("lm", "lm-prefill", "lm-short", "lm-stated")
    )
    text = shown(browser, f"/ui/compare?{every}")
    assert text.count("another request</span>") == 1
    assert text.count("another metric</span>") == 1
    assert "llama-0.5b</a>" in text


@pytest.mark.parametrize(("benchmark_id", "model"), [("a", "new.onnx"), ("lm", "FOLDER")])
def test_the_hint_of_a_check_names_what_a_model_is(
    browser: Browser, benchmark_id: str, model: str
) -> None:
    assert f" --model {model}</code>" in shown(browser, f"/ui/benchmarks/{benchmark_id}")


def test_the_table_has_the_parameters_that_differ_and_the_others_once(browser: Browser) -> None:
    text = shown(browser, f"/ui/compare?ids={pack(['sweep-1', 'sweep-2', 'sweep-4'])}")
    assert '<td class="words" data-label="Parameters">threads=1</td>' in text
    assert "<dt>Parameters</dt><dd>mode=fast</dd>" in text


def test_many_boards_are_in_the_columns_as_far_as_they_fit(browser: Browser) -> None:
    few = [each.benchmark_id for each in many(500, BOARDS)]
    assert '<table class="overview many">' in shown(browser, f"/ui/compare?ids={pack(few)}")
    more = [f"of-{number}-{engine}" for number in range(1, 30) for engine in ("ort", "openvino")]
    text = shown(browser, f"/ui/compare?ids={pack(more)}")
    assert re.search(r'<option value="engine" selected>', text)
    text = shown(browser, f"/ui/compare?ids={pack(more)}&across=board")
    assert re.search(r'<option value="board" selected>', text)


def test_without_a_series_the_page_of_histories_lists_those_to_choose_from(
    browser: Browser, api: Api
) -> None:
    text = shown(browser, "/ui/history?target_uid=rpi4b-0001-0001")
    (link,) = [each for each in addresses(text, "/ui/history") if "series=nightly.onnx" in each]
    assert "40 results" in shown(browser, link)
    assert "nightly.onnx" not in shown(as_(api, "bob"), "/ui/history?target_uid=rpi4b-0001-0001")
    wrong = browser.get("/ui/history?cursor=odd")
    assert wrong.status_code == 422
    assert "Go to the first page" in wrong.text


def test_a_history_shows_commits_with_their_links(browser: Browser) -> None:
    text = shown(browser, "/ui/history?series=built")
    assert '<a href="https://ci.example.org/7" rel="noreferrer">0123456789</a>' in text
    assert ">Commit</th>" in text
    assert ">Commit</th>" not in shown(browser, "/ui/history?series=nightly.onnx")
