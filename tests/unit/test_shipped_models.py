"""Every model file that is shipped is what this revision of the code makes of what is committed."""

import json
import subprocess
from pathlib import Path

from benchmarks.lookahead import TABLE, markdown, table
from benchmarks.queue_models import WEIGHTS, rebuild
from deploy.make_probe import TARGETS, make
from edgeyard.plugins.queue_policies.learned_queue import SHIPPED
from edgeyard.plugins.scorers.learned import SHIPPED as SCORERS
from edgeyard.scheduler.engine import canaries
from edgeyard.training.ste.training import load_trainable, new_model, write_model

ROOT = Path(__file__).parents[2]
PRODUCT = ("scheduler", "benchmark_api", "devices", "plugins", "templates", "testbed")
PACKAGES = (*PRODUCT, "simulator", "training")


def test_the_learned_queue_policies_are_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    rebuild(tmp_path)
    shipped = {each.name: each.read_bytes() for each in SHIPPED.iterdir()}
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == shipped
    assert len(shipped) == 2 * len(json.loads(WEIGHTS.read_text()))


def test_the_models_of_the_test_environment_are_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    """The trained one from the weights in its file: training takes half a minute."""
    new_model("ste_untrained", tmp_path)
    manifest, network = load_trainable(SCORERS / "ste_default.toml")
    write_model(tmp_path / "ste_default.toml", manifest, network)
    shipped = {each.name: each.read_bytes() for each in SCORERS.iterdir()}
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == shipped


def test_no_other_model_file_is_in_the_package() -> None:
    """A new one needs a test here that rebuilds it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", *PACKAGES], cwd=ROOT, capture_output=True, text=True
    )
    found = {
        ROOT / line for line in listed.stdout.splitlines() if line.endswith((".onnx", ".tflite"))
    }
    if listed.returncode:  # an archive of the repository
        found = {
            each
            for name in PACKAGES
            for ending in ("onnx", "tflite")
            for each in (ROOT / name).rglob(f"*.{ending}")
        }
    of_canaries = {each.path for each in canaries.SHIPPED}
    shipped = {*TARGETS, *of_canaries, *SHIPPED.glob("*.onnx"), *SCORERS.glob("*.onnx")}
    assert {each.resolve() for each in found} == {each.resolve() for each in shipped}
    for target, widths in TARGETS.items():
        assert target.read_bytes() == make(widths)
    for copy in {each.resolve() for each in of_canaries} - {each.resolve() for each in TARGETS}:
        assert copy.read_bytes() == (ROOT / "deploy" / "demo" / copy.name).read_bytes()


def test_the_documented_figures_of_the_lookahead_are_the_committed_ones() -> None:
    found = json.loads(TABLE.read_text())
    again = table(found["means"])
    assert again["rows"] == found["rows"]
    assert list(again["geometric_mean"]) == found["geometric_mean"]
    page = (ROOT / "docs/experiments/learned-queues.md").read_text("utf-8")
    assert markdown(found) in page
    assert "{:.2f} ({:.2f}-{:.2f})".format(*found["geometric_mean"]) in page
