"""What the runner is asked to do: the task's environment and ``spec.json``, checked.

A host that sets only the platform's eleven variables is served, too: what they leave out has a
default. Whatever is read here was written by somebody else, so that every value is checked.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple, TypeVar
from urllib.parse import urlsplit

from edgeyard.devices.benchmark_types import BENCHMARK_TYPE_PATTERN
from edgeyard.devices.metrics import LOAD_LATENCY, LOAD_RATE, Metric
from edgeyard.devices.model import SANDBOX_MODES, Hook, Sandbox, SshAddress
from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.errors import RunFailed

DEFAULT_NB_INFERENCE = 20
"""The default of the platform's example job."""

DEFAULT_USER_TIME_S = 900.0
"""Bound on a run whose user states none. The server's setting has the same default."""

DEFAULT_SOAK_WINDOW_S = 60.0
MIN_LEVEL_S = 2.0
"""Each number of callers is measured for so long at least."""

MAX_CALLERS, MAX_LEVELS = 64, 16
"""Callers at once, and different numbers of them in one run."""

MAX_LEVEL_RUNS = 1_000_000
"""Inferences of a number of callers at most: all are kept until it ends."""

SINGLE_STREAM, SERVER = "single-stream", "server"
LOADS = (SINGLE_STREAM, SERVER)
"""Loads by LoadGen's rules."""

DEFAULT_LOAD_S = 10.0
"""LoadGen's own default. MLPerf prescribes 600 s."""

DEFAULT_PERCENTILES: Mapping[str, float] = {SINGLE_STREAM: 90.0, SERVER: 99.0}
MIN_PERCENTILE, MAX_PERCENTILE = 50.0, 99.9
MIN_BOUND_S, MAX_BOUND_S = 1e-6, 30 * 86400.0
"""Of a latency at a percentile."""

MAX_SEED = 2**32 - 1

DEFAULT_NO_OUTPUT_TIMEOUT_S = 300.0
"""Maximum time without output of a run. The server's setting has the same default."""

DEFAULT_UPLOAD_TIMEOUT_S = 600.0
"""A server that restarts or a network that flaps is back by then; the board must be freed."""

MAX_NB_INFERENCE = 10_000_000
TOKEN = "EDGEYARD_UPLOAD_TOKEN"
"""Name of the secret that only the runner's own uploads need."""

TOKEN_FILE = "token.env"
"""Holds the secret as ``NAME=value``, in the folder of secrets."""

_MAX_TOKEN_BYTES = 4096

SPEC_FILE = "spec.json"
MAX_SPEC_BYTES = 8 * 1024 * 1024
_FILENAME = re.compile(r"^[^/\\\x00-\x1f\x7f]{1,255}$")

T = TypeVar("T")


def soak_windows(soak_s: float, window_s: float) -> int:
    """Return how many windows a soak is divided into; there are fewer where a run takes longer."""
    return max(1, round(soak_s / window_s))


def callers_problem(callers: Sequence[int]) -> str:
    """Return why these are no numbers of callers that one run is measured by; "": they are."""
    for each in callers:
        if not 1 <= each <= MAX_CALLERS:
            return f"has {each}, which is outside of 1 to {MAX_CALLERS}"
    if any(low >= high for low, high in itertools.pairwise(callers)):
        return "has a number twice, or numbers that do not rise"
    if len(callers) > MAX_LEVELS:
        return f"has {len(callers)} numbers, more than {MAX_LEVELS}"
    return ""


@dataclass(frozen=True, kw_only=True)
class FileRef:
    """A file in the task's folder; hash and size are None if they are not stated."""

    filename: str
    sha256: Optional[str] = None
    size_bytes: Optional[int] = None


@dataclass(frozen=True, kw_only=True)
class LoadRules:
    """A load by LoadGen's rules.

    Attributes:
        kind: One of `LOADS`.
        percentile: That counts, e.g. 99.
        duration_s: Minimum duration of a trial.
        bound_s: Of the latency at the percentile, with ``server``.
        rate: Of arrivals, 1/s; None, with ``server``: the largest that keeps the bound is searched.
        seed: Of the arrivals.
    """

    kind: str
    percentile: float
    duration_s: float = DEFAULT_LOAD_S
    bound_s: Optional[float] = None
    rate: Optional[float] = None
    seed: int = 0

    @property
    def share(self) -> float:
        """Share of the queries that have to keep the bound, above 0 and below 1."""
        return self.percentile / 100

    @property
    def searches(self) -> bool:
        """Whether the largest rate that keeps the bound is searched."""
        return self.kind == SERVER and self.rate is None

    @property
    def primary_metric(self) -> Metric:
        """The metric that a result is compared by."""
        return LOAD_RATE if self.searches else LOAD_LATENCY

    def __str__(self) -> str:
        parts = [f"p{self.percentile:g}"]
        if self.bound_s is not None:
            parts[0] += f" within {self.bound_s * 1e3:g} ms"
        if self.rate is not None:
            parts.append(f"{self.rate:g}/s")
        parts.append(f"{self.duration_s:g} s")
        if self.kind == SERVER:
            parts.append(f"seed {self.seed}")
        return f"{self.kind} by LoadGen's rules: {', '.join(parts)}"


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run.

    Attributes:
        task_dir: Where the artifacts lie, and where results are kept until they are safe.
        odt_config: The training configuration itself; None: see ``odt_config_filename``.
        precision: Relative half-width of the p50's interval that ends TYPE1; None: count runs.
        soak_s: Duration of a soak of TYPE1; None: no soak.
        soak_window_s: Length of its windows, each of which has a number.
        concurrency: Numbers of concurrent callers that TYPE1 is measured with, rising; empty: one
            caller.
        load: The load of TYPE1 by LoadGen's rules; None: none.
        input: Per input name: shape, low, high, integers.
        parameters: Of the engine and of the runner (``preprocessing``, ``batch_size``).
        keep_outputs: The model's outputs for the arrays of the dataset are kept.
        profile_layers: The time of each layer is measured, apart from the timed runs.
        upload_timeout_s: How long the upload of the result is tried; then it stays on the disk.
        upload_url: Folder URL for results; "": they are not uploaded, and stay on disk.
        progress_url: None where progress is not sent to the API.
        token: For uploads; never logged.
        out_dir: Where results are written, if not in ``results`` of the task's folder.
    """

    task_dir: Path
    engine: str
    benchmark_type: str
    model: FileRef
    benchmark_id: str = ""
    attempt: int = 1
    job_id: str = ""
    target: str = ""
    version_tag: str = ""
    alloc_id: str = ""
    node_id: str = ""
    datasets: Tuple[FileRef, ...] = ()
    odt_config: Optional[Mapping[str, object]] = None
    odt_config_filename: str = ""
    nb_inference: int = DEFAULT_NB_INFERENCE
    precision: Optional[float] = None
    soak_s: Optional[float] = None
    soak_window_s: float = DEFAULT_SOAK_WINDOW_S
    concurrency: Tuple[int, ...] = ()
    load: Optional[LoadRules] = None
    input: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    parameters: Mapping[str, object] = field(default_factory=dict)
    keep_outputs: bool = False
    profile_layers: bool = False
    user_time_s: float = DEFAULT_USER_TIME_S
    no_output_timeout_s: float = DEFAULT_NO_OUTPUT_TIMEOUT_S
    upload_timeout_s: float = DEFAULT_UPLOAD_TIMEOUT_S
    upload_url: str = ""
    progress_url: Optional[str] = None
    token: Optional[str] = field(default=None, repr=False)
    out_dir: Optional[Path] = None

    @property
    def results_dir(self) -> Path:
        """Where results are written and kept until they are safe."""
        return self.out_dir or self.task_dir / "results"

    def path(self, file: FileRef) -> Path:
        """Return the path of an artifact in the task's folder."""
        return self.task_dir / file.filename

    @property
    def odt_config_path(self) -> Optional[Path]:
        """Return the path of the training configuration, where it is a file."""
        if self.odt_config is not None or not self.odt_config_filename:
            return None
        return self.task_dir / Path(self.odt_config_filename).name

    @property
    def input_paths(self) -> Sequence[Path]:
        """Return the files that the run reads."""
        config = self.odt_config_path
        files = [self.path(file) for file in (self.model, *self.datasets)]
        return files if config is None else [*files, config]


def task_dir_of(environ: Mapping[str, str]) -> Path:
    """Return the folder of artifacts: ``NOMAD_TASK_DIR``, else ``local`` of the working folder."""
    return Path(environ.get("NOMAD_TASK_DIR") or "local").absolute()


def take_token(environ: Mapping[str, str]) -> Optional[str]:
    """Read the upload token from the folder of secrets and remove its file.

    It is handed over in a file, because every process of the same user can read the environment
    that a process was started with, for as long as it lives. The file is removed so that what the
    run loads later does not find it.

    Returns:
        None where there is no token, as on networks where no one asks for one.
    """
    folder = environ.get("NOMAD_SECRETS_DIR")
    if not folder:
        return None
    path = Path(folder) / TOKEN_FILE
    try:
        with path.open("rb") as file:
            lines = file.read(_MAX_TOKEN_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    with contextlib.suppress(OSError):  # a read-only folder: the file stays
        path.unlink()
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == TOKEN and value.strip():
            return value.strip()
    return None


def exchange_url(environ: Mapping[str, str]) -> Optional[str]:
    """Return where a run gets its task that has none of its own; None where ``spec.json`` has it.

    Raises:
        RunFailed: See `read_spec`.
    """
    read = _Reader(_document(task_dir_of(environ) / SPEC_FILE))
    return _url("exchange_url", read.text("exchange_url", "")) or None


def read_spec(environ: Mapping[str, str], token: Optional[str] = None) -> RunSpec:
    """Return the run that environment and ``spec.json`` describe.

    Args:
        token: Of the uploads; see `take_token`.

    Raises:
        RunFailed: ``user_input``, naming the value that can't be.
    """
    task_dir = task_dir_of(environ)
    document = _document(task_dir / SPEC_FILE)
    read = _Reader(document)
    upload_url = _url("upload_url", read.text("upload_url", environ.get("RESULTS_PUB_URL", "")))
    if upload_url and not upload_url.endswith("/"):
        upload_url += "/"
    job = urlsplit(upload_url).path.rstrip("/").rpartition("/")[2]
    job_id = read.text("job_id", f"benchmark-{job}" if job else "")
    datasets = read.files("datasets")
    if not datasets and environ.get("DATASET_FILENAME"):
        datasets = (FileRef(filename=_filename("dataset", environ["DATASET_FILENAME"])),)
    return RunSpec(
        task_dir=task_dir,
        engine=read.text("engine", environ.get("RUNTIME", "")),
        benchmark_type=_benchmark_type(
            read.text("benchmark_type", environ.get("BENCHMARK_TYPE") or "TYPE1")
        ),
        model=read.file("model", environ.get("MODEL_FILENAME", "")),
        benchmark_id=read.text("benchmark_id", job),
        attempt=int(read.number("attempt", 1, 1, 1_000_000)),
        job_id=job_id,
        target=environ.get("TARGET", ""),
        version_tag=environ.get("VERSION_TAG", ""),
        alloc_id=environ.get("NOMAD_ALLOC_ID", ""),
        node_id=environ.get("NOMAD_NODE_ID", ""),
        datasets=datasets,
        odt_config=read.mapping_or_none("odt_config"),
        odt_config_filename=environ.get("ODT_CONFIG_FILENAME", ""),
        nb_inference=int(
            read.number(
                "nb_inference",
                _environ_int(environ, "NB_INFERENCE", DEFAULT_NB_INFERENCE),
                1,
                MAX_NB_INFERENCE,
            )
        ),
        precision=read.number_or_none("precision", 0.0001, 1.0),
        soak_s=read.number_or_none("soak_s", 0.01, 1e9),
        soak_window_s=read.number("soak_window_s", DEFAULT_SOAK_WINDOW_S, 0.01, 1e9),
        concurrency=_callers(document.get("concurrency")),
        load=_load(read.mapping_or_none("load")),
        input=_inputs(read.mapping("input")),
        parameters=read.mapping("parameters"),
        keep_outputs=read.flag("keep_outputs"),
        profile_layers=read.flag("profile_layers"),
        user_time_s=read.number("user_time_s", DEFAULT_USER_TIME_S, 0.01, 1e9),
        no_output_timeout_s=read.number(
            "no_output_timeout_s", DEFAULT_NO_OUTPUT_TIMEOUT_S, 0.01, 1e9
        ),
        upload_timeout_s=read.number("upload_timeout_s", DEFAULT_UPLOAD_TIMEOUT_S, 0.01, 1e9),
        upload_url=upload_url,
        progress_url=_url("progress_url", read.text("progress_url", "")) or None,
        token=token,
    )


def read_board(environ: Mapping[str, str]) -> BoardFacts:
    """Read what the host states about the board; by default it has all our CPUs.

    Raises:
        RunFailed: ``board_fault``: the host's ``EDGEYARD_BOARD`` can't be read.
    """
    text = environ.get("EDGEYARD_BOARD")
    allowed = sorted(os.sched_getaffinity(0))
    if not text:
        return BoardFacts(family=environ.get("TARGET", ""), threads=len(allowed))
    try:
        facts = json.loads(text)
        cpus = tuple(int(cpu) for cpu in facts.get("cpus") or ())
        ram = facts.get("ram_bytes")
        parent, storage = facts.get("parent_pid"), facts.get("storage_bytes")
        return BoardFacts(
            target_uid=str(facts.get("target_uid") or ""),
            family=str(facts.get("family") or environ.get("TARGET", "")),
            cpus=cpus,
            threads=max(1, int(facts.get("threads") or len(cpus) or len(allowed))),
            ram_bytes=None if ram is None else int(ram),
            progress_file=facts.get("progress_file") or None,
            emulated=bool(facts.get("emulated")),
            parent_pid=None if parent is None else int(parent),
            storage_bytes=None if storage is None else int(storage),
            sandbox=_sandbox(facts.get("sandbox") or {}),
            ssh=_address(facts.get("ssh")),
            hooks=tuple(_hook(each) for each in facts.get("hooks") or ()),
            streams=bool(facts.get("streams")),
            duty_cycle=float(facts.get("duty_cycle", 1.0)),
            energy_rail=str(facts.get("energy_rail") or ""),
            energy_command=tuple(str(each) for each in facts.get("energy_command") or ()),
            energy_s=float(facts.get("energy_s", 0.0)),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise RunFailed("board_fault", f"EDGEYARD_BOARD can't be read: {error}") from error


def _address(facts: Optional[Mapping[str, Any]]) -> Optional[SshAddress]:
    if not facts:
        return None
    known = {field.name for field in fields(SshAddress)}
    given = {key: value for key, value in facts.items() if key in known}
    return SshAddress(**{**given, "host": str(given["host"]), "port": int(given.get("port", 22))})


def _sandbox(facts: Mapping[str, Any]) -> Sandbox:
    mode = str(facts.get("mode") or "auto")
    if mode not in SANDBOX_MODES:
        raise ValueError(f"sandbox {mode!r} is not one of {', '.join(SANDBOX_MODES)}")
    return Sandbox(
        mode=mode,
        devices=tuple(str(path) for path in facts.get("devices") or ()),
        paths=tuple(str(path) for path in facts.get("paths") or ()),
    )


def _hook(facts: Mapping[str, Any]) -> Hook:
    return Hook(
        when=str(facts["when"]),
        run=tuple(str(word) for word in facts["run"]),
        on=str(facts.get("on", "host")),
        timeout_s=float(facts.get("timeout_s", 60.0)),
    )


def _document(path: Path) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SPEC_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RunFailed("board_fault", f"spec.json can't be read: {error}") from error
    try:
        if len(data) > MAX_SPEC_BYTES:
            raise ValueError(f"over {MAX_SPEC_BYTES} bytes")
        document = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RunFailed("user_input", f"spec.json is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise _wrong("", "not an object")
    if document.get("version", 1) != 1:
        raise _wrong("version", f"{document['version']!r} is not known here; update the runner")
    return document


class _Reader:
    """Reads members of the document; an absent or null one has the default."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document = document

    def text(self, key: str, default: str) -> str:
        return self._checked(key, default, lambda value: isinstance(value, str), "a string")

    def flag(self, key: str) -> bool:
        return self._checked(key, False, lambda value: isinstance(value, bool), "true or false")

    def number(self, key: str, default: float, low: float, high: float) -> float:
        value = self.number_or_none(key, low, high)
        return default if value is None else value

    def number_or_none(self, key: str, low: float, high: float) -> Optional[float]:
        value = self._document.get(key)
        if value is None:
            return None
        # low <= value also refuses NaN; the type test comes first since bool is an int
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong(key, f"{value!r} is not a number")
        if not low <= value <= high:
            raise _wrong(key, f"{value!r} is not between {low:g} and {high:g}")
        return value

    def mapping(self, key: str) -> Mapping[str, object]:
        return self.mapping_or_none(key) or {}

    def mapping_or_none(self, key: str) -> Optional[Mapping[str, object]]:
        value = self._document.get(key)
        if value is not None and not isinstance(value, dict):
            raise _wrong(key, "not an object")
        return value

    def file(self, key: str, default: str) -> FileRef:
        value = self.mapping_or_none(key)
        return _file(key, value if value is not None else {"filename": default})

    def files(self, key: str) -> Tuple[FileRef, ...]:
        value = self._document.get(key) or []
        if not isinstance(value, list):
            raise _wrong(key, "not a list")
        return tuple(_file(f"{key}/{index}", item) for index, item in enumerate(value))

    def _checked(self, key: str, default: T, good: Callable[[object], bool], what: str) -> T:
        value = self._document.get(key)
        if value is None:
            return default
        if not good(value):
            raise _wrong(key, f"not {what}")
        return value  # type: ignore[return-value]  # `good` has just checked it


def _callers(value: object) -> Tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise _wrong("concurrency", "not a list of whole numbers")
    if problem := callers_problem(value):
        raise _wrong("concurrency", problem)
    return tuple(value)


def _load(value: Optional[Mapping[str, object]]) -> Optional[LoadRules]:
    if value is None:
        return None
    read = _Reader(value)
    kind = read.text("kind", "")
    if kind not in LOADS:
        raise _wrong("load/kind", f"{kind!r} is not one of {', '.join(LOADS)}")
    bound_s = read.number_or_none("bound_s", MIN_BOUND_S, MAX_BOUND_S)
    if kind == SERVER and bound_s is None:
        raise _wrong("load/bound_s", "is missing")
    return LoadRules(
        kind=kind,
        percentile=read.number(
            "percentile", DEFAULT_PERCENTILES[kind], MIN_PERCENTILE, MAX_PERCENTILE
        ),
        duration_s=read.number("duration_s", DEFAULT_LOAD_S, 0.01, 1e6),
        bound_s=bound_s,
        rate=read.number_or_none("rate", 1e-3, 1e6),
        seed=int(read.number("seed", 0, 0, MAX_SEED)),
    )


def _file(key: str, value: object) -> FileRef:
    if not isinstance(value, dict):
        raise _wrong(key, "not an object")
    sha256, size = value.get("sha256"), value.get("size_bytes")
    return FileRef(
        filename=_filename(key, value.get("filename")),
        sha256=sha256.lower() if isinstance(sha256, str) and sha256 else None,
        size_bytes=size if isinstance(size, int) else None,
    )


def _filename(key: str, value: object) -> str:
    if not isinstance(value, str) or not _FILENAME.match(value) or value in (".", ".."):
        raise _wrong(key, f"{value!r} is not a plain file name")
    return value


def _inputs(value: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    inputs = {}
    for name, one in value.items():
        if not isinstance(one, dict):
            raise _wrong(f"input/{name}", "not an object")
        inputs[name] = one
    return inputs


def _benchmark_type(value: str) -> str:
    if not BENCHMARK_TYPE_PATTERN.fullmatch(value):
        raise _wrong("benchmark_type", f"{value!r} is not one of TYPE1 to TYPE99")
    return value


def _url(key: str, value: str) -> str:
    if value and urlsplit(value).scheme not in ("http", "https"):
        raise _wrong(key, "not an http(s) URL")
    return value


def _environ_int(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or ""
    try:
        value = int(text) if text else default
    except ValueError:
        raise _wrong(name, f"{text!r} is not a whole number") from None
    if not 1 <= value <= MAX_NB_INFERENCE:
        raise _wrong(name, f"{value} is not between 1 and {MAX_NB_INFERENCE}")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _wrong(key: str, reason: str) -> RunFailed:
    return RunFailed("user_input", f"the run's description, {key or 'as a whole'}: {reason}")
