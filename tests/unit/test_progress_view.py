"""What `wait` and `watch` print of others' text can't steer the terminal."""

from __future__ import annotations

import io
from typing import cast

from edgeyard.benchmark_api.schemas.answers import CampaignMember
from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.sdk.benchmark import Benchmark
from edgeyard.benchmark_api.sdk.progress import LineView, state_line
from edgeyard.scheduler.model.benchmark import Status

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
