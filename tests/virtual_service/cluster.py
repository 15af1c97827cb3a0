"""A cluster in virtual time: it takes HCL jobs, gives each a board, and plays their tasks.

It knows of a job what any cluster knows: its text. What a task does on its board is a `TaskPlan`,
which the simulation states. Faults are switches: the cluster is away, loses answers, forgets jobs,
reports late; boards and hosts fail and come back.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.model import AttributeValue, Board, Host
from edgeyard.errors import ClusterUnreachable, JobExists, NotFound
from edgeyard.scheduler.clusters.exits import EXIT_NOT_UPLOADED, EXIT_REPORTED, failure_of
from edgeyard.scheduler.clusters.fitting import Condition, choose
from edgeyard.scheduler.clusters.local.admission import admit
from edgeyard.scheduler.hcl.build import UPLOAD_TOKEN
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.scheduler.ports import JobRun, JobState, LoadReport, LogChunk, RecurringJob
from edgeyard.simulator.lab.boards import LOST_HOST_S, MAX_UPLOAD_S, UPLOAD_RETRY_S
from tests.virtual_service.virtual_time import ActionQueue

KILL_S = 1.0
"""Time from the call that stops a task to its end."""


class Upload(StrEnum):
    """What the server answered to the upload of a result."""

    TAKEN = "taken"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


class Server(Protocol):
    """The part of the server's API that tasks call."""

    def receive(self, job_id: str, token: str, report: Mapping[str, object]) -> Upload:
        """Take a report."""
        ...

    def progress(self, job_id: str, token: str, progress: float) -> None:
        """Take the progress of a task that measures, 0-100."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What a task does on its board.

    Attributes:
        setup_s: From the board to the start of the task.
        exit_s: From the upload of its result to the end of the task.
        run_s: From the start to the report; inf: it never ends by itself.
        reports_half: It reports its progress halfway.
        reported: Failure that its report states; None: it measures well.
        crash: Failure with which it ends without a report; None: it reports.
        noticed_s: Returns when the cluster's event of its end comes, by the time of its end.
    """

    run_s: float
    setup_s: float = 1.0
    exit_s: float = 0.5
    reports_half: bool = True
    reported: Failure | None = None
    crash: Failure | None = None
    noticed_s: Callable[[float], float] | None = None


@dataclass(slots=True)
class SimJob:
    """A job of the cluster.

    Attributes:
        conditions: On its board.
        plan: Of its task; None before it has a board.
        starts_s: Virtual time before which it gets no board.
        kept: Its report lies on its host.
        life: Raised where what its task was to do is void.
    """

    state: JobState
    life: int
    conditions: tuple[Condition, ...]
    priority: int
    token: str
    plan: TaskPlan | None = None
    starts_s: float = 0.0
    kept: bool = False
    stopping: bool = False
    report: Mapping[str, object] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether the job has not ended."""
        return self.state.run is not JobRun.ENDED


class EventDelivery(StrEnum):
    """How the cluster delivers its events to the server."""

    PROMPT = "prompt"
    LOST = "lost"
    DOUBLED = "doubled"
    LATE = "late"
    REVERSED = "reversed"


@dataclass(slots=True)
class ClusterFaults:
    """What is wrong with the cluster now.

    Attributes:
        away: It answers no call, while tasks go on.
        loses_answers: Calls take effect, but their answers are lost.
        registers_late_s: A registration seems to fail, and takes effect this much later; 0: at
            once.
        stale: `SimCluster.states` returns the states at the begin of this fault.
        delivery: How events are delivered.
        delivery_delay_s: Delay of late events.
    """

    away: bool = False
    loses_answers: bool = False
    registers_late_s: float = 0.0
    stale: bool = False
    delivery: EventDelivery = EventDelivery.PROMPT
    delivery_delay_s: float = 20.0


class SimCluster:
    """The ports `Cluster` and `NodeSource` in virtual time. One thread.

    Attributes:
        inventory: Its hosts with their boards, all of them well.
        jobs: By id; ended ones stay.
        faults: What is wrong now; the simulation sets it.
        holders: Id of the job that has each board.
        stale_s: For so long a host's boards are shown as they were before they changed, by its
            name.
        loads_at: How busy hosts are at a virtual time, by name; those without a load are missing.
    """

    def __init__(
        self,
        actions: ActionQueue,
        now_s: Callable[[], float],
        now: Callable[[], datetime],
        hosts: Sequence[Host],
        plan: Callable[[str, str], TaskPlan],
        server: Server,
        read: Callable[[str], NomadJob] = parse_job,
    ) -> None:
        """Have no jobs.

        Args:
            actions: Queue of what tasks will do.
            now_s: Virtual time.
            now: The server's time, into which a cluster translates its own.
            hosts: With their boards, all of them well.
            plan: What a job's task does on a board, by job id and target_uid.
            server: Takes the tasks' results.
            read: Reads a job's text.
        """
        self._actions = actions
        self._now_s = now_s
        self._now = now
        self.inventory = tuple(hosts)
        self._plan = plan
        self._server = server
        self._read = read
        self._boards = {board.target_uid: board for host in hosts for board in host.boards}
        self._host_of = {board.target_uid: host.name for host in hosts for board in host.boards}
        self._attributes: dict[str, dict[str, AttributeValue]] = {}
        self._down: dict[str, str] = {}  # hosts that are down, and why
        self._cut_off: dict[str, list[str]] = {}  # hosts without network: jobs that are to stop
        self._absent: frozenset[str] = frozenset()
        self._unheard: dict[str, JobState] = {}  # last known states of jobs on those hosts
        self._seen_boards = dict(self._boards)
        self._seen_down: dict[str, str] = {}
        self._index = 1
        self._hints: list[str] = [""]
        self._stale: tuple[Mapping[str, JobState], int] | None = None
        self._shown: tuple[Host, ...] | None = None
        self._shown_hosts: dict[str, tuple[list[tuple[Board, str | None]], Host]] = {}
        self._waiting: dict[str, SimJob] = {}
        self._live: dict[str, SimJob] = {}
        self.jobs: dict[str, SimJob] = {}
        self.faults = ClusterFaults()
        self.holders: dict[str, str] = {}
        self.stale_s: Mapping[str, float] = {}
        self.loads_at: Callable[[float], Mapping[str, HostLoad]] = lambda now_s: {}

    def hosts(self) -> tuple[Host, ...]:
        self._reach()
        if self._shown is None:
            shown = (self._shown_host(host) for host in self.inventory)
            self._shown = tuple(host for host in shown if host.boards)
        return self._shown

    def loads(self) -> Mapping[str, LoadReport]:
        at = self._now()
        loads = self.loads_at(self._now_s())
        return {host: LoadReport(load=load, at=at) for host, load in loads.items()}

    def check(self, hcl: str) -> None:
        self._reach()
        admit(self._read(hcl))

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        self._reach()
        if job_id in self.jobs:
            raise JobExists(job_id)
        late_s = self.faults.registers_late_s
        if late_s:
            self._actions.schedule(
                self._now_s() + late_s, lambda: self._register(job_id, hcl, secrets)
            )
            raise ClusterUnreachable("the call timed out")
        self._register(job_id, hcl, secrets)
        self._answer()

    def stop(self, job_id: str) -> None:
        self._reach()
        self._stop(job_id)
        self._answer()

    def recurring(self) -> Mapping[str, RecurringJob]:
        return {}  # it refuses jobs that recur

    def job_of_allocation(self, allocation_id: str) -> str | None:
        return None

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        self._reach()
        if self.faults.stale:
            if self._stale is None:
                self._stale = {key: job.state for key, job in self.jobs.items()}, self._index
            known = self._stale[0]
            return {job_id: known[job_id] for job_id in job_ids if job_id in known}
        self._stale = None
        return {
            job_id: self._unheard.get(job_id) or self.jobs[job_id].state
            for job_id in job_ids
            if job_id in self.jobs
        }

    def state_index(self) -> int | None:
        return self._index if self._stale is None else self._stale[1]

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        if job_id not in self.jobs:
            raise NotFound("log", job_id)
        return LogChunk(data=b"", next_offset=offset, ended=not self.jobs[job_id].live)

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        self._reach()
        job = self.jobs.get(job_id)
        if job is None or job.state.target_uid is None:
            raise NotFound("result file", name)
        if not self._is_connected(job.state.target_uid):
            raise ClusterUnreachable("the host does not answer")
        if not job.kept or name != "report.json":
            raise NotFound("result file", name)
        yield json.dumps(job.report).encode()

    def events(self, stop: threading.Event) -> Iterator[str]:
        """Yield the undelivered events, then end."""
        if self.faults.away:
            return
        hints, self._hints = self._hints, []
        yield from hints

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        self._reach()
        return {UPLOAD_TOKEN: self.jobs[job_id].token} if job_id in self.jobs else {}

    def strays(self) -> Mapping[str, str | None]:
        return {}

    def page_of(self, job_id: str) -> str | None:
        return None

    def retire(self) -> None:
        pass

    def close(self) -> None:
        pass

    def forget(self, job_id: str) -> None:
        """Kill the task of a job, and forget the job."""
        job = self.jobs.pop(job_id)
        self._unheard.pop(job_id, None)
        self._waiting.pop(job_id, None)
        self._live.pop(job_id, None)
        self._free(job)
        self._changed("")

    def forget_all(self) -> None:
        """Forget all jobs, as a cluster whose servers start with empty disks."""
        for job_id in list(self.jobs):
            self.forget(job_id)
        self._index = 1
        self._changed("")

    def fail_board(self, target_uid: str, reason: str, *, kills: bool) -> None:
        """Have a board's host find it unusable.

        Args:
            target_uid: The board.
            reason: In words.
            kills: Whether that ends what runs there; otherwise it hangs.
        """
        board = self._boards[target_uid]
        self._boards[target_uid] = replace(board, healthy=False, health_reason=reason)
        job_id = self.holders.get(target_uid)
        if job_id is not None:
            job = self.jobs[job_id]
            job.life += 1  # what it was to do is void
            if kills:
                why = Failure(category=FailureCategory.BOARD_FAULT, sentence=reason)
                self._end(job, failure=why)
            elif job.stopping:
                self._end(job, stopped=True)
        self._show(self._host_of[target_uid])

    def repair_board(self, target_uid: str) -> None:
        """Let a board's host report it as usable again; a task that hangs there still hangs."""
        board = self._boards[target_uid]
        self._boards[target_uid] = replace(board, healthy=True, health_reason="")
        self._show(self._host_of[target_uid])

    def fail_host(self, name: str, reason: str) -> None:
        """Take a host offline with its tasks; its jobs are lost some time later."""
        if name in self._down:
            return
        self._down[name] = reason
        for uid, job_id in list(self.holders.items()):
            if self._host_of[uid] == name:
                job = self.jobs[job_id]
                job.life += 1
                self._actions.schedule(
                    self._now_s() + LOST_HOST_S, self._unless_ended(job, self._lose)
                )
        self._show(name)

    def repair_host(self, name: str) -> None:
        """Bring a host back online; the tasks that ran there are lost."""
        if self._down.pop(name, None) is not None:
            for uid, job_id in list(self.holders.items()):
                if self._host_of[uid] == name:
                    self._lose(self.jobs[job_id])
        self._show(name)

    def cut_off_host(self, name: str) -> None:
        """Disconnect a host: its tasks go on, but the cluster gets no news of them."""
        self._cut_off[name] = []
        for uid, job_id in self.holders.items():
            if self._host_of[uid] == name:
                self._unheard[job_id] = self.jobs[job_id].state
        self._show(name)

    def reconnect_host(self, name: str) -> None:
        """Reconnect a host: the cluster gets the news of its tasks, and can stop them."""
        stops = self._cut_off.pop(name)
        for job_id in list(self._unheard):
            uid = self._unheard[job_id].target_uid
            if uid is not None and self._host_of[uid] == name:
                del self._unheard[job_id]
                self._changed(job_id)
        for job_id in stops:
            self._stop(job_id)
        self._show(name)

    def set_absent(self, uids: frozenset[str]) -> None:
        """Let boards leave or join.

        Args:
            uids: Boards that do not belong to the lab now; what runs on one that leaves is lost.
        """
        left, self._absent = uids - self._absent, uids
        for uid in sorted(left):
            if uid in self.holders:
                self._lose(self.jobs[self.holders[uid]])
        self._changed("")

    def boards(self) -> list[Board]:
        """Return the boards that belong to the lab now, all of them as healthy."""
        stated = [board for host in self.inventory for board in host.boards]
        return [board for board in stated if board.target_uid not in self._absent]

    def live_jobs(self) -> tuple[SimJob, ...]:
        """Return the jobs that have not ended."""
        return tuple(job for job in self._live.values())

    def unhealthy(self) -> frozenset[str]:
        """Return the boards that their hosts report as unusable."""
        return frozenset(uid for uid, board in self._boards.items() if not board.healthy)

    def offline(self) -> frozenset[str]:
        """Return the boards whose hosts can't be reached."""
        return frozenset(uid for uid in self._boards if not self._is_connected(uid))

    def sharing(self, uid: str) -> frozenset[str]:
        """Return a board and those that share its cores."""
        return self._boards[uid].shares_with | {uid}

    def _register(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        if job_id in self.jobs:
            return
        understood = admit(self._read(hcl))
        starts_at, now_s = understood.starts_at, self._now_s()
        wait_s = 0.0 if starts_at is None else (starts_at - self._now()).total_seconds()
        job = SimJob(
            state=JobState(job_id=job_id, run=JobRun.QUEUED),
            life=0,
            conditions=understood.conditions,
            priority=understood.priority,
            token=secrets[UPLOAD_TOKEN],
            starts_s=now_s + max(0.0, wait_s),
        )
        self.jobs[job_id] = self._waiting[job_id] = self._live[job_id] = job
        if wait_s > 0:
            self._actions.schedule(job.starts_s, self._place_waiting)
        self._changed(job_id)
        self._place_waiting()

    def _place_waiting(self) -> None:
        """Place the waiting jobs on boards, by priority."""
        if not self._waiting:
            return
        boards = [
            board
            for uid, board in self._boards.items()
            if self._is_connected(uid) and uid not in self._absent
        ]
        for job_id, job in sorted(self._waiting.items(), key=lambda each: -each[1].priority):
            if job.starts_s > self._now_s():
                continue
            board, reason = choose(boards, job.conditions, self._taken, self._published)
            if board is None:
                job.state = replace(job.state, reason=reason)
                continue
            del self._waiting[job_id]
            self.holders[board.target_uid] = job_id
            job.state = replace(job.state, target_uid=board.target_uid, reason="")
            job.plan = plan = self._plan(job_id, board.target_uid)
            self._actions.schedule(
                self._now_s() + plan.setup_s, self._unless_ended(job, self._start)
            )
            self._changed(job_id)

    def _taken(self, board: Board) -> str:
        if not board.healthy:
            return board.health_reason
        holder = self.holders.get(board.target_uid)
        if holder is not None:
            return f"is held by {holder}"
        return next(
            (f"shares cores with {other}" for other in board.shares_with if other in self.holders),
            "",
        )

    def _published(self, board: Board) -> dict[str, AttributeValue]:
        uid = board.target_uid
        if uid not in self._attributes:
            self._attributes[uid] = attributes_of(board)
        return self._attributes[uid]

    def _unless_ended(
        self, job: SimJob, action: Callable[[SimJob], object]
    ) -> Callable[[], object]:
        """Return an action that does nothing once the job was stopped, forgotten or lost."""
        life = job.life

        def act() -> None:
            if job.life == life and job.live and self.jobs.get(job.state.job_id) is job:
                action(job)

        return act

    def _start(self, job: SimJob) -> None:
        assert job.plan is not None
        job.state = replace(job.state, run=JobRun.RUNNING, started_at=self._now())
        run_s = job.plan.run_s
        if math.isfinite(run_s):
            half_s, end_s = self._now_s() + run_s / 2, self._now_s() + run_s
            if job.plan.reports_half:
                self._actions.schedule(half_s, self._unless_ended(job, self._report_half))
            self._actions.schedule(end_s, self._unless_ended(job, self._finish))
        self._changed(job.state.job_id)

    def _report_half(self, job: SimJob) -> None:
        assert job.state.target_uid is not None
        if not self._is_connected(job.state.target_uid):
            return
        self._server.progress(job.state.job_id, job.token, 50.0)

    def _finish(self, job: SimJob) -> None:
        """End a task: it reports, or it crashes."""
        assert job.plan is not None
        if job.plan.crash is not None:
            self._end(job, failure=job.plan.crash)
            return
        reported = job.plan.reported
        job.report = {
            "status": "ok" if reported is None else "failed",
            "board": {"target_uid": job.state.target_uid},
            "inference_latency": {"p50": 1.0} if reported is None else None,
            **(
                {}
                if reported is None
                else {
                    "failure": {
                        "category": reported.category.value,
                        "sentence": reported.sentence,
                    }
                }
            ),
        }
        self._upload(job, self._now_s() + MAX_UPLOAD_S)

    def _upload(self, job: SimJob, until_s: float) -> None:
        assert job.state.target_uid is not None
        answer = Upload.UNAVAILABLE
        if self._is_connected(job.state.target_uid):
            answer = self._server.receive(job.state.job_id, job.token, job.report)
        if answer is Upload.UNAVAILABLE:
            again_s = self._now_s() + UPLOAD_RETRY_S
            if again_s <= until_s:
                again = self._unless_ended(job, lambda it: self._upload(it, until_s))
                self._actions.schedule(again_s, again)
                return
            job.kept = True
        status = EXIT_NOT_UPLOADED
        if answer is Upload.TAKEN:
            status = EXIT_REPORTED if job.report["status"] == "failed" else 0
        failure = failure_of(status)
        assert job.plan is not None
        exit_at_s = self._now_s() + job.plan.exit_s
        self._actions.schedule(
            exit_at_s, self._unless_ended(job, lambda it: self._end(it, failure=failure))
        )

    def _stop(self, job_id: str) -> None:
        job = self.jobs.get(job_id)
        if job is None or not job.live or job.stopping:
            return
        host = self._host_of.get(job.state.target_uid or "", "")
        if host in self._cut_off:
            self._cut_off[host].append(job_id)
            return
        job.stopping = True
        self._waiting.pop(job_id, None)
        if job.state.target_uid is None:
            self._end(job, stopped=True)
            return
        job.life += 1
        if self._host_of[job.state.target_uid] in self._down:
            self._actions.schedule(self._now_s() + LOST_HOST_S, self._unless_ended(job, self._lose))
        else:
            kill = self._unless_ended(job, lambda it: self._end(it, stopped=True))
            self._actions.schedule(self._now_s() + KILL_S, kill)

    def _lose(self, job: SimJob) -> None:
        why = Failure(category=FailureCategory.BOARD_FAULT, sentence="its host was lost")
        self._end(job, failure=why, host_lost=True)

    def _end(
        self,
        job: SimJob,
        *,
        failure: Failure | None = None,
        stopped: bool = False,
        host_lost: bool = False,
    ) -> None:
        if not job.live:
            return
        job.life += 1
        self._waiting.pop(job.state.job_id, None)
        self._live.pop(job.state.job_id, None)
        job.state = replace(
            job.state,
            run=JobRun.ENDED,
            failure=failure,
            stopped=stopped,
            host_lost=host_lost,
            ended_at=self._now(),
            reason="",
        )
        self._free(job)
        noticed_s = None if job.plan is None else job.plan.noticed_s
        if noticed_s is None:
            self._changed(job.state.job_id)
        else:
            self._shown = None
            at_s = noticed_s(self._now_s())
            self._actions.schedule(at_s, lambda: self._changed(job.state.job_id))

    def _free(self, job: SimJob) -> None:
        uid = job.state.target_uid
        if uid is not None and self.holders.get(uid) == job.state.job_id:
            del self.holders[uid]
        job.life += 1
        self._place_waiting()

    def _changed(self, job_id: str) -> None:
        self._index += 1
        self._shown = None
        if not job_id:
            self._place_waiting()
        delivery = self.faults.delivery
        if delivery is EventDelivery.LOST:
            return
        if delivery is EventDelivery.LATE:
            late_s = self._now_s() + self.faults.delivery_delay_s
            self._actions.schedule(late_s, lambda: self._hints.append(job_id))
        elif delivery is EventDelivery.REVERSED:
            self._hints.insert(0, job_id)
        else:
            self._hints.extend([job_id] * (2 if delivery is EventDelivery.DOUBLED else 1))

    def has_hints(self) -> bool:
        """Return whether the cluster has events to deliver."""
        return bool(self._hints) and not self.faults.away

    def _is_connected(self, uid: str) -> bool:
        host = self._host_of[uid]
        return host not in self._down and host not in self._cut_off

    def _show(self, host: str) -> None:
        """Publish the current state of a host to `hosts`, at once or later."""
        self._place_waiting()
        down = self._down.get(host) or ("unreachable" if host in self._cut_off else "")
        boards = {uid: board for uid, board in self._boards.items() if self._host_of[uid] == host}

        def see() -> None:
            self._seen_down.pop(host, None)
            if down:
                self._seen_down[host] = down
            self._seen_boards |= boards
            self._changed("")

        stale_s = self.stale_s.get(host, 0.0)
        if stale_s:
            self._actions.schedule(self._now_s() + stale_s, see)
        else:
            see()

    def _shown_host(self, host: Host) -> Host:
        """Return the published state of a host; the same object until it changes."""
        present = [each for each in host.boards if each.target_uid not in self._absent]
        if host.name in self._seen_down:
            reason = self._seen_down[host.name]
            return replace(host, boards=tuple(present), ready=False, ready_reason=reason)
        state = [
            (self._seen_boards[each.target_uid], self.holders.get(each.target_uid))
            for each in present
        ]
        known = self._shown_hosts.get(host.name)
        if known is not None and known[0] == state:
            return known[1]
        boards = (
            board
            if holder is None
            else replace(board, busy=True, busy_reason=f"held by {holder}", progress=None)
            for board, holder in state
        )
        found = replace(host, boards=tuple(boards))
        self._shown_hosts[host.name] = state, found
        return found

    def _reach(self) -> None:
        if self.faults.away:
            raise ClusterUnreachable("it is away")

    def _answer(self) -> None:
        if self.faults.loses_answers:
            raise ClusterUnreachable("the answer was lost")
