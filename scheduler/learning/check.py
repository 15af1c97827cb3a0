"""Looks at an ONNX file before it may score: nothing of it is run here that isn't bounded.

First its bytes are walked without an engine: size, nodes, tensors, external data, operators. Then
a limited child process loads it and runs one chunk of numbers: `edgeyard.scheduler.learning.trial`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgeyard.devices.runner.onnx_file import inspect
from edgeyard.errors import ConfigError, RunFailed

MAX_FILE_BYTES = 8 * 1024 * 1024
"""2 million weights: scoring 5 million pairs with more takes longer than a cycle may."""

MAX_NODES = 512
MAX_PARAMETERS = 2_000_000
CHUNK = 32_768
"""Pairs per call of the model, as the child process tried them, so that the memory suffices."""

TRIAL_S = 60.0
"""Time limit of the child process; loading onnxruntime takes a second on a slow machine."""

OPERATORS = frozenset(
    {
        "Abs", "Add", "And", "BatchNormalization", "Cast", "Ceil", "Clip", "Concat", "Constant",
        "Div", "Elu", "Equal", "Erf", "Exp", "Flatten", "Floor", "Gather", "Gelu", "Gemm",
        "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "Imputer",
        "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "LinearRegressor", "Log",
        "LogSoftmax", "MatMul", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Normalizer", "Not",
        "Or", "PRelu", "Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum",
        "Relu", "Reshape", "Round", "Scaler", "Selu", "Sigmoid", "Sign", "Slice", "Softmax",
        "Softplus", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Transpose",
        "TreeEnsembleRegressor", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Networks and trees on rows of numbers: nothing that repeats, branches, draws random numbers, or
makes a big tensor out of a small one (Expand, Tile, ConstantOfShape, Range, Resize)."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """What was found out of a file that may be used.

    Attributes:
        input_name: Its only input, float32, shape (pairs, inputs).
        output_name: Its only output, float32, shape (pairs, outputs).
        nodes: Of its graph.
        parameters: Of its tensors.
    """

    input_name: str
    output_name: str
    nodes: int
    parameters: int


@lru_cache(maxsize=8)
def check_model(data: bytes, inputs: int, outputs: int) -> CheckedModel:
    """Check a model's bytes; once a process, since the same bytes get the same answer.

    Args:
        data: Of the whole file; what is loaded later must be these bytes.
        inputs: Columns it must take.
        outputs: Columns it must give.

    Raises:
        ConfigError: It may not be used, and why.
    """
    if not data or len(data) > MAX_FILE_BYTES:
        raise _refused(f"it has {len(data)} bytes; a scorer has 1 to {MAX_FILE_BYTES}")
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(data)
        file.flush()
        try:
            facts = inspect(Path(file.name))
        except RunFailed as error:
            raise _refused(error.sentence) from error
        if facts.nodes > MAX_NODES:
            raise _refused(f"it has {facts.nodes} nodes; a scorer has at most {MAX_NODES}")
        if facts.parameters > MAX_PARAMETERS:
            raise _refused(
                f"its tensors hold {facts.parameters} numbers; a scorer's at most {MAX_PARAMETERS}"
            )
        for name in sorted(facts.operators.keys() - OPERATORS):
            raise _refused(f"operator {name!r} is not allowed in a scorer")
        for domain in sorted(facts.opsets.keys() - DOMAINS):
            raise _refused(f"it uses operators of {domain!r}; only ONNX's own are allowed")
        found = _try(file.name, inputs, outputs)
    return CheckedModel(
        input_name=str(found["input"]),
        output_name=str(found["output"]),
        nodes=facts.nodes,
        parameters=facts.parameters,
    )


def _try(path: str, inputs: int, outputs: int) -> dict[str, object]:
    command = [
        sys.executable, "-I", "-m", "edgeyard.scheduler.learning.trial",
        path, str(inputs), str(outputs), str(CHUNK),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=TRIAL_S, check=False, cwd="/", env={}
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(f"it did not answer within {TRIAL_S:g} s") from error
    try:
        found = json.loads(done.stdout[-65536:].splitlines()[-1])
    except (ValueError, IndexError) as error:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
        raise _refused(
            f"its trial process ended with {ended}: out of memory or time, or a crash"
        ) from error
    if "refused" in found:
        raise _refused(str(found["refused"])[:500])
    return dict(found)


def _refused(why: str) -> ConfigError:
    return ConfigError([f"the model can't be used: {why}"])
