"""``bench-learn``: the shipped learned policies, judged again."""

from __future__ import annotations

from benchmarks import a2c_actors, cluster_scores, learned_queues, random_queues, ste_models
from benchmarks.completion import rows as completion
from benchmarks.tables import Row


def run() -> list[Row]:
    """All rows."""
    return [
        *a2c_actors.rows(),
        *cluster_scores.rows(),
        *learned_queues.rows(),
        *random_queues.rows(),
        *ste_models.rows(),
        *completion.rows(),
    ]
