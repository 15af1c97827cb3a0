"""Passwords of accounts: how they are stored, checked, and how often one may be tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import argon2
from anyio import CapacityLimiter
from argon2.exceptions import InvalidHashError, VerificationError
from limits import RateLimitItemPerDay, RateLimitItemPerMinute
from limits.strategies import MovingWindowRateLimiter

from edgeyard.benchmark_api.rate_limits import WindowStorage
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import TooManyLogins

_MINUTES = {
    "login_failures": 5,
    "login_address_failures": 5,
    "login_account_failures": 60,
    "login_account_successes": 5,
}
"""Settings that bound log-ins, and the window of each in minutes."""


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
            password_hash: What is stored; None: there is no such account; "": it has no password.
        """
        try:
            right = self._argon2.verify(password_hash or self._nobody, password)
        except (VerificationError, InvalidHashError):
            return False
        return right and bool(password_hash)


class LoginLimits:
    """Bounds log-ins by the settings ``login_…``; each server counts its own. Thread-safe.

    One address of the network may fail so often with one account and so often with all, and all
    addresses together so often with one account. That last limit does not hold for an address from
    which the account logged in during the last 30 days: strangers who use it up can't lock the user
    out. Log-ins with the right password are bounded too, because each takes tens of milliseconds of
    a core.
    """

    def __init__(self, settings: Settings, monotonic_s: Callable[[], float]) -> None:
        """Start with no log-in counted.

        Args:
            settings: Holds the limits.
            monotonic_s: The clock, in seconds.
        """
        self._monotonic_s = monotonic_s
        self._limiter = MovingWindowRateLimiter(WindowStorage(monotonic_s))
        self._limits = {
            name: RateLimitItemPerMinute(getattr(settings, name), minutes)
            for name, minutes in _MINUTES.items()
        }
        self._familiar = RateLimitItemPerDay(1, 30)

    def check(self, email: str, address: str) -> None:
        """Let a log-in be tried, or not.

        Raises:
            TooManyLogins: Too many came or failed lately.
        """
        for name, keys in self._keys(email, address).items():
            whose = "this account" if name == "login_account_failures" else "one network address"
            self._check(name, keys, whose, "failed log-ins")
        self._check("login_account_successes", (email,), "this account", "log-ins")

    def _check(self, name: str, keys: tuple[str, ...], whose: str, what: str) -> None:
        limit, keys = self._limits[name], (name, *keys)
        if not self._limiter.test(limit, *keys):
            reset_s = self._limiter.get_window_stats(limit, *keys).reset_time - self._monotonic_s()
            wait_s = max(1.0, min(reset_s, float(limit.get_expiry())))
            raise TooManyLogins(name, limit.amount, whose, wait_s, what)

    def failed(self, email: str, address: str) -> None:
        """Count a failed log-in."""
        for name, keys in self._keys(email, address).items():
            self._limiter.hit(self._limits[name], name, *keys)

    def succeeded(self, email: str, address: str) -> None:
        """Count a log-in with the right password, and remember where it came from."""
        name = "login_account_successes"
        self._limiter.hit(self._limits[name], name, email)
        self._limiter.hit(self._familiar, "familiar", email, address)

    def _keys(self, email: str, address: str) -> dict[str, tuple[str, ...]]:
        """Return the limits that a failed log-in counts for, with what each counts by."""
        keys = {"login_failures": (email, address), "login_address_failures": (address,)}
        if self._limiter.test(self._familiar, "familiar", email, address):
            keys["login_account_failures"] = (email,)
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
