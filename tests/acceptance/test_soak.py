"""Random kill -9 under load: nothing is lost, nothing is doubled.

``make soak`` runs 1,000 kills of each cluster; in CI there are some.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeyard.devices import testbed
from edgeyard.devices.testbed import LoopbackNomad
from tests.acceptance.soak import Soak, Victim, nomad_task_processes, save
from tests.nomad_cluster import HEARTBEAT_S, HOSTS, nomad_binary, settings_of

KILLS = int(os.environ.get("SOAK_KILLS", "10"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 30 * KILLS)]


def test_nothing_is_lost_or_doubled_by_random_kills(tmp_path: Path) -> None:
    tally = Soak(tmp_path, MODEL, "emumid", seed=SEED).run(KILLS)
    save(tally, "embedded")
    assert (tally.lost, tally.doubled, tally.broken) == ([], [], [])
    assert tally.kills.total() == KILLS
    assert tally.completed == tally.submitted


@pytest.fixture
def nomad(tmp_path: Path) -> Iterator[LoopbackNomad]:
    """A cluster of its own: its agents are killed."""
    made = testbed.up(tmp_path / "nomad", nomad_binary(), HOSTS, heartbeat_s=HEARTBEAT_S)
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
        runners=lambda: nomad_task_processes(nomad.folder),
        seed=SEED,
    )
    tally = soak.run(KILLS)
    save(tally, "nomad")
    assert (tally.lost, tally.doubled, tally.broken) == ([], [], [])
    assert tally.kills.total() == KILLS
    assert tally.completed == tally.submitted
