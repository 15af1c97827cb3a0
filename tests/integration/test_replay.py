"""Recorded cycles are decided again: the same, or by another policy."""

import math
from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, board, past_run, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.record import Recorder, result_of
from edgeyard.scheduler.engine.replay import Difference, replay
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import Policy, load_policy, parse_policy
from edgeyard.scheduler.framework.protocols import Answer, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Kind, Registry
from edgeyard.scheduler.model.cycle_record import FACTS, CycleRecord
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge
from tests.builders.decision import policy

BOARDS = snapshot_of([board("rpi4b-0001-0001"), board("rpi4b-0001-0002")])
PAST = History([past_run(uid, run_s=10.0 + row) for row, uid in enumerate(BOARDS.uids)])


class Whim:
    """Likes another board each time it is asked; may refuse to answer."""

    name = "whim"
    objective = "load"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE
    asked = 0
    fails = False

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        Whim.asked += 1
        if Whim.fails:
            raise ValueError("not today")
        return ((pairs.boards + Whim.asked) % 2).astype(np.float32)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setattr(Whim, "asked", 0)
    monkeypatch.setattr(Whim, "fails", False)
    found = registry(entry_points=False)
    found.add(Kind.SCORER, "whim", Whim)
    return found


def whimsical(**scorers: float) -> Policy:
    from dataclasses import replace

    from edgeyard.scheduler.framework.policy import ScorerChoice

    chosen = tuple(
        ScorerChoice(name=name, weight=weight, budget_s=math.inf)
        for name, weight in scorers.items()
    )
    return replace(policy(), name="whims", scorers=chosen)


def recorded(plugins: Registry, of: Policy) -> CycleRecord:
    given = CycleInput(snapshot=BOARDS, pending=[pending("b-1")], now=NOW, seed=3)
    return Recorder().record(given, decide(given, of, plugins.resolve(of)))


@pytest.mark.parametrize("fails", [False, True])
def test_a_scorer_repeats_what_it_said_or_failed_to_say(plugins: Registry, fails: bool) -> None:
    Whim.fails = fails
    of = whimsical(whim=1.0)
    record = recorded(plugins, of)
    Whim.fails = not fails
    for _ in range(2):
        again = replay(record, plugins)
        assert again.same
        assert not again.differences
        assert (again.pending, again.placed_then, again.placed_now) == (1, 1, 1)


class Timed(Whim):
    """States how long it took, and that it answered by a simple rule."""

    name = "timed"
    kind = ScorerKind.ILP

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        scores = self.score(batch, pairs)
        return Answer(scores=scores, facts={"seconds": Whim.asked / 7}, fallback="a greedy plan")


def test_measured_times_are_no_part_of_the_decision(plugins: Registry) -> None:
    plugins.add(Kind.SCORER, "timed", Timed)
    of = whimsical(timed=1.0)
    record = recorded(plugins, of)
    assert replay(record, plugins).same
    slower = CycleRecord(
        decided_at=record.decided_at,
        policy=record.policy,
        parts=tuple((name, b"" if name == FACTS else part) for name, part in record.parts),
    )
    assert slower.digest == record.digest
    [proposal] = result_of(record, plugins.resolve(of)).decided.scores.proposals
    assert (proposal.facts, proposal.fallback) == ({"seconds": 1 / 7}, "a greedy plan")


def test_a_policy_whose_solvers_measure_their_time_decides_the_same_again() -> None:
    plugins, of = registry(entry_points=False), load_policy("learned")
    waiting = [
        pending(f"b-{number}", deadline=NOW + timedelta(hours=number)) for number in range(1, 5)
    ]
    given = CycleInput(snapshot=BOARDS, pending=waiting, now=NOW, knowledge=Knowledge(runs=PAST))
    record = Recorder().record(given, decide(given, of, plugins.resolve(of)))
    answers = result_of(record, plugins.resolve(of)).decided.scores.proposals
    timed = {each.scorer for each in answers if "seconds" in each.facts}
    assert timed == {"ilp_deadlines"}  # the other plan is an exact assignment, without a solver
    assert replay(record, plugins).same


def test_another_policy_shows_what_it_would_have_done(plugins: Registry) -> None:
    record = recorded(plugins, whimsical(whim=1.0))
    none_fits = parse_policy(
        _text(policy="default").replace("filters = [", 'filters = ["none_at_all",'), source="x"
    )
    plugins.add(Kind.FILTER, "none_at_all", _NoBoard)
    again = replay(record, plugins, none_fits)
    assert not again.same
    assert again.placed_now == 0
    [difference] = again.differences
    assert difference == Difference(benchmark_id="b-1", then=difference.then, now=None)
    assert difference.then in BOARDS.uids


def test_what_was_learned_is_the_recorded_policy_s_and_no_other_one_s(plugins: Registry) -> None:
    of = whimsical(whim=1.0, least_loaded=1.0)
    learned = Knowledge(weights={"whim": 0.1}, suspended={"least_loaded": "failed three times"})
    given = CycleInput(snapshot=BOARDS, pending=[pending("b-1")], now=NOW, knowledge=learned)
    record = Recorder().record(given, decide(given, of, plugins.resolve(of)))
    reports: list[Knowledge] = []

    class Listener(Whim):
        name = "listener"

        def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
            reports.append(batch.knowledge)
            return super().score(batch, pairs)

    plugins.add(Kind.SCORER, "listener", Listener)
    assert replay(record, plugins).same
    assert replay(record, plugins, of).same
    replay(record, plugins, whimsical(listener=1.0))
    assert [(each.weights, each.suspended) for each in reports] == [({}, {})]


def _text(policy: str) -> str:
    from importlib.resources import files

    return (files("edgeyard.scheduler.framework") / "policies" / f"{policy}.toml").read_text()


class _NoBoard:
    name = "none_at_all"

    @property
    def refusals(self) -> tuple[object, ...]:
        from edgeyard.scheduler.framework.protocols import Refusal
        from edgeyard.scheduler.model.benchmark import WaitingReason

        return (Refusal(WaitingReason.RESERVED, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return np.ones((1, batch.shape[1]), dtype=np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return "is out of bounds"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        return ""


SHARED = {
    "quota": (
        Entitlement(max_running=1),
        "your group vision may have 1 benchmark on boards at once: waits for one to end, or for "
        "an operator to allow the group more",
    ),
    "budget": (
        Entitlement(credits_left=50.0),
        "it may cost 30 credits, and your group vision has fewer left: waits for others of the "
        "group to end, or for more credits; a shorter maximum run time reserves less",
    ),
}


@pytest.mark.parametrize("code", SHARED)
def test_what_members_share_is_recorded_and_decides_the_same_again(
    plugins: Registry, code: str
) -> None:
    """Two boards are free: the second member waits for the group, not for a board."""
    shared, sentence = SHARED[code]
    members = {user: Entitlement(group_id="vision") for user in ("ann", "bob")}
    waiting = [
        pending(f"b-{user}", user_id=user, user_time_s=30.0, submit_time=NOW) for user in members
    ]
    known = Knowledge(entitlements=members, groups={"vision": shared})
    given = CycleInput(snapshot=BOARDS, pending=waiting, now=NOW, seed=3, knowledge=known)
    of = policy()
    decided = decide(given, of, plugins.resolve(of))
    (reason,) = decided.waiting.values()
    assert (reason.reason.value, reason.sentence) == (code, sentence)
    record = Recorder().record(given, decided)
    again = replay(record, plugins)
    assert again.same
    assert (again.pending, again.placed_then, again.placed_now) == (2, 1, 1)
    assert list(result_of(record, plugins.resolve(of)).waiting.values()) == [reason]
