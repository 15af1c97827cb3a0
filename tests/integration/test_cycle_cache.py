"""The cycle's own knowledge of the queue: what it wrote itself it does not read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.store.benchmarks import SqlBenchmarks
from tests.builders.engine import A, B, Lab


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of benchmarks that were read together."""
    found: list[str] = []
    get_many = SqlBenchmarks.get_many

    def noted(self: SqlBenchmarks, benchmark_ids: Sequence[str]) -> Sequence[Benchmark]:
        found.extend(benchmark_ids)
        return get_many(self, benchmark_ids)

    monkeypatch.setattr(SqlBenchmarks, "get_many", noted)
    return found


def test_only_what_others_changed_is_read_again(tmp_path: Path, read: list[str]) -> None:
    lab = Lab(tmp_path, A, B)
    ids = [lab.submit() for _ in range(5)]
    lab.cycle.run()
    assert sorted(read) == sorted(ids)
    read.clear()
    lab.cycle.run()
    assert read == []
    waits = [each for each in ids if lab.show(each).status is Status.PENDING]
    assert len(waits) == 3
    with lab.store.write() as uow:
        lifecycle.hold(uow, waits[0], lab.clock.now(), "ann", True)
    lab.cycle.run()
    assert read == [waits[0]]
    read.clear()
    lab.cycle.run()
    assert read == []
    lab.store.close()
