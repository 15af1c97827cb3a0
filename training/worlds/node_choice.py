"""The service's own filters and scorers on nodes: one job at a time, on the nodes as they are then.

A node is a board that several jobs may use: `edgeyard.scheduler.framework.batch.Resources` states
what each has left, and the snapshot's RAM is the memory that is free. Nodes are online, healthy and
never busy, jobs state no deadline and no constraint, and there are no past runs: nodes differ in
size alone, not in speed. So the filters for these let all nodes pass, and a scorer that
abstains without past runs cannot act.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.decide.feasibility import Feasibility, feasibility
from edgeyard.scheduler.decide.ledgers import open_ledgers
from edgeyard.scheduler.decide.scores import Scores, score
from edgeyard.scheduler.framework.batch import Batch, Places, Resources, pairs_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins, WeightedScorer
from edgeyard.scheduler.framework.runner import Fault, PluginCall, PluginRunner
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import PendingBenchmark, Snapshot
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge
from edgeyard.training.worlds.nodes import NodeColumns, NodeJobs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RESOURCES = ("cpus", "memory", "gpus")
FAMILY, ENGINE = "node", "none"
MIB = 1 << 20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_DATE_S = 250_000_000_000.0
"""Maximum time that policies distinguish."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeChoice:
    """How the nodes of one job were chosen.

    Attributes:
        job: A row of the jobs.
        eligible: Rows of the nodes that have enough left and that no filter refuses.
        scores: The scorers' answers on these; None: there are too few of them.
    """

    job: int
    eligible: Integers
    scores: Scores | None


class PluginChooser:
    """Chooses nodes by the filters, scorers, evaluator and aggregator of a policy.

    Weights follow the evaluator's rewards as in the service, decision by decision. A filter that
    bounds users is asked, too.

    Attributes:
        weights: Learned so far, by scorer.
        choices: In the order in which jobs were considered; empty unless they are recorded.
        calls: Calls of plugins; empty without a clock.
        faults: Plugins that failed or were too slow, where these are left out.
    """

    def __init__(
        self,
        jobs: NodeJobs,
        nodes: NodeColumns,
        policy: Policy,
        plugins: Plugins,
        *,
        seed: int,
        weights: Mapping[str, float] | None = None,
        monotonic_s: Callable[[], float] | None = None,
        rewarded: Callable[[Mapping[str, float]], None] | None = None,
        records: bool = False,
    ) -> None:
        """Take the world and the policy; nothing is chosen yet.

        Args:
            jobs: All that may be asked about.
            nodes: To choose between.
            policy: For messages.
            plugins: What it names.
            seed: Of random scorers.
            weights: Learned before, by scorer; None: nothing.
            monotonic_s: Clock to time plugins by; None: they are not timed.
            rewarded: Called with the evaluator's rewards of each choice.
            records: Record choices and faults, and leave out plugins that fail; otherwise one that
                fails ends the simulation.
        """
        self._jobs, self._policy, self._plugins, self._seed = jobs, policy, plugins, seed
        self._monotonic_s, self._rewarded, self._records = monotonic_s, rewarded, records
        self.weights: Mapping[str, float] = weights or {}
        self.choices: list[NodeChoice] = []
        self.calls: list[PluginCall] = []
        self.faults: list[Fault] = []
        self._names = nodes.names
        self._row_of = {name: row for row, name in enumerate(nodes.names)}
        shares = 1.0 - np.column_stack((nodes.cpu_load, nodes.memory_load, np.zeros(len(nodes))))
        self._whole = np.column_stack((nodes.cpus, nodes.memory_mb, nodes.gpus.astype(np.float64)))
        self._total = self._whole * shares
        self._needs = np.column_stack((jobs.cpus, jobs.memory_mb, jobs.gpus))
        self._kinds = np.unique(self._total, axis=0, return_index=True)[1]
        yes, no = np.ones(len(nodes), dtype=np.bool_), np.zeros(len(nodes), dtype=np.bool_)
        self._snapshot = Snapshot(
            taken_at=EPOCH,
            age_s=0.0,
            uids=nodes.names,
            families=(FAMILY,) * len(nodes),
            hosts=nodes.names,
            ram_bytes=np.zeros(len(nodes), dtype=np.int64),
            storage_bytes=np.zeros(len(nodes), dtype=np.int64),
            expected=yes,
            online=yes,
            healthy=yes,
            drained=no,
            busy=no,
            progress=np.full(len(nodes), np.nan),
            supports={(ENGINE, BenchmarkType.TYPE1): yes},
            engines={ENGINE: yes},
            reasons=("",) * len(nodes),
            attributes=tuple(
                {"cpu_cores": cpus, "memory_mb": memory_mb, "gpus": gpus}
                for cpus, memory_mb, gpus in self._whole.tolist()
            ),
        )
        self._prior = {role.scorer.name: role.weight for role in plugins.scorers}
        self._refused: dict[int, str] = {}

    def choose(self, job: int, now: float, free: Floats, fits: NDArray[np.bool_]) -> Integers:
        """Choose nodes; see `edgeyard.training.worlds.nodes.NodeChooser`.

        Raises:
            ConfigError: A plugin failed.
        """
        batch = self._batch(np.array([job]), now, free)
        self._refused.pop(job, None)
        runner = PluginRunner(self._monotonic_s, self._plugins.lock)
        found = feasibility(batch, self._plugins.filters, runner)
        ledgers = open_ledgers(batch, self._plugins.filters, runner)
        usable = found.fits[0] & fits
        refusal = ledgers.refusal(0) if ledgers else None
        if refusal is not None:
            self._refused[job] = refusal.sentence
            usable[:] = False
        elif int(usable.sum()) < int(self._jobs.nodes[job]):
            self._refused[job] = self._phrase(batch, found)
        if refusal is not None or job in self._refused:
            self._record(runner, now, NodeChoice(job=job, eligible=_rows(usable), scores=None))
            return np.zeros(0, dtype=np.int64)
        pairs = pairs_of(usable[None, :])
        scores = score(batch, pairs, self._plugins, runner, self._rewarded)
        if scores.rewards and self._plugins.evaluator is not None:
            aggregator = self._plugins.aggregator
            self.weights = runner.learn(aggregator, self._prior, self.weights, scores.rewards)
        self._record(runner, now, NodeChoice(job=job, eligible=_rows(usable), scores=scores))
        best = np.argsort(-scores.combined, kind="stable")
        return pairs.boards[best].astype(np.int64)

    def reason(self, job: int) -> str:
        """Return why a job was last refused, as a sentence."""
        return self._refused.get(job, "no filter refuses it")

    def refuse_silent_scorers(self) -> None:
        """Check that a scorer has an answer for the first job on the idle nodes.

        Raises:
            ConfigError: A plugin failed.
            InvalidInput: All abstain for all nodes.
        """
        fits = (self._total >= self._needs[0] - 1e-9).all(axis=1)
        batch = self._batch(np.array([0]), float(self._jobs.submit_s[0]), self._total)
        runner, pairs = PluginRunner(lock=self._plugins.lock), pairs_of(fits[None, :])
        silent = []
        for role in self._plugins.scorers or _last(self._plugins):
            answer = runner.score(role, role.weight, batch, pairs)
            self._raise(runner, float(self._jobs.submit_s[0]))
            if answer is None or not np.isnan(answer.scores).all():
                return
            silent.append(repr(role.scorer.name))
        if silent and len(pairs):
            one = len(silent) == 1
            raise InvalidInput.at(
                f"--policy {self._policy.name}",
                f"{'scorer' if one else 'scorers'} {', '.join(silent)} "
                f"{'has' if one else 'have'} no answer for nodes: these have no past "
                "runs and differ only in size",
                "best_fit, host_load, least_loaded, random, spread, tetris, or your own scorer "
                "that needs no past runs",
            )

    def _pending(self, job: int) -> PendingBenchmark:
        jobs = self._jobs
        submitted = EPOCH + timedelta(seconds=min(float(jobs.submit_s[job]), MAX_DATE_S))
        return PendingBenchmark(
            benchmark_id=jobs.names[job],
            user_id=jobs.users[job],
            submit_time=submitted,
            family=FAMILY,
            engine=ENGINE,
            benchmark_type=BenchmarkType.TYPE1,
            ram_bytes=int(jobs.memory_mb[job] * MIB),
            user_time_s=float(jobs.requested_s[job]),
            variant=jobs.names[job],  # no two jobs are of one class
        )

    def places(self, rows: Integers, now: float) -> Places:
        """Return where jobs could run if nothing else did: on a node of each kind that has room."""
        batch = self._batch(rows, now, self._total)
        class_of_job = batch.class_of_job
        fits = (self._total[self._kinds] >= self._needs[rows][:, None] - 1e-9).all(axis=2)
        table = np.zeros(batch.shape, dtype=np.bool_)
        table[np.ix_(class_of_job, self._kinds)] = fits
        return Places(batch=batch, pairs=pairs_of(table))

    def _batch(self, rows: Integers, now: float, free: Floats) -> Batch:
        at = EPOCH + timedelta(seconds=min(now, MAX_DATE_S))
        snapshot = replace(
            self._snapshot,
            taken_at=at,
            # rounded up: what fits by its resources is not refused for a byte
            ram_bytes=np.ceil(free[:, 1] * MIB + 1.0).astype(np.int64),
        )
        loads = _Loads(self._row_of, self._whole, free)
        knowledge = Knowledge(weights=self.weights, host_loads=loads)
        pending = [self._pending(row) for row in rows.tolist()]
        seed = self._seed + self._jobs.number(int(rows[0]))
        batch = build_batch(snapshot, pending, at, seed, knowledge)
        needs = np.empty((batch.shape[0], len(RESOURCES)))
        needs[batch.class_of_job] = self._needs[rows]
        resources = Resources(names=RESOURCES, total=self._total, free=free, needs=needs)
        return replace(batch, resources=resources)

    def _phrase(self, batch: Batch, found: Feasibility) -> str:
        """Return what the filters say of the first node that they refuse."""
        refused = np.flatnonzero(~found.fits[0])
        if not len(refused):
            return "too few nodes have enough room left"
        board = int(refused[0])
        code = int(found.codes[0, board])
        reason = found.reason(code)
        if reason.plugin is None:
            return reason.fault
        phrase = reason.plugin.phrase(batch, 0, board, reason.code)
        return f"filter {reason.plugin.name!r} refuses {self._names[board]}, which {phrase}"

    def _record(self, runner: PluginRunner, now: float, choice: NodeChoice) -> None:
        if not self._records:
            self._raise(runner, now)
            return
        self.choices.append(choice)
        self.calls += runner.calls
        self.faults += [*runner.faults, *runner.overruns]

    def _raise(self, runner: PluginRunner, now: float) -> None:
        if runner.faults:
            raise ConfigError(
                [f"policy {self._policy.name}: {runner.faults[0]} (at second {now:g})"]
            )


def _rows(usable: NDArray[np.bool_]) -> Integers:
    return np.flatnonzero(usable).astype(np.int64)


def _last(plugins: Plugins) -> tuple[WeightedScorer, ...]:
    """Return the fallback where no scorer of the policy is there to answer first."""
    return (
        ()
        if plugins.fallback is None or plugins.scorers
        else (WeightedScorer(scorer=plugins.fallback),)
    )


class _Loads(Mapping[str, HostLoad]):
    """How busy nodes are, with what others use; computed where it is asked for."""

    def __init__(self, row_of: Mapping[str, int], whole: Floats, free: Floats) -> None:
        self._row = row_of
        self._used = np.clip((whole - free) / np.where(whole > 0.0, whole, 1.0), 0.0, 1.0)

    def __getitem__(self, name: str) -> HostLoad:
        cpu, memory, _ = self._used[self._row[name]].tolist()
        return HostLoad(cpu=cpu, memory=memory)

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)
