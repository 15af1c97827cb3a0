"""The guides of operators are walked as they are written: back up, restore, upgrade, uninstall.

Their commands are typed into one shell, from top to bottom. What they name stands for things of the
test: ``/opt``, ``/etc``, ``/var/lib`` and ``/backup`` are folders of its own, ``systemctl`` starts
and stops the server of this checkout as the unit would, and ``pip install`` of the wheel gives an
environment that runs this checkout.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from deploy.process import Server, free_port
from tests.tutorial import steps

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "deploy/demo/digits.onnx"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SYSTEMCTL = """#!/bin/sh
# As systemd with the unit: start and stop the server, by the id of its process.
case "$1" in
start)
    {lab}/opt/edgeyard/bin/edgeyard up --config {lab}/etc/edgeyard/server.toml \
        --data-dir {lab}/var/lib/edgeyard --port {port} >>{lab}/log 2>&1 &
    echo $! >{lab}/pid
    exec {python} {lab}/await.py ;;
stop | disable)
    kill "$(cat {lab}/pid)" 2>/dev/null
    while kill -0 "$(cat {lab}/pid)" 2>/dev/null; do sleep 0.05; done ;;
esac
"""

AWAIT = """
import time, urllib.request
until = time.monotonic() + 60
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:{port}/readyz")
        break
    except OSError:
        assert time.monotonic() < until
        time.sleep(0.1)
"""

VENV = """#!/bin/sh
# python3 -m venv FOLDER: an environment that "pip install" of the wheel fills
mkdir -p "$3/bin"
printf '#!/bin/sh\\ntest -f "${{2%%[*}}" && cp {lab}/edgeyard "$(dirname "$0")/edgeyard"\\n' \
    >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""


class Lab:
    """A machine with a server, as the guides describe it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.bin = folder / "bin"
        for name in ("bin", "opt/edgeyard-first/bin", "etc/edgeyard", "etc/systemd/system",
                     "var/lib/edgeyard", "backup"):  # fmt: skip
            (folder / name).mkdir(parents=True)
        (folder / "opt/edgeyard").symlink_to(folder / "opt/edgeyard-first")
        (folder / "etc/systemd/system/edgeyard.service").write_text("unit")
        (folder / "etc/edgeyard/server.toml").write_text("user_max_pending = 77\n")
        (folder / "edgeyard-9.9.9-py3-none-any.whl").write_text("wheel")
        program = f'#!/bin/sh\nexec {sys.executable} -m edgeyard "$@"\n'
        for path in (folder / "edgeyard", folder / "opt/edgeyard-first/bin/edgeyard"):
            self._command(path, program)
        self._command(
            self.bin / "edgeyard", f'#!/bin/sh\nexec {folder}/opt/edgeyard/bin/edgeyard "$@"\n'
        )
        (folder / "await.py").write_text(AWAIT.format(port=self.port))
        names = {"lab": folder, "port": self.port, "python": sys.executable}
        self._command(self.bin / "systemctl", SYSTEMCTL.format(**names))
        self._command(self.bin / "python3", VENV.format(**names))

    @staticmethod
    def _command(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    @property
    def server(self) -> Server:
        token = (self.folder / "var/lib/edgeyard/admin.token").read_text().strip()
        return Server(f"http://127.0.0.1:{self.port}", self.port, None, token)  # type: ignore[arg-type]

    def run(self, script: str) -> str:
        """Type commands into a shell; what they print on stdout."""
        for place in ("/opt/", "/etc/", "/var/lib/", "/backup/"):
            script = re.sub(rf"(?<![\w/.-]){place}", f"{self.folder}{place}", script)
        token = self.folder / "var/lib/edgeyard/admin.token"
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.folder,
            env=os.environ
            | {"PATH": f"{self.bin}:{os.environ['PATH']}", "NO_COLOR": "1"}
            | {"EDGEYARD_URL": f"http://127.0.0.1:{self.port}"}
            | ({"EDGEYARD_TOKEN": token.read_text().strip()} if token.exists() else {}),
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def walk(self, page: str, *, heading: str = "", others: dict[str, str] | None = None) -> str:
        """Type the commands of a page, or of one of its sections; what they print."""
        text = (ROOT / "docs/how-to" / page).read_text("utf-8")
        if heading:
            text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        typed = "".join(each.typed for each in steps(text))
        for before, after in (others or {}).items():
            assert before in typed, before
            typed = typed.replace(before, after)
        return self.run(typed)

    def stop(self) -> None:
        """End the server, if it runs."""
        pid = self.folder / "pid"
        if pid.exists():
            try:
                os.kill(int(pid.read_text()), signal.SIGTERM)
            except ProcessLookupError:
                return
            for _ in range(200):
                try:
                    os.kill(int(pid.read_text()), 0)
                except ProcessLookupError:
                    return
                time.sleep(0.05)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    made.run("systemctl start")
    try:
        yield made
    finally:
        made.stop()


def a_result(lab: Lab) -> str:
    server = lab.server
    server.upload(MODEL)
    benchmark_id = server.submit({"model": MODEL.name, "target": "emumid", "nb_inference": 3})
    deadline = time.monotonic() + 120
    while server.show(benchmark_id)["status"] not in ("completed", "failed"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert server.show(benchmark_id)["status"] == "completed"
    return benchmark_id


def test_the_guide_of_backups_is_walked_from_top_to_bottom(lab: Lab) -> None:
    done = a_result(lab)
    ids = lab.server.call("GET", "/v1/tokens")["items"]
    others = {
        "0 2 * * * ": "",  # as cron runs the line
        r"date +\%u": "date +%u",
        # The database of this server is SQLite.
        "export EDGEYARD_DATABASE_URL_FILE=/etc/edgeyard/database.url": "rm /backup/edgeyard.tar",
        "edgeyard tokens revoke TOKEN_ID": ": tokens revoke TOKEN_ID",  # below, with the new one
    }
    printed = lab.walk("backup.md", others=others)
    assert "can be restored" in printed
    assert "; restored" in printed
    assert (lab.folder / "var/lib/edgeyard.before/edgeyard.db").exists()
    server = lab.server
    assert server.show(done)["status"] == "completed"
    assert server.call("GET", f"/v1/results?benchmark_id={done}")["items"]
    new = next(line for line in printed.splitlines() if re.fullmatch(r"ey_[\w-]{40,}", line))
    admin = Server(server.url, server.port, None, new)  # type: ignore[arg-type]
    acts = admin.call("GET", "/v1/events?type=token.added&limit=1")["items"]
    assert acts[0]["door"] == "server"
    lab.run(f"EDGEYARD_TOKEN={new} edgeyard tokens revoke {ids[0]['token_id']} --keep-made")
    with pytest.raises(RuntimeError, match="401"):
        server.call("GET", "/v1/users")


def test_the_guide_of_upgrades_is_walked_forth_back_and_to_the_end(lab: Lab) -> None:
    done = a_result(lab)
    first = (lab.folder / "opt/edgeyard").resolve()
    printed = lab.walk("upgrade.md", heading="Upgrade")
    assert "can be restored" in printed
    second = (lab.folder / "opt/edgeyard").resolve()
    assert first != second
    assert lab.server.show(done)["status"] == "completed"
    lab.walk("upgrade.md", heading="Back to the version before")
    assert (lab.folder / "opt/edgeyard").resolve() == first
    assert lab.server.show(done)["status"] == "completed"
    lab.walk("upgrade.md", heading="Uninstall")
    left = [
        each for name in ("opt", "etc/systemd/system") for each in (lab.folder / name).iterdir()
    ]
    assert left == []
    assert not (lab.folder / "var/lib/edgeyard").exists()
    assert not (lab.folder / "etc/edgeyard").exists()
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{lab.port}/livez")
