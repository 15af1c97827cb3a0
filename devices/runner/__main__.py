"""``python -m edgeyard.devices.runner``, ``edgeyard-runner`` and ``edgeyard-runner.pyz``.

The parent process: it reads what is asked, has a limited child do it, and keeps the result until
the server has it safe. It loads neither NumPy nor an engine.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import resource
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, ContextManager, Dict, List, Mapping, NoReturn, Optional

from edgeyard import __version__
from edgeyard.devices.model import Sandbox, SshAddress
from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.memory import MemoryEvidence
from edgeyard.devices.runner.progress import ProgressCalls, ProgressFile
from edgeyard.devices.runner.result import (
    CATEGORIES,
    LOG,
    REPORT,
    Report,
    build_report,
    file_entries,
    now,
    read_report,
    sha256_of,
    write_report,
)
from edgeyard.devices.runner.sandbox.inside import EXIT_NOT_CONFINED
from edgeyard.devices.runner.sandbox.plan import plan_for
from edgeyard.devices.runner.sandbox.run import ConfinedRun
from edgeyard.devices.runner.spec import (
    FileRef,
    RunSpec,
    exchange_url,
    read_board,
    read_spec,
    take_token,
    task_dir_of,
)
from edgeyard.devices.runner.task import out_of_memory
from edgeyard.devices.runner.transports.local import ChildExit, Message, orphaned
from edgeyard.errors import RunFailed

if TYPE_CHECKING:
    from edgeyard.devices.runner.energy import EnergyMeasurement

logger = logging.getLogger("edgeyard.runner")

EXIT_OK = 0
EXIT_FAILED = 3
"""The benchmark failed, and its report says why."""

EXIT_NOT_UPLOADED = 4
"""The result lies in ``local/results`` of the task; the server does not have it."""

EXIT_NOT_TAKEN_UP = 5
"""The server did not give the run its task."""

EXIT_NO_ROOM = 6
"""The result could not be written: the disk of this host is full."""

EXIT_STOPPED = 128 + signal.SIGTERM

_FULL = (errno.ENOSPC, errno.EDQUOT)

_LIVE_LOG = ".runner.log"
"""Written until the end; what is uploaded is a copy, whose hash holds."""

_MAX_LOG_BYTES = 4 * 1024 * 1024
"""A child that floods its output must fill neither disk nor upload."""

_TAIL_BYTES = 64 * 1024
_UPLOADING_PERCENT = 96.0
_MEMORY_WORDS = (b"bad_alloc", b"MemoryError", b"Cannot allocate memory")
_OWN_ENDS = (None, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
"""How a process ends that was refused memory: by itself, or by a crash."""


def main() -> None:
    """Run what environment and ``spec.json`` say, and exit with its status."""
    if len(sys.argv) == 3 and sys.argv[1] == "--behind-host":
        from edgeyard.devices.runner.behind_host import serve

        sys.exit(serve(Path(sys.argv[2])))
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"edgeyard-runner {__version__}\n")
        sys.exit(EXIT_OK)
    if sys.argv[1:] == ["--confinement"]:
        plan = plan_for(Sandbox(), ram_bytes=1)
        state = "ok" if plan.confined else "open"
        sys.stdout.write(f"edgeyard-runner {__version__}\nsandbox {state}: {plan.sentence()}\n")
        sys.exit(EXIT_OK)
    _leave(_status_of(os.environ))


def _status_of(environ: Mapping[str, str]) -> int:
    """Run, and return the exit status, whatever ends the run."""
    try:
        return run(environ)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else EXIT_FAILED
    except OSError as error:
        if error.errno not in _FULL:
            raise
        with contextlib.suppress(OSError):
            sys.stderr.write(f"edgeyard-runner: the result can't be written: {error}\n")
        return EXIT_NO_ROOM


def _leave(status: int) -> NoReturn:
    """End this process with this status, also where its last output can't be written any more."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def run(environ: Mapping[str, str], failure: Optional[RunFailed] = None) -> int:
    """One run, from the description to the safe result; the exit status.

    Args:
        failure: Why the run can't begin, which is reported instead of a result.
    """
    # our parent now: one that ended before this check is recognised by EDGEYARD_BOARD's parent_pid
    parent_pid: Optional[int] = os.getppid()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the upload token
    folder = task_dir_of(environ) / "results"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in _FULL:
            raise
        sys.stderr.write(f"edgeyard-runner: {folder} can't be written: {error}\n")
        return EXIT_FAILED
    log = _open_log(folder / _LIVE_LOG)
    token = take_token(environ)
    board = BoardFacts()
    try:
        url = exchange_url(environ)
        if url is not None:
            # only the runs of schedules that Nomad starts have one, and it takes what urllib takes
            from edgeyard.devices.runner.exchange import NotTakenUp, take_up

            try:
                token = take_up(url, token, environ)
            except NotTakenUp as error:
                logger.error("%s", error, extra={"event": "not_taken_up"})
                return EXIT_NOT_TAKEN_UP
        spec = read_spec(environ, token)
    except RunFailed as error:
        failure, spec = failure or error, _minimal_spec(environ, token)
    try:
        board = read_board(environ)
        parent_pid = board.parent_pid or parent_pid
    except RunFailed as error:
        failure = failure or error
    if parent_pid is not None and parent_pid <= 1:
        parent_pid = None  # in a container we may well be the child of its first process
    if orphaned(parent_pid):
        return EXIT_STOPPED
    progress_file = ProgressFile(Path(board.progress_file) if board.progress_file else None)
    progress_file.hold()
    calls = ProgressCalls(spec.progress_url, spec.token)
    try:
        report = read_report(folder, spec)
        if report is None:
            one = _Run(spec, board, log, progress_file, calls, parent_pid, environ)
            report = one.failed(failure) if failure is not None else one.run()
        calls.report(_UPLOADING_PERCENT, "uploading")
        safe = _upload(folder, spec, report)
        if safe:
            shutil.rmtree(folder, ignore_errors=True)
            progress_file.write(100.0)
        if report["status"] != "ok":
            return EXIT_FAILED
        return EXIT_OK if safe else EXIT_NOT_UPLOADED
    finally:
        calls.close()
        progress_file.write(0.0)  # the board is idle again


class _Run:
    """A run that is under way."""

    def __init__(
        self,
        spec: RunSpec,
        board: BoardFacts,
        log: "_Log",
        progress_file: ProgressFile,
        calls: ProgressCalls,
        parent_pid: Optional[int],
        environ: Mapping[str, str],
    ) -> None:
        self._environ = environ
        self._spec, self._board, self._log = spec, board, log
        self._progress_file, self._calls = progress_file, calls
        self._parent_pid = parent_pid
        self._started_at = now()
        self._measured: Dict[str, object] = {}
        self._confinement: Optional[Dict[str, object]] = None
        self._failure: Optional[RunFailed] = None
        self._energy: Optional[EnergyMeasurement] = None
        self._energy_void: Optional[str] = None

    def run(self) -> Report:
        """Have the child do it, and write the report."""
        spec, board = self._spec, self._board
        logger.info(
            "Running %s of %s with %s.",
            spec.benchmark_type,
            spec.model.filename,
            spec.engine,
            extra={"event": "run_started", "benchmark_id": spec.benchmark_id},
        )
        try:
            self._spec = _checked(spec)
            with _hooks_of(board):
                self._observe_idle()
                return self._here() if board.ssh is None else self._on_board(board.ssh)
        except RunFailed as failure:
            return self.failed(failure)
        finally:
            if self._energy is not None:
                self._energy.stop()

    def _observe_idle(self) -> None:
        """Find what measures the board's energy, and have it observe the idle board."""
        if not self._board.may_measure_energy:
            return
        # what only such boards need costs the others' start nothing
        from edgeyard.devices.runner import board as machine
        from edgeyard.devices.runner.energy import energy_of

        self._energy, self._energy_void = energy_of(self._board, machine.ROOT)
        if self._energy_void is not None:
            logger.warning("No energy is known: %s", self._energy_void, extra={"event": "energy"})
        if self._energy is not None:
            self._board = replace(self._board, energy_s=self._energy.measuring.measure_s)
            self._energy.observe_idle()

    def _on_board(self, address: SshAddress) -> Report:
        """Have the board's own runner do it; its report is ours."""
        # what only such boards need costs the others' start nothing
        from edgeyard.devices.runner.transports.session import ParentGone
        from edgeyard.devices.runner.transports.ssh import run_on_board

        spec = self._spec
        try:
            run_on_board(
                spec,
                address,
                self._environ,
                self._on_message,
                self._log.write,
                energy_s=self._board.energy_s,
                parent_pid=self._parent_pid,
            )
        except ParentGone:
            logger.warning("Our parent is gone; so are we.")
            raise SystemExit(EXIT_STOPPED) from None
        report = read_report(spec.results_dir, spec)
        if report is None or report.get("status") not in ("ok", "failed"):
            raise RunFailed("board_fault", "the board brought no report of this run back")
        work, parts = report.pop("work", None), report.pop("work_of_parts", None)
        if self._energy is not None:
            if report["status"] == "ok":
                self._add_energy(report, work, parts)
            write_report(spec.results_dir, report)
        return report

    def _add_energy(self, report: Report, work: object, parts: object) -> None:
        """Add what the run took, or why that is not known; nothing on a board without sensors."""
        if self._energy is None and self._energy_void is None:
            return
        from edgeyard.devices.runner.energy import add_energy, add_energy_of_parts

        if self._energy is None:
            add_energy(report, {"void": self._energy_void})
            return
        self._energy.stop()
        found = self._energy.report(work)
        if found["void"]:
            logger.warning("The energy is void: %s", found["void"], extra={"event": "energy"})
        add_energy(report, found)
        add_energy_of_parts(report, self._energy, parts)

    def _here(self) -> Report:
        """Have a confined child of this process do it."""
        spec, board = self._spec, self._board
        plan = plan_for(
            board.sandbox,
            spec.input_paths,
            task_dir=spec.task_dir,
            ram_bytes=board.ram_bytes,
            storage_bytes=board.storage_bytes,
        )
        self._confinement = plan.as_json()
        logger.info("%s.", plan.sentence(), extra={"event": "confinement"})
        confined = ConfinedRun(spec, board, plan)
        memory = MemoryEvidence(board, self._environ)
        try:
            ending = confined.run(self._on_message, self._log.write, parent_pid=self._parent_pid)
            if ending.stopped_for == "orphaned":
                logger.warning("Our parent is gone; so are we.")
                raise SystemExit(EXIT_STOPPED)
            if self._failure is None and (not self._measured or ending.exit_code != 0):
                self._failure = _why(ending, spec, board, memory, self._log.tail)
            if self._failure is None:
                try:
                    self._measured["files"] = confined.collect(_names(self._measured))
                except RunFailed as failure:
                    self._failure = failure
        finally:
            confined.close()
        return self._report(self._failure, ending)

    def failed(self, failure: RunFailed) -> Report:
        """Return the report of a run that could not begin."""
        return self._report(failure, None)

    def _report(self, failure: Optional[RunFailed], ending: Optional[ChildExit]) -> Report:
        if failure is not None:
            self._measured = {}
            logger.error(
                "The run failed: %s: %s",
                failure.category,
                failure.sentence,
                extra={"event": "run_failed", "category": failure.category},
            )
        else:
            logger.info("The run is done.", extra={"event": "run_done"})
        report = build_report(
            self._spec,
            self._board,
            self._measured,
            started_at=self._started_at,
            ended_at=now(),
            failure=failure,
            peak_rss_bytes=ending.peak_rss_bytes if ending is not None else None,
            confinement=self._confinement,
        )
        work, parts = report.pop("work", None), report.pop("work_of_parts", None)
        if failure is None:
            self._add_energy(report, work, parts)
            if self._board.energy_s and self._energy is None:
                report.update(work=work, work_of_parts=parts)  # for the meter of our host
        folder = self._spec.results_dir
        # the hash of a log that is still written would not hold
        report["files"] = file_entries(folder, _names(self._measured))
        write_report(folder, report)
        return report

    def _on_message(self, message: Message) -> None:
        kind = message.get("kind")
        if kind == "progress":
            percent, phase = message.get("percent"), message.get("phase")
            if self._energy is not None:
                at_s = message.get("at_s")
                self._energy.on_progress(at_s if isinstance(at_s, (int, float)) else None)
            if isinstance(percent, (int, float)) and isinstance(phase, str):
                self._progress_file.write(percent)
                said = str(message.get("message") or "")
                self._calls.report(percent, phase, said)
                if self._board.streams:
                    _stream(percent, phase, said)
        elif kind == "result":
            if self._energy is not None:
                self._energy.stop()  # before what the child left is ended: a meter's program is not
            report = message.get("report")
            self._measured = report if isinstance(report, dict) else {}
        elif kind == "failure":
            category = message.get("category")
            self._failure = RunFailed(
                category if isinstance(category, str) and category in CATEGORIES else "unknown",
                str(message.get("sentence") or "no reason was given"),
            )


def _hooks_of(board: BoardFacts) -> ContextManager[None]:
    if not board.hooks:
        return contextlib.nullcontext()
    # what starts other programs costs the start of boards without hooks nothing
    from edgeyard.devices.runner.hooks import hooks_around

    return hooks_around(board.hooks, board.ssh)


def _stream(percent: float, phase: str, message: str) -> None:
    """Report to the host that reads stdout; end the run soon if it does not read any more."""
    line = json.dumps(
        {
            "kind": "progress",
            "percent": percent,
            "phase": phase,
            "message": message,
            "at_s": time.monotonic(),
        }
    )
    with contextlib.suppress(OSError):
        os.write(1, line.encode() + b"\n")


def _checked(spec: RunSpec) -> RunSpec:
    """Return the spec with its files' hashes looked at; the model's is filled in.

    Raises:
        RunFailed: ``network``: a file is not there, or not what the server said.
    """
    files: List[FileRef] = [spec.model, *spec.datasets]
    checked = []
    for file in files:
        path = spec.path(file)
        try:
            size = path.stat().st_size
            digest = sha256_of(path)
        except OSError as error:
            raise RunFailed("network", f"{file.filename!r} did not reach the board: {error}") from (
                error
            )
        if file.sha256 is not None and digest != file.sha256:
            raise RunFailed(
                "network",
                f"{file.filename!r} was damaged on its way to the board: "
                f"its SHA-256 is {digest}, not {file.sha256}",
            )
        checked.append(replace(file, sha256=digest, size_bytes=size))
    return replace(spec, model=checked[0], datasets=tuple(checked[1:]))


def _why(
    ending: ChildExit, spec: RunSpec, board: BoardFacts, memory: MemoryEvidence, tail: bytes
) -> RunFailed:
    """Return what an end without a word of the child means."""
    if ending.stopped_for == "wall":
        return RunFailed(
            "timeout", f"the run took longer than its user_time of {spec.user_time_s:g} s"
        )
    if ending.stopped_for == "silence":
        return RunFailed(
            "timeout", f"the run said nothing for {spec.no_output_timeout_s:g} s and was stopped"
        )
    if ending.exit_code == EXIT_NOT_CONFINED:
        return RunFailed("board_fault", "the sandbox of the run could not be set up; see its log")
    if ending.signal == signal.SIGXCPU:
        return RunFailed(
            "timeout",
            f"the run took more CPU time than its user_time of {spec.user_time_s:g} s allows",
        )
    if ending.signal == signal.SIGKILL:
        if memory.shows_need(ending.peak_rss_bytes):
            return RunFailed("out_of_memory", out_of_memory(board))
        peak_mib = ending.peak_rss_bytes // 1024**2
        return RunFailed(
            "board_fault",
            "the measuring process was killed (SIGKILL), and not for its own need of memory: it "
            f"held at most {peak_mib} MiB; its host ran out of memory, or somebody killed it",
        )
    if ending.signal in _OWN_ENDS and any(word in tail for word in _MEMORY_WORDS):
        return RunFailed("out_of_memory", out_of_memory(board))
    if ending.signal is not None:
        name = signal.Signals(ending.signal).name
        if ending.signal in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE):
            return RunFailed("user_model", f"engine {spec.engine!r} crashed on the model ({name})")
        if ending.signal == signal.SIGILL:
            return RunFailed(
                "engine_unsupported", f"engine {spec.engine!r} is not built for this CPU ({name})"
            )
        return RunFailed("board_fault", f"the measuring process was ended by {name}")
    return RunFailed(
        "board_fault", f"the measuring process ended with status {ending.exit_code} and no result"
    )


def _upload(folder: Path, spec: RunSpec, report: Report) -> bool:
    """Upload everything, the report last; whether all of it is safe."""
    # urllib takes a third of our start, and is not needed before there is a result
    from edgeyard.devices.runner.upload import Uploader, UploadRefused, UploadTimedOut

    if not spec.upload_url:
        logger.warning("No one asked for the result; it stays in %s.", folder)
        return False
    uploader = Uploader(
        url=spec.upload_url, token=spec.token, give_up_after_s=spec.upload_timeout_s
    )
    deadline = uploader.deadline()
    refused: List[Mapping[str, object]] = []
    shutil.copyfile(folder / _LIVE_LOG, folder / LOG)
    try:
        for name in [*_names(report), LOG]:
            path = folder / name
            if not path.is_file():
                continue
            try:
                uploader.put(path, deadline)
            except UploadRefused as error:
                if error.code == 401:
                    raise
                logger.error("%s", error, extra={"event": "upload_refused"})
                refused.append({"name": name, "reason": str(error)[:500]})
        if refused:
            report["files_refused"] = refused
            write_report(folder, report)
        uploader.put(folder / REPORT, deadline)
        return True
    except (UploadRefused, UploadTimedOut) as error:
        logger.error("%s", error, extra={"event": "upload_failed"})
        return False


def _names(report: Mapping[str, object]) -> List[str]:
    """Names of the files that belong to a report; each plain, whatever the child said."""
    files = report.get("files")
    names: List[str] = []
    for entry in files if isinstance(files, list) else []:
        name = entry.get("name") if isinstance(entry, dict) else entry
        if isinstance(name, str) and name == Path(name).name and name not in (REPORT, LOG, ".."):
            names.append(name)
    return names


def _minimal_spec(environ: Mapping[str, str], token: Optional[str]) -> RunSpec:
    """Read what is needed to report to the server that the description is invalid."""
    url = environ.get("RESULTS_PUB_URL", "")
    job = url.rstrip("/").rpartition("/")[2]
    return RunSpec(
        task_dir=task_dir_of(environ),
        engine=environ.get("RUNTIME", ""),
        benchmark_type=environ.get("BENCHMARK_TYPE", ""),
        model=FileRef(filename=Path(environ.get("MODEL_FILENAME", "")).name),
        job_id=f"benchmark-{job}" if job else "",
        benchmark_id=f"benchmark-{job}" if job else "",
        upload_url=f"{url.rstrip('/')}/" if url.startswith(("http://", "https://")) else "",
        token=token,
    )


class _Log:
    """``runner.log``: what we and the child say; bounded, and repeated on stderr."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._left = max(0, _MAX_LOG_BYTES - path.stat().st_size)
        self.tail = b""

    def write(self, data: bytes) -> None:
        """Append what the child said."""
        self.tail = (self.tail + data)[-_TAIL_BYTES:]
        if self._left <= 0:
            return
        data = data[: self._left]
        self._left -= len(data)
        if self._left <= 0:
            data += b"\n[more output is left out]\n"
        # a full disk or a closed stderr must not end a measurement
        with contextlib.suppress(OSError):
            self._file.write(data)
        with contextlib.suppress(OSError):
            os.write(2, data)


class _LogHandler(logging.Handler):
    def __init__(self, log: _Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.write(self.format(record).encode("utf-8", "replace") + b"\n")


def _open_log(path: Path) -> _Log:
    log = _Log(path)
    handler = _LogHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    return log


def _stop(number: int, frame: Optional[FrameType]) -> None:
    """End now on SIGTERM and SIGINT (Nomad's way): the sender wants no result."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(EXIT_STOPPED)


if __name__ == "__main__":
    main()
