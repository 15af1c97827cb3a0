"""What the API relies on in an engine: one suite for the real one and for the tests' fake."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.bootstrap import Server
from edgeyard.benchmark_api.services import EngineQueries
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import NotFound
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.election import LeaderView
from edgeyard.scheduler.engine.preview import Candidate
from edgeyard.scheduler.model.benchmark import BenchmarkType, JobDescription
from tests.builders.api import FakeEngine
from tests.builders.cluster import eventually
from tests.builders.engine import a_model

NOBODYS = "rpi9"


def description(target: str) -> JobDescription:
    return JobDescription(
        model="net.onnx", runtime="ort", benchmark_type=BenchmarkType.TYPE1, target=target
    )


@dataclass(frozen=True)
class Lab:
    """An engine that knows its boards.

    Attributes:
        waiting: Id of a benchmark that waits for a board that is offline.
        free: A family that has a free board.
    """

    engine_now: Callable[[], EngineQueries]
    leader: Callable[[], LeaderView]
    waiting: str
    free: str

    @property
    def engine(self) -> EngineQueries:
        return self.engine_now()


def _fake(folder: Path) -> Iterator[Lab]:
    engine = FakeEngine(order=("waits",), explained=frozenset({"waits"}))
    yield Lab(lambda: engine, lambda: engine.led, "waits", "rpi4b")


def _real(folder: Path) -> Iterator[Lab]:
    settings: dict[str, Any] = {"data_dir": folder / "data"}
    server = Server(Settings(**settings), port=1)
    try:
        elected = server.engine
        assert math.isinf(elected.current.twin_age_s())
        assert elected.current.comparison() is None
        elected.start()
        with server.store.write() as uow:
            made = lifecycle.submit(
                uow, description("rpi4b"), "ann", [a_model()], datetime.now(UTC)
            )
        elected.wake()
        its_id = made.benchmark_id
        eventually(lambda: its_id in elected.current.queue().order, "it waits", 60.0)
        eventually(lambda: _is_explained(elected.current, its_id), "it is explained", 60.0)
        yield Lab(lambda: elected.current, elected.leader, its_id, "emumid")
    finally:
        server.close()


def _is_explained(engine: EngineQueries, benchmark_id: str) -> bool:
    try:
        return engine.explanation(benchmark_id).waiting is not None
    except NotFound:
        return False


@pytest.fixture(scope="module", params=[_fake, _real], ids=["fake", "real"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    make: Callable[[Path], Iterator[Lab]] = request.param
    yield from make(tmp_path_factory.mktemp("lab"))


def test_a_server_without_others_leads(lab: Lab) -> None:
    leader = lab.leader()
    assert leader.leads
    assert leader.server_id


def test_waking_it_costs_nothing(lab: Lab) -> None:
    began = time.process_time()
    for _ in range(100):
        lab.engine.wake()
    assert time.process_time() - began < 1.0


def test_its_boards_are_known_and_each_is_listed_once(lab: Lab) -> None:
    boards = lab.engine.boards()
    uids = [each.board.target_uid for each in boards]
    assert uids
    assert len(set(uids)) == len(uids)
    expected = [each.expected for each in boards]
    assert expected == sorted(expected, reverse=True)
    assert math.isfinite(lab.engine.twin_age_s())
    assert lab.engine.comparison() is not None
    assert lab.engine.cluster_problem() == ""


def test_a_preview_judges_every_board_and_shows_the_job(lab: Lab) -> None:
    preview = lab.engine.preview(description(lab.free), [a_model()], "ann")
    assert preview.explanation.placement is not None
    assert preview.explanation.placement.family == lab.free
    assert {each.target_uid for each in preview.explanation.verdicts} == {
        each.board.target_uid for each in lab.engine.boards()
    }
    assert preview.hcl.startswith("job ")


def test_a_preview_of_what_no_board_could_run_has_no_job(lab: Lab) -> None:
    preview = lab.engine.preview(description(NOBODYS), [a_model()], "ann")
    assert preview.explanation.placement is None
    assert all(each.reason is not None for each in preview.explanation.verdicts)
    assert preview.hcl == ""


def test_a_preview_changes_nothing(lab: Lab) -> None:
    lab.engine.preview(description(lab.free), [a_model()], "ann")
    assert set(lab.engine.queue().order) == {lab.waiting}


def test_the_queue_says_who_waits_and_by_which_policy(lab: Lab) -> None:
    queue = lab.engine.queue()
    assert list(queue.order) == [lab.waiting]
    assert queue.never <= set(queue.order)
    assert queue.policy == "default"
    assert datetime.fromisoformat(queue.decided_at_iso).tzinfo is not None


def test_what_waits_is_explained(lab: Lab) -> None:
    explanation = lab.engine.explanation(lab.waiting)
    assert explanation.benchmark_id == lab.waiting
    assert explanation.waiting is not None
    assert explanation.placement is None
    assert lab.engine.changes(lab.waiting) is not None


def test_nothing_is_known_of_what_no_cycle_has_seen(lab: Lab) -> None:
    with pytest.raises(NotFound):
        lab.engine.explanation("unheard-of")
    with pytest.raises(NotFound):
        lab.engine.changes("unheard-of")
    assert lab.engine.forecast("unheard-of") is None


def test_no_start_is_predicted_where_no_board_can_run_it(lab: Lab) -> None:
    candidate = Candidate(kind=NOBODYS, find=lambda: (description(NOBODYS), [a_model()]))
    assert lab.engine.forecast_submission(candidate, "ann") is None


def test_without_trouble_nothing_is_reported(lab: Lab) -> None:
    assert lab.engine.claims() == {}
    assert lab.engine.repair_failures() == {}
    assert list(lab.engine.shadows(None, None, 10)) == []
    coverage = lab.engine.coverage()
    assert 0 <= coverage.starts_held <= coverage.started
    assert 0 <= coverage.ends_held <= coverage.ended
