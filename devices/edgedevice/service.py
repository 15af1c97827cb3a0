"""What Nomad asks of the plugin, over gRPC; the values are `Watch`'s."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import asdict
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple, cast

import grpc
from google.protobuf import timestamp_pb2, wrappers_pb2

from edgeyard.devices.attributes import LAST_ERROR, POWER_W, TEMPERATURE_C, attributes_of
from edgeyard.devices.edgedevice.config import PluginConfig, read_config, schema
from edgeyard.devices.edgedevice.proto import base_pb2, device_pb2, values_pb2
from edgeyard.devices.edgedevice.publishing import PublishedBoard
from edgeyard.devices.edgedevice.watch import HostBoards, Reservation, Watch
from edgeyard.devices.inventory import sandbox_of
from edgeyard.devices.machine import machine_attributes
from edgeyard.devices.model import AttributeValue, Board
from edgeyard.devices.runner.bootstrap import CONTAINERS
from edgeyard.errors import ConfigError

logger = logging.getLogger(__name__)

VENDOR, TYPE, NAME = "daiedge", "edgedevice", "edgedevice"
PROBLEM_TYPE = "boardsfile"
"""Type of the one unhealthy device by which Nomad shows that the boards file can't be used."""

API_VERSION = "v0.1.0"
_VERSION = "0.1.0"
_CALLER_POLL_INTERVAL_S = 1.0
"""Interval between checks whether the caller of a stream is still connected."""

_MAX_STATS_S = 3600.0
_MAX_TEXT_CHARS = 1000


class EdgeDevice:
    """The plugin's two services; called on gRPC's threads.

    Args:
        make_watch: Starts watching the boards; tests hand in their own.
    """

    def __init__(self, make_watch: Callable[[PluginConfig], Watch] = Watch) -> None:
        self._make_watch = make_watch
        self._lock = threading.Lock()
        self._config: Optional[PluginConfig] = None
        self._watch: Optional[Watch] = None
        self._closed = threading.Event()

    def close(self) -> None:
        """End the streams and the watching."""
        self._closed.set()
        with self._lock:
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def plugin_info(
        self, request: base_pb2.PluginInfoRequest, context: grpc.ServicerContext
    ) -> base_pb2.PluginInfoResponse:
        """Return type, name and versions of the plugin."""
        return base_pb2.PluginInfoResponse(
            type=base_pb2.DEVICE,
            plugin_api_versions=[API_VERSION],
            plugin_version=_VERSION,
            name=NAME,
        )

    def config_schema(
        self, request: base_pb2.ConfigSchemaRequest, context: grpc.ServicerContext
    ) -> base_pb2.ConfigSchemaResponse:
        """Return how Nomad reads our settings."""
        return base_pb2.ConfigSchemaResponse(spec=schema())

    def set_config(
        self, request: base_pb2.SetConfigRequest, context: grpc.ServicerContext
    ) -> base_pb2.SetConfigResponse:
        """Take the settings; a later call replaces them. Wrong ones are refused, and we live on."""
        try:
            config = read_config(request.msgpack_config)
        except ConfigError as error:
            logger.error("The settings are refused.", extra={"problem": str(error)})
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:_MAX_TEXT_CHARS])
        with self._lock:
            before, self._watch = self._watch, None
            self._config = config
        if before is not None:
            before.close()
        return base_pb2.SetConfigResponse()

    def fingerprint(
        self, request: device_pb2.FingerprintRequest, context: grpc.ServicerContext
    ) -> Iterator[device_pb2.FingerprintResponse]:
        """Yield the boards, now and whenever their report changes."""
        version = 0
        watch: Optional[Watch] = None
        while context.is_active() and not self._closed.is_set():
            newest = self._watching(context)
            if newest is not watch:  # new settings
                watch, version = newest, 0
            picture = newest.wait(version, _CALLER_POLL_INTERVAL_S)
            if picture is not None:
                version = picture.version
                yield _fingerprint(picture)

    def reserve(
        self, request: device_pb2.ReserveRequest, context: grpc.ServicerContext
    ) -> device_pb2.ReserveResponse:
        """Return what a task needs to use its board; a password is in a file of the host alone."""
        if len(request.device_ids) != 1:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a task uses exactly one board")
        uid = request.device_ids[0]
        try:
            reserved = self._watching(context).reserve(uid)
        except LookupError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error.args[0])[:_MAX_TEXT_CHARS])
        except OSError as error:
            reason = f"the files of the task on {uid} can't be made: {error}"
            context.abort(grpc.StatusCode.INTERNAL, reason[:_MAX_TEXT_CHARS])
        progress_file = str(reserved.progress_file)
        logger.info("A board is reserved.", extra={"event": "board_reserved", "target_uid": uid})
        return device_pb2.ReserveResponse(
            container_res=device_pb2.ContainerReservation(
                envs={
                    "EDGEYARD_BOARD": json.dumps(_facts(reserved.board, progress_file)),
                    "EDGEYARD_PROGRESS_FILE": progress_file,
                    CONTAINERS: str(reserved.container_file),
                },
                mounts=_mounts(reserved),
                devices=[
                    device_pb2.DeviceSpec(
                        task_path=device["container_path"],
                        host_path=device["host_path"],
                        permissions=device["permissions"],
                    )
                    for device in reserved.devices
                ],
            )
        )

    def stats(
        self, request: device_pb2.StatsRequest, context: grpc.ServicerContext
    ) -> Iterator[device_pb2.StatsResponse]:
        """Stream progress, temperature and power of each board as often as Nomad requests."""
        interval = request.collection_interval
        interval_s = min(_MAX_STATS_S, max(1.0, interval.seconds + interval.nanos / 1e9))
        while context.is_active() and not self._closed.is_set():
            boards = self._watching(context).now()
            at = timestamp_pb2.Timestamp(seconds=int(time.time()))
            yield device_pb2.StatsResponse(
                groups=[_stats(uid, shown, at) for uid, shown in boards.items()]
            )
            until = time.monotonic() + interval_s
            while context.is_active() and not self._closed.wait(
                max(0.0, min(_CALLER_POLL_INTERVAL_S, until - time.monotonic()))
            ):
                if time.monotonic() >= until:
                    break

    def _watching(self, context: grpc.ServicerContext) -> Watch:
        with self._lock:
            config = self._config
            if config is None or self._closed.is_set():
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "there are no settings yet")
            elif self._watch is None:
                self._watch = self._make_watch(config)
            return cast(Watch, self._watch)  # abort raises


def _mounts(reserved: Reservation) -> List[device_pb2.Mount]:
    """Return what containers see of the host, under the same paths as there."""
    mounts = [
        (reserved.progress_file.parent, False),
        (reserved.container_file.parent, True),
    ]
    if reserved.docker_socket is not None:
        mounts.append((reserved.docker_socket, False))
    return [
        device_pb2.Mount(task_path=str(path), host_path=str(path), read_only=read_only)
        for path, read_only in mounts
    ]


def _facts(board: Board, progress_file: str) -> Dict[str, object]:
    """`BoardFacts` of the runner: what is not known here is left to it."""
    facts: Dict[str, object] = {
        "target_uid": board.target_uid,
        "family": board.family,
        "ram_bytes": board.ram_bytes,
        "progress_file": progress_file,
        "emulated": board.local is not None,
        "storage_bytes": board.storage_bytes or None,
        "sandbox": asdict(sandbox_of(board)),
    }
    if board.local is not None:
        facts.update(
            cpus=list(board.local.cpus),
            threads=board.local.threads,
            duty_cycle=board.local.duty_cycle,
        )
    if board.ssh is not None:
        facts["ssh"] = asdict(board.ssh)
    if board.hooks:
        facts["hooks"] = [asdict(hook) for hook in board.hooks]
    if board.energy_rail:
        facts["energy_rail"] = board.energy_rail
    if board.energy_command:
        facts["energy_command"] = list(board.energy_command)
    return facts


def _fingerprint(picture: HostBoards) -> device_pb2.FingerprintResponse:
    groups = [_group(uid, shown) for uid, shown in picture.boards.items()]
    if picture.problem:
        groups.append(_problem(picture.problem))
    return device_pb2.FingerprintResponse(device_group=groups)


def _group(uid: str, shown: PublishedBoard) -> device_pb2.DeviceGroup:
    board = shown.board
    attributes: Dict[str, AttributeValue] = dict(attributes_of(board))
    if board.ssh is None:
        attributes = {**machine_attributes(board), **attributes}
    # a whole number: what is compared with "90" should not depend on how floats are written
    attributes["dynamic.progress"] = shown.percent
    if shown.last_error:
        attributes[LAST_ERROR] = shown.last_error
    if shown.temperature_c is not None:
        attributes[TEMPERATURE_C] = round(shown.temperature_c)
    if shown.power_w is not None:
        attributes[POWER_W] = round(shown.power_w, 1)
    return device_pb2.DeviceGroup(
        vendor=VENDOR,
        device_type=TYPE,
        device_name=uid,
        devices=[
            device_pb2.DetectedDevice(
                ID=uid, healthy=board.healthy, health_description=board.health_reason
            )
        ],
        attributes={name: _attribute(value) for name, value in attributes.items()},
    )


def _problem(text: str) -> device_pb2.DeviceGroup:
    return device_pb2.DeviceGroup(
        vendor=VENDOR,
        device_type=PROBLEM_TYPE,
        device_name="error",
        devices=[
            device_pb2.DetectedDevice(
                ID="boards-file", healthy=False, health_description=text[:_MAX_TEXT_CHARS]
            )
        ],
    )


def _attribute(value: AttributeValue) -> values_pb2.Attribute:
    if isinstance(value, bool):
        return values_pb2.Attribute(bool_val=value)
    if isinstance(value, int):
        return values_pb2.Attribute(int_val=value)
    if isinstance(value, float):
        return values_pb2.Attribute(float_val=value)
    return values_pb2.Attribute(string_val=value)


def _stats(
    uid: str, shown: PublishedBoard, at: timestamp_pb2.Timestamp
) -> device_pb2.DeviceGroupStats:
    progress = values_pb2.StatValue(
        int_numerator_val=wrappers_pb2.Int64Value(value=shown.percent),
        int_denominator_val=wrappers_pb2.Int64Value(value=100),
        unit="%",
        desc="Progress of the task on the board",
    )
    found: Dict[str, values_pb2.StatValue] = {"progress": progress}
    measured: Mapping[str, Tuple[Optional[float], str]] = {
        "temperature": (shown.temperature_c, "°C"),
        "power": (shown.power_w, "W"),
    }
    for name, (value, unit) in measured.items():
        if value is not None:
            found[name] = values_pb2.StatValue(
                float_numerator_val=wrappers_pb2.DoubleValue(value=value), unit=unit
            )
    stats = device_pb2.DeviceStats(
        summary=progress, stats=values_pb2.StatObject(attributes=found), timestamp=at
    )
    return device_pb2.DeviceGroupStats(
        vendor=VENDOR, type=TYPE, name=uid, instance_stats={uid: stats}
    )
