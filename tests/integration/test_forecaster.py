"""The engine's forecasts, and how good they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.forecaster import Forecaster
from edgeyard.scheduler.engine.preview import (
    MAX_PREDICTED_QUEUE,
    Candidate,
    Preview,
    SubmissionForecaster,
    preview,
)
from edgeyard.scheduler.hcl.build import RenderSettings
from edgeyard.scheduler.model.benchmark import (
    BenchmarkFile,
    BenchmarkType,
    JobDescription,
    WaitingReason,
)
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.prediction.calibration import MIN_SCORES
from tests.builders.engine import A, B, Lab, a_model

RENDER = RenderSettings(public_url="http://127.0.0.1:1", driver="raw_exec", command="/bin/runner")
ASKED = JobDescription(
    model="net.onnx", runtime="ort", benchmark_type=BenchmarkType.TYPE1, target="rpi4b"
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, A)
    yield made
    made.store.close()


class Observations:
    """Metrics as the engine reports them."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def __call__(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self.values.setdefault(name, []).append(value)


def ran(lab: Lab, forecaster: Forecaster, seconds: float, content: bytes = b"net") -> str:
    """Return the id of one that was predicted, ran and ended."""
    benchmark_id = lab.submit(content=content)
    lab.turn()
    forecaster.run()
    (attempt,) = lab.attempts(benchmark_id)
    lab.cluster.start(attempt.job_id, A)
    lab.turn()
    lab.clock.forward(seconds)
    lab.complete(attempt.job_id)
    lab.turn()
    lab.turn()
    forecaster.run()
    return benchmark_id


def test_forecasts_learn_from_past_runs_and_their_coverage_is_reported(lab: Lab) -> None:
    reported = Observations()
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, reported)
    assert forecaster.run() == 0.0  # no cycle yet
    for _ in range(6):
        ran(lab, forecaster, 20.0)
    both = [forecaster.of(each) for each in (lab.submit(), lab.submit())]
    assert both == [None, None]  # not looked at yet
    lab.turn()
    forecaster.run()
    found = sorted(forecaster.latest.by_id.values(), key=lambda each: each.start)
    assert [each.place for each in found] == [1, 2]
    assert all(each.grounded for each in found)
    waits_s = [(each.start - lab.clock.now()).total_seconds() for each in found]
    assert waits_s == pytest.approx([0.0, 20.0], rel=0.2)
    assert len(reported.values["eta_error_seconds"]) == 6
    assert reported.values["eta_error_seconds"][-1] < reported.values["eta_error_seconds"][0]
    assert 0.0 < reported.values["eta_interval_coverage_ratio"][-1] <= 1.0


def through(lab: Lab, job_id: str, seconds: float) -> None:
    """It runs so long and ends."""
    lab.clock.forward(seconds)
    lab.complete(job_id)
    lab.turn()


def test_waits_that_turn_out_longer_than_predicted_are_predicted_longer(lab: Lab) -> None:
    """Each time somebody more urgent comes later and overtakes, whom nobody foresaw."""
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    for _ in range(4):
        ran(lab, forecaster, 10.0)

    def predicted() -> tuple[str, str, Forecast]:
        runs = lab.running(lab.submit())
        waits = lab.submit()
        lab.turn()
        forecaster.run()
        found = forecaster.of(waits)
        assert found is not None
        return runs, waits, found

    for _ in range(MIN_SCORES):
        runs, waits, first = predicted()
        urgent = lab.submit(content=b"slow", user_priority=10)
        through(lab, runs, 10.0)
        through(lab, lab.running(urgent), 30.0)
        through(lab, lab.running(waits), 10.0)
        lab.turn()
        forecaster.run()
    assert forecaster.coverage.starts_held == 0
    assert forecaster.coverage.started == MIN_SCORES
    assert forecaster.coverage.ended == 4 + 2 * MIN_SCORES  # nobody foresaw the urgent ones
    scale = forecaster.interval_scales.start
    assert scale is not None
    assert scale.late > 4.0
    restarted = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    restarted.run()
    assert (restarted.interval_scales, restarted.coverage) == (
        forecaster.interval_scales,
        forecaster.coverage,
    )
    runs, waits, later = predicted()
    assert abs(later.start - later.made_at - (first.start - first.made_at)) < timedelta(seconds=2)
    assert first.start_high - first.made_at < timedelta(seconds=15)
    assert later.start_high - later.made_at > timedelta(seconds=25)
    assert later.finish_high - later.made_at > timedelta(seconds=35)
    assert would(lab, a_model()).forecast is not None
    reported = SubmissionForecaster(lab.cycle, lab.clock, lambda: forecaster.interval_scales).of(
        asking(), "ann"
    )
    plain = SubmissionForecaster(lab.cycle, lab.clock).of(asking(), "ann")
    assert reported is not None
    assert plain is not None
    assert reported.start_high > plain.start_high


def test_what_is_late_counts_before_it_starts(lab: Lab) -> None:
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    for _ in range(4):
        ran(lab, forecaster, 10.0)
    before = forecaster.coverage
    lab.running(lab.submit())
    waits = lab.submit()
    lab.turn()
    forecaster.run()
    lab.clock.forward(100.0)  # far more than any run took
    lab.turn()
    forecaster.run()
    assert forecaster.of(waits) is not None
    assert forecaster.coverage == replace(
        before, started=before.started + 1, ended=before.ended + 2
    )


def test_a_plan_states_the_start_that_is_predicted(lab: Lab) -> None:
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    for seconds in (5.0, 10.0, 20.0, 40.0):
        ran(lab, forecaster, seconds)
    lab.running(lab.submit())
    waits = [lab.submit() for _ in range(3)]
    lab.turn()
    forecaster.run()
    for benchmark_id in waits:
        planned, found = forecaster.planned(benchmark_id), forecaster.of(benchmark_id)
        assert planned is not None
        assert found is not None
        assert planned.start == found.start


def would(lab: Lab, file: BenchmarkFile, asked: JobDescription = ASKED) -> Preview:
    """A dry run."""
    return preview(lab.cycle, RENDER, asked, [file], "ann", lab.clock.now())


def test_a_dry_run_knows_how_long_its_model_took(lab: Lab) -> None:
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    for _ in range(4):
        ran(lab, forecaster, 10.0, b"quick")
        ran(lab, forecaster, 60.0, b"slow")
    lab.turn()
    for content, takes_s in ((b"quick", 10.0), (b"slow", 60.0)):
        reported = would(lab, a_model(content)).forecast
        assert reported is not None
        assert reported.grounded
        assert (reported.finish - reported.start).total_seconds() == pytest.approx(takes_s, rel=0.2)
    short = replace(ASKED, user_time_s=30.0)
    assert would(lab, a_model(b"quick"), short).explanation.placement is not None
    refused = would(lab, a_model(b"slow"), short)
    submitted = lab.submit(content=b"slow", user_time_s=30.0)
    lab.turn()
    assert not refused.explanation.never  # a prediction may be wrong
    assert refused.explanation.waiting == lab.show(submitted).waiting
    assert refused.explanation.waiting is not None
    assert refused.explanation.waiting.reason is WaitingReason.DEADLINE_UNREACHABLE
    assert refused.forecast is None


def test_a_dry_run_assumes_that_files_to_download_are_present(lab: Lab) -> None:
    lab.turn()
    elsewhere = replace(a_model(), url="https://example.org/net.onnx", sha256=None, size_bytes=None)
    reported = would(lab, elsewhere)
    assert reported.explanation.placement is not None
    assert reported.forecast is not None
    assert reported.forecast.start == lab.clock.now()


def asking(asked: JobDescription = ASKED, file: BenchmarkFile | None = None) -> Candidate:
    return Candidate((asked, file), lambda: (asked, [file or a_model()]))


def test_a_submission_is_predicted_at_once_and_nothing_is_changed(lab: Lab) -> None:
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    for _ in range(4):
        ran(lab, forecaster, 10.0)
    lab.running(lab.submit())
    reported = SubmissionForecaster(lab.cycle, lab.clock).of(asking(), "ann")
    assert reported is not None
    assert reported.grounded
    assert reported.place == 1
    assert (reported.start - lab.clock.now()).total_seconds() == pytest.approx(10.0, rel=0.2)
    submitted = lab.submit()
    lab.turn()
    forecaster.run()
    later = forecaster.of(submitted)
    assert later is not None
    assert abs(later.start - reported.start) < timedelta(seconds=1)
    assert abs(later.finish - reported.finish) < timedelta(seconds=1)


def test_a_gang_is_predicted_to_start_when_there_are_boards_for_all_of_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    lab.running(lab.submit())
    submissions = SubmissionForecaster(lab.cycle, lab.clock)
    reported = submissions.of(asking(replace(ASKED, count=2)), "ann")
    assert reported is not None
    assert reported.start > lab.clock.now()
    assert would(lab, a_model(), replace(ASKED, count=2)).forecast is not None
    gang = lab.submit_gang(2)
    lab.turn()
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    forecaster.run()
    starts = []
    for benchmark_id in gang:
        found = forecaster.of(benchmark_id)
        assert found is not None
        starts.append(found.start)
    assert starts[0] == starts[1]
    assert abs(starts[0] - reported.start) < timedelta(seconds=2)
    lab.store.close()


def test_a_submission_of_unknown_duration_has_no_forecast(lab: Lab) -> None:
    lab.turn()
    submissions = SubmissionForecaster(lab.cycle, lab.clock)
    elsewhere = replace(a_model(), url="https://example.org/net.onnx", sha256=None)
    assert submissions.of(asking(file=elsewhere), "ann") is None
    assert submissions.of(asking(replace(ASKED, cron="0 3 * * *")), "ann") is None
    assert submissions.of(asking(replace(ASKED, target="rpi9")), "ann") is None


def test_a_flood_of_submissions_is_not_held_up_by_forecasts(lab: Lab) -> None:
    lab.turn()
    submissions = SubmissionForecaster(lab.cycle, lab.clock)
    asked: list[str] = []

    def found() -> tuple[JobDescription, list[BenchmarkFile]]:
        asked.append("")
        lab.clock.forward(2.0)
        return ASKED, [a_model()]

    slow = Candidate(ASKED, found)
    assert submissions.of(slow, "ann") is not None
    lab.clock.forward(37.0)  # a twentieth of the time at most
    assert submissions.of(slow, "ann") is None
    lab.clock.forward(1.0)
    assert submissions.of(slow, "ann") is not None
    lab.clock.forward(40.0)
    assert lab.cycle.latest is not None
    lab.cycle.latest = replace(
        lab.cycle.latest, live=dict.fromkeys(map(str, range(MAX_PREDICTED_QUEUE + 1)))
    )
    assert submissions.of(slow, "ann") is None
    assert len(asked) == 2


def test_one_forecast_serves_all_of_a_kind_until_the_queue_is_decided_again(lab: Lab) -> None:
    lab.turn()
    submissions = SubmissionForecaster(lab.cycle, lab.clock)
    reported = submissions.of(asking(), "ann")
    assert reported is not None
    lab.clock.forward(1.0)
    assert submissions.of(asking(), "ann") is reported
    assert submissions.of(asking(), "bob") is not reported
    assert submissions.of(asking(replace(ASKED, ram=1)), "ann") is not reported
    predicted = submissions.of(asking(), "ann")
    assert predicted is not None
    lab.running(lab.submit())
    lab.turn()
    again = submissions.of(asking(), "ann")
    assert again is not None
    assert again.place == 1
    assert again.start > lab.clock.now()
    lab.clock.forward(1.1)
    assert submissions.of(asking(), "ann") is not again


def test_a_submission_is_accepted_although_its_forecast_raises(lab: Lab) -> None:
    def broken() -> tuple[JobDescription, list[BenchmarkFile]]:
        raise ValueError

    assert SubmissionForecaster(lab.cycle, lab.clock).of(Candidate("", broken), "ann") is None


def test_a_submission_that_names_no_file_is_no_error_of_the_server(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong() -> tuple[JobDescription, list[BenchmarkFile]]:
        raise InvalidInput.at("/model", "you have no file 'absent.onnx'", "one that you have")

    assert SubmissionForecaster(lab.cycle, lab.clock).of(Candidate("", wrong), "ann") is None
    assert not caplog.records


def test_one_that_ended_has_no_forecast_any_more(lab: Lab) -> None:
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, Observations())
    assert forecaster.of(ran(lab, forecaster, 5.0)) is None


def test_a_cancelled_benchmark_is_not_scored_by_forecasts(lab: Lab) -> None:
    reported = Observations()
    forecaster = Forecaster(lab.cycle, lab.store, lab.clock, reported)
    lab.running(lab.submit())
    waits = lab.submit()
    lab.turn()
    forecaster.run()
    with lab.store.write() as uow:
        lifecycle.cancel(uow, waits, lab.clock.now(), "ann")
    lab.turn()
    lab.clock.forward(1.0)
    lab.turn()
    forecaster.run()
    assert "eta_error_seconds" not in reported.values
