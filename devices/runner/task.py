"""What the child process does: one benchmark, from loading to the numbers.

Everything heavy (NumPy, the engine) is loaded here and only here.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple, cast

from edgeyard.devices.benchmark_types import STANDARD_TYPES, DeclaredType
from edgeyard.devices.metrics import P50
from edgeyard.devices.runner.engine import (
    BoardFacts,
    DeclaredRun,
    DeclaringEngine,
    Engine,
    Session,
)
from edgeyard.devices.runner.generation_request import PARAMETERS as GENERATION_PARAMETERS
from edgeyard.devices.runner.generation_request import read_request
from edgeyard.devices.runner.launches import SOAK, limit_memory, measure_in_launches
from edgeyard.devices.runner.memory import job_limit_bytes
from edgeyard.devices.runner.spec import MIN_LEVEL_S, RunSpec
from edgeyard.devices.runner.transports.local import Channel
from edgeyard.errors import RunFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeyard.devices.runner.conditions import Conditions, Watch
    from edgeyard.devices.runner.measure import Measurement
    from edgeyard.devices.runner.trust import Series

RUNNER_PARAMETERS = ("preprocessing", "batch_size", "raw", "metric", "truth")
"""Parameters of the runner; all others are the engine's."""

RAW_OUTPUT = "raw_output.bin"
OUTPUTS = "outputs.npz"
SET_LATENCIES = "set_latencies.npz"
SERIES = "series.npz"
GENERATION = "generation.npz"
"""Files of a result."""

_WARM_LOAD_UP_TO_S = 30.0
"""A model that loads for longer is not loaded twice."""

_PROGRESS_INTERVAL_S = 0.5
_SHARE_OF_TIME = 0.8
"""Share of the time limit after which a measurement for a precision ends, to report its result."""

_RESERVE_S = 1.5
"""So much of a short time limit is left for starts of processes: a slow board takes long."""

_WARMUP_SHARE = 0.25
_MAX_PROFILING_S, _PROFILING_PERCENT = 5.0, 95.0

_LOADED_PERCENT, _TRAINING_SHARE = 5.0, 0.9
"""An engine reports 0-100 of its training."""

Report = Dict[str, object]


def run_task(spec: RunSpec, board: BoardFacts, channel: Channel, *, confined: bool) -> int:
    """Run the benchmark and send its result, or why there is none; the exit status.

    Called in the child process; messages are ``progress``, ``result`` and ``failure``.

    Args:
        confined: No process is started any more once a model was read.
    """
    try:
        report = _Task(spec, board, channel, confined).run()
        channel.send({"kind": "result", "report": report})
    except RunFailed as failure:
        _fail(channel, failure.category, failure.sentence)
        return 3
    except MemoryError:
        _fail(channel, "out_of_memory", out_of_memory(board))
        return 3
    except Exception as error:
        # the outermost loop of this process: the traceback is for the log, the rest for the user
        traceback.print_exc()
        _fail(channel, "unknown", f"the runner itself failed: {type(error).__name__}: {error}")
        return 3
    return 0


def out_of_memory(board: BoardFacts) -> str:
    """Return the message for a run that exceeded the memory limit of its board or job."""
    job_bytes = job_limit_bytes(os.environ)
    job_is_first = not board.ram_bytes or (job_bytes or 0) < board.ram_bytes
    if board.ssh is None and job_bytes is not None and job_is_first:
        return (
            f"the run needed more memory than the {job_bytes // 1024**2} MiB that its job may use; "
            "the lab's operator sets memory_mib of the cluster"
        )
    limit = f" of {board.ram_bytes // 1024**2} MiB" if board.ram_bytes else ""
    return f"the run needed more memory than the board's limit{limit}; use a smaller model or input"


class _Task:
    def __init__(self, spec: RunSpec, board: BoardFacts, channel: Channel, confined: bool) -> None:
        self.spec, self.board, self.confined = spec, board, confined
        self.started = time.monotonic()
        self._channel = channel
        self._reported_at = 0.0
        self._phase = ""
        self._message = ""
        self._session: Optional[Session] = None
        self._peak_bytes: Optional[int] = None
        ours = GENERATION_PARAMETERS if spec.benchmark_type == "GENAI" else RUNNER_PARAMETERS
        self.engine_parameters = {
            key: value for key, value in spec.parameters.items() if key not in ours
        }

    def run(self) -> Report:
        self.progress(0.0, "loading")
        spec = self.spec
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(self.board.threads)
        launched = spec.benchmark_type == "TYPE1" and not spec.keep_outputs
        report = self._latency() if launched else self._in_this_process()
        from edgeyard.devices.runner import board as machine

        report["board_facts"] = machine.board_facts(sorted(os.sched_getaffinity(0)))
        return report

    def _in_this_process(self) -> Report:
        """All types but TYPE1, and TYPE1 on the user's own inputs."""
        began = time.perf_counter()
        from edgeyard.devices.runner import engines

        engine = engines.find(self.spec.engine)
        import_ms = (time.perf_counter() - began) * 1e3
        if self.board.ram_bytes is not None:
            limit_memory(self.board.ram_bytes, self.board.threads)
        # all that the measurement needs of Python is loaded before the model is
        from edgeyard.devices.runner import accuracy, feeds, measure  # noqa: F401
        from edgeyard.devices.runner import board as machine

        if self.confined:
            engines.confine(engine)
        baseline = machine.memory_bytes().get("VmRSS")
        run = {
            "TYPE1": self._inference,
            "TYPE2": self._accuracy,
            "TYPE3": self._training,
            "GENAI": self._generation,
        }
        report = run.get(self.spec.benchmark_type, self._declared)(engine)
        if self._session is not None:  # an engine may know the shapes of outputs only now
            report["outputs"] = [one.as_json() for one in self._session.outputs]
        peak = machine.peak_bytes() if self._peak_bytes is None else self._peak_bytes
        report["import_ms"] = import_ms
        report["ram_peak"] = peak
        report["ram_baseline"] = baseline
        if peak is not None and baseline is not None:
            report["ram_model"] = max(0, peak - baseline)
        return report

    def progress(self, percent: float, phase: str) -> None:
        """Report to the parent, seldom enough to disturb nothing."""
        now = time.monotonic()
        if now - self._reported_at < _PROGRESS_INTERVAL_S and phase == self._phase:
            return
        self._reported_at, self._phase = now, phase
        message = {"percent": round(percent, 1), "phase": phase, "message": self._message}
        self._channel.send({"kind": "progress", **message})

    def note(self, sentence: str) -> None:
        """Report this with the progress from now on."""
        self._message = sentence

    def _load(self, engine: Engine, report: Report) -> Session:
        """Load twice: the first time pays for what the second finds in caches."""
        from edgeyard.devices.runner.duty_cycle import with_duty_cycle

        def load() -> Tuple[Session, float]:
            began = time.perf_counter()
            session = engine.load(
                self.spec.path(self.spec.model),
                threads=self.board.threads,
                parameters=self.engine_parameters,
            )
            took_ms = (time.perf_counter() - began) * 1e3
            load_ms = session.facts.get("load_ms")
            return session, float(load_ms) if isinstance(load_ms, (int, float)) else took_ms

        session, cold_ms = load()
        warm_ms = None
        if cold_ms < _WARM_LOAD_UP_TO_S * 1e3:
            del session  # never two at a time: the board's memory may hold but one
            session, warm_ms = load()
        report["load"] = {"cold_ms": cold_ms, "warm_ms": warm_ms}
        facts = {key: value for key, value in session.facts.items() if key != "load_ms"}
        report["engine_facts"] = facts
        report["inputs"] = [one.as_json() for one in session.inputs]
        self._session = session
        return with_duty_cycle(session, self.board.duty_cycle)

    def _latency(self) -> Report:
        user_time_s = self.spec.user_time_s
        reserve_s = max((1 - _SHARE_OF_TIME) * user_time_s, min(_RESERVE_S, 0.4 * user_time_s))
        max_warmup_s = self._max_warmup_s()
        load_s = self._load_s()
        if 0 < load_s < user_time_s:
            # the user_time of a load may be short; the other half is for starts of processes
            spare_s = (user_time_s - load_s) / 4
            reserve_s, max_warmup_s = min(reserve_s, spare_s), min(max_warmup_s, spare_s)
        left_s = user_time_s - reserve_s - (time.monotonic() - self.started)
        report, found = measure_in_launches(
            self.spec,
            self.board,
            self.engine_parameters,
            self.progress,
            note=self.note,
            left_s=max(0.0, left_s),
            max_warmup_s=max_warmup_s,
            confined=self.confined,
        )
        self.note("")
        self._add_measurement(report, found)
        if "soak" in report:
            self._add_file(report, SOAK)
        if self.spec.profile_layers:
            self._add_layers(report, found)
        return report

    def _load_s(self) -> float:
        """Return how long the load lasts at least, seconds; 0: there is none."""
        if self.spec.soak_s is not None:
            return self.spec.soak_s
        if self.spec.load is not None:
            from edgeyard.devices.runner.arrivals import trial_s

            return trial_s(self.spec.load, self.spec.nb_inference)
        return len(self.spec.concurrency) * MIN_LEVEL_S

    def _add_layers(self, report: Report, found: Measurement) -> None:
        """Profile what was measured, in the time that is left."""
        import numpy as np

        from edgeyard.devices.runner.launches import LAYER_TRACE, LAYERS, profile_in_launch

        left_s = self.spec.user_time_s * _SHARE_OF_TIME - (time.monotonic() - self.started)
        if left_s <= 0:
            report["layers_skipped"] = (
                "no time was left for the profile of the layers; a longer user_time allows it"
            )
            return
        self.progress(_PROFILING_PERCENT, "profiling")
        report["layers"] = profile_in_launch(
            self.spec,
            self.board,
            self.engine_parameters,
            timed_p50_ms=float(np.median(found.latencies_ms)),
            max_s=min(_MAX_PROFILING_S, left_s / 2),
            confined=self.confined,
        )
        self._add_file(report, LAYERS)
        self._add_file(report, LAYER_TRACE)

    def _inference(self, engine: Engine) -> Report:
        """TYPE1 on the user's own inputs: their outputs, and a latency for each set."""
        import numpy as np

        from edgeyard.devices.runner.inference import infer, open_inputs, write_outputs

        spec = self.spec
        report: Report = {}
        dataset = self._one_dataset()
        session = self._load(engine, report)
        sets = open_inputs(
            dataset,
            session.inputs,
            spec.parameters.get("batch_size"),
            limit_bytes=self.board.ram_bytes,
        )
        found = infer(
            session,
            sets,
            runs=spec.nb_inference,
            max_s=_SHARE_OF_TIME * spec.user_time_s - (time.monotonic() - self.started),
            watch_of=self._watch,
            progress=self.progress,
            max_warmup_s=self._max_warmup_s(),
        )
        first = found[0]
        self._add_measurement(report, first.measurement)
        report["work"] = [first.measurement.spans]
        report["first_inference_ms"] = first.outputs.first_ms  # measuring began after all outputs
        report["inference"] = [one.as_json() for one in found]
        report["feeds"] = first.as_json()["feeds"]
        if len(found) > 1:
            np.savez(
                spec.results_dir / SET_LATENCIES,
                **{f"{one.inputs.name}/ms": one.measurement.latencies_ms for one in found},  # type: ignore[arg-type]
            )
            self._add_file(report, SET_LATENCIES)
        write_outputs(spec.results_dir / OUTPUTS, found)
        self._add_file(report, OUTPUTS)
        return report

    def _accuracy(self, engine: Engine) -> Report:
        import numpy as np

        from edgeyard.devices.runner.accuracy import batch_size_of, evaluate
        from edgeyard.devices.runner.dataset import TRUTH, open_datasets
        from edgeyard.devices.runner.metrics import metric_of

        report: Report = {}
        dataset_files = self._datasets()
        session = self._load(engine, report)
        raw = self.spec.parameters.get("raw", False)
        if not isinstance(raw, bool):
            raise RunFailed("user_input", "parameters/raw: neither true nor false")
        truth = self.spec.parameters.get("truth", TRUTH)
        if not isinstance(truth, str):
            raise RunFailed("user_input", "parameters/truth: not the name of an array")
        metric = metric_of(self.spec.parameters.get("metric"))
        if raw and metric is not None:
            raise RunFailed("user_input", "parameters/raw: can't be combined with a metric")
        dataset = open_datasets(
            dataset_files,
            session.inputs,
            self.spec.parameters.get("preprocessing"),
            raw=raw,
            classes=metric is None,
            truth=truth,
        )
        batch_size = batch_size_of(session.inputs, self.spec.parameters.get("batch_size"))
        outputs = self.spec.results_dir / RAW_OUTPUT
        with outputs.open("wb") if raw else contextlib.nullcontext() as file:
            found = evaluate(
                session,
                dataset,
                batch_size,
                self._watch(),
                self.progress,
                max_warmup_s=self._max_warmup_s(),
                outputs=file,
                metric=metric,
            )
        self._add_measurement(report, found.measurement)
        if raw:
            self._add_file(report, RAW_OUTPUT)
        if found.numbers is not None:
            report["accuracy"] = found.as_json()
        if found.labels is not None:
            report["accuracy"] = found.as_json()
            np.savez(
                self.spec.results_dir / "predictions.npz",
                predicted=found.ranked,
                y=found.labels,
            )
            self._add_file(report, "predictions.npz")
        return report

    def _training(self, engine: Engine) -> Report:
        import numpy as np

        from edgeyard.devices.runner import training
        from edgeyard.devices.runner.arrays import read_all_arrays
        from edgeyard.devices.runner.engine import TrainingEngine
        from edgeyard.devices.runner.training_loop import with_test_rows

        spec = self.spec
        if not isinstance(engine, TrainingEngine):
            raise RunFailed("engine_unsupported", f"engine {spec.engine} does not train (TYPE3)")
        report: Report = {}
        config = training.read_config(spec.odt_config, spec.odt_config_path)
        arrays = read_all_arrays(self._datasets(), ["x", "y"], optional=["x_test", "y_test"])
        x, y, config = with_test_rows(arrays, config)
        watch, progress = self._watched()
        result = engine.train(
            spec.path(spec.model),
            config,
            x,
            y,
            spec.results_dir,
            progress,
            threads=self.board.threads,
            parameters=self.engine_parameters,
        )
        training.check_losses(result)
        sys.stderr.write(f"trained: {result.trained}\n")
        steps_ms = np.array(result.step_ms, dtype=np.float64)
        conditions = watch.stop()
        self._add_engine_times(report, steps_ms, conditions)
        report["training"] = training.as_json(result, config)
        np.savez(
            spec.results_dir / "training.npz",
            step_losses=np.array(result.step_losses, dtype=np.float64),
            step_ms=steps_ms,
        )
        self._add_file(report, "training.npz")
        self._add_file(report, result.model_file.name)
        return report

    def _generation(self, engine: Engine) -> Report:
        """GENAI: requests to a language model."""
        import numpy as np

        from edgeyard.devices.runner.duty_cycle import idling
        from edgeyard.devices.runner.engine import GeneratingSession
        from edgeyard.devices.runner.generation import measure_generation

        spec = self.spec
        request = read_request(spec.parameters)
        if spec.datasets:
            raise RunFailed("user_input", "GENAI takes no dataset")
        report: Report = {}
        self._load(engine, report)
        session = self._session
        if not isinstance(session, GeneratingSession):
            raise RunFailed(
                "engine_unsupported", f"engine {spec.engine} runs no language models (GENAI)"
            )
        found = measure_generation(
            session,
            request,
            self._watch(),
            self.progress,
            max_s=_SHARE_OF_TIME * spec.user_time_s - (time.monotonic() - self.started),
            max_warmup_s=self._max_warmup_s(),
            min_s=self.board.energy_s,
            idle_after=idling(self.board.duty_cycle),
        )
        self._peak_bytes = found.peak_bytes
        measurement = found.measurement()
        self._add_measurement(report, measurement)
        report["work"] = [measurement.spans]
        report.update(found.as_json())
        np.savez(spec.results_dir / GENERATION, **found.arrays())
        self._add_file(report, GENERATION)
        return report

    def _declared(self, engine: Engine) -> Report:
        """A type that the engine declares: it runs it, and its values become the result."""
        import numpy as np

        from edgeyard.devices.runner.trust import Series

        spec = self.spec
        declaring, declared = _declaration(engine, spec)
        problems = declared.parameter_problems(spec.parameters)
        if problems:
            first = problems[0]
            raise RunFailed(
                "user_input",
                f"parameters/{first.name}: {first.reason}; accepted: {first.accepted}",
            )
        if declared.dataset == "required":
            self._datasets()
        if declared.dataset == "none" and spec.datasets:
            raise RunFailed("user_input", f"{declared.name} takes no dataset")
        report: Report = {}
        watch, progress = self._watched()
        found = declaring.run_type(
            declared.name,
            spec.path(spec.model),
            [spec.path(one) for one in spec.datasets],
            spec.results_dir,
            progress,
            max_s=max(0.0, spec.user_time_s * _SHARE_OF_TIME - time.monotonic() + self.started),
            threads=self.board.threads,
            parameters=spec.parameters,
        )
        conditions = watch.stop()
        try:
            results, series = declared_results(declared, found)
        except ValueError as error:
            raise RunFailed(
                "engine_unsupported",
                f"the result of engine {spec.engine} is not what it declares for "
                f"{declared.name}: {error}",
            ) from error
        report["engine_facts"] = dict(found.facts)
        report["results"] = results
        report["primary_metric"] = declared.primary.name
        latencies_ms = declared_latencies(found.latencies_ms, spec.engine, declared.name)
        numbers = series.get(declared.primary.name)
        self._add_engine_times(
            report,
            latencies_ms,
            conditions,
            None if numbers is None else Series(declared.primary, numbers),
        )
        if series:
            np.savez(spec.results_dir / SERIES, **series)  # type: ignore[arg-type]
            self._add_file(report, SERIES)
        for name in found.files:
            self._add_file(report, name)
        return report

    def _add_engine_times(
        self,
        report: Report,
        latencies_ms: NDArray[np.float64],
        conditions: Conditions,
        primary: Optional[Series] = None,
    ) -> None:
        """Add the times that an engine measured itself, without a warm-up that is known."""
        from edgeyard.devices.runner.measure import Measurement
        from edgeyard.devices.runner.trust import judge

        verdict = judge(latencies_ms, conditions, primary=primary)
        found = Measurement(
            latencies_ms=latencies_ms, warmup=None, conditions=conditions, verdict=verdict
        )
        self._add_measurement(report, found)

    def _add_measurement(self, report: Report, found: Measurement) -> None:
        import numpy as np

        report.update(found.as_json())
        report.setdefault("primary_metric", P50.name)
        np.save(self.spec.results_dir / "latencies.npy", found.latencies_ms)
        self._add_file(report, "latencies.npy")

    def _add_file(self, report: Report, name: str) -> None:
        report["files"] = [*cast(List[str], report.get("files", [])), name]

    def _watched(self) -> Tuple[Watch, Callable[[float, str], None]]:
        """Return a started watch, and the progress that an engine reports, which looks at it."""
        watch = self._watch()
        watch.start()

        def progress(percent: float, phase: str) -> None:
            watch.look()
            self.progress(_LOADED_PERCENT + percent * _TRAINING_SHARE, phase)

        return watch, progress

    def _watch(self) -> Watch:
        from edgeyard.devices.runner.conditions import Watch

        return Watch(threads=self.board.threads, wanted_cpus=self.board.cpus)

    def _max_warmup_s(self) -> float:
        return self.spec.user_time_s * _WARMUP_SHARE

    def _datasets(self) -> List[Path]:
        """Return the files of the dataset; their rows follow one another."""
        files = [self.spec.path(one) for one in self.spec.datasets]
        if not files:
            raise RunFailed("user_input", f"{self.spec.benchmark_type} needs a dataset file")
        return files

    def _one_dataset(self) -> Path:
        files = self._datasets()
        if len(files) != 1:
            raise RunFailed(
                "user_input", f"own inputs are one dataset file; there are {len(files)}"
            )
        return files[0]


def declared_results(
    declared: DeclaredType, found: DeclaredRun
) -> Tuple[Dict[str, Dict[str, object]], Dict[str, NDArray[np.float64]]]:
    """Return the values of a run as the report states them, and the numbers they are medians of.

    Raises:
        ValueError: The run is not what the type's declaration lists.
    """
    import numpy as np

    from edgeyard.devices.runner.interval import median_interval

    series = {name: np.array(numbers, dtype=np.float64) for name, numbers in found.series.items()}
    types = {each.name: each.type for each in declared.results}
    for name, numbers in series.items():
        if name in found.values:
            raise ValueError(f"{name} is given twice, as a value and as a series")
        if types.get(name) != "number":
            raise ValueError(f"the series {name!r} is not declared as a value of type number")
        if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
            raise ValueError(f"the series {name} is not one or more finite numbers")
    medians = {name: float(np.median(numbers)) for name, numbers in series.items()}
    results = declared.checked_results({**found.values, **medians})
    for name, numbers in series.items():
        interval = median_interval(numbers)
        if interval is not None:
            ends = [interval.low, interval.high]
            results[name] |= {"ci95": ends, "ci95_degrees": interval.degrees}
    return results, series


def declared_latencies(
    latencies_ms: Sequence[float], engine: str, benchmark_type: str
) -> NDArray[np.float64]:
    """Return the times that an engine measured with a type of its own, shape (repeats,), ms.

    Raises:
        RunFailed: ``engine_unsupported``: there is none, or one is no time.
    """
    import numpy as np

    try:
        found = np.array(latencies_ms, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 1 or not len(found) or not (np.isfinite(found) & (found >= 0.0)).all():
        raise RunFailed(
            "engine_unsupported",
            f"engine {engine} measured no times of {benchmark_type}, in milliseconds",
        )
    return found


def _declaration(engine: Engine, spec: RunSpec) -> Tuple[DeclaringEngine, DeclaredType]:
    """Return the engine with its declaration of the run's type.

    Raises:
        RunFailed: ``engine_unsupported``: it does not offer that type.
    """
    offered: List[str] = list(STANDARD_TYPES)
    if isinstance(engine, DeclaringEngine):
        for each in engine.benchmark_types:
            if each.name == spec.benchmark_type:
                return engine, each
            offered.append(each.name)
    raise RunFailed(
        "engine_unsupported",
        f"engine {spec.engine} on this board does not offer {spec.benchmark_type}; it offers "
        + ", ".join(offered),
    )


def _fail(channel: Channel, category: str, sentence: str) -> None:
    sys.stderr.write(f"{category}: {sentence}\n")
    channel.send({"kind": "failure", "category": category, "sentence": sentence[:2000]})
