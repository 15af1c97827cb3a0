"""The jobs of the A2cScheduler paper: short and long ones with a dominant resource.

The mix is DeepRM's (see `edgeyard.simulator.mixes`). A node has as many units of CPU and of
memory as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.importers.machines import checked
from edgeyard.simulator.mixes import JobMix, poisson_arrivals
from edgeyard.simulator.scenario import (
    NodeGroup,
    NodeJob,
    NodesScenario,
    PaperMix,
    Scenario,
)

UNITS = 10
"""Units of each resource on a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperOptions:
    """What is generated.

    Attributes:
        name: Of the scenario.
        seed: Of its jobs.
        rate: Mean number of arrivals in a step; at most 1 with Bernoulli arrivals.
        steps: Steps in which jobs arrive.
        nodes: How many nodes.
        rows: List the jobs instead of describing them.
    """

    name: str
    seed: int = 1
    rate: float = 0.7
    steps: int = 50
    nodes: int = 1
    rows: bool = False


def paper(options: PaperOptions) -> Scenario:
    """In each step a job arrives with a fixed probability, as in the paper."""
    if not options.rows:
        mix = PaperMix(rate=options.rate, steps=options.steps)
        return _scenario(options, NodesScenario(nodes=_nodes(options), mix=mix))
    random = stream(options.seed, "jobs", "bernoulli")
    lengths, sizes = JobMix(rate=options.rate).arrivals(random, options.steps)
    steps = np.flatnonzero(lengths)
    return _listed(options, steps.astype(np.float64), lengths[steps], sizes[steps])


def paper_poisson(options: PaperOptions) -> Scenario:
    """Return the same jobs, which arrive at any time (Poisson); they are listed."""
    times = poisson_arrivals(
        stream(options.seed, "jobs", "poisson"), options.rate, float(options.steps)
    )
    random = stream(options.seed, "sizes")
    lengths, sizes = JobMix(rate=1.0).arrivals(random, len(times) + 1)
    return _listed(options, times, lengths[1:], sizes[1:])


PAPER_KINDS = {"paper": paper, "paper-poisson": paper_poisson}


def _listed(
    options: PaperOptions,
    times: np.typing.NDArray[np.float64],
    lengths: np.typing.NDArray[np.int64],
    sizes: np.typing.NDArray[np.int64],
) -> Scenario:
    rows = zip(times.tolist(), lengths.tolist(), sizes.tolist(), strict=True)
    jobs = tuple(
        NodeJob(
            job_id=str(number),
            submit_s=round(at, 6),
            run_s=float(length),
            cpus=size[0],
            memory_mb=size[1],
        )
        for number, (at, length, size) in enumerate(rows, 1)
    )
    return _scenario(options, NodesScenario(nodes=_nodes(options), jobs=jobs))


def _nodes(options: PaperOptions) -> tuple[NodeGroup, ...]:
    return (NodeGroup(count=options.nodes, cpu_cores=UNITS, memory_mb=UNITS),)


def _scenario(options: PaperOptions, nodes: NodesScenario) -> Scenario:
    return checked(
        Scenario(
            name=options.name,
            world="nodes",
            seed=options.seed,
            duration_s=float(options.steps),
            description=f"Jobs of the A2cScheduler paper at rate {options.rate:g}.",
            tags=("generated", "paper"),
            nodes=nodes,
        )
    )
