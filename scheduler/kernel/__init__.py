"""Virtual time: the event queue, seeded random streams, and compilation.

Nothing here knows boards, jobs, stores or clusters: worlds are built on it.
"""
