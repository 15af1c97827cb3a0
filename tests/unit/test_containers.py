"""Images as archives, and what the boards file states about containers."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.containers.images import Image, write_archive, write_layer
from edgeyard.devices.containers import containers_from_file, device_mappings
from edgeyard.devices.runner.container_engine import ContainerEngine
from edgeyard.errors import ConfigError, RunFailed
from tests.builders.web import QuietHandler

IMAGE = "registry.secret.example/lab/ort:1"


def test_the_same_files_give_the_same_image_whenever_they_were_written(tmp_path: Path) -> None:
    archives = []
    for number in (1, 2):
        root = tmp_path / f"root-{number}"
        (root / "bin").mkdir(parents=True)
        (root / "bin/b").write_text("b")
        (root / "bin/a").symlink_to("b")
        os.utime(root / "bin/b", (number, number))
        layer = write_layer(root, tmp_path / f"layer-{number}.tar")
        image = Image(
            name="lab:1", layers=[layer], entrypoint=("/bin/a",), architecture="amd64", user="1:1"
        )
        out = tmp_path / f"image-{number}.tar"
        write_archive([image], out)
        archives.append((image.image_id, out.read_bytes()))
    assert archives[0] == archives[1]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"image": "two words"}, ".image: must be an image's name"),
        ({"image": 1}, ".image: must be an image's name"),
        ({"image": IMAGE, "auth": {"password": "CANARY"}}, ".auth: must be an object with"),
        ({"image": IMAGE, "user": "CANARY"}, ".user: must be UID:GID"),
        ({"image": IMAGE, "volumes": ["CANARY"]}, ".volumes: must be a list of texts"),
        ({"image": IMAGE, "env": {"A B": "CANARY"}}, ".env: must be an object"),
        ({"image": IMAGE, "devices": ["/dev/a:/dev/a:CANARY"]}, ".devices: must be a list"),
    ],
)
def test_a_wrong_container_is_named_by_its_place_and_without_its_value(
    tmp_path: Path, fields: dict[str, object], place: str
) -> None:
    path = tmp_path / "target.json"
    path.write_text(
        json.dumps({"rpi5": [{"target_uid": "rpi5-0001-0001", "engines": {"ort": fields}}]})
    )
    with pytest.raises(ConfigError) as caught:
        containers_from_file(path)
    assert f"$.rpi5[0].engines.ort{place}" in str(caught.value)
    assert "CANARY" not in str(caught.value)


def test_device_files_are_understood_in_both_of_docker_s_forms() -> None:
    found = device_mappings(
        ["/dev/a", "/dev/b:/dev/c", "/dev/d:/dev/e:r", {"host_path": "/dev/f"}, "gpu", 3]
    )
    assert [tuple(each.values()) for each in found] == [
        ("/dev/a", "/dev/a", "rwm"),
        ("/dev/b", "/dev/c", "rwm"),
        ("/dev/d", "/dev/e", "r"),
        ("/dev/f", "/dev/f", "rwm"),
    ]


class _Answers(QuietHandler):
    """Answers every request with the server's status and text."""

    def do_POST(self) -> None:
        server: Any = self.server
        self.answer(server.text.encode(), server.status)

    def address_string(self) -> str:
        return ""


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Any]:
    server: Any = socketserver.ThreadingUnixStreamServer(str(tmp_path / "docker.sock"), _Answers)
    thread = threading.Thread(target=server.serve_forever, name="docker")
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        (404, f"pull access denied for {IMAGE}, repository does not exist", "refuses the host's"),
        (404, f"manifest for {IMAGE} not found: manifest unknown", "is missing"),
        (500, f"Get https://{IMAGE}: no basic auth credentials", "refuses the host's"),
        (500, f"Get https://{IMAGE}: dial tcp 127.0.0.1:9: connection refused", "can't be reached"),
        (
            200,
            json.dumps({"error": f"no matching manifest for linux/arm64 in {IMAGE}"}),
            "no image",
        ),
        (500, f"disk full while {IMAGE} was unpacked", "refuses the container (status 500)"),
    ],
)
def test_refusals_of_the_container_engine_have_a_reason_and_no_name(
    tmp_path: Path, docker: Any, status: int, text: str, reason: str
) -> None:
    docker.status, docker.text = status, text
    with pytest.raises(RunFailed) as caught:
        ContainerEngine(str(tmp_path / "docker.sock")).pull(IMAGE, None)
    assert caught.value.category == "board_fault"
    assert reason in caught.value.sentence
    assert "secret.example" not in caught.value.sentence


def test_a_container_engine_that_is_gone_is_a_fault_of_the_board(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="does not answer"):
        ContainerEngine(str(tmp_path / "missing.sock")).architecture()
