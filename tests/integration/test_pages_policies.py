"""Pages of policies, models and simulations: states, faults, promotion and roll-back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgeyard.scheduler.model.registered_models import ModelKind, ModelState
from tests.builders.api import Api, running
from tests.builders.pages import HOSTILE, Parts, as_
from tests.builders.registered import add_candidate
from tests.integration.test_api_auth import SCENARIO

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("policies")) as found:
        yield found


def role_of(api: Api, name: str) -> list[str]:
    items = api.as_("operator").get("/v1/policies").json()["items"]
    found: list[str] = next(each["roles"] for each in items if each["name"] == name)
    return found


def test_an_operator_makes_a_policy_the_shadow_and_active_and_returns(api: Api) -> None:
    browser, where = as_(api, "operator"), "/ui/policies"
    for path, name, shown in (
        ("shadow", "native", "decides as the shadow"),
        ("shadow/end", "", "no shadow policy"),
        ("active", "native", "The policy decides from the next cycle on"),
        ("active/end", "", "The configured policy decides"),
    ):
        answer = browser.post(f"{where}/{path}", where, name=name, reason=f"trying {path}")
        assert answer.status_code == 303, answer.text
        assert shown in browser.get(answer.headers["location"]).text
        wanted = [] if path.endswith("end") else [path]
        assert role_of(api, "native") == wanted
    assert "trying active" in browser.get("/ui/events?type=policy.active").text
    assert browser.post(f"{where}/odd", where, name="native").status_code == 422
    assert browser.post(f"{where}/active", where, name="absent").status_code == 422


def test_others_read_policies_and_their_text_without_acts(api: Api) -> None:
    browser = as_(api, "bob")
    text = browser.get("/ui/policies").text
    assert "Make active" not in text
    assert "/ui/models" not in text
    assert '<span class="state active">active</span>' in text
    assert "Faults" in text
    assert "[" in browser.get("/ui/policies/native").text
    assert browser.get("/ui/policies/absent").status_code == 404
    assert browser.get("/ui/policies/native?version=x").status_code == 422


@pytest.mark.parametrize(
    ("name", "entry"),
    [("operator", "Policies, models, simulations"), ("bob", "Policies, simulations")],
)
def test_the_navigation_names_what_is_behind_an_entry(api: Api, name: str, entry: str) -> None:
    browser = as_(api, name)
    assert f'<a href="/ui/policies">{entry}</a>' in browser.get("/ui").text
    text = browser.get("/ui/simulations").text
    assert f'<a href="/ui/policies" aria-current="page">{entry}</a>' in text
    assert '<a href="/ui/compare" aria-current="page">' in browser.get("/ui/history").text


def test_the_text_of_a_policy_can_be_copied(api: Api) -> None:
    text = as_(api, "bob").get("/ui/policies/native").text
    assert '<button type="button" data-copy="policy">' in text  # no script shows a hidden one


def test_an_operator_promotes_a_model_reads_its_report_and_rolls_it_back(api: Api) -> None:
    version = add_candidate(api.store, passed=False).version
    browser, where = as_(api, "operator"), "/ui/models"
    one = f"{where}/failure/{version}"
    refused = browser.post(f"{one}/promote", where, reason="looks good")
    assert refused.status_code == 409
    assert "later (not better)" in refused.text
    for state in ("shadow", "active"):
        assert f"Make it {state}</button>" in browser.get(where).text
        answer = browser.post(f"{one}/promote", where, reason=f"good {HOSTILE}", force="1")
        assert answer.headers["location"] == f"{where}?done=model-promoted"
        assert f'<span class="state {state}">{state}</span>' in browser.get(where).text
    report = browser.get(one).text
    assert "Conditions of its promotion" in report
    assert "# a test" in report
    parts = Parts()
    parts.feed(browser.get(where).text + report)
    assert parts.wrong == []
    answer = browser.post(f"{where}/failure/rollback", where, reason="it is worse on rpi5")
    assert answer.headers["location"] == f"{where}?done=model-rolled-back"
    with api.store.read() as uow:
        retired = uow.models.get(ModelKind.FAILURE, version)
    assert retired.state is ModelState.RETIRED
    assert "it is worse on rpi5" in retired.reason
    acts = browser.get("/ui/events?type=model.changed").text
    assert "Reason: it is worse on rpi5" in acts
    assert "Reason: <bdi>good " in acts
    assert f"model: failure/{version}" in acts, "which model is stated"


def test_simulations_are_listed_with_figures_and_link_to_their_reports(api: Api) -> None:
    client = api.as_("alice")
    client.post("/v1/scenarios", json=SCENARIO)
    metrics = {"jobs": 40, "mean_wait_s": 75.0, "utilisation": 0.5, "odd": {"a": [HOSTILE]}}
    for run_id in ("run-one", "run-two"):
        body = {"scenario": "paper", "policy": f"sjf {HOSTILE}", "seed": 1, "metrics": metrics}
        assert client.put(f"/v1/simulations/{run_id}", json=body).status_code == 200
    browser = as_(api, "bob")
    text = browser.get("/ui/simulations?scenario=paper").text
    assert "1 min 15 s" in text
    assert text.count('href="/ui/simulations/run-') == 2
    report = browser.get("/ui/simulations/run-one").text
    assert "<dt>mean wait s</dt><dd>1 min 15 s</dd>" in report
    for shown in (text, report):
        parts = Parts()
        parts.feed(shown)
        assert parts.wrong == []
    assert 'id="wrong-scenario"' in browser.get("/ui/simulations?scenario=none").text
    assert browser.get("/ui/simulations/none").status_code == 404
