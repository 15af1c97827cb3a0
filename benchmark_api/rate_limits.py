"""Rate limits: requests in a window of a minute that moves, by token, task and address.

Windows and keys are those of the library ``limits``. Its own storage in memory reads the wall
clock, and starts a thread for every hundredth of a second in which requests come, which looks at
every key. `WindowStorage` reads the server's monotonic clock, and drops old times as they are met.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from limits import RateLimitItemPerMinute
from limits.storage import MovingWindowSupport, Storage
from limits.strategies import MovingWindowRateLimiter
from starlette.types import Scope

from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import RateLimited, TooManyOpenBytes, TooManyOpenRequests

MAX_KEYS = 50_000
"""Tokens, tasks and addresses that are counted; those that were idle for longest go first."""

_OPEN_FOR = "edgeyard.open_for"
"""The key by which a request's scope says whose it was counted as."""
_HELD = "edgeyard.held_bytes"
"""The key by which it says how many bytes of its body were counted."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WindowStorage(Storage, MovingWindowSupport):
    """Times of requests in memory, by key; for ``MovingWindowRateLimiter``. Thread-safe."""

    STORAGE_SCHEME = None

    def __init__(self, monotonic_s: Callable[[], float], max_keys: int = MAX_KEYS) -> None:
        """Nothing is counted yet.

        Args:
            monotonic_s: The clock, in seconds.
            max_keys: That are kept.
        """
        super().__init__()
        self._monotonic_s = monotonic_s
        self._max_keys = max_keys
        self._lock = threading.Lock()
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count requests now, unless that would make more than the limit; whether it did."""
        now_s = self._monotonic_s()
        with self._lock:
            times = self._window(key, now_s - expiry)
            if len(times) + amount > limit:
                return False
            times.extend([now_s] * amount)
            return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return when the oldest request of the window came, and how many it holds."""
        now_s = self._monotonic_s()
        with self._lock:
            times = self._window(key, now_s - expiry)
            return (times[0] if times else now_s), len(times)

    def _window(self, key: str, oldest_s: float) -> deque[float]:
        times = self._times.pop(key, None) or deque()
        while times and times[0] <= oldest_s:
            times.popleft()
        self._forget_idle(oldest_s)
        self._times[key] = times
        if len(self._times) > self._max_keys:
            self._times.popitem(last=False)
        return times

    def _forget_idle(self, oldest_s: float) -> None:
        """Drop the keys that nobody has used for a window: each task that ran has left one."""
        while self._times:
            times = next(iter(self._times.values()))
            if times and times[-1] > oldest_s:
                break
            self._times.popitem(last=False)

    @property
    def base_exceptions(self) -> type[Exception]:
        """No exception is the storage's own."""
        return ValueError

    def clear(self, key: str) -> None:
        """Forget a key."""
        with self._lock:
            self._times.pop(key, None)

    def reset(self) -> int:
        """Forget all keys; returns how many there were."""
        with self._lock:
            count = len(self._times)
            self._times.clear()
            return count

    def check(self) -> bool:
        """Memory is always there."""
        return True

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Only moving windows are counted here."""
        raise NotImplementedError

    def get(self, key: str) -> int:
        """Only moving windows are counted here."""
        raise NotImplementedError

    def get_expiry(self, key: str) -> float:
        """Only moving windows are counted here."""
        raise NotImplementedError


class RateLimits:
    """The rate limits of one server. Thread-safe; none of it does I/O."""

    def __init__(self, settings: Settings, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._limiter = MovingWindowRateLimiter(WindowStorage(monotonic_s))
        self._open: Counter[str] = Counter()
        self._open_lock = threading.Lock()
        self._max_open = settings.open_requests_per_user
        self._open_bytes: Counter[str] = Counter()
        self._max_open_bytes = settings.open_body_bytes_per_user
        self._proxies = tuple(
            ipaddress.ip_network(word, strict=False) for word in settings.trusted_proxies
        )
        self._items = {
            name: RateLimitItemPerMinute(value, namespace=name)
            for name in (
                "user_requests_per_minute",
                "trusted_requests_per_minute",
                "address_requests_per_minute",
                "failures_per_minute",
            )
            if (value := getattr(settings, name))
        }

    def count_token(self, sha256: str, user_id: str, *, trusted: bool) -> None:
        """Count a request with a good token.

        Args:
            sha256: Of the token.
            user_id: Whose it is.
            trusted: It is an operator's or a host's.

        Raises:
            RateLimited: There were too many.
        """
        name = "trusted_requests_per_minute" if trusted else "user_requests_per_minute"
        self._count(name, sha256, f"each token of user {user_id}")

    def open_request(self, scope: Scope, user_id: str) -> None:
        """Count a request as under way for its user, until `close_request`.

        Raises:
            TooManyOpenRequests: So many of theirs are under way.
        """
        with self._open_lock:
            if self._max_open and self._open[user_id] >= self._max_open:
                raise TooManyOpenRequests(self._max_open, f"user {user_id}")
            self._open[user_id] += 1
        scope[_OPEN_FOR] = user_id

    def hold_body(self, scope: Scope, size_bytes: int) -> None:
        """Count more bytes of a request's body as in memory, until `close_request`.

        Requests that `open_request` did not count are not counted here either. The only one of a
        user is not refused: what bounds a single body is a limit of its own.

        Raises:
            TooManyOpenBytes: Bodies of the user's other requests take too much.
        """
        user_id = scope.get(_OPEN_FOR)
        if user_id is None or not self._max_open_bytes:
            return
        held = scope.get(_HELD, 0)
        with self._open_lock:
            of_others = self._open_bytes[user_id] - held
            if of_others and of_others + held + size_bytes > self._max_open_bytes:
                raise TooManyOpenBytes(self._max_open_bytes, f"user {user_id}")
            self._open_bytes[user_id] += size_bytes
        scope[_HELD] = held + size_bytes

    def close_request(self, scope: Scope) -> None:
        """End the count of a request and its body as under way, if they were counted."""
        user_id = scope.pop(_OPEN_FOR, None)
        if user_id is None:
            return
        with self._open_lock:
            for counter, value in (
                (self._open, 1),
                (self._open_bytes, scope.pop(_HELD, 0)),
            ):
                counter[user_id] -= value
                if not counter[user_id]:
                    del counter[user_id]

    def count_task(self, job_id: str) -> None:
        """Count a request of a running task.

        Raises:
            RateLimited: There were too many.
        """
        self._count("trusted_requests_per_minute", job_id, "each running task")

    def count_address(self, scope: Scope) -> None:
        """Count a request that needs no token.

        Raises:
            RateLimited: There were too many from its address.
        """
        self._count_address("address_requests_per_minute", scope)

    def count_failure(self, scope: Scope) -> None:
        """Count a request without a good token.

        Raises:
            RateLimited: There were too many from its address.
        """
        self._count_address("failures_per_minute", scope)

    def check_failures(self, scope: Scope) -> None:
        """Refuse a token that is not known to be good, where too many before were not.

        Raises:
            RateLimited: There were too many from its address.
        """
        item = self._items.get("failures_per_minute")
        if item is not None and not self._limiter.test(item, address := self.address(scope)):
            raise self._over("failures_per_minute", address, f"the address {address}")

    def address(self, scope: Scope) -> str:
        """Return the client's address, as trusted proxies name it; an IPv6 /64 is one address."""
        client = scope.get("client")
        peer = _address(client[0]) if client else None
        if peer is None:
            return "unknown"
        if _among(peer, self._proxies):
            for name in reversed(_forwarded_for(scope["headers"])):
                named = _address(name)
                if named is None:
                    break
                peer = named
                if not _among(named, self._proxies):
                    break
        if isinstance(peer, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((peer, 64), strict=False))
        return str(peer)

    def _count_address(self, name: str, scope: Scope) -> None:
        if name in self._items:  # without the limit the address is not looked up
            address = self.address(scope)
            self._count(name, address, f"the address {address}")

    def _count(self, name: str, key: str, whose: str) -> None:
        item = self._items.get(name)
        if item is not None and not self._limiter.hit(item, key):
            raise self._over(name, key, whose)

    def _over(self, name: str, key: str, whose: str) -> RateLimited:
        item = self._items[name]
        free_at_s = self._limiter.get_window_stats(item, key).reset_time
        wait_s = max(1.0, free_at_s - self._monotonic_s())
        return RateLimited(name, item.amount, whose, wait_s)


def _forwarded_for(headers: Iterable[tuple[bytes, bytes]]) -> Sequence[str]:
    values = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
    return [word.strip() for value in values for word in value.split(",")]


def _among(address: _Address, networks: Sequence[_Network]) -> bool:
    return any(address in network for network in networks)


@lru_cache(maxsize=10_000)
def _address(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
