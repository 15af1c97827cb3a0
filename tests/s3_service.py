"""A local S3 service, spoken to over HTTP; the fixtures are imported by ``tests/conftest.py``."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from edgeyard.scheduler.s3_files import S3Access

KEY, SECRET = "edgeyard", "secret-of-the-bucket"
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
def s3_endpoint() -> Iterator[str]:
    """URL of a service, one a test process."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


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
