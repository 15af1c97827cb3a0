"""What fails each second is not logged each second."""

from __future__ import annotations

import logging

import pytest

from edgeyard.scheduler.engine.outages import REPEAT_S, Outages


def test_an_outage_is_logged_at_its_beginning_now_and_then_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    outages = Outages(lambda: now_s)
    with caplog.at_level(logging.INFO):
        for _ in range(int(REPEAT_S * 2.5)):
            now_s += 1.0
            outages.failed("twin.refresh_failed", "the cluster did not answer", f"asked at {now_s}")
            outages.succeeded("repair.missed")
        outages.succeeded("twin.refresh_failed")
        outages.succeeded("twin.refresh_failed")
    events = [record.__dict__["event"] for record in caplog.records]
    assert events == ["twin.refresh_failed"] * 3 + ["twin.refresh_failed.over"]
    assert caplog.records[1].__dict__["unlogged"] == REPEAT_S - 1
