"""The scheduler controller: steps 6 to 13, by the live service's decision core.

It pulls a state from the twin, makes the input of `decide()` of it, and reports what that did: the
queue, the eligible nodes, what each scheduler answered through its wrapper, how the evaluator
compared the answers, the rewards, and the aggregator's decisions. Rewards change weights by the
live service's own rules (`edgeyard.scheduler.engine.rewards`), and train a model where one is
registered for it.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

import msgspec
import numpy as np

from edgeyard.errors import Conflict, InvalidInput
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.engine.rewards import outcome_rewards
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.protocols import Proposal, ScorerKind
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import CallKind, Fault, PluginCall
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.twin.document import TwinData
from edgeyard.simulator.lab.world import MAX_HISTORY
from edgeyard.simulator.learning import SimulatedLearning
from edgeyard.simulator.wording import count_of
from edgeyard.training.ste.cycle_inputs import cycle_input, ended_jobs, past_runs
from edgeyard.training.ste.node_pass import decide_on_nodes
from edgeyard.training.ste.steps import (
    Decision,
    Notice,
    Round,
    StepEntry,
    StepLog,
    StoppedJob,
    utc_now,
)
from edgeyard.training.worlds.replay import PRIORITY

MAX_ROUNDS = 64
"""Answers that are kept for notifications that are repeated."""

_MAX_LISTED = 200
"""Jobs and nodes that a step lists by name; it always states how many there are."""

_WRAPPERS: Mapping[ScorerKind, str] = {
    ScorerKind.MODEL: "JSON to tensor",
    ScorerKind.ILP: "JSON to ILP",
    ScorerKind.HISTORY: "JSON to past runs",
    ScorerKind.HEURISTIC: "JSON to columns",
}


class TwinSource(Protocol):
    """The digital twin, as the scheduler controller reads it."""

    def pull(self, version: int) -> TwinData:
        """Return the state of this version.

        Raises:
            NotFound: The twin holds it no more.
            Unavailable: The twin does not answer.
        """
        ...


class Trainer(Protocol):
    """Updates one model by rewards; see `edgeyard.training.ste.training`."""

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    def exploring_plugins(self, plugins: Plugins) -> Plugins:
        """Return the plugins with the model as a scorer that explores."""
        ...

    def evaluated_plugins(self, plugins: Plugins, state: str) -> Plugins:
        """Return the plugins with the model alone, without exploration.

        Args:
            plugins: Of the policy.
            state: ``trained``: as it is now; ``frozen``: as it was before the run.

        Raises:
            InvalidInput: There is no model of this state.
        """
        ...

    def add_state(self, data: TwinData) -> float:
        """Add what jobs have come to; return the reward of the episode so far: more is better."""
        ...

    def finish_episode(self) -> Mapping[str, float]:
        """Update the model by all that was added; return figures of the update.

        Raises:
            InvalidInput: Nothing was added.
        """
        ...


@dataclass(slots=True)
class _Run:
    """What is remembered of one run of the test environment."""

    learning: SimulatedLearning = field(default_factory=SimulatedLearning)
    history: History = field(default_factory=History)
    ended: set[str] = field(default_factory=set)
    node_weights: Mapping[str, float] = field(default_factory=dict)
    episode: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """What steps 7 to 13 did.

    Attributes:
        plugins: That decided.
        times: When each step but the 12th began and ended.
        jobs: Number of jobs in the queue.
        queue: The first ones.
        pools: Eligible nodes of the first ones.
        eligible: Number of jobs with an eligible node.
        pairs: What was sent to the schedulers, in words.
        proposals: The newest answer of each scheduler.
        problems: Why schedulers did not answer, by name.
        fallback: The policy's fallback decided.
        rewarded: Step 12.
        outcomes: Rewards of placements that have ended, by job.
        weights: After step 12, by scheduler.
        calls: Plugins in the order of their first calls.
    """

    plugins: Plugins
    times: Mapping[int, tuple[float, float]]
    jobs: int
    queue: Sequence[Mapping[str, object]]
    pools: Sequence[Mapping[str, object]]
    eligible: int
    pairs: str
    proposals: Sequence[Proposal]
    problems: Mapping[str, str]
    fallback: bool
    decisions: list[Decision]
    waiting: dict[str, str]
    rewarded: StepEntry
    rewards: dict[str, float]
    weights: dict[str, float]
    faults: Sequence[Fault]
    calls: list[str]
    stopped: list[StoppedJob] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    outcomes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class SchedulerController:
    """Does steps 6 to 13 of the rounds with the decision core. Thread-safe: one round at a time."""

    def __init__(
        self,
        twin: TwinSource,
        policy: Policy,
        plugins: Plugins,
        *,
        monotonic_s: Callable[[], float],
        wall: Callable[[], datetime] = utc_now,
        trainer: Trainer | None = None,
    ) -> None:
        """Take the registered schedulers.

        Args:
            twin: Where states are pulled from.
            policy: Its scorers are the schedulers.
            plugins: What the policy names.
            monotonic_s: Clock to time schedulers and steps by.
            wall: Clock of when steps began.
            trainer: Of the model that notifications may ask to train.
        """
        self._twin, self._policy, self._plugins = twin, policy, plugins
        self._monotonic_s, self._wall = monotonic_s, wall
        self._trainer = trainer
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, int, int], tuple[Notice, Round]] = OrderedDict()
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def set_trainer(self, trainer: Trainer | None) -> None:
        """Replace the trainer of the model that notifications may ask to train."""
        with self._lock:
            self._trainer = trainer

    def policy(self) -> Policy:
        """Return the policy that decides."""
        return self._policy

    @property
    def schedulers(self) -> Sequence[Mapping[str, object]]:
        """The registered schedulers."""
        return [
            {
                "name": role.scorer.name,
                "kind": role.scorer.kind.value,
                "objective": role.scorer.objective,
                "weight": role.weight,
                "wrapper": _WRAPPERS[role.scorer.kind],
            }
            for role in self._plugins.scorers
        ]

    def notify(self, notice: Notice) -> Round:
        """Do steps 6 to 13 on new data; a repeated notification gets the same answer.

        Raises:
            Conflict: The same round was notified before with another version.
            InvalidInput: The model to be trained is not the one that is registered for it.
            NotFound: The twin holds this version no more.
        """
        key = (notice.run, notice.episode, notice.round)
        with self._lock:
            if key in self._answers:
                before, answer = self._answers[key]
                if before != notice:
                    raise Conflict(
                        f"round {notice.round} of episode {notice.episode} was notified before "
                        f"with version {before.version}, now with {notice.version}"
                    )
                return msgspec.structs.replace(answer, repeated=True)
            trainer = self._trainer_for(notice)
            run = self._runs.setdefault(notice.run, _Run())
            self._runs.move_to_end(notice.run)
            while len(self._runs) > MAX_ROUNDS:
                self._runs.popitem(last=False)
            answer = self._round(notice, run, trainer)
            self._answers[key] = (notice, answer)
            while len(self._answers) > MAX_ROUNDS:
                self._answers.popitem(last=False)
            return answer

    def _trainer_for(self, notice: Notice) -> Trainer | None:
        if not notice.train:
            return None
        if self._trainer is None or self._trainer.name != notice.train:
            known = self._trainer.name if self._trainer else "none"
            raise InvalidInput.at("/train", f"{notice.train!r} is not set up for training", known)
        return self._trainer

    def _judge(self, notice: Notice) -> Trainer:
        if self._trainer is None:
            raise InvalidInput.at("/judged", "this service has trained no model", '""')
        return self._trainer

    def _round(self, notice: Notice, run: _Run, trainer: Trainer | None) -> Round:
        log = StepLog(self._monotonic_s, self._wall)
        with log.observe(6) as pulled:
            data = self._twin.pull(notice.version)
            pulled.report(
                f"version {notice.version}: {count_of(len(data.nodes), 'node')}, "
                f"{count_of(len(data.jobs), 'job')}, {count_of(len(data.links), 'link')}",
                version=notice.version,
                source=data.source,
            )
        plugins = self._plugins
        if trainer is not None:
            plugins = trainer.exploring_plugins(plugins)
        elif notice.judged:
            plugins = self._judge(notice).evaluated_plugins(plugins, notice.judged)
        decide_in = self._on_boards if data.elapsed_s is None else self._on_nodes
        did = decide_in(notice, run, trainer, plugins, data, log)
        _add_steps(log, did)
        learned: Mapping[str, float] = {}
        if trainer is not None and notice.ended:
            learned = trainer.finish_episode()
        did.rewarded.report(
            _named(did.rewards) or "nothing was compared",
            rewards=did.rewards,
            outcomes=did.outcomes,
            weights=did.weights,
            trained=dict(learned),
        )
        return Round(
            run=notice.run,
            episode=notice.episode,
            round=notice.round,
            version=notice.version,
            steps=log.steps(),
            decisions=did.decisions,
            stopped=did.stopped,
            waiting=did.waiting,
            never=did.never,
            rewards=did.rewards,
            weights=did.weights,
            faults={each.plugin: str(each) for each in reversed(did.faults)},
            calls=did.calls,
        )

    def _on_boards(
        self,
        notice: Notice,
        run: _Run,
        trainer: Trainer | None,
        plugins: Plugins,
        data: TwinData,
        log: StepLog,
    ) -> _Pass:
        """Decide on boards, which take one job each, by the live service's core."""
        policy = self._policy
        if notice.episode != run.episode:
            run.episode, run.ended, run.history = notice.episode, set(), History()
            run.learning.forget()  # jobs of another episode have their names
        ended = self._ended(data, run)
        run.history = run.history.extended(ended, max_runs=MAX_HISTORY)
        given = cycle_input(data, runs=run.history)
        outcomes = self._outcomes(ended, run) if trainer is None else {}
        known = run.learning.recall(given.knowledge, policy, self._plugins, given.now)
        given = replace(given, knowledge=known)
        rewarded, rewards = StepEntry(12, math.nan), dict[str, float]()

        def reward(found: Mapping[str, float]) -> None:
            nonlocal rewarded
            with log.observe(12) as rewarded:
                rewards.update(_rewards(found, trainer, data))

        began_s = self._monotonic_s()
        result = decide(given, policy, plugins, monotonic_s=self._monotonic_s, rewarded=reward)
        ended_s = self._monotonic_s()
        if trainer is None:  # the model that is trained decides alone: no weights are learned
            run.learning.keep(policy, plugins, result, given.now)
        weights = run.learning.weights(policy, plugins)
        run.learning.scoring.last_rounds.clear()
        times = _Times(result.calls, began_s, rewarded)
        decided = result.decided
        batch, scores, uids = decided.batch, decided.scores, decided.snapshot.uids
        order = decided.order.tolist()
        pools = []
        for job in order[:_MAX_LISTED]:
            nodes = np.flatnonzero(decided.feasibility.fits[batch.class_of_job[job]])
            pools.append(
                {
                    "job_id": decided.pending[job].benchmark_id,
                    "nodes": len(nodes),
                    "eligible": [uids[node] for node in nodes[:_MAX_LISTED].tolist()],
                }
            )
        return _Pass(
            plugins=decided.plugins,
            times={
                7: (began_s, times.ordered_s),
                8: (times.ordered_s, times.filtered_s),
                9: (times.filtered_s, times.asked_s),
                10: (times.asked_s, times.answered_s),
                11: (times.answered_s, times.compared_s),
                13: (rewarded.ended_s, ended_s),
            },
            jobs=len(order),
            queue=[
                {
                    "job_id": decided.pending[job].benchmark_id,
                    "priority": int(decided.priorities.values[job]),
                    "age_s": round(float(decided.queue.ages_s[job]), 3),
                    "partly_running": bool(decided.queue.partly_running[job]),
                }
                for job in order[:_MAX_LISTED]
            ],
            pools=pools,
            eligible=int(decided.feasibility.fits[batch.class_of_job].any(axis=1).sum()),
            pairs=f"{count_of(len(scores.pairs), 'pair')} of job class and node",
            proposals=scores.proposals,
            problems=scores.absent,
            fallback=bool(result.fallback),
            decisions=_decisions(result),
            stopped=[
                StoppedJob(
                    job_id=each.victim_id, for_job_id=each.benchmark_id, node_id=each.target_uid
                )
                for each in result.preemptions
            ],
            waiting={name: reason.sentence for name, reason in result.waiting.items()},
            never=sorted(result.never),
            rewarded=rewarded,
            rewards=rewards,
            outcomes=outcomes,
            weights=weights,
            faults=(*result.faults, *result.overruns),
            calls=list(result.seconds),
        )

    def _on_nodes(
        self,
        notice: Notice,
        run: _Run,
        trainer: Trainer | None,
        plugins: Plugins,
        data: TwinData,
        log: StepLog,
    ) -> _Pass:
        """Decide on nodes, of which jobs take parts."""
        first = notice.episode != run.episode
        if first:
            run.episode, run.node_weights = notice.episode, {}
        rewarded: list[float] = []
        began_s = self._monotonic_s()
        result = decide_on_nodes(
            data,
            self._policy,
            plugins,
            weights=run.node_weights,
            monotonic_s=self._monotonic_s,
            rewarded=lambda rewards: rewarded.append(self._monotonic_s()),
            first=first,
            by_plugins=trainer is not None or bool(notice.judged),
        )
        if trainer is None and not notice.judged:
            run.node_weights = result.weights
        rewards = _rewards(result.rewards, trainer, data)
        ended_s = self._monotonic_s()
        filtered = result.span(CallKind.ADMIT, CallKind.LEDGER)
        filtered = filtered or (result.ordered_s, result.ordered_s)
        scored = result.span(CallKind.SCORE) or (filtered[1], filtered[1])
        compared = result.span(CallKind.EVALUATE) or (scored[1], scored[1])
        began = rewarded[0] if rewarded else compared[1]
        combined = result.span(CallKind.COMBINE) or (began, began)
        pairs = sum(len(each.eligible) for _, each in result.choices if each.scores is not None)
        now_s = data.elapsed_s or 0.0
        return _Pass(
            plugins=plugins,
            times={
                7: (began_s, result.ordered_s),
                8: filtered,
                9: (min(filtered[1], scored[0]), scored[0]),
                10: scored,
                11: compared,
                13: (combined[0], ended_s),
            },
            jobs=len(result.queue),
            queue=[
                {
                    "job_id": each.name,
                    "priority": PRIORITY,
                    "age_s": round(now_s - (each.parts.submit_s if each.parts else 0.0), 3),
                    "partly_running": False,
                }
                for each in result.queue[:_MAX_LISTED]
            ],
            pools=[
                {
                    "job_id": job.name,
                    "nodes": len(each.eligible),
                    "eligible": [
                        data.nodes[row].id for row in each.eligible[:_MAX_LISTED].tolist()
                    ],
                }
                for job, each in result.choices[:_MAX_LISTED]
            ],
            eligible=sum(len(each.eligible) > 0 for _, each in result.choices),
            pairs=f"{count_of(pairs, 'pair')} of job and node",
            proposals=list({each.scorer: each for each in result.proposals()}.values()),
            problems={each.plugin: str(each) for each in reversed(result.faults)},
            fallback=any(
                each.scores is not None and each.scores.fallback for _, each in result.choices
            ),
            decisions=result.decisions,
            waiting=result.waiting,
            rewarded=log.add(12, began, began),
            rewards=rewards,
            weights={
                role.scorer.name: result.weights.get(role.scorer.name, role.weight)
                for role in plugins.scorers
            },
            faults=result.faults,
            calls=list(dict.fromkeys(each.plugin for each in result.calls)),
        )

    def _ended(self, data: TwinData, run: _Run) -> tuple[PastRun, ...]:
        """Return the attempts that have ended since the last round, oldest first."""
        ended = [each for each in ended_jobs(data) if each.name not in run.ended]
        run.ended.update(each.name for each in ended)
        return past_runs(data, ended)

    def _outcomes(self, ended: Sequence[PastRun], run: _Run) -> dict[str, dict[str, float]]:
        """Return the rewards of placements of this run that have ended since the last round."""
        found: dict[str, dict[str, float]] = {}
        run.learning.end(ended)
        for rating, outcome in run.learning.scoring.ended_ratings(limit=len(ended)):
            rewards = outcome_rewards(rating, outcome)
            if not rewards:
                continue
            found[rating.benchmark_id] = dict(rewards)
        return found


def _rewards(
    found: Mapping[str, float], trainer: Trainer | None, data: TwinData
) -> dict[str, float]:
    """Return the evaluator's rewards, or that of the model that is trained and decides alone."""
    return dict(found) if trainer is None else {trainer.name: trainer.add_state(data)}


def _add_steps(log: StepLog, did: _Pass) -> None:
    """Add steps 7 to 11 and 13 to the log."""
    plugins, jobs, times = did.plugins, count_of(did.jobs, "job"), did.times
    placed = len(did.decisions)
    log.add(7, *times[7]).report(
        f"{jobs} by {plugins.queue_policy.name}",
        policy=plugins.queue_policy.name,
        jobs=did.jobs,
        queue=did.queue,
    )
    log.add(8, *times[8]).report(
        f"{did.eligible} of {jobs} with an eligible node, by "
        f"{count_of(len(plugins.filters), 'filter')}",
        filters=[each.name for each in plugins.filters],
        pools=did.pools,
    )
    answered = {each.scorer for each in did.proposals}
    sent = [
        {
            "scheduler": role.scorer.name,
            "kind": role.scorer.kind.value,
            "objective": role.scorer.objective,
            "answered": role.scorer.name in answered,
            "problem": did.problems.get(role.scorer.name, ""),
        }
        for role in plugins.scorers
    ]
    known = sum(bool(each["answered"]) for each in sent)
    log.add(9, *times[9]).report(
        f"{did.pairs} to {count_of(len(sent), 'scheduler')}, {known} answered", schedulers=sent
    )
    log.add(10, *times[10]).report(
        _wrapped(did.proposals),
        answers=[_converted(each) for each in did.proposals],
        fallback=did.fallback,
    )
    evaluator, fallback = plugins.evaluator, plugins.fallback
    log.add(11, *times[11]).report(
        f"evaluator {evaluator.name}" if evaluator else "no evaluator in the policy",
        evaluator=evaluator.name if evaluator else None,
        fallback=fallback.name if fallback else None,
    )
    log.add(13, *times[13]).report(
        f"aggregator {plugins.aggregator.name}: {placed} placed, {did.jobs - placed} wait",
        aggregator=plugins.aggregator.name,
        placed=placed,
    )


class _Times:
    """When the decision core had done what belongs to each step.

    Each step ends with the last call of its plugins, and the next one begins then.

    Attributes:
        ordered_s: The queue policy had answered.
        filtered_s: The last filter had answered.
        asked_s: The first scheduler was called.
        answered_s: The last scheduler had answered.
        compared_s: The evaluator had compared the answers.
    """

    def __init__(self, calls: Sequence[PluginCall], began_s: float, rewarded: StepEntry) -> None:
        before = [each for each in calls if each.ended_s <= rewarded.began_s]
        self.ordered_s = _last_end(before, CallKind.ORDER, began_s)
        self.filtered_s = _last_end(before, CallKind.ADMIT, self.ordered_s)
        scored = [each for each in before if each.kind is CallKind.SCORE]
        self.asked_s = min((each.began_s for each in scored), default=self.filtered_s)
        self.answered_s = _last_end(before, CallKind.SCORE, self.asked_s)
        self.compared_s = rewarded.began_s


def _last_end(calls: Sequence[PluginCall], kind: CallKind, otherwise_s: float) -> float:
    return max((each.ended_s for each in calls if each.kind is kind), default=otherwise_s)


def _converted(each: Proposal) -> dict[str, object]:
    scored = ~np.isnan(each.scores)
    return {
        "scheduler": each.scorer,
        "wrapper": _WRAPPERS[each.kind],
        "objective": each.objective,
        "scored": int(scored.sum()),
        "facts": dict(each.facts),
    }


def _wrapped(proposals: Sequence[Proposal]) -> str:
    counts = {kind: sum(each.kind is kind for each in proposals) for kind in ScorerKind}
    return (
        f"{count_of(counts[ScorerKind.MODEL], 'model')} by tensors, "
        f"{count_of(counts[ScorerKind.ILP], 'ILP')} by JSON, "
        f"{counts[ScorerKind.HISTORY]} by past runs, "
        f"{count_of(counts[ScorerKind.HEURISTIC], 'heuristic')}"
    )


def _named(rewards: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {reward:.2f}" for name, reward in rewards.items())


def _decisions(result: CycleResult) -> list[Decision]:
    decided = result.decided
    found = []
    for each in result.placements:
        job = decided.row_of_id[each.benchmark_id]
        pair = decided.scores.pairs.at(
            int(decided.batch.class_of_job[job]), int(decided.assignment.board_of_job[job])
        )
        score = None if pair is None else float(decided.scores.combined[pair])
        found.append(
            Decision(
                job_id=each.benchmark_id,
                node_id=each.target_uid,
                priority=each.priority,
                score=score,
                binding=each.binding,
                allowed_node_ids=list(each.allowed_uids),
            )
        )
    return found
