"""What only the embedded cluster does: files, processes, cores, and dying with its server."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgeyard.errors import ClusterUnreachable, JobExists, JobRefused, NotFound
from edgeyard.scheduler.clusters.local import LocalCluster, task
from edgeyard.scheduler.clusters.local import cluster as cluster_module
from edgeyard.scheduler.clusters.local.admission import LocalJob
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.cron import cron_of
from edgeyard.scheduler.hcl.job import Artifact, Periodic, Template
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.ports import JobRun
from tests.builders.cluster import (
    TOKEN,
    Submitter,
    a_board,
    a_job,
    an_artifact,
    eventually,
    file_server,
    on,
)
from tests.builders.hcl import PLATFORM_SETTINGS, a_request
from tests.builders.memory import memory_cgroup

FIRST, SECOND = "rpi4b-0001-0001", "rpi4b-0001-0002"
CPU = min(os.sched_getaffinity(0))
UNTIL_STOPPED = "import time; print('up', flush=True); time.sleep(600)"
FILES = {"model.onnx": b"weights" * 1000, "busy": b"after a while"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Submitter]:
    cluster = LocalCluster((a_board(FIRST), a_board(SECOND)), tmp_path)
    yield Submitter(cluster)
    cluster.close()


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    with file_server(FILES) as url:
        yield url


class TestArtifacts:
    def test_lie_in_the_task_s_folder_and_are_gone_afterwards(
        self, lab: Submitter, files: str, tmp_path: Path
    ) -> None:
        show = (
            "import os; d = os.environ['NOMAD_TASK_DIR'];"
            "print(len(open(d + '/model.onnx', 'rb').read()), os.path.isfile('local/model.onnx'))"
        )
        artifact = an_artifact(files, "model.onnx", FILES["model.onnx"])
        assert lab.run(a_job(show, artifacts=(artifact,))).failure is None
        assert lab.log() == "7000 True\n"
        left = {path.name for path in (tmp_path / "alloc" / "benchmark-1").iterdir()}
        assert left == {"stdout.log", "stderr.log"}

    def test_the_platform_s_form_names_the_file_after_its_url(
        self, lab: Submitter, files: str
    ) -> None:
        artifact = Artifact(source=f"{files}/model.onnx", destination="local/")
        lab.run(a_job("import os; print(os.listdir('local'))", artifacts=(artifact,)))
        assert lab.log() == "['model.onnx']\n"

    def test_a_server_that_is_busy_is_asked_again(self, lab: Submitter, files: str) -> None:
        artifact = an_artifact(files, "busy", FILES["busy"])
        assert lab.run(a_job(artifacts=(artifact,))).failure is None

    def test_a_missing_file_is_the_cluster_s_matter(self, lab: Submitter, files: str) -> None:
        state = lab.run(a_job("print('ran')", artifacts=(an_artifact(files, "gone.onnx"),)))
        assert state.failure is not None
        assert state.failure.category is FailureCategory.CLUSTER
        assert "gone.onnx" in state.failure.sentence
        assert files not in state.failure.sentence
        assert state.started_at is None
        assert lab.log() == ""
        assert lab.cluster.logs("benchmark-1", "stdout", 0).ended

    def test_an_unreachable_server_is_the_cluster_s_matter(self, lab: Submitter) -> None:
        state = lab.run(a_job(artifacts=(an_artifact("http://127.0.0.1:1", "m.onnx"),)))
        assert state.failure is not None
        assert state.failure.category is FailureCategory.CLUSTER

    def test_another_content_is_never_run(self, lab: Submitter, files: str) -> None:
        artifact = an_artifact(files, "model.onnx", b"what was submitted")
        state = lab.run(a_job("print('ran')", artifacts=(artifact,)))
        assert state.failure is not None
        assert state.failure.category is FailureCategory.USER_INPUT
        assert "SHA-256" in state.failure.sentence
        assert lab.log() == ""

    def test_files_beyond_the_board_s_storage_are_not_kept(
        self, tmp_path: Path, files: str
    ) -> None:
        cluster = LocalCluster((a_board(FIRST, storage_bytes=100),), tmp_path)
        try:
            state = Submitter(cluster).run(a_job(artifacts=(an_artifact(files, "model.onnx"),)))
        finally:
            cluster.close()
        assert state.failure is not None
        assert state.failure.category is FailureCategory.USER_INPUT
        assert "storage" in state.failure.sentence

    @pytest.mark.parametrize(
        "destination",
        ["../x", "local/../../x", "/etc/x", "secrets/x", "x", "local", "", "local/${HOME}"],
    )
    def test_a_destination_outside_of_its_folder_is_refused(
        self, lab: Submitter, files: str, destination: str
    ) -> None:
        artifact = replace(an_artifact(files, "model.onnx"), destination=destination)
        with pytest.raises(JobRefused, match="destination"):
            lab.dispatch(a_job(artifacts=(artifact,)))

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"source": "file:///etc/passwd"}, "http"),
            ({"source": "s3::http://x/y"}, "http"),
            ({"mode": "dir"}, "mode"),
            ({"checksum": "md5:00"}, "sha256"),
            ({"mode": "any", "source": "http://x/y.zip"}, "unpacked"),
        ],
    )
    def test_what_is_not_done_to_artifacts_is_refused(
        self, lab: Submitter, change: dict[str, str], named: str
    ) -> None:
        artifact = replace(an_artifact("http://x", "y"), **change)
        with pytest.raises(JobRefused, match=named):
            lab.dispatch(a_job(artifacts=(artifact,)))


class TestSecrets:
    def test_are_in_a_file_for_the_task_alone(self, lab: Submitter) -> None:
        show = (
            "import os; p = 'secrets/token.env';"
            "print(oct(os.stat(p).st_mode & 0o777), open(p).read().strip())"
        )
        lab.dispatch(a_job(show), token="s3cret")
        lab.until("benchmark-1", JobRun.ENDED)
        assert lab.log() == f"0o600 {TOKEN}=s3cret\n"

    def test_only_those_that_the_job_asks_for_are_given(self, lab: Submitter) -> None:
        lab.run(
            a_job(
                f"import os; print(os.environ.get('{TOKEN}'), os.listdir('secrets'))", templates=()
            )
        )
        assert lab.log() == "None []\n"

    def test_a_job_whose_secret_is_not_there_is_refused(self, lab: Submitter) -> None:
        with pytest.raises(JobRefused, match=TOKEN):
            lab.cluster.dispatch("benchmark-1", a_job(), {})

    @pytest.mark.parametrize("token", ["two\nlines", "nul\0"])
    def test_a_secret_that_is_no_single_line_is_refused(self, lab: Submitter, token: str) -> None:
        with pytest.raises(JobRefused, match="one line"):
            lab.dispatch(a_job(), token=token)

    @pytest.mark.parametrize(
        "data",
        [
            '{{ with nomadVar "nomad/jobs/other" }}A={{ .A }}{{ end }}',
            '{{ file "/etc/passwd" }}',
            "A=1",
        ],
    )
    def test_a_template_of_anything_else_is_refused(self, lab: Submitter, data: str) -> None:
        template = Template(data=data, destination="secrets/x.env", env=True)
        with pytest.raises(JobRefused, match="template"):
            lab.dispatch(a_job(templates=(template,)))


class TestTheProcess:
    def test_inherits_nothing_of_the_server_s_environment(
        self, lab: Submitter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EDGEYARD_DATABASE_URL", "CANARY-SECRET")
        lab.run(a_job("import os, json; print(json.dumps(dict(os.environ)))"))
        env = json.loads(lab.log())
        assert "CANARY-SECRET" not in env.values()
        assert {name for name in env if not name.startswith("NOMAD_")} <= {
            *("PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", TOKEN, "EDGEYARD_BOARD"),
        }

    def test_receives_its_board_and_stays_on_its_cores(self, tmp_path: Path) -> None:
        cluster = LocalCluster((a_board(FIRST, cpus=(CPU,)),), tmp_path)
        lab = Submitter(cluster)
        try:
            lab.run(
                a_job(
                    "import os; print(os.sched_getaffinity(0)); print(os.environ['EDGEYARD_BOARD'])"
                )
            )
        finally:
            cluster.close()
        cores, board = lab.log().splitlines()
        assert cores == f"{{{CPU}}}"
        facts = json.loads(board)
        assert facts["target_uid"] == FIRST
        assert facts["cpus"] == [CPU]
        assert facts["emulated"] is True

    def test_leads_its_own_group_with_clean_signals_and_no_core_files(self, lab: Submitter) -> None:
        show = """
            import os, resource, signal
            print(os.getpgid(0) == os.getsid(0) == os.getpid())
            print(resource.getrlimit(resource.RLIMIT_CORE), os.read(0, 1))
            print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])
        """
        lab.run(a_job(textwrap.dedent(show)))
        own, core, ignored = lab.log().splitlines()
        assert own == "True"
        assert core == "(0, 0) b''"
        # What Python itself ignores (PIPE, XFSZ), and nothing that was handed down; 32 and 33 are
        # the C library's own, out of every program's reach.
        allowed = (signal.SIGPIPE, signal.SIGXFSZ, 32, 33)
        assert int(ignored, 16) & ~sum(1 << number - 1 for number in allowed) == 0

    def test_what_it_left_behind_ends_with_it(self, lab: Submitter) -> None:
        leave = "import os, time\nif os.fork() == 0: time.sleep(600)\nelse: print(os.getpid())"
        lab.run(a_job(leave))
        group = int(lab.log())
        eventually(lambda: not group_lives(group), "the group is gone")

    def test_that_is_deaf_to_the_polite_signal_is_killed(self, lab: Submitter) -> None:
        deaf = f"import signal; signal.signal(15, signal.SIG_IGN); {UNTIL_STOPPED}"
        lab.dispatch(a_job(deaf, kill_timeout_s=0))
        lab.until_log("benchmark-1", "up")
        lab.cluster.stop("benchmark-1")
        assert lab.until("benchmark-1", JobRun.ENDED).stopped

    def test_hears_the_polite_signal_first(self, lab: Submitter) -> None:
        polite = (
            "import signal, sys, time\n"
            "signal.signal(15, lambda *_: (print('bye', flush=True), sys.exit(1)))\n"
            "print('up', flush=True); time.sleep(600)"
        )
        lab.dispatch(a_job(polite, kill_timeout_s=60))
        lab.until_log("benchmark-1", "up")
        lab.cluster.stop("benchmark-1")
        assert lab.until("benchmark-1", JobRun.ENDED).stopped
        assert "bye" in lab.log()

    def test_a_command_that_is_not_there_is_the_cluster_s_matter(self, lab: Submitter) -> None:
        hcl = a_job().replace(sys.executable, "/no/such/command")
        state = lab.run(hcl)
        assert state.failure is not None
        assert state.failure.category is FailureCategory.CLUSTER
        assert "/no/such/command" in lab.log(stream="stderr")

    def test_the_runner_s_own_failure_is_reported_as_such(self, lab: Submitter) -> None:
        state = lab.run(a_job("import sys; sys.exit(3)"))
        assert state.failure is not None
        assert "runner reported" in state.failure.sentence

    def test_a_log_without_end_is_ended(
        self, lab: Submitter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task, "LOG_LIMIT_BYTES", 1 << 20)
        monkeypatch.setattr(task, "LOG_CHECK_INTERVAL_S", 0.02)
        state = lab.run(a_job("while True: print('x' * 1000)"))
        assert state.failure is not None
        assert "log" in state.failure.sentence
        assert not state.stopped


def test_a_docker_job_is_refused_with_a_sentence(lab: Submitter) -> None:
    with pytest.raises(JobRefused, match=r"has the driver raw_exec, not 'docker'"):
        lab.cluster.check(render(build_job(a_request(), PLATFORM_SETTINGS)))


def test_the_text_must_be_that_of_the_job(lab: Submitter) -> None:
    with pytest.raises(JobRefused, match="benchmark-2"):
        lab.dispatch(a_job(job_id="benchmark-2"), job_id="benchmark-1")


class TestCores:
    def test_boards_that_share_a_core_never_run_at_the_same_time(self, tmp_path: Path) -> None:
        boards = (a_board(FIRST, cpus=(CPU,)), a_board(SECOND, cpus=(CPU,)))
        self.one_after_the_other(LocalCluster(boards, tmp_path))

    def test_nor_do_boards_that_are_said_to_share(self, tmp_path: Path) -> None:
        boards = (a_board(FIRST, shares_with=frozenset({SECOND})), a_board(SECOND))
        self.one_after_the_other(LocalCluster(boards, tmp_path))

    def one_after_the_other(self, cluster: LocalCluster) -> None:
        lab = Submitter(cluster)
        try:
            lab.dispatch(a_job(UNTIL_STOPPED, on(FIRST)))
            lab.until("benchmark-1", JobRun.RUNNING)
            lab.dispatch(a_job("pass", on(SECOND), job_id="benchmark-2"), job_id="benchmark-2")
            assert "shares cores" in lab.state("benchmark-2").reason
            (host,) = cluster.hosts()
            assert [board.busy for board in host.boards] == [True, False]  # the twin closes it
            cluster.stop("benchmark-1")
            assert lab.until("benchmark-2", JobRun.ENDED).failure is None
        finally:
            cluster.close()

    def test_a_board_whose_core_this_machine_lacks_is_unhealthy(self, tmp_path: Path) -> None:
        cluster = LocalCluster((a_board(FIRST, cpus=(4095,)),), tmp_path)
        try:
            (host,) = cluster.hosts()
            assert not host.boards[0].healthy
            assert "4095" in host.boards[0].health_reason
            lab = Submitter(cluster)
            lab.dispatch(a_job())
            assert "4095" in lab.state().reason
            cluster.reload((a_board(FIRST),))
            assert lab.until("benchmark-1", JobRun.ENDED).failure is None
        finally:
            cluster.close()


class TestStartTime:
    def test_a_start_that_is_left_to_the_cluster_is_waited_for(self, tmp_path: Path) -> None:
        clock = [datetime(2030, 1, 1, tzinfo=UTC)]
        cluster = LocalCluster((a_board(FIRST),), tmp_path, now=lambda: clock[0])
        lab = Submitter(cluster)
        try:
            due = clock[0] + timedelta(hours=1)
            lab.dispatch(a_job(periodic=Periodic(cron=cron_of(due))))
            assert lab.state().run is JobRun.QUEUED
            assert lab.state().reason == "starts at 2030-01-01 01:00:00 UTC"
            lab.run(a_job(job_id="other"), job_id="other")
            assert lab.state().run is JobRun.QUEUED
            clock[0] = due
            assert lab.until("benchmark-1", JobRun.ENDED).started_at == due
        finally:
            cluster.close()

    @pytest.mark.parametrize(
        ("cron", "named"), [("0 0 0 1 1 * 2020", "past"), ("* * * * * * *", "single moment")]
    )
    def test_a_start_that_never_comes_is_refused(
        self, lab: Submitter, cron: str, named: str
    ) -> None:
        with pytest.raises(JobRefused, match=named):
            lab.dispatch(a_job(periodic=Periodic(cron=cron)))


class TestLife:
    def test_closing_ends_all_tasks_and_takes_no_more(self, tmp_path: Path) -> None:
        cluster = LocalCluster((a_board(FIRST),), tmp_path)
        lab = Submitter(cluster)
        lab.dispatch(a_job(f"import os; print(os.getpid()); {UNTIL_STOPPED}"))
        lab.until_log("benchmark-1", "up")
        lab.dispatch(a_job(job_id="waiting"), job_id="waiting")
        cluster.close()
        assert lab.state().stopped
        assert lab.state("waiting").stopped
        assert not group_lives(int(lab.log().split()[0]))
        with pytest.raises(ClusterUnreachable):
            lab.dispatch(a_job(job_id="late"), job_id="late")

    def test_the_newest_logs_outlive_the_server_and_old_ones_go(self, tmp_path: Path) -> None:
        first = LocalCluster((a_board(FIRST),), tmp_path, kept_jobs=2)
        for number in range(4):
            Submitter(first).run(
                a_job(f"print({number})", job_id=f"j{number}"), job_id=f"j{number}"
            )
        first.close()
        second = LocalCluster((a_board(FIRST),), tmp_path, kept_jobs=2)
        try:
            assert Submitter(second).log("j3") == "3\n"
            assert second.states(["j3"]) == {}
            for number in (0, 1):
                with pytest.raises(NotFound):
                    second.logs(f"j{number}", "stdout", 0)
        finally:
            second.close()

    def test_kill_9_of_the_server_leaves_no_task_alive(self, tmp_path: Path) -> None:
        """Also not what a task started in a session of its own: the next server ends that."""
        with hosting_process(tmp_path) as server:
            assert server.stdout is not None
            task_pid, stray_pid = map(int, server.stdout.readline().split())
            assert alive(task_pid)
            assert alive(stray_pid)
            server.kill()
            server.wait()
            eventually(lambda: not alive(task_pid), "the task is gone")
        LocalCluster((), tmp_path).close()
        eventually(lambda: not alive(stray_pid), "the stray is gone")
        assert not list((tmp_path / "alloc").glob("*/secrets"))

    def test_a_secret_is_nowhere_once_its_job_has_ended(
        self, lab: Submitter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        lab.dispatch(a_job("import sys; sys.exit(1)"), token="CANARY-SECRET")
        state = lab.until("benchmark-1", JobRun.ENDED)
        kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert b"CANARY" not in b"".join(kept)
        assert "CANARY" not in caplog.text + repr(state) + repr(vars(lab.cluster))

    def test_of_a_job_that_has_ended_its_state_alone_is_kept(self, lab: Submitter) -> None:
        before = {id(each) for each in gc.get_objects() if isinstance(each, LocalJob)}
        lab.run(a_job("print('up')"))
        threads = {each for each in threading.enumerate() if each.name == "local-benchmark-1"}
        for thread in threads:
            thread.join()
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, LocalJob)]
        assert [each for each in kept if id(each) not in before] == []
        assert lab.state().run is JobRun.ENDED
        assert lab.log() == "up\n"
        with pytest.raises(JobExists):
            lab.dispatch(a_job())

    def test_a_mistake_of_its_own_ends_the_job_and_frees_the_board(
        self, lab: Submitter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(task.Task, "_prepare", lambda self: 1 / 0)
            state = lab.run(a_job("pass", on(FIRST)))
        assert state.failure is not None
        assert state.failure.category is FailureCategory.CLUSTER
        assert lab.run(a_job("pass", on(FIRST), job_id="next"), job_id="next").failure is None

    def test_a_listener_that_falls_behind_must_refresh_everything(
        self, lab: Submitter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cluster_module, "_LISTENER_EVENTS", 2)
        events = lab.cluster.events(threading.Event())
        assert next(events) == ""
        lab.run(a_job())
        assert next(events) == ""

    def test_many_jobs_and_stops_at_any_moment_leave_nothing_behind(self, lab: Submitter) -> None:
        jobs = [f"j{number}" for number in range(24)]
        before = set(os.listdir("/proc/self/fd"))
        stoppers = []
        for number, job_id in enumerate(jobs):
            code = "import time; time.sleep(0.02)" if number % 3 else UNTIL_STOPPED
            lab.dispatch(a_job(code, job_id=job_id), job_id=job_id)
            if number % 3 == 0:
                stopper = threading.Timer(number * 0.01, lab.cluster.stop, [job_id])
                stopper.start()
                stoppers.append(stopper)
        states = [lab.until(job_id, JobRun.ENDED) for job_id in jobs]
        for stopper in stoppers:
            stopper.join()
        assert [state.stopped for state in states] == [number % 3 == 0 for number in range(24)]
        for uid in (FIRST, SECOND):
            runs = sorted(
                (state.started_at, state.ended_at)
                for state in states
                if state.target_uid == uid and state.started_at and state.ended_at
            )
            assert all(one[1] <= two[0] for one, two in itertools.pairwise(runs))
        eventually(
            lambda: not [t for t in threading.enumerate() if t.name.startswith("local-j")],
            "all threads end",
        )
        assert set(os.listdir("/proc/self/fd")) <= before


HOST = """
import sys, threading
from pathlib import Path
from edgeyard.scheduler.clusters.local import LocalCluster
from tests.builders.cluster import Submitter, a_board, a_job
cluster = LocalCluster((a_board(),), Path(sys.argv[1]))
lab = Submitter(cluster)
lab.dispatch(a_job('''
import os, time
stray = os.fork()
if stray == 0:
    os.setsid()
    time.sleep(600)
print(os.getpid(), stray, flush=True)
time.sleep(600)
'''))
lab.until_log("benchmark-1", "\\n")
print(lab.log().strip(), flush=True)
threading.Event().wait(600)
"""


def hosting_process(data_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOST, str(data_dir)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def alive(pid: int) -> bool:
    """Running, not merely uncollected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def group_lives(group: int) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and alive(int(entry.name)):
            try:
                if os.getpgid(int(entry.name)) == group:
                    return True
            except ProcessLookupError:
                continue
    return False


class TestAKilledTask:
    def test_is_no_matter_of_its_memory_when_the_machine_kills_another_for_it(
        self, lab: Submitter
    ) -> None:
        lab.dispatch(a_job("import os, time; print(os.getpid(), flush=True); time.sleep(600)"))
        eventually(lambda: lab.log().endswith("\n"), "its task runs")
        with memory_cgroup(40 * 2**20) as cgroup:
            hog = (
                f"open('{cgroup}/cgroup.procs', 'w').write(str(__import__('os').getpid()));"
                "bytearray(200 << 20)"
            )
            assert subprocess.run([sys.executable, "-c", hog]).returncode == -signal.SIGKILL
        os.kill(int(lab.log()), signal.SIGKILL)
        failure = lab.until("benchmark-1", JobRun.ENDED).failure
        assert failure is not None
        assert failure.category is FailureCategory.BOARD_FAULT

    def test_is_out_of_memory_where_it_had_reached_its_board_s_limit(self, tmp_path: Path) -> None:
        board = replace(a_board(FIRST), ram_bytes=100 * 2**20)
        cluster = LocalCluster((board,), tmp_path)
        code = "import os, signal; x = b'x' * (95 << 20); os.kill(os.getpid(), signal.SIGKILL)"
        failure = Submitter(cluster).run(a_job(code)).failure
        cluster.close()
        assert failure is not None
        assert failure.category is FailureCategory.OUT_OF_MEMORY
