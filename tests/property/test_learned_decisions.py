"""No weights of a model or a learned queue bring a benchmark to a board that it must not use."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.queue_policies.learned_queue import LearnedQueue
from edgeyard.plugins.scorers.learned import LearnedScorer
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.policy import Planner, ScorerChoice, load_policy
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.kernel.queue_inputs import INPUTS
from edgeyard.scheduler.learning.features import Input
from edgeyard.scheduler.learning.manifest import Manifest, Output
from edgeyard.scheduler.learning.model import Model
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Change,
    JobKind,
    LabScenario,
    Scenario,
)
from edgeyard.training.export import queue_model
from edgeyard.training.ste.network import onnx_bytes, start
from tests.builders.unchecked_models import unchecked_model, unchecked_queue_model

READ = (
    Input(column="log_history_s", mean=5.5, scale=1.5),
    Input(column="failure_rate", mean=0.0, scale=0.5),
    Input(column="log_family_queue", mean=0.0, scale=0.7),
)

MIXED = Scenario(
    name="mixed",
    world="boards",
    duration_s=600.0,
    lab=LabScenario(
        boards=(
            BoardGroup(family="rpi4b", count=2, speed=0.5),
            BoardGroup(family="rpi4b", count=2, ram_mib=1024, speed=2.0),
            BoardGroup(family="rpi5", count=2, engines={"tflite": (BenchmarkType.TYPE1,)}),
        ),
        arrivals=Arrivals(
            rate_per_hour=120.0,
            mix=(
                JobKind(model="small", families=("rpi4b",)),
                JobKind(model="large", families=("rpi4b",), ram_mib=2048, deadline_s=900.0),
                JobKind(model="lite", engine="tflite"),
            ),
        ),
        changes=(Change(at_s=100.0, what="drain", target_uid="rpi4b-0001-0001"),),
        history_jobs=10,
    ),
)


def model_of(seed: int, size: float) -> Model:
    """Scores by a network of random weights."""
    network = start(len(READ), 1, 4, seed)
    rng = np.random.default_rng(seed)
    network.weights = {k: v + size * rng.normal(size=v.shape) for k, v in network.weights.items()}
    data = onnx_bytes(network)
    manifest = Manifest(
        name="mine",
        version=1,
        objective="completion",
        output=Output.SCORE,
        quantiles=(),
        onnx="mine.onnx",
        sha256=hashlib.sha256(data).hexdigest(),
        inputs=READ,
        trained_on="a test",
    )
    return unchecked_model(manifest, data)


@pytest.mark.slow
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
@given(data=st.data())
def test_no_weights_bring_a_benchmark_to_a_board_that_it_must_not_use(data: st.DataObject) -> None:
    any_number = st.floats(-1e3, 1e3)
    size = 2 * INPUTS + 2
    order = np.array(data.draw(st.lists(any_number, min_size=size, max_size=size)))
    seed = data.draw(st.integers(0, 100))
    model = model_of(seed, data.draw(st.floats(0.0, 10.0)))
    seen = 0

    def watch(now_s: float, given: CycleInput, result: CycleResult) -> None:
        nonlocal seen
        jobs = {each.benchmark_id: each for each in given.pending}
        snapshot = given.snapshot
        uids = [each.target_uid for each in result.placements]
        assert len(set(uids)) == len(uids)
        for each in result.placements:
            job, row = jobs[each.benchmark_id], snapshot.uids.index(each.target_uid)
            assert snapshot.families[row] == job.family
            assert snapshot.ram_bytes[row] >= job.ram_bytes
            assert (job.engine == "tflite") == (snapshot.families[row] == "rpi5")
            assert not snapshot.busy[row]
            assert not snapshot.drained[row]
            seen += 1

    queue = unchecked_queue_model(*queue_model("mine_queue", order, 1, "a test"))
    known = registry(entry_points=False)
    known.add(Kind.SCORER, "mine", lambda: LearnedScorer(model))
    known.add(Kind.QUEUE_POLICY, "mine_queue", lambda: LearnedQueue(queue))
    default = load_policy("default")
    policy = replace(
        default,
        queue_policy="mine_queue",
        planner=Planner.EXPECTED_COST,
        scorers=(ScorerChoice(name="mine", weight=1.0), *default.scorers),
    )
    simulate_lab(MIXED, policy, known.resolve(policy), seed=seed, watch=watch)
    assert seen
