"""Where jobs may run: ``[clusters.NAME]`` of the settings."""

from pathlib import Path

import pytest

from edgeyard.benchmark_api.bootstrap import nomad_access, render_settings
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.render import render
from tests.builders.hcl import a_request
from tests.unit.test_settings import no_settings, toml

__all__ = ["no_settings"]

ONE = """
[clusters.lab-a]
address = "http://nomad.example:4646/"
region = "europe"
namespace = "boards"
datacenters = ["dc2", "dc3"]
node_pool = "edge"
public_url = "http://edgeyard.example:42777"
memory_mib = 1024
"""


def problems(config: Path | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        Settings.load(config)
    return "\n".join(refused.value.problems)


def test_an_entry_with_an_address_is_a_nomad_whose_jobs_state_it_all(tmp_path: Path) -> None:
    settings = Settings.load(toml(tmp_path, ONE))
    assert (settings.cluster_name, settings.cluster.kind) == ("lab-a", "nomad")
    assert settings.chosen_driver == "docker"
    access = nomad_access(settings)
    assert (access.address, access.region) == ("http://nomad.example:4646", "europe")
    text = render(build_job(a_request(), render_settings(settings, "http://127.0.0.1:1")))
    for line in ('namespace   = "boards"', '["dc2", "dc3"]', 'node_pool   = "edge"', "1024"):
        assert line in text


def test_an_entry_without_an_address_names_this_machine(tmp_path: Path) -> None:
    config = toml(tmp_path, '[clusters.desk]\npublic_url = "https://lab.example"\n')
    settings = Settings.load(config)
    assert (settings.cluster_name, settings.cluster.kind) == ("desk", "embedded")
    assert settings.cluster.public_url == "https://lab.example"
    with pytest.raises(ConfigError, match=r"clusters\.desk is this machine"):
        nomad_access(settings)


def test_what_is_for_nomad_alone_needs_its_address(tmp_path: Path) -> None:
    found = problems(toml(tmp_path, '[clusters.desk]\ndatacenters = ["dc2"]\n'))
    assert "clusters.desk: datacenters: only for a Nomad cluster, which has an address" in found


def test_variables_come_before_the_file_and_name_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toml(tmp_path, ONE)
    monkeypatch.setenv("EDGEYARD_CLUSTERS__LAB_A__DATACENTERS", "dc7, dc8")
    monkeypatch.setenv("EDGEYARD_CLUSTERS__LAB_A__TIMEOUT_S", "1 min")
    cluster = Settings.load(config).cluster
    assert (cluster.datacenters, cluster.timeout_s) == (("dc7", "dc8"), 60)
    assert cluster.namespace == "boards"
    monkeypatch.setenv("EDGEYARD_CLUSTERS__LAB_A__ADRESS", "http://a:1")
    assert (
        "EDGEYARD_CLUSTERS__LAB_A__ADRESS: no such setting "
        "(did you mean EDGEYARD_CLUSTERS__LAB_A__ADDRESS?)"
    ) in problems(config)


def test_a_cluster_may_be_stated_by_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEYARD_CLUSTERS__LAB__ADDRESS", "http://nomad:4646")
    settings = Settings.load()
    assert (settings.cluster_name, settings.cluster.address) == ("lab", "http://nomad:4646")


def test_two_clusters_are_refused_also_where_a_variable_names_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = toml(tmp_path, ONE + '[clusters.lab-b]\naddress = "http://b:4646"\n')
    sentence = "clusters: lab-a, lab-b: a server has one cluster at present"
    assert sentence in problems(both)
    one = toml(tmp_path, ONE)
    monkeypatch.setenv("EDGEYARD_CLUSTERS__LAB_B__ADDRESS", "http://b:4646")
    assert sentence in problems(one)


@pytest.mark.parametrize(
    "again",
    [
        '[clusters.lab-a]\naddress = "http://b:4646"\n',
        '[clusters."lab-a"]\n',
    ],
)
def test_two_clusters_of_one_name_are_refused(tmp_path: Path, again: str) -> None:
    found = problems(toml(tmp_path, ONE + again))
    assert "clusters.lab-a is there twice: each cluster has a name of its own" in found


@pytest.mark.parametrize("name", ["Lab", "a_b", "-a", "a--b", "ä", "x" * 64, "a b"])
def test_a_name_is_a_label_that_has_one_spelling(tmp_path: Path, name: str) -> None:
    found = problems(toml(tmp_path, f'[clusters."{name}"]\n'))
    assert f"{name!r} is no name of a cluster" in found


def test_a_mistake_within_an_entry_is_reported_with_its_place(tmp_path: Path) -> None:
    config = toml(tmp_path, '[clusters.lab]\naddress = "nomad"\nnamespcae = "x"\n')
    found = problems(config)
    assert f"{config}: clusters.lab.address: is not a http(s) URL" in found
    assert f"{config}: clusters.lab.namespcae: no such setting (did you mean namespace?)" in found
    half = '[clusters.lab]\naddress = "http://a:1"\nclient_key = "k"\n'
    assert "client_cert and client_key belong together" in problems(toml(tmp_path, half))


def test_the_token_is_read_from_a_file_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "token"
    secret.write_text("CANARY-SECRET-1\n")
    config = toml(tmp_path, f'{ONE}token_file = "{secret}"\n')
    settings = Settings.load(config)
    assert nomad_access(settings).token == "CANARY-SECRET-1"
    assert "CANARY" not in repr(settings)
    other = tmp_path / "other"
    other.write_text("CANARY-SECRET-2")
    monkeypatch.setenv("EDGEYARD_CLUSTERS__LAB_A__TOKEN_FILE", str(other))
    assert nomad_access(Settings.load(config)).token == "CANARY-SECRET-2"
    monkeypatch.delenv("EDGEYARD_CLUSTERS__LAB_A__TOKEN_FILE")
    monkeypatch.setenv("EDGEYARD_CLUSTERS__LAB_A__TOKEN", "CANARY-SECRET-3")
    assert nomad_access(Settings.load(config)).token == "CANARY-SECRET-3"
    secret.unlink()
    monkeypatch.delenv("EDGEYARD_CLUSTERS__LAB_A__TOKEN")
    assert f"clusters.lab-a: token_file: {secret}: No such file" in problems(config)


@pytest.mark.parametrize("removed", ["cluster", "public_url", "nomad_address", "datacenters"])
def test_the_flat_settings_are_gone(tmp_path: Path, removed: str) -> None:
    assert f"{removed}: no such setting" in problems(toml(tmp_path, f'{removed} = "x"\n'))
