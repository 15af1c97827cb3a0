"""The trained scores of the paper's cluster, one for each arrival rate, and the look-ahead.

``python -m benchmarks.cluster_scores`` trains them from rewards alone, some three minutes each,
and writes ``benchmarks/data/cluster_scores.json``. ``rows`` judges them again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.tables import Row
from edgeyard.simulator.mixes import JobMix
from edgeyard.training.a2c.judgement import (
    Sequences,
    Totals,
    baseline,
    mean_slowdown,
    play,
    slowdown_ratio,
    unseen_sequences,
)
from edgeyard.training.cluster_lookahead import Floats, Lookahead
from edgeyard.training.score_trainer import ScoreTraining, chooser, document_of, train

SCORES = Path(__file__).parent / "data" / "cluster_scores.json"
RATES = (0.6, 0.7, 0.8, 0.9)
_SEQUENCES = 100
_GENERATIONS = 150
_SEED = 1
_FUTURES = 16


def shipped_score(rate: float) -> tuple[ScoreTraining, Floats]:
    """Return the settings and the weights of the score for an arrival rate."""
    known = json.loads(SCORES.read_text("utf-8"))["scores"][f"{rate:g}"]
    return msgspec.convert(known["settings"], ScoreTraining), np.array(known["weights"])


def unseen(settings: ScoreTraining) -> Sequences:
    """Return DeepRM's unseen sequences."""
    return unseen_sequences(settings.mix, _SEQUENCES, settings.arrival_steps)


def rows() -> list[Row]:
    """Return ``hold RATE`` for each rate, and ``lookahead futures 0.7``."""
    found = []
    for rate in RATES:
        settings, weights = shipped_score(rate)
        sequences, cluster = unseen(settings), settings.cluster()
        played = play(cluster, sequences, chooser(settings, weights))
        hold = play(cluster, sequences, baseline("hold", 0))
        assert (played.jobs == played.arrived).all()
        what = f"score against hold; {_SEQUENCES} unseen sequences, all jobs finished"
        found.append(_row(f"hold {rate:g}", played, hold, what))
    return [*found, _ahead(0.7)]


def _ahead(rate: float) -> Row:
    settings, weights = shipped_score(rate)
    sequences, cluster = unseen(settings), settings.cluster()
    ahead = Lookahead(settings, weights, futures=_FUTURES)
    played = play(cluster, sequences, ahead.choose)
    hold = play(cluster, sequences, baseline("hold", 0))
    what = f"{_FUTURES} drawn futures around the score, against hold"
    row = _row(f"lookahead futures {rate:g}", played, hold, what)
    took_ms = 1000 * ahead.seconds / ahead.decisions
    return replace(row, note=f"{row.note}; {took_ms:.1f} ms a decision")


def _row(name: str, played: Totals, hold: Totals, what: str) -> Row:
    value, peer = mean_slowdown(played), mean_slowdown(hold)
    ratio = slowdown_ratio(played, hold)
    note = f"{what}; ratio {ratio.low:.3f} to {ratio.high:.3f}"
    return Row(name, value, "", peer, value / peer, note)


def main() -> int:
    """Train and write."""
    scores = {}
    for rate in RATES:
        settings = ScoreTraining(seed=_SEED, generations=_GENERATIONS, mix=JobMix(rate=rate))
        progress = train(
            settings,
            advanced=lambda share, rate=rate: print(  # type: ignore[misc]
                f"\rrate {rate:g}: {share:.0%}", end="", file=sys.stderr
            ),
        )
        scores[f"{rate:g}"] = {**document_of(settings, progress), "settings": asdict(settings)}
        print(file=sys.stderr)
    document = {"date": datetime.now(UTC).date().isoformat(), "scores": scores}
    SCORES.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
