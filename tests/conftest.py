"""What all tests share: in CI, a test that needs a program may not be skipped."""

import functools
import gc
import logging
import os
import sys
from collections.abc import Iterator

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

from tests.browser import browser  # noqa: F401  # fixture
from tests.builders.api import Api, running
from tests.builders.engine import Lab
from tests.databases import (  # noqa: F401  # fixtures
    closed_stores,
    database_url,
    each_database,
    empty_postgres_url,
    open_store,
    postgres_server,
    postgres_template,
    postgres_url,
    sqlite_store,
    sqlite_template,
    sqlite_url,
    store,
)
from tests.docker_lab import docker_lab, docker_registry  # noqa: F401  # fixtures
from tests.nomad_cluster import nomad_cluster  # noqa: F401  # fixture
from tests.reruns import (  # noqa: F401  # hooks
    pytest_collection_modifyitems,
    pytest_runtest_setup,
    pytest_timeout_set_timer,
)
from tests.run_root import pytest_cmdline_main, pytest_sessionfinish  # noqa: F401  # hooks
from tests.s3_service import s3_access, s3_endpoint  # noqa: F401  # fixtures

# How long a value or an example takes says more of the machine's other work than of the strategy.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


# Building the tree of all commands takes longer than most commands do: once for all tests.
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]


# Processes of pytest-xdist have the width of the terminal; tables are as wide as into a pipe.
os.environ.pop("COLUMNS", None)


_MAX_ID_LENGTH = 80


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the name of a test that is run with a long text.

    By default a text is part of the name as it is, and a name is sent between processes with each
    report, printed, and put into the environment of whatever a test starts.
    """
    if isinstance(val, bytes) and len(val) > _MAX_ID_LENGTH:
        return "bytes"  # the time in an archive would differ between the processes of one run
    if isinstance(val, str) and len(val) > _MAX_ID_LENGTH:
        start = val[: _MAX_ID_LENGTH // 2].encode("unicode_escape").decode()
        return f"{start}...{len(val)} long"
    return None


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Run every module that builds the engine or the API on a store once on each database."""
    if isinstance(collector, pytest.Module):
        names = vars(collector.obj)  # which also reads the module's marks
        if collector.get_closest_marker("one_database"):
            return
        if any(names.get(each.__name__) is each for each in (Api, Lab, running, open_store)):
            collector.add_marker(pytest.mark.usefixtures("each_database"))


def pytest_collection_finish() -> None:
    """Keep what collection made out of later garbage collections.

    Thousands of tests and the modules that they import live until the end, and a full collection
    that walks them takes a second. Measuring code makes one before each measurement.
    """
    gc.collect()
    gc.freeze()


os.umask(_UMASK := os.umask(0o022))

_NEEDED = (
    "postgres",
    "nomad",
    "ssh",
    "browser",
    "faketime",
    "systemd",
    "nginx",
    "bubblewrap",
    "prometheus",
    "s3",
    "docker",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Undo the umask that a server's start sets: with it the sandbox reads no folder.

    And remove handlers of logs whose stream is closed, as captured output is after a command:
    otherwise their errors would be part of the output of later tests.
    """
    try:
        return (yield)
    finally:
        os.umask(_UMASK)
        for handler in logging.getLogger().handlers[:]:
            if getattr(getattr(handler, "stream", None), "closed", False):
                logging.getLogger().removeHandler(handler)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Turn a skip into a failure where CI=true and the test needs a program, and in a second run.

    Before pytest-rerunfailures sees the report: a second run finds the program no more than the
    first.
    """
    interval_s = sys.getswitchinterval()
    # CPython 3.11's parser fails where another thread parses meanwhile, as `numpy.load` does: a
    # failed test whose source is looked up would end the whole run.
    sys.setswitchinterval(30.0)
    try:
        report = yield
    finally:
        sys.setswitchinterval(interval_s)
    marked = [name for name in _NEEDED if item.get_closest_marker(name)]
    if report.skipped and getattr(item, "execution_count", 1) > 1:
        report.outcome = "failed"
        report.longrepr = f"failed, and was skipped when it was run again: {report.longrepr}"
    elif report.skipped and marked and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI needs its {', '.join(marked)} tests: {report.longrepr}"
    return report
