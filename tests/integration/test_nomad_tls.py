"""A Nomad that speaks https alone, and only with those that show a certificate of its CA."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgeyard import testbed
from edgeyard.benchmark_api.bootstrap import nomad_access
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.clusters.nomad import NomadAccess, NomadCluster
from edgeyard.scheduler.clusters.nomad.doctor import examine
from edgeyard.scheduler.clusters.nomad.retry import RetryPolicy
from edgeyard.testbed import LoopbackNomad, saved
from edgeyard.testbed.cluster import make
from edgeyard.testbed.tls import Certificates
from tests.builders.cluster import PRINT_TOKEN, Submitter, a_job, on
from tests.nomad_cluster import entry, nomad_binary

pytestmark = [pytest.mark.nomad, pytest.mark.xdist_group("nomad")]

BOARD = "rpi4b-0001-0001"
ONCE = RetryPolicy(tries=1, trips_at=10_000)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LoopbackNomad]:
    hosts = [{"rpi4b": [entry(BOARD)]}]
    running = testbed.make(tmp_path / "nomad", nomad_binary(), hosts, tls=True).up()
    yield running
    running.down()


def access_of(cluster: LoopbackNomad) -> NomadAccess:
    """As a server has it that is started with the settings of the test bed."""
    (cluster.folder / saved.INVENTORY).write_text("{}")
    saved.save(cluster)
    return nomad_access(Settings.load(cluster.folder / saved.SETTINGS))


def refused(access: NomadAccess, why: str) -> bool:
    """Nomad hangs up as soon as it has said why, which may be lost on the way: then ask again."""
    with contextlib.closing(NomadCluster(access, retry=ONCE)) as cluster:
        for _ in range(20):
            with pytest.raises(ClusterUnreachable) as refusal:
                cluster.hosts()
            if why in str(refusal.value):
                return True
    raise AssertionError(refusal.value)


def advised(access: NomadAccess, fix: str) -> bool:
    """By the doctor; as above."""
    url = "http://127.0.0.1:9"
    for _ in range(20):
        (found,) = examine(
            access,
            driver="raw_exec",
            image="",
            public_url=url,
            boards=lambda _: (),
        )
        assert found.state == "problem"
        if fix in found.fix:
            return True
    raise AssertionError(found)


def test_over_mutual_tls(cluster: LoopbackNomad, tmp_path: Path) -> None:
    access = access_of(cluster)
    assert access.address.startswith("https://")
    named = replace(access, tls_server_name="server.global.nomad")
    for good in (access, named):
        with contextlib.closing(NomadCluster(good)) as adapter:
            assert [each.target_uid for host in adapter.hosts() for each in host.boards] == [BOARD]
    with contextlib.closing(NomadCluster(named)) as adapter:
        lab = Submitter(adapter)
        state = lab.run(a_job(PRINT_TOKEN, on(BOARD)))
        assert state.failure is None
        assert lab.log() == "t-1\n"

    without = replace(access, client_cert=None, client_key=None)
    assert refused(without, "Nomad requires a client certificate")
    assert advised(without, "clusters.testbed.client_cert")
    other = Certificates.make(tmp_path / "other", cluster.server.nomad)
    foreign = replace(access, client_cert=other.client_cert, client_key=other.client_key)
    assert refused(foreign, "Nomad refuses the client certificate")
    assert advised(foreign, "clusters.testbed.client_cert")
    for wrong in (
        replace(access, ca_cert=other.ca_cert),
        replace(access, ca_cert=None),
        replace(access, tls_server_name="client.global.nomad"),
    ):
        assert refused(wrong, "Nomad's certificate is not trusted")
        assert advised(wrong, "clusters.testbed.ca_cert")
    plain = replace(access, address=access.address.replace("https", "http"))
    assert refused(plain, "HTTP request to an HTTPS server")
    assert advised(plain, "https://")


def test_the_test_bed_is_found_again_with_its_certificates(tmp_path: Path) -> None:
    """No agent runs: what counts is what is written down."""
    hosts = [{"rpi4b": [entry(BOARD)]}]
    made = make(tmp_path / "nomad", nomad_binary(), hosts, tls=True)
    saved.save(made)
    found = saved.load(tmp_path / "nomad")
    assert found is not None
    assert found.address == made.address
    assert found.tls is not None
    assert found.tls.context().verify_mode is ssl.CERT_REQUIRED
    assert json.dumps(str(made.folder / "tls/global-server-nomad.pem")) in (
        (made.server.config).read_text()
    )
    saved.clear(made.folder)
    assert not (made.folder / "tls").exists()
