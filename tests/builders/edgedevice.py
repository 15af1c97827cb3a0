"""The device plugin as Nomad sees it: a process, a handshake, a gRPC connection."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import msgpack

from edgeyard.devices.edgedevice.proto import base_pb2, device_pb2, goplugin_pb2, values_pb2
from edgeyard.devices.edgedevice.server import COOKIE, COOKIE_NAME

GIB = 1 << 30
FIRST, SECOND = "rpi4b-0001-0001", "rpi4b-0001-0002"
CANARY = "CANARY-REGISTRY-PASSWORD"
BASE = "hashicorp.nomad.plugins.base.proto.BasePlugin"
DEVICE = "hashicorp.nomad.plugins.device.DevicePlugin"
PATIENCE_S = 60.0


def board_entry(uid: str = FIRST, **more: object) -> dict[str, Any]:
    """One board as the platform's ``target.json`` has it, registry password included."""
    return {
        "target_uid": uid,
        "memory": {"storage": 34359738368, "ram": 4 * GIB},
        "engines": {
            "ort": {
                "version": "1.20",
                "image": "registry.example/ort",
                "supported_types": ["TYPE1", "TYPE2"],
                "devices": [],
                "volumes": ["/models:/models"],
                "env": {"SECRET": CANARY},
                "auth": {"username": "lab", "password": CANARY},
            },
            "tflite": {"version": "2.19", "supported_types": ["TYPE1"]},
        },
        **more,
    }


def write_boards(path: Path, *entries: dict[str, Any]) -> None:
    """Replace the boards file, as an editor does."""
    families: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        families.setdefault(entry["target_uid"].split("-")[0], []).append(entry)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(families))
    part.replace(path)


def value_of(attribute: values_pb2.Attribute) -> object:
    """Whatever it holds."""
    which = attribute.WhichOneof("value")
    return getattr(attribute, which) if which else None


class PublishedBoard:
    """A fingerprint, for asking."""

    def __init__(self, response: device_pb2.FingerprintResponse) -> None:
        self.groups = list(response.device_group)

    @property
    def boards(self) -> dict[str, device_pb2.DeviceGroup]:
        """By name."""
        return {each.device_name: each for each in self.groups if each.device_type == "edgedevice"}

    def attributes(self, uid: str = FIRST) -> dict[str, object]:
        """Of one board."""
        return {name: value_of(value) for name, value in self.boards[uid].attributes.items()}

    def progress(self, uid: str = FIRST) -> object:
        """Of one board."""
        return self.attributes(uid)["dynamic.progress"]

    def healthy(self, uid: str = FIRST) -> bool:
        """Of one board."""
        return self.boards[uid].devices[0].healthy

    def reason(self, uid: str = FIRST) -> str:
        """Why it is unhealthy."""
        return self.boards[uid].devices[0].health_description


class Plugin:
    """A running plugin, talked to as Nomad's client talks to it."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self._log = process, log
        assert process.stdout is not None
        self.handshake = process.stdout.readline().strip()
        self.parts = self.handshake.split("|")
        self._channel = grpc.insecure_channel(f"unix:{self.parts[3]}")

    def log(self) -> list[dict[str, Any]]:
        """What it wrote to stderr; each line must be JSON."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def call(self, service: str, method: str, request: Any, answer: Any) -> Any:
        """One call that has one answer."""
        ask = self._channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return ask(request, timeout=PATIENCE_S)

    def configure(self, **settings: object) -> None:
        """As the agent's ``config`` block, completed by the schema, does."""
        self.call(
            BASE,
            "SetConfig",
            base_pb2.SetConfigRequest(
                msgpack_config=msgpack.packb(settings), plugin_api_version="v0.1.0"
            ),
            base_pb2.SetConfigResponse,
        )

    def reserve(self, *uids: str) -> device_pb2.ContainerReservation:
        """As before a task's start."""
        response = self.call(
            DEVICE,
            "Reserve",
            device_pb2.ReserveRequest(device_ids=uids),
            device_pb2.ReserveResponse,
        )
        return cast(device_pb2.ReserveResponse, response).container_res

    def stream(self, method: str, request: Any, answer: Any) -> Any:
        """One call that has many answers."""
        return self._channel.unary_stream(
            f"/{DEVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )(request)

    @contextlib.contextmanager
    def fingerprints(self) -> Iterator[Fingerprints]:
        """The stream of what is reported to Nomad."""
        call = self.stream(
            "Fingerprint", device_pb2.FingerprintRequest(), device_pb2.FingerprintResponse
        )
        seen = Fingerprints(call)
        try:
            yield seen
        finally:
            call.cancel()
            seen.thread.join(PATIENCE_S)

    def shutdown(self) -> None:
        """As go-plugin asks for the end."""
        self.call("plugin.GRPCController", "Shutdown", goplugin_pb2.Empty(), goplugin_pb2.Empty)

    def close(self) -> None:
        """End it, whatever state it is in."""
        self._channel.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Fingerprints:
    """Reads the stream on a thread; `until` waits for what a test wants to see."""

    def __init__(self, call: Any) -> None:
        self._queue: queue.Queue[PublishedBoard | None] = queue.Queue()
        self._call = call
        self.seen: list[PublishedBoard] = []
        self.thread = threading.Thread(target=self._read, name="fingerprints")
        self.thread.start()

    def until(self, condition: Any) -> PublishedBoard:
        """The first answer, of those to come, that meets the condition."""
        while True:
            shown = self._queue.get(timeout=PATIENCE_S)
            assert shown is not None, "the stream ended"
            self.seen.append(shown)
            if condition(shown):
                return shown

    def first(self) -> PublishedBoard:
        """The next answer."""
        return self.until(lambda shown: True)

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for response in self._call:
                self._queue.put(PublishedBoard(response))
        self._queue.put(None)


@contextlib.contextmanager
def running_plugin(log: Path, **environ: str) -> Iterator[Plugin]:
    """The plugin as Nomad starts it."""
    env = {**os.environ, COOKIE_NAME: COOKIE, "PLUGIN_PROTOCOL_VERSIONS": "2", **environ}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgeyard.devices.edgedevice"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=env,
            text=True,
        )
    plugin = Plugin(process, log)
    try:
        yield plugin
    finally:
        plugin.close()
