"""What a route answers is the model that it documents."""

from __future__ import annotations

from typing import Any, get_args

import httpx
import pytest

from edgeyard.benchmark_api.routes.contract import answer_types
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.scheduler.decide.changes import ChangeKind
from edgeyard.scheduler.twin.twin import BoardState
from tests.builders.contract import check_answer, routes, violation

LEASE = {
    "lease_id": "lease-1",
    "target_uid": "rpi4b-0001-0001",
    "since": "2026-11-21T08:00:00Z",
    "until": "2026-11-21T09:00:00Z",
    "reason": "",
    "user_id": None,
    "by_user_id": "ada",
    "ended_by": None,
}


def test_every_route_documents_a_model_or_another_kind_of_content() -> None:
    for route in routes():
        bodyless = route.status_code == 204 or route.path.startswith("/api/benchmarks/fl")
        documented = route.responses or not route.include_in_schema
        assert answer_types(route.endpoint) or bodyless or documented, route.path


@pytest.mark.parametrize(
    "body",
    [
        LEASE | {"colour": "red"},
        {name: value for name, value in LEASE.items() if name != "until"},
        LEASE | {"until": "tomorrow"},
        LEASE | {"reason": None},
    ],
    ids=["a field more", "a field less", "no time", "null where text is"],
)
def test_an_answer_that_differs_from_its_model_is_found(body: dict[str, object]) -> None:
    request = httpx.Request("GET", "http://edgeyard.test/v1/leases")
    assert violation(shapes.Lease, LEASE) is None
    check_answer(httpx.Response(200, json={"items": [LEASE]}, request=request))
    with pytest.raises(AssertionError, match="GET /v1/leases breaks its contract"):
        check_answer(httpx.Response(200, json={"items": [body]}, request=request))


@pytest.mark.parametrize(
    ("words", "kinds"),
    [(shapes.BoardState, BoardState), (shapes.ChangedField, ChangeKind)],
)
def test_documented_enum_values_are_those_of_the_scheduler(words: Any, kinds: Any) -> None:
    assert set(get_args(words)) == {each.value for each in kinds}


def test_routes_of_the_api_are_found() -> None:
    assert len(routes()) > 100
