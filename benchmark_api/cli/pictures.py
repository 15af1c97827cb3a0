"""Render a benchmark, an explanation, a dry run or a board as text for 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from edgeyard.benchmark_api.cli.output import (
    STATE_STYLE,
    Column,
    console,
    field,
    local_time,
    number_field,
    parameters_text,
    plain,
    size,
    table,
    three_digits,
    when,
    who_cancelled,
)
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.progress import state_line
from edgeyard.benchmark_api.sdk.units import with_unit
from edgeyard.devices.attributes import meaning

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgeyard.benchmark_api.sdk import Benchmark, Explanation, Verdict

MAX_BOARDS = 30
"""Further boards are counted by their reason instead of listed."""

OTHER_FAMILY = "no_such_family"

_SHOWN_FIRST = ("model", "runtime", "benchmark_type", "target", "target_uid")
_SHOWN_AT_ZERO = frozenset({"max_retries"})
"""Fields whose zero differs from the default."""
_HIDDEN = frozenset({"model_url", "dataset_urls"})

MAX_CLOCK_DIFFERENCE_S = 2.0
"""Accuracy of the measurement of a host's clock."""


def benchmark_picture(benchmark: Benchmark) -> Iterator[RenderableType]:
    """Render the state, description, files and attempts of a benchmark."""
    yield Text(benchmark.benchmark_id, style="bold")
    yield Text(printable(state_line(benchmark)), style=STATE_STYLE.get(benchmark.status, ""))
    raw = benchmark.as_json()
    facts = {
        "submitted": local_time(raw.get("submit_time")),
        "started": local_time(raw.get("started_at")),
        "ended": local_time(raw.get("ended_at")),
        "cancelled": who_cancelled(raw).removeprefix("cancelled "),
        "deadline": local_time(raw.get("deadline")),
        "priority": plain(benchmark.priority),
        "campaign": plain(benchmark.campaign_id),
        "check": plain(raw.get("check_id")),
        "retry of": plain(raw.get("retry_of")),
        "user": plain(benchmark.user_id),
        **forecast_facts(raw.get("forecast")),
        **planned_facts(raw.get("planned")),
    }
    yield Text()
    yield facts_table({name: value for name, value in facts.items() if value})
    description = {**benchmark.description}
    if "user_priority" in description:  # as `prioritise` changed it
        description["user_priority"] = raw.get("user_priority")
    order = [*_SHOWN_FIRST, *(name for name in description if name not in _SHOWN_FIRST)]
    fields = {
        name: with_unit(name, description.get(name)) or plain(description.get(name))
        for name in order
        if name not in _HIDDEN
    }
    yield Text("\nDescription", style="bold")
    yield facts_table(
        {
            name: text
            for name, text in fields.items()
            if text and (name in _SHOWN_AT_ZERO or text not in ("0", "{}"))
        }
    )
    files = raw.get("files")
    if isinstance(files, list) and files:
        yield Text("\nFiles", style="bold")
        yield table(files, _FILE_COLUMNS, console().width)
    attempts = raw.get("attempts")
    if isinstance(attempts, list) and attempts:
        yield Text("\nAttempts", style="bold")
        yield table(attempts, _ATTEMPT_COLUMNS, console().width)
        page = plain(attempts[-1].get("cluster_page"))
        if page:
            yield Text("\nPage in the UI of the cluster", style="bold")
            yield printable(page)


def forecast_facts(forecast: object) -> dict[str, str]:
    """Return the expected start and end as facts; empty where there is no forecast."""
    if not isinstance(forecast, Mapping):
        return {}
    facts = {}
    if forecast.get("place") is not None:
        facts["queue position"] = plain(forecast.get("place"))
        facts["expected start"] = _interval(forecast, "start")
    facts["expected end"] = _interval(forecast, "finish")
    chance = forecast.get("deadline_chance")
    if isinstance(chance, int | float):
        facts["meets deadline"] = f"with a probability of {chance:.0%}"
    age_s = forecast.get("age_s")
    if isinstance(age_s, int | float):
        basis = "past runs" if forecast.get("grounded") else "its time limit: no such run yet"
        facts["forecast"] = f"made {age_s:.0f} s ago from {basis}"
        facts["intervals"] = _coverage(forecast.get("coverage"))
    return facts


def planned_facts(planned: object) -> dict[str, str]:
    """Return the planned board and start with the reason as facts; empty without a plan."""
    if not isinstance(planned, Mapping):
        return {}
    at = when(planned.get("start"))
    start = "" if at is None else f" at {at.astimezone():%Y-%m-%d %H:%M:%S}"
    facts = {
        "planned": f"{plain(planned.get('target_uid'))}{start}: {plain(planned.get('reason'))}"
    }
    facts["because"] = plain(planned.get("sentence"))
    return facts


def _coverage(value: object) -> str:
    """Say how often the intervals of earlier forecasts held: what to expect of this one."""
    shares = [f"{share} {of}s" for of in ("start", "end") if (share := held_lately(value, of))]
    if not shares:
        return "meant to hold 80 %; not checked yet: no benchmark with a forecast has ended"
    return f"held lately: {', '.join(shares)} (meant: 80 %)"


def held_lately(coverage: object, of: str) -> str:
    """Return which share of starts or ends the intervals held lately; "" where none was checked."""
    counts = coverage if isinstance(coverage, Mapping) else {}
    held, count = counts.get(f"{of}s_held"), counts.get(f"{of}ed")
    if not isinstance(held, int) or not isinstance(count, int) or not count:
        return ""
    return f"{held / count:.0%} of {count}"


def _interval(forecast: Mapping[str, object], name: str) -> str:
    """Return median and interval: 14:32:10 (14:29:05 to 14:41:33)."""
    middle, low, high = (when(forecast.get(f"{name}{end}")) for end in ("", "_low", "_high"))
    if middle is None or low is None or high is None:
        return ""
    form = "%H:%M:%S" if low.astimezone().date() == high.astimezone().date() else "%m-%d %H:%M"
    span = " to ".join(f"{each.astimezone():{form}}" for each in (low, high))
    return f"{middle.astimezone():%Y-%m-%d %H:%M:%S} ({span})"


_FILE_COLUMNS = (
    Column(title="ROLE", of=field("role")),
    Column(title="NAME", of=field("name")),
    Column(title="SIZE", of=lambda row: size(row.get("size_bytes")), right=True, whole=True),
    Column(title="SHA-256", of=lambda row: plain(row.get("sha256"))[:12]),
)
_ATTEMPT_COLUMNS = (
    Column(title="#", of=field("number"), right=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="BOARD", of=field("target_uid")),
    Column(title="STARTED", of=lambda row: local_time(row.get("started_at"))),
    Column(title="FAILURE", of=field("failure.sentence"), always=False),
)


def explanation_picture(explanation: Explanation, every: bool) -> Iterator[RenderableType]:
    """Render the decision, its reason, the parts of the priority and the verdict on each board."""
    yield Text(explanation.benchmark_id, style="bold")
    if explanation.chosen_uid and explanation.waiting:
        yield Text(printable(_not_started(explanation)), "yellow")
        yield Text(printable(f"waits: {explanation.waiting}"), "yellow")
    elif explanation.chosen_uid:
        yield Text(printable(_placed(explanation)), "green")
    elif explanation.never:
        why = explanation.waiting or "no board of the lab fits"
        yield Text(f"cannot be placed: {why}", "red")
    else:
        yield Text(f"waits: {explanation.waiting or 'not decided yet'}", "yellow")
    decided = f"decided {local_time(explanation.decided_at)} by policy {explanation.policy}"
    place = "" if explanation.rank is None else f"; position {explanation.rank + 1} in the queue"
    if place and explanation.never_ahead:
        never = f"{explanation.never_ahead} more that cannot run on any board of the lab"
        place += f" (not counting {never})"
    yield Text(printable(f"{decided}{place}: {explanation.rank_reason}"))
    yield _priority(explanation.priority, explanation.priority_parts)
    raw = as_json(explanation)
    facts = {**forecast_facts(raw.get("forecast")), **planned_facts(raw.get("planned"))}
    facts.pop("queue position", None)  # stated above
    if facts:
        yield facts_table(facts)
    yield Text()
    units = {each.scorer: each.unit for each in explanation.scorers}
    if explanation.placement is not None and explanation.placement.binding_reason:
        yield Text(printable(explanation.placement.binding_reason))
    if explanation.choice:
        yield Text(printable(explanation.choice))
        if explanation.agreement is not None:
            yield Text(f"agreement: {explanation.agreement:.0%} of the scorers rate no board above")
        yield Text()
    yield from _verdicts(explanation.verdicts, explanation.chosen_uid, units, every)
    yield from _scorers(as_json(explanation).get("scorers"))
    if "changes" in as_json(explanation):
        yield from _changes(as_json(explanation)["changes"])


def _not_started(explanation: Explanation) -> str:
    """Say what the cluster was asked for, where it does not start the job."""
    chosen, binding = explanation.chosen_uid, explanation.binding
    whose = chosen if binding == "strict" else f"a board, first choice {chosen}"
    return f"handed to the cluster for {whose} ({binding}), which has not started it"


def _placed(explanation: Explanation) -> str:
    """Say where it ran; the chosen board is not certain where the cluster chose among several."""
    chosen, binding = explanation.chosen_uid, explanation.binding
    if binding == "strict":
        return f"was placed on {chosen} ({binding})"
    if explanation.ran_on is None:
        return f"the cluster chooses the board ({binding}); first choice {chosen}"
    if explanation.ran_on == chosen:
        return f"ran on {chosen}, the first choice; the cluster decided ({binding})"
    return f"ran on {explanation.ran_on}: the cluster decided ({binding}), first choice {chosen}"


_SCORER_COLUMNS = (
    Column(title="SCORER", of=field("scorer"), whole=True),
    Column(title="GOOD FOR", of=field("objective")),
    Column(title="UNIT", of=field("unit"), whole=True),
    Column(title="WEIGHT", of=number_field("weight", ".3f"), right=True, whole=True),
    Column(title="REWARD", of=number_field("reward", ".3f"), right=True, whole=True),
    Column(title="MODEL", of=field("model"), always=False, whole=True),
    Column(title="ABSENT", of=field("absent"), always=False),
    Column(title="FALLBACK", of=field("fallback"), always=False),
    Column(title="LATE", of=field("late"), always=False, whole=True),
)


def _scorers(rows: object) -> Iterator[RenderableType]:
    if isinstance(rows, list) and rows:
        yield Text()
        yield table(rows, _SCORER_COLUMNS, console().width)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


_CHANGE_WORDS = {
    "user_priority": "with user_priority {}",
    "job_completion_threshold": "with job_completion_threshold {}, by preemption",
    "start_time": "without its start_time",
    "deadline": "with the deadline {}",
    "user_time": "with user_time {} s",
    "user_budget": "with user_budget {}",
    "target_uid": "on any board of its family",
    "constraints": "without the constraint {}",
    "storage": "with storage {}",
    "ram": "with ram {}",
    "target": "on family {}",
}
_SIZES = ("ram", "storage")
_FRESH_S = 10.0
"""Age from which the state of queue and boards is shown; the server refreshes every second."""


def _changes(answer: object) -> Iterator[RenderableType]:
    """Render the changes that would let it start sooner, one per line."""
    yield Text()
    if not isinstance(answer, dict):
        yield Text("the benchmark does not wait, so there is nothing to change")
        return
    age_s = answer.get("age_s")
    if isinstance(age_s, int | float) and age_s >= _FRESH_S:
        yield Text(f"as queue and boards were {_span(age_s)} ago:", "dim")
    if answer.get("reachable_deadline"):
        yield Text(
            f"the deadline {local_time(answer.get('deadline'))} cannot be met; the earliest one "
            f"with a probability of 90 % is {local_time(answer['reachable_deadline'])}",
            "yellow",
        )
    start = local_time(answer.get("start"))
    yield Text(f"expected start {start}" if start else "no start is predicted for this description")
    found = answer.get("changes")
    if not found and not answer.get("untried"):
        yield Text("no change of its description would let it start sooner")
    for each in found if isinstance(found, list) else []:
        kind, value = str(each.get("field")), each.get("value")
        shown = (
            size(value) if kind in _SIZES else local_time(value) if kind == "deadline" else value
        )
        words = _CHANGE_WORDS.get(kind, kind).format(shown)
        gain_s = each.get("gain_s")
        sooner = f", {_span(gain_s)} sooner" if isinstance(gain_s, int | float) and gain_s else ""
        yield Text(printable(f"  {words}: at {local_time(each.get('start'))}{sooner}"))
    untried = answer.get("untried")
    if untried:
        yield Text(printable(f"not tried, because the time was up: {plain(untried)}"), "dim")


def _verdicts(
    verdicts: Sequence[Verdict], chosen: str | None, units: Mapping[str, str], every: bool
) -> Iterator[RenderableType]:
    ranked = sorted(
        verdicts,
        key=lambda one: (one.target_uid != chosen, one.reason is not None, -(one.score or 0)),
    )
    listed = ranked if every else worth_listing(ranked)
    rows = [
        {
            "board": one.target_uid,
            "verdict": _verdict(one, chosen),
            "cost": _cost(one),
            "score": "" if one.score is None else f"{one.score:.3f}",
            "joules": _joules(one.energy_j, one.energy_low_j, one.energy_high_j),
            "why": _why(one, units, parts=every),
        }
        for one in listed
    ]
    yield table(rows, _VERDICT_COLUMNS, console().width)
    hidden = [one for one in ranked if one not in listed]
    if hidden:
        counts = Counter(one.reason or "fits" for one in hidden).most_common()
        counted = ", ".join(f"{count} {reason}" for reason, count in counts)
        yield Text(f"and {len(hidden)} more: {counted} (--all lists them)", style="dim")


def worth_listing(ranked: Sequence[Verdict]) -> Sequence[Verdict]:
    """Return the boards of the requested family, or all if there are none; at most MAX_BOARDS."""
    related = [one for one in ranked if one.reason != OTHER_FAMILY]
    return (related or ranked)[:MAX_BOARDS]


_VERDICT_COLUMNS = (
    Column(title="BOARD", of=field("board"), whole=True),
    Column(title="VERDICT", of=field("verdict"), whole=True),
    Column(title="COST", of=field("cost"), right=True, whole=True, always=False),
    Column(title="SCORE", of=field("score"), right=True, whole=True, always=False),
    Column(title="J (95 %)", of=field("joules"), right=True, whole=True, always=False, yields=1),
    Column(title="WHY", of=field("why")),
)


def _verdict(verdict: Verdict, chosen: str | None) -> str:
    if verdict.target_uid == chosen:
        return "chosen"
    if verdict.reason is None:
        return "fits"
    return "never" if verdict.never else "not now"


def _joules(value: object, low: object, high: object) -> str:
    """Return a predicted energy with the 95 % interval of the next run; "" if it is not known."""
    if not isinstance(value, int | float):
        return ""
    ends = three_digits(low), three_digits(high)
    return f"{three_digits(value)} ({' to '.join(ends)})" if all(ends) else three_digits(value)


def _short(seconds: float) -> str:
    return _span(seconds) if seconds >= 100.0 else f"{seconds:.3g} s"


def _cost(verdict: Verdict) -> str:
    if verdict.cost_s is None:
        return ""
    error = "" if not verdict.cost_error_s else f" ± {_short(verdict.cost_error_s)}"
    return f"{_short(verdict.cost_s)}{error}"


def _why(verdict: Verdict, units: Mapping[str, str], *, parts: bool) -> str:
    """Return the filter's reason, or each scorer's answer, with the cost's parts if asked."""
    if verdict.reason:
        return f"{verdict.reason}: {verdict.sentence}"
    answers = [
        f"{name} {_in_unit(score, units.get(name, ''))}" for name, score in verdict.scores.items()
    ]
    costs = [
        f"{name} {_short(seconds)}"
        for name, seconds in verdict.cost_parts_s.items()
        if seconds is not None and parts
    ]
    sum_ = f"cost = {' + '.join(costs)}" if costs else ""
    return "; ".join(filter(None, [verdict.sentence, ", ".join(answers), sum_]))


def _in_unit(score: float | None, unit: str) -> str:
    """Return a scorer's number with its unit."""
    if score is None:
        return "abstains"
    if unit == "seconds":
        return _short(score)
    if unit == "failure":
        return f"{score:.1%}"
    return f"{score:.3f}" if unit in ("", "preference") else f"{score:.3g} {unit}"


def preview_picture(answer: Mapping[str, object]) -> Iterator[RenderableType]:
    """Render what would happen to a submission: outcome, priority, boards."""
    would = {
        "run": ("would run now", "green"),
        "wait": ("would wait", "yellow"),
        "never": ("cannot run: no board of the lab fits", "red"),
    }
    sentence, style = would.get(plain(answer.get("would")), (plain(answer.get("would")), ""))
    description = answer.get("description")
    if isinstance(description, Mapping):
        parts = [plain(description.get(name)) for name in ("model", "runtime", "benchmark_type")]
        where = plain(description.get("target_uid") or description.get("target"))
        parts.append(parameters_text(description.get("parameters")))
        yield Text(printable(f"{' · '.join(filter(None, parts))} on {where}"), style="bold")
    waiting = answer.get("waiting_reason")
    why = (
        f" ({waiting.get('code')}: {waiting.get('sentence')})"
        if isinstance(waiting, Mapping)
        else ""
    )
    yield Text(sentence + printable(why), style=style)
    points = answer.get("priority_parts")
    yield _priority(answer.get("priority"), points if isinstance(points, Mapping) else {})
    facts = {**forecast_facts(answer.get("forecast")), **planned_facts(answer.get("planned"))}
    if facts:
        yield facts_table(facts)
    boards = answer.get("boards")
    if isinstance(boards, list):
        related = [row for row in boards if row.get("reason") != OTHER_FAMILY] or boards
        yield Text()
        yield table(related[:MAX_BOARDS], _BOARD_COLUMNS, console().width)
        if len(boards) > len(related[:MAX_BOARDS]):
            more = len(boards) - len(related[:MAX_BOARDS])
            yield Text(
                f"and {more} more, of other families or like these (-o csv lists them)", "dim"
            )


_BOARD_COLUMNS = (
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(
        title="FITS",
        of=lambda row: "yes" if row.get("fits") else "never" if row.get("never") else "not now",
        whole=True,
    ),
    Column(
        title="WHY NOT",
        of=lambda row: f"{row.get('reason')}: {row.get('sentence')}" if row.get("reason") else "",
    ),
    Column(title="COST, S", of=number_field("cost_s", ".0f"), right=True, from_width=100),
    Column(
        title="J (95 %)",
        of=lambda row: _joules(
            row.get("energy_j"), row.get("energy_low_j"), row.get("energy_high_j")
        ),
        right=True,
        whole=True,
        from_width=100,
        always=False,
    ),
    Column(title="CREDITS ≤", of=number_field("max_credits", "g"), right=True, from_width=100),
)


def board_picture(board: Mapping[str, object]) -> Iterator[RenderableType]:
    """Render all that is known about a board."""
    yield Text(plain(board.get("target_uid")), style="bold")
    state = plain(board.get("state"))
    why = plain(board.get("reason"))
    yield Text(printable(state + (f": {why}" if why else "")), style=STATE_STYLE.get(state, ""))
    facts = {
        "family": plain(board.get("family")),
        "cluster": plain(board.get("cluster")),
        "host": plain(board.get("host")),
        "host's clock": clock_difference(board.get("host_clock_offset_s")),
        "memory": size(board.get("ram_bytes")),
        "storage": size(board.get("storage_bytes")),
        "emulated": "yes, as a part of a larger machine" if board.get("emulated") else "",
        **_machine(board.get("attributes")),
        "runs": plain(board.get("benchmark_id")),
        "progress": plain(board.get("progress")),
        "time": _time_spent(board.get("times")),
    }
    yield facts_table({name: value for name, value in facts.items() if value})
    engines = board.get("engines")
    if isinstance(engines, list) and engines:
        yield Text()
        yield table(engines, _ENGINE_COLUMNS, console().width)


def _time_spent(times: object) -> str:
    """Return what a board's time was spent on, since when; "" where nothing is counted yet."""
    if not isinstance(times, Mapping):
        return ""
    seconds = {use: times.get(f"{use}_s") for use in ("busy", "idle", "down")}
    known = {use: value for use, value in seconds.items() if isinstance(value, int | float)}
    all_s = sum(known.values())
    if not all_s:
        return ""
    shares = ", ".join(f"{use} {100 * value / all_s:.0f} %" for use, value in known.items())
    return f"{shares} of {_span(all_s)}, since {local_time(times.get('since'))}"


_MACHINE = {
    "processor": "cpu.model",
    "architecture": "cpu.arch",
    "cores": "cpu.cores",
    "operating system": "os.name",
    "kernel": "os.kernel",
    "accelerators": "accelerators",
}


def _machine(attributes: object) -> dict[str, str]:
    """Return what the board is, and the attributes that its host adds, by name."""
    found = attributes if isinstance(attributes, Mapping) else {}
    own = {
        name: plain(value)
        for name, value in found.items()
        if not meaning(name) and isinstance(name, str)
    }
    return {title: plain(found.get(name)) for title, name in _MACHINE.items()} | own


def clock_difference(offset_s: object) -> str:
    """Compare a host's clock with the server's; "" where it was not measured."""
    if isinstance(offset_s, bool) or not isinstance(offset_s, int | float):
        return ""
    if abs(offset_s) <= MAX_CLOCK_DIFFERENCE_S:
        return "agrees with the server's"
    return f"{abs(offset_s):.0f} s {'ahead of' if offset_s > 0 else 'behind'} the server's"


_ENGINE_COLUMNS = (
    Column(title="ENGINE", of=field("name"), whole=True),
    Column(title="VERSION", of=field("version")),
    Column(title="TYPES", of=field("supported_types")),
    Column(title="PROVIDERS", of=field("execution_providers"), always=False),
)


def _priority(priority: object, parts: Mapping[str, object]) -> Text:
    terms = " + ".join(f"{name} {plain(points)}" for name, points in parts.items())
    return Text(f"priority {plain(priority)}" + (f" = {terms}" if terms else ""))


def facts_table(facts: Mapping[str, str]) -> Table:
    """Render names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(Text(printable(name)), Text(printable(value)))
    return grid
