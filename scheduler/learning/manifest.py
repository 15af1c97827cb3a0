"""What goes with an ONNX file to make it a scorer: a small TOML next to it.

::

    name = "my_model"                # by which policies call it
    version = 1                      # of the model
    features = "0123456789ab"        # version of the columns that it was trained on
    objective = "completion"
    output = "log_seconds"           # or "failure", "score"
    quantiles = [0.1, 0.5, 0.9]      # of "log_seconds": one output each
    causes = ["model", "board"]      # of "failure", with one output per cause
    rank_by = 0.5                    # the one that boards are compared by
    onnx = "my_model.onnx"           # in this file's folder
    sha256 = "..."
    trained_on = "runs of 2026"
    inputs = [
      { column = "log_history_s", mean = 0.7, scale = 1.1 },
      { column = "host_cpu?" },
      { column = "extra.batch_size", default = 8 },  # or required = true
    ]
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import tomli_w

from edgeyard.errors import ConfigError
from edgeyard.scheduler.learning.features import COLUMNS, Input, features_version, known

MAX_BYTES = 256 * 1024
MAX_INPUTS = 256
MAX_CAUSES = 16
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\.onnx")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FEATURES = re.compile(r"[0-9a-f]{12}")


class Output(StrEnum):
    """Meaning of a model's outputs."""

    LOG_SECONDS = "log_seconds"  # ln of the run time, one column a quantile; less is better
    FAILURE = "failure"  # chance of a failure, 0-1; less is better
    SCORE = "score"  # 0-1; more is better


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A parsed manifest of an ONNX model; the module documents its fields.

    Attributes:
        quantiles: Ascending; empty where the output is none of `Output.LOG_SECONDS`.
        causes: Of failures, one output each; the chance of a failure is that any strikes. Empty:
            there is one output, the chance itself.
        rank_by: One of the quantiles.
        onnx: Plain file name.
        trained_on: In words, for people.
    """

    name: str
    version: int
    objective: str
    output: Output
    onnx: str
    sha256: str
    inputs: tuple[Input, ...]
    quantiles: tuple[float, ...] = ()
    causes: tuple[str, ...] = ()
    rank_by: float = 0.5
    trained_on: str = ""

    @property
    def outputs(self) -> int:
        """Return how many numbers the model gives for a pair."""
        return len(self.quantiles) or len(self.causes) or 1


def parse_manifest(text: str, source: str = "manifest") -> Manifest:
    """Return a manifest from TOML.

    Raises:
        ConfigError: Every mistake with its place.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{source}: is not a TOML file: {error}"]) from error
    reader = _Reader(data)
    found = reader.manifest()
    if reader.problems:
        raise ConfigError([f"{source}: {problem}" for problem in reader.problems])
    return found


def manifest_text(manifest: Manifest) -> str:
    """TOML that `parse_manifest` reads back as the same."""
    table: dict[str, object] = {
        "name": manifest.name,
        "version": manifest.version,
        "features": features_version(each.column for each in manifest.inputs),
        "objective": manifest.objective,
        "output": manifest.output.value,
    }
    if manifest.quantiles:
        table |= {"quantiles": list(manifest.quantiles), "rank_by": manifest.rank_by}
    if manifest.causes:
        table["causes"] = list(manifest.causes)
    table |= {"onnx": manifest.onnx, "sha256": manifest.sha256}
    if manifest.trained_on:
        table["trained_on"] = manifest.trained_on
    table["inputs"] = [_input_table(each) for each in manifest.inputs]
    return tomli_w.dumps(table)


def _input_table(each: Input) -> dict[str, object]:
    table: dict[str, object] = {"column": each.column, "mean": each.mean, "scale": each.scale}
    if each.is_extra:
        table |= {"required": True} if each.default is None else {"default": each.default}
    return table


class _Reader:
    """Reads a manifest member by member; collects errors; members that are not read are errors."""

    def __init__(self, data: Mapping[str, object]) -> None:
        self._data = data
        self.problems: list[str] = []

    def manifest(self) -> Manifest:
        known_keys = {
            "name", "version", "features", "objective", "output", "onnx", "sha256", "inputs",
            "quantiles", "causes", "rank_by", "trained_on",
        }  # fmt: skip
        for key in sorted(self._data.keys() - known_keys):
            self.problems.append(f"{key}: is unknown")
        inputs = self._inputs()
        features = self._text("features", _FEATURES, "12 hexadecimal digits in quotes")
        version = features_version(each.column for each in inputs)
        if features and inputs and features != version:
            self.problems.append(
                f"features: the model was trained on columns of version {features}; "
                f"they are version {version} now: train it again"
            )
        outputs = tuple(each.value for each in Output)
        output = self._text("output", re.compile("|".join(outputs)), f"one of {', '.join(outputs)}")
        quantiles = self._quantiles(output)
        rank_by = self._data.get("rank_by", 0.5)
        if quantiles and rank_by not in quantiles:
            self.problems.append(f"rank_by: {rank_by!r} is not one of the quantiles")
        trained_on = self._data.get("trained_on", "")
        return Manifest(
            name=self._text("name", _NAME, "a name in lower case (a-z, 0-9, _)"),
            version=self._whole("version"),
            objective=self._text("objective", _NAME, "a word in lower case"),
            output=Output(output) if output in outputs else Output.SCORE,
            onnx=self._text(
                "onnx", _FILE, "the plain name of an .onnx file in the manifest's folder"
            ),
            sha256=self._text("sha256", _SHA256, "64 hexadecimal digits"),
            inputs=inputs,
            quantiles=quantiles,
            causes=self._causes(output),
            rank_by=rank_by if isinstance(rank_by, float) else 0.5,
            trained_on=trained_on if isinstance(trained_on, str) else "",
        )

    def _text(self, key: str, pattern: re.Pattern[str], what: str) -> str:
        value = self._data.get(key)
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        self.problems.append(f"{key}: {'is missing' if value is None else f'is not {what}'}")
        return ""

    def _whole(self, key: str) -> int:
        value = self._data.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000:
            return value
        self.problems.append(
            f"{key}: {'is missing' if value is None else 'is not a whole number from 1 on'}"
        )
        return 0

    def _quantiles(self, output: str) -> tuple[float, ...]:
        value = self._data.get("quantiles", [])
        if output != Output.LOG_SECONDS.value:
            if value:
                self.problems.append("quantiles: only an output of log_seconds has them")
            return ()
        good = (
            isinstance(value, list)
            and 1 <= len(value) <= 99
            and all(isinstance(each, float) and 0 < each < 1 for each in value)
            and all(low < high for low, high in pairwise(value))
        )
        if not good:
            self.problems.append("quantiles: is not a list of ascending numbers between 0 and 1")
            return ()
        return tuple(value) if isinstance(value, list) else ()

    def _causes(self, output: str) -> tuple[str, ...]:
        value = self._data.get("causes")
        if value is None:
            return ()
        if output != Output.FAILURE.value:
            self.problems.append("causes: only an output of failure has them")
            return ()
        if (
            not isinstance(value, list)
            or not 1 <= len(value) <= MAX_CAUSES
            or not all(isinstance(each, str) and _NAME.fullmatch(each) for each in value)
            or len(set(value)) < len(value)
        ):
            self.problems.append(
                f"causes: is not a list of 1 to {MAX_CAUSES} different names in lower case"
            )
            return ()
        return tuple(value)

    def _inputs(self) -> tuple[Input, ...]:
        value = self._data.get("inputs")
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_INPUTS:
            self.problems.append(f"inputs: is not a list of 1 to {MAX_INPUTS} tables")
            return ()
        found = []
        for index, each in enumerate(value):
            place = f"inputs[{index}]"
            keys = {"column", "mean", "scale", "default", "required"}
            if not isinstance(each, dict) or each.keys() - keys:
                self.problems.append(f"{place}: is not a table of {', '.join(sorted(keys))}")
                continue
            column = each.get("column")
            if not isinstance(column, str) or not known(column):
                self.problems.append(
                    f"{place}.column: {column!r} is unknown; there are "
                    f"{', '.join(sorted(COLUMNS))} and extra.NAME"
                )
                continue
            mean, scale = _number(each.get("mean", 0.0)), _number(each.get("scale", 1.0))
            if mean is None or scale is None or scale <= 0:
                self.problems.append(
                    f"{place}: mean is not a number, or scale is not a number above 0"
                )
                continue
            default = _number(each.get("default"))
            wanted = Input(column=column, mean=mean, scale=scale, default=default)
            if problem := _default_problem(each, wanted):
                self.problems.append(f"{place}: {problem}")
                continue
            found.append(wanted)
        names: Sequence[str] = [each.column for each in found]
        for name in sorted({each for each in names if names.count(each) > 1}):
            self.problems.append(f"inputs: {name!r} is named twice")
        return tuple(found)


def _default_problem(table: Mapping[str, object], wanted: Input) -> str:
    """Return what is wrong with ``default`` and ``required`` of an input; "" for nothing."""
    stated = table.keys() & {"default", "required"}
    if not wanted.is_extra:
        return f"{wanted.column!r} takes no {' or '.join(sorted(stated))}" if stated else ""
    if "default" in stated and wanted.default is None:
        return "default is not a number"
    if len(stated) != 1 or table.get("required", True) is not True:
        return f"{wanted.column!r} needs default = NUMBER or required = true, one of both"
    return ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
