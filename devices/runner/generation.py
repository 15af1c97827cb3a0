"""GENAI: how quickly a language model reads a prompt and writes tokens.

A request is a prompt and an output of a fixed number of tokens, chosen greedily. The first request
after loading is timed apart. Then requests are checked token by token, whose times also show when
the model is warm; then equal requests are measured, one after another. Each is timed at its begin,
after its prompt and after every token.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.metrics import (
    DECODE_TOKENS_PER_S,
    PREFILL_TOKENS_PER_S,
    REQUEST_MS,
    TIME_TO_FIRST_TOKEN_MS,
    TOKEN_P99_MS,
    Metric,
    generation_primary,
)
from edgeyard.devices.runner.board import peak_bytes
from edgeyard.devices.runner.conditions import Conditions, Watch
from edgeyard.devices.runner.engine import GeneratingSession, Generation, Progress
from edgeyard.devices.runner.generation_request import GenerationRequest
from edgeyard.devices.runner.interval import median_interval, quantile_interval
from edgeyard.devices.runner.measure import (
    MEASURED_PERCENT,
    MIN_MEASURING_S,
    WARMED_PERCENT,
    WARMING_PERCENT,
    Clock,
    Measurement,
    collections_paused,
)
from edgeyard.devices.runner.trust import Series, judge
from edgeyard.devices.runner.warmup import SLOW_S, WarmUp, warm_up
from edgeyard.errors import RunFailed

MAX_REPORTED_TOKENS = 1024
"""Tokens that the report itself repeats; ``generation.npz`` has all of them."""

_CHUNK_S = 0.25
"""Progress is reported and the machine looked at between chunks of tokens, outside of the times."""

_MAX_MEASURED_TOKENS = 10_000_000
_MANY_TOKENS = 32
"""Minimum tokens of a slow request that warms up token by token: whole ones take minutes."""

_ENERGY_SHARE = 0.75
"""Share of the time for measuring energy that has enough parts for an interval."""

_LONG, _MAX_LONG = 4, 16
"""When requests took `_LONG` times that time, this share of it is enough for tokens; after
`_MAX_LONG` times any share is, because requests with long prompts would never end."""

_SEED = 0

IdleAfter = Callable[[Callable[[], Any]], Any]
"""Makes a call and then idles, as `edgeyard.devices.runner.duty_cycle.idling` returns it."""


@dataclass(frozen=True, kw_only=True)
class TimedRequest:
    """Times of one request, nanoseconds.

    Attributes:
        begin_ns: Until the engine was ready for the prompt.
        prefill_ns: Of the prompt.
        tokens_ns: Of each token of the output, in order; the first one is chosen after the prompt,
            and the model runs for each of the others.
        span: Begin and end of the tokens after the first, s of the clock, and their number; where
            there are none, of the request and its token.
    """

    begin_ns: int
    prefill_ns: int
    tokens_ns: Sequence[int]
    span: Tuple[float, float, float]

    @property
    def first_token_ns(self) -> int:
        """Time to the first token."""
        return self.begin_ns + self.prefill_ns + self.tokens_ns[0]

    @property
    def total_ns(self) -> int:
        """Time of the whole request."""
        return self.first_token_ns + sum(self.tokens_ns[1:])


@dataclass(frozen=True, kw_only=True)
class GenerationResult:
    """What was measured.

    Attributes:
        prompt_length: Tokens of the prompt.
        tokens: The output, the same in every request unless ``varied``.
        text: The output as text; None: the folder has no tokenizer.
        varied: Number of measured requests with another output.
        peak_bytes: As of `Measurement`.
    """

    request: GenerationRequest
    prompt_length: int
    first: TimedRequest
    requests: Sequence[TimedRequest]
    warmup: WarmUp
    conditions: Conditions
    tokens: Sequence[int]
    text: Optional[str]
    varied: int
    peak_bytes: Optional[int] = None

    @cached_property
    def token_ms(self) -> NDArray[np.float64]:
        """Times of the tokens after the first, shape (requests, output_length - 1), ms."""
        return np.array([one.tokens_ns[1:] for one in self.requests], dtype=np.float64) / 1e6

    @cached_property
    def series(self) -> Mapping[Metric, NDArray[np.float64]]:
        """The numbers of each request, shape (requests,), by what they are."""
        prefill_s = np.array([one.prefill_ns for one in self.requests]) / 1e9
        found = {
            PREFILL_TOKENS_PER_S: self.prompt_length / prefill_s,
            TIME_TO_FIRST_TOKEN_MS: np.array([one.first_token_ns for one in self.requests]) / 1e6,
            REQUEST_MS: np.array([one.total_ns for one in self.requests]) / 1e6,
        }
        token_ms = self.token_ms
        if token_ms.shape[1]:
            rates = 1e3 * token_ms.shape[1] / token_ms.sum(axis=1)
            found = {DECODE_TOKENS_PER_S: rates, **found}
        return found

    def measurement(self) -> Measurement:
        """Return the times of tokens, judged by the primary metric.

        They are those of the tokens after the first, or of the first ones if there are no others.
        """
        series = self.series
        primary = generation_primary(self.request.output_length)
        latencies_ms = self.token_ms.ravel()
        if not len(latencies_ms):
            latencies_ms = series[TIME_TO_FIRST_TOKEN_MS]
        verdict = judge(
            latencies_ms,
            self.conditions,
            warmup=self.warmup,
            primary=Series(primary, series[primary]),
        )
        return Measurement(
            latencies_ms=latencies_ms,
            warmup=self.warmup,
            conditions=self.conditions,
            verdict=verdict,
            spans=[each.span for each in self.requests],
        )

    def as_json(self) -> Dict[str, object]:
        """Return what the report has of it next to `measurement`."""
        results: Dict[str, Dict[str, object]] = {}
        for metric, numbers in self.series.items():
            interval = median_interval(numbers)
            results[metric.name] = _stated(metric, float(np.median(numbers)))
            if interval is not None:
                results[metric.name] |= {
                    "ci95": [interval.low, interval.high],
                    "ci95_degrees": interval.degrees,
                }
        token_ms = self.token_ms.ravel()
        if len(token_ms):
            p99 = _stated(TOKEN_P99_MS, float(np.percentile(token_ms, 99)))
            low, high = quantile_interval(token_ms, 0.99)
            if low is not None and high is not None:
                p99["ci95"] = [low, high]
            results[TOKEN_P99_MS.name] = p99
        return {
            "primary_metric": generation_primary(self.request.output_length).name,
            "results": results,
            "nb_inference": len(self.requests),
            "runs_per_s": None,
            "rows_per_s": None,
            "generation": {
                "preset": self.request.preset or None,
                "prompt_length": self.prompt_length,
                "output_length": self.request.output_length,
                "requests": len(self.requests),
                "first_request_ms": self.first.total_ns / 1e6,
                "first_time_to_first_token_ms": self.first.first_token_ns / 1e6,
                "output_tokens": list(self.tokens[:MAX_REPORTED_TOKENS]),
                "output_text": self.text,
                "requests_with_another_output": self.varied,
            },
        }

    def arrays(self) -> Dict[str, NDArray[Any]]:
        """Return the content of ``generation.npz``: numbers of requests, tokens, their times."""
        return {
            **{metric.name: numbers for metric, numbers in self.series.items()},
            "token_ms": self.token_ms,
            "output_tokens": np.array(self.tokens, dtype=np.int64),
        }


def _stated(metric: Metric, value: float) -> Dict[str, object]:
    return {
        "value": value,
        "unit": metric.unit,
        "title": metric.title,
        "better": metric.better,
    }


@dataclass(kw_only=True)
class Requests:
    """Makes one request again and again.

    Attributes:
        prompt: Token ids.
        idle_after: Slows emulated boards down.
    """

    session: GeneratingSession
    prompt: Sequence[int]
    output_length: int
    idle_after: IdleAfter
    clock: Clock = time.perf_counter_ns
    _checked: Optional[Generation] = field(default=None, init=False)
    _checked_tokens: int = field(default=0, init=False)

    def timed(
        self, between: Callable[[], None], chunk: int, *, may_end: bool = False
    ) -> "Tuple[TimedRequest, Sequence[int]]":
        """Make a request; its times and its output.

        Args:
            between: Called between chunks of tokens, outside of the times.
            chunk: Tokens of a chunk.
            may_end: Look after each token whether the output has ended, outside of the times.

        Raises:
            RunFailed: ``user_model``: the output ended too early; and what the engine raises.
        """
        clock, idle_after = self.clock, self.idle_after
        began = clock()
        generation = self.session.begin(self.prompt, self.output_length)
        ready = clock()
        idle_after(generation.prefill)
        now = prefilled = clock()
        if may_end:
            _check_logits(generation.logits(), 0)
        decoding = began
        tokens_ns: List[int] = []
        keep, step = tokens_ns.append, generation.step
        while len(tokens_ns) < self.output_length:
            if may_end and generation.ended:
                break
            # the first token is a chunk of its own: it is chosen after the prompt
            left = self.output_length - len(tokens_ns)
            count = 1 if may_end or not tokens_ns else min(chunk, left)
            before = clock()
            if len(tokens_ns) == 1:
                decoding = before
            for _ in range(count):
                idle_after(step)
                now = clock()
                keep(now - before)
                before = now
            if count == chunk or len(tokens_ns) == self.output_length:
                between()
        found = generation.tokens()
        if len(found) != self.output_length:
            # the end token itself is no part of the output
            raise _ended_early(len(found) + 1, self.output_length)
        span = (decoding / 1e9, now / 1e9, float(max(1, self.output_length - 1)))
        times = TimedRequest(
            begin_ns=ready - began, prefill_ns=prefilled - ready, tokens_ns=tokens_ns, span=span
        )
        return times, found

    def check_requests(self, count: int) -> List[int]:
        """Make requests whose logits are checked; the time of each, ns.

        Raises:
            RunFailed: ``user_model``: logits are not finite.
        """
        found: List[int] = []
        while len(found) < count:
            taken = self._check_token()[1]
            while self._checked is not None:
                taken += self._check_token()[1]
            found.append(taken)
        return found

    def check_tokens(self, count: int) -> List[int]:
        """Generate and check tokens of requests, but their first ones; the time of each, ns.

        Raises:
            RunFailed: ``user_model``: logits are not finite.
        """
        found: List[int] = []
        while len(found) < count:
            is_first, taken = self._check_token()
            if not is_first:
                found.append(taken)
        return found

    def finish_check(self, between: Callable[[], None]) -> None:
        """Check what is left of the request that the warm-up was in."""
        while self._checked is not None:
            self._check_token()
            between()

    def _check_token(self) -> "Tuple[bool, int]":
        """Generate and check a token; whether it is the first of a request, and its time, ns."""
        began = self.clock()
        is_first = self._checked is None
        if self._checked is None:
            self._checked = self.session.begin(self.prompt, self.output_length)
            self._checked_tokens = 0
            self.idle_after(self._checked.prefill)
        logits = self.idle_after(self._checked.logits)
        self.idle_after(self._checked.step)
        taken = self.clock() - began
        _check_logits(logits, self._checked_tokens)
        self._checked_tokens += 1
        if self._checked_tokens >= self.output_length:
            self._checked = None
        return is_first, taken


def measure_generation(
    session: GeneratingSession,
    request: GenerationRequest,
    watch: Watch,
    progress: Progress,
    *,
    max_s: float,
    max_warmup_s: float,
    min_s: float = 0.0,
    idle_after: IdleAfter = lambda call: call(),
    clock: Clock = time.perf_counter_ns,
) -> GenerationResult:
    """Time the first request, check one, warm up, and measure.

    Args:
        max_s: No further request begins that would probably end after this time.
        min_s: Requests go on until the tokens after the first took so long together, as what
            measures energy needs them. When the requests took four times that, three quarters of
            it are enough, and after sixteen times any: prompts may take much longer than tokens.

    Raises:
        RunFailed: ``user_input``: the request does not fit the model; ``user_model``: logits are
            not finite, or the output ended too early; ``timeout``: no time is left to measure.
    """
    started = time.monotonic()
    prompt = prompt_of(session, request)
    made = Requests(
        session=session,
        prompt=prompt,
        output_length=request.output_length,
        idle_after=idle_after,
        clock=clock,
    )

    def warming() -> None:
        progress(WARMING_PERCENT, "warmup")

    warming()
    with collections_paused():
        first, tokens = made.timed(warming, 1, may_end=True)

        by_tokens = first.total_ns >= SLOW_S * 1e9 and request.output_length >= _MANY_TOKENS

        def checked(count: int) -> Sequence[int]:
            warming()
            return (made.check_tokens if by_tokens else made.check_requests)(count)

        warmup = warm_up(checked, max_warmup_s)
        made.finish_check(warming)
        needed_bytes = peak_bytes()
        progress(WARMED_PERCENT, "measuring")
        left_s = max_s - (time.monotonic() - started)
        later_s = (first.total_ns - first.begin_ns) / 1e9
        if left_s < later_s:
            raise RunFailed(
                "timeout",
                f"a request took {later_s:.3g} s, and {max(0.0, left_s):.3g} s were left to "
                "measure: state a longer user_time, or a shorter prompt and output",
            )
        chunk = max(1, int(_CHUNK_S * 1e9 / max(1.0, float(np.median(first.tokens_ns)))))
        watch.start()
        requests, varied = _measured(
            made,
            tokens,
            request.requests,
            min_s,
            watch,
            progress,
            left_s,
            chunk,
        )
        conditions = watch.stop()
    return GenerationResult(
        request=request,
        prompt_length=len(prompt),
        first=first,
        requests=requests,
        warmup=warmup,
        conditions=conditions,
        tokens=tokens,
        text=session.decode(tokens[:MAX_REPORTED_TOKENS]) if session.has_tokenizer else None,
        varied=varied,
        peak_bytes=needed_bytes,
    )


def prompt_of(session: GeneratingSession, request: GenerationRequest) -> Sequence[int]:
    """Return the token ids of a request's prompt, which are random where only their number counts.

    Raises:
        RunFailed: ``user_input``: it does not fit the model.
    """
    problem = request.problem(
        session.context_length, session.vocabulary, has_tokenizer=session.has_tokenizer
    )
    prompt: Sequence[int] = request.tokens or ()
    if request.text is not None and not problem:
        prompt = session.encode(request.text)
        if not prompt:
            problem = "parameters/prompt: the tokenizer makes no token of it"
    elif request.tokens is None and not problem:
        rng = np.random.default_rng(_SEED)
        prompt = rng.integers(0, session.vocabulary, request.prompt_length).tolist()
    problem = problem or request.length_problem(len(prompt), session.context_length)
    if problem:
        raise RunFailed("user_input", problem)
    return prompt


def _measured(
    made: Requests,
    expected: Sequence[int],
    wanted: int,
    min_s: float,
    watch: Watch,
    progress: Progress,
    left_s: float,
    chunk: int,
) -> "Tuple[List[TimedRequest], int]":
    """Return so many requests, or as many as time allows, and how many had another output."""
    requests: List[TimedRequest] = []
    varied, spent_s, tokens_s, max_ns = 0, 0.0, 0.0, 0
    max_requests = max(wanted, math.ceil(_MAX_MEASURED_TOKENS / made.output_length))
    began = time.monotonic()

    def share() -> float:
        return min(len(requests) / wanted, spent_s / MIN_MEASURING_S, share_of_energy())

    def share_of_energy() -> float:
        if not min_s:
            return 1.0
        long = min(spent_s / _LONG, tokens_s / _ENERGY_SHARE)
        return max(tokens_s, long, spent_s / _MAX_LONG) / min_s

    def look() -> None:
        watch.look()
        percent = WARMED_PERCENT + (MEASURED_PERCENT - WARMED_PERCENT) * min(1.0, share())
        progress(percent, "measuring")

    while share() < 1 and len(requests) < max_requests:
        if requests and time.monotonic() - began + max_ns / 1e9 > left_s:
            break
        times, tokens = made.timed(look, chunk)
        requests.append(times)
        varied += list(tokens) != list(expected)
        spent_s += times.total_ns / 1e9
        tokens_s += times.span[1] - times.span[0]
        max_ns = max(max_ns, times.total_ns)
    return requests, varied


def _check_logits(logits: NDArray[np.floating[Any]], tokens: int) -> None:
    """Refuse NaN and infinity; minus infinity is a token that is never chosen."""
    wrong = int(np.count_nonzero(np.isnan(logits) | np.isposinf(logits)))
    if wrong:
        after = f"token {tokens} of the output" if tokens else "the prompt"
        raise RunFailed(
            "user_model",
            f"after {after} {wrong} of the model's {logits.size} logits are NaN or infinite; "
            "check its weights and the type that they were converted to",
        )


def _ended_early(found: int, wanted: int) -> RunFailed:
    return RunFailed(
        "user_model",
        f"the model ended its output at token {found} of {wanted}, although the end tokens that "
        "its genai_config.json states are never chosen",
    )
