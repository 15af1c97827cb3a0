"""Passwords of accounts: how they are stored, checked, and how often one may be tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import argon2
from anyio import CapacityLimiter
from argon2.exceptions import InvalidHashError, VerificationError
from limits import RateLimitItem, parse
from limits.strategies import MovingWindowRateLimiter

from edgeyard.benchmark_api.rate_limits import WindowStorage
from edgeyard.errors import TooManyLogins


class PasswordHasher:
    """Hashes and checks passwords by argon2id. Thread-safe; a hash takes tens of milliseconds."""

    def __init__(self) -> None:
        self._argon2 = argon2.PasswordHasher(time_cost=3, memory_cost=32 * 1024, parallelism=1)

    @cached_property
    def _nobody(self) -> str:
        """Hash that unknown accounts are checked against; made when the first one comes."""
        return self._argon2.hash("the password of no account")

    def hash(self, password: str) -> str:
        """Return what is stored of a password: parameters, salt and hash."""
        return self._argon2.hash(password)

    def verify(self, password: str, password_hash: str | None) -> bool:
        """Return whether it is the password; as slow for an unknown account as for a known one.

        Args:
            password: As it was typed.
            password_hash: What is stored; None: there is no such account.
        """
        try:
            right = self._argon2.verify(password_hash or self._nobody, password)
        except (VerificationError, InvalidHashError):
            return False
        return right and password_hash is not None


class LoginLimits:
    """Log-ins that are allowed; each server counts its own. Thread-safe.

    One address of the network may try one account ten times in five minutes, and all accounts
    together a hundred times. All addresses together may try one account two hundred times an hour.
    That last limit does not hold for an address from which the account logged in during the last 30
    days: strangers who use it up can't lock the user out. An account may log in sixty times in five
    minutes, because each log-in takes tens of milliseconds of a core.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        """Start with no log-in counted.

        Args:
            monotonic_s: The clock, in seconds.
        """
        self._monotonic_s = monotonic_s
        self._limiter = MovingWindowRateLimiter(WindowStorage(monotonic_s))
        self._pair = parse("10 per 5 minutes")
        self._address = parse("100 per 5 minutes")
        self._account = parse("200 per hour")
        self._good = parse("60 per 5 minutes")
        self._familiar = parse("1 per 30 days")

    def check(self, email: str, address: str) -> None:
        """Let a log-in be tried, or not.

        Raises:
            TooManyLogins: Too many came or failed lately.
        """
        for limit, keys in self._keys(email, address):
            self._check(limit, keys, "one address of the network", "failed log-ins")
        self._check(self._good, ("good", email), "one account", "log-ins")

    def _check(self, limit: RateLimitItem, keys: tuple[str, ...], whose: str, what: str) -> None:
        if not self._limiter.test(limit, *keys):
            reset_s = self._limiter.get_window_stats(limit, *keys).reset_time - self._monotonic_s()
            wait_s = max(1.0, min(reset_s, float(limit.get_expiry())))
            raise TooManyLogins(limit.amount, whose, wait_s, what)

    def failed(self, email: str, address: str) -> None:
        """Count a failed log-in."""
        for limit, keys in self._keys(email, address):
            self._limiter.hit(limit, *keys)

    def succeeded(self, email: str, address: str) -> None:
        """Count a log-in with the right password, and remember where it came from."""
        self._limiter.hit(self._good, "good", email)
        self._limiter.hit(self._familiar, "familiar", email, address)

    def _keys(self, email: str, address: str) -> list[tuple[RateLimitItem, tuple[str, ...]]]:
        keys = [
            (self._pair, ("pair", email, address)),
            (self._address, ("address", address)),
        ]
        if self._limiter.test(self._familiar, "familiar", email, address):
            keys.append((self._account, ("account", email)))
        return keys


@dataclass(slots=True)
class Passwords:
    """What log-ins need.

    Attributes:
        limiter: Bounds the hashes that are computed at the same time; made on the event loop.
    """

    limits: LoginLimits
    hasher: PasswordHasher = field(default_factory=PasswordHasher)
    limiter: CapacityLimiter | None = None
