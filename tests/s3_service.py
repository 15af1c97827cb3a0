"""A real local S3 service; the fixtures are imported by ``tests/conftest.py``."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deploy.process import free_port
from edgeyard.scheduler.s3_files import S3Access
from tests.fakes.relay import Relay

KEY, SECRET = "edgeyard", "secret-of-the-bucket"
_BUILD = Path(__file__).parents[1] / "deploy" / "s3" / "build"
_START_S = 60.0
_number = itertools.count(1)


def client(endpoint: str) -> Any:
    """What makes buckets and breaks objects."""
    import boto3  # takes a moment: not for all tests

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a service, one a test process."""
    built = subprocess.run([_BUILD], capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"there is no S3 service: {built.stderr.strip()[-300:]}")
    folder = tmp_path_factory.mktemp("s3")
    for name in ("buckets", "attributes"):
        (folder / name).mkdir()
    address = f"127.0.0.1:{free_port()}"
    command = [built.stdout.strip(), "--quiet", "--access", KEY, "--secret", SECRET]
    command += [
        "--port",
        address,
        "posix",
        "--sidecar",
        str(folder / "attributes"),
        str(folder / "buckets"),
    ]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=os.environ) as service,
    ):
        try:
            _await(service, f"http://{address}", folder / "log")
            yield f"http://{address}"
        finally:
            service.terminate()


def _await(service: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    from botocore.exceptions import BotoCoreError

    until_s = time.monotonic() + _START_S
    while True:
        try:
            client(endpoint).list_buckets()
            return
        except BotoCoreError:
            if service.poll() is not None or time.monotonic() > until_s:
                raise AssertionError(f"the S3 service did not start: {log.read_text()}") from None
        time.sleep(0.05)


@pytest.fixture
def s3_access(s3_endpoint: str) -> S3Access:
    """A fresh bucket."""
    bucket = f"bucket-{next(_number)}"
    client(s3_endpoint).create_bucket(Bucket=bucket)
    return S3Access(
        bucket=bucket,
        prefix="lab/",
        endpoint=s3_endpoint,
        region="us-east-1",
        access_key=KEY,
        secret_key=SECRET,
    )


@contextmanager
def stalled_later(access: S3Access) -> Iterator[tuple[S3Access, Relay]]:
    """Access by way of a relay, which the test can stall."""
    where = urlsplit(str(access.endpoint))
    relay = Relay([(str(where.hostname), int(where.port or 0))])
    with relay.listening(("127.0.0.1", 0)) as at:
        yield replace(access, endpoint=f"http://{at[0]}:{at[1]}"), relay
