"""This machine's load, as its kernel tells it."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from edgeyard.scheduler.clusters.local.load import MIN_LOAD_INTERVAL, MachineLoad
from tests.builders.records import NOW
from tests.fakes.clock import FixedClock

OURS = min(os.sched_getaffinity(0))
ELSEWHERE = 4095  # a CPU that is not ours
MEMORY = "MemTotal:  4000 kB\nMemFree: 100 kB\nMemAvailable: 3000 kB\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "meminfo").write_text(MEMORY)
    return tmp_path


def write(proc: Path, user: int, idle: int, iowait: int = 0, steal: int = 0) -> None:
    ours = f"cpu{OURS} {user} 0 0 {idle} {iowait} 0 0 {steal} 0 0"
    (proc / "stat").write_text(f"cpu 9 9 9 9\n{ours}\ncpu{ELSEWHERE} {user * 7} 0 0 0\nctxt 1\n")


def test_it_is_the_share_that_our_cpus_and_the_memory_were_used(proc: Path) -> None:
    clock = FixedClock(NOW)
    write(proc, user=1000, idle=5000)
    load = MachineLoad(clock.now, proc)
    assert load.look() is None  # nothing to compare with yet
    write(proc, user=1050, idle=5100, iowait=40, steal=10)
    assert load.look() is None
    clock.forward(MIN_LOAD_INTERVAL.total_seconds())
    report = load.look()
    assert report is not None
    assert (report.load.cpu, report.load.memory, report.at) == (0.3, 0.25, clock.now())
    write(proc, user=9999, idle=5100)
    assert load.look() is report  # not before its time
    clock.forward(-3600)
    assert load.look() is not report  # the clock was set


@pytest.mark.parametrize(
    ("stat", "meminfo"),
    [
        (None, MEMORY),
        ("cpu0 a b c", MEMORY),
        (f"cpu{OURS} 1 2\n", MEMORY),
        ("\n", MEMORY),
        (f"cpu{OURS} 9 9 9 9 9 9 9 9\n", "MemTotal: 0 kB\nMemAvailable: 0 kB\n"),
        (f"cpu{OURS} 9 9 9 9 9 9 9 9\n", ""),
    ],
)
def test_a_kernel_with_another_format_gives_no_load(
    proc: Path, stat: str | None, meminfo: str
) -> None:
    clock = FixedClock(NOW)
    (proc / "meminfo").write_text(meminfo)
    write(proc, user=1, idle=1)
    load = MachineLoad(clock.now, proc)
    (proc / "stat").unlink()
    if stat is not None:
        (proc / "stat").write_text(stat)
    clock.forward(timedelta(minutes=1).total_seconds())
    assert load.look() is None
