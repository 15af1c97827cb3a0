"""The platform's published example job: ours is the same, but for what is listed here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.hcl.render import render
from tests.builders.hcl import (
    PLATFORM_SETTINGS,
    PLATFORM_START,
    SHA,
    SPEC,
    a_request,
    flat,
    nomad_json,
)

FACTS = Path(__file__).parents[1] / "data" / "platform_example.json"
"""What Nomad 1.11.3 makes of the example (`nomad job run -output`, nulls dropped)."""

TASK = "Job.TaskGroups[0].Tasks[0]"
JOB_ID = "benchmark-rpi4b-ort-20250813091714"

ABSENT = object()

DIFFERENCES: dict[str, tuple[Any, str]] = {
    # path: (what ours says, why)
    f"{TASK}.Artifacts[0].RelativeDest": (
        "local/small_model.onnx",
        "mode file wants the whole path; mode any would unpack what looks like an archive",
    ),
    f"{TASK}.Artifacts[0].GetterMode": ("file", "never unpack a user's file"),
    f"{TASK}.Artifacts[0].GetterOptions.checksum": (
        f"sha256:{SHA}",
        "the task runs the very file that was submitted, or nothing",
    ),
    f"{TASK}.Artifacts[1].GetterSource": (
        f"http://10.200.0.1:42777/download/{SPEC.download}",
        "spec.json carries what the eleven variables can't",
    ),
    f"{TASK}.Artifacts[1].RelativeDest": ("local/spec.json", "as above"),
    f"{TASK}.Artifacts[1].GetterMode": ("file", "as above"),
    f"{TASK}.Artifacts[1].GetterOptions.checksum": (f"sha256:{SHA}", "as above"),
    f"{TASK}.Templates[0].EmbeddedTmpl": (
        f'{{{{ with nomadVar "nomad/jobs/{JOB_ID}" }}}}'
        "EDGEYARD_UPLOAD_TOKEN={{ .EDGEYARD_UPLOAD_TOKEN }}{{ end }}",
        "the upload token of the attempt must not stand in the job",
    ),
    f"{TASK}.Templates[0].DestPath": ("secrets/token.env", "as above"),
    f"{TASK}.Templates[0].Envvars": (False, "it is in no environment, which all children inherit"),
    f"{TASK}.Templates[0].ChangeMode": ("noop", "a token that is written again restarts no task"),
    f"{TASK}.Templates[0].Perms": ("0600", "it is no other user's"),
    f"{TASK}.Config.privileged": (
        False,
        "a privileged container owns its host; device files are named in the boards file",
    ),
    f"{TASK}.KillTimeout": (5 * 10**9, "time to stop measuring and to say so"),
    "Job.TaskGroups[0].RestartPolicy.Attempts": (
        0,
        "Nomad's defaults may run a benchmark 8 times; attempts are counted by Edgeyard",
    ),
    "Job.TaskGroups[0].RestartPolicy.Mode": ("fail", "as above"),
    "Job.TaskGroups[0].ReschedulePolicy.Attempts": (0, "as above"),
    "Job.TaskGroups[0].ReschedulePolicy.Unlimited": (False, "as above"),
    # Nomad prints these, although no job says them:
    f"{TASK}.Artifacts[0].Chown": (ABSENT, "a default that Nomad prints"),
    f"{TASK}.User": (ABSENT, "a default that Nomad prints"),
    f"{TASK}.Leader": (ABSENT, "a default that Nomad prints"),
    f"{TASK}.ShutdownDelay": (ABSENT, "a default that Nomad prints"),
    f"{TASK}.KillSignal": (ABSENT, "a default that Nomad prints"),
    f"{TASK}.Kind": (ABSENT, "a default that Nomad prints"),
    "Job.Dispatched": (ABSENT, "a default that Nomad prints"),
}


def ours() -> dict[str, Any]:
    job = build_job(a_request(start_at=PLATFORM_START), PLATFORM_SETTINGS)
    return flat(nomad_json(parse_job(render(job, masked=True))))


def expect_the_listed_differences(
    example: dict[str, Any], listed: dict[str, tuple[Any, str]]
) -> None:
    rendered = ours()
    found = {
        path: rendered.get(path, ABSENT)
        for path in example.keys() | rendered.keys()
        if example.get(path, ABSENT) != rendered.get(path, ABSENT)
    }
    assert found == {path: value for path, (value, _) in listed.items()}


def test_our_rendering_of_the_example_differs_from_it_only_where_listed() -> None:
    expect_the_listed_differences(flat(json.loads(FACTS.read_text())), DIFFERENCES)


def test_the_example_s_own_text_says_what_the_facts_say() -> None:
    seeds = sorted((Path(__file__).parents[3] / "shared" / "seeds").glob("003*.txt"))
    if not seeds:
        pytest.skip("the example's own text is not part of this repository")
    document = seeds[0].read_text(encoding="utf-8")
    begin = document.index('job "benchmark-rpi4b')
    job = parse_job(document[begin : document.index("How to leave no room", begin)])
    printed = {path for path, (value, _) in DIFFERENCES.items() if value is ABSENT}
    facts = flat(json.loads(FACTS.read_text()))
    assert flat(nomad_json(job)) == {
        path: value for path, value in facts.items() if path not in printed
    }
    assert parse_job(render(job)) == job
