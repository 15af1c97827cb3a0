"""What a look-ahead gains that learns more: ``python -m benchmarks.lookahead_search``.

There are several sets of settings to choose from, each with more that is learned: see `spaces`. For
each log the setting is chosen that is best on the windows of the five others, which overlap no
judged sequence. Its ratio on the windows of the log that was left out, and on the log's ten judged
sequences, tells what the set is worth. Writes ``benchmarks/data/lookahead_search.json``.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.lookahead import LOGS, windows
from edgeyard.plugins.queue_policies.lookahead import PLAIN_RULES
from edgeyard.scheduler.kernel.rollouts import RULES
from edgeyard.training.judgement import Judgement, judge
from edgeyard.training.windows import (
    Window,
    best_rule,
    lookahead_ends,
    slowdowns,
)

Floats = NDArray[np.float64]

TABLE = Path(__file__).parent / "data" / "lookahead_search.json"

PLAIN = tuple(map(RULES.index, PLAIN_RULES))


@dataclass(frozen=True, slots=True)
class Setting:
    """What the look-ahead does.

    Attributes:
        rules: Which rules of `RULES` it tries, by their numbers, ascending.
        request_weight: How much a request counts next to the samples of earlier runs; inf: alone.
        horizon_s: Time constant of delays; inf: none.
        later_jobs: How many further jobs are assumed to wait for the end of the queue.
    """

    rules: tuple[int, ...] = PLAIN
    request_weight: float = math.inf
    horizon_s: float = math.inf
    later_jobs: float = 0.0


REQUEST_WEIGHTS = (1.0, 3.0, 10.0, math.inf)
HORIZONS_S = (3600.0, 14400.0, 43200.0, 86400.0, math.inf)
LATER_JOBS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
_RESAMPLES = 10_000
DRAWN = 200
"""How many settings are drawn where there are too many to try all."""


def _plain() -> Iterable[Setting]:
    """Return all settings that try the plain look-ahead's rules, or all rules."""
    every = tuple(range(len(RULES)))
    for rules, weight, horizon_s in product((PLAIN, every), REQUEST_WEIGHTS, HORIZONS_S):
        yield Setting(rules, weight, horizon_s)


def _drawn(count: int, seed: int, later_jobs: Sequence[float]) -> Iterable[Setting]:
    """Draw settings, each with any rules but none."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        chosen = rng.integers(1, 2 ** len(RULES))
        yield Setting(
            tuple(rule for rule in range(len(RULES)) if chosen >> rule & 1),
            float(rng.choice(REQUEST_WEIGHTS)),
            float(rng.choice(HORIZONS_S)),
            float(rng.choice(later_jobs)),
        )


def spaces() -> dict[str, list[Setting]]:
    """Return the settings to choose from, by what is learned; each has those before it too."""
    times = [*_plain()]
    rules = [*times, *_drawn(DRAWN, 1, (0.0,))]
    later = [*rules, *_drawn(DRAWN, 2, LATER_JOBS[1:])]
    return {
        "nothing": [Setting()],
        "run times": [each for each in times if math.isinf(each.horizon_s)],
        "run times, horizon": times,
        "run times, horizon, rules": [*dict.fromkeys(rules)],
        "run times, horizon, rules, later jobs": [*dict.fromkeys(later)],
    }


@cache
def all_windows(name: str) -> tuple[list[Window], list[Window]]:
    """Return all windows of a log that overlap no judged sequence, and its judged sequences."""
    return windows(name, sys.maxsize)


@cache
def best_rules_mean(name: str) -> float:
    """Return the mean bounded slowdown of the rule that is best on a log's windows."""
    return float(best_rule(all_windows(name)[0]).mean(axis=0).min())


def ratio(name: str, setting: Setting) -> float:
    """Return the mean bounded slowdown on a log's windows over that of the best rule."""
    means = [slowdowns(each, ends(each, setting)).mean() for each in all_windows(name)[0]]
    return float(np.mean(means) / best_rules_mean(name))


def ends(window: Window, setting: Setting) -> Floats:
    """Return when the jobs of a window end."""
    return lookahead_ends(
        window,
        np.array(setting.rules, dtype=np.int64),
        setting.request_weight,
        setting.horizon_s,
        setting.later_jobs,
    )


class Replays:
    """Replays each setting once on all logs, in several processes."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        tasks = [(name, each) for each in settings for name in LOGS]
        self._ratios: dict[tuple[str, Setting], float] = {}
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as processes:
            found = processes.map(ratio, *zip(*tasks, strict=True), chunksize=len(LOGS))
            for number, (task, each) in enumerate(zip(tasks, found, strict=True), start=1):
                self._ratios[task] = each
                print(f"\r{number} of {len(tasks)} replays", end="", file=sys.stderr)
        print(file=sys.stderr)

    def ratio(self, name: str, setting: Setting) -> float:
        """Return what `ratio` returned."""
        return self._ratios[name, setting]

    def cost(self, setting: Setting, logs: Collection[str]) -> float:
        """Return the geometric mean of a setting's ratios."""
        return geometric_mean(self.ratio(each, setting) for each in logs)

    def best(self, settings: Iterable[Setting], logs: Collection[str]) -> Setting:
        """Return the setting with the lowest cost on some logs, the first of equals."""
        return min(settings, key=lambda each: self.cost(each, logs))


def judged(settings: Mapping[str, Setting]) -> dict[str, Judgement]:
    """Judge the setting of each log on the log's ten sequences."""
    return {
        name: judge(all_windows(name)[1], lambda window: ends(window, setting))  # noqa: B023
        for name, setting in settings.items()
    }


def geometric_mean(ratios: Iterable[float]) -> float:
    return float(np.exp(np.mean([math.log(each) for each in ratios])))


def _record(setting: Setting) -> dict[str, Any]:
    """Describe a setting in JSON, which has no infinity: null stands for it."""
    return {
        "rules": [RULES[each] for each in setting.rules],
        "request_weight": _finite(setting.request_weight),
        "horizon_s": _finite(setting.horizon_s),
        "later_jobs": setting.later_jobs,
    }


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def to_plain(ratios: Iterable[float], plain: Iterable[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios over the plain ones, and its 95 % interval.

    The interval is a bootstrap of the logs.
    """
    logs = np.log([*ratios]) - np.log([*plain])
    draws = np.random.default_rng(0).integers(0, len(logs), (_RESAMPLES, len(logs)))
    low, high = np.quantile(np.exp(logs[draws].mean(axis=1)), (0.025, 0.975))
    return float(np.exp(logs.mean())), float(low), float(high)


def markdown(table: Mapping[str, Any]) -> str:
    """Return the rows of the documented table."""
    lines = []
    for name, each in table["spaces"].items():
        windows_of, sequences = (
            "{:.2f} ({:.2f}-{:.2f})".format(*each[to]) for to in ("to_plain", "judged_to_plain")
        )
        lines.append(
            f"| {name} | {each['settings']} | {each['geometric_mean']:.3f} | {windows_of} "
            f"| {each['judged_geometric_mean']:.3f} | {sequences} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Choose, judge, print and write."""
    tried = spaces()
    replays = Replays([*dict.fromkeys(each for space in tried.values() for each in space)])
    found: dict[str, dict[str, Any]] = {}
    for name, space in tried.items():
        chosen = {log: replays.best(space, [each for each in LOGS if each != log]) for log in LOGS}
        sequences = judged(chosen)
        found[name] = {
            "settings": len(space),
            "left_out": {
                log: {
                    **_record(setting),
                    "ratio": replays.ratio(log, setting),
                    "judged_ratio": sequences[log].ratio,
                }
                for log, setting in chosen.items()
            },
        }
    table = {"spaces": {name: compared(each, found["nothing"]) for name, each in found.items()}}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")
    print(markdown(table))


def compared(space: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a set's figures with their means, and these next to those of the plain look-ahead."""
    ratios, judged_ratios = _ratios(space, "ratio"), _ratios(space, "judged_ratio")
    return {
        **space,
        "geometric_mean": geometric_mean(ratios),
        "to_plain": to_plain(ratios, _ratios(plain, "ratio")),
        "judged_geometric_mean": geometric_mean(judged_ratios),
        "judged_to_plain": to_plain(judged_ratios, _ratios(plain, "judged_ratio")),
    }


def _ratios(space: Mapping[str, Any], name: str) -> list[float]:
    return [each[name] for each in space["left_out"].values()]


if __name__ == "__main__":
    main()
