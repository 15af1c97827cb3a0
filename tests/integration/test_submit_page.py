"""The page *Submit*: fields of the schema, a dropped model, what would happen, the same as text."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from deploy import demo
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.pages import equivalents, job_form
from edgeyard.benchmark_api.schemas.description import (
    description_schema,
    parse_description,
    to_description,
)
from edgeyard.benchmark_api.sdk import Client
from edgeyard.scheduler.model.wire import description_to_json
from tests.builders.api import MODEL, Api, running
from tests.builders.descriptions import description
from tests.builders.pages import HOSTILE, Browser, as_
from tests.unit.test_job_description import EVERYTHING

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")

DEMO = Path(demo.__file__).parent

READY = {
    "model": "model.onnx",
    "target.rpi4b": "on",
    "runtime.ort": "on",
    "benchmark_type": "TYPE1",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("submit")) as found:
        found.upload()
        yield found


def sent(
    browser: Browser, path: str, fields: Mapping[str, str], file: bytes | None = None
) -> httpx.Response:
    """Send the form as browsers do: with a field for the file, also if none was chosen."""
    named = ("net2.onnx", file) if file is not None else ("", b"")
    data = {"csrf": browser.csrf("/ui/submit"), **fields}
    return browser.http.post(path, data=data, files={"model_file": named})


def shown(answer: httpx.Response) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", answer.text))


def test_the_form_has_a_field_for_each_of_the_schema_with_its_limits(api: Api) -> None:
    properties = description_schema()["properties"]
    assert isinstance(properties, dict)
    page = as_(api).get("/ui/submit").text
    for name in properties.keys() - {"version", "user_id", "submit_time", "target", "runtime"}:
        assert f'name="{name}"' in page, name
        assert f'id="field-{name}"' in page, name
    for text in (
        "1 to 10",
        "e.g. 4 GiB or 500 MB",
        "e.g. 2 %",
        "at most 2,592,000 s",
        "1 to 1,000,000",
    ):
        assert text in page, text
    for choice in ("loose", "filtered", "strict", "reschedule", "notify"):
        assert f'<option value="{choice}"' in page
    assert "Instead of “Timed inferences”" in page, "fields are called as their labels"
    assert "nb_inference:" not in page
    assert 'name="target.rpi5"' in page
    assert 'name="runtime.ort"' in page
    assert 'data-label="ort"' in page  # names the engine of a cell where a phone hides columns


@pytest.mark.parametrize(("kind", "dimensions"), [("onnx", 4), ("tflite", 4)])
def test_a_dropped_model_is_uploaded_and_its_inputs_are_shown(
    api: Api, kind: str, dimensions: int
) -> None:
    data = DEMO.joinpath(f"digits.{kind}").read_bytes()
    answer = sent(as_(api), "/ui/submit/check", {"benchmark_type": "TYPE1"}, data)
    assert answer.status_code == 200
    assert 'value="net2.onnx"' in answer.text
    file = api.as_().get("/v1/files?name=net2.onnx").json()["items"][0]
    inputs = api.as_().get(f"/v1/files/{file['file_id']}/inputs").json()["items"]
    assert [len(each["shape"]) for each in inputs] == [dimensions]
    for each in inputs:
        assert f"<code>{each['name']}</code> {each['dtype']}" in answer.text


def test_at_once_it_says_which_boards_could_run_it_and_why_not_the_others(api: Api) -> None:
    before = api.as_().get("/v1/benchmarks?total=1").json()["total"]
    page = shown(sent(as_(api), "/ui/submit/check", READY))
    assert "would run now" in page
    assert "2 of 3 boards could run it now" in page
    assert "at most 900 credits" in page
    assert api.as_().get("/v1/benchmarks?total=1").json()["total"] == before
    several = shown(sent(as_(api), "/ui/submit/check", READY | {"target.rpi5": "on"}))
    assert "rpi5 · ort" in several
    link = "/ui/submit?" + "&".join(f"{name}={value}" for name, value in READY.items())
    assert "would run now" in shown(as_(api).get(link))


def test_what_it_costs_is_in_the_answer_of_the_api(api: Api) -> None:
    body = {"model": "model.onnx", "target": "rpi4b", "runtime": "ort", "benchmark_type": "TYPE1"}
    dry = api.as_().post("/v1/benchmarks?dry_run=1", json={**body, "user_time": 100}).json()
    assert {each["max_credits"] for each in dry["boards"]} == {100.0}
    assert all("cost_s" in each for each in dry["boards"])


def test_a_refused_form_keeps_what_was_typed_with_errors_beside_their_fields(api: Api) -> None:
    typed = {**READY, "nb_inference": "many", "user_priority": "99", "name": f"x {HOSTILE[:50]}"}
    answer = sent(as_(api), "/ui/submit", typed)
    assert answer.status_code == 422
    for name in ("nb_inference", "user_priority"):
        assert f'id="wrong-{name}"' in answer.text
        assert re.search(rf'name="{name}"[^>]*aria-invalid="true"', answer.text)
    assert 'value="many"' in answer.text
    assert re.search(r'name="target.rpi4b" checked', answer.text)
    assert "<script>alert" not in answer.text
    lines = sent(
        as_(api), "/ui/submit", {**READY, "constraints": "nonsense", "extra": "{", "ram": "x"}
    )
    assert lines.status_code == 422
    for name in ("constraints", "extra", "ram"):
        assert f'id="wrong-{name}"' in lines.text, name
    assert ">\nnonsense</textarea>" in lines.text
    absent = sent(as_(api), "/ui/submit", {**READY, "model": "absent.onnx"})
    assert absent.status_code == 422
    assert 'id="wrong-model"' in absent.text


def test_it_submits_one_or_a_campaign(api: Api) -> None:
    browser = as_(api)
    one = sent(browser, "/ui/submit", {**READY, "name": "by page", "tags": "a\nb", "key": "k1"})
    assert one.status_code == 303, shown(one)
    where = one.headers["location"]
    assert "It is submitted" in browser.get(where).text
    made = api.as_().get(f"/v1/benchmarks/{where.split('/')[-1].split('?')[0]}").json()
    assert (made["name"], made["description"]["tags"]) == ("by page", ["a", "b"])
    again = sent(browser, "/ui/submit", {**READY, "name": "by page", "tags": "a\nb", "key": "k1"})
    assert again.headers["location"] == where
    other = sent(browser, "/ui/submit", {**READY, "name": "changed", "key": "k1"})
    assert other.headers["location"] != where
    several = sent(browser, "/ui/submit", {**READY, "target.rpi5": "on"})
    assert "campaign_id=campaign-" in several.headers["location"]
    cron = sent(browser, "/ui/submit", {**READY, "cron": "0 3 * * *"})
    assert cron.headers["location"] == "/ui/submit?done=scheduled"


def test_a_session_that_ended_keeps_what_was_typed_in_the_form(api: Api) -> None:
    browser = as_(api)
    csrf = browser.csrf("/ui/submit")
    browser.http.cookies.clear()
    data = {"csrf": csrf, **READY, "name": "a long name"}
    answer = browser.http.post(
        "/ui/submit", data=data, files={"model_file": ("big.onnx", b"x" * 200_000)}
    )
    assert answer.status_code == 401
    assert csrf not in answer.text
    (back,) = set(re.findall(r'name="next" value="([^"]*)"', answer.text))
    browser.signed_in(api.tokens["alice"])
    page = browser.get(html.unescape(back)).text
    assert 'value="a long name"' in page
    assert re.search(r'name="target.rpi4b" checked', page)


def test_a_form_of_another_site_submits_and_uploads_nothing(api: Api) -> None:
    browser, files = as_(api), "/v1/files?name=foreign.onnx"
    answer = browser.http.post(
        "/ui/submit", data=READY, files={"model_file": ("foreign.onnx", MODEL)}
    )
    assert answer.status_code == 403
    assert api.as_().get(files).json()["items"] == []


def test_a_benchmark_is_cloned_into_the_form(api: Api) -> None:
    body: dict[str, Any] = {"nb_inference": 77, "preemptible": False, "tags": ["x"]}
    benchmark_id = api.submit(**body)
    where = f"/ui/submit?clone={benchmark_id}"
    page = as_(api).get(where).text
    assert f"/ui/submit?clone={benchmark_id}" in as_(api).get(f"/ui/benchmarks/{benchmark_id}").text
    assert 'value="77"' in page
    assert '<option value="false" selected>' in page
    assert re.search(r'name="target.rpi4b" checked', page)
    assert as_(api, "bob").get(where).status_code == 404
    changed = as_(api).get(f"{where}&target.rpi5=on&nb_inference=&name=other").text
    assert re.search(r'name="target.rpi5" checked', changed)
    assert not re.search(r'name="target.rpi4b" checked', changed)
    assert 'value="77"' not in changed
    assert 'value="other"' in changed


def test_what_is_typed_says_what_the_description_said() -> None:
    everything = {
        name: value
        for name, value in description(**EVERYTHING).items()
        if name in job_form.fields()
    }
    job = job_form.read_request(job_form.form_of(everything))
    assert not job.problems
    read = to_description(parse_description(job.whole))
    assert read == to_description(parse_description(everything))


JOBS: dict[str, dict[str, object]] = {
    "plain": {},
    "matrix": {"target": ["rpi4b", "rpi5"]},
    "numbers": {"nb_inference": 50, "user_priority": 3, "max_retries": 0, "user_budget": 2.5},
    "quoted": {"name": "it's; $(date) `x`", "tags": ["a b", 'c"d'], "precision": "2 %"},
    "lines": {
        "input": {"x": {"shape": [1, 4], "low": 0, "high": 9, "integers": True}},
        "parameters": {"threads": 2},
        "constraints": [{"attribute": "memory.ram", "operator": ">=", "value": "4 GiB"}],
        "affinities": [
            {"attribute": "memory.ram", "operator": ">=", "value": "8 GiB", "weight": -5}
        ],
        "spreads": [{"attribute": "${meta.rack}", "weight": 80, "targets": {"a": 70}}],
    },
    "flags": {"preemptible": False, "profile_layers": True, "cron": "0 3 * * *"},
    "times": {"start_time": "2030-01-01T00:00:00Z", "user_time": "15 min", "ram": "4 GiB"},
    "url": {"model": None, "model_url": "https://example.org/net.onnx"},
    "odt": {"benchmark_type": "TYPE3", "odt_config": {"epochs": 1}, "dataset": "d.npz"},
    "datasets": {
        "benchmark_type": "TYPE2",
        "dataset_urls": ["https://a.example/1.npz", "https://a.example/2.npz"],
    },
    "no flag": {"extra": {"a": [1, {"b": None}]}, "name": "by file"},
}


def job_of(name: str) -> job_form.JobRequest:
    basic = {"model": "model.onnx", "target": "rpi4b", "runtime": "ort", "benchmark_type": "TYPE1"}
    job = {key: value for key, value in {**basic, **JOBS[name]}.items() if value is not None}
    matrix = {key: job.pop(key) for key in ("target", "runtime") if isinstance(job[key], list)}
    return job_form.JobRequest(description=job, matrix=matrix)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", JOBS)
def test_the_command_line_submits_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    job = job_of(name)
    found: list[Mapping[str, object]] = []

    def submit(self: Client, description: Mapping[str, object], **_: object) -> list[object]:
        found.append(description)
        return []

    monkeypatch.setattr(Client, "submit_description", submit)
    monkeypatch.setenv("EDGEYARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("EDGEYARD_TOKEN", "ey_none_at_all")
    command = equivalents.command_of(job)
    words = subprocess.run(
        ["bash", "-c", f"edgeyard() {{ printf '%s\\0' \"$@\"; cat; }}; {command}"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    ).stdout.split("\0")
    *arguments, typed = words
    if "/dev/stdin" in arguments:
        path = tmp_path / "job.json"
        path.write_text(typed)
        arguments[arguments.index("/dev/stdin")] = str(path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert one(found[0]) == one(job.whole)


@pytest.mark.parametrize("name", JOBS)
def test_the_lines_of_python_submit_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(name)
    found: list[Mapping[str, object]] = []

    def submit(self: Client, description: Mapping[str, object], **_: object) -> list[object]:
        found.append(description)
        return [None]

    monkeypatch.setattr(Client, "submit_description", submit)
    monkeypatch.setenv("EDGEYARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("EDGEYARD_TOKEN", "ey_none_at_all")
    exec(equivalents.python_of(job), {})
    assert one(found[0]) == one(job.whole)


def one(job: Mapping[str, object]) -> list[object]:
    """What each benchmark of a job is, as the server reads it."""
    job = {name: value for name, value in job.items() if value is not None}
    axes = {name: job[name] for name in ("target", "runtime") if isinstance(job[name], list)}
    if not axes:
        return [description_to_json(to_description(parse_description(job)))]
    ((name, values),) = axes.items()
    assert isinstance(values, list)
    return [
        description_to_json(to_description(parse_description({**job, name: value})))
        for value in values
    ]


def test_texts_to_copy_are_of_the_typed_form(api: Api) -> None:
    answer = sent(as_(api), "/ui/submit/check", {**READY, "name": "a 'b'"})
    texts = dict(re.findall(r'<pre id="(same-\d)"[^>]*>(.*?)</pre>', answer.text, re.DOTALL))
    assert "--name" in shlex.split(html.unescape(texts["same-1"]).replace("\\\n", ""))
    assert json.loads(html.unescape(texts["same-3"]))["name"] == "a 'b'"


def test_a_viewer_submits_nothing_and_is_offered_nothing(api: Api) -> None:
    browser = as_(api, "viewer")
    assert browser.get("/ui/submit").status_code == 403
    for where in ("/ui/submit", "/ui/submit/check"):
        answer = browser.post(where, "/ui/queue", **READY)
        assert answer.status_code == 403, where
    page = browser.get("/ui/benchmarks").text
    assert "/ui/submit" not in page


def test_an_address_states_families_and_engines_like_other_fields(api: Api) -> None:
    text = as_(api).get("/ui/submit?model=model.onnx&target=rpi4b&target=rpi5&runtime=ort").text
    ticked = re.findall(r'name="([a-z]+\.[a-z0-9]+)" checked', text)
    assert sorted(ticked) == ["runtime.ort", "target.rpi4b", "target.rpi5"]
