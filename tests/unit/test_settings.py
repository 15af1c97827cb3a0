"""Settings come from arguments, environment, secret files and TOML, in this order."""

from pathlib import Path

import pytest

from edgeyard.benchmark_api.bootstrap import render_settings
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.render import render
from tests.builders.hcl import a_request


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("EDGEYARD_"):
            monkeypatch.delenv(name)


def toml(folder: Path, text: str) -> Path:
    path = folder / "edgeyard.toml"
    path.write_text(text)
    return path


def test_without_anything_the_embedded_cluster_listens_on_loopback() -> None:
    settings = Settings.load()
    cluster = settings.cluster
    assert (settings.host, settings.cluster_name, cluster.kind, settings.chosen_driver) == (
        "127.0.0.1",
        "embedded",
        "embedded",
        "raw_exec",
    )


def test_arguments_come_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toml(tmp_path, 'port = 1\nhost = "a"\nlab_name = "c"\n')
    monkeypatch.setenv("EDGEYARD_PORT", "2")
    monkeypatch.setenv("EDGEYARD_HOST", "b")
    settings = Settings.load(config, port=3, host=None)
    assert (settings.port, settings.host, settings.lab_name) == (3, "b", "c")


def test_the_data_folder_is_the_same_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert Settings.load(data_dir=Path("lab")).data_dir == tmp_path / "lab"
    assert Settings.load(data_dir=Path("~/lab")).data_dir == Path("/home/ada/lab")


def test_sizes_durations_and_lists_are_written_as_people_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEYARD_MODEL_LIMIT_BYTES", "3 GiB")
    monkeypatch.setenv("EDGEYARD_UPLOAD_GRACE_S", "2 min")
    monkeypatch.setenv("EDGEYARD_ALLOW_HOSTS", "models.lab, 10.0.0.0/8,*.lan:8080")
    settings = Settings.load()
    assert settings.model_limit_bytes == 3 * 2**30
    assert settings.upload_grace_s == 120
    assert settings.allow_hosts == ("models.lab", "10.0.0.0/8", "*.lan:8080")


@pytest.mark.parametrize("port", [0, 65_536, -1])
@pytest.mark.parametrize("name", ["public_url", "address", "ui_url", "s3_endpoint"])
def test_an_address_has_a_port_at_which_somebody_can_listen(name: str, port: int) -> None:
    url = {name: f"http://lab.example:{port}"}
    with pytest.raises(ConfigError, match=f"{name}: is not a http"):
        Settings.load(None, **(url if name == "s3_endpoint" else {"clusters": {"lab": url}}))


def test_all_mistakes_are_reported_at_once_each_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toml(tmp_path, 'prot = 1\nport = 70000\nallow_hosts = ["10.0.0.0/99"]\n')
    monkeypatch.setenv("EDGEYARD_DRIVRE", "docker")
    monkeypatch.setenv("EDGEYARD_UPLOAD_GRACE_S", "soon")
    with pytest.raises(ConfigError) as caught:
        Settings.load(config)
    problems = "\n".join(caught.value.problems)
    assert "EDGEYARD_DRIVRE: no such setting (did you mean EDGEYARD_DRIVER?)" in problems
    assert "prot: no such setting (did you mean port?)" in problems
    assert f"{config}: port:" in problems
    assert "upload_grace_s: is not a duration" in problems
    assert "allow_hosts:" in problems


def test_a_secret_comes_from_a_file_and_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "token"
    secret.write_text("CANARY-SECRET-1\n")
    monkeypatch.setenv("EDGEYARD_S3_ACCESS_KEY", "me")
    monkeypatch.setenv("EDGEYARD_S3_SECRET_KEY_FILE", str(secret))
    settings = Settings.load()
    assert settings.s3_secret_key is not None
    assert settings.s3_secret_key.get_secret_value() == "CANARY-SECRET-1"
    assert "CANARY" not in repr(settings)


def test_a_missing_secret_file_is_a_mistake_of_the_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEYARD_S3_SECRET_KEY_FILE", "/no/such/file")
    with pytest.raises(ConfigError, match="EDGEYARD_S3_SECRET_KEY_FILE"):
        Settings.load()


def test_a_missing_file_is_reported_in_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "absent.toml"
    with pytest.raises(ConfigError) as refused:
        Settings.load(file)
    assert refused.value.problems == (
        f"the settings file {file} can't be read: No such file or directory",
    )


@pytest.mark.parametrize("text", ["port = ", "[[["])
def test_a_broken_file_is_reported_with_its_name(tmp_path: Path, text: str) -> None:
    config = toml(tmp_path, text)
    with pytest.raises(ConfigError, match=r"edgeyard\.toml"):
        Settings.load(config)


def test_half_a_registry_login_is_refused() -> None:
    with pytest.raises(ConfigError, match="belong together"):
        Settings.load(docker_auth_username="me")


def test_a_container_is_privileged_only_where_the_setting_says_so() -> None:
    for settings, expected in (
        (Settings.load(driver="docker"), "false"),
        (Settings.load(driver="docker", docker_privileged=True), "true"),
    ):
        job = build_job(a_request(), render_settings(settings, "http://127.0.0.1:1"))
        assert f"privileged = {expected}" in render(job)


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("value", ["ftp://x", "nonsense", "http://"])
def test_a_public_url_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="public_url"):
        Settings.load(clusters={"lab": {"public_url": value}})
