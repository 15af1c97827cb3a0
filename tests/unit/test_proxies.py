"""Which proxy the environment names, and what the client says of one that it can't use."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.sdk.config import ClientSettings
from edgeyard.benchmark_api.sdk.http import Api
from edgeyard.errors import ConfigError
from edgeyard.home import expanded
from edgeyard.proxies import proxy_for

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def shown(url: str, **environ: str) -> str | None:
    found = proxy_for(url, environ)
    return None if found is None else found.shown


def test_the_variable_of_the_scheme_goes_before_that_for_all() -> None:
    both = {"HTTPS_PROXY": "http://secure:1", "ALL_PROXY": "http://any:2"}
    assert shown("https://lab", **both) == "http://secure:1"
    assert shown("http://lab", **both) == "http://any:2"
    assert shown("http://lab") is None
    assert shown("http://lab", http_proxy="small:3", HTTP_PROXY="large:4") == "http://small:3"
    assert shown("http://lab", HTTP_PROXY="http://p:1", REQUEST_METHOD="GET") is None


def test_names_and_passwords_are_not_shown() -> None:
    found = proxy_for("http://lab", {"http_proxy": "http://ann:secret@proxy:3128"})
    assert found is not None
    assert found.url == "http://ann:secret@proxy:3128"
    assert "secret" not in f"{found!r}{found.shown}"


@pytest.mark.parametrize(
    ("listed", "url", "is_direct"),
    [
        ("*", "http://lab", True),
        ("lab.example", "http://lab.example", True),
        ("lab.example", "http://a.lab.example", True),
        (".lab.example", "http://a.lab.example", True),
        ("*.lab.example", "http://a.lab.example", True),
        ("lab.example", "http://mylab.example", False),
        ("LAB.example", "http://lab.EXAMPLE", True),
        ("other, lab", "http://lab", True),
        ("lab:80", "http://lab", True),
        ("lab:81", "http://lab", False),
        ("10.0.0.0/8", "http://10.1.2.3:42777", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.1.2.3", "http://10.1.2.3", True),
        ("fd00::/8", "http://[fd12::1]:42777", True),
        ("fd00::/8", "http://[fe80::1]", False),
        ("::1", "http://[::1]", True),
        ("[::1]", "http://[::1]", True),
        ("[::1]:42777", "http://[::1]:42777", True),
        ("[::1]:42777", "http://[::1]:1", False),
        ("fd00::/999, [, :, http://x, 10.0.0.0/8", "http://10.0.0.1", True),
        ("", "http://lab", False),
    ],
)
def test_hosts_that_are_reached_directly(listed: str, url: str, is_direct: bool) -> None:
    found = shown(url, ALL_PROXY="http://proxy:1", NO_PROXY=listed)
    assert (found is None) == is_direct


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("ftp://proxy:21", "ALL_PROXY: ftp://proxy:21 is of a kind that is not supported"),
        ("http://", "ALL_PROXY is not the URL of a proxy"),
        ("http://proxy:port", "ALL_PROXY is not the URL of a proxy"),
        ("http://[::1", "ALL_PROXY is not the URL of a proxy"),
        ("socks5h://proxy:1080", "needs a package: pip install 'httpx[socks]'"),
    ],
)
def test_a_proxy_that_can_t_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=message.partition("(")[0].replace("[", r"\[")[:20]):
        proxy_for("http://lab", {"ALL_PROXY": value})
    monkeypatch.setenv("ALL_PROXY", value)
    found = CliRunner().invoke(app, ["list", "--url", "http://lab"])
    assert found.exit_code == 1
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_dead_proxy_is_named_instead_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # does not listen
        proxy = f"http://ann:secret@127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("http_proxy", proxy)
        found = CliRunner().invoke(app, ["doctor", "--url", "http://lab.example"])
        api = Api(ClientSettings(url="http://lab.example", url_from=""), sleep=lambda s: None)
        with pytest.raises(Exception, match=r"the proxy http://127\.0\.0\.1") as refused:
            api.get("/v1/benchmarks")
        api.close()
    assert "(http_proxy) can't be reached" in str(refused.value)
    assert "the proxy http://127.0.0.1" in found.output
    assert "secret" not in found.output + str(refused.value)


def test_a_file_may_be_called_like_a_home_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expanded("~net.onnx") == Path("~net.onnx")
    (tmp_path / "~net.onnx").write_bytes(b"no model")
    found = CliRunner().invoke(
        app, ["submit", "--model", "~net.onnx", "--target", "rpi4b", "--url", "http://127.0.0.1:1"]
    )
    assert "Traceback" not in found.output
    assert found.exit_code == 1


def test_without_a_home_there_is_no_file_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    found = CliRunner().invoke(app, ["list", "--url", "http://127.0.0.1:1"])
    assert found.exit_code == 1
    assert "no answer from http://127.0.0.1:1" in found.stderr
