"""What is counted for each user is what they have, and all that is stored is somebody's."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.engine.housekeeping import collect_garbage, release
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole, Status
from edgeyard.scheduler.model.files import ResultFile, UserFile
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.databases import database_in
from tests.fakes.clock import FixedClock

DAY_S = 86400.0
USERS = ("ada", "bob")
CONTENTS = [bytes([number]) * (number + 1) * 100 for number in range(5)]

Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["upload", "submit", "fetch", "result", "end", "forget", "drop", "prune", "crash"]
        ),
        st.integers(0, 1),
        st.integers(0, len(CONTENTS) - 1),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=30,
)


class Crash(Exception):
    """The process dies before the commit."""


@dataclass
class World:
    """A store and files, and who did what in them."""

    store: SqlStore
    files: ContentFiles
    clock: FixedClock
    files_of: list[str] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    steps: int = 0

    def content(self, number: int) -> tuple[str, int]:
        writer = self.files.writer(10_000)
        writer.write(CONTENTS[number])
        stored = writer.commit()
        os.utime(self.files.path(stored.sha256), (1, 1))  # so that nobody may be about to name it
        return stored.sha256, stored.size_bytes

    def step(self, step: Step) -> None:
        action, user, number, which = step
        self.steps += 1
        self.clock.at += timedelta(hours=6)
        getattr(self, action)(USERS[user], number, which)

    def upload(self, user: str, number: int, which: int) -> None:
        sha256, size_bytes = self.content(number)
        file = UserFile(
            file_id=f"f-{self.steps}",
            user_id=user,
            name=f"net-{which % 2}.onnx",
            sha256=sha256,
            size_bytes=size_bytes,
            created_at=self.clock.now(),
        )
        added = self.store.transact(lambda uow: uow.files.add_user_file(file))
        if added.file_id not in self.files_of:
            self.files_of.append(added.file_id)

    def submit(self, user: str, number: int, which: int, *, fetched: bool = False) -> None:
        sha256 = hashlib.sha256(CONTENTS[number]).hexdigest()
        if not fetched and not self.files.contains(sha256):
            return
        file = BenchmarkFile(
            role=FileRole.MODEL,
            position=0,
            name="net.onnx",
            url="http://x.test/net.onnx" if fetched else None,
            sha256=None if fetched else sha256,
            size_bytes=None if fetched else len(CONTENTS[number]),
        )
        made = make.a_benchmark(
            f"b-{self.steps}", user_id=user, submit_time=self.clock.now(), files=(file,)
        )
        self.store.transact(lambda uow: uow.benchmarks.add(made))
        self.live.append(made.benchmark_id)
        if fetched:
            sha256, size_bytes = self.content(number)
            got = replace(file, sha256=sha256, size_bytes=size_bytes)

            def note(uow: UnitOfWork) -> None:
                uow.benchmarks.save_files(
                    replace(uow.benchmarks.get(made.benchmark_id), files=(got,))
                )

            self.store.transact(note)

    def fetch(self, user: str, number: int, which: int) -> None:
        self.submit(user, number, which, fetched=True)

    def result(self, user: str, number: int, which: int) -> None:
        if not self.live:
            return
        sha256, size_bytes = self.content(number)
        result = ResultFile(
            benchmark_id=self.live[which % len(self.live)],
            attempt=1,
            name=f"raw-{which % 2}.npy",
            sha256=sha256,
            size_bytes=size_bytes,
            received_at=self.clock.now(),
        )

        def add(uow: UnitOfWork) -> Sequence[str]:
            names = (result.attempt, result.name)
            had = uow.files.results(result.benchmark_id)
            uow.files.add_result(result)
            return [each.sha256 for each in had if (each.attempt, each.name) == names]

        replaced = self.store.transact(add)
        # as the next collection does
        release(self.store, self.files, dict.fromkeys(replaced, self.clock.now()))

    def end(self, user: str, number: int, which: int) -> None:
        if not self.live:
            return
        benchmark_id = self.live.pop(which % len(self.live))

        def finish(uow: UnitOfWork) -> None:
            benchmark = uow.benchmarks.get(benchmark_id)
            uow.benchmarks.save(
                replace(benchmark, status=Status.CANCELLED, ended_at=self.clock.now())
            )

        self.store.transact(finish)
        self.ended.append(benchmark_id)

    def forget(self, user: str, number: int, which: int) -> None:
        if not self.files_of:
            return
        file_id = self.files_of.pop(which % len(self.files_of))
        try:
            gone = self.store.transact(lambda uow: uow.files.remove_user_file(file_id))
        except (NotFound, Conflict):
            return
        release(self.store, self.files, {gone.sha256: self.clock.now()})

    def drop(self, user: str, number: int, which: int) -> None:
        if not self.ended:
            return
        benchmark_id = self.ended[which % len(self.ended)]

        def drop(uow: UnitOfWork) -> Sequence[str]:
            try:
                owner = uow.benchmarks.get(benchmark_id).user_id
            except NotFound:  # pruned
                return ()
            return uow.files.drop_files(benchmark_id, owner)

        dropped = self.store.transact(drop)
        release(self.store, self.files, dict.fromkeys(dropped, self.clock.now()))

    def prune(self, user: str, number: int, which: int) -> None:
        kinds = [RetentionClass.RESULTS, RetentionClass.FILES, RetentionClass.BENCHMARKS]
        kept = {kind: (which + 1) * DAY_S / 4 for kind in kinds[: 1 + number % 3]}
        collect_garbage(self.store, self.files, self.clock, kept)

    def crash(self, user: str, number: int, which: int) -> None:
        """An upload whose process dies before its transaction is committed."""
        sha256, size_bytes = self.content(number)
        file = make.a_user_file(f"f-{self.steps}", user_id=user, sha256=sha256)

        def add(uow: UnitOfWork) -> None:
            uow.files.add_user_file(replace(file, size_bytes=size_bytes))
            uow.usage.stored_bytes(user)
            raise Crash

        with pytest.raises(Crash):
            self.store.transact(add)
        release(self.store, self.files, {sha256: self.clock.now()})  # as the next collection does

    def named(self) -> Iterator[tuple[str, str, int]]:
        """User, hash and size of everything that is named, read without the counts."""
        with self.store.read() as uow:
            files, _ = uow.files.user_file_page(user_id=None, name=None, limit=1000, cursor=None)
            for file in files:
                yield file.user_id, file.sha256, file.size_bytes
            query = (
                "SELECT b.user_id, f.sha256, f.size_bytes FROM benchmark_files f JOIN benchmarks b "
                "ON b.benchmark_id = f.benchmark_id WHERE f.kept AND f.sha256 IS NOT NULL "
                "UNION ALL SELECT b.user_id, r.sha256, r.size_bytes FROM result_files r "
                "JOIN benchmarks b ON b.benchmark_id = r.benchmark_id"
            )
            for row in uow.tx.rows(text(query)):
                yield str(row["user_id"]), str(row["sha256"]), int(str(row["size_bytes"]))

    def check(self) -> None:
        of_user: dict[str, dict[str, int]] = {user: {} for user in USERS}
        for user, sha256, size_bytes in self.named():
            of_user[user][sha256] = size_bytes
        with self.store.read() as uow:
            counted = {user: uow.usage.stored_bytes(user) for user in USERS}
        assert counted == {user: sum(had.values()) for user, had in of_user.items()}
        on_disk = {path.name: path.stat().st_size for path in self.files._root.glob("??/??/*")}
        assert on_disk == of_user["ada"] | of_user["bob"]


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
@example(steps=[("fetch", 0, 0, 0), ("result", 0, 1, 0), ("result", 0, 0, 0)])
def test_what_is_counted_is_what_is_named_and_what_is_on_disk(
    each_database: str, steps: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = SqlStore(database_in(folder))
        try:
            world = World(store, ContentFiles(folder / "files"), FixedClock(make.NOW))
            for step in steps:
                world.step(step)
                world.check()
        finally:
            store.close()
