"""What `wait` and `watch` print of others' text can't steer the terminal."""

from __future__ import annotations

import io
from typing import cast

from edgeyard.benchmark_api.schemas.answers import CampaignMember
from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.sdk.benchmark import Benchmark
from edgeyard.benchmark_api.sdk.progress import LineView, state_line
from edgeyard.scheduler.model.benchmark import Status

KNOWN = "p50 ±3.1%, ±1% asked for; 12 of at most 60 launches"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nCOMPLETED"


def hostile() -> Benchmark:
    return Benchmark(
        client=cast(Client, None),
        benchmark_id="b",
        status="running",
        answer=CampaignMember(benchmark_id="b", status=Status.RUNNING),
        target_uid=f"rpi{ESCAPE}",
        phase=f"measuring{ESCAPE}",
    )


def measuring(message: str | None, progress: float = 31.0) -> Benchmark:
    return Benchmark(
        client=cast(Client, None),
        benchmark_id="b",
        status="running",
        answer=CampaignMember(benchmark_id="b", status=Status.RUNNING),
        phase="measuring",
        progress=progress,
        progress_message=message,
    )


def test_a_measurement_shows_what_is_known_so_far() -> None:
    assert f"31 % · {KNOWN}" in state_line(measuring(KNOWN))


def test_news_of_a_long_phase_have_a_line_now_and_then() -> None:
    out, now_s = io.StringIO(), 0.0
    view = LineView(out, lambda: now_s)
    for now_s, message in ((0.0, "a"), (9.0, "b"), (11.0, "c"), (40.0, "c"), (41.0, None)):  # noqa: B007
        view.update([measuring(message)])
    assert [line.rsplit(" ", 1)[1] for line in out.getvalue().splitlines()] == ["a", "c"]


def test_a_board_s_name_sends_no_control_characters() -> None:
    line = state_line(hostile())
    assert line.isprintable()
    assert "rpi" in line


def test_lines_of_a_pipe_send_none_either() -> None:
    out = io.StringIO()
    view = LineView(out)
    view.update([hostile()])
    view.note(f"job {ESCAPE}")
    assert all(char.isprintable() or char == "\n" for char in out.getvalue())
