"""Tests of one group run in one process and share a Nomad cluster, an engine or a server."""

import os

import pytest


@pytest.mark.xdist_group("one_process")
def test_the_mark_of_a_group_has_an_effect(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("all tests run in one process")
    assert request.node.nodeid.endswith("@one_process")
