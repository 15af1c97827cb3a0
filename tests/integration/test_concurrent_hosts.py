"""Many hosts call the API at the same time as the engine and users: no finished result is refused.

A host reports progress from one thread while another uploads its results, as the runner does.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest
from fastapi.responses import Response

from edgeyard.benchmark_api.routes import tasks
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.benchmark_api.routes.receiving import ReceivedFile
from edgeyard.errors import Conflict, Unavailable
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.ports import UnitOfWork
from tests.builders.api import Api, running
from tests.builders.engine import GOOD, A, B, Lab

HOSTS = 16
BENCHMARKS = 160
CANCELLED_EVERY = 8
TOKEN = "upload-token-1"
PATIENCE_S = 120.0


@pytest.fixture
def api(each_database: str, tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as found:
        found.upload()
        yield found


def report_of(attempt: Attempt) -> bytes:
    return json.dumps(
        {
            "schema": "edgeyard/result/v1",
            "benchmark_id": attempt.benchmark_id,
            "status": "ok",
            "inference_latency": {"p50": 1.5},
        }
    ).encode()


def together(*calls: Callable[[], None]) -> None:
    """Call all at the same time, each on a thread of its own; what one raises is raised here."""
    ready = threading.Barrier(len(calls))

    def call(each: Callable[[], None]) -> None:
        ready.wait(60)
        each()

    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call, each) for each in calls]:
            done.result()


def patiently(call: Callable[[], httpx.Response]) -> int:
    """Return the status of an answer, asked again as hosts do while the server is too busy."""
    until_s = time.monotonic() + PATIENCE_S
    while (code := call().status_code) == 503 and time.monotonic() < until_s:
        time.sleep(0.1)
    return code


def report_progress(client: httpx.Client, attempt: Attempt, codes: list[int]) -> None:
    for step in range(5):
        url = f"/v1/runs/{attempt.job_id}/progress"
        body = {"progress": step * 20, "phase": f"phase-{step}"}
        codes.append(patiently(partial(client.post, url, json=body)))


def upload_results(client: httpx.Client, attempt: Attempt, codes: list[int]) -> None:
    for name, content in (("latencies.csv", b"1.5\n"), ("report.json", report_of(attempt))):
        url = f"/upload/{attempt.job_id}/{name}"
        codes.append(patiently(partial(client.put, url, content=content)))


class Hosts:
    """Runs dispatched attempts, several at a time, and keeps every status code."""

    def __init__(self, api: Api, attempts: Sequence[Attempt]) -> None:
        self.api = api
        self.attempts = list(attempts)
        self.progress_codes: dict[str, list[int]] = {each.benchmark_id: [] for each in attempts}
        self.upload_codes: dict[str, list[int]] = {each.benchmark_id: [] for each in attempts}
        self.cancel_codes: dict[str, int] = {}

    def run_all(self, cancelled: frozenset[str] = frozenset()) -> None:
        with ThreadPoolExecutor(HOSTS) as pool:
            runs = [pool.submit(self._run, each, cancelled) for each in self.attempts]
            for run in runs:
                run.result()

    def _run(self, attempt: Attempt, cancelled: frozenset[str]) -> None:
        with (
            self._client(TOKEN) as progress,
            self._client(TOKEN) as upload,
            self._client(self.api.tokens["alice"]) as owner,
        ):
            calls: list[Callable[[], None]] = [
                lambda: report_progress(
                    progress, attempt, self.progress_codes[attempt.benchmark_id]
                ),
                lambda: upload_results(upload, attempt, self.upload_codes[attempt.benchmark_id]),
                lambda: self._track(attempt),
            ]
            if attempt.benchmark_id in cancelled:
                calls.append(lambda: self._cancel(owner, attempt.benchmark_id))
            together(*calls)

    def _track(self, attempt: Attempt) -> None:
        """As the engine does with the cluster's news: the job waits, it runs, it has ended."""
        now = self.api.clock.now()
        store = self.api.store

        def queued(uow: UnitOfWork) -> None:
            current = uow.attempts.by_job_id(attempt.job_id)
            if current.state is AttemptState.DISPATCHING:
                lifecycle.to_state(uow, current, AttemptState.QUEUED, now)

        def started(uow: UnitOfWork) -> None:
            current = uow.attempts.by_job_id(attempt.job_id)
            lifecycle.task_started(uow, current, current.target_uid, now, now)

        for change in (queued, started):
            while True:  # as the engine's next turn does
                with contextlib.suppress(Unavailable):
                    store.transact(change)
                    break

    def _cancel(self, owner: httpx.Client, benchmark_id: str) -> None:
        url = f"/v1/benchmarks/{benchmark_id}/cancel"
        self.cancel_codes[benchmark_id] = patiently(partial(owner.post, url))

    def _client(self, token: str) -> httpx.Client:
        return httpx.Client(
            base_url=self.api.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
            trust_env=False,
            verify=False,
        )


@pytest.mark.slow
def test_no_result_is_refused_while_hosts_report_progress_and_users_cancel(api: Api) -> None:
    attempts = [api.dispatched(api.submit()) for _ in range(BENCHMARKS)]
    cancelled = frozenset(each.benchmark_id for each in attempts[::CANCELLED_EVERY])
    hosts = Hosts(api, attempts)
    hosts.run_all(cancelled)
    assert set(hosts.cancel_codes.values()) == {202}
    for attempt in attempts:
        benchmark_id = attempt.benchmark_id
        progress, uploads = hosts.progress_codes[benchmark_id], hosts.upload_codes[benchmark_id]
        api.ended(benchmark_id)
        with api.store.read() as uow:
            benchmark = uow.benchmarks.get(benchmark_id)
            reports = len(uow.files.reports(benchmark_id))
            results = len(uow.files.results(benchmark_id))
        if benchmark_id in cancelled:
            # Before the cancellation all is taken, after it nothing is.
            assert benchmark.status is Status.CANCELLED
            assert progress == sorted(progress)
            assert set(progress) <= {204, 401}
            assert uploads in ([201, 201], [201, 401], [401, 401])
            assert results == uploads.count(201)
            assert reports == int(uploads == [201, 201])
        else:
            assert benchmark.status is Status.COMPLETED
            assert (set(progress), uploads) == ({204}, [201, 201])
            assert (reports, results) == (1, 2)


@pytest.mark.parametrize("filename", ["latencies.csv", "report.json"])
def test_a_cancelled_benchmark_takes_no_results_though_its_task_still_runs(
    api: Api, filename: str
) -> None:
    attempt = api.dispatched(api.submit())
    host = api.as_(None)
    token = {"Authorization": f"Bearer {TOKEN}"}
    url = f"/upload/{attempt.job_id}/{filename}"
    assert api.as_("alice").post(f"/v1/benchmarks/{attempt.benchmark_id}/cancel").status_code == 202
    answer = host.put(url, content=report_of(attempt), headers=token)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert "cancelled" in answer.json()["detail"]
    progress = host.post(
        f"/v1/runs/{attempt.job_id}/progress",
        json={"progress": 50, "phase": "measuring"},
        headers=token,
    )
    assert progress.status_code == 401
    form = host.post(
        f"/upload/{attempt.job_id}/",
        files={"file": (filename, report_of(attempt))},
        headers=token,
    )
    assert form.status_code == 401
    with api.store.read() as uow:
        assert not uow.files.results(attempt.benchmark_id)
        assert not uow.files.reports(attempt.benchmark_id)
        assert uow.attempts.of(attempt.benchmark_id)[-1].progress is None


def test_many_uploads_of_one_attempt_are_one_result(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    hosts = Hosts(api, [attempt] * 8)
    hosts.run_all()
    api.ended(attempt.benchmark_id)
    codes = hosts.upload_codes[attempt.benchmark_id]
    assert sorted(codes) == [200] * 14 + [201] * 2
    with api.store.read() as uow:
        assert uow.benchmarks.get(attempt.benchmark_id).status is Status.COMPLETED
        assert len(uow.files.reports(attempt.benchmark_id)) == 1


def test_content_that_is_removed_before_it_is_named_is_asked_for_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a server is so slow that the garbage collection takes it for no one's."""
    attempt = api.dispatched(api.submit())
    host = api.as_(None)
    url, token = f"/upload/{attempt.job_id}/latencies.csv", {"Authorization": f"Bearer {TOKEN}"}

    def too_late(
        context: Context, job: str, token: str | None, received: Sequence[ReceivedFile]
    ) -> Response:
        for each in received:
            assert api.files.remove(each.stored.sha256, older_than_s=-60)
        return record(context, job, token, received)

    record = tasks._record
    monkeypatch.setattr(tasks, "_record", too_late)
    answer = host.put(url, content=b"1.5\n", headers=token)
    assert (answer.status_code, answer.json().get("code")) == (503, "unavailable")
    monkeypatch.undo()
    assert host.put(url, content=b"1.5\n", headers=token).status_code == 201
    [stored] = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()["files"]
    assert api.files.path(stored["sha256"]).read_bytes() == b"1.5\n"


def test_the_real_engine_and_hosts_and_users_at_the_same_time_lose_and_double_nothing(
    each_database: str, tmp_path: Path
) -> None:
    lab = Lab(tmp_path, A, B)
    benchmark_ids = [lab.submit(user_id=("ann", "bob")[n % 2]) for n in range(24)]
    cancelled = set(benchmark_ids[::6])
    until = time.monotonic() + 240
    hosted: set[str] = set()

    def live() -> int:
        with lab.store.read() as uow:
            return len(uow.attempts.live()) + len(uow.benchmarks.live_versions())

    def decide() -> None:
        while live() and time.monotonic() < until:
            lab.turn()

    def run(job_id: str) -> None:
        attempt = lab.attempt(job_id)
        assert attempt.target_uid is not None
        lab.cluster.start(job_id, attempt.target_uid)

        def progress() -> None:
            for step in range(5):
                lab.store.transact(
                    lambda uow, step=step: lifecycle.progress_received(  # type: ignore[misc]
                        uow, uow.attempts.by_job_id(job_id), step * 20.0, f"{step}", lab.time.now()
                    )
                )

        def upload() -> None:
            def receive(uow: UnitOfWork) -> None:
                current = uow.attempts.by_job_id(job_id)
                if current.state is not AttemptState.ENDED:
                    lifecycle.result_received(uow, current, GOOD, lab.time.now())

            lab.store.transact(receive)
            lab.cluster.end(job_id)

        together(progress, upload)

    def cancel() -> None:
        for benchmark_id in cancelled:
            with contextlib.suppress(Conflict):  # it has ended
                lab.store.transact(
                    lambda uow, it=benchmark_id: lifecycle.cancel(uow, it, lab.time.now(), "ann")  # type: ignore[misc]
                )

    with ThreadPoolExecutor(8) as pool:
        engine, user = pool.submit(decide), pool.submit(cancel)
        runs = []
        while not engine.done():
            for job_id in [each for each in lab.cluster.dispatched if each not in hosted]:
                hosted.add(job_id)
                runs.append(pool.submit(run, job_id))
            time.sleep(0.01)
        for done in (engine, user, *runs):
            done.result()
    assert live() == 0
    for benchmark_id in benchmark_ids:
        benchmark, attempts = lab.show(benchmark_id), lab.attempts(benchmark_id)
        if benchmark.status is Status.CANCELLED:
            assert benchmark_id in cancelled
            continue
        assert (benchmark.status, len(attempts)) == (Status.COMPLETED, 1)
        with lab.store.read() as uow:
            assert len(uow.files.reports(benchmark_id)) == 1
    with lab.store.read() as uow:
        assert not uow.credits.open_charges()
        counts = uow.benchmarks.counts_by_status()
        assert {status: count for status, count in counts.items() if count} == Counter(
            lab.show(each).status for each in benchmark_ids
        )
        assert all(balance.reserved == 0 for balance in uow.credits.balances())
