"""The services of the test environment at URLs, as their callers use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from edgeyard.errors import InvalidInput, NotFound, Unavailable
from edgeyard.proxies import http_client, proxy_for
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.twin.document import TwinData, read_twin_data
from edgeyard.simulator.scenario import Scenario, scenario_from_json
from edgeyard.training.ste.steps import Notice, Round

TIMEOUT_S = 60.0
"""Timeout of connecting, and of each pause of an answer."""


def service_client(url: str, token: str, flag: str) -> httpx.Client:
    """Return a client of the service at a URL.

    Args:
        url: Of the service.
        token: Bearer token; "": none is sent.
        flag: What named the URL, for errors.

    Raises:
        InvalidInput: It is no URL of a service.
    """
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput.at(flag, f"{url!r}: {error}", "http://HOST:PORT") from error
    if parts.scheme not in ("http", "https") or not parts.host:
        raise InvalidInput.at(flag, f"{url!r} is not a URL of a service", "http://HOST:PORT")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return http_client(url, proxy_for(url), base_url=url, headers=headers, timeout=TIMEOUT_S)


class HttpTwin:
    """The twin at a URL, for controllers."""

    def __init__(self, client: httpx.Client) -> None:
        """Take a client with the service's base URL, its token and a time-out."""
        self._client = client

    def refresh(self) -> int:
        return int(ask(self._client, "POST", "/refresh").json()["version"])

    def send(self, body: bytes) -> int:
        base = self._client.base_url
        # The twin of a server is at /v1/twin, without a slash at the end.
        path = "/" if base.path == "/" else str(base).rstrip("/")
        return int(ask(self._client, "POST", path, body=body).json()["version"])

    def pull(self, version: int) -> TwinData:
        return read_twin_data(ask(self._client, "GET", f"/data?version={version}").content)


class HttpScheduling:
    """The scheduler controller at a URL."""

    def __init__(self, client: httpx.Client) -> None:
        """Take a client with the service's base URL, its token and a time-out."""
        self._client = client

    def notify(self, notice: Notice) -> Round:
        answer = ask(self._client, "POST", "/notify", body=msgspec.json.encode(notice))
        return msgspec.json.decode(answer.content, type=Round)

    def policy(self) -> Policy:
        answer = ask(self._client, "GET", "/policy")
        return msgspec.json.decode(answer.content, type=Policy)


class HttpTraining:
    """The training of a model, at the scheduler controller of a URL."""

    def __init__(self, client: httpx.Client) -> None:
        """Take a client with the service's base URL, its token and a time-out."""
        self._client = client

    def begin(self, run_id: str, name: str, *, new: bool, resume: bool) -> None:
        body = msgspec.json.encode({"model": name, "new": new, "resume": resume})
        ask(self._client, "PUT", f"/training/{run_id}", body=body)

    def keep(self, run_id: str) -> None:
        ask(self._client, "POST", f"/training/{run_id}/keep")

    def publish(self, run_id: str, trained_on: str) -> int:
        body = msgspec.json.encode({"trained_on": trained_on})
        answer = ask(self._client, "POST", f"/training/{run_id}/publish", body=body)
        return int(answer.json()["version"])


class HttpScenarios:
    """The ScenarioDB at a URL."""

    def __init__(self, client: httpx.Client) -> None:
        """Take a client with the service's base URL, its token and a time-out."""
        self._client = client

    def scenario(self, name: str) -> Scenario:
        path = f"/scenarios/{quote(name, safe='')}"
        answer = ask(self._client, "GET", path, kind="scenario", name=name)
        return scenario_from_json(answer.content, source=f"scenario {name}")


class HttpRuns:
    """The runs of the controller at a URL."""

    def __init__(self, client: httpx.Client) -> None:
        """Take a client with the service's base URL, its token and a time-out."""
        self._client = client

    def start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start a run; return it."""
        return self._object("POST", "/runs", msgspec.json.encode(request))

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs, newest first."""
        found: list[dict[str, Any]] = ask(self._client, "GET", "/runs").json()
        return found

    def run(self, run_id: str) -> dict[str, Any]:
        """Return a run with its episodes."""
        return self._object("GET", f"/runs/{quote(run_id, safe='')}", run_id=run_id)

    def rounds(self, run_id: str) -> list[dict[str, Any]]:
        """Return the first round and the newest ones, with their thirteen steps."""
        path = f"/runs/{quote(run_id, safe='')}/rounds"
        found: list[dict[str, Any]] = ask(self._client, "GET", path, kind="run", name=run_id).json()
        return found

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Cancel a run; return it."""
        return self._object("POST", f"/runs/{quote(run_id, safe='')}/cancel", run_id=run_id)

    def resume(self, run_id: str) -> dict[str, Any]:
        """Go on with a run; return it."""
        return self._object("POST", f"/runs/{quote(run_id, safe='')}/resume", run_id=run_id)

    def _object(
        self, method: str, path: str, body: bytes | None = None, *, run_id: str = ""
    ) -> dict[str, Any]:
        kind = "run" if run_id else ""
        answer = ask(self._client, method, path, body=body, kind=kind, name=run_id)
        found: dict[str, Any] = answer.json()
        return found


def ask(
    client: httpx.Client,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    params: Mapping[str, Any] | None = None,
    kind: str = "",
    name: str = "",
) -> httpx.Response:
    """Send a request to a service, and return its answer.

    Args:
        client: Of the service.
        method: Of the request.
        path: Below the service's URL.
        body: JSON.
        params: Of the query.
        kind: What the path names; its 404 becomes `NotFound`.

    Raises:
        InvalidInput: The service refuses the input.
        NotFound: There is nothing of this kind and name.
        Unavailable: It does not answer, or something is wrong with it.
    """
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        answer = client.request(method, path, content=body, params=params, headers=headers)
    except httpx.HTTPError as error:
        raise Unavailable(f"{client.base_url} does not answer: {error}") from error
    if answer.is_success:
        return answer
    if answer.status_code == 404 and kind:
        raise NotFound(kind, name)
    detail = _detail(answer)
    if answer.status_code == 401:
        raise Unavailable(f"{client.base_url} refuses the token of EDGEYARD_STE_TOKEN: {detail}")
    if answer.status_code == 422:
        raise InvalidInput.at(str(client.base_url), detail)
    raise Unavailable(f"{client.base_url} answered {answer.status_code}: {detail}")


def _detail(answer: httpx.Response) -> str:
    """Return the sentence of a problem document, or the beginning of another answer."""
    try:
        found = answer.json()
        return str(found["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]
