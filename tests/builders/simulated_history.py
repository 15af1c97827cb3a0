"""The history that a simulated lab would have recorded, as `edgeyard export` writes it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from edgeyard.simulator import runs
from edgeyard.simulator.lab.boards import Boards
from edgeyard.simulator.lab.jobs import around_s, draw_jobs
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import Scenario
from tests.builders.history import board, user, write_export


def write_simulated_history(
    folder: Path, scenario: Scenario, run: SimulatedRun, began: datetime
) -> Path:
    """Write what a server would have recorded in a simulated lab.

    Args:
        began: When the simulation began.
    """
    assert scenario.lab is not None
    boards = Boards(scenario.lab, run.meta.seed)
    jobs = draw_jobs(scenario, scenario.lab, boards, run.meta.seed)

    def at(seconds: float) -> datetime:
        return began + timedelta(seconds=float(seconds))

    benchmarks = []
    for row, job in enumerate(jobs):
        description = {
            "model": job.description.model,
            "runtime": job.description.engine,
            "benchmark_type": job.description.benchmark_type.value,
            "target": job.family,
            "user_priority": job.description.user_priority,
            **({"target_uid": job.target_uid} if job.target_uid else {}),
            **({"deadline": at(job.deadline_s).isoformat()} if job.deadline_s else {}),
        }
        benchmarks.append(
            {
                "benchmark_id": job.job_id,
                "user_id": job.user,
                "status": runs.STATUSES[int(run.jobs.status[row])],
                "submit_time": at(job.submit_s),
                "ended_at": at(run.jobs.end_s[row]),
                "description": json.dumps(description),
            }
        )
    outcomes: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}
    held = run.occupancy
    for row in range(len(held)):
        place = int(held.job[row])
        number = numbers[place] = numbers.get(place, 0) + 1
        job, which = jobs[place], boards.rows[int(held.board[row])]
        loading_s, overhead_s = around_s(job, which, number, run.meta.seed)
        category = None
        if held.how[row] == runs.FAULTED:
            category = "user_model" if job.bad_model else "board_fault"
        from_s, to_s = float(held.from_s[row]), float(held.to_s[row])
        outcomes.append(
            {
                "benchmark_id": job.job_id,
                "attempt": number,
                "target_uid": which.uid,
                "family": job.family,
                "model_sha256": None,
                "wait_s": from_s + loading_s - job.submit_s,
                "run_s": max(to_s - from_s - loading_s - overhead_s, 0.0),
                "failure_category": category,
                "placed_at": at(from_s),
                "ended_at": at(to_s),
            }
        )
    end_s = max(float(held.to_s.max()), scenario.duration_s)
    seen = []
    for each in boards.rows:
        state: dict[str, Any] = {
            "family": each.group.family,
            "host": each.host,
            "supports": [
                f"{engine}:{kind}" for engine, kinds in each.group.engines.items() for kind in kinds
            ],
        }
        seen += [board(each.uid, **state) | {"at": at(seconds)} for seconds in (0.0, end_s)]
        seen += [
            board(each.uid, **state, healthy=healthy) | {"at": at(seconds)}
            for outage in scenario.lab.outages
            if outage.name == each.uid
            for seconds, healthy in ((outage.from_s, False), (outage.to_s, True))
        ]
    users = [user(each) for each in sorted({job.user for job in jobs})]
    return write_export(folder, benchmarks, outcomes, seen, users)
