"""Plugins expect one caller at a time; cycles, questions and forecasts run on several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.errors import Unavailable
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.filters.health import HealthFilter
from edgeyard.plugins.scorers.least_loaded import LeastLoaded
from edgeyard.scheduler.engine.explanations import Explanations
from edgeyard.scheduler.engine.forecaster import Forecaster
from edgeyard.scheduler.engine.preview import Candidate, Preview, SubmissionForecaster, preview
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.hcl.build import RenderSettings
from edgeyard.scheduler.model.benchmark import BenchmarkType, JobDescription
from tests.builders.engine import A, Lab, a_model

RENDER = RenderSettings(public_url="http://127.0.0.1:1", driver="raw_exec", command="/bin/runner")
ASKED = JobDescription(
    model="net.onnx", runtime="ort", benchmark_type=BenchmarkType.TYPE1, target="rpi4b"
)
LIMIT_S = 120.0
"""No test waits for longer; none takes so long."""


class Calls:
    """Notices when plugins are called by two threads at once, and can hold a call up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.overlapped = threading.Event()
        self.threads: set[int] = set()
        self.held_thread: int | None = None
        self.held, self.release = threading.Event(), threading.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            self.threads.add(threading.get_ident())
            if self._inside > 1:
                self.overlapped.set()
        try:
            if threading.get_ident() == self.held_thread:
                self.held.set()
                self.release.wait(LIMIT_S)
            self.overlapped.wait(0.002)  # lets other threads run into this call
            yield
        finally:
            with self._lock:
                self._inside -= 1


class WatchedFilter(HealthFilter):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        with self._calls.one():
            return super().admit(batch)


class WatchedScorer(LeastLoaded):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        with self._calls.one():
            return super().score(batch, pairs)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def lab(tmp_path: Path, calls: Calls) -> Iterator[Lab]:
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    filters = [each for each in plugins.filters if each.name != "health"]
    watched = replace(
        plugins,
        filters=(WatchedFilter(calls), *filters),
        scorers=(WeightedScorer(scorer=WatchedScorer(calls)),),
    )
    made = Lab(tmp_path, A, policy=policy, plugins=watched)
    yield made
    made.store.close()


@pytest.fixture
def waiting(lab: Lab) -> str:
    """A benchmark that waits for the board, on which another one runs."""
    lab.running(lab.submit())
    made = lab.submit()
    lab.turn()
    return made


def ask_preview(lab: Lab, benchmark_id: str) -> object:
    found: Preview = preview(lab.cycle, RENDER, ASKED, [a_model()], "ann", lab.clock.now())
    return found.explanation.waiting


def ask_forecast(lab: Lab, benchmark_id: str) -> object:
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, lambda name, value, labels: None)
    forecaster.run()
    return forecaster.of(benchmark_id)


def ask_changes(lab: Lab, benchmark_id: str) -> object:
    known = Explanations(
        lab.store, registry(entry_points=False), lab.clock, lambda: lab.cycle.latest
    )
    try:
        return known.changes(benchmark_id)
    except Unavailable as error:  # the cycle had the plugins for all of the time
        return error


QUESTIONS: tuple[Callable[[Lab, str], object], ...] = (ask_preview, ask_forecast, ask_changes)


def test_a_question_waits_for_the_plugin_call_of_a_cycle_and_a_submission_does_not(
    lab: Lab, calls: Calls, waiting: str
) -> None:
    submissions = SubmissionForecaster(lab.cycle, lab.clock)

    def cycle() -> None:
        calls.held_thread = threading.get_ident()
        lab.cycle.run()

    with ThreadPoolExecutor(len(QUESTIONS) + 2) as threads:
        deciding = threads.submit(cycle)
        assert calls.held.wait(LIMIT_S)
        answers = [threads.submit(ask, lab, waiting) for ask in QUESTIONS]
        submission = threads.submit(
            submissions.of, Candidate(ASKED, lambda: (ASKED, [a_model()])), "ann"
        )
        try:
            assert submission.result(LIMIT_S) is None  # the next forecast of all tells it
            assert not calls.overlapped.wait(0.3)
        finally:
            calls.release.set()
        assert all(answer.result(LIMIT_S) is not None for answer in answers)
        deciding.result(LIMIT_S)
    assert not calls.overlapped.is_set()


def test_cycles_previews_forecasts_and_changes_call_plugins_one_at_a_time(
    lab: Lab, calls: Calls, waiting: str
) -> None:
    def often(ask: Callable[[Lab, str], object]) -> list[object]:
        return [ask(lab, waiting) for _ in range(5)]

    with ThreadPoolExecutor(len(QUESTIONS)) as threads:
        asked = [threads.submit(often, ask) for ask in QUESTIONS]
        while not all(each.done() for each in asked):
            lab.clock.forward(1)
            lab.cycle.run()
        assert all(None not in each.result(LIMIT_S) for each in asked)
    assert len(calls.threads) > 1
    assert not calls.overlapped.is_set()
