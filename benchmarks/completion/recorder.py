"""Runs the submissions of a scenario on a real Nomad under its arms in turn."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.completion import scenario as scenarios
from benchmarks.completion.records import (
    Job,
    Record,
    Run,
    completion_s,
    queueing_s,
    read_record,
    write_record,
)
from benchmarks.completion.scenario import PEER, Arm, Scenario
from deploy.process import Server, edgeyard, in_cluster, on_nomad
from edgeyard.devices.inventory import Inventory, with_shared_cores
from edgeyard.devices.model import BoardEngine
from edgeyard.scheduler.framework.policy import read_policy
from edgeyard.testbed import cluster, saved
from edgeyard.testbed.agent import command_lines
from edgeyard.testbed.binary import find_nomad
from edgeyard.testbed.cluster import LoopbackNomad

MODELS = Path(__file__).parents[2] / "deploy/demo"

HISTORY_RUNS = 2
"""Under the peer before the blocks: what is known of the boards at first, and learned from."""

DECIDING = ("run_time", "failure")
"""Models that boards are chosen by."""

_HEARTBEAT_S = 10.0
_MAX_END_S = 600.0
_MAX_TRAINING_S = 180.0
"""A training has low priority: on a busy machine the pairs do not wait for it."""

_USER_TIME_S = 120
_POLL_S = 1.0


def record(scenario: Scenario, blocks: int, path: Path, folder: Path) -> None:
    """Record runs until there are so many blocks; goes on with those that the file has.

    Where the folder with the server's history is gone, the runs that make history are made again;
    all arms of a block meet the same history either way.

    Args:
        path: File of the records; written after each run.
        folder: Of the test bed and the server, whose history stays there for the next call.

    Raises:
        ConfigError: There is no Nomad.
        ValueError: The file has runs of other settings.
    """
    cpus = sorted(os.sched_getaffinity(0))[:2]
    about = _about(scenario, len(cpus))
    runs = _earlier_runs(path, about)
    has_history = (folder / "server").is_dir()
    engine = BoardEngine("ort", version("onnxruntime"), frozenset({"TYPE1"}))
    hosts = [
        Inventory(with_shared_cores(boards)) for boards in scenarios.boards(scenario, cpus, engine)
    ]
    with _nomad(folder, hosts) as nomad, _server(folder, nomad, hosts) as server:
        bench = _Bench(scenario, server, folder)
        for block, arm in due(scenario, runs if has_history else _whole(scenario, runs), blocks):
            is_first = block > 0 and not bench.trained
            done = bench.run(block, arm, bench.train() if is_first else "")
            runs = [each for each in runs if (each.block, each.arm) != (block, arm.name)]
            runs.append(done)
            write_record(path, Record(about, tuple(runs)))
            sys.stderr.write("\n")
            _say(
                f"mean completion {done.mean(completion_s):.1f} s, "
                f"queueing {done.mean(queueing_s):.1f} s"
            )


def _about(scenario: Scenario, cpus: int) -> Mapping[str, object]:
    speeds = "; ".join(
        f"{scenarios.SPEEDS.count(speed)} of speed {speed:g} (duty cycle "
        f"{speed * scenarios.FULL_DUTY_CYCLE:g})"
        for speed in scenarios.FAMILIES
    )
    return {
        "scenario": scenario.name,
        "boards": f"{len(scenarios.SPEEDS)} boards emulated by duty cycles: {speeds}",
        "emulation": "each inference is real and is followed by idle time, so that the engine "
        "computes for the duty cycle's share of the time; all boards together compute for "
        f"{sum(scenarios.SPEEDS) * scenarios.FULL_DUTY_CYCLE:.2f} of a core, and share none",
        "hosts": scenarios.HOSTS,
        "jobs_a_run": scenario.jobs,
        "load": scenario.load,
        "kinds": [[kind.model, kind.inferences] for kind in scenario.kinds],
        "history_runs": HISTORY_RUNS,
        "machine": f"{cpus} cores, {platform.machine()}",
    }


def _earlier_runs(path: Path, about: Mapping[str, object]) -> list[Run]:
    if not path.is_file():
        return []
    found = read_record(path)
    if found.about != about:
        raise ValueError(f"{path} has runs of other settings: move it away first")
    return list(found.runs)


def _whole(scenario: Scenario, runs: Sequence[Run]) -> list[Run]:
    """Return the runs of the blocks that have one of each arm: others begin again."""
    counts = Counter(run.block for run in runs if run.block > 0)
    return [run for run in runs if counts[run.block] == len(scenario.arms)]


def due(scenario: Scenario, runs: Sequence[Run], blocks: int) -> list[tuple[int, Arm]]:
    """Return block and arm of the runs that are missing, in their order; first makes history."""
    done = {(run.block, run.arm) for run in runs}
    wanted = [(block, scenarios.NATIVE) for block in range(1 - HISTORY_RUNS, 1)]
    wanted += [
        (block, arm) for block in range(1, blocks + 1) for arm in scenarios.order(scenario, block)
    ]
    return [(block, arm) for block, arm in wanted if (block, arm.name) not in done]


def policy_text(arm: Arm) -> str:
    """Return the arm's policy as TOML; "" where it is a built-in one as it is."""
    if not arm.scorers:
        return ""
    text = read_policy(arm.policy)
    for ours, instead in arm.scorers:
        text = text.replace(f'name = "{ours}"', f'name = "{instead}"')
    return text.replace(f'name = "{arm.policy}"', f'name = "{arm.policy}_trained"')


@contextmanager
def _nomad(folder: Path, hosts: Sequence[Inventory]) -> Iterator[LoopbackNomad]:
    """A new cluster; agents that a killed recorder left are ended first."""
    home = (folder / "nomad").resolve()
    with contextlib.suppress(FileNotFoundError):
        left = saved.load(home)
        if left is not None:
            left.down()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    made = cluster.make(
        home, str(find_nomad()), [host.to_json() for host in hosts], heartbeat_s=_HEARTBEAT_S
    )
    saved.save(made, _expected(hosts))
    try:
        made.start(_say)
        yield made
    finally:
        made.down()


@contextmanager
def _server(folder: Path, nomad: LoopbackNomad, hosts: Sequence[Inventory]) -> Iterator[Server]:
    """The server with the history of earlier runs; one that a killed recorder left is ended."""
    data_dir = (folder / "server").resolve()
    for pid, words in command_lines():
        if b"up" in words and str(data_dir).encode() in words:
            os.kill(pid, signal.SIGKILL)
    settings = {
        **on_nomad(nomad, nomad.folder / saved.INVENTORY),
        **in_cluster(memory_mib=saved.MEMORY_MIB),
        "EDGEYARD_POLICY": PEER,
        "EDGEYARD_LEARN_PROMOTE": "never",  # the recorder does it, so that no run differs
    }
    with edgeyard(data_dir, settings) as server:
        yield server


def _expected(hosts: Sequence[Inventory]) -> Inventory:
    return Inventory(with_shared_cores([board for host in hosts for board in host.boards]))


class _Bench:
    """The server with the files that all runs need."""

    def __init__(self, scenario: Scenario, server: Server, folder: Path) -> None:
        self._scenario, self._server = scenario, server
        inputs = folder / "inputs.npz"
        images = np.random.default_rng(0).random((scenarios.ROWS, 1, 8, 8), dtype=np.float32)
        np.savez(inputs, x=images)
        self._dataset = str(server.upload(inputs)["name"])
        self._models = {
            kind.model: str(server.upload(MODELS / f"{kind.model}.onnx")["name"])
            for kind in scenario.kinds
        }
        self.trained = bool(self._active_models())
        left = self._live()
        for benchmark_id in left:  # of a run that was cut off
            server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
        self._await_end(left, lambda ended: None)

    def train(self) -> str:
        """Have the server learn from all runs so far; return what it said, and what gates said.

        The models that boards are chosen by become active. Where a gate does not hold they do,
        too, and the answer says which: what they add is to be measured.
        """
        self.trained = True
        try:
            self._server.call("POST", "/v1/models/training/begin")
        except RuntimeError as error:
            return f"not trained: {error}"
        until = time.monotonic() + _MAX_TRAINING_S
        while (state := self._server.call("GET", "/v1/models/training"))["running"]:
            if time.monotonic() > until:
                until = math.inf
                with contextlib.suppress(RuntimeError):  # it has just ended
                    self._server.call("POST", "/v1/models/training/stop")
            time.sleep(_POLL_S)
        said = [str(state["message"])]
        for each in self._server.call("GET", "/v1/models")["items"]:
            if each["kind"] in DECIDING and each["state"] == "candidate":
                reference = f"{each['kind']}/{each['version']}"
                gates = self._server.call("GET", f"/v1/models/{reference}")["gates"]
                failed = ", ".join(gate["name"] for gate in gates if not gate["passed"])
                for _ in ("shadow", "active"):
                    self._server.call("POST", f"/v1/models/{reference}/promote?force=true")
                said.append(f"{reference}: gates that do not hold: {failed or 'none'}")
        return "; ".join(said)

    def run(self, block: int, arm: Arm, training: str) -> Run:
        """Submit everything in its time, and wait for the ends.

        Raises:
            TimeoutError: Some have not ended after ten minutes.
        """
        submissions = scenarios.submissions(self._scenario, block)
        text = policy_text(arm)
        self._server.call(
            "PUT", "/v1/policies/active", {"text": text} if text else {"name": arm.policy}
        )
        began_at, began = datetime.now(UTC), time.monotonic()
        load_average = round(os.getloadavg()[0], 2)
        ids: list[str] = []

        def progress(ended: int) -> None:
            sys.stderr.write(
                f"\rblock {block}, {arm.name}: {time.monotonic() - began:3.0f} s, "
                f"{len(ids)} of {len(submissions)} submitted, {ended} ended "
            )

        for submission in submissions:
            time.sleep(max(0.0, submission.at_s - (time.monotonic() - began)))
            ids.append(self._submit(submission, arm))
            progress(len(ids) - len(self._live()))
        self._await_end(ids, progress)
        return Run(
            block=block,
            arm=arm.name,
            began_at=began_at.isoformat(timespec="seconds"),
            load_average=load_average,
            training=training,
            models=self._active_models(),
            jobs=tuple(self._job(each, began_at) for each in ids),
        )

    def _submit(self, submission: scenarios.Submission, arm: Arm) -> str:
        return self._server.submit(
            {
                "model": self._models[submission.kind.model],
                "dataset": self._dataset,
                "keep_outputs": True,
                "target": submission.family,
                "nb_inference": submission.kind.inferences,
                "user_time": _USER_TIME_S,
                "affinities": list(arm.affinities),
            }
        )

    def _live(self) -> list[str]:
        live = "&".join(f"status={each}" for each in ("pending", "scheduled", "running"))
        found = self._server.call("GET", f"/v1/benchmarks?limit=1000&{live}")
        return [str(each["benchmark_id"]) for each in found["items"]]

    def _await_end(self, ids: Sequence[str], progress: Callable[[int], None]) -> None:
        until = time.monotonic() + _MAX_END_S
        while live := self._live():
            progress(len(ids) - len(live))
            if time.monotonic() > until:
                raise TimeoutError(f"{len(live)} benchmarks have not ended in {_MAX_END_S:.0f} s")
            time.sleep(_POLL_S)
        progress(len(ids))

    def _active_models(self) -> tuple[str, ...]:
        found = self._server.call("GET", "/v1/models")["items"]
        return tuple(
            f"{each['kind']}/{each['version']}" for each in found if each["state"] == "active"
        )

    def _job(self, benchmark_id: str, began_at: datetime) -> Job:
        shown = self._server.show(benchmark_id)

        def seconds(moment: object) -> float:
            if moment is None:
                return math.nan
            return (datetime.fromisoformat(str(moment)) - began_at).total_seconds()

        return Job(
            model=Path(shown["description"]["model"]).stem,
            family=shown["description"]["target"],
            board=shown["target_uid"] or "",
            submitted_s=seconds(shown["submit_time"]),
            started_s=seconds(shown["started_at"]),
            ended_s=seconds(shown["ended_at"]),
            status=shown["status"],
            attempts=len(shown["attempts"]),
        )


def _say(sentence: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {sentence}\n")
