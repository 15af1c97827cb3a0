"""Loaded once by the process that all lives are forked from, so that no life has to do it again.

Loading this module takes a second of processor time: tests name it, and do not import it.
"""

import gc
import importlib

from edgeyard.devices.machine import engine_attributes
from edgeyard.scheduler.hcl.parse import warm_up

# What a server loads at its start or first use, and what a life loads to find its function; in a
# run without pytest-xdist, each life loads pytest as well.
for _name in (
    "alembic.command",
    "anyio._backends._asyncio",
    "edgeyard.benchmark_api.main",
    "pytest",
    "scipy.optimize",
    "scipy.special",
    "tests.acceptance.lives",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.websockets.auto",
):
    importlib.import_module(_name)

warm_up()
engine_attributes()  # kept; otherwise each life has a process load all engines

# A full collection in a life would walk, and so copy, all that is loaded here.
gc.collect()
gc.freeze()
