"""Nomad's rank as simulations have it, against the choices of a real agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgeyard.scheduler.clusters.nomad import NomadCluster
from edgeyard.scheduler.ports import JobRun
from edgeyard.simulator.nomad_rank import LIMIT, fit_scores
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import Submitter, a_job, where
from tests.nomad_cluster import access_of, clear

pytestmark = [pytest.mark.nomad, pytest.mark.xdist_group("nomad")]

SLEEP = "import time; time.sleep(600)"
DEFAULT_NEED = np.array([100.0, 300.0])
"""MHz and MB of a job that states neither."""


@pytest.fixture
def lab(nomad_cluster: LoopbackNomad) -> Iterator[Submitter]:
    clear(nomad_cluster)
    lab = Submitter(NomadCluster(access_of(nomad_cluster)))
    yield lab
    lab.cluster.close()
    clear(nomad_cluster)


def ask(cluster: LoopbackNomad, path: str) -> Any:
    return cluster.call("GET", path)


def test_a_real_agent_scores_and_chooses_hosts_as_the_simulation_does(
    lab: Submitter, nomad_cluster: LoopbackNomad
) -> None:
    """Loose jobs for a family that two of the three hosts have: both are ranked each time."""
    totals, used = {}, {}
    for stub in ask(nomad_cluster, "/v1/nodes"):
        node = ask(nomad_cluster, f"/v1/node/{stub['ID']}")
        has, kept = node["NodeResources"], node["ReservedResources"]
        totals[stub["ID"]] = np.array(
            [
                has["Cpu"]["CpuShares"] - kept["Cpu"]["CpuShares"],
                has["Memory"]["MemoryMB"] - kept["Memory"]["MemoryMB"],
            ],
            dtype=np.float64,
        )
        used[stub["ID"]] = np.zeros(2)
    compared = 0
    for number in range(1, 6):  # all boards of the family: one on the first host, four on another
        job_id = f"benchmark-{number}"
        lab.dispatch(a_job(SLEEP, where("family", "=", "rpi5"), job_id=job_id), job_id=job_id)
        lab.until(job_id, JobRun.RUNNING)
        [stub] = ask(
            nomad_cluster, f"/v1/job/{job_id}/allocations?namespace={nomad_cluster.namespace}"
        )
        alloc = ask(
            nomad_cluster, f"/v1/allocation/{stub['ID']}?namespace={nomad_cluster.namespace}"
        )
        told = {
            each["NodeID"]: each["NormScore"] for each in alloc["Metrics"]["ScoreMetaData"] or ()
        }
        assert told
        for node, score in told.items():
            [own] = fit_scores(totals[node][None], (used[node] + DEFAULT_NEED)[None])
            assert score == pytest.approx(own, abs=1e-6)
            compared += 1
        assert len(told) <= LIMIT
        assert told[alloc["NodeID"]] == max(told.values())
        used[alloc["NodeID"]] += DEFAULT_NEED
    assert compared > 5, "at least once two hosts were ranked"
