"""From submission to the start of the task on an idle embedded board."""

import tempfile
from datetime import datetime
from pathlib import Path

from benchmarks.models import light
from benchmarks.tables import Row, median_interval
from deploy.process import edgeyard

RUNS = 25


def run() -> list[Row]:
    """One after another, so that the board is idle each time."""
    with (
        tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder,
        edgeyard(Path(folder) / "data") as server,
    ):
        model = server.upload(light("squeezenet"))
        waits = []
        for _ in range(RUNS + 1):
            made = server.call(
                "POST",
                "/v1/benchmarks",
                {
                    "model": model["name"],
                    "runtime": "ort",
                    "benchmark_type": "TYPE1",
                    "target": "emufast",
                    "nb_inference": 5,
                },
            )
            ended = server.wait(str(made["benchmark_id"]))
            assert ended["status"] == "completed", ended
            attempts = ended["attempts"]
            started = datetime.fromisoformat(attempts[0]["started_at"])
            submitted = datetime.fromisoformat(str(ended["submit_time"]))
            waits.append((started - submitted).total_seconds() * 1000)
    middle, low, high = median_interval(waits[1:])
    return [
        Row(
            "submit to start",
            middle,
            "ms",
            note=f"server's submit time to start of the task's process; {RUNS} runs, "
            f"median's interval {low:.0f}-{high:.0f}, worst {max(waits[1:]):.0f}",
        )
    ]
