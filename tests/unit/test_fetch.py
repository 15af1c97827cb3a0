"""Foreign URLs: only public addresses, checked after resolving, at every redirect."""

import http.server
import ipaddress
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.benchmark_api import webhooks
from edgeyard.benchmark_api.fetch import (
    MAX_LOOKUPS,
    AddressRules,
    Fetcher,
    in_time,
    is_public,
    own_path,
)
from edgeyard.errors import Cancelled, RunFailed, TooLarge, UrlRefused
from edgeyard.scheduler.files import ContentFiles

SPECIAL = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:0:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:7f00:1::",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "100::1",
    "2001:db8::1",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("text", SPECIAL)
def test_special_addresses_are_not_public_however_wrapped(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_allowed(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@given(st.ip_addresses(v=4))
def test_wrapping_never_makes_an_address_public(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    wrapped = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0xFFFF << 48) | number),
        ipaddress.IPv6Address((0x0064FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
    ]
    if not is_public(address):
        assert not any(is_public(each) for each in wrapped)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/x",
        "file:///etc/passwd",
        "git::https://example.org/x",
        "s3://bucket/x",
        "javascript:alert(1)",
        "//example.org/x",
        "example.org/x",
        "http://",
        "http:///x",
        "http://user:password@example.org/x",
        "http://user@example.org/",
        "http://127.0.0.1@example.org:80@10.0.0.1/",
        "http://localhost/x",
        "http://LOCALHOST./x",
        "http://a.localhost/x",
        "http://printer.local/x",
        "http://127.0.0.1/x",
        "http://127.1/x",
        "http://2130706433/x",
        "http://0x7f000001/x",
        "http://0x7f.0.0.1/x",
        "http://0177.0.0.1/x",
        "http://127.0.0.1./x",
        "http://[::1]/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://[fe80::1%25eth0]/x",
        "http://[fe80::1%eth0]/x",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.5:8080/x",
        "http://example.org:22/x",
        "http://example.org:6379/x",
        "http://example.org:99999/x",
        "http://example.org:0/x",
        "https://8.8.8.8:0/",
        "http://example.org:/x y",
        "http://example.org/\r\nHost: evil",
        "http://example.org\\@127.0.0.1/x",
        "http://exa mple.org/",
        "http://[::1/x",
        "http://１２７.０.０.１/x",
        "http://" + "a" * 3000,
        "",
    ],
)
def test_urls_that_are_refused_without_asking_a_name_server(url: str) -> None:
    with pytest.raises(UrlRefused) as caught:
        AddressRules().check(url, "/model_url")
    assert caught.value.errors[0].pointer == "/model_url"


@pytest.mark.parametrize("named", ["example.org", "10.0.0.0/8", "10.0.0.5", "example.org:0"])
def test_nobody_listens_at_port_0_whatever_the_operator_allows(named: str) -> None:
    for host in ("example.org", "10.0.0.5"):
        with pytest.raises(UrlRefused, match="port 0"):
            AddressRules([named]).check(f"http://{host}:0/x")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org",
        "https://example.org/a/b.onnx?signature=1#part",
        "https://example.org:8443/x",
        "https://bücher.example/x",
        "http://8.8.8.8/x",
        "https://[2606:4700::1111]/x",
    ],
)
def test_public_urls_are_allowed(url: str) -> None:
    AddressRules().check(url)


@pytest.mark.parametrize(
    ("allowed", "url", "passes"),
    [
        ("models.lab", "http://models.lab:5000/x", True),
        ("models.lab:5000", "http://models.lab:5000/x", True),
        ("models.lab:5000", "http://models.lab:6000/x", False),
        ("*.lab", "http://a.b.lab:1/x", True),
        ("*.lab", "http://evillab:1/x", False),
        ("10.0.0.5", "http://10.0.0.5:9000/x", True),
        ("10.0.0.5:80", "http://10.0.0.5:9000/x", False),
        ("10.0.0.0/8", "http://10.1.2.3:9000/x", True),
        ("10.0.0.0/8", "http://11.1.2.3:9000/x", False),
        ("127.0.0.0/8", "http://[::ffff:127.0.0.1]/x", True),
        ("[::1]:8080", "http://[::1]:8080/x", True),
        ("[::1]:8080", "http://[::1]/x", False),
    ],
)
def test_an_operator_may_allow_private_hosts(allowed: str, url: str, passes: bool) -> None:
    rules = AddressRules([allowed])
    if passes:
        rules.addresses(rules.check(url), lambda host, port: ["10.0.0.5"])
    else:
        with pytest.raises(UrlRefused):
            rules.check(url)


@pytest.mark.parametrize("answers", [["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::1"]])
def test_a_name_that_leads_inside_is_refused(answers: list[str]) -> None:
    rules = AddressRules()
    target = rules.check("http://rebind.example.org/x")
    with pytest.raises(UrlRefused):
        rules.addresses(target, lambda host, port: answers)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://10.200.0.1:42777/download/m.onnx", "/download/m.onnx"),
        ("HTTP://10.200.0.1:42777/download/a%20b", "/download/a b"),
        ("http://10.200.0.1/download/m.onnx", None),
        ("https://10.200.0.1:42777/download/m.onnx", None),
        ("http://user@10.200.0.1:42777/download/m.onnx", None),
        ("http://10.200.0.1:bad/download", None),
    ],
)
def test_own_urls_are_known(url: str, path: str | None) -> None:
    assert own_path(url, "http://10.200.0.1:42777") == path


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, _, rest = self.path.partition("?")
        if kind == "/redirect":
            self._answer(302, b"", location=rest)
        elif kind == "/loop":
            self._answer(302, b"", location="/loop")
        elif kind == "/status":
            self._answer(int(rest), b"no")
        elif kind in ("/drip", "/drip-headers"):
            self.connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"\r\n" * (kind == "/drip"))
            try:
                while not self.server.closing.wait(0.05):  # type: ignore[attr-defined]
                    self.connection.sendall(b"x")
            except OSError:
                pass
            self.close_connection = True
        elif kind == "/gzip":
            self._answer(200, b"zz", encoding="gzip")
        elif kind == "/empty":
            self._answer(200, b"")
        elif kind == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
        elif kind == "/endless":
            self.send_response(200)
            self.end_headers()
            block = bytes(65536)
            try:
                while True:
                    self.wfile.write(block)
            except OSError:
                pass
        else:
            self._answer(200, f"{self.path} of {self.headers['Host']}".encode())

    def _answer(self, status: int, body: bytes, location: str = "", encoding: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def web() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.closing = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.closing.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with web() as found:
        yield found


def local(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def fetcher(folder: Path, *allow: str, timeout_s: float = 60) -> tuple[Fetcher, ContentFiles]:
    files = ContentFiles(folder / "files")
    return Fetcher(AddressRules(allow), files, timeout_s=timeout_s, resolve=local), files


def test_content_comes_into_the_store_by_the_checked_address(tmp_path: Path, port: int) -> None:
    fetch, files = fetcher(tmp_path, "models.lab")
    stored = fetch.fetch(f"http://models.lab:{port}/m.onnx?x=1", 1000)
    assert files.path(stored.sha256).read_bytes() == f"/m.onnx?x=1 of models.lab:{port}".encode()


def test_a_redirect_is_followed_within_the_rules(tmp_path: Path, port: int) -> None:
    fetch, files = fetcher(tmp_path, "models.lab")
    stored = fetch.fetch(f"http://models.lab:{port}/redirect?/m.onnx", 1000)
    assert b"/m.onnx of" in files.path(stored.sha256).read_bytes()


@pytest.mark.parametrize("to", ["http://127.0.0.1:PORT/x", "http://other.lab:PORT/x", "file:///x"])
def test_a_redirect_out_of_the_rules_is_refused(tmp_path: Path, port: int, to: str) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(UrlRefused):
        fetch.fetch(f"http://models.lab:{port}/redirect?{to.replace('PORT', str(port))}", 1000)


@pytest.mark.parametrize(
    ("path", "category"),
    [
        ("/status?404", "user_input"),
        ("/status?403", "user_input"),
        ("/status?500", "network"),
        ("/status?429", "network"),
        ("/loop", "user_input"),
        ("/gzip", "user_input"),
        ("/empty", "user_input"),
        ("/cut", "network"),
    ],
)
def test_what_can_not_be_had_says_whose_matter_it_is(
    tmp_path: Path, port: int, path: str, category: str
) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(RunFailed) as caught:
        fetch.fetch(f"http://models.lab:{port}{path}", 1000)
    assert caught.value.category == category
    assert list((tmp_path / "files" / "tmp").iterdir()) == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_that_names_no_place_is_the_user_s_to_mend(
    tmp_path: Path, port: int, status: int
) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(RunFailed, match="without stating where to") as caught:
        fetch.fetch(f"http://models.lab:{port}/status?{status}", 1000)
    assert caught.value.category == "user_input"


@pytest.mark.parametrize("to", ["http://[", "//["])
def test_a_redirect_to_what_is_no_url_is_refused(tmp_path: Path, port: int, to: str) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(UrlRefused, match="is not a URL"):
        fetch.fetch(f"http://models.lab:{port}/redirect?{to}", 1000)


@contextmanager
def a_name_server_that_hangs() -> Iterator[Callable[[str, int], Sequence[str]]]:
    answers = threading.Event()

    def resolve(host: str, port: int) -> Sequence[str]:
        answers.wait(60)
        return ["127.0.0.1"]

    try:
        yield resolve
    finally:
        answers.set()


def test_a_name_whose_look_up_hangs_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    with a_name_server_that_hangs() as resolve:
        files = ContentFiles(tmp_path / "files")
        hung = Fetcher(AddressRules(["models.lab"]), files, timeout_s=0.1, resolve=resolve)
        for _ in range(2):
            with pytest.raises(RunFailed, match=r"models\.lab") as caught:
                hung.fetch("http://models.lab/m.onnx", 1000)
            assert caught.value.category == "timeout"


def test_a_look_up_that_nobody_wants_any_more_is_given_up(tmp_path: Path) -> None:
    with a_name_server_that_hangs() as resolve:
        files = ContentFiles(tmp_path / "files")
        hung = Fetcher(AddressRules(["models.lab"]), files, timeout_s=50, resolve=resolve)
        with pytest.raises(Cancelled):
            hung.fetch("http://models.lab/m.onnx", 1000, lambda: True)


def test_a_webhook_whose_name_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_TIMEOUT_S", 0.1)
    with a_name_server_that_hangs() as resolve:
        sender = webhooks.WebhookSender(AddressRules(["hooks.lab"]), resolve=resolve)
        with pytest.raises(RunFailed) as caught:
            sender.post("http://hooks.lab/", b"{}", {})
        assert caught.value.category == "timeout"


@pytest.mark.slow
def test_look_ups_that_hang_take_a_bounded_number_of_threads() -> None:
    with a_name_server_that_hangs() as resolve:
        for _ in range(MAX_LOOKUPS + 5):
            with pytest.raises(RunFailed):
                in_time(resolve, time.monotonic())("models.lab", 80)
        hung = [each for each in threading.enumerate() if each.name == "edgeyard-resolve"]
        assert len(hung) <= MAX_LOOKUPS
    for each in hung:
        each.join(60)
    assert in_time(local, time.monotonic() + 60)("models.lab", 80) == ["127.0.0.1"]


@pytest.mark.parametrize("path", ["/drip", "/drip-headers"])
def test_a_server_that_drips_is_given_up_at_the_deadline(
    tmp_path: Path, port: int, path: str
) -> None:
    """Each read is answered in time; only the whole takes for ever."""
    fetch, _ = fetcher(tmp_path, "models.lab", timeout_s=1)
    with pytest.raises(RunFailed, match=r"took longer than 1 s$") as caught:
        fetch.fetch(f"http://models.lab:{port}{path}", 10**6)
    assert caught.value.category == "timeout"
    assert list((tmp_path / "files" / "tmp").iterdir()) == []


@pytest.mark.parametrize("path", ["/drip", "/drip-headers"])
def test_a_download_that_nobody_wants_any_more_is_given_up(
    tmp_path: Path, port: int, path: str
) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    asked = iter([False] * 3)
    with pytest.raises(Cancelled):
        fetch.fetch(f"http://models.lab:{port}{path}", 10**6, lambda: next(asked, True))
    assert list((tmp_path / "files" / "tmp").iterdir()) == []


def test_an_endless_file_ends_at_the_limit(tmp_path: Path, port: int) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(TooLarge):
        fetch.fetch(f"http://models.lab:{port}/endless", 10**6)
    assert list((tmp_path / "files" / "tmp").iterdir()) == []


def test_a_stated_size_over_the_limit_is_not_downloaded(tmp_path: Path, port: int) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(TooLarge):
        fetch.fetch(f"http://models.lab:{port}/long-enough", 3)


def test_nobody_listening_is_a_matter_of_the_network_and_names_the_port(tmp_path: Path) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(RunFailed, match=r"http://models\.lab:1/x can't be reached") as caught:
        fetch.fetch("http://models.lab:1/x", 1000)
    assert caught.value.category == "network"


def test_a_signature_in_a_url_is_not_reported(tmp_path: Path, port: int) -> None:
    fetch, _ = fetcher(tmp_path, "models.lab")
    with pytest.raises(RunFailed) as caught:
        fetch.fetch(f"http://models.lab:{port}/empty?signature=CANARY-SECRET", 1000)
    assert "CANARY" not in str(caught.value)
