"""Reads the HCL of jobs: of evenly spread ones for real, because parsing is the slowest part."""

from __future__ import annotations

from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.parse import parse_job

MAX_CACHED_JOBS = 256
"""Maximum number of checked jobs that are cached for the cluster, as some are never dispatched."""


class JobReader:
    """The dispatcher's check of rendered jobs, and the cluster's reading of their text.

    Attributes:
        rendered: Jobs that were rendered.
        read_back: Of these, those that were parsed and compared with what they were rendered from.
    """

    def __init__(self, share: float = 1.0) -> None:
        """Read nothing yet.

        Args:
            share: Of jobs that are read back, 0-1. The cluster gets the others as the values that
                they were rendered from.
        """
        self._share = share
        self._due = 1.0
        self._values: dict[str, NomadJob] = {}
        self.rendered = 0
        self.read_back = 0

    def verify(self, job: NomadJob, text: str) -> None:
        """Check a rendered job, or take its word.

        Raises:
            HclError: The text does not mean the job.
        """
        self.rendered += 1
        self._due += self._share
        if self._due >= 1.0:
            self._due -= 1.0
            self.read_back += 1
            check_round_trip(job, text)
        self._values[text] = job
        while len(self._values) > MAX_CACHED_JOBS:
            del self._values[next(iter(self._values))]

    def read(self, text: str) -> NomadJob:
        """Return what a text means."""
        return self._values.pop(text, None) or parse_job(text)
