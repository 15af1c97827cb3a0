"""Logs in the Standard Workload Format as jobs on one machine of processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgeyard.simulator.importers.machines import (
    ImportedScenario,
    Selection,
    TraceJobs,
    nodes_scenario,
)
from edgeyard.simulator.scenario import NodeGroup
from edgeyard.simulator.wording import count_of
from edgeyard.training.worlds.swf import no_processors, read_swf


def import_swf(
    path: Path,
    selection: Selection,
    *,
    nodes: Sequence[NodeGroup] | None = None,
    advanced: Callable[[float], None] = lambda share: None,
) -> ImportedScenario:
    """Read a log by the rules of `edgeyard.training.worlds.swf`.

    Args:
        path: The log, plain or compressed by gzip.
        selection: Which jobs.
        nodes: Groups of nodes; None: one with the processors that the header states.
        advanced: Called now and then with the share of the file that was read.

    Raises:
        InvalidInput: A line is wrong; names line and field.
    """
    log = read_swf(path, advanced)
    groups = nodes or [
        NodeGroup(cpu_cores=log.max_procs or no_processors(log, "--node CORES:MB"), memory_mb=1)
    ]
    zeros = np.zeros(len(log))
    count = int((log.requested == 0).sum())
    unrequested = (
        [f"{count_of(count, 'job')} with a requested time of 0 taken to request none"]
        if count
        else []
    )
    jobs = TraceJobs(
        path=path,
        line=log.line,
        field="fields 5 and 8 (processors)",
        job_id=[str(job) for job in log.job.tolist()],
        submit=log.submit,
        run=log.run,
        cpus=log.procs.astype(np.float64),
        memory_mb=zeros,
        gpus=zeros,
        nodes=np.ones(len(log), dtype=np.int64),
        requested=np.where(log.requested > 0, log.requested, np.nan),
        user=["" if user < 0 else str(user) for user in log.user.tolist()],
    )
    return nodes_scenario(
        jobs,
        groups,
        selection,
        description=f"Log {path.name}",
        notes=(*log.notes, *unrequested),
        advanced=advanced,
    )
