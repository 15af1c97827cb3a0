"""The world of boards: a lab, one benchmark a board, decided by the service's own ``decide()``.

Decisions only: there is no store, no cluster and no HCL. `jobs` draws what arrives, `boards` holds
the boards' state, `world` runs the events.
"""
