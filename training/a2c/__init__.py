"""The A2cScheduler paper's agent: an actor and a critic that learn in ``edgeyard/Cluster-v0``.

`settings` and `judgement` need NumPy and Gymnasium; `networks` and `trainer` need JAX and Optax
(extra ``training``), and are imported by commands alone, where they are used.
"""
