"""The life of a model on a live server: trained, shadow, active, made worse, rolled back."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.process import Server, edgeyard
from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.framework.policy import read_policy
from edgeyard.scheduler.store import SqlStore
from tests.acceptance.test_learned_policy import with_a_minute_an_answer
from tests.builders.cluster import eventually
from tests.builders.outcomes import Run, add_past
from tests.fakes.receiver import Receiver, receiver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "deploy/demo/digits.onnx"
PAGE = ROOT / "docs/tutorials/models-life.md"
PATIENCE_S = 240.0


def slowed_by_load(run: Run) -> tuple[float | None, str | None]:
    """What load does to run times is all that there is to learn."""
    return 20.0 * math.exp(1.5 * run.load + 0.25 * run.normal), None


def quickened_by_load(run: Run) -> tuple[float | None, str | None]:
    """The opposite of what was learned."""
    return 20.0 * math.exp(-1.5 * run.load + 0.25 * run.normal), None


@pytest.fixture(name="there")
def a_webhook_is_received() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


class Lab:
    """A live server, whose store gets runs as if a lab of eight boards had ended them."""

    def __init__(self, server: Server, data: Path) -> None:
        self._server, self._data = server, data
        self._model = hashlib.sha256(DIGITS.read_bytes()).hexdigest()
        self._begin, self._count = datetime.now(UTC) - timedelta(hours=200), 0
        self._seed = 2  # of draws by which the gates hold by far
        self.shown: list[str] = []

    def runs(self, cycles: int, end: Any) -> None:
        """Let runs end, one on each board and hour, after all that ended before."""
        store = SqlStore(f"sqlite:///{self._data}/edgeyard.db")
        self._count = add_past(
            store,
            cycles,
            end=end,
            begin=self._begin,
            first=self._count,
            seed=self._seed,
            family="emumid",
            models=(self._model,),
        )
        store.close()
        self._begin = max(datetime.now(UTC), self._begin) + timedelta(hours=cycles + 1)
        self._seed += 1

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command; its exit status and all that it says."""
        done = CliRunner().invoke(app, list(words), catch_exceptions=False)
        self.shown += [f"$ edgeyard {' '.join(words)}", *done.output.splitlines()]
        return done.exit_code, done.output

    def states(self) -> dict[str, str]:
        found: Any = self._server.call("GET", "/v1/models")
        return {f"{each['kind']}/{each['version']}": each["state"] for each in found["items"]}

    def model_of_a_decision(self) -> str:
        """Run a benchmark, and return the model of its run times by its explanation."""
        body = {
            "model": "digits.onnx",
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target": "emumid",
            "nb_inference": 5,
        }
        made: Any = self._server.call("POST", "/v1/benchmarks", body)
        self.benchmark_id = str(made["benchmark_id"])
        ended = self._server.wait(self.benchmark_id)
        assert ended["status"] == "completed", ended["failure"]
        explained: Any = self._server.call("GET", f"/v1/benchmarks/{self.benchmark_id}/explanation")
        answers = {each["scorer"]: each for each in explained["scorers"]}
        return str(answers["run_time_model"]["model"])


def test_a_live_server_trains_promotes_and_rolls_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: Receiver
) -> None:
    policy = tmp_path / "patient.toml"
    policy.write_text(with_a_minute_an_answer(read_policy("learned")))
    environment = {
        "EDGEYARD_POLICY": str(policy),
        "EDGEYARD_LEARN_PROMOTE": "auto",
        "EDGEYARD_WEBHOOK_HOSTS": "127.0.0.1",
    }
    with edgeyard(tmp_path / "data", environment) as server:
        monkeypatch.setenv("EDGEYARD_URL", server.url)
        monkeypatch.setenv("EDGEYARD_TOKEN", server.token)
        monkeypatch.setenv("EDGEYARD_COLUMNS", "140")
        lab = Lab(server, tmp_path / "data")
        server.upload(DIGITS)
        server.call("PUT", "/v1/users/admin/webhook", {"url": there.url})
        refused, why = lab.command("models", "retrain")
        assert (refused, "0 runs have ended on known boards" in why) == (1, True)

        lab.runs(100, slowed_by_load)
        learned, said = lab.command("models", "retrain", "--wait")
        assert learned == 0, said
        assert lab.states() == {"run_time/1": "shadow"}, said
        assert lab.model_of_a_decision() == ""  # a shadow has no effect
        lab.command("models", "list")

        lab.runs(55, slowed_by_load)
        learned, said = lab.command("models", "retrain", "--wait")
        assert lab.states()["run_time/1"] == "active", said
        eventually(
            lambda: lab.model_of_a_decision() == "run_time/1", "a decision by it", PATIENCE_S
        )
        lab.command("explain", lab.benchmark_id)

        lab.runs(50, quickened_by_load)
        _, said = lab.command("models", "retrain", "--wait")
        assert lab.states()["run_time/1"] == "retired", said
        _, shown = lab.command("models", "show", "run_time/1")
        assert "rolled back: its loss on 300 runs is higher than the history's" in shown
        eventually(
            lambda: lab.model_of_a_decision() != "run_time/1", "a decision without it", PATIENCE_S
        )

        def sent() -> list[str]:
            messages = [each.json for each in there.got]
            models = [each["data"] for each in messages if each["type"] == "model.state"]
            return [each["state"] for each in models if each["model"] == "run_time/1"]

        eventually(lambda: "retired" in sent(), "the roll-back is sent", PATIENCE_S)
        assert [each for each in sent() if each != "candidate"] == ["shadow", "active", "retired"]
        last = [each.json["data"] for each in there.got if each.json["type"] == "model.state"]
    reasons = [each["reason"] for each in last if each["state"] == "retired"]
    assert any(each.startswith("rolled back: its loss") for each in reasons)
    printed = [without_numbers(each) for each in lab.shown]
    for line in documented():
        assert any(each.startswith(line) for each in printed), line


def documented() -> list[str]:
    """Return the lines of the page, up to what is left out of each."""
    section = PAGE.read_text()
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    lines = [without_numbers(each.partition("...")[0]) for each in "".join(blocks).splitlines()]
    assert len(lines) > 20
    return lines


def without_numbers(line: str) -> str:
    """Return a line in which numbers, times and names of benchmarks are alike."""
    line = re.sub(r"emumid-ort-\S+", "BENCHMARK", line)
    line = re.sub(r"\d[\d.:,-]*", "#", line)
    return re.sub(r"#( #)+", "#", " ".join(line.split()))
