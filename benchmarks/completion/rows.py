"""Rows ``completion …`` of ``bench-learn``, from the records: each arm against the peer's."""

from __future__ import annotations

from benchmarks.completion.records import (
    Record,
    compare,
    completion_s,
    paired_runs,
    path_of,
    queueing_s,
    read_record,
)
from benchmarks.completion.scenario import DEFAULT, PEER, SCENARIOS, TRAINED, Scenario
from benchmarks.tables import Row


def rows() -> list[Row]:
    """Return the rows of the scenarios that have committed records."""
    return [
        row
        for scenario in SCENARIOS.values()
        if path_of(scenario).is_file()
        for row in rows_of(scenario, read_record(path_of(scenario)))
    ]


def rows_of(scenario: Scenario, record: Record) -> list[Row]:
    """Return the comparisons of a record.

    Each arm is compared with the peer, and where models were active, this with the same policy
    without them: what learning adds.

    Raises:
        ValueError: Fewer than two blocks.
    """
    found = [
        row(
            f"{scenario.row} {arm.name}" if len(scenario.arms) > 2 else scenario.row,
            record,
            arm.name,
        )
        for arm in scenario.arms
        if arm.name != PEER
    ]
    if TRAINED in scenario.arms:
        found.append(row(f"{scenario.row} learning", record, TRAINED.name, DEFAULT.name))
    return found


def row(name: str, record: Record, ours: str, peer: str = PEER) -> Row:
    """Return the comparison of two arms; raises ValueError for fewer than two blocks."""
    completion = compare(record, ours, completion_s, peer)
    queueing = compare(record, ours, queueing_s, peer)
    jobs = [job for pair in paired_runs(record, ours, peer) for run in pair for job in run.jobs]
    unfinished = sum(job.status != "completed" for job in jobs)
    _, low, high = completion.ratio
    block, block_low, block_high = completion.block_ratio
    mean, diff_low, diff_high = completion.difference
    _, queue_low, queue_high = queueing.difference
    note = (
        f"{low:.2f} to {high:.2f}; geometric mean of the blocks' ratios {block:.2f} "
        f"({block_low:.2f} to {block_high:.2f}); {ours} over {peer}; real Nomad, "
        f"{record.about['boards']}; "
        f"{completion.blocks} blocks, {len(jobs)} jobs, {unfinished} not completed; "
        f"difference {mean:+.1f} s ({diff_low:+.1f} to {diff_high:+.1f}); "
        f"queueing {queueing.ours:.1f} s, peer {queueing.peer:.1f} s "
        f"(difference {queue_low:+.1f} to {queue_high:+.1f} s)"
    )
    return Row(name, completion.ours, "s", completion.peer, completion.ratio[0], note)
