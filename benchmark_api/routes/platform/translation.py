"""Between the client's words and Edgeyard's: statuses, fields of a submission, reports."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec.structs import asdict

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.schemas import parameters
from edgeyard.benchmark_api.schemas import platform as shapes
from edgeyard.benchmark_api.schemas.body import read_json
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.files import UPLOADED_OR_URL
from edgeyard.benchmark_api.submission.offer import Offer
from edgeyard.devices.power_rails import OF_A_PART
from edgeyard.devices.runner import training
from edgeyard.errors import FieldError, InvalidInput, RunFailed
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.model.files import Report
from edgeyard.scheduler.model.strict_json import JsonObject, time_to_json

STATUSES: Mapping[Status, str] = {
    Status.PENDING: "queued",
    Status.SCHEDULED: "pending",
    Status.RUNNING: "running",
    Status.COMPLETED: "success",
    Status.FAILED: "failed",
    Status.EXPIRED: "failed",
    Status.CANCELLED: "canceled",
}

RAW = "raw"
"""The parameter that keeps outputs: each TYPE2 of the client has it, and is shown without it."""

MAX_LATENCIES = 10_000
"""Single latencies in a report; all of them are in the result file ``latencies.npy``."""

_WHOLE = re.compile("-?[0-9]{1,9}")
_MAX_UIDS_LENGTH = 256
"""Characters of a constraint's value, which names the boards with commas between them."""
_MAX_UIDS_LISTED = 20

_FIELDS = ("device", "engine", "target_uids", "nb_inference", "parameters", "model_ref")
_NAMES = {
    "/target": "/device",
    "/runtime": "/engine",
    "/model_url": "/model_ref",
    "/dataset": "/dataset_name",
    "/odt_config": "/config/learning_parameters",
    "/target_uid": "/target_uids",
    "/constraints/0": "/target_uids",
}
"""The client's name of a field, by ours."""


def as_client(error: InvalidInput) -> InvalidInput:
    """Return the same error with the names that the client's user knows."""
    return InvalidInput([_renamed(each) for each in error.errors])


def _renamed(error: FieldError) -> FieldError:
    for ours, theirs in _NAMES.items():
        if error.pointer == ours or error.pointer.startswith(f"{ours}/"):
            renamed = replace(error, pointer=theirs + error.pointer.removeprefix(ours))
            break
    else:
        renamed = error
    if renamed.accepted != UPLOADED_OR_URL:
        return renamed
    if renamed.pointer == "/dataset_name":
        return replace(renamed, accepted="what uploadDataset gave for a dataset")
    return replace(renamed, accepted="what uploadModel gave for a model, or a URL")


def description_of(
    fields: Mapping[str, str], benchmark_type: str, offer: Offer
) -> dict[str, object]:
    """Return the job description of a submission's form, without its files.

    Args:
        fields: Of the form.
        benchmark_type: ``TYPE1``, ``TYPE2`` or ``TYPE3``.
        offer: Of the boards that may be used.

    Raises:
        InvalidInput: A field is missing, unknown, or can't be read.
    """
    more = ("dataset_name",) if benchmark_type != "TYPE3" else ("config",)
    unknown = [each for each in fields if each not in (*_FIELDS, *more)]
    missing = [each for each in ("device", "engine") if not fields.get(each)]
    found = [FieldError(f"/{each[:100]}", "is not a field of this form") for each in unknown]
    found += [FieldError(f"/{each}", "is required", "its name") for each in missing]
    if found:
        raise InvalidInput(found)
    device, engine = fields["device"], fields["engine"]
    tree: dict[str, object] = {
        "target": device,
        "runtime": engine,
        "benchmark_type": benchmark_type,
        "extra": {"door": "platform"},
    }
    if "nb_inference" in fields:
        tree["nb_inference"] = _whole(fields["nb_inference"])
    if uids := _target_uids(fields.get("target_uids"), device, offer.uids_of(device)):
        constraint = {"attribute": "target_uid", "operator": "set_contains_any", "value": uids}
        tree["constraints"] = [constraint]
    given = _json(fields.get("parameters"), "/parameters", dict)
    values: Mapping[str, object] = given if isinstance(given, dict) else {}
    no_dataset = ("describes how a dataset is read, and there is none", "dataset_name with it")
    if wrong := parameters.problems(
        engine, values, no_dataset=None if benchmark_type == "TYPE2" else no_dataset
    ):
        raise InvalidInput(wrong)
    tree["parameters"] = dict(values)
    return tree


def _whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise InvalidInput.at(
            "/nb_inference", "is not a whole number in this range", "1 to 1000000"
        )
    return int(text)


def _json(text: str | None, pointer: str, kind: type) -> object:
    if text is None or not text.strip():
        return None
    try:
        found = read_json(text.encode())
    except InvalidInput as error:
        reasons = [replace(each, pointer=pointer + each.pointer) for each in error.errors]
        raise InvalidInput(reasons) from None
    if found is not None and not isinstance(found, kind):
        what = "a list" if kind is list else "an object"
        raise InvalidInput.at(pointer, f"is not {what}", f"{what} as JSON")
    return found


def _target_uids(text: str | None, device: str, known: Collection[str]) -> str:
    uids = _json(text, "/target_uids", list) or []
    assert isinstance(uids, list)
    joined = ",".join(map(str, uids))
    if len(joined) > _MAX_UIDS_LENGTH:
        raise InvalidInput.at(
            "/target_uids",
            f"names too many boards: {len(joined)} characters with commas",
            f"at most {_MAX_UIDS_LENGTH} characters, or none for all boards of the family",
        )
    if not known:  # The family is unknown: it is refused with those that there are.
        return joined
    for each in uids:
        if not isinstance(each, str) or each not in known:
            more = ", ..." if len(known) > _MAX_UIDS_LISTED else ""
            raise InvalidInput.at(
                "/target_uids",
                f"holds what is not a board of {device[:100]}: {json.dumps(each)}",
                ", ".join(sorted(known)[:_MAX_UIDS_LISTED]) + more,
            )
    return joined


def training_of(text: str) -> tuple[JsonObject, Mapping[str, JsonObject]]:
    """Return an on-device training configuration: ours, and what the client says of its four files.

    Raises:
        InvalidInput: It is no configuration, or holds what can't be mapped.
    """
    config = _json(text, "/config", dict)
    if not isinstance(config, dict):
        raise InvalidInput.at("/config", "is missing", "an OnDeviceTrainingConfig")
    sections: dict[str, JsonObject] = {}
    for name in ("learning_parameters", "input", "output"):
        section = config.get(name)
        if not isinstance(section, dict):
            raise InvalidInput.at(f"/config/{name}", "is missing", "an object")
        sections[name] = section
    learning = sections.pop("learning_parameters")
    known = ("batch_size", "epochs", "learning_rate", "seed")
    for key in learning:
        if key not in known:
            raise InvalidInput.at(
                f"/config/learning_parameters/{key[:100]}",
                "is not a parameter that Edgeyard's engines train by",
                ", ".join(known),
            )
    try:
        training.parse_config(learning)
    except RunFailed as error:
        where, _, reason = error.sentence.partition(": ")
        pointer = "/config/learning_parameters" + where.removeprefix("odt_config")
        raise InvalidInput.at(pointer, reason) from None
    return dict(learning), sections


def summary(services: Services, benchmark: Benchmark) -> JsonObject:
    """Return one benchmark in a list, and the whole of what the client asks of one."""
    description = benchmark.description
    return {
        "id": benchmark.benchmark_id,
        "status": STATUSES[benchmark.status],
        "device": description.family,
        "platform": description.family,
        "engine": description.runtime,
        "benchmark_type": description.benchmark_type.value,
        "model": description.model,
        "target_uid": benchmark.target_uid,
        "nb_inference": description.nb_inference,
        "parameters": {
            key: description.parameters[key] for key in description.parameters if key != RAW
        },
        "progress": benchmark.progress,
        "created_at": time_to_json(benchmark.submit_time),
        "started_at": time_to_json(benchmark.started_at),
        "ended_at": time_to_json(benchmark.ended_at),
        **asdict(state(services, benchmark)),
    }


def state(services: Services, benchmark: Benchmark) -> shapes.State:
    """Return the status of a benchmark, with why it waits or failed."""
    return shapes.State(
        id=benchmark.benchmark_id,
        status=STATUSES[benchmark.status],
        phase=benchmark.phase,
        progress=benchmark.progress,
        waiting_reason=views.waiting_reason(services, benchmark.waiting),
        failure=views.failure(benchmark.failure),
    )


def report(benchmark: Benchmark, stored: Report, latencies: Path | None) -> JsonObject:
    """Return a report with the platform's keys, misspelt ones too; what is not known is null.

    Times are in seconds, shares of memory and CPU in per cent, accuracies from 0 to 1;
    ``edgeyard`` holds our own report.
    """
    own = stored.report
    board, training = views.table(own, "board"), views.table(own, "training")
    load = views.table(own, "load")
    ram, peak = views.number(board, "ram_bytes"), views.number(own, "ram_peak")
    share = 100.0 * peak / ram if ram and peak is not None else None
    engine, count = own.get("inference_engine"), own.get("nb_inference")
    found: JsonObject = {
        "version": "1",
        "date": _date(own.get("date")),
        "target": own.get("target"),
        "target_id": own.get("target_id"),
        "version_tag": own.get("version_tag"),
        "inference_engine": engine,
        "train_engine": engine if training else None,
        "model_file_name": benchmark.description.model,
        "benchmark_type": own.get("benchmark_type"),
        "nb_infernece": count,
        "nb_inference": count,
        "ram_size": ram,
        "ram_peak": share,
        "ram_peak_usage": share,
        "flash_size": None,
        "flash_usage": None,
        "load_cpu": own.get("load_cpu"),
        "load_accelerator": None,
        "temperature": own.get("temperature"),
        "ambiant_temperature": None,
        "power_consumption": own.get("power_consumption"),
        "enery_efficiency": _inferences_per_joule(own),
        "FLOPs": None,
        "inference_latency": _latency(views.table(own, "inference_latency"), latencies),
        "load_time": _seconds(views.number(load, "cold_ms")),
        "throughput": own.get("runs_per_s"),
        "model_size": views.table(own, "model").get("size_bytes"),
        "nb_parameters_model": None,
        "accuracy": views.number(views.table(own, "accuracy"), "top1"),
        "loss_train": _curve(training.get("epoch_losses")),
        "loss_test": _curve(training.get("validation_losses")),
        "accuracy_test": _curve(training.get("validation_accuracy")),
        "trained": training.get("trained"),
        "status": STATUSES[benchmark.status],
        "failure": views.failure(benchmark.failure),
        "verdict": own.get("verdict"),
        "edgeyard": dict(own),
    }
    return found


def _inferences_per_joule(own: Mapping[str, object]) -> float | None:
    """Return the inferences of a joule of the board; None: not known, or of a part of it alone."""
    energy = views.table(own, "energy")
    joules = views.number(views.table(energy, "per_inference"), "value")
    return 1 / joules if joules and energy.get("scope") not in OF_A_PART else None


def _latency(latency: Mapping[str, object], file: Path | None) -> JsonObject | None:
    if not latency:
        return None
    names = ("mean", "std", "min", "max", "p50", "p90", "p99")
    found: JsonObject = {name: _seconds(views.number(latency, name)) for name in names}
    return found | {"unit": "s", "count": latency.get("count"), "values": _values(file)}


def _values(file: Path | None) -> list[float] | None:
    """Single latencies, seconds; None where they are not stored as they should be."""
    if file is None:
        return None
    try:
        series = np.load(file, mmap_mode="r", allow_pickle=False)
        if series.ndim != 1 or series.dtype.kind != "f":
            return None
        values = (np.array(series[:MAX_LATENCIES], dtype=np.float64) / 1e3).tolist()
    except (OSError, ValueError, EOFError):
        return None
    return values if all(np.isfinite(values)) else None


def _curve(values: object) -> JsonObject | None:
    """Return a curve with its extremes, as the platform's training report has it."""
    if not isinstance(values, list) or not values:
        return None
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) != len(values):
        return None
    return {"min": min(numbers), "max": max(numbers), "values": numbers}


def _date(text: object) -> str | None:
    """``YY-MM-DD hh:mm:ss`` of an RFC 3339 time."""
    return text[2:19].replace("T", " ") if isinstance(text, str) and len(text) >= 19 else None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def error_log(benchmark: Benchmark, failures: Sequence[str]) -> str:
    """Return what went wrong, a line each; "" where nothing did."""
    lines = list(failures)
    if benchmark.failure is not None:
        lines.append(f"{benchmark.failure.category.value}: {benchmark.failure.sentence}")
    elif benchmark.status is Status.EXPIRED:
        lines.append("expired: its deadline or queue time-out passed before it could run")
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


def text_of(value: object) -> str:
    """Return a parameter's default as text: the client measures its length."""
    return value if isinstance(value, str) else json.dumps(value)
