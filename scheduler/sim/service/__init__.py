"""The whole service in virtual time: the real engine and store, with a simulated cluster.

`simulation.py` drives it, `cluster.py` plays the cluster, `schedule.py` states what goes
wrong, `fault_run.py` lives it, and `invariants.py` checks after every step what must never happen.
"""
