"""Scorers that are services: columns out, numbers back, within address rules and time."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgeyard.benchmark_api.fetch import AddressRules
from edgeyard.benchmark_api.remote_scorer import (
    MAX_EXTRA_BYTES,
    MAX_EXTRAS_BYTES,
    RemoteScorer,
    RemoteScorers,
    packed,
)
from edgeyard.errors import UrlRefused
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, all_pairs, pending, sample_batch
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.framework.runner import PluginRunner
from tests.builders.web import QuietHandler, serving

BATCH = sample_batch(40, 30)
PAIRS = all_pairs(BATCH)
LOCAL = AddressRules(["127.0.0.1"])


def npy(scores: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, scores, allow_pickle=True)
    return file.getvalue()


@contextmanager
def service(answer: Callable[[Any], bytes], status: int = 200) -> Iterator[str]:
    """Its URL; it answers what ``answer`` makes of the columns."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            columns = np.load(io.BytesIO(self.body()), allow_pickle=False)
            self.answer(answer(columns), status)

    with serving(Handler) as url:
        yield f"{url}/score"


def test_a_service_gets_columns_and_its_numbers_come_back() -> None:
    def prefer_ram(columns: Any) -> bytes:
        ram = columns["board_ram_bytes"] / columns["board_ram_bytes"].max()
        assert set(columns["board_uid"]) == set(BATCH.snapshot.uids)
        assert len(columns["pair_run_s"]) == len(columns["pair_failure_rate"])
        return npy(ram[columns["pair_board"]].astype(np.float32))

    with service(prefer_ram) as url:
        scorer = RemoteScorer("lab", url, {"objective": "size", "kind": "heuristic"}, LOCAL)
        found = PluginRunner().score(
            WeightedScorer(scorer=scorer, budget_s=60.0), 1.0, BATCH, PAIRS
        )
    assert found is not None
    assert (found.objective, found.kind) == ("size", ScorerKind.HEURISTIC)
    ram = BATCH.snapshot.ram_bytes / BATCH.snapshot.ram_bytes.max()
    assert np.allclose(found.scores, ram[PAIRS.boards])


def test_a_service_gets_the_budget_and_what_descriptions_state_besides() -> None:
    asked = [
        pending("b-1", budget=2.5, extra='{"room": "cold", "watts": [1, 2]}'),
        pending("b-2"),
    ]
    batch = build_batch(BATCH.snapshot, asked, NOW, 0)
    columns = np.load(io.BytesIO(packed(batch, all_pairs(batch))), allow_pickle=False)
    extras = json.loads(columns["class_extra"].tobytes())
    first, second = batch.class_of_job.tolist()
    assert (extras[first], extras[second]) == ({"room": "cold", "watts": [1, 2]}, {})
    assert columns["class_budget"][first] == 2.5
    assert np.isnan(columns["class_budget"][second])


def test_what_descriptions_state_is_bounded_each_and_together() -> None:
    def extra(number: int, size: int) -> str:
        bare = json.dumps({"n": number, "text": ""}, separators=(",", ":"))
        return bare.replace('""', f'"{"x" * (size - len(bare))}"')

    asked = [
        pending("long", extra=extra(0, MAX_EXTRA_BYTES + 1)),
        *(pending(f"b-{n}", extra=extra(n, MAX_EXTRA_BYTES)) for n in range(1000, 1300)),
    ]
    batch = build_batch(BATCH.snapshot, asked, NOW, 0)
    columns = np.load(io.BytesIO(packed(batch, all_pairs(batch))), allow_pickle=False)
    extras = json.loads(columns["class_extra"].tobytes())
    assert len(extras) == len(asked)
    assert extras[batch.class_of_job[0]] == {}
    assert sum(map(bool, extras)) == MAX_EXTRAS_BYTES // MAX_EXTRA_BYTES


@pytest.mark.parametrize(
    ("said", "status", "cause", "detail"),
    [
        (npy(np.zeros(len(PAIRS))), 500, "raised", "it answered 500"),
        (b"not an array", 200, "raised", ""),
        (npy(np.array([{"a": 1}], dtype=object)), 200, "raised", "allow_pickle"),
        (npy(np.zeros(len(PAIRS), dtype=np.int64)), 200, "raised", "not an array of floats"),
        (npy(np.zeros(3, dtype=np.float32)), 200, "nonsense", "shape (3,)"),
        (npy(np.full(len(PAIRS), 7.0, dtype=np.float32)), 200, "nonsense", "above 1"),
        (b"\0" * (20 * len(PAIRS)), 200, "raised", "an answer of more than"),
    ],
)
def test_an_answer_that_is_none_is_refused(
    said: bytes, status: int, cause: str, detail: str
) -> None:
    with service(lambda columns: said, status) as url:
        scorer = RemoteScorer("lab", url, {}, LOCAL)
        runner = PluginRunner()
        assert runner.score(WeightedScorer(scorer=scorer, budget_s=60.0), 1.0, BATCH, PAIRS) is None
    (fault,) = runner.faults
    assert fault.cause == cause
    assert detail in fault.detail


def test_a_service_that_stalls_holds_nobody_up() -> None:
    goes_on = threading.Event()

    def stall(columns: Any) -> bytes:
        goes_on.wait(30.0)
        return b""

    with service(stall) as url:
        scorer = RemoteScorer("lab", url, {}, LOCAL)
        runner = PluginRunner()
        for _ in range(2):
            assert (
                runner.score(WeightedScorer(scorer=scorer, budget_s=0.1), 1.0, BATCH, PAIRS) is None
            )
        goes_on.set()
    assert [fault.cause for fault in runner.faults] == ["timed_out", "timed_out"]


def test_a_private_address_is_asked_only_where_the_operator_allows_it() -> None:
    for url in ("http://localhost:9/score", "http://127.0.0.1:9/", "http://[::ffff:10.0.0.1]/"):
        with pytest.raises(UrlRefused):
            RemoteScorer("lab", url, {}, AddressRules())
    inside = RemoteScorer(
        "lab", "http://models.example.org/", {}, AddressRules(), lambda host, port: ["10.0.0.1"]
    )
    with pytest.raises(UrlRefused):
        inside.score(BATCH, replace(PAIRS, budget_s=5.0))
    with pytest.raises(ValueError, match="colour"):
        RemoteScorer("lab", "https://example.org/score", {"colour": "red"}, AddressRules())


def test_a_policy_names_a_service_by_its_url() -> None:
    with service(lambda columns: npy(np.zeros(len(columns["pair_board"])))) as url:
        known = registry(entry_points=False, remote=RemoteScorers(LOCAL).scorer)
        choice = ScorerChoice(name="lab", weight=1.0, url=url, options={"kind": "ilp"})
        (weighted,) = known.resolve(replace(load_policy("default"), scorers=(choice,))).scorers
        assert weighted.scorer.kind is ScorerKind.ILP
        assert PluginRunner().score(replace(weighted, budget_s=60.0), 1.0, BATCH, PAIRS) is not None
