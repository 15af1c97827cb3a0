"""Scorers that are services: the batch's columns go out, one number per pair comes back.

A policy names one by its URL::

    [[scorers]]
    name = "lab_model"
    url = "https://models.example.org/score"
    weight = 1.0
    budget_s = 0.5
    options = { objective = "latency", kind = "model", unit = "seconds" }

The request is a POST of a NumPy archive (``application/x-npz``, no pickles): the columns below,
``class_*`` a class, ``board_*`` a board, ``pair_*`` a pair of them. The answer is an array of
floats in one ``.npy`` file: a score in 0 to 1 for each pair, NaN where it abstains.

``class_extra`` is text, for columns of texts are as wide as their longest: the bytes (uint8) of a
JSON list with the ``extra`` of each class. An ``extra`` of more than 4 KiB is ``{}`` there, as are
those that come after 1 MiB of others: the decision waits until the request is written.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeyard.benchmark_api.fetch import AddressRules, Resolver, in_time, opened, resolved
from edgeyard.errors import RunFailed
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.scheduler.prediction.estimates import failure_rates, run_times

Options = Mapping[str, str | int | float | bool]

MAX_BUDGET_S = 60.0
"""Time limit of a service without a budget; the cycle waits for it."""

_HEADER_BYTES = 1024
MAX_EXTRA_BYTES = 4096
MAX_EXTRAS_BYTES = 2**20
_UNKNOWN = HostLoad(cpu=float("nan"), memory=float("nan"))


class RemoteScorer:
    """One service. Safe to ask from several threads, one after another."""

    def __init__(
        self,
        name: str,
        url: str,
        options: Options,
        rules: AddressRules,
        resolve: Resolver = resolved,
        min_budget_s: float = 0.0,
    ) -> None:
        """Nothing is sent before it is asked.

        Args:
            min_budget_s: Time that a call has also where its policy allows less.

        Raises:
            InvalidInput: The URL is not one that may be asked.
            ValueError: An option is unknown, or there is no such kind or unit.
        """
        unknown = options.keys() - {"objective", "kind", "unit"}
        if unknown:
            raise ValueError(f"options {', '.join(sorted(unknown))}; known: objective, kind, unit")
        self.name = name
        self.objective = str(options.get("objective", "remote"))
        self.kind = ScorerKind(str(options.get("kind", "model")))
        self.unit = ScoreUnit(str(options.get("unit", "preference")))
        self._target = rules.check(url)
        self._rules, self._resolve = rules, resolve
        self._min_budget_s = min_budget_s
        # A thread of its own, since neither a name's look-up nor a slow body has a time-out that
        # covers the whole.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"edgeyard-scorer-{name}")
        self._answer: Future[NDArray[np.float32]] | None = None

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """Implement `Scorer.score`.

        Raises:
            TimeoutError: No answer within the budget.
            RunFailed: The service can't be reached, or answers an error.
            ValueError: Its answer is no array of numbers.
        """
        if self._answer is not None and not self._answer.done():
            raise TimeoutError("still busy with the last request")
        budget_s = min(max(pairs.budget_s, self._min_budget_s), MAX_BUDGET_S)
        body = packed(batch, pairs)
        until_s = time.monotonic() + budget_s
        self._answer = self._thread.submit(self._ask, body, len(pairs), budget_s, until_s)
        try:
            return self._answer.result(budget_s)
        except RunFailed as error:
            if error.category != FailureCategory.TIMEOUT.value:
                raise
            raise TimeoutError(f"no answer within {budget_s:g} s") from error
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {budget_s:g} s") from error

    def _ask(self, body: bytes, count: int, budget_s: float, until_s: float) -> NDArray[np.float32]:
        address = self._rules.addresses(self._target, in_time(self._resolve, until_s))[0]
        data = bytearray()
        with opened(
            self._target,
            address,
            method="POST",
            headers={"Content-Type": "application/x-npz", "Accept": "application/x-npy"},
            content=body,
            timeout_s=budget_s,
            ends_at=until_s,
        ) as response:
            if response.status_code != 200:
                raise ValueError(f"it answered {response.status_code}")
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > 8 * count + _HEADER_BYTES:
                    raise ValueError(f"an answer of more than {len(data)} bytes")
                if time.monotonic() > until_s:
                    raise TimeoutError
        scores = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(scores, np.ndarray) or scores.dtype.kind != "f":
            raise ValueError("an answer that is not an array of floats")
        return scores.astype(np.float32, copy=False)


class RemoteScorers:
    """Makes them, one for each (name, URL, options)."""

    def __init__(self, rules: AddressRules, min_budget_s: float = 0.0) -> None:
        self._rules, self._min_budget_s = rules, min_budget_s
        self._made: dict[tuple[object, ...], RemoteScorer] = {}

    def scorer(self, name: str, url: str, options: Options) -> RemoteScorer:
        """Return the scorer of this name, address and options, made once."""
        key = (name, url, *sorted(options.items()))
        if key not in self._made:
            self._made[key] = RemoteScorer(
                name, url, options, self._rules, min_budget_s=self._min_budget_s
            )
        return self._made[key]


def packed(batch: Batch, pairs: Pairs) -> bytes:
    """Return the request's body. Nothing in it tells who submitted what, unless ``extra`` does."""
    snapshot, knowledge = batch.snapshot, batch.knowledge
    loads = [knowledge.host_loads.get(host, _UNKNOWN) for host in snapshot.hosts]
    columns: dict[str, NDArray[Any]] = {
        "now_s": np.array(batch.now.timestamp()),
        "seed": np.array(batch.seed),
        "class_family": np.array(batch.families, dtype=np.str_),
        "class_engine": np.array(batch.engines, dtype=np.str_),
        "class_type": np.array([each.value for each in batch.types], dtype=np.str_),
        "class_ram_bytes": batch.ram_bytes,
        "class_storage_bytes": batch.storage_bytes,
        "class_user_time_s": batch.user_times_s,
        "class_budget": batch.budgets,
        "class_extra": np.frombuffer(_extras(batch), dtype=np.uint8),
        "class_model_sha256": np.array(
            [each.model_sha256 or "" for each in batch.kinds], dtype=np.str_
        ),
        "class_nb_inference": np.array([each.nb_inference for each in batch.kinds], np.int64),
        "class_benchmarks": np.bincount(batch.class_of_job, minlength=batch.shape[0]),
        "board_uid": np.array(snapshot.uids, dtype=np.str_),
        "board_family": batch.board_families,
        "board_host": np.array(snapshot.hosts, dtype=np.str_),
        "board_ram_bytes": snapshot.ram_bytes,
        "board_storage_bytes": snapshot.storage_bytes,
        "board_busy": snapshot.busy,
        "board_host_cpu": np.array([each.cpu for each in loads], dtype=np.float64),
        "board_host_memory": np.array([each.memory for each in loads], dtype=np.float64),
        "pair_class": pairs.rows.astype(np.int32),
        "pair_board": pairs.boards.astype(np.int32),
        "pair_run_s": run_times(batch, pairs.rows, pairs.boards).astype(np.float32),
        "pair_failure_rate": failure_rates(batch, pairs.rows, pairs.boards).astype(np.float32),
    }
    file = io.BytesIO()
    np.savez(file, **columns)  # type: ignore[arg-type]  # its stub takes allow_pickle for a column
    return file.getvalue()


def _extras(batch: Batch) -> bytes:
    """Return the JSON list of all ``extra``, with ``{}`` for what is over the limits."""
    texts, left = [], MAX_EXTRAS_BYTES
    for extra in batch.extras:
        text = msgspec.json.encode(extra) if extra and left > 0 else b"{}"
        if len(text) > MAX_EXTRA_BYTES or (extra and len(text) > left):
            text = b"{}"
        elif extra:
            left -= len(text)
        texts.append(text)
    return b"[" + b",".join(texts) + b"]"
