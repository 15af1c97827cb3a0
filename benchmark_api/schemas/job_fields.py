"""The fields of a job description; made by `make docs` from its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class JobFields(TypedDict, total=False):
    """Fields of a job description next to model, runtime, benchmark type, target and count."""

    benchmark_id: str
    model_url: str
    dataset: str | Path | Mapping[str, ArrayLike]
    dataset_urls: Sequence[str | Path]
    odt_config: str | Path | Mapping[str, object]
    target_uid: str
    ram: int | str
    storage: int | str
    user_priority: int
    user_budget: float
    user_time: float | str
    deadline: str
    max_retries: int
    nb_inference: int
    precision: float | str
    soak: float | str
    soak_window: float | str
    concurrency: int | Sequence[int] | str
    load: str
    load_bound: float | str
    load_percentile: float
    load_duration: float | str
    load_rate: float
    load_seed: int
    preemptible: bool
    preemptible_measuring: bool
    job_completion_threshold: int
    start_time: str
    cron: str
    prohibit_overlap: bool
    cron_by: str
    version_tag: str
    constraints: Sequence[Mapping[str, object]]
    affinities: Sequence[Mapping[str, object]]
    spreads: Sequence[Mapping[str, object]]
    binding: str
    if_unavailable: str
    tags: Sequence[str]
    name: str
    series: str
    git_commit: str
    link: str
    parameters: Mapping[str, object]
    keep_outputs: bool
    profile_layers: bool
    input: Mapping[str, Mapping[str, object]]
    queue_timeout: float | str
    extra: Mapping[str, object]


class JobChanges(JobFields, total=False):
    """All fields of a job description, for what differs in a clone."""

    model: str | Path
    runtime: str
    benchmark_type: str
    target: str
    count: int
