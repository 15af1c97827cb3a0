"""The TLS contexts of HTTP clients: read once, and never trusting by accident."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from edgeyard.tls import context_for, shared_context


@pytest.fixture(autouse=True)
def usual_authorities(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    shared_context.cache_clear()
    yield
    shared_context.cache_clear()


def test_clients_of_servers_with_tls_share_what_was_read() -> None:
    context = context_for("https://a.example")
    assert context is context_for("https://b.example:8443/v1") is shared_context(trust_env=True)
    assert context.get_ca_certs()


def test_what_ignores_the_environment_does_not_trust_its_authorities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert context_for("https://a.example").get_ca_certs() == []
    assert context_for("https://a.example", trust_env=False).get_ca_certs()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://a.example", ""])
def test_a_client_without_tls_would_refuse_every_certificate(url: str) -> None:
    context = context_for(url)
    assert context.get_ca_certs() == []
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_text_that_is_no_url_is_refused() -> None:
    with pytest.raises(httpx.InvalidURL):
        context_for("http://a:b")
