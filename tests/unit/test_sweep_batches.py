"""States of batch jobs, as Nomad's answers about jobs and allocations mean them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import respx

from edgeyard.scheduler.clusters.nomad import NomadAccess
from edgeyard.training.batches import BatchState, BatchStatus
from edgeyard.training.nomad_batches import NomadBatches
from tests.builders.nomad import ADDRESS

JOB_ID = "edgeyard-sweep-1"
ENDED = {"task": {"State": "dead", "Failed": False}}


@pytest.fixture
def nomad() -> Iterator[respx.Router]:
    with respx.mock(base_url=ADDRESS, assert_all_called=False) as router:
        router.get("/v1/jobs").respond(json=[{"ID": JOB_ID, "CreateIndex": 20}])
        router.get("/v1/evaluations").respond(json=[])
        yield router


def status(nomad: respx.Router, *allocations: Mapping[str, object]) -> BatchStatus | None:
    """State of a job that was created at index 20."""
    answer = [{"JobID": JOB_ID, "NodeName": "host-1", **each} for each in allocations]
    nomad.get("/v1/allocations").respond(json=answer)
    batches = NomadBatches(NomadAccess(address=ADDRESS, namespace="lab"))
    try:
        return batches.status([JOB_ID]).get(JOB_ID)
    finally:
        batches.close()


def test_the_newest_allocation_counts(nomad: respx.Router) -> None:
    lost = {"ID": "a", "CreateIndex": 21, "ClientStatus": "lost"}
    done = {"ID": "b", "CreateIndex": 22, "ClientStatus": "complete", "TaskStates": ENDED}
    assert status(nomad, done, lost) == BatchStatus(state=BatchState.COMPLETED, run_id="b")
    assert status(nomad, lost) == BatchStatus(state=BatchState.LOST, run_id="a")


def test_allocations_of_a_removed_job_say_nothing_about_the_next_of_its_id(
    nomad: respx.Router,
) -> None:
    earlier = {"ID": "a", "CreateIndex": 11, "ClientStatus": "failed", "TaskStates": {}}
    assert status(nomad, earlier) == BatchStatus(state=BatchState.WAITING)


def test_a_job_that_was_removed_is_unknown_although_its_allocation_is_there(
    nomad: respx.Router,
) -> None:
    nomad.get("/v1/jobs").respond(json=[])
    assert status(nomad, {"ID": "a", "CreateIndex": 21, "ClientStatus": "complete"}) is None


def test_a_run_whose_node_is_not_heard_goes_on(nomad: respx.Router) -> None:
    found = status(nomad, {"ID": "a", "CreateIndex": 21, "ClientStatus": "unknown"})
    assert found is not None
    assert found.state is BatchState.RUNNING
    assert "host-1" in found.reason
