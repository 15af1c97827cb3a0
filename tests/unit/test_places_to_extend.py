"""docs/how-to/extend.md names places that exist and that are sufficient."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgeyard.benchmark_api.bootstrap import installed_engines
from edgeyard.devices.machine_facts import ENGINE_PACKAGES
from edgeyard.devices.runner.engines import BUILT_IN
from tests.contract.test_engine import KITS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/extend.md"
PRODUCT = ("scheduler", "benchmark_api", "devices", "plugins", "templates", "testbed", "src")
FOLDERS = (*PRODUCT, "simulator", "training", "deploy")
NEEDED = (
    "an engine",
    "a field of the job description",
    "a waiting reason",
    "a retry rule",
    "a scorer",
    "a filter",
    "a setting",
    "a command of the CLI",
    "a metric",
    "a figure of `edgeyard sim run`",
)


@dataclass(frozen=True)
class Place:
    """A place that the page names: a path, where a part in <> is to be chosen, and a symbol."""

    path: str
    symbol: str = ""


def rows() -> Mapping[str, Sequence[Place]]:
    """The places of each section, by what is to be added."""
    found = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        what, _, listed = section.partition("\n")
        lines = [each for each in listed.splitlines() if each.startswith("- ")]
        quoted = re.findall(r"`([^`]+)`", "\n".join(lines))
        parts = [text.partition(": ") for text in quoted if "/" in text or ": " in text]
        found[what[0].lower() + what[1:]] = [Place(path, symbol) for path, _, symbol in parts]
    return found


ROWS = rows()


@pytest.mark.parametrize("engine", sorted(BUILT_IN))
def test_each_built_in_engine_is_at_all_places_of_its_row(engine: str) -> None:
    kits = {kit.engine: kit for kit in KITS}
    demo = (ROOT / "deploy/demo/README.md").read_text("utf-8")
    assert all(f"`{file.name}`" in demo for file in kits[engine].files)
    assert engine in {each.name for each in installed_engines()}
    assert engine in ENGINE_PACKAGES


def test_the_page_has_a_section_for_what_newcomers_add() -> None:
    assert [what for what in NEEDED if not ROWS.get(what)] == []


@pytest.mark.parametrize("what", ROWS)
def test_each_place_exists(what: str) -> None:
    for place in ROWS[what]:
        fixed = place.path.split("<", 1)[0]
        path = ROOT / (fixed if fixed == place.path else fixed.rsplit("/", 1)[0])
        assert path.exists(), f"{what}: there is no {place.path}"
        if place.symbol and "<" not in place.path:
            text = path.read_text("utf-8")
            assert re.search(rf"(?<!\w){re.escape(place.symbol)}(?!\w)", text), place


class Tree:
    """A scratch copy of the product, in which only the places of one row may change."""

    def __init__(self, folder: Path, what: str) -> None:
        for name in FOLDERS:
            shutil.copytree(
                ROOT / name,
                folder / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
            )
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.folder = folder
        self._places = ROWS[what]

    def insert(self, path: str, symbol: str, pattern: str, text: str) -> None:
        """Insert a line after the first that contains ``pattern`` at or below a symbol."""
        assert Place(path, symbol) in self._places, f"the page names no `{path}: {symbol}`"
        content = (self.folder / path).read_text("utf-8")
        start = re.search(rf"(?<!\w){re.escape(symbol)}(?!\w)", content)
        assert start, f"{path} has no {symbol}"
        line = re.compile(rf"[^\n]*{pattern}[^\n]*\n").search(content, start.start())
        assert line, f"{path} has no {pattern!r} below {symbol}"
        changed = content[: line.end()] + text + "\n" + content[line.end() :]
        (self.folder / path).write_text(changed, "utf-8")

    def replace(self, path: str, symbol: str, old: str, new: str) -> None:
        """Replace the first occurrence of a text at or below a symbol."""
        assert Place(path, symbol) in self._places, f"the page names no `{path}: {symbol}`"
        content = (self.folder / path).read_text("utf-8")
        start = content.index(symbol)
        assert old in content[start:], f"{path} has no {old!r} below {symbol}"
        changed = content[:start] + content[start:].replace(old, new, 1)
        (self.folder / path).write_text(changed, "utf-8")

    def import_in(self, path: str, line: str) -> None:
        """Add an import to a module that the page names."""
        assert path in [place.path for place in self._places], f"the page names no {path}"
        content = (self.folder / path).read_text("utf-8")
        first = content.index("from edgeyard.")
        (self.folder / path).write_text(f"{content[:first]}{line}\n{content[first:]}", "utf-8")

    def create(self, pattern: str, path: str, text: str) -> None:
        """Create a file whose place the page gives with a part in <>."""
        assert pattern in [place.path for place in self._places], f"the page names no {pattern}"
        (self.folder / path).write_text(textwrap.dedent(text), "utf-8")

    def run(self, code: str) -> str:
        """Run code on the copy, and return what it prints."""
        before = f"import edgeyard; assert edgeyard.__file__.startswith({str(self.folder)!r})\n"
        done = subprocess.run(
            [sys.executable, "-c", before + textwrap.dedent(code)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": f"{self.folder / 'src'}{os.pathsep}{self.folder}"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    copy = Tree(tmp_path / "tree", request.param)
    yield copy
    shutil.rmtree(copy.folder)


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["an engine"], indirect=True)
def test_an_engine_runs_after_its_places_are_filled(tree: Tree) -> None:
    tree.create(
        "devices/runner/engines/<name>.py",
        "devices/runner/engines/echo.py",
        '''
        """The engine ``echo``: returns its input."""

        from edgeyard.devices.runner.engine import TensorSpec

        SPEC = TensorSpec("x", (None, 2), "float32")


        class EchoSession:
            inputs, outputs, facts = (SPEC,), (SPEC,), {"version": "1"}

            def run(self, feeds):
                return {"x": feeds["x"]}


        class EchoEngine:
            name = "echo"

            def load(self, model, *, threads, parameters):
                return EchoSession()
        ''',
    )
    row = """\
    "echo": BuiltInEngine(
        reference="edgeyard.devices.runner.engines.echo:EchoEngine",
        display_name="Echo",
        description="Returns its input.",
        suffixes=(".echo",),
    ),"""
    tree.insert("devices/runner/engines/__init__.py", "BUILT_IN", "BUILT_IN: ", row)
    package = '    "echo": ("numpy",),'
    tree.insert("devices/machine_facts.py", "ENGINE_PACKAGES", "ENGINE_PACKAGES = ", package)
    tree.run(
        """
        from pathlib import Path
        from edgeyard.benchmark_api.bootstrap import installed_engines
        from edgeyard.benchmark_api.routes.platform.catalogue import MODEL_SUFFIXES
        from edgeyard.benchmark_api.schemas.description import parse_description
        from edgeyard.benchmark_api.schemas.parameters import of_engine
        from edgeyard.devices.machine_facts import engine_facts
        from edgeyard.devices.runner.engines import find
        from edgeyard.errors import InvalidInput

        session = find("echo").load(Path("model.echo"), threads=1, parameters={})
        assert session.run({"x": [[1.0, 2.0]]}) == {"x": [[1.0, 2.0]]}
        assert "echo" in {engine.name for engine in installed_engines()}
        assert "engine.echo.version" in engine_facts()
        assert ".echo" in MODEL_SUFFIXES
        assert {each.key for each in of_engine("echo")} == {
            "threads", "batch_size", "preprocessing"
        }
        tree = {"model": "m", "runtime": "echo", "benchmark_type": "TYPE1", "target": "rpi4b"}
        parse_description(tree)
        try:
            parse_description({**tree, "profile_layers": True})
        except InvalidInput as error:
            assert "engine echo does not measure the time of layers" in str(error), error
        else:
            raise AssertionError("an engine without a profiler profiles")
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["a field of the job description"], indirect=True)
def test_a_job_field_is_accepted_stored_and_applied_to_boards(tree: Tree) -> None:
    model = "scheduler/model/benchmark.py"
    tree.insert(model, "JobDescription", "storage: int = 0", "    min_cores: int = 0")
    rule = """\
        if self.min_cores:
            found["min_cores"] = Constraint(
                attribute="cpu.cores", operator=">=", value=str(self.min_cores)
            )"""
    tree.insert(model, "def field_constraints", "found = {}", rule)
    schema = "benchmark_api/schemas/description.py"
    field = '    min_cores: int = Field(0, ge=0, le=1024, description="CPU cores of the board.")'
    tree.insert(schema, "JobDescriptionIn", "storage: Size", field)
    make_docs = "from deploy.job_fields import FILE, page; FILE.write_text(page())"
    tree.run(make_docs)
    tree.run(
        """
        import json
        import typer
        from dataclasses import replace
        from edgeyard.benchmark_api.cli import app
        from edgeyard.benchmark_api.schemas.description import parse_description, to_description
        from edgeyard.plugins.builtin import registry
        from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
        from edgeyard.scheduler.decide.cycle import decide
        from edgeyard.scheduler.framework.policy import load_policy
        from edgeyard.scheduler.model.decision import CycleInput
        from edgeyard.scheduler.model.wire import description_from_json, description_to_json

        tree = {"model": "m", "runtime": "ort", "benchmark_type": "TYPE1", "target": "rpi4b"}
        made = to_description(parse_description({**tree, "min_cores": 8}))
        assert made.min_cores == 8
        assert description_from_json(json.loads(json.dumps(description_to_json(made)))) == made
        submit = typer.main.get_command(app).commands["submit"]
        assert "--min-cores" in [name for option in submit.params for name in option.opts]

        job = pending(constraints=made.all_constraints)
        snapshot = snapshot_of([board("rpi4b-0001-0001"), board("rpi4b-0001-0002")])
        attributes = tuple(
            {**known, "cpu.cores": cores}
            for known, cores in zip(snapshot.attributes, (4, 8), strict=True)
        )
        snapshot = replace(snapshot, attributes=attributes)
        policy = load_policy("default")
        plugins = registry(entry_points=False).resolve(policy)
        cycle = CycleInput(snapshot=snapshot, pending=[job], now=NOW)
        (placement,) = decide(cycle, policy, plugins).placements
        assert placement.target_uid == "rpi4b-0001-0002", placement
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["a waiting reason"], indirect=True)
def test_a_waiting_reason_is_decided_and_counted(tree: Tree) -> None:
    reasons = "scheduler/model/benchmark.py"
    tree.insert(reasons, "WaitingReason", "UNKNOWN_BOARD", '    TOO_HOT = "too_hot_example"')
    row = """\
    BoardState(
        name="cool_example",
        reason=WaitingReason.TOO_HOT,
        applies=lambda batch: np.array([uid < "rpi4b-0001-0003" for uid in batch.snapshot.uids]),
        phrase=lambda batch, board: "is too hot",
    ),"""
    tree.insert("plugins/filters/board_states.py", "BOARD_STATES", "BOARD_STATES = ", row)
    refusal = '    WaitingReason.TOO_HOT: BoardRefusal(state="too hot", unstated=True),'
    table = "scheduler/model/waiting_reasons.py"
    tree.insert(table, "BOARD_REFUSALS", "BOARD_REFUSALS: ", refusal)
    tree.run(
        """
        from edgeyard.benchmark_api.metrics import Metrics
        from edgeyard.plugins.builtin import registry
        from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
        from edgeyard.scheduler.decide.cycle import decide
        from edgeyard.scheduler.framework.policy import load_policy
        from edgeyard.scheduler.model.benchmark import Binding
        from edgeyard.scheduler.model.decision import CycleInput
        from dataclasses import replace

        policy = load_policy("default")
        policy = replace(policy, filters=("cool_example", *policy.filters))
        plugins = registry(entry_points=False).resolve(policy)
        boards = [board(f"rpi4b-0001-000{number}") for number in (1, 2, 3)]
        hot = CycleInput(snapshot=snapshot_of(boards[:2]), pending=[pending()], now=NOW)
        waiting = decide(hot, policy, plugins).waiting["b-1"]
        assert waiting.reason.value == "too_hot_example"
        assert waiting.sentence.endswith("is too hot; others: 1 too hot"), waiting.sentence

        loose = pending(binding=Binding.LOOSE)
        mixed = CycleInput(snapshot=snapshot_of(boards), pending=[loose], now=NOW)
        (placement,) = decide(mixed, policy, plugins).placements
        assert placement.allowed_uids == ("rpi4b-0001-0003",), placement
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["a retry rule"], indirect=True)
def test_a_retry_rule_decides_on_the_next_attempt(tree: Tree) -> None:
    shutil.copytree(ROOT / "tests/builders", tree.folder / "tests/builders")
    rule = "    if 'brown-out' in failure.sentence:\n        return True"
    tree.insert("scheduler/engine/retry.py", "def is_retryable", '"""', rule)
    tree.run(
        """
        from edgeyard.scheduler.engine.retry import RetryHistory, decide_retry
        from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
        from tests.builders.records import a_description, an_attempt

        for sentence, retried in (("a brown-out of the board", True), ("anything else", False)):
            failure = Failure(category=FailureCategory.UNKNOWN, sentence=sentence)
            attempt = an_attempt(failure=failure)
            decision = decide_retry(failure, attempt, a_description(), RetryHistory())
            assert decision.retry is retried, sentence
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["a figure of `edgeyard sim run`"], indirect=True)
def test_a_figure_of_simulations_is_measured_and_compared(tree: Tree) -> None:
    metrics = "scheduler/figures/metrics.py"
    tree.insert(metrics, "RunMetrics", "    energy_j: float", "    never_started: int")
    measured = "        never_started=int(np.isnan(jobs.start_s).sum()),"
    tree.insert(metrics, "def measure", "energy_j=energy_j", measured)
    tree.insert("simulator/comparison.py", "RUN_FIGURES", '"energy_j"', '    "never_started",')
    title = '    "never_started": "never started",'
    tree.insert("simulator/cli/sim_documents.py", "TITLES", '"energy_j"', title)
    tree.run(
        """
        import numpy as np
        from edgeyard.simulator.cli.sim_documents import TITLES
        from edgeyard.simulator.comparison import RUN_FIGURES
        from edgeyard.scheduler.figures.metrics import JOB_FIGURES, JobOutcomes, measure

        never = float("nan")
        jobs = JobOutcomes(
            job=np.array(["a", "b"], dtype=object),
            user=np.array(["u", "u"], dtype=object),
            submit_s=np.zeros(2),
            start_s=np.array([1.0, never]),
            end_s=np.array([2.0, never]),
            status=np.array(["completed", "pending"], dtype=object),
            attempts=np.array([1, 0]),
            preemptions=np.array([0, 0]),
            deadline_s=np.array([never, never]),
            until_s=9.0,
        )
        assert measure(jobs).never_started == 1
        assert set(TITLES) == {*JOB_FIGURES, *RUN_FIGURES}
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["a scorer"], indirect=True)
def test_a_scorer_chooses_the_board_by_its_name_in_a_policy(tree: Tree) -> None:
    tree.create(
        "plugins/scorers/<name>.py",
        "plugins/scorers/last_name.py",
        '''
        """Prefers the board whose name is the last in the alphabet."""

        import numpy as np

        from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit


        class LastName:
            name = "last_name"
            objective = "names"
            kind = ScorerKind.HEURISTIC
            unit = ScoreUnit.PREFERENCE

            def score(self, batch, pairs):
                place = np.argsort(np.argsort(batch.snapshot.uids))
                return (place / max(len(place) - 1, 1)).astype(np.float32)[pairs.boards]
        ''',
    )
    builtin = "plugins/builtin.py"
    tree.import_in(builtin, "from edgeyard.plugins.scorers.last_name import LastName")
    tree.insert(builtin, "_SCORERS", '"host_load": HostLoad', '    "last_name": LastName,')
    tree.run(
        """
        from dataclasses import replace
        from edgeyard.plugins.builtin import registry
        from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
        from edgeyard.scheduler.decide.cycle import decide
        from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
        from edgeyard.scheduler.model.decision import CycleInput

        chosen = ScorerChoice(name="last_name", weight=1.0)
        policy = replace(load_policy("default"), scorers=(chosen,), fallback="last_name")
        plugins = registry(entry_points=False).resolve(policy)
        boards = [board(f"rpi4b-0001-000{number}") for number in (2, 3, 1)]
        job = CycleInput(snapshot=snapshot_of(boards), pending=[pending()], now=NOW)
        (placement,) = decide(job, policy, plugins).placements
        assert placement.target_uid == "rpi4b-0001-0003", placement
        """
    )
