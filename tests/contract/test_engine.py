"""What every inference engine does: one suite, run over all of them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.benchmark_api.sdk.model_folder import packed, with_weights
from edgeyard.devices.runner.engine import (
    Engine,
    GeneratingSession,
    Session,
    SharingEngine,
    TensorSpec,
    TrainingConfig,
    TrainingEngine,
)
from edgeyard.devices.runner.engines import find
from edgeyard.devices.runner.training_loop import split_rows
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO, digits


@dataclass(frozen=True)
class Kit:
    """An engine, and a model that is its own.

    Attributes:
        file: What its user names: of a pair, the one that is not the weights; or a folder.
        model: What a board gets of it. Of `DIGITS_KITS` it takes ``image``, float32 of shape
            (rows, 1, 8, 8) with pixels 0-16 and any number of rows, and returns ``logits``, shape
            (rows, 10); more than 95 % of the digits are right.
        package: Python package that the engine loads.
        also_of: Another engine that takes the model.
    """

    engine: str
    file: Path
    package: str
    also_of: str = ""

    @property
    def model(self) -> Path:
        return packed(self.file) if self.file.is_dir() else with_weights(self.file)

    @property
    def files(self) -> tuple[Path, ...]:
        """What users name."""
        return (self.file,)


@dataclass(frozen=True, kw_only=True)
class TrainingKit(Kit):
    """An engine that trains, too.

    Attributes:
        trainable: Takes and returns the same; less than 40 % are right before the training.
        rate: Learning rate that suits it.
    """

    trainable: Path
    rate: float

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file, self.trainable)


DIGITS_KITS = [
    TrainingKit(
        "ort",
        DEMO / "digits.onnx",
        "onnxruntime",
        also_of="openvino",
        trainable=DEMO / "digits_new_head.onnx",
        rate=0.1,
    ),
    TrainingKit(
        "tflite",
        DEMO / "digits.tflite",
        "ai_edge_litert",
        trainable=DEMO / "digits_trainable.tflite",
        rate=0.3,
    ),
    Kit("openvino", DEMO / "digits.xml", "openvino"),
    Kit("ncnn", DEMO / "digits.ncnn.param", "ncnn"),
]
LANGUAGE_MODEL_KITS = [
    Kit("ort-genai", DEMO / "tiny_llama", "onnxruntime_genai", also_of="ort"),
]
KITS = [*DIGITS_KITS, *LANGUAGE_MODEL_KITS]
TRAINING_KITS = [kit for kit in KITS if isinstance(kit, TrainingKit)]


@pytest.fixture(params=KITS, ids=lambda kit: kit.engine)
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.param
    return found


@pytest.fixture
def engine(kit: Kit) -> Engine:
    return find(kit.engine)


@pytest.fixture
def session(kit: Kit, engine: Engine) -> Session:
    return engine.load(kit.model, threads=1, parameters={})


X, Y = digits("train")
TEST_X, TEST_Y = digits("test")
CONFIG = TrainingConfig(epochs=4, batch_size=32, learning_rate=0.1, seed=1)


def scores(session: Session, x: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = session.run({session.inputs[0].name: x.astype(np.float32)})[0]
    return found


def failure(call: Any, *arguments: Any, **more: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        call(*arguments, **more)
    assert caught.value.sentence
    return caught.value


class TestLoading:
    def test_it_is_found_by_its_name(self, kit: Kit, engine: Engine) -> None:
        assert engine.name == kit.engine

    @pytest.mark.parametrize("kit", DIGITS_KITS, ids=lambda kit: kit.engine)
    def test_specs_say_names_shapes_and_types(self, kit: Kit, session: Session) -> None:
        scores(session, TEST_X[:1])  # some engines know the shapes of outputs only now
        (image,) = session.inputs
        assert isinstance(image, TensorSpec)
        assert image.name == "image"
        assert image.shape is not None
        assert image.shape[1:] == (1, 8, 8)
        assert not isinstance(image.shape[0], int)
        assert image.dtype == "float32"
        assert [each.name for each in session.outputs] == ["logits"]
        assert (session.outputs[0].shape or ())[1:] == (10,)

    def test_facts_say_version_provider_and_threads(self, session: Session) -> None:
        assert str(session.facts["version"])[0].isdigit()
        assert session.facts["execution_provider"]
        assert session.facts["threads"] == 1

    def test_threads_can_be_lowered_but_not_raised(self, kit: Kit, engine: Engine) -> None:
        lowered = engine.load(kit.model, threads=2, parameters={"threads": 1})
        assert lowered.facts["threads"] == 1
        found = failure(engine.load, kit.model, threads=2, parameters={"threads": 3})
        assert found.category == "user_input"

    def test_unknown_parameters_are_refused_by_name(self, kit: Kit, engine: Engine) -> None:
        found = failure(engine.load, kit.model, threads=1, parameters={"warp": 9})
        assert found.category == "user_input"
        assert "warp" in found.sentence

    @pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.95])
    def test_a_file_that_was_cut_short_is_the_models_fault(
        self, kit: Kit, engine: Engine, tmp_path: Path, share: float
    ) -> None:
        content = kit.model.read_bytes()
        path = tmp_path / "model"
        path.write_bytes(content[: int(len(content) * share)])
        assert failure(engine.load, path, threads=1, parameters={}).category == "user_model"

    def test_a_file_of_something_else_is_the_models_fault(
        self, kit: Kit, engine: Engine, tmp_path: Path
    ) -> None:
        others = [
            other.model.read_bytes()
            for other in KITS
            if kit.engine not in (other.engine, other.also_of)
        ]
        for content in (b"#!/bin/sh\n" * 50, b"\x80\x04\x95pickle", *others):
            path = tmp_path / "model"
            path.write_bytes(content)
            assert failure(engine.load, path, threads=1, parameters={}).category == "user_model"


@pytest.mark.parametrize("kit", DIGITS_KITS, ids=lambda kit: kit.engine)
class TestRunning:
    def test_it_distinguishes_the_digits(self, kit: Kit, session: Session) -> None:
        found = scores(session, TEST_X)
        assert found.shape == (len(TEST_X), 10)
        assert np.mean(found.argmax(axis=1) == TEST_Y) > 0.95

    def test_a_run_does_not_change_the_next(self, kit: Kit, session: Session) -> None:
        first = scores(session, TEST_X[:4])
        kept = first.copy()
        scores(session, TEST_X[4:8])
        np.testing.assert_array_equal(first, kept)
        np.testing.assert_array_equal(scores(session, TEST_X[:4]), kept)

    def test_the_batch_may_be_of_any_size(self, kit: Kit, session: Session) -> None:
        whole = scores(session, TEST_X)
        for size in (1, 5, 64):
            # up to bf16, which an engine may compute in by default
            scale = 0.02 * np.abs(whole).max()
            np.testing.assert_allclose(scores(session, TEST_X[:size]), whole[:size], atol=scale)

    def test_two_sessions_do_not_share_anything(self, kit: Kit, engine: Engine) -> None:
        first = engine.load(kit.model, threads=1, parameters={})
        second = engine.load(kit.model, threads=1, parameters={})
        before = scores(first, TEST_X[:4])
        scores(second, TEST_X[:9])
        np.testing.assert_array_equal(scores(first, TEST_X[:4]), before)

    def test_callers_at_once_get_what_one_gets(self, kit: Kit, engine: Engine) -> None:
        first = engine.load(kit.model, threads=1, parameters={})
        expected = scores(first, TEST_X[:2])
        sessions = [first]
        for _ in range(3):
            if isinstance(engine, SharingEngine):
                sessions.append(engine.session_of_another_caller(first))
            else:
                sessions.append(engine.load(kit.model, threads=1, parameters={}))

        def call(session: Session) -> list[NDArray[Any]]:
            return [scores(session, TEST_X[:2]).copy() for _ in range(30)]

        with ThreadPoolExecutor(len(sessions)) as callers:
            found = list(callers.map(call, sessions))
        for each in (one for numbers in found for one in numbers):
            np.testing.assert_array_equal(each, expected)

    @pytest.mark.parametrize(
        "feeds",
        [
            {},
            {"picture": np.zeros((1, 1, 8, 8), np.float32)},
            {"image": np.zeros((1, 1, 8, 9), np.float32)},
            {"image": np.zeros((1, 8, 8), np.float32)},
            {"image": np.zeros((1, 1, 8, 8), np.int32)},
        ],
        ids=["none", "name", "shape", "rank", "type"],
    )
    def test_feeds_that_do_not_fit_are_the_users_input(
        self, kit: Kit, session: Session, feeds: dict[str, NDArray[Any]]
    ) -> None:
        assert failure(session.run, feeds).category == "user_input"
        assert scores(session, TEST_X[:1]).shape == (1, 10)


def test_it_generates_if_it_runs_language_models(kit: Kit, session: Session) -> None:
    assert isinstance(session, GeneratingSession) is (kit in LANGUAGE_MODEL_KITS)


def test_it_is_a_training_engine_if_there_is_a_model_to_train(kit: Kit, engine: Engine) -> None:
    assert isinstance(engine, TrainingEngine) is (kit in TRAINING_KITS)


@pytest.mark.parametrize("kit", TRAINING_KITS, ids=lambda kit: kit.engine)
class TestTraining:
    def train(self, kit: TrainingKit, out: Path, **changes: Any) -> Any:
        x, y = changes.pop("x", X), changes.pop("y", Y)
        progress = changes.pop("progress", lambda percent, phase: None)
        parameters = changes.pop("parameters", {})
        model = changes.pop("model", kit.trainable)
        config = replace(CONFIG, **{"learning_rate": kit.rate, **changes})
        engine = find(kit.engine)
        assert isinstance(engine, TrainingEngine)
        return engine.train(model, config, x, y, out, progress, threads=1, parameters=parameters)

    def test_the_loss_falls_and_the_uploaded_model_is_the_trained_one(
        self, kit: TrainingKit, engine: Engine, tmp_path: Path
    ) -> None:
        before = scores(engine.load(kit.trainable, threads=1, parameters={}), TEST_X)
        result = self.train(kit, tmp_path)
        assert result.epoch_losses[-1] < 0.6 * result.epoch_losses[0]
        session = engine.load(result.model_file, threads=1, parameters={})
        after = scores(session, TEST_X)
        assert np.mean(before.argmax(axis=1) == TEST_Y) < 0.4
        assert np.mean(after.argmax(axis=1) == TEST_Y) > 0.85
        _, validation = split_rows(len(X), CONFIG)
        right = scores(session, X[validation]).argmax(axis=1) == Y[validation]
        assert np.mean(right) == pytest.approx(result.validation_accuracy[-1])

    def test_there_is_one_entry_a_step_and_one_an_epoch(
        self, kit: TrainingKit, tmp_path: Path
    ) -> None:
        result = self.train(kit, tmp_path, epochs=3, batch_size=100, validation_split=0.5)
        steps = 3 * 8  # 719 training rows in batches of 100
        assert len(result.step_losses) == len(result.step_ms) == steps
        assert len(result.epoch_losses) == 3
        assert len(result.validation_losses) == len(result.validation_accuracy) == 3
        assert all(isinstance(each, float) for each in result.step_losses)
        weights = np.array([100] * 7 + [719 - 700])
        first = np.average(result.step_losses[:8], weights=weights)
        assert result.epoch_losses[0] == pytest.approx(first)
        assert result.trained

    def test_the_model_lies_in_the_out_folder_and_nothing_else_does(
        self, kit: TrainingKit, tmp_path: Path
    ) -> None:
        before = kit.trainable.read_bytes()
        result = self.train(kit, tmp_path, epochs=1)
        assert list(tmp_path.iterdir()) == [result.model_file]
        assert kit.trainable.read_bytes() == before
        assert result.model_file.read_bytes() != before

    def test_seed_and_data_make_the_steps(self, kit: TrainingKit, tmp_path: Path) -> None:
        losses = self.train(kit, tmp_path, epochs=1).step_losses
        assert self.train(kit, tmp_path, epochs=1).step_losses == losses
        assert self.train(kit, tmp_path, epochs=1, seed=2).step_losses != losses

    def test_progress_rises_to_100(self, kit: TrainingKit, tmp_path: Path) -> None:
        seen: list[tuple[float, str]] = []
        self.train(kit, tmp_path, progress=lambda *each: seen.append(each))
        percents = [percent for percent, _ in seen]
        assert percents == sorted(percents)
        assert percents[-1] == 100.0
        assert {phase for _, phase in seen} == {"training"}

    def test_a_single_row_is_trained_on(self, kit: TrainingKit, tmp_path: Path) -> None:
        result = self.train(kit, tmp_path, x=X[:1], y=Y[:1])
        assert len(result.step_losses) == 4
        assert list(result.validation_losses) == []

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"x": X[:10], "y": Y[:9]}, id="rows"),
            pytest.param({"x": X[:0], "y": Y[:0]}, id="no rows"),
            pytest.param({"x": X[:, :, :5]}, id="shape"),
            pytest.param({"x": X.astype(np.float32) * np.nan}, id="NaN"),
            pytest.param({"y": Y.astype(np.int64) + 5}, id="class too high"),
            pytest.param({"y": Y.astype(np.int64) - 1}, id="class below 0"),
            pytest.param({"y": np.zeros((len(Y), 3), np.float32)}, id="targets"),
            pytest.param({"options": {"unheard": "of"}}, id="options"),
            pytest.param({"parameters": {"warp": 9}}, id="parameters"),
        ],
    )
    def test_what_the_user_can_mend_is_user_input(
        self, kit: TrainingKit, tmp_path: Path, changes: dict[str, Any]
    ) -> None:
        assert failure(self.train, kit, tmp_path, **changes).category == "user_input"
        assert list(tmp_path.iterdir()) == []

    def test_a_loss_that_runs_away_names_the_learning_rate(
        self, kit: TrainingKit, tmp_path: Path
    ) -> None:
        found = failure(
            self.train, kit, tmp_path, learning_rate=1e35, x=X.astype(np.float32) * 1e10
        )
        assert found.category == "user_input"
        assert "learning rate" in found.sentence

    def test_a_corrupt_model_is_the_models_fault(self, kit: TrainingKit, tmp_path: Path) -> None:
        path = tmp_path / "model"
        path.write_bytes(kit.trainable.read_bytes()[:3000])
        assert failure(self.train, kit, tmp_path, model=path).category == "user_model"


@pytest.mark.slow
def test_boards_need_only_numpy_and_the_engine(kit: Kit, tmp_path: Path) -> None:
    """What needs the most, in a process of its own that lists what it loaded."""
    most = f"load(Path({str(kit.model)!r}), threads=1, parameters={{}})"
    if isinstance(kit, TrainingKit):
        most = f"""train(Path({str(kit.trainable)!r}), TrainingConfig(), x, y,
    Path({str(tmp_path)!r}), lambda percent, phase: None, threads=1, parameters={{}})"""
    code = f"""
import sys
from pathlib import Path
import numpy as np
from edgeyard.devices.runner.engine import TrainingConfig
from edgeyard.devices.runner.engines import find
with np.load({str(DEMO / "digits_test.npz")!r}) as file:
    x, y = file["x"], file["y"]
find({kit.engine!r}).{most}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = set(found.stdout.split())
    assert kit.package in loaded
    foreign = {"onnx", "httpx", "fastapi", "pydantic", "sqlalchemy", "tensorflow", "torch", "yaml"}
    assert not loaded & foreign
