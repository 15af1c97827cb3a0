"""Calls of Nomad's HTTP API: retried and bounded in time, with failures as our own errors.

python-nomad builds the requests that it knows, httpx the rest (streams, `X-Nomad-Index`); there is
one retry policy for all of them.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import httpx
from nomad.api.allocations import Allocations
from nomad.api.evaluations import Evaluations
from nomad.api.exceptions import BaseNomadException, VariableConflict
from nomad.api.job import Job
from nomad.api.jobs import Jobs
from nomad.api.variable import Variable
from nomad.api.variables import Variables

from edgeyard.errors import ClusterUnreachable, HclError, JobExists, JobRefused, NotFound
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.clusters.nomad.access import NomadAccess, no_answer
from edgeyard.scheduler.clusters.nomad.retry import CircuitBreaker, RetryPolicy
from edgeyard.scheduler.clusters.nomad.session import FAILURES, Response, Session

logger = logging.getLogger(__name__)

T = TypeVar("T")
Json = Mapping[str, object]

_CONNECTIONS = 16
_KNOWN_REGISTRATIONS = 4096
_MAX_RETIRED = 4  # connections of earlier settings, on which calls may be under way
_SHOWN_CHARACTERS = 300
_EXISTS = "job already exists"
_INVALID = re.compile(r"^\d+ errors? occurred:")  # Nomad answers 500 to a job that is not valid
_PASSING = re.compile(  # refusals for a state of the cluster, which an operator may change
    r"\bquota|namespace|node pool|job_max_count|until all servers|sentinel|polic(y|ies)",
    re.IGNORECASE,
)
_INVALID_PART = "validation failed"  # of a part of the job, with what its user wrote there
_EVERY_NAMESPACE = "*"  # as far as the token reaches


class CallFailed(Exception):
    """Nomad answered a stream's request with an error."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(f"Nomad answered {status}: {_one_line(text)}")


class _Connections:
    """What calls go through: it belongs to one way of speaking to Nomad, and is never changed."""

    def __init__(self, access: NomadAccess) -> None:
        self.access = access
        headers = _headers(access.token)
        self.http = httpx.Client(
            base_url=access.address,
            headers=headers,
            verify=access.tls(),
            timeout=httpx.Timeout(access.timeout_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_CONNECTIONS),
            trust_env=False,  # settings alone say where Nomad is
            event_hooks={"request": [self._name_server]},
        )
        self.session = Session(access, headers)
        common = {
            "address": access.address,
            "namespace": access.namespace,
            "region": access.region,
            "session": self.session,
        }
        self.jobs = Jobs(**common)
        self.job = Job(**common)
        self.allocations = Allocations(**common)
        self.evaluations = Evaluations(**common)
        self.variable = Variable(**common)
        self.variables = Variables(**common)

    def _name_server(self, request: httpx.Request) -> None:
        """Nomad's certificates carry roles (``server.global.nomad``), not host names."""
        if self.access.tls_server_name is not None:
            request.extensions["sni_hostname"] = self.access.tls_server_name

    def close(self) -> None:
        self.http.close()
        self.session.close()


class NomadClient:
    """Thread-safe; every method may raise `ClusterUnreachable`."""

    def __init__(
        self,
        access: NomadAccess,
        *,
        policy: RetryPolicy | None = None,
        pause: Callable[[float], object] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Connect at the first call.

        Args:
            now: The server's time, with which Nomad's is compared.
        """
        self.policy = policy or RetryPolicy()
        self._closed = threading.Event()
        self._now = now
        self._clock_offset_s = 0.0
        self._pause = pause or self._closed.wait
        self._breaker = CircuitBreaker(self.policy)
        self._registered: OrderedDict[str, None] = OrderedDict()
        self._to = _Connections(access)
        self._retired: deque[_Connections] = deque()
        self._returned = threading.Condition()
        self._calls = 0

    @property
    def access(self) -> NomadAccess:
        """Return where Nomad is and how it is spoken to, another value after each `use_access`."""
        return self._to.access

    def use_access(self, access: NomadAccess) -> None:
        """Speak to Nomad in this way from the next call on, also of a call that is tried again.

        Calls that are under way end on the connections that they have.

        Raises:
            ConfigError: A file of certificates can't be used; nothing has changed.
        """
        connections = _Connections(access)
        self._retired.append(self._to)
        self._to = connections
        self._breaker = CircuitBreaker(self.policy)
        while len(self._retired) > _MAX_RETIRED:
            self._retired.popleft().close()

    @property
    def clock_offset_s(self) -> float:
        """How far the clock of the agent that answers is ahead of the server's; 0.0: they agree."""
        return self._clock_offset_s

    def _compare_clocks(self, response: httpx.Response, before: datetime, after: datetime) -> None:
        """Measure by an answer's ``Date``, which is cut to whole seconds."""
        try:
            date = parsedate_to_datetime(response.headers.get("Date", ""))
        except ValueError:
            return
        if date.tzinfo is None or after - before > _MAX_CLOCK_READING:
            return
        min_s = (date - after).total_seconds()
        max_s = (date - before).total_seconds() + 1.0
        agree = min_s <= 0.0 <= max_s
        self._clock_offset_s = 0.0 if agree else (min_s + max_s) / 2

    def parse(self, hcl: str) -> Json:
        """Nomad's reading of a job's text.

        Raises:
            HclError: It is none.
        """
        answer = self._call(
            lambda: self._to.jobs.parse(hcl),
            refusals={HTTPStatus.BAD_REQUEST: lambda text: HclError(text)},
        )
        return _object(answer)

    def register(self, job_id: str, job: Json) -> str | None:
        """Create the job; no other of that id is ever changed.

        An answer that did not come is no reason to give up: the call is repeated under the same
        id, and finds its own first effect where there was one.

        Returns:
            Id of the evaluation; None of a periodic job, or where the first answer was lost.

        Raises:
            JobExists: The id was taken before this call.
            JobRefused: Nomad does not take it: never if it is not valid, otherwise not now.
        """
        body = {"Job": job, "EnforceIndex": True, "JobModifyIndex": 0}
        sent = 0
        self._registered[job_id] = None
        while len(self._registered) > _KNOWN_REGISTRATIONS:
            self._registered.popitem(last=False)

        def call() -> object:
            nonlocal sent
            sent += 1
            failpoint("nomad:register")
            return self._to.jobs.register_job(body)

        def refused(text: str) -> Exception | None:
            if _EXISTS in text:
                return JobExists(job_id)
            return _refusal(job_id, text) if _INVALID.match(text) else None

        answer: object = None
        try:
            answer = self._call(
                call,
                refusals={
                    HTTPStatus.INTERNAL_SERVER_ERROR: refused,
                    HTTPStatus.BAD_REQUEST: lambda text: _refusal(job_id, text),
                },
            )
        except JobExists:
            if sent == 1:
                raise
        except ClusterUnreachable:
            self._registered.pop(job_id, None)  # it may yet take effect, which is news then
            raise
        failpoint("nomad:registered")
        evaluation_id = answer.get("EvalID") if isinstance(answer, Mapping) else None
        return str(evaluation_id) if evaluation_id else None

    def has_registered(self, job_id: str) -> bool:
        """Return whether this process registered a job recently, or is registering it now."""
        return job_id in self._registered

    def deregister(self, job_id: str, *, purge: bool = False) -> None:
        """Stop a job, or remove it with all that Nomad knows of it; harmless for unknown ones."""
        self._call(
            lambda: self._to.job.deregister_job(job_id, purge=purge),
            missing=lambda: None,
        )

    def jobs(self, prefix: str) -> Sequence[Json]:
        """Return all jobs whose id begins so, children of periodic ones among them."""
        return self.jobs_at(prefix)[0]

    def jobs_at(self, prefix: str) -> tuple[Sequence[Json], int]:
        """Return `jobs` with the index of Nomad's state at which they were read."""
        return self._get("/v1/jobs", {"prefix": prefix}, _list_in)

    def job(self, job_id: str) -> Json | None:
        """Return the whole job, or None."""
        answer = self._call(lambda: self._to.job.get_job(job_id), missing=lambda: None)
        return None if answer is None else _object(answer)

    def allocations(self, which: str) -> Sequence[Json]:
        """Allocations of our namespace with their devices and task events, by filter."""
        return _objects(
            self._call(lambda: self._to.allocations.get_allocations(filter_=which, resources=True))
        )

    def blocked(self, job_id: str | None) -> Sequence[Json]:
        """Evaluations that wait for room: of one job, or of all."""
        params = {"status": "blocked", "job": job_id, "namespace": self.access.namespace}
        return _objects(
            self._call(lambda: self._to.evaluations.request(method="get", params=params).json())
        )

    def create_secrets(self, job_id: str, items: Mapping[str, str]) -> bool:
        """Put a job's secrets where its task may read them; False if there are some already."""
        return self._put_secrets(job_id, items, cas=0)

    def replace_secrets(self, job_id: str, items: Mapping[str, str]) -> None:
        """Overwrite what was left under this id."""
        self._put_secrets(job_id, items, cas=None)

    def _put_secrets(self, job_id: str, items: Mapping[str, str], cas: int | None) -> bool:
        path, namespace = secrets_path(job_id), self.access.namespace
        payload = {"Namespace": namespace, "Path": path, "Items": dict(items)}

        def call() -> bool:
            failpoint("nomad:variable")
            try:
                self._to.variable.create_variable(path, payload, namespace=namespace, cas=cas)
            except VariableConflict:
                return False
            return True

        return self._call(call)

    def secrets(self, job_id: str) -> Mapping[str, str]:
        """Return a job's secrets; empty where there are none."""
        namespace = self.access.namespace

        def call() -> Mapping[str, str]:
            found = self._to.variable.get_variable(secrets_path(job_id), namespace=namespace)
            items = found.get("Items") if isinstance(found, Mapping) else None
            return items if isinstance(items, Mapping) else {}

        return self._call(call, missing=dict)

    def remove_secrets(self, job_id: str) -> None:
        """Remove a job's secrets; harmless where there are none."""
        namespace = self.access.namespace
        self._call(
            lambda: self._to.variable.delete_variable(secrets_path(job_id), namespace=namespace),
            missing=lambda: None,
        )

    def jobs_with_secrets(self) -> Sequence[str]:
        """Return the ids of the jobs for which Nomad stores secrets."""
        prefix = secrets_path("")
        found = _objects(
            self._call(
                lambda: self._to.variables.get_variables(prefix, namespace=self.access.namespace)
            )
        )
        return [str(each["Path"]).removeprefix(prefix) for each in found]

    def nodes_index(self) -> int:
        """Return the index of the last change of any node."""
        return self._get("/v1/nodes", {"per_page": "1"}, json.loads)[1]

    def nodes(self, read: Callable[[bytes], T]) -> tuple[T, int]:
        """Return all nodes with their devices, and the index that they were read at.

        Args:
            read: Makes of Nomad's answer what is wanted of it; raises ValueError where it can't.
        """
        return self._get("/v1/nodes", {"resources": "true"}, read)

    def node(self, node_id: str) -> Json:
        """Return one node with its attributes and metadata."""
        return _object(self._get(f"/v1/node/{quote(node_id, safe='')}", {}, json.loads)[0])

    def holders(self) -> Sequence[Json]:
        """Allocations of all namespaces that we may see whose task may run, with their devices."""
        statuses = ("pending", "running", "unknown")
        which = " or ".join(f'ClientStatus == "{status}"' for status in statuses)
        return _objects(
            self._call(
                lambda: self._to.allocations.get_allocations(
                    filter_=which, resources=True, task_states=False, namespace=_EVERY_NAMESPACE
                )
            )
        )

    def stats(self, node_id: str, timeout_s: float) -> Json:
        """Return a node's measurements of its machine; one request without a retry.

        A node that is slow or gone says nothing of Nomad, so it neither trips nor feels the
        circuit breaker.
        """
        try:
            response = self._to.http.get(
                "/v1/client/stats", params=self._here({"node_id": node_id}), timeout=timeout_s
            )
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                reason = f"Nomad answered {response.status_code}: {_one_line(response.text)}"
                raise ClusterUnreachable(reason)
            return _object(response.json())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ClusterUnreachable(no_answer(error)) from error
        except (ValueError, RecursionError) as error:
            raise ClusterUnreachable(f"its answer can't be read: {error}") from error

    def agent(self) -> Json:
        """Return the agent that is asked, about itself."""
        return _object(self._get("/v1/agent/self", {}, json.loads)[0])

    def log(self, alloc_id: str, task: str, stream: str, offset: int, limit_bytes: int) -> bytes:
        """Bytes of a task's log from an offset on, at most so many; empty where it has none.

        Raises:
            NotFound: The allocation, or the node that holds its log, is gone.
        """
        params = {
            "task": task,
            "type": stream,
            "offset": str(offset),
            "origin": "start",
            "plain": "true",
            "follow": "false",
        }

        def call() -> bytes:
            with self.stream(f"/v1/client/fs/logs/{alloc_id}", params) as response:
                data = b""
                for chunk in response.iter_raw():
                    data += chunk
                    if len(data) >= limit_bytes:
                        return data[:limit_bytes]
                return data

        def gone(text: str) -> Exception | None:
            return NotFound("log", alloc_id) if "Unknown allocation" in text else None

        return self._call(
            call,
            missing=lambda: b"",  # its task has not begun
            refusals=dict.fromkeys((HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR), gone),
        )

    def file(self, alloc_id: str, path: str) -> Generator[bytes, None, None]:
        """Yield a file of an allocation's folder.

        Raises:
            NotFound: The file, its allocation, or the node that holds it is gone.
            ClusterUnreachable: Also if the file's end is missing.
        """
        try:
            # A file that is not there is an error of `stat`; `cat` answers 200 with the message.
            with self.stream(f"/v1/client/fs/stat/{alloc_id}", {"path": path}) as response:
                size = _object(json.loads(response.read())).get("Size")
            missing = size if isinstance(size, int) else 0
            with self.stream(f"/v1/client/fs/cat/{alloc_id}", {"path": path}) as response:
                for chunk in response.iter_raw():
                    missing -= len(chunk)
                    yield chunk
            if missing > 0:  # a cut answer that was passed on looks whole to HTTP
                raise ClusterUnreachable(f"the last {missing:,} bytes of {path} did not arrive")
        except CallFailed as error:
            text = error.text.lower()
            if "no such file" in text or "unknown allocation" in text:
                raise NotFound("file", path) from None
            raise ClusterUnreachable(str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise ClusterUnreachable(no_answer(error)) from error
        except ValueError as error:
            raise ClusterUnreachable(f"its answer can't be read: {error}") from error

    @contextmanager
    def stream(
        self,
        path: str,
        params: Mapping[str, str | Sequence[str]],
        *,
        silence_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a request and yield its answer, which is read as it arrives.

        Args:
            silence_s: Longest wait for its next part; None: as for all calls.
        """
        timeout = httpx.Timeout(self.access.timeout_s, read=silence_s or self.access.timeout_s)
        with self._to.http.stream(
            "GET", path, params=self._here(params), timeout=timeout
        ) as response:
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                response.read()
                raise CallFailed(response.status_code, response.text)
            yield response

    def end_retries(self) -> None:
        """Let no call be tried again; waits between tries end at once."""
        self._closed.set()

    def close(self) -> None:
        """Drop the connections, after the calls of other threads have ended."""
        self.end_retries()
        with self._returned:  # a connection that is only being made would stay open
            self._returned.wait_for(lambda: not self._calls, self.access.timeout_s)
        for each in (*self._retired, self._to):
            each.close()

    def _get(
        self, path: str, params: Mapping[str, str], read: Callable[[bytes], T]
    ) -> tuple[T, int]:
        """Return an answer, and the index that Nomad gave with it; 0 where it gave none."""

        def call() -> tuple[T, int]:
            before = self._now()
            response = self._to.http.get(path, params=self._here(params))
            self._compare_clocks(response, before, self._now())
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                raise CallFailed(response.status_code, response.text)
            return read(response.content), _index(response)

        return self._call(call)

    def _here(self, params: Mapping[str, str | Sequence[str]]) -> dict[str, str | Sequence[str]]:
        here: dict[str, str | Sequence[str]] = {"namespace": self.access.namespace}
        if self.access.region is not None:
            here["region"] = self.access.region
        return {**here, **params}

    def _call(
        self,
        call: Callable[[], T],
        *,
        missing: Callable[[], T] | None = None,
        refusals: Mapping[int, Callable[[str], Exception | None]] | None = None,
    ) -> T:
        """Make a call, again where it may help, and translate what goes wrong.

        Args:
            missing: Its value is the answer where Nomad says 404.
            refusals: What an answer's text means, by status; None: nothing special.
        """
        for attempt in range(1, self.policy.tries + 1):
            self._breaker.enter()
            try:
                with self._counted():
                    found = call()
            except (BaseNomadException, CallFailed) as error:
                status, text = _said(error)
                means = (refusals or {}).get(status)
                refusal = means(text) if means is not None else None
                if refusal is not None:
                    self._breaker.succeeded()
                    raise refusal from None
                if status == HTTPStatus.NOT_FOUND and missing is not None:
                    self._breaker.succeeded()
                    return missing()
                reason = f"Nomad answered {status}: {_one_line(text)}"
                if status < HTTPStatus.INTERNAL_SERVER_ERROR and status != _TOO_MANY:
                    self._breaker.succeeded()
                    raise ClusterUnreachable(reason) from None
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, *FAILURES) as error:
                reason = no_answer(error)
            except ValueError as error:  # not JSON, or not the JSON that it should be
                reason = f"its answer can't be read: {error}"
            else:
                self._breaker.succeeded()
                return found
            self._breaker.failed(reason)
            if attempt == self.policy.tries or self._pause(self.policy.wait_s(attempt)):
                break
        raise ClusterUnreachable(reason)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._returned:
            self._calls += 1
        try:
            yield
        finally:
            with self._returned:
                self._calls -= 1
                self._returned.notify_all()


_MAX_CLOCK_READING = timedelta(seconds=2)
"""An answer that took longer says too little of the other side's clock."""

_TOKEN_HEADER = "X-Nomad-Token"


def _headers(token: str | None) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}  # packing costs both sides more than it saves
    if token is not None:
        headers[_TOKEN_HEADER] = token
    return headers


_TOO_MANY = HTTPStatus.TOO_MANY_REQUESTS


def secrets_path(job_id: str) -> str:
    """Return the path of the Nomad variable that a job's task may read without a further policy."""
    return f"nomad/jobs/{job_id}"


def _refusal(job_id: str, text: str) -> JobRefused:
    lasting = _INVALID_PART in text or _PASSING.search(text) is None
    return JobRefused(job_id, _one_line(text), lasting=lasting)


def _said(error: BaseNomadException | CallFailed) -> tuple[int, str]:
    if isinstance(error, CallFailed):
        return error.status, error.text
    answer = error.nomad_resp
    if isinstance(answer, Response):
        return answer.status_code, answer.text
    return 0, str(answer)


def _object(value: object) -> Json:
    if not isinstance(value, dict):
        raise ClusterUnreachable("Nomad's answer is not an object")
    return value


def _objects(value: object) -> Sequence[Json]:
    # A null is no empty list: Nomad writes [] for that.
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ClusterUnreachable("Nomad's answer is not a list of objects")
    return value


def _list_in(body: bytes) -> Sequence[Json]:
    value = json.loads(body)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError("it is not a list of objects")
    return value


def _index(response: httpx.Response) -> int:
    text = response.headers.get("X-Nomad-Index", "")
    return int(text) if text.isdigit() else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARACTERS]
