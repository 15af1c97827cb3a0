"""An engine whose "model" is hostile: it tries what a model that broke its engine would try.

What came of each attempt is in the report's ``engine_facts``: "stopped: ..." or what it got.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgeyard.devices.runner.engine import TensorSpec, TrainingConfig, TrainingResult

_libc = ctypes.CDLL(None, use_errno=True)


class Attacks:
    """Each method is one attack; what it returns is its booty."""

    def __init__(self, aims: Mapping[str, Any]) -> None:
        self.aims = aims

    def own_environment(self) -> str:
        secret = self.aims["secret"]
        return _refuse(not any(secret in value for value in os.environ.values()), "no secret")

    def others_environment(self) -> str:
        secret = self.aims["secret"].encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if secret in (entry / "environ").read_bytes():
                        return f"the secret, of process {entry.name}"
                except OSError:
                    continue
        raise PermissionError("no process's environment has it")

    def write_outside(self) -> str:
        for folder in self.aims["folders"]:
            try:
                Path(folder, "written").write_text("x")
            except OSError as error:
                last = error
            else:
                return f"wrote into {folder}"
        raise last

    def write_next_to_the_task(self) -> str:
        Path(self.aims["next_to_the_task"], "written").write_text("x")
        return "wrote a file"

    def change_model(self) -> str:
        with open(self.aims["model"], "ab") as file:
            file.write(b"x")
        return "changed it"

    def tcp(self) -> str:
        socket.create_connection(("127.0.0.1", self.aims["port"]), 5.0).close()
        return "connected"

    def udp(self) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", ("127.0.0.1", self.aims["port"]))
        return "sent"

    def outside_world(self) -> str:
        socket.create_connection(("192.0.2.1", 80), 2.0).close()
        return "connected"

    def unix_socket(self) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.aims["unix"])
        return "connected"

    def packet_socket(self) -> str:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
        return "made"

    def signal_others(self) -> str:
        os.kill(self.aims["pid"], signal.SIGUSR1)
        return "sent"

    def trace_others(self) -> str:
        return _call("ptrace", 16, self.aims["pid"], None, None)

    def read_memory_of_others(self) -> str:
        return _call("process_vm_readv", self.aims["pid"], None, 0, None, 0, 0)

    def new_namespace(self) -> str:
        return _call("unshare", 0x10000000)

    def mount(self) -> str:
        return _call("mount", b"none", b"/tmp", b"tmpfs", 0, None)

    def become_root(self) -> str:
        os.setresuid(0, 0, 0)
        Path("/etc/edgeyard-written").write_text("x")
        return "root"

    def memory(self) -> str:
        np.ones(3 * 2**30, np.uint8)
        return "3 GiB"

    def threads(self) -> str:
        release = threading.Event()
        started = 0
        try:
            for _ in range(5000):
                thread = threading.Thread(target=release.wait, daemon=True)
                thread.start()
                started += 1
        finally:
            release.set()
        return f"{started} threads"

    def open_files(self) -> str:
        files = []
        try:
            for _ in range(20_000):
                files.append(os.open(os.devnull, os.O_RDONLY))
        finally:
            for each in files:
                os.close(each)
        return f"{len(files)} files"

    def disk(self) -> str:
        block = bytes(16 * 2**20)
        folder = Path(tempfile.gettempdir())
        names = [folder / f"fill-{number}" for number in range(40)]
        try:
            for name in names:
                name.write_bytes(block)
        finally:
            for name in names:
                name.unlink(missing_ok=True)
        return "640 MiB"

    def shared_memory(self) -> str:
        with open("/dev/shm/fill", "wb") as file:
            for _ in range(20):
                file.write(bytes(16 * 2**20))
        return "320 MiB"

    def fork(self) -> str:
        if os.fork() == 0:
            os._exit(0)
        return "forked"

    def program(self) -> str:
        subprocess.run(["/bin/true"], check=True)
        return "ran"

    def writable_code(self) -> str:
        """Not an attack: engines compile code at run time, which must go on to work."""
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.close()
        raise PermissionError("as it should be: memory for compiled code can be had")


def _refuse(good: bool, why: str) -> str:
    if good:
        raise PermissionError(why)
    return "there"


def _call(name: str, *arguments: object) -> str:
    if getattr(_libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "done"


def attempt(attack: Callable[[], object]) -> str:
    try:
        return f"did it: {attack()}"
    except (OSError, MemoryError, RuntimeError) as error:
        return f"stopped: {type(error).__name__}: {error}"[:200]


class _Session:
    def __init__(self, facts: Mapping[str, object]) -> None:
        self.facts = facts
        self.inputs = self.outputs = (TensorSpec("x", (1, 4), "float32"),)

    def run(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        time.sleep(0.001)
        return [feeds["x"]]


class AttackingEngine:
    """Attacks when it loads its model."""

    name = "attacking"

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, Any]) -> _Session:
        aims = {**parameters, "model": str(model)}
        attacks = Attacks(aims)
        named = {name: getattr(attacks, name) for name in vars(Attacks) if name[0] != "_"}
        facts: dict[str, object] = {
            name: attempt(attack) for name, attack in named.items() if name in aims["attacks"]
        }
        for path in aims.get("files", ()):
            facts[f"read {path}"] = attempt(Path(path).read_bytes)
        facts["modules"] = sorted({name.split(".")[0] for name in sys.modules})
        facts["limits"] = {
            name: resource.getrlimit(getattr(resource, name))[0]
            for name in ("RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC")
        }
        return _Session(facts)

    def train(
        self,
        model: Path,
        config: TrainingConfig,
        x: Any,
        y: Any,
        out: Path,
        progress: Callable[[float, str], None],
        *,
        threads: int,
        parameters: Mapping[str, Any],
    ) -> TrainingResult:
        """Put a link to a file of the host in the place of the trained model."""
        file = out / "trained.bin"
        file.symlink_to(parameters["files"][0])
        return TrainingResult(
            step_losses=[1.0],
            epoch_losses=[1.0],
            validation_losses=[],
            validation_accuracy=[],
            step_ms=[1.0],
            trained="nothing",
            model_file=file,
        )


class StartingEngine(AttackingEngine):
    """May start processes, as an engine with a compiler does; and starts as many as it can."""

    name = "starting"
    starts_processes = True

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, Any]) -> _Session:
        started = 0
        try:
            for _ in range(3000):
                if os.fork() == 0:
                    os.closerange(0, 100)
                    os.setsid()
                    time.sleep(600)
                    os._exit(0)
                started += 1
        except OSError as error:
            return _Session({"forks": started, "error": str(error)})
        return _Session({"forks": started, "error": ""})


class KilledEngine(AttackingEngine):
    """Takes memory and says something; then a signal ends it."""

    name = "killed"

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, Any]) -> _Session:
        taken = np.ones(parameters["mib"] * 2**20, np.uint8)
        sys.stdout.write(parameters["says"])
        sys.stdout.flush()
        os.kill(os.getpid(), parameters["signal"])
        return _Session({"taken": len(taken)})
