"""The inventory's check over HTTP, and unknown boards at submission."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from edgeyard.scheduler.twin.comparison import Comparison, Difference, Finding
from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.fakes.cluster import board

FOUND = Comparison(
    missing=(Finding(target_uid="rpi5-0001-0001", host="", reason="no host reports it"),),
    unknown=(),
    differing=(
        Finding(
            target_uid="rpi4b-0001-0001",
            host="h",
            reason="ram is 2 GiB, not 4 GiB",
            differences=(Difference(what="ram", expected="4 GiB", found="2 GiB"),),
        ),
    ),
)
UNKNOWN = Comparison(
    missing=(),
    unknown=(Finding(target_uid="x86-0001-0001", host="h", reason="?"),),
    differing=(),
)


def test_the_check_shows_what_is_not_as_expected(api: Api) -> None:
    body = api.as_().get("/v1/inventory/check").json()
    assert body["ok"] is True
    assert body["unknown_devices"] == "deny"
    api.engine.found = FOUND
    body = api.as_().get("/v1/inventory/check").json()
    assert body["ok"] is False
    assert body["missing"][0]["target_uid"] == "rpi5-0001-0001"
    assert body["differing"][0]["differences"] == [
        {"what": "ram", "expected": "4 GiB", "found": "2 GiB"}
    ]
    assert body["age_s"] == 1.0


def test_before_the_cluster_has_answered_there_is_nothing_to_compare(api: Api) -> None:
    api.engine.age_s = math.inf
    answer = api.as_().get("/v1/inventory/check")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]


def test_the_inventory_requires_a_token(api: Api) -> None:
    assert api.as_(None).get("/v1/inventory/check").status_code == 401


@pytest.mark.parametrize(("setting", "status"), [("deny", 422), ("warn", 202), ("allow", 202)])
def test_a_family_of_unknown_boards_can_be_asked_for_where_they_are_used(
    tmp_path: Path, setting: str, status: int
) -> None:
    with running(tmp_path, unknown_devices=setting) as api:
        api.upload()
        api.engine.unknown = (board("x86-0001-0001"),)
        api.engine.found = UNKNOWN
        answer = api.as_().post("/v1/benchmarks", json=description(target="x86"))
        assert answer.status_code == status, answer.text
        assert api.as_().get("/v1/inventory/check").json()["ok"] is (setting == "allow")
        shown = api.as_().get("/v1/boards/x86-0001-0001").json()
        assert shown["expected"] is False
        assert api.as_().get("/v1/boards/rpi4b-0001-0001").json()["expected"] is True
