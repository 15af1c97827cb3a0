"""Secrets of known values, a real benchmark, and a search for them everywhere."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.process import Server, edgeyard, in_cluster
from edgeyard import testbed
from tests.nomad_cluster import entry, nomad_binary, settings_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("secrets")]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
UPLOAD_TOKEN = re.compile(rb"eyu_[A-Za-z0-9_-]{16,}")
ACCOUNT_TOKEN = re.compile(rb"\bey_[A-Za-z0-9_-]{16,}")
KEPT_BY_OPERATORS = {"admin.token"}
"""Files that are there for the operator to read a secret from."""


class Watcher:
    """Looks at environments and command lines of a test's processes, again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = bytes(folder)
        self.processes: set[int] = set()
        self.found: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher")

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for folder in Path("/proc").iterdir():
                if folder.name.isdigit():
                    self._look_at(folder)

    def _look_at(self, process: Path) -> None:
        try:
            content = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            where = bytes((process / "cwd").readlink())
        except OSError:  # it has ended
            return
        if self._folder not in content + where:
            return  # another test's
        self.processes.add(int(process.name))
        if UPLOAD_TOKEN.search(content):
            self.found.append(content.replace(b"\0", b" ").decode("utf-8", "replace")[:500])


def files_with(folder: Path, patterns: list[re.Pattern[bytes]]) -> list[str]:
    """Files below a folder that contain one of the patterns, with what was found."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        except OSError:
            continue
        found += [
            f"{path.relative_to(folder)}: {each.pattern!r}"
            for each in patterns
            if path.name not in KEPT_BY_OPERATORS and each.search(content)
        ]
    return found


def answers(server: Server, benchmark_id: str) -> Iterator[tuple[str, bytes]]:
    """Every GET of the API that needs no more than a benchmark's id, to an operator."""
    schema = json.loads(server.text("/openapi.json"))
    known = {"benchmark_id": benchmark_id, "user_id": "canary"}
    for path, methods in schema["paths"].items():
        names = re.findall(r"{(\w+)}", path)
        if "get" not in methods or not set(names) <= set(known) or "stream" in path:
            continue
        try:
            yield path, server.text(path.format(**known)).encode()
        except OSError:  # a 4xx: what it needs besides is not there
            continue


def run_one(server: Server, **changes: object) -> tuple[str, dict[str, str]]:
    """Mint secrets, run a benchmark with a token of a user; its id and the secrets."""
    server.call("POST", "/v1/users", {"user_id": "canary", "role": "submitter"})
    minted = server.call("POST", "/v1/tokens", {"user_id": "canary"})
    secrets = {"admin token": server.token, "user's token": str(minted["token"])}
    user = Server(server.url, server.port, server.process, secrets["user's token"])
    model = user.upload(MODEL)["name"]
    benchmark_id = user.submit({"model": model, "nb_inference": 20, **changes})
    ended = user.wait(benchmark_id)
    assert ended["status"] == "completed", ended["failure"]
    return benchmark_id, secrets


def expect_no_secret(
    server: Server, benchmark_id: str, secrets: dict[str, str], folders: list[Path]
) -> None:
    patterns = [re.compile(re.escape(value.encode())) for value in secrets.values()]
    patterns += [UPLOAD_TOKEN, ACCOUNT_TOKEN]
    for folder in folders:
        assert files_with(folder, patterns) == []
    seen = 0
    for path, content in answers(server, benchmark_id):
        seen += 1
        assert not [each.pattern for each in patterns if each.search(content)], path
    assert seen > 20, "the schema's paths are no longer understood here"


def test_no_secret_is_found_anywhere_after_a_run_on_the_embedded_cluster(tmp_path: Path) -> None:
    settings = {
        "EDGEYARD_LOG_LEVEL": "debug",
        "EDGEYARD_DOCKER_AUTH_USERNAME": "lab",
        "EDGEYARD_DOCKER_AUTH_PASSWORD_FILE": str(tmp_path / "registry"),
    }
    (tmp_path / "registry").write_text("CANARY-SECRET-registry")
    folder = tmp_path / "server"
    folder.mkdir()
    with edgeyard(folder / "data", settings) as server, Watcher(tmp_path).watching() as watcher:
        benchmark_id, secrets = run_one(server, target="emufast")
        secrets["registry"] = "CANARY-SECRET-registry"
        expect_no_secret(server, benchmark_id, secrets, [folder])
    assert watcher.processes, "the watcher saw no process of ours"
    assert watcher.found == []


def test_all_files_of_a_server_are_its_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with edgeyard(folder) as server:
        run_one(server, target="emufast")
        open_to_others = [
            f"{path.relative_to(tmp_path)} {oct(path.stat().st_mode & 0o777)}"
            for path in [folder, *folder.rglob("*")]
            if not path.is_symlink() and path.stat().st_mode & 0o077
        ]
    assert open_to_others == []


@pytest.mark.nomad
def test_no_secret_is_found_anywhere_after_a_run_on_nomad(tmp_path: Path) -> None:
    cluster = testbed.make(
        tmp_path / "nomad", nomad_binary(), [{"rpi4b": [entry("rpi4b-0001-0001")]}]
    ).up()
    try:
        settings = settings_of(cluster, tmp_path / "inventory.json")
        token = tmp_path / "nomad.token"
        token.write_text(settings.pop(*in_cluster(token="")))
        folder = tmp_path / "server"
        folder.mkdir()
        more = {**in_cluster(token_file=token), "EDGEYARD_LOG_LEVEL": "debug"}
        with edgeyard(folder / "data", {**settings, **more}) as server:
            with Watcher(tmp_path).watching() as watcher:
                benchmark_id, secrets = run_one(server, target="rpi4b")
            secrets["Nomad token"] = token.read_text()
            expect_no_secret(server, benchmark_id, secrets, [folder])
            jobs = json.dumps(cluster.call("GET", "/v1/jobs?namespace=*")).encode()
            assert not UPLOAD_TOKEN.search(jobs)
        assert watcher.processes, "the watcher saw no process of ours"
        assert watcher.found == []
        upload_only = [UPLOAD_TOKEN, ACCOUNT_TOKEN]
        assert files_with(tmp_path / "nomad", upload_only) == []
    finally:
        cluster.down()
