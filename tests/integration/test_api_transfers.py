"""Files up and down: whole or not at all, streamed, with the right of one attempt only."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeyard.scheduler.model.attempt import Attempt
from tests.builders.api import MODEL, Api, cut_off, running

TOKEN = "upload-token-1"


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(
        tmp_path_factory.mktemp("api"),
        result_limit_bytes=3 * 2**20,
        dataset_limit_bytes=5 * 2**20,
        model_limit_bytes=5 * 2**20,
        language_model_limit_bytes=5 * 2**20,
    ) as found:
        found.upload()
        yield found


def until(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    limit = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.01)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(
    api: Api,
    attempt: Attempt,
    name: str,
    content: bytes,
    token: str | None = TOKEN,
    **headers: str,
) -> httpx.Response:
    job = attempt.job_id.removeprefix("benchmark-")
    given = {"Authorization": f"Bearer {token}"} if token else {}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return api.as_(None).put(f"/upload/{job}/{name}", content=content, headers=given)


def test_results_come_by_the_benchmark_s_id_and_the_token_names_the_attempt(api: Api) -> None:
    attempt = api.dispatched(api.submit(), TOKEN)
    own = {"Authorization": f"Bearer {TOKEN}"}
    url = f"/upload/{attempt.benchmark_id}/report.json"
    assert api.as_(None).put(url, content=report(attempt), headers=own).status_code == 201
    wrong = {"Authorization": "Bearer wrong"}
    assert api.as_(None).put(url, content=b"{}", headers=wrong).status_code == 401
    with api.store.read() as uow:
        assert uow.attempts.by_job_id(attempt.job_id).result_at is not None


def report(attempt: Attempt, **changes: object) -> bytes:
    return json.dumps(
        {
            "schema": "edgeyard/result/v1",
            "status": "ok",
            "benchmark_id": attempt.benchmark_id,
            "inference_latency": {"unit": "ms", "mean": 2.0, "p50": 1.5, "p90": 3.0, "p99": 4.0},
            "verdict": {"verdict": "comparable", "reasons": []},
            **changes,
        }
    ).encode()


# --- users' files -----------------------------------------------------------------------------


def test_a_downloaded_file_equals_the_uploaded_one(api: Api) -> None:
    content = os.urandom(3 * 2**20 + 17)
    stored = api.upload("big.bin", content)
    assert stored["sha256"] == sha(content)
    assert stored["size"] == len(content)
    answer = api.as_().get(stored["url"])
    assert answer.content == content
    assert answer.headers["content-disposition"] == 'attachment; filename="big.bin"'
    assert answer.headers["etag"] == f'"{sha(content)}"'
    assert api.as_().get(f"/v1/files/{stored['file_id']}").json() == stored


def test_the_same_content_is_stored_once(api: Api) -> None:
    one, two = api.upload("one.bin", b"same"), api.upload("two.bin", b"same")
    assert one["sha256"] == two["sha256"]
    assert one["file_id"] != two["file_id"]
    assert api.as_().delete(f"/v1/files/{one['file_id']}").status_code == 204
    assert api.as_().get(f"/v1/files/{one['file_id']}").status_code == 404
    assert api.as_().get(two["url"]).content == b"same"


@pytest.mark.parametrize(
    ("wanted", "status", "content"),
    [
        ("bytes=0-3", 206, MODEL[:4]),
        ("bytes=10-", 206, MODEL[10:]),
        ("bytes=-5", 206, MODEL[-5:]),
        ("bytes=0-0", 206, MODEL[:1]),
        ("bytes=99999999-", 416, None),
        ("bytes=99999999999999999999999-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=1490-9999999999999999999999", 206, MODEL[1490:]),
        ("bytes=5-2", 200, MODEL),
        ("bytes=-", 200, MODEL),
        ("bytes=a-b", 200, MODEL),
        ("lines=1-2", 200, MODEL),
        ("bytes=0-1,4-5", 200, MODEL),
        (f"bytes={'9' * 5000}-", 200, MODEL),
    ],
)
def test_ranges_are_served_equally_by_all_file_stores(
    api: Api, wanted: str, status: int, content: bytes | None
) -> None:
    """What is malformed, and several ranges at once, are read over: RFC 9110, 14.2."""
    stored = api.upload()
    attempt = api.dispatched(api.submit())
    in_files, in_rows = f"{attempt.job_id[-10:]}-model.onnx", f"{attempt.job_id[-10:]}-spec.json"
    api.grant(attempt, in_files, sha256=stored["sha256"], size_bytes=len(MODEL))
    api.grant(attempt, in_rows, filename="spec.json", content=MODEL, size_bytes=len(MODEL))
    for url in (stored["url"], f"/download/{in_files}", f"/download/{in_rows}"):
        answer = api.as_().get(url, headers={"Range": wanted})
        assert answer.status_code == status
        if content is not None:
            assert answer.content == content
        if status == 416:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["content-range"] == f"bytes */{len(MODEL)}"
        tag = answer.headers.get("etag", f'"{sha(MODEL)}"')
        assert tag == f'"{sha(MODEL)}"'
        same = api.as_().get(url, headers={"Range": wanted, "If-Range": tag})
        assert same.status_code == status
        other = api.as_().get(url, headers={"Range": wanted, "If-Range": '"other"'})
        assert (other.status_code, other.content) == (200, MODEL)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b", "..", ".hidden", "a\\b", "-rf", "x" * 300, "${x}"]
)
def test_file_names_with_paths_are_refused(api: Api, name: str) -> None:
    answer = api.as_().post("/v1/files", files={"file": (name, b"x")})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/file"


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data", b"x", 415),
        ("multipart/form-data; boundary=b", b"", 400),
        ("multipart/form-data; boundary=b", b"nonsense", 400),
        ("multipart/form-data; boundary=" + "b" * 257, b"--" + b"b" * 257 + b"--\r\n", 400),
        ("multipart/form-data; boundary=" + "b" * 5_000, b"", 400),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\n", 400),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 400),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\nx\r\n--b--\r\n',
            400,
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nhalf',
            400,
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n1\r\n--b\r\n'
            b'Content-Disposition: form-data; name="file"; filename="y"\r\n\r\n2\r\n--b--\r\n',
            400,
        ),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"a" * 70_000 + b": x\r\n\r\n", 400),
    ],
)
def test_invalid_forms_are_refused(api: Api, content_type: str, body: bytes, status: int) -> None:
    before = len(api.as_().get("/v1/files?limit=1000").json()["items"])
    answer = api.as_().post("/v1/files", content=body, headers={"Content-Type": content_type})
    assert answer.status_code == status, answer.text
    assert len(api.as_().get("/v1/files?limit=1000").json()["items"]) == before
    assert api.leftovers() == []


def test_a_file_over_the_limit_is_refused_and_leaves_nothing(api: Api) -> None:
    answer = api.as_().post("/v1/files", files={"file": ("x.bin", bytes(5 * 2**20 + 1))})
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"

    def endless() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(64):
            yield bytes(2**20)

    # Without a Content-Length it is the bytes that count; the server may hang up on us.
    try:
        chunked = api.as_().post(
            "/v1/files",
            content=endless(),
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )
        assert chunked.status_code == 413
    except httpx.TransportError:
        pass
    until(lambda: api.leftovers() == [])


def test_an_upload_that_is_cut_half_way_leaves_nothing(api: Api) -> None:
    names = {each["name"] for each in api.as_().get("/v1/files?limit=1000").json()["items"]}
    head = (
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        + api.tokens["alice"].encode()
        + b"\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 4000000"
    )
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="cut"\r\n\r\n'
    with cut_off(api.url, head, body + bytes(2**21)):
        until(lambda: api.leftovers() != [])
    until(lambda: api.leftovers() == [])
    assert {each["name"] for each in api.as_().get("/v1/files?limit=1000").json()["items"]} == names


# --- a task's files ---------------------------------------------------------------------------


def test_a_download_lives_as_long_as_its_attempt(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    stored = api.upload()
    api.grant(attempt, "a" * 32 + "-model.onnx", sha256=stored["sha256"], size_bytes=len(MODEL))
    anybody = api.as_(None)
    answer = anybody.get(f"/download/{'a' * 32}-model.onnx")
    assert answer.content == MODEL
    assert "attachment" in answer.headers["content-disposition"]
    head = anybody.head(f"/download/{'a' * 32}-model.onnx")
    assert (head.status_code, head.headers["accept-ranges"]) == (200, "bytes")
    assert (head.headers["content-length"], head.content) == (str(len(MODEL)), b"")
    part = anybody.get(f"/download/{'a' * 32}-model.onnx", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, MODEL[2:5])
    assert put(api, attempt, "report.json", report(attempt)).status_code == 201
    api.ended(attempt.benchmark_id)
    assert anybody.get(f"/download/{'a' * 32}-model.onnx").status_code == 404
    assert anybody.get("/download/model.onnx").status_code == 404
    assert anybody.get("/download/..%2f..%2fetc%2fpasswd").status_code == 404


@pytest.mark.parametrize(
    ("wanted", "status", "content"),
    [
        (None, 200, b'{"a":1}'),
        ("bytes=1-3", 206, b'"a"'),
        ("bytes=-2", 206, b"1}"),
        ("bytes=3-", 206, b'":1}'),
        ("bytes=-", 200, b'{"a":1}'),
    ],
)
def test_inline_content_has_ranges_too(
    api: Api, wanted: str | None, status: int, content: bytes
) -> None:
    attempt = api.dispatched(api.submit())
    name = f"{attempt.job_id[-10:]}-spec.json"
    api.grant(attempt, name, filename="spec.json", content=b'{"a":1}', size_bytes=7)
    assert api.as_(None).head(f"/download/{name}").headers["content-length"] == "7"
    answer = api.as_(None).get(f"/download/{name}", headers={"Range": wanted} if wanted else {})
    assert (answer.status_code, answer.content) == (status, content)


# --- results ----------------------------------------------------------------------------------


def test_results_are_kept_and_shown(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    latencies = os.urandom(2 * 2**20)
    first = put(api, attempt, "latencies.npy", latencies, X_Content_SHA256=sha(latencies))
    assert first.status_code == 201, first.text
    assert put(api, attempt, "latencies.npy", latencies).status_code == 200
    assert put(api, attempt, "report.json", report(attempt)).status_code == 201
    api.ended(attempt.benchmark_id)
    path = f"/v1/benchmarks/{attempt.benchmark_id}/results"
    body = api.as_().get(path).json()
    assert body["status"] == "completed"
    assert body["reports"][0]["report"]["inference_latency"]["p50"] == 1.5
    assert {file["name"] for file in body["files"]} == {"latencies.npy", "report.json"}
    row = body["summary"]
    assert (row["p50_ms"], row["verdict"], row["model"]) == (1.5, "comparable", "model.onnx")
    by_name = {file["name"]: file for file in body["files"]}
    assert api.as_().get(by_name["latencies.npy"]["url"]).content == latencies
    assert api.as_("bob").get(by_name["latencies.npy"]["url"]).status_code == 404
    rows = api.as_().get("/v1/results", params={"benchmark_id": attempt.benchmark_id}).json()
    assert rows["items"] == [row]


def test_a_form_may_bring_them_all_at_once(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    job = attempt.job_id.removeprefix("benchmark-")
    answer = api.as_(None).post(
        f"/upload/{job}/",
        files=[
            ("file", ("report.json", report(attempt))),
            ("file", ("latencies.json", b"[1, 2]")),
            ("note", ("ignored", b"x")),
        ],
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"files": ["report.json", "latencies.json"]}
    assert api.attempt(attempt.benchmark_id).result_at is not None


def test_a_form_with_two_files_of_one_name_is_refused_as_a_whole(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    job = attempt.job_id.removeprefix("benchmark-")
    answer = api.as_(None).post(
        f"/upload/{job}/",
        files=[
            ("file", ("other.json", b"[1]")),
            ("file", ("latencies.json", b"[1]")),
            ("file", ("latencies.json", b"[2]")),
        ],
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/file"
    body = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()
    assert body["files"] == []
    assert api.leftovers() == []


def test_a_final_report_is_not_replaced(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    content = report(attempt)
    assert put(api, attempt, "report.json", content).status_code == 201
    assert put(api, attempt, "report.json", content).status_code == 200
    other = put(api, attempt, "report.json", report(attempt, status="failed"))
    assert other.status_code == 409
    assert put(api, attempt, "latencies.npy", b"late").status_code == 409
    body = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()
    assert [each["report"]["status"] for each in body["reports"]] == ["ok"]
    assert len(body["files"]) == 1


def test_two_uploads_of_one_result_at_once_lead_to_one(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    contents = [report(attempt, number=number) for number in range(6)]
    statuses: list[int] = []

    def send(content: bytes) -> None:
        with httpx.Client(base_url=api.url, trust_env=False, verify=False) as client:
            job = attempt.job_id.removeprefix("benchmark-")
            answer = client.put(
                f"/upload/{job}/report.json",
                content=content,
                headers={"Authorization": f"Bearer {TOKEN}"},
            )
            statuses.append(answer.status_code)

    threads = [threading.Thread(target=send, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [201, *[409] * 5]
    body = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()
    assert len(body["reports"]) == 1
    assert sha(contents[body["reports"][0]["report"]["number"]]) == body["files"][0]["sha256"]


def test_a_wrong_checksum_is_refused_and_leaves_nothing(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    answer = put(api, attempt, "report.json", report(attempt), X_Content_SHA256=sha(b"else"))
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()["files"] == []
    assert api.leftovers() == []


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"benchmark_id": "x"}']
)
def test_an_invalid_report_is_refused(api: Api, content: bytes) -> None:
    attempt = api.dispatched(api.submit())
    assert put(api, attempt, "report.json", content).status_code == 422
    body = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()
    assert (body["files"], body["reports"]) == ([], [])
    assert put(api, attempt, "report.json", report(attempt)).status_code == 201


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"status": "great"}, "/status"),
        ({"status": None}, "/status"),
        ({"status": ["ok"]}, "/status"),
        ({"benchmark_id": None}, "/benchmark_id"),
        ({"benchmark_id": "another"}, "/benchmark_id"),
        ({"inference_latency": 5}, "/inference_latency"),
        ({"inference_latency": {"unit": "ms", "p50": "1.5"}}, "/inference_latency/p50"),
        ({"inference_latency": {"unit": "ms", "max": True}}, "/inference_latency/max"),
        ({"inference_latency": {"unit": "ms", "p50": 1e308}}, "/inference_latency/p50"),
        ({"inference_latency": {"unit": "ms", "mean": {}}}, "/inference_latency/mean"),
    ],
)
def test_a_report_with_wrong_fields_is_refused(
    api: Api, changes: dict[str, object], pointer: str
) -> None:
    attempt = api.dispatched(api.submit())
    answer = put(api, attempt, "report.json", report(attempt, **changes))
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert error["accepted"]
    body = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()
    assert (body["files"], body["reports"]) == ([], [])
    assert put(api, attempt, "report.json", report(attempt)).status_code == 201


@pytest.mark.parametrize(
    "content",
    [
        b'{"date": "2024-01-01", "inference_latency": {"mean": "1.5", "std": 0.1}}',
        b'{"inference_latency": 12.5, "status": "fine"}',
    ],
)
def test_a_report_of_an_older_host_is_taken_as_it_is(api: Api, content: bytes) -> None:
    attempt = api.dispatched(api.submit())
    assert put(api, attempt, "report.json", content).status_code == 201


def test_a_result_over_the_limit_is_refused(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    assert put(api, attempt, "trained.tflite", bytes(3 * 2**20 + 1)).status_code == 413
    assert api.leftovers() == []


def test_a_result_that_is_cut_half_way_leaves_nothing(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    job = attempt.job_id.removeprefix("benchmark-")
    head = (
        f"PUT /upload/{job}/x.bin HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Length: 2000000"
    ).encode()
    with cut_off(api.url, head, bytes(1_500_000)):
        until(lambda: api.leftovers() != [])
    until(lambda: api.leftovers() == [])
    body = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()
    assert body["files"] == []


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2fx", "a%2fb", ".x", "%00", "a%0ab"])
def test_names_of_results_cannot_leave_their_folder(api: Api, name: str) -> None:
    attempt = api.dispatched(api.submit())
    job = attempt.job_id.removeprefix("benchmark-")
    request = api.as_(None).build_request("PUT", "/", content=b"x")
    request.url = httpx.URL(f"{api.url}").copy_with(raw_path=f"/upload/{job}/{name}".encode())
    request.headers["Authorization"] = f"Bearer {TOKEN}"
    answer = api.as_(None).send(request)
    assert answer.status_code in (404, 405, 422), answer.text
    body = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}/results").json()
    assert body["files"] == []


def test_an_upload_token_is_good_for_its_live_attempt_only(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    other = api.dispatched(api.submit(), token="upload-token-2")
    content = report(attempt)
    assert put(api, attempt, "x.bin", b"x", token=None).status_code == 401
    assert put(api, attempt, "x.bin", b"x", token="upload-token-2").status_code == 401
    assert put(api, attempt, "x.bin", b"x", token=api.tokens["alice"]).status_code == 403
    assert put(api, attempt, "x.bin", b"x", token=api.tokens["host"]).status_code == 201
    assert put(api, other, "x.bin", b"x", token=TOKEN).status_code == 401
    for path in ("/v1/me", f"/v1/benchmarks/{attempt.benchmark_id}"):
        answer = api.as_(None).get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 401
    assert put(api, attempt, "report.json", content).status_code == 201
    api.ended(attempt.benchmark_id)
    assert put(api, attempt, "x.bin", b"x").status_code == 401
    assert put(api, attempt, "x.bin", b"x", token=api.tokens["host"]).status_code == 409
    # The first answer may have been lost: saying the same again is fine, and changes nothing.
    again = put(api, attempt, "report.json", content, X_Content_SHA256=sha(content))
    assert again.status_code == 200


def test_unknown_jobs_look_like_wrong_tokens(api: Api) -> None:
    unknown = api.as_(None).put(
        "/upload/rpi4b-ort-20250813091714/x",
        content=b"x",
        headers={"Authorization": "Bearer nobody-knows-it"},
    )
    assert unknown.status_code == 401
    assert (
        api.as_("host").put("/upload/rpi4b-ort-20250813091714/x", content=b"x").status_code == 404
    )


def test_progress_is_noted(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    path = f"/v1/runs/{attempt.job_id.removeprefix('benchmark-')}/progress"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    client = api.as_(None)
    document = {"progress": 41, "phase": "measuring", "message": "x"}
    assert client.post(path, json=document, headers=headers).status_code == 204
    shown = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}").json()
    assert (shown["status"], shown["phase"], shown["progress"]) == ("running", "measuring", 41)
    assert client.post(path, json=document).status_code == 401
    for wrong in ({"progress": 101}, {"progress": "x"}, {}, {"progress": 1, "phase": "a\n"}):
        assert client.post(path, json=wrong, headers=headers).status_code == 422
    assert client.post(path, content=b'{"progress": NaN}', headers=headers).status_code == 422


def test_an_account_is_looked_up_outside_of_units_of_work(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = api.dispatched(api.submit())
    authenticator = api.app.state.authenticator
    caller, read, transact = authenticator.caller, api.store.read, api.store.transact
    here = threading.local()
    nested: list[bool] = []

    @contextmanager
    def inside() -> Iterator[None]:
        here.depth = getattr(here, "depth", 0) + 1
        try:
            yield
        finally:
            here.depth -= 1

    def noted_caller(token: str) -> Any:
        nested.append(getattr(here, "depth", 0) > 0)
        return caller(token)

    @contextmanager
    def noted_read() -> Iterator[Any]:
        with inside(), read() as uow:
            yield uow

    def noted_transact(work: Callable[[Any], Any]) -> Any:
        with inside():
            return transact(work)

    monkeypatch.setattr(authenticator, "caller", noted_caller)
    monkeypatch.setattr(api.store, "read", noted_read)
    monkeypatch.setattr(api.store, "transact", noted_transact)
    host = api.as_("host")
    job = attempt.job_id.removeprefix("benchmark-")
    for phase in ("measuring", "measuring", "evaluating"):
        document = {"progress": 41, "phase": phase}
        assert host.post(f"/v1/runs/{job}/progress", json=document).status_code == 204
    assert host.put(f"/upload/{job}/report.json", content=report(attempt)).status_code == 201
    assert nested
    assert not any(nested)


def test_a_trusted_network_needs_no_token_for_results(tmp_path: Path) -> None:
    with running(tmp_path, trusted_network=True) as api:
        api.upload()
        attempt = api.dispatched(api.submit())
        assert put(api, attempt, "x.bin", b"x", token="wrong-token-1").status_code == 401
        assert put(api, attempt, "report.json", report(attempt), token=None).status_code == 201
        api.ended(attempt.benchmark_id)
        assert put(api, attempt, "x.bin", b"x", token=None).status_code == 409
        assert api.as_(None).get("/v1/benchmarks").status_code == 401
        unknown = api.as_(None).put("/upload/rpi4b-ort-20250813091714/x", content=b"x")
        assert unknown.status_code == 404


def test_a_token_that_expired_or_was_revoked_is_none(api: Api) -> None:
    soon = (api.clock.now() + timedelta(minutes=1)).isoformat()
    made = api.as_().post("/v1/tokens", json={"label": "ci", "expires_at": soon}).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    client = api.as_(None)
    assert client.get("/v1/me", headers=headers).is_success
    api.clock.ahead = timedelta(minutes=2)
    try:
        assert client.get("/v1/me", headers=headers).status_code == 401
    finally:
        api.clock.ahead = timedelta()
    assert client.get("/v1/me", headers=headers).is_success
    assert api.as_().delete(f"/v1/tokens/{made['token_id']}").status_code == 204
    assert client.get("/v1/me", headers=headers).status_code == 401
    assert made["token"] not in api.as_().get("/v1/tokens").text


def test_a_full_disk_is_reported_at_once_with_what_to_do(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr("tempfile.mkstemp", full)
        answer = api.as_().post("/v1/files", files={"file": ("net.onnx", b"net of a full disk")})
    assert answer.status_code == 507
    assert answer.json()["code"] == "out_of_space"
    assert "its operator has to make some" in answer.json()["detail"]
    assert answer.headers["retry-after"]
