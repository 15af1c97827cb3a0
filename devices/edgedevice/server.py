"""go-plugin's side of the plugin: handshake on stdout, a gRPC server on a unix socket, an end."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, Iterator, Mapping

import grpc

from edgeyard.devices.edgedevice.proto import base_pb2, device_pb2, goplugin_pb2
from edgeyard.devices.edgedevice.service import EdgeDevice

COOKIE_NAME = "NOMAD_PLUGIN_MAGIC_COOKIE"
COOKIE = "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255"
"""Not a secret: it shows that Nomad started the plugin, not a person (Nomad's plugins/base)."""

PROTOCOL_VERSION = 2
"""Nomad's plugins/base/plugin.go; the 1 before it in the handshake is go-plugin's own."""

_WORKERS = 16
"""Each stream holds one for its life: Fingerprint and Stats, twice while Nomad reconnects."""

_GRACE_S = 1.0
"""go-plugin kills what has not ended 2 s after it was asked to."""


class PluginServer:
    """Serves one Nomad client.

    Args:
        plugin: Answers; closed with the server.
        stop: Set when Nomad asks us to end.
    """

    def __init__(self, plugin: EdgeDevice, stop: threading.Event) -> None:
        self._plugin, self._stop = plugin, stop
        # a private folder: no other user may connect, and the path stays below 108 bytes
        self._folder = tempfile.mkdtemp(prefix="edgedevice-", dir=_socket_folder())
        self.address = os.path.join(self._folder, "plugin.sock")
        self._server = grpc.server(
            ThreadPoolExecutor(_WORKERS, thread_name_prefix="grpc"),
            handlers=_handlers(plugin, stop),
        )
        self._server.add_insecure_port(f"unix:{self.address}")

    def start(self) -> str:
        """Start to serve, and print the handshake line that Nomad's go-plugin expects."""
        self._server.start()
        return f"1|{PROTOCOL_VERSION}|unix|{self.address}|grpc"

    def close(self) -> None:
        """Stop serving: streams may end by themselves first, and are cut after that."""
        self._stop.set()
        self._plugin.close()
        self._server.stop(_GRACE_S).wait(2 * _GRACE_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _socket_folder() -> str:
    folder = os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.gettempdir()
    # 108: sun_path of unix(7), less what we add
    return folder if len(os.fsencode(folder)) < 70 else "/tmp"


def _handlers(plugin: EdgeDevice, stop: threading.Event) -> "list[grpc.GenericRpcHandler]":
    one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler

    def method(
        kind: Callable[..., grpc.RpcMethodHandler], answer: Callable[..., object], request: type
    ) -> grpc.RpcMethodHandler:
        return kind(
            answer,
            request_deserializer=request.FromString,  # type: ignore[attr-defined]
            response_serializer=lambda message: message.SerializeToString(),
        )

    def check(
        request: goplugin_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> goplugin_pb2.HealthCheckResponse:
        return goplugin_pb2.HealthCheckResponse(status=goplugin_pb2.HealthCheckResponse.SERVING)

    def shutdown(request: goplugin_pb2.Empty, context: grpc.ServicerContext) -> goplugin_pb2.Empty:
        stop.set()
        return goplugin_pb2.Empty()

    def no_output(
        request: goplugin_pb2.Empty, context: grpc.ServicerContext
    ) -> Iterator[goplugin_pb2.Empty]:
        """Report nothing of stdout and stderr: go-plugin reads the log itself."""
        return iter(())

    services: Mapping[str, Dict[str, grpc.RpcMethodHandler]] = {
        "hashicorp.nomad.plugins.base.proto.BasePlugin": {
            "PluginInfo": method(one, plugin.plugin_info, base_pb2.PluginInfoRequest),
            "ConfigSchema": method(one, plugin.config_schema, base_pb2.ConfigSchemaRequest),
            "SetConfig": method(one, plugin.set_config, base_pb2.SetConfigRequest),
        },
        "hashicorp.nomad.plugins.device.DevicePlugin": {
            "Fingerprint": method(many, plugin.fingerprint, device_pb2.FingerprintRequest),
            "Reserve": method(one, plugin.reserve, device_pb2.ReserveRequest),
            "Stats": method(many, plugin.stats, device_pb2.StatsRequest),
        },
        "grpc.health.v1.Health": {"Check": method(one, check, goplugin_pb2.HealthCheckRequest)},
        "plugin.GRPCController": {"Shutdown": method(one, shutdown, goplugin_pb2.Empty)},
        "plugin.GRPCStdio": {"StreamStdio": method(many, no_output, goplugin_pb2.Empty)},
    }
    return [
        grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()
    ]
