"""Where the client finds its server and its token."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeyard.benchmark_api.sdk.config import DEFAULT_URL, ClientSettings, client_settings
from edgeyard.errors import ConfigError

Places = tuple[Path, dict[str, str]]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """An empty folder and an environment whose user configuration is empty, too."""
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder, {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def _user_file(environ: dict[str, str], text: str) -> None:
    path = Path(environ["XDG_CONFIG_HOME"]) / "edgeyard" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


LAB = """
[profiles.lab]
url = "https://lab.example"
token = "ey_lab"
"""


def test_without_anything_the_server_of_this_machine_is_meant(places: Places) -> None:
    folder, environ = places
    found = client_settings(environ=environ, folder=folder)
    assert (found.url, found.token) == (DEFAULT_URL, None)


def test_each_source_goes_before_the_next(places: Places) -> None:
    folder, environ = places
    _user_file(environ, 'url = "http://user"\ntoken = "u"\n')
    assert client_settings(environ=environ, folder=folder).url == "http://user"
    (folder / "edgeyard.toml").write_text('url = "http://folder/"\ntoken = "f"\n')
    found = client_settings(environ=environ, folder=folder)
    assert (found.url, found.token) == ("http://folder", "f")
    environ |= {"EDGEYARD_URL": "http://environment", "EDGEYARD_TOKEN": "e"}
    found = client_settings(environ=environ, folder=folder)
    assert (found.url, found.token, found.token_from) == (
        "http://environment",
        "e",
        "the environment",
    )
    found = client_settings(url="http://flag", token="g", environ=environ, folder=folder)
    assert (found.url, found.token) == ("http://flag", "g")


@pytest.mark.parametrize("how", ["argument", "environment", "default"])
def test_a_profile_is_named_by_argument_environment_or_file(places: Places, how: str) -> None:
    folder, environ = places
    _user_file(environ, ('profile = "lab"\n' if how == "default" else "") + LAB)
    if how == "environment":
        environ["EDGEYARD_PROFILE"] = "lab"
    found = client_settings(
        profile="lab" if how == "argument" else None, environ=environ, folder=folder
    )
    assert (found.url, found.token, found.profile) == ("https://lab.example", "ey_lab", "lab")


def test_a_profile_named_for_this_call_goes_before_the_environment(places: Places) -> None:
    folder, environ = places
    _user_file(environ, LAB)
    environ |= {"EDGEYARD_URL": "http://other", "EDGEYARD_TOKEN": "other"}
    found = client_settings(profile="lab", environ=environ, folder=folder)
    assert (found.url, found.token) == ("https://lab.example", "ey_lab")


def test_a_folders_url_is_not_handed_the_token_of_the_users_profile(places: Places) -> None:
    folder, environ = places
    _user_file(environ, 'profile = "lab"\n' + LAB)
    (folder / "edgeyard.toml").write_text('url = "http://elsewhere"\n')
    found = client_settings(environ=environ, folder=folder)
    assert (found.url, found.token) == ("http://elsewhere", None)
    (folder / "edgeyard.toml").write_text('url = "https://lab.example:443/"\n')
    assert client_settings(environ=environ, folder=folder).token == "ey_lab"


def test_tokens_come_from_files_too(places: Places) -> None:
    folder, environ = places
    (folder / "admin.token").write_text("ey_admin\n")
    (folder / "edgeyard.toml").write_text('url = "http://x"\ntoken_file = "admin.token"\n')
    assert client_settings(environ=environ, folder=folder).token == "ey_admin"
    environ["EDGEYARD_TOKEN_FILE"] = str(folder / "admin.token")
    (folder / "edgeyard.toml").unlink()
    assert client_settings(environ=environ, folder=folder).token == "ey_admin"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("url = 1", "url has to be a string"),
        ("url = ", "can't be read as TOML"),
        ('url = "ftp://x"', "write http://HOST:PORT"),
        ('url = "http://x?a=b"', "write http://HOST:PORT"),
        ('url = "http://x/#top"', "write http://HOST:PORT"),
        ('url = "http://[::1"', "write http://HOST:PORT"),
        ('token = "a b"', "characters that no token has"),
        ('token_file = "nowhere"', "can't read"),
        ("profiles = 3\nprofile = 'x'", "profiles has to be a table"),
        ("profile = 'x'\n[profiles.lab]", "there are: lab"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(places: Places, text: str, expected: str) -> None:
    folder, environ = places
    (folder / "edgeyard.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"edgeyard\.toml") as caught:
        client_settings(environ=environ, folder=folder)
    assert expected in str(caught.value)


def test_the_token_is_never_shown() -> None:
    assert "secret" not in repr(ClientSettings(url="http://x", url_from="", token="secret"))
