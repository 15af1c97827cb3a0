"""A real Nomad whose hosts run containers: an engine of the tests' own, and images built here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy import programs
from deploy.containers import __main__ as builder
from deploy.containers.images import Image, write_archive, write_layer
from deploy.process import free_port, in_cluster, on_nomad
from edgeyard import testbed
from edgeyard.testbed.cluster import unmount
from tests.nomad_cluster import entry, nomad_binary, running_nomad
from tests.reruns import restored_before_rerun

PROJECT = Path(__file__).parents[1]
REGISTRY_USER, REGISTRY_PASSWORD = "lab", "secret-of-the-registry"
_REGISTRY_HASH = "$2b$04$1iE9Z7VwAJDNi.YeuLn.e.MKD9Y4UwhPjVGXwOoHPuJM02U1j5G6K"
BOARD, OTHER = "x86-0001-0001", "x86-0001-0002"
ENGINES = {"ort": ["TYPE1", "TYPE2", "TYPE3"], "tflite": ["TYPE1", "TYPE3"]}
_START_S = 60.0
_READ = "event=boards_file_read"


@dataclass
class Engine:
    """A container engine with a folder of its own; without bridges, which need iptables."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    loaded: list[str] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / "docker.sock"

    @property
    def command(self) -> list[str]:
        """The client's command, up to its arguments."""
        return [_program("docker"), "-H", f"unix://{self.socket}"]

    def start(self) -> None:
        """Start it, and wait until it answers; RuntimeError with its log where it does not."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    _program("dockerd"),
                    *("--data-root", str(self.folder / "root")),
                    *("--exec-root", str(self.folder / "exec")),
                    *("-H", f"unix://{self.socket}", "--pidfile", str(self.folder / "pid")),
                    *("--iptables=false", "--ip6tables=false", "--bridge=none"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + _START_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.1)

    def restart_dead(self) -> None:
        """Start it again where a test that failed has left it killed."""
        if not self.answers():
            self.start()

    def answers(self) -> bool:
        """Whether it does."""
        return not self.call("version", check=False).returncode

    def call(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Call Docker's client; RuntimeError with its errors."""
        done = subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"docker {' '.join(arguments)}: {done.stderr}")
        return done

    def build(self, folder: Path, name: str) -> None:
        """Build the Dockerfile of a folder, by the builder that is part of the engine."""
        command = [*self.command, "build", "--quiet", "--tag", name, str(folder)]
        environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def load(self, images: Sequence[Image]) -> None:
        """Load images into it."""
        archive = self.folder / "images.tar"
        write_archive(images, archive)
        builder.load(archive, images, self.command)
        archive.unlink()

    def build_ste(self) -> list[str]:
        """Build the Dockerfile of each service of the test environment; return their images."""
        base = built([builder.SERVER])[builder.SERVER]
        self.load([base])
        self.call("tag", base.name, "edgeyard:latest")
        made = []
        for file in sorted((PROJECT / "deploy/ste").glob("*/Dockerfile")):
            made.append(f"edgeyard/ste-{file.parent.name}:1")
            self.build(file.parent, made[-1])
        return made

    def running(self) -> list[str]:
        """Names of the containers that run."""
        return self.call("ps", "--format", "{{.Names}}").stdout.split()

    def kill(self) -> None:
        """As a crash of the engine; its containers go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._end_containerd()
        for name in ("pid", "exec/containerd/containerd.pid"):
            (self.folder / name).unlink(missing_ok=True)

    def _end_containerd(self) -> None:
        """End the process that a killed engine leaves."""
        pid_file = self.folder / "exec/containerd/containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            pid = int(pid_file.read_text())
            if str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End it and its containers, and remove its folder."""
        if self.process is not None and self.process.poll() is None:
            names = self.call("ps", "-aq", check=False).stdout.split()
            if names:
                self.call("rm", "-f", *names, check=False)
            # It waits long for nothing; what it keeps is removed with its folder.
            self.process.kill()
            self.process.wait()
        self._end_containerd()
        unmount(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class DockerLab:
    """A Nomad server and clients, their container engine, and the images."""

    nomad: testbed.LoopbackNomad
    engine: Engine
    images: Mapping[str, Image]

    def settings(self, inventory: Path) -> dict[str, str]:
        """Environment of a server on it, whose inventory is written here."""
        self.write_inventory(inventory, docker_entry(BOARD), docker_entry(OTHER))
        settings = on_nomad(self.nomad, inventory)
        del settings["EDGEYARD_RAW_EXEC_COMMAND"]
        return {
            **settings,
            "EDGEYARD_DRIVER": "docker",
            # Docker always fetches an image without a tag, or with the tag latest.
            "EDGEYARD_DOCKER_IMAGE": self.images[builder.RUNNER].name,
            **in_cluster(memory_mib=1024),
        }

    def write_inventory(self, inventory: Path, *boards: Mapping[str, object]) -> None:
        """Write the boards that a server is to expect."""
        inventory.write_text(json.dumps({"x86": boards}))

    @contextlib.contextmanager
    def board(
        self,
        target_uid: str,
        engines: Mapping[str, Mapping[str, object]] | None = None,
        **ort: object,
    ) -> Iterator[None]:
        """Change what the host of a board states of its engines, for a block."""
        client = [BOARD, OTHER].index(target_uid)
        self._write(client, docker_entry(target_uid, engines, **ort))
        yield
        self._write(client, docker_entry(target_uid))

    def _write(self, client: int, board: dict[str, object]) -> None:
        log = self.nomad.clients[client].folder / "agent.log"
        before = log.read_text().count(_READ)
        self.nomad.boards(client, {"x86": [board]})
        until = time.monotonic() + _START_S
        while log.read_text().count(_READ) == before:
            assert time.monotonic() < until, "the plugin did not read the boards file"
            time.sleep(0.05)

    def foreign(self) -> str:
        """Load an image for another architecture; return its name."""
        image = small_image(self.engine.folder, "lab.example/foreign:1", foreign=True)
        self.engine.load([image])
        return image.name

    def push(self, registry: str, name: str) -> None:
        """Push a small image that is no runner; the engine forgets it."""
        image = small_image(self.engine.folder, f"{registry}/{name}")
        self.engine.load([image])
        self._push(registry, image.name)

    def push_runner(self, registry: str, name: str) -> str:
        """Push the bootstrap image; return its name there, which the engine forgets."""
        whole = f"{registry}/{name}"
        self.engine.call("tag", self.images[builder.RUNNER].name, whole)
        self._push(registry, whole)
        return whole

    def _push(self, registry: str, name: str) -> None:
        config = self.engine.folder / "client"
        client = [self.engine.command[0], "--config", str(config), *self.engine.command[1:]]
        login = [*client, "login", "-u", REGISTRY_USER, "--password-stdin", registry]
        subprocess.run(login, input=REGISTRY_PASSWORD.encode(), check=True, capture_output=True)
        subprocess.run([*client, "push", "--quiet", name], check=True, capture_output=True)
        self.engine.call("rmi", name)


def small_image(folder: Path, name: str, *, foreign: bool = False) -> Image:
    """An image of one program, which says a sentence, or which is for another architecture."""
    root = folder / "small"
    shutil.rmtree(root, ignore_errors=True)
    (root / "bin").mkdir(parents=True)
    if foreign:
        # The head of an ELF file for AArch64 (183).
        head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 183, 1)
        (root / "bin/busybox").write_bytes(head + bytes(200))
    else:
        debian = next((PROJECT / "build/containers").glob("debian-*.tar"))
        with tarfile.open(debian) as archive:
            program = archive.extractfile("usr/bin/busybox")
            assert program is not None
            (root / "bin/busybox").write_bytes(program.read())
    (root / "bin/busybox").chmod(0o755)
    return Image(
        name=name,
        layers=[write_layer(root, folder / f"small-{foreign}.tar")],
        entrypoint=("/bin/busybox", "sh", "-c", "echo from the registry; exit 7"),
        architecture="arm64" if foreign else builder._this_architecture(),
    )


def docker_entry(
    target_uid: str, engines: Mapping[str, Mapping[str, object]] | None = None, **ort: object
) -> dict[str, object]:
    """A board whose engines, or whose engine ``ort``, have further fields."""
    found: dict[str, Any] = entry(target_uid, ENGINES)
    for name, fields in {**(engines or {}), **({"ort": ort} if ort else {})}.items():
        found["engines"].setdefault(name, {}).update(fields)
    return found


@contextlib.contextmanager
def running_engine() -> Iterator[Engine]:
    """Start a container engine, and end it; skips where none can run."""
    if os.geteuid() != 0:
        pytest.skip("only root starts a container engine")
    # A socket's path has at most 107 bytes.
    engine = Engine(Path(tempfile.mkdtemp(prefix="edgeyard-docker-")))
    try:
        try:
            engine.start()
        except RuntimeError as error:
            pytest.skip(f"no container engine starts here: {error}")
        yield engine
    finally:
        engine.end()


@pytest.fixture(scope="session")
def docker_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerLab]:
    """Two hosts with a board each, which share an engine."""
    nomad = nomad_binary()
    with contextlib.ExitStack() as undo:
        engine = undo.enter_context(running_engine())
        images = built([builder.RUNNER])
        undo.enter_context(restored_before_rerun(engine.restart_dead))
        made = testbed.make(
            tmp_path_factory.mktemp("docker") / "cluster",
            nomad,
            [{"x86": [docker_entry(BOARD)]}, {"x86": [docker_entry(OTHER)]}],
            heartbeat_s=5.0,
            docker_socket=engine.socket,
        )
        lab = DockerLab(undo.enter_context(running_nomad(made)), engine, images)
        engine.load(list(images.values()))
        yield lab


def built(names: Sequence[str]) -> dict[str, Image]:
    """Return images by name; their layers are kept in ``build/containers``."""
    folder = PROJECT / "build/containers"
    made = builder.Builder(folder, builder._this_architecture(), "test", 0, lambda sentence: None)
    return dict(zip(names, made.images(names), strict=True))


@pytest.fixture(scope="session")
def docker_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a registry that asks for a login, one a test process."""
    folder = tmp_path_factory.mktemp("registry")
    (folder / "htpasswd").write_text(f"{REGISTRY_USER}:{_REGISTRY_HASH}\n")
    address = f"127.0.0.1:{free_port()}"
    (folder / "config.yml").write_text(
        json.dumps(
            {
                "version": 0.1,
                "log": {"level": "error"},
                "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
                "http": {"addr": address},
                "auth": {"htpasswd": {"realm": "lab", "path": str(folder / "htpasswd")}},
            }
        )
    )
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [_program("docker-registry"), "serve", str(folder / "config.yml")],
            stdout=log,
            stderr=log,
        ) as registry,
    ):
        yield address
        registry.terminate()


def _program(name: str) -> str:
    """Debian's programs come first: another client may be too new for this engine."""
    path = programs.find(name, first="/usr/bin:/usr/sbin")
    if path is None:
        pytest.skip(f"{name} is missing: make programs")
    return path
