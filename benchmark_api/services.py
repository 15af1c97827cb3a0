"""What the routes stand on: ports, the engine's door, and what is known of the lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

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
from edgeyard.scheduler.engine.election import LeaderView
from edgeyard.scheduler.engine.policies import Policies
from edgeyard.scheduler.engine.preview import Candidate
from edgeyard.scheduler.engine.replay import CycleComparison
from edgeyard.scheduler.model.benchmark import BenchmarkFile, JobDescription
from edgeyard.scheduler.model.decision import CycleInput, Explanation, PlannedStart
from edgeyard.scheduler.model.forecast import Coverage, Forecast
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.ports import Clock, Cluster, FileStore, Store
from edgeyard.scheduler.twin.comparison import Comparison
from edgeyard.scheduler.twin.joined import JoinedBoard
from edgeyard.scheduler.twin.twin import BoardView


class Preview(Protocol):
    """What would happen to a job description that were submitted now."""

    @property
    def explanation(self) -> Explanation:
        """Every board's verdict, the priority and its parts."""
        ...

    @property
    def hcl(self) -> str:
        """The job as it would be dispatched, secrets masked; "" where no board could ever do."""
        ...

    @property
    def forecast(self) -> Forecast | None:
        """When it would start and end; None where that cannot be predicted."""
        ...


class QueueOrder(Protocol):
    """The queue as the last cycle saw it."""

    @property
    def decided_at_iso(self) -> str:
        """RFC 3339; "" before the first cycle."""
        ...

    @property
    def policy(self) -> str:
        """Name of the policy that ordered it."""
        ...

    @property
    def never(self) -> frozenset[str]:
        """Those that no known board could ever run."""
        ...

    @property
    def order(self) -> Sequence[str]:
        """Ids of benchmarks, best first."""
        ...


class EngineQueries(Protocol):
    """What the API asks of the engine. Thread-safe; none of it waits for a cycle."""

    def leader(self) -> LeaderView:
        """Which server leads."""
        ...

    def wake(self) -> None:
        """Something changed: look soon. Cheap; may be called from any thread, at any rate."""
        ...

    def priority_parts(self, benchmark_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """What the last cycle's priorities are made of, of those that it knew."""
        ...

    def preview(
        self, description: JobDescription, files: Sequence[BenchmarkFile], user_id: str
    ) -> Preview:
        """What a dry run answers; changes nothing."""
        ...

    def forecast_submission(self, candidate: Candidate, user_id: str) -> Forecast | None:
        """Predict a benchmark before its submission; None where that is not possible quickly.

        Args:
            candidate: What it is; its files are looked up only where a prediction is possible.
            user_id: Whose it is.
        """
        ...

    def explanation(self, benchmark_id: str) -> Explanation:
        """Why a benchmark was placed, or waits.

        Raises:
            NotFound: No cycle has considered it yet.
        """
        ...

    def changes(self, benchmark_id: str, bounds: Bounds | None = None) -> Changes | None:
        """What would let a waiting benchmark start sooner; None where it does not wait.

        Args:
            benchmark_id: Of the benchmark.
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
        """When it is expected to start and end; None where that cannot be predicted."""
        ...

    def planned(self, benchmark_id: str) -> PlannedStart | None:
        """The board and start planned for it while it waits; None: no plan."""
        ...

    def coverage(self) -> Coverage:
        """How the newest forecasts turned out."""
        ...

    def queue(self) -> QueueOrder:
        """Who waits, in which order."""
        ...

    def state(self) -> CycleInput:
        """What a decision would know now: boards, queue, running benchmarks, past runs."""
        ...

    def boards(self) -> Sequence[BoardView]:
        """Every board as the twin knows it, expected ones first."""
        ...

    def comparison(self) -> Comparison | None:
        """The inventory against what hosts report; None before the first answer."""
        ...

    def twin_age_s(self) -> float:
        """Age of what is known of the boards; inf before the first answer."""
        ...

    def trouble(self) -> str:
        """Why the cluster did not answer last time; "" when it did."""
        ...

    def claims(self) -> Mapping[str, tuple[float, str]]:
        """How long results on hosts have been waited for, in seconds, and why, by job id."""
        ...

    def repair_failures(self) -> Mapping[str, str]:
        """Why attempts could not be compared with the cluster, by job id."""
        ...


@dataclass(slots=True, kw_only=True)
class Services:
    """Everything that the app needs; built by `edgeyard.benchmark_api.bootstrap`.

    Attributes:
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
        content: Looks into the files of submissions.
        others: Boards that hosts report and the inventory lacks; the same tuple while it is equal.
    """

    store: Store
    files: FileStore
    cluster: Cluster
    engine: EngineQueries
    clock: Clock
    settings: Settings
    inventory: Inventory
    policies: Policies
    public_url: str
    webhook_keys: WebhookKeys
    others: Callable[[], tuple[Board, ...]]
    joined: Callable[[], Mapping[str, JoinedBoard]]
    twin_max_age_s: float = 60.0
    rules: AddressRules = field(default_factory=AddressRules)
    webhook_rules: AddressRules = field(default_factory=AddressRules)
    inventory_problem: str = ""
    lab_inventory: LabInventory | None = None
    reload_inventory: Callable[[], object] = lambda: None
    confinement: tuple[bool, str] | None = None
    twin_metrics: MetricsSource | None = None
    content: ContentChecks = field(init=False)

    def __post_init__(self) -> None:
        self.content = ContentChecks(self.files)

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
        """The expected boards, and unknown ones where those may be used."""
        return (
            self.inventory.boards,
            () if self.settings.unknown_devices == "deny" else self.others(),
        )
