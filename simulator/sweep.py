"""Sweeps: each scenario at each load under each policy with each seed, one cell each.

A finished cell is a file of its run, whose name holds a hash of all that the run depends on. A
sweep that is interrupted goes on with the cells whose files are missing, and a changed scenario,
policy or version of Edgeyard never takes an old result for its own.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edgeyard import __version__
from edgeyard.errors import InvalidInput, reason_of
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.learning.model import read_manifest
from edgeyard.simulator.runs import SimulatedRun, load_run
from edgeyard.simulator.scenario import (
    Scenario,
    scenario_from_json,
    scenario_hash,
    scenario_to_json,
)

_MAX_CELL_BYTES = 200_000_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPolicy:
    """A policy of a sweep.

    Attributes:
        name: By which its runs are compared.
        text: Its TOML: a changed text is another policy. "": it is ``default`` with the queue
            policy of this name.
        files: Hash of the files of its scorers and models, see `digest_of_files`; "": it has none.
    """

    name: str
    text: str
    files: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """One run of a sweep.

    Attributes:
        scenario: With its load applied.
        digest: The scenario's hash.
        load: 1: as the scenario states it.
    """

    scenario: Scenario
    digest: str
    load: float
    policy: SweptPolicy
    seed: int

    @property
    def key(self) -> str:
        """Hash of all that the run depends on."""
        return run_key(self.digest, self.policy, self.seed)

    @property
    def label(self) -> str:
        """Scenario, policy and seed, for tables and messages."""
        return f"{self.scenario.name}, {self.policy.name}, seed {self.seed}"

    @property
    def file_name(self) -> str:
        """Name of the file of its run."""
        words = (self.scenario.name, self.policy.name, f"seed{self.seed}")
        readable = "-".join(_UNSAFE.sub("-", word).strip("-.")[:40] for word in words)
        return f"{readable}-{self.key}.npz"

    def finished(self, folder: Path) -> SimulatedRun | None:
        """Return its run if the folder has it whole; a broken file is none."""
        path = folder / self.file_name
        if not path.exists():
            return None
        try:
            return load_run(path)
        except InvalidInput:
            return None


def run_key(digest: str, policy: SweptPolicy, seed: int, *further: str) -> str:
    """Return a hash of all that a run depends on.

    Args:
        digest: The scenario's, see `digest_of`.
        policy: Name, text and files.
        seed: Of arrivals and faults.
        further: What else makes it another run, such as hashes of models.
    """
    parts = (digest, policy.name, policy.text, policy.files, seed, __version__, *further)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def sweep_cells(
    scenarios: Sequence[Scenario],
    policies: Sequence[SweptPolicy],
    seeds: Sequence[int],
    loads: Sequence[float] = (1.0,),
) -> list[Cell]:
    """Return all cells, by scenario, load, seed and policy: what is compared is next to each other.

    Raises:
        InvalidInput: A name stands for two scenarios or policies, or a load can't be applied.
    """
    for noun, flag, names in (
        ("policies", "--policy", [each.name for each in policies]),
        ("scenarios", "SCENARIO", [each.name for each in scenarios]),
    ):
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise InvalidInput.at(flag, f"two {noun} have the name {doubled!r}: rename one")
    at_load = [(with_load(each, load), load) for each in scenarios for load in loads]
    hashed = [(scenario, digest_of(scenario), load) for scenario, load in at_load]
    return [
        Cell(scenario=scenario, digest=digest, load=load, policy=policy, seed=seed)
        for scenario, digest, load in hashed
        for seed in seeds
        for policy in policies
    ]


def digest_of(scenario: Scenario) -> str:
    """Return the hash of a scenario, with that of its log if it has one.

    Raises:
        InvalidInput: The log can't be read.
    """
    digest = scenario_hash(scenario)
    if scenario.nodes is None or not scenario.nodes.log:
        return digest
    try:
        with open(scenario.nodes.log, "rb") as file:
            log = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        reason = f"can't be read: {reason_of(error)}"
        raise InvalidInput.at(f"{scenario.name}: nodes.log", reason) from error
    return hashlib.sha256(f"{digest}{log}".encode()).hexdigest()


def digest_of_files(policy: Policy, models: Path | None = None) -> str:
    """Return the hash of the files that a policy's scorers are made of; "": they have none.

    Args:
        policy: Its scorers and its fallback count.
        models: Folder of registered models; None: there are none.

    Raises:
        InvalidInput: A file can't be read.
    """
    parts: list[tuple[str, str]] = []
    for each in policy.scorers:
        if each.file is not None:
            parts.append((each.name, _file_digest(Path(each.file.rpartition(":")[0]), policy)))
    names = {each.name for each in policy.scorers if each.file is None and each.url is None}
    for name in sorted({*names, policy.fallback or ""}):
        manifest = None if models is None or not name else models / f"{name}.toml"
        if manifest is not None and manifest.is_file():
            onnx = manifest.with_name(read_manifest(manifest).onnx)
            parts += [(name, _file_digest(path, policy)) for path in (manifest, onnx)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest() if parts else ""


def _file_digest(path: Path, policy: Policy) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        reason = f"{path} can't be read: {reason_of(error)}"
        raise InvalidInput.at(f"--policy {policy.name}", reason) from error


def with_load(scenario: Scenario, load: float) -> Scenario:
    """Return a scenario in which work arrives more often, with the load in its name.

    Rates of arrivals are multiplied by ``load``. Stated jobs keep their order, run times and the
    time to their deadlines, and arrive in 1/``load`` of the time.

    Raises:
        InvalidInput: The scenario's work comes from a log, or a Bernoulli rate would exceed 1.
    """
    if load == 1.0:
        return scenario
    name = f"{scenario.name}-load{load:g}"
    if scenario.nodes is not None and scenario.nodes.log:
        raise InvalidInput.at(
            "--load",
            f"scenario {scenario.name!r} takes its jobs from a log, whose load is fixed",
            "1 for this scenario",
        )
    lab, nodes = scenario.lab, scenario.nodes
    if lab is not None:
        arrivals = lab.arrivals
        if arrivals is not None:
            arrivals = msgspec.structs.replace(
                arrivals,
                rate_per_hour=arrivals.rate_per_hour * load,
                burst_every_s=arrivals.burst_every_s / load,
            )
        jobs = tuple(
            msgspec.structs.replace(
                each,
                submit_s=each.submit_s / load,
                **{
                    field: at - each.submit_s + each.submit_s / load
                    for field in ("deadline_s", "start_s", "cancel_s")
                    if (at := getattr(each, field)) is not None
                },
            )
            for each in lab.jobs
        )
        lab = msgspec.structs.replace(lab, arrivals=arrivals, jobs=jobs)
    if nodes is not None:
        mix = nodes.mix
        if mix is not None:
            mix = msgspec.structs.replace(mix, rate=mix.rate * load)
        rows = tuple(
            msgspec.structs.replace(each, submit_s=each.submit_s / load) for each in nodes.jobs
        )
        nodes = msgspec.structs.replace(nodes, mix=mix, jobs=rows)
    changed = msgspec.structs.replace(scenario, name=name, lab=lab, nodes=nodes)
    try:
        return scenario_from_json(scenario_to_json(changed), source=name)
    except InvalidInput as error:
        raise InvalidInput.at("--load", f"{load:g} can't be applied: {error}") from error


def cell_to_text(cell: Cell) -> str:
    """Return a cell as text for another machine: letters, digits and ``+/=`` alone."""
    document = {
        "scenario": scenario_to_json(cell.scenario),
        "digest": cell.digest,
        "load": cell.load,
        "policy": {
            "name": cell.policy.name,
            "text": cell.policy.text,
            "files": cell.policy.files,
        },
        "seed": cell.seed,
        "version": __version__,
    }
    return base64.b64encode(gzip.compress(json.dumps(document).encode(), mtime=0)).decode()


def cell_from_text(text: str, *, source: str = "cell") -> Cell:
    """Read what `cell_to_text` has written.

    Raises:
        InvalidInput: It is none, or of another version of Edgeyard.
    """
    try:
        data = base64.b64decode(text.strip(), validate=True)
        document = json.loads(_bounded(data))
        version, policy = document["version"], document["policy"]
        scenario = scenario_from_json(document["scenario"], source=source)
        cell = Cell(
            scenario=scenario,
            digest=str(document["digest"]),
            load=float(document["load"]),
            policy=SweptPolicy(
                name=str(policy["name"]), text=str(policy["text"]), files=str(policy["files"])
            ),
            seed=int(document["seed"]),
        )
    except (ValueError, KeyError, TypeError, EOFError, OSError, zlib.error) as error:
        raise InvalidInput.at(source, f"is not a cell of a sweep: {error!r}") from error
    if version != __version__:
        raise InvalidInput.at(
            source,
            f"was written by Edgeyard {version}, and this is {__version__}",
            "the same version on all machines of a sweep",
        )
    return cell


def _bounded(data: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    text = reader.decompress(data, _MAX_CELL_BYTES)
    if reader.unconsumed_tail:
        raise ValueError(f"larger than {_MAX_CELL_BYTES:,} bytes")
    return text


def as_of_policy(run: SimulatedRun, cell: Cell) -> SimulatedRun:
    """Return a run under the names of its cell."""
    meta = replace(
        run.meta,
        policy=cell.policy.name,
        scenario=cell.scenario.name,
        scenario_hash=cell.digest,
    )
    return replace(run, meta=meta)
