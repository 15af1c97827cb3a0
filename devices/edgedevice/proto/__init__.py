"""Messages of Nomad's plugin interface; ``*_pb2`` are made by `generate` and committed.

Their names and numbers are those of Nomad 1.11 (``plugins/base``, ``plugins/device``,
``plugins/shared``): they are what goes over the wire. Fields that we never look at are left out.
"""
