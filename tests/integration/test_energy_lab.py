"""What a lab learns of energy: from reports to results, pages, usage and predictions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgeyard.benchmark_api.routes.platform import translation
from edgeyard.scheduler.prediction.history import PastRuns
from tests.builders.api import Api, running
from tests.builders.pages import as_

BOARD = "rpi4b-0001-0001"


@pytest.fixture
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("energy")) as found:
        found.upload()
        yield found


def energy(joules: float = 60.0, **changes: Any) -> dict[str, Any]:
    """The energy of a run at 6 W, of which an inference of 10 ms takes 60 mJ."""
    estimate = {"value": 0.06, "ci95": [0.059, 0.061], "ci95_degrees": 3.0, "unit": "J"}
    return {
        "sensor": "ina3221",
        "rail": "VDD_IN",
        "method": "current times voltage",
        "scope": "board",
        "samples_per_s": 10.0,
        "joules": joules,
        "power_w": 6.0,
        "idle": {"value": 2.0, "ci95": None, "ci95_degrees": None, "unit": "W"},
        "per_inference": estimate,
        "per_inference_above_idle": {**estimate, "value": 0.04, "ci95": [0.038, 0.042]},
        "void": None,
    } | changes


def ran(api: Api, stated: dict[str, Any] | None) -> str:
    benchmark_id = api.submit()
    api.started(benchmark_id, BOARD)
    report = {
        "status": "ok",
        "benchmark_type": "TYPE1",
        "inference_latency": {"unit": "ms", "p50": 10.0},
        "runs_per_s": 100.0,
        "energy": stated,
        "power_consumption": stated and stated["power_w"],
    }
    answer = api.uploaded(benchmark_id, report)
    assert answer.status_code == 201, answer.text
    api.ended(benchmark_id)
    return benchmark_id


def test_energy_is_shown_and_known_to_predictions(api: Api) -> None:
    unknown = ran(api, None)
    known = [ran(api, energy(joules)) for joules in (58.0, 61.0, 60.0, 59.0, 62.0)]
    processor = ran(api, energy(9.0, scope="processor"))

    with api.services.store.read() as uow:
        outcomes = {each.benchmark_id: each.energy_j for each in uow.attempts.outcomes()}
        past = PastRuns().read(uow, api.clock.now())
    assert [outcomes[each] for each in (unknown, known[0], processor)] == [None, 58.0, None]
    assert {each.benchmark_id: each.energy_j for each in past} == outcomes

    ids = [known[0], unknown]
    first, second = (
        api.as_().get("/v1/results", params={"benchmark_id": each}).json()["items"][0]
        for each in ids
    )
    names = ("energy_j", "energy_low_j", "energy_high_j", "energy_above_idle_j", "power_w")
    assert [first[each] for each in names] == [0.06, 0.059, 0.061, 0.04, 6.0]
    assert [second[each] for each in names] == [None] * 5
    browser = as_(api)
    page = browser.get(f"/ui/benchmarks/{known[0]}").text
    assert "energy of an inference" in page
    assert "ina3221/VDD_IN (the whole board)" in page
    assert "energy" not in browser.get(f"/ui/benchmarks/{unknown}").text.lower()


@pytest.mark.parametrize(
    ("stated", "expected"),
    [(energy(), 1 / 0.06), (energy(scope="processor"), None), (None, None)],
)
def test_the_platforms_report_has_the_inferences_of_a_joule(
    api: Api, stated: dict[str, Any] | None, expected: float | None
) -> None:
    benchmark_id = ran(api, stated)
    with api.services.store.read() as uow:
        benchmark = uow.benchmarks.get(benchmark_id)
        (stored,) = uow.files.reports(benchmark_id)
    found = translation.report(benchmark, stored, None)
    assert found["enery_efficiency"] == (expected and pytest.approx(expected))
    assert found["power_consumption"] == (stored.report["power_consumption"])
