"""Campaigns, reports and histories on the command line, against canned answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edgeyard.benchmark_api.sdk import Client, NotFoundError
from tests.builders.answers import benchmark, campaign, me, problem, row, user_file, workload
from tests.builders.cli import refusal, run
from tests.fakes.api_server import Answer, FakeServer


def summary(campaign_id: str, name: str = "nightly") -> dict[str, object]:
    return {
        "campaign_id": campaign_id,
        "user_id": "ada",
        "name": name,
        "created_at": "2026-11-21T08:00:00Z",
        "benchmarks": 3,
        "counts": {"completed": 2, "running": 1},
    }


def page(*items: object) -> dict[str, object]:
    return {"items": list(items), "next_cursor": None}


def test_campaigns_are_listed(server: FakeServer) -> None:
    server.on("GET", "/v1/campaigns", page(summary("campaign-1")))
    listed = run("campaigns", "list", "--name", "nightly")
    assert "campaign-1" in listed.stdout
    assert "2 completed, 1 running" in listed.stdout
    assert server.asked[0].query["name"] == ["nightly"]
    assert json.loads(run("campaigns", "list", "--json").stdout) == [summary("campaign-1")]


def test_a_campaign_is_named_by_its_id_or_name(server: FakeServer) -> None:
    server.on("GET", "/v1/campaigns", page(summary("campaign-1")))
    server.on("GET", "/v1/campaigns/campaign-1", campaign(benchmark("a"), campaign_id="campaign-1"))
    server.on("POST", "/v1/benchmarks/a/cancel", Answer(benchmark("a", "cancelled"), 202))
    server.on("GET", "/v1/results", {"items": [row("a"), row("b")]})
    assert run("campaigns", "show", "nightly").exit_code == 0
    assert run("campaigns", "cancel", "campaign-1").exit_code == 0
    assert len(server.of("POST", "/v1/benchmarks/a/cancel")) == 1
    server.on(
        "GET",
        "/v1/campaigns/campaign-1",
        campaign(benchmark("a"), benchmark("b"), campaign_id="campaign-1"),
    )
    assert "P50 ms" in run("campaigns", "results", "nightly").stdout


def test_of_several_campaigns_of_a_name_the_newest_is_taken_and_said(server: FakeServer) -> None:
    server.on("GET", "/v1/campaigns", page(summary("campaign-2"), summary("campaign-1")))
    server.on("GET", "/v1/campaigns/campaign-2", campaign(benchmark("b"), campaign_id="campaign-2"))
    shown = run("campaigns", "show", "nightly")
    assert shown.exit_code == 0
    assert shown.stderr == (
        "2 campaigns have the name 'nightly'; the newest is meant, campaign-2 of ada, "
        "and not campaign-1\n"
    )


def test_an_operator_means_a_campaign_of_their_own(server: FakeServer) -> None:
    newer = {**summary("campaign-2"), "user_id": "bob"}
    server.on("GET", "/v1/campaigns", page(newer, summary("campaign-1")))
    server.on("GET", "/v1/me", me())
    server.on("GET", "/v1/campaigns/campaign-1", campaign(benchmark("a"), campaign_id="campaign-1"))
    shown = run("campaigns", "show", "nightly")
    assert (shown.exit_code, "campaign-1 of ada, and not campaign-2" in shown.stderr) == (0, True)


def test_a_list_takes_the_name_of_a_campaign(server: FakeServer) -> None:
    server.on("GET", "/v1/campaigns", page(summary("campaign-1")))
    server.on("GET", "/v1/benchmarks", page(benchmark("a")))
    assert run("list", "--campaign", "nightly", "--json").exit_code == 0
    assert server.of("GET", "/v1/benchmarks")[0].query["campaign_id"] == ["campaign-1"]


@pytest.mark.parametrize("kind", ["campaign", "schedule"])
def test_a_list_of_a_campaign_or_schedule_that_does_not_exist_is_an_error(
    server: FakeServer, kind: str
) -> None:
    server.on("GET", "/v1/campaigns", page())
    server.on("GET", "/v1/benchmarks", page())
    absent = problem(404, "not_found", f"no {kind} 'absent'")
    server.on("GET", f"/v1/{kind}s/absent", Answer(absent, 404))
    refused = refusal(run("list", f"--{kind}", "absent"))
    assert f"no {kind} 'absent'; `edgeyard {kind}s list` shows those" in refused
    server.on("GET", "/v1/campaigns/campaign-1", campaign(campaign_id="campaign-1"))
    empty = run("list", "--campaign", "campaign-1")
    assert (empty.exit_code, empty.stderr) == (0, "no benchmarks\n")


def test_a_program_names_a_campaign_by_its_id_or_name(server: FakeServer) -> None:
    absent = Answer(problem(404, "not_found", "no campaign 'nightly'"), 404)
    server.on("GET", "/v1/campaigns/nightly", absent)
    server.on("GET", "/v1/campaigns/campaign-1", campaign(benchmark("a"), campaign_id="campaign-1"))
    server.on("GET", "/v1/campaigns", page(summary("campaign-1")))
    with Client() as client:
        assert [each.benchmark_id for each in client.campaign("nightly")] == ["a"]
        server.on("GET", "/v1/benchmarks", page(benchmark("a")), page() | {"total": 1})
        assert [each.benchmark_id for each in client.list(campaign="nightly")] == ["a"]
        assert client.count(campaign="nightly") == 1
        for request in server.of("GET", "/v1/benchmarks"):
            assert request.query["campaign_id"] == ["campaign-1"]
            assert "campaign" not in request.query
        server.on("GET", "/v1/campaigns", page(summary("campaign-1"), summary("campaign-2")))
        with pytest.warns(UserWarning, match="2 campaigns have the name 'nightly'; the newest"):
            assert [each.benchmark_id for each in client.campaign("nightly")] == ["a"]
        server.on("GET", "/v1/campaigns", page())
        with pytest.raises(NotFoundError, match="no campaign 'nightly'"):
            client.campaign("nightly")
        with pytest.raises(NotFoundError, match="no campaign 'nightly'"):
            next(client.list(campaign="nightly"))


def test_a_file_is_deleted_by_a_name_that_one_content_has(server: FakeServer) -> None:
    absent = Answer(problem(404, "not_found", "no file 'net.zip'"), 404)
    server.on("DELETE", "/v1/files/net.zip", absent)
    twice = [user_file(file_id=each, name="net.zip") for each in ("file-1", "file-2")]
    server.on("GET", "/v1/files", page(*twice))
    for each in ("file-1", "file-2"):
        server.on("DELETE", f"/v1/files/{each}", Answer(b"", 204))
    done = run("files", "delete", "net.zip")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == "file-1 is deleted (net.zip)\nfile-2 is deleted (net.zip)\n"
    assert server.of("GET", "/v1/files")[0].query["name"] == ["net.zip"]
    for other in ({"sha256": "cd" * 32}, {"user_id": "bob"}):
        files = [twice[0], twice[1] | other]
        server.on("GET", "/v1/files", page(*files))
        refused = refusal(run("files", "delete", "net.zip"))
        assert "FILE_ID: 2 files of different content" in refused
        assert "file-1, file-2" in refused
    server.on("GET", "/v1/files", page())
    assert (
        "`edgeyard files list` shows those that exist" in run("files", "delete", "net.zip").stderr
    )


def test_a_campaign_of_nothing_is_a_clear_error(server: FakeServer) -> None:
    server.on("GET", "/v1/campaigns/campaign-1", campaign(campaign_id="campaign-1"))
    for words in (["campaigns", "results", "campaign-1"], ["wait", "--campaign", "campaign-1"]):
        assert "campaign-1 has no benchmarks any more" in refusal(run(*words))
    server.on("GET", "/v1/campaigns", page())
    assert run("campaigns", "show", "absent").exit_code == 1


def test_a_report_is_one_page_that_loads_nothing(server: FakeServer) -> None:
    rows = [
        row("a", model="<b>net</b>.onnx", p50_ms=0.1),
        row("b", model="<b>net</b>.onnx", p50_ms=0.2, workload=workload()),
        row("c", p50_ms=9.1, workload=workload(model_sha256="f" * 64), verdict="suspect"),
    ]
    server.on("GET", "/v1/results", {"items": rows})
    done = run("results", "a", "b", "c", "--html", "report.html")
    assert "wrote report.html" in done.stderr
    text = Path("report.html").read_text()
    assert "2.00×" in text
    assert "&lt;b&gt;net" in text
    assert "<b>net" not in text
    assert not re.search(r"(src|href|url\()", text)
    refused = run("results", "a", "--html", "report.txt")
    assert "--html: can't write 'report.txt'" in refused.stderr


def test_runs_of_the_same_work_can_be_told_apart(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row("a"), row("b", p50_ms=13.0, ended_at="2026-11-22T00:00:00Z")]
    server.on("GET", "/v1/results", {"items": rows})
    assert "ENDED" in run("results", "a", "b").stdout
    monkeypatch.setenv("EDGEYARD_COLUMNS", "200")
    shown = run("results", "a", "b").stdout
    assert "BENCHMARK" in shown
    assert "ENDED" in shown
    server.on("GET", "/v1/results", {"items": [row("a"), row("b", target_uid="rpi4b-0001-0002")]})
    assert "ENDED" not in run("results", "a", "b").stdout


def test_files_are_listed_by_content(server: FakeServer) -> None:
    files = [
        user_file(file_id="file-3", name="c.onnx", sha256="cd" * 32),
        user_file(file_id="file-2", name="b.onnx", sha256="ab" * 32),
        user_file(file_id="file-1", name="a.onnx", sha256="ab" * 32),
    ]
    server.on("GET", "/v1/files", {"items": files})
    shown = run("files", "list").stdout.splitlines()
    assert len(shown) == 3
    assert "file-2" in shown[2]
    assert "b.onnx, a.onnx" in shown[2]
    assert len(json.loads(run("files", "list", "--json").stdout)) == 3


def test_a_list_of_files_reports_how_many_there_are(server: FakeServer) -> None:
    files = [user_file(file_id=f"file-{number}") for number in range(3)]
    server.on("GET", "/v1/files", page(*files), {**page(files[0]), "total": 136})
    shown = run("files", "list", "--limit", "2", "--json")
    assert [each["file_id"] for each in json.loads(shown.stdout)] == ["file-0", "file-1"]
    assert shown.stderr == "2 of 136 files; --limit 136 shows all\n"
    server.on("GET", "/v1/files", page(*files))
    assert run("files", "list", "--limit", "3").stderr == ""
    run("files", "list", "--name", "net.onnx")
    assert server.of("GET", "/v1/files")[-1].query["name"] == ["net.onnx"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["list", "--since", "yesterday"], "--since: cannot read 'yesterday'"),
    ],
)
def test_wrong_usage_is_refused(server: FakeServer, words: list[str], expected: str) -> None:
    server.on("GET", "/v1/benchmarks", page())
    assert expected in refusal(run(*words))
