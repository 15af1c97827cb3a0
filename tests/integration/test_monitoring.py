"""Rules and dashboard of deploy/monitoring, on a real Prometheus that reads a real server."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.process import free_port
from edgeyard.benchmark_api.routes.context import Context
from tests.builders.api import Api, leader_view, running
from tests.builders.cluster import eventually
from tests.programs import programs_of_prometheus

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/monitoring"
PAGE = ROOT / "docs/how-to/monitoring.md"
RULES = yaml.safe_load((FOLDER / "edgeyard.rules.yml").read_text())
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
TESTS = yaml.safe_load((FOLDER / "edgeyard.rules.test.yml").read_text())["tests"]
DASHBOARD = json.loads((FOLDER / "edgeyard.dashboard.json").read_text())
QUERIES = [
    (panel["title"], target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
LAB = "edgeyard"
pytestmark = pytest.mark.one_database("metrics do not depend on the database")

IDS = re.compile(r"alice|bob|operator-|rpi\w+-\d{4}-\d{4}|ort-\d|host-1")


@pytest.fixture(scope="module")
def programs() -> Path:
    found = programs_of_prometheus()
    if found is None:
        pytest.skip("Prometheus is not available: make programs")
    return found


@pytest.mark.prometheus
def test_each_rule_fires_when_it_should_and_stays_quiet_otherwise(programs: Path) -> None:
    words = [str(programs / "promtool"), "test", "rules", str(FOLDER / "edgeyard.rules.test.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    checked = {each["alertname"] for case in TESTS for each in case["alert_rule_test"]}
    assert checked == set(ALERTS)


def values(text: str) -> list[float]:
    """Numbers of a series of promtool: ``1x3`` is four times 1, ``0+5x2`` is 0, 5, 10."""
    found: list[float] = []
    for part in text.split():
        match = re.fullmatch(r"(-?[\d.]+)(?:([+-][\d.]+))?x(\d+)", part)
        assert match, part
        first, step = float(match[1]), float(match[2] or 0)
        found += [first + step * at for at in range(int(match[3]) + 1)]
    return found


def recorded(now_s: float) -> str:
    """The series of the rules' tests, which end now, in OpenMetrics: Prometheus adds later ones."""
    families: dict[str, list[str]] = {}
    for case in TESTS:
        for each in case["input_series"]:
            name = each["series"].partition("{")[0]
            numbers = values(each["values"])
            first_s = now_s - 60 * (len(numbers) - 1)
            families.setdefault(name, []).extend(
                f"{each['series']} {number:.10g} {first_s + 60 * at:.0f}"
                for at, number in enumerate(numbers)
            )
    lines = [line for name in families for line in (f"# TYPE {name} unknown", *families[name])]
    return "\n".join([*lines, "# EOF", ""])


@contextmanager
def prometheus(programs: Path, folder: Path, target: str, token: str) -> Iterator[str]:
    """A Prometheus with the configuration and the rules of the folder, which does not wait.

    It reads a server every second, knows what the rules' tests have recorded, and a rule fires at
    once: how long it has to hold is what promtool tests.
    """
    data, config = folder / "data", yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    metrics = folder / "recorded"
    metrics.write_text(recorded(datetime.now(UTC).timestamp()))
    backfill = ["tsdb", "create-blocks-from", "openmetrics", str(metrics), str(data)]
    subprocess.run([str(programs / "promtool"), *backfill], check=True, capture_output=True)
    rules = yaml.safe_load((FOLDER / "edgeyard.rules.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)
    (folder / "edgeyard.rules.yml").write_text(yaml.safe_dump(rules))
    (folder / "edgeyard.token").write_text(token)
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    assert job["job_name"] == LAB
    job["authorization"]["credentials_file"] = str(folder / "edgeyard.token")
    job["static_configs"] = [{"targets": [target]}]
    dead = {**job, "job_name": "edgeyard-dead"}
    dead["static_configs"] = [{"targets": [f"127.0.0.1:{free_port()}"]}]
    config["scrape_configs"].append(dead)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    words = [
        str(programs / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=30d",
        "--query.lookback-delta=10m",  # what is recorded gets no new samples
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server without a leader whose cluster is silent, and which has counted everything once."""
    with running(tmp_path_factory.mktemp("api")) as api:
        api.upload()
        api.submit()
        api.engine.holders = {"rpi4b-0001-0001": "b-1"}
        for _ in range(3):
            api.clock.ahead += timedelta(seconds=30)
            api.services.board_times.sample()
        yield api


def count(api: Api, seconds: float) -> None:
    """Have the server count one of each thing that happens in a lab."""
    context = api.app.state.context
    assert isinstance(context, Context)
    api.clock.ahead += timedelta(seconds=seconds)
    api.services.board_times.sample()
    observe = context.metrics.observe
    family = {"family": "rpi4b", "engine": "ort"}
    for name, labels in (
        ("queue_wait_seconds", {}),
        ("run_seconds", family),
        ("cycle_seconds", {}),
        ("scorer_seconds", {"scorer": "least-loaded"}),
        ("cluster_request_seconds", {"op": "states"}),
    ):
        observe(name, seconds, labels)
    observe("decisions_total", 1, {"policy": "default", "result": "placed"})
    observe("finished_total", 1, {"status": "failed", "category": "thermal"})
    observe("preemptions_total", 1, {})
    observe("scorer_failures_total", 1, {"scorer": "least-loaded", "cause": "timeout"})
    for of in ("start", "end"):
        observe("eta_interval_coverage_ratio", 0.8, {"of": of})


def metrics_of(api: Api) -> str:
    answer = api.as_("alice").get("/metrics")
    assert answer.status_code == 200
    return answer.text


def test_what_the_process_uses_is_exported_and_nothing_is_created(api: Api) -> None:
    text = metrics_of(api)
    for name in (
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_start_time_seconds",
    ):
        (line,) = re.findall(rf"^{name} (.+)$", text, re.M)
        assert float(line) > 0, name
    assert "_created" not in text


def test_seconds_are_exported_by_family_and_those_of_a_board_by_the_api_alone(api: Api) -> None:
    text = metrics_of(api)

    def seconds(family: str, use: str) -> float:
        name = rf'edgeyard_board_seconds_total\{{.*family="{family}",use="{use}"\}}'
        (found,) = re.findall(rf"^{name} (.+)$", text, re.M)
        return float(found)

    boards = {each["target_uid"]: each for each in api.as_().get("/v1/boards").json()["items"]}
    for family in ("rpi4b", "rpi5"):
        for use in ("busy", "idle", "down"):
            mine = [each["times"] for each in boards.values() if each["family"] == family]
            assert seconds(family, use) == pytest.approx(sum(each[f"{use}_s"] for each in mine))
    busy = boards["rpi4b-0001-0001"]["times"]
    assert (round(busy["busy_s"]), busy["idle_s"], busy["down_s"]) == (60, 0, 0)
    one = api.as_().get("/v1/boards/rpi4b-0001-0001").json()["times"]
    assert one == busy
    assert not IDS.search(text), "an id is no label"


def test_states_that_no_board_has_are_exported_too(api: Api) -> None:
    line = r'^edgeyard_boards\{.*family="rpi5",state="offline"\} 0\.0$'
    assert re.search(line, metrics_of(api), re.M)


def test_rules_name_metrics_and_labels_that_a_server_exports(api: Api) -> None:
    count(api, 1.0)
    text = metrics_of(api)
    for group in RULES["groups"]:
        for rule in group["rules"]:
            for name, _, chosen in re.findall(
                r"\b((?:edgeyard|process)_\w+)(\{([^}]*)\})?", rule["expr"]
            ):
                assert re.search(rf"^{name}[ {{]", text, re.M), (rule["alert"], name)
                for label, how, wanted in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', chosen):
                    if label == "job" or how == "!=":
                        continue
                    found = set(re.findall(rf'^{name}\{{.*?{label}="([^"]*)"', text, re.M))
                    missing = [] if "." in wanted else set(wanted.split("|")) - found
                    if name not in ("edgeyard_http_request_seconds_count",):
                        assert not missing, (rule["alert"], label, missing)


def test_the_page_states_what_to_do_about_each_alert_and_names_no_other() -> None:
    named = set(re.findall(r"\| `(Edgeyard\w+)` \|", PAGE.read_text()))
    assert named == set(ALERTS)


def test_the_dashboard_has_a_form_that_grafana_takes() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        mine = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & mine, panel["title"]
        cells |= mine
        for target in panel.get("targets", ()):
            assert 'job="$job"' in target["expr"]
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used - names <= {"__rate_interval", "__range"}


@pytest.mark.prometheus
@pytest.mark.timeout(300)
def test_rules_fire_and_queries_answer_on_a_prometheus_that_reads_a_server(
    programs: Path, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.engine, "led", leader_view(leads=False))
    monkeypatch.setattr(api.engine, "age_s", float("inf"))
    target = api.url.removeprefix("http://")
    with (
        prometheus(programs, tmp_path, target, api.tokens["alice"]) as url,
        httpx.Client(base_url=f"{url}/api/v1/", trust_env=False, timeout=20) as client,
    ):
        expected = {(f"edgeyard-{name}", name) for name in ALERTS} | {
            ("edgeyard-dead", "EdgeyardServerDown"),
            ("edgeyard-shortly", "EdgeyardBoardsOut"),  # not for long enough: see promtool
            (LAB, "EdgeyardNoLeader"),  # the server that is read has no leader,
            (LAB, "EdgeyardClusterSilent"),  # and its cluster has never answered
        }
        firing: set[tuple[str, str]] = set()

        def all_fire() -> bool:
            firing.clear()
            firing.update(_firing(client))
            return expected <= firing

        try:
            eventually(all_fire, "all alerts fire", 120.0)
        except AssertionError:
            pytest.fail(f"not firing: {expected - firing}")
        assert not [each for each in firing if each[0] in ("edgeyard-quiet", "node")]
        assert firing == expected

        monkeypatch.setattr(api.engine, "age_s", 1.0)  # the cluster answers again: boards count
        pending = dict.fromkeys(QUERIES, "")

        def all_answer() -> bool:
            count(api, 1.0)
            for query in list(pending):
                pending[query] = problem(client, query[1])
                if not pending[query]:
                    del pending[query]
            return not pending

        try:
            eventually(all_answer, "all queries answer", 120.0)
        except AssertionError:
            pytest.fail(f"without an answer: {pending}")


def _firing(client: httpx.Client) -> Iterator[tuple[str, str]]:
    try:
        answer = client.get("alerts")
    except httpx.TransportError:
        return
    if answer.status_code == 200:
        for each in answer.json()["data"]["alerts"]:
            if each["state"] == "firing":
                labels: Mapping[str, str] = each["labels"]
                yield labels["job"], labels["alertname"]


def problem(client: httpx.Client, query: str) -> str:
    """Why a query of the dashboard shows nothing; "" if it shows a number."""
    text = query.replace("$job", LAB)
    text = text.replace("$__rate_interval", "1m").replace("$__range", "1h")
    answer: Any = client.get("query", params={"query": text}).json()
    if answer["status"] != "success":
        return str(answer["error"])
    numbers = [each["value"][1] for each in answer["data"]["result"]]
    return "" if any(each != "NaN" for each in numbers) else f"no numbers: {numbers}"
