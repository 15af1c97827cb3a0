"""Nomad's own parser reads in every job of ours what was meant, whatever text is in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import given, settings

from edgeyard.scheduler.clusters.nomad.client import NomadClient
from edgeyard.scheduler.clusters.nomad.expected import mismatches
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.render import render
from edgeyard.testbed import LoopbackNomad
from tests.nomad_cluster import access_of
from tests.property.test_hcl_round_trip import JOBS

pytestmark = [pytest.mark.nomad, pytest.mark.xdist_group("nomad")]


@pytest.fixture(scope="module")
def client(nomad_cluster: LoopbackNomad) -> Iterator[NomadClient]:
    client = NomadClient(access_of(nomad_cluster))
    yield client
    client.close()


@pytest.mark.parametrize("driver", ["docker", "raw_exec"])
@settings(max_examples=150, deadline=None)
@given(job=JOBS)
def test_every_rendered_job_is_accepted_and_equal(
    client: NomadClient, driver: str, job: NomadJob
) -> None:
    job = _carried(replace(job, driver=driver))
    assert mismatches(job, client.parse(render(job))) == []


def _carried(job: NomadJob) -> NomadJob:
    """In normal form, which HCL brings all text to (users' text in another form is refused where
    it is submitted)."""
    normal = _normal(job)
    assert isinstance(normal, NomadJob)
    return normal


def _normal(value: object) -> object:
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, tuple):
        return tuple(map(_normal, value))
    if isinstance(value, Mapping):
        return {name: _normal(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _normal(getattr(value, f.name)) for f in fields(value)})
    return value
