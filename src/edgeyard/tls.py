"""TLS contexts of HTTP clients. Reading the usual certificates takes 20 ms: once per process."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def shared_context(*, trust_env: bool) -> ssl.SSLContext:
    """Return the context that trusts the usual authorities. Connections and threads share it.

    Args:
        trust_env: Whether the authorities are those that ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``
            name, where one is set.
    """
    return httpx.create_ssl_context(trust_env=trust_env)


def context_for(url: str, *, trust_env: bool = True) -> ssl.SSLContext:
    """Return the shared context, or for a URL without TLS one that trusts nobody.

    Raises:
        httpx.InvalidURL: It is no URL.
    """
    if httpx.URL(url).scheme == "https":
        return shared_context(trust_env=trust_env)
    return trust_nobody()


def trust_nobody() -> ssl.SSLContext:
    """Return a context without authorities, for clients that speak no TLS: it costs nothing."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
