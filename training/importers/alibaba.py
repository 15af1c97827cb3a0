"""Pods and nodes of Alibaba's GPU cluster trace of 2023 (``openb``).

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023; https://github.com/alibaba/clusterdata,
``cluster-trace-gpu-v2023``.

What is kept, and how: CPUs are in thousandths; a pod with one GPU gets the share of it that
``gpu_milli`` states. A pod runs from ``scheduled_time`` to ``deletion_time``; one that was never
scheduled is left out. Which model of GPU a pod wants (``gpu_spec``) is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.simulator.importers.columns import Number, Spec, Word, read_columns
from edgeyard.simulator.importers.machines import (
    ImportedScenario,
    Selection,
    TraceJobs,
    counted,
    ids_by_kind,
    jobs_that_ran,
    nodes_scenario,
)
from edgeyard.simulator.scenario import NodeGroup

_PODS: Spec = {
    "name": Word(names=("name",), needed=True),
    "cpu": Number(names=("cpu_milli",), high=1e9),
    "memory": Number(names=("memory_mib",), high=1e12),
    "gpus": Number(names=("num_gpu",), high=1e6, whole=True, empty=0),
    "share": Number(names=("gpu_milli",), high=1000, empty=0),
    "spec": Word(names=("gpu_spec",), missing=""),
    "created": Number(names=("creation_time",)),
    "deleted": Number(names=("deletion_time",), empty=-1),
    "scheduled": Number(names=("scheduled_time",), empty=-1),
}
_NODES: Spec = {
    "name": Word(names=("sn",), needed=True),
    "cpu": Number(names=("cpu_milli",), low=1000, high=1e9),
    "memory": Number(names=("memory_mib",), low=1, high=1e12),
    "gpus": Number(names=("gpu",), high=1e6, whole=True, empty=0),
    "model": Word(names=("model",), missing=""),
}
_MILLI = 1000


def import_alibaba(
    path: Path,
    selection: Selection,
    *,
    nodes: Path,
    advanced: Callable[[float], None] = lambda share: None,
) -> ImportedScenario:
    """Read a list of pods.

    Args:
        path: The CSV file of pods (``openb_pod_list_*.csv``), plain or compressed by gzip.
        selection: Which pods.
        nodes: The CSV file of nodes (``openb_node_list_all_node.csv``).
        advanced: Called now and then with the share of the file that was read.

    Raises:
        InvalidInput: A line is wrong; names line and field.
    """
    groups = _nodes(nodes)
    table = read_columns(path, _PODS, advanced)
    created, deleted = table.numbers["created"], table.numbers["deleted"]
    scheduled = table.numbers["scheduled"]
    placed = scheduled >= 0
    table.refuse("scheduled", placed & (scheduled < created), "creation_time or later")
    table.refuse("deleted", placed & (deleted < 0), "the end of the pod, which was scheduled")
    table.refuse("deleted", placed & (deleted < scheduled), "scheduled_time or later")
    gpus = table.numbers["gpus"]
    shared = (gpus == 1) & (table.numbers["share"] > 0)
    ran = placed & (deleted > scheduled)
    jobs = TraceJobs(
        path=path,
        line=table.line,
        field="fields cpu_milli, memory_mib, num_gpu",
        job_id=table.words["name"],
        submit=created,
        run=deleted - scheduled,
        cpus=table.numbers["cpu"] / _MILLI,
        memory_mb=table.numbers["memory"],
        gpus=np.where(shared, table.numbers["share"] / _MILLI, gpus),
        nodes=np.ones(len(table), dtype=np.int64),
        requested=np.full(len(table), np.nan),
        user=[""] * len(table),
    )
    notes = counted(int((~ran).sum()), "that never ran left out")
    wanted = np.array([spec != "" for spec in table.words["spec"]]) & ran
    notes += counted(int(wanted.sum()), "that request a certain GPU model may get any GPU")
    return nodes_scenario(
        jobs_that_ran(jobs, ran),
        groups,
        selection,
        description=f"Pods of Alibaba's GPU cluster of 2023 ({path.name})",
        notes=notes,
        advanced=advanced,
    )


def _nodes(path: Path) -> tuple[NodeGroup, ...]:
    table = read_columns(path, _NODES)
    seen: set[str] = set()
    for row, name in enumerate(table.words["name"]):
        if name in seen:
            where = f"{path}, line {table.line[row]}"
            raise InvalidInput.at(
                where, f"field sn: node {name!r} occurs twice", "one line for each node"
            )
        seen.add(name)
    kinds = zip(
        (table.numbers["cpu"] // _MILLI).astype(int).tolist(),
        table.numbers["memory"].astype(int).tolist(),
        table.numbers["gpus"].astype(int).tolist(),
        table.words["model"],
        strict=True,
    )
    return tuple(
        NodeGroup(
            count=len(node_ids),
            cpu_cores=cores,
            memory_mb=memory,
            gpus=gpus,
            name=f"{model or 'cpu'}-{number}",
            node_ids=node_ids,
        )
        for number, ((cores, memory, gpus, model), node_ids) in enumerate(
            ids_by_kind(kinds, table.words["name"]), 1
        )
    )
