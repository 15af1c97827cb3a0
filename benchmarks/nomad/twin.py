"""How long the twin takes for 10,000 boards: from the question to what is decided on."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.nomad import lab
from benchmarks.tables import Row, median, median_interval
from deploy.process import await_ready, free_port
from edgeyard.devices.model import Board
from edgeyard.scheduler.clusters.nomad import NomadAccess, NomadCluster
from edgeyard.scheduler.twin.twin import Twin

BOARDS = 10_000
ROUNDS = 9


def run(folder: Path) -> list[Row]:
    """Each round asks twice: a cluster that was never seen, then one that is as it was."""
    content = _copies(_real_node(folder / "nomad"))
    path = folder / "nodes.json"
    path.write_bytes(content)
    port = free_port()
    serving = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.nomad.copied_nodes", str(path), str(port)]
    )
    access = NomadAccess(address=f"http://127.0.0.1:{port}")
    first, again = [], []
    try:
        await_ready(serving, port, "/")
        expected = _boards(access)
        for _ in range(ROUNDS):
            cluster, twin = NomadCluster(access), Twin(expected)
            first.append(_look(cluster, twin))
            again.append(_look(cluster, twin))
            cluster.close()
    finally:
        serving.kill()
        serving.wait()
    middle, low, high = median_interval(first)
    return [
        Row(
            f"twin {BOARDS}",
            middle,
            "s",
            note=f"{BOARDS} nodes with a board each, copied from a real one "
            f"({len(content) / 1e6:.0f} MB), over HTTP, to the snapshot that is decided on; "
            f"{ROUNDS} rounds, median's interval {low:.2f}-{high:.2f}; asked again, nodes "
            f"unchanged: {median(again):.2f} s",
        )
    ]


def _look(cluster: NomadCluster, twin: Twin) -> float:
    began = time.perf_counter()
    twin.refresh(cluster.hosts(), datetime.now(UTC))
    snapshot = twin.snapshot(datetime.now(UTC), drained={}, holders={})
    took_s = time.perf_counter() - began
    assert int(snapshot.online.sum()) == BOARDS
    return took_s


def _boards(access: NomadAccess) -> list[Board]:
    cluster = NomadCluster(access)
    try:
        return [board for host in cluster.hosts() for board in host.boards]
    finally:
        cluster.close()


def _real_node(folder: Path) -> str:
    with lab.nomad(folder, [lab.boards("rpi5", 1)]) as cluster:
        nodes = cluster.call("GET", "/v1/nodes?resources=true")
    return json.dumps(nodes[0], separators=(",", ":"))


def _copies(node: str) -> bytes:
    node_id = json.loads(node)["ID"]
    copies = (
        node.replace("rpi5-0001-0001", f"rpi5-{number // 1000:04}-{number % 1000:04}").replace(
            node_id, f"{number:08x}{node_id[8:]}"
        )
        for number in range(BOARDS)
    )
    return f"[{','.join(copies)}]".encode()
