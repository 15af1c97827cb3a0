"""Content-addressed files in an S3 bucket, for servers without a shared folder."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, cast

from edgeyard.errors import ConfigError, NotFound, Unavailable
from edgeyard.failpoints import failpoint
from edgeyard.installing import extra_command
from edgeyard.scheduler.files import (
    MARK_FILE,
    MAX_NAMING_DELAY_S,
    ORPHAN_AGE_S,
    ContentFiles,
    ContentWriter,
)
from edgeyard.scheduler.model.files import StoredFile
from edgeyard.scheduler.ports import FileStore, FileWriter

logger = logging.getLogger(__name__)

CACHED_S = 24 * 3600.0
"""Content that was not read for this time is removed from the local cache."""

CONNECTIONS = 40
"""Connections at a time: as many as a web server has worker threads."""

_PATIENT = {"connect_timeout": 5.0, "read_timeout": 60.0}
_TRIES = 3
_QUICK = {"connect_timeout": 1.5, "read_timeout": 2.5}
"""For questions about content and its removal, tried once: a request waits for them, and a removal
is over before others stop waiting for its end (`Files.begin_removal`)."""

_CHUNK_BYTES = 2**20
_MAX_MARK_BYTES = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """Address of the bucket, and how to access it.

    Attributes:
        bucket: Its name.
        prefix: Of all keys; "" or ends with a slash.
        endpoint: URL of the service; None: Amazon's own.
        region: None: the service's default.
        access_key: None: as boto3 finds it: environment, profile or the machine's role.
        secret_key: Of the access key.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)


class S3Files(FileStore):
    """`FileStore` in a bucket: ``<prefix>ab/cd/<sha256>``, thread-safe.

    A folder of this machine is the cache: content comes in by way of it, and is read from it. What
    is answered 2xx is in the bucket. Ages are measured by the service's clock alone.
    """

    def __init__(self, access: S3Access, cache: Path, *, reserve_bytes: int = 0) -> None:
        """Make the cache's folder; the bucket must exist.

        Args:
            access: To the bucket.
            cache: The folder.
            reserve_bytes: See `ContentFiles`; of the cache's disk.

        Raises:
            ConfigError: The library is missing, or the bucket is.
            Unavailable: The service does not answer, or the folder can't be written.
        """
        self._access = access
        self._client = _client(access, _TRIES, _PATIENT)
        self._quick = _client(access, 1, _QUICK)
        self._cache = ContentFiles(cache, reserve_bytes=reserve_bytes)
        self._reserve_bytes = reserve_bytes
        self._uploads: Counter[str] = Counter()
        self._uploads_lock = threading.Lock()
        with _translated("looking for the bucket"):
            try:
                self._client.head_bucket(Bucket=access.bucket)
            except self._client.exceptions.ClientError as error:
                if not _is_absent(error):
                    raise
                raise ConfigError([f"file_store: there is no bucket {access.bucket!r}"]) from error

    def writer(self, limit_bytes: int, *, urgent: bool = False) -> S3Writer:
        self._make_room(0)
        return S3Writer(self, self._cache.writer(limit_bytes, urgent=urgent))

    def path(self, sha256: str) -> Path:
        """Return a path on this machine, after a download from the bucket if necessary.

        Raises:
            NotFound: No such content.
            Unavailable: The service does not answer.
        """
        with contextlib.suppress(NotFound, FileNotFoundError):
            path = self._cache.path(sha256)
            os.utime(path)  # read just now: it stays
            return path
        key = self._key(sha256)
        with _translated("reading content"):
            try:
                found = self._client.get_object(Bucket=self._access.bucket, Key=key)
            except self._client.exceptions.ClientError as error:
                if _is_absent(error):
                    raise NotFound("content", sha256) from error
                raise
            size_bytes = int(found["ContentLength"])
            self._make_room(size_bytes)
            # A task waits for it, and the cache gives it up again when the room is needed.
            writer = self._cache.writer(size_bytes, urgent=True)
            try:
                with contextlib.closing(found["Body"]) as body:
                    for chunk in body.iter_chunks(_CHUNK_BYTES):
                        writer.write(chunk)
                stored = writer.commit()
            except BaseException:
                writer.abort()
                raise
        if stored.sha256 != sha256:
            self._cache.remove(stored.sha256, older_than_s=-1.0)
            raise Unavailable(f"the content of {sha256} is damaged in the bucket")
        return self._cache.path(sha256)

    def contains(self, sha256: str) -> bool:
        key = self._key(sha256)
        with _translated("looking for content"):
            try:
                self._quick.head_object(Bucket=self._access.bucket, Key=key)
            except self._client.exceptions.ClientError as error:
                if _is_absent(error):
                    return False
                raise
        return True

    def remove(
        self,
        sha256: str,
        *,
        older_than_s: float = MAX_NAMING_DELAY_S,
        named_at: datetime | None = None,
    ) -> bool:
        """Drop content that nothing names any more; True if it went.

        What was committed just now stays: the same content may have come in again, and be about
        to be named. See `ContentFiles.remove`.
        """
        key = self._key(sha256)
        with _translated("removing content"):
            try:
                head = self._quick.head_object(Bucket=self._access.bucket, Key=key)
            except self._client.exceptions.ClientError as error:
                if _is_absent(error):
                    return False
                raise
            unchanged = named_at is not None and head["LastModified"] <= named_at
            if not unchanged and head["LastModified"] > _now(head) - timedelta(
                seconds=older_than_s
            ):
                return False
            failpoint("file:remove")
            self._quick.delete_object(Bucket=self._access.bucket, Key=key)
        self._cache.remove(sha256, older_than_s=-1.0)
        return True

    def contents(self, *, older_than_s: float = ORPHAN_AGE_S) -> Iterator[StoredFile]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._access.bucket, Prefix=self._access.prefix
        )
        with _translated("listing content"):
            for page in pages:
                newest = _now(page) - timedelta(seconds=older_than_s)
                for each in page.get("Contents", ()):
                    sha256 = each["Key"].rpartition("/")[2]
                    if each["LastModified"] < newest and each["Key"] == self._place(sha256):
                        yield StoredFile(sha256=sha256, size_bytes=each["Size"])

    def mark(self) -> str | None:
        with _translated("reading the file store's mark"):
            try:
                found = self._client.get_object(
                    Bucket=self._access.bucket, Key=f"{self._access.prefix}{MARK_FILE}"
                )
            except self._client.exceptions.ClientError as error:
                if _is_absent(error):
                    return None
                raise
            with contextlib.closing(found["Body"]) as body:
                content: bytes = body.read(_MAX_MARK_BYTES)
        return content.decode("utf-8", "replace").strip()

    def set_mark(self, mark: str) -> None:
        with _translated("writing the file store's mark"):
            self._client.put_object(
                Bucket=self._access.bucket,
                Key=f"{self._access.prefix}{MARK_FILE}",
                Body=f"{mark}\n".encode(),
            )

    def free_bytes(self) -> int:
        """Return the free space of the cache, through which all content passes.

        Raises:
            Unavailable: The folder can't be asked.
        """
        return self._cache.free_bytes()

    def sweep_temporary(self) -> int:
        """Remove abandoned uploads, and cached content that is not read."""
        for stored in list(self._cache.contents(older_than_s=CACHED_S)):
            self._cache.remove(stored.sha256, older_than_s=CACHED_S)
        return self._cache.sweep_temporary()

    def _key(self, sha256: str) -> str:
        if _SHA256.fullmatch(sha256) is None:
            raise NotFound("content", sha256)
        return self._place(sha256)

    def _place(self, sha256: str) -> str:
        return f"{self._access.prefix}{sha256[:2]}/{sha256[2:4]}/{sha256}"

    def _keep(self, sha256: str) -> None:
        """Upload cached content to the bucket.

        Also where it is there already: its time becomes new, which keeps it from those who look
        for old content, and what was damaged is whole again.
        """
        with self._spared(sha256), _translated("keeping a file"):
            self._client.upload_file(
                str(self._cache.path(sha256)), self._access.bucket, self._place(sha256)
            )
        failpoint("file:kept")

    def _make_room(self, size_bytes: int) -> None:
        """Remove the oldest content of the cache if it would use the reserve."""
        needed = self._reserve_bytes + size_bytes
        if self._cache.free_bytes() < needed:
            with self._uploads_lock:
                spared = set(self._uploads)
            self._cache.evict(needed, spared)

    @contextmanager
    def _spared(self, sha256: str) -> Iterator[None]:
        """Keep content in the cache while it is uploaded to the bucket."""
        with self._uploads_lock:
            self._uploads[sha256] += 1
        try:
            yield
        finally:
            with self._uploads_lock:
                self._uploads[sha256] -= 1
                if not self._uploads[sha256]:
                    del self._uploads[sha256]


class S3Writer(FileWriter):
    """Writes one file of the bucket; belongs to one thread at a time."""

    def __init__(self, files: S3Files, local: ContentWriter) -> None:
        self._files = files
        self._local = local

    def write(self, chunk: bytes) -> None:
        self._files._make_room(len(chunk))
        self._local.write(chunk)

    def commit(self) -> StoredFile:
        stored = self._local.commit()
        self._files._keep(stored.sha256)
        return stored

    def abort(self) -> None:
        self._local.abort()


def _client(access: S3Access, tries: int, timeouts: Mapping[str, float]) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        fix = extra_command("s3")
        raise ConfigError([f"file_store: s3:// needs its library: {fix}"]) from error
    return boto3.session.Session().client(
        "s3",
        endpoint_url=access.endpoint,
        region_name=access.region,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        config=Config(
            **timeouts,
            max_pool_connections=CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": tries},
            # Services other than Amazon's are rarely reached under a name for each bucket.
            s3={"addressing_style": "path"} if access.endpoint else None,
        ),
    )


def _is_absent(error: Exception) -> bool:
    response = cast("Mapping[str, Any]", getattr(error, "response", {}))
    return str(response.get("Error", {}).get("Code")) in _ABSENT


def _now(answer: Mapping[str, Any]) -> datetime:
    """Return the time of the service."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        logger.error("the file store failed", extra={"event": "files.failed", "cause": str(error)})
        raise Unavailable(f"{doing}: the S3 service refused or does not answer") from error
