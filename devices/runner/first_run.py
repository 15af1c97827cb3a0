"""The first run of a model, which shows whether it takes as many rows as it states."""

from typing import Optional, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import Session, is_fixed
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.errors import RunFailed

_TRIED = (1, 2, 4, 8, 16, 32, 64)


def first_outputs(session: Session, feeds: Feeds) -> Sequence[NDArray[np.generic]]:
    """Run a model for the first time.

    Raises:
        RunFailed: ``user_input``: it runs another number of rows, but not that of these arrays,
            although its inputs state any number; and what `Session.run` raises.
    """
    try:
        return session.run(feeds)
    except RunFailed as error:
        rows = _open_rows(session, feeds)
        if error.category not in ("user_model", "user_input") or rows is None:
            raise
        size = next((each for each in _TRIED if each != rows and _runs(session, feeds, each)), None)
        if size is None:
            raise
        raise RunFailed(
            "user_input",
            f"the model's batch is fixed at {size}: it does not run {rows} rows, although its "
            f"inputs state any number; choose parameters/batch_size {size}. The engine: {error}",
        ) from error


def _open_rows(session: Session, feeds: Feeds) -> Optional[int]:
    """Return how many rows the arrays have; None where the model states how many it takes."""
    specs = [spec for spec in session.inputs if spec.shape is None or spec.shape]
    rows = {len(feeds[spec.name]) for spec in specs if feeds[spec.name].ndim}
    is_open = all(spec.shape is None or not is_fixed(spec.shape[0]) for spec in specs)
    return rows.pop() if len(rows) == 1 and is_open else None


def _runs(session: Session, feeds: Feeds, rows: int) -> bool:
    tried = {
        name: value[np.arange(rows) % len(value)] if value.ndim and len(value) else value
        for name, value in feeds.items()
    }
    try:
        session.run(tried)
    except RunFailed:
        return False
    return True
