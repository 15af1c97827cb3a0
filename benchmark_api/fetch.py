"""Foreign URLs: which of them may be fetched, and fetching them.

A user's URL could name what only this machine may reach. So the address is resolved once, checked
after unwrapping every form that embeds IPv4, and the connection goes to the address that was
checked, with the name kept for ``Host`` and TLS. Every redirect goes through the same gate.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote, urljoin, urlsplit

import httpcore
import httpx

from edgeyard.benchmark_api.bounded_http import BoundedTransport, never
from edgeyard.errors import Cancelled, RunFailed, TooLarge, UrlRefused
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.files import StoredFile
from edgeyard.scheduler.ports import FileStore

logger = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Sequence[str]]
"""``resolve(host, port)``: all addresses of a name, as text."""

MAX_REDIRECTS = 3
CHUNK_BYTES = 2**20
CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 30.0
"""A server that sends nothing for so long is given up."""

MAX_LOOKUPS = 64
"""Names that are looked up at the same time, those included whose caller has given up."""

_ASK_S = 0.2
_lookups = threading.BoundedSemaphore(MAX_LOOKUPS)

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORTS = frozenset({80, 443, 8000, 8080, 8443})
"""Ports of web servers. `allow_hosts` allows others: models do not lie on other services."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LAST_LABEL_IS_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart after the checks that need no name server."""

    url: str
    scheme: str
    host: str
    port: int
    path: str


class AddressRules:
    """Says which URLs may be fetched.

    Args:
        allow_hosts: Exceptions by the operator: ``models.lab``, ``*.lab``, ``10.0.0.5``,
            ``10.0.0.0/8``, each with an optional ``:port``; a private address is fine there.
        setting: The server's setting that holds these exceptions, which refusals name.
    """

    def __init__(self, allow_hosts: Sequence[str] = (), *, setting: str = "allow_hosts") -> None:
        self._setting = setting
        self._names: list[tuple[str, int | None]] = []
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._addresses: list[tuple[Address, int | None]] = []
        for word in allow_hosts:
            self._add(word.lower())

    def replace(self, allow_hosts: Sequence[str]) -> None:
        """Allow these instead. Any thread."""
        new = AddressRules(allow_hosts)
        self._names, self._networks, self._addresses = new._names, new._networks, new._addresses

    def check(self, url: str, pointer: str = "") -> Target:
        """Return all that can be said of a URL without asking a name server.

        Args:
            pointer: Field that it came in, for the error.

        Raises:
            UrlRefused: It may not be fetched, whatever its name resolves to.
        """
        target = _target(url, pointer)
        if self._named(target):
            return target
        literal = _literal(target.host)
        if literal is not None:
            self._check_address(literal, target, pointer)
        elif target.host == "localhost" or target.host.endswith((".localhost", ".local")):
            raise self._refused(target, "names the server itself or its local network", pointer)
        elif _LAST_LABEL_IS_NUMBER.fullmatch(target.host):
            raise UrlRefused(url, "has a number as its host that is not an IP address", pointer)
        elif target.port not in _PORTS:
            raise self._refused(target, _port_problem(target.port), pointer)
        return target

    def addresses(self, target: Target, resolve: Resolver) -> tuple[Address, ...]:
        """Return the addresses to connect to for a URL, each checked against the rules.

        Raises:
            UrlRefused: One of them is forbidden.
            RunFailed: The name does not resolve.
        """
        literal = _literal(target.host)
        texts = [str(literal)] if literal else resolve(target.host, target.port)
        found = [ipaddress.ip_address(text.partition("%")[0]) for text in texts]
        if not found:
            raise RunFailed(
                FailureCategory.USER_INPUT, f"the host name {target.host} has no address"
            )
        if not self._named(target):
            # All of them, not only the one that is used: a mixed answer is an attack.
            for address in found:
                self._check_address(address, target, "")
        return tuple(found)

    def _add(self, word: str) -> None:
        if "/" in word:
            self._networks.append(ipaddress.ip_network(word, strict=False))
            return
        host, port = word, None
        if (match := re.fullmatch(r"(\[[^\]]+\]|[^:]+):([0-9]+)", word)) is not None:
            host, port = match[1], int(match[2])
        host = host.strip("[]")
        try:
            self._addresses.append((ipaddress.ip_address(host), port))
        except ValueError:
            self._names.append((host, port))

    def _named(self, target: Target) -> bool:
        """Return whether the operator named this very host, so that its address does not matter."""
        return any(
            port in (None, target.port)
            and (target.host == name or (name.startswith("*.") and target.host.endswith(name[1:])))
            for name, port in self._names
        )

    def _check_address(self, address: Address, target: Target, pointer: str) -> None:
        inner = unwrapped(address)
        if any(inner in network for network in self._networks if network.version == inner.version):
            return
        if any(inner == known and port in (None, target.port) for known, port in self._addresses):
            return
        if not is_public(address):
            raise self._refused(
                target, "leads to a loopback, private or otherwise special address", pointer
            )
        if target.port not in _PORTS:
            raise self._refused(target, _port_problem(target.port), pointer)

    def _refused(self, target: Target, reason: str, pointer: str) -> UrlRefused:
        allowed = f"the operator's setting {self._setting} can allow {target.host}"
        return UrlRefused(target.url, f"{reason}; {allowed}", pointer)


def unwrapped(address: Address) -> Address:
    """Return the address that packets reach in the end: embedded IPv4 taken out of IPv6."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    packed = address.packed
    low = ipaddress.IPv4Address(packed[12:])
    compatible = packed[:12] == bytes(12) and int(low) > 1  # ::127.0.0.1, not :: and ::1
    translated = packed[:12] == bytes(8) + b"\xff\xff\0\0"  # ::ffff:0:127.0.0.1
    if compatible or translated or address in _NAT64:
        return low
    if address.teredo is not None:
        return address.teredo[1]
    return address


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public Internet, whatever it is wrapped in."""
    inner = unwrapped(address)
    return (
        inner.is_global
        and not inner.is_multicast
        and not inner.is_reserved
        and not inner.is_unspecified
        # `is_global` holds for the documentation of 192.0.0.0/24's few exceptions.
        and not (inner.version == 4 and inner in ipaddress.IPv4Network("192.0.0.0/24"))
        and not (inner.version == 6 and inner not in ipaddress.IPv6Network("2000::/3"))
    )


def own_path(url: str, public_url: str) -> str | None:
    """Path of a URL of our own, e.g. ``/download/x``; None for foreign ones.

    Both the configured base and what users may have typed of it count: case of scheme and host,
    a default port.
    """
    try:
        mine, theirs = urlsplit(public_url), urlsplit(url)
        same = (
            theirs.scheme == mine.scheme
            and (theirs.hostname or "") == (mine.hostname or "")
            and (theirs.port or _DEFAULT_PORTS.get(theirs.scheme))
            == (mine.port or _DEFAULT_PORTS.get(mine.scheme))
            and theirs.username is None
        )
    except ValueError:
        return None
    base = mine.path.rstrip("/")
    if not same or not theirs.path.startswith(base + "/"):
        return None
    return unquote(theirs.path[len(base) :], errors="replace")


class Fetcher:
    """Downloads foreign URLs into the file store. Thread-safe; every call is bounded in time."""

    def __init__(
        self,
        rules: AddressRules,
        files: FileStore,
        *,
        timeout_s: float,
        resolve: Resolver | None = None,
    ) -> None:
        self._files = files
        self._rules = rules
        self._timeout_s = timeout_s
        self._resolve = resolve or resolved

    def fetch(
        self, url: str, limit_bytes: int, cancelled: Callable[[], bool] = never
    ) -> StoredFile:
        """Download it, within the address rules; see `UrlFetcher.fetch`."""
        ends_at = time.monotonic() + self._timeout_s
        here = url
        for _ in range(MAX_REDIRECTS + 1):
            target = self._rules.check(here)
            resolve = in_time(self._resolve, ends_at, cancelled)
            address = self._rules.addresses(target, resolve)[0]
            with opened(
                target,
                address,
                timeout_s=self._timeout_s,
                ends_at=ends_at,
                cancelled=cancelled,
            ) as response:
                if response.status_code in _REDIRECTS:
                    here = _redirected(here, response)
                    continue
                return self._save(response, target, limit_bytes)
        raise RunFailed(
            FailureCategory.USER_INPUT, f"{_shown(url)} redirects more than {MAX_REDIRECTS} times"
        )

    def _save(self, response: httpx.Response, target: Target, limit_bytes: int) -> StoredFile:
        status = response.status_code
        if status != 200:
            category = (
                FailureCategory.NETWORK
                if status >= 500 or status in (408, 429)
                else FailureCategory.USER_INPUT
            )
            raise RunFailed(category, f"{_shown(target.url)} answered {status}")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise RunFailed(
                FailureCategory.USER_INPUT,
                f"{_shown(target.url)} sends its content compressed although none was accepted",
            )
        stated = response.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > limit_bytes:
            raise TooLarge(_shown(target.url), limit_bytes)
        writer = self._files.writer(limit_bytes)
        try:
            received = 0
            for chunk in response.iter_raw(CHUNK_BYTES):
                writer.write(chunk)
                received += len(chunk)
            if received == 0:
                raise RunFailed(FailureCategory.USER_INPUT, f"{_shown(target.url)} is empty")
            stored = writer.commit()
        except BaseException:
            writer.abort()
            raise
        logger.info(
            "file fetched",
            extra={"event": "fetched", "host": target.host, "size_bytes": stored.size_bytes},
        )
        return stored


def _redirected(url: str, response: httpx.Response) -> str:
    where = str(response.headers.get("location", ""))
    if not where:
        raise RunFailed(
            FailureCategory.USER_INPUT,
            f"{_shown(url)} redirects (status {response.status_code}) without stating where to",
        )
    try:
        return urljoin(url, where)
    except ValueError:  # e.g. http://[
        raise UrlRefused(where, "is not a URL") from None


@contextmanager
def opened(
    target: Target,
    address: Address,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    timeout_s: float,
    ends_at: float,
    cancelled: Callable[[], bool] = never,
) -> Iterator[httpx.Response]:
    """Send a request to an address that was checked, and yield the answer.

    Args:
        timeout_s: Time limit of the caller, which an error states.
        ends_at: When it is over, by `time.monotonic`: bound on all of it, to the last byte of the
            answer that the caller reads.
        cancelled: Whether the caller has given it up; asked a few times a second.

    Raises:
        RunFailed: ``network``, there was none; ``timeout``, it was not there in time.
        Cancelled: The caller gave it up.
    """
    bracketed = f"[{address}]" if address.version == 6 else str(address)
    named = f"[{target.host}]" if ":" in target.host else target.host
    default = _DEFAULT_PORTS[target.scheme] == target.port
    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    try:
        with (
            # No proxies and no .netrc from the environment: they would undo the checks.
            httpx.Client(
                trust_env=False,
                transport=BoundedTransport(ends_at, cancelled),
                timeout=timeout,
            ) as client,
            client.stream(
                method,
                f"{target.scheme}://{bracketed}:{target.port}{target.path}",
                headers={
                    "Host": named if default else f"{named}:{target.port}",
                    "Accept-Encoding": "identity",
                    "User-Agent": "edgeyard",
                    **(headers or {}),
                },
                content=content,
                extensions={"sni_hostname": target.host},
            ) as response,
        ):
            yield response
    except httpcore.TimeoutException:
        over = time.monotonic() >= ends_at
        raise RunFailed(
            FailureCategory.TIMEOUT if over else FailureCategory.NETWORK,
            f"{_shown(target.url)} took longer than {timeout_s:g} s"
            if over
            else f"{_shown(target.url)} does not answer in time",
        ) from None
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
    ) as error:
        raise RunFailed(
            FailureCategory.NETWORK,
            f"{_shown(target.url)} can't be reached: {type(error).__name__}",
        ) from None


def _port_problem(port: int) -> str:
    allowed = ", ".join(map(str, sorted(_PORTS)))
    return f"names port {port}; allowed are {allowed}"


def _target(url: str, pointer: str) -> Target:
    if len(url) > 2048 or re.search(r"[\x00-\x20\x7f\\]", url):
        raise UrlRefused(url, "is too long, or holds spaces or control characters", pointer)
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, (parts.hostname or "").rstrip("."), parts.port
        host = host if _literal(host) else host.encode("idna").decode("ascii").lower()
    except (ValueError, UnicodeError):
        raise UrlRefused(url, "is not a URL", pointer) from None
    if scheme not in _DEFAULT_PORTS:
        raise UrlRefused(url, "does not begin with http:// or https://", pointer)
    if parts.username is not None or parts.password is not None:
        raise UrlRefused(
            url, "contains a user name or password, which would be stored with the URL", pointer
        )
    if not host or "%" in host:
        raise UrlRefused(url, "names no host", pointer)
    if port == 0:
        raise UrlRefused(url, "has port 0, at which nobody listens", pointer)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url, scheme, host, _DEFAULT_PORTS[scheme] if port is None else port, path)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _shown(url: str) -> str:
    """Return a URL for people and logs without its password and query (perhaps a signature)."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:300]


def in_time(resolve: Resolver, ends_at: float, cancelled: Callable[[], bool] = never) -> Resolver:
    """Return a resolver that gives up when it is time, whatever the name server does.

    The system's resolver can't be stopped: it goes on by itself on a thread of its own. At most
    `MAX_LOOKUPS` do; who finds no place waits for one until it is time.

    Args:
        resolve: What may hang.
        ends_at: Monotonic time at which it is given up.
        cancelled: Whether the caller has given it up; asked a few times a second.

    Returns:
        A resolver that raises `RunFailed` with ``timeout`` when it is time, and `Cancelled`.
    """

    def bounded(host: str, port: int) -> Sequence[str]:
        late = RunFailed(FailureCategory.TIMEOUT, f"no address of {host[:100]} was found in time")
        while not _lookups.acquire(timeout=_ASK_S):
            _check_wanted(ends_at, cancelled, late)
        answer: Future[Sequence[str]] = Future()

        def look_up() -> None:
            try:
                answer.set_result(resolve(host, port))
            except BaseException as error:
                answer.set_exception(error)
            finally:
                _lookups.release()

        threading.Thread(target=look_up, name="edgeyard-resolve", daemon=True).start()
        while not wait([answer], _ASK_S).done:
            _check_wanted(ends_at, cancelled, late)
        return answer.result()

    return bounded


def _check_wanted(ends_at: float, cancelled: Callable[[], bool], late: RunFailed) -> None:
    if cancelled():
        raise Cancelled("the answer is not needed any more")
    if time.monotonic() >= ends_at:
        raise late


def resolved(host: str, port: int) -> Sequence[str]:
    """Return all addresses of a name.

    Raises:
        RunFailed: It has none, or no name server answers.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        category = (
            FailureCategory.NETWORK
            if error.errno == socket.EAI_AGAIN
            else FailureCategory.USER_INPUT
        )
        raise RunFailed(category, f"the host name {host[:100]} does not resolve") from None
    return [str(info[4][0]) for info in found]
