"""Uploads that break off go on where they ended, and nothing hostile gets a file by them."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeyard import Client
from edgeyard.benchmark_api.routes.uploads import MIN_PIECE_BYTES, PIECE_BYTES
from edgeyard.benchmark_api.sdk import ServerNotReached
from edgeyard.benchmark_api.sdk.resuming import RESUME_FROM_BYTES
from edgeyard.errors import OutOfSpace
from edgeyard.scheduler.engine.housekeeping import collect_garbage
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.s3_files import S3Access, S3Files
from tests.builders.api import Api, running

MIB = 2**20


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path / "server", user_max_bytes=100 * MIB, user_max_files=50) as found:
        yield found


def metadata(name: str, content: bytes | None) -> str:
    pairs = {"filename": name}
    if content is not None:
        pairs["sha256"] = hashlib.sha256(content).hexdigest()
    return ",".join(
        f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs.items()
    )


def begin(
    api: Api, content: bytes, *, name: str = "net.onnx", who: str = "alice", known: bool = True
) -> httpx.Response:
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": str(len(content)),
        "Upload-Metadata": metadata(name, content if known else None),
    }
    return api.as_(who).post("/v1/uploads", headers=headers)


def send(api: Api, where: str, data: bytes, offset: int, who: str = "alice") -> httpx.Response:
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Offset": str(offset),
        "Content-Type": "application/offset+octet-stream",
    }
    return api.as_(who).patch(where, content=data, headers=headers)


def begun(api: Api, content: bytes, **options: Any) -> str:
    answer = begin(api, content, **options)
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (201, "0"), answer.text
    return httpx.URL(answer.headers["Location"]).path


def files(api: Api, who: str = "alice") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.as_(who).get("/v1/files").json()["items"]
    return items


def stored_bytes(api: Api, who: str = "alice") -> int:
    with api.store.read() as uow:
        return uow.usage.stored_bytes(who)


def content_of(api: Api) -> list[Path]:
    return [*api.files._root.glob("??/??/*")]


def on_disk(api: Api) -> int:
    return sum(path.stat().st_size for path in content_of(api))


def test_pieces_become_the_file_with_the_last_byte(api: Api) -> None:
    content = os.urandom(3 * MIB + 5)
    where = begun(api, content)
    first = send(api, where, content[:MIB], 0)
    assert (first.status_code, first.headers["Upload-Offset"]) == (204, str(MIB))
    assert "Location" not in first.headers
    head = api.as_().head(where)
    assert (head.status_code, head.headers["Upload-Offset"]) == (200, str(MIB))
    assert head.headers["Upload-Length"] == str(len(content))
    assert head.headers["Cache-Control"] == "no-store"
    again = begin(api, content)
    assert (again.headers["Upload-Offset"], again.headers["Location"].endswith(where)) == (
        str(MIB),
        True,
    )
    last = send(api, where, content[MIB:], MIB)
    shown = api.as_().get(httpx.URL(last.headers["Location"]).path).json()
    assert shown["sha256"] == hashlib.sha256(content).hexdigest()
    assert api.as_().get(f"/v1/files/{shown['file_id']}/content").content == content
    assert api.as_().head(where).status_code == 404
    assert stored_bytes(api) == on_disk(api) == len(content)  # the pieces are gone


def test_a_long_request_is_stored_in_several_pieces(api: Api) -> None:
    content = os.urandom(PIECE_BYTES) + os.urandom(PIECE_BYTES // 2)
    where = begun(api, content, known=False)
    assert send(api, where, content, 0).status_code == 204
    assert files(api)[0]["size"] == len(content)
    assert stored_bytes(api) == on_disk(api) == len(content)


def test_an_upload_that_goes_on_under_another_name_gets_this_name(api: Api) -> None:
    content = os.urandom(2 * MIB)
    where = begun(api, content, name="first.onnx")
    assert send(api, where, content[:MIB], 0).status_code == 204
    again = begin(api, content, name="second.onnx")
    assert (again.headers["Upload-Offset"], again.headers["Location"].endswith(where)) == (
        str(MIB),
        True,
    )
    assert send(api, where, content[MIB:], MIB).status_code == 204
    assert [each["name"] for each in files(api)] == ["second.onnx"]


@pytest.mark.parametrize("offset", [0, MIB - 1, MIB + 1, 2 * MIB])
def test_a_wrong_offset_is_refused(api: Api, offset: int) -> None:
    content = os.urandom(2 * MIB)
    where = begun(api, content)
    assert send(api, where, content[:MIB], 0).status_code == 204
    refused = send(api, where, content[MIB:], offset)
    assert refused.status_code == 409
    assert f"{MIB} bytes" in refused.json()["detail"]
    assert api.as_().head(where).headers["Upload-Offset"] == str(MIB)


def test_other_content_than_stated_ends_the_upload(api: Api) -> None:
    content = os.urandom(2 * MIB)
    where = begun(api, content)
    assert send(api, where, content[:MIB], 0).status_code == 204
    refused = send(api, where, os.urandom(MIB), MIB)
    assert refused.status_code == 422
    assert "not the stated one" in refused.json()["detail"]
    assert api.as_().head(where).status_code == 404
    assert files(api) == []
    assert stored_bytes(api) == on_disk(api) == 0


def test_more_bytes_than_announced_are_refused(api: Api) -> None:
    content = os.urandom(MIB)
    where = begun(api, content)
    assert send(api, where, content + b"x", 0).status_code == 400
    assert api.as_().head(where).headers["Upload-Offset"] == "0"
    assert on_disk(api) == 0


def test_crumbs_are_refused_but_for_the_end(api: Api) -> None:
    content = os.urandom(MIN_PIECE_BYTES + 10)
    where = begun(api, content)
    assert send(api, where, content[:100], 0).status_code == 400
    assert send(api, where, content[:MIN_PIECE_BYTES], 0).status_code == 204
    assert send(api, where, content[MIN_PIECE_BYTES:], MIN_PIECE_BYTES).status_code == 204
    assert [file["size"] for file in files(api)] == [len(content)]


def test_two_clients_at_once_make_one_file(api: Api) -> None:
    content = os.urandom(4 * MIB)
    where = begun(api, content)

    def first_piece(number: int) -> int:
        return send(api, where, content[:MIB], 0).status_code

    with ThreadPoolExecutor(4) as pool:
        codes = sorted(pool.map(first_piece, range(4)))
    assert codes[0] == 204
    assert set(codes[1:]) == {409}
    assert send(api, where, content[MIB:], MIB).status_code == 204
    assert len(files(api)) == 1
    assert stored_bytes(api) == on_disk(api) == len(content)


def test_an_upload_belongs_to_its_user(api: Api) -> None:
    content = os.urandom(2 * MIB)
    where = begun(api, content)
    assert api.as_("bob").head(where).status_code == 404
    assert send(api, where, content, 0, who="bob").status_code == 404
    assert api.as_("bob").delete(where).status_code == 404
    assert begin(api, content, who="bob").headers["Upload-Offset"] == "0"
    assert [each["name"] for each in api.as_().get("/v1/uploads").json()["items"]] == ["net.onnx"]
    assert len(api.as_("operator").get("/v1/uploads").json()["items"]) == 2


def test_an_abandoned_upload_leaves_nothing(api: Api) -> None:
    content = os.urandom(2 * MIB)
    where = begun(api, content)
    assert send(api, where, content[:MIB], 0).status_code == 204
    assert stored_bytes(api) == on_disk(api) == MIB
    assert api.as_().delete(where).status_code == 204
    assert api.as_().head(where).status_code == 404
    assert stored_bytes(api) == on_disk(api) == 0


def test_announced_bytes_count_for_the_quota(api: Api) -> None:
    begun(api, bytes(60 * MIB), name="a")
    refused = begin(api, bytes(60 * MIB + 1), name="b")
    assert refused.status_code == 507
    assert "edgeyard files abandon" in refused.json()["detail"]
    assert refused.json()["limit"]["name"] == "max_bytes"
    assert begin(api, bytes(10 * MIB), name="b").status_code == 201
    headers = {"Upload-Length": str(2**43), "Upload-Metadata": metadata("b", None)}
    assert api.as_().post("/v1/uploads", headers=headers).status_code == 413


def test_an_upload_is_refused_when_other_uploads_have_used_the_quota(api: Api) -> None:
    content = os.urandom(3 * MIB)
    where = begun(api, content)
    api.upload("big", bytes(99 * MIB))
    refused = send(api, where, content, 0)
    assert refused.status_code == 507
    assert api.as_().head(where).headers["Upload-Offset"] == "0"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Upload-Metadata": "filename bmV0"}, 422),
        ({"Upload-Length": "5"}, 422),
        ({"Upload-Length": "0", "Upload-Metadata": "filename bmV0"}, 422),
        ({"Upload-Length": "-1", "Upload-Metadata": "filename bmV0"}, 422),
        ({"Upload-Length": "+5", "Upload-Metadata": "filename bmV0"}, 422),
        ({"Upload-Length": "5.0", "Upload-Metadata": "filename bmV0"}, 422),
        ({"Upload-Length": "1_0", "Upload-Metadata": "filename bmV0"}, 422),
        ({"Upload-Length": "5", "Upload-Metadata": "filename YeKArnh4bm5v"}, 422),  # U+202E
        ({"Upload-Length": "5", "Upload-Metadata": "filename ***"}, 422),
        ({"Upload-Length": "5", "Upload-Metadata": "filename Li4vYQ=="}, 422),  # ../a
        ({"Upload-Length": "5", "Upload-Metadata": "filename bmV0,sha256 YQ=="}, 422),
        (
            {"Upload-Length": "5", "Upload-Metadata": "filename bmV0", "Tus-Resumable": "0.2"},
            412,
        ),
    ],
)
def test_a_wrong_beginning_is_refused(api: Api, headers: dict[str, str], status: int) -> None:
    assert api.as_().post("/v1/uploads", headers=headers).status_code == status
    assert api.as_().get("/v1/uploads").json()["items"] == []


def test_another_media_type_is_refused(api: Api) -> None:
    where = begun(api, bytes(10))
    headers = {"Upload-Offset": "0", "Content-Type": "application/json"}
    assert api.as_().patch(where, content=bytes(10), headers=headers).status_code == 415


def test_an_upload_that_does_not_go_on_is_collected(api: Api) -> None:
    content = os.urandom(2 * MIB)
    where = begun(api, content)
    assert send(api, where, content[:MIB], 0).status_code == 204
    files = api.files
    retention = {RetentionClass.UPLOADS: 3600.0}
    collect_garbage(api.store, files, api.clock, retention)
    assert api.as_().head(where).status_code == 200
    api.clock.ahead += timedelta(hours=2)
    for path in content_of(api):
        os.utime(path, (0, 0))
    collect_garbage(api.store, files, api.clock, retention)
    assert api.as_().head(where).status_code == 404
    assert stored_bytes(api) == on_disk(api) == 0


def test_a_full_disk_keeps_what_was_stored(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(3 * MIB)
    where = begun(api, content)
    assert send(api, where, content[:MIB], 0).status_code == 204

    def full(*args: object, **kwargs: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr("tempfile.mkstemp", full)
        assert send(api, where, content[MIB:], MIB).status_code == 507
    assert api.as_().head(where).headers["Upload-Offset"] == str(MIB)
    assert send(api, where, content[MIB:], MIB).status_code == 204
    assert [file["size"] for file in files(api)] == [len(content)]


def test_an_upload_that_could_not_end_ends_by_an_empty_request(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(2 * MIB)
    where = begun(api, content)

    def full(*args: object, **kwargs: object) -> object:
        raise OutOfSpace("taking a file")

    with monkeypatch.context() as broken:
        broken.setattr("edgeyard.benchmark_api.routes.uploads._finish", full)
        assert send(api, where, content, 0).status_code == 507
    assert api.as_().head(where).headers["Upload-Offset"] == str(len(content))
    ended = send(api, where, b"", len(content))
    assert ended.status_code == 204
    assert "Location" in ended.headers
    assert [file["size"] for file in files(api)] == [len(content)]


@pytest.mark.s3
def test_any_server_continues_an_upload_over_s3(tmp_path: Path, s3_access: S3Access) -> None:
    content = os.urandom(3 * MIB)
    with running(tmp_path / "one") as api:
        store_in(api, S3Files(s3_access, tmp_path / "cache-one"))
        where = begun(api, content)
        assert send(api, where, content[:MIB], 0).status_code == 204
        # its machine's cache is gone, as if another server took the rest
        store_in(api, S3Files(s3_access, tmp_path / "cache-two"))
        assert send(api, where, content[MIB:], MIB).status_code == 204
        (file,) = files(api)
        assert api.as_().get(f"/v1/files/{file['file_id']}/content").content == content
        found = [stored.sha256 for stored in api.services.files.contents(older_than_s=-3600)]
        assert found == [file["sha256"]]


def store_in(api: Api, files: S3Files) -> None:
    object.__setattr__(api.services, "files", files)


# --- the client -----------------------------------------------------------------------------------


class Cutting(httpx.HTTPTransport):
    """Breaks a connection off after so many bytes of a body, some times."""

    def __init__(self, after_bytes: int, times: int) -> None:
        super().__init__()
        self.after_bytes = after_bytes
        self.times = times
        self.offsets: list[int] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PATCH":
            self.offsets.append(int(request.headers["Upload-Offset"]))
            if self.times > 0:
                self.times -= 1
                request.stream = _Cut(request.stream, self.after_bytes)
        return super().handle_request(request)


class _Cut(httpx.SyncByteStream):
    def __init__(self, stream: Any, after_bytes: int) -> None:
        self._stream, self._left = stream, after_bytes

    def __iter__(self) -> Iterator[bytes]:
        for block in self._stream:
            if self._left <= 0:
                raise httpx.WriteError("cut")
            self._left -= len(block)
            yield block


def client_of(api: Api, transport: httpx.BaseTransport) -> Client:
    token = api.as_("alice").headers["authorization"].removeprefix("Bearer ")
    return Client(api.url, token, transport=transport, sleep=lambda _: None)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big.bin"
    path.write_bytes(os.urandom(RESUME_FROM_BYTES + 4 * MIB + 7))
    return path


def test_a_broken_connection_goes_on_where_it_ended(api: Api, big: Path) -> None:
    transport = Cutting(after_bytes=3 * MIB, times=2)
    seen: list[int] = []
    with client_of(api, transport) as client:
        uploaded = client.upload(big, on_sent=seen.append)
    assert uploaded.sha256 == hashlib.sha256(big.read_bytes()).hexdigest()
    assert transport.offsets[0] == 0
    assert transport.offsets == sorted(transport.offsets)
    assert transport.offsets[-1] >= 2 * MIB, "what arrived is not sent again"
    assert seen[-1] == big.stat().st_size
    assert stored_bytes(api) == on_disk(api) == big.stat().st_size


def test_another_process_goes_on_where_the_first_ended(api: Api, big: Path) -> None:
    never = Cutting(after_bytes=5 * MIB, times=1)
    with client_of(api, never) as client, pytest.raises(KeyboardInterrupt):
        client.upload(big, on_sent=_interrupt_at(5 * MIB))
    unfinished = kept(api)
    seen: list[int] = []
    transport = Cutting(after_bytes=0, times=0)
    with client_of(api, transport) as client:
        client.upload(big, on_sent=seen.append)
    assert transport.offsets == [unfinished["offset"]]
    assert seen[0] == unfinished["offset"], "the progress begins where the upload goes on"
    assert api.as_().get("/v1/uploads").json()["items"] == []


def kept(api: Api) -> dict[str, Any]:
    """The upload, once the server has found that its connection broke off."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        (unfinished,) = api.as_().get("/v1/uploads").json()["items"]
        if unfinished["offset"] >= MIB:
            return dict(unfinished)
        time.sleep(0.05)
    raise AssertionError("nothing was kept")


def _interrupt_at(limit: int) -> Any:
    def on_sent(sent: int) -> None:
        if sent >= limit:
            raise KeyboardInterrupt

    return on_sent


def test_an_upload_without_progress_is_given_up(api: Api, big: Path) -> None:
    transport = Cutting(after_bytes=0, times=100)
    with client_of(api, transport) as client, pytest.raises(ServerNotReached):
        client.upload(big)
    assert set(transport.offsets) == {0}


def test_bytes_in_another_coding_are_refused(api: Api) -> None:
    answer = begin(api, bytes(10), name="coded.bin")
    where = answer.headers["Location"].removeprefix(api.url)
    headers = {
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
        "Content-Encoding": "gzip",
    }
    refused = api.as_().patch(where, headers=headers, content=bytes(10))
    assert refused.status_code == 415
    assert "without Content-Encoding" in refused.json()["detail"]
