"""Links that sign in once: codes of the server's start."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from edgeyard.benchmark_api.auth import token_hash
from edgeyard.errors import NotAuthenticated

LINK_S = 600.0
"""How long a link signs somebody in, seconds."""

_OVER = "the link was used, or is older than 10 minutes: sign in with a token or a password"


class SignInLinks:
    """Codes that each open one session of an operator; in memory. Thread-safe."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        """Start without a code.

        Args:
            monotonic_s: The clock, in seconds.
        """
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._made: dict[str, tuple[str, float]] = {}

    def make(self, token_id: str) -> str:
        """Return a new code, which opens one session as made by a token."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._made[token_hash(code)] = (token_id, self._monotonic_s() + LINK_S)
        return code

    def take(self, code: str) -> str:
        """Use a code up; returns the id of its token.

        Raises:
            NotAuthenticated: There is no such code, it was used, or is too old.
        """
        with self._lock:
            token_id, ends_s = self._made.pop(token_hash(code), ("", 0.0))
        if not token_id or self._monotonic_s() > ends_s:
            raise NotAuthenticated(_OVER)
        return token_id
