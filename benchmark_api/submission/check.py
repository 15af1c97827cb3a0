"""The second step: refuse what is wrong with a description, as far as that needs no store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.fetch import own_path
from edgeyard.benchmark_api.schemas import parameters
from edgeyard.benchmark_api.schemas.description import JobDescriptionIn
from edgeyard.benchmark_api.schemas.fields import is_url
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.offer import Offer
from edgeyard.benchmark_api.submission.parse import parse
from edgeyard.benchmark_api.submission.run_times import run_problems
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.scheduler.engine.crontab import next_fire
from edgeyard.scheduler.model.benchmark import BenchmarkType, JobDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """What a body asks for, checked but for its files.

    Attributes:
        names_model: The user named the model; otherwise its name comes from where it is.
        ram_bytes: The least and the most memory of the boards that may run it; None: not known.
    """

    description: JobDescription
    benchmark_id: str | None
    names_model: bool
    warnings: tuple[str, ...]
    ram_bytes: tuple[int, int] | None = None

    @property
    def max_ram_bytes(self) -> int | None:
        """The most memory of a board that may run it; None: not known."""
        return None if self.ram_bytes is None else self.ram_bytes[1]


def check(
    tree: Mapping[str, object],
    caller: Caller,
    services: Services,
    offer: Offer,
    now: datetime,
) -> CheckedRequest:
    """Return a request of which nothing is wrong, as far as that is known without the store.

    Args:
        tree: The fields of the description.
        caller: Whose it is.
        services: Of the server.
        offer: Of the boards that may be used.
        now: The time of submission.

    Raises:
        InvalidInput: Naming each field that is wrong, why, and what would be accepted.
    """
    body, description = parse(tree, caller, services.settings)
    found = [
        *offer.problems(description),
        *_parameter_problems(description),
        *_account_problems(description, caller),
        *_time_problems(description, now),
        *_schedule_problems(body, services),
        *run_problems(description, now, services.settings.default_user_time_s),
        *_url_problems(description, services),
    ]
    if found:
        raise InvalidInput(found)
    return CheckedRequest(
        description=description,
        benchmark_id=body.benchmark_id,
        names_model=body.model is not None and not is_url(body.model),
        warnings=(*_warnings(body, caller), *offer.warnings(description)),
        ram_bytes=offer.ram_bytes(description),
    )


def memory_warnings(request: CheckedRequest, model_bytes: int | None) -> tuple[str, ...]:
    """Warn of a model that takes more than half of the memory of boards that may run it."""
    if request.ram_bytes is None or not model_bytes:
        return ()
    min_bytes, max_bytes = request.ram_bytes
    ram = min_bytes if model_bytes <= min_bytes else max_bytes
    if model_bytes * 2 <= ram:
        return ()
    uid = request.description.target_uid
    who = f"{uid} has" if uid else f"boards of {request.description.family} that may run it have"
    return (
        f"the model has {size_text(model_bytes)}, and {who} {size_text(ram)} of memory: "
        "loading may take twice the size of the model",
    )


def _parameter_problems(description: JobDescription) -> list[FieldError]:
    kind = description.benchmark_type
    if kind.is_declared:  # the offers of the boards know its parameters
        return []
    no_dataset: tuple[str, str] | None = (
        f"describes how a dataset is read, and {kind.value} reads none",
        "TYPE2, or no such parameter",
    )
    if kind is BenchmarkType.TYPE2 or (kind is BenchmarkType.TYPE1 and description.keep_outputs):
        no_dataset = None
    elif kind is BenchmarkType.TYPE3:
        no_dataset = (f"has no effect in {kind.value}", "odt_config describes the training")
    found = parameters.problems(
        description.runtime,
        description.parameters,
        no_dataset=no_dataset,
        without_dataset=("batch_size",) if kind is BenchmarkType.TYPE1 else (),
        generates=kind is BenchmarkType.GENAI,
        others=(parameters.RAW, parameters.METRIC, parameters.TRUTH),
    )
    if kind is BenchmarkType.TYPE1 and no_dataset is None:
        found += [
            FieldError(
                f"/parameters/{key}", "describes a dataset of TYPE2", "TYPE2, or no such parameter"
            )
            for key in ("raw", "preprocessing", "metric", "truth")
            if key in description.parameters
        ]
    return found


def _account_problems(description: JobDescription, caller: Caller) -> list[FieldError]:
    user = caller.user
    found = []
    if description.user_priority > user.max_priority:
        found.append(
            FieldError(
                "/user_priority", "is above your account's limit", f"1 to {user.max_priority}"
            )
        )
    budget = description.user_budget
    if budget is not None and user.max_budget is not None and budget > user.max_budget:
        found.append(
            FieldError(
                "/user_budget", "is above your account's limit", f"at most {user.max_budget:g}"
            )
        )
    return found


def _time_problems(description: JobDescription, now: datetime) -> list[FieldError]:
    found = [
        FieldError(f"/{name}", "is in the past", f"a time after {now:%Y-%m-%dT%H:%M:%SZ}")
        for name, value in (
            ("deadline", description.deadline),
            ("start_time", description.start_time),
        )
        if value is not None and value <= now
    ]
    if description.cron is not None:
        try:
            next_fire(description.cron, now)
        except InvalidInput as error:
            found += error.errors
        if description.deadline is not None or description.start_time is not None:
            found.append(
                FieldError(
                    "/cron", "can't be combined with a deadline or start_time", "one of them"
                )
            )
    return found


def _schedule_problems(body: JobDescriptionIn, services: Services) -> list[FieldError]:
    """Return what a schedule can't have here whose runs Nomad starts by itself."""
    if body.cron_by == "edgeyard":
        return []
    kind = services.settings.cluster.kind
    if kind != "nomad":
        reason = f"leaves the starts to Nomad, and this server's cluster is {kind}"
        return [FieldError("/cron_by", reason, "edgeyard, or no cron_by")]
    addresses = {
        "/model": body.model,
        "/model_url": body.model_url,
        "/dataset": body.dataset,
        **{f"/dataset_urls/{index}": each for index, each in enumerate(body.dataset_urls)},
        "/odt_config": body.odt_config,
    }
    return [
        FieldError(
            pointer,
            "is fetched anew for each firing, which only Edgeyard does",
            "an uploaded file, or cron_by edgeyard",
        )
        for pointer, value in addresses.items()
        if isinstance(value, str)
        and is_url(value)
        and own_path(value, services.public_url) is None  # an uploaded file has a URL here, too
    ]


def _url_problems(description: JobDescription, services: Services) -> list[FieldError]:
    """Return what can be said of URLs without asking a name server."""
    urls = [("/model_url", description.model_url)]
    urls += [
        (f"/dataset_urls/{index}", each) for index, each in enumerate(description.dataset_urls)
    ]
    if isinstance(description.odt_config, str) and is_url(description.odt_config):
        urls.append(("/odt_config", description.odt_config))
    found: list[FieldError] = []
    for pointer, each in urls:
        if each is not None and own_path(each, services.public_url) is None:
            try:
                services.rules.check(each, pointer)
            except InvalidInput as error:
                found += error.errors
    return found


def _warnings(body: JobDescriptionIn, caller: Caller) -> tuple[str, ...]:
    found = []
    if body.user_id is not None and body.user_id != caller.user_id:
        found.append("user_id is ignored: the token says who you are")
    if body.submit_time is not None:
        found.append("submit_time is ignored: the server's clock says it")
    return tuple(found)
