"""The composition root: the one place that builds adapters and hands them to the parts."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import numpy as np
from fastapi import FastAPI

from edgeyard.benchmark_api.app import create_app
from edgeyard.benchmark_api.auth import new_token, token_hash
from edgeyard.benchmark_api.fetch import AddressRules, Fetcher
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.settings import Settings
from edgeyard.devices.inventory import Inventory, default_embedded_inventory
from edgeyard.devices.runner.engines import installed
from edgeyard.errors import ConfigError
from edgeyard.scheduler.clusters.local import LocalCluster
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.dispatch import Dispatcher, TaskLimits
from edgeyard.scheduler.engine.reconcile import Reconciler, ReconcileRules
from edgeyard.scheduler.engine.service import Engine, EngineParts
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.hcl.build import RenderSettings
from edgeyard.scheduler.model.benchmark import FileRole
from edgeyard.scheduler.model.records import ApiToken, Role, User
from edgeyard.scheduler.ports import Store
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.twin.twin import Twin

ADMIN = "admin"
ADMIN_TOKEN_FILE = "admin.token"


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        """Aware UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """For durations."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class System:
    """What `build` made."""

    app: FastAPI
    engine: Engine
    cluster: LocalCluster
    store: Store
    public_url: str
    lock: IO[bytes]

    def close(self) -> None:
        """Stop in the order that loses nothing: engine, tasks, store."""
        self.engine.stop()
        self.cluster.close()
        self.store.close()
        self.lock.close()


def build(settings: Settings, port: int) -> System:
    """Everything, wired, nothing started.

    Args:
        port: The bound one.

    Raises:
        ConfigError: A file or a setting can't be used, or another server has this data folder.
    """
    clock = SystemClock()
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _locked(settings.data_dir)
    public_url = settings.public_url or f"http://{_url_host(settings.host)}:{port}"
    store = open_store(settings)
    files = ContentFiles(settings.data_dir / "files")
    inventory = _inventory(settings)
    policy = load_policy(settings.policy)
    cluster = LocalCluster(
        tuple(board for board in inventory.boards if board.local is not None),
        settings.data_dir / "embedded",
    )
    ensure_admin(store, settings.data_dir, clock.now())
    render = _render_settings(settings, public_url)
    limits = TaskLimits(
        user_time_s=settings.default_user_time_s, no_output_timeout_s=settings.no_output_timeout_s
    )
    rules = AddressRules(settings.allow_hosts)
    observed: list[tuple[str, float, Mapping[str, str]]] = []
    twin = Twin(inventory.boards)
    cycle = Cycle(store, twin, cluster, policy, Plugins.load(policy), clock, _observe(observed))
    dispatcher = Dispatcher(store, cluster, render, limits, clock)
    reconciler = Reconciler(
        store,
        cluster,
        dispatcher,
        ReconcileRules(upload_grace_s=settings.upload_grace_s),
        limits,
        clock,
    )
    engine = Engine(
        EngineParts(
            store=store,
            cluster=cluster,
            twin=twin,
            render=render,
            cycle=cycle,
            dispatcher=dispatcher,
            reconciler=reconciler,
            fetcher=Fetcher(rules, files, timeout_s=settings.fetch_timeout_s),
            clock=clock,
            observe=_observe(observed),
            sweep=files.sweep_temporary,
            file_limits={
                FileRole.MODEL: settings.model_limit_bytes,
                FileRole.DATASET: settings.dataset_limit_bytes,
                FileRole.ODT_CONFIG: settings.body_limit_bytes,
            },
            limits=limits,
        )
    )
    services = Services(
        store=store,
        files=files,
        cluster=cluster,
        engine=engine,
        clock=clock,
        settings=settings,
        inventory=inventory,
        public_url=public_url,
        rules=rules,
    )
    return System(create_app(services), engine, cluster, store, public_url, lock)
