"""Trainings in processes of their own: begun by an interval or a command, noted, and ended."""

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pytest

from edgeyard.errors import Conflict
from edgeyard.scheduler.engine.retraining import FIRST_AFTER_S, Retraining, TrainingState

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
    state = made.retraining.begin()
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
