"""Learning curves of a run as an image."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.installing import extra_command
from edgeyard.training.ste.training import CANDIDATES


def curve_png(run: Mapping[str, Any]) -> bytes:
    """Draw turnaround and rewards by episode.

    Args:
        run: Its record.

    Raises:
        InvalidInput: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        reason = "Matplotlib is not installed"
        raise InvalidInput.at("--plot", reason, extra_command("plot")) from error

    episodes = run["episodes"]
    numbers = [each["episode"] for each in episodes]
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(numbers, [_number(each["figures"], "mean_turnaround_s") for each in episodes], "o-")
    above.set_ylabel("mean turnaround, s")
    above.set_title(f"{run['run_id']}: {run['scenario']}")
    rewards = [_number(each["trained"], "reward") for each in episodes]
    below.plot(numbers, rewards, ".", label="episodes")
    means = [
        (numbers[first], float(np.mean(rewards[first : first + CANDIDATES])))
        for first in range(0, len(rewards) - CANDIDATES + 1, CANDIDATES)
    ]
    below.step([at for at, _ in means], [mean for _, mean in means], where="post", label="mean")
    below.set_ylabel("reward, s")
    below.set_xlabel("episode")
    below.legend()
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _number(values: Mapping[str, Any], name: str) -> float:
    value = values.get(name)
    return float("nan") if value is None else float(value)
