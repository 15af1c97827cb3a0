"""Rows ``completion`` and ``completion fixed family`` of ``bench-learn``, from the records."""

from __future__ import annotations

from benchmarks.completion.records import (
    PEER,
    Record,
    compare,
    completion_s,
    paired_runs,
    path_of,
    queueing_s,
    read_record,
)
from benchmarks.tables import Row

OURS = "learned"
NAMES = {"interchangeable": "completion", "fixed": "completion fixed family"}


def rows() -> list[Row]:
    """Return the rows of the scenarios that have committed records."""
    return [
        row(name, read_record(path_of(scenario)))
        for scenario, name in NAMES.items()
        if path_of(scenario).is_file()
    ]


def row(name: str, record: Record) -> Row:
    """Return the comparison of a record; raises ValueError for fewer than two pairs."""
    completion = compare(record, OURS, completion_s)
    queueing = compare(record, OURS, queueing_s)
    jobs = [job for pair in paired_runs(record, OURS) for run in pair for job in run.jobs]
    unfinished = sum(job.status != "completed" for job in jobs)
    _, low, high = completion.ratio
    pair, pair_low, pair_high = completion.pair_ratio
    mean, diff_low, diff_high = completion.difference
    _, queue_low, queue_high = queueing.difference
    note = (
        f"{low:.2f} to {high:.2f}; geometric mean of the pairs' ratios {pair:.2f} "
        f"({pair_low:.2f} to {pair_high:.2f}); {OURS} over {PEER}; real Nomad, "
        f"{record.about['boards']}; "
        f"{completion.pairs} pairs of runs, {len(jobs)} jobs, {unfinished} not completed; "
        f"difference {mean:+.1f} s ({diff_low:+.1f} to {diff_high:+.1f}); "
        f"queueing {queueing.ours:.1f} s, peer {queueing.peer:.1f} s "
        f"(difference {queue_low:+.1f} to {queue_high:+.1f} s)"
    )
    return Row(name, completion.ours, "s", completion.peer, completion.ratio[0], note)
