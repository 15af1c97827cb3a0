"""Which tests are run a second time, how that is reported, and what they find."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgeyard.testbed import LoopbackNomad
from tests import reruns
from tests.builders.cluster import eventually
from tests.nomad_cluster import restore

ROOT = Path(__file__).parents[2]

_CASES = """
import os, pathlib, pytest, time

def first_time(name):
    mark = pathlib.Path(__file__).with_name(name)
    seen = mark.exists()
    mark.touch()
    return not seen

@pytest.mark.KIND
def test_mended_by_a_second_run():
    assert not first_time("mended"), "the first failure"

@pytest.mark.KIND
def test_that_fails_twice():
    assert 0, "each time"

def test_of_no_kind():
    assert not first_time("no kind"), "of no kind"

@pytest.mark.postgres
def test_of_another_kind():
    assert not first_time("another"), "of another kind"

@pytest.mark.KIND
def test_whose_program_is_missing():
    pytest.skip("there is none")

@pytest.mark.KIND
@pytest.mark.timeout(1)
def test_that_hangs_twice():
    time.sleep(60)

@pytest.mark.KIND
def test_that_is_skipped_at_last():
    if not first_time("skipped"):
        pytest.skip("the second time")
    assert 0, "and no less a failure"

@pytest.mark.KIND
def test_that_changes_the_umask():
    before = os.umask(0o077)
    assert before == 0o022, "it is that of the first run"
    assert not first_time("umask"), "the first failure"
"""


def run(folder: Path, *arguments: str, kind: str = "nomad") -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(
        "from tests.conftest import pytest_runtest_makereport, pytest_runtest_teardown\n"
    )
    (folder / "test_it.py").write_text(_CASES.replace("KIND", kind))
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.reruns", "-c", os.devnull, "-q"),
            *("-p", "no:cacheprovider", "--rerun-show-tracebacks", "--rootdir", str(folder)),
            *(*arguments, str(folder / "test_it.py")),
        ],
        cwd=folder,
        env={
            **{name: each for name, each in os.environ.items() if "PYTEST" not in name},
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "CI": "true",
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "three processes"])
def test_tests_with_processes_of_others_are_run_once_more_and_listed(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = run(tmp_path, *arguments)
    assert re.search(r"6 failed, 2 passed,.* 5 rerun", done.stdout), done.stdout
    _, reported = done.stdout.split("rerun test summary info")
    assert "test_mended_by_a_second_run" in reported
    assert "AssertionError: the first failure" in reported
    assert "AssertionError: each time" in reported
    assert "RERUN test_it.py::test_that_hangs_twice" in reported
    assert "failed, and was skipped when it was run again" in done.stdout
    for name in ("of_no_kind", "of_another_kind", "program_is_missing"):
        assert not re.search(rf"RERUN \S*{name}", done.stdout)


def test_no_test_asks_for_a_second_run_itself() -> None:
    here = {Path(reruns.__file__), Path(__file__)}
    asking = re.compile(r"mark\.flaky|--(force-)?reruns\b")
    files = [*ROOT.glob("tests/**/*.py"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    assert [path for path in files if path not in here and asking.search(path.read_text())] == []


@pytest.mark.nomad
@pytest.mark.slow
@pytest.mark.xdist_group("nomad")
def test_a_second_run_finds_a_shared_cluster_as_the_first_did(nomad_cluster: LoopbackNomad) -> None:
    boards = dict(nomad_cluster.boards_by_client())
    nodes = {each["Name"]: each["ID"] for each in nomad_cluster.call("GET", "/v1/nodes")}
    drained = f"/v1/node/{nodes['client-0']}/drain"
    nomad_cluster.call("POST", drained, {"DrainSpec": {"Deadline": -1}, "MarkEligible": False})
    nomad_cluster.clients[1].kill()
    stopped = nomad_cluster.clients[2].pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)

    restore(nomad_cluster)

    def is_whole() -> bool:
        found = nomad_cluster.call("GET", "/v1/nodes")
        eligible = all(each["SchedulingEligibility"] == "eligible" for each in found)
        return eligible and dict(nomad_cluster.boards_by_client()) == boards

    eventually(is_whole, "all hosts and boards are there", 60.0)
