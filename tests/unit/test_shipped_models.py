"""Every model file that is shipped is what this revision of the code makes of what is committed."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks import lookahead_search
from benchmarks.lookahead import LOGS, TABLE
from benchmarks.queue_models import WEIGHTS, rebuild
from deploy.make_probe import TARGET, make
from edgeyard.plugins.queue_policies.learned_queue import HORIZON_S, REQUEST_WEIGHT, SHIPPED

ROOT = Path(__file__).parents[2]
PRODUCT = ("scheduler", "benchmark_api", "devices", "plugins", "templates", "testbed")
PACKAGES = (*PRODUCT, "simulator", "training")


def test_the_learned_queue_policies_are_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    rebuild(tmp_path)
    shipped = {each.name: each.read_bytes() for each in SHIPPED.iterdir()}
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == shipped
    assert len(shipped) == 2 * len(json.loads(WEIGHTS.read_text()))


def test_no_other_model_file_is_in_the_package() -> None:
    """A new one needs a test here that rebuilds it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", *PACKAGES], cwd=ROOT, capture_output=True, text=True
    )
    found = {
        ROOT / line for line in listed.stdout.splitlines() if line.endswith((".onnx", ".tflite"))
    }
    if listed.returncode:  # an archive of the repository
        found = {each for name in PACKAGES for each in (ROOT / name).rglob("*.onnx")}
    shipped = {TARGET, *SHIPPED.glob("*.onnx")}
    assert {each.resolve() for each in found} == {each.resolve() for each in shipped}
    assert TARGET.read_bytes() == make()


def test_the_settings_of_the_lookahead_are_those_that_its_grid_chooses() -> None:
    table = json.loads(TABLE.read_text())
    ratios = {
        key: np.exp(np.mean(np.log([each[log] for log in LOGS])))
        for key, each in table["ratios"].items()
    }
    best = min(ratios, key=lambda key: float(ratios[key]))
    assert best == f"{REQUEST_WEIGHT:g}, {HORIZON_S:g}"
    assert table["shipped"] == {"request_weight": REQUEST_WEIGHT, "horizon_s": HORIZON_S}


def test_the_documented_search_of_settings_is_the_committed_one() -> None:
    table = json.loads(lookahead_search.TABLE.read_text())
    plain = table["spaces"]["nothing"]
    for each in table["spaces"].values():
        found = lookahead_search.compared(each, plain)
        for name in ("geometric_mean", "judged_geometric_mean", "to_plain", "judged_to_plain"):
            assert found[name] == pytest.approx(each[name])
    page = (ROOT / "docs/experiments/learned-queues.md").read_text("utf-8")
    assert lookahead_search.markdown(table) in page
