"""Where the client finds its server and its token.

In this order: arguments (and the profile that an argument names), ``EDGEYARD_URL``,
``EDGEYARD_TOKEN``, ``EDGEYARD_TOKEN_FILE`` and ``EDGEYARD_PROFILE``, ``edgeyard.toml`` of the
folder, ``~/.config/edgeyard/config.toml``. Both files look alike::

    profile = "lab"                     # the one that is meant where none is named

    [profiles.lab]
    url = "https://edgeyard.example.org"
    token_file = "~/.config/edgeyard/lab.token"     # or token = "ey_..."

``url``, ``token`` and ``token_file`` may also stand at the top, for who has one server only.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from edgeyard.errors import ConfigError, reason_of
from edgeyard.home import expanded

DEFAULT_URL = "http://127.0.0.1:42777"
"""The port is the one that the first dAIEdge-VLab jobs were given their files from."""

_FOLDER_FILE = "edgeyard.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Server and token, and where each came from.

    Attributes:
        url: Without a slash at its end.
        token: None where none was found.
    """

    url: str
    url_from: str
    token: str | None = field(default=None, repr=False)
    token_from: str = "nowhere"
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One source of settings; a token that is stated next to a URL is meant for that URL alone."""

    source: str
    url: str | None = None
    token: str | None = field(default=None, repr=False)


def user_config_path(environ: Mapping[str, str]) -> Path:
    """Return the user's own file, by the XDG rules."""
    base = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return expanded(base) / "edgeyard" / "config.toml"


def client_settings(
    *,
    url: str | None = None,
    token: str | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> ClientSettings:
    """Put the sources together.

    A token that a file states next to a URL is sent to that server only: else an ``edgeyard.toml``
    in a foreign folder could name a URL of its own and be handed the token of the user's profile.

    Raises:
        ConfigError: A file can't be read, a profile is nowhere, or the URL is none.
    """
    environ = os.environ if environ is None else environ
    files = [
        (str(path), _read_toml(path))
        for path in ((folder or Path.cwd()) / _FOLDER_FILE, user_config_path(environ))
    ]
    chosen = profile or environ.get("EDGEYARD_PROFILE") or _default_profile(files)
    profiles = [_profile_layer(source, table, chosen) for source, table in files if chosen]
    named = [layer for layer in profiles if layer is not None]
    if chosen and not named:
        raise ConfigError([_no_such_profile(chosen, files)])
    arguments = _Layer(source="an argument", url=url, token=token)
    environment = _environment_layer(environ)
    tops = [_layer_of(source, table, source) for source, table in files]
    if profile:  # named by hand for this call, so it is meant before what the shell exports
        layers = [arguments, *named, environment, *tops]
    else:
        layers = [arguments, environment, *_by_file(files, profiles, tops)]
    return _settle(layers, chosen)


def _by_file(
    files: list[tuple[str, Mapping[str, object]]],
    profiles: list[_Layer | None],
    tops: list[_Layer],
) -> list[_Layer]:
    """Return the folder's file before the user's; in each, the profile before its top."""
    ordered: list[_Layer] = []
    for position in range(len(files)):
        of_profile = profiles[position] if profiles else None
        ordered += [layer for layer in (of_profile, tops[position]) if layer is not None]
    return ordered


def _settle(layers: list[_Layer], profile: str | None) -> ClientSettings:
    url, url_from = next(
        ((layer.url, layer.source) for layer in layers if layer.url), (DEFAULT_URL, "the default")
    )
    url = _checked_url(url, url_from)
    for layer in layers:
        free = layer.source in ("an argument", "the environment") or layer.url is None
        if layer.token and (free or _origin(layer.url or "") == _origin(url)):
            return ClientSettings(
                url=url,
                url_from=url_from,
                token=_checked_token(layer.token, layer.source),
                token_from=layer.source,
                profile=profile,
            )
    return ClientSettings(url=url, url_from=url_from, profile=profile)


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    token = environ.get("EDGEYARD_TOKEN")
    if not token and environ.get("EDGEYARD_TOKEN_FILE"):
        token = _token_in(expanded(environ["EDGEYARD_TOKEN_FILE"]), "EDGEYARD_TOKEN_FILE")
    return _Layer(
        source="the environment", url=environ.get("EDGEYARD_URL") or None, token=token or None
    )


def _default_profile(files: list[tuple[str, Mapping[str, object]]]) -> str | None:
    for _, table in files:
        if isinstance(table.get("profile"), str) and table["profile"]:
            return str(table["profile"])
    return None


def _profile_layer(source: str, table: Mapping[str, object], profile: str) -> _Layer | None:
    profiles = table.get("profiles", {})
    if not isinstance(profiles, Mapping):
        raise ConfigError([f"{source}: profiles has to be a table: [profiles.NAME]"])
    found = profiles.get(profile)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise ConfigError([f"{source}: profiles.{profile} has to be a table"])
    return _layer_of(f"profile {profile} of {source}", found, source)


def _layer_of(source: str, table: Mapping[str, object], path: str) -> _Layer:
    values: dict[str, str] = {}
    for key in ("url", "token", "token_file"):
        value = table.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            raise ConfigError([f"{source}: {key} has to be a string"])
        values[key] = value
    token = values.get("token")
    if token is None and "token_file" in values:
        file = expanded(values["token_file"])
        token = _token_in(Path(path).parent / file, f"{source}: token_file")
    return _Layer(source=source, url=values.get("url"), token=token)


def _token_in(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{what}: can't read {path}: {reason_of(error)}"]) from error


def _read_toml(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError([f"{path}: can't be read as TOML: {reason_of(error)}"]) from error


def _no_such_profile(profile: str, files: list[tuple[str, Mapping[str, object]]]) -> str:
    known = sorted(
        {
            str(name)
            for _, table in files
            if isinstance(table.get("profiles"), Mapping)
            for name in table["profiles"]  # type: ignore[attr-defined]
        }
    )
    places = " or ".join(source for source, _ in files)
    return f"no profile {profile!r} in {places}; " + (
        f"there are: {', '.join(known)}" if known else f"write a table [profiles.{profile}]"
    )


def _checked_url(url: str, source: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        good = good and not parts.query and not parts.fragment
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            [
                f"the server's URL {url!r} (from {source}) is not an http or https URL: "
                "write http://HOST:PORT"
            ]
        )
    return url.rstrip("/")


def _checked_token(token: str, source: str) -> str:
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError([f"the token from {source} has characters that no token has"])
    return token


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default
