"""The whole service in virtual time: the real engine and store, with a simulated cluster.

`simulation.py` drives it, and `cluster.py` plays the cluster; the tests let everything go wrong.
"""
