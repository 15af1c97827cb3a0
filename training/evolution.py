"""Evolution of weights by CMA-ES, one generation after the other, from a checkpoint too.

Hansen, "The CMA evolution strategy: a tutorial", 2016.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

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
        progress: Its generation is counted by the caller. Draws depend on it and the seed alone.
        judge: Returns the losses of candidates in the generation that the progress states.
        seed: Of all draws.
        candidates: In each generation.
        sigma: Standard deviation of the first generation.
    """
    import cma

    if "evolution" in progress.state:
        strategy = pickle.loads(progress.state["evolution"].tobytes())
    else:
        options = {
            "popsize": candidates,
            "verbose": -9,
            "maxiter": 10**9,
            "seed": 1,
            "randn": _normal,
        }
        strategy = cma.CMAEvolutionStrategy(progress.weights, sigma, options)
    while True:
        np.random.seed((seed * 1_000_003 + progress.generation) % 2**32)
        found = strategy.ask()
        losses = judge(found)
        strategy.tell(found, list(losses))
        progress.weights = np.array(strategy.result.xfavorite, dtype=np.float64)
        progress.state["evolution"] = np.frombuffer(strategy.pickle_dumps(), dtype=np.uint8)
        yield float(np.mean(losses))


def _normal(*shape: int) -> Floats:
    """Draw normal numbers from NumPy's generator; a checkpoint names this function.

    The library's own default would store a copy of the generator, which no seed reaches.
    """
    return np.random.randn(*shape)
