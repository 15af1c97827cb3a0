"""Several servers on one PostgreSQL: whatever becomes of the leader, no benchmark is lost."""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from deploy.process import Server, in_cluster, start
from edgeyard.scheduler.s3_files import S3Access
from edgeyard.testbed import LoopbackNomad
from tests import s3_service
from tests.acceptance.lives import attempts_of, good_reports
from tests.fakes.relay import Relay
from tests.nomad_cluster import clear, settings_of

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(600)]

DIGITS = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
TAKEN_OVER_S = 15.0
"""What is promised; tests wait longer, since their machine may be busy."""

Start = Callable[..., Server]


@pytest.fixture
def start_server(postgres_url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts servers on one database and one file store; the first one makes the admin."""
    with _servers(tmp_path, {"EDGEYARD_DATABASE_URL": postgres_url}) as starts:
        yield starts


@contextmanager
def _servers(folder: Path, settings: Mapping[str, str]) -> Iterator[Start]:
    started: list[Server] = []

    def begin(name: str, **changes: str) -> Server:
        environment = {
            "EDGEYARD_FILE_STORE": str(folder / "files"),
            **settings,
            **{f"EDGEYARD_{key.upper()}": value for key, value in changes.items()},
        }
        server = start(folder / name, environment)
        started.append(server)
        return replace(server, token=server.token or started[0].token)

    try:
        yield begin
    finally:
        for server in started:
            server.process.send_signal(signal.SIGCONT)
            server.process.kill()
        for server in started:
            server.process.wait()


def _three(starts: Start) -> tuple[Server, Server, Server]:
    """Servers of which the first one leads; the others need nothing of each other to start."""
    first = starts("a")
    with ThreadPoolExecutor(2) as others:
        second, third = others.map(starts, ("b", "c"))
    return first, second, third


def _leader_seen_by(server: Server) -> str:
    ready = server.call("GET", "/readyz?verbose=1")
    reported = ready["checks"]["leader"]
    return str(reported["detail"]) if isinstance(reported, dict) else str(reported)


def _epoch_seen_by(server: Server) -> int:
    """0 while its database is away, or nobody leads."""
    try:
        found = re.search(r"leads \(epoch (\d+)\)", _leader_seen_by(server))
    except RuntimeError:
        return 0
    return int(found[1]) if found else 0


def _leads(server: Server) -> bool:
    return _leader_seen_by(server).startswith("this server leads")


def _submit(server: Server, model: str, target: str = "emumid", **changes: object) -> str:
    return server.submit({"model": model, "target": target, "nb_inference": 20, **changes})


def _load(servers: Sequence[Server], model: str, count: int, *targets: str) -> list[str]:
    """Submitted at the same time, through all servers."""

    def submit(number: int) -> str:
        target = targets[number % len(targets)]
        # Connections that break under a task cost it a try.
        return _submit(servers[number % len(servers)], model, target, max_retries=5)

    with ThreadPoolExecutor(4) as clients:
        return list(clients.map(submit, range(count)))


def _await(happened: Callable[[], bool]) -> None:
    """Ask the servers now and then."""
    limit = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < limit, "it never happened"
        time.sleep(0.1)


def _any_runs(server: Server) -> bool:
    page = server.call("GET", "/v1/benchmarks?status=running")
    return bool(page["items"])


def _next_leader(among: Sequence[Server], record: Callable[[str, object], None]) -> Server:
    """Who takes over; the time is noted."""
    began = time.monotonic()
    _await(lambda: any(map(_leads, among)))
    record(f"taken over in s (promised: {TAKEN_OVER_S})", round(time.monotonic() - began, 1))
    (found,) = filter(_leads, among)
    return found


def _all_ran_once(server: Server, benchmark_ids: Sequence[str]) -> None:
    for benchmark_id in benchmark_ids:
        ended = server.wait(benchmark_id, timeout_s=240)
        assert ended["status"] == "completed", ended
        assert len(good_reports(server, benchmark_id)) == 1, ended
        failures = [each["failure"] for each in attempts_of(ended)]
        assert failures.count(None) == 1, ended


def _ends(server: Server, benchmark_ids: Sequence[str]) -> list[object]:
    """What must not change any more."""
    shown = [server.show(each) for each in benchmark_ids]
    return [
        (each["status"], each["ended_at"], [one["job_id"] for one in attempts_of(each)])
        for each in shown
    ]


def test_leaders_that_are_stopped_or_killed_lose_and_double_nothing(
    start_server: Start, record_property: Callable[[str, object], None]
) -> None:
    first, *others = _three(start_server)
    model = str(first.upload(DIGITS)["name"])
    assert _leads(first)
    assert not any(map(_leads, others))
    made = _load([first, *others], model, 6, "emufast", "emumid", "emuslow")
    _await(lambda: _any_runs(others[0]))

    first.process.send_signal(signal.SIGSTOP)
    second = _next_leader(others, record_property)
    (third,) = (each for each in others if each is not second)
    made += _load([second, third], model, 3, "emufast", "emumid")
    _await(lambda: _any_runs(third))
    second.process.kill()
    _next_leader([third], record_property)
    made += _load([third], model, 1, "emufast")
    _all_ran_once(third, made)
    ended = _ends(third, made)

    first.process.send_signal(signal.SIGCONT)
    _await(lambda: _epoch_seen_by(first) >= 3)
    assert _ends(first, made) == ended
    _all_ran_once(first, [_submit(first, model)])
    assert third.end() == 0
    _next_leader([first], record_property)  # at once: the lease was released


@pytest.mark.parametrize("loss", ["connections", "packets"])
def test_a_leader_that_is_cut_off_from_the_database_is_replaced(
    start_server: Start,
    postgres_url: str,
    record_property: Callable[[str, object], None],
    loss: str,
) -> None:
    """Its connections break, or nothing comes through them any more until they are mended."""
    real = parse_qs(urlsplit(postgres_url).query)["host"][0]
    network = Relay([f"{real}/.s.PGSQL.5432"])
    with (
        tempfile.TemporaryDirectory() as folder,
        network.listening(f"{folder}/.s.PGSQL.5432"),
    ):
        first = start_server("a", database_url=postgres_url.replace(real, folder))
        second = start_server("b")
        model = str(first.upload(DIGITS)["name"])
        made = _load([first, second], model, 6, "emufast", "emumid", "emuslow")
        _await(lambda: _any_runs(second))
        if loss == "connections":
            network.cut()
        else:
            network.stall()
        _next_leader([second], record_property)
        _all_ran_once(second, made)
        ended = _ends(second, made)
        network.mend()
        _await(lambda: _epoch_seen_by(first) >= 2)
        assert _ends(first, made) == ended
        _all_ran_once(first, [_submit(first, model)])


@pytest.mark.s3
def test_the_api_and_the_engine_may_be_two_servers_that_share_a_bucket(
    start_server: Start, s3_access: S3Access
) -> None:
    shared = {
        "file_store": f"s3://{s3_access.bucket}/lab",
        "s3_endpoint": str(s3_access.endpoint),
        "s3_region": "us-east-1",
        "s3_access_key": s3_service.KEY,
        "s3_secret_key": s3_service.SECRET,
    }
    api = start_server("api", role="api", **shared)
    model = str(api.upload(DIGITS)["name"])
    early = _submit(api, model)
    assert "no server" in _leader_seen_by(api)
    engine = start_server("engine", role="engine", clusters__embedded__public_url=api.url, **shared)
    _all_ran_once(api, [early, _submit(api, model)])
    assert _leads(engine)
    with pytest.raises(RuntimeError, match="404"):
        engine.call("GET", "/v1/benchmarks")
    explained = api.call("GET", f"/v1/benchmarks/{early}/explanation")
    assert explained["verdicts"]
    dry = api.call(
        "POST",
        "/v1/benchmarks?dry_run=1",
        {"model": model, "runtime": "ort", "benchmark_type": "TYPE1", "target": "emufast"},
    )
    assert dry["hcl"]


@pytest.mark.nomad
@pytest.mark.xdist_group("nomad")
def test_jobs_on_nomad_go_on_while_another_server_takes_over(
    nomad_cluster: LoopbackNomad,
    postgres_url: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    clear(nomad_cluster)
    balancer = Relay([])
    with balancer.listening(("127.0.0.1", 0)) as address:
        assert not isinstance(address, str)
        settings = {
            **settings_of(nomad_cluster, tmp_path / "inventory.json"),
            "EDGEYARD_DATABASE_URL": postgres_url,
            **in_cluster(public_url=f"http://{address[0]}:{address[1]}"),
        }
        with _servers(tmp_path, settings) as starts:
            first, second, third = _three(starts)
            balancer.targets = tuple(("127.0.0.1", each.port) for each in (first, second, third))
            model = str(first.upload(DIGITS)["name"])
            made = _load([first, second, third], model, 12, "rpi4b", "rpi5")
            _await(lambda: _any_runs(second))
            first.process.send_signal(signal.SIGSTOP)
            balancer.cut()  # as one that checks /readyz does with connections to a dead server
            balancer.targets = balancer.targets[1:]
            balancer.mend()
            leader = _next_leader([second, third], record_property)
            (last,) = (each for each in (second, third) if each is not leader)
            made += _load([second, third], model, 2, "rpi5")
            leader.process.kill()
            _next_leader([last], record_property)
            _all_ran_once(last, made)
            first.process.send_signal(signal.SIGCONT)
            _await(lambda: _epoch_seen_by(first) >= 3)
            attempts = {each: attempts_of(last.show(each)) for each in made}
            jobs = {str(each["job_id"]) for of in attempts.values() for each in of}
            assert len(jobs) == sum(map(len, attempts.values()))
            record_property("attempts of 14 benchmarks", len(jobs))
            _all_ran_once(first, [_submit(first, model, "rpi4b")])
    clear(nomad_cluster)
