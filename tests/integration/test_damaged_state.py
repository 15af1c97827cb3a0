"""What a server does with a damaged database, a damaged name and a foreign file store."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
from pathlib import Path

import httpx
import pytest

from edgeyard.benchmark_api.app import create_app
from edgeyard.benchmark_api.bootstrap import SERVER_ID_FILE, Server, check_file_store
from edgeyard.benchmark_api.connections import listen
from edgeyard.benchmark_api.main import EXIT_CONFIG, serve
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError
from edgeyard.scheduler.files import MARK_FILE, ContentFiles
from edgeyard.scheduler.store import SqlStore
from tests.builders import api as builders
from tests.builders.descriptions import description

pytestmark = pytest.mark.one_database(reason="pages of SQLite's file, and files of a folder")


def settings_of(folder: Path) -> Settings:
    return Settings.load(None, data_dir=folder)


LISTS = ("/v1/benchmarks", "/v1/files", "/v1/users", "/v1/queue", "/v1/tokens")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database of 150 benchmarks, and an operator's token."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "lab").mkdir()
    with builders.running(folder / "lab") as api:
        api.upload()
        for _ in range(150):
            assert api.as_().post("/v1/benchmarks", json=description()).is_success
        token = api.tokens["operator"]
    (path,) = (folder / "lab").glob("*.db")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder / "lab", token


@pytest.mark.parametrize("seed", range(6))
def test_a_server_is_not_ready_while_its_lists_can_t_be_read(
    filled: tuple[Path, str], tmp_path: Path, seed: int
) -> None:
    """Pages at random: whichever request fails, the server says that it is not ready."""
    whole, token = filled
    folder = tmp_path / "lab"
    shutil.copytree(whole, folder)
    (path,) = folder.glob("*.db")
    page = 4096
    pages = random.Random(seed).sample(range(2, path.stat().st_size // page), 20)
    with path.open("r+b") as file:
        for each in pages:
            file.seek(each * page)
            file.write(b"\xa5" * page)
    with listen("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            made, _ = builders.services(folder, url)
        except ConfigError:
            return  # refused at the start
        with builders.served(create_app(made), listener), httpx.Client(base_url=url) as client:
            first = client.get("/readyz?verbose").json()["checks"]["database"]
            client.headers["Authorization"] = f"Bearer {token}"
            answers = [client.get(each) for each in LISTS]
            ready = client.get("/readyz?verbose")
        made.store.close()
    failed = [each for each in answers if not each.is_success]
    assert {each.status_code for each in failed} <= {503}
    if failed:
        assert all("restore a backup" in each.json()["detail"] for each in failed)
        assert ready.status_code == 503
        assert "the database is damaged" in ready.json()["checks"]["database"]
    if answers[0] in failed:
        assert "the database is damaged" in first, "readiness reads what the list shows"


@pytest.mark.parametrize("content", [b"\xff\xfe\x80\n", b"", b"../../etc\n", b"a" * 10_000])
def test_a_damaged_name_of_a_server_ends_the_start(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / SERVER_ID_FILE).write_bytes(content)
    before = set(threading.enumerate())
    assert serve(tmp_path, port=0) == EXIT_CONFIG
    assert f"{SERVER_ID_FILE} is damaged" in capsys.readouterr().err
    assert not [each for each in threading.enumerate() if each not in before and not each.daemon]
    (tmp_path / SERVER_ID_FILE).unlink()
    Server(settings_of(tmp_path), port=1).close()


def test_servers_of_one_database_have_one_file_store(tmp_path: Path, sqlite_url: str) -> None:
    store = SqlStore(sqlite_url)
    first = settings_of(tmp_path / "first")
    files = ContentFiles(tmp_path / "first/files")
    check_file_store(first, store, files)
    check_file_store(first, store, ContentFiles(tmp_path / "first/files"))

    second = settings_of(tmp_path / "second")
    other = ContentFiles(tmp_path / "second/files")
    with pytest.raises(ConfigError, match="has no files of this database") as refused:
        check_file_store(second, store, other)
    assert str(tmp_path / "second/files") in str(refused.value)
    mark = files.mark()
    assert mark is not None
    assert mark in str(refused.value)
    (tmp_path / "second/files" / MARK_FILE).write_text(mark)  # as the error says
    check_file_store(second, store, other)
    store.close()


def test_a_file_store_of_another_database_is_refused(tmp_path: Path) -> None:
    """Each would remove what only the other one names."""
    files = ContentFiles(tmp_path / "files")
    settings = settings_of(tmp_path)
    first, second = (SqlStore(f"sqlite:///{tmp_path}/{name}.db") for name in ("a", "b"))
    check_file_store(settings, first, files)
    with pytest.raises(ConfigError, match="is another database's"):
        check_file_store(settings, second, files)
    first.close()
    second.close()


def test_a_start_that_was_killed_between_the_two_marks_is_completed(
    tmp_path: Path, sqlite_url: str
) -> None:
    store = SqlStore(sqlite_url)
    store.transact(lambda uow: uow.files.store_mark("0" * 32))
    settings, files = settings_of(tmp_path), ContentFiles(tmp_path / "files")
    check_file_store(settings, store, files)
    assert files.mark() == "0" * 32
    files.set_mark("1" * 32)
    with pytest.raises(ConfigError):
        check_file_store(settings, store, files)
    store.close()
