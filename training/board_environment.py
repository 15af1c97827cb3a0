"""The lab for Gymnasium, in which an agent chooses boards or waits.

``edgeyard/Boards-v0`` is this environment with all installed plugins
(`edgeyard.training.environments`).

The lab of a scenario runs in virtual time as in `edgeyard.simulator.lab`. A policy's filters
say which boards a benchmark may use now, and its queue policy in which order they are asked about;
the agent replaces scorers and assignment. ``docs/how-to/environments.md`` has observations,
actions, rewards and their units.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.model.benchmark import Binding, WaitingReason
from edgeyard.scheduler.model.decision import CycleInput, Placement
from edgeyard.scheduler.prediction.simulated_lab import expected_left_s, expected_run_times
from edgeyard.simulator.lab.world import LabWorld
from edgeyard.simulator.scenario import Scenario, load_scenario

Reward = Literal["turnaround", "slowdown", "utilisation"]
Observation = dict[str, NDArray[Any]]

HOUR_S = 3600.0
"""Time that is scaled to 0.5: an hour is 0.5, two hours are 0.67."""

BOARD_COLUMNS = ("usable", "free", "rest", "run_time", "end", "host_load")
JOB_COLUMNS = ("wait", "run_time", "slack", "priority", "free_boards")
LAB_COLUMNS = ("waiting", "busy", "ended")
BASELINES = ("fastest", "first", "random", "earliest_end")

_NOT_OFFERED = (WaitingReason.QUOTA, WaitingReason.BUDGET)


class BoardsEnv(gymnasium.Env[Observation, np.int64]):
    """A lab of heterogeneous boards; an agent says which board each benchmark gets, or to wait."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012  # Gymnasium's form

    def __init__(
        self,
        *,
        known: Registry,
        scenario: str | Path | Scenario = "steady",
        policy: str | Policy = "default",
        visible: int = 8,
        reward: Reward = "turnaround",
        max_steps: int = 20_000,
        render_mode: str | None = None,
    ) -> None:
        """Build a lab.

        Args:
            known: All plugins that policies may name.
            scenario: Of the world of boards: a name, a file, or a scenario.
            policy: Its filters and its queue policy count, and how it reserves boards: a name as of
                ``edgeyard sim run``, a file, or the policy itself.
            visible: Benchmarks that an observation shows.
            reward: ``turnaround``; ``slowdown``: each benchmark counts by its run time;
                ``utilisation``: minus the idle share of the online boards.
            max_steps: An episode is truncated after so many actions.
            render_mode: ``"ansi"``: text.

        Raises:
            InvalidInput: The scenario is wrong or of another world.
            ConfigError: A plugin of the policy is wrong.
            ValueError: A number is out of range, or there is no such reward.
        """
        if visible < 1 or max_steps < 1:
            raise ValueError("visible and max_steps must be 1 or more")
        if reward not in get_args(Reward):
            accepted = ", ".join(map(repr, get_args(Reward)))
            raise ValueError(f"reward is {reward!r}, expected one of {accepted}")
        self._scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
        chosen = policy if isinstance(policy, Policy) else policy_named(policy, known)
        # the agent assigns: nothing is held back or preempted by the policy
        self._policy = replace(chosen, planner=None, max_joint_jobs=0, max_preemptions=0)
        self._plugins = known.resolve(self._policy)
        self._visible, self._max_steps = visible, max_steps
        self._reward = reward
        self.render_mode = render_mode
        self._lab = self._new_lab(self._scenario.seed)
        boards = len(self._lab.boards.rows)
        self.board_uids = tuple(each.uid for each in self._lab.boards.rows)
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict(  # type: ignore[assignment]  # its values
            {
                "boards": box(0.0, 1.0, (boards, len(BOARD_COLUMNS)), np.float32),
                "jobs": box(0.0, 1.0, (visible, len(JOB_COLUMNS)), np.float32),
                "lab": box(0.0, 1.0, (len(LAB_COLUMNS),), np.float32),
                "action_mask": box(0, 1, (boards + 1,), np.int8),
            }
        )
        self.action_space = gymnasium.spaces.Discrete(boards + 1)
        self._steps = 0
        self._penalty = 0.0
        self._offered: set[str] = set()
        self._offer: _Offer | None = None

    def _new_lab(self, seed: int) -> LabWorld:
        """Return a lab that stops where a decision is due.

        Raises:
            InvalidInput: It has gangs.
        """
        lab = LabWorld(self._scenario, self._policy, None, seed=seed)
        if any(job.gang_id is not None for job in lab.jobs):
            raise InvalidInput.at(
                self._scenario.name,
                "has gangs, but this environment places one benchmark at a time",
                "a scenario in which every kind has count 1 and no job has a gang",
            )
        return lab

    def _penalty_rate(self) -> float:
        """Return what each second costs in the present state."""
        open_jobs = self._lab.in_system
        if self._reward == "turnaround" or not open_jobs:
            return float(len(open_jobs))
        if self._reward == "utilisation":
            return self._lab.idle_share
        return sum(HOUR_S / max(each.description.run_s, 1.0) for each in open_jobs.values())

    def _decided(self) -> tuple[CycleInput, CycleResult]:
        """Return what the policy would decide now, from which masks and order come."""
        given = self._lab.cycle_input()
        result = decide(given, self._policy, self._plugins)
        if result.faults:
            raise InvalidInput.at(f"policy {self._policy.name}", str(result.faults[0]))
        return given, result

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; ``options={"scenario_seed": N}`` fixes arrivals and faults.

        Without it they are drawn from the environment's own random numbers.
        """
        super().reset(seed=seed)
        fixed = None if options is None else options.get("scenario_seed")
        drawn = int(self.np_random.integers(2**31)) if fixed is None else int(fixed)
        self._lab = self._new_lab(drawn)
        self._steps, self._penalty, self._offer = 0, 0.0, None
        self._offered.clear()
        self._run()
        self._penalty = 0.0  # before the first action nothing could be chosen
        return self._observation(), {"scenario_seed": drawn}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place the benchmark that is offered on a board, or let it wait (last action)."""
        offer = self._offer
        if offer is None:
            raise RuntimeError("the episode has ended: call reset")
        self._steps += 1
        self._offered.add(offer.benchmark_id)
        if int(action) < len(self.board_uids) and offer.mask[int(action)]:
            self._lab.apply([offer.placement(self.board_uids[int(action)])])
        self._penalty = 0.0
        stuck = self._run()
        terminated = self._lab.ended == self._lab.count
        truncated = not terminated and (stuck or self._steps >= self._max_steps)
        info: dict[str, Any] = {}
        if terminated or truncated:
            info = {"stuck": stuck, **self._figures()}
            if truncated:
                self._offer = None
        return self._observation(), -self._penalty / HOUR_S, terminated, truncated, info

    def action_masks(self) -> NDArray[np.int8]:
        """Return which boards the benchmark that is offered may use now, and 1 for waiting."""
        mask = np.ones(len(self.board_uids) + 1, dtype=np.int8)
        mask[:-1] = 0 if self._offer is None else self._offer.mask
        return mask

    def choose(self, baseline: str) -> int:
        """Return the action of a baseline: ``fastest``, ``earliest_end``, ``first``, ``random``.

        ``earliest_end`` waits where a busy board is expected to end the benchmark sooner.
        """
        if baseline not in BASELINES:
            raise ValueError(f"baseline is {baseline!r}, expected one of {', '.join(BASELINES)}")
        offer = self._offer
        if offer is None:
            return len(self.board_uids)
        free = np.flatnonzero(offer.mask)
        if baseline == "first":
            return int(free[0])
        if baseline == "random":
            return int(self.np_random.choice(free))
        if baseline == "fastest":
            return int(free[offer.run_s[free].argmin()])
        best = int(np.argmin(offer.run_s + offer.rest_s))
        return best if offer.mask[best] else len(self.board_uids)

    def render(self) -> str:
        """Return the state as text."""
        lab, offer = self._lab, self._offer
        head = f"{lab.now_s:,.0f} s: {lab.ended} of {lab.count} benchmarks have ended"
        if offer is None:
            return head
        free = ", ".join(self.board_uids[row] for row in np.flatnonzero(offer.mask).tolist())
        return f"{head}; {offer.benchmark_id} is next; free boards that can run it: {free}"

    def _run(self) -> bool:
        """Let time go on until a benchmark is offered or all have ended; return if it is stuck."""
        self._offer = None
        lab = self._lab
        while lab.ended < lab.count:
            if lab.is_due:
                given, result = self._decided()
                self._offer = _offer(lab, given, result, self._offered, len(self.board_uids))
                if self._offer is not None:
                    return False
                self._offered.clear()
                try:
                    lab.end_cycle(result.waiting, result.never)
                except InvalidInput:
                    return True
            before, rate = lab.now_s, self._penalty_rate()
            try:
                lab.step(1)
            except InvalidInput:
                return True
            self._penalty += rate * (lab.now_s - before)
        return False

    def _figures(self) -> dict[str, float]:
        """Return what an episode led to."""
        run = self._lab.result(0.0)
        schedule = run.schedule
        jobs = len(schedule.end)
        return {
            "jobs": float(jobs),
            "failed": float(self._lab.ended - jobs),
            "mean_wait_s": float(schedule.wait_s.mean()) if jobs else 0.0,
            "mean_turnaround_s": float(schedule.turnaround_s.mean()) if jobs else 0.0,
            "mean_bounded_slowdown": float(schedule.bounded_slowdown().mean()) if jobs else 1.0,
        }

    def _observation(self) -> Observation:
        boards = np.zeros((len(self.board_uids), len(BOARD_COLUMNS)), dtype=np.float32)
        jobs = np.zeros((self._visible, len(JOB_COLUMNS)), dtype=np.float32)
        lab, offer = self._lab, self._offer
        waiting, busy = 0, 0.0
        if offer is not None:
            boards[:] = offer.boards
            rows = offer.jobs[: self._visible]
            jobs[: len(rows)] = rows
            waiting, busy = offer.waiting, offer.busy
        return {
            "boards": boards,
            "jobs": jobs,
            "lab": np.array(
                [waiting / (waiting + len(self.board_uids)), busy, lab.ended / lab.count],
                dtype=np.float32,
            ),
            "action_mask": self.action_masks(),
        }


class _Offer:
    """The benchmark that the agent is asked about; columns of boards have the rows of actions.

    Attributes:
        mask: Which boards it may use now.
        run_s: Expected run time on each board that it could ever use now or later; inf elsewhere.
        rest_s: When each board is expected to be free, seconds from now; inf: not in sight.
        boards: As an observation has them.
        jobs: As an observation has them: this one first, then those behind it.
        waiting: Benchmarks in the queue.
        busy: Busy share of the boards.
    """

    def __init__(
        self, lab: LabWorld, given: CycleInput, result: CycleResult, job: int, boards: int
    ) -> None:
        decided = result.decided
        self._priority = int(decided.priorities.values[job])
        self._families = dict(zip(decided.snapshot.uids, decided.snapshot.families, strict=True))
        batch, snapshot = decided.batch, decided.snapshot
        row = int(batch.class_of_job[job])
        self.benchmark_id = decided.pending[job].benchmark_id
        place = np.array([lab.boards.row_of_uid[uid] for uid in snapshot.uids], dtype=np.intp)
        usable = _usable(result, job)
        self.mask = np.zeros(boards, dtype=np.int8)
        self.mask[place] = usable
        online = snapshot.online & snapshot.healthy & ~snapshot.drained
        could = np.flatnonzero(usable | (decided.feasibility.possible[row] & online))
        self.run_s = np.full(boards, np.inf)
        self.run_s[place[could]] = expected_run_times(batch, np.full(len(could), row), could)
        self.rest_s = np.full(boards, np.inf)
        self.rest_s[place[~snapshot.busy & online]] = 0.0
        left_s = expected_left_s(batch, given.holders)
        for holder, left in zip(given.holders, left_s.tolist(), strict=True):
            self.rest_s[lab.boards.row_of_uid[holder.target_uid]] = left
        _, host = np.unique(np.array(snapshot.hosts, dtype=np.str_), return_inverse=True)
        load = np.bincount(host, weights=snapshot.busy) / np.bincount(host)
        self.boards = np.zeros((boards, len(BOARD_COLUMNS)), dtype=np.float32)
        self.boards[:, 0] = self.mask
        self.boards[place, 1] = ~snapshot.busy & online
        self.boards[:, 2] = _scaled(self.rest_s)
        self.boards[:, 3] = _scaled(self.run_s)
        self.boards[:, 4] = _scaled(self.rest_s + self.run_s)
        self.boards[place, 5] = load[host]
        order = decided.order[decided.ready[decided.order]]
        behind = order[np.flatnonzero(order == job)[0] :]
        queue = decided.queue
        self.jobs = np.zeros((len(behind), len(JOB_COLUMNS)), dtype=np.float32)
        self.jobs[:, 0] = _scaled(queue.waits_s[behind])
        self.jobs[:, 1] = _scaled(queue.expected_s[behind])
        self.jobs[:, 2] = np.nan_to_num(_scaled(np.maximum(queue.slacks_s[behind], 0.0)), nan=1.0)
        self.jobs[:, 3] = queue.priorities[behind] / 100.0
        fits = decided.feasibility.fits.sum(axis=1)
        self.jobs[:, 4] = fits[batch.class_of_job[behind]] / max(len(snapshot.uids), 1)
        self.waiting = len(order)
        self.busy = float(snapshot.busy.mean()) if len(snapshot.busy) else 0.0

    def placement(self, uid: str) -> Placement:
        """Return the decision to put it on a board."""
        return Placement(
            benchmark_id=self.benchmark_id,
            target_uid=uid,
            family=self._families[uid],
            binding=Binding.STRICT,
            priority=self._priority,
            allowed_uids=(),
        )


def _usable(result: CycleResult, job: int) -> NDArray[np.bool_]:
    """Return the boards that pass the filters and are not reserved or avoided, shape (boards,)."""
    decided = result.decided
    row = int(decided.batch.class_of_job[job])
    usable = decided.feasibility.fits[row] & ~decided.timeline.late_of(row)
    for uid in decided.pending[job].avoided_uids(decided.now):
        if uid in decided.batch.row_of_uid:
            usable[decided.batch.row_of_uid[uid]] = False
    return np.asarray(usable, dtype=np.bool_)


def _offer(
    lab: LabWorld, given: CycleInput, result: CycleResult, offered: set[str], boards: int
) -> _Offer | None:
    """Return the first benchmark of the queue that could start and was not asked about yet."""
    decided = result.decided
    withheld = decided.assignment.withheld
    for job in decided.order[decided.ready[decided.order]].tolist():
        if decided.pending[job].benchmark_id in offered:
            continue
        if job in withheld and withheld[job].reason in _NOT_OFFERED:
            continue
        if _usable(result, job).any():
            return _Offer(lab, given, result, job, boards)
    return None


def _scaled(seconds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return times from 0 (none) over 0.5 (an hour) to 1 (without end)."""
    with np.errstate(invalid="ignore"):
        scaled = 1.0 - 1.0 / (1.0 + seconds / HOUR_S)
    return np.asarray(scaled, dtype=np.float32)
