"""ScenarioDB over HTTP, by the SDK and by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.sdk import ApiError, Client
from tests.builders.api import Api, running
from tests.builders.cli import printed, run


def scenario(seed: int = 1, **fields: object) -> dict[str, Any]:
    jobs = [{"job_id": str(number), "submit_s": number, "run_s": 5.0} for number in range(3)]
    return {
        "name": f"trace-{seed}",
        "world": "nodes",
        "seed": seed,
        "duration_s": 100.0,
        "nodes": {"nodes": [{"cpu_cores": 10}], "jobs": jobs},
    } | fields


@pytest.fixture
def api(each_database: str, tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path, scenario_limit_bytes=20_000) as found:
        yield found


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with Client(api.url, api.tokens["alice"]) as found:
        yield found


def test_the_sdk_stores_lists_and_tags(client: Client) -> None:
    made = client.add_scenario(scenario(), tags=["b", "a"], source="a test")
    assert (made.name, made.jobs, made.tags, made.by_user_id) == ("trace-1", 3, ["a", "b"], "alice")
    assert client.scenario("trace-1") == client.scenario(made.sha256[:7]) == made
    content = client.scenario_content("trace-1")
    assert {"seed": 1, **content} == scenario()  # a default is left out
    assert client.add_scenario(scenario(), tags=["c"]).tags == ["a", "b", "c"]
    for seed in range(2, 6):
        client.add_scenario(scenario(seed))
    names = [each.name for each in client.scenarios(page_size=2)]
    assert sorted(names) == [f"trace-{seed}" for seed in range(1, 6)]
    assert [each.name for each in client.scenarios(tags=["a", "c"])] == ["trace-1"]
    assert [each.name for each in client.scenarios(name="trace-2", world="nodes")] == ["trace-2"]
    assert client.tag_scenario("trace-1", add=["d"], remove=["a"]).tags == ["b", "c", "d"]
    client.remove_scenario("trace-1")
    with pytest.raises(ApiError, match="trace-1"):
        client.scenario("trace-1")


def test_a_new_scenario_has_a_location_and_one_that_is_there_does_not_change(api: Api) -> None:
    first = api.as_().post("/v1/scenarios", json=scenario())
    assert first.status_code == 201
    assert first.headers["location"].endswith(first.json()["sha256"])
    again = api.as_().post("/v1/scenarios", json=scenario(name="other"))
    assert (again.status_code, again.json()) == (200, first.json())
    others = api.as_("bob").post("/v1/scenarios", params={"tag": "x"}, json=scenario())
    assert (others.status_code, others.json()["tags"]) == (200, [])


def test_only_its_owner_changes_a_scenario_and_a_simulation(api: Api, client: Client) -> None:
    made = client.add_scenario(scenario())
    run = {"run_id": "r1", "scenario": made.name, "policy": "default/1", "seed": 3}
    client.save_simulation(run)
    with Client(api.url, api.tokens["bob"]) as bob:
        assert bob.scenario(made.sha256) == made
        for refused in (
            lambda: bob.tag_scenario(made.sha256, add=["x"]),
            lambda: bob.remove_scenario(made.sha256),
            lambda: bob.save_simulation(run),
            lambda: bob.remove_simulation("r1"),
        ):
            with pytest.raises(ApiError, match="another user's"):
                refused()


def test_simulations_are_saved_replaced_and_listed(client: Client) -> None:
    one, two = client.add_scenario(scenario(1)), client.add_scenario(scenario(2))
    run = {"run_id": "r1", "scenario": one.sha256, "policy": "default/1", "seed": 3}
    client.save_simulation(run | {"state": "running"})
    saved = client.save_simulation(run | {"metrics": {"mean_wait_s": 2.5}, "wall_s": 1})
    assert (saved.state, saved.metrics) == ("completed", {"mean_wait_s": 2.5})
    client.save_simulation(run | {"run_id": "r2", "scenario": two.name, "policy": "mine/2"})
    assert client.simulation("r1") == saved
    assert [each.run_id for each in client.simulations(scenario="trace-2")] == ["r2"]
    assert [each.run_id for each in client.simulations(policy="default/1", kind="sim")] == ["r1"]
    with pytest.raises(ApiError, match="1 simulation of scenario"):
        client.remove_scenario("trace-1")
    client.remove_simulation("r1")
    client.remove_scenario("trace-1")
    with pytest.raises(ApiError, match="scenario"):
        client.save_simulation(run)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 422, "is not valid JSON"),
        (b"[]", 422, "not an object"),
        (json.dumps(scenario(world="sea")).encode(), 422, "world"),
        (json.dumps(scenario(duration_s=-1)).encode(), 422, "duration_s"),
        (json.dumps(scenario(description="\0")).encode(), 422, "NUL"),
        (json.dumps(scenario(description="\ud800")).encode(), 422, "not valid JSON"),
        (json.dumps(scenario(seed=2**70)).encode(), 422, "seed"),
        (b'{"name": ' + b"[" * 5000, 422, "not valid JSON"),
        (json.dumps(scenario(description="x" * 30_000)).encode(), 413, "scenario_limit_bytes"),
    ],
    ids=["cut", "array", "world", "time", "nul", "surrogate", "seed", "deep", "long"],
)
def test_a_wrong_scenario_is_refused(api: Api, body: bytes, status: int, words: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = api.as_().post("/v1/scenarios", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert api.as_().get("/v1/scenarios").json()["items"] == []


@pytest.mark.parametrize("text", ["%00", "x%00", "%25", "_", "%27%20or%201=1", "e" * 400])
def test_hostile_names_find_nothing_and_change_nothing(api: Api, text: str) -> None:
    alice = api.as_("alice")
    body = json.dumps(scenario(1)).encode()
    headers = {"Content-Type": "application/json"}
    assert alice.post("/v1/scenarios", content=body, headers=headers).status_code == 201
    for path in (f"scenarios/{text}", f"scenarios/{text}/content", f"simulations/{text}"):
        assert alice.get(f"/v1/{path}").status_code in (404, 422)
    assert alice.delete(f"/v1/scenarios/{text}").status_code in (404, 422)
    for query in (f"name={text}", f"tag={text}"):
        answer = alice.get(f"/v1/scenarios?{query}")
        assert answer.status_code == 422 or answer.json()["items"] == []
    assert alice.get(f"/v1/scenarios?cursor={text}").status_code == 422
    for query in (f"policy={text}", f"kind={text}"):
        answer = alice.get(f"/v1/simulations?{query}")
        assert answer.status_code == 422 or answer.json()["items"] == []
    assert len(alice.get("/v1/scenarios").json()["items"]) == 1


def test_pages_have_each_scenario_once(api: Api) -> None:
    alice, headers = api.as_("alice"), {"Content-Type": "application/json"}
    for seed in range(5):
        body = json.dumps(scenario(seed)).encode()
        assert alice.post("/v1/scenarios", content=body, headers=headers).status_code == 201
    names: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = alice.get(f"/v1/scenarios?limit=2{cursor and f'&cursor={cursor}'}").json()
        names += [each["name"] for each in page["items"]]
        cursor = page["next_cursor"]
    assert names == [f"trace-{seed}" for seed in reversed(range(5))]


def test_without_a_token_nothing_is_answered(api: Api) -> None:
    nobody = api.as_(None)
    for path in ("scenarios", "scenarios/x", "scenarios/x/content", "simulations", "simulations/x"):
        assert nobody.get(f"/v1/{path}").status_code == 401
    assert nobody.post("/v1/scenarios", content=b"{}").status_code == 401
    assert nobody.delete("/v1/scenarios/x").status_code == 401
    assert api.as_("host").get("/v1/scenarios").status_code == 403


def test_scenarios_count_for_their_users_quota(api: Api, client: Client) -> None:
    api.as_("operator").patch("/v1/users/alice", json={"max_bytes": 100})
    with pytest.raises(ApiError, match="max_bytes"):
        client.add_scenario(scenario())
    assert list(client.scenarios()) == []


def test_the_command_line_uses_the_server_that_it_names(api: Api, tmp_path: Path) -> None:
    def scenarios(*words: str) -> str:
        server = ["--url", api.url, "--token", api.tokens["alice"]]
        return printed(run("scenarios", *words, *server))

    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario(tags=["own"])))
    scenarios("import", str(path), "--tag", "x")
    (row,) = json.loads(scenarios("list", "--json"))
    assert (row["name"], row["by_user_id"], row["tags"]) == ("trace-1", "alice", ["own", "x"])
    assert json.loads(scenarios("tag", "trace-1", "y", "--json"))[0]["tags"] == ["own", "x", "y"]
    assert json.loads(scenarios("export", "trace-1", "--json"))["tags"] == ["own", "x", "y"]
    scenarios("remove", "trace-1")
    assert json.loads(scenarios("list", "--json")) == []
