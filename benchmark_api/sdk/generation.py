"""What a report states of the requests to a language model, in words."""

from __future__ import annotations

from collections.abc import Mapping

from edgeyard.benchmark_api.sdk.fields import record, text, whole
from edgeyard.scheduler.model.workload import lengths_text


def generation_text(report: Mapping[str, object]) -> str:
    """Return what was asked of a language model and how often; "" of other models.

    Args:
        report: Of an attempt.
    """
    generation = record(report, "generation")
    prompt, output, requests = (
        whole(generation, name) for name in ("prompt_length", "output_length", "requests")
    )
    if prompt is None or output is None or requests is None:
        return ""
    preset = text(generation, "preset")
    name = f" ({preset})" if preset else ""
    times = "once" if requests == 1 else f"{requests} times"
    return f"{lengths_text(prompt, output)}{name}, measured {times}"
