"""Scorers that are not ours: in a process of their own, that may do what it likes."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from edgeyard.errors import ConfigError
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.scorers.fastest import Fastest
from edgeyard.plugins.testing import ScorerContract, all_pairs, sample_batch
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
from edgeyard.scheduler.framework.protocols import Scorer, ScorerKind
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.workers.frames import (
    BrokenFrameError,
    Frame,
    pickled,
    receive,
    send,
    unpickled,
)
from edgeyard.scheduler.workers.isolated import IsolatedScorer, WorkerError, Workers

BATCH = sample_batch(40, 30)
PAIRS = all_pairs(BATCH)
FASTEST = "edgeyard.plugins.scorers.fastest:Fastest"
BUDGET_S = 0.3  # less than a stalled scorer takes, more than an answer does

SCORERS = r"""
import os, sys, time
import numpy as np
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit

class Scorer:
    name, objective, kind, unit = "mine", "test", ScorerKind.MODEL, ScoreUnit.PREFERENCE

    def __init__(self, does="answer", value=0.5):
        self.does, self.value = does, value
        print("talks where it should not")
        if does == "start":
            raise RuntimeError("no model file")

    def score(self, batch, pairs):
        if self.does == "raise":
            raise ValueError("no answer today")
        if self.does == "stall":
            time.sleep(600)
        if self.does == "exit":
            os._exit(3)
        if self.does == "lie":
            os.write(int(sys.argv[1]), b"\x02" + (1 << 40).to_bytes(8, "little"))
            time.sleep(600)
        if self.does == "pickle":
            os.write(int(sys.argv[1]), b"\x01" + (4).to_bytes(8, "little") + b"cos.")
            time.sleep(600)
        if self.does == "secrets":
            return np.full(len(pairs), float("EDGEYARD_SECRET" in os.environ), dtype=np.float32)
        count = {"short": 3, "empty": 0}.get(self.does, len(pairs))
        return np.full(count, self.value, dtype=np.int64 if self.does == "text" else np.float64)
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("scorers") / "mine.py"
    path.write_text(SCORERS)
    return f"{path}:Scorer"


class TestIsolated(ScorerContract):
    @pytest.fixture(autouse=True)
    def _workers(self, workers: Workers) -> None:
        self.workers = workers

    def plugin(self) -> Scorer:
        return self.workers.scorer("fastest", FASTEST, {})


def test_a_scorer_says_the_same_in_its_own_process_as_in_ours(workers: Workers) -> None:
    isolated = workers.scorer("fastest", FASTEST, {})
    assert (isolated.objective, isolated.kind) == ("run time", ScorerKind.HISTORY)
    asked = replace(PAIRS, budget_s=60.0)
    ours = Fastest().score(BATCH, asked)
    assert np.array_equal(isolated.score(BATCH, asked), ours, equal_nan=True)
    assert workers.scorer("fastest", FASTEST, {}) is isolated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "cause", "detail"),
    [
        ("raise", "raised", "no answer today"),
        ("stall", "timed_out", "no answer within 0.3 s"),
        ("exit", "raised", "its process ended"),
        ("lie", "raised", "a message of 1099511627776 bytes"),
        ("pickle", "raised", "ask of 4 bytes where scores go"),
        ("short", "nonsense", "shape (3,) instead of"),
        ("empty", "nonsense", "shape (0,) instead of"),
        ("text", "raised", "scores of type int64"),
    ],
)
def test_a_scorer_that_fails_is_named_and_answers_again_when_it_can(
    source: str, does: str, cause: str, detail: str
) -> None:
    scorer = IsolatedScorer("mine", source, {"does": does})
    try:
        for _ in range(2):  # the second time in a new process, where the first is gone
            runner = PluginRunner()
            weighted = WeightedScorer(scorer=scorer, budget_s=BUDGET_S if does == "stall" else 60.0)
            assert runner.score(weighted, 1.0, BATCH, PAIRS) is None
            (fault,) = runner.faults
            assert fault.cause == cause or (does, fault.cause) == ("stall", "timed_out")
            assert detail in fault.detail
    finally:
        scorer.close()


def test_a_scorer_sees_nothing_of_the_servers_environment(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_SECRET", "x")
    scorer = IsolatedScorer("mine", source, {"does": "secrets"})
    assert scorer.score(BATCH, replace(PAIRS, budget_s=60.0)).max() == 0.0
    scorer.close()


def test_a_killed_scorers_process_is_gone(source: str) -> None:
    scorer = IsolatedScorer("mine", source, {"does": "stall"})
    process = scorer._process
    assert process is not None
    with pytest.raises(TimeoutError):
        scorer.score(BATCH, replace(PAIRS, budget_s=BUDGET_S))
    assert process.returncode == -9
    scorer.close()


def test_a_policy_brings_a_scorer_from_a_file(source: str, workers: Workers) -> None:
    known = registry(entry_points=False, isolated=workers.scorer)
    choice = ScorerChoice(name="mine", weight=1.0, file=source, options={"value": 0.25})
    (weighted,) = known.resolve(replace(load_policy("default"), scorers=(choice,))).scorers
    proposal = PluginRunner().score(replace(weighted, budget_s=60.0), 1.0, BATCH, PAIRS)
    assert proposal is not None
    assert set(proposal.scores.tolist()) == {0.25}
    assert proposal.scorer == "mine"


@pytest.mark.slow
def test_what_can_not_start_is_reported_with_its_reason(source: str, workers: Workers) -> None:
    with pytest.raises(WorkerError, match="no model file"):
        workers.scorer("mine", source, {"does": "start"})
    with pytest.raises(WorkerError, match="No module named"):
        workers.scorer("mine", "nosuchmodule_at_all:Scorer", {})
    choice = ScorerChoice(name="mine", weight=1.0, file=source)
    with pytest.raises(ConfigError, match="does not run scorers of files"):
        registry(entry_points=False).resolve(replace(load_policy("default"), scorers=(choice,)))


def test_values_of_frames_come_back_and_others_are_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        value = {"a": np.arange(5), "b": "text"}
        send(ours, Frame.ASK, *pickled(value))
        kind, data = receive(theirs, max_bytes=10_000)
        found = unpickled(data)
        assert kind is Frame.ASK
        assert isinstance(found, dict)
        assert found["b"] == "text"
        assert found["a"].tolist() == [0, 1, 2, 3, 4]
        os.write(ours.fileno(), b"\x09" + (0).to_bytes(8, "little"))
        with pytest.raises(BrokenFrameError, match="kind 9"):
            receive(theirs, max_bytes=10)
