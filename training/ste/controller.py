"""The controller of the test environment: starts a run and does steps 1 to 5 of each round.

It asks the ScenarioDB for a scenario, sends its state as JSON to the twin, notifies the scheduler
controller, which answers with the decisions of steps 6 to 13, carries these out in virtual time,
and goes on with the next state until nothing waits or runs any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from edgeyard.errors import Cancelled
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.twin.document import TwinData, write_twin_data
from edgeyard.scheduler.twin.posted import DigitalTwin
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import Scenario, scenario_hash
from edgeyard.simulator.wording import count_of
from edgeyard.training.ste.lab import EpisodeFigures, EpisodeLab, episode_figures
from edgeyard.training.ste.nodes_lab import NodesLab
from edgeyard.training.ste.scheduling import SchedulerController
from edgeyard.training.ste.steps import Notice, Round, Step, StepLog, utc_now


class ScenarioSource(Protocol):
    """Reads scenarios from the ScenarioDB."""

    def scenario(self, name: str) -> Scenario:
        """Return a scenario.

        Raises:
            NotFound: There is none of this name.
            InvalidInput: It is wrong.
        """
        ...


class TwinSink(Protocol):
    """The twin, as the controller uses it."""

    def refresh(self) -> int:
        """Announce newer data; return the twin's present version."""
        ...

    def send(self, body: bytes) -> int:
        """Send a state as JSON; return its version."""
        ...


class Scheduling(Protocol):
    """The scheduler controller, as the controller uses it."""

    def policy(self) -> Policy:
        """Return the policy that decides: the lab depends on its times and limits."""
        ...

    def notify(self, notice: Notice) -> Round:
        """Notify it of new data; return what it did and decided."""
        ...


EpisodeWorld = EpisodeLab | NodesLab
"""What an episode runs in: boards, or nodes that jobs share."""


def episode_world(scenario: Scenario, policy: Policy, *, seed: int) -> EpisodeWorld:
    """Return the world of a scenario; nothing has happened yet.

    Raises:
        InvalidInput: The scenario can't be run, or something of the policy can't act in it.
    """
    if scenario.nodes is not None:
        return NodesLab(scenario, policy, seed=seed)
    return EpisodeLab(scenario, policy, seed=seed)


class LocalTwin:
    """The twin in the same process: what is sent and pulled is the same JSON."""

    def __init__(self, twin: DigitalTwin) -> None:
        self._twin = twin

    def refresh(self) -> int:
        return self._twin.refresh()

    def send(self, body: bytes) -> int:
        return self._twin.receive(body).version

    def pull(self, version: int) -> TwinData:
        return self._twin.state(version).data


class LocalScheduling:
    """The scheduler controller in the same process."""

    def __init__(self, controller: SchedulerController) -> None:
        self._controller = controller

    def policy(self) -> Policy:
        return self._controller.policy()

    def notify(self, notice: Notice) -> Round:
        return self._controller.notify(notice)


class RoundReport(msgspec.Struct, kw_only=True, frozen=True):
    """One round with all its steps.

    Attributes:
        time_s: Virtual time.
        steps: The thirteen, in order.
    """

    episode: int
    round: int
    time_s: float
    steps: list[Step]
    answer: Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode that has ended.

    Attributes:
        rewards: Means of the evaluator's rewards over the rounds, by scheduler.
        weights: At the end, by scheduler.
        trained: Figures of the last update of the model that is trained.
        faults: How many rounds each scheduler failed in.
        simulation: Outcomes of all jobs, as in ``edgeyard sim run``.
    """

    episode: int
    seed: int
    scenario: str
    scenario_sha256: str
    rounds: int
    figures: EpisodeFigures
    rewards: dict[str, float]
    weights: dict[str, float]
    trained: dict[str, float]
    faults: dict[str, int]
    simulation: SimulatedRun


class Controller:
    """Runs the episodes of the test environment (see the module)."""

    def __init__(
        self,
        scenarios: ScenarioSource,
        twin: TwinSink,
        scheduler: Scheduling,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = utc_now,
    ) -> None:
        """Take the services.

        Args:
            twin: The digital twin.
            scheduler: The scheduler controller.
            monotonic_s: Clock to time steps by.
            wall: Clock of when they began.
        """
        self._scenarios, self._twin, self._scheduler = scenarios, twin, scheduler
        self._monotonic_s, self._wall = monotonic_s, wall

    def policy(self) -> Policy:
        """Return the policy that decides."""
        return self._scheduler.policy()

    def episode(
        self,
        scenario: str,
        *,
        run: str,
        episode: int,
        seed: int,
        train: str = "",
        judged: str = "",
        max_rounds: int | None = None,
        on_round: Callable[[RoundReport, float], None] = lambda report, share: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Episode:
        """Run one episode.

        Args:
            scenario: Name in the ScenarioDB.
            run: Id of the run; rounds are notified under it.
            episode: Number of the episode, from 0.
            seed: Of what arrives and fails.
            train: Model that the rewards update; "": none.
            judged: State of the trained model that decides alone; see `Notice`.
            max_rounds: Stop then; None: go on to the end.
            on_round: Called after each round, with the share of the jobs that have ended.
            cancelled: Asked before each round.

        Raises:
            Cancelled: It was cancelled; nothing was learned from this episode.
            NotFound: There is no such scenario.
            InvalidInput: The scenario can't be run, or it has no end.
        """
        began_s = time.perf_counter()
        rewards: dict[str, list[float]] = {}
        faults: dict[str, int] = {}
        last: Round | None = None
        lab: EpisodeWorld | None = None
        count = 0
        for report, lab in self._rounds(scenario, run, episode, seed, train, judged, max_rounds):
            if cancelled():
                raise Cancelled
            last = report.answer
            count += 1
            for name, reward in last.rewards.items():
                rewards.setdefault(name, []).append(reward)
            for name in last.faults:
                faults[name] = faults.get(name, 0) + 1
            on_round(report, lab.share)
        assert lab is not None
        assert last is not None
        simulation = lab.result(time.perf_counter() - began_s)
        trained = next(each for each in last.steps if each.step == 12).detail.get("trained", {})
        return Episode(
            episode=episode,
            seed=seed,
            scenario=lab.scenario.name,
            scenario_sha256=scenario_hash(lab.scenario),
            rounds=count,
            figures=episode_figures(simulation),
            rewards={name: sum(each) / len(each) for name, each in rewards.items()},
            weights=last.weights,
            trained=trained,
            faults=faults,
            simulation=simulation,
        )

    def _rounds(
        self,
        name: str,
        run: str,
        episode: int,
        seed: int,
        train: str,
        judged: str,
        max_rounds: int | None,
    ) -> Iterator[tuple[RoundReport, EpisodeWorld]]:
        """Do rounds until the scenario is over; the last one reports the last ends alone."""
        lab: EpisodeWorld | None = None
        ended = False
        while not ended:
            log = StepLog(self._monotonic_s, self._wall)
            number = 0 if lab is None else lab.rounds
            with log.observe(1) as called:
                called.report(
                    f"run {run}, episode {episode}, round {number}",
                    run=run,
                    episode=episode,
                    round=number,
                    train=train,
                )
            with log.observe(2) as refreshed:
                version = self._twin.refresh()
                refreshed.report(f"version {version} is replaced", version=version)
            with log.observe(3) as fetched:
                requested = lab is None
                if lab is None:
                    scenario = self._scenarios.scenario(name)
                    lab = episode_world(scenario, self._scheduler.policy(), seed=seed)
                due = lab.until_decision()
                fetched.report(
                    f"{lab.scenario.name} at {lab.now_s:.3f} s",
                    scenario=lab.scenario.name,
                    sha256=scenario_hash(lab.scenario),
                    time_s=lab.now_s,
                    requested=requested,
                )
            ended = not due or (max_rounds is not None and number + 1 >= max_rounds)
            with log.observe(4) as sent:
                state = lab.state(run=run, episode=episode)
                body = write_twin_data(state)
                version = self._twin.send(body)
                sent.report(
                    f"{len(body)} bytes: {count_of(len(state.nodes), 'node')}, "
                    f"{count_of(len(state.jobs), 'job')}",
                    bytes=len(body),
                    version=version,
                    nodes=len(state.nodes),
                    jobs=len(state.jobs),
                    links=len(state.links),
                )
            notice = Notice(
                run=run,
                episode=episode,
                round=number,
                version=version,
                train=train,
                ended=ended,
                judged=judged,
            )
            with log.observe(5) as notified:
                answer = self._scheduler.notify(notice)
                notified.report(
                    f"version {version} to the scheduler controller",
                    **msgspec.structs.asdict(notice),
                )
            time_s = lab.now_s
            lab.carry_out(answer.decisions, answer.stopped, answer.waiting, answer.never)
            report = RoundReport(
                episode=episode,
                round=number,
                time_s=time_s,
                steps=[*log.steps(), *answer.steps],
                answer=answer,
            )
            yield report, lab
