"""Whatever text is in whatever field: the structure stays, and the text reads back as it was."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.devices.operators import OPERATORS
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.job import (
    Artifact,
    DeviceConstraint,
    JobAffinity,
    JobSpread,
    NodeConstraint,
    NomadJob,
    Periodic,
    Template,
)
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.hcl.render import render
from tests.builders.hcl import PLATFORM_SETTINGS, a_request

PIECES = st.sampled_from(
    [
        *['"', "\\", "\n", "\r", "\t", "\x00", "\x1f", "\x7f", "\u2028", "\ufeff", "é", "🙂"],
        *["$", "%", "{", "}", "${", "%{", "$${", "%%{", "$$${", "~}", "\\u", "\\U0001", "\\n"],
        *["#", "//", "/*", "*/", "<<EOT\n", "EOT\n", '"\n}\n', 'job "x" {', "null", "if", "= 1"],
        *["${NOMAD_ALLOC_ID}", "${node.unique.id}", '${upper("a")}', "%{ if true }", " "],
    ]
)
TEXT = st.lists(PIECES | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=6)
HOSTILE = TEXT.map("".join)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,12}", fullmatch=True)
COUNTS = st.integers(0, 10**9 - 1)

BASE = build_job(a_request(), PLATFORM_SETTINGS)

AFFINITIES = st.lists(
    st.builds(
        JobAffinity,
        attribute=HOSTILE,
        operator=st.sampled_from(OPERATORS),
        value=HOSTILE,
        weight=st.integers(-100, 100),
    ),
    max_size=2,
).map(tuple)

JOBS = st.builds(
    NomadJob,
    job_id=HOSTILE,
    priority=st.integers(1, 100),
    datacenters=st.lists(HOSTILE, max_size=2).map(tuple),
    type=HOSTILE,
    periodic=st.none()
    | st.builds(
        Periodic,
        cron=HOSTILE,
        prohibit_overlap=st.booleans(),
        enabled=st.booleans(),
        time_zone=st.none() | HOSTILE,
    ),
    group=HOSTILE,
    group_count=COUNTS,
    task=HOSTILE,
    driver=HOSTILE,
    config=st.fixed_dictionaries(
        {},
        optional={
            "image": HOSTILE,
            "network_mode": HOSTILE,
            "auth": st.fixed_dictionaries({"username": HOSTILE, "password": HOSTILE}),
            "privileged": st.booleans(),
            "command": HOSTILE,
            "args": st.lists(HOSTILE, max_size=3).map(tuple),
        },
    ),
    env=st.dictionaries(NAMES, HOSTILE, max_size=4),
    meta=st.dictionaries(NAMES, HOSTILE, max_size=2),
    artifacts=st.lists(
        st.builds(Artifact, source=HOSTILE, destination=HOSTILE, mode=HOSTILE, checksum=HOSTILE),
        max_size=2,
    ).map(tuple),
    templates=st.lists(
        st.builds(Template, data=HOSTILE, destination=HOSTILE, env=st.booleans()), max_size=1
    ).map(tuple),
    device=HOSTILE,
    device_count=COUNTS,
    constraints=st.lists(
        st.builds(
            DeviceConstraint,
            attribute=HOSTILE,
            operator=st.sampled_from(OPERATORS),
            value=HOSTILE,
        ),
        max_size=3,
    ).map(tuple),
    cpu_mhz=st.none() | COUNTS,
    memory_mib=st.none() | COUNTS,
    kill_timeout_s=st.none() | COUNTS,
    retries_off=st.booleans(),
    lost_after_s=st.none() | COUNTS,
    namespace=st.none() | HOSTILE,
    affinities=AFFINITIES,
    node_affinities=AFFINITIES,
    spreads=st.lists(
        st.builds(
            JobSpread,
            attribute=HOSTILE,
            weight=st.integers(1, 100),
            targets=st.lists(st.tuples(HOSTILE, st.integers(1, 100)), max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    node_constraints=st.lists(
        st.builds(
            NodeConstraint,
            attribute=HOSTILE,
            operator=st.sampled_from(OPERATORS),
            value=HOSTILE,
        ),
        max_size=2,
    ).map(tuple),
)


@settings(max_examples=80, deadline=None)
@given(JOBS)
def test_every_job_reads_back_exactly_and_renders_the_same_again(job: NomadJob) -> None:
    text = render(job)
    parsed = parse_job(text)
    assert parsed == job
    assert render(parsed) == text


@settings(max_examples=60, deadline=None)
@given(HOSTILE)
def test_hostile_text_changes_nothing_but_its_own_value(text: str) -> None:
    env = {**BASE.env, "VERSION_TAG": text}
    assert parse_job(render(replace(BASE, env=env))) == replace(BASE, env=env)
