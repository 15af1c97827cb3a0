"""Engine ``ort-genai``: language models by onnxruntime-genai, on the CPU."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Sequence, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import (
    Engine,
    GeneratingSession,
    Generation,
    Session,
    TensorSpec,
)
from edgeyard.devices.runner.engine_parameters import check_names, read_threads
from edgeyard.devices.runner.engines.ort import missing_operator
from edgeyard.devices.runner.feeds import check_feeds
from edgeyard.devices.runner.genai_folder import (
    INPUTS,
    GenaiFolder,
    open_genai,
    tokens_problem,
    unpack,
)
from edgeyard.errors import RunFailed

PARAMETERS = ("threads",)
MIN_PYTHON = (3, 11)
"""onnxruntime-genai has no wheels for older ones."""

OUTPUT = "logits"

_MEMORY = re.compile(r"bad_alloc|allocate memory|out of memory|Cannot allocate", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"Unsupported model|opset \d+ is under development|is not a registered function"
    r"|Could not find an implementation|NOT_IMPLEMENTED",
)

T = TypeVar("T")


class OrtGeneration:
    """A request to onnxruntime-genai; see `Generation`."""

    def __init__(self, generator: Any, prompt: NDArray[np.int32]) -> None:
        self._generator, self._prompt = generator, prompt
        self._next = generator.generate_next_token

    def prefill(self) -> None:
        """Implement `Generation.prefill`."""
        _translating(lambda: self._generator.append_tokens(self._prompt))

    def step(self) -> None:
        """Implement `Generation.step`."""
        try:
            self._next()
        except Exception as error:
            # its exceptions share no base but Exception
            raise _translated(error, "failed while running") from error

    @property
    def ended(self) -> bool:
        """Implement `Generation.ended`."""
        return bool(self._generator.is_done())

    def logits(self) -> NDArray[np.floating[Any]]:
        """Implement `Generation.logits`."""
        found: NDArray[np.floating[Any]] = np.array(self._generator.get_logits())[0, -1]
        return found

    def tokens(self) -> Sequence[int]:
        """Implement `Generation.tokens`."""
        return [int(each) for each in self._generator.get_sequence(0)[self._prompt.size :]]


class OrtGenaiSession:
    """A language model in onnxruntime-genai.

    As a `Session` it computes the logits of the token that follows each of several prompts of one
    length.
    """

    def __init__(self, genai: Any, model: Any, folder: GenaiFolder, facts: Mapping[str, object]):
        self.facts = facts
        self.inputs = (INPUTS,)
        self.outputs = (TensorSpec(OUTPUT, (None, folder.vocabulary), "float32"),)
        self.context_length, self.vocabulary = folder.context_length, folder.vocabulary
        self.has_tokenizer = folder.has_tokenizer
        self._genai, self._model = genai, model
        # read now: the files are gone later
        self._tokenizer: Any = (
            _translating(lambda: genai.Tokenizer(model)) if folder.has_tokenizer else None
        )

    def run(self, feeds: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        """Implement `Session.run`."""
        check_feeds(self.inputs, feeds)
        tokens = feeds[INPUTS.name]
        rows, length = tokens.shape
        problem = tokens_problem(
            tokens.shape,
            int(tokens.min(initial=0)),
            int(tokens.max(initial=0)),
            context_length=self.context_length,
            vocabulary=self.vocabulary,
        )
        if problem:
            raise RunFailed("user_input", f"input {INPUTS.name!r} {problem}")
        generator = self._generator(length + 1, batch_size=rows)
        _translating(lambda: generator.append_tokens(tokens.astype(np.int32)))
        return [np.array(generator.get_logits())[:, -1]]

    def encode(self, text: str) -> Sequence[int]:
        """Implement `GeneratingSession.encode`."""
        tokens = _translating(lambda: self._tokenizer.encode(text))
        return [int(each) for each in tokens]

    def decode(self, tokens: Sequence[int]) -> str:
        """Implement `GeneratingSession.decode`."""
        ids = np.array(tokens, dtype=np.int32)
        return str(_translating(lambda: self._tokenizer.decode(ids)))

    def begin(self, prompt: Sequence[int], output_length: int) -> Generation:
        """Implement `GeneratingSession.begin`."""
        length = len(prompt) + output_length
        generator = self._generator(length, min_length=length)
        return OrtGeneration(generator, np.array([prompt], dtype=np.int32))

    def _generator(self, max_length: int, **options: object) -> Any:
        def make() -> Any:
            params = self._genai.GeneratorParams(self._model)
            params.set_search_options(
                max_length=max_length,
                do_sample=False,
                num_beams=1,
                num_return_sequences=1,
                repetition_penalty=1.0,
                no_repeat_ngram_size=0,
                **options,
            )
            return self._genai.Generator(self._model, params)

        return _translating(make)


class OrtGenaiEngine:
    """onnxruntime-genai on the CPU."""

    name = "ort-genai"

    def __init__(self) -> None:
        if sys.version_info < MIN_PYTHON:
            raise RunFailed(
                "engine_unsupported",
                f"engine {self.name} needs Python {'.'.join(map(str, MIN_PYTHON))} or later, which "
                "onnxruntime-genai is built for, and this board's runner has "
                f"{sys.version_info[0]}.{sys.version_info[1]}",
            )
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it writes files, and reports to its maker
        import onnxruntime_genai

        onnxruntime_genai.disable_telemetry_events()
        self._genai = onnxruntime_genai

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, object]) -> Session:
        """Load an archive of a folder with ``genai_config.json``.

        ``parameters``: ``threads`` (1 to the board's).

        Raises:
            RunFailed: ``user_model``, ``user_input``, ``engine_unsupported``, ``out_of_memory``.
        """
        check_names(parameters, PARAMETERS, self.name)
        threads = read_threads(parameters, threads)
        archive, folder = open_genai(model)
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        overlay = {"model": {"decoder": {"session_options": options}}}
        # onnxruntime maps the weights, so that their files may go once the model is loaded
        with tempfile.TemporaryDirectory() as place:
            unpack(archive, Path(place))

            def load() -> Any:
                config = self._genai.Config(place)
                config.overlay(json.dumps(overlay))
                return self._genai.Model(config)

            started = time.perf_counter()
            loaded = _translating(load, "could not be loaded")
            facts: Dict[str, object] = {
                "load_ms": (time.perf_counter() - started) * 1e3,
                "version": self._genai.__version__,
                "execution_provider": "CPUExecutionProvider",
                "threads": threads,
                "architecture": folder.kind,
                "context_length": folder.context_length,
                "vocabulary": folder.vocabulary,
            }
            return OrtGenaiSession(self._genai, loaded, folder, facts)


def _translating(call: Callable[[], T], failed: str = "failed while running") -> T:
    try:
        return call()
    except Exception as error:
        # onnxruntime-genai's exceptions share no base but Exception
        raise _translated(error, failed) from error


def _translated(error: Exception, failed: str) -> RunFailed:
    """Return the failure that an exception of onnxruntime-genai means."""
    whole = " ".join(str(error).split())
    text = whole[:500]
    if isinstance(error, MemoryError) or _MEMORY.search(text):
        return RunFailed("out_of_memory", f"onnxruntime-genai had not enough memory: {text}")
    if missing := missing_operator(whole):
        return RunFailed("engine_unsupported", f"this onnxruntime-genai has no operator {missing}")
    if _UNSUPPORTED.search(whole):
        return RunFailed(
            "engine_unsupported", f"this onnxruntime-genai can't run the model: {text}"
        )
    return RunFailed("user_model", f"the model {failed}: {text}")


if TYPE_CHECKING:
    _engine: Engine = OrtGenaiEngine()
    _session: Callable[..., Session] = OrtGenaiSession
    _generating: Callable[..., GeneratingSession] = OrtGenaiSession
    _generation: Callable[..., Generation] = OrtGeneration
