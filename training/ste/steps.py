"""The thirteen steps of a round, and what each service reports of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from edgeyard.scheduler.model.benchmark import Binding


@dataclass(frozen=True, slots=True)
class StepKind:
    """One of the thirteen.

    Attributes:
        service: Who does it.
        module: Where it is done.
    """

    title: str
    service: str
    module: str


STEPS: Mapping[int, StepKind] = {
    1: StepKind("the controller is called", "controller", "training/ste/controller.py"),
    2: StepKind("refresh of the digital twin", "controller", "scheduler/twin/posted.py"),
    3: StepKind("scenario from the ScenarioDB", "controller", "training/ste/controller.py"),
    4: StepKind("state as JSON to the twin", "controller", "scheduler/twin/document.py"),
    5: StepKind("notification of new data", "controller", "training/ste/controller.py"),
    6: StepKind("pull from the twin", "scheduler", "training/ste/scheduling.py"),
    7: StepKind("prioritisation into a queue", "scheduler", "scheduler/decide/queue.py"),
    8: StepKind("filtering to eligible nodes", "scheduler", "scheduler/decide/feasibility.py"),
    9: StepKind("data to all schedulers", "scheduler", "scheduler/decide/scores.py"),
    10: StepKind(
        "wrappers, models and ILPs",
        "scheduler",
        "scheduler/learning/features.py, scheduler/solvers/window.py",
    ),
    11: StepKind("comparison by the evaluator", "scheduler", "plugins/evaluators/regret.py"),
    12: StepKind("rewards to the models", "scheduler", "scheduler/engine/rewards.py"),
    13: StepKind("final decisions by the aggregator", "scheduler", "scheduler/decide/assign.py"),
}


class Step(msgspec.Struct, kw_only=True, frozen=True):
    """One step of one round, as it was observed.

    Attributes:
        step: 1-13.
        at: When it began, by the clock of its service.
        seconds: How long it took; of step 5 until the answer of the scheduler controller.
        summary: In words.
        detail: Plain JSON.
    """

    step: int
    title: str
    service: str
    module: str
    at: datetime
    seconds: float
    summary: str
    detail: dict[str, Any] = {}


@dataclass(slots=True, eq=False)
class StepEntry:
    """A step that was observed; its results are added as they come."""

    step: int
    began_s: float
    ended_s: float = math.nan
    summary: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    def report(self, summary: str, **detail: Any) -> None:
        """State the result in words, and its details."""
        self.summary = summary
        self.detail.update(detail)


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)


class StepLog:
    """Observes the steps that a service does in one round."""

    def __init__(
        self, monotonic_s: Callable[[], float], wall: Callable[[], datetime] = utc_now
    ) -> None:
        """Begin to observe.

        Args:
            monotonic_s: Clock of the times between steps.
            wall: Clock that is read once, now.
        """
        self.monotonic_s = monotonic_s
        self._wall, self._zero_s = wall(), monotonic_s()
        self._entries: list[StepEntry] = []

    @contextmanager
    def observe(self, number: int) -> Iterator[StepEntry]:
        """Observe a step that happens within the block; one that raises is not reported."""
        entry = StepEntry(number, self.monotonic_s())
        yield entry
        entry.ended_s = self.monotonic_s()
        self._entries.append(entry)

    def add(self, number: int, began_s: float, ended_s: float) -> StepEntry:
        """Add a step that was observed elsewhere, with times of the same clock."""
        entry = StepEntry(number, began_s, ended_s)
        self._entries.append(entry)
        return entry

    def entry(self, number: int) -> StepEntry:
        """Return the last entry of a step that was observed."""
        return next(each for each in reversed(self._entries) if each.step == number)

    def steps(self) -> list[Step]:
        """Return what was observed, by the number of the step."""
        found = []
        for each in sorted(self._entries, key=lambda entry: entry.step):
            kind = STEPS[each.step]
            found.append(
                Step(
                    step=each.step,
                    title=kind.title,
                    service=kind.service,
                    module=kind.module,
                    at=self._wall + timedelta(seconds=each.began_s - self._zero_s),
                    seconds=each.ended_s - each.began_s,
                    summary=each.summary,
                    detail=each.detail,
                )
            )
        return found


class Notice(msgspec.Struct, kw_only=True, frozen=True):
    """What the controller reports to the scheduler controller in step 5.

    Attributes:
        run: Id of the run; behind a ``/``, which part of it: after a resume, or of its judgement.
        version: Of the twin's state.
        train: The model that the rewards of step 12 update; "": none.
        ended: Nothing is decided any more in this episode: what is learned is applied now.
        judged: ``trained`` or ``frozen``: the model that was trained here decides alone and learns
            nothing, as it is now or as it was before; "": the policy decides.
    """

    run: str
    episode: int
    round: int
    version: int
    train: str = ""
    ended: bool = False
    judged: str = ""


class Decision(msgspec.Struct, kw_only=True, frozen=True):
    """One final decision: this job on this node, now.

    Attributes:
        priority: 1-100.
        score: Aggregated score; None: there is none.
        binding: How firmly the job is bound to the node.
        allowed_node_ids: Nodes that the job is limited to where the cluster may choose another one;
            empty: no limit.
        node_ids: All its nodes, of a job that takes parts of nodes; otherwise empty.
    """

    job_id: str
    node_id: str
    priority: Annotated[int, msgspec.Meta(ge=1, le=100)]
    score: float | None = None
    binding: Binding = Binding.STRICT
    allowed_node_ids: list[str] = []
    node_ids: list[str] = []


class StoppedJob(msgspec.Struct, kw_only=True, frozen=True):
    """A job that is stopped for a more urgent one."""

    job_id: str
    for_job_id: str
    node_id: str


class Round(msgspec.Struct, kw_only=True, frozen=True):
    """What the scheduler controller answers: steps 6-13 and the decisions.

    Attributes:
        waiting: By job that was not placed: why.
        never: Those among them that no node could ever run.
        rewards: Of step 12, by scheduler.
        weights: After step 12, by scheduler.
        faults: Schedulers and other plugins that failed or were too slow, with the reason.
        calls: Plugins of the decision core in the order in which it called them first.
        repeated: The notification had been answered before; nothing was decided again.
    """

    run: str
    episode: int
    round: int
    version: int
    steps: list[Step]
    decisions: list[Decision]
    stopped: list[StoppedJob] = []
    waiting: dict[str, str] = {}
    never: list[str] = []
    rewards: dict[str, float] = {}
    weights: dict[str, float] = {}
    faults: dict[str, str] = {}
    calls: list[str] = []
    repeated: bool = False
