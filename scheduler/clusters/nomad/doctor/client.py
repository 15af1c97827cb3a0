"""Single requests to Nomad with their plain answers, including refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Self

import httpx

from edgeyard.scheduler.clusters.nomad.access import NomadAccess, no_answer

_SHOWN_CHARACTERS = 200


class NoAnswer(Exception):
    """Nomad did not answer; the message states why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one call.

    Attributes:
        value: Its JSON; None where it is none.
        date: What the answering agent's clock showed; None where it did not say.
        asked_at: Our clock before and after the call, seconds since 1970.
    """

    status: int
    text: str
    value: object
    date: datetime | None
    asked_at: tuple[float, float]

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status < 300

    @property
    def denied(self) -> bool:
        """Whether the token lacks the right."""
        return self.status == 403

    @property
    def said(self) -> str:
        """Status and first line of the answer, for messages."""
        return f"Nomad answered {self.status}: {' '.join(self.text.split())[:_SHOWN_CHARACTERS]}"

    def at(self, *path: str) -> object:
        """Return a nested value; None if there is none."""
        value = self.value
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def items(self) -> list[Mapping[str, object]]:
        """Return the objects of a list."""
        found = self.value if isinstance(self.value, list) else []
        return [each for each in found if isinstance(each, Mapping)]


class DoctorClient:
    """Asks with the token and the certificates of the settings. Thread-safe.

    Raises:
        ConfigError: A file of certificates can't be used.
    """

    def __init__(self, access: NomadAccess) -> None:
        self.access = access
        self._http = httpx.Client(
            base_url=access.address,
            headers={} if access.token is None else {"X-Nomad-Token": access.token},
            verify=access.tls(),
            timeout=access.timeout_s,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()

    def ask(self, path: str, method: str = "GET", body: object = None, **params: str) -> Answer:
        """Send a request in Edgeyard's namespace.

        Raises:
            NoAnswer: There was none.
        """
        access = self.access
        where = {"namespace": access.namespace, **params}
        if access.region is not None:
            where["region"] = access.region
        extensions = {}
        if access.tls_server_name is not None:
            extensions["sni_hostname"] = access.tls_server_name
        before = time.time()
        try:
            response = self._http.request(
                method, path, params=where, json=body, extensions=extensions
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswer(no_answer(error)) from error
        after = time.time()
        return Answer(
            status=response.status_code,
            text=response.text,
            value=_json(response),
            date=_date(response.headers.get("Date", "")),
            asked_at=(before, after),
        )


def _json(response: httpx.Response) -> object:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
