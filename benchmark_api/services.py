"""What the routes stand on: ports, the engine's door, and what is known of the lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from edgeyard.benchmark_api.board_times import BoardTimes
from edgeyard.benchmark_api.content import ContentChecks
from edgeyard.benchmark_api.fetch import AddressRules
from edgeyard.benchmark_api.lab_inventory import LabInventory
from edgeyard.benchmark_api.live_twin import MetricsSource
from edgeyard.benchmark_api.settings import Settings
from edgeyard.benchmark_api.webhooks import WebhookKeys
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.model import Board
from edgeyard.errors import OutOfSpace
from edgeyard.scheduler.decide.changes import Bounds, Changes
from edgeyard.scheduler.engine.cycle_outcome import QueueView
from edgeyard.scheduler.engine.dispatch import TaskLimits
from edgeyard.scheduler.engine.election import LeaderView
from edgeyard.scheduler.engine.policies import Policies
from edgeyard.scheduler.engine.preview import Candidate, Preview
from edgeyard.scheduler.engine.replay import CycleComparison
from edgeyard.scheduler.engine.retraining import Retraining
from edgeyard.scheduler.model.benchmark import BenchmarkFile, JobDescription
from edgeyard.scheduler.model.decision import CycleInput, Explanation, PlannedStart
from edgeyard.scheduler.model.forecast import Coverage, Forecast
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.ports import Clock, Cluster, FileStore, Store
from edgeyard.scheduler.twin.comparison import Comparison
from edgeyard.scheduler.twin.joined import JoinedBoard
from edgeyard.scheduler.twin.twin import BoardView


def task_limits(settings: Settings) -> TaskLimits:
    """Return the bounds of every task that states no others."""
    return TaskLimits(
        user_time_s=settings.default_user_time_s,
        no_output_timeout_s=settings.no_output_timeout_s,
        upload_timeout_s=settings.upload_timeout_s,
    )


class EngineQueries(Protocol):
    """What the API asks of the engine. Thread-safe; none of it waits for a cycle."""

    def wake(self) -> None:
        """Something changed: look soon. Cheap; may be called from any thread, at any rate."""
        ...

    def priority_parts(self, benchmark_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return the terms of the last cycle's priorities, by benchmark."""
        ...

    def preview(
        self, description: JobDescription, files: Sequence[BenchmarkFile], user_id: str
    ) -> Preview:
        """Return what a submission would lead to, without changing anything."""
        ...

    def forecast_submission(self, candidate: Candidate, user_id: str) -> Forecast | None:
        """Predict a benchmark before its submission; None where that is not possible quickly.

        Args:
            candidate: What it is; its files are looked up only where a prediction is possible.
            user_id: Whose it is.
        """
        ...

    def explanation(self, benchmark_id: str) -> Explanation:
        """Return why a benchmark was placed on its board, or why it waits.

        Raises:
            NotFound: No cycle has considered it yet.
        """
        ...

    def changes(self, benchmark_id: str, bounds: Bounds | None = None) -> Changes | None:
        """Return changes that would let a benchmark start sooner; None if it does not wait.

        Args:
            bounds: What its user may ask for; None: what anybody may.

        Raises:
            NotFound: No cycle has considered it yet.
        """
        ...

    def shadows(
        self, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[tuple[int, CycleComparison]]:
        """Return what shadow policies decided on recorded cycles, newest first, numbered."""
        ...

    def forecast(self, benchmark_id: str) -> Forecast | None:
        """Return when a benchmark is expected to start and end; None if that can't be predicted."""
        ...

    def planned(self, benchmark_id: str) -> PlannedStart | None:
        """Return the board and start planned for a waiting benchmark; None if there is no plan."""
        ...

    def coverage(self) -> Coverage:
        """Return how many of the newest forecasts came true."""
        ...

    def queue(self) -> QueueView:
        """Return the waiting benchmarks in the order of the last cycle."""
        ...

    def state(self) -> CycleInput:
        """Return the input of a decision made now: boards, queue, running benchmarks, past runs."""
        ...

    def boards(self) -> Sequence[BoardView]:
        """Return the state of every board in the twin, boards of the inventory first."""
        ...

    def comparison(self) -> Comparison | None:
        """Return how hosts' reports differ from the inventory; None before the first report."""
        ...

    def twin_age_s(self) -> float:
        """Return the age of what is known of the boards; inf before the first answer."""
        ...

    def cluster_problem(self) -> str:
        """Return why the last call to the cluster failed; "" if it succeeded."""
        ...

    def claims(self) -> Mapping[str, tuple[float, str]]:
        """Return for how many seconds results on hosts have been awaited, and why, by job id."""
        ...

    def repair_failures(self) -> Mapping[str, str]:
        """Return the errors of attempts that could not be compared with the cluster, by job id."""
        ...


@dataclass(slots=True, kw_only=True)
class Services:
    """Everything that the app needs; built by `edgeyard.benchmark_api.bootstrap`.

    Attributes:
        engine_now: Returns the engine that answers now.
        leader: Returns which server leads, as far as this one knows.
        settings: Replaced by a reload.
        inventory: Replaced by a reload.
        inventory_problem: Why the inventory was not taken up when it changed last; "" if it was.
        lab_inventory: Adds and removes boards; None where nothing may.
        reload_inventory: Takes up what was added or removed.
        public_url: Base of every URL that is handed out, without a slash at its end.
        twin_max_age_s: Age of the boards' state past which dispatch holds.
        rules: Address rules for users' URLs.
        webhook_rules: Address rules for users' webhooks.
        webhook_keys: Makes their secrets.
        joined: Boards by uid, with the attributes that hosts publish; the same object while none
            changes.
        confinement: Whether the embedded cluster's runs are confined in all that matters, and in
            words; None: there is no embedded cluster.
        twin_metrics: The Prometheus whose figures the digital twin shows; None: none is configured.
        retraining: Begins and ends trainings of models, in processes of their own.
        content: Looks into the files of submissions.
        board_times: What the boards' time was spent on.
        unknown_boards: Boards that hosts report and the inventory lacks; the same tuple
            while it is equal.
    """

    store: Store
    files: FileStore
    cluster: Cluster
    engine_now: Callable[[], EngineQueries]
    leader: Callable[[], LeaderView]
    clock: Clock
    settings: Settings
    inventory: Inventory
    policies: Policies
    public_url: str
    webhook_keys: WebhookKeys
    unknown_boards: Callable[[], tuple[Board, ...]]
    joined: Callable[[], Mapping[str, JoinedBoard]]
    retraining: Retraining
    twin_max_age_s: float = 60.0
    rules: AddressRules = field(default_factory=AddressRules)
    webhook_rules: AddressRules = field(default_factory=AddressRules)
    inventory_problem: str = ""
    lab_inventory: LabInventory | None = None
    reload_inventory: Callable[[], object] = lambda: None
    confinement: tuple[bool, str] | None = None
    twin_metrics: MetricsSource | None = None
    content: ContentChecks = field(init=False)
    board_times: BoardTimes = field(init=False)

    def __post_init__(self) -> None:
        self.content = ContentChecks(self.files)
        self.board_times = BoardTimes(
            lambda: self.engine.boards(),
            lambda: self.engine.twin_age_s(),
            lambda: self.twin_max_age_s,
            self.clock,
            lambda: self.leader().leads,
            lambda months: self.store.transact(lambda uow: uow.accounting.add_board_months(months)),
            lambda states: self.store.transact(lambda uow: uow.accounting.add_board_states(states)),
        )

    @property
    def engine(self) -> EngineQueries:
        """The engine that answers now: a new epoch or a reload replaces it."""
        return self.engine_now()

    def max_pending_for(self, user: User) -> int | None:
        """Return how many benchmarks of all users may wait, as it holds for this one."""
        return None if user.role is Role.OPERATOR else self.settings.max_pending_total

    def check_room(self, user: User) -> None:
        """Check that the database's disk has room for a submission of this user.

        Raises:
            OutOfSpace: What room there is, is for operators, and for making more.
        """
        if user.role is not Role.OPERATOR and self.store.short_of_space:
            raise OutOfSpace("submitting")

    def usable_boards(self) -> tuple[tuple[Board, ...], tuple[Board, ...]]:
        """Return the boards of the inventory, and unknown ones if the settings allow their use."""
        return (
            self.inventory.boards,
            () if self.settings.unknown_devices == "deny" else self.unknown_boards(),
        )
