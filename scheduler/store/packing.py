"""Explanations as small blobs: verdicts in columns, names by number, compressed.

A cycle over 10,000 pending benchmarks keeps one each: JSON objects for every verdict would take
longer than the decision.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model import wire
from edgeyard.scheduler.model.benchmark import Binding, Waiting, WaitingReason
from edgeyard.scheduler.model.decision import Explanation, Placement, Verdict

_LEVEL = 1  # zlib's fastest; columns shrink well at any level
_FORMAT = 1
_ABSENT = ""  # the scorer was not asked; null says that it abstained


class Packer:
    """Packs the explanations of one transaction; verdicts that several share are packed once."""

    def __init__(self) -> None:
        self._packed: dict[int, tuple[Sequence[Verdict], bytes]] = {}

    def pack(self, explanation: Explanation) -> bytes:
        """The blob that `unpack` reads.

        Raises:
            InvalidInput: A text that can't be stored.
        """
        try:
            return zlib.compress(self._lines(explanation), _LEVEL)
        except UnicodeEncodeError:
            raise InvalidInput.at("", "an explanation holds a lone surrogate") from None

    def _lines(self, explanation: Explanation) -> bytes:
        known = self._packed.get(id(explanation.verdicts))
        if known is None:
            # keeping the verdicts keeps their id from being given to others
            known = (explanation.verdicts, _text(_columns(explanation.verdicts)))
            self._packed[id(explanation.verdicts)] = known
        placement, waiting = explanation.placement, explanation.waiting
        head = _text(
            [
                _FORMAT,
                explanation.benchmark_id,
                wire.time_to_json(explanation.decided_at),
                explanation.policy,
                explanation.rank,
                explanation.rank_reason,
                explanation.priority,
                {name: _number(points) for name, points in explanation.priority_parts.items()},
                None if placement is None else wire.placement_to_json(placement),
                None if waiting is None else [waiting.reason.value, waiting.sentence],
                explanation.never,
            ]
        )
        return b"%s\n%s" % (head, known[1])


def unpack(blob: bytes) -> Explanation:
    """The explanation that `Packer.pack` packed."""
    head, verdicts = zlib.decompress(blob).decode().split("\n", 1)
    (
        _,
        benchmark_id,
        decided_at,
        policy,
        rank,
        rank_reason,
        priority,
        parts,
        placed,
        waits,
        never,
    ) = json.loads(head)
    return Explanation(
        benchmark_id=benchmark_id,
        decided_at=wire.time_from_json(decided_at),
        policy=policy,
        rank=rank,
        rank_reason=rank_reason,
        priority=priority,
        priority_parts=parts,
        verdicts=_verdicts(json.loads(verdicts)),
        placement=None if placed is None else _placement(placed),
        waiting=(
            None if waits is None else Waiting(reason=WaitingReason(waits[0]), sentence=waits[1])
        ),
        never=never,
    )


_text = msgspec.json.encode


def _columns(verdicts: Sequence[Verdict]) -> list[object]:
    reasons = _Names(None if v.reason is None else v.reason.value for v in verdicts)
    sentences = _Names(v.sentence for v in verdicts)
    scorers = sorted({name for v in verdicts for name in v.scores})
    return [
        [v.target_uid for v in verdicts],
        [reasons.names, reasons.numbers],
        [sentences.names, sentences.numbers],
        [int(v.never) for v in verdicts],
        [_number(v.score) for v in verdicts],
        [
            [n, [_number(v.scores[n]) if n in v.scores else _ABSENT for v in verdicts]]
            for n in scorers
        ],
    ]


def _verdicts(columns: Any) -> tuple[Verdict, ...]:
    uids, (reasons, reason_of), (sentences, sentence_of), nevers, scores, by_scorer = columns
    return tuple(
        Verdict(
            target_uid=uid,
            reason=None if (code := reasons[reason_of[i]]) is None else WaitingReason(code),
            sentence=sentences[sentence_of[i]],
            never=bool(nevers[i]),
            score=scores[i],
            scores={name: column[i] for name, column in by_scorer if column[i] != _ABSENT},
        )
        for i, uid in enumerate(uids)
    )


class _Names:
    """Distinct values in order of appearance, and each one's number."""

    def __init__(self, values: Iterable[str | None]) -> None:
        number_of: dict[str | None, int] = {}
        self.numbers = [number_of.setdefault(value, len(number_of)) for value in values]
        self.names = list(number_of)


def _number(value: float | None) -> float | None:
    """A plain number (scores may be NumPy's); NaN says as much as None here."""
    if value is None:
        return None
    plain = float(value)
    return plain if math.isfinite(plain) else None


def _placement(data: Any) -> Placement:
    return Placement(
        **(
            data
            | {"binding": Binding(data["binding"]), "allowed_uids": tuple(data["allowed_uids"])}
        )
    )
