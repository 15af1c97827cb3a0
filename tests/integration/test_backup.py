"""Backups of a running server, on full disks, under load, and over other databases."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner, Result

from deploy import programs
from edgeyard.benchmark_api.bootstrap import lock_data_dir
from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.migrate import revisions
from tests.builders.api import Api, running
from tests.builders.model_files import a_model_file
from tests.databases import database_in, stored_text
from tests.integration.test_full_disk import fill, mounted

KEYS = {"webhook.key": b"k" * 32, "admin.token": b"secret-token\n", "server.id": b"01234567\n"}
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def programs_of_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find those that `make programs` has unpacked too."""
    found = programs.find("pg_dump")
    if found is not None:
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{Path(found).parent}")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``edgeyard server`` for a data folder, and the database of that folder."""

    def run_it(*words: object, data: Path | None = None, url: str = "") -> Result:
        chosen = [] if data is None else ["--data-dir", str(data)]
        url = url or ("" if data is None else database_in(data))
        if url.startswith("postgres"):
            monkeypatch.setenv("EDGEYARD_DATABASE_URL", url)
        return CliRunner().invoke(app, ["server", *map(str, words), *chosen])

    return run_it


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Api]:
    """A server with keys, files, benchmarks and a drained board, which goes on serving."""
    data = tmp_path / "data"
    data.mkdir()
    with running(data) as api:
        for name, content in KEYS.items():
            (data / name).write_bytes(content)
        api.services.files.set_mark("mark-of-this-store")
        for name in ("a.onnx", "b.onnx"):
            api.upload(name, a_model_file(fill=name[:1].encode()))
            api.submit(model=name)
        api.as_("operator").post("/v1/boards/rpi4b-0001-0001/drain", json={"reason": "dust"})
        yield api


@pytest.fixture
def data(tmp_path: Path, lab: Api) -> Path:
    return tmp_path / "data"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    yield from mounted(tmp_path / "disk", 24)


def empty_database(folder: Path, request: pytest.FixtureRequest) -> str:
    """URL of a database with nothing in it, of the kind that the tests run on."""
    if request.getfixturevalue("each_database") == "postgres":
        return str(request.getfixturevalue("empty_postgres_url"))
    return f"sqlite:///{folder}/edgeyard.db"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "files").glob("??/??/*")}


def refuse_what_is_left(left: str, file: Path, new: Path, run: Run, url: str) -> None:
    """A file of another server in the folder is named, and stays as it is."""
    new.mkdir()
    (new / left).write_bytes(b"of another")
    refused = run("restore", file, data=new, url=url)
    assert refused.exit_code == 1
    assert left in refused.stderr
    assert (new / left).read_bytes() == b"of another"


def test_a_backup_of_a_running_server_is_restored_whole(
    lab: Api, data: Path, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    file, new = tmp_path / "lab.tar", tmp_path / "new"
    made = run("backup", file, data=data)
    assert made.exit_code == 0, made.output
    assert "2 files" in made.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] in (["data", "lab.tar"], ["lab.tar", "data"])
    checked = run("restore", file, "--check")
    assert (checked.exit_code, "can be restored" in checked.stdout) == (0, True), checked.output

    before, url = stored_text(database_in(data)), empty_database(new, request)
    restored = run("restore", file, data=new, url=url)
    assert restored.exit_code == 0, restored.output
    assert stored_text(url) == before
    assert contents(new) == contents(data)
    assert len(contents(new)) == 2
    for name, content in KEYS.items():
        assert (new / name).read_bytes() == content
        assert stat.S_IMODE((new / name).stat().st_mode) == 0o600
    assert (new / "files/store.id").read_text() == "mark-of-this-store\n"
    SqlStore(url).close()  # a server opens it
    assert not list(new.glob(".*"))


def test_a_backup_replaces_nothing_unless_asked(data: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "lab.tar"
    file.write_text("another")
    refused = run("backup", file, data=data)
    assert (refused.exit_code, file.read_text()) == (1, "another")
    assert "--force" in refused.stderr
    assert run("backup", file, "--force", data=data).exit_code == 0
    assert run("restore", file, "--check").exit_code == 0


def test_a_backup_under_load_has_all_that_was_answered_before_it_and_fits_together(
    lab: Api, data: Path, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    stop = threading.Event()
    answered: list[str] = []

    def submit() -> None:
        while not stop.is_set():
            answered.append(lab.submit(model="a.onnx"))

    threads = [threading.Thread(target=submit) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        while len(answered) < 4:
            stop.wait(0.01)
        known = list(answered)
        made = run("backup", tmp_path / "lab.tar", data=data)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert made.exit_code == 0, made.output
    url = empty_database(tmp_path / "new", request)
    restored = run("restore", tmp_path / "lab.tar", data=tmp_path / "new", url=url)
    assert restored.exit_code == 0, restored.output
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        stored = connection.execute(text("SELECT benchmark_id FROM benchmarks")).scalars().all()
        counted = connection.execute(text("SELECT sum(stored) FROM status_counts")).scalar()
        described = connection.execute(text("SELECT count(*) FROM descriptions")).scalar()
    engine.dispose()
    assert set(known) <= set(stored)
    assert counted == described == len(stored)


@pytest.mark.parametrize("what", ["database", "content"])
def test_a_full_disk_leaves_no_backup_and_the_one_before_it(
    lab: Api, data: Path, disk: Path, run: Run, what: str
) -> None:
    file = disk / "lab.tar"
    assert run("backup", file, data=data).exit_code == 0
    before = file.read_bytes()
    if what == "content":
        lab.upload("large.onnx", os.urandom(24 * 2**20))
    else:
        fill(disk)
    refused = run("backup", file, "--force", data=data)
    assert refused.exit_code == 1, refused.output
    assert "full" in refused.stderr or "of room" in refused.stderr, refused.stderr
    assert file.read_bytes() == before
    assert {each.name for each in disk.iterdir()} <= {"lab.tar", "filler"}
    (disk / "filler").unlink(missing_ok=True)
    assert run("restore", file, "--check").exit_code == 0


@pytest.mark.parametrize("which", ["newer", "older"])
def test_a_backup_is_never_restored_over_a_database(
    lab: Api, data: Path, tmp_path: Path, run: Run, which: str
) -> None:
    assert run("backup", tmp_path / "lab.tar", data=data).exit_code == 0
    other = data
    if which == "newer":
        lab.submit(model="a.onnx")
    else:
        other = tmp_path / "other"
        other.mkdir()
        SqlStore(database_in(other)).close()
    words = "newer" if which == "newer" else "no newer"
    before = stored_text(database_in(other))
    refused = run("restore", tmp_path / "lab.tar", data=other)
    assert refused.exit_code == 1
    assert f"is a database already, {words} than" in refused.stderr
    assert "Nothing was changed" in refused.stderr
    assert stored_text(database_in(other)) == before


def test_a_backup_of_a_newer_edgeyard_is_refused(
    lab: Api, data: Path, tmp_path: Path, run: Run
) -> None:
    engine = create_engine(database_in(data).replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert run("backup", tmp_path / "lab.tar", data=data).exit_code == 0
    with engine.begin() as connection:
        assert connection.execute(text("SELECT * FROM alembic_version")).scalar() == "9999"
        head = revisions()[1]
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{head}'"))
    engine.dispose()
    for words in (("--check",), ()):
        refused = run("restore", tmp_path / "lab.tar", *words, data=tmp_path / "new")
        assert refused.exit_code == 1
        assert "use the newer Edgeyard that made it" in refused.stderr


def _members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[700] ^= 1  # within the database
    file.write_bytes(content)


def _drop_manifest(file: Path) -> None:
    found = _members(file)
    del found["manifest.json"]
    _write(file, found)


def _add_a_way_out(file: Path) -> None:
    _write(file, {"../../escaped": b"x", **_members(file)})


def _swap_content(file: Path) -> None:
    found = _members(file)
    name = next(each for each in found if each.startswith("files/") and "store" not in each)
    found[name] = b"another model"
    _write(file, found)


def _write(file: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(file, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        _drop_manifest,
        _add_a_way_out,
        _swap_content,
        lambda file: file.write_bytes(b"no archive" * 1000),
        lambda file: file.write_bytes(b""),
        lambda file: file.unlink(),
    ],
)
def test_a_damaged_backup_is_named_and_changes_nothing(
    lab: Api,
    data: Path,
    tmp_path: Path,
    run: Run,
    damage: Callable[[Path], object],
    request: pytest.FixtureRequest,
) -> None:
    file, new = tmp_path / "lab.tar", tmp_path / "new"
    assert run("backup", file, data=data).exit_code == 0
    damage(file)
    for words in (("--check",), ()):
        refused = run("restore", file, *words, data=new, url=empty_database(new, request))
        assert refused.exit_code == 1, refused.output
        assert "lab.tar" in refused.stderr
        assert not list(new.rglob("*"))
    assert not (tmp_path.parent / "escaped").exists()


@pytest.mark.slow
def test_a_backup_that_is_killed_is_no_backup(
    lab: Api, data: Path, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "lab.tar"
    url = database_in(data)
    chosen = {"EDGEYARD_DATABASE_URL": url} if url.startswith("postgres") else {}
    words = [sys.executable, "-m", "edgeyard", "server", "backup", str(file)]
    killed = subprocess.run(
        [*words, "--data-dir", str(data)],
        env=os.environ | chosen | {"EDGEYARD_FAILPOINT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 137, killed.stderr
    assert "backup:manifest" in killed.stderr
    assert not file.exists()
    assert run("backup", file, data=data).exit_code == 0
    assert run("restore", file, "--check").exit_code == 0


def test_nothing_is_restored_into_the_folder_of_a_server_that_runs(
    lab: Api, data: Path, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    file, new = tmp_path / "lab.tar", tmp_path / "new"
    assert run("backup", file, data=data).exit_code == 0
    new.mkdir()
    with lock_data_dir(new):
        refused = run("restore", file, data=new, url=empty_database(new, request))
    assert refused.exit_code == 1
    assert "another server uses" in refused.stderr


def test_a_key_that_is_left_of_another_server_is_not_mixed_with_a_backup(
    lab: Api, data: Path, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    file, new = tmp_path / "lab.tar", tmp_path / "new"
    assert run("backup", file, data=data).exit_code == 0
    refuse_what_is_left("webhook.key", file, new, run, empty_database(new, request))


def test_files_may_be_listed_only_and_missing_ones_are_counted(
    lab: Api, data: Path, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    file, new = tmp_path / "lab.tar", tmp_path / "new"
    made = run("backup", file, "--no-files", "--json", data=data)
    document = json.loads(made.stdout)
    assert (document["content"], document["listed"]) == (0, 2)
    assert "2 files in" in document["not_included"][-1]
    shutil.copytree(data / "files", new / "files")
    next((new / "files").glob("??/??/*")).unlink()
    restored = run("restore", file, data=new, url=empty_database(new, request))
    assert restored.exit_code == 0, restored.output
    assert "1 files of the list are not in the file store" in restored.stderr


def test_what_the_settings_name_and_a_backup_lacks_is_listed(
    lab: Api, data: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "target.json").write_text("{}")
    settings = tmp_path / "server.toml"
    settings.write_text(f'inventory = "{tmp_path}/target.json"\n')
    made = run("backup", tmp_path / "lab.tar", "--config", settings, data=data)
    assert made.exit_code == 0, made.output
    assert "server.toml" in made.stderr
    assert "target.json" in made.stderr


def test_a_folder_without_a_database_is_named(tmp_path: Path, run: Run) -> None:
    refused = run("backup", tmp_path / "x.tar", data=tmp_path, url="sqlite:///unused")
    assert refused.exit_code == 1
    assert "has no database: set --data-dir" in refused.stderr


def test_a_password_is_not_among_the_arguments_of_pg_dump(
    tmp_path: Path, run: Run, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    dump = folder / "pg_dump"
    dump.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\necho "$PGPASSWORD" >{tmp_path}/env\n'
                    'echo "no such role" >&2\nexit 1\n')  # fmt: skip
    dump.chmod(0o755)
    url = postgres_url.replace("edgeyard@", "edgeyard:CANARY@")
    with psycopg.connect(url):
        pass
    refused = run(
        "backup", tmp_path / "x.tar", "--pg-programs", folder, data=tmp_path / "data", url=url
    )
    assert refused.exit_code == 1
    assert "no such role" in refused.stderr
    assert "CANARY" not in (tmp_path / "words").read_text() + refused.output
    assert (tmp_path / "env").read_text() == "CANARY\n"
    missing = run("backup", tmp_path / "x.tar", "--pg-programs", tmp_path, data=tmp_path, url=url)
    assert missing.exit_code == 1
    assert "pg_dump can't be run" in missing.stderr


@pytest.mark.parametrize("was", ["there", "disabled", "no operator", "never made"])
def test_a_lost_admin_token_is_replaced_on_the_machine(
    lab: Api, data: Path, run: Run, was: str
) -> None:
    if was != "never made":
        assert run("admin-token", data=data).exit_code == 0
    if was in ("disabled", "no operator"):
        change = {"disabled": True} if was == "disabled" else {"role": "submitter"}
        answer = lab.as_("operator").patch("/v1/users/admin", json=change)
        assert answer.status_code == 200, answer.text
    made = run("admin-token", "--reason", "lost it", data=data)
    assert made.exit_code == 0, made.output
    (token,) = made.stdout.splitlines()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=lab.url, headers=headers, trust_env=False) as client:
        users = client.get("/v1/users")
        assert users.status_code == 200, users.text
        acts = client.get("/v1/events?type=token.added&limit=1").json()["items"]
    assert (acts[0]["door"], acts[0]["reason"]) == ("server", "lost it")
    assert acts[0]["user_id"].startswith("local:")
    assert token not in stored_text(database_in(data))
