"""A scorer of one's own: the tutorial as it is written, and the example package, as installed."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.process import edgeyard, free_port
from tests.tutorial import follow, steps

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs/tutorials/your-own-scorer.md"
EXAMPLE = ROOT / "docs/examples/even-wear"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_tutorial_of_a_scorer_does_what_it_says(
    tmp_path: Path, new_environment: Callable[..., Path], clean_environment: dict[str, str]
) -> None:
    checkout = tmp_path / "edgeyard"
    checkout.mkdir()
    new_environment(checkout / ".venv", extra="demo", pip=True)
    page = TUTORIAL.read_text()
    # A port that is free here.
    port = str(free_port())
    environment = {**clean_environment, "EDGEYARD_PORT": port, "EDGEYARD_COLUMNS": "80"}
    found = list(steps(page.replace("42777", port)))
    printed = dict(
        zip([each.typed for each in found], follow(found, checkout, environment, 600), strict=True)
    )
    assert "6 passed" in printed["pytest --quiet\n"]
    explained = printed["edgeyard explain fourth\n"]
    chosen, other = map(float, re.findall(r"rested\s+(\d\.\d+)", explained))
    assert chosen > other


def test_the_example_package_is_installed_tested_and_decides(
    tmp_path: Path,
    new_environment: Callable[..., Path],
    clean_environment: dict[str, str],
    squeezenet: Path,
) -> None:
    environment = tmp_path / "venv"
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path), EXAMPLE],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("edgeyard_even_wear-*.whl")
    new_environment(environment, str(wheel), "pytest")

    def run(*command: str, **variables: str) -> str:
        done = subprocess.run(
            [str(environment / "bin" / command[0]), *command[1:]],
            cwd=tmp_path,
            env={**clean_environment, **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    output = run("pytest", "--quiet", "-p", "no:cacheprovider", str(EXAMPLE / "tests"))
    assert "10 passed" in output

    with edgeyard(
        tmp_path / "data",
        {"EDGEYARD_POLICY": str(EXAMPLE / "even-wear.toml")},
        python=environment / "bin/python",
    ) as server:
        client = {"EDGEYARD_URL": server.url, "EDGEYARD_TOKEN": server.token}
        asked = ("--model", str(squeezenet), "--runtime", "ort", "--type", "TYPE1", "--wait")
        used = "emumid-0001-0001"
        run("edgeyard", "submit", *asked, "--id", "first", "--target-uid", used, **client)
        run("edgeyard", "submit", *asked, "--id", "second", "--target", "emumid", **client)
        explained = json.loads(run("edgeyard", "explain", "second", "--json", **client))
        shown = json.loads(run("edgeyard", "show", "second", "--json", **client))
    scorers = {each["scorer"] for each in explained["scorers"]}
    assert scorers == {"least_loaded", "even_wear"}
    assert shown["target_uid"] != used
    # With the policy that was recorded every decision comes out the same, or the status is 1.
    run("edgeyard", "replay", "--data-dir", str(tmp_path / "data"))
