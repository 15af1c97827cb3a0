"""Training of scorers of boards: the model's form, evolution, checkpoints, the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks import learned_boards
from edgeyard.benchmark_api.cli import app
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.queue_policies.learned_queue import LearnedQueue
from edgeyard.plugins.queue_policies.shortest_first import ShortestFirst
from edgeyard.plugins.scorers.learned import LearnedScorer
from edgeyard.plugins.testing import (
    NOW,
    all_pairs,
    board,
    pending,
    queue_of,
    sample_knowledge,
    sample_pending,
    sample_snapshot,
    snapshot_of,
)
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.decide.priority import ages_s
from edgeyard.scheduler.framework.batch import TURN_SIZE
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.registry import Kind, Registry
from edgeyard.scheduler.learning.features import normalise, raw
from edgeyard.scheduler.learning.model import Model, load_model, unchecked_model
from edgeyard.scheduler.learning.queue_model import QueueModel, unchecked_queue_model
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Change,
    JobKind,
    LabScenario,
    Scenario,
)
from edgeyard.training.board_labs import draw_labs
from edgeyard.training.board_trainer import (
    INPUTS,
    LEARNED_QUEUE,
    BoardTraining,
    board_policy,
    digest_of,
    lab_sets,
    network_of,
    queue_weights,
    start_weights,
    train,
    weight_count,
)
from edgeyard.training.export import board_model, export_boards, queue_model
from edgeyard.training.progress import load_progress, save_progress
from tests.builders.columns import sample

SMALL = BoardTraining(generations=3, candidates=4, labs=2, batch=1, validation_labs=1, jobs=10)


LEARNED = replace(SMALL, queue_policy=LEARNED_QUEUE)


def known(model: Model | None = None, queue: QueueModel | None = None) -> Registry:
    found = registry(entry_points=False)
    if queue is not None:
        found.add(Kind.QUEUE_POLICY, queue.manifest.name, lambda: LearnedQueue(queue))
    if model is not None:
        found.add(Kind.SCORER, model.manifest.name, lambda: LearnedScorer(model))
    return found


def test_a_training_starts_at_the_expected_time_and_another_run_after_a_failure() -> None:
    batch = sample()
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, [each.column for each in INPUTS])
    network = network_of(start_weights(SMALL), SMALL.hidden)
    cost_s = np.exp(network.raw(normalise(values, INPUTS).astype(np.float64))[:, 0])
    expected_s = np.exp(values["log_history_s"] + values["failure_rate"])
    assert cost_s == pytest.approx(expected_s, rel=1e-5)


def test_a_written_model_answers_as_the_network_that_was_trained(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=weight_count(replace(SMALL, hidden=2)))
    network = network_of(weights, 2)
    model = load_model(export_boards(tmp_path, "mine", network, INPUTS, "a test"))
    x = np.random.default_rng(1).normal(size=(50, len(INPUTS))).astype(np.float32)
    assert model.run(x) == pytest.approx(network.raw(x.astype(np.float64)), rel=1e-4, abs=1e-4)


def test_a_learned_queue_starts_with_the_order_of_the_shortest_first() -> None:
    jobs = sample_pending(50)
    knowledge = sample_knowledge(sample_snapshot(20), jobs)
    queue = queue_of(jobs, np.arange(50) % 7 * 10 + 5, ages_s(jobs, NOW), knowledge=knowledge)
    assert len(np.unique(queue.expected_s)) > 5
    weights = queue_weights(start_weights(LEARNED), LEARNED.hidden)
    policy = LearnedQueue(
        unchecked_queue_model(*queue_model("mine", weights, LEARNED.hidden, "a test"))
    )
    assert policy.order(queue).tolist() == ShortestFirst().order(queue).tolist()


def wild_queue(seed: int) -> LearnedQueue:
    size = weight_count(LEARNED) - weight_count(SMALL)
    weights = 100.0 * np.random.default_rng(seed).normal(size=size)
    return LearnedQueue(unchecked_queue_model(*queue_model("mine", weights, 1, "a test")))


@pytest.mark.parametrize("seed", range(5))
def test_no_weights_let_a_benchmark_overtake_one_past_the_guard(seed: int) -> None:
    jobs = sample_pending(50)
    ages = ages_s(jobs, NOW)
    queue = queue_of(jobs, np.full(50, 50), ages, guard_s=20_000.0)
    ranks = wild_queue(seed).order(queue)
    assert 0 < queue.guarded.sum() < 50
    for job in np.flatnonzero(queue.guarded).tolist():
        assert (ranks[ages < ages[job]] > ranks[job]).all()


@pytest.mark.parametrize("seed", range(5))
def test_no_weights_put_all_benchmarks_of_one_user_before_those_of_another(seed: int) -> None:
    jobs = [pending(f"job-{row:02}", user_id="many") for row in range(2 * TURN_SIZE)]
    jobs.append(pending("other", user_id="one"))
    ranks = wild_queue(seed).order(queue_of(jobs, np.full(len(jobs), 50), ages_s(jobs, NOW)))
    assert ranks[-1] <= TURN_SIZE


def test_the_queue_of_a_family_counts_its_own_benchmarks_and_its_online_boards() -> None:
    boards = [board(f"{family}-0001-000{row}") for family, row in (("a", 1), ("a", 2), ("b", 1))]
    jobs = [pending(f"job-{row}", family=family) for row, family in enumerate("aaab")]
    snapshot = snapshot_of(boards, offline=["a-0001-0002"])
    batch = build_batch(snapshot, jobs, NOW, 0, Knowledge())
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, ["log_family_queue"])["log_family_queue"]
    by_family = {batch.families[row]: value for row, value in zip(pairs.rows, values, strict=True)}
    assert by_family == pytest.approx({"a": np.log(1 + 3 / 1), "b": np.log(1 + 1 / 1)})


def test_the_queue_of_a_family_is_missing_where_none_of_its_boards_is_online() -> None:
    snapshot = snapshot_of([board("a-0001-0001")], offline=["a-0001-0001"])
    batch = build_batch(snapshot, [pending(family="a")], NOW, 0, Knowledge())
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, ["log_family_queue"])["log_family_queue"]
    assert np.isnan(values).all()


def test_the_policy_differs_from_default_in_its_order_its_costs_and_its_planner() -> None:
    policy, default = board_policy("mine", "fifo"), load_policy("default")
    assert [each.name for each in policy.scorers] == [
        "mine",
        *(each.name for each in default.scorers if each.name not in ("fastest", "reliable")),
    ]
    same = {
        "name": "default",
        "queue_policy": default.queue_policy,
        "scorers": default.scorers,
        "planner": default.planner,
    }
    assert replace(policy, **same) == default  # type: ignore[arg-type]


def test_labs_are_those_of_their_seed_and_all_their_benchmarks_can_run() -> None:
    labs = draw_labs(3, 20, 20)
    assert labs[:5] == draw_labs(3, 5, 20)
    assert len({each.name for each in (*labs, *draw_labs(4, 20, 20))}) == 40
    changes = {each.what for lab in labs if lab.lab is not None for each in lab.lab.changes}
    assert changes == {"boards_join", "drain", "resume"}


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


@pytest.mark.slow
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
@given(data=st.data())
def test_no_weights_bring_a_benchmark_to_a_board_that_it_must_not_use(data: st.DataObject) -> None:
    size = weight_count(SMALL)
    number = st.floats(-0.4, 0.4)  # larger ones give answers that are refused as no seconds
    weights = np.array(data.draw(st.lists(number, min_size=size, max_size=size)))
    size = weight_count(LEARNED) - size
    any_number = st.floats(-1e3, 1e3)
    order = np.array(data.draw(st.lists(any_number, min_size=size, max_size=size)))
    seed = data.draw(st.integers(0, 100))
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

    model = unchecked_model(*board_model("mine", network_of(weights, 1), INPUTS, "a test"))
    queue = unchecked_queue_model(*queue_model("mine_queue", order, 1, "a test"))
    policy = board_policy("mine", "mine_queue", 60.0)
    simulate_lab(MIXED, policy, known(model, queue).resolve(policy), seed=seed, watch=watch)
    assert seen


def test_a_candidate_whose_answers_are_refused_is_the_worst_and_ends_no_training() -> None:
    training, _ = lab_sets(SMALL, known)
    far = start_weights(SMALL)
    far[-len(INPUTS)] += 20.0  # the scale of the history's logarithm
    start, refused = training.losses([start_weights(SMALL), far], SMALL, [0])
    assert refused > start + 5.0


@pytest.mark.slow
def test_a_training_that_goes_on_ends_as_one_that_was_not_stopped(tmp_path: Path) -> None:
    short = replace(LEARNED, generations=1)
    training, validation = lab_sets(LEARNED, known)
    digest = digest_of(training, validation)
    save_progress(tmp_path / "c.npz", train(short, training, validation), short, digest)
    gone_on = train(
        LEARNED, training, validation, load_progress(tmp_path / "c.npz", LEARNED, digest)
    )
    whole = train(LEARNED, training, validation)
    assert gone_on.weights.tolist() == whole.weights.tolist()
    first = start_weights(LEARNED)
    assert not np.array_equal(whole.weights, first)
    assert not np.array_equal(queue_weights(whole.weights, 1), queue_weights(first, 1))
    assert [each.generation for each in whole.curve] == [0, 2, 3]
    assert whole.best_validation <= whole.curve[0].validation


@pytest.mark.slow
def test_the_committed_weights_are_a_model_that_is_checked_and_decides(tmp_path: Path) -> None:
    policy, plugins = learned_boards.plugins_of(learned_boards.NAME, tmp_path)
    assert plugins.scorers[0].scorer.name == policy.scorers[0].name == learned_boards.NAME
    queued = learned_boards.queued()
    assert (len(queued.pending), len(queued.snapshot.uids)) == (100, 100)
    result = decide(queued, policy, plugins)
    assert not result.faults
    assert result.placements
    assert {each.policy for each in learned_boards.kept_runs()} == {
        learned_boards.NAME,
        *learned_boards.PEERS,
    }


COMMAND = ["learn", "boards", "--labs", "2", "--batch", "1", "--validation-labs", "1", "--jobs",
           "10", "--candidates", "4", "--name", "mine", "--queue", "learned"]  # fmt: skip


@pytest.mark.slow
def test_the_command_trains_goes_on_and_writes_what_policies_can_use(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = CliRunner().invoke(app, [*COMMAND, "--out", str(out), "--generations", "1"])
    assert first.exit_code == 0, first.output
    again = CliRunner().invoke(app, [*COMMAND, "--out", str(out), "--generations", "2", "--json"])
    assert again.exit_code == 0, again.output
    assert "going on from generation 1" in again.stderr
    assert json.loads(again.stdout)["generations"] == 2
    lines = (out / "curve.csv").read_text().splitlines()
    assert [each.split(",")[0] for each in lines] == ["generation", "0", "1", "2"]
    models = tmp_path / "models"
    models.mkdir()
    for name in ("mine.onnx", "mine.toml", "mine_queue.onnx", "mine_queue.toml"):
        (out / name).rename(models / name)
    policy = load_policy(str(out / "mine_policy.toml"))
    plugins = registry(entry_points=False, models=models).resolve(policy)
    assert (plugins.scorers[0].scorer.name, plugins.queue_policy.name) == ("mine", "mine_queue")
    other = CliRunner().invoke(app, [*COMMAND, "--out", str(out), "--seed", "7"])
    assert other.exit_code != 0
    assert "belongs to a training with other data or settings" in other.output + str(
        other.exception
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "No Name"], "--name: 'No Name' is not a valid model name"),
        (["--name", "fastest"], "--name: 'fastest' is a scorer of Edgeyard"),
        (["--queue", "none"], "--queue: 'none' is not a queue policy"),
    ],
)
def test_wrong_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = CliRunner().invoke(app, [*COMMAND, "--out", str(out), *options])
    assert found.exit_code != 0
    assert message in found.output + str(found.exception)
    assert not out.exists()
