"""``make release`` in a clone of what is committed: what it refuses, and all that it makes."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.containers import rootfs
from edgeyard import __version__
from edgeyard.installing import commit, schema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("release")]

VERSION = "9.9.0"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, clone_to: Callable[[Path], None]) -> Path:
    folder = tmp_path_factory.mktemp("release") / "edgeyard"
    clone_to(folder)
    if not (folder / ".git").exists():
        pytest.skip("releases are made of a git checkout")
    git(folder, "config", "user.name", "tester")
    git(folder, "config", "user.email", "tester@edgeyard.test")
    return folder


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def release(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it where no engine answers: images take minutes, and have tests of their own."""
    environment = os.environ | {
        "PYTHONPATH": f"{folder / 'src'}:{folder}",
        "DOCKER_HOST": "unix:///nowhere",
    }
    return subprocess.run(
        [sys.executable, "-m", "deploy.release", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_tree_that_is_not_fit_is_refused_with_every_reason_and_not_changed(
    checkout: Path,
) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    changelog = checkout / "CHANGELOG.md"
    kept = changelog.read_text("utf-8")
    head, _, rest = kept.partition("## [Unreleased]\n")
    settings = checkout / "docs/reference/settings.md"
    page = settings.read_text("utf-8")
    git(checkout, "tag", f"v{__version__}")
    try:
        changelog.write_text(head + "## [Unreleased]\n\n## [0.0.1]\n" + rest, "utf-8")
        settings.write_text(page + "by hand\n", "utf-8")
        refused = release(checkout, __version__)
        assert refused.returncode == 1
        for reason in (
            "nothing was changed",
            f"the tree is {__version__} already",
            f"the tag v{__version__} is there already",
            "2 files are not committed",
            "has nothing under [Unreleased]",
            "settings.md is not up to date: make docs",
        ):
            assert reason in refused.stderr, refused.stderr
    finally:
        git(checkout, "tag", "--delete", f"v{__version__}")
        git(checkout, "checkout", "--quiet", ".")
    for wrong in ("next", "1.0.0-beta 1", "01.2"):
        refused = release(checkout, wrong)
        assert refused.returncode == 1
        assert wrong in refused.stderr
    assert release(checkout).returncode == 2
    assert git(checkout, "rev-parse", "HEAD") == before
    assert not (checkout / "dist").exists()


def test_images_are_built_where_no_environment_is_and_state_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    root = tmp_path / "root"
    root.mkdir()
    rootfs.install_edgeyard(root, tmp_path)
    (stated,) = root.rglob("edgeyard/COMMIT")
    assert stated.read_text().strip() == commit() != "unknown"


@pytest.mark.postgres
def test_a_release_has_all_that_is_published_and_states_what_it_is(
    checkout: Path, tmp_path: Path
) -> None:
    changelog = checkout / "CHANGELOG.md"
    head, _, rest = changelog.read_text("utf-8").partition("## [Unreleased]\n")
    changelog.write_text(f"{head}## [Unreleased]\n\n### Added\n\n- One.\n{rest}", "utf-8")
    git(checkout, "commit", "--all", "--message", "one")
    prepared = release(checkout, "--tree", VERSION)
    assert prepared.returncode == 0, prepared.stderr
    assert git(checkout, "log", "-1", "--format=%s") == f"release: {VERSION}"
    assert git(checkout, "tag", "--list", f"v{VERSION}") == ""
    text = changelog.read_text("utf-8")
    section = rf"## \[Unreleased\]\n\n## \[{VERSION}\] - \d{{4}}-\d\d-\d\d\n\n### Added\n\n- One"
    assert len(re.findall(section, text)) == text.count(f"[{VERSION}]") == 1
    later = "## [Unreleased]\n\n- Two.\n"
    changelog.write_text(text.replace("## [Unreleased]\n", later), "utf-8")
    git(checkout, "commit", "--all", "--message", "two")
    refused = release(checkout, VERSION)
    assert f"has a section [{VERSION}]: move what is under [Unreleased]" in refused.stderr
    git(checkout, "reset", "--quiet", "--hard", "HEAD~")

    prepared_commit = git(checkout, "rev-parse", "HEAD")
    made = release(checkout, VERSION)
    assert made.returncode == 0, made.stderr
    assert git(checkout, "rev-parse", "HEAD") == prepared_commit
    assert "images are left out: no container engine is at hand" in made.stderr
    folder = checkout / "dist" / VERSION
    wheel, source = f"edgeyard-{VERSION}-py3-none-any.whl", f"edgeyard-{VERSION}.tar.gz"
    runner, sbom = f"edgeyard-runner-{VERSION}.pyz", f"edgeyard-{VERSION}.cdx.json"
    assert {each.name for each in folder.iterdir()} == {wheel, source, runner, sbom, "SHA256SUMS"}

    commit = git(checkout, "rev-parse", "HEAD")
    assert git(checkout, "rev-parse", f"v{VERSION}^{{commit}}") == commit
    assert git(checkout, "status", "--porcelain") == ""
    text = changelog.read_text("utf-8")
    assert len(re.findall(section, text)) == text.count(f"[{VERSION}]") == 1
    assert rest.strip() in text
    openapi = json.loads((checkout / "docs/reference/openapi.json").read_text("utf-8"))
    assert openapi["info"]["version"] == VERSION
    for kind in ("sqlite", "postgresql"):
        stored = (checkout / f"tests/data/stored_{VERSION}_{kind}.sql.gz").read_bytes()
        assert f"'{schema()}'" in gzip.decompress(stored).decode()

    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    with zipfile.ZipFile(folder / wheel) as archive:
        assert archive.read("edgeyard/COMMIT").decode().strip() == commit[:12]
        archive.extractall(tmp_path / "site")
    stated = subprocess.run(
        [sys.executable, "-m", "edgeyard", "--version"],
        cwd=tmp_path / "site",
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert stated.startswith(f"edgeyard {VERSION} (commit {commit[:12]}, schema ")
    with tarfile.open(folder / source) as archive:
        inside = archive.extractfile(f"edgeyard-{VERSION}/src/edgeyard/COMMIT")
        assert inside is not None
        assert inside.read().decode().strip() == commit[:12]
    answered = subprocess.run(
        [sys.executable, str(folder / runner), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answered.stdout == f"edgeyard-runner {VERSION}\n"

    bill = json.loads((folder / sbom).read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == (
        "edgeyard",
        VERSION,
    )
    locked = (checkout / "requirements.lock").read_text()
    versions = {each["name"]: each["version"] for each in bill["components"]}
    for name in ("numpy", "sqlalchemy", "psycopg", "boto3", "onnxruntime", "jax"):
        assert f"\n{name}=={versions[name]}" in f"\n{locked}".replace("[binary]", "")
    assert not {"pytest", "mypy", "ruff", "cyclonedx-bom"} & set(versions)
    assert all(each.get("hashes") or each.get("externalReferences") for each in bill["components"])

    again = release(checkout, VERSION)
    assert again.returncode == 1
    assert "is there already" in again.stderr
