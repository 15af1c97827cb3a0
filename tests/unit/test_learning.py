"""Models as scorers: manifests, the encoder, hostile files, what is shipped."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgeyard.errors import ConfigError
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.scorers.learned import LearnedScorer, learned, load_learned
from edgeyard.plugins.testing import (
    NOW,
    all_pairs,
    board,
    pending,
    sample_batch,
    sample_knowledge,
    snapshot_of,
)
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
from edgeyard.scheduler.framework.protocols import ScoreUnit
from edgeyard.scheduler.learning.check import MAX_FILE_BYTES, check_model
from edgeyard.scheduler.learning.features import (
    COLUMNS,
    Encoder,
    Input,
    features_version,
    normalise,
    raw,
)
from edgeyard.scheduler.learning.manifest import (
    Manifest,
    Output,
    manifest_text,
    parse_manifest,
)
from edgeyard.scheduler.learning.model import load_model, manifests
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.training.ste.network import Network, onnx_bytes, slopes, start

COLUMN = "log_nb_inference"
FEATURES = f'features = "{features_version([COLUMN, "host_cpu?"])}"'


OF_EXTRA = (
    Input(column="extra.batch_size", mean=1.0, scale=2.0, default=8.0),
    Input(column="extra.rows"),
)


def manifest(**more: object) -> Manifest:
    values: dict[str, object] = {
        "name": "mine",
        "version": 1,
        "objective": "speed",
        "output": Output.SCORE,
        "onnx": "mine.onnx",
        "sha256": "0" * 64,
        "inputs": (Input(column=COLUMN, mean=3.0, scale=2.0), Input(column="host_cpu?")),
    }
    return Manifest(**{**values, **more})  # type: ignore[arg-type]


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, NDArray[np.generic]] | None = None,
    *,
    inputs: int = 2,
    rows: str | int = "n",
    opsets: Mapping[str, int] | None = None,
) -> bytes:
    """A graph from x to y."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*each) for each in (opsets or {"": 13}).items()],
        ir_version=8,
    )
    return bytes(made.SerializeToString())


def node(kind: str, takes: Sequence[str], gives: str = "y", **more: object) -> onnx.NodeProto:
    return helper.make_node(kind, list(takes), [gives], **more)  # type: ignore[arg-type]


def good() -> bytes:
    weights = np.array([[0.5], [0.25]], np.float32)
    return model([node("MatMul", ["x", "w"], "z"), node("Sigmoid", ["z"])], {"w": weights})


def dropped(folder: Path, data: bytes, **more: object) -> Path:
    """A model and its manifest in a folder; the manifest's path."""
    (folder / "mine.onnx").write_bytes(data)
    reported = manifest(**{"sha256": hashlib.sha256(data).hexdigest(), **more})
    path = folder / "mine.toml"
    path.write_text(manifest_text(reported))
    return path


def test_a_manifest_reads_back_as_it_was_written() -> None:
    for each in (
        manifest(),
        manifest(output=Output.LOG_SECONDS, quantiles=(0.1, 0.5, 0.9), trained_on="a sweep"),
        manifest(inputs=OF_EXTRA),
    ):
        assert parse_manifest(manifest_text(each)) == each


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@example('a "quoted" word\nname = "other"')
@example("\\ \x7f \r\n ''' \"\"\" \x00")
def test_whatever_a_model_was_trained_on_its_manifest_reads_back(words: str) -> None:
    each = manifest(trained_on=words)
    assert parse_manifest(manifest_text(each)) == each


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        (
            FEATURES,
            'features = "0123456789ab"',
            "columns of version 0123456789ab; they are version",
        ),
        (FEATURES, "features = 1", "features: is not 12 hexadecimal digits"),
        (FEATURES, "", "features: is missing"),
        (f'column = "{COLUMN}"', 'column = "no_such"', "inputs.0..column: 'no_such' is unknown"),
        ("scale = 2.0", "scale = -1", "scale is not a number above 0"),
        ('onnx = "mine.onnx"', 'onnx = "../mine.onnx"', "onnx: is not the plain name"),
        ('output = "score"', 'output = "guess"', "output: is not one of log_seconds"),
        ('name = "mine"', 'name = "Mine!"', "name: is not a name"),
        ("\nversion = 1", "\nversion = 0", "version: is not a whole number"),
        ('objective = "speed"', "speeed = 1", "speeed: is unknown"),
        ("scale = 2.0", "scale = 2.0, default = 3", f"'{COLUMN}' takes no default"),
        (COLUMN, "extra.", "'extra.' is unknown; there are .* and extra.NAME"),
        (COLUMN, "extra.rows?", "'extra.rows.' is unknown"),
        (COLUMN, "extra.rows", "'extra.rows' needs default = NUMBER or required = true"),
        (
            f'{COLUMN}", mean',
            'extra.rows", required = true, default = 1, mean',
            "'extra.rows' needs default = NUMBER or required = true, one of both",
        ),
        (
            f'{COLUMN}", mean',
            'extra.rows", required = false, mean',
            "'extra.rows' needs default = NUMBER or required = true",
        ),
        (f'{COLUMN}", mean', 'extra.rows", default = nan, mean', "default is not a number"),
        (f'{COLUMN}", mean', 'extra.rows", default = true, mean', "default is not a number"),
    ],
)
def test_a_wrong_manifest_is_reported_with_its_place(right: str, wrong: str, words: str) -> None:
    text = manifest_text(manifest())
    assert right in text
    with pytest.raises(ConfigError, match=words):
        parse_manifest(text.replace(right, wrong, 1))


@pytest.mark.parametrize(
    ("output", "causes", "words"),
    [
        (Output.FAILURE, "[]", "causes: is not a list of 1 to 16 different names"),
        (Output.FAILURE, '"board"', "causes: is not a list"),
        (Output.FAILURE, '["board", 2]', "causes: is not a list"),
        (Output.FAILURE, '["Board"]', "causes: is not a list .* in lower case"),
        (Output.FAILURE, '["board", "board"]', "causes: is not a list .* different names"),
        (Output.FAILURE, str([f"cause_{each}" for each in range(17)]), "causes: is not a list"),
        (Output.SCORE, '["model", "board"]', "causes: only an output of failure has them"),
    ],
)
def test_a_manifest_with_wrong_causes_is_refused(output: Output, causes: str, words: str) -> None:
    right = manifest(output=Output.FAILURE, causes=("model", "board"))
    assert parse_manifest(manifest_text(right)) == right
    with pytest.raises(ConfigError, match=words):
        parse_manifest(
            manifest_text(manifest(output=output)).replace(
                "\nversion", f"\ncauses = {causes}\nversion", 1
            )
        )


def test_a_manifest_that_is_no_toml_is_refused() -> None:
    with pytest.raises(ConfigError, match="mine"):
        parse_manifest("inputs = [", source="mine")


def test_values_are_normalised_and_missing_ones_are_reported() -> None:
    snapshot = snapshot_of(
        [board("rpi4b-0001-0001", attributes={"cpu.cores": 4}), board("rpi4b-0001-0002")]
    )
    batch = build_batch(snapshot, [pending(nb_inference=100)], NOW, 0)
    pairs = all_pairs(batch)
    inputs = [
        Input(column="log_nb_inference", mean=1.0, scale=2.0),
        Input(column="log_board_cores"),
        Input(column="log_board_cores?"),
        Input(column="log_history_s?"),
    ]
    (x,) = Encoder(batch, pairs.rows, pairs.boards, inputs).chunks(100)
    assert x[:, 0] == pytest.approx((np.log(100) - 1.0) / 2.0)
    assert x[:, 1].tolist() == [2.0, 0.0]
    assert x[:, 2].tolist() == [1.0, 0.0]
    assert x[:, 3].tolist() == [0.0, 0.0]


def test_chunks_are_the_whole_in_parts_and_training_sees_the_same() -> None:
    batch = sample_batch(40, 30)
    pairs = all_pairs(batch)
    inputs = [*(Input(column=each, mean=0.5, scale=3.0) for each in COLUMNS)]
    (whole,) = Encoder(batch, pairs.rows, pairs.boards, inputs).chunks(10_000)
    parts = list(Encoder(batch, pairs.rows, pairs.boards, inputs).chunks(7))
    assert np.array_equal(whole, np.concatenate(parts))
    values = raw(batch, pairs.rows, pairs.boards, list(COLUMNS))
    assert np.array_equal(whole, normalise(values, inputs))
    assert np.isfinite(whole).all()


def test_a_dropped_model_scores(tmp_path: Path) -> None:
    dropped(tmp_path, good())
    (name, factory), *others = learned(tmp_path).items()
    assert (name, others) == ("mine", [])
    batch = sample_batch(5, 4)
    pairs = all_pairs(batch)
    scores = factory().score(batch, pairs)
    (x,) = Encoder(batch, pairs.rows, pairs.boards, manifest().inputs).chunks(100)
    assert scores == pytest.approx(1 / (1 + np.exp(-(x @ [0.5, 0.25]))), abs=1e-6)


def test_a_model_reads_numbers_of_extra_and_abstains_without_a_required_one(
    tmp_path: Path,
) -> None:
    scorer = load_learned(dropped(tmp_path, good(), inputs=OF_EXTRA))
    extras = (
        {"batch_size": 4, "rows": 0.5},
        {"rows": 2, "name": "x"},
        {"batch_size": 4},
        {"batch_size": "4", "rows": 2},
        {"rows": True},
        {"rows": 10**400},
    )
    jobs = [pending(f"b-{row}", extra=json.dumps(each)) for row, each in enumerate(extras)]
    batch = build_batch(snapshot_of([board("rpi4b-0001-0001")]), jobs, NOW, 0)
    pairs = all_pairs(batch)
    scores = scorer.score(batch, pairs)[np.argsort(pairs.rows)][batch.class_of_job]

    def expected(batch_size: float, rows: float) -> float:
        return float(1 / (1 + np.exp(-((batch_size - 1) / 2 * 0.5 + rows * 0.25))))

    assert scores[:2] == pytest.approx([expected(4, 0.5), expected(8, 2)], abs=1e-6)
    assert np.isnan(scores[2:]).all()


def test_an_explanation_names_what_a_model_lacks(tmp_path: Path) -> None:
    dropped(tmp_path, good(), inputs=OF_EXTRA)
    chosen = load_policy("default")
    chosen = replace(chosen, scorers=(ScorerChoice(name="mine", weight=1.0), *chosen.scorers))
    plugins = registry(entry_points=False, models=tmp_path).resolve(chosen)
    snapshot = snapshot_of([board(f"rpi4b-0001-{each:04}") for each in range(1, 5)])
    extras = {
        "b-good": {"rows": 3},
        "b-none": {},
        "b-text": {"rows": 3, "batch_size": "8"},
    }
    jobs = [pending(name, extra=json.dumps(each)) for name, each in extras.items()]
    result = decide(CycleInput(snapshot=snapshot, pending=jobs, now=NOW), chosen, plugins)
    assert not result.faults
    assert len(result.placements) == 3

    def absent(name: str) -> str:
        explanation = result.explanation(name)
        (part,) = (each for each in explanation.scorers if each.scorer == "mine")
        scores = [each.scores["mine"] for each in explanation.verdicts if each.scores]
        assert all((score is None) == bool(part.absent) for score in scores)
        return part.absent

    assert absent("b-good") == ""
    assert absent("b-none") == (
        "abstains: the benchmark states no extra.rows, which the model requires"
    )
    assert absent("b-text") == (
        "abstains: extra.batch_size of the benchmark is not a finite number, and the model reads "
        "one"
    )


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = dropped(tmp_path, good(), sha256="1" * 64)
    with pytest.raises(ConfigError, match="SHA-256"):
        load_learned(path)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    path = dropped(tmp_path, good())
    (tmp_path / "mine.onnx").unlink()
    with pytest.raises(ConfigError, match=r"mine\.onnx"):
        load_learned(path)


def test_two_manifests_of_one_name_are_refused(tmp_path: Path) -> None:
    path = dropped(tmp_path, good())
    path.with_name("again.toml").write_text(path.read_text())
    with pytest.raises(ConfigError, match=r"is called 'mine' too"):
        manifests(tmp_path)


def external() -> bytes:
    made = onnx.load_from_string(good())
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    return bytes(made.SerializeToString())


HOSTILE: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "0 bytes"),
    "noise": (lambda: bytes(range(1, 200)), "not a valid ONNX file"),
    "too big": (lambda: bytes(MAX_FILE_BYTES + 1), "bytes; a scorer has"),
    "external data": (external, "outside the ONNX file"),
    "too many nodes": (
        lambda: model(
            [node("Relu", ["x" if i == 0 else f"h{i - 1}"], f"h{i}") for i in range(600)]
        ),
        "600 nodes",
    ),
    "a loop": (
        lambda: model([node("Loop", ["x"], body=helper.make_graph([], "b", [], []))]),
        "operator 'Loop' is not allowed",
    ),
    "a memory bomb": (
        lambda: model([node("ConstantOfShape", ["s"])], {"s": np.array([1 << 40], np.int64)}),
        "operator 'ConstantOfShape' is not allowed",
    ),
    "operators of others": (
        lambda: model([node("Relu", ["x"])], opsets={"": 13, "evil.example": 1}),
        "evil.example",
    ),
    "an outer product": (
        lambda: model(
            [
                node("Transpose", ["x"], "t", perm=[1, 0]),
                node("MatMul", ["x", "t"], "z"),
                node("ReduceSum", ["z", "a"], keepdims=1),
            ],
            {"a": np.array([1], np.int64)},
        ),
        "memory|allocate|Allocate|alloc",
    ),
    "answers that depend on other pairs": (
        lambda: model(
            [node("ReduceMax", ["x"], "m", axes=[0]), node("Sub", ["x", "m"], "d"),
             node("ReduceSum", ["d", "a"], keepdims=1)],
            {"a": np.array([1], np.int64)},
        ),
        "depends on the other pairs",
    ),
    "NaN": (
        lambda: model(
            [node("ReduceSum", ["x", "a"], "s", keepdims=1), node("Sqrt", ["s"])],
            {"a": np.array([1], np.int64)},
        ),
        "NaN or infinity",
    ),
    "other columns": (lambda: model([node("Relu", ["x"])], inputs=7), "takes 7 columns"),
    "a fixed number of rows": (lambda: model([node("Relu", ["x"])], rows=1), "any number of rows"),
    "two numbers in place of one": (lambda: model([node("Relu", ["x"])]), "float32 of shape"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_model_is_refused_with_the_reason(case: str) -> None:
    make, words = HOSTILE[case]
    with pytest.raises(ConfigError, match=words):
        check_model(make(), 2, 1)


def test_a_trial_in_a_process_that_is_limited_keeps_to_its_limits(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model([node("MatMul", ["x", "w"])], {"w": np.ones((2, 1), np.float32)}))
    trial = [sys.executable, "-m", "edgeyard.scheduler.learning.trial", str(path), "2", "1", "64"]
    limited = ["sh", "-c", 'ulimit -t 25; exec "$@"', "sh", *trial]  # below the trial's own limit
    found = subprocess.run(limited, capture_output=True, text=True, check=True, timeout=250)
    assert json.loads(found.stdout)["input"] == "x"


def test_a_model_of_run_times_answers_in_seconds(tmp_path: Path) -> None:
    weights = np.array([[0.5, 1.0, 1.5], [0.0, 0.0, 0.0]], np.float32)
    data = model([node("MatMul", ["x", "w"])], {"w": weights})
    quantiles = (0.1, 0.5, 0.9)
    path = dropped(tmp_path, data, output=Output.LOG_SECONDS, quantiles=quantiles, rank_by=0.9)
    scorer = LearnedScorer(load_model(path))
    batch = sample_batch(6, 5)
    pairs = all_pairs(batch)
    predicted = load_model(path).predict(batch, pairs.rows, pairs.boards)
    scores = scorer.score(batch, pairs)
    assert scorer.unit is ScoreUnit.SECONDS
    assert scores == pytest.approx(np.exp(predicted[:, 2]), rel=1e-5)


def test_the_written_network_answers_as_the_one_in_memory() -> None:
    import onnxruntime

    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 6)).astype(np.float32)
    network = start(6, 1, 8, seed=0)
    for value in network.weights.values():
        value += rng.normal(0, 0.3, value.shape)
    session = onnxruntime.InferenceSession(onnx_bytes(network), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    assert np.abs(found - network.predict(x.astype(np.float64))).max() < 1e-5


def test_slopes_are_those_of_the_sum() -> None:
    """Against differences of a weighted sum of what the network gives."""
    rng = np.random.default_rng(2)
    network = start(3, 2, 5, seed=0)
    for value in network.weights.values():
        value += rng.normal(0, 0.3, value.shape)
    x, out = rng.standard_normal((40, 3)), rng.standard_normal((40, 2))

    def total(changed: Network) -> float:
        return float((changed.raw(x) * out).sum())

    for name, slope in slopes(network, x, out).items():
        place = tuple(rng.integers(size) for size in slope.shape)
        moved = []
        for step in (1e-6, -1e-6):
            other = replace(network, weights={k: v.copy() for k, v in network.weights.items()})
            other.weights[name][place] += step
            moved.append(total(other))
        assert slope[place] == pytest.approx((moved[0] - moved[1]) / 2e-6, abs=1e-5)


def test_the_policy_learned_takes_models_and_programmes_and_a_heuristic() -> None:
    plugins = registry(entry_points=False).resolve(load_policy("learned"))
    kinds = {weighted.scorer.kind.value for weighted in plugins.scorers}
    assert kinds == {"history", "ilp", "heuristic"}


def test_a_whole_decision_with_the_three_kinds_of_scorers(tmp_path: Path) -> None:
    dropped(tmp_path, good())
    chosen = load_policy("learned")
    chosen = replace(chosen, scorers=(ScorerChoice(name="mine", weight=1.0), *chosen.scorers))
    plugins = registry(entry_points=False, models=tmp_path).resolve(chosen)
    kinds = {each.scorer.kind.value for each in plugins.scorers}
    assert kinds == {"model", "history", "ilp", "heuristic"}
    snapshot = snapshot_of([board(f"rpi4b-0001-{each:04}") for each in range(1, 7)])
    jobs = [pending(f"b-{each}", nb_inference=10 * each) for each in range(1, 5)]
    knowledge = replace(sample_knowledge(snapshot, jobs), entitlements={}, leases=())
    given = CycleInput(snapshot=snapshot, pending=jobs, now=NOW, knowledge=knowledge)
    result = decide(given, chosen, plugins)
    assert not result.faults
    assert result.placements
    names = {each.scorer for each in result.decided.scores.proposals}
    assert names == {each.name for each in chosen.scorers}
