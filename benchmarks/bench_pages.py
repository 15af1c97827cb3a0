"""Pages of a large lab: their time next to the calls that answer the same, and their size."""

import gzip
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import httpx

from benchmarks.load import closed_loop, get, post
from benchmarks.tables import Row, median, median_interval
from deploy.process import Server, edgeyard
from edgeyard.benchmark_api.pages.boards import RECENT
from edgeyard.benchmark_api.pages.compare import ComparisonQuery
from edgeyard.benchmark_api.pages.overview import NEWEST
from edgeyard.scheduler.figures.metrics import JOB_FIGURES
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.store import SqlStore
from edgeyard.simulator.comparison import RUN_FIGURES
from tests.builders.measured import Measured, many, store_measured

BENCHMARKS, BOARDS, COMPARED = 100_000, 1_000, 500
PENDING, SIMULATIONS, ACTS = 200, 50, 50
DAYS = 100
"""Over which the benchmarks ended."""
FAMILIES = ("rpi4b", "rpi5", "n100", "riscv", "orin")
ROUNDS, REQUESTS = 7, 4
OPEN_PAGES, IDLE_S = 100, 20.0
MAX_BYTES = 60_000

_UNLIMITED = {
    "EDGEYARD_USER_REQUESTS_PER_MINUTE": "0",
    "EDGEYARD_ADDRESS_REQUESTS_PER_MINUTE": "0",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and the calls that answer what it shows; a call with a body is a POST."""

    name: str
    path: str
    calls: Sequence[tuple[str, bytes | None]] = ()


def run() -> list[Row]:
    """Fill a lab and open its pages."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as name:
        folder = Path(name)
        inventory = folder / "target.json"
        inventory.write_text(json.dumps(_inventory()))
        settings = {**_UNLIMITED, "EDGEYARD_INVENTORY": str(inventory)}
        data_dir = folder / "lab"
        with edgeyard(data_dir, settings):
            pass  # makes the database and the admin
        compared = _fill(data_dir)
        with edgeyard(data_dir, settings) as server:
            _use(server)
            cookie = _signed_in(server)
            listed = server.call("GET", f"/v1/benchmarks?target_uid={uids()[0]}&limit={RECENT}")
            recent = [each["benchmark_id"] for each in listed["items"]]
            pages = _pages(compared, recent)
            rows = [row for each in pages for row in _measure(server, each, cookie)]
            return [*rows, _idle(server, cookie)]


def uids() -> list[str]:
    """The boards' names."""
    return [
        f"{FAMILIES[number % len(FAMILIES)]}-{1 + number // 50:04}-{1 + number % 50:04}"
        for number in range(BOARDS)
    ]


def _inventory() -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {each: [] for each in FAMILIES}
    for uid in uids():
        entry: dict[str, object] = {
            "target_uid": uid,
            "memory": {"ram": "4 GiB", "storage": "32 GiB"},
            "engines": {
                name: {"version": "1.0", "supported_types": ["TYPE1", "TYPE2"]}
                for name in ("ort", "tflite", "openvino")
            },
        }
        found[uid.split("-")[0]].append(entry)
    return found


def _fill(data_dir: Path) -> list[str]:
    """Store benchmarks that ended over some months; the ids of those to compare, the newest."""
    store = SqlStore(f"sqlite:///{data_dir}/edgeyard.db")
    boards, end = uids(), datetime.now(UTC)
    step = timedelta(days=DAYS) / BENCHMARKS
    older = BENCHMARKS - COMPARED
    for start in range(0, older, 1000):
        some = [
            Measured(
                benchmark_id=f"{boards[number % BOARDS].split('-')[0]}-ort-{number:014}-benchpages",
                model=f"model-{number % 20}.onnx",
                board=boards[number % BOARDS],
                p50_ms=5.0 + number % 20 + number % 7 / 100,
                ended_at=end - step * (BENCHMARKS - number),
                user_id="admin",
            )
            for number in range(start, min(start + 1000, older))
        ]
        store_measured(store, some)
    last = list(many(COMPARED, boards[:17], user_id="admin", since=end - step * COMPARED))
    store_measured(store, last)
    with store.write() as uow:
        for number in range(PENDING):
            waiting = Measured(
                benchmark_id=f"{FAMILIES[0]}-ort-{number:014}-benchwaits",
                board=boards[0],
                ended_at=end,
                user_id="admin",
            ).benchmark()
            uow.benchmarks.add(
                replace(
                    waiting, status=Status.PENDING, target_uid=None, started_at=None, ended_at=None
                )
            )
    store.close()
    return [each.benchmark_id for each in last]


def _use(server: Server) -> None:
    """Leave acts and simulations behind, as operators and users do."""
    for uid in uids()[:ACTS]:
        server.call("POST", f"/v1/boards/{uid}/drain", {"reason": "a benchmark of pages"})
    scenario = {
        "name": "paper",
        "world": "nodes",
        "duration_s": 50,
        "nodes": {"nodes": [{"cpu_cores": 10}], "mix": {}},
    }
    server.call("POST", "/v1/scenarios", scenario)
    # as many as `edgeyard sim run --db` stores
    metrics: dict[str, object] = {"jobs": 400, "completed": 398, "failed": 2, "cancelled": 0}
    for name in JOB_FIGURES:
        metrics |= {f"{what}_{name}": 75.25 for what in ("mean", "p50", "p90", "p99", "max")}
        metrics |= {f"mean_{name}_low": 60.5, f"mean_{name}_high": 90.125, f"at_least_{name}": 0}
    metrics |= {name: 0.63 for name in RUN_FIGURES}
    for seed in range(SIMULATIONS):
        body = {"scenario": "paper", "policy": "sjf", "seed": seed, "metrics": metrics}
        server.call("PUT", f"/v1/simulations/run-{seed}", body)


def _pages(compared: Sequence[str], recent: Sequence[str]) -> list[Page]:
    """Return what is opened.

    Args:
        compared: Benchmarks to compare.
        recent: The newest of the first board, whose results its page shows.
    """
    benchmark, board = compared[-1], uids()[0]
    own = f"/v1/benchmarks/{benchmark}"
    day = urlencode({"submitted_from": (datetime.now(UTC) - timedelta(days=1)).isoformat()})
    live = "/v1/benchmarks?status=running&status=scheduled&limit=1000"
    comparison = json.dumps({"benchmark_ids": list(compared)}).encode()
    series = urlencode({"series": "model-0.onnx"})

    def calls(*paths: str) -> list[tuple[str, bytes | None]]:
        return [(path, None) for path in paths]

    def results_of(ids: Sequence[str]) -> str:
        return "/v1/results?" + urlencode([("benchmark_id", each) for each in ids])

    return [
        Page("welcome", "/ui/sign-in"),
        Page(
            "overview",
            "/ui",
            calls(
                "/v1/boards",
                "/v1/queue?limit=1000",
                "/v1/benchmarks?status=running&limit=50&total",
                f"/v1/benchmarks?limit=1000&total&{day}",
                results_of(compared[-NEWEST:]),
                "/readyz?verbose",
                "/v1/scorers",
                "/v1/models",
                "/v1/models/training",
            ),
        ),
        Page("boards", "/ui/boards", calls("/v1/boards", live)),
        Page(
            "board",
            f"/ui/boards/{board}",
            calls(
                f"/v1/boards/{board}",
                f"/v1/benchmarks?target_uid={board}&limit={RECENT}",
                f"{live}&target_uid={board}",
                f"/v1/events?board={board}&limit={RECENT}",
                results_of(recent),
            ),
        ),
        Page("queue", "/ui/queue", calls("/v1/queue?limit=500")),
        Page("benchmarks", "/ui/benchmarks", calls("/v1/benchmarks?limit=50")),
        Page(
            "benchmark",
            f"/ui/benchmarks/{benchmark}",
            calls(own, f"{own}/results", f"{own}/explanation", f"{own}/hcl"),
        ),
        Page("log", f"/ui/benchmarks/{benchmark}/log", calls(own, f"{own}/logs")),
        Page(
            f"compare {COMPARED}",
            ComparisonQuery(ids=tuple(compared)).address(),
            [("/v1/results/comparison", comparison)],
        ),
        Page("history", f"/ui/history?{series}", calls(f"/v1/series/points?{series}")),
        Page(
            "policies",
            "/ui/policies",
            calls("/v1/policies", "/v1/scorers", "/v1/policies/comparison?limit=1000"),
        ),
        Page("models", "/ui/models", calls("/v1/models", "/v1/models/training")),
        Page("simulations", "/ui/simulations", calls("/v1/simulations?limit=50")),
        Page("acts", "/ui/events", calls("/v1/events?limit=50")),
    ]


def _signed_in(server: Server) -> str:
    """The cookie of a session of the admin's."""
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', http.get("/ui/sign-in").text)
        assert found
        http.post("/ui/sign-in", data={"csrf": found[1], "token": server.token})
        return f"edgeyard_session={http.cookies['edgeyard_session']}"


def _measure(server: Server, page: Page, cookie: str) -> Iterator[Row]:
    request = get(page.path, cookie=cookie)
    peers = [
        get(path, server.token) if body is None else post(path, body, server.token)
        for path, body in page.calls
    ]
    ours: list[float] = []
    theirs: list[float] = []
    ratios: list[float] = []
    for number in range(ROUNDS + 1):
        taken = _taken_ms(server, request)
        summed = sum(_taken_ms(server, each) for each in peers)
        if number:  # the first warms both up
            ours.append(taken)
            theirs.append(summed)
            ratios.append(taken / summed if peers else 0.0)
    if peers:
        ratio, low, high = median_interval(ratios)
        note = (
            f"peer: {len(peers)} call{'s' if len(peers) > 1 else ''} of /v1 that answer the same; "
            f"{ROUNDS} rounds, ratio {low:.2f}-{high:.2f}; wanted: at most 1.5"
        )
        yield Row(f"complete {page.name}", median(ours), "ms", median(theirs), ratio, note)
    else:
        yield Row(f"complete {page.name}", median(ours), "ms", note="no call answers the same")
    document, files = _sizes(server, page.path, cookie)
    yield Row(
        f"bytes {page.name}",
        document + files,
        "B",
        note=f"compressed; {files:,} of them files that are kept; wanted: at most {MAX_BYTES:,}",
    )


def _taken_ms(server: Server, request: bytes) -> float:
    load = closed_loop(server.port, request, clients=1, requests=REQUESTS)
    assert set(load.statuses) <= {200, 404}, load.statuses  # a benchmark without a log
    return median(load.latencies_s) * 1000


def _sizes(server: Server, path: str, cookie: str) -> tuple[int, int]:
    """Bytes on the wire of a page, and of the files that it needs."""
    headers = {"Cookie": cookie, "Accept-Encoding": "gzip"}
    with httpx.Client(base_url=server.url, trust_env=False, headers=headers) as http:

        def sent(path: str) -> tuple[int, str]:
            with http.stream("GET", path) as answer:
                data = b"".join(answer.iter_raw())
            packed = answer.headers.get("content-encoding") == "gzip"
            return len(data), (gzip.decompress(data) if packed else data).decode()

        size, text = sent(path)
        files = sorted(set(re.findall(r'"(/ui/static/[^"]+)"', text)))
        return size, sum(sent(each)[0] for each in files)


def _idle(server: Server, cookie: str) -> Row:
    """Processor time of a server whose pages are open, and nothing happens."""
    without = _cpu_share(server)
    with ExitStack() as opened:
        for _ in range(OPEN_PAGES):
            opened.enter_context(_stream(server, cookie))
        time.sleep(2)  # they have begun
        share = _cpu_share(server)
    return Row(
        f"idle {OPEN_PAGES} pages",
        100 * share,
        "% CPU",
        note=f"of a core, over {IDLE_S:g} s; {100 * without:.1f} % without pages; "
        "wanted: at most 10",
    )


@contextmanager
def _stream(server: Server, cookie: str) -> Iterator[None]:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(get("/ui/changes", cookie=cookie))
        assert b" 200 " in connection.recv(4096).split(b"\r\n")[0]
        yield


def _cpu_share(server: Server) -> float:
    began = _cpu_s(server.process.pid)
    time.sleep(IDLE_S)
    return (_cpu_s(server.process.pid) - began) / IDLE_S


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
