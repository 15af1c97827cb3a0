"""The documented proxy, run: CLI, uploads, streams and half requests through nginx."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy import programs
from deploy.process import Server, edgeyard, free_port
from tests.builders.cluster import eventually

pytestmark = [pytest.mark.nginx, pytest.mark.slow, pytest.mark.xdist_group("server")]

CONFIG = Path(__file__).parents[2] / "deploy/proxy/nginx.conf"
HALF_REQUESTS = 300
LARGE_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Proxied:
    """A server behind the proxy, and what its clients need."""

    server: Server
    port: int
    certificate: Path

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "EDGEYARD_URL": f"https://localhost:{self.port}",
            "EDGEYARD_TOKEN": self.server.token,
            "SSL_CERT_FILE": str(self.certificate),
        }

    def run(self, *words: str) -> str:
        """Output of a command of the CLI that succeeds."""
        command = [sys.executable, "-m", "edgeyard", *words]
        done = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return http.client.HTTPSConnection("localhost", self.port, context=context, timeout=60)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.server.token}"}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    nginx = programs.find("nginx")
    if nginx is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed: make nginx")
    folder = tmp_path_factory.mktemp("proxy")
    with edgeyard(folder / "data") as server, running(nginx, folder, server) as port:
        yield Proxied(server, port, folder / "fullchain.pem")


@contextmanager
def running(nginx: str, folder: Path, server: Server) -> Iterator[int]:
    """The documented configuration with this test's ports and folders; the port of TLS."""
    names = "subjectAltName=DNS:localhost"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=localhost", "-addext", names]
    words += ["-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem")]
    subprocess.run(words, check=True, capture_output=True)
    port, plain = free_port(), free_port()
    text = CONFIG.read_text()
    changes = {
        "127.0.0.1:42777": f"127.0.0.1:{server.port}",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "/etc/edgeyard/tls": str(folder),
        "/run/nginx.pid": str(folder / "nginx.pid"),
        "/var/log/nginx": str(folder),
        "edgeyard.example": "localhost",
        "worker_rlimit_nofile 65536;": "",
        "worker_connections 16384;": "worker_connections 1024;",
        "http {\n": "http {\n"
        + "".join(
            f"    {name}_temp_path {folder}/{name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ),
    }
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text)
    user = "user root; " if os.getuid() == 0 else ""
    process = subprocess.Popen(
        [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", f"{user}daemon off;"],
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: process.poll() is not None or _listens(port), "nginx listens")
        assert process.poll() is None, (folder / "error.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_benchmark_is_submitted_and_waited_for_through_the_proxy(
    proxied: Proxied, squeezenet: Path
) -> None:
    said = proxied.run(
        *("submit", "--model", str(squeezenet), "--runtime", "ort", "--type", "TYPE1"),
        *("--target", "emufast", "--wait"),
    )
    assert said
    (benchmark,) = json.loads(proxied.run("list", "--json"))
    assert benchmark["status"] == "completed"


def test_a_large_file_goes_through_without_a_copy_on_the_proxy_s_disk(
    proxied: Proxied, tmp_path: Path
) -> None:
    path = tmp_path / "large.npz"
    with path.open("wb") as file:
        file.truncate(LARGE_BYTES)
    proxied.run("files", "upload", str(path))
    kept = proxied.certificate.parent / "client_body"
    assert [each for each in kept.rglob("*") if each.is_file()] == []
    assert path.name in proxied.run("files", "list")


def test_a_followed_log_is_not_held_back(proxied: Proxied, squeezenet: Path) -> None:
    server = proxied.server
    name = server.upload(squeezenet)["name"]
    body = {"model": name, "runtime": "ort", "benchmark_type": "TYPE1", "target": "emufast"}
    made = server.call("POST", "/v1/benchmarks", {**body, "nb_inference": 1_000_000})
    benchmark_id = str(made["benchmark_id"])
    server.wait(benchmark_id, ("running",))
    with contextlib.closing(proxied.connection()) as connection:
        path = f"/v1/benchmarks/{benchmark_id}/logs?follow=1"
        connection.request("GET", path, headers=proxied.headers)
        with connection.getresponse() as answer:
            assert answer.readline().strip()
            # the stream goes on: what came was not kept back till its end
            assert server.show(benchmark_id)["status"] == "running"
            server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
            answer.read()


def test_half_requests_stop_nobody(proxied: Proxied) -> None:
    context = ssl.create_default_context(cafile=str(proxied.certificate))
    with ExitStack() as stack:
        for number in range(HALF_REQUESTS):
            plain = socket.create_connection(("127.0.0.1", proxied.port), timeout=30)
            if number % 10 == 0:  # some with their TLS done; all would take the test's time
                plain = context.wrap_socket(plain, server_hostname="localhost")
                plain.sendall(b"GET /v1/boards HTTP/1.1\r\nHost: local")
            stack.enter_context(plain)
        # whoever comes from elsewhere is answered; this machine's share of connections is used up
        server = http.client.HTTPConnection("127.0.0.1", proxied.server.port, timeout=30)
        server.request("GET", "/livez")
        assert server.getresponse().status == 200
        server.close()
    eventually(lambda: _answers(proxied), "the proxy answers again")


def _answers(proxied: Proxied) -> bool:
    connection = proxied.connection()
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_figures_are_for_the_lab_alone_and_plain_http_leads_to_tls(proxied: Proxied) -> None:
    text = CONFIG.read_text()
    assert "deny all;" in text[text.index("location = /metrics") :]
    connection = proxied.connection()
    connection.request("GET", "/livez")
    answer = connection.getresponse()
    answer.read()
    assert answer.getheader("Strict-Transport-Security")
    assert not (answer.getheader("Server") or "").startswith("nginx/")
    connection.close()
