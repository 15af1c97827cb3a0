"""Trainings in processes of their own: begun by an interval or a command, noted, and ended."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeyard.errors import Conflict, Unavailable
from edgeyard.scheduler.clusters.local.shim import tied
from edgeyard.scheduler.engine.retraining import FIRST_AFTER_S, Retraining, TrainingState
from tests.builders.cluster import eventually

NEVER_ENDS = "import time; time.sleep(600)"


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at_s, UTC)

    def monotonic_s(self) -> float:
        return self.at_s


class Made:
    def __init__(self, code: str, command: list[str] | None = None) -> None:
        self.clock, self.observed = Clock(), list[tuple[str, Mapping[str, str]]]()
        self.retraining = Retraining(
            command or [sys.executable, "-c", code],
            os.environ,
            self.clock,  # type: ignore[arg-type]  # all that it uses
            lambda name, value, labels: self.observed.append((name, labels)),
        )

    def ended(self) -> TrainingState:
        limit = time.monotonic() + 120.0
        while (state := self.retraining.state).running:
            assert time.monotonic() < limit
            time.sleep(0.02)
        return state


@pytest.fixture(name="endless")
def a_training_that_does_not_end() -> Iterator[Made]:
    made = Made(NEVER_ENDS)
    yield made
    made.retraining.close()


@pytest.mark.parametrize(
    ("code", "result", "message"),
    [
        ("import sys; sys.stderr.write('no model\\n'); sys.exit(2)", "nothing_learned", "no model"),
        ("import sys; sys.stderr.write('all gates hold\\n')", "learned", "all gates hold"),
        ("import sys; sys.exit(1)", "failed", "it ended with exit code 1: it reported nothing"),
        ("import os; os.kill(os.getpid(), 9)", "failed", "it ended with signal 9: "),
    ],
)
def test_how_a_training_ended_is_noted_and_counted(code: str, result: str, message: str) -> None:
    made = Made(code)
    assert made.retraining.begin().running
    state = made.ended()
    assert state.result == result
    assert state.message.startswith(message)
    assert made.observed == [("trainings_total", {"result": result})]


def test_a_program_that_is_missing_fails_and_does_not_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Made("", ["/no/such/program"])
    with caplog.at_level(logging.ERROR):
        made.clock.at_s += FIRST_AFTER_S
        made.retraining.run_if_due(3600.0)
    assert made.retraining.state.result == "failed"
    assert "can't be started: No such file" in made.retraining.state.message
    assert [each.message for each in caplog.records] == ["training ended"]


def test_a_full_disk_fails_the_training_and_not_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    made = Made(NEVER_ENDS)
    with pytest.raises(Unavailable, match="can't be started: No space left on device"):
        made.retraining.begin()
    state = made.retraining.state
    assert (state.running, state.result) == (False, "failed")
    assert "No space left on device" in state.message


def test_one_runs_at_a_time_and_can_be_stopped(endless: Made) -> None:
    with pytest.raises(Conflict, match="no training is running"):
        endless.retraining.stop()
    endless.retraining.begin()
    with pytest.raises(Conflict, match="running already"):
        endless.retraining.begin()
    state = endless.retraining.stop()
    assert (state.running, state.result) == (False, "stopped")
    assert endless.retraining.begin().running  # the next one can begin


def test_the_interval_begins_trainings_and_0_does_not(endless: Made) -> None:
    clock, retraining = endless.clock, endless.retraining
    clock.at_s += 1e6
    retraining.run_if_due(0.0)
    assert retraining.state.began_at is None
    clock.at_s = 1000.0 + FIRST_AFTER_S - 1.0
    retraining.run_if_due(3600.0)
    assert retraining.state.began_at is None
    clock.at_s += 1.0
    retraining.run_if_due(3600.0)
    assert retraining.state.running
    retraining.stop()
    clock.at_s += 3599.0
    retraining.run_if_due(3600.0)
    assert not retraining.state.running
    clock.at_s += 1.0
    retraining.run_if_due(3600.0)
    assert retraining.state.running


def test_a_server_that_stops_ends_its_training(endless: Made) -> None:
    endless.retraining.begin()
    endless.retraining.close()
    assert endless.retraining.state.result == "stopped"


def test_a_server_that_stops_begins_no_other_training(endless: Made) -> None:
    endless.retraining.begin()
    endless.clock.at_s += 1e6
    endless.retraining.close()
    endless.retraining.run_if_due(600.0)  # its timer runs a moment longer
    assert not endless.retraining.state.running
    with pytest.raises(Conflict, match="the server is stopping"):
        endless.retraining.begin()


def test_a_training_that_was_stopped_is_not_due_again_at_once(endless: Made) -> None:
    endless.retraining.begin()
    endless.clock.at_s += 700.0
    endless.retraining.stop()
    endless.retraining.run_if_due(600.0)
    assert not endless.retraining.state.running
    endless.clock.at_s += 600.0
    endless.retraining.run_if_due(600.0)
    assert endless.retraining.state.running


def test_a_server_that_no_longer_leads_ends_its_training_and_may_lead_again(
    endless: Made,
) -> None:
    endless.retraining.leave()  # none is running
    endless.retraining.begin()
    endless.retraining.leave()
    assert endless.retraining.state.result == "stopped"
    assert endless.retraining.begin().running


def test_a_training_outlives_the_thread_that_began_it(tmp_path: Path) -> None:
    """Requests begin trainings, on threads that come and go."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    made = Made("", tied([sys.executable, "-c", f"open({str(pipe)!r}).read()"]))
    thread = threading.Thread(target=made.retraining.begin)
    thread.start()
    thread.join()
    with pipe.open("w"):  # waits for the training to read, which then ends
        assert made.retraining.state.running
    assert made.ended().result == "learned"


SERVER = """
import os, sys, time
from datetime import UTC, datetime
from edgeyard.scheduler.clusters.local.shim import tied
from edgeyard.scheduler.engine.retraining import Retraining

class Clock:
    def now(self): return datetime.now(UTC)
    def monotonic_s(self): return time.monotonic()

training = "import os, time; print(os.getpid(), file=open(os.environ['PID'], 'w')); time.sleep(600)"
made = Retraining(
    tied([sys.executable, "-c", training]), os.environ, Clock(), lambda name, value, labels: None
)
made.begin()
time.sleep(600)
"""


@pytest.mark.slow
def test_a_training_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    written = tmp_path / "pid"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], env={**os.environ, "PID": str(written)}
    )
    try:
        eventually(
            lambda: written.exists() and bool(written.read_text().strip()), "the training runs"
        )
        training = int(written.read_text())
        assert _lives(training)
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    eventually(lambda: not _lives(training), "the training ended")


def _lives(pid: int) -> bool:
    """Return whether a process runs; one that ended and that nobody collects does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
