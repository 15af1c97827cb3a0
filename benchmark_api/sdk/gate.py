"""A gate for regressions: two versions measured alternately on one board until it is decided."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.schemas.answers import ResultRow, SubmissionAnswer, as_json
from edgeyard.benchmark_api.sdk.answers import read_answer
from edgeyard.benchmark_api.sdk.benchmark import Benchmark, benchmark_of
from edgeyard.benchmark_api.sdk.comparison import WORKLOAD, differences
from edgeyard.benchmark_api.sdk.errors import NotFoundError, StateConflict, WaitTimeout
from edgeyard.benchmark_api.sdk.http import part
from edgeyard.benchmark_api.sdk.submission import with_uploads
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk.client import Client

ERROR = 0.05
"""Probability of a wrong decision, over all looks at the interval together."""
MIN_PAIRS = 3
MAX_PAIRS = 100
DEFAULT_PAIRS = 10
DEFAULT_BUDGET_S = 1800.0
_MAY_DIFFER = frozenset({"model_sha256", "engine", "engine_version", "parameters"})
"""Parts of the workload in which the two versions may differ."""


class Decision(StrEnum):
    """What a check found."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One measurement of each version, one directly after the other.

    Attributes:
        ratio: p50 of the candidate over that of the baseline; None if one of the two is invalid.
    """

    baseline_id: str
    candidate_id: str
    baseline_ms: float | None
    candidate_ms: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of a check.

    Attributes:
        slowdown: By how much the candidate is slower, e.g. 0.03; negative: it is faster. None
            without a valid pair.
        low: Lower end of the interval of the slowdown; None: there are too few pairs.
        reason: Why it was decided so, as a sentence.
    """

    decision: Decision
    reason: str
    baseline: str
    candidate: str
    target_uid: str
    max_slowdown: float
    slowdown: float | None
    low: float | None
    high: float | None
    pairs: tuple[Pair, ...]

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        found = asdict(self)
        return {**found, "decision": self.decision.value, "pairs": list(found["pairs"])}


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


def check(
    client: Client,
    *,
    baseline: str | Path,
    max_slowdown: float,
    changes: Mapping[str, object],
    budget_s: float = DEFAULT_BUDGET_S,
    max_pairs: int = DEFAULT_PAIRS,
    report: Callable[[str], object] = lambda _: None,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Check:
    """Measure baseline and candidate alternately on one board until the interval decides.

    Args:
        client: Of the server.
        baseline: Id of a benchmark, a label (its newest completed benchmark), or a model file.
        max_slowdown: What is accepted, e.g. 0.03 for 3 %.
        changes: Fields of the job description in which the candidate differs; with a model file
            as baseline, all fields of both but the model.
        budget_s: Time for all runs together.
        max_pairs: Maximum number of pairs, from `MIN_PAIRS`.
        report: Receives a sentence about each pair.
        monotonic_s: For tests.

    Raises:
        InvalidInput: There is no such baseline, or the two do different work.
        BenchmarkEnded: A run ended without a result.
    """
    if not 0 <= max_slowdown < 10:
        raise InvalidInput.at("--max-slowdown", f"is {max_slowdown:.2%}", "0 % to 1000 %")
    if not MIN_PAIRS <= max_pairs <= MAX_PAIRS:
        raise InvalidInput.at("--max-pairs", f"is {max_pairs}", f"{MIN_PAIRS} to {MAX_PAIRS}")
    sides = _Sides(client, baseline, changes)
    end_s = monotonic_s() + budget_s
    pairs: list[Pair] = []
    looks = max_pairs - MIN_PAIRS + 1
    while len(pairs) < max_pairs:
        try:
            pair = sides.measure(len(pairs) % 2 == 1, lambda: end_s - monotonic_s())
        except WaitTimeout:
            why = f"the budget of {budget_s:g} s was spent after {len(pairs)} pairs"
            return _undecided(sides, pairs, max_slowdown, looks, why)
        pairs.append(pair)
        report(_sentence(len(pairs), pair))
        ratios = [each.ratio for each in pairs if each.ratio is not None]
        if len(pairs) - len(ratios) >= MIN_PAIRS:
            why = f"{len(pairs) - len(ratios)} pairs had an invalid number: the board is not usable"
            return _undecided(sides, pairs, max_slowdown, looks, why)
        if len(ratios) < MIN_PAIRS:
            continue
        _, low, high = interval_of(ratios, looks)
        if high <= 1 + max_slowdown:
            why = f"the slowdown is at most {max_slowdown:.2%}"
            return _outcome(Decision.PASSED, sides, pairs, max_slowdown, looks, why)
        if low > 1 + max_slowdown:
            why = f"the slowdown is more than {max_slowdown:.2%}"
            return _outcome(Decision.FAILED, sides, pairs, max_slowdown, looks, why)
    why = f"{max_pairs} pairs did not decide it"
    return _undecided(sides, pairs, max_slowdown, looks, why)


def _sentence(number: int, pair: Pair) -> str:
    if pair.ratio is None:
        return f"pair {number}: a number is invalid, so that the pair does not count"
    return (
        f"pair {number}: baseline {pair.baseline_ms:.4g} ms, candidate {pair.candidate_ms:.4g} ms "
        f"({pair.ratio - 1:+.2%})"
    )


def _undecided(
    sides: _Sides, pairs: Sequence[Pair], max_slowdown: float, looks: int, why: str
) -> Check:
    return _outcome(Decision.UNDECIDED, sides, pairs, max_slowdown, looks, why)


def _outcome(
    decision: Decision,
    sides: _Sides,
    pairs: Sequence[Pair],
    max_slowdown: float,
    looks: int,
    why: str,
) -> Check:
    ratios = [each.ratio for each in pairs if each.ratio is not None]
    mean = low = high = None
    if len(ratios) >= MIN_PAIRS:
        mean, low, high = (each - 1 for each in interval_of(ratios, looks))
    elif ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1
    return Check(
        decision=decision,
        reason=why,
        baseline=sides.baseline,
        candidate=sides.candidate,
        target_uid=sides.target_uid or "",
        max_slowdown=max_slowdown,
        slowdown=mean,
        low=low,
        high=high,
        pairs=tuple(pairs),
    )


class _Sides:
    """The two versions, and the board on which both are measured."""

    def __init__(self, client: Client, baseline: str | Path, changes: Mapping[str, object]) -> None:
        self._client = client
        self._origin: str | None = None
        self.target_uid: str | None = None
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
        else:
            if changes.get("model") is None:
                raise InvalidInput.at("--model", "is missing", "the model to compare with")
            self.baseline = file.name
            self._baseline = with_uploads({**changes, "model": file}, Path.cwd(), client.upload)
        self._candidate = with_uploads(changes, Path.cwd(), client.upload)
        self.candidate = str(self._candidate.get("model") or ", ".join(sorted(changes)))

    def measure(self, swapped: bool, left_s: Callable[[], float]) -> Pair:
        """Run both, one after the other.

        Args:
            swapped: The candidate first.
            left_s: Returns the time that is left.

        Raises:
            WaitTimeout: There is too little time; what runs is cancelled.
        """
        sides = [self._baseline, self._candidate]
        rows: dict[int, ResultRow] = {}
        for position in (1, 0) if swapped else (0, 1):
            rows[position] = self._run(sides[position], left_s)
        first, second = rows[0], rows[1]
        differing = [
            name
            for name in differences([as_json(first), as_json(second)])
            if name not in _MAY_DIFFER
        ]
        if differing:
            names = ", ".join(WORKLOAD[name] for name in differing)
            raise InvalidInput.at("--baseline", f"does other work than the candidate: {names}")
        ratio = None
        if first.p50_ms and second.p50_ms and "invalid" not in (first.verdict, second.verdict):
            ratio = second.p50_ms / first.p50_ms
        return Pair(
            baseline_id=first.benchmark_id,
            candidate_id=second.benchmark_id,
            baseline_ms=first.p50_ms,
            candidate_ms=second.p50_ms,
            ratio=ratio,
        )

    def _run(self, fields: Mapping[str, object], left_s: Callable[[], float]) -> ResultRow:
        client = self._client
        body = {"tags": [], "name": "", **fields}  # a label stands for what users submit
        if self.target_uid is not None:
            body.pop("target", None)
            body["target_uid"] = self.target_uid
        where = "/v1/benchmarks"
        if self._origin is not None:
            where += f"/{part(self._origin)}/clone"
        answer = client.api.post(where, body, key=uuid.uuid4().hex)
        made = benchmark_of(read_answer(answer, SubmissionAnswer), client)
        try:
            ended = client.wait(made, max(0.0, left_s()), progress=False)
        except WaitTimeout:
            with suppress(StateConflict):  # it has ended in the meantime
                client.cancel(made)
            raise
        self.target_uid = self.target_uid or ended.target_uid
        (row,) = client.result_rows([made])
        return row


def _model_file(baseline: str | Path) -> Path | None:
    path = Path(baseline).expanduser()
    if path.is_file():
        return path
    if isinstance(baseline, Path) or "/" in baseline:
        raise InvalidInput.at(
            "--baseline", f"there is no file {path}", "a model file, an id or a label"
        )
    return None


def _benchmark(client: Client, name: str) -> Benchmark:
    """Return the benchmark with this id, or the newest completed one with this label."""
    try:
        found = client.benchmark(name)
    except NotFoundError:
        labelled = next(client.list(tag=name, status="completed", page_size=1), None)
        if labelled is None:
            raise InvalidInput.at(
                "--baseline",
                f"there is no benchmark {name!r} (any more), and no completed one has this label",
                "an id, a label or a model file",
            ) from None
        return labelled
    if found.status != "completed":
        raise InvalidInput.at(
            "--baseline", f"{name} is {found.status} and has no result", "a completed benchmark"
        )
    return found
