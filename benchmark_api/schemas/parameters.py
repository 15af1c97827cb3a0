"""What the built-in engines accept as ``parameters``: names, types and ranges."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from edgeyard.devices.runner.engines import BUILT_IN as ENGINES
from edgeyard.devices.runner.generation_request import (
    DEFAULT_REQUESTS,
    MAX_LENGTH,
    MAX_REQUESTS,
    PRESETS,
)
from edgeyard.errors import FieldError
from edgeyard.scheduler.model.strict_json import JsonObject

TYPES = ("string", "integer", "number", "boolean", "object", "array", "enum")
_PYTHON: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "enum": (str,),
}


_GENERATING = tuple(name for name, each in ENGINES.items() if "GENAI" in each.types)
_WITH_DATASET = tuple(name for name, each in ENGINES.items() if "TYPE2" in each.types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of engines.

    Attributes:
        type: One of `TYPES`.
        default: As text; "": the engine decides.
        choices: Of an ``enum``.
        min_value: Smallest number; None: none.
        max_value: Largest number; None: none, or the board's.
        of_dataset: It says how a dataset is read, and is nothing without one.
        of_generation: It describes requests of GENAI, and is nothing for other types.
        engines: Those that take it; default: all built-in ones.
    """

    key: str
    display_name: str
    description: str
    type: str
    default: str = ""
    choices: tuple[str, ...] = ()
    min_value: int | None = None
    max_value: int | None = None
    of_dataset: bool = False
    of_generation: bool = False
    engines: tuple[str, ...] = tuple(ENGINES)

    def as_json(self) -> JsonObject:
        """Return JSON without nulls: the platform's client takes the length of each value."""
        return {
            "id": self.key,
            "key": self.key,
            "display_name": self.display_name,
            "description": self.description,
            "type": self.type,
            "default_values": ", ".join(self.choices) or self.default,
            "engines": list(self.engines),
        }

    def problem(self, value: object) -> str | None:
        """Return why a value is invalid for this parameter; None if it is valid."""
        fits = isinstance(value, _PYTHON[self.type])
        if isinstance(value, bool) and self.type != "boolean":
            fits = False
        if not fits or (self.choices and value not in self.choices):
            return " or ".join(self.choices) or f"a value of type {self.type}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.min_value, self.max_value
            if (low is not None and value < low) or (high is not None and value > high):
                return f"{low} or more" if high is None else f"{low} to {high}"
        return None


BUILT_IN: Sequence[Parameter] = (
    Parameter(
        key="threads",
        display_name="Threads",
        description="Threads of the engine; at most and by default as many as the board allows.",
        type="integer",
        min_value=1,
    ),
    Parameter(
        key="graph_optimization",
        display_name="Graph optimization",
        description="How far onnxruntime optimizes the graph; all by default.",
        type="enum",
        choices=("disabled", "basic", "extended", "all"),
        engines=("ort",),
    ),
    Parameter(
        key="execution_mode",
        display_name="Execution mode",
        description="Whether independent nodes run at the same time; sequential by default.",
        type="enum",
        choices=("sequential", "parallel"),
        engines=("ort",),
    ),
    Parameter(
        key="execution_provider",
        display_name="Execution provider",
        description="Of onnxruntime; the board has to have it.",
        type="string",
        default="CPUExecutionProvider",
        engines=("ort",),
    ),
    Parameter(
        key="xnnpack",
        display_name="XNNPACK",
        description="Whether the optimized CPU kernels are used.",
        type="boolean",
        default="true",
        engines=("tflite",),
    ),
    Parameter(
        key="signature",
        display_name="Signature",
        description="The signature to run, where the model has several.",
        type="string",
        engines=("tflite",),
    ),
    Parameter(
        key="device",
        display_name="Device",
        description="Of OpenVINO; the board has to report it.",
        type="string",
        default="CPU",
        engines=("openvino",),
    ),
    Parameter(
        key="performance_hint",
        display_name="Performance hint",
        description="What OpenVINO sets itself up for; latency by default.",
        type="enum",
        choices=("latency", "throughput", "none"),
        engines=("openvino",),
    ),
    Parameter(
        key="streams",
        display_name="Streams",
        description="Runs that OpenVINO can do at the same time; as the hint decides by default.",
        type="integer",
        min_value=1,
        max_value=1024,
        engines=("openvino",),
    ),
    Parameter(
        key="inference_precision",
        display_name="Inference precision",
        description="Type that OpenVINO computes with; the device has to support it.",
        type="enum",
        choices=("f32", "f16", "bf16"),
        engines=("openvino",),
    ),
    Parameter(
        key="fp16",
        display_name="fp16",
        description="Whether ncnn stores and computes in fp16; as ncnn decides by default.",
        type="boolean",
        engines=("ncnn",),
    ),
    Parameter(
        key="bf16",
        display_name="bf16",
        description="Whether ncnn stores in bf16, instead of fp16; false by default.",
        type="boolean",
        engines=("ncnn",),
    ),
    Parameter(
        key="int8",
        display_name="int8",
        description="Whether ncnn computes quantised layers in int8; as ncnn decides by default.",
        type="boolean",
        engines=("ncnn",),
    ),
    Parameter(
        key="powersave",
        display_name="Cores",
        description="Which cores ncnn uses; all by default.",
        type="enum",
        choices=("all", "little", "big"),
        engines=("ncnn",),
    ),
    Parameter(
        key="batch_size",
        display_name="Batch size",
        description="Rows of one run: of a dataset, or of random data for a model that leaves its "
        "first dimension open.",
        type="integer",
        default="1",
        min_value=1,
        max_value=65_536,
        of_dataset=True,
    ),
    Parameter(
        key="preprocessing",
        display_name="Preprocessing",
        description="With a dataset: how its rows become the model's input.",
        type="object",
        of_dataset=True,
        engines=_WITH_DATASET,
    ),
    Parameter(
        key="preset",
        display_name="Preset",
        description="With GENAI: lengths of prompt and output, as llama-bench names them; "
        "pp512+tg128 by default.",
        type="enum",
        choices=tuple(PRESETS),
        of_generation=True,
        engines=_GENERATING,
    ),
    Parameter(
        key="prompt",
        display_name="Prompt",
        description="With GENAI: the prompt as text; the model's folder needs a tokenizer.",
        type="string",
        of_generation=True,
        engines=_GENERATING,
    ),
    Parameter(
        key="prompt_tokens",
        display_name="Prompt tokens",
        description="With GENAI: the prompt as token ids, e.g. [1, 2, 3].",
        type="array",
        of_generation=True,
        engines=_GENERATING,
    ),
    Parameter(
        key="prompt_length",
        display_name="Prompt length",
        description="With GENAI: the number of random tokens that the prompt has; 512 by default.",
        type="integer",
        min_value=1,
        max_value=MAX_LENGTH,
        of_generation=True,
        engines=_GENERATING,
    ),
    Parameter(
        key="output_length",
        display_name="Output length",
        description="With GENAI: the number of tokens that are generated; 128 by default.",
        type="integer",
        min_value=1,
        max_value=MAX_LENGTH,
        of_generation=True,
        engines=_GENERATING,
    ),
    Parameter(
        key="requests",
        display_name="Requests",
        description="With GENAI: minimum number of measured requests.",
        type="integer",
        default=str(DEFAULT_REQUESTS),
        min_value=1,
        max_value=MAX_REQUESTS,
        of_generation=True,
        engines=_GENERATING,
    ),
)


RAW = Parameter(
    key="raw",
    display_name="Raw rows",
    description="With a dataset: its rows are raw, and the model's raw outputs are returned.",
    type="boolean",
    default="false",
    of_dataset=True,
)
"""Not offered to the platform's client, which sets it by the kind of the dataset."""

METRIC = Parameter(
    key="metric",
    display_name="Metric",
    description="With a dataset: what its y is compared by; classification by default.",
    type="enum",
    choices=("classification", "regression", "segmentation", "detection"),
    of_dataset=True,
)
"""Not offered to the platform's client, which knows class numbers only."""


TRUTH = Parameter(
    key="truth",
    display_name="Truth",
    description="With a dataset of arrays: the array that holds what is right.",
    type="string",
    default="y",
    of_dataset=True,
)
"""Not offered to the platform's client, whose datasets hold it as y."""


def of_engine(engine: str) -> list[Parameter]:
    """Parameters that a built-in engine takes; none of an engine that is not built in."""
    return [each for each in BUILT_IN if engine in each.engines]


def problems(
    engine: str,
    values: Mapping[str, object],
    *,
    no_dataset: tuple[str, str] | None,
    without_dataset: Collection[str] = (),
    generates: bool = False,
    others: Sequence[Parameter] = (),
) -> list[FieldError]:
    """Return what is wrong with parameters; the parameters of plugins' engines are not known.

    Args:
        engine: Name of the engine.
        values: By key, as submitted.
        no_dataset: If parameters that describe how a dataset is read have no effect: why, and
            what would be accepted.
        without_dataset: Those of them that have an effect nevertheless.
        generates: Whether parameters that describe requests of GENAI have an effect.
        others: Parameters of all built-in engines besides `BUILT_IN`.
    """
    known = {each.key: each for each in of_engine(engine)}
    if known:
        known |= {each.key: each for each in others}
    found = []
    for key, value in values.items() if known else ():
        if key not in known:
            reason = f"engine {engine} has no such parameter"
            taken = [
                name
                for name, each in known.items()
                if (not each.of_dataset or no_dataset is None or name in without_dataset)
                and (generates or not each.of_generation)
            ]
            accepted = ", ".join(taken)
            if close := difflib.get_close_matches(key, known, n=1):
                accepted = f"{accepted}; did you mean {close[0]}?"
            found.append(FieldError(f"/parameters/{key}", reason, accepted))
        elif known[key].of_dataset and no_dataset is not None and key not in without_dataset:
            found.append(FieldError(f"/parameters/{key}", *no_dataset))
        elif known[key].of_generation and not generates:
            reason = "describes requests to a language model"
            found.append(FieldError(f"/parameters/{key}", reason, "GENAI, or no such parameter"))
        elif accepted_values := known[key].problem(value):
            found.append(FieldError(f"/parameters/{key}", "has a wrong value", accepted_values))
    return found
