"""Names of the jobs whose runs Nomad starts by itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from edgeyard.scheduler.model.attempt import job_id_of
from edgeyard.scheduler.model.recurring import (
    is_parent,
    job_of_attempt,
    launched_at,
    parent_id_of,
    parent_of,
    schedule_of,
)

SCHEDULE = "cron-0123456789abcdef"
PARENT = parent_id_of(SCHEDULE, 12)
RUN = f"{PARENT}/periodic-1795253636"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_a_run_is_of_its_parent_and_a_job_of_its_own() -> None:
    assert is_parent(PARENT)
    assert not is_parent(RUN)
    assert (parent_of(PARENT), parent_of(RUN)) == (PARENT, PARENT)
    assert (schedule_of(PARENT), schedule_of(RUN)) == (SCHEDULE, SCHEDULE)
    assert (launched_at(PARENT), launched_at(RUN)) == (
        None,
        datetime.fromtimestamp(1795253636, UTC),
    )
    assert job_of_attempt(RUN) == RUN


@pytest.mark.parametrize(
    "job_id",
    [
        "",
        job_id_of("b", 1, "cron", "ort", NOW),
        job_id_of("b", 1, "cron", "0123456789abcdef", NOW),
        f"{PARENT}-1",
        f"{PARENT}/periodic-",
        f"{PARENT}/periodic-1/periodic-2",
        f"{PARENT}/periodic-٣",
        f"{RUN}\n",
        "benchmark-cron-0123456789abcdef-0",
        "benchmark-cron-0123456789ABCDEF-1",
    ],
)
def test_no_other_job_is_taken_for_one(job_id: str) -> None:
    assert not is_parent(job_id)
    assert (parent_of(job_id), schedule_of(job_id), launched_at(job_id)) == (None, None, None)


def test_the_run_of_a_job_with_one_start_belongs_to_that_job() -> None:
    job_id = job_id_of("b", 1, "rpi4b", "ort", NOW)
    assert job_of_attempt(job_id) == job_of_attempt(f"{job_id}/periodic-1795253636") == job_id
