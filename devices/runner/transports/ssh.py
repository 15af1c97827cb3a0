"""A run on a board that is reached by ssh: one session, over which everything goes.

The runner's one-file program, the model and the data go there, progress and the log come back as
they happen, the result at the end; the board needs no way to the server, and gets no token.
When this process ends, however it does, the session ends with it, and the board cleans up:
`edgeyard.devices.runner.behind_host`.
"""

from __future__ import annotations

import json
import math
import shlex
import tempfile
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional

import edgeyard
from edgeyard.devices.model import SshAddress
from edgeyard.devices.runner.behind_host import BOOTSTRAP
from edgeyard.devices.runner.result import REPORT
from edgeyard.devices.runner.spec import RunSpec
from edgeyard.devices.runner.transports.session import STALLED_S, Link, OnOutput, open_link
from edgeyard.errors import RunFailed

_BLOCK = 256 * 1024
_MAX_RESULTS_BYTES = 16 * 2**30
_MAX_RESULTS = 256
_MAX_MESSAGE = 200
"""Characters of a message that a board sends with its progress."""

_MAX_REPORT_BYTES = 64 * 1024**2
"""It is read into memory; what is big belongs into files of its own."""

_FACTS = (
    *("target_uid", "family", "cpus", "threads", "ram_bytes", "emulated"),
    *("storage_bytes", "sandbox", "energy_rail"),
)
"""What the board receives about itself: no address, no hooks, no paths of its host."""

_PASSED_ON = (
    "NOMAD_ALLOC_ID",
    "NOMAD_NODE_ID",
    "TARGET",
    "RUNTIME",
    "VERSION_TAG",
    "NB_INFERENCE",
    "BENCHMARK_TYPE",
    "MODEL_FILENAME",
    "DATASET_FILENAME",
    "ODT_CONFIG_FILENAME",
)
"""What the board gets of the task's environment: all of the platform's variables but where results
go."""

OnMessage = Callable[[Mapping[str, object]], None]


def run_on_board(
    spec: RunSpec,
    address: SshAddress,
    environ: Mapping[str, str],
    on_message: OnMessage,
    on_output: OnOutput,
    *,
    energy_s: float = 0.0,
    parent_pid: Optional[int] = None,
) -> None:
    """Run there, and bring what it wrote into ``spec.results_dir``.

    Args:
        environ: Of our task: what the board may know of it goes there.
        on_message: Called with every progress message of the board.
        on_output: Called with what is logged there.
        energy_s: As of `BoardFacts`, where a meter of ours measures.
        parent_pid: Process that we must not outlive.

    Raises:
        RunFailed: ``network``: the board could not be reached, or the link was cut.
            ``board_fault``: it could not run our program, or handed nonsense back.
        ParentGone: See ``parent_pid``; everything was ended.
    """
    command = f"exec {shlex.quote(address.python)} -u -c {shlex.quote(BOOTSTRAP)}"
    with open_link(address, command, on_output, parent_pid) as link:
        for piece in _parcel(spec, environ, energy_s):
            link.send(piece)
        _receive(link, spec, on_message)


def _parcel(spec: RunSpec, environ: Mapping[str, str], energy_s: float = 0.0) -> Iterator[bytes]:
    """Program, header and files."""
    program = _program()
    yield f"{len(program)}\n".encode() + program
    # as the host's plugin said it: what it left open, such as threads, the board knows itself
    facts = json.loads(environ["EDGEYARD_BOARD"])
    facts = {key: facts[key] for key in _FACTS if key in facts}
    if energy_s:
        facts["energy_s"] = energy_s
    document = _document(spec)
    paths = _artifacts(spec)
    files: List[Dict[str, object]] = [{"name": "spec.json", "size": len(document)}]
    files += [{"name": path.name, "size": path.stat().st_size} for path in paths]
    passed_on = {key: environ[key] for key in _PASSED_ON if key in environ}
    header = {
        "environ": {**passed_on, "EDGEYARD_BOARD": json.dumps({**facts, "streams": True})},
        "files": files,
    }
    yield json.dumps(header).encode() + b"\n" + document
    for path, announced in zip(paths, files[1:], strict=True):
        left = announced["size"]
        assert isinstance(left, int)
        with path.open("rb") as file:
            while left:
                data = file.read(min(_BLOCK, left))
                if not data:
                    raise RunFailed("network", f"{path.name} shrank while it was copied")
                yield data
                left -= len(data)


def _artifacts(spec: RunSpec) -> List[Path]:
    """Return the files that the run needs, and no other of the task's folder."""
    names = [spec.model.filename, *(file.filename for file in spec.datasets)]
    if spec.odt_config is None and spec.odt_config_filename:
        names.append(Path(spec.odt_config_filename).name)
    return [path for name in dict.fromkeys(names) if (path := spec.task_dir / name).is_file()]


def _document(spec: RunSpec) -> bytes:
    """``spec.json`` for the board: as ours, but its results stay there till we fetch them."""
    try:
        document = json.loads((spec.task_dir / "spec.json").read_bytes())
    except FileNotFoundError:  # a host that sets only the platform's variables
        document = {}
    ids = {"benchmark_id": spec.benchmark_id, "job_id": spec.job_id}  # possibly given by the URL
    return json.dumps({**document, **ids, "upload_url": "", "progress_url": ""}).encode()


def _program() -> bytes:
    """Return the runner as one file: ourselves, where we are that file."""
    home = Path(edgeyard.__file__).parents[1]
    if home.is_file():
        return home.read_bytes()
    from edgeyard.devices.runner import pyz

    with tempfile.TemporaryDirectory(prefix="edgeyard-pyz-") as folder:
        return pyz.build(Path(folder) / "runner.pyz").read_bytes()


def _receive(link: Link, spec: RunSpec, on_message: OnMessage) -> None:
    patience_s = spec.user_time_s + 2 * STALLED_S
    received = files = 0
    spec.results_dir.mkdir(parents=True, exist_ok=True)
    while True:
        message = _message(link.line(patience_s))
        kind = message.get("kind")
        if kind == "done":
            return
        if kind == "progress":
            phase, said = message.get("phase"), str(message.get("message") or "")[:_MAX_MESSAGE]
            at_s = message.get("at_s")
            on_message(
                {
                    "kind": kind,
                    "phase": phase,
                    "percent": _percent(message),
                    "message": said,
                    "at_s": at_s if isinstance(at_s, (int, float)) else None,
                }
            )
        elif kind == "file":
            name, size = message.get("name"), message.get("size")
            if not _is_plain(name) or not isinstance(size, int) or size < 0:
                raise RunFailed("board_fault", "the board handed back a file without a plain name")
            received += size
            files += 1
            max_bytes = _MAX_REPORT_BYTES if name == REPORT else _MAX_RESULTS_BYTES
            if size > max_bytes or received > _MAX_RESULTS_BYTES or files > _MAX_RESULTS:
                raise RunFailed("board_fault", "the board handed back more than can be kept")
            part = spec.results_dir / ".part"
            with part.open("wb") as file:
                link.copy(size, file.write)
            part.replace(spec.results_dir / str(name))
        elif kind != "running":
            raise RunFailed(
                "board_fault", "the board sent data that is not of the runner's protocol"
            )


def _percent(message: Mapping[str, object]) -> float:
    percent = message.get("percent")
    if not isinstance(percent, (int, float)) or math.isnan(percent):
        return 0.0
    return float(min(100.0, max(0.0, percent)))


def _is_plain(name: object) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name.encode("utf-8", "replace")) <= 255
        and name == Path(name).name
        and not name.startswith(".")
        and "\0" not in name
    )


def _message(line: bytes) -> Mapping[str, object]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise RunFailed("board_fault", "the board sent data that is not of the runner's protocol")
    return message
