"""Which policy decides: shown, compared, changed while the server runs, and tried in the shadow."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.benchmark_api.cli.policies import _shown
from edgeyard.benchmark_api.cli.replaying import show_differences
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide.record import cycle_input_of, policy_of
from edgeyard.scheduler.engine.explanations import Explanations
from edgeyard.scheduler.engine.policies import Policies
from edgeyard.scheduler.engine.replay import totals_of
from edgeyard.scheduler.engine.rewards import SUSPEND_AFTER_FAULTS
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import load_policy, parse_policy
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.model.benchmark import BenchmarkType, Binding, WaitingReason
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.policies import PolicyActivation, PolicyOverride, PolicyRole
from edgeyard.scheduler.model.rating import ScorerState
from tests.builders import records as make
from tests.builders.api import Api
from tests.builders.engine import A, B, Lab

DEFAULT = (files("edgeyard.scheduler.framework") / "policies" / "default.toml").read_text()
VERSION = load_policy("default").version
DEFAULT_KEY = f"default/{VERSION}"
OWN = DEFAULT.replace(f'name = "default"\nversion = {VERSION}\n', 'name = "own"\nversion = 1\n')


def doing(api: Api) -> dict[str, list[str]]:
    items = api.as_().get("/v1/policies").json()["items"]
    return {each["name"]: each["roles"] for each in items}


def test_policies_are_listed_and_shown(api: Api) -> None:
    assert doing(api)["default"] == ["active"]
    assert doing(api)["native"] == []
    shown = api.as_().get("/v1/policies/default").json()
    assert shown["text"] == DEFAULT
    assert shown["version"] == VERSION
    assert api.as_().get("/v1/policies/nonesuch").status_code == 404


def test_an_operator_changes_what_decides_and_goes_back(api: Api) -> None:
    operator = api.as_("operator")
    assert operator.put("/v1/policies/active", json={"name": "native"}).status_code == 200
    own = OWN
    answer = operator.put("/v1/policies/shadow", json={"text": own})
    assert answer.json()["roles"] == ["shadow"]
    assert doing(api) | {"learned": []} == doing(api) | {
        "default": [], "native": ["active"], "own": ["shadow"], "learned": []
    }  # fmt: skip
    assert api.as_().get("/v1/policies/own").json()["text"] == own
    assert operator.delete("/v1/policies/active").status_code == 204
    assert operator.delete("/v1/policies/shadow").status_code == 204
    assert doing(api)["default"] == ["active"]
    assert doing(api)["own"] == []  # it is known for good
    assert operator.put("/v1/policies/active", json={"name": "own/1"}).status_code == 200
    assert api.as_().get("/v1/policies/own").json()["text"] == own


@pytest.mark.parametrize("where", ["/v1/policies/active", "/v1/policies/shadow", "one"])
def test_a_name_and_version_stand_for_one_text(api: Api, where: str) -> None:
    operator = api.as_("operator")
    if where == "one":
        api.upload()
        where = f"/v1/benchmarks/{api.submit()}/policy"
    own = OWN
    other = own + "# some words\n"
    assert operator.put(where, json={"text": own}).is_success
    assert operator.put(where, json={"text": other}).is_success  # but for comments the same
    assert operator.get("/v1/policies/own").json()["text"] == own
    for text, free in ((own, 2), (DEFAULT, VERSION + 1)):
        changed = text.replace("guard_s = 86400.0", "guard_s = 60.0")
        refused = operator.put(where, json={"text": changed})
        assert refused.status_code == 409
        assert f"new version, {free} for instance" in refused.text
        newer = changed.replace(f"\nversion = {free - 1}\n", f"\nversion = {free}\n")
        assert operator.put(where, json={"text": newer}).is_success
        name = "own" if text == own else "default"
        shown = operator.get(f"/v1/policies/{name}").json()
        assert (shown["version"], shown["text"]) == (free, newer)
        assert operator.get(f"/v1/policies/{name}?version={free - 1}").json()["text"] == text
        assert operator.get(f"/v1/policies/{name}?version={free + 1}").status_code == 404
    items = operator.get("/v1/policies").json()["items"]
    found = [(each["name"], each["version"]) for each in items]
    assert found == sorted(found)
    assert {("own", 1), ("own", 2), ("default", VERSION), ("default", VERSION + 1)} < set(found)


def test_a_configured_policy_that_changed_under_its_version_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policies = Policies(registry(), load_policy("default"))
    lab = Lab(tmp_path, A, policies=policies)
    for text, reported in ((DEFAULT, 0), (DEFAULT + "# words", 0)):
        with lab.store.write() as uow:
            policies.keep_configured(uow, text, make.NOW)
        assert len(caplog.records) == reported
    with lab.store.write() as uow:
        policies.keep_configured(uow, DEFAULT.replace("guard_s = 86400.0", "guard_s = 1"), make.NOW)
        [kept] = uow.policies.all()
    assert "guard_s = 1" in kept.text
    assert [record.event for record in caplog.records] == ["policy.changed"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"name": "nonesuch"}, "default"),
        ({"name": "../../etc/passwd"}, "default"),
        ({"text": "version = 1"}, "is missing"),
        ({"text": DEFAULT.replace("least_loaded", "nonesuch")}, "nonesuch"),
        ({"text": "= ="}, "text"),
        ({}, "name or text"),
        ({"name": "native", "text": DEFAULT}, "name or text"),
    ],
)
def test_a_policy_that_can_t_work_is_refused_with_its_mistake(
    api: Api, body: dict[str, str], word: str
) -> None:
    answer = api.as_("operator").put("/v1/policies/active", json=body)
    assert answer.status_code == 422
    assert word in answer.text
    assert doing(api)["default"] == ["active"]


def test_the_next_cycle_uses_the_policy_and_the_shadow_decides_the_same_cycle(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A, policies=Policies(registry(), load_policy("default")))
    benchmark_id = lab.submit(target_uid=A)
    text = OWN
    with lab.store.write() as uow:
        for role, name in ((PolicyRole.ACTIVE, "native"), (PolicyRole.SHADOW, "own")):
            toml = text if name == "own" else _built_in(name)
            uow.policies.activate(
                PolicyActivation(
                    role=role, name=name, version=1, text=toml, by_user_id="op", at=make.NOW
                )
            )
    outcome = lab.cycle.run()
    assert outcome.placed
    assert outcome.queue.policy == "native"
    with lab.store.read() as uow:
        assert len(uow.cycles.page(limit=9, shadows=True)) == 1  # what is placed goes out first
    lab.cycle.decide_shadow(outcome)
    with lab.store.read() as uow:
        [active] = uow.cycles.page(limit=9)
        [_, shadow] = uow.cycles.page(limit=9, shadows=True)
        assert policy_of(uow.cycles.get(active.seq)).name == "native"
        assert policy_of(uow.cycles.get(shadow.seq)).name == "own"
        assert shadow.shadow_of == active.seq
        [attempt] = uow.attempts.of(benchmark_id)  # the shadow's placement is nobody's
    assert attempt.number == 1


def test_an_activated_policy_that_no_longer_works_leaves_its_seat(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policies=Policies(registry(), load_policy("default")))
    benchmark_id = lab.submit(target_uid=A)
    with lab.store.write() as uow:
        uow.policies.activate(
            PolicyActivation(
                role=PolicyRole.ACTIVE,
                name="gone",
                version=1,
                text=DEFAULT.replace("least_loaded", "uninstalled"),
                by_user_id="op",
                at=make.NOW,
            )
        )
    assert lab.cycle.run().queue.policy == "default"
    with lab.store.read() as uow:
        assert uow.attempts.of(benchmark_id)


def _built_in(name: str) -> str:
    return (files("edgeyard.scheduler.framework") / "policies" / f"{name}.toml").read_text()


def test_a_policy_from_a_request_names_no_files(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("raise SystemExit('this ran')")
    own = DEFAULT.replace('name = "fastest"', f'name = "mine"\nfile = "{path}:Scorer"')
    assert own != DEFAULT
    answer = api.as_("operator").put("/v1/policies/active", json={"text": own})
    assert answer.status_code == 422
    assert "only the policy of the server's settings names files" in answer.text


def test_scorers_are_reported_with_their_weights_and_what_was_learned(api: Api) -> None:
    def scorers() -> dict[str, dict[str, object]]:
        found = api.as_().get("/v1/scorers?rounds=5").json()
        assert found["policy"] == DEFAULT_KEY
        return {each["scorer"]: each for each in found["items"]}

    before = scorers()["least_loaded"]
    assert before["weight"] == before["stated_weight"]
    assert (before["kind"], before["mean_reward"]) == ("heuristic", None)
    key = DEFAULT_KEY
    with api.store.write() as uow:
        uow.scoring.save(
            ScorerState(
                policy=key,
                scorer="least_loaded",
                weight=0.25,
                rounds=2,
                reward_sum=1.0,
                faults=3,
                faults_in_row=3,
                last_fault="it raised",
                suspended_until=datetime(2100, 1, 1, tzinfo=UTC),
            )
        )
    after = scorers()["least_loaded"]
    assert after["weight"] == pytest.approx(
        0.25 / (3 * 1.0 + 2 * 20.0 + 0.25)
    )  # the others keep theirs
    assert (after["mean_reward"], after["faults"]) == (0.5, 3)
    assert after["suspended_until"] == "2100-01-01T00:00:00Z"
    assert "3 faults in a row" in str(after["suspension_reason"])


def test_of_lists_the_difference_names_what_is_in_one_alone() -> None:
    first, second = ["inventory", "ram", "busy"], ["inventory", "busy", "lease"]
    assert (_shown(first, second), _shown(second, first)) == ("ram", "lease")
    assert (_shown(first, first[:2]), _shown(first[:2], first)) == ("busy", "")
    assert _shown(first[::-1], first) == "busy, ram, inventory"
    assert (_shown(first, None), _shown(None, first), _shown(3, 4)) == (", ".join(first), "", "3")


def test_weights_add_up_to_one_whatever_the_aggregator_keeps(api: Api) -> None:
    mean = _built_in("learned").replace('"learned"', '"mean"').replace('"hedge"', '"expected_cost"')
    assert api.as_("operator").put("/v1/policies/active", json={"text": mean}).is_success
    stated = {each.name: each.weight for each in parse_policy(mean).scorers}
    shares = {name: pytest.approx(weight / 4.5) for name, weight in stated.items()}
    assert sum(stated.values()) == 4.5

    def reported(key: str) -> dict[str, float]:
        items = api.as_().get("/v1/scorers").json()["items"]
        return {each["scorer"]: each[key] for each in items}

    assert reported("weight") == reported("stated_weight") == shares
    with api.store.write() as uow:  # as `expected_cost` leaves them: the policy's own
        for name, weight in stated.items():
            uow.scoring.save(ScorerState(policy="mean/1", scorer=name, weight=weight))
    assert reported("weight") == reported("stated_weight") == shares


def test_one_benchmark_is_decided_by_a_policy_of_its_own(tmp_path: Path) -> None:
    """The active policy admits nobody; the one of its own does, and keeps it from nobody else."""
    lab = Lab(tmp_path, A, B, policies=Policies(registry(), load_policy("default")))
    first, second = lab.submit(), lab.submit()
    own = OWN.replace('binding = "auto"', 'binding = "loose"')
    with lab.store.write() as uow:
        uow.policies.override(
            second,
            PolicyOverride(
                benchmark_id=second, name="own", version=1, text=own, by_user_id="op", at=make.NOW
            ),
        )
    outcome = lab.cycle.run()
    assert len(outcome.placed) == 2
    assert outcome.queue.policy == "default"
    assert [attempt.binding for attempt in lab.attempts(second)] == [Binding.LOOSE]
    assert [attempt.binding for attempt in lab.attempts(first)] != [Binding.LOOSE]
    with lab.store.read() as uow:
        policies = {
            each: uow.cycles.get(uow.cycles.explaining_cycle(each)).policy
            for each in (first, second)
        }
        assert policies == {first: DEFAULT_KEY, second: "own/1"}
        assert not uow.policies.overrides()  # of those that wait
    assert lab.attempts(first)[0].target_uid != lab.attempts(second)[0].target_uid


def test_a_policy_of_its_own_that_no_longer_works_leaves_it_to_the_active_one(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A, policies=Policies(registry(), load_policy("default")))
    benchmark_id = lab.submit()
    with lab.store.write() as uow:
        gone = DEFAULT.replace("least_loaded", "uninstalled")
        uow.policies.override(
            benchmark_id,
            PolicyOverride(
                benchmark_id=benchmark_id,
                name="gone",
                version=1,
                text=gone,
                by_user_id="op",
                at=make.NOW,
            ),
        )
    lab.cycle.run()
    assert lab.attempts(benchmark_id)


def test_a_reserved_start_holds_against_policies_for_one_benchmark(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policies=Policies(registry(), load_policy("default")))
    soon = lab.clock.now() + timedelta(seconds=60)
    lab.submit(target_uid=A, start_time=soon)
    other = lab.submit()  # may run for 100 s
    with lab.store.write() as uow:
        uow.policies.override(
            other,
            PolicyOverride(
                benchmark_id=other,
                name="native",
                version=1,
                text=_built_in("native"),
                by_user_id="op",
                at=make.NOW,
            ),
        )
    lab.cycle.run()
    assert not lab.attempts(other)
    waiting = lab.waiting(other)
    assert waiting.reason is WaitingReason.RESERVED


def test_a_booking_pays_for_the_time_for_which_its_board_stands_idle(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    booked = lab.submit(start_time=lab.clock.now() + timedelta(seconds=60))
    lab.submit()  # may run for 100 s
    for _ in range(4):
        lab.cycle.run()
        lab.clock.forward(5)
    assert not lab.attempts(booked)
    with lab.store.read() as uow:
        owner = uow.benchmarks.get(booked).user_id
        (idle,) = uow.credits.idle_times(owner, limit=9)
        spent = uow.credits.balance(owner).spent
    assert (idle.keeper_id, idle.board_s, idle.charged) == (booked, 10.0, 10.0)
    assert spent == 10.0


@pytest.mark.parametrize(("hold_quantile", "placed"), [(1.0, False), (0.9, True)])
def test_before_a_reserved_start_a_policy_may_use_predicted_run_times(
    tmp_path: Path, hold_quantile: float, placed: bool
) -> None:
    lab = Lab(tmp_path, A, policy=replace(load_policy("default"), hold_quantile=hold_quantile))
    for _ in range(8):
        job_id = lab.running(lab.submit())
        lab.clock.forward(5)
        lab.complete(job_id)
        lab.turn()
    # On any board that it could use; there is one.
    promised = lab.submit(start_time=lab.clock.now() + timedelta(seconds=60))
    other = lab.submit()  # may run for 100 s, and is expected to run for 5 s
    lab.turn()
    assert bool(lab.attempts(other)) is placed
    if not placed:
        waiting = lab.waiting(other)
        assert waiting.reason is WaitingReason.RESERVED
        lab.clock.forward(60)
        lab.running(promised)


def test_a_benchmark_preempted_after_its_reserved_start_waits_like_all_others(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A)
    promised = lab.submit(
        start_time=lab.clock.now() + timedelta(seconds=10), benchmark_type=BenchmarkType.TYPE3
    )
    lab.clock.forward(10)
    job_id = lab.running(promised)
    lab.clock.forward(20)
    lab.progress(job_id, 5.0, "warmup")
    urgent = lab.submit(job_completion_threshold=90)
    assert lab.turn().preempted == (job_id,)
    lab.turn()
    lab.turn()
    assert lab.attempts(urgent)
    assert len(lab.attempts(promised)) == 1


def test_operators_alone_give_a_benchmark_a_policy(api: Api) -> None:
    api.upload()
    benchmark_id = api.submit()
    path = f"/v1/benchmarks/{benchmark_id}/policy"
    assert api.as_().put(path, json={"name": "native"}).status_code == 403
    operator = api.as_("operator")
    assert operator.put(path, json={"name": "nonesuch"}).status_code == 422
    assert (
        operator.put(path.replace(benchmark_id, "b-no"), json={"name": "native"}).status_code == 404
    )
    assert operator.put(path, json={"name": "native"}).status_code == 204
    [override] = operator.get("/v1/policies").json()["overrides"]
    assert (override["benchmark_id"], override["policy"]) == (benchmark_id, "native")
    assert operator.delete(path).status_code == 204
    assert operator.get("/v1/policies").json()["overrides"] == []
    kinds = [
        (each["kind"], each["data"]["policy"])
        for each in operator.get(f"/v1/benchmarks/{benchmark_id}/events").json()["items"]
        if each["kind"] == "policy.override"
    ]
    assert kinds == [("policy.override", "native"), ("policy.override", None)]


def test_a_shadow_has_its_own_weights_and_its_scorers_are_suspended_under_its_own_name(
    tmp_path: Path,
) -> None:
    class Slow:
        name, objective, kind = "slow", "load", ScorerKind.HEURISTIC
        unit = ScoreUnit.PREFERENCE

        def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
            lab.clock.forward(10)
            return np.ones(len(pairs), dtype=np.float32)

    known = registry(entry_points=False)
    known.add(Kind.SCORER, "slow", Slow)
    lab = Lab(tmp_path, A, B, policies=Policies(known, load_policy("default")))
    text = OWN
    text += '\n[[scorers]]\nname = "slow"\nweight = 1.0\nbudget_s = 1.0\n'
    with lab.store.write() as uow:
        uow.policies.activate(
            PolicyActivation(
                role=PolicyRole.SHADOW, name="own", version=1, text=text, by_user_id="op",
                at=make.NOW,
            )
        )  # fmt: skip
        for policy, weight in ((DEFAULT_KEY, 0.9), ("own/1", 0.2)):
            uow.scoring.save(ScorerState(policy=policy, scorer="least_loaded", weight=weight))

    def shadow() -> Knowledge:
        """Of the next one."""
        lab.submit()
        lab.cycle.decide_shadow(lab.cycle.run())
        with lab.store.read() as uow:
            [newest] = uow.cycles.shadows(since=None, until=None, limit=1)
            return cycle_input_of(uow.cycles.get(newest.seq)).knowledge

    assert shadow().weights == {"least_loaded": 0.2}
    for _ in range(SUSPEND_AFTER_FAULTS - 1):
        assert not shadow().suspended
    assert "10 s of 1 s" in shadow().suspended["slow"]
    with lab.store.read() as uow:
        assert "slow" not in uow.scoring.states(DEFAULT_KEY)
        for head in uow.cycles.page(limit=9):
            assert cycle_input_of(uow.cycles.get(head.seq)).knowledge.weights == {
                "least_loaded": 0.9
            }


def test_a_shadow_is_compared_with_what_was_done(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, policies=Policies(registry(), load_policy("default")))
    early = lab.submit(user_priority=1)
    lab.clock.forward(1)
    late = lab.submit(user_priority=9)
    fifo = OWN.replace('queue_policy = "priority_response"', 'queue_policy = "fifo"')
    assert fifo.count("fifo") > DEFAULT.count("fifo")
    with lab.store.write() as uow:
        uow.board_overrides.put(
            BoardOverride(
                target_uid=B, drained=True, reason="one board", by_user_id="op", at=make.NOW
            )
        )
        uow.policies.activate(
            PolicyActivation(
                role=PolicyRole.SHADOW, name="own", version=1, text=fifo, by_user_id="op",
                at=make.NOW,
            )
        )  # fmt: skip
    lab.cycle.decide_shadow(lab.cycle.run())
    [(seq, compared)] = Explanations(lab.store, registry(), lab.clock).shadows(None, None, 9)
    with lab.store.read() as uow:
        [active] = uow.cycles.page(limit=9)
    assert (seq, compared.policy) == (active.seq, "own/1")
    assert (compared.pending, compared.placed_then, compared.placed_now) == (2, 1, 1)
    assert compared.reordered == 2
    assert {each.benchmark_id: (each.then, each.now) for each in compared.differences} == {
        late: (A, None),
        early: (None, A),
    }
    assert not Explanations(lab.store, registry(), lab.clock).shadows(None, compared.decided_at, 9)


def test_one_that_waits_counts_once_however_many_cycles_compare_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shadow would place it on the other board in each of three cycles; the active never."""
    lab = Lab(tmp_path, A, B, policies=Policies(registry(), load_policy("default")))
    drained = BoardOverride(
        target_uid=B, drained=True, reason="one board", by_user_id="op", at=make.NOW
    )
    allows = DEFAULT.replace('name = "default"', 'name = "own"').replace('"drained", ', "")
    with lab.store.write() as uow:
        uow.board_overrides.put(drained)
        uow.policies.activate(
            PolicyActivation(
                role=PolicyRole.SHADOW, name="own", version=1, text=allows, by_user_id="op",
                at=make.NOW,
            )
        )  # fmt: skip
    first = lab.submit()
    lab.cycle.decide_shadow(lab.cycle.run())
    waits = lab.submit(target=None, target_uid=B)
    for _ in range(3):
        lab.clock.forward(1)  # later than the others, which keep their places in the queue
        lab.submit()  # news, so that the cycle is recorded
        lab.cycle.decide_shadow(lab.cycle.run())
    found = [
        each for _, each in Explanations(lab.store, registry(), lab.clock).shadows(None, None, 9)
    ]
    assert [each.placed_then for each in found] == [0, 0, 0, 1]
    assert [each.placed_ids_now for each in found] == [{waits}, {waits}, {waits}, {first}]
    totals = totals_of(found)
    assert (totals.cycles, totals.placed_then, totals.placed_now) == (4, 1, 2)
    rows = [
        {"cycle": number, "at": make.NOW.isoformat(), **asdict(difference)}
        for number, each in zip((4, 3, 2, 1), found, strict=True)
        for difference in each.differences
    ]
    show_differences(rows, then="ACTIVE", now="SHADOW")
    (_, line) = capsys.readouterr().out.splitlines()
    assert line.split()[0] == "2"
    assert line.split()[-4:] == ["3", waits, "waits", B]
