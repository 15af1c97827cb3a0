"""A gate for regressions: two versions measured alternately on one board until it is decided."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist
from typing import Protocol, Unpack

from edgeyard.benchmark_api.schemas.answers import (
    DryRun,
    ResultRow,
    SubmissionAnswer,
    Workload,
    as_json,
)
from edgeyard.benchmark_api.sdk.answers import read_answer
from edgeyard.benchmark_api.sdk.benchmark import Benchmark, Benchmarks, Calls, benchmark_of
from edgeyard.benchmark_api.sdk.comparison import (
    ALTERNATIVES,
    CHECK_TAG,
    WORKLOAD,
    differences,
    metric_of_row,
    workload_text,
)
from edgeyard.benchmark_api.sdk.errors import (
    ClientError,
    NotFoundError,
    StateConflict,
    ValidationFailed,
    WaitTimeout,
)
from edgeyard.benchmark_api.sdk.http import Api, part
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
from edgeyard.devices.metrics import HIGHER, P50, Metric
from edgeyard.errors import InvalidInput
from edgeyard.home import expanded

ERROR = 0.05
"""Probability of a wrong decision, over all looks at the interval together."""
MIN_PAIRS = 3
MAX_PAIRS = 100
DEFAULT_PAIRS = 10
DEFAULT_BUDGET_S = 1800.0
NOT_MEASURED = "a number was not measured"


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

    def result_rows(self, benchmarks: Iterable[Benchmark]) -> Sequence[ResultRow]:
        """Return a row of results for each benchmark."""
        ...


class Decision(StrEnum):
    """Outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    ERROR = "error"
    """A run failed, or the check was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One measurement of each version, one directly after the other.

    Attributes:
        baseline_value: Primary metric of the baseline, in the unit of the check's metric.
        ratio: Primary metric of the candidate over that of the baseline; None if one of the two has
            none.
        slowdown: By how much the candidate is worse, relative to the baseline: the number grew
            where lower is better, or fell where higher is better. None without a ratio.
        counts: Whether the check uses it: there is a ratio, and neither number is invalid.
        reasons: Why a number of it is invalid, each with the version that it is of.
    """

    baseline_id: str
    candidate_id: str
    baseline_value: float | None
    candidate_value: float | None
    ratio: float | None
    slowdown: float | None
    counts: bool
    reasons: tuple[str, ...] = ()


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

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        found = asdict(self)
        pairs = [{**each, "reasons": list(each["reasons"])} for each in found["pairs"]]
        return {**found, "decision": self.decision.value, "pairs": pairs}


def interval_of(ratios: Sequence[float], looks: int) -> tuple[float, float, float]:
    """Return the geometric mean of ratios and its interval.

    The interval is Student's of the logarithms. Because a check looks at it after each pair and
    stops when it decides, its error is divided by the number of looks (Bonferroni), so that a
    decision is wrong with a probability of at most `ERROR` whenever the check stops.

    Args:
        ratios: At least two positive numbers.
        looks: How often the interval is looked at, at most.
    """
    logs = [math.log(each) for each in ratios]
    count = len(logs)
    mean = sum(logs) / count
    variance = sum((each - mean) ** 2 for each in logs) / (count - 1)
    half = student_quantile(1 - ERROR / looks / 2, count - 1) * math.sqrt(variance / count)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t (Hill, Communications of the ACM 13, 1970, algorithm 396).

    Args:
        probability: Above 0.5.
        degrees: Degrees of freedom, 1 or more.
    """
    tails = 2 * (1 - probability)
    n = float(degrees)
    if degrees == 1:
        return 1 / math.tan(tails * math.pi / 2)
    if degrees == 2:
        return math.sqrt(2 / (tails * (2 - tails)) - 2)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tails) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(1 - tails / 2)
        y = x**2
        if degrees < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y**2)
    else:
        y = (
            (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1
        ) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


class Gate:
    """One check: two versions that are measured alternately on one board until it is decided.

    `run` does all of it. If it raises or is interrupted, `stopped` returns what was measured until
    then, and `cancel` ends the run that is under way.

    Attributes:
        pairs: The pairs that were measured so far.
    """

    def __init__(
        self,
        client: CheckClient,
        *,
        baseline: str | Path,
        max_slowdown: float,
        changes: Mapping[str, object],
        budget_s: float = DEFAULT_BUDGET_S,
        max_pairs: int = DEFAULT_PAIRS,
        report: Callable[[str], object] = lambda _: None,
        monotonic_s: Callable[[], float] = time.monotonic,
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
            budget_s: Time for all runs together.
            max_pairs: Maximum number of pairs, from `MIN_PAIRS`.
            report: Receives warnings, and a sentence about each pair.
            monotonic_s: For tests.

        Raises:
            InvalidInput: A number is out of its range, or a field cannot be that of many runs.
        """
        refuse_fields(changes, CHECK_FIELDS, "cannot be that of the several runs of a check")
        if not 0 <= max_slowdown < 10:
            raise InvalidInput.at("--max-slowdown", f"is {max_slowdown:.2%}", "0 % to 1000 %")
        if not MIN_PAIRS <= max_pairs <= MAX_PAIRS:
            raise InvalidInput.at("--max-pairs", f"is {max_pairs}", f"{MIN_PAIRS} to {MAX_PAIRS}")
        self.pairs: list[Pair] = []
        self._runs = _Runs(client)
        self._baseline = baseline
        self._changes = changes
        self._sides: _Sides | None = None
        self._max_slowdown = max_slowdown
        self._budget_s = budget_s
        self._max_pairs = max_pairs
        self._report = report
        self._monotonic_s = monotonic_s
        self._metric = P50

    def run(self) -> Check:
        """Measure until the interval decides or the budget is spent.

        Raises:
            InvalidInput: There is no such baseline, the two do different work, or no board can
                run them.
            BenchmarkEnded: A run ended without a result.
        """
        self._sides = sides = _Sides(self._runs, self._baseline, self._changes)
        for warning in sides.refuse_other_work():
            self._report(f"warning: {warning}")
        end_s = self._monotonic_s() + self._budget_s
        while len(self.pairs) < self._max_pairs:
            try:
                swapped = len(self.pairs) % 2 == 1
                pair, metric = sides.measure(swapped, lambda: end_s - self._monotonic_s())
            except WaitTimeout:
                spent = f"the budget of {self._budget_s:g} s was spent"
                return self._outcome(Decision.UNDECIDED, f"{spent} after {_count(self.pairs)}")
            self.pairs.append(pair)
            self._metric = metric or self._metric
            self._report(_sentence(len(self.pairs), pair, self._metric))
            self._refuse_slowdown()
            ratios = self._ratios()
            if len(self.pairs) - len(ratios) >= MIN_PAIRS:
                return self._outcome(Decision.UNDECIDED, self._unusable())
            if len(ratios) < MIN_PAIRS:
                continue
            _, low, high = self._slowdowns(ratios)
            limit = f"{self._max_slowdown:.2%}"
            if high <= self._max_slowdown:
                return self._outcome(Decision.PASSED, f"the slowdown is at most {limit}")
            if low > self._max_slowdown:
                return self._outcome(Decision.FAILED, f"the slowdown is more than {limit}")
        return self._outcome(Decision.UNDECIDED, self._undecided())

    def stopped(self, reason: str) -> Check:
        """Return what was measured until a run failed or the check was stopped.

        Args:
            reason: Why it ended, as a sentence.
        """
        return self._outcome(Decision.ERROR, reason)

    def cancel(self) -> str | None:
        """Cancel the run that is under way and return its id; None if there is none."""
        return self._runs.cancel()

    @property
    def _looks(self) -> int:
        """How often the interval is looked at, at most."""
        return self._max_pairs - MIN_PAIRS + 1

    def _slowdowns(self, ratios: Sequence[float]) -> tuple[float, float, float]:
        """Return the slowdown that ratios mean, and its interval."""
        mean, *ends = interval_of(ratios, self._looks)
        low, high = sorted(map(self._metric.slowdown, ends))
        return self._metric.slowdown(mean), low, high

    def _refuse_slowdown(self) -> None:
        """Refuse a limit that the metric cannot exceed.

        Raises:
            InvalidInput: Higher numbers are better, and none can fall that far.
        """
        if self._metric.better == HIGHER and self._max_slowdown >= 1:
            reason = f"is {self._max_slowdown:.2%}, and {self._metric.name} cannot fall that far"
            raise InvalidInput.at("--max-slowdown", reason, "a share below 100 %")

    def _ratios(self) -> list[float]:
        return [each.ratio for each in self.pairs if each.counts and each.ratio is not None]

    def _unusable(self) -> str:
        left_out = [each for each in self.pairs if not each.counts]
        last = f" (of the last pair, {'; '.join(left_out[-1].reasons)})"
        why = last if left_out[-1].reasons else ""
        return f"{len(left_out)} pairs do not count, because a number of each is invalid{why}"

    def _undecided(self) -> str:
        valid = len(self._ratios())
        if valid == len(self.pairs):
            return f"{_count(self.pairs)} did not decide it"
        return f"the {valid} of {len(self.pairs)} pairs that count did not decide it"

    def _outcome(self, decision: Decision, why: str) -> Check:
        ratios = self._ratios()
        mean = low = high = None
        if len(ratios) >= MIN_PAIRS:
            mean, low, high = self._slowdowns(ratios)
        elif ratios:
            mean = self._metric.slowdown(math.exp(sum(map(math.log, ratios)) / len(ratios)))
        sides = self._sides
        return Check(
            decision=decision,
            reason=why,
            baseline=sides.baseline if sides else str(self._baseline),
            candidate=sides.candidate if sides else _candidate(self._changes),
            target_uid=(sides.target_uid if sides else None) or "",
            metric=self._metric,
            max_slowdown=self._max_slowdown,
            slowdown=mean,
            low=low,
            high=high,
            level=1 - ERROR / self._looks,
            pairs=tuple(self.pairs),
        )


def _count(pairs: Sequence[Pair]) -> str:
    return "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"


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


def _candidate(changes: Mapping[str, object]) -> str:
    return str(changes.get("model") or ", ".join(sorted(changes)))


@dataclass
class _Runs:
    """Submits runs one after the other, and knows the one that is under way."""

    client: CheckClient
    _running: Benchmark | None = None
    _unanswered: Callable[[], Benchmark] | None = field(default=None, repr=False)

    def run(
        self, where: str, body: Mapping[str, object], left_s: Callable[[], float]
    ) -> tuple[Benchmark, ResultRow]:
        """Submit, wait for the end, and return the benchmark with its row of results.

        Raises:
            WaitTimeout: There is too little time; the run is cancelled.
            BenchmarkEnded: It ended without a result.
        """
        key = uuid.uuid4().hex

        def submit() -> Benchmark:
            answer = self.client.api.post(where, dict(body), key=key)
            return benchmark_of(read_answer(answer, SubmissionAnswer), self.client)

        self._unanswered = submit
        self._running = made = submit()
        self._unanswered = None
        try:
            ended = self.client.wait(made.benchmark_id, max(0.0, left_s()), progress=False)
        except WaitTimeout:
            with suppress(ClientError):
                self.cancel()
            raise
        self._running = None
        (row,) = self.client.result_rows([made])
        return ended, row

    def cancel(self) -> str | None:
        """Cancel the run that is under way; one whose id is not known yet is asked for first."""
        if self._running is None and self._unanswered is not None:
            self._running = self._unanswered()  # the same idempotency key: the same benchmark
        running, self._running, self._unanswered = self._running, None, None
        if running is None:
            return None
        with suppress(StateConflict):  # it has ended in the meantime
            self.client.cancel(running.benchmark_id)
        return running.benchmark_id


class _Sides:
    """The two versions, and the board on which both are measured."""

    def __init__(self, runs: _Runs, baseline: str | Path, changes: Mapping[str, object]) -> None:
        self._runs = runs
        client = runs.client
        self._origin: str | None = None
        self.target_uid: str | None = None
        here = Path.cwd()
        file = _model_file(baseline)
        if file is None:
            origin = _benchmark(client, str(baseline))
            if not changes:
                raise InvalidInput.at(
                    "--model", "nothing differs from the baseline", "the model to check, or flags"
                )
            self._origin = origin.benchmark_id
            self.baseline = origin.benchmark_id
            placed = {"target", "target_uid"} & changes.keys()
            self.target_uid = None if placed else origin.target_uid
            self._baseline: Mapping[str, object] = {
                name: changes[name] for name in ("target", "target_uid") if name in changes
            }
            check_clone_before_upload(client.api, origin.benchmark_id, changes, here)
        else:
            if changes.get("model") is None:
                raise InvalidInput.at("--model", "is missing", "the model to compare with")
            self.baseline = file.name
            with _about_baseline("/model"):  # what needs no server comes before what does
                check_locally({**changes, "model": file}, here)
            check_before_upload(client.api, changes, here)
            with _about_baseline("/model"):
                check_before_upload(client.api, {**changes, "model": file}, here)
            self._baseline = with_uploads({**changes, "model": file}, here, client.upload)
        self._changes = with_uploads(changes, here, client.upload)
        self.candidate = _candidate(self._changes)

    def refuse_other_work(self) -> list[str]:
        """Refuse two versions that cannot be compared or cannot run, before a board is used.

        Returns:
            The server's warnings about both, each once.

        Raises:
            InvalidInput: They do different work, as far as the server knows it, or no board can
                run one of them.
        """
        with self._about_baseline():
            first = self._preview(self._baseline)
        second = self._preview(self._changes)
        late = ("inputs", "batch_size", "training", "metric")
        _refuse_differences(first.workload, second.workload, known_late=late)
        return list(dict.fromkeys([*first.warnings, *second.warnings]))

    def _about_baseline(self) -> AbstractContextManager[None]:
        """Name the baseline where a refusal names a file that only the baseline has."""
        own = ("/model",) if self._origin is None else ("/model", "/dataset", "/odt_config")
        return _about_baseline(*own)

    def _preview(self, fields: Mapping[str, object]) -> DryRun:
        where, body = self._request(fields)
        answer = self._runs.client.api.post(
            where, body, params={"dry_run": "true"}, key=uuid.uuid4().hex
        )
        found = read_answer(answer, DryRun)
        if found.would == "never":
            reason = found.waiting_reason.sentence if found.waiting_reason else "no board fits"
            raise InvalidInput.at("--target", f"no board can run it: {reason}", "another board")
        return found

    def _request(self, fields: Mapping[str, object]) -> tuple[str, dict[str, object]]:
        """Return path and body of a submission of these fields."""
        tags = fields.get("tags")
        own = tags if isinstance(tags, list) else []
        body: dict[str, object] = {"name": "", **fields, "tags": [*own, CHECK_TAG]}
        if self.target_uid is not None:
            body.pop("target", None)
            body["target_uid"] = self.target_uid
        where = "/v1/benchmarks"
        if self._origin is not None:
            where += f"/{part(self._origin)}/clone"
        return where, body

    def measure(self, swapped: bool, left_s: Callable[[], float]) -> tuple[Pair, Metric | None]:
        """Run both, one after the other; return the pair and the metric of both, if it is known.

        Args:
            swapped: The candidate first.
            left_s: Returns the time that is left.

        Raises:
            InvalidInput: The reports show that they did different work.
            WaitTimeout: There is too little time; what runs is cancelled.
        """
        sides = [self._baseline, self._changes]
        rows: dict[int, ResultRow] = {}
        for position in (1, 0) if swapped else (0, 1):
            with nullcontext() if position else self._about_baseline():
                ended, rows[position] = self._runs.run(*self._request(sides[position]), left_s)
            self.target_uid = self.target_uid or ended.target_uid
        first, second = rows[0], rows[1]
        _refuse_differences(first.workload, second.workload)
        before, after = first.primary_value, second.primary_value
        metric = metric_of_row(as_json(first)) or metric_of_row(as_json(second))
        ratio = None
        if before is not None and after is not None and before > 0 and after > 0:
            ratio = after / before
        valid = "invalid" not in (first.verdict, second.verdict)
        pair = Pair(
            baseline_id=first.benchmark_id,
            candidate_id=second.benchmark_id,
            baseline_value=before,
            candidate_value=after,
            ratio=ratio,
            slowdown=metric.slowdown(ratio) if metric is not None and ratio is not None else None,
            counts=ratio is not None and valid,
            reasons=(*_invalid(first, "baseline"), *_invalid(second, "candidate")),
        )
        return pair, metric


def _invalid(row: ResultRow, side: str) -> Iterator[str]:
    """Yield why a number is invalid, with the version that it is of."""
    if row.verdict == "invalid":
        why = " ".join(one.sentence or one.code for one in row.reasons)
        yield f"the {side} is invalid: {why.removesuffix('.')}" if why else f"the {side} is invalid"


def _refuse_differences(
    first: Workload, second: Workload, known_late: Collection[str] = ()
) -> None:
    """Refuse two workloads whose numbers may not be compared.

    Args:
        first: The baseline's.
        second: The candidate's.
        known_late: Parts that only a run shows; they are compared if both are known.
    """
    rows = [{"workload": as_json(each)} for each in (first, second)]
    unknown = {name for name in known_late if not (getattr(first, name) and getattr(second, name))}
    differing = [
        f"{WORKLOAD[name]} ({workload_text(rows[0], name) or 'none'} against "
        f"{workload_text(rows[1], name) or 'none'})"
        for name in differences(rows)
        if name not in ALTERNATIVES and name not in unknown
    ]
    if differing:
        reason = f"does other work than the candidate: {', '.join(differing)}"
        raise InvalidInput.at("--baseline", reason, "a candidate with the same inputs and type")


@contextmanager
def _about_baseline(*own: str) -> Iterator[None]:
    """Name the baseline where a refusal names fields that are the baseline's own."""
    try:
        yield
    except (ValidationFailed, InvalidInput) as error:
        if not any(one.pointer in own for one in error.errors):
            raise
        raise InvalidInput(
            [
                replace(one, pointer="--baseline") if one.pointer in own else one
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
