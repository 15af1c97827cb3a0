"""Engine ``ort-genai``: a real language model of two layers."""

import itertools
import sys
import zipfile
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.benchmark_api.sdk.model_folder import packed, read_folder, upload_name
from edgeyard.devices.runner import generation
from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.engine import GeneratingSession, Generation, Session
from edgeyard.devices.runner.engines import find
from edgeyard.devices.runner.generation import GenerationResult, measure_generation
from edgeyard.devices.runner.generation_request import read_request
from edgeyard.errors import InvalidInput, RunFailed
from tests.builders.language_models import (
    CONTEXT,
    TINY_LLAMA,
    VOCABULARY,
    Config,
    archive_of,
    ends_at_once,
    folder_of,
    unchecked_archive,
    with_nan,
    with_unknown_operator,
)


def load(model: Path, **parameters: object) -> Session:
    return find("ort-genai").load(model, threads=1, parameters=parameters)


def generating(model: Path) -> GeneratingSession:
    session = load(model)
    assert isinstance(session, GeneratingSession)
    return session


@pytest.fixture(scope="module")
def model() -> GeneratingSession:
    return generating(packed(TINY_LLAMA))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MIN_MEASURING_S", 0.05)


def measure(session: GeneratingSession, **parameters: object) -> GenerationResult:
    return measure_generation(
        session,
        read_request({"requests": 6, **parameters}),
        Watch(threads=1),
        lambda percent, phase: None,
        max_s=60,
        max_warmup_s=0.2,
    )


def failure(call: Any, *arguments: Any, **more: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        call(*arguments, **more)
    return caught.value


def test_the_folder_becomes_an_archive_of_its_name() -> None:
    found = read_folder(TINY_LLAMA)
    assert upload_name(TINY_LLAMA) == "tiny_llama.zip"
    assert found.names[0] == "genai_config.json"
    assert set(found.names) == {each.name for each in TINY_LLAMA.iterdir()}


def test_facts_and_tensors_are_those_of_the_folder() -> None:
    session = load(packed(TINY_LLAMA), threads=1)
    assert session.facts["architecture"] == "llama"
    assert session.facts["context_length"] == CONTEXT
    assert session.facts["execution_provider"] == "CPUExecutionProvider"
    assert str(session.facts["version"])[0].isdigit()
    (tokens,) = session.inputs
    (logits,) = session.outputs
    assert (tokens.name, tokens.shape, tokens.dtype) == ("input_ids", (None, None), "int64")
    assert (logits.name, logits.shape) == ("logits", (None, VOCABULARY))


def test_a_run_gives_the_logits_of_the_next_token_for_each_row(model: Session) -> None:
    prompts = np.array([[1, 2, 3], [7, 8, 9]])
    (found,) = model.run({"input_ids": prompts})
    assert found.shape == (2, VOCABULARY)
    assert np.isfinite(found).all()
    for row, expected in zip(prompts, found, strict=True):
        (alone,) = model.run({"input_ids": row[None]})
        np.testing.assert_allclose(alone[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (np.array([[VOCABULARY]]), str(VOCABULARY)),
        (np.array([[-1]]), "-1"),
        (np.zeros((1, CONTEXT), np.int64), str(CONTEXT - 1)),
        (np.zeros((1, 0), np.int64), "[1, 0]"),
        (np.zeros((1, 4), np.float32), "int64"),
    ],
)
def test_tokens_that_the_model_does_not_have_are_the_users_input(
    model: Session, tokens: Any, said: str
) -> None:
    found = failure(model.run, {"input_ids": tokens})
    assert found.category == "user_input"
    assert said in found.sentence


def test_the_output_is_that_of_the_most_probable_tokens(model: Any) -> None:
    """Chosen one at a time from the logits of all tokens so far, without a cache."""
    prompt = [5, 6, 7]
    expected: list[int] = []
    for _ in range(8):
        (logits,) = model.run({"input_ids": np.array([prompt + expected])})
        logits[0][1] = -np.inf  # the end token
        expected.append(int(logits[0].argmax()))
    found = measure(model, prompt_tokens=prompt, output_length=8)
    assert list(found.tokens) == expected
    assert found.varied == 0


class SlowPrompts:
    """A language model, and a clock of its own: prompts take longer than tokens."""

    context_length, vocabulary, has_tokenizer = 100, 10, False
    ended = False

    def __init__(self, prompt_ms: float) -> None:
        self.now_ns, self._prompt_ns, self._tokens = 0, int(1e6 * prompt_ms), 0

    def clock(self) -> int:
        return self.now_ns

    def begin(self, prompt: Sequence[int], output_length: int) -> Generation:
        self._tokens = 0
        return self

    def prefill(self) -> None:
        self.now_ns += self._prompt_ns

    def step(self) -> None:
        self._tokens += 1
        self.now_ns += 1_000_000

    def logits(self) -> Any:
        return np.zeros(self.vocabulary)

    def tokens(self) -> Sequence[int]:
        return [0] * self._tokens

    def encode(self, text: str) -> Sequence[int]:
        raise AssertionError(text)

    def decode(self, tokens: Sequence[int]) -> str:
        raise AssertionError(tokens)


@pytest.mark.parametrize(
    ("prompt_ms", "tokens_s", "requests_s"),
    [(1.0, 1.0, 1.5), (30.0, 0.75, 4.0), (90.0, 0.75, 9.0), (900.0, 0.0, 16.0)],
)
def test_tokens_take_the_time_that_their_energy_needs_also_where_prompts_take_longer(
    prompt_ms: float, tokens_s: float, requests_s: float
) -> None:
    session = SlowPrompts(prompt_ms)
    found = measure_generation(
        session,
        read_request({"requests": 1, "prompt_length": 4, "output_length": 10}),
        Watch(threads=1),
        lambda percent, phase: None,
        max_s=60,
        max_warmup_s=0.0,
        min_s=1.0,
        clock=session.clock,
    )
    assert tokens_s <= found.token_ms.sum() / 1e3
    assert sum(each.total_ns for each in found.requests) / 1e9 < requests_s + 1.1 + prompt_ms / 1e3


def test_a_request_has_its_lengths_and_its_times_add_up(model: GeneratingSession) -> None:
    found = measure(model, prompt_length=64, output_length=16)
    assert len(found.tokens) == 16
    assert found.token_ms.shape == (len(found.requests), 15)
    report = found.as_json()
    stated: Any = report["generation"]
    results: Any = report["results"]
    assert (stated["prompt_length"], stated["output_length"]) == (64, 16)
    assert report["primary_metric"] == "decode_tokens_per_s"
    rates = 15e3 / found.token_ms.sum(axis=1)
    decode = results["decode_tokens_per_s"]
    assert decode["value"] == pytest.approx(np.median(rates))
    assert decode["ci95"][0] <= decode["value"] <= decode["ci95"][1]
    assert decode["better"] == "higher"
    p99 = results["token_p99_ms"]
    assert p99["value"] == pytest.approx(np.percentile(found.token_ms, 99))
    ends = p99.get("ci95", [0.0, np.inf])  # a few hundred tokens show no upper end
    assert ends[0] <= p99["value"] <= ends[1]
    first = results["time_to_first_token_ms"]["value"]
    assert first <= results["request_ms"]["value"]
    prefill = results["prefill_tokens_per_s"]["value"]
    assert 64e3 / prefill <= first
    assert stated["first_request_ms"] >= stated["first_time_to_first_token_ms"] > 0
    spent_s = sum(each.total_ns for each in found.requests) / 1e9
    assert spent_s >= 0.05, "so that it is not of one moment"


def test_the_time_of_tokens_is_stated_for_the_energy_of_a_token(model: GeneratingSession) -> None:
    found = measure(model, prompt_length=64, output_length=16)
    spans = found.measurement().spans
    assert len(spans) == len(found.requests)
    for (begin_s, end_s, tokens), token_ms in zip(spans, found.token_ms, strict=True):
        assert tokens == 15
        assert end_s - begin_s >= token_ms.sum() / 1e3 * 0.999
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    whole = measure(model, preset="pp512")
    for (begin_s, end_s, tokens), each in zip(
        whole.measurement().spans, whole.requests, strict=True
    ):
        assert tokens == 1
        assert end_s - begin_s >= each.total_ns / 1e9 * 0.999


def test_the_presets_are_those_of_llama_bench(model: GeneratingSession) -> None:
    for preset, prompt, output in (("pp512", 512, 1), ("tg128", 1, 128), ("pp512+tg128", 512, 128)):
        found = measure(model, preset=preset)
        assert (found.prompt_length, len(found.tokens)) == (prompt, output)
    default = read_request({})
    assert (default.preset, default.prompt_length, default.output_length) == (
        "pp512+tg128",
        512,
        128,
    )


def test_one_token_of_output_is_about_the_prompt(model: GeneratingSession) -> None:
    found = measure(model, preset="pp512")
    report = found.as_json()
    assert report["primary_metric"] == "prefill_tokens_per_s"
    results: Any = report["results"]
    assert "decode_tokens_per_s" not in results
    verdict = found.measurement().verdict
    assert not any("decode" in each.sentence for each in verdict.reasons)


def test_a_text_becomes_tokens_and_the_output_text(model: GeneratingSession) -> None:
    found = measure(model, prompt="Grüße, 日本", output_length=4)
    assert found.prompt_length == len("Grüße, 日本".encode()), "one token a byte"
    assert found.text is not None
    assert model.decode(model.encode("Grüße, 日本")) == "Grüße, 日本"


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"prompt_length": CONTEXT, "output_length": 1}, "prompt_length"),
        ({"prompt": "x" * CONTEXT}, "prompt"),
        ({"prompt_tokens": [3] * 1000, "output_length": 100}, "prompt_tokens"),
        ({"prompt_tokens": [VOCABULARY]}, "prompt_tokens"),
        ({"prompt_tokens": [-1]}, "prompt_tokens"),
        ({"prompt_tokens": []}, "prompt_tokens"),
        ({"prompt_tokens": [True]}, "prompt_tokens"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "a", "prompt_tokens": [1]}, "prompt_tokens"),
        ({"prompt": "a", "prompt_length": 1}, "prompt_length"),
        ({"preset": "pp512", "output_length": 3}, "preset"),
        ({"preset": "pp1"}, "preset"),
        ({"output_length": 0}, "output_length"),
        ({"requests": 0}, "requests"),
        ({"prompt_length": 1.5}, "prompt_length"),
    ],
)
def test_a_request_that_does_not_fit_names_its_parameter(
    model: GeneratingSession, parameters: dict[str, object], named: str
) -> None:
    found = failure(measure, model, **parameters)
    assert found.category == "user_input"
    assert found.sentence.startswith(f"parameters/{named}: ")


def test_prompt_and_output_may_fill_the_context(model: GeneratingSession) -> None:
    found = measure(model, prompt_length=CONTEXT - 2, output_length=2, requests=1)
    assert len(found.tokens) == 2


def test_end_tokens_do_not_shorten_the_output(tmp_path: Path, model: GeneratingSession) -> None:
    first = measure(model, prompt_tokens=[5, 6, 7], output_length=4).tokens[0]

    def ends_there(config: dict[str, Any]) -> None:
        config["model"]["eos_token_id"] = [first]

    found = measure(
        generating(archive_of(tmp_path / "model", ends_there)),
        prompt_tokens=[5, 6, 7],
        output_length=4,
    )
    assert len(found.tokens) == 4
    assert first not in found.tokens


class ModelWithoutOutput(SlowPrompts):
    """A language model whose output has ended before its first token."""

    ended = True


def test_an_end_at_the_first_token_is_the_models_fault() -> None:
    found = failure(measure, ModelWithoutOutput(1.0), prompt_tokens=[5], output_length=4)
    assert found.category == "user_model"
    assert "token 1 of 4" in found.sentence
    assert "genai_config.json" in found.sentence


def test_a_model_all_of_whose_tokens_end_the_output_is_refused_before_it_is_sent(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidInput, match=r"all 259 tokens in model\.eos_token_id"):
        packed(folder_of(tmp_path / "model", ends_at_once))


def test_a_vocabulary_that_is_not_that_of_the_decoder_is_refused(tmp_path: Path) -> None:
    def too_many(config: Config) -> None:
        config["model"]["vocab_size"] = 32000

    said = r"vocab_size of 32000, and the output 'logits' of 'model\.onnx' has 259 tokens"
    with pytest.raises(InvalidInput, match=said):
        archive_of(tmp_path / "model", too_many)


def test_logits_that_are_no_numbers_are_the_models_fault(tmp_path: Path) -> None:
    found = failure(measure, generating(with_nan(tmp_path / "model")), prompt_tokens=[5])
    assert found.category == "user_model"
    assert "NaN" in found.sentence


def test_an_operator_that_the_engine_lacks_is_named(tmp_path: Path) -> None:
    found = failure(load, with_unknown_operator(tmp_path / "model"))
    assert found.category == "engine_unsupported"
    assert "this onnxruntime-genai has no operator 'Teleport' of version" in found.sentence


def test_text_without_a_tokenizer_is_the_users_input(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    session = generating(packed(folder))
    found = failure(measure, session, prompt="a")
    assert found.category == "user_input"
    assert "tokenizer" in found.sentence
    assert measure(session, prompt_tokens=[4], output_length=2).text is None


@pytest.mark.parametrize("content", ["{", "[]", '"a"', "[" * 100_000])
def test_a_tokenizer_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    folder = folder_of(tmp_path / "net")
    (folder / "tokenizer.json").write_text(content)
    assert failure(load, unchecked_archive(folder)).category == "user_model"
    with pytest.raises(InvalidInput, match=r"a tokenizer\.json that is no JSON"):
        packed(folder)


def changed(tmp_path: Path, **model: object) -> Path:
    """The archive of a folder with other fields of ``model``; None removes one."""

    def change(config: dict[str, Any]) -> None:
        for name, value in model.items():
            if value is None:
                del config["model"][name]
            else:
                config["model"][name] = value

    return unchecked_archive(folder_of(tmp_path / "model", change))


DECODER = {"filename": "model.onnx", "session_options": {}}


@pytest.mark.parametrize(
    "model",
    [
        {"context_length": None},
        {"context_length": 0},
        {"vocab_size": "many"},
        {"type": None},
        {"decoder": None},
        {"decoder": {**DECODER, "filename": "../model.onnx"}},
        {"decoder": {**DECODER, "filename": "other.onnx"}},
        {"decoder": {**DECODER, "pipeline": []}},
        {"decoder": {**DECODER, "head_size": 2**31}},
        {"decoder": {**DECODER, "session_options": {"custom_ops_library": "/lib/libm.so.6"}}},
        {"decoder": {**DECODER, "session_options": {"session.optimized_model_filepath": "/tmp/x"}}},
        {"vision": {}},
        {"adapters": {"path": "/etc"}},
        {"eos_token_id": ["</s>"]},
        {"eos_token_id": [1, 259]},
    ],
    ids=str,
)
def test_a_config_that_is_not_known_here_is_the_models_fault(
    tmp_path: Path, model: dict[str, object]
) -> None:
    assert failure(load, changed(tmp_path, **model)).category == "user_model"


def test_a_folder_for_another_device_is_not_run_on_the_cpu(tmp_path: Path) -> None:
    decoder = {**DECODER, "session_options": {"provider_options": [{"cuda": {}}]}}
    found = failure(load, changed(tmp_path, decoder=decoder))
    assert found.category == "engine_unsupported"
    assert "cuda" in found.sentence


def test_an_unknown_architecture_is_what_the_engine_lacks(tmp_path: Path) -> None:
    found = failure(load, changed(tmp_path, type="telepath"))
    assert found.category == "engine_unsupported"


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "folder/file"])
def test_an_archive_does_not_leave_its_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.zip"
    path.write_bytes(packed(TINY_LLAMA).read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    assert failure(load, path).category == "user_model"


def test_an_archive_with_a_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    path.write_bytes(packed(TINY_LLAMA).read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("weights")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    assert failure(load, path).category == "user_model"


def test_a_model_that_fits_nowhere_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10, 0, 10))
    found = failure(load, packed(TINY_LLAMA))
    assert found.category == "out_of_memory"


def test_nothing_is_left_of_the_unpacked_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = generating(packed(TINY_LLAMA))
    assert list(tmp_path.iterdir()) == []
    assert measure(session, prompt="later", output_length=2).text is not None


def test_a_folder_without_config_is_no_language_model(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    (folder / "genai_config.json").unlink()
    found = failure(load, packed(folder))
    assert found.category == "user_model"
    assert "genai_config.json" in found.sentence


def test_a_folder_with_a_link_is_not_sent(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    (folder / "more").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput, match="link"):
        packed(folder)


def test_older_boards_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))
    found = failure(find, "ort-genai")
    assert found.category == "engine_unsupported"
    assert "Python 3.11" in found.sentence
    assert "3.10" in found.sentence
