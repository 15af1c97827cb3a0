"""The STE controller as a service: it starts runs, one at a time, and reports on them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import content
from edgeyard.errors import Cancelled, Conflict, EdgeyardError, InvalidInput, NotFound, Unavailable
from edgeyard.simulator.scenario import Scenario
from edgeyard.training.ste.controller import Episode, RoundReport, ScenarioSource
from edgeyard.training.ste.driver import (
    RunDriver,
    new_record,
)
from edgeyard.training.ste.runs import RunFolder
from edgeyard.training.ste_services.common import (
    accepts,
    add_health,
    decoded,
    read_body,
    service_app,
)
from edgeyard.training.ste_services.curves import curve_png

logger = logging.getLogger(__name__)

MAX_WAITING_RUNS = 16
MAX_EPISODES = 1000
MAX_ROUNDS_SHOWN = 20
"""Newest rounds of a run that are kept with their steps, in memory; the first one is one more."""

MAX_RUNS_SHOWN = 4
"""Runs of which rounds are kept."""

MAX_ROUND_BYTES = 8 << 20
"""Size of the newest rounds of a run that are kept, as JSON; the first and the newest one stay."""

_STOP_S = 5.0


class RunIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run that is wanted.

    Attributes:
        scenario: Name or hash at the ScenarioDB.
        seed: Of the first episode; null: the scenario's.
        max_rounds: Of each episode; null: no bound.
        train: Model that the rewards update, at the scheduler controller; "": none.
        new: Register that model; it knows nothing yet.
        judged: Unseen seeds to compare the trained model on.
    """

    scenario: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    episodes: Annotated[int, msgspec.Meta(ge=1, le=MAX_EPISODES)] = 1
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)] | None = None
    max_rounds: Annotated[int, msgspec.Meta(ge=1)] | None = None
    train: Annotated[str, msgspec.Meta(pattern="^([a-z][a-z0-9_]{0,63})?$")] = ""
    new: bool = False
    judged: Annotated[int, msgspec.Meta(ge=0, le=100)] = 5


class RunProgress(msgspec.Struct, kw_only=True):
    """How far the episode is that runs now.

    Attributes:
        time_s: Virtual time.
        share: Of the jobs of the episode, those that have ended, 0-1.
    """

    episode: int
    round: int
    time_s: float
    share: float


class Run(msgspec.Struct, kw_only=True):
    """A run.

    Attributes:
        state: ``queued``, ``running``, ``completed``, ``cancelled`` or ``failed``.
        episodes_done: Finished episodes.
        problem: Why it has failed, or was cancelled.
        model_version: Of the model that it has trained.
    """

    run_id: str
    created_at: str
    state: str
    scenario: str
    scenario_sha256: str
    policy: str
    seed: int
    train: str
    max_rounds: int | None
    episodes_wanted: int
    episodes_done: int
    progress: RunProgress | None = None
    problem: str = ""
    model_version: int | None = None


class RunDetail(Run, kw_only=True):
    """A run with its episodes.

    Attributes:
        episodes: Seed, figures, rewards, weights and faults of each.
        judgement: The trained model compared with what it was before, on unseen seeds.
    """

    episodes: list[dict[str, Any]]
    judgement: dict[str, Any] | None = None


class Curves(msgspec.Struct, kw_only=True):
    """Learning curves: one value an episode, null where it is not known."""

    episode: list[int]
    mean_wait_s: list[float | None]
    mean_turnaround_s: list[float | None]
    reward: list[float | None]


class _Live:
    """A run that waits or runs."""

    def __init__(self, record: dict[str, Any], *, new: bool, resume: bool) -> None:
        self.record, self.new, self.resume = record, new, resume
        self.cancel = threading.Event()
        self.progress: RunProgress | None = None
        self.first: RoundReport | None = None
        self.newest: deque[tuple[RoundReport, int]] = deque()
        self.newest_bytes = 0

    def on_round(self, episode: int) -> Callable[[RoundReport, float], None]:
        def noted(report: RoundReport, share: float) -> None:
            self.first = self.first or report
            size_bytes = len(msgspec.json.encode(report, enc_hook=float))  # NumPy's floats
            self.newest.append((report, size_bytes))
            self.newest_bytes += size_bytes
            while len(self.newest) > 1 and (
                len(self.newest) > MAX_ROUNDS_SHOWN or self.newest_bytes > MAX_ROUND_BYTES
            ):
                self.newest_bytes -= self.newest.popleft()[1]
            self.progress = RunProgress(
                episode=episode, round=report.round, time_s=report.time_s, share=share
            )

        return noted

    def rounds(self) -> list[RoundReport]:
        newest = [report for report, _ in list(self.newest)]
        return newest if self.first is None or self.first in newest else [self.first, *newest]


class RunQueue:
    """Executes runs one after the other on a thread. Thread-safe."""

    def __init__(
        self,
        driver: RunDriver,
        scenarios: ScenarioSource,
        runs: RunFolder,
        on_episode: Callable[[Scenario, dict[str, Any], Episode], None] = lambda *known: None,
    ) -> None:
        """Start the thread. Runs that a stop of the service has cut off can be resumed.

        Args:
            driver: Executes a run.
            runs: Where runs are stored.
            on_episode: Called with the scenario of a run, its record and each episode of it, before
                the episode is stored as finished.
        """
        self._on_episode = on_episode
        self._driver, self._scenarios, self._runs = driver, scenarios, runs
        self._changed = threading.Condition()
        self._waiting: deque[_Live] = deque()
        self._lives: dict[str, _Live] = {}
        self._shown: OrderedDict[str, _Live] = OrderedDict()
        self._stopped = False
        for record in runs.runs():
            if record["state"] == "queued":
                record["state"] = "cancelled"
                record["problem"] = "the controller was stopped"
                runs.save(record)
        self._thread = threading.Thread(target=self._work, name="edgeyard-ste-runs", daemon=True)
        self._thread.start()

    def start(self, wanted: RunIn) -> RunDetail:
        """Put a run into the queue.

        Raises:
            InvalidInput: There is no such scenario, it can't be used, or nothing can be learned.
            Unavailable: Too many runs wait, or a service does not answer.
        """
        if wanted.new and not wanted.train:
            raise InvalidInput.at("/new", "needs a name", "the name of the model as train")
        try:
            scenario = self._scenarios.scenario(wanted.scenario)
        except NotFound as error:
            accepted = "a scenario of the ScenarioDB"
            raise InvalidInput.at("/scenario", str(error), accepted) from error
        policy = self._driver.policy()
        record = new_record(
            scenario,
            reference=wanted.scenario,
            policy=policy.name,
            episodes=wanted.episodes,
            seed=wanted.seed,
            max_rounds=wanted.max_rounds,
            train=wanted.train,
            judged=wanted.judged,
        )
        return self._put(_Live(record, new=wanted.new, resume=False))

    def resume(self, run_id: str) -> RunDetail:
        """Go on with a run that was cancelled or has failed.

        Raises:
            Conflict: It waits, runs or is completed.
            NotFound: There is no such run.
        """
        record = self._runs.run(run_id)
        with self._changed:
            now = self._record(run_id)["state"]
            if run_id in self._lives or now == "completed":
                raise Conflict(f"run {run_id} is {now}")
        return self._put(_Live(record, new=False, resume=True))

    def cancel(self, run_id: str) -> RunDetail:
        """Cancel a run; it ends before its next round.

        Raises:
            Conflict: It has ended.
            NotFound: There is no such run.
        """
        with self._changed:
            live = self._lives.get(run_id)
            if live is not None:
                live.cancel.set()
                if live in self._waiting:
                    self._waiting.remove(live)
                    self._end(live, "cancelled")
                return self._detail(live.record, live)
        raise Conflict(f"run {run_id} is {self._runs.run(run_id)['state']}")

    def runs(self) -> list[Run]:
        """Return all runs, newest first."""
        with self._changed:
            return [
                msgspec.convert(msgspec.structs.asdict(self._detail(record, live)), Run)
                for each in self._runs.runs()
                for live in [self._lives.get(each["run_id"])]
                for record in [live.record if live else each]
            ]

    def run(self, run_id: str) -> RunDetail:
        """Return a run.

        Raises:
            NotFound: There is none.
        """
        with self._changed:
            return self._detail(self._record(run_id), self._lives.get(run_id))

    def rounds(self, run_id: str) -> list[RoundReport]:
        """Return the first round and the newest ones; of the last runs alone."""
        self._runs.run(run_id)
        with self._changed:
            live = self._shown.get(run_id)
            return live.rounds() if live else []

    def stop(self) -> None:
        """Cancel what runs; wait a little for it."""
        with self._changed:
            self._stopped = True
            for live in self._lives.values():
                live.cancel.set()
            self._changed.notify_all()
        self._thread.join(_STOP_S)

    def _put(self, live: _Live) -> RunDetail:
        with self._changed:
            if len(self._waiting) >= MAX_WAITING_RUNS:
                raise Unavailable(f"{MAX_WAITING_RUNS} runs wait already", retry_after_s=60.0)
            live.record["state"], live.record["problem"] = "queued", ""
            self._runs.save(live.record)
            self._lives[live.record["run_id"]] = live
            self._waiting.append(live)
            self._changed.notify_all()
            return self._detail(live.record, live)

    def _work(self) -> None:
        while (live := self._next()) is not None:
            record = live.record

            def done(episode: Episode, record: dict[str, Any] = record) -> None:
                scenario = self._scenarios.scenario(record["scenario_ref"])
                self._on_episode(scenario, record, episode)

            try:
                self._driver.execute(
                    record,
                    scenario=record["scenario_ref"],
                    new=live.new,
                    resume=live.resume,
                    on_round=live.on_round,
                    on_episode=done,
                    cancelled=live.cancel.is_set,
                )
            except Cancelled:
                pass
            except EdgeyardError as error:
                logger.warning("run %s failed: %s", record["run_id"], error)
                record["problem"] = str(error)
            except Exception as error:
                logger.exception("run %s failed", record["run_id"])
                record["problem"] = f"{type(error).__name__}: {error}"
            with self._changed:
                state = record["state"]
                self._end(live, "failed" if state in ("queued", "running") else state)

    def _next(self) -> _Live | None:
        with self._changed:
            while not self._waiting and not self._stopped:
                self._changed.wait()
            if self._stopped:
                return None
            live = self._waiting.popleft()
            self._shown[live.record["run_id"]] = live
            while len(self._shown) > MAX_RUNS_SHOWN:
                self._shown.popitem(last=False)
            return live

    def _end(self, live: _Live, state: str) -> None:
        live.record["state"] = state
        self._runs.save(live.record)
        self._lives.pop(live.record["run_id"], None)

    def _record(self, run_id: str) -> dict[str, Any]:
        live = self._lives.get(run_id)
        return live.record if live else self._runs.run(run_id)

    def _detail(self, record: dict[str, Any], live: _Live | None) -> RunDetail:
        progress = live.progress if live else None
        own = {"episodes_done": len(record["episodes"]), "progress": progress}
        return msgspec.convert(record | own, RunDetail, from_attributes=True)


def curves(run: RunDetail) -> Curves:
    """Return the learning curves of a run."""

    def figures(name: str) -> list[float | None]:
        return [each["figures"].get(name) for each in run.episodes]

    def rewards(name: str) -> list[float | None]:
        return [each["trained"].get(name) for each in run.episodes]

    return Curves(
        episode=[each["episode"] for each in run.episodes],
        mean_wait_s=figures("mean_wait_s"),
        mean_turnaround_s=figures("mean_turnaround_s"),
        reward=rewards("reward"),
    )


def controller_app(runs: RunQueue, token: str = "") -> FastAPI:
    """Return the app of the STE controller."""
    router = Router(tags=["controller"])
    add_health(router, "controller")

    @router.post("/runs", status_code=202, openapi_extra=accepts("RunIn"))
    async def start(request: Request) -> Answer[RunDetail]:
        """Start a run, after those that wait already."""
        wanted = decoded(await read_body(request), RunIn)
        found = await run_in_threadpool(runs.start, wanted)
        return Answer(found, 202, {"Location": f"/runs/{found.run_id}"})

    @router.get("/runs")
    def list_runs() -> Answer[list[Run]]:
        """All runs, newest first."""
        return Answer(runs.runs())

    @router.get("/runs/{run_id}")
    def show(run_id: str) -> Answer[RunDetail]:
        """A run with its progress and its episodes."""
        return Answer(runs.run(run_id))

    @router.get("/runs/{run_id}/rounds")
    def rounds(run_id: str) -> Answer[list[RoundReport]]:
        """The first round and the newest ones with their thirteen steps, of the last runs."""
        return Answer(runs.rounds(run_id))

    @router.get("/runs/{run_id}/curves")
    def learning_curves(run_id: str) -> Answer[Curves]:
        """The learning curves of a run, as numbers."""
        return Answer(curves(runs.run(run_id)))

    @router.get(
        "/runs/{run_id}/curves.png", responses=content(200, "image/png", "The learning curves.")
    )
    def plot(run_id: str) -> Response:
        """The learning curves of a run, as an image (extra `plot`)."""
        found = msgspec.structs.asdict(runs.run(run_id))
        return Response(curve_png(found), media_type="image/png")

    @router.post("/runs/{run_id}/cancel", status_code=202)
    def cancel(run_id: str) -> Answer[RunDetail]:
        """Cancel a run: it ends before its next round, and its finished episodes are kept."""
        return Answer(runs.cancel(run_id), 202)

    @router.post("/runs/{run_id}/resume", status_code=202)
    def resume(run_id: str) -> Answer[RunDetail]:
        """Go on with a run that was cancelled or has failed."""
        return Answer(runs.resume(run_id), 202)

    return service_app("STE controller", router, token=token, bodies=[RunIn], on_stop=runs.stop)
