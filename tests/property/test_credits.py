"""Credits add up, and no quota is exceeded, whatever happens in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.errors import Conflict
from edgeyard.scheduler.engine import charging, lifecycle
from edgeyard.scheduler.model.accounts import REFUNDED, USAGE_HALF_LIFE_S
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import TERMINAL, Failure, FailureCategory, Status
from edgeyard.scheduler.model.decision import KeptIdle
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.fakes.clock import FixedClock

GRANTED = 1000.0
DEFAULT_MAX_RUN_S = 400.0


@cache
def _empty_database() -> bytes:
    """Migrated once: every example begins with a copy."""
    with TemporaryDirectory() as folder:
        SqlStore(f"sqlite:///{folder}/bank.db").close()
        return Path(folder, "bank.db").read_bytes()


class Bank:
    """Benchmarks of one user on a store, each step a transaction."""

    def __init__(self, folder: str, max_running: int | None = 2) -> None:
        Path(folder, "bank.db").write_bytes(_empty_database())
        self.clock = FixedClock(make.NOW)
        self.store = SqlStore(f"sqlite:///{folder}/bank.db", now=self.clock.now)
        with self.store.write() as uow:
            uow.accounts.add_user(
                User(
                    user_id="ada",
                    role=Role.SUBMITTER,
                    created_at=make.NOW,
                    max_running=max_running,
                )
            )
            charging.set_credits(uow, "ada", GRANTED, make.NOW, "op")
            uow.credits.set_rate("rpi5", 2.5)
        self.granted = GRANTED
        self.ids: list[str] = []
        self.kept_s: dict[str, float] = {}

    def submit(self, family: str, user_time_s: float | None, budget: float | None) -> None:
        name = f"b-{len(self.ids)}"
        asked = make.a_description(
            target=family, user_time_s=user_time_s, user_budget=budget, max_retries=3
        )
        with self.store.write() as uow:
            uow.benchmarks.add(make.a_benchmark(name, description=asked))
        self.ids.append(name)

    def prepare(self, name: str) -> bool:
        with self.store.write() as uow:
            benchmark = uow.benchmarks.get(name)
            if benchmark.status is not Status.PENDING:
                return False
            number = len(uow.attempts.of(name)) + 1
            attempt = make.an_attempt(name, number, family=benchmark.description.family)
            wanted = [(benchmark, attempt)]
            return bool(
                lifecycle.prepare(uow, wanted, self.clock.now(), max_run_s=DEFAULT_MAX_RUN_S)
            )

    def live(self, name: str) -> Attempt | None:
        with self.store.read() as uow:
            return next(
                (a for a in uow.attempts.of(name) if a.state is not AttemptState.ENDED), None
            )

    def run_and_end(self, name: str, run_s: float, category: FailureCategory | None) -> None:
        attempt = self.live(name)
        if attempt is None:
            return
        with self.store.write() as uow:
            attempt = lifecycle.to_state(uow, attempt, AttemptState.DISPATCHING, self.clock.now())
            lifecycle.task_started(uow, attempt, "b", self.clock.now(), self.clock.now())
        self.clock.forward(run_s)
        failure = None if category is None else Failure(category=category, sentence="so")
        with self.store.write() as uow:
            current = uow.attempts.of(name)[-1]
            if failure is None:
                lifecycle.result_received(uow, current, {"status": "ok"}, self.clock.now())
                current = uow.attempts.of(name)[-1]
            lifecycle.task_ended(uow, current, failure, self.clock.now(), self.clock.now())

    def keep_idle(self, keepers: Sequence[int], board_s: float) -> None:
        """Charge bookings and leases, of one family each, for boards that they kept idle."""
        now = self.clock.now()
        families = ("rpi4b", "rpi5")
        kept = {
            KeptIdle(
                keeper_id=f"keeper-{each}",
                user_id="ada",
                family=families[each % 2],
                target_uid=f"{families[each % 2]}-0001-0001",
            ): (now, board_s)
            for each in keepers
        }
        with self.store.write() as uow:
            charging.charge_idle_times(uow, kept, now, Tariff())
        for one in kept:
            self.kept_s[one.keeper_id] = self.kept_s.get(one.keeper_id, 0.0) + board_s

    def check(self) -> None:
        with self.store.read() as uow:
            balance = uow.credits.balance("ada")
            charges = uow.credits.charges("ada", limit=1000)
            idle = uow.credits.idle_times("ada", limit=1000)
            live = [a for a in uow.attempts.live()]
        settled = [each for each in charges if each.settled_at is not None]
        still_open = [each for each in charges if each.settled_at is None]
        assert balance.credits is not None
        spent = sum(each.charged or 0 for each in settled) + sum(each.charged for each in idle)
        assert balance.spent == pytest.approx(spent, abs=1e-9)
        assert {each.keeper_id: each.board_s for each in idle} == pytest.approx(self.kept_s)
        for one in idle:
            assert 0 <= one.charged <= 2.5 * one.board_s + 1e-4  # each is rounded
        assert balance.credits + balance.spent == pytest.approx(self.granted, abs=1e-9)
        assert balance.reserved == pytest.approx(
            sum(each.reserved for each in still_open), abs=1e-9
        )
        assert balance.credits_left is not None
        assert balance.credits_left >= 0
        assert {(e.benchmark_id, e.attempt) for e in still_open} == {
            (a.benchmark_id, a.number) for a in live
        }
        assert len(still_open) <= 2
        for each in settled:
            assert 0 <= (each.charged or 0) <= each.reserved


_STEP = st.one_of(
    st.tuples(
        st.just("submit"),
        st.sampled_from(["rpi4b", "rpi5"]),
        st.one_of(st.none(), st.floats(1, 900)),
        st.one_of(st.none(), st.floats(0.5, 500)),
    ),
    st.tuples(st.just("prepare"), st.integers(0, 5)),
    st.tuples(
        st.just("end"),
        st.integers(0, 5),
        st.floats(0, 2000),
        st.one_of(
            st.none(),
            st.sampled_from(
                [
                    FailureCategory.BOARD_FAULT,
                    FailureCategory.USER_MODEL,
                    FailureCategory.TIMEOUT,
                    FailureCategory.PREEMPTED,
                ]
            ),
        ),
    ),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("again"), st.integers(0, 5)),
    st.tuples(st.just("grant"), st.floats(0.1, 50)),
    st.tuples(
        st.just("idle"), st.sets(st.integers(0, 3), min_size=1).map(sorted), st.floats(0.1, 300)
    ),
)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(_STEP, min_size=5, max_size=30))
def test_credits_add_up_and_no_bound_is_passed(steps: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        bank = Bank(folder)
        for step in steps:
            _play(bank, step)
            bank.check()
        bank.store.close()


def _play(bank: Bank, step: tuple[object, ...]) -> None:
    kind, *rest = step
    if kind == "submit":
        bank.submit(*rest)  # type: ignore[arg-type]
        return
    if kind == "grant":
        with bank.store.write() as uow:
            more = round(float(str(rest[0])), 6)
            charging.add_credits(uow, "ada", more, bank.clock.now(), "op")
        bank.granted += more
        return
    if kind == "idle":
        bank.keep_idle(*rest)  # type: ignore[arg-type]
        return
    place = int(str(rest[0]))
    if place >= len(bank.ids):
        return
    name = bank.ids[place]
    if kind == "prepare":
        bank.prepare(name)
    elif kind == "end":
        bank.run_and_end(name, *rest[1:])  # type: ignore[arg-type]
    elif kind == "cancel":
        with bank.store.write() as uow:
            if uow.benchmarks.get(name).status not in TERMINAL:
                lifecycle.cancel(uow, name, bank.clock.now(), "ada")
    else:
        # The same end reported twice: by the cluster and by the runner, or after a restart.
        with bank.store.write() as uow:
            benchmark = uow.benchmarks.get(name)
            for attempt in uow.attempts.of(name):
                if attempt.state is AttemptState.ENDED:
                    now, failure = bank.clock.now(), attempt.failure
                    assert charging.settle(uow, benchmark, attempt, failure, now) is None


@settings(max_examples=25, deadline=None)
@given(
    wanted=st.lists(
        st.tuples(
            st.sampled_from(["ada", "bob", charging.PROBER]),
            st.sampled_from(["rpi4b", "rpi5"]),
            st.floats(1, 900),
        ),
        max_size=8,
    ),
    max_running=st.one_of(st.none(), st.integers(1, 4)),
)
def test_preparing_together_is_preparing_one_after_the_other(
    wanted: list[tuple[str, str, float]], max_running: int | None
) -> None:
    found = []
    for together in (len(wanted) or 1, 1):
        with TemporaryDirectory() as folder:
            bank = Bank(folder, max_running)
            pairs = []
            for number, (user_id, family, user_time_s) in enumerate(wanted):
                asked = make.a_description(target=family, user_time_s=user_time_s)
                benchmark = make.a_benchmark(f"b-{number}", user_id=user_id, description=asked)
                pairs.append((benchmark, make.an_attempt(benchmark.benchmark_id, family=family)))
            with bank.store.write() as uow:
                for benchmark, _ in pairs:
                    uow.benchmarks.add(benchmark)
                for start in range(0, len(pairs), together):
                    lifecycle.prepare(uow, pairs[start : start + together], make.NOW)
            with bank.store.read() as uow:
                found.append(
                    (
                        [uow.benchmarks.get(benchmark.benchmark_id) for benchmark, _ in pairs],
                        sorted(uow.attempts.live(), key=lambda each: each.benchmark_id),
                        {each.user_id: each for each in uow.credits.balances()},
                        sorted(uow.credits.open_charges(), key=lambda each: each.benchmark_id),
                        uow.log.events(after=0, limit=99),
                    )
                )
            bank.store.close()
    assert found[0] == found[1]


def test_what_failed_without_its_users_fault_costs_nothing(tmp_path: Path) -> None:
    bank = Bank(str(tmp_path))
    bank.submit("rpi5", 100, None)
    assert bank.prepare("b-0")
    with bank.store.read() as uow:
        assert uow.credits.balance("ada").credits_left == GRANTED - 250
    bank.run_and_end("b-0", 60, FailureCategory.BOARD_FAULT)
    with bank.store.read() as uow:
        assert uow.credits.balance("ada").credits_left == GRANTED
        (charge,) = uow.credits.charges("ada", limit=9)
    assert (charge.charged, charge.board_s, charge.refunded) == (0, 60, "board_fault")
    assert bank.prepare("b-0")
    bank.run_and_end("b-0", 60, None)
    with bank.store.read() as uow:
        assert uow.credits.balance("ada").credits == GRANTED - 2.5 * 60
    assert FailureCategory.USER_MODEL not in REFUNDED


def test_a_budget_bounds_the_run_time(tmp_path: Path) -> None:
    bank = Bank(str(tmp_path))
    bank.submit("rpi5", 300, 100)
    assert bank.prepare("b-0")
    attempt = bank.live("b-0")
    assert attempt is not None
    assert attempt.time_limit_s == 100 / 2.5
    bank.run_and_end("b-0", 999, FailureCategory.TIMEOUT)
    with bank.store.read() as uow:
        assert uow.credits.balance("ada").spent == 100


def test_use_is_forgotten_by_half_each_half_life(tmp_path: Path) -> None:
    bank = Bank(str(tmp_path))
    bank.submit("rpi4b", 400, None)
    bank.prepare("b-0")
    bank.run_and_end("b-0", 320, None)
    with bank.store.read() as uow:
        balance = uow.credits.balance("ada")
    later = bank.clock.now() + timedelta(seconds=2 * USAGE_HALF_LIFE_S)
    assert balance.usage_s(later) == pytest.approx(320 / 4)


def test_without_an_account_of_credits_nothing_is_refused_but_use_counts(tmp_path: Path) -> None:
    bank = Bank(str(tmp_path), max_running=None)
    with bank.store.write() as uow:
        charging.set_credits(uow, "ada", None, bank.clock.now(), "op")
        with pytest.raises(Conflict, match="no limit of credits"):
            charging.add_credits(uow, "ada", 5, bank.clock.now(), "op")
    for number in range(4):
        bank.submit("rpi4b", 400, None)
        assert bank.prepare(f"b-{number}")
    bank.run_and_end("b-0", 320, None)
    with bank.store.read() as uow:
        assert uow.credits.balance("ada").spent == 320
        assert uow.credits.balance("ada").credits_left is None
