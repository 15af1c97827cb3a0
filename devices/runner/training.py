"""TYPE3: train on the board, and report how the loss fell."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence

from edgeyard.devices.runner.engine import TrainingConfig, TrainingResult
from edgeyard.devices.runner.json_text import parse_json
from edgeyard.errors import RunFailed, reason_of

KEYS = ("epochs", "batch_size", "learning_rate", "seed", "validation_split", "options")
MAX_CONFIG_BYTES = 1024 * 1024
MAX_CURVE = 1000
"""Points of the loss curve in the report; the whole of it is in ``training.npz``."""


def read_config(given: Optional[Mapping[str, object]], file: Optional[Path]) -> TrainingConfig:
    """Return the training configuration: what the job description holds, else the file's content.

    Raises:
        RunFailed: ``user_input``: there is none, it is not JSON, or a member can't be;
            ``board_fault``: the file can't be read.
    """
    if given is not None:
        return parse_config(given)
    if file is None:
        raise RunFailed("user_input", "TYPE3 needs a training configuration (odt_config)")
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_CONFIG_BYTES + 1)
        if len(data) > MAX_CONFIG_BYTES:
            raise RunFailed("user_input", f"odt_config is over {MAX_CONFIG_BYTES} bytes")
        return parse_config(parse_json(data))
    except OSError as error:
        reason = f"odt_config {file.name!r} can't be read: {reason_of(error)}"
        raise RunFailed("board_fault", reason) from error
    except (ValueError, RecursionError) as error:
        raise RunFailed("user_input", f"odt_config {file.name!r} is not JSON: {error}") from error


def parse_config(document: object) -> TrainingConfig:
    """Return the configuration, every member checked; an unknown one is refused by name.

    Raises:
        RunFailed: ``user_input``.
    """
    if not isinstance(document, dict):
        raise _wrong("", "not an object")
    unknown = sorted(set(document) - set(KEYS))
    if unknown:
        raise _wrong(unknown[0], f"not known; known are {', '.join(KEYS)}")
    options = document.get("options") or {}
    if not isinstance(options, dict):
        raise _wrong("options", "not an object")
    default = TrainingConfig()
    return TrainingConfig(
        epochs=_whole(document, "epochs", 1, 100_000, default.epochs),
        batch_size=_whole(document, "batch_size", 1, 1_000_000, default.batch_size),
        learning_rate=_number(document, "learning_rate", 1e-12, 1e6, default.learning_rate),
        seed=_whole(document, "seed", 0, 2**63 - 1, default.seed),
        validation_split=_number(document, "validation_split", 0.0, 0.9, default.validation_split),
        options=options,
    )


def check_losses(result: TrainingResult) -> None:
    """Refuse a training that led nowhere.

    Raises:
        RunFailed: ``user_input``: the loss is not a number any more.
    """
    for step, loss in enumerate(result.step_losses, 1):
        if not math.isfinite(loss):
            raise RunFailed(
                "user_input",
                f"the loss was {loss} after step {step}: the training diverged; "
                "try a lower learning_rate in odt_config, and check the data's range",
            )
    if not result.step_losses:
        raise RunFailed("user_input", "there was no row to train on")


def as_json(result: TrainingResult, config: TrainingConfig) -> Mapping[str, object]:
    """Return the values as the report contains them."""
    return {
        "config": {
            "epochs": config.epochs,
            "batch_size": config.batch_size,
            "learning_rate": config.learning_rate,
            "seed": config.seed,
            "validation_split": config.validation_split,
            "validation_rows": config.validation_rows,
            "options": dict(config.options),
        },
        "trained": result.trained,
        "steps": len(result.step_losses),
        "first_loss": result.step_losses[0],
        "final_loss": result.step_losses[-1],
        "loss_curve": curve(result.step_losses),
        "epoch_losses": list(map(float, result.epoch_losses)),
        "validation_losses": list(map(float, result.validation_losses)),
        "validation_accuracy": list(map(float, result.validation_accuracy)),
        "model_file": result.model_file.name,
    }


def curve(losses: Sequence[float]) -> List[Dict[str, float]]:
    """At most `MAX_CURVE` points of a loss curve, the last one among them."""
    stride = max(1, math.ceil(len(losses) / MAX_CURVE))
    steps = list(range(0, len(losses), stride))
    if losses and steps[-1] != len(losses) - 1:
        steps[-1] = len(losses) - 1
    return [{"step": step + 1, "loss": float(losses[step])} for step in steps]


def _whole(document: Mapping[str, object], key: str, low: int, high: int, default: int) -> int:
    value = document.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise _wrong(key, f"{value!r} is not a whole number from {low} to {high}")
    return value


def _number(
    document: Mapping[str, object], key: str, low: float, high: float, default: float
) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise _wrong(key, f"{value!r} is not a number from {low:g} to {high:g}")
    return float(value)


def _wrong(key: str, reason: str) -> RunFailed:
    return RunFailed("user_input", f"odt_config{'/' if key else ''}{key}: {reason}")
