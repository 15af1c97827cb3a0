"""What plugins are handed: pending benchmarks and boards in columns.

A *class* holds the benchmarks that no filter and no scorer can distinguish: those with equal
requirements that run the same thing, with the same deadline.
Filters answer in tables of (classes, boards), scorers for the pairs that all filters let pass: so
10,000 benchmarks on 10,000 boards stay small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.constraints import meets
from edgeyard.devices.model import AttributeValue
from edgeyard.scheduler.model.benchmark import Affinity, BenchmarkType, Constraint, Spread
from edgeyard.scheduler.model.decision import Snapshot
from edgeyard.scheduler.model.knowledge import Knowledge, RunKind

_Value = TypeVar("_Value", bound=Hashable)
_Derived = TypeVar("_Derived")
_Floating = TypeVar("_Floating", np.float32, np.float64)


NO_ROW = -1
"""Stands for no row, where a row of a board or of a benchmark is meant."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Resources:
    """Resources of which a job takes a part: those of nodes that run several jobs at a time.

    Attributes:
        names: Of the resources.
        total: Shape (boards, resources): what jobs may use of each node.
        free: Shape (boards, resources): what no job uses now.
        needs: Shape (classes, resources): what a job takes of each of its nodes.
    """

    names: tuple[str, ...]
    total: NDArray[np.float64]
    free: NDArray[np.float64]
    needs: NDArray[np.float64]

    def left(self, pairs: Pairs) -> NDArray[np.float64]:
        """Return the share of each node that is left after a start, the mean over all resources.

        A resource that a node does not have counts as 0.

        Returns:
            Shape (pairs,), 0-1.
        """
        total = self.total[pairs.boards]
        whole = np.where(total > 0.0, total, 1.0)
        left = (self.free[pairs.boards] - self.needs[pairs.rows]) / whole
        return self._mean(np.where(total > 0.0, left, 0.0))

    def alignment(self, pairs: Pairs) -> NDArray[np.float64]:
        """Return need times what is free, as shares of the node, the mean over all resources.

        Returns:
            Shape (pairs,), 0-1.
        """
        total = self.total[pairs.boards]
        whole = np.where(total > 0.0, total, 1.0)
        aligned = self.needs[pairs.rows] / whole * self.free[pairs.boards] / whole
        return self._mean(np.where(total > 0.0, aligned, 0.0))

    def _mean(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the means over the resources, added in order, as compiled code does it."""
        mean = np.zeros(len(shares))
        for column in shares.T:
            mean += column
        return mean / len(self.names)


SCORE_STEP = 2.0**-20
"""Scores by resources are rounded to it, so that rounding errors make no difference."""


def rounded_scores(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return scores in steps of `SCORE_STEP`, all of them exact."""
    return np.clip(np.rint(scores / SCORE_STEP) * SCORE_STEP, 0.0, 1.0).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The classes of a cycle, and its boards. Nothing in it may be changed.

    Attributes:
        now: Time of the cycle.
        seed: Of everything random in the cycle.
        snapshot: The boards.
        families: Shape (classes,); of every class column alike.
        engines: Engine names.
        types: Benchmark types.
        ram_bytes: int64, required.
        storage_bytes: int64, required.
        target_uids: The board that the benchmark names; None: any.
        constraints: Of the users' own.
        affinities: Of the users' own.
        spreads: Of the users' own.
        spread_groups: Campaigns over whose benchmarks they count; "": by itself.
        spread_counts: Pairs of a board's uid and the number of benchmarks of the group there.
        class_of_job: Shape (jobs,): row of each pending benchmark, in the order handed in.
        board_families: Shape (boards,), text.
        deadlines: None: none.
        user_times_s: Bounds on the run time that users stated; NaN: none.
        budget_times_s: How long their budgets pay for; NaN: no budget.
        ends_in_time: At their time limits they end with what they have measured.
        lease_users: Whose they are, where that user has a lease; None for all others.
        probes: Sent by Edgeyard to a board in quarantine.
        predictions_expired: They have waited so long that no prediction keeps them from a board
            any more (see ``prediction_wait_s``).
        budgets: Credits that one attempt may cost; NaN: no budget.
        extras: What descriptions state in ``extra``, for scorers that know it; read-only.
        kinds: What is run, as the history calls it.
        model_bytes: Sizes of the model files; NaN until known.
        job_users: Shape (jobs,): user ids.
        queue: Shape (ready,): rows of the benchmarks that may be placed now, first to last.
        knowledge: What is known besides the boards' state.
        twin_max_age_s: Age of the snapshot past which its policy calls it stale; inf: never.
        prediction_wait_s: Longest wait that follows from a prediction alone, seconds.
        board_order: Shape (boards,): rows of boards in a random order that depends on the seed
            and the boards' names alone; who breaks ties by it doesn't depend on the order of
            the snapshot.
        resources: In the simulator's world of nodes; None: each benchmark takes a whole board.
    """

    now: datetime
    seed: int
    snapshot: Snapshot
    families: tuple[str, ...]
    engines: tuple[str, ...]
    types: tuple[BenchmarkType, ...]
    ram_bytes: NDArray[np.int64]
    storage_bytes: NDArray[np.int64]
    target_uids: tuple[str | None, ...]
    constraints: tuple[tuple[Constraint, ...], ...]
    affinities: tuple[tuple[Affinity, ...], ...]
    spreads: tuple[tuple[Spread, ...], ...]
    spread_groups: tuple[str, ...]
    spread_counts: tuple[tuple[tuple[str, int], ...], ...]
    deadlines: tuple[datetime | None, ...]
    user_times_s: NDArray[np.float64]
    budget_times_s: NDArray[np.float64]
    ends_in_time: NDArray[np.bool_]
    budgets: NDArray[np.float64]
    extras: tuple[Mapping[str, object], ...]
    lease_users: tuple[str | None, ...]
    probes: NDArray[np.bool_]
    predictions_expired: NDArray[np.bool_]
    kinds: tuple[RunKind, ...]
    model_bytes: NDArray[np.float64]
    class_of_job: NDArray[np.intp]
    job_users: tuple[str, ...]
    queue: NDArray[np.intp]
    knowledge: Knowledge
    board_families: NDArray[np.str_]
    board_order: NDArray[np.intp]
    twin_max_age_s: float = math.inf
    prediction_wait_s: float = math.inf
    resources: Resources | None = None

    @property
    def stale(self) -> bool:
        """The snapshot is older than its policy allows; also when its age is NaN."""
        return not self.snapshot.age_s <= self.twin_max_age_s

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of classes and of boards."""
        return len(self.families), len(self.snapshot.uids)

    @property
    def row_of_uid(self) -> dict[str, int]:
        """Row of each board."""
        return self.derived(_row_of_uid)

    def rows_of_uids(self, uids: Iterable[str]) -> list[int]:
        """Return the rows of those boards that are known."""
        row_of_uid = self.row_of_uid
        return [row_of_uid[uid] for uid in uids if uid in row_of_uid]

    @property
    def board_hosts(self) -> NDArray[np.intp]:
        """Shape (boards,): numbers of their hosts, from 0."""
        return self.derived(_board_hosts)

    def turns_on_hosts(
        self, usable: NDArray[np.bool_]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return boards by host, those of a host in the seeded order, each with its turn there.

        Args:
            usable: Shape (boards,): which boards are meant.

        Returns:
            Numbers of the boards, and the place of each among those of its host, from 0.
        """
        order = self.board_order[usable[self.board_order]]
        order = order[np.argsort(self.board_hosts[order], kind="stable")]
        hosts = self.board_hosts[order]
        return order, np.arange(len(order)) - np.searchsorted(hosts, hosts, side="left")

    def derived(self, make: Callable[[Batch], _Derived]) -> _Derived:
        """Return ``make(self)``, made once for all plugins that ask for it."""
        known: dict[object, _Derived] = self.__dict__.setdefault("_derived", {})
        if make not in known:
            known[make] = make(self)
        return known[make]

    def with_queue(self, queue: NDArray[np.intp]) -> Batch:
        """Return the batch with another queue; what was derived of this one is made again.

        As `dataclasses.replace`, which takes a noticeable part of a short cycle.
        """
        other = object.__new__(Batch)
        other.__dict__.update(self.__getstate__(), queue=queue)
        return other

    def pass_on(self, other: Batch, *makes: Callable[[Batch], object]) -> None:
        """Let another batch, for which these make the same, use what they made of this one."""
        known: dict[object, object] = self.__dict__.get("_derived", {})
        others: dict[object, object] = other.__dict__.setdefault("_derived", {})
        others.update({make: known[make] for make in makes if make in known})

    def __getstate__(self) -> dict[str, object]:
        """What is derived is made again where it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "_derived"}

    @property
    def time_limits_s(self) -> NDArray[np.float64]:
        """Shape (classes,): longest that an attempt may run; NaN nowhere.

        As `edgeyard.scheduler.model.run_bounds.run_bound_s`.
        """
        max_s = np.where(np.isnan(self.user_times_s), self.knowledge.max_run_s, self.user_times_s)
        return np.fmin(max_s, self.budget_times_s)


def without_runs(batch: Batch, boards: list[int]) -> Batch:
    """Return the batch as it would be without what runs on these boards."""
    busy, progress = batch.snapshot.busy.copy(), batch.snapshot.progress.copy()
    busy[boards], progress[boards] = False, 0.0
    return replace(batch, snapshot=replace(batch.snapshot, busy=busy, progress=progress))


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """What scorers are asked about: the (class, board) pairs that passed all filters.

    Sorted by class, then by row of the board. Of 100 million cells few are pairs, where benchmarks
    ask for a family: scores have the shape (pairs,).

    Attributes:
        rows: Shape (pairs,): class of each pair.
        boards: Shape (pairs,): row of each pair's board.
        starts: Shape (classes + 1,): the pairs of class r are ``starts[r]:starts[r + 1]``.
        budget_s: Time within which the scorer that is asked shall answer; inf: any.
    """

    rows: NDArray[np.intp]
    boards: NDArray[np.intp]
    starts: NDArray[np.intp]
    budget_s: float = math.inf

    def __len__(self) -> int:
        return len(self.boards)

    def within(self, budget_s: float) -> Pairs:
        """Return the same pairs, to be answered within another time."""
        other = object.__new__(Pairs)
        other.__dict__.update(self.__dict__, budget_s=budget_s)
        return other

    @cached_property
    def filled(self) -> NDArray[np.intp]:
        """Rows of the classes that have a pair."""
        return np.flatnonzero(self.starts[1:] > self.starts[:-1])

    def of(self, row: int) -> slice:
        """Return the slice of a class's pairs in all columns of shape (pairs,)."""
        return slice(int(self.starts[row]), int(self.starts[row + 1]))

    def at(self, row: int, board: int) -> int | None:
        """Return the index of a pair; None where it is none."""
        start, end = int(self.starts[row]), int(self.starts[row + 1])
        found = start + int(np.searchsorted(self.boards[start:end], board))
        return found if found < end and self.boards[found] == board else None


def pairs_of(fits: NDArray[np.bool_]) -> Pairs:
    """Return the pairs that are true in a table of shape (classes, boards)."""
    classes, boards = fits.shape
    cells = np.flatnonzero(fits)
    starts = np.searchsorted(cells, np.arange(classes + 1) * boards)
    rows = np.repeat(np.arange(classes), starts[1:] - starts[:-1])
    return Pairs(rows=rows, boards=cells - rows * boards, starts=starts)


def by_class(
    pairs: Pairs, values: NDArray[_Floating], reduce: np.ufunc, empty: float
) -> NDArray[_Floating]:
    """Reduce each class's pairs to one value, by ``np.fmin``, ``np.fmax`` or ``np.add``.

    Returns:
        Shape (classes,); ``empty`` for classes without pairs.
    """
    found = np.full(len(pairs.starts) - 1, empty, dtype=values.dtype)
    if len(pairs):
        found[pairs.filled] = reduce.reduceat(values, pairs.starts[pairs.filled])
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class PastArrivals:
    """What has arrived so far, the oldest first; shape (arrivals,) each.

    Attributes:
        pools: Which pool each waited for.
        ago_s: How long ago each arrived, seconds.
        processors: int64.
        requested_s: How long each asked for.
        run_s: How long each ran; NaN: it has not ended.
        samples_s: Shape (arrivals, samples), as of `Outlook`.
        weights: Shape (arrivals, samples).
    """

    pools: NDArray[np.int64]
    ago_s: NDArray[np.float64]
    processors: NDArray[np.int64]
    requested_s: NDArray[np.float64]
    run_s: NDArray[np.float64]
    samples_s: NDArray[np.float64]
    weights: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Outlook:
    """The pools of processors that a queue waits for, and when those in use come free.

    A pool is a family of boards in the lab, the whole machine in a replay.

    Attributes:
        names: Of the pools, for people.
        pools: Shape (jobs,): which pool each job waits for.
        free: Shape (pools,), int64: processors that are free now.
        samples_s: Shape (jobs, samples): run times that are equally likely where their weights are
            equal, by earlier runs; NaN: none.
        weights: Shape (jobs, samples).
        running_pools: Shape (running,).
        running_processors: Shape (running,), int64.
        elapsed_s: Shape (running,): for how long each runs already.
        requested_s: Shape (running,): how long each was expected to run in all.
        running_samples_s: Shape (running, samples), as ``samples_s``: of the whole run.
        running_weights: Shape (running, samples).
        past: What has arrived so far; None: it is not known.
    """

    names: tuple[str, ...]
    pools: NDArray[np.int64]
    free: NDArray[np.int64]
    samples_s: NDArray[np.float64]
    weights: NDArray[np.float64]
    running_pools: NDArray[np.int64]
    running_processors: NDArray[np.int64]
    elapsed_s: NDArray[np.float64]
    requested_s: NDArray[np.float64]
    running_samples_s: NDArray[np.float64]
    running_weights: NDArray[np.float64]
    past: PastArrivals | None = None


TURN_SIZE = 32
"""Benchmarks of one user that others in the lab's queue may have to wait for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Queue:
    """Pending benchmarks in columns, for queue policies; shape (jobs,) each.

    Attributes:
        now: Time of the cycle.
        ids: Benchmark ids.
        users: User ids.
        priorities: int64, 1-100.
        base_priorities: int64, without what waiting adds. None where equal priorities go by
            submission: in the priority mode ``fifo``, in logs and in the world of nodes.
        ages_s: Since submission, never negative.
        waits_s: Since it could have started: its submission, or its start time; never negative.
        slacks_s: Until the deadline, less the stated run time; NaN without a deadline.
        partly_running: Another member of its campaign has started.
        usage_board_s: Board-seconds that its user used, as in
            `edgeyard.scheduler.model.knowledge.Entitlement`.
        shares: Weight of its user in fair sharing, above 0.
        groups: Id of its user's group; "" for none. Empty: no user is in one.
        group_usage_board_s: Board-seconds that this group used; 0 without one.
        group_shares: Weight of the group; 1 without one.
        submit_times_s: Submission on the clock of the world, seconds: Unix time in the lab, the
            log's own clock in a replay.
        processors: int64, how many each takes: one board in the lab.
        needs: Shape (jobs, resources): what each needs of a resource, as a share of what there is;
            None in the lab, where each takes one board.
        free: Shape (resources,): which share of each resource is free now; None in the lab.
        guard_s: Who has waited so long is not overtaken any more: of those, the older comes
            first, whatever the policy. It bounds how long anybody starves.
        estimate: Gives ``run_times_s``; asked once, if at all.
        turn_size: Benchmarks of one user that stand in a turn; None: all of them.
        look_out: Gives ``outlook``; asked once, if at all. None: there is none.
        list_places: Gives ``places``; asked once, if at all. None: there are none.
    """

    now: datetime
    ids: tuple[str, ...]
    users: tuple[str, ...]
    priorities: NDArray[np.int64]
    ages_s: NDArray[np.float64]
    waits_s: NDArray[np.float64]
    slacks_s: NDArray[np.float64]
    partly_running: NDArray[np.bool_]
    usage_board_s: NDArray[np.float64]
    shares: NDArray[np.float64]
    submit_times_s: NDArray[np.float64]
    processors: NDArray[np.int64]
    guard_s: float
    estimate: Callable[[], NDArray[np.float64]]
    base_priorities: NDArray[np.int64] | None = None
    turn_size: int | None = None
    needs: NDArray[np.float64] | None = None
    free: NDArray[np.float64] | None = None
    groups: tuple[str, ...] = ()
    group_usage_board_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    group_shares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    look_out: Callable[[], Outlook] | None = None
    list_places: Callable[[], Places] | None = None

    @cached_property
    def places(self) -> Places | None:
        """Return where benchmarks could run if nothing else did; None in the replay of a log."""
        return None if self.list_places is None else self.list_places()

    @cached_property
    def outlook(self) -> Outlook | None:
        """What the queue waits for, and when it comes free; None in the world of nodes."""
        return None if self.look_out is None else self.look_out()

    def derived(self, make: Callable[[Queue], _Derived]) -> _Derived:
        """Return ``make(self)``, made once: so that reasons need not order the queue again."""
        known: dict[object, _Derived] = self.__dict__.setdefault("_derived", {})
        if make not in known:
            known[make] = make(self)
        return known[make]

    @cached_property
    def id_texts(self) -> NDArray[np.str_]:
        """The ids as an array, to break ties by."""
        return np.array(self.ids, dtype=np.str_)

    @cached_property
    def run_times_s(self) -> NDArray[np.float64]:
        """Return predicted medians on boards of the family, or the stated bound.

        NaN where neither is known. In a replay: the requested times.
        """
        return self.estimate()

    @property
    def expected_s(self) -> NDArray[np.float64]:
        """Return `run_times_s`, in which the median of the others stands for what is not known."""
        known = self.run_times_s[~np.isnan(self.run_times_s)]
        return np.nan_to_num(self.run_times_s, nan=float(np.median(known)) if len(known) else 0.0)

    @property
    def past_guard(self) -> NDArray[np.bool_]:
        """Return who has waited as long as the guard says."""
        return self.waits_s >= self.guard_s

    @cached_property
    def guarded(self) -> NDArray[np.bool_]:
        """Return who is not overtaken: the oldest ``turn_size`` of a user that are past the guard.

        So a user's thousands that wait for days do not keep others from coming in between.
        """
        past = self.past_guard
        return past & (self._turns(-self.waits_s) == 0) if past.any() else past

    @cached_property
    def turns(self) -> NDArray[np.int64]:
        """Return the turn of each: a user's first ``turn_size``, by priority and age, are in 0.

        With this as its first key, a policy lets no user wait for more than ``turn_size``
        benchmarks of each other user, however many these have in the queue.
        """
        return self._turns(-self.ages_s, -self.priorities)

    def turns_in(self, ranks: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the turn of each if a user's own come in the order of these ranks."""
        return self._turns(ranks.astype(np.int64))

    def _turns(self, *keys: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return each one's turn among its user's by these keys, of which the last counts most."""
        if self.turn_size is None or len(self.users) <= self.turn_size:
            return np.zeros(len(self.users), dtype=np.int64)
        user = numbered(self.users)[1]
        counts = np.bincount(user)
        if counts.max() <= self.turn_size:
            return np.zeros(len(self.users), dtype=np.int64)
        own = np.lexsort((self.id_texts, *keys, user))  # users one after the other, by number
        first = np.cumsum(counts) - counts
        turns = np.empty(len(own), dtype=np.int64)
        turns[own] = (np.arange(len(own)) - first[user[own]]) // self.turn_size
        return turns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Where benchmarks could run if nothing else did, for policies that score boards.

    Attributes:
        batch: Its jobs are those of the queue, in its order.
        pairs: Classes with boards, also busy ones.
    """

    batch: Batch
    pairs: Pairs


def ranks_of(
    queue: Queue,
    *keys: NDArray[np.float64] | NDArray[np.int64],
    guarded: NDArray[np.bool_] | None = None,
) -> NDArray[np.intp]:
    """Return ranks by these keys, the smallest first; ties go by age, then by id.

    Benchmarks that have waited past the guard come before all others, in the order of their waits.

    Args:
        queue: The benchmarks.
        keys: Shape (jobs,) each, the first counts most; NaN nowhere.
        guarded: Shape (jobs,), who has; None: ``queue.guarded``.

    Returns:
        As `edgeyard.scheduler.framework.protocols.QueuePolicy.order`.
    """
    guarded = queue.guarded if guarded is None else guarded
    order = np.lexsort(
        (
            queue.id_texts,
            -queue.ages_s,
            *(np.where(guarded, 0.0, key) for key in reversed(keys)),
            np.where(guarded, -queue.waits_s, 0.0),
            ~guarded,
        )
    )
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def mixed(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash numbers to pseudo-random numbers, by the finaliser of splitmix64.

    Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
    figure 17.
    """
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def numbered(values: Iterable[_Value]) -> tuple[dict[_Value, int], NDArray[np.intp]]:
    """Number different values from 0 as they come, and return them and the number of each."""
    number_of: defaultdict[_Value, int] = defaultdict(count().__next__)
    # From a list: `numpy.fromiter` takes several times as long for a short queue.
    numbers = np.array(list(map(number_of.__getitem__, values)), dtype=np.intp)
    return dict(number_of), numbers


def family_numbers(batch: Batch) -> tuple[Mapping[str, int], NDArray[np.intp]]:
    """Return the numbers of the boards' families, from 0; and shape (boards,), each board's."""
    return batch.derived(_family_numbers)


def _family_numbers(batch: Batch) -> tuple[Mapping[str, int], NDArray[np.intp]]:
    return _numbered_names(batch.snapshot.families)


def _board_hosts(batch: Batch) -> NDArray[np.intp]:
    return _numbered_names(batch.snapshot.hosts)[1]


@lru_cache(maxsize=8)  # the same boards in one cycle after the other
def _numbered_names(names: tuple[str, ...]) -> tuple[Mapping[str, int], NDArray[np.intp]]:
    number_of, numbers = numbered(names)
    numbers.flags.writeable = False
    return number_of, numbers


def _row_of_uid(batch: Batch) -> dict[str, int]:
    return {uid: row for row, uid in enumerate(batch.snapshot.uids)}


OF_BOARDS: tuple[Callable[[Batch], object], ...] = (_family_numbers, _row_of_uid, _board_hosts)
"""What batches of the same boards have in common: see `Batch.pass_on`."""


def by_value(
    batch: Batch, values: Sequence[_Value], column: Callable[[_Value], NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Build a table of classes and boards from a class column with few different values.

    Args:
        values: The class column.
        column: Shape (boards,) for one value; asked once a value.

    Returns:
        Shape (classes, boards); (1, boards) where all classes have the same value.
    """
    rows, row_of_class = numbered(values)
    if not rows:
        return np.zeros(batch.shape, dtype=bool)
    if len(rows) == 1:
        return column(next(iter(rows)))[None, :]
    return np.array([column(value) for value in rows])[row_of_class]


def exceeds(required: NDArray[np.int64], offered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where a class requires more than a board has.

    Args:
        required: Shape (classes,).
        offered: Shape (boards,).

    Returns:
        Shape (classes, boards); (1, boards) where all classes ask for the same.
    """
    if len(required) and (required == required[0]).all():
        return required[:1, None] > offered
    different, row_of_class = np.unique(required, return_inverse=True)
    if 2 * len(different) > len(required):
        return required[:, None] > offered
    return (different[:, None] > offered)[row_of_class]


def has_family(batch: Batch, family: str) -> NDArray[np.bool_]:
    """Return which boards are of the family, shape (boards,)."""
    numbers, of_board = family_numbers(batch)
    return np.equal(of_board, numbers.get(family, -1))


def other_families(batch: Batch) -> NDArray[np.bool_]:
    """Find the boards that are not of the families which classes require.

    Returns:
        Shape (classes, boards); (1, boards) where all classes require the same family.
    """
    numbers, of_board = family_numbers(batch)
    of_class = [numbers.get(family, len(numbers)) for family in batch.families]
    if len(set(of_class)) == 1:
        other: NDArray[np.bool_] = np.not_equal(of_board, of_class[0])
        return other[None, :]
    # The last row is that of a family without boards.
    table: NDArray[np.bool_] = np.not_equal(np.arange(len(numbers) + 1)[:, None], of_board)
    return table[np.array(of_class, dtype=np.intp)]


def has_engine(batch: Batch, engine: str) -> NDArray[np.bool_]:
    """Return which boards have the engine, shape (boards,)."""
    column = batch.snapshot.engines.get(engine)
    return np.zeros(batch.shape[1], dtype=bool) if column is None else column


def supports(batch: Batch, engine: str, kind: BenchmarkType) -> NDArray[np.bool_]:
    """Return on which boards the engine lists the benchmark type, shape (boards,)."""
    column = batch.snapshot.supports.get((engine, kind.value))
    return np.zeros(batch.shape[1], dtype=bool) if column is None else column


def lacks_declaration(batch: Batch, engine: str, kind: BenchmarkType) -> NDArray[np.bool_]:
    """Return on which boards the engine lists the type and does not declare it, (boards,)."""
    column = batch.snapshot.undeclared.get((engine, kind.value))
    return np.zeros(batch.shape[1], dtype=bool) if column is None else column


def is_board(batch: Batch, target_uid: str | None) -> NDArray[np.bool_]:
    """Return which board has that name, shape (boards,); None means all of them."""
    if target_uid is None:
        return np.ones(batch.shape[1], dtype=bool)
    found: NDArray[np.bool_] = np.arange(batch.shape[1]) == batch.row_of_uid.get(target_uid, NO_ROW)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class AttributeColumn:
    """One attribute of all boards; the boards publish few different values.

    Attributes:
        values: The different ones; None where it is not published.
        index: Shape (boards,), into ``values``.
    """

    values: tuple[AttributeValue | None, ...]
    index: NDArray[np.intp]

    def meets(self, constraint: Constraint | Affinity) -> NDArray[np.bool_]:
        """Return on which boards the attribute meets the constraint, shape (boards,)."""
        verdicts = [
            meets(constraint.attribute, value, constraint.operator, constraint.value)
            for value in self.values
        ]
        return np.array(verdicts, dtype=np.bool_)[self.index]

    @property
    def published(self) -> NDArray[np.bool_]:
        """Return which boards publish the attribute, shape (boards,)."""
        return np.array([value is not None for value in self.values], dtype=np.bool_)[self.index]


def attribute_column(batch: Batch, name: str) -> AttributeColumn:
    """Return the values of an attribute that the boards publish."""
    published = [attributes.get(name) for attributes in batch.snapshot.attributes]
    # True, 1 and 1.0 are equal keys, but compare differently.
    different, index = numbered(zip(map(type, published), published, strict=True))
    return AttributeColumn(tuple(value for _, value in different), index)
