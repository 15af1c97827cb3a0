"""Events of a simulation, on arrays, compiled where Numba is installed."""
