"""The contracts between the runner and an inference engine.

`Engine` and its `Session` are what every engine has; `TrainingEngine`, `ProfilingEngine`,
`SharingEngine`, `DeclaringEngine` and sessions that are a `GeneratingSession` are what it may offer
besides.

Built-in engines are the rows of `edgeyard.devices.runner.engines.BUILT_IN`; others are found by the
entry-point group ``edgeyard.engines``. They run inside the runner's
limited child process, on one thread, on boards: only the standard library, NumPy and the engine's
own package; Python 3.10.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
    runtime_checkable,
)

from edgeyard.devices.benchmark_types import DeclaredType
from edgeyard.devices.model import DEFAULT_SANDBOX, Hook, Sandbox, SshAddress

if TYPE_CHECKING:  # the runner's parent process reads `BoardFacts` and never loads NumPy
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from edgeyard.devices.runner.layers import LayerRun

Dimension = Union[int, str, None]
"""A fixed size; a name or None where the model leaves it open."""

Progress = Callable[[float, str], None]
"""``progress(percent, phase)``: percent 0-100 of what the engine was asked for, phase a word."""


_PLACEHOLDERS = frozenset({"", "?", "*", "-1", "None"})
"""What converters write for a dimension that they know nothing of; equal ones state no relation."""


def dimension_of(size: object) -> Dimension:
    """Return a dimension as a model's file states it: a size from 0 on, a name, or None (open)."""
    if isinstance(size, str):
        return None if size.strip() in _PLACEHOLDERS else size
    return size if isinstance(size, int) and size >= 0 else None


def is_fixed(size: Dimension) -> bool:
    """Return whether a dimension has one size only; 0 is a size, too, of an empty tensor."""
    return isinstance(size, int) and size >= 0


@dataclass(frozen=True)
class Quantization:
    """Which real numbers the whole numbers of a tensor mean: scale * (whole - zero point).

    Attributes:
        scales: One for the whole tensor, or one for each place along ``axis``; above 0.
        zero_points: As many.
        axis: Dimension that several scales belong to; of no meaning for one.
    """

    scales: Tuple[float, ...]
    zero_points: Tuple[int, ...]
    axis: int = 0

    def as_json(self) -> Dict[str, object]:
        """Return the values as the report contains them."""
        return {
            "scales": list(self.scales),
            "zero_points": list(self.zero_points),
            "axis": self.axis,
        }


@dataclass(frozen=True)
class TensorSpec:
    """A model's input or output.

    Attributes:
        shape: Its dimensions, none for a scalar; None: the model does not state how many it has.
        dtype: NumPy's name of it, e.g. ``float32``.
        quantization: Of whole numbers that stand for real ones; None: values are what they are.
            Sessions take and return the whole numbers.
        classes: Class numbers that an output can hold, where the model states them; else None.
    """

    name: str
    shape: Optional[Tuple[Dimension, ...]]
    dtype: str
    quantization: Optional[Quantization] = None
    classes: Optional[Tuple[int, ...]] = None

    def as_json(self) -> Dict[str, object]:
        """Return the values as the report contains them."""
        found: Dict[str, object] = {
            "name": self.name,
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
        }
        if self.quantization is not None:
            found["quantization"] = self.quantization.as_json()
        return found

    def takes(self, shape: Sequence[int], *, first: int = 0) -> bool:
        """Return whether an array of this shape fits, from dimension ``first`` on."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            not is_fixed(size) or size == have
            for size, have in zip(self.shape[first:], shape[first:], strict=True)
        )

    def shape_text(self, *, first: int = 0) -> str:
        """Return the shape for people, e.g. ``[?, 3]`` or ``[]``."""
        if self.shape is None:
            return "any number of dimensions"
        shown = (str(size) if is_fixed(size) else "?" for size in self.shape[first:])
        return "[" + ", ".join(shown) + "]"


class Session(Protocol):
    """A loaded model, ready to run."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Tensors in the model's order."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Tensors in the model's order."""
        ...

    @property
    def facts(self) -> Mapping[str, object]:
        """What the report states about the engine.

        Every engine states ``version``, ``execution_provider`` and ``threads``; further facts are
        its own. ``load_ms``, where given, is taken for the time of loading, instead of that of
        `load`.
        """
        ...

    def run(self, feeds: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        """Run one inference; callers time this call, so that it contains the engine's work alone.

        Raises:
            RunFailed: ``user_input`` for feeds that don't fit, ``out_of_memory``, ``user_model``.
        """
        ...


class Generation(Protocol):
    """A request to a language model that is under way; callers time `prefill` and `step`."""

    def prefill(self) -> None:
        """Compute the prompt, up to the logits that the first token is chosen from.

        Raises:
            RunFailed: As `step`.
        """
        ...

    def step(self) -> None:
        """Append the most probable token; for each but the first one, run the model for it.

        Raises:
            RunFailed: ``out_of_memory``, ``user_model``.
        """
        ...

    @property
    def ended(self) -> bool:
        """Whether no further token can be generated."""
        ...

    def logits(self) -> NDArray[np.floating[Any]]:
        """Return the logits that the next token will be chosen from, shape (vocabulary,).

        The model runs for that token now, where it has not yet.
        """
        ...

    def tokens(self) -> Sequence[int]:
        """Return the ids of the tokens that were generated."""
        ...


@runtime_checkable
class GeneratingSession(Protocol):
    """A loaded language model (GENAI); a `Session` that is one has these members, too."""

    @property
    def context_length(self) -> int:
        """Tokens of prompt and output together that the model takes."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of token ids, from 0 on."""
        ...

    @property
    def has_tokenizer(self) -> bool:
        """Whether `encode` and `decode` can be called."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Return the token ids of a text.

        Raises:
            RunFailed: ``user_model``: the tokenizer can't be used.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids.

        Raises:
            RunFailed: ``user_model``: the tokenizer can't be used.
        """
        ...

    def begin(self, prompt: Sequence[int], output_length: int) -> Generation:
        """Return a request that chooses greedily and generates exactly so many tokens.

        End tokens are never chosen before, as far as the engine can avoid it. Callers time this
        call, too.

        Args:
            prompt: Token ids, at least one, of the vocabulary.
            output_length: Tokens; with the prompt not more than `context_length`.

        Raises:
            RunFailed: ``out_of_memory``, ``user_model``.
        """
        ...


@dataclass(frozen=True)
class TrainingConfig:
    """The on-device training configuration (``odt_config``), checked; see ``docs/reference``.

    Attributes:
        epochs: Passes over the training data.
        batch_size: Rows a step.
        learning_rate: Of plain gradient steps.
        seed: Of shuffling and initialisation.
        validation_split: Share of rows kept for validation, 0-0.9.
        validation_rows: So many rows at the end are for validation, whatever ``validation_split``
            says; None: the dataset has no test rows of its own.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    seed: int = 0
    validation_split: float = 0.2
    options: Mapping[str, object] = field(default_factory=dict)
    validation_rows: Optional[int] = None


@dataclass(frozen=True)
class TrainingResult:
    """The result of on-device training.

    Attributes:
        step_losses: Loss of every step.
        epoch_losses: Mean training loss of every epoch.
        validation_losses: One an epoch; empty without validation rows.
        validation_accuracy: One an epoch; empty where labels are not classes.
        step_ms: Time of every step, milliseconds.
        trained: In words, what was trained ("all weights", "the last dense layer").
        model_file: The trained model, to be uploaded.
    """

    step_losses: Sequence[float]
    epoch_losses: Sequence[float]
    validation_losses: Sequence[float]
    validation_accuracy: Sequence[float]
    step_ms: Sequence[float]
    trained: str
    model_file: Path


class Engine(Protocol):
    """One runtime, e.g. ``ort``.

    An engine that starts programs to load or run a model, such as a compiler, states this by a
    member ``starts_processes = True``; the others may start none. Device files and paths that it
    needs are named in the boards file (``devices`` of the engine, ``sandbox`` of the board).
    """

    name: str

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, object]) -> Session:
        """Load a model.

        Args:
            threads: Threads that the board allows, at least 1.
            parameters: Of the engine, from the job description; unknown ones are refused.

        Raises:
            RunFailed: ``user_model`` (corrupt, too new, external data), ``user_input``
                (parameters), ``engine_unsupported``, ``out_of_memory``.
        """
        ...


@runtime_checkable
class TrainingEngine(Protocol):
    """An engine that also trains (TYPE3)."""

    def train(
        self,
        model: Path,
        config: TrainingConfig,
        x: NDArray[np.generic],
        y: NDArray[np.generic],
        out: Path,
        progress: Progress,
        *,
        threads: int,
        parameters: Mapping[str, object],
    ) -> TrainingResult:
        """Train on the board and write the trained model into the folder ``out``.

        Args:
            x: Shape (rows, ...), one row an example.
            y: Shape (rows,) of class numbers, or (rows, ...) of targets.

        Raises:
            RunFailed: As `Engine.load`; ``user_model`` where this engine can't train the model.
        """
        ...


@runtime_checkable
class SharingEngine(Protocol):
    """An engine that lets several callers run one loaded model at once.

    With any other engine each caller loads a model of its own.
    """

    def session_of_another_caller(self, session: Session) -> Session:
        """Return a session of the same loaded model, to run while the given one runs.

        Args:
            session: What `Engine.load` of this engine returned.

        Returns:
            The given one, where several threads may call its `Session.run` at once.

        Raises:
            RunFailed: ``out_of_memory``.
        """
        ...


@runtime_checkable
class ProfilingEngine(Protocol):
    """An engine that also measures the time of each layer."""

    def profile(
        self,
        model: Path,
        feeds_of: Callable[[Sequence[TensorSpec]], Mapping[str, NDArray[np.generic]]],
        out: Path,
        *,
        runs: int,
        max_s: float,
        threads: int,
        parameters: Mapping[str, object],
    ) -> Sequence[LayerRun]:
        """Load a model with the engine's profiler on, run it, and read what it measured.

        Args:
            feeds_of: Gives the arrays to run on, for the model's inputs.
            out: Folder that the profiler may write to; it is left as it was.
            runs: Profiled runs that are wanted.
            max_s: No further run begins after this time.

        Raises:
            RunFailed: As `Engine.load` and `Session.run`.
        """
        ...


@dataclass(frozen=True)
class DeclaredRun:
    """What a run of a declared benchmark type led to.

    Attributes:
        values: The values that the type's declaration lists under ``results``, by name, except
            those of ``series``.
        latencies_ms: Time of each measured unit of the work, milliseconds; at least one.
        files: Files in the given folder that belong to the result.
        series: The numbers that a value of type ``number`` is the median of, by its name, in the
            order of measuring, one of each repeat. Its 95 % interval comes from them; if it is the
            type's primary metric, so does the verdict. Other values have no interval.
        facts: What the report states about the engine, as `Session.facts`: at least its
            ``version``, which shows in series whether another one explains a change.
    """

    values: Mapping[str, Union[str, int, float, bool]]
    latencies_ms: Sequence[float]
    files: Sequence[str] = ()
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


@runtime_checkable
class DeclaringEngine(Protocol):
    """An engine that offers benchmark types of its own, ``TYPE4`` to ``TYPE99``.

    The boards file repeats the declarations (``types`` of the engine, in the form of
    `DeclaredType.as_json`), so that submissions can be checked without the engine.
    """

    benchmark_types: Sequence[DeclaredType]

    def run_type(
        self,
        benchmark_type: str,
        model: Path,
        datasets: Sequence[Path],
        out: Path,
        progress: Progress,
        *,
        max_s: float,
        threads: int,
        parameters: Mapping[str, object],
    ) -> DeclaredRun:
        """Run a benchmark of a declared type.

        Args:
            benchmark_type: One of `benchmark_types`.
            datasets: Files of the dataset; empty without one.
            out: Folder for the files of the result.
            max_s: The run is stopped some time after this many seconds, without a result.
            threads: Threads that the board allows, at least 1.
            parameters: As the type declares them; they have been checked.

        Raises:
            RunFailed: As `Engine.load` and `Session.run`.
        """
        ...


@dataclass(frozen=True)
class BoardFacts:
    """What the board's host passes to the task in ``EDGEYARD_BOARD`` (JSON).

    Attributes:
        cpus: CPUs to stay on; empty: all.
        threads: Threads the engine may use.
        ram_bytes: Memory limit of the child; None: no limit.
        progress_file: Where to write progress for the host's plugin; None: nowhere.
        emulated: This board is a slice of a bigger machine.
        parent_pid: Process that started the runner and that it must not outlive; None: its
            parent when it starts.
        ssh: Where the board answers; None: the run is done here.
        hooks: What is done around the run.
        streams: Progress is written to stdout, too, as JSON lines: our host reads them.
        storage_bytes: The largest result; None: as the machine's memory allows.
        sandbox: How the run is confined, and what it may use all the same.
        duty_cycle: Share of the time that the engine computes; the rest of it idles.
        energy_rail: As of `Board`.
        energy_command: As of `Board`.
        energy_s: Seconds of inferences that the energy measurement needs at least; the run then
            reports when its inferences ran. 0: no energy is measured. Above 0 on a board behind its
            host: the host's meter measures, and the board's own sensors are not read.
    """

    target_uid: str = ""
    family: str = ""
    cpus: Tuple[int, ...] = ()
    threads: int = 1
    ram_bytes: Optional[int] = None
    progress_file: Optional[str] = None
    emulated: bool = False
    parent_pid: Optional[int] = None
    ssh: Optional[SshAddress] = None
    hooks: Tuple[Hook, ...] = ()
    streams: bool = False
    storage_bytes: Optional[int] = None
    sandbox: Sandbox = DEFAULT_SANDBOX
    duty_cycle: float = 1.0
    energy_rail: str = ""
    energy_command: Tuple[str, ...] = ()
    energy_s: float = 0.0

    @property
    def may_measure_energy(self) -> bool:
        """Whether its runner has a meter to read, or may look for sensors of this machine.

        A part of a machine has no sensors of its own: the machine's are read only where the boards
        file names a rail.
        """
        if self.energy_command:
            return True
        whole = not self.emulated or bool(self.energy_rail)
        return whole and self.ssh is None and self.energy_s <= 0
