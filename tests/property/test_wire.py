"""JSON of the model: what goes out comes back, and what JSON can't hold doesn't go out."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model import strict_json, wire
from edgeyard.scheduler.model.benchmark import (
    Affinity,
    BenchmarkType,
    Binding,
    Constraint,
    CronBy,
    IfUnavailable,
    JobDescription,
    Spread,
)
from tests.builders import records as make

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-strict_json.MAX_INTEGER, strict_json.MAX_INTEGER)
zones = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
times = st.datetimes(datetime(1970, 1, 3), datetime(2200, 1, 1), timezones=zones)  # noqa: DTZ001
values = st.recursive(
    st.none() | st.booleans() | whole | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)

descriptions = st.builds(
    JobDescription,
    model=texts,
    runtime=texts,
    benchmark_type=st.sampled_from(BenchmarkType),
    model_url=st.none() | texts,
    dataset=st.none() | texts,
    dataset_urls=st.lists(texts, max_size=3).map(tuple),
    odt_config=st.none() | texts | objects,
    target=st.none() | texts,
    target_uid=st.none() | texts,
    ram=whole,
    storage=whole,
    user_priority=whole,
    user_budget=st.none() | numbers,
    user_time_s=st.none() | numbers,
    deadline=st.none() | times,
    max_retries=whole,
    nb_inference=whole,
    precision=st.none() | numbers,
    preemptible=st.booleans(),
    preemptible_measuring=st.booleans(),
    job_completion_threshold=st.none() | whole,
    start_time=st.none() | times,
    cron=st.none() | texts,
    prohibit_overlap=st.booleans(),
    cron_by=st.sampled_from(CronBy),
    version_tag=texts,
    constraints=st.lists(
        st.builds(Constraint, attribute=texts, operator=texts, value=texts), max_size=3
    ).map(tuple),
    affinities=st.lists(
        st.builds(Affinity, attribute=texts, operator=texts, value=texts, weight=whole), max_size=3
    ).map(tuple),
    spreads=st.lists(
        st.builds(
            Spread,
            attribute=texts,
            weight=whole,
            targets=st.dictionaries(texts, whole, max_size=2).map(lambda each: (*each.items(),)),
        ),
        max_size=3,
    ).map(tuple),
    binding=st.none() | st.sampled_from(Binding),
    if_unavailable=st.sampled_from(IfUnavailable),
    tags=st.lists(texts, max_size=3).map(tuple),
    name=texts,
    parameters=objects,
    input=st.dictionaries(texts, objects, max_size=2),
    queue_timeout_s=st.none() | numbers,
    extra=objects,
)


@settings(max_examples=150)
@given(descriptions)
def test_a_description_comes_back_from_its_text(description: JobDescription) -> None:
    text = strict_json.dumps(wire.description_to_json(description))
    assert wire.description_from_json(strict_json.loads(text)) == description


@settings(max_examples=150)
@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text() | st.binary(max_size=1),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_text_that_is_made_is_json_that_every_database_takes(value: object) -> None:
    try:
        text = strict_json.dumps(value)
    except InvalidInput:
        return
    assert strict_json.loads(text) == value
    assert "\0" not in text
    text.encode()


def test_every_field_of_a_description_is_in_its_json_under_the_users_name() -> None:
    names = {field.name for field in fields(JobDescription)}
    in_seconds = {"user_time", "queue_timeout", "soak", "soak_window"}
    in_seconds |= {"load_bound", "load_duration"}
    users = names - {f"{each}_s" for each in in_seconds} | in_seconds
    assert set(wire.description_to_json(make.a_description())) == users


def test_absent_fields_get_their_defaults() -> None:
    given = {"model": "m.onnx", "runtime": "ort", "benchmark_type": "TYPE1"}
    assert wire.description_from_json(given) == JobDescription(
        model="m.onnx", runtime="ort", benchmark_type=BenchmarkType.TYPE1
    )


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": [1, float("nan")]}, "/a/1"),
        ({"a/b~c": float("-inf")}, "/a~1b~0c"),
        ([[2**63]], "/0/0"),
        ({"x": "\ud800"}, "/x"),
        ({"\0": 1}, ""),
        ({1: 1}, ""),
        ({"x": b""}, "/x"),
    ],
)
def test_what_json_can_not_hold_is_refused_at_its_place(value: object, pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        strict_json.check_json(value)
    assert refused.value.errors[0].pointer == pointer


def test_nesting_has_a_bound() -> None:
    value: object = 1
    for _ in range(strict_json.MAX_DEPTH):
        value = [value]
    strict_json.check_json(value)
    with pytest.raises(InvalidInput):
        strict_json.check_json([value])


def test_times_are_utc_with_z_and_need_a_zone() -> None:
    two_hours_ahead = datetime(2026, 11, 21, 10, 30, 0, 5, timezone(timedelta(hours=2)))
    assert strict_json.time_to_json(two_hours_ahead) == "2026-11-21T08:30:00.000005Z"
    assert strict_json.time_from_json("2026-11-21T08:30:00.000005Z") == two_hours_ahead
    assert strict_json.time_to_json(None) is None
    with pytest.raises(ValueError, match="zone"):
        strict_json.time_to_json(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="zone"):
        strict_json.time_from_json("2026-01-01T00:00:00")
