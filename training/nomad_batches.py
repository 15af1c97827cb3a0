"""Batch jobs that need no board, on Nomad: their results are read through its file API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeyard.errors import ClusterUnreachable, JobExists, NotFound
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.allocations import created_index
from edgeyard.scheduler.clusters.nomad.client import Json, NomadClient
from edgeyard.training.batches import BatchCluster, BatchState, BatchStatus, BatchTask

_TASK = "task"
_LOG_BYTES = 65_536
_SHOWN_CHARACTERS = 500
_MAX_IDS_A_CALL = 50
_ENDED = frozenset({"complete", "failed"})
_LOST_AFTER_S = 600
"""A node that is not heard for as long is given up; until then its run is neither repeated nor
failed, because tasks outlive the agent that started them."""
_NS_PER_S = 10**9


class NomadBatches(BatchCluster):
    """Batch jobs of a Nomad cluster, as `BatchCluster` states them."""

    def __init__(self, access: NomadAccess) -> None:
        self._client = NomadClient(access)
        self._access = access

    def submit(self, task: BatchTask) -> None:
        job = _job(task, self._access)
        try:
            self._client.register(task.job_id, job)
        except JobExists:
            found = self._client.job(task.job_id)
            if found is not None and found.get("Stop"):  # was stopped by somebody: begin again
                self._client.deregister(task.job_id, purge=True)
                self._client.register(task.job_id, job)

    def status(self, job_ids: Sequence[str]) -> Mapping[str, BatchStatus]:
        if not job_ids:
            return {}
        created = {
            str(each.get("ID")): created_index(each)
            for each in self._client.jobs(_common_start(job_ids))
        }
        known = [job_id for job_id in job_ids if job_id in created]
        found: dict[str, BatchStatus] = {}
        for first in range(0, len(known), _MAX_IDS_A_CALL):
            some = known[first : first + _MAX_IDS_A_CALL]
            which = " or ".join(f'JobID == "{job_id}"' for job_id in some)
            newest: dict[str, Json] = {}
            for each in self._client.allocations(which):
                job_id = str(each.get("JobID"))
                # Allocations outlive the removal of their job: those may be of an earlier one.
                if created_index(each) > max(
                    created[job_id], created_index(newest.get(job_id, {}))
                ):
                    newest[job_id] = each
            found |= {job_id: _status(each) for job_id, each in newest.items()}
        missing = [job_id for job_id in known if job_id not in found]
        if missing:
            blocked = {
                str(each.get("JobID")): _why_blocked(each) for each in self._client.blocked(None)
            }
            for job_id in missing:
                reason = blocked.get(job_id, "")
                found[job_id] = BatchStatus(state=BatchState.WAITING, reason=reason)
        return found

    def result(self, run_id: str, name: str) -> bytes:
        return b"".join(self._client.file(run_id, f"alloc/{name}"))

    def log_end(self, run_id: str) -> str:
        try:
            data = self._client.log(run_id, _TASK, "stderr", 0, _LOG_BYTES)
        except (ClusterUnreachable, NotFound):
            return ""
        return data.decode(errors="replace").strip()[-_SHOWN_CHARACTERS:]

    def remove(self, job_id: str) -> None:
        self._client.deregister(job_id, purge=True)

    def close(self) -> None:
        self._client.close()


def _job(task: BatchTask, access: NomadAccess) -> Json:
    command, *arguments = task.command
    config: dict[str, object] = {"command": command, "args": arguments}
    if task.driver == "docker":
        config["image"] = task.image
    return {
        "ID": task.job_id,
        "Name": task.job_id,
        "Namespace": access.namespace,
        "Type": "batch",
        "Datacenters": list(access.datacenters),
        "NodePool": access.node_pool,
        "TaskGroups": [
            {
                "Name": "batch",
                "Count": 1,
                "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
                "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
                "Disconnect": {"LostAfter": _LOST_AFTER_S * _NS_PER_S, "Replace": False},
                "EphemeralDisk": {"SizeMB": 300},
                "Tasks": [
                    {
                        "Name": _TASK,
                        "Driver": task.driver,
                        "Config": config,
                        "Resources": {"CPU": task.cpu_mhz, "MemoryMB": task.memory_mib},
                        "Templates": [
                            {
                                "EmbeddedTmpl": task.input,
                                "DestPath": "local/input",
                                "ChangeMode": "noop",
                            }
                        ],
                    }
                ],
            }
        ],
    }


def _status(allocation: Json) -> BatchStatus:
    run_id, client = str(allocation.get("ID")), allocation.get("ClientStatus")
    if client == "lost":
        return BatchStatus(state=BatchState.LOST, run_id=run_id)
    if client == "complete" and not _failed(allocation):
        return BatchStatus(state=BatchState.COMPLETED, run_id=run_id)
    if client in _ENDED:
        reason = _last_event(allocation) or f"its allocation is {client}"
        return BatchStatus(state=BatchState.FAILED, run_id=run_id, reason=reason)
    if client == "unknown":
        reason = f"Nomad does not hear from its node {allocation.get('NodeName')}"
        return BatchStatus(state=BatchState.RUNNING, run_id=run_id, reason=reason)
    state = BatchState.RUNNING if client == "running" else BatchState.WAITING
    return BatchStatus(state=state, run_id=run_id)


def _task_state(allocation: Json) -> Json:
    states = allocation.get("TaskStates")
    state = states.get(_TASK) if isinstance(states, Mapping) else None
    return state if isinstance(state, Mapping) else {}


def _failed(allocation: Json) -> bool:
    return bool(_task_state(allocation).get("Failed")) or not _task_state(allocation)


def _last_event(allocation: Json) -> str:
    """Return the last event of a task that tells why it ended."""
    events = _task_state(allocation).get("Events")
    texts = [
        str(each.get("DisplayMessage", ""))
        for each in (events if isinstance(events, list) else [])
        if isinstance(each, Mapping) and each.get("Type") != "Not Restarting"
    ]
    return next((text for text in reversed(texts) if text), "")


def _why_blocked(evaluation: Json) -> str:
    groups = evaluation.get("FailedTGAllocs")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if not isinstance(group, Mapping):
            continue
        for field in ("ConstraintFiltered", "DimensionExhausted", "ClassFiltered"):
            names = group.get(field)
            if isinstance(names, Mapping) and names:
                return f"no node has room or fits: {', '.join(map(str, names))}"
        return "no node is available"
    return ""


def _common_start(names: Sequence[str]) -> str:
    low, high = min(names), max(names)
    length = next(
        (place for place, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]),
        min(len(low), len(high)),
    )
    return low[:length]
