"""Evolution of weights by CMA-ES, one generation after the other, from a checkpoint too.

Hansen, "The CMA evolution strategy: a tutorial", 2016.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.training.progress import Progress

Floats = NDArray[np.float64]


def evolve(
    progress: Progress,
    judge: Callable[[Sequence[Floats]], Sequence[float]],
    *,
    seed: int,
    candidates: int,
    sigma: float,
) -> Iterator[float]:
    """Yield the mean loss of each generation; the weights of the progress become its mean.

    Args:
        progress: Its generation is counted by the caller. Draws depend on it and the seed alone, so
            that its state is no more than the first weights and all losses: what led to it is
            computed again, without judging, which takes milliseconds a generation.
        judge: Returns the losses of candidates in the generation that the progress states.
        seed: Of all draws.
        candidates: In each generation.
        sigma: Standard deviation of the first generation.

    Raises:
        InvalidInput: The state of the progress is none that this function left.
    """
    first, losses = _checked_state(progress, candidates)
    strategy = Strategy(first, seed=seed, candidates=candidates, sigma=sigma)
    for generation in itertools.count():
        found = strategy.ask()
        if generation < len(losses):  # judged before the checkpoint
            strategy.tell(losses[generation])
            continue
        losses.append(judge(found))
        strategy.tell(losses[-1])
        progress.weights = strategy.mean
        progress.state["losses"] = np.array(losses, dtype=np.float64)
        yield float(np.mean(losses[-1]))


class Strategy:
    """CMA-ES whose draws depend on the seed and the generation alone."""

    def __init__(self, first: Floats, *, seed: int, candidates: int, sigma: float) -> None:
        """Begin at some weights.

        Args:
            first: Shape (weights,).
            seed: Of all draws.
            candidates: In each generation.
            sigma: Standard deviation of the first generation.
        """
        import cma

        # NumPy's generator: the library's own draws would come from a copy that no seed reaches.
        options = {
            "popsize": candidates,
            "verbose": -9,
            "maxiter": 10**9,
            "seed": 1,
            "randn": lambda *shape: np.random.randn(*shape),
        }
        self._strategy = cma.CMAEvolutionStrategy(first, sigma, options)
        self._seed, self._generation, self._first = seed, 0, first
        self._drawn: list[Floats] = []

    @property
    def mean(self) -> Floats:
        """The centre of the next generation; the first weights before any was judged."""
        if not self._generation:
            return self._first
        return np.array(self._strategy.result.xfavorite, dtype=np.float64)

    def ask(self) -> Sequence[Floats]:
        """Return the candidates of this generation."""
        np.random.seed((self._seed * 1_000_003 + self._generation) % 2**32)
        self._drawn = self._strategy.ask()
        return self._drawn

    def tell(self, losses: Sequence[float]) -> None:
        """Take the losses of the candidates that `ask` returned last."""
        self._strategy.tell(self._drawn, list(losses))
        self._generation += 1


def _checked_state(progress: Progress, candidates: int) -> tuple[Floats, list[Sequence[float]]]:
    """Return the first weights and the losses of all generations so far.

    Raises:
        InvalidInput: A checkpoint has others.
    """
    first = progress.state.setdefault("first", progress.weights)
    losses = progress.state.get("losses", np.empty((0, candidates)))
    fits = first.shape == progress.weights.shape and losses.shape == (
        progress.generation,
        candidates,
    )
    numbers = {first.dtype, losses.dtype} == {np.dtype(np.float64)}
    if not fits or not numbers or not np.isfinite([*first, *losses.ravel()]).all():
        raise InvalidInput.at("--out", "the state of the checkpoint is damaged", "another folder")
    return first, list(losses)
