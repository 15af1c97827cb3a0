"""URLs of uploaded files in the descriptions of benchmarks."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from edgeyard.benchmark_api.schemas.fields import is_url
from edgeyard.scheduler.model.benchmark import Benchmark, JobDescription

_OWN_PATHS = ("/v1/files/", "/download/")


def with_own_urls(benchmark: Benchmark, public_url: str) -> JobDescription:
    """Return the description of a benchmark with the present URLs of the files that were uploaded.

    The address of the server may be another one than at its submission. Which files were uploaded
    is stored with it: they have no URL of their own.
    """
    description = benchmark.description
    model_url, config = description.model_url, description.odt_config
    config_url = config if isinstance(config, str) and is_url(config) else None
    if model_url is None and config_url is None and not description.dataset_urls:
        return description  # most are, and lists have thousands
    uploaded = {(file.role.field, file.position) for file in benchmark.files if file.url is None}

    def present(field: str, position: int, url: str) -> str:
        path = urlsplit(url).path
        place = max(path.rfind(each) for each in _OWN_PATHS)
        is_own = place >= 0 and (field, position) in uploaded
        return public_url.rstrip("/") + path[place:] if is_own else url

    return replace(
        description,
        model_url=None if model_url is None else present("model", 0, model_url),
        dataset_urls=tuple(
            present("dataset", at, each) for at, each in enumerate(description.dataset_urls)
        ),
        odt_config=config if config_url is None else present("odt_config", 0, config_url),
    )
