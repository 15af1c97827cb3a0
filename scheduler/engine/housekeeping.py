"""What is dropped, and when: files that nothing names, records that are past their retention."""

from __future__ import annotations

import logging
from datetime import timedelta

from edgeyard.scheduler.ports import Clock, FileStore, Store

logger = logging.getLogger(__name__)


def keep_house(store: Store, files: FileStore, clock: Clock, retention_s: float) -> None:
    """Sweep once; while the clocks disagree nothing is dropped, because nobody knows how old it is.

    Args:
        retention_s: Age at which events and explanations of ended benchmarks go. Benchmarks, their
            attempts, outcomes and results stay.
    """
    if clock.disagreement_s():
        return
    swept = files.sweep_temporary()
    pruned = store.prune(clock.certain() - timedelta(seconds=retention_s))
    removed = 0
    for stored in files.contents():
        with store.write() as uow:
            named = uow.files.referenced(stored.sha256)
        if not named and files.remove(stored.sha256):
            removed += 1
    if swept or pruned or removed:
        logger.info(
            "house kept",
            extra={"event": "swept", "temporary": swept, "rows": pruned, "files": removed},
        )
