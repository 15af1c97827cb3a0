"""The synthetic test environment: documents, twin, thirteen steps, training."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.benchmark_api.app import openapi_document
from edgeyard.devices.benchmark_types import ACCEPTED_TYPES
from edgeyard.devices.model import BoardEngine
from edgeyard.errors import Conflict, InvalidInput, NotFound, TooLarge
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.scorers.learned import load_learned
from edgeyard.plugins.testing import (
    NOW,
    all_pairs,
    board,
    pending,
    sample_batch,
    sample_pending,
    sample_snapshot,
    snapshot_of,
)
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Kind, WeightedScorer
from edgeyard.scheduler.learning.features import Encoder
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import (
    Affinity,
    BenchmarkType,
    Binding,
    Constraint,
    IfUnavailable,
    Spread,
)
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    PinGrace,
)
from edgeyard.scheduler.model.history import RunKind
from edgeyard.scheduler.twin.document import (
    TwinData,
    read_twin_data,
    twin_data,
    write_twin_data,
)
from edgeyard.scheduler.twin.posted import DigitalTwin
from edgeyard.simulator.schedules import compare
from edgeyard.training.ste.controller import RoundReport
from edgeyard.training.ste.cycle_inputs import cycle_input
from edgeyard.training.ste.lab import EpisodeLab
from edgeyard.training.ste.steps import STEPS, Notice
from edgeyard.training.ste.training import (
    CANDIDATES,
    EpisodeEvolution,
    TrainingState,
    load_trainable,
    new_model,
    read_checkpoint,
    seed_of_episode,
    write_checkpoint,
    write_model,
)
from edgeyard.training.ste_services.twin import twin_app
from tests.builders.ste import Environment, environment, quick_policy, scenario
from tests.fakes.decice_schemas import JOB_SCHEMA, NODE_POOL_SCHEMA

NODE = {
    "node_id": "r8015356-n976057",
    "cpu_cores": 48,
    "memory": 393216,
    "cpu_load": 3.62,
    "memory_load": 4.08,
}
JOB = {"job_id": 74426695482326, "cpus_req": 5, "mem_req": 15360, "time_run": 415}


def reports(made: Environment, **more: Any) -> list[RoundReport]:
    found: list[RoundReport] = []
    made.controller.episode(
        "small",
        **{"run": "r", "episode": 0, "seed": 1, **more},
        on_round=lambda report, share: found.append(report),
    )
    return found


def test_the_example_row_of_the_published_table_is_a_state_of_the_twin() -> None:
    body = json.dumps({"nodes": [NODE], "jobs": [{**JOB, "time_run": 0}]}).encode()
    state = DigitalTwin().receive(body)
    assert state.body == body
    assert state.data.nodes[0].id == "r8015356-n976057"
    assert state.data.jobs[0].name == "74426695482326"
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    result = decide(cycle_input(state.data), policy, plugins)
    assert [(p.benchmark_id, p.target_uid) for p in result.placements] == [
        ("74426695482326", "r8015356-n976057")
    ]


def test_a_plain_job_does_not_start_on_a_node_with_too_few_cores() -> None:
    data = read_twin_data(json.dumps({"nodes": [NODE], "jobs": [{**JOB, "cpus_req": 49}]}).encode())
    policy = load_policy("default")
    result = decide(cycle_input(data), policy, registry(entry_points=False).resolve(policy))
    assert result.placements == ()
    assert "74426695482326" in result.waiting


@pytest.mark.parametrize("body", [NODE, [NODE], {"nodes": [{**NODE, "id": "n"}]}])
def test_a_node_an_array_and_a_document_are_accepted(body: object) -> None:
    assert len(read_twin_data(json.dumps(body).encode()).nodes) == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"nodes": [{**NODE, "memory": "much"}]}, "/nodes/0/memory"),
        ({"nodes": [{key: NODE[key] for key in NODE if key != "memory_load"}]}, "memory_load"),
        ({"nodes": [NODE, NODE]}, "/nodes/1/id"),
        ({"nodes": [{**NODE, "cpu_load": -1}]}, "/nodes/0/cpu_load"),
        ({"nodes": [{**NODE, "memory": 1e14}]}, "/nodes/0/memory"),
        ({"nodes": [NODE], "jobs": [{**JOB, "mem_req": 1e308}]}, "/jobs/0/mem_req"),
        ({"nodes": [NODE], "age_s": 1e300}, "/age_s"),
        ({"nodes": [NODE], "age_s": 10, "now": "0001-01-01T00:00:00Z"}, "/age_s"),
        ({"nodes": [NODE], "jobs": [JOB, JOB]}, "/jobs/1/job_id"),
        ({"nodes": [NODE], "jobs": [{**JOB, "status": "running"}]}, "/jobs/0/node_id"),
        ({"nodes": [NODE], "jobs": [{**JOB, "submit_time": "2025-01-01T00:00:00"}]}, "submit_time"),
        ({"nodes": [NODE], "links": [{"source": "a", "target": "b"}]}, "/links/0/source"),
        ({"nodes": [NODE], "schema": "edgeyard.twin/9"}, "/schema"),
        ("text", ""),
        ({}, "/nodes"),
    ],
)
def test_wrong_data_names_its_place(body: object, pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_twin_data(json.dumps(body).encode())
    assert pointer in caught.value.errors[0].pointer


@pytest.mark.parametrize("name", ["TYPE0", "TYPE100", "latency"])
def test_wrong_benchmark_types_are_refused_with_what_is_accepted(name: str) -> None:
    for body, pointer in (
        ({"nodes": [NODE], "jobs": [{**JOB, "benchmark_type": name}]}, "/jobs/0/benchmark_type"),
        ({"nodes": [{**NODE, "engines": {"ort": [name]}}]}, "/nodes/0/engines"),
    ):
        with pytest.raises(InvalidInput) as caught:
            read_twin_data(json.dumps(body).encode())
        (error,) = caught.value.errors
        assert error.pointer.startswith(pointer)
        assert error.reason == f"is '{name}'"
        assert error.accepted == ACCEPTED_TYPES


def test_the_schemas_of_documents_accept_the_types_that_the_reader_accepts() -> None:
    main: Any = openapi_document()
    service: Any = twin_app(DigitalTwin()).openapi()
    for name in ("TYPE1", "TYPE4", "TYPE99", "TYPE0", "TYPE100"):
        node = {**NODE, "id": "n", "engines": {"ort": [name]}}
        document = {"nodes": [node], "jobs": [{**JOB, "benchmark_type": name}]}
        try:
            read_twin_data(json.dumps(document).encode())
            accepted = True
        except InvalidInput:
            accepted = False
        assert accepted == (name not in ("TYPE0", "TYPE100"))
        for components in (main["components"], service["components"]):
            schema = {"$ref": "#/components/schemas/TwinData", "components": components}
            assert jsonschema.Draft202012Validator(schema).is_valid(document) == accepted, name


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 10_000, b"NaN"])
def test_bytes_that_are_no_json_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_twin_data(body)


def first_state() -> TwinData:
    lab = EpisodeLab(scenario(), load_policy("default"), seed=3)
    assert lab.until_decision()
    return lab.state()


def test_states_fit_the_published_schemas() -> None:
    state = json.loads(write_twin_data(first_state()))
    for each in state["nodes"]:
        jsonschema.validate(each, NODE_POOL_SCHEMA)
    for each in state["jobs"]:
        jsonschema.validate(each, JOB_SCHEMA)
    assert {each["kind"] for each in state["links"]} == {"host"}


def test_the_twin_holds_the_newest_states_within_its_bound() -> None:
    twin = DigitalTwin(max_bytes=3 * len(json.dumps(NODE)), max_versions=8)
    for version in (None, 0):
        with pytest.raises(NotFound, match=r"^no state was posted to the twin yet"):
            twin.state(version)
    assert twin.refresh() == 0
    assert twin.health().refreshing
    for _ in range(5):
        twin.receive(json.dumps(NODE).encode())
    health = twin.health()
    assert (health.version, health.refreshing, health.nodes) == (5, False, 1)
    assert health.held_bytes <= health.max_bytes
    assert twin.state().version == 5
    assert twin.state(3).version == 3
    with pytest.raises(NotFound, match=r"state 2 was removed: the twin still has 3 to 5"):
        twin.state(2)
    with pytest.raises(InvalidInput, match="up to 5"):
        twin.state(6)
    with pytest.raises(TooLarge):
        twin.receive(json.dumps([NODE] * 9).encode())
    assert twin.state().version == 5


@pytest.mark.parametrize("seed", range(5))
def test_a_live_cycle_is_decided_alike_from_the_twin(seed: int) -> None:
    given = CycleInput(
        snapshot=sample_snapshot(300, seed), pending=sample_pending(100, seed), now=NOW, seed=seed
    )
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    body = write_twin_data(twin_data(given))
    again = cycle_input(read_twin_data(body))
    then, now = decide(given, policy, plugins), decide(again, policy, plugins)
    assert now.placements == then.placements
    assert now.order == then.order
    assert dict(now.waiting) == dict(then.waiting)
    assert then.placements


def test_a_round_does_the_thirteen_steps_in_order(tmp_path: Path) -> None:
    new_model("mine", tmp_path)
    policy = load_policy("learned")
    policy = replace(policy, scorers=(ScorerChoice(name="mine", weight=1.0), *policy.scorers))
    plugins = registry(entry_points=False, models=tmp_path).resolve(policy)
    made = environment(policy, of=scenario(60.0), plugins=plugins)
    found = reports(made)
    for each in found:
        assert [step.step for step in each.steps] == list(range(1, 14))
        assert [step.title for step in each.steps] == [STEPS[n].title for n in range(1, 14)]
        plugins = made.plugins
        core = [
            plugins.queue_policy.name,
            *(filter_.name for filter_ in plugins.filters),
            *(seat.scorer.name for seat in plugins.scorers),
        ]
        assert each.answer.calls[: len(core)] == core
        if each.answer.rewards:
            assert each.answer.calls[len(core) :] == ["regret", "hedge"]
    busy = max(found, key=lambda each: len(each.answer.rewards))
    answers = {a["scheduler"]: a for a in busy.steps[9].detail["answers"]}
    by_wrapper = {
        wrapper: sum(a["wrapper"] == wrapper for a in answers.values())
        for wrapper in ("JSON to tensor", "JSON to ILP", "JSON to past runs", "JSON to columns")
    }
    assert list(by_wrapper.values()) == [1, 2, 3, 1]
    assert answers["mine"]["facts"]["columns"] > 0
    assert answers["ilp_completion"]["facts"]["jobs"] > 0
    assert set(busy.answer.rewards) <= set(answers)
    assert sum(busy.answer.weights.values()) == pytest.approx(1.0)


def test_queue_and_pools_are_those_of_the_core_on_the_pulled_state() -> None:
    made = environment(quick_policy(), of=scenario(120.0))
    last = reports(made)[-3]
    data = made.twin.state(last.answer.version).data
    result = decide(cycle_input(data), made.policy, made.plugins)
    queue = [each["job_id"] for each in last.steps[6].detail["queue"]]
    assert queue == list(result.order)
    for pool in last.steps[7].detail["pools"]:
        row = result.decided.batch.class_of_job[result.decided.row_of_id[pool["job_id"]]]
        fits = np.flatnonzero(result.decided.feasibility.fits[row])
        assert pool["eligible"] == [result.decided.snapshot.uids[at] for at in fits]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_episode() -> None:
    def decisions() -> list[object]:
        return [each.answer.decisions for each in reports(environment(quick_policy()))]

    assert decisions() == decisions()


def test_all_jobs_of_an_episode_come_to_an_end() -> None:
    made = environment(quick_policy())
    found = made.controller.episode("small", run="r", episode=0, seed=1)
    figures = found.figures
    assert figures.jobs > 20
    assert figures.completed + figures.failed + figures.expired == figures.jobs
    assert figures.mean_turnaround_s >= figures.mean_run_s > 0


class Crashing:
    """A scheduler that raises."""

    name = "crashing"
    objective = "nothing"
    kind = ScorerKind.MODEL
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        raise RuntimeError("out of order")


def test_a_scheduler_that_crashes_does_not_stop_the_others() -> None:
    policy = quick_policy()
    plugins = registry(entry_points=False).resolve(policy)
    plugins = replace(plugins, scorers=(WeightedScorer(scorer=Crashing()), *plugins.scorers))
    made = environment(policy, of=scenario(120.0), plugins=plugins)
    found = reports(made)
    sent = {each["scheduler"]: each for each in found[0].steps[8].detail["schedulers"]}
    assert not sent["crashing"]["answered"]
    assert "out of order" in sent["crashing"]["problem"]
    assert sent["fastest"]["answered"]
    assert all("crashing" not in each.answer.rewards for each in found)
    assert any(each.answer.decisions for each in found)
    # After three faults in a row it is not asked for a while, as in the live service.
    assert "suspended" in found[4].steps[8].detail["schedulers"][0]["problem"]


def test_a_repeated_notification_decides_nothing_again() -> None:
    made = environment(quick_policy())
    version = made.twin.receive(write_twin_data(first_state())).version
    notice = Notice(run="r", episode=0, round=0, version=version)
    first = made.scheduler.notify(notice)
    again = made.scheduler.notify(notice)
    assert (first.repeated, again.repeated) == (False, True)
    assert again.decisions == first.decisions
    with pytest.raises(Conflict, match="was notified before with version 1, now with 2"):
        made.scheduler.notify(Notice(run="r", episode=0, round=0, version=2))


def test_a_notification_of_an_unknown_version_is_refused() -> None:
    made = environment(quick_policy())
    with pytest.raises(InvalidInput, match="has not been posted yet"):
        made.scheduler.notify(Notice(run="r", episode=0, round=0, version=1))
    with pytest.raises(InvalidInput, match="not set up for training"):
        made.scheduler.notify(Notice(run="r", episode=0, round=0, version=1, train="mine"))


def evolution(folder: Path) -> EpisodeEvolution:
    """Return the training of a new model."""
    manifest, network = load_trainable(new_model("mine", folder))
    return EpisodeEvolution(manifest, TrainingState(network=network), load=load_learned)


def play(made: Environment, trainer: EpisodeEvolution, episodes: range) -> None:
    for episode in episodes:
        made.controller.episode(
            "small",
            run="r",
            episode=episode,
            seed=seed_of_episode(100, episode),
            train=trainer.name,
            max_rounds=60,
        )


def judged(made: Environment, seeds: range, state: str) -> NDArray[np.float64]:
    """Mean turnaround with one model that decides alone, by seed."""
    return np.array(
        [
            made.controller.episode(
                "small", run=state, episode=at, seed=seed, judged=state
            ).figures.mean_turnaround_s
            for at, seed in enumerate(seeds)
        ]
    )


@pytest.mark.slow
def test_a_model_is_better_after_training_than_before_on_unseen_seeds(tmp_path: Path) -> None:
    trainer = evolution(tmp_path)
    made = environment(quick_policy(), trainer=trainer)
    play(made, trainer, range(3 * CANDIDATES))
    unseen = range(9000, 9005)
    found = compare(judged(made, unseen, "trained"), judged(made, unseen, "frozen"))
    assert found.difference.high < 0.0, found


def test_the_reward_of_an_episode_is_the_mean_time_that_its_jobs_were_there(tmp_path: Path) -> None:
    trainer = evolution(tmp_path)
    made = environment(quick_policy(), of=scenario(120.0), trainer=trainer)
    whole = made.controller.episode("small", run="r", episode=0, seed=1, train="mine")
    assert whole.trained["reward"] == pytest.approx(-whole.figures.mean_turnaround_s)
    assert whole.trained["jobs"] == whole.figures.jobs
    cut = made.controller.episode("small", run="s", episode=1, seed=1, train="mine", max_rounds=5)
    assert cut.figures.waiting > 0  # they count with the time so far
    assert cut.trained["jobs"] == cut.figures.jobs


def test_the_candidates_of_a_generation_meet_the_same_arrivals() -> None:
    seeds = [seed_of_episode(7, number) for number in range(2 * CANDIDATES)]
    assert seeds == [7] * CANDIDATES + [8] * CANDIDATES


def test_an_untrained_model_decides_as_the_queue_by_priority_and_age(tmp_path: Path) -> None:
    trainer = evolution(tmp_path)
    batch = sample_batch(20, 10)
    scores = load_learned(tmp_path / "mine.toml").score(batch, all_pairs(batch))
    assert set(scores.tolist()) == {0.5}
    assert not trainer.network.weights["S"].any()


def test_only_networks_of_the_environment_can_be_trained(tmp_path: Path) -> None:
    from edgeyard.errors import ConfigError
    from edgeyard.scheduler.learning.features import Input
    from edgeyard.scheduler.learning.manifest import Output, manifest_text

    path = new_model("mine", tmp_path)
    manifest, _ = load_trainable(path)
    other = replace(manifest, output=Output.LOG_SECONDS, quantiles=(0.5,))
    path.write_text(manifest_text(other))
    with pytest.raises(ConfigError, match="output is log_seconds"):
        load_trainable(path)
    path.write_text(
        manifest_text(replace(manifest, inputs=(*manifest.inputs, Input(column="extra.rows"))))
    )
    with pytest.raises(ConfigError, match=r"it requires extra\.rows"):
        load_trainable(path)
    path.write_text(manifest_text(manifest))
    with pytest.raises(ConfigError, match="leave --new out"):
        new_model("mine", tmp_path)
    onnx = next(tmp_path.glob("*.onnx"))
    onnx.write_bytes(onnx.read_bytes() + b"\0")
    with pytest.raises(ConfigError, match="SHA-256"):
        load_trainable(path)


def test_servers_of_other_users_can_read_models(tmp_path: Path) -> None:
    path = new_model("mine", tmp_path)
    manifest, network = load_trainable(path)
    (tmp_path / "plain").touch()
    write_model(path, manifest, network)
    modes = {each.stat().st_mode & 0o777 for each in (path, *tmp_path.glob("*.onnx"))}
    assert modes == {(tmp_path / "plain").stat().st_mode & 0o777}


def test_an_exported_model_scores_as_the_trained_network(tmp_path: Path) -> None:
    path = new_model("mine", tmp_path)
    manifest, network = load_trainable(path)
    network.weights["S"][:, 0] = np.linspace(-1.0, 1.0, len(manifest.inputs))
    write_model(path, manifest, network)
    batch = sample_batch(20, 10)
    pairs = all_pairs(batch)
    (x,) = Encoder(batch, pairs.rows, pairs.boards, manifest.inputs).chunks(len(pairs))
    found = load_learned(path).score(batch, pairs)
    expected = network.predict(x.astype(np.float64))[:, 0]
    assert np.abs(found - expected).max() < 1e-5


def test_a_checkpoint_holds_all_that_training_changes(tmp_path: Path) -> None:
    trainer = evolution(tmp_path)
    made = environment(quick_policy(), of=scenario(60.0), trainer=trainer)
    play(made, trainer, range(CANDIDATES + 1))
    write_checkpoint(tmp_path / "c.npz", trainer.state)
    resumed = EpisodeEvolution(trainer.manifest, read_checkpoint(tmp_path / "c.npz"))
    assert resumed.state.episodes == CANDIDATES + 1
    others = environment(quick_policy(), of=scenario(60.0), trainer=resumed)
    for each, its in ((made, trainer), (others, resumed)):
        play(each, its, range(CANDIDATES + 1, CANDIDATES + 3))
    assert trainer.state.costs == resumed.state.costs
    for name, value in trainer.network.weights.items():
        np.testing.assert_array_equal(value, resumed.network.weights[name])
    (tmp_path / "c.npz").write_bytes(b"no archive")
    with pytest.raises(InvalidInput, match="not a checkpoint"):
        read_checkpoint(tmp_path / "c.npz")


def test_plugins_of_the_registry_include_a_registered_model(tmp_path: Path) -> None:
    new_model("mine", tmp_path)
    known = registry(entry_points=False, models=tmp_path)
    assert "mine" in known.names(Kind.SCORER)
    assert "mine" in known.names(Kind.QUEUE_POLICY)


def test_a_waiting_benchmark_keeps_all_that_a_decision_depends_on() -> None:
    full = PendingBenchmark(
        benchmark_id="b",
        user_id="ann",
        submit_time=NOW,
        family="rpi4b",
        engine="ort",
        benchmark_type=BenchmarkType.TYPE2,
        ram_bytes=5,
        storage_bytes=6,
        target_uid="rpi4b-0001",
        constraints=(Constraint(attribute="memory.ram", operator=">=", value="1"),),
        affinities=(Affinity(attribute="${node.class}", operator="=", value="a", weight=-3),),
        spreads=(Spread(attribute="rack", weight=7, targets=(("b", 60), ("a", 40))),),
        spread_group="c",
        spread_counts=(("rpi4b-0001", 2), ("rpi4b-0006", 1)),
        user_priority=7,
        deadline=NOW + timedelta(hours=2),
        start_time=NOW + timedelta(hours=1),
        user_time_s=60.0,
        binding=Binding.LOOSE,
        not_ready=waiting_reasons.held("ann", "the rack moves"),
        campaign_id="c",
        campaign_started=True,
        tried_uids=frozenset({"rpi4b-0002"}),
        avoid_until=(("rpi4b-0003", NOW + timedelta(minutes=1)),),
        model_sha256="0" * 64,
        job_completion_threshold=50,
        nb_inference=30,
        variant="v",
        budget=2.5,
        ends_in_time=True,
        probe=True,
        model_bytes=9,
        pin=PinGrace(if_unavailable=IfUnavailable.NOTIFY, grace_s=60.0, is_due=True),
        extra='{"a": [1, 2.5], "b": {"c": "\\u00e9"}}',
        gang_id="g",
        gang_size=3,
        gang_uids=frozenset({"rpi4b-0004", "rpi4b-0005"}),
        cleared_uid="rpi4b-0007",
    )
    for each in fields(PendingBenchmark):
        if each.default is not MISSING:
            assert getattr(full, each.name) != each.default, f"set {each.name} here"
    given = CycleInput(snapshot=snapshot_of([board("rpi4b-0001")]), pending=[full], now=NOW)
    assert cycle_input(read_twin_data(write_twin_data(twin_data(given)))).pending == [full]


def test_a_running_benchmark_keeps_all_that_a_decision_depends_on() -> None:
    full = BoardHolder(
        benchmark_id="b",
        target_uid="rpi4b-0001",
        priority=60,
        progress=12.5,
        preemptible=True,
        ending=True,
        preempted=True,
        user_id="ann",
        started_at=NOW - timedelta(minutes=1),
        kind=RunKind(
            engine="ort",
            benchmark_type=BenchmarkType.TYPE2,
            model_sha256="0" * 64,
            nb_inference=30,
            variant="v",
        ),
        phase="measuring",
        preemptible_measuring=True,
        time_limit_s=60.0,
        deadline=NOW + timedelta(hours=2),
        strict=True,
        canary=True,
    )
    for each in fields(BoardHolder):
        if each.default is not MISSING:
            assert getattr(full, each.name) != each.default, f"set {each.name} here"
    given = CycleInput(
        snapshot=snapshot_of([board("rpi4b-0001")]), pending=[], now=NOW, holders=[full]
    )
    assert cycle_input(read_twin_data(write_twin_data(twin_data(given)))).holders == [full]


def test_a_board_keeps_the_types_that_its_engine_declares() -> None:
    offered = {"ort": ("TYPE2", "TYPE1"), "memory": ("TYPE10", "TYPE4", "no type")}
    boards = [board("rpi4b-0001", engines=offered), board("rpi4b-0002")]
    declared = pending(engine="memory", benchmark_type=BenchmarkType("TYPE4"))
    given = CycleInput(snapshot=snapshot_of(boards), pending=[declared], now=NOW)
    data = twin_data(given)
    assert data.nodes[0].engines == {"ort": ["TYPE1", "TYPE2"], "memory": ["TYPE4", "TYPE10"]}
    again = cycle_input(read_twin_data(write_twin_data(data)))
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    placed = decide(again, policy, plugins).placements
    assert placed == decide(given, policy, plugins).placements
    assert [each.target_uid for each in placed] == ["rpi4b-0001"]


def test_a_board_has_no_types_that_it_lists_without_a_declaration() -> None:
    listing = BoardEngine("ort", supported_types=frozenset({"TYPE1", "TYPE4"}))
    boards = [replace(board("rpi4b-0001"), engines=(listing,))]
    given = CycleInput(snapshot=snapshot_of(boards), pending=[], now=NOW)
    assert twin_data(given).nodes[0].engines == {"ort": ["TYPE1"]}


def test_a_gang_starts_as_a_whole_or_not_at_all_from_the_twin() -> None:
    boards = [board("rpi4b-0001"), board("rpi4b-0002")]
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)

    def placed(size: int) -> set[str]:
        gang = [pending(benchmark_id=f"b{row}", gang_id="g", gang_size=size) for row in range(size)]
        given = CycleInput(snapshot=snapshot_of(boards), pending=gang, now=NOW)
        again = cycle_input(read_twin_data(write_twin_data(twin_data(given))))
        return {each.benchmark_id for each in decide(again, policy, plugins).placements}

    assert placed(2) == {"b0", "b1"}
    assert placed(3) == set()


@pytest.mark.parametrize(
    ("job", "pointer", "reason"),
    [
        ({"affinities": [["a", "=", "b", 0]]}, "/jobs/0/affinities/0/3", "a weight without effect"),
        ({"affinities": [["a", "like", "b", 9]]}, "/jobs/0/affinities/0/1", "not an operator"),
        ({"affinities": [["a", "=", "b", 101]]}, "/jobs/0/affinities/0/3", "100"),
        ({"constraints": [["a", "like", "b"]]}, "/jobs/0/constraints/0/1", "not an operator"),
        ({"spreads": [["a", 0, {}]]}, "/jobs/0/spreads/0/1", ""),
        ({"spreads": [["a", 1, {"b": 60, "c": 41}]]}, "/jobs/0/spreads/0/2", "more than 100"),
        ({"extra": "{"}, "/jobs/0/extra", "not valid JSON"),
        ({"extra": "[" * 60_000}, "/jobs/0/extra", "not valid JSON"),
        ({"extra": "[]"}, "/jobs/0/extra", "not a JSON object"),
        ({"extra": '{"a": NaN}'}, "/jobs/0/extra/a", ""),
        ({"gang_id": "g", "gang_size": 0}, "/jobs/0/gang_size", ""),
        ({"gang_id": "g", "gang_size": 65}, "/jobs/0/gang_size", ""),
        ({"gang_id": "g", "gang_size": 1}, "/jobs/1/gang_size", "more jobs"),
        ({"gang_id": "g", "gang_size": 3}, "/jobs/1/gang_size", "of another job of its gang 3"),
    ],
)
def test_wrong_wishes_extras_and_gangs_name_their_place(
    job: dict[str, object], pointer: str, reason: str
) -> None:
    other = {**JOB, "job_id": "other"}
    if "gang_id" in job:
        other |= {"gang_id": "g", "gang_size": 1 if job["gang_size"] == 1 else 2}
    document = {"nodes": [NODE], "jobs": [{**JOB, **job}, other]}
    with pytest.raises(InvalidInput) as caught:
        read_twin_data(json.dumps(document).encode())
    assert caught.value.errors[0].pointer == pointer
    assert reason in caught.value.errors[0].reason


def test_a_board_and_a_benchmark_keep_their_fields() -> None:
    snapshot = snapshot_of([board("rpi4b-0001", progress=40.0, busy=True, busy_reason="runs x")])
    given = CycleInput(snapshot=snapshot, pending=[pending(campaign_started=True)], now=NOW)
    again = cycle_input(read_twin_data(write_twin_data(twin_data(given))))
    assert again.pending == given.pending
    assert again.snapshot.reasons == snapshot.reasons
    assert again.snapshot.progress.tolist() == [40.0]
    assert again.snapshot.attributes == snapshot.attributes
