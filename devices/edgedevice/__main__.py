"""``edgeyard-device-plugin``: the executable that Nomad finds in its ``plugin_dir``."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

_PARENT_POLL_INTERVAL_S = 1.0
"""Interval between checks whether the agent that started the plugin still runs."""


def main() -> None:
    """Serve until the agent ends us, or ends."""
    # gRPC's own lines are not JSON, and Nomad would log each as an error
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    parent = os.getppid()  # before the imports, which take a moment: it may die meanwhile
    try:
        from edgeyard.devices.edgedevice.server import COOKIE, COOKIE_NAME, PluginServer
        from edgeyard.devices.edgedevice.service import EdgeDevice
    except ImportError as error:
        from edgeyard.installing import extra_command

        sys.exit(f"edgeyard-device-plugin: {error}: {extra_command('edgedevice')}")
    if os.environ.get(COOKIE_NAME) != COOKIE:
        sys.exit(
            "edgeyard-device-plugin is a plugin of Nomad: put it into the agent's plugin_dir and "
            'name it there in a block plugin "edgeyard-device-plugin" { config { ... } }.'
        )
    _log_as_json()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    # Ctrl-C in the agent's terminal reaches us too: the agent ends us when it is ready to
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = PluginServer(EdgeDevice(), stop)
    sys.stdout.write(server.start() + "\n")
    sys.stdout.flush()
    while not stop.wait(_PARENT_POLL_INTERVAL_S) and os.getppid() == parent:
        pass
    server.close()
    # a probe that hangs must not keep us: its thread holds nothing that needs an end
    logging.shutdown()
    os._exit(0)


def _log_as_json() -> None:
    from edgeyard.devices.edgedevice.hclog import HclogFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HclogFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


if __name__ == "__main__":
    main()
