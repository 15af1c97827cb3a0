"""The web app on a loopback port over a real store, with a cluster and an engine that are faked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from edgeyard.benchmark_api.app import create_app
from edgeyard.benchmark_api.auth import new_token, token_hash
from edgeyard.benchmark_api.connections import listen
from edgeyard.benchmark_api.fetch import AddressRules
from edgeyard.benchmark_api.lab_inventory import LabInventory
from edgeyard.benchmark_api.reloading import Reloader
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.settings import Settings
from edgeyard.benchmark_api.webhooks import WebhookKeys
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.model import Board
from edgeyard.errors import NotFound
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import past_run, pending, snapshot_of
from edgeyard.scheduler.decide.changes import Bounds, Change, ChangeKind, Changes
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.cycle_outcome import QueueView
from edgeyard.scheduler.engine.election import LeaderView
from edgeyard.scheduler.engine.policies import Policies
from edgeyard.scheduler.engine.preview import Candidate, Preview
from edgeyard.scheduler.engine.replay import CycleComparison
from edgeyard.scheduler.engine.retraining import Retraining
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.attempt import Attempt, AttemptState, job_id_of
from edgeyard.scheduler.model.benchmark import (
    BenchmarkFile,
    BenchmarkType,
    Binding,
    Failure,
    JobDescription,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    Explanation,
    Placement,
    PlannedStart,
    Verdict,
)
from edgeyard.scheduler.model.files import DownloadGrant
from edgeyard.scheduler.model.forecast import Coverage, Forecast
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge
from edgeyard.scheduler.model.users import ApiToken, Role, User
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.twin.comparison import Comparison
from edgeyard.scheduler.twin.joined import JoinedBoard
from edgeyard.scheduler.twin.twin import BoardState, BoardView
from tests.builders.contract import check_answer
from tests.builders.descriptions import description
from tests.builders.model_files import a_model_file
from tests.databases import open_store
from tests.fakes.cluster import FakeCluster, board

BOARDS = (
    board("rpi4b-0001-0001"),
    board("rpi4b-0001-0002"),
    board("rpi5-0001-0001", ram_bytes=8 * 2**30),
)
MODEL = a_model_file()


ROOMY: dict[str, Any] = {
    "user_max_files": 100_000,
    "user_max_pending": 100_000,
    "user_max_live": 100_000,
    "user_max_bookings": 100_000,
    "user_max_schedules": 100_000,
    "user_max_tokens": 100_000,
    "user_max_registrations": 100_000,
    "max_registrations_total": 100_000,
    "user_requests_per_minute": 0,
    "address_requests_per_minute": 0,
    "failures_per_minute": 0,
}
"""Limits that no test meets by the way: those that hold have tests of their own."""

TRAINING = (sys.executable, "-c", "import time; time.sleep(600)")
"""Instead of a training: one that does not end by itself."""

UPLOAD_TOKEN = "upload-token-1"
"""Of the attempts that `Api.dispatched` makes."""

FREE_BOARDS = tuple(f"rpi4b-0001-{number:04}" for number in range(1, 10_000))


class MovableClock:
    """Real durations; a time of day that tests can move."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead.total_seconds()

    def certain(self) -> datetime:
        return self.now()

    def disagreement_s(self) -> float:
        return 0.0

    def pending_step_s(self) -> float:
        return 0.0

    def record(self, step_s: float = 0.0) -> str:
        return ""

    def take_step(self, step_s: float) -> None:
        raise AssertionError("its steps are never pending")


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def leader_view(**changes: Any) -> LeaderView:
    """This server leads, unless changed."""
    given: dict[str, Any] = {
        "leads": True,
        "epoch": 3,
        "server_id": "server-a",
        "url": "http://a.test",
        "since": NOON,
        "silent_s": 1.0,
        "lease_s": 8.0,
    }
    return LeaderView(**(given | changes))


_WAITING = WaitReason(reason=WaitingReason.BOARD_OFFLINE, sentence="its board is offline")


@dataclass
class FakeEngine:
    """Places everything on the first board of its family; remembers that it was woken.

    Attributes:
        order: Ids of the benchmarks that wait.
        explained: Ids of those that a cycle has seen; they are placed unless they wait.
    """

    woken: int = 0
    order: tuple[str, ...] = ()
    never: frozenset[str] = frozenset()
    age_s: float = 1.0
    holders: dict[str, str] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    found: Comparison = field(
        default_factory=lambda: Comparison(missing=(), unknown=(), differing=())
    )
    unknown: tuple[Board, ...] = ()
    joined: dict[str, JoinedBoard] = field(default_factory=dict)
    explained: frozenset[str] = frozenset()
    forecasts: dict[str, Forecast] = field(default_factory=dict)
    plans: dict[str, PlannedStart] = field(default_factory=dict)
    submission_forecast: Forecast | None = None
    led: LeaderView = field(default_factory=lambda: leader_view())
    failing: dict[str, str] = field(default_factory=dict)
    claimed: dict[str, tuple[float, str]] = field(default_factory=dict)

    def wake(self) -> None:
        self.woken += 1

    def preview(
        self, description: JobDescription, files: Sequence[BenchmarkFile], user_id: str
    ) -> Preview:
        family = description.family
        uid = next((each.target_uid for each in BOARDS if each.family == family), None)
        explanation = Explanation(
            benchmark_id="dry-run",
            decided_at=datetime.now(UTC),
            policy="default",
            rank=0,
            rank_reason="alone",
            priority=50,
            priority_parts={"type": 50.0},
            verdicts=tuple(
                Verdict(target_uid=each.target_uid, reason=None, sentence="")
                if each.family == family
                else Verdict(
                    target_uid=each.target_uid,
                    reason=WaitingReason.NO_SUCH_FAMILY,
                    sentence=f"is of family {each.family}",
                    never=True,
                )
                for each in BOARDS
            ),
            placement=None
            if uid is None
            else Placement(
                benchmark_id="dry-run",
                target_uid=uid,
                family=family,
                binding=Binding.STRICT,
                priority=50,
            ),
            waiting=None if uid else _WAITING,
            never=uid is None,
        )
        return Preview(explanation=explanation, hcl='job "benchmark-x" {}\n' if uid else "")

    def forecast_submission(self, candidate: Candidate, user_id: str) -> Forecast | None:
        candidate.find()
        return self.submission_forecast

    def explanation(self, benchmark_id: str) -> Explanation:
        if benchmark_id not in self.explained:
            raise NotFound("explanation", benchmark_id)
        asked = JobDescription(
            model="", runtime="", benchmark_type=BenchmarkType.TYPE1, target=BOARDS[0].family
        )
        placed = replace(self.preview(asked, (), "").explanation, benchmark_id=benchmark_id)
        if benchmark_id not in self.order:
            return placed
        return replace(placed, placement=None, waiting=_WAITING)

    def forecast(self, benchmark_id: str) -> Forecast | None:
        return self.forecasts.get(benchmark_id)

    def planned(self, benchmark_id: str) -> PlannedStart | None:
        return self.plans.get(benchmark_id)

    def coverage(self) -> Coverage:
        return Coverage(starts_held=19, started=40, ends_held=41, ended=50)

    def changes(self, benchmark_id: str, bounds: Bounds | None = None) -> Changes | None:
        if self.explanation(benchmark_id).waiting is None:
            return None
        return Changes(
            decided_at=NOON,
            start=NOON,
            changes=(
                Change(kind=ChangeKind.PRIORITY, value=7, start=NOON, gain_s=90.0),
                Change(kind=ChangeKind.RAM, value=2 << 30, start=NOON, gain_s=None),
            ),
            deadline=NOON,
            reachable_deadline=NOON,
        )

    def shadows(
        self, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[tuple[int, CycleComparison]]:
        return ()

    def queue(self) -> QueueView:
        return QueueView("2026-11-21T08:00:00Z", "default", self.order, self.never)

    def priority_parts(self, benchmark_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        return {each: {"type": 70.0, "user": 10.0} for each in benchmark_ids}

    def state(self) -> CycleInput:
        now = datetime.now(UTC)
        boards = snapshot_of(BOARDS, hosts={each.target_uid: "host-1" for each in BOARDS})
        return CycleInput(
            snapshot=boards,
            pending=[pending("b-waits", user_id="bob")],
            now=now,
            holders=[
                BoardHolder(
                    benchmark_id="b-runs",
                    target_uid=boards.uids[0],
                    priority=50,
                    user_id="alice",
                    started_at=now - timedelta(seconds=30),
                )
            ],
            knowledge=Knowledge(
                host_loads={"host-1": HostLoad(cpu=0.5, memory=0.25)},
                runs=History((past_run(boards.uids[0]),)),
            ),
        )

    def boards(self) -> tuple[BoardView, ...]:
        others = (replace(self._view(BOARDS[0].target_uid), board=each) for each in self.unknown)
        return (
            *(self._view(each.target_uid) for each in BOARDS),
            *(replace(each, expected=False, state=BoardState.UNKNOWN) for each in others),
        )

    def _view(self, uid: str) -> BoardView:
        holder = self.holders.get(uid)
        return BoardView(
            board=next(each for each in BOARDS if each.target_uid == uid),
            state=BoardState.BUSY if holder else BoardState.IDLE,
            reason=f"runs {holder}" if holder else "",
            host="host-1",
            expected=True,
            online=True,
            drained=uid in self.drained,
            holder=holder,
        )

    def comparison(self) -> Comparison | None:
        return self.found if math.isfinite(self.age_s) else None

    def twin_age_s(self) -> float:
        return self.age_s

    def claims(self) -> Mapping[str, tuple[float, str]]:
        return self.claimed

    def repair_failures(self) -> Mapping[str, str]:
        return self.failing

    def cluster_problem(self) -> str:
        return "" if math.isfinite(self.age_s) else "connection refused"


@dataclass
class Api:
    """A running app, and everything behind it."""

    url: str
    app: FastAPI
    store: SqlStore
    files: ContentFiles
    cluster: FakeCluster
    engine: FakeEngine
    clock: MovableClock
    services: Services
    tokens: dict[str, str] = field(default_factory=dict)
    _clients: dict[str | None, httpx.Client] = field(default_factory=dict)

    def as_(self, who: str | None = "alice") -> httpx.Client:
        """Return a client with the token of an account; None: without one.

        It fails where an answer is not what its route documents.
        """
        if who not in self._clients:
            headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
            # `verify`: loading the system's certificates takes longer than most tests.
            self._clients[who] = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=20,
                trust_env=False,
                verify=False,
                event_hooks={"response": [check_answer]},
            )
        return self._clients[who]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def upload(self, name: str = "model.onnx", content: bytes = MODEL, who: str = "alice") -> Any:
        answer = self.as_(who).post("/v1/files", files={"file": (name, content)})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def submit(self, who: str = "alice", **changes: object) -> str:
        answer = self.as_(who).post("/v1/benchmarks", json=description(**changes))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["benchmark_id"])

    def submitted_as(self, benchmark_type: str) -> str:
        """A benchmark of a type that no engine of the boards declares; its id."""
        submitted = self.submit()
        with self.store.write() as uow:
            made = uow.benchmarks.get(submitted)
            description = replace(made.description, benchmark_type=BenchmarkType(benchmark_type))
            benchmark_id = made.benchmark_id + "x"
            uow.benchmarks.add(replace(made, benchmark_id=benchmark_id, description=description))
        return benchmark_id

    def dispatched(self, benchmark_id: str, token: str = UPLOAD_TOKEN) -> Attempt:
        """As if the engine had dispatched it, to the first of `FREE_BOARDS` that nobody holds."""
        now = self.clock.now()
        with self.store.write() as uow:
            benchmark = uow.benchmarks.get(benchmark_id)
            number = len(uow.attempts.of(benchmark_id)) + 1
            held = {attempt.target_uid for attempt in uow.attempts.live()}
            attempt = Attempt(
                benchmark_id=benchmark_id,
                number=number,
                job_id=job_id_of(benchmark_id, number, "rpi4b", "ort", benchmark.submit_time),
                state=AttemptState.PREPARED,
                binding=Binding.STRICT,
                priority=50,
                created_at=now,
                family="rpi4b",
                target_uid=next(uid for uid in FREE_BOARDS if uid not in held),
                hcl='job "x" { token = "******" }\n',
                upload_token_sha256=token_hash(token),
            )
            ((_, stored),) = lifecycle.prepare(uow, [(benchmark, attempt)], now)
            lifecycle.to_state(uow, stored, AttemptState.DISPATCHING, now)
        return self.attempt(benchmark_id)

    def attempt(self, benchmark_id: str) -> Attempt:
        with self.store.read() as uow:
            return uow.attempts.of(benchmark_id)[-1]

    def started(self, benchmark_id: str, target_uid: str = BOARDS[0].target_uid) -> None:
        """As if it had been dispatched, and the cluster had said that the task started there."""
        self.dispatched(benchmark_id)
        now = self.clock.now()
        with self.store.write() as uow:
            lifecycle.task_started(uow, uow.attempts.of(benchmark_id)[-1], target_uid, now, now)

    def ended(
        self, benchmark_id: str, failure: Failure | None = None, *, run_s: float = 0.0
    ) -> None:
        """As if the cluster had said that the task ended after so long; None: it ended well."""
        self.clock.ahead += timedelta(seconds=run_s)
        now = self.clock.now()
        with self.store.write() as uow:
            lifecycle.task_ended(uow, uow.attempts.of(benchmark_id)[-1], failure, now, now)

    def measured(
        self, benchmark_id: str, p50: float, *, run_s: float = 0.0, **changes: object
    ) -> None:
        """As if a dispatched run had reported this median latency, ms, and ended after so long."""
        report = {
            "schema": "edgeyard/result/v1",
            "status": "ok",
            "benchmark_id": benchmark_id,
            "inference_latency": {"unit": "ms", "p50": p50},
            "verdict": {"verdict": "comparable", "reasons": []},
            **changes,
        }
        answer = self.uploaded(benchmark_id, report)
        assert answer.status_code == 201, answer.text
        self.ended(benchmark_id, run_s=run_s)

    def uploaded(self, benchmark_id: str, report: Mapping[str, Any]) -> httpx.Response:
        """Send the report of the present attempt, with the token of `dispatched`."""
        job = self.attempt(benchmark_id).job_id.removeprefix("benchmark-")
        return self.as_(None).put(
            f"/upload/{job}/report.json",
            content=json.dumps(report).encode(),
            headers={"Authorization": f"Bearer {UPLOAD_TOKEN}"},
        )

    def grant(self, attempt: Attempt, name: str, **changes: Any) -> None:
        made = DownloadGrant(
            name=name,
            benchmark_id=attempt.benchmark_id,
            attempt=attempt.number,
            filename="model.onnx",
            sha256="",
            size_bytes=0,
        )
        with self.store.write() as uow:
            uow.files.add_grants([replace(made, **changes)])

    def leftovers(self) -> list[Path]:
        """Temporary files of uploads."""
        return list((self.files._root / "tmp").iterdir())


def services(folder: Path, public_url: str, **settings: Any) -> tuple[Services, MovableClock]:
    """Real store and files in a folder, everything else faked."""
    clock = MovableClock()
    clusters = {"clusters": {"embedded": {"public_url": public_url}}}
    chosen = Settings(data_dir=folder, **(clusters | ROOMY | settings))
    engine = FakeEngine()
    made = Services(
        store=open_store(folder, now=clock.now),
        files=ContentFiles(folder / "files", reserve_bytes=chosen.reserve_bytes),
        cluster=FakeCluster(clock.now, *BOARDS),
        engine_now=lambda: engine,
        leader=lambda: engine.led,
        clock=clock,
        settings=chosen,
        inventory=Inventory(BOARDS),
        policies=Policies(registry(), load_policy("default")),
        public_url=public_url,
        rules=AddressRules(chosen.allow_hosts),
        webhook_rules=AddressRules(chosen.webhook_hosts, setting="webhook_hosts"),
        webhook_keys=WebhookKeys(b"k" * 32),
        unknown_boards=lambda: engine.unknown,
        joined=lambda: engine.joined,
        retraining=Retraining(TRAINING, {}, clock, lambda name, value, labels: None),
    )
    made.lab_inventory = LabInventory(made.store, clock, lambda settings: Inventory(BOARDS))
    made.reload_inventory = Reloader(
        made, made.lab_inventory.load, lambda settings, inventory: ()
    ).reload_inventory
    return made, clock


def add_account(
    store: SqlStore,
    user_id: str,
    role: Role,
    now: datetime,
    *,
    expires_at: datetime | None = None,
    **changes: Any,
) -> str:
    """An account with a token, which may expire; the token."""
    token = new_token()
    with store.write() as uow:
        uow.accounts.add_user(replace(User(user_id=user_id, role=role, created_at=now), **changes))
        uow.accounts.add_token(
            ApiToken(
                token_id=f"token-{user_id}",
                user_id=user_id,
                role=role,
                sha256=token_hash(token),
                label="",
                created_at=now,
                expires_at=expires_at,
            )
        )
    return token


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Api]:
    """The app behind uvicorn in a thread."""
    with listen("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        made, clock = services(folder, url, **settings)
        assert isinstance(made.store, SqlStore)
        assert isinstance(made.files, ContentFiles)
        assert isinstance(made.cluster, FakeCluster)
        assert isinstance(made.engine, FakeEngine)
        app = create_app(made)
        api = Api(url, app, made.store, made.files, made.cluster, made.engine, clock, made)
        for user_id, role in (
            ("alice", Role.SUBMITTER),
            ("bob", Role.SUBMITTER),
            ("viewer", Role.VIEWER),
            ("operator", Role.OPERATOR),
            ("host", Role.HOST),
        ):
            priority = 10 if role is Role.OPERATOR else 5
            boards = ("rpi4b-*",) if role is Role.HOST else ()
            api.tokens[user_id] = add_account(
                made.store, user_id, role, clock.now(), max_priority=priority, boards=boards
            )
        with served(app, listener):
            try:
                yield api
            finally:
                api.close()
        made.retraining.close()
        made.store.close()


class _Server(uvicorn.Server):
    """Ends at once where no client is connected; uvicorn's own takes 100 to 200 ms for it."""

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            await asyncio.sleep(0.01)
            ticks += 1

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
            await server.wait_closed()
        for each in sockets or ():
            each.close()
        await self.lifespan.shutdown()


@contextmanager
def served(app: FastAPI, listener: socket.socket) -> Iterator[None]:
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=2,
        )
    )
    thread = threading.Thread(target=server.run, args=([listener],), name="test-server")
    thread.start()
    try:
        until = time.monotonic() + 20
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        yield
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def cut_off(url: str, head: bytes, body: bytes) -> Iterator[None]:
    """Send the beginning of a request, then hang up."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head + b"\r\n\r\n" + body)
        yield
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def expired_token(api: Api) -> str:
    """Return a token of alice's that has expired."""
    secret = "ey_this-token-was-good-until-a-second-ago"
    with api.store.write() as uow:
        good, *_ = uow.accounts.tokens("alice")
        expired_at = api.clock.now() - timedelta(seconds=1)
        uow.accounts.add_token(
            replace(good, token_id="expired", sha256=token_hash(secret), expires_at=expired_at)
        )
    return secret
