"""Jobs of the MIT SuperCloud dataset, and the CSV files that DECICE made from it.

Source: Samsi et al., "The MIT Supercloud Dataset", HPEC 2021, arXiv 2108.02037;
https://dcc.mit.edu. Three headers are read: that of the dataset's own ``slurm-log.csv`` (and
``scheduler-log.csv``); that of an extract of it for queueing studies (``submit_unix``, ``run_s``,
…); and DECICE's parameters (``job_id``, ``cpus_req``, ``mem_req``, ``time_run``), with or without
``time_submit``: jobs without it all arrive at the beginning.

What is kept, and how: CPUs, memory and GPUs of a job are shared evenly by its nodes, rounded up.
Slurm's ``mem_req`` is per node, or with its highest bit set per CPU; the extract's and DECICE's are
of the whole job. GPUs come from ``gpus_req``, or from ``tres_req`` and ``tres_alloc`` (resources
1001 and 1002). A job that never started, or whose run time is 0, is left out. A time limit is in
minutes; 0, none and 2^32-1 mean no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.simulator.importers.columns import (
    Columns,
    Floats,
    Number,
    Spec,
    Word,
    read_columns,
)
from edgeyard.simulator.importers.machines import (
    ImportedScenario,
    Selection,
    TraceJobs,
    counted,
    jobs_that_ran,
    nodes_scenario,
    read_nodes,
)
from edgeyard.simulator.scenario import NodeGroup

DEFAULT_NODES = (
    NodeGroup(count=224, cpu_cores=40, memory_mb=393216, gpus=2, name="gpu"),
    NodeGroup(count=480, cpu_cores=48, memory_mb=196608, name="cpu"),
)
"""TX-GAIA, the machine of the dataset: 224 nodes with two V100 each, and 480 without GPUs."""

_PER_CPU = 2**63  # MEM_PER_CPU of Slurm
_NO_LIMITS = (0.0, float(2**32 - 1))
_GPU = re.compile(r"(?:^|,)\s*100[12]=(\d+)")


def _slurm_memory(text: str) -> float:
    """Return megabytes per node, or as a negative number megabytes per CPU."""
    value = float(text)
    if value < _PER_CPU or not text.isdecimal():
        return value
    return float(_PER_CPU - int(text))


_TIMES: Spec = {
    "start": Number(names=("time_start", "start_unix"), empty=0, missing=-1),
    "end": Number(names=("time_end", "end_unix"), empty=0, missing=-1),
    "run": Number(names=("time_run", "run_s"), empty=0, missing=-1),
    "limit": Number(names=("timelimit", "timelimit_min"), empty=0, missing=0),
}
_JOBS: Spec = {
    **_TIMES,
    "job": Word(names=("job_id", "id_job", "row"), needed=True),
    "cpus": Number(names=("cpus_req",), high=1e7, whole=True, empty=0),
    "memory": Number(
        names=("mem_req", "mem_mb"), low=-1e12, high=1e12, empty=0, parse=_slurm_memory
    ),
    "submit": Number(names=("time_submit", "submit_unix"), missing=0),
    "nodes": Number(names=("nodes_alloc", "nodes"), high=1e6, whole=True, empty=1, missing=1),
    "gpus": Number(names=("gpus_req",), high=1e6, whole=True, empty=0, missing=0),
    "user": Word(names=("id_user", "user"), missing=""),
    "tres_req": Word(names=("tres_req",), missing=""),
    "tres_alloc": Word(names=("tres_alloc",), missing=""),
}


def import_supercloud(
    path: Path,
    selection: Selection,
    *,
    nodes: Path | Sequence[NodeGroup] | None = None,
    advanced: Callable[[float], None] = lambda share: None,
) -> ImportedScenario:
    """Read a log of jobs.

    Args:
        path: The CSV file, plain or compressed by gzip.
        selection: Which jobs.
        nodes: Groups of nodes, or a CSV file with them (see `read_nodes`); None: TX-GAIA, and jobs
            that ran on nodes beyond its published ones are left out.
        advanced: Called now and then with the share of the file that was read.

    Raises:
        InvalidInput: A line is wrong; names line and field.
    """
    groups = read_nodes(nodes) if isinstance(nodes, Path) else nodes or DEFAULT_NODES
    table = read_columns(path, _JOBS, advanced)
    run, ran = _run_times(table)
    parts = np.maximum(table.numbers["nodes"], 1)
    memory = table.numbers["memory"]
    if table.header["job"] == "id_job":
        memory = np.where(memory < 0, -memory * _shared(table.numbers["cpus"], parts), memory)
    else:
        table.refuse("memory", memory < 0, "a number from 0")
        memory = _shared(memory, parts)
    limit = table.numbers["limit"]
    limited = ~np.isin(limit, _NO_LIMITS)
    jobs = TraceJobs(
        path=path,
        line=table.line,
        field=f"fields {table.header['cpus']}, {table.header['memory']}",
        job_id=table.words["job"],
        submit=table.numbers["submit"],
        run=run,
        cpus=_shared(table.numbers["cpus"], parts),
        memory_mb=np.ceil(memory),
        gpus=_shared(_gpus(table), parts),
        nodes=parts.astype(np.int64),
        requested=np.where(limited, limit * 60, np.nan),
        user=table.words["user"],
    )
    return nodes_scenario(
        jobs_that_ran(jobs, ran),
        groups,
        selection if nodes else replace(selection, drop_large=True),
        description=f"Jobs of the MIT SuperCloud ({path.name})",
        notes=counted(int((~ran).sum()), "that never ran, or with run time 0, left out"),
        advanced=advanced,
    )


def _run_times(table: Columns) -> tuple[Floats, np.typing.NDArray[np.bool_]]:
    """Return run times, and which jobs ran."""
    if "run" in table.header:
        run = table.numbers["run"]
        return run, run > 0
    if "start" not in table.header or "end" not in table.header:
        reason = (
            "the header has neither the column time_run nor the columns time_start and time_end"
        )
        raise InvalidInput.at(
            f"{table.path}, line 1", reason, "time_run, or time_start and time_end"
        )
    start, end = table.numbers["start"], table.numbers["end"]
    began = start > 0
    table.refuse("end", began & (end > 0) & (end < start), "time_start or later")
    return end - start, began & (end > start)


def _gpus(table: Columns) -> Floats:
    if "gpus" in table.header:
        return table.numbers["gpus"]
    column = "tres_req" if "tres_req" in table.header else "tres_alloc"
    known: dict[str, float] = {}
    for text in set(table.words[column]):
        known[text] = float(sum(int(count) for count in _GPU.findall(text)))
    return np.array([known[text] for text in table.words[column]])


def _shared(total: Floats, nodes: Floats) -> Floats:
    shared: Floats = np.ceil(total / nodes - 1e-9) + 0.0  # not -0.0
    return shared
