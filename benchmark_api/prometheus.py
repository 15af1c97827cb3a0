"""Asks a Prometheus server for ranges of time series."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from urllib.parse import urlsplit

import httpx
import msgspec

from edgeyard.errors import InvalidInput, Unavailable
from edgeyard.proxies import http_client, proxy_for
from edgeyard.scheduler.twin.series import Series

MAX_ANSWER_BYTES = 256 * 2**20
TIMEOUT_S = 30.0
MAX_ANSWER_S = 300.0
"""Maximum time of a whole answer, which ends the wait for a server that sends slowly."""
_PATH = "/api/v1/query_range"


class _Result(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Result] = []


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


class Prometheus:
    """A Prometheus server; its ``query_range`` is a `QueryRange`."""

    def __init__(
        self, url: str, *, timeout_s: float = TIMEOUT_S, max_answer_s: float = MAX_ANSWER_S
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: Of the server, such as ``http://prometheus.example:9090``; user and password in it
                are sent.
            timeout_s: Of connecting and of each pause of the answer.
            max_answer_s: Of the whole answer.

        Raises:
            InvalidInput: The URL can't be used.
            ConfigError: The environment names a proxy that can't be used.
        """
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            httpx.URL(f"{url}{_PATH}")
        except (ValueError, httpx.InvalidURL):
            usable = False
        if not usable:
            accepted = "http://HOST:9090 or https://…"
            reason = f"{url[:200]!r} is not a URL of Prometheus"
            raise InvalidInput.at("PROMETHEUS", reason, accepted)
        self._url = url.rstrip("/")
        self._shown = parts.netloc.rpartition("@")[2]
        self._max_answer_s = max_answer_s
        self._client = http_client(url, proxy_for(url), timeout=timeout_s)

    def query_range(
        self, promql: str, begin: datetime, end: datetime, step_s: float
    ) -> Sequence[Series]:
        """Return the series of a query, without samples that are not finite.

        Raises:
            Unavailable: The server does not answer, refuses the query, or answers something else.
        """
        until_s = time.monotonic() + self._max_answer_s
        form = {
            "query": promql,
            "start": str(begin.timestamp()),
            "end": str(end.timestamp()),
            "step": str(step_s),
        }
        try:
            with self._client.stream("POST", f"{self._url}{_PATH}", data=form) as response:
                data = bytearray()
                for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > MAX_ANSWER_BYTES:
                        raise self._unavailable(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
                    if time.monotonic() > until_s:
                        raise self._unavailable(f"the answer takes over {self._max_answer_s:g} s")
        except httpx.HTTPError as error:
            raise self._unavailable(f"does not answer: {error or type(error).__name__}") from error
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            status = response.status_code
            raise self._unavailable(f"answered {status} and no JSON of Prometheus") from error
        if answer.status != "success" or answer.data is None:
            raise self._unavailable(f"refused {promql!r}: {answer.error[:500]}")
        found = [_series(each) for each in answer.data.result]
        first_s, last_s = begin.timestamp() - step_s, end.timestamp() + step_s
        for each in found:
            times = [first_s, *each.times, last_s]
            if any(before > after for before, after in pairwise(times)):
                reason = f"samples for {promql!r} are not ascending times of the range"
                raise self._unavailable(reason)
        return found

    def close(self) -> None:
        """Release the connections."""
        self._client.close()

    def _unavailable(self, reason: str) -> Unavailable:
        return Unavailable(f"Prometheus at {self._shown}: {reason}")


def _series(result: _Result) -> Series:
    finite = [
        (at, value)
        for at, text in result.values
        if math.isfinite(at) and math.isfinite(value := _number(text))
    ]
    return Series(
        labels=result.metric,
        times=[at for at, _ in finite],
        values=[value for _, value in finite],
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
