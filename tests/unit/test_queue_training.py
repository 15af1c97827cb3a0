"""Training of queue policies: windows, evolution and policy gradient, checkpoints, exports."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.queue_policies.learned_queue import LearnedQueue, load_learned_queue
from edgeyard.plugins.queue_policies.lookahead import Lookahead
from edgeyard.plugins.testing import NOW, pending, queue_of, sample_pending
from edgeyard.scheduler.decide.priority import ages_s
from edgeyard.scheduler.framework.batch import TURN_SIZE
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.kernel.queue_inputs import INPUTS
from edgeyard.training.export import export_queue, queue_model
from edgeyard.training.progress import Progress, load_progress, save_progress
from edgeyard.training.queue_trainer import (
    Floats,
    Method,
    QueueTraining,
    digest_of,
    log_ratio,
    start_weights,
    train,
    window_set_of,
)
from edgeyard.training.windows import (
    CARASTAN_SANTOS,
    JUDGED_STARTS,
    SHORTEST,
    Window,
    lookahead_ends,
    rule_ends,
    sampled_ends,
    score_ends,
    training_windows,
    window_of,
)
from edgeyard.training.worlds.replay import Backfilling, replay
from edgeyard.training.worlds.swf import Log
from tests.builders.logs import log_of, swf_line, write_swf
from tests.builders.unchecked_models import unchecked_queue_model

PROCESSORS = 8


def busy_log(count: int, seed: int = 1) -> Log:
    """A log with a queue, users who differ, and requests above the run times."""
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.exponential(25.0, count)).round()
    run = rng.lognormal(3.5, 1.4, count).round() + 1
    requested = run * rng.integers(1, 6, count)
    procs = rng.choice([1, 1, 2, 4, 8], count)
    rows = zip(submit.tolist(), run.tolist(), procs.tolist(), requested.tolist(), strict=True)
    return log_of([*rows], users=rng.integers(0, 5, count).tolist())


def ends_of(log: Log, policy: object) -> list[float]:
    found = replay(
        log,
        policy,  # type: ignore[arg-type]
        processors=PROCESSORS,
        backfilling=Backfilling.EASY,
    )
    return [float(end) for end in found.schedule.end]


@pytest.fixture(scope="module")
def window() -> Window:
    return window_of(busy_log(150), 0, PROCESSORS)


@pytest.mark.slow
def test_the_compiled_lookahead_gives_the_schedule_of_the_plugin(window: Window) -> None:
    found = lookahead_ends(window)
    assert found.tolist() == ends_of(busy_log(150), Lookahead())


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "name"), [(SHORTEST, "shortest_first"), (CARASTAN_SANTOS, "f1")])
def test_simple_rules_give_the_schedules_of_their_plugins(
    window: Window, rule: int, name: str
) -> None:
    policy = registry(entry_points=False).queue_policy(name)
    assert rule_ends(window, rule).tolist() == ends_of(busy_log(150), policy)


def some_weights(hidden: int = 3) -> np.ndarray:
    return start_weights(QueueTraining(hidden=hidden, seed=4))


@pytest.mark.slow
def test_an_exported_function_gives_the_schedule_that_it_was_trained_with(
    window: Window, tmp_path: Path
) -> None:
    weights = some_weights()
    policy = load_learned_queue(export_queue(tmp_path, "mine", weights, 3, "a test"))
    assert policy.name == "mine"
    same = np.isclose(score_ends(window, weights, 3), ends_of(busy_log(150), policy))
    assert same.mean() > 0.95  # its numbers have 32 bits: two nearly equal scores may change places


def test_a_changed_file_and_other_inputs_are_refused(tmp_path: Path) -> None:
    manifest = export_queue(tmp_path, "mine", some_weights(), 3, 'a "test"\nof = "quotes"')
    load_learned_queue(manifest)
    text = manifest.read_text()
    manifest.write_text(text.replace('"log_wait_s"', '"age"'))
    with pytest.raises(ConfigError, match="inputs: are not log_requested_s"):
        load_learned_queue(manifest)
    manifest.write_text(text)
    (tmp_path / "mine.onnx").write_bytes(b"other")
    changed = "its SHA-256 is .*, but mine.toml states .*: the file was changed or replaced"
    with pytest.raises(ConfigError, match=changed):
        load_learned_queue(manifest)
    manifest.write_text("kind = 'queue_policy'\nname = 'A'\nmore = 1\n")
    with pytest.raises(ConfigError, match=r"more: is unknown.*name: is not a name.*onnx: is not"):
        load_learned_queue(manifest)


def test_models_of_a_folder_are_queue_policies_and_no_scorers(tmp_path: Path) -> None:
    export_queue(tmp_path, "mine", some_weights(), 3, "a test")
    known = registry(entry_points=False, models=tmp_path)
    assert "mine" in known.names(Kind.QUEUE_POLICY)
    assert "mine" not in known.names(Kind.SCORER)
    assert isinstance(known.queue_policy("mine"), LearnedQueue)


def test_training_windows_overlap_no_judged_sequence() -> None:
    for count in (10_000, 30_000):
        log = busy_log(count)
        training, validation = training_windows(log, PROCESSORS)
        assert training
        assert validation
        judged = {float(log.submit[start + 500]) for start in JUDGED_STARTS}
        for each in (*training, *validation):
            assert judged.isdisjoint(each.jobs.submit.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("method", list(Method))
def test_a_training_that_goes_on_ends_as_one_that_was_not_stopped(
    method: Method, tmp_path: Path
) -> None:
    window_set = window_set_of(
        [window_of(busy_log(100, seed), 0, PROCESSORS) for seed in (1, 2, 3)]
    )
    long = QueueTraining(method=method, generations=7, hidden=2)
    short = QueueTraining(method=method, generations=3, hidden=2)
    digest = digest_of(window_set)
    save_progress(tmp_path / "c.npz", train(short, window_set, window_set), short, digest)
    # the short one has one more point of its curve, at its end
    gone_on = train(long, window_set, window_set, load_progress(tmp_path / "c.npz", long, digest))
    assert gone_on.generation == 7
    assert gone_on.weights.tolist() == train(long, window_set, window_set).weights.tolist()


@pytest.mark.parametrize("method", list(Method))
def test_a_training_that_is_finished_is_left_as_it_is(method: Method) -> None:
    window_set = window_set_of([window_of(busy_log(60), 0, PROCESSORS)])
    settings = QueueTraining(method=method, generations=1, hidden=2)
    weights = start_weights(settings)
    progress = Progress(generation=1, curve=[], best=weights, weights=weights)
    assert train(settings, window_set, window_set, progress) is progress
    assert (progress.generation, progress.weights.tolist()) == (1, weights.tolist())


@pytest.mark.slow
def test_both_methods_learn() -> None:
    window_set = window_set_of([window_of(busy_log(60), 0, PROCESSORS)])
    for method, generations in ((Method.EVOLUTION, 4), (Method.GRADIENT, 10)):
        settings = QueueTraining(method=method, generations=generations, hidden=2)
        every = range(len(window_set.windows))
        before = log_ratio(start_weights(settings), 2, window_set, every)
        assert (
            log_ratio(train(settings, window_set, window_set).best, 2, window_set, every) < before
        )


def test_every_draw_of_every_training_has_a_seed_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twelve windows, so that a step of the gradient draws eight of them."""
    window_set = window_set_of([window_of(busy_log(60, seed), 0, PROCESSORS) for seed in range(12)])
    seeds: list[int] = []

    def watched(window: Window, weights: Floats, hidden: int, _: float, seed: int) -> object:
        seeds.append(seed)
        return score_ends(window, weights, hidden), np.zeros_like(weights)

    monkeypatch.setattr("edgeyard.training.queue_trainer.sampled_ends", watched)
    for seed in (0, 1):
        train(
            QueueTraining(method=Method.GRADIENT, seed=seed, generations=15, hidden=2),
            window_set,
            window_set,
        )
    assert len(seeds) == 2 * 15 * 3 * min(8, len(window_set.windows))
    assert len(set(seeds)) == len(seeds)


@pytest.mark.slow
def test_the_policy_gradient_is_the_derivative_of_the_likelihood() -> None:
    # two jobs wait at each of a few decisions: the mean of the gradient over draws is 0
    window = window_of(busy_log(40), 0, PROCESSORS)
    weights = some_weights(2)
    draws = [sampled_ends(window, weights, 2, 0.5, seed)[1] for seed in range(400)]
    mean, error = np.mean(draws, axis=0), np.std(draws, axis=0) / 20.0
    assert (np.abs(mean) <= 5.0 * error + 1e-9).all()
    assert np.abs(draws[0]).max() > 0.0
    assert len(mean) == (INPUTS + 1) * 2 + 2 + INPUTS


@pytest.mark.slow  # compiles for ten seconds
def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    window_set = window_set_of([window_of(busy_log(100), 0, PROCESSORS)])
    settings = QueueTraining(generations=1, hidden=2)
    path = tmp_path / "c.npz"
    save_progress(path, train(settings, window_set, window_set), settings, "data")
    other = QueueTraining(generations=1, hidden=2, seed=5)
    with pytest.raises(InvalidInput, match=r"--out: .*other data or settings"):
        load_progress(path, other, "data")
    with pytest.raises(InvalidInput, match="other data or settings"):
        load_progress(path, settings, "other data")
    path.write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match="is not a checkpoint"):
        load_progress(path, settings, "data")


class Trap:
    """Made from a pickle, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


@pytest.mark.slow
def test_nothing_in_a_checkpoint_is_run(tmp_path: Path) -> None:
    window_set = window_set_of([window_of(busy_log(60), 0, PROCESSORS)])
    settings = QueueTraining(generations=2, hidden=2)
    short = QueueTraining(generations=1, hidden=2)
    good = train(short, window_set, window_set)
    assert {array.dtype for array in good.state.values()} == {np.dtype(np.float64)}
    trap = np.frombuffer(pickle.dumps(Trap(tmp_path / "sprung")), dtype=np.uint8)
    names = ("evolution", *good.state)
    for name in names:
        state = {**good.state, name: trap}
        progress = replace(good, state=state, curve=[*good.curve])
        save_progress(tmp_path / "c.npz", progress, settings, "data")
        with suppress(InvalidInput):
            train(
                settings,
                window_set,
                window_set,
                load_progress(tmp_path / "c.npz", settings, "data"),
            )
    assert not (tmp_path / "sprung").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first", "losses"])
def test_a_checkpoint_with_a_damaged_state_is_refused(tmp_path: Path, name: str) -> None:
    window_set = window_set_of([window_of(busy_log(60), 0, PROCESSORS)])
    settings = QueueTraining(generations=2, hidden=2)
    good = train(QueueTraining(generations=1, hidden=2), window_set, window_set)
    for wrong in (good.state[name][:-1], good.state[name] * np.nan, good.state[name].astype("U9")):
        damaged = replace(good, state={**good.state, name: wrong}, curve=[*good.curve])
        with pytest.raises(InvalidInput, match="the state of the checkpoint is damaged"):
            train(settings, window_set, window_set, damaged)


@pytest.fixture(scope="module")
def swf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = busy_log(10_000)
    columns = zip(
        log.job.tolist(), log.submit.tolist(), log.run.tolist(), log.procs.tolist(),
        log.requested.tolist(), strict=True,
    )  # fmt: skip
    lines = [
        swf_line(job, submit, run, procs, requested=requested)
        for job, submit, run, procs, requested in columns
    ]
    return write_swf(tmp_path_factory.mktemp("logs") / "busy.swf", lines, procs=PROCESSORS)


@pytest.mark.slow
def test_the_command_trains_goes_on_after_a_kill_and_judges(swf: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--log", str(swf), "--out", str(out), "--name", "busy", "--hidden", "2"]
    options += ["--method", "gradient", "--seed", "3"]
    command = [sys.executable, "-m", "edgeyard", "learn", "queue", *options]
    killed = subprocess.Popen(
        [*command, "--generations", "10000"], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until = time.monotonic() + 300
        while not (out / "checkpoint.npz").exists() and time.monotonic() < until:
            assert killed.poll() is None
            time.sleep(0.1)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    with np.load(out / "checkpoint.npz") as file:
        done = json.loads(str(file["header"]))["generation"]
    assert done >= 5
    assert not (out / "busy.toml").exists()
    lines = (out / "curve.csv").read_text().splitlines()
    assert lines[0] == "generation,training,validation"
    again = [*command, "--generations", str(done + 2), "--json"]
    ended = subprocess.run(again, capture_output=True, text=True, check=True)
    assert f"going on from generation {done}" in ended.stderr
    found = json.loads(ended.stdout)
    assert found["generations"] == done + 2
    judged = found["judged"]["busy.swf"]
    assert judged["low"] <= judged["mean"] <= judged["high"]
    assert judged["worst"] >= judged["median"]
    assert load_learned_queue(out / "busy.toml").name == "busy"
    replayed = CliRunner().invoke(
        app, ["sim", "replay", str(swf), "--queue", str(out / "busy.toml"), "--count", "50"]
    )
    assert replayed.exit_code == 0, replayed.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "No Name"], "--name: 'No Name' is not a valid model name"),
        (["--procs", "2"], "the machine has 2"),
    ],
)
def test_wrong_options_are_named(
    options: list[str], message: str, swf: Path, tmp_path: Path
) -> None:
    command = ["learn", "queue", "--log", str(swf), "--out", str(tmp_path / "out"), *options]
    found = CliRunner().invoke(app, command)
    assert found.exit_code != 0
    assert message in found.output + str(found.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_log_without_a_queue_teaches_nothing(tmp_path: Path) -> None:
    lines = [swf_line(job, job * 100, 5) for job in range(1, 12_000)]
    path = write_swf(tmp_path / "idle.swf", lines)
    command = ["learn", "queue", "--log", str(path), "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, command)
    assert found.exit_code != 0
    assert "too few jobs wait" in found.output + str(found.exception)


def test_a_log_of_one_job_is_too_short(tmp_path: Path) -> None:
    path = write_swf(tmp_path / "short.swf", [swf_line(1, 0, 100)], procs=PROCESSORS)
    command = ["learn", "queue", "--log", str(path), "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, command)
    assert found.exit_code != 0
    assert "--log: too few jobs wait" in found.output + str(found.exception)


def wild_queue(seed: int) -> LearnedQueue:
    weights = 100.0 * np.random.default_rng(seed).normal(size=2 * INPUTS + 2)
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
