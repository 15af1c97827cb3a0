"""Every block of the tutorial on traces is written or run as it stands there."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app

PAGE = Path(__file__).parents[2] / "docs/tutorials/trace-and-scorer.md"


@pytest.mark.slow
def test_the_tutorial_works_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDGEYARD_SCENARIO_DB", raising=False)
    ran = []
    for language, block in re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if language == "sh":
            for line in block.splitlines():
                program, *words = shlex.split(line)
                if program == "python":
                    runpy.run_path(words[0])
                    continue
                assert program == "edgeyard"
                found = CliRunner().invoke(app, words)
                assert found.exit_code == 0, f"{line}\n{found.output}"
                ran.append(" ".join(words[:2]))
        else:
            name = re.match(r"# (\S+)\n", block)
            assert name is not None, block
            Path(name[1]).write_text(block)
    assert {"scenarios import", "sim run", "sim sweep", "sim list", "sim report"} <= set(ran)
    assert "packing" in Path("report.html").read_text()
    found = CliRunner().invoke(app, ["sim", "report", "runs", "--json"])
    waits = {
        (row["scenario"], row["policy"]): row["mean_wait_s"]
        for row in json.loads(found.stdout)["runs"]
    }
    assert waits["trace-load1.5", "packing"] < waits["trace-load1.5", "default"]
