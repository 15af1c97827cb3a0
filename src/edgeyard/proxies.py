"""The proxy that the environment names for a URL, by the rules that curl and Go share.

``https_proxy`` or ``http_proxy`` by the URL's scheme, else ``all_proxy``; each also in capitals,
and the small letters win. ``HTTP_PROXY`` is ignored in a CGI program, where a caller could set it.
``no_proxy`` lists, with commas, hosts that are reached directly: names (with the names below them),
addresses, networks such as ``10.0.0.0/8`` or ``fd00::/8``, each with a port or without one; ``*``
is all.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from edgeyard.errors import ConfigError
from edgeyard.tls import context_for

_SCHEMES = ("http", "https", "socks5", "socks5h")
_PORTS = {"http": 80, "https": 443}
_PORT = re.compile(r"^(?:\[(?P<six>.+)\]|(?P<name>[^:]+)):(?P<port>[0-9]{1,5})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy.

    Attributes:
        url: With its user name and password, where it has them.
        shown: Without them.
        variable: Environment variable that names it.
    """

    url: str = field(repr=False)
    shown: str
    variable: str


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> Proxy | None:
    """Return the proxy by which a URL is reached; None: directly.

    Raises:
        ConfigError: The variable names no proxy that can be used.
    """
    environ = os.environ if environ is None else environ
    parts = urlsplit(url)
    named = _named(parts.scheme, environ)
    if named is None:
        return None
    variable, value = named
    if _is_direct(parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0), environ):
        return None
    text = value if "://" in value else f"http://{value}"
    try:
        proxy = urlsplit(text)
        host, port = proxy.hostname, proxy.port
    except ValueError:
        host, port = None, None
    if not host:
        raise ConfigError([f"{variable} is not the URL of a proxy, such as http://proxy:3128"])
    shown_host = f"[{host}]" if ":" in host else host
    shown = f"{proxy.scheme}://{shown_host}{'' if port is None else f':{port}'}"
    if proxy.scheme not in _SCHEMES:
        raise ConfigError(
            [f"{variable}: {shown} is of a kind that is not supported: {', '.join(_SCHEMES)} are"]
        )
    if proxy.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise ConfigError(
            [f"{variable}: the proxy {shown} needs a package: pip install 'httpx[socks]'"]
        )
    return Proxy(url=text, shown=shown, variable=variable)


def http_client(url: str, proxy: Proxy | None, **options: Any) -> httpx.Client:
    """Return a client for a URL by this proxy, without others and without tokens from ~/.netrc.

    Args:
        url: It decides about TLS.
        proxy: None: directly.
        options: Those of `httpx.Client`.

    Raises:
        httpx.InvalidURL: It is no URL.
    """
    return httpx.Client(
        verify=context_for(url),
        trust_env=False,
        proxy=None if proxy is None else proxy.url,
        **options,
    )


def _named(scheme: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    for name in (f"{scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            is_from_caller = variable == "HTTP_PROXY" and "REQUEST_METHOD" in environ
            value = environ.get(variable, "").strip()
            if value and not is_from_caller:
                return variable, value
    return None


def _is_direct(host: str, port: int, environ: Mapping[str, str]) -> bool:
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return any(_covers(each, host.lower(), port) for each in re.split(r"[,\s]+", listed) if each)


def _covers(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if with_port := _PORT.match(entry):
        if int(with_port["port"]) != port:
            return False
        entry = with_port["six"] or with_port["name"]
    entry = entry.strip("[]").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = entry.removeprefix("*").removeprefix(".").rstrip(".")
        return bool(name) and (host == name or host.endswith(f".{name}"))
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
