"""TYPE1 in several launches: the model is loaded and measured by one process after another.

Where a process, its stack and its libraries lie in memory moves the latency of a short model by a
per cent or more for as long as the process lives (Mytkowicz et al., "Producing wrong data without
doing anything obviously wrong", ASPLOS 2009). More runs in one process do not show that, so that an
interval from them is too narrow. What launches differ by is measured by launching (Kalibera and
Jones, "Rigorous benchmarking in reasonable time", ISMM 2013): the interval comes from the medians
of the launches, by Student's distribution.

A model that takes long to get ready, or that takes a second or more a run, is launched once: it
would cost too much, and moves less.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgeyard.devices.runner.engine import BoardFacts, Engine, Progress, SharingEngine
from edgeyard.devices.runner.spec import MIN_LEVEL_S, SERVER, LoadRules, RunSpec
from edgeyard.devices.runner.transports.local import Channel, Lines, die_with_parent
from edgeyard.errors import RunFailed

if TYPE_CHECKING:
    from edgeyard.devices.runner.conditions import Watch
    from edgeyard.devices.runner.measure import Measurement, Note, StopRule
    from edgeyard.devices.runner.warmup import WarmUp

LAUNCHES = 4
_FIRST_LAUNCH_FACTOR = 1.25  # it decides how many runs all take, and is often the slowest
MAX_LAUNCHES = 60
"""Launches at most for a precision."""

MIN_LAUNCHES_FOR_PRECISION = 6

MAX_PREPARATION_S = 5.0
"""A model that needs longer until it is warm is launched once."""

_RUNS_FOR_PRECISION = 20
_MIN_PRECISION_S = 0.25
_WARM_LOAD_UP_TO_S = 30.0
"""A model that loads for longer is not loaded twice."""

_SPARE = 1.5
"""A launch may take so much longer than the one before it."""

_PER_THREAD_BYTES = (64 + 8) * 1024**2
"""Address space, not memory, that glibc takes for each thread: an arena and a stack."""

_BOOTSTRAP = """
import json, sys
order = json.load(sys.stdin)
sys.path[:] = order["path"]
from edgeyard.devices.runner.launches import serve
serve(order)
"""

PROFILED_RUNS = 20
LAYERS, LAYER_TRACE = "layers.json", "layer_trace.json"
"""Files of a result: all layers by time, and the last profiled runs for Chrome's tracing."""

SOAK = "soak.npz"
"""File of a result: all latencies of a soak, ``ms``, and the window of each, ``window``."""

WARMED, MEASURED = 15.0, 95.0
"""Percent of a run; the same as `measure` has, which this process does not load meanwhile."""

Report = Dict[str, object]
_SpansOfParts = List[List[Tuple[float, float, float]]]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Measurement of one process.

    Attributes:
        part_spans: As `Measurement.spans`, of each window of a soak or level of a curve.
    """

    measurement: Measurement
    report: Report
    alone: bool
    seconds: float
    part_spans: Sequence[Sequence[Tuple[float, float, float]]] = ()


def measure_in_launches(
    spec: RunSpec,
    board: BoardFacts,
    engine_parameters: Mapping[str, object],
    progress: Progress,
    *,
    note: Note,
    left_s: float,
    max_warmup_s: float,
    confined: bool,
) -> "tuple[Report, Measurement]":
    """Launch the model until the number is known, at least a few times.

    Args:
        note: Takes what is known of a precision so far, before the progress.
        left_s: No launch begins that would probably end after this time.
        confined: Once its engine is loaded, a launch gives up the right to start processes.

    Returns:
        What the report says of the first launch, and the measurement of all together.

    Raises:
        RunFailed: As `measure`.
    """
    began = time.monotonic()
    wanted = LAUNCHES if spec.precision is None else MAX_LAUNCHES
    if spec.soak_s is not None or spec.concurrency or spec.load is not None:
        wanted = 1  # what a board does while it gets warm is not repeated; a curve is one process's
    time_limit = f"time limit of {spec.user_time_s:g} s (user_time)"
    cap = f"The maximum of {wanted} launches was reached"
    done = 0.0
    launches: List[Launch] = []
    while len(launches) < wanted:
        rest_s = left_s - (time.monotonic() - began)
        if launches and launches[-1].seconds * _SPARE > rest_s:
            cap = f"The {time_limit} was used up"
            break
        if spec.precision is not None:
            limits = f"{len(launches)} of at most {wanted} launches, {time_limit}"
            note(_known(launches, spec.precision, limits))
        order: Dict[str, object] = {
            **_common(spec, board, engine_parameters, confined),
            "number": len(launches),
            "done": done,
            "share": (1 - done) / (wanted - len(launches)),
            "runs": spec.nb_inference,
            "precision": spec.precision,
            "soak_s": spec.soak_s,
            "soak_window_s": spec.soak_window_s,
            "concurrency": list(spec.concurrency),
            "load": None if spec.load is None else asdict(spec.load),
            "left_s": rest_s,
            "time_limit": time_limit,
            "max_warmup_s": max_warmup_s,
            "numbers": len(launches[0].measurement.latencies_ms) if launches else None,
            "loops": launches[0].measurement.loops if launches else None,
        }
        launches.append(_launch(order, progress, note))
        if launches[0].alone:
            break
        done = max(done, len(launches) / wanted)
        if spec.precision is not None and len(launches) >= MIN_LAUNCHES_FOR_PRECISION:
            interval = _together(launches, spec.precision).verdict.interval
            if interval is not None:
                if interval.half_width <= spec.precision:
                    break
                done = max(done, (spec.precision / interval.half_width) ** 2)
    report = launches[0].report
    report["work"] = [one.measurement.spans for one in launches]
    report["work_of_parts"] = launches[0].part_spans
    return report, _together(launches, spec.precision, cap)


def _known(launches: Sequence[Launch], precision: float, limits: str) -> str:
    """State how well the p50 is known after some launches."""
    from edgeyard.devices.runner.interval import MIN_LAUNCHES
    from edgeyard.devices.runner.trust import interval_so_far

    known = None
    if len(launches) >= MIN_LAUNCHES:
        known = _together(launches, precision).verdict.interval
    return interval_so_far(known, precision, limits)


def profile_in_launch(
    spec: RunSpec,
    board: BoardFacts,
    engine_parameters: Mapping[str, object],
    *,
    timed_p50_ms: float,
    max_s: float,
    confined: bool,
) -> Report:
    """Measure the time of each layer in a process of its own, after the timed runs.

    Args:
        timed_p50_ms: Of the timed runs.
        max_s: No further profiled run begins after this time.

    Returns:
        ``layers`` of the report; the files lie among the results.

    Raises:
        RunFailed: As `measure`; ``engine_unsupported``: the engine has no profiler.
    """
    order: Dict[str, object] = {
        **_common(spec, board, engine_parameters, confined),
        "profile": True,
        "timed_p50_ms": timed_p50_ms,
        "max_s": max_s,
    }
    answer = _answer_of(order, lambda percent, phase: None, lambda sentence: None)
    return dict(answer["report"])


def _common(
    spec: RunSpec, board: BoardFacts, engine_parameters: Mapping[str, object], confined: bool
) -> Dict[str, object]:
    """Return the options that all launches share."""
    return {
        "path": sys.path,
        "parent": os.getpid(),
        "engine": spec.engine,
        "model": str(spec.path(spec.model)),
        "parameters": dict(engine_parameters),
        "input": dict(spec.input),
        "batch_size": spec.parameters.get("batch_size"),
        "results": str(spec.results_dir),
        "threads": board.threads,
        "duty_cycle": board.duty_cycle,
        "cpus": list(board.cpus),
        "energy_s": board.energy_s,
        "ram_bytes": board.ram_bytes,
        "confined": confined,
    }


def serve(order: Mapping[str, Any]) -> None:
    """Measure once, as ordered, and end; called in a process of its own."""
    channel = Channel(order["channel"])
    status = 3
    try:
        die_with_parent(order["parent"])
        channel.send(_profiled(order) if order.get("profile") else _measured(order, channel))
        status = 0
    except RunFailed as failure:
        channel.send(
            {"kind": "failure", "category": failure.category, "sentence": failure.sentence}
        )
    except MemoryError:
        channel.send({"kind": "memory"})
    except Exception as error:
        # the outermost loop of this process: the traceback is for the log, the rest for the user
        traceback.print_exc()
        sentence = f"the runner itself failed: {type(error).__name__}: {error}"
        channel.send({"kind": "failure", "category": "unknown", "sentence": sentence[:2000]})
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # no interpreter exit: an engine's destructors may hang
        os._exit(status)


def _measured(order: Mapping[str, Any], channel: Channel) -> Report:
    began = time.monotonic()
    import_began = time.perf_counter()
    from edgeyard.devices.runner import engines

    engine = engines.find(order["engine"])
    report: Report = {"import_ms": (time.perf_counter() - import_began) * 1e3}
    import numpy as np

    import edgeyard.devices.runner.measure  # noqa: F401  # its memory is part of the baseline
    from edgeyard.devices.runner import board as machine
    from edgeyard.devices.runner.duty_cycle import with_duty_cycle
    from edgeyard.devices.runner.feeds import described, random_feeds

    if order["ram_bytes"] is not None:
        limit_memory(order["ram_bytes"], _threads_at_once(order, engine))
    if order["confined"]:
        engines.confine(engine)
    baseline = machine.memory_bytes().get("VmRSS")

    loaded, cold_ms = _load(engine, order)
    session = with_duty_cycle(loaded, order["duty_cycle"])
    feeds = random_feeds(
        session.inputs,
        order["input"],
        batch_size=order["batch_size"],
        limit_bytes=order["ram_bytes"],
    )
    report["engine_facts"] = {
        key: value for key, value in session.facts.items() if key != "load_ms"
    }
    report["inputs"] = [one.as_json() for one in session.inputs]
    report["feeds"] = described(session.inputs, order["input"], feeds, order["batch_size"])
    plan = _Plan(order, began)
    found, part_spans = _Ready(order, channel, plan, engine, loaded, session, feeds).measure(report)
    # an engine may know the shapes of outputs only now
    report["outputs"] = [one.as_json() for one in session.outputs]
    peak = machine.peak_bytes() if found.peak_bytes is None else found.peak_bytes
    report["ram_peak"], report["ram_baseline"] = peak, baseline
    if peak is not None and baseline is not None:
        report["ram_model"] = max(0, peak - baseline)
    warm_ms = None
    if order["number"] == 0 and cold_ms < 1e3 * min(_WARM_LOAD_UP_TO_S, plan.left_s):
        del session, loaded  # never two at a time: the board's memory may hold but one
        _, warm_ms = _load(engine, order)
    report["load"] = {"cold_ms": cold_ms, "warm_ms": warm_ms}
    report["first_inference_ms"] = found.first_ms
    np.save(_file(order["results"], order["number"]), found.latencies_ms)
    assert found.warmup is not None
    return {
        "kind": "launch",
        "report": report,
        "alone": plan.alone,
        "loops": found.loops,
        "rows_a_run": found.rows_a_run,
        "rates": None if found.rates is None else found.rates.tolist(),
        "spans": list(found.spans),
        "part_spans": part_spans,
        "warmup": asdict(found.warmup),
        "conditions": asdict(found.conditions),
    }


def _load(engine: Engine, order: Mapping[str, Any]) -> Tuple[Any, float]:
    """Return the loaded model, and how long that took by the engine's own account or ours, ms."""
    began = time.perf_counter()
    loaded = engine.load(
        Path(order["model"]), threads=order["threads"], parameters=order["parameters"]
    )
    took_ms = (time.perf_counter() - began) * 1e3
    stated = loaded.facts.get("load_ms")
    return loaded, float(stated) if isinstance(stated, (int, float)) else took_ms


@dataclass(frozen=True)
class _Ready:
    """A loaded model with the data on which it is measured as ordered."""

    order: Mapping[str, Any]
    channel: Channel
    plan: _Plan
    engine: Engine
    loaded: Any
    session: Any
    feeds: Any

    def measure(self, report: Report) -> Tuple[Measurement, _SpansOfParts]:
        """Measure, and add to the report what only such a measurement states."""
        if self.order["soak_s"] is not None:
            return self._soak(report)
        if self.order["concurrency"]:
            return self._curve(report)
        if self.order["load"] is not None:
            return self._load_test(report)
        from edgeyard.devices.runner.measure import measure

        found = measure(
            self.session,
            self.feeds,
            self.plan.until,
            self._watch(),
            self.plan.progress_to(self.channel),
            max_warmup_s=self.order["max_warmup_s"],
            loops=self.order["loops"],
            note=self._note,
        )
        return found, []

    def _soak(self, report: Report) -> Tuple[Measurement, _SpansOfParts]:
        from edgeyard.devices.runner.soak import soak, write_numbers

        self.plan.alone = True
        _check_time_for_soak(self.order, self.plan.left_s)
        soaked = soak(
            self.session,
            self.feeds,
            self._watch,
            self.plan.progress_to(self.channel),
            duration_s=self.order["soak_s"],
            window_s=self.order["soak_window_s"],
            max_warmup_s=self.order["max_warmup_s"],
            note=self._note,
        )
        write_numbers(Path(self.order["results"]) / SOAK, soaked)
        report["soak"] = soaked.as_json()
        return soaked.measurement, [list(one.spans) for one in soaked.windows]

    def _curve(self, report: Report) -> Tuple[Measurement, _SpansOfParts]:
        from edgeyard.devices.runner.concurrency import curve

        self.plan.alone = True
        measured = curve(
            self.session,
            self._session_of_another_caller,
            self.feeds,
            self._watch,
            self.plan.progress_to(self.channel),
            callers=self.order["concurrency"],
            shared=isinstance(self.engine, SharingEngine),
            min_runs=self.order["runs"],
            min_level_s=max(MIN_LEVEL_S, self.order["energy_s"] / 2),
            max_s=max(0.0, self.plan.left_s),
            max_warmup_s=self.order["max_warmup_s"],
            note=self._note,
        )
        report["concurrency"] = measured.as_json()
        return measured.measurement, [list(one.spans) for one in measured.levels]

    def _load_test(self, report: Report) -> Tuple[Measurement, _SpansOfParts]:
        from edgeyard.devices.runner.load import load

        self.plan.alone = True
        tested = load(
            self.session,
            self.feeds,
            self._watch,
            self.plan.progress_to(self.channel),
            rules=LoadRules(**self.order["load"]),
            min_runs=self.order["runs"],
            max_s=max(0.0, self.plan.left_s),
            max_warmup_s=self.order["max_warmup_s"],
            note=self._note,
        )
        report["load_test"] = tested.as_json()
        return tested.measurement, []

    def _session_of_another_caller(self) -> Any:
        from edgeyard.devices.runner.duty_cycle import with_duty_cycle

        if isinstance(self.engine, SharingEngine):
            more = self.engine.session_of_another_caller(self.loaded)
        else:
            more, _ = _load(self.engine, self.order)
        return with_duty_cycle(more, self.order["duty_cycle"])

    def _watch(self, callers: int = 1) -> Watch:
        from edgeyard.devices.runner.conditions import Watch

        return Watch(threads=callers * self.order["threads"], wanted_cpus=self.order["cpus"])

    def _note(self, sentence: str) -> None:
        self.channel.send({"kind": "note", "sentence": sentence})


def _threads_at_once(order: Mapping[str, Any], engine: Engine) -> int:
    """Return how many threads a launch may have: its callers, and those of the engine."""
    callers = max(order["concurrency"], default=1)
    models = 1 if isinstance(engine, SharingEngine) else callers
    return int(models * order["threads"] + callers - 1)


def _check_time_for_soak(order: Mapping[str, Any], left_s: float) -> None:
    """Refuse to begin a soak that the time limit would cut off.

    Raises:
        RunFailed: ``timeout``.
    """
    if left_s < order["soak_s"]:
        raise RunFailed(
            "timeout",
            f"{max(0.0, left_s):.3g} s of the {order['time_limit']} were left after the model was "
            f"loaded, and the soak takes {order['soak_s']:g} s: state a longer user_time",
        )


def _profiled(order: Mapping[str, Any]) -> Report:
    from edgeyard.devices.runner import engines
    from edgeyard.devices.runner.engine import ProfilingEngine
    from edgeyard.devices.runner.feeds import random_feeds
    from edgeyard.devices.runner.layers import layer_report, write_trace

    engine = engines.find(order["engine"])
    if not isinstance(engine, ProfilingEngine):
        raise RunFailed(
            "engine_unsupported", f"engine {order['engine']!r} has no profiler of layers"
        )
    if order["ram_bytes"] is not None:
        limit_memory(order["ram_bytes"], order["threads"])
    if order["confined"]:
        engines.confine(engine)
    folder = Path(order["results"])
    runs = engine.profile(
        Path(order["model"]),
        lambda inputs: random_feeds(
            inputs,
            order["input"],
            batch_size=order["batch_size"],
            limit_bytes=order["ram_bytes"],
        ),
        folder,
        runs=PROFILED_RUNS,
        max_s=order["max_s"],
        threads=order["threads"],
        parameters=order["parameters"],
    )
    report, layers = layer_report(runs, order["timed_p50_ms"])
    write_trace(folder / LAYER_TRACE, runs)
    (folder / LAYERS).write_text(json.dumps(layers, indent=1), "utf-8")
    return {"kind": "launch", "report": report}


class _Plan:
    """Decides, once the model is warm, how long this launch measures.

    Attributes:
        alone: There will be no other launch.
    """

    def __init__(self, order: Mapping[str, Any], began: float) -> None:
        self._order, self._began = order, began
        self.alone = False

    @property
    def left_s(self) -> float:
        """Time left of the run's limit; below 0 after it."""
        return float(self._order["left_s"] - (time.monotonic() - self._began))

    def until(self, warmup: "WarmUp") -> "StopRule":
        from edgeyard.devices.runner.measure import MIN_MEASURING_S, StopRule

        order = self._order
        spent_s = time.monotonic() - self._began
        max_s = max(0.0, self.left_s)
        if order["number"] > 0:
            return StopRule(runs=order["numbers"])
        self.alone = spent_s > MAX_PREPARATION_S or warmup.window == 1
        min_s = max(MIN_MEASURING_S, order["energy_s"])
        if self.alone:
            return StopRule(
                runs=order["runs"],
                precision=order["precision"],
                max_s=max_s,
                cap=order["time_limit"],
                min_s=min_s,
            )
        if order["precision"] is not None:
            return StopRule(
                runs=_RUNS_FOR_PRECISION,
                max_s=max_s,
                min_s=max(_MIN_PRECISION_S, order["energy_s"] / MIN_LAUNCHES_FOR_PRECISION),
                min_runs=1,
            )
        return StopRule(
            runs=math.ceil(order["runs"] / LAUNCHES),
            max_s=max_s / LAUNCHES,
            min_s=_FIRST_LAUNCH_FACTOR * min_s / LAUNCHES,
        )

    def progress_to(self, channel: Channel) -> Progress:
        """Return what sends the progress of this launch as that of all.

        After the first launch all is measuring, and each is a part of what is left then.
        """
        done, share = self._order["done"], self._order["share"]

        def send(percent: float, phase: str) -> None:
            if self._order["number"] > 0:
                phase, percent = "measuring", _measured_percent(done + share * percent / 100)
            elif phase == "measuring" and not self.alone:
                percent = _measured_percent(share * (percent - WARMED) / (MEASURED - WARMED))
            channel.send({"kind": "progress", "percent": percent, "phase": phase})

        return send


def _measured_percent(share: float) -> float:
    return WARMED + (MEASURED - WARMED) * share


def _launch(order: Dict[str, object], progress: Progress, note: Note) -> Launch:
    """Have a new process measure."""
    began = time.monotonic()
    message = _answer_of(order, progress, note)
    return _read(message, order, time.monotonic() - began)


def _answer_of(order: Dict[str, object], progress: Progress, note: Note) -> Mapping[str, Any]:
    """Have a new process do what is ordered; its answer."""
    import subprocess

    messages, messages_in = os.pipe()
    order["channel"] = messages_in
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOTSTRAP], stdin=subprocess.PIPE, pass_fds=(messages_in,)
        )
    finally:
        os.close(messages_in)
    assert process.stdin is not None
    said: List[Mapping[str, object]] = []

    def on_message(message: Mapping[str, object]) -> None:
        percent, phase = message.get("percent"), message.get("phase")
        if isinstance(percent, (int, float)) and isinstance(phase, str):
            progress(percent, phase)
        elif message.get("kind") == "note":
            note(str(message.get("sentence")))
        else:
            said.append(message)

    lines = Lines(on_message)
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(order).encode())
    with open(messages, "rb", buffering=0) as pipe:
        while data := pipe.read(65536):
            lines(data)
    status = process.wait()
    if status < 0:
        # what ended the launch ends us, so that it is explained in the same words
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    for message in said:
        if message.get("kind") == "launch":
            return message
        if message.get("kind") == "memory":
            raise MemoryError
        raise RunFailed(
            str(message.get("category") or "unknown"), str(message.get("sentence") or "")
        )
    # without a word: the parent knows what such an end means
    os._exit(status or 1)


def _read(message: Mapping[str, Any], order: Mapping[str, Any], seconds: float) -> Launch:
    import numpy as np

    from edgeyard.devices.metrics import P50, RUNS_PER_S
    from edgeyard.devices.runner.conditions import Conditions
    from edgeyard.devices.runner.measure import Measurement
    from edgeyard.devices.runner.trust import Series, doubted, judge
    from edgeyard.devices.runner.warmup import WarmUp

    file = _file(order["results"], order["number"])
    latencies = np.load(file)
    file.unlink()
    tuples: Dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in message["conditions"].items()
    }
    conditions, warmup = Conditions(**tuples), WarmUp(**message["warmup"])
    rates = None if message["rates"] is None else np.array(message["rates"], dtype=np.float64)
    rules = None if order["load"] is None else LoadRules(**order["load"])
    callers = Series(RUNS_PER_S, rates) if order["concurrency"] and rates is not None else None
    if rules is not None:
        primary = rules.primary_metric
    else:
        primary = P50 if callers is None else callers.metric
    verdict = judge(
        latencies,
        conditions,
        warmup=warmup,
        precision=order["precision"],
        cap=f"The {order['time_limit']} was used up",
        loops=message["loops"],
        primary=callers,
        of_the_p50=rules is None or rules.kind != SERVER,
    )
    # what only such runs need costs the others nothing
    if order["soak_s"] is not None:
        from edgeyard.devices.runner import soak

        verdict = doubted(verdict, soak.doubts(message["report"]["soak"]))
    if order["concurrency"]:
        from edgeyard.devices.runner import concurrency

        verdict = doubted(verdict, concurrency.doubts(message["report"]["concurrency"]))
    if rules is not None:
        from edgeyard.devices.runner import load

        verdict = doubted(verdict, load.doubts(message["report"]["load_test"]))
    return Launch(
        measurement=Measurement(
            latencies_ms=latencies,
            warmup=warmup,
            conditions=conditions,
            verdict=verdict,
            precision=order["precision"],
            loops=message["loops"],
            rows_a_run=message["rows_a_run"],
            rates=rates,
            spans=message["spans"],
            primary=primary,
        ),
        report=message["report"],
        alone=bool(message["alone"]),
        seconds=seconds,
        part_spans=message["part_spans"],
    )


def _together(
    launches: Sequence[Launch], precision: Optional[float], cap: str = ""
) -> "Measurement":
    """One measurement of all launches; that of the only one, if there is but one.

    Args:
        cap: Why no more launches follow if the precision is not reached.
    """
    if len(launches) == 1:
        return launches[0].measurement
    import numpy as np

    from edgeyard.devices.runner.conditions import together
    from edgeyard.devices.runner.measure import Measurement
    from edgeyard.devices.runner.trust import judge

    parts = [one.measurement for one in launches]
    latencies = np.concatenate([one.latencies_ms for one in parts])
    conditions = together([one.conditions for one in parts])
    warmups = [one.warmup for one in parts if one.warmup is not None]
    warmup = replace(
        warmups[0],
        settled=all(one.settled for one in warmups),
        runs=sum(one.runs for one in warmups),
        seconds=sum(one.seconds for one in warmups),
    )
    return Measurement(
        latencies_ms=latencies,
        warmup=warmup,
        conditions=conditions,
        verdict=judge(
            latencies,
            conditions,
            warmup=warmup,
            precision=precision,
            cap=cap,
            loops=parts[0].loops,
            launches=len(parts),
        ),
        precision=precision,
        loops=parts[0].loops,
        launches=len(parts),
        rows_a_run=parts[0].rows_a_run,
        spans=[span for one in parts for span in one.spans],
    )


def _file(results: str, number: int) -> Path:
    return Path(results) / f".launch-{number}.npy"


def limit_memory(ram_bytes: int, threads: int) -> None:
    """Bound this process's address space, so that a model can't take more than the board has.

    What is mapped but not resident now (libraries, reserved stacks) costs no memory, and is
    allowed on top; so is what each thread of the engine will reserve without using.
    """
    from edgeyard.devices.runner import board as machine

    now = machine.memory_bytes()
    spare = max(0, now.get("VmSize", 0) - now.get("VmRSS", 0)) + threads * _PER_THREAD_BYTES
    limit = ram_bytes + spare
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
