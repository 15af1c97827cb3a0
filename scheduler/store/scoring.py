"""Weights, rewards and faults of scorers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    and_,
    bindparam,
    delete,
    literal_column,
    select,
    type_coerce,
)

from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.forecast import Compared, ForecastResult
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState
from edgeyard.scheduler.ports import Scoring
from edgeyard.scheduler.store.rows import flat_row, outcome_of
from edgeyard.scheduler.store.tables import (
    forecast_results,
    outcomes,
    placement_ratings,
    reward_rounds,
    scorers,
)
from edgeyard.scheduler.store.transaction import Row, Transaction

_SETTLE = delete(placement_ratings).where(
    placement_ratings.c.benchmark_id == bindparam("id"),
    placement_ratings.c.attempt == bindparam("n"),
)
_ENDED = (
    select(
        placement_ratings.c.policy,
        placement_ratings.c.normalized_scores,
        placement_ratings.c.expected_s,
        placement_ratings.c.predicted_s,
        placement_ratings.c.failure_chances,
        outcomes,
    )
    .join(
        outcomes,
        and_(
            # An expression, so that no index leads from outcomes to ratings: SQLite walked all
            # outcomes in the order of their ends for the few that are rated.
            outcomes.c.benchmark_id == placement_ratings.c.benchmark_id + "",
            outcomes.c.attempt == placement_ratings.c.attempt,
        ),
    )
    # An expression as well, for the same reason.
    .order_by(
        type_coerce(outcomes.c.ended_at, BigInteger) + literal_column("0"), outcomes.c.benchmark_id
    )
    .limit(bindparam("limit"))
)
_STATES = select(scorers).where(scorers.c.policy == bindparam("of")).order_by(scorers.c.scorer)


class SqlScoring(Scoring):
    """`Scoring` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def states(self, policy: str) -> Mapping[str, ScorerState]:
        rows = self._tx.rows(_STATES, {"of": policy})
        found = (ScorerState(**cast("dict[str, Any]", dict(row))) for row in rows)
        return {state.scorer: state for state in found}

    def policies(self) -> Sequence[str]:
        query = select(scorers.c.policy).distinct().order_by(scorers.c.policy)
        return [cast(str, row["policy"]) for row in self._tx.rows(query)]

    def save(self, state: ScorerState) -> None:
        self._tx.replace(scorers, flat_row(state))

    def add_round(self, round_: RewardRound) -> None:
        self._tx.insert(
            reward_rounds,
            {
                "policy": round_.policy,
                "at": round_.at,
                "benchmark_id": round_.benchmark_id,
                "rewards": _json(round_.rewards),
                "weights": _json(round_.weights),
            },
        )

    def rounds(self, policy: str, *, limit: int) -> Sequence[RewardRound]:
        query = (
            select(reward_rounds)
            .where(reward_rounds.c.policy == policy)
            .order_by(reward_rounds.c.seq.desc())
            .limit(limit)
        )
        return [
            RewardRound(
                policy=cast(str, row["policy"]),
                at=cast(Any, row["at"]),
                benchmark_id=cast(str, row["benchmark_id"]),
                rewards=_numbers(row, "rewards"),
                weights=_numbers(row, "weights"),
            )
            for row in self._tx.rows(query)
        ]

    def add_forecast_results(self, results: Sequence[ForecastResult], *, keep: int) -> None:
        self._tx.insert_each(
            forecast_results,
            [
                {
                    "benchmark_id": each.benchmark_id,
                    "at": each.at,
                    "waited": each.waited,
                    **_compared_row("start", each.start),
                    **_compared_row("end", each.end),
                }
                for each in results
            ],
        )
        newest = select(forecast_results.c.seq).order_by(forecast_results.c.seq.desc()).limit(keep)
        self._tx.run(delete(forecast_results).where(forecast_results.c.seq.not_in(newest)))

    def forecast_results(self, *, limit: int) -> Sequence[ForecastResult]:
        query = select(forecast_results).order_by(forecast_results.c.seq.desc()).limit(limit)
        rows = [cast("dict[str, Any]", dict(row)) for row in self._tx.rows(query)]
        return [
            ForecastResult(
                benchmark_id=row["benchmark_id"],
                at=row["at"],
                waited=row["waited"],
                start=_compared(row, "start"),
                end=_compared(row, "end"),
            )
            for row in reversed(rows)
        ]

    def add_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        self._tx.insert_all(
            placement_ratings,
            [
                {
                    **flat_row(each),
                    "normalized_scores": _json(each.normalized_scores),
                    "predicted_s": _json(each.predicted_s),
                    "failure_chances": _json(each.failure_chances),
                }
                for each in ratings
            ],
        )

    def ended_ratings(self, *, limit: int) -> Sequence[tuple[PlacementRating, Outcome]]:
        rows = self._tx.rows(_ENDED, {"limit": limit})
        replaced = {row["replaces"] for row in rows}
        return [
            (
                PlacementRating(
                    benchmark_id=cast(str, row["benchmark_id"]),
                    attempt=cast(int, row["attempt"]),
                    policy=cast(str, row["policy"]),
                    normalized_scores=_numbers(row, "normalized_scores"),
                    expected_s=cast("float | None", row["expected_s"]),
                    predicted_s=_numbers(row, "predicted_s"),
                    failure_chances=_numbers(row, "failure_chances"),
                ),
                outcome_of(row),
            )
            for row in rows
            if row["seq"] not in replaced
        ]

    def remove_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        for each in ratings:
            self._tx.run(_SETTLE, {"id": each.benchmark_id, "n": each.attempt})


def _json(numbers: Mapping[str, float]) -> str:
    return json.dumps(dict(sorted(numbers.items())), allow_nan=False)


def _numbers(row: Row, name: str) -> dict[str, float]:
    return cast("dict[str, float]", json.loads(cast(str, row[name])))


def _compared_row(name: str, compared: Compared | None) -> dict[str, object]:
    return {
        f"{name}_score": None if compared is None else compared.score,
        f"{name}_held": None if compared is None else compared.held,
    }


def _compared(row: Mapping[str, Any], name: str) -> Compared | None:
    held = row[f"{name}_held"]
    return None if held is None else Compared(score=row[f"{name}_score"], held=held)
