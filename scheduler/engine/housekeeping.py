"""Garbage collection: records past their retention, and content that nothing names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from edgeyard.errors import Unavailable
from edgeyard.scheduler.engine.contents import remove_unnamed
from edgeyard.scheduler.model.acts import acting_as
from edgeyard.scheduler.model.retention import PruneReport, RetentionClass
from edgeyard.scheduler.ports import Clock, FileStore, Store

logger = logging.getLogger(__name__)

Retention = Mapping[RetentionClass, float | None]
"""Seconds for which each class is kept; None: for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageReport:
    """What was removed, or would be.

    Attributes:
        pruned: Rows of the store, by class.
        content: Files of which no name is left.
        temporary: Uploads that were begun and left.
    """

    pruned: Mapping[RetentionClass, PruneReport]
    content: PruneReport
    temporary: int = 0


def collect_garbage(
    store: Store,
    files: FileStore,
    clock: Clock,
    retention: Retention,
    *,
    dry_run: bool = False,
) -> GarbageReport:
    """Prune the store once, then remove content that nothing names.

    While the clocks disagree nothing is removed, because its age is not known.

    Args:
        store: Has the records.
        files: Has the content.
        clock: Measures how old records are.
        retention: How long each class is kept.
        dry_run: Only count: names that would go still count as names of their content.
    """
    if clock.disagreement_s():
        return GarbageReport(pruned={}, content=PruneReport())
    now = clock.certain()
    limits = {
        kind: now - timedelta(seconds=kept_s)
        for kind, kept_s in retention.items()
        if kept_s is not None
    }
    temporary = 0 if dry_run else files.sweep_temporary()
    pruned = store.prune(limits, dry_run=dry_run)
    content = PruneReport()
    for stored in files.contents():
        with store.read() as uow:
            if uow.files.referenced(stored.sha256):
                continue
        if clock.disagreement_s():
            break  # the age of what is left is no longer known
        if not dry_run and not remove_unnamed(store, files, stored.sha256):
            continue
        content += PruneReport(1, stored.size_bytes)
    rows = sum(each.rows for each in pruned.values())
    if not dry_run and (rows or content.rows or temporary):
        logger.info(
            "garbage collected",
            extra={
                "event": "garbage.collected",
                "temporary": temporary,
                "rows": rows,
                "files": content.rows,
                "files_bytes": content.size_bytes,
            },
        )
    return GarbageReport(pruned=pruned, content=content, temporary=temporary)


def release(store: Store, files: FileStore, named_at: Mapping[str, datetime]) -> None:
    """Remove content that has just lost a name, if that was its last one.

    What can't be removed now is found by `collect_garbage`.

    Args:
        store: Has the names.
        files: Has the content.
        named_at: When the name was given that was lost, by hash.
    """
    for sha256, at in named_at.items():
        try:
            with acting_as(None):  # follows from an act that has its record
                remove_unnamed(store, files, sha256, named_at=at)
        except Unavailable as error:
            logger.warning(
                "content without a name could not be removed",
                extra={"event": "files.unreleased", "sha256": sha256, "reason": str(error)},
            )
