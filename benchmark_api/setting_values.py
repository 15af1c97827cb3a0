"""How people write the values of settings: sizes, durations, lists, URLs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from edgeyard.devices.sizes import parse_size
from edgeyard.scheduler.model.quantities import duration_s


def _size(value: object) -> object:
    # The environment gives every number as text, TOML as a number.
    return value if isinstance(value, int) and not isinstance(value, bool) else parse_size(value)


def _words(value: object) -> object:
    """Return a list as the environment writes it: separated by commas."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def _plain_url(value: str) -> str:
    parts = urlsplit(value)
    try:
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond 65535
        named = False
    if parts.scheme not in ("http", "https") or not named or parts.query:
        raise ValueError("is not a http(s) URL, e.g. http://10.200.0.1:42777")
    return value.rstrip("/")


Size = Annotated[int, BeforeValidator(_size)]
Seconds = Annotated[float, BeforeValidator(duration_s)]
CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
PlainUrl = Annotated[str, AfterValidator(_plain_url)]
