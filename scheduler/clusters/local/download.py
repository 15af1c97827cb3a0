"""Downloads artifacts into the task's folder, within limits, and verifies them."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import httpx

from edgeyard.failpoints import failpoint
from edgeyard.scheduler.clusters.local.admission import Download
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from edgeyard.tls import shared_context

TIMEOUT = httpx.Timeout(10.0)  # seconds of silence; the server is this machine's own
WAITS_S = (0.2, 1.0)
"""Pauses between tries: a server that restarts its listener is back within a second."""

_CHUNK_BYTES = 1 << 20


class DownloadFailed(Exception):
    """An artifact could not be downloaded; ``failure`` states the cause."""

    def __init__(self, category: FailureCategory, sentence: str) -> None:
        self.failure = Failure(category=category, sentence=sentence)
        super().__init__(sentence)


class Downloader:
    """Fetches artifacts. Thread-safe; one for all tasks."""

    def __init__(self) -> None:
        # No proxies and no netrc from the server's environment: only what the job says.
        self._client = httpx.Client(
            timeout=TIMEOUT,
            verify=shared_context(trust_env=False),
            limits=httpx.Limits(keepalive_expiry=2.0),  # servers drop idle connections after 5 s
            trust_env=False,
            follow_redirects=False,
        )

    def fetch(
        self, download: Download, path: Path, limit_bytes: int | None, stopping: threading.Event
    ) -> int:
        """Put the file at ``path`` and return its size; gives up soon after ``stopping`` is set.

        Raises:
            DownloadFailed: ``cluster`` when the file can't be had, ``user_input`` when it is not
                what was submitted or is over the limit.
            OSError: The disk.
        """
        for wait_s in (*WAITS_S, None):
            try:
                failpoint("artifact:before")
                size = self._once(download, path, limit_bytes, stopping)
                failpoint("artifact:after")
                return size
            except (httpx.TransportError, _TransientError) as error:
                if wait_s is None or stopping.wait(wait_s):
                    raise _failed(download, str(error) or type(error).__name__) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise _failed(download, str(error)) from error
        raise AssertionError  # the last round returned or raised

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _once(
        self, download: Download, path: Path, limit_bytes: int | None, stopping: threading.Event
    ) -> int:
        digest, size = hashlib.sha256(), 0
        path.parent.mkdir(parents=True, exist_ok=True)
        identity = {"Accept-Encoding": "identity"}
        with (
            self._client.stream("GET", download.source, headers=identity) as response,
            path.open("wb") as file,
        ):
            if response.status_code >= 500:
                raise _TransientError(f"the server answered {response.status_code}")
            if response.status_code != 200:
                raise _failed(download, f"the server answered {response.status_code}")
            for chunk in response.iter_raw(_CHUNK_BYTES):
                size += len(chunk)
                if limit_bytes is not None and size > limit_bytes:
                    raise DownloadFailed(
                        FailureCategory.USER_INPUT,
                        f"{path.name}: the benchmark's files need more than the board's storage",
                    )
                digest.update(chunk)
                file.write(chunk)
                if stopping.is_set():
                    raise _failed(download, "stopped")
        if download.sha256 is not None and digest.hexdigest() != download.sha256:
            raise DownloadFailed(
                FailureCategory.USER_INPUT,
                f"{path.name} is not the file that was submitted: its SHA-256 is "
                f"{digest.hexdigest()}, {download.sha256} was expected",
            )
        return size


class _TransientError(Exception):
    """An error after which a retry may succeed."""


def _failed(download: Download, reason: str) -> DownloadFailed:
    # The name only: the URL is a key to the file.
    return DownloadFailed(
        FailureCategory.CLUSTER, f"{download.path.name} could not be downloaded: {reason}"
    )
