"""Models of outcomes over HTTP and in the command line: trained, promoted, rolled back."""

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.bootstrap import TRAINING
from edgeyard.benchmark_api.cli import app
from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.engine.retraining import Retraining, TrainingState
from edgeyard.scheduler.model.acts import ActFilter
from edgeyard.scheduler.model.registered_models import ModelKind, ModelState
from edgeyard.scheduler.outcomes.learning import learn_outcomes
from edgeyard.scheduler.outcomes.rows import read_outcome_rows
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.tables import model_files
from tests.builders.api import Api, leader_view
from tests.builders.outcomes import add_past, as_the_history_expects
from tests.builders.registered import add_candidate


def run(*args: object) -> tuple[int, str, str]:
    """Run a command in a process of its own, which limits itself."""
    done = subprocess.run(
        [sys.executable, "-m", "edgeyard", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    return done.returncode, done.stdout, done.stderr


on_the_folders_database = pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
"""For tests of commands that open the database of a folder, which is SQLite's, and no other one:
on PostgreSQL they would do the same again."""


@pytest.fixture(name="lab")
def a_lab_with_a_past(tmp_path: Path) -> Path:
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")
    add_past(store, 20, end=as_the_history_expects)
    store.close()
    return tmp_path


def add_enough_runs(store: SqlStore) -> None:
    """As many as a training needs to begin: 104 in two cycles, which cost less than thirteen."""
    assert add_past(store, 2, boards=52) == 104


def states(api: Api) -> dict[str, str]:
    items = api.as_("operator").get("/v1/models").json()["items"]
    return {f"{each['kind']}/{each['version']}": each["state"] for each in items}


def test_a_candidate_becomes_the_shadow_then_active_and_is_rolled_back(api: Api) -> None:
    operator = api.as_("operator")
    for _ in range(2):
        add_candidate(api.store)
    for version in (1, 2):
        for _ in range(2):
            url = f"/v1/models/failure/{version}/promote?force=true"
            assert operator.post(url).status_code == 200
    assert states(api) == {"failure/1": "retired", "failure/2": "active"}
    answer = operator.post("/v1/models/failure/rollback", params={"reason": "it is wrong"})
    assert answer.json()["reason"] == "rolled back: it is wrong"
    assert states(api) == {"failure/1": "active", "failure/2": "retired"}
    for reason in ("", "a\x00b", "\x1b[31mred", "x" * 501):
        refused = operator.post("/v1/models/failure/rollback", params={"reason": reason})
        assert refused.status_code == 422
    assert operator.post("/v1/models/failure/rollback").status_code == 200
    assert states(api) == {"failure/1": "retired", "failure/2": "retired"}
    assert operator.post("/v1/models/failure/rollback").status_code == 409
    with api.store.read() as uow:
        events = uow.log.events(after=0, limit=1000)
    kinds = [each.data["state"] for each in events if each.kind == "model.state"]
    assert kinds.count("active") == 3


def test_a_gate_that_does_not_hold_and_an_unmeasured_shadow_refuse(api: Api) -> None:
    operator = api.as_("operator")
    add_candidate(api.store, passed=False)
    answer = operator.post("/v1/models/failure/1/promote")
    assert answer.status_code == 409
    assert "later (not better)" in answer.json()["detail"]
    add_candidate(api.store)
    assert operator.post("/v1/models/failure/2/promote").json()["state"] == "shadow"
    answer = operator.post("/v1/models/failure/2/promote")
    assert answer.status_code == 409
    assert "shadow (not measured yet)" in answer.json()["detail"]


def test_a_file_that_was_replaced_is_not_promoted(api: Api) -> None:
    add_candidate(api.store)
    with api.store.write() as uow:
        uow.tx.run(model_files.update().values(data=b"another file"))
    answer = api.as_("operator").post("/v1/models/failure/1/promote")
    assert answer.status_code == 409
    assert "model failure/1: its file has SHA-256" in answer.json()["detail"]
    assert states(api) == {"failure/1": "candidate"}


@on_the_folders_database
def test_the_command_trains_and_registers_candidates(lab: Path) -> None:
    code, out, err = run("learn", "outcomes", "--data-dir", lab)
    assert code == 0, err
    assert "run_time/1" in out
    assert "candidate" in out
    store = SqlStore(f"sqlite:///{lab}/edgeyard.db")
    with store.read() as uow:
        assert len(uow.models.all(ModelKind.RUN_TIME)) == 1
    store.close()


@on_the_folders_database
def test_a_training_without_processor_time_left_can_say_so() -> None:
    code = (
        "from edgeyard.scheduler.outcomes.limits import *\n"
        "limit_own_process(1 << 32, 1)\n"
        "try:\n"
        "    while True: sum(range(1000))\n"
        "except ProcessorTimeUsed: print('used')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=250
    )
    assert done.stdout == "used\n"


@on_the_folders_database
def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    code, _, err = run("learn", "outcomes", "--data-dir", tmp_path, "--max-memory-mib", 64)
    assert code == 1
    assert "--max-memory-mib" in err
    assert "1024" in err


@on_the_folders_database
def test_an_error_in_training_is_not_reported_as_too_few_runs(tmp_path: Path) -> None:
    code, _, err = run("learn", "outcomes", "--data-dir", tmp_path)
    assert (code, "has no database" in err) == (1, True)
    cut_short = (
        "from edgeyard.benchmark_api.cli import app\n"
        "from edgeyard.scheduler.outcomes import limits, rows\n"
        "def cut(*arguments, **options): raise limits.ProcessorTimeUsed\n"
        "rows.read_outcome_rows = cut\n"
        f"app(['learn', 'outcomes', '--data-dir', {str(tmp_path)!r}])\n"
    )
    SqlStore(f"sqlite:///{tmp_path}/edgeyard.db").close()
    done = subprocess.run(
        [sys.executable, "-c", cut_short], capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 1
    assert "raise --max-cpu-s" in done.stderr


@on_the_folders_database
def test_a_training_that_is_killed_half_way_leaves_what_the_next_one_completes(lab: Path) -> None:
    killed = (
        "import os, signal\n"
        "from edgeyard.benchmark_api.cli import app\n"
        "from edgeyard.scheduler.store.models import SqlModels\n"
        "add = SqlModels.add\n"
        "def add_or_die(self, model, content):\n"
        "    stored = add(self, model, content)\n"
        "    if model.kind.value == 'failure': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return stored\n"
        "SqlModels.add = add_or_die\n"
        f"app(['learn', 'outcomes', '--data-dir', {str(lab)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", killed],
        capture_output=True,
        check=False,
        timeout=250,
        env={**os.environ, "EDGEYARD_LEARN_PROMOTE": "auto"},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = SqlStore(f"sqlite:///{lab}/edgeyard.db")
    with store.read() as uow:
        assert [each.reference for each in uow.models.all()] == ["run_time/1"]
        assert [each.state for each in uow.models.all()] == [ModelState.CANDIDATE]
    found = {each.kind: each for each in learn_outcomes(store, read_outcome_rows(store), NOW)}
    assert "nothing new has ended since run_time/1" in found[ModelKind.RUN_TIME].refusal
    assert found[ModelKind.FAILURE].registered is not None
    store.close()


@on_the_folders_database
def test_the_command_says_why_nothing_was_learned(tmp_path: Path) -> None:
    SqlStore(f"sqlite:///{tmp_path}/edgeyard.db").close()
    code, out, _ = run("learn", "outcomes", "--data-dir", tmp_path, "--json")
    assert code == 2
    found = json.loads(out)
    assert found["rows"] == 0
    assert [each["refusal"] for each in found["models"]] == [
        "there are no ended runs to learn from"
    ] * 4


@on_the_folders_database
def test_a_training_that_somebody_runs_on_the_machine_is_an_act_and_the_server_s_own_is_none(
    tmp_path: Path,
) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")
    code, _, err = run(*TRAINING[3:], "--data-dir", tmp_path)
    assert code == 2, err
    with store.read() as uow:
        assert uow.log.acts(ActFilter(), limit=10) == []
    code, _, err = run("learn", "outcomes", "--data-dir", tmp_path, "--reason", "new boards")
    assert code == 2, err
    with store.read() as uow:
        (act,) = uow.log.acts(ActFilter(), limit=10)
    store.close()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert (act.kind, act.door, act.user_id) == ("training.begun", "server", f"local:{user}")
    assert act.reason == "new boards"


def test_an_operator_begins_and_stops_a_training_and_others_may_not(api: Api) -> None:
    operator = api.as_("operator")
    add_enough_runs(api.store)
    assert operator.get("/v1/models/training").json()["began_at"] is None
    assert operator.post("/v1/models/training/stop").status_code == 409
    began = operator.post("/v1/models/training/begin")
    assert began.status_code == 202
    assert began.json()["running"] is True
    again = operator.post("/v1/models/training/begin")
    assert again.status_code == 409
    assert "a training is running already" in again.json()["detail"]
    assert api.as_("alice").post("/v1/models/training/stop").status_code == 403
    stopped = operator.post("/v1/models/training/stop").json()
    assert (stopped["running"], stopped["result"]) == (False, "stopped")


def test_the_leader_alone_trains(api: Api) -> None:
    operator = api.as_("operator")
    add_enough_runs(api.store)
    api.engine.led = leader_view(leads=False)
    calls = {"GET": "", "POST": "/begin"}
    for method, path in (*calls.items(), ("POST", "/stop")):
        answer = operator.request(method, f"/v1/models/training{path}")
        assert answer.status_code == 409
        assert "server-a at http://a.test" in answer.json()["detail"]
    api.engine.led = leader_view(leads=False, server_id="")
    answer = operator.post("/v1/models/training/begin")
    assert "none does" in answer.json()["detail"]
    assert api.services.retraining.state.began_at is None
    api.engine.led = leader_view()
    assert operator.post("/v1/models/training/begin").status_code == 202


def test_a_training_ends_where_the_lead_is_lost_while_it_begins(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_enough_runs(api.store)
    begin = Retraining.begin

    def slowly(self: Retraining) -> TrainingState:
        api.engine.led = leader_view(leads=False)
        self.leave()  # as the engine does
        return begin(self)

    monkeypatch.setattr(Retraining, "begin", slowly)
    answer = api.as_("operator").post("/v1/models/training/begin")
    assert answer.status_code == 409
    assert "server-a at http://a.test" in answer.json()["detail"]
    assert api.services.retraining.state.result == "stopped"


def test_the_command_says_that_no_training_began(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def check(status: int, words: str, *flags: str) -> None:
        code, said = retrain(api, monkeypatch, *flags)
        assert (code, words in said) == (status, True), said

    check(1, "0 runs have ended on known boards, and 100 are needed")
    add_enough_runs(api.store)
    check(0, "the training began")
    check(1, "a training is running already")
    check(0, "the training was ended", "--stop")
    check(1, "no training is running", "--stop")
    check(1, "--wait: has no effect with --stop", "--stop", "--wait")
    train_with(api, str(tmp_path / "missing"))
    check(1, "the training can't be started: No such file or directory")
    api.engine.led = leader_view(leads=False)
    check(1, "models are trained by the server that leads, server-a at http://a.test")


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("", 0, "the training has ended; what it learned"),
        ("import sys; sys.exit('no disk')", 1, "it ended with exit code 1: no disk"),
        ("import sys; print('few', file=sys.stderr); sys.exit(2)", 2, "few"),
        ("import os; os.kill(os.getpid(), 9)", 1, "it ended with signal 9"),
    ],
)
def test_the_command_waits_for_the_end_of_a_training(
    api: Api, monkeypatch: pytest.MonkeyPatch, code: str, status: int, words: str
) -> None:
    add_enough_runs(api.store)
    train_with(api, sys.executable, "-c", code)
    found, said = retrain(api, monkeypatch, "--wait")
    assert (found, words in said) == (status, True), said


def train_with(api: Api, *command: str) -> None:
    """Let the server begin something else instead of a training."""
    api.services.retraining.close()
    api.services.retraining = Retraining(
        command, {}, api.services.clock, lambda name, value, labels: None
    )


def retrain(api: Api, monkeypatch: pytest.MonkeyPatch, *flags: str) -> tuple[int, str]:
    """Run the command as an operator; its exit status and what it says."""
    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens["operator"])
    done = CliRunner().invoke(app, ["models", "retrain", *flags], catch_exceptions=False)
    return done.exit_code, done.stderr


def test_the_metrics_state_the_versions_and_which_one_predicts(api: Api) -> None:
    for _ in range(2):
        add_candidate(api.store)
    operator = api.as_("operator")
    for _ in range(2):
        assert operator.post("/v1/models/failure/2/promote?force=true").status_code == 200
    text = operator.get("/metrics").text
    assert 'edgeyard_models{kind="failure",state="active"} 1.0' in text
    assert 'edgeyard_models{kind="failure",state="candidate"} 1.0' in text
    assert 'edgeyard_model_active_version{kind="failure"} 2.0' in text
    assert 'edgeyard_model_active_version{kind="run_time"} 0.0' in text
    assert 'edgeyard_trainings_total{result="learned"} 0.0' in text
