"""The host's container engine, by Docker's HTTP API on its unix socket.

Errors of the engine repeat names of images and registries, which must not leave the host: what is
raised here states the kind of the error instead. The engine's own log has the whole text.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import socket
import threading
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple
from urllib.parse import quote, urlencode

from edgeyard.errors import RunFailed

_TIMEOUT_S = 60.0
_PULL_SILENCE_S = 300.0
_HEADER_BYTES = 8

_REFUSED = ("unauthorized", "denied", "authentication required", "no basic auth credentials")
_UNREACHABLE = (
    "connection refused",
    "no such host",
    "i/o timeout",
    "timeout exceeded",
    "network is unreachable",
    "no route to host",
    "x509",
    "tls",
    "server gave http response",
)
_MISSING = ("not found", "manifest unknown", "name unknown", "does not exist", "no such image")
_NO_PLATFORM = ("no matching manifest", "does not match the specified platform")
_NOT_RUNNABLE = ("exec format error", "executable file not found", "no such file or directory")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ContainerEngine:
    """One engine; every call raises RunFailed (``board_fault``) where it does not succeed.

    Args:
        path: Of its socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def architecture(self) -> str:
        """Return the architecture of its images, such as ``amd64``."""
        found: Mapping[str, Any] = self._json("GET", "/version")
        return str(found.get("Arch"))

    def inspect_image(self, name: str) -> Optional[Mapping[str, Any]]:
        """Return what is known of an image; None: the host does not have it."""
        status, body = self._call("GET", f"/images/{quote(name, safe='/:@')}/json")
        if status == 404:
            return None
        found: Mapping[str, Any] = self._read(status, body)
        return found

    def pull(self, name: str, auth: Optional[Mapping[str, str]]) -> None:
        """Fetch an image from its registry.

        Args:
            auth: ``username`` and ``password``; None: none are needed.
        """
        headers = {}
        if auth:
            login = json.dumps({"username": auth["username"], "password": auth["password"]})
            headers["X-Registry-Auth"] = base64.urlsafe_b64encode(login.encode()).decode()
        repository, tag = _parts(name)
        query = urlencode({"fromImage": repository, "tag": tag})
        with self._open("POST", f"/images/create?{query}", headers, _PULL_SILENCE_S) as answer:
            if answer.status >= 400:
                _refuse(answer.status, answer.read())
            for line in answer:
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    if isinstance(said, dict) and said.get("error"):
                        _refuse(500, line)

    def inspect_container(self, name: str) -> Mapping[str, Any]:
        """Return what is known of a container."""
        found: Mapping[str, Any] = self._json("GET", f"/containers/{quote(name)}/json")
        return found

    def list_containers(self, label: str, states: Sequence[str]) -> List[Mapping[str, Any]]:
        """Return the containers that have a label and one of these states."""
        filters = json.dumps({"label": [label], "status": list(states)})
        query = urlencode({"all": "true", "filters": filters})
        found: List[Mapping[str, Any]] = self._json("GET", f"/containers/json?{query}")
        return found

    def create_container(self, name: str, settings: Mapping[str, object]) -> str:
        """Make a container that does not run yet; return its id."""
        found: Mapping[str, Any] = self._json(
            "POST", f"/containers/create?{urlencode({'name': name})}", settings
        )
        return str(found["Id"])

    def start_container(self, name: str) -> None:
        """Start it."""
        self._json("POST", f"/containers/{quote(name)}/start")

    def wait(self, name: str) -> int:
        """Return its exit status once it has ended."""
        with self._open("POST", f"/containers/{quote(name)}/wait", {}, None) as answer:
            found: Mapping[str, Any] = self._read(answer.status, answer.read())
        return int(found["StatusCode"])

    def stop(self, name: str, patience_s: int) -> None:
        """Ask it to end, and kill it where it has not ended in time; errors are left out."""
        with contextlib.suppress(RunFailed):
            self._call("POST", f"/containers/{quote(name)}/stop?t={patience_s}")

    def remove_container(self, name: str) -> None:
        """Kill it where it runs, and remove it."""
        self._json("DELETE", f"/containers/{quote(name)}?force=true&v=true")

    @contextlib.contextmanager
    def attached(self, name: str, stdout: int, stderr: int) -> Iterator[None]:
        """Copy its output to two file descriptors, until it ends, while the block runs."""
        query = urlencode({"stream": "1", "stdout": "1", "stderr": "1"})
        path = f"/containers/{quote(name)}/attach?{query}"
        with self._open("POST", path, {}, None) as answer:
            if answer.status >= 400:
                _refuse(answer.status, answer.read())
            copying = threading.Thread(
                target=_copy, args=(answer, {1: stdout, 2: stderr}), daemon=True
            )
            copying.start()
            yield
            copying.join(_TIMEOUT_S)

    def _json(self, method: str, path: str, body: Optional[Mapping[str, object]] = None) -> Any:
        return self._read(*self._call(method, path, body))

    def _read(self, status: int, body: bytes) -> Any:
        if status >= 400:
            _refuse(status, body)
        return json.loads(body or b"null")

    def _call(
        self, method: str, path: str, body: Optional[Mapping[str, object]] = None
    ) -> Tuple[int, bytes]:
        with self._open(method, path, {}, _TIMEOUT_S, body) as answer:
            return answer.status, answer.read()

    @contextlib.contextmanager
    def _open(
        self,
        method: str,
        path: str,
        headers: Dict[str, str],
        timeout_s: Optional[float],
        body: Optional[Mapping[str, object]] = None,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = _Connection(self._path, timeout_s)
        data = None if body is None else json.dumps(body)
        given = {**headers, **({} if data is None else {"Content-Type": "application/json"})}
        try:
            connection.request(method, path, data, given)
            with connection.getresponse() as answer:
                yield answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RunFailed(
                "board_fault",
                f"the host's container engine does not answer ({type(error).__name__}); the lab's "
                "operator checks that Docker runs there, and docker_socket of the device plugin",
            ) from error
        finally:
            connection.close()


def _parts(name: str) -> Tuple[str, str]:
    """Return repository, and tag or digest."""
    if "@" in name:
        repository, _, digest = name.partition("@")
        return repository, digest
    head, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return (f"{head}/{last}" if head else last), tag or "latest"


def _copy(answer: http.client.HTTPResponse, targets: Mapping[int, int]) -> None:
    """Copy Docker's frames: the stream in byte 0, the length in bytes 4 to 7."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        while True:
            header = _exactly(answer, _HEADER_BYTES)
            if len(header) < _HEADER_BYTES:
                return
            data = _exactly(answer, int.from_bytes(header[4:], "big"))
            target = targets.get(header[0], targets[1])
            while data:
                data = data[os.write(target, data) :]


def _exactly(answer: http.client.HTTPResponse, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = answer.read(count - len(data))
        if not part:
            break
        data += part
    return data


def _refuse(status: int, body: bytes) -> NoReturn:
    """Raise what an answer means, without the names in it."""
    text = body.decode("utf-8", "replace").lower()
    if any(word in text for word in _NO_PLATFORM):
        reason = "the registry has no image for the host's architecture"
        advice = "states another image"
    elif any(word in text for word in _NOT_RUNNABLE) and "exec" in text:
        reason = "the program of the host's image can't run here: wrong architecture, or missing"
        advice = "states another image"
    elif any(word in text for word in _REFUSED) or status in (401, 403):
        reason = "the registry refuses the host's login, or does not have the host's image"
        advice = "corrects auth and image"
    elif any(word in text for word in _UNREACHABLE):
        reason = "the registry of the host's image can't be reached"
        advice = "checks the host's network, and image"
    elif any(word in text for word in _MISSING) or status == 404:
        reason = "the host's image is missing: neither the host nor the registry has it"
        advice = "corrects image"
    else:
        reason = f"the host's container engine refuses the container (status {status})"
        advice = "checks devices, volumes and user"
    raise RunFailed(
        "board_fault",
        f"{reason}; the lab's operator {advice} in the host's boards file; the log of the host's "
        "container engine has more",
    )
