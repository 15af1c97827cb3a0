"""Random kill -9 under load: nothing is lost, nothing is doubled.

``make soak`` runs 1,000 kills in all; in CI there are some.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from edgeyard import testbed
from edgeyard.testbed import LoopbackNomad
from tests.acceptance.soak import ClusterTask, Soak, Tally, Victim, save
from tests.nomad_cluster import HEARTBEAT_S, HOSTS, nomad_binary, settings_of

KILLS = int(os.environ.get("SOAK_KILLS", "0"))
"""In all; 0: a few of each."""

EMBEDDED = KILLS * 4 // 10 or 10
NOMAD = KILLS * 3 // 10 or 10
POSTGRES = KILLS - EMBEDDED - NOMAD if KILLS else 8
SEED = int(os.environ.get("SOAK_SEED", "1"))
MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 + 30 * KILLS)]


def test_nothing_is_lost_or_doubled_by_random_kills(tmp_path: Path) -> None:
    hold(Soak(tmp_path, MODEL, "emumid", seed=SEED), EMBEDDED, "embedded, SQLite")


@pytest.mark.postgres
def test_nothing_is_lost_or_doubled_by_random_kills_on_postgresql(
    tmp_path: Path, postgres_url: str
) -> None:
    settings = {"EDGEYARD_DATABASE_URL": postgres_url}
    soak = Soak(tmp_path, MODEL, "emumid", environment=settings, seed=SEED)
    hold(soak, POSTGRES, "embedded, PostgreSQL")


@pytest.fixture
def nomad(tmp_path: Path) -> Iterator[LoopbackNomad]:
    """A cluster of its own: its agents are killed."""
    made = testbed.make(tmp_path / "nomad", nomad_binary(), HOSTS, heartbeat_s=HEARTBEAT_S).up()
    yield made
    made.down()


@pytest.mark.nomad
@pytest.mark.xdist_group("nomad-soak")
def test_nothing_is_lost_or_doubled_by_random_kills_on_nomad(
    tmp_path: Path, nomad: LoopbackNomad
) -> None:
    chosen = random.Random(SEED)
    killed: list[testbed.Agent] = []

    def kill_agent() -> bool:
        killed[:] = [chosen.choice(nomad.clients[:2])]
        killed[0].kill()
        return True

    soak = Soak(
        tmp_path,
        MODEL,
        "rpi5",
        victims=[Victim(name="agent", kill=kill_agent, revive=lambda: killed[0].start())],
        environment=settings_of(nomad, tmp_path / "inventory.json"),
        tasks=nomad.folder,
        allocations=lambda: tasks_of(nomad),
        seed=SEED,
    )
    hold(soak, NOMAD, "Nomad, SQLite")


def hold(soak: Soak, kills: int, name: str) -> Tally:
    """Run it, and check that what is promised was held."""
    tally = soak.run(kills, name)
    save(tally, name)
    assert (tally.lost, tally.doubled, tally.broken) == ([], [], [])
    assert tally.kills.total() == kills
    assert tally.completed == tally.submitted
    return tally


def tasks_of(nomad: LoopbackNomad) -> Sequence[ClusterTask]:
    """All tasks that Nomad has started, with the boards that it gave them."""
    found = nomad.call("GET", f"/v1/allocations?namespace={nomad.namespace}&resources=true")
    tasks: list[ClusterTask] = []
    for each in found:
        for name, state in (each["TaskStates"] or {}).items():
            if state["StartedAt"]:
                (device,) = each["AllocatedResources"]["Tasks"][name]["Devices"]
                (target_uid,) = device["DeviceIDs"]
                tasks.append(ClusterTask(each["JobID"], each["ID"], target_uid))
    return tasks
