"""Connections that send half a request do not keep others from being answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from edgeyard.benchmark_api.connections import bounded_protocol, listen, raise_descriptor_limit


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def refuse(request: Request) -> Response:
    return PlainTextResponse("no", 401)


@contextmanager
def served(
    max_connections: int,
    head_s: float,
    body_step_s: float = 60.0,
    body_step_bytes: int = 1,
    drain_s: float = 60.0,
    keep_alive_s: int = 5,
) -> Iterator[int]:
    app = Starlette(
        routes=[
            Route("/", echo, methods=["GET", "POST"]),
            Route("/refuse", refuse, methods=["POST"]),
        ]
    )
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                http=bounded_protocol(
                    max_connections,
                    head_s=head_s,
                    body_step_s=body_step_s,
                    body_step_bytes=body_step_bytes,
                    drain_s=drain_s,
                ),
                timeout_keep_alive=keep_alive_s,
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)


def closed(connection: socket.socket) -> bool:
    connection.settimeout(60)
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_half_requests_give_way_to_whole_ones(sent: bytes) -> None:
    with served(max_connections=20, head_s=3600) as port, contextlib.ExitStack() as stack:
        for _ in range(100):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            half.sendall(sent)
        with httpx.Client(trust_env=False, timeout=60) as client:
            for _ in range(3):
                assert client.post(f"http://127.0.0.1:{port}/", content=b"x").text == "x"


def test_half_a_head_is_given_up_in_time() -> None:
    with (
        served(max_connections=20, head_s=0.2) as port,
        socket.create_connection(("127.0.0.1", port)) as first,
        socket.create_connection(("127.0.0.1", port)) as silent,
    ):
        first.sendall(b"GET / HTT")
        assert closed(first)
        assert closed(silent)


def test_the_second_request_of_a_connection_is_bounded_too() -> None:
    with (
        served(max_connections=20, head_s=2.0) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\n")
        while connection.recv(1000):
            pass


def test_a_stalled_body_is_given_up_and_a_slow_one_is_not() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
    with (
        served(max_connections=20, head_s=60, body_step_s=2.0) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as slow,
        socket.create_connection(("127.0.0.1", port), timeout=60) as stalled,
    ):
        stalled.sendall(head + b"x")
        slow.sendall(head)
        for _ in range(4):
            slow.sendall(b"x")
            time.sleep(0.1)
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        assert closed(stalled)


def test_a_body_that_drips_is_given_up_and_a_large_one_is_not() -> None:
    size = 400_000
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
    with (
        served(max_connections=20, head_s=60, body_step_s=2.0, body_step_bytes=10_000) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as large,
        socket.create_connection(("127.0.0.1", port), timeout=60) as dripping,
    ):
        large.sendall(head)
        dripping.sendall(head)
        rest, given_up = size, False
        while not given_up or rest:
            if rest:
                large.sendall(b"x" * min(rest, 10_000))
            rest = max(0, rest - 10_000)
            try:
                dripping.sendall(b"x")
            except OSError:
                given_up = True
            time.sleep(0.1)
        assert large.recv(1000).startswith(b"HTTP/1.1 200")


def test_idle_connections_give_way_to_new_ones() -> None:
    with (
        served(max_connections=10, head_s=3600, keep_alive_s=3600) as port,
        contextlib.ExitStack() as stack,
    ):
        idle = []
        for _ in range(10):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            each.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert each.recv(1000).startswith(b"HTTP/1.1 200")
            idle.append(each)
        with httpx.Client(trust_env=False, timeout=60) as client:
            for _ in range(3):
                assert client.post(f"http://127.0.0.1:{port}/", content=b"x").text == "x"
        assert closed(idle[0])
        idle[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle[-1].recv(1000).startswith(b"HTTP/1.1 200")


def test_a_body_that_drips_after_its_answer_is_given_up() -> None:
    with (
        served(max_connections=20, head_s=60, drain_s=1.0) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):
        connection.sendall(b"POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
        assert connection.recv(1000).startswith(b"HTTP/1.1 401")
        for _ in range(300):
            time.sleep(0.1)
            try:
                connection.sendall(b"x")
            except OSError:
                return
        pytest.fail("the connection was still open after 30 s")


def test_a_connection_serves_again_after_the_rest_of_an_answered_body() -> None:
    with (
        served(max_connections=20, head_s=60) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):
        connection.sendall(b"POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")
        answer = b""
        while not answer.endswith(b"no"):
            answer += connection.recv(1000)
        connection.sendall(b"x")
        time.sleep(0.2)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert closed(connection), "an idle connection is closed after a while"


@pytest.mark.parametrize(
    "second",
    [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nx", b"GET / HTTP/1.1\r\nX-Slow"],
    ids=["half a body", "half a head"],
)
def test_a_pipelined_request_is_bounded_too(second: bytes) -> None:
    with (
        served(max_connections=20, head_s=1.0, body_step_s=1.0, keep_alive_s=3600) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + second)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert closed(connection)


def test_a_server_of_many_connections_has_descriptors_for_them() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        fits = raise_descriptor_limit(1000)
        assert fits == 1000 or before[1] < 1256
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(1256, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_database_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    from edgeyard.scheduler.store import SqlStore

    tmp_path.chmod(0o755)
    path = tmp_path / "edgeyard.db"
    path.touch(mode=0o644)
    path.chmod(0o644)
    store = SqlStore(f"sqlite:///{path}")
    with store.write() as uow:
        uow.log.last_seq()
        modes = {each.name: oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()}
    store.close()
    assert set(modes.values()) == {"0o600"}, modes
