"""Content of the file store and its names: one is added, the other goes, and neither waits.

The file store may be a service that answers slowly, so that no transaction is open while it is
called. Content without a name is removed in three steps: the removal is announced in the database,
the file store removes it, and the end is recorded. Before a transaction names content, its caller
looks for it in the file store; the transaction fails if a removal was announced since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from edgeyard.errors import Unavailable
from edgeyard.scheduler.model.files import ContentRemoval
from edgeyard.scheduler.ports import FileStore, Store, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenContent:
    """Content that was in the file store a moment ago.

    Attributes:
        names: What people call each content, by hash.
        removals: The newest removal of each content, as far as it was ever removed.
    """

    names: Mapping[str, str]
    removals: Mapping[str, ContentRemoval]

    def check(self, uow: UnitOfWork) -> None:
        """Check, in the unit of work that names the content, that it was not removed since.

        Raises:
            Unavailable: It was, or is being removed.
        """
        removals = uow.files.removals(list(self.names)) if self.names else {}
        for sha256, name in self.names.items():
            if removals.get(sha256) != self.removals.get(sha256):
                raise _removed(name)


def see_content(store: Store, files: FileStore, names: Mapping[str, str]) -> SeenContent:
    """Look for content that is about to be named, outside of transactions.

    Args:
        store: Has the names.
        files: Has the content.
        names: What people call each content, by hash.

    Raises:
        Unavailable: It is not there, or is being removed, or the file store does not answer.
    """
    if not names:
        return SeenContent(names={}, removals={})
    with store.read() as uow:
        removals = uow.files.removals(list(names))
    for sha256, name in names.items():
        removal = removals.get(sha256)
        if (removal is not None and removal.is_under_way) or not files.contains(sha256):
            raise _removed(name)
    return SeenContent(names=names, removals=removals)


def remove_unnamed(
    store: Store, files: FileStore, sha256: str, *, named_at: datetime | None = None
) -> bool:
    """Remove content if nothing names it; return whether it was removed.

    Args:
        store: Has the names.
        files: Has the content.
        sha256: Of the content.
        named_at: See `FileStore.remove`.

    Raises:
        Unavailable: The database or the file store does not answer.
    """
    if not store.transact(lambda uow: uow.files.begin_removal(sha256), frees_space=True):
        return False
    try:
        return files.remove(sha256, named_at=named_at)
    finally:
        store.transact(lambda uow: uow.files.end_removal(sha256), frees_space=True)


def _removed(name: str) -> Unavailable:
    return Unavailable(f"{name} was removed before it was named: send it again")
