"""The run of a schedule that Nomad started: it gets its task for the schedule's token."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import random
import secrets
import time
import urllib.error
import urllib.request
from typing import Callable, Mapping, Optional

from edgeyard.atomic_files import open_atomically
from edgeyard.devices.runner.spec import MAX_SPEC_BYTES, SPEC_FILE, task_dir_of
from edgeyard.devices.runner.upload import authorization, opener

logger = logging.getLogger(__name__)

GIVE_UP_AFTER_S = 300.0
"""A server that restarts is back by then; the board must be freed."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.2, 10.0
CALL_TIMEOUT_S = 30.0

_FINAL = frozenset({400, 401, 403, 404, 405, 409, 413, 415, 422})


class NotTakenUp(Exception):
    """The server did not give the run its task."""


def take_up(
    url: str,
    token: Optional[str],
    environ: Mapping[str, str],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Get the run's task, which replaces ``spec.json``, and return the token of its uploads.

    The token is made here, and the server gets its hash: where an answer is lost, the same request
    has the same answer.

    Args:
        url: As the present ``spec.json`` states it.
        token: Of the schedule; it opens nothing else.

    Raises:
        NotTakenUp: The server refused it, or did not answer in time.
    """
    own = "eyu_" + secrets.token_urlsafe(32)
    body = {
        "allocation_id": environ.get("NOMAD_ALLOC_ID", ""),
        "token_sha256": hashlib.sha256(own.encode()).hexdigest(),
    }
    deadline, pause_s = clock() + GIVE_UP_AFTER_S, FIRST_PAUSE_S
    while True:
        try:
            spec = _ask(url, token, body)
            break
        except urllib.error.HTTPError as error:
            with error:
                problem = f"{error.code} {error.read(500).decode('utf-8', 'replace')}"
            if error.code in _FINAL:
                raise NotTakenUp(
                    f"The server refused to give the run its task: {problem}"
                ) from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            problem = f"{type(error).__name__}: {error}"
        wait_s = pause_s * random.uniform(0.5, 1.0)
        if clock() + wait_s >= deadline:
            raise NotTakenUp(f"The server did not give the run its task in time: {problem}")
        logger.info("The run has no task yet; it will ask again: %s", problem)
        sleep(wait_s)
        pause_s = min(pause_s * 2, MAX_PAUSE_S)
    try:
        with open_atomically(task_dir_of(environ) / SPEC_FILE) as file:
            file.write(json.dumps(spec).encode())
    except OSError as error:
        raise NotTakenUp(f"The run's task can't be written: {error}") from error
    return own


def _ask(url: str, token: Optional[str], body: Mapping[str, object]) -> Mapping[str, object]:
    """Ask once.

    Raises:
        OSError: There was no answer, or a refusal (`urllib.error.HTTPError`).
        ValueError: The answer is none.
    """
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={**authorization(token), "Content-Type": "application/json"},
        method="POST",
    )
    with opener().open(request, timeout=CALL_TIMEOUT_S) as answer:
        data = answer.read(MAX_SPEC_BYTES + 1)
    document = json.loads(data) if len(data) <= MAX_SPEC_BYTES else None
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict) or "exchange_url" in spec:
        raise ValueError("the answer is not a task")
    return spec
