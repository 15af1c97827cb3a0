"""What only a real Nomad can show: users' text in a task, preemption, rights."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from edgeyard import testbed
from edgeyard.errors import ClusterUnreachable, NotFound
from edgeyard.scheduler.clusters.nomad import NomadCluster
from edgeyard.scheduler.hcl.build import filename_problem
from edgeyard.scheduler.hcl.text import plain_text_problem
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.ports import JobRun
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import (
    Submitter,
    a_job,
    an_artifact,
    eventually,
    file_server,
    listening,
    on,
)
from tests.nomad_cluster import access_of, clear

pytestmark = [pytest.mark.nomad, pytest.mark.xdist_group("nomad")]

BOARD = "rpi5-0002-0002"
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
TEXTS = [
    *["plain", "", " two  words ", "a\"b'c", "back\\slash\\n", "$HOME $(id) `id`", "$", "$$", "%"],
    *["{{ with nomadVar }}", "{{", "}}", "{", "}", "$ {x}", "% {x}", "#!/*//", "<<EOT", "é 🙂 ñ"],
    *["${NOMAD_ALLOC_ID}", "${attr.unique.hostname}", "%{ if true }x%{ endif }", "$${x}", "a\nb"],
    *["a\0b", "tab\there", "e\u0301", "\u2028", "null", "true", "007", "x" * 4000],
]


@pytest.fixture
def lab(nomad_cluster: LoopbackNomad) -> Iterator[Submitter]:
    clear(nomad_cluster)
    lab = Submitter(NomadCluster(access_of(nomad_cluster)))
    yield lab
    lab.cluster.close()
    clear(nomad_cluster)


def test_text_arrives_in_the_task_byte_for_byte_or_is_refused_before(lab: Submitter) -> None:
    carried = [text for text in TEXTS if plain_text_problem(text) is None]
    refused = [text for text in TEXTS if text not in carried]
    assert {"${NOMAD_ALLOC_ID}", "${attr.unique.hostname}", "a\nb", "a\0b"} <= set(refused)
    env = {f"TEXT_{number}": text for number, text in enumerate(carried)}
    show = (
        "import json, os; "
        "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('TEXT_')}))"
    )
    state = lab.run(a_job(show, env=env))
    assert state.failure is None
    assert json.loads(lab.log()) == env


def test_files_arrive_under_the_names_that_users_gave_them_or_are_refused_before(
    lab: Submitter,
) -> None:
    texts = {text[:60] for text in TEXTS if text.strip()} | {
        "100%.onnx",
        "a?b=c&d#e",
        "-",
        "~",
        "*",
    }
    names = sorted(text for text in texts if filename_problem(text) is None)
    assert len(names) > 15
    assert filename_problem("${NOMAD_ALLOC_DIR}") is not None
    contents = {f"file-{number}": name.encode() for number, name in enumerate(names)}
    with file_server(contents) as url:
        artifacts = tuple(
            replace(an_artifact(url, served, content), destination=f"local/{content.decode()}")
            for served, content in contents.items()
        )
        show = (
            "import json, pathlib; "
            "print(json.dumps({p.name: p.read_text() for p in pathlib.Path('local').iterdir()}))"
        )
        state = lab.run(a_job(show, artifacts=artifacts))
    assert state.failure is None
    assert json.loads(lab.log()) == {name: name for name in names}


def test_old_jobs_that_edgeyard_knows_to_have_ended_are_purged(
    lab: Submitter, nomad_cluster: LoopbackNomad
) -> None:
    known, strange = "benchmark-known", "benchmark-strange"
    for job_id in (known, strange):
        lab.run(a_job("pass", job_id=job_id), job_id=job_id)
    keeper = NomadCluster(access_of(nomad_cluster), purge_age_s=0, ended=lambda ids: {known})
    with contextlib.closing(keeper), listening(keeper):
        eventually(lambda: set(lab.cluster.states([known, strange])) == {strange}, "it is gone")


def test_a_job_that_nomad_preempts_ends_so_and_never_runs_again(
    lab: Submitter, nomad_cluster: LoopbackNomad
) -> None:
    path = "/v1/operator/scheduler/configuration"
    before = nomad_cluster.call("GET", path)
    config = before["SchedulerConfig"]
    wanted = {**config["PreemptionConfig"], "BatchSchedulerEnabled": True}
    nomad_cluster.call("PUT", path, {**config, "PreemptionConfig": wanted})
    try:
        lab.dispatch(a_job(SLEEP, on(BOARD), priority=10))
        lab.until_log("benchmark-1", "up")
        urgent = a_job("pass", on(BOARD), job_id="benchmark-2", priority=90)
        assert lab.run(urgent, job_id="benchmark-2").failure is None
        ended = lab.until("benchmark-1", JobRun.ENDED)
        assert ended.failure is not None
        assert ended.failure.category is FailureCategory.PREEMPTED

        def stopped() -> bool:
            (job,) = (
                each
                for each in nomad_cluster.call("GET", "/v1/jobs?namespace=edgeyard") or ()
                if each["ID"] == "benchmark-1"
            )
            return bool(job["Stop"])

        eventually(stopped, "Nomad will not place it again")
        assert lab.state("benchmark-1").run is JobRun.ENDED
    finally:
        nomad_cluster.call("PUT", path, config)


def test_a_file_that_cannot_be_had_is_ours_and_a_wrong_one_the_user_s(lab: Submitter) -> None:
    with file_server({"model.onnx": b"model"}) as url:
        missing = a_job("pass", artifacts=(an_artifact(url, "gone.onnx"),))
        failure = lab.run(missing).failure
        assert failure is not None
        assert failure.category is FailureCategory.CLUSTER
        assert "404" in failure.sentence
        other = (an_artifact(url, "model.onnx", b"another"),)
        wrong = a_job("pass", artifacts=other, job_id="benchmark-2")
        failure = lab.run(wrong, job_id="benchmark-2").failure
        assert failure is not None
        assert failure.category is FailureCategory.USER_INPUT


def test_a_result_that_a_task_left_is_read_from_its_host(lab: Submitter) -> None:
    leave = (
        "import os, sys; folder = os.environ['NOMAD_TASK_DIR'] + '/results'; os.mkdir(folder); "
        "open(folder + '/report.json', 'wb').write(bytes(range(256)) * 4000); sys.exit(4)"
    )
    state = lab.run(a_job(leave))
    assert state.failure is not None
    assert state.failure.category is FailureCategory.UPLOAD
    kept = b"".join(lab.cluster.retained_file("benchmark-1", "report.json"))
    assert kept == bytes(range(256)) * 4000
    for job_id, name in (("benchmark-1", "other.npy"), ("benchmark-none", "report.json")):
        with pytest.raises(NotFound):
            b"".join(lab.cluster.retained_file(job_id, name))


def test_the_token_s_rights_are_the_least(lab: Submitter, nomad_cluster: LoopbackNomad) -> None:
    """It does all that Edgeyard does (every test here uses it), and nothing else."""

    def denied(method: str, path: str, body: object = None) -> bool:
        try:
            testbed.call(nomad_cluster.address, method, path, nomad_cluster.token, body)
        except RuntimeError as error:
            return "403" in str(error)
        return False

    assert denied("GET", "/v1/acl/tokens")
    assert denied("PUT", "/v1/var/secret?namespace=edgeyard", {"Items": {"a": "b"}})
    assert denied("GET", "/v1/jobs?namespace=default")
    assert denied("DELETE", "/v1/job/x?namespace=default")
    assert denied("PUT", "/v1/operator/scheduler/configuration", {})
    assert denied("PUT", "/v1/system/gc")
    assert denied("POST", "/v1/namespace/other", {"Name": "other"})
    nodes = testbed.call(nomad_cluster.address, "GET", "/v1/nodes", nomad_cluster.token)
    assert denied("POST", f"/v1/node/{nodes[0]['ID']}/drain", {"DrainSpec": None})


def test_a_wrong_token_is_named_as_the_trouble(nomad_cluster: LoopbackNomad) -> None:
    access = replace(access_of(nomad_cluster), token=testbed.secrets_uuid())
    with (
        contextlib.closing(NomadCluster(access)) as cluster,
        pytest.raises(ClusterUnreachable, match="403"),
    ):
        cluster.hosts()
