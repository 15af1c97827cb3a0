"""A gate for regressions: two versions that the server measures in turns until it is decided."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol, Unpack

import msgspec

from edgeyard.benchmark_api.schemas.answers import CheckPair, StoredCheck
from edgeyard.benchmark_api.sdk.answers import read_answer
from edgeyard.benchmark_api.sdk.benchmark import Benchmark, Benchmarks, Calls
from edgeyard.benchmark_api.sdk.errors import (
    BenchmarkCancelled,
    NotFoundError,
    ServerNotReached,
    ValidationFailed,
)
from edgeyard.benchmark_api.sdk.http import Api
from edgeyard.benchmark_api.sdk.local_checks import (
    check_before_upload,
    check_clone_before_upload,
    check_locally,
)
from edgeyard.benchmark_api.sdk.submission import (
    CHECK_FIELDS,
    Filters,
    UploadedFile,
    refuse_fields,
    with_uploads,
)
from edgeyard.benchmark_api.sdk.waiting import (
    MAX_OUTAGE_S,
    MAX_POLL_INTERVAL_S,
    MIN_POLL_INTERVAL_S,
    POLL_GROWTH,
    raise_for_end,
)
from edgeyard.devices.metrics import P50, Metric
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.home import expanded
from edgeyard.scheduler.decide.slowdown import level_of
from edgeyard.scheduler.model.checks import (
    DEFAULT_BUDGET_S,
    DEFAULT_PAIRS,
    MAX_PAIRS,
    MIN_PAIRS,
    Pair,
)

NOT_MEASURED = "a number was not measured"

NOTHING_DIFFERS = "nothing_differs"
"""Code of the problem by which the server refuses two versions that are the same."""


class CheckClient(Calls, Protocol):
    """What a check needs of its client; each method is documented at `Client`."""

    api: Api

    def upload(self, path: Path) -> UploadedFile:
        """Upload a file."""
        ...

    def list(self, *, page_size: int, **filters: Unpack[Filters]) -> Iterator[Benchmark]:
        """Yield benchmarks, newest first."""
        ...

    def campaign(self, campaign: str) -> Benchmarks:
        """Return the members of a campaign."""
        ...

    def check_state(self, check_id: str) -> StoredCheck:
        """Return a check with its pairs so far."""
        ...

    def cancel_check(self, check_id: str) -> StoredCheck:
        """End a check, and the run that is under way."""
        ...


class Decision(StrEnum):
    """Outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    ERROR = "error"
    """A run failed, or the check was stopped."""
    UNCHANGED = "unchanged"
    """Nothing differs between the two, so that nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of a check.

    Attributes:
        metric: The primary metric that was compared; the p50 until a run has shown another one.
        slowdown: By how much the candidate is slower, e.g. 0.03; negative: it is faster. Where
            higher numbers are better it is slower if its number falls. None without a valid pair.
        low: Lower end of the interval of the slowdown; None: there are too few pairs.
        level: Confidence level of this interval. It is above 95 %, so that all intervals of a
            check, one after each pair, hold together with 95 %.
        reason: Why it was decided so, as a sentence.
    """

    decision: Decision
    reason: str
    baseline: str
    candidate: str
    target_uid: str
    metric: Metric
    max_slowdown: float
    slowdown: float | None
    low: float | None
    high: float | None
    level: float
    pairs: tuple[Pair, ...]

    @property
    def changed(self) -> bool:
        """Whether it was found slower or faster, however little: the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        found = asdict(self)
        pairs = [{**each, "reasons": list(each["reasons"])} for each in found["pairs"]]
        return {**found, "decision": self.decision.value, "pairs": pairs}


def outcome_of(stored: StoredCheck, reason: str | None = None) -> Check:
    """Return what a check of the server has found.

    Args:
        stored: The check; one that runs, or was cancelled, has no decision of its own.
        reason: Why the caller stopped following the check, which makes the decision an error;
            None: the decision and the reason are the server's.
    """
    decided = {each.value: each for each in Decision}
    decision = Decision.ERROR if reason is not None else decided.get(stored.status, Decision.ERROR)
    return Check(
        decision=decision,
        reason=stored.reason if reason is None else reason,
        baseline=stored.baseline,
        candidate=stored.candidate,
        target_uid=stored.target_uid or "",
        metric=Metric(**msgspec.structs.asdict(stored.metric)),
        max_slowdown=stored.max_slowdown,
        slowdown=stored.slowdown,
        low=stored.low,
        high=stored.high,
        level=stored.level,
        pairs=tuple(map(_pair, stored.pairs)),
    )


def _pair(pair: CheckPair) -> Pair:
    return Pair(**{**msgspec.structs.asdict(pair), "reasons": tuple(pair.reasons)})


class Gate:
    """One check: started on the server, and followed to its end.

    `run` does all of it. If it raises or is interrupted, `stopped` returns what was measured until
    then, and `cancel` ends the check.
    """

    def __init__(
        self,
        client: CheckClient,
        *,
        baseline: str | Path,
        max_slowdown: float,
        changes: Mapping[str, object],
        sleep: Callable[[float], object],
        monotonic_s: Callable[[], float],
        budget_s: float = DEFAULT_BUDGET_S,
        max_pairs: int = DEFAULT_PAIRS,
        self_test: bool = False,
        report: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Describe a check; nothing is read or run yet.

        Args:
            client: CheckClient of the server.
            baseline: Id of a benchmark, a tag (its newest completed benchmark), a campaign with
                one benchmark, or a model file.
            max_slowdown: Slowdown that is accepted, e.g. 0.03 for 3 %: of the primary metric, by
                which it may grow where lower is better, and fall where higher is better.
            changes: Fields of the job description in which the candidate differs; with a model
                file as baseline, all fields of both except the model.
            sleep: Waits for a number of seconds.
            monotonic_s: Returns the time of a clock that only goes forward, seconds.
            budget_s: Time for all runs together.
            max_pairs: Maximum number of pairs, from `MIN_PAIRS`.
            self_test: Whether the candidate may be the same as the baseline.
            report: Receives warnings, and a sentence about each pair.

        Raises:
            InvalidInput: A number is out of its range, or a field cannot be that of many runs.
        """
        refuse_fields(changes, CHECK_FIELDS, "cannot be that of the several runs of a check")
        if not 0 <= max_slowdown < 10:
            accepted = "from 0 % to below 1000 %"
            raise InvalidInput.at("--max-slowdown", f"is {max_slowdown:.2%}", accepted)
        if not MIN_PAIRS <= max_pairs <= MAX_PAIRS:
            raise InvalidInput.at("--max-pairs", f"is {max_pairs}", f"{MIN_PAIRS} to {MAX_PAIRS}")
        self._client = client
        self._baseline = baseline
        self._changes = changes
        self._max_slowdown = max_slowdown
        self._budget_s = budget_s
        self._max_pairs = max_pairs
        self._self_test = self_test
        self._report = report
        self._sleep = sleep
        self._monotonic_s = monotonic_s
        self._stored: StoredCheck | None = None
        self._unanswered: Callable[[], StoredCheck] | None = None

    @property
    def check_id(self) -> str | None:
        """Id of the check; None until the server has it."""
        return None if self._stored is None else self._stored.check_id

    def run(self) -> Check:
        """Start the check and follow it until the interval decides or the budget is spent.

        Raises:
            InvalidInput: There is no such baseline, the two do different work, or no board can
                run them.
            BenchmarkEnded: A run ended without a result, or the check was cancelled.

        Returns:
            The outcome. Of two versions that are the same nothing is measured.
        """
        body = self._body()
        key = uuid.uuid4().hex

        def start() -> StoredCheck:
            with _about_candidate():
                return read_answer(self._client.api.post("/v1/checks", body, key=key), StoredCheck)

        self._unanswered = start
        try:
            self._stored = found = start()
        except ValidationFailed as error:
            if error.code != NOTHING_DIFFERS:
                raise
            names = f"{self._candidate} and the baseline {self._baseline}"
            why = f"nothing differs between {names}, so nothing was measured"
            return self._unmeasured(Decision.UNCHANGED, why)
        self._unanswered = None
        for warning in found.warnings:
            self._report(f"warning: {warning}")
        return self._ended(self._followed(found))

    def stopped(self, reason: str) -> Check:
        """Return what was measured until a run failed or the check was stopped.

        Args:
            reason: Why it ended, as a sentence; a check that the server has ended has its own.
        """
        if self._stored is not None:
            is_ended = self._stored.status == "error"
            return outcome_of(self._stored, None if is_ended else reason)
        return self._unmeasured(Decision.ERROR, reason)

    @property
    def _candidate(self) -> str:
        return str(self._changes.get("model") or ", ".join(sorted(self._changes)))

    def _unmeasured(self, decision: Decision, reason: str) -> Check:
        """Return the outcome of a check that the server does not have."""
        return Check(
            decision=decision,
            reason=reason,
            baseline=str(self._baseline),
            candidate=self._candidate,
            target_uid="",
            metric=P50,
            max_slowdown=self._max_slowdown,
            slowdown=None,
            low=None,
            high=None,
            level=level_of(self._max_pairs),
            pairs=(),
        )

    def cancel(self) -> str | None:
        """Cancel the check; return the run that was under way, None if there was none."""
        if self._stored is None and self._unanswered is not None:
            self._stored = self._unanswered()  # the same idempotency key: the same check
        if self._stored is None:
            return None
        return self._client.cancel_check(self._stored.check_id).run_id

    def _followed(self, found: StoredCheck) -> StoredCheck:
        """Ask for a check until it has ended, and report its pairs.

        Raises:
            ServerNotReached: No answer for `MAX_OUTAGE_S`; the check goes on.
        """
        pause, seen_at, reported = MIN_POLL_INTERVAL_S, self._monotonic_s(), 0
        while True:
            for number, pair in enumerate(found.pairs[reported:], start=reported + 1):
                metric = Metric(**msgspec.structs.asdict(found.metric))
                self._report(_sentence(number, _pair(pair), metric))
                pause = MIN_POLL_INTERVAL_S
            reported = len(found.pairs)
            if found.status != "running":
                return found
            self._sleep(pause)
            pause = min(MAX_POLL_INTERVAL_S, pause * POLL_GROWTH)
            try:
                self._stored = found = self._client.check_state(found.check_id)
                seen_at = self._monotonic_s()
            except ServerNotReached:
                if self._monotonic_s() - seen_at > MAX_OUTAGE_S:
                    raise

    def _ended(self, found: StoredCheck) -> Check:
        """Return the outcome of a check.

        Raises:
            InvalidInput: The runs have shown that the two cannot be compared.
            BenchmarkEnded: A run ended without a result, or the check was cancelled.
        """
        if found.status in ("error", "cancelled"):
            if found.errors:
                stated = [FieldError(one.pointer, one.reason, one.accepted) for one in found.errors]
                raise InvalidInput(stated)
            if found.run_id is not None:
                raise_for_end([self._client.benchmark(found.run_id)])
            if found.status == "cancelled":
                raise BenchmarkCancelled(found.check_id)
        return outcome_of(found)

    def _body(self) -> dict[str, object]:
        """Upload what is local, and return the request.

        Raises:
            InvalidInput: There is no such baseline, or a file is wrong.
        """
        client, here = self._client, Path.cwd()
        file = _model_file(self._baseline)
        baseline: dict[str, object]
        if file is None:
            origin = _benchmark(client, str(self._baseline))
            if not self._changes and not self._self_test:
                raise InvalidInput.at(
                    "--model", "nothing differs from the baseline", "the model to check, or flags"
                )
            check_clone_before_upload(client.api, origin.benchmark_id, self._changes, here)
            baseline = {"benchmark_id": origin.benchmark_id}
        else:
            if self._changes.get("model") is None:
                raise InvalidInput.at("--model", "is missing", "the model to compare with")
            first = {**self._changes, "model": file}
            with _about_baseline():  # what needs no server comes before what does
                check_locally(first, here)
            check_before_upload(client.api, self._changes, here)
            with _about_baseline():
                check_before_upload(client.api, first, here)
            baseline = {"description": dict(with_uploads(first, here, client.upload))}
        return {
            "baseline": baseline,
            "candidate": dict(with_uploads(self._changes, here, client.upload)),
            "max_slowdown": self._max_slowdown,
            "budget_s": self._budget_s,
            "max_pairs": self._max_pairs,
            "self_test": self._self_test,
        }


def _sentence(number: int, pair: Pair, metric: Metric) -> str:
    if pair.slowdown is None:
        measured = f"pair {number}: {NOT_MEASURED}"
    else:
        mark = "" if pair.counts else "!"
        unit = f" {metric.unit}".rstrip()
        measured = (
            f"pair {number}: baseline {_number(pair.baseline_value)}{unit}, candidate "
            f"{_number(pair.candidate_value)}{unit} ({pair.slowdown:+.2%}{mark})"
        )
    why = f": {'; '.join(pair.reasons)}" if pair.reasons else ""
    return measured if pair.counts else f"{measured}; the pair does not count{why}"


def _number(value: float | None) -> str:
    """Return a number with four significant digits, and never in powers of ten above 1."""
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


@contextmanager
def _about_candidate() -> Iterator[None]:
    """Name fields that are refused as they are called in a job description.

    Of a baseline that is a description, only its model is not the candidate's, too.
    """
    try:
        yield
    except ValidationFailed as error:
        if error.code == NOTHING_DIFFERS:
            raise
        raise InvalidInput(
            [
                replace(one, pointer="/baseline")
                if one.pointer.startswith("/baseline/")
                else replace(one, pointer=one.pointer.removeprefix("/candidate"))
                for one in error.errors
            ]
        ) from error


@contextmanager
def _about_baseline() -> Iterator[None]:
    """Name the baseline where a refusal is about its model."""
    try:
        yield
    except (ValidationFailed, InvalidInput) as error:
        if not any(one.pointer == "/model" for one in error.errors):
            raise
        raise InvalidInput(
            [
                replace(one, pointer="--baseline") if one.pointer == "/model" else one
                for one in error.errors
            ]
        ) from error


def _model_file(baseline: str | Path) -> Path | None:
    path = expanded(baseline)
    is_path = isinstance(baseline, Path) or "/" in baseline
    if path.is_file() or (is_path and path.is_dir()):  # a tag may have the name of a folder
        return path
    if is_path:
        raise InvalidInput.at(
            "--baseline", f"there is no file {path}", "a model file, an id or a tag"
        )
    return None


def _benchmark(client: CheckClient, name: str) -> Benchmark:
    """Return the benchmark with this id, the newest completed one with this tag, or a campaign's.

    Raises:
        InvalidInput: There is none, it has no result, or the campaign has several.
    """
    try:
        found = client.benchmark(name)
    except NotFoundError:
        tagged = next(client.list(tag=name, status="completed", page_size=1), None)
        return tagged or _only_member(client, name)
    if found.status != "completed":
        raise InvalidInput.at(
            "--baseline", f"{name} is {found.status} and has no result", "a completed benchmark"
        )
    return found


def _only_member(client: CheckClient, name: str) -> Benchmark:
    """Return the completed benchmark of the campaign with this id or name."""
    try:
        members = client.campaign(name)
    except NotFoundError:
        members = []
    completed = [each for each in members if each.status == "completed"]
    if len(completed) == 1:
        return completed[0]
    if completed:
        raise InvalidInput.at(
            "--baseline",
            f"the campaign {name} has {len(completed)} completed benchmarks",
            "one of " + ", ".join(each.benchmark_id for each in completed[:5]),
        )
    folder = f", or ./{name} for the folder" if Path(name).is_dir() else ""
    raise InvalidInput.at(
        "--baseline",
        f"there is no benchmark {name!r} (any more), and no completed one has this tag or campaign",
        f"an id, a tag or a model file{folder}",
    )
