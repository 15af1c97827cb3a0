"""``make programs``: the programs of others that the tests run, where they are missing (Debian).

Most come from Debian's packages, unpacked into a cache folder with all that they need: nothing is
installed, no service starts, and no rights are needed. A few change the machine and are installed:
they are listed first, and at a terminal asked for. Without a terminal the list is all, and the exit
status is 1. ``YES=1`` and ``CI=true`` install them without a question.

axe-core, which checks pages for accessibility, is taken from its npm package into
the same folder; npm's client downloads it and runs nothing of it.

``python3 deploy/programs.py path`` prints the folder of the unpacked programs.
"""

from __future__ import annotations

import base64
import ctypes.util
import fcntl
import hashlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_HOME = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
CACHE = Path(_HOME if os.getuid() else "/var/cache") / "edgeyard/debian"
"""Root's home is closed to the users as whom PostgreSQL and sshd run."""
BIN = CACHE / "bin"
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BOARD_USER = "edgeyard-board"


@dataclass(frozen=True)
class Unpacked:
    """Programs that work from a folder.

    Attributes:
        name: For messages: what they are.
        packages: Debian packages that have them.
        programs: Path inside the packages, by the name of the command; ``*`` in it is a version.
    """

    name: str
    packages: tuple[str, ...]
    programs: Mapping[str, str]

    def is_there(self) -> bool:
        """Return whether all of them are found."""
        return all(find(each) is not None for each in self.programs)


@dataclass(frozen=True)
class Installed:
    """Something that changes the machine.

    Attributes:
        name: For the list: what it is, and for which tests.
        commands: Make it so, each as a list of words; run as root.
        is_there: Whether it is so already.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    is_there: Callable[[], bool]


def _apt(*packages: str) -> tuple[tuple[str, ...], ...]:
    return (("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages),)


def _has_board_user() -> bool:
    """Return whether there is a user who is not root: sshd's sessions of tests run as that one."""
    if os.getuid() != 0:
        return True
    shells = re.compile(r"/(ba|z|)sh$")
    return any(each.pw_uid != 0 and shells.search(each.pw_shell) for each in pwd.getpwall())


_POSTGRES = "usr/lib/postgresql/*/bin"
UNPACKED = (
    Unpacked(
        "PostgreSQL",
        ("postgresql",),
        {
            name: f"{_POSTGRES}/{name}"
            for name in ("initdb", "postgres", "pg_ctl", "pg_dump", "pg_restore")
        },
    ),
    Unpacked(
        "OpenSSH",
        ("openssh-server", "openssh-client"),
        {
            "sshd": "usr/sbin/sshd",
            **{name: f"usr/bin/{name}" for name in ("ssh", "ssh-keygen", "ssh-keyscan", "sftp")},
        },
    ),
    Unpacked("nginx", ("nginx-light",), {"nginx": "usr/sbin/nginx"}),
    Unpacked("libfaketime", ("faketime",), {"faketime": "usr/bin/faketime"}),
    Unpacked(
        "Docker",
        ("docker.io", "iptables"),
        {
            **{name: f"usr/bin/{name}" for name in ("docker", "containerd", "ctr", "docker-init")},
            "containerd-shim-runc-v2": "usr/bin/containerd-shim-runc-v2",
            **{name: f"usr/sbin/{name}" for name in ("dockerd", "docker-proxy", "runc")},
            "iptables": "usr/sbin/iptables-nft",
            "ip6tables": "usr/sbin/ip6tables-nft",
        },
    ),
    Unpacked(
        "a registry of images",
        ("docker-registry",),
        {"docker-registry": "usr/bin/docker-registry"},
    ),
    Unpacked(
        "Prometheus",
        ("prometheus",),
        {name: f"usr/bin/{name}" for name in ("prometheus", "promtool")},
    ),
)
INSTALLED = (
    Installed(
        "Chromium with its driver, which does not run unpacked",
        _apt("chromium", "chromium-driver"),
        lambda: find("chromium") is not None and find("chromedriver") is not None,
    ),
    Installed(
        "bubblewrap and libseccomp, which confine runs",
        _apt("bubblewrap", "libseccomp2"),
        lambda: find("bwrap") is not None and ctypes.util.find_library("seccomp") is not None,
    ),
    Installed(
        "systemd-analyze (package systemd), for the tests of the unit",
        _apt("systemd"),
        lambda: find("systemd-analyze") is not None,
    ),
    Installed(
        f"a user {_BOARD_USER} without a home, for the tests of boards behind ssh",
        (("useradd", "--system", "--no-create-home", "--shell", "/bin/sh", _BOARD_USER),),
        _has_board_user,
    ),
)


AXE_PACKAGE = "axe-core@4.14.1"
AXE_INTEGRITY = (
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NP"
    "jCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
AXE = CACHE / "axe-core-4.14.1.min.js"
"""Path of axe-core; its tests are skipped where it could not be fetched."""


def main(words: Sequence[str]) -> int:
    """Provide all that is missing; 1 where something that has to be installed is not."""
    if list(words) == ["path"]:
        sys.stdout.write(f"{BIN}\n")
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [each for each in UNPACKED if not each.is_there()]
        if missing and shutil.which("apt-get") is None:
            _say(
                "Missing, and no apt-get here; install your system's packages, or their tests are "
            )
            _say(f"skipped: {', '.join(each.name for each in missing)}.\n")
        elif missing:
            unpack(missing)
        if not AXE.exists():
            fetch_axe()
    return install([each for each in INSTALLED if not each.is_there()])


def unpack(missing: Sequence[Unpacked], root: Path | None = None) -> None:
    """Fetch Debian's packages and all that they need here, and unpack them.

    What can't be fetched is reported, and its tests are skipped (a failure where CI=true).
    """
    root = root or CACHE / "root"
    lists = CACHE / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    (CACHE / "archives/partial").mkdir(parents=True, exist_ok=True)
    # Lists and archives of our own: apt-get then needs no rights, and changes nothing.
    apt = [
        "apt-get",
        *("-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={CACHE}"),
        *("-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", "-qq"),
    ]
    _say(f"Fetching for the tests: {', '.join(each.name for each in missing)} ...\n")
    subprocess.run([*apt, "update"], stdout=subprocess.DEVNULL, check=False)
    for each in missing:
        simulated = subprocess.run(
            [*apt, "install", "-s", "--no-install-recommends", *each.packages],
            capture_output=True,
            text=True,
            check=False,
        )
        needed = re.findall(r"^Inst (\S+)", simulated.stdout, re.M)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            fetched = subprocess.run(
                [*apt, "download", *dict.fromkeys((*each.packages, *needed))],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            archives = sorted(Path(folder).glob("*.deb"))
            if simulated.returncode or fetched.returncode or not archives:
                said = (simulated.stderr + fetched.stderr).strip().splitlines()
                _say(f"{each.name} could not be fetched: {said[-1] if said else 'no packages'}\n")
                continue
            for archive in archives:
                subprocess.run(["dpkg", "-x", str(archive), str(root)], check=True)
        _link(each, root)


def fetch_axe() -> None:
    """Store axe-core in the cache; report why, where it could not be fetched."""
    _say(f"Fetching for the tests: {AXE_PACKAGE} ...\n")
    try:
        with npm_package(AXE_PACKAGE, AXE_INTEGRITY) as package:
            member = package.extractfile("package/axe.min.js")
            data = b"" if member is None else member.read()
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        _say(f"{AXE_PACKAGE} could not be fetched, and its tests are skipped: {error}\n")
        return
    temporary = AXE.with_suffix(".part")
    temporary.write_bytes(data)
    temporary.replace(AXE)


@contextmanager
def npm_package(package: str, integrity: str) -> Iterator[tarfile.TarFile]:
    """Open an npm package.

    Args:
        package: ``name@version``.
        integrity: Its hash, as the registry states it (``npm view PACKAGE dist.integrity``).

    Raises:
        OSError: There is no npm here.
        subprocess.CalledProcessError: It can't be downloaded.
        ValueError: It is another package.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", package, "--silent", "--ignore-scripts"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = Path(folder).glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if f"sha512-{found}" != integrity:
            raise ValueError(f"{package} has the hash sha512-{found}, not {integrity}")
        with tarfile.open(archive) as opened:
            yield opened


def _link(each: Unpacked, root: Path) -> None:
    """Make a command of each program, which finds its own libraries first."""
    BIN.mkdir(parents=True, exist_ok=True)
    folders = [root / "usr/lib", root / "lib"]
    folders += [each for folder in folders for each in sorted(folder.glob("*-linux-gnu*"))]
    # such as systemd/, which Debian's programs know by its full path
    folders += [each for folder in folders[2:] for each in sorted(folder.iterdir())]
    libraries = [str(each) for each in folders if any(each.glob("*.so*"))]
    for name, inside in each.programs.items():
        paths = sorted(root.glob(inside))
        if not paths:
            _say(f"{each.name}: its packages have no {inside}\n")
            continue
        text = (
            "#!/bin/sh\n"
            f'LD_LIBRARY_PATH="{":".join(libraries)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
            f'export LD_LIBRARY_PATH\nexec "{paths[-1]}" "$@"\n'
        )
        target = BIN / name
        temporary = target.with_suffix(".part")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(target)


def install(missing: Sequence[Installed]) -> int:
    """Install what changes the machine, after a question; return the exit status."""
    if not missing:
        return 0
    _say("The tests need, and it has to be installed (as root):\n")
    for each in missing:
        _say(f"  - {each.name}: {'; '.join(' '.join(words) for words in each.commands)}\n")
    agreed = os.environ.get("YES") == "1" or os.environ.get("CI") == "true"
    if not agreed and sys.stdin.isatty():
        _say("Install it now? [y/N] ")
        agreed = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not agreed:
        _say("Nothing is installed. `make test YES=1` does it without a question.\n")
        return 1
    _run_as_root(["apt-get", "update", "-qq"])
    for each in missing:
        if not all(_run_as_root(words) for words in each.commands):
            _say(f"{each.name} could not be installed: its tests are skipped.\n")
    return 0


def _run_as_root(words: Sequence[str]) -> bool:
    """Run a command as root, and return whether it succeeded."""
    root = [] if os.getuid() == 0 else ["sudo"] if sys.stdin.isatty() else ["sudo", "-n"]
    command = [*root, "env", "DEBIAN_FRONTEND=noninteractive", *words]
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        _say(f"There is no sudo; run as root: {' '.join(words)}\n")
        return False
    return done.returncode == 0


def find(name: str, first: str = "") -> str | None:
    """Return the path of a program: on PATH, in folders of the system, or unpacked; None: missing.

    Args:
        name: Of its file.
        first: Folders, separated by colons, that come before those of PATH.
    """
    path = ":".join(each for each in (first, os.environ.get("PATH", ""), _SYSTEM, str(BIN)) if each)
    found = shutil.which(name, path=path)
    if found is None:
        versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        found = str(versions[-1]) if versions else None
    return found


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
