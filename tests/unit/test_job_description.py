"""The job description: what is taken, what is refused, and how."""

import json
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.benchmark_api.schemas import fields
from edgeyard.benchmark_api.schemas.body import WrongMediaType, check_tree, read_document, read_json
from edgeyard.benchmark_api.schemas.description import (
    LOAD_FIELDS,
    JobDescriptionIn,
    name_from_url,
    parse_description,
    to_description,
)
from edgeyard.benchmark_api.schemas.fields import file_name_problem
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import Binding, Constraint
from edgeyard.scheduler.model.wire import description_to_json
from tests.builders.descriptions import description, read, refused


def test_of_very_many_mistakes_the_first_are_named_and_the_others_counted() -> None:
    """What each of 20,000 fields could mean isn't looked for: a body took 16 s of everybody's."""
    errors = refused(**{f"target{number}": 1 for number in range(20_000)})
    assert len(errors) == fields.MAX_FINDINGS + 1
    assert errors[0].accepted == "did you mean target?"
    assert errors[-1].reason == f"holds {20_000 - fields.MAX_FINDINGS} more mistakes"


EVERYTHING: dict[str, object] = {
    "version": 1,
    "benchmark_id": "rpi4b-ort-20250813091714",
    "model_url": "http://10.200.0.1:42777/download/small_model.onnx",
    "target_uid": "rpi4b-0001-0001",
    "ram": "4 GiB",
    "storage": 17179869184,
    "user_id": "user-1",
    "user_priority": 7,
    "user_budget": 100,
    "user_time": "15 min",
    "submit_time": "2025-08-13T07:17:14Z",
    "deadline": "2031-08-13T11:00:00+02:00",
    "max_retries": 3,
    "nb_inference": 50,
    "preemptible": True,
    "preemptible_measuring": True,
    "job_completion_threshold": 40,
    "start_time": "2030-01-01T00:00:00.250Z",
    "version_tag": "v1",
    "constraints": [{"attribute": "memory.ram", "operator": ">=", "value": 5}],
    "affinities": [{"attribute": "rack", "operator": "=", "value": "b", "weight": -20}],
    "spreads": [{"attribute": "${meta.rack}", "weight": 20, "targets": {"a": 70, "b": 30}}],
    "binding": "filtered",
    "if_unavailable": "notify",
    "tags": ["night", "ci"],
    "name": "nightly",
    "series": "detector",
    "git_commit": "0123abc",
    "link": "https://ci.example/7",
    "parameters": {"threads": 2},
    "input": {"tokens": {"shape": [1, 16], "low": 0, "high": 100, "integers": True}},
    "queue_timeout": 3600,
    "extra": {"later": {"use": [1, 2.5, None]}},
}


def test_a_constraint_may_be_spelled_as_in_a_nomad_job() -> None:
    spelled = {"attribute": "${device.attr.engine.ort.version}", "operator": "semver"}
    asked = to_description(
        parse_description(description(constraints=[{**spelled, "value": ">= 1.17.0"}]))
    )
    (constraint,) = asked.constraints
    assert constraint.attribute == "engine.ort.version"
    for attribute in ("${env.HOME}", "${attr.}", "${node.x}", "${device.attr.}", "${device.attr.a"):
        with pytest.raises(InvalidInput) as refused:
            parse_description(
                description(constraints=[{"attribute": attribute, "operator": "=", "value": "x"}])
            )
        assert [each.pointer for each in refused.value.errors] == ["/constraints/0/attribute"]


@pytest.mark.parametrize("field", ["constraints", "affinities"])
@pytest.mark.parametrize(
    ("attribute", "operator"),
    [
        ("engine.ort.version", "semver"),
        ("engine.ort.version", "="),
        ("${attr.os.version}", "version"),
        ("rack", "version"),
    ],
)
def test_a_version_that_was_read_as_a_number_is_to_be_quoted(
    field: str, attribute: str, operator: str
) -> None:
    """YAML reads 1.30 as 1.3, which is another version."""
    condition = {"attribute": attribute, "operator": operator}
    (error,) = refused(**{field: [{**condition, "value": 1.30}]})
    assert error.pointer == f"/{field}/0"
    assert error.reason == "1.3 is a number, not text"
    assert error.accepted == 'text: quote it, "1.3" or as you wrote it'
    read(**{field: [{**condition, "value": "= 1.30"}]})
    read(**{field: [{"attribute": "dynamic.load", "operator": "<", "value": 1.5}]})


TRAINING: dict[str, object] = {
    "benchmark_type": "TYPE3",
    "dataset": "digits.npz",
    "dataset_urls": ["https://example.org/a.npz"],
    "odt_config": {"epochs": 2, "learning_rate": 0.01},
}


def test_every_field_is_taken_with_its_unit() -> None:
    asked = read(**EVERYTHING)
    assert asked.ram == 4 * 2**30
    assert asked.user_time_s == 900
    assert asked.deadline == datetime(2031, 8, 13, 9, tzinfo=UTC)
    assert asked.start_time == datetime(2030, 1, 1, tzinfo=UTC) + timedelta(milliseconds=250)
    assert asked.constraints == (Constraint(attribute="memory.ram", operator=">=", value="5"),)
    assert asked.binding is Binding.FILTERED
    assert asked.input["tokens"]["integers"] is True
    assert asked.extra == {"later": {"use": [1, 2.5, None]}}
    others = {"precision", "cron", "prohibit_overlap", "cron_by"}
    others |= {"keep_outputs", "profile_layers", "count", "soak", "soak_window", "concurrency"}
    others |= set(LOAD_FIELDS)
    assert set(EVERYTHING) | set(TRAINING) | set(description()) | others == set(
        JobDescriptionIn.model_fields
    )


def test_what_is_shown_can_be_submitted_again() -> None:
    for asked in (
        read(**EVERYTHING),
        read(**TRAINING),
        read(),
        read(precision="2 %"),
        read(count=2),
    ):
        assert to_description(parse_description(description_to_json(asked))) == asked


@pytest.mark.parametrize("written", ["2 %", "2%", 0.02, "0.02"])
def test_precision_is_a_share(written: object) -> None:
    assert read(precision=written).precision == pytest.approx(0.02)


def test_an_unknown_field_names_the_nearest() -> None:
    (error,) = refused(nb_inferense=3)
    assert (error.pointer, error.accepted) == ("/nb_inferense", "did you mean nb_inference?")


def test_a_dry_run_is_asked_for_by_the_query() -> None:
    (error,) = refused(dry_run=True)
    assert error.pointer == "/dry_run"
    assert "the query parameter ?dry_run=true" in error.accepted


def test_all_required_fields_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_description({})
    problems = {error.pointer: error.accepted for error in caught.value.errors}
    assert set(problems) == {"/model", "/runtime", "/benchmark_type", "/target"}
    assert len(caught.value.errors) == len(problems)
    assert "target_uid" in problems["/target"]
    assert "or a URL" in problems["/model"]
    named = {"model_url": "https://example.org/m.onnx", "target_uid": "rpi4b-0001-0001"}
    with pytest.raises(InvalidInput) as caught:
        parse_description(named)
    assert {error.pointer for error in caught.value.errors} == {"/runtime", "/benchmark_type"}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"model": ...}, "/model"),
        ({"model": "../model.onnx"}, "/model"),
        ({"model": "a\0b"}, "/model"),
        ({"model": "${NOMAD_TOKEN}.onnx"}, "/model"),
        ({"model": "spec.json"}, "/model"),
        ({"model": ["a", "b"]}, "/model"),
        ({"runtime": ...}, "/runtime"),
        ({"runtime": "ORT"}, "/runtime"),
        ({"runtime": "1.0"}, "/runtime"),
        ({"benchmark_type": "TYPE100"}, "/benchmark_type"),
        ({"benchmark_type": "TYPE2"}, "/dataset"),
        ({"benchmark_type": "TYPE3"}, "/odt_config"),
        ({"target": ...}, "/target"),
        ({"target": "rpi-4b"}, "/target"),
        ({"target_uid": "rpi5-0001-0001"}, "/target_uid"),
        ({"target_uid": "rpi4b-1-1"}, "/target_uid"),
        ({"ram": "much"}, "/ram"),
        ({"ram": -1}, "/ram"),
        ({"ram": 2**64}, "/ram"),
        ({"ram": True}, "/ram"),
        ({"user_priority": 0}, "/user_priority"),
        ({"user_priority": 11}, "/user_priority"),
        ({"user_budget": -1}, "/user_budget"),
        ({"user_time": 0}, "/user_time"),
        ({"user_time": "for ever"}, "/user_time"),
        ({"deadline": "tomorrow"}, "/deadline"),
        ({"deadline": "2030-01-01T00:00:00"}, "/deadline"),
        ({"deadline": "2030-13-01T00:00:00Z"}, "/deadline"),
        ({"deadline": "0001-01-01T00:00:00+14:00"}, "/deadline"),
        ({"deadline": "2030-01-01T00:00:00Z", "start_time": "2031-01-01T00:00:00Z"}, "/deadline"),
        ({"max_retries": 11}, "/max_retries"),
        ({"nb_inference": 0}, "/nb_inference"),
        ({"nb_inference": "20"}, "/nb_inference"),
        ({"nb_inference": 1.5}, "/nb_inference"),
        ({"precision": 2}, "/precision"),
        ({"precision": "2 %", "nb_inference": 7}, "/precision"),
        ({"preemptible": 1}, "/preemptible"),
        ({"job_completion_threshold": 101}, "/job_completion_threshold"),
        ({"constraints": [{"attribute": "a b", "operator": "="}]}, "/constraints/0/attribute"),
        ({"constraints": [{"attribute": "a", "operator": "~"}]}, "/constraints/0/operator"),
        (
            {"constraints": [{"attribute": "a", "operator": "=", "value": "%{x}"}]},
            "/constraints/0/value",
        ),
        ({"binding": "tight"}, "/binding"),
        ({"tags": [""]}, "/tags/0"),
        ({"input": {"x": {"shape": [-1]}}}, "/input/x/shape/0"),
        ({"input": {"x": {"low": 2, "high": 1}}}, "/input/x"),
        ({"input": {"x": {"shape": [2**20, 2**20]}}}, "/input/x"),
        (
            {"benchmark_type": "TYPE2", "dataset": "d.npz", "input": {"x": {"shape": [1]}}},
            "/input",
        ),
        ({"extra": {"x": "y" * 70_000}}, "/extra"),
        ({"version": 2}, "/version"),
        ({"benchmark_id": "../x"}, "/benchmark_id"),
        ({"benchmark_id": "x" * 65}, "/benchmark_id"),
        ({"version_tag": "a\nb"}, "/version_tag"),
        ({"runtime": "ncnn", "parameters": {"fp16": True, "bf16": True}}, "/parameters/bf16"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], pointer: str) -> None:
    assert pointer in [error.pointer for error in refused(**changes)]


def test_a_latency_bound_may_be_in_microseconds() -> None:
    assert read(load="server", load_bound="200 us").load_bound_s == pytest.approx(2e-4)


def test_all_wrong_fields_are_reported_at_once() -> None:
    wrong = refused(ram=-1, nb_inference=0, benchmark_type="TYPE100")
    assert {error.pointer for error in wrong} == {"/ram", "/nb_inference", "/benchmark_type"}


def test_a_url_may_stand_in_the_models_place() -> None:
    asked = read(model="https://example.org/nets/a%20b.onnx?x=1")
    assert asked.model_url == "https://example.org/nets/a%20b.onnx?x=1"
    assert asked.model == "a_b.onnx"


@pytest.mark.parametrize(
    "body",
    [
        b'{"x": NaN}',
        b'{"x": -Infinity}',
        b'{"x": 1e400}',
        b'{"x": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"x": "\xed\xa0\x80"}',
        b'{"x": ' + b"9" * 30 + b"}",
        b'{"x": ' + b"9" * 5000 + b"}",
        b'{"x": "\\u0000"}',
        b"[" * 100_000,
        b'{"x": ' * 100 + b"1" + b"}" * 100,
        b"{",
        b"",
        b"\xff\xfe{",
        b"[1]",
        b"null",
    ],
)
def test_json_that_nobody_could_keep_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_document(body)
    json.dumps(str(caught.value)).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"a: .nan",
        b"a: .inf",
        b"a: !!python/object/apply:os.system [id]",
        b"a: &x [1]\nb: [*x",
        b"? [1]\n: 2",
        b"1: 2",
        b"- a",
        b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 10)) for n in b"bcdefgh"
        ),
        b"\x00",
        b"a: !!binary aGVsbG8=",
        b'a: !!int ""',
        b"a: &a {x: 1}\nb: {<<: *a}",
        b"a: [" + b"1, " * 50_000 + b"1]",
        b"[" * 100_000,
        b"a: " + b"1" * 200_000,
        b"#" * 300_000,
    ],
)
def test_yaml_that_nobody_could_keep_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_document(body, "application/yaml")


def test_yaml_and_json_give_the_same_description() -> None:
    text = b"version: 1\nmodel: m.onnx\nram: 4 GiB\ndeadline: 2030-01-01T00:00:00Z\ntags: [a]\n"
    assert read_document(text, "application/yaml; charset=utf-8") == {
        "version": 1,
        "model": "m.onnx",
        "ram": "4 GiB",
        "deadline": "2030-01-01T00:00:00Z",
        "tags": ["a"],
    }


def test_a_few_hundred_bytes_of_yaml_cost_no_more_than_they_weigh() -> None:
    """Nested merge keys multiply: nine levels of ten are a billion values."""
    levels = [
        b"b%d: &b%d\n  <<: [%s]\n" % (n, n, b",".join([b"*b%d" % (n - 1)] * 10))
        for n in range(1, 10)
    ]
    with pytest.raises(InvalidInput, match="merge key"):
        read_document(b"b0: &b0 {x: 1}\n" + b"".join(levels), "application/yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30:00", "1:30:00"),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1000.0),
        ("007", "007"),
        ("1_000", "1_000"),
        ("yes", True),
        ("~", None),
    ],
)
def test_plain_yaml_scalars_are_read_as_in_json(text: str, value: object) -> None:
    assert read_document(f"a: [{text}]".encode(), "application/yaml") == {"a": [value]}


def test_other_media_types_are_not_read() -> None:
    with pytest.raises(WrongMediaType):
        read_document(b"{}", "text/plain")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(list(JobDescriptionIn.model_fields)) | st.text(max_size=8), JSON, max_size=6
    )
)
def test_whatever_is_sent_the_answer_is_a_description_or_a_named_field(
    changes: dict[str, object],
) -> None:
    try:
        body = json.dumps({**description(), **changes}).encode("utf-8", "surrogatepass")
        tree = read_json(body)
        assert isinstance(tree, dict)
        made = to_description(parse_description(tree))
    except InvalidInput as error:
        reports = [str(each) for each in error.errors]
    else:
        reports = [json.dumps(description_to_json(made), allow_nan=False)]
    assert reports
    json.dumps(reports).encode()


@given(st.text())
def test_names_from_urls_are_plain(path: str) -> None:
    assert file_name_problem(name_from_url(f"https://example.org/{path}", "model")) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [b"[" + b"0," * 499_000 + b"0]", b'{"a": [' + b"[]," * 300_000 + b"0]}"],
    ids=["numbers", "lists"],
)
def test_a_body_of_too_many_values_is_refused_before_they_are_gathered(text: bytes) -> None:
    tree = json.loads(text)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="too many values"):
            check_tree(tree)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_a_description_holds_few_regular_expressions() -> None:
    """Each one is matched with all boards of the lab, in every cycle that decides on it."""
    pattern = {"attribute": "memory.ram", "operator": "regexp", "value": "(a|b)*" * 30}
    parse_description(description(constraints=[pattern] * 4))
    with pytest.raises(InvalidInput, match="too many regular expressions"):
        parse_description(description(constraints=[pattern] * 5))


@pytest.mark.parametrize("runtime", ["ort", "tflite"])
@pytest.mark.parametrize("kind", ["TYPE1", "TYPE1 with outputs", "TYPE2", "TYPE3"])
@pytest.mark.parametrize(
    ("field", "value", "kinds"),
    [
        ("nb_inference", 50, "TYPE1, TYPE1 with outputs"),
        ("precision", "2 %", "TYPE1"),
        ("input", {"x": {"shape": [1]}}, "TYPE1"),
        ("profile_layers", True, "TYPE1"),
        ("dataset", "digits.npz", "TYPE1 with outputs, TYPE2, TYPE3"),
        ("dataset_urls", ["https://a.org/x.npz"], "TYPE1 with outputs, TYPE2, TYPE3"),
        ("odt_config", {"epochs": 1}, "TYPE3"),
        ("keep_outputs", True, "TYPE1, TYPE1 with outputs"),
    ],
)
def test_no_field_is_ignored_without_a_word(
    runtime: str, kind: str, field: str, value: object, kinds: str
) -> None:
    if field == "profile_layers" and runtime == "tflite":
        kinds = ""
    asked: dict[str, object] = {"runtime": runtime, "benchmark_type": kind.split()[0]}
    if kind != "TYPE1" and field != "dataset_urls":
        asked["dataset"] = "digits.npz"
    if kind == "TYPE1 with outputs":
        asked["keep_outputs"] = True
    if kind == "TYPE3":
        asked["odt_config"] = {"epochs": 1}
    if field == "keep_outputs":
        asked["dataset"] = "digits.npz"
    if kind in kinds.split(", "):
        read(**{**asked, field: value})
    else:
        found = refused(**{**asked, field: value})
        assert f"/{field}" in [each.pointer for each in found]
        assert all(each.accepted for each in found)


@pytest.mark.parametrize("kind", ["TYPE2", "TYPE3"])
def test_a_description_as_it_is_shown_is_accepted_again(kind: str) -> None:
    training = {"odt_config": {"epochs": 1}} if kind == "TYPE3" else {}
    shown = description_to_json(read(benchmark_type=kind, dataset="d.npz", **training))
    given = {name: value for name, value in shown.items() if value is not None}
    assert description_to_json(to_description(parse_description(given))) == shown


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"preemptible": False, "preemptible_measuring": True}, "/preemptible_measuring"),
        ({"if_unavailable": "notify"}, "/if_unavailable"),
    ],
)
def test_a_field_that_lacks_what_it_is_about_is_refused(
    changes: dict[str, object], pointer: str
) -> None:
    [error] = refused(**changes)
    assert error.pointer == pointer
    assert error.accepted


@pytest.mark.parametrize(
    "cron",
    [
        "0 3 * * mon-fri",
        "0 3 * * 1-5",
        "0 3 * * 7,sat",
        "0 3 ? * SUN",
        "0 0/6 13 * ?",
        "*/5 8-18/2 1,15 jan-jun *",
        "0 3 *,13 * mon",
        "0 0 3 * 1-6/2 * 2027-2040",
        "0 3 * * */2",
        "0 3 * * 1-5/2",
        "0 3 * * MON-FRI/2",
        "0 3 * * 0-4/2",
        "0 3 * * sun-tue",
        "0 3 * * 7/3",
        "0 3 * jan-jun/2 *",
        "0 3 * jan-6 *",
    ],
)
def test_a_crontab_that_nomad_reads_alike_is_taken(cron: str) -> None:
    assert read(cron=cron, cron_by="nomad").cron == cron


@pytest.mark.parametrize(
    "cron",
    [
        "0 3 * * fri-sun",  # Nomad leaves Sunday out
        "0 3 * * 5-7",
        "0 3 * * 0-7",
        "0 3 * * 01",  # Sunday for Nomad
        "0 3 * * 1-7/2",
        "0 3 * * */7",
        "0 3 */2 * mon",  # a day and a weekday
        "0 3 13 * */2",
        "0 3 1-31 * mon",
        "?/2 3 * * *",  # not known to Nomad
        "005 3 * * *",
        "0 */002 * * *",
        "0 */60 * * *",
    ],
)
def test_a_crontab_that_nomad_reads_otherwise_is_refused(cron: str) -> None:
    (error,) = refused(cron=cron, cron_by="nomad")
    assert error.pointer == "/cron"
    assert read(cron=cron).cron == cron


def test_a_start_time_does_not_delay_what_nomad_starts() -> None:
    (error,) = refused(cron="0 3 * * *", cron_by="nomad", start_time="2030-01-01T00:00:00Z")
    assert error.pointer == "/start_time"


def test_the_url_of_a_model_is_plain_text_on_one_line() -> None:
    (problem,) = refused(model="https://example.org/a\nb.onnx")
    assert (problem.pointer, problem.accepted) == ("/model", "plain text on one line")
