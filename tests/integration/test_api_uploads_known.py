"""Content that a user has is not sent again; nothing is sent for a wrong description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from edgeyard import Client
from edgeyard.benchmark_api.sdk import ValidationFailed
from edgeyard.benchmark_api.sdk.client import HASH_FROM_BYTES
from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.builders.model_files import a_model_file


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path / "server") as found:
        yield found


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big.onnx"
    path.write_bytes(a_model_file(HASH_FROM_BYTES))
    return path


def client_of(api: Api, who: str = "alice") -> tuple[Client, list[httpx.Request]]:
    sent: list[httpx.Request] = []

    class Recorder(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return super().handle_request(request)

    token = api.as_(who).headers["authorization"].removeprefix("Bearer ")
    return Client(api.url, token, transport=Recorder()), sent


def paths(sent: list[httpx.Request]) -> list[str]:
    return [request.url.path for request in sent]


def test_large_content_is_sent_once(api: Api, big: Path) -> None:
    client, sent = client_of(api)
    with client:
        first = client.upload(big)
        del sent[:]
        again = client.upload(big)
        assert paths(sent) == ["/v1/files/names"]
        assert again == first
        other = big.rename(big.with_name("other.onnx"))
        named = client.upload(other)
    assert (named.name, named.sha256) == ("other.onnx", first.sha256)
    assert "/v1/files" not in paths(sent)
    shown = api.as_().get(f"/v1/files/{named.file_id}/content")
    assert shown.content == other.read_bytes()


def test_content_of_others_is_not_given_away(api: Api, big: Path) -> None:
    client, _ = client_of(api)
    with client:
        uploaded = client.upload(big)
    stolen = {"name": "mine.onnx", "sha256": uploaded.sha256}
    for who in ("bob", "operator"):
        assert api.as_(who).post("/v1/files/names", json=stolen).status_code == 404
    other, sent = client_of(api, "bob")
    with other:
        other.upload(big)
    assert paths(sent) == ["/v1/files/names", "/v1/files"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "../x", "sha256": "0" * 64}, "/name"),
        ({"name": "x", "sha256": "0"}, "/sha256"),
        ({"sha256": "0" * 64}, "/name"),
    ],
)
def test_a_wrong_name_or_hash_is_refused(api: Api, body: dict[str, object], pointer: str) -> None:
    answer = api.as_().post("/v1/files/names", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_nothing_is_uploaded_for_a_wrong_description(api: Api, big: Path) -> None:
    client, sent = client_of(api)
    wrong = {"model": big, "runtime": "ort", "benchmark_type": "TYPE1", "target": "rpi5b"}
    with client:
        with pytest.raises(ValidationFailed, match="target"):
            client.submit_description(wrong)
        with pytest.raises(ValidationFailed, match="target"):
            client.preview({**wrong, "target": ["rpi4b", "rpi5b"]})
    assert set(paths(sent)) == {"/v1/benchmarks/check", "/v1/campaigns"}
    assert api.as_().get("/v1/files").json()["items"] == []


def test_a_description_is_checked_without_its_files(api: Api) -> None:
    answer = api.as_().post("/v1/benchmarks/check", json=description(model="not-uploaded.onnx"))
    assert (answer.status_code, answer.json()) == (200, {"warnings": []})
    assert api.as_().get("/v1/benchmarks").json()["items"] == []
    refused = api.as_().post("/v1/benchmarks/check", json=description(nb_inference=0))
    assert refused.status_code == 422
    assert api.as_(None).post("/v1/benchmarks/check", json=description()).status_code == 401


def test_all_files_are_listed_and_found_by_name(api: Api) -> None:
    for number in range(5):
        api.upload(f"net-{number}.onnx", b"%d" % number)
    first = api.as_().get("/v1/files", params={"limit": 2, "total": True}).json()
    assert (len(first["items"]), first["total"]) == (2, 5)
    following = {"limit": 4, "cursor": first["next_cursor"]}
    rest = api.as_().get("/v1/files", params=following).json()
    assert (len(rest["items"]), rest["next_cursor"]) == (3, None)
    assert "total" not in rest
    assert api.as_().get("/v1/files", params={"cursor": "x"}).status_code == 422
    client, sent = client_of(api)
    with client:
        assert client.file("net-0.onnx").name == "net-0.onnx"
        assert sent[-1].url.params["name"] == "net-0.onnx"
        assert [each.name for each in client.files(name="net-3.onnx")] == ["net-3.onnx"]
        assert len(list(client.files())) == 5


def test_an_upload_reports_how_much_was_sent(api: Api, big: Path) -> None:
    client, _ = client_of(api)
    counts: list[int] = []
    with client:
        client.upload(big, on_sent=counts.append)
    assert counts[-1] == big.stat().st_size
    assert counts == sorted(counts)
    assert len(counts) > 2
