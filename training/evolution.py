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
    import cma

    first, losses = _checked_state(progress, candidates)
    # NumPy's generator: the library's own draws would come from a copy that no seed reaches.
    options = {
        "popsize": candidates,
        "verbose": -9,
        "maxiter": 10**9,
        "seed": 1,
        "randn": lambda *shape: np.random.randn(*shape),
    }
    strategy = cma.CMAEvolutionStrategy(first, sigma, options)
    for generation in itertools.count():
        np.random.seed((seed * 1_000_003 + generation) % 2**32)
        found = strategy.ask()
        if generation < len(losses):  # judged before the checkpoint
            strategy.tell(found, list(losses[generation]))
            continue
        losses.append(judge(found))
        strategy.tell(found, list(losses[-1]))
        progress.weights = np.array(strategy.result.xfavorite, dtype=np.float64)
        progress.state["losses"] = np.array(losses, dtype=np.float64)
        yield float(np.mean(losses[-1]))


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
