"""Every command that a page or a message suggests is run against a live server, as it is written.

Names that stand for others (ID, DIR, rpi4b) are replaced by things of this server. What cannot run
here is listed in `NOT_RUN` with the reason, and with the test that runs it if there is one.
"""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner

from deploy.process import Server, edgeyard
from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.sdk.errors import NotFoundError
from tests.builders.cluster import eventually
from tests.builders.runner import model_of
from tests.unit.test_suggested_commands import suggestions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("suggested_commands"),
]

DEMO = Path(__file__).parents[2] / "deploy/demo"

NOT_RUN = (
    (r"^up\b", "starts a server that stays: the server of this module is one"),
    (r"^testbed\b", "starts a Nomad cluster: tests/integration/test_testbed_nomad.py"),
    (r"^ste serve\b", "serves until it is stopped: tests/integration/test_ste_services.py"),
    (r"^ste run\b", "simulates hours or trains: tests/unit/test_ste_cli.py"),
    (r"^sim run\b", "simulates hours: tests/unit/test_sim_cli.py"),
    (
        r"--runtime memory\b",
        "needs the engine of its page: tests/acceptance/test_benchmark_types.py",
    ),
    (r"--runtime matrix\b", "needs the engine of its page: tests/unit/test_docs_examples.py"),
    (
        r"^server (backup|restore|admin-token)\b",
        "needs an installed server: tests/acceptance/test_operators_guides.py",
    ),
    (r"even-wear", "needs the example package: tests/acceptance/test_your_own_scorer.py"),
    (r"rested|explain fourth|--clone first|--id first|--data-dir lab", "a followed tutorial"),
    (r"^(sim show|sim report|ste show)", "needs a finished simulation: tests/unit/test_sim_cli.py"),
    (r"--controller http|^ste cancel", "needs `ste serve`: tests/integration/test_ste_services.py"),
    (r"^learn a2c\b", "trains for minutes: tests/integration/test_a2c.py"),
    (r"^learn score\b", "trains for minutes: tests/integration/test_score_training.py"),
    (
        r"^learn outcomes\b|^models (compare|promote|retrain|rollback|show)\b",
        "needs a hundred runs or a model: tests/integration/test_models.py",
    ),
    (r"--alerts mail\b", "needs a mail server: tests/integration/test_alerts.py"),
    (r"--cron-by nomad\b", "needs a Nomad: tests/acceptance/test_nomad_recurring.py"),
    (r"--soak 30m\b", "runs for half an hour: tests/acceptance/test_loads.py"),
    (r"--load server\b", "fails where no rate keeps the bound: tests/acceptance/test_loads.py"),
    (r"^events --follow\b", "follows without end: tests/integration/test_acts.py"),
    (r"^alerts (show|resolve|dismiss)\b", "needs an alert: tests/integration/test_alerts.py"),
    (r"edgeyard-canary|\bcanary/", "needs canaries: tests/integration/test_canaries.py"),
    (r"^files abandon\b", "needs an upload that was interrupted"),
    (r"^strays stop\b|^preempt\b", "needs a stray job or a run that is under way"),
    (r"server\.toml|^doctor\b|^server prune\b", "needs the configuration of an installed server"),
    (r"^sim from-history\b", "needs days of history: tests/unit/test_sim_cli.py"),
    (r"^sim fit\b", "needs days of history: tests/unit/test_sim_fit.py"),
    (r"^sim validate\b", "needs days of history: tests/unit/test_sim_validate.py"),
    (r"--password-stdin", "reads a password from stdin: tests/acceptance/test_platform_client.py"),
    (r"^users password\b", "needs an account with a password"),
    (r"^sim replay LOG --queue (DIR/)?NAME", "is the form of a command, with NAME of a policy"),
    (r"^scenarios generate KIND", "is the form of a command, with KIND for its kinds"),
)
MISSING = re.compile(
    r"[Mm]issing|is required|requires an argument|nothing|no results to show|set --data-dir|^Try: "
)
"""Lines of the errors of a command that a sentence names without what it is about."""


EXPECTED = {
    "boards check": {2},  # a board of the inventory is offline
    "check": {0, 4},
    "replay": {2},  # it is named in a sentence, without the folder of a server
}
"""Exit statuses other than 0, by suggestion or command."""


@dataclass
class Lab:
    """A server with a history, and the folder in which the commands are run.

    Attributes:
        ended: Ids of completed benchmarks.
    """

    server: Server
    folder: Path
    data: Path
    client: Client
    ended: list[str] = field(default_factory=list)
    made: int = 0

    def waiting(self) -> str:
        """Return the id of a new benchmark that waits for its start time."""
        self.made += 1
        name = f"waiting-{self.made}"
        self.client.submit(
            model="net.onnx", runtime="ort", benchmark_type="TYPE1", target="emumid",
            start_time="2099-01-01T00:00:00Z", benchmark_id=name,
        )  # fmt: skip
        eventually(lambda: self._is_explained(name), f"a cycle has considered {name}")
        return name

    def _is_explained(self, name: str) -> bool:
        try:
            self.client.explain(name)
        except NotFoundError:
            return False
        return True

    def check(self) -> str:
        """Return the id of a new check."""
        body = {
            "baseline": {"benchmark_id": self.ended[0]},
            "candidate": {"parameters": {"threads": 1}},
        }
        made: Any = self.client.api.post("/v1/checks", body)
        return str(made["check_id"])

    def new_folder(self) -> str:
        """Return the name of a folder that does not exist."""
        self.made += 1
        return f"folder-{self.made}"

    def words(self, suggestion: str) -> list[str]:
        """Return a suggestion as arguments, with things of this server for placeholders."""
        action = suggestion.split()[0]
        live = action in ("hold", "release", "prioritise", "cancel", "explain")
        family = {"rpi4b": "emumid", "rpi5": "emufast", "jetsonorinnano": "emuslow"}
        text = suggestion.replace("$MODEL", "squeezenet.onnx").replace("ID1 ID2", "ID ID2")
        text = text.replace("ID2 ID3", "ID2").replace("ID …", "ID")
        for name, ours in family.items():
            text = re.sub(rf"\b{name}(?=-\d{{4}}-\d{{4}}|\b)", ours, text)
        if live and not text.startswith("explain ID"):
            ours = self.waiting()
            if action == "release":
                self.client.hold(ours)
            text = re.sub(r"\b(ID|urgent)\b", ours, text)
        values = {
            r"(emumid|x86)-ort-\d+-\w+|\bb-42\b": self.ended[0],
            r"\bID2\b": self.ended[-1],
            r"--campaign ID\b": "--campaign suite",
            r"\bcampaigns show NAME\b": "campaigns show suite",
            r"\bFOLDER\b": self.new_folder(),
            r"--data-dir DIR\b": f"--data-dir {self.data}",
            r"--download DIR\b": "--download .",
            r"\bBOARD\b": "emumid-0001-0001",
            r"--series nightly\b": "--series detector",
            r"--for BENCHMARK\b": f"--for {self.waiting()}" if "BENCHMARK" in text else "",
            r"^users create ada\b": f"users create ada-{self.made}",
            r"--user (prometheus|wallboard)\b": "--user admin",  # made by the line before
            r"\bFILE\b": "mine.toml",
            r"\{origin\}": self.ended[0],
            r"\bGROUP\b": "vision",
            r"\bcheck-0123456789abcdef\b": self.check() if "check-0" in text else "",
            r"--count 3\b": "--count 2",  # emumid has two boards
        }
        for pattern, value in values.items():
            text = re.sub(pattern, value, text)
        if "FILE_ID" in text:
            scratch = self.folder / f"scratch-{self.made}.bin"
            scratch.write_bytes(scratch.name.encode())
            text = text.replace("FILE_ID", self.client.upload(scratch).file_id)
        if text.startswith("subscriptions add") and "--by" not in text:
            text += " --by webhook"  # this server sends no mail
        if "sub-1f…" in text:
            kept: Any = self.client.api.post("/v1/subscriptions", {"channel": "webhook"})
            text = text.replace("sub-1f…", kept["subscription_id"])
        if "SERIES_ID" in text:
            series: Any = self.client.api.get("/v1/series")
            text = text.replace("SERIES_ID", series["items"][0]["series_id"])
        if "TOKEN_ID" in text:
            token: Any = self.client.api.post("/v1/tokens", {"label": "lost"})
            text = text.replace("TOKEN_ID", token["token_id"])
        if text == "files delete --benchmark ID":
            text = text.replace("ID", self.ended.pop())
        text = re.sub(r"\bID\b", self.ended[0], text)
        words = shlex.split(text)
        if action == "check" and len(words) > 1:
            words += ["--budget", "0.1"]  # what it decides is tested elsewhere
        if action == "submit" and "--precision" in words:
            words += [
                "--user-time",
                "15",
            ]  # 5 s are over before an engine is loaded on a busy machine
        return words


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("suggested")
    images = model_of(
        [
            helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["scores"]),
        ],
        {"x": [1, 3, 224, 224]},
        {"scores": [1, 3]},
    )
    for name in ("digits", "net", "net-int8", "mobilenet", "resnet18", "squeezenet", "detector-v7"):
        (folder / f"{name}.onnx").write_bytes(images + b"\x2a" + bytes([len(name)]) + name.encode())
    for name in (
        "digits.tflite",
        "digits.xml",
        "digits.bin",
        "digits.ncnn.param",
        "digits.ncnn.bin",
    ):
        (folder / name).write_bytes((DEMO / name).read_bytes())
    shutil.copytree(DEMO / "tiny_llama", folder / "tiny_llama")
    (folder / "llm").mkdir()
    open_ids = model_of(
        [helper.make_node("Relu", ["ids"], ["y"])], {"ids": ["b", "n"]}, {"y": ["b", "n"]}
    )
    (folder / "llm/llm.onnx").write_bytes(open_ids)
    rows = np.zeros((2, 3, 224, 224), np.float32)
    for name in ("inputs.npz", "images.npz"):
        np.savez(folder / name, x=rows)
    np.savez(folder / "rows.npz", x=rows, y=np.zeros(2, np.int64))
    (folder / "job.yaml").write_text(
        "model: net.onnx\nruntime: ort\nbenchmark_type: TYPE1\ntarget: emumid\n"
    )
    data = folder / "server"
    with edgeyard(data) as server, Client(server.url, server.token) as client:
        made = Lab(server, folder, data, client)
        for tags in (["main", "nightly", "demo"], [], []):
            submitted = client.submit(
                model=folder / "net.onnx", runtime="ort", benchmark_type="TYPE1",
                target="emumid", nb_inference=3, tags=tags, series="detector",
            )  # fmt: skip
            made.ended.append(submitted.benchmark_id)
        client.submit(
            model="net.onnx", runtime="ort", benchmark_type="TYPE1", nb_inference=3,
            target=["emumid", "emufast"], name="suite", wait=True, progress=False,
        )  # fmt: skip
        client.wait(made.ended, progress=False)
        server.call("POST", "/v1/users", {"user_id": "ada", "max_lease_s": 36000.0})
        yield made


@pytest.fixture(autouse=True)
def _at_home(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.folder)
    monkeypatch.setenv("EDGEYARD_URL", lab.server.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", lab.server.token)
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(lab.folder / name.lower()))


def reason_not_to_run(words: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN if re.search(pattern, words)), None)


ALL = sorted({" ".join(words.split()) for _, words in suggestions()})


def open_batch() -> bytes:
    """A model that takes any number of rows."""
    return model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 4]}, {"y": ["n", 4]})


def prepare(lab: Lab, words: str) -> None:
    """Make what earlier lines of the same page would have made."""
    if "mine.toml" in words or "FILE" in words.split():
        text = CliRunner().invoke(app, ["policies", "show", "default"]).stdout
        (lab.folder / "mine.toml").write_text(text.replace('"default"', f'"mine-{lab.made}"', 1))
    if "mask=mask.npy" in words:
        both = model_of(
            [helper.make_node("Add", ["ids", "mask"], ["y"])],
            {"ids": [1, 4], "mask": [1, 4]},
            {"y": [1, 4]},
        )
        (lab.folder / "net.onnx").write_bytes(both)
        for name in ("ids", "mask"):
            np.save(lab.folder / f"{name}.npy", np.ones((1, 4), np.float32))
    if words == "boards release BOARD":
        lease = ["boards", "lease", "emumid-0001-0001", "--until", "+1 h", "--user", "ada"]
        CliRunner().invoke(app, lease, catch_exceptions=False)
    if "--sweep" in words:
        (lab.folder / "net.onnx").write_bytes(open_batch())
    if re.search(r"\b(vision|GROUP)\b", words):
        action = "remove" if words.startswith("groups add") else "add"
        CliRunner().invoke(app, ["groups", action, "vision"], catch_exceptions=False)
    if words.startswith("subscriptions"):
        hook = ["users", "update", "admin", "--webhook-url", "https://8.8.8.8/hook"]
        set_up = CliRunner().invoke(app, hook, catch_exceptions=False)
        assert set_up.exit_code == 0, set_up.output
        for each in lab.client.subscriptions():  # a new webhook comes with some
            lab.client.unsubscribe(each.subscription_id)
    if words.startswith("users credit"):
        CliRunner().invoke(app, ["users", "credit", "ada", "1000"], catch_exceptions=False)


@pytest.mark.parametrize("words", [each for each in ALL if reason_not_to_run(each) is None])
def test_a_suggested_command_runs(lab: Lab, words: str) -> None:
    kept = (lab.folder / "net.onnx").read_bytes()
    prepare(lab, words)
    arguments = lab.words(words)
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    (lab.folder / "net.onnx").write_bytes(kept)
    for name in ("outputs.npz", "squeezenet.onnx.part"):
        (lab.folder / name).unlink(missing_ok=True)
    shown = f"edgeyard {shlex.join(arguments)}\n{done.stdout}\n{done.stderr}"
    allowed = EXPECTED.get(words) or (EXPECTED["check"] if arguments[0] == "check" else {0})
    if done.exit_code in allowed or done.stderr.startswith("Usage: "):
        return
    assert done.exit_code == 1, shown
    assert all(MISSING.search(line) for line in done.stderr.splitlines()), shown
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
    help_page: Any = CliRunner().invoke(app, [*names, "--help"])
    assert help_page.exit_code == 0, shown


def test_each_reason_not_to_run_a_command_still_has_one() -> None:
    unused = [
        reason for pattern, reason in NOT_RUN if not any(re.search(pattern, one) for one in ALL)
    ]
    assert unused == []
    assert len([one for one in ALL if reason_not_to_run(one) is None]) > len(ALL) / 2
