"""``make release VERSION=0.2.0``: check the tree, then make all that a release publishes.

Everything is made in a clone of what is committed, so that nothing of this checkout gets into it,
and this checkout changes only when all of it was made: by a commit with the changelog's section,
the version and the stored databases that later versions are upgraded from, and the tag ``v0.2.0``.
``dist/0.2.0`` then has wheel, source distribution, the runner as one file, container images where
an engine is at hand, an SBOM (CycloneDX) and ``SHA256SUMS``. Nothing is published and nothing is
pushed.

``make release-tree VERSION=0.2.0`` makes the commit alone, to be tested. Until the version has its
tag it may be repeated after further commits, for example after another migration.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
CHANGELOG = "CHANGELOG.md"
_INIT = "src/edgeyard/__init__.py"
_UNRELEASED = "## [Unreleased]\n"
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.M)
_FOR_DEVELOPERS = "dev"
"""The extra whose packages no release brings."""


class Refused(Exception):
    """The tree is not fit for this release; the text states why."""


def release(version: str, root: Path = ROOT) -> Path:
    """Make a release of what is committed, and return the folder with its files.

    Args:
        version: Such as ``0.2.0``.
        root: The checkout.

    Raises:
        Refused: Nothing was changed.
        subprocess.CalledProcessError: A step failed; nothing was changed.
    """
    target = root / "dist" / version
    with _prepared(version, root) as clone:
        made = clone.with_name("dist")
        made.mkdir()
        build(clone, made, version)
        _git(root, "pull", "--quiet", "--ff-only", str(clone), "HEAD")
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(made, target)
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"Edgeyard {version}")
    return target


def prepare(version: str, root: Path = ROOT) -> None:
    """Commit what a release changes in the tree, and build nothing.

    Raises:
        Refused: Nothing was changed.
        subprocess.CalledProcessError: A step failed, such as that another commit was made
            meanwhile; nothing was changed.
    """
    with _prepared(version, root) as clone:
        _git(root, "pull", "--quiet", "--ff-only", str(clone), "HEAD")


@contextmanager
def _prepared(version: str, root: Path) -> Iterator[Path]:
    """A clone with the commit of a release: version, changelog, reference, stored databases.

    Where that commit is the newest one already, it is taken as it was tested.
    """
    check(version, root)
    subject = f"release: {version}"
    with tempfile.TemporaryDirectory(prefix="edgeyard-release-") as name:
        clone = Path(name) / "edgeyard"
        _git(root, "clone", "--quiet", "--no-hardlinks", str(root), str(clone))
        if _git(clone, "log", "-1", "--format=%s") != subject:
            for key in ("user.name", "user.email"):
                _git(clone, "config", key, _git(root, "config", key))
            environment = {**os.environ, "PYTHONPATH": f"{clone / 'src'}:{clone}"}
            _write_version(clone, version)
            _run(clone, environment, sys.executable, "-m", "deploy.reference")
            _git(clone, "commit", "--quiet", "--all", "--allow-empty", "-m", subject)
            store = "tests.data.make_stored_database"
            _run(clone, environment, sys.executable, "-m", store, "HEAD", version)
            _git(clone, "add", "tests/data")
            _git(clone, "commit", "--quiet", "--amend", "--no-edit")
        yield clone


def check(version: str, root: Path) -> None:
    """Check that a checkout may become this release.

    Raises:
        Refused: With every reason.
    """
    reasons = []
    init = (root / _INIT).read_text("utf-8")
    (present,) = _VERSION.findall(init)
    tagged = bool(_git(root, "tag", "--list", f"v{version}"))
    prepared = not tagged and _heading(version).search((root / CHANGELOG).read_text("utf-8"))
    try:
        if str(Version(version)) != version:
            reasons.append(f"VERSION={version}: write {Version(version)}")
        elif Version(version) < Version(present) or (version == present and not prepared):
            reasons.append(f"VERSION={version}: the tree is {present} already; use a later one")
    except InvalidVersion:
        reasons.append(f"VERSION={version!r} is not a version: use such as VERSION=0.2.0")
    if tagged:
        reasons.append(f"the tag v{version} is there already")
    if (root / "dist" / version).exists():
        reasons.append(f"{root / 'dist' / version} is there already: remove it")
    if changed := _git(root, "status", "--porcelain").splitlines():
        reasons.append(f"{len(changed)} files are not committed, such as {changed[0][3:]}")
    unreleased = _unreleased(root).strip()
    if prepared and unreleased:
        reasons.append(f"{CHANGELOG} has a section [{version}]: move what is under [Unreleased]")
    elif not prepared and not unreleased:
        reasons.append(f"{CHANGELOG} has nothing under [Unreleased]")
    reasons += _outdated(root)
    if reasons:
        raise Refused("\n".join(reasons))


def build(source: Path, target: Path, version: str) -> None:
    """Make all files of a release of a tree that is committed, the checksums last."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    python = sys.executable
    when = _git(source, "log", "-1", "--format=%ct")
    environment["SOURCE_DATE_EPOCH"] = when  # the same commit gives the same bytes
    _run(source, environment, python, "-m", "build", "--no-isolation", "--outdir", str(target))
    runner = target / f"edgeyard-runner-{version}.pyz"
    _run(source, environment, python, "-m", "edgeyard.devices.runner.pyz", str(runner))
    _write_sbom(source, target / f"edgeyard-{version}.cdx.json", version, environment)
    if not _has_engine():
        _say("images are left out: no container engine is at hand")
    else:
        environment["PYTHONPATH"] += f":{source}"
        words = (
            python,
            "-m",
            "deploy.containers",
            "--tag",
            version,
            "--out",
            str(source / "build"),
        )
        _run(source, environment, *words)
        for archive in (source / "build").glob("images-*.tar"):
            shutil.copy(archive, target / f"edgeyard-{archive.stem}-{version}.tar")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(target.iterdir())
    ]
    (target / "SHA256SUMS").write_text("".join(lines))


def published_requirements(root: Path) -> list[str]:
    """Return the locked packages that an installation with all extras brings, with their hashes."""
    wanted = set(_closure())
    blocks = re.split(r"\n(?=\S)", (root / "requirements.lock").read_text("utf-8"))
    found = []
    for block in blocks:
        match = re.match(r"([\w.-]+)(\[[^\]]*\])?==", block)
        if match and canonicalize_name(match[1]) in wanted:
            found.append(block)
    return found


def _closure() -> Iterator[str]:
    """Yield the names of all packages that Edgeyard's extras need, those of developers aside."""
    open_: list[tuple[str, str]] = [("edgeyard", extra) for extra in _extras()]
    open_.append(("edgeyard", ""))
    seen = set(open_)
    while open_:
        name, extra = open_.pop()
        if name != "edgeyard":
            yield name
        try:
            stated = requires(name) or []
        except PackageNotFoundError:
            continue  # of another system or Python
        for text in stated:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not marker.evaluate({"extra": extra}):
                continue
            for more in ("", *requirement.extras):
                pair = (canonicalize_name(requirement.name), more)
                if pair not in seen:
                    seen.add(pair)
                    open_.append(pair)


def _extras() -> set[str]:
    texts = "\n".join(requires("edgeyard") or [])
    return set(re.findall(r"extra == ['\"]([\w-]+)['\"]", texts)) - {_FOR_DEVELOPERS}


def _write_sbom(source: Path, target: Path, version: str, environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        locked = Path(name) / "requirements.txt"
        locked.write_text("\n".join(published_requirements(source)) + "\n")
        words = [sys.executable, "-m", "cyclonedx_py", "requirements", str(locked)]
        words += ["--pyproject", str(source / "pyproject.toml"), "--mc-type", "application"]
        words += ["--output-reproducible", "--of", "JSON", "-o", str(target)]
        _run(source, environment, *words)
    document = json.loads(target.read_text())
    document["metadata"]["component"]["version"] = version  # pyproject.toml leaves it to setuptools
    target.write_text(json.dumps(document, indent=2) + "\n")


def _has_engine() -> bool:
    """Return whether a Docker answers, which the images were tried in."""
    found = shutil.which("docker")
    return (
        found is not None and subprocess.run([found, "info"], capture_output=True).returncode == 0
    )


def _write_version(root: Path, version: str) -> None:
    """State the version in the package, and make the changelog's section of it."""
    init = root / _INIT
    init.write_text(_VERSION.sub(f'__version__ = "{version}"', init.read_text("utf-8")), "utf-8")
    changelog = root / CHANGELOG
    text = _heading(version).sub("", changelog.read_text("utf-8"))  # of a tree that was prepared
    heading = f"{_UNRELEASED}\n## [{version}] - {datetime.now(UTC):%Y-%m-%d}\n"
    changelog.write_text(text.replace(_UNRELEASED, heading, 1), "utf-8")


def _heading(version: str) -> re.Pattern[str]:
    """Return the pattern of a version's heading in the changelog, with the empty line above it."""
    return re.compile(rf"\n## \[{re.escape(version)}\] - [\d-]+\n")


def _unreleased(root: Path) -> str:
    text = (root / CHANGELOG).read_text("utf-8")
    _, _, after = text.partition(_UNRELEASED)
    return re.split(r"^## ", after, maxsplit=1, flags=re.M)[0]


def _outdated(root: Path) -> list[str]:
    """Return the reference pages that are not what ``make docs`` writes."""
    program = (
        "from deploy.reference import DOCUMENTS, FOLDER\n"
        "for name, text in DOCUMENTS.items():\n"
        "    if (FOLDER / name).read_text('utf-8') != text():\n"
        "        print(name)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    done = _run(root, environment, sys.executable, "-c", program)
    return [f"docs/reference/{name} is not up to date: make docs" for name in done.split()]


def _git(root: Path, *words: str) -> str:
    return _run(root, dict(os.environ), "git", *words).strip()


def _run(root: Path, environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        done.check_returncode()
    return done.stdout


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(words: Sequence[str]) -> int:
    """Make the release that the argument names, or with ``--tree`` its commit alone."""
    versions = [each for each in words if each != "--tree"]
    if len(versions) != 1:
        _say("name a version: make release VERSION=0.2.0")
        return 2
    try:
        if "--tree" in words:
            prepare(versions[0])
            _say(f"committed as release: {versions[0]}, without a tag")
            return 0
        made = release(versions[0])
    except Refused as error:
        _say(f"nothing was changed:\n{error}")
        return 1
    except subprocess.CalledProcessError as error:
        _say(f"nothing was released: {' '.join(map(str, error.cmd[:4]))} failed, see above")
        return 1
    for path in sorted(made.iterdir()):
        sys.stdout.write(f"{path}\n")
    _say(f"committed and tagged as v{versions[0]}; push both when `make test` has passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
