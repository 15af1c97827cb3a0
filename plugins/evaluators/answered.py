"""The simplest evaluator: every scorer that answered gets the full reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Proposal


class AnswerEvaluator:
    """Reward 1 for each scorer that answered."""

    name = "answered"

    def evaluate(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Mapping[str, float]:
        return {proposal.scorer: 1.0 for proposal in proposals}
