"""What the variables of a CI state about the commit that it builds, and about its job."""

from __future__ import annotations

import os
import re

_COMMITS = (
    "GITHUB_SHA",
    "CI_COMMIT_SHA",  # GitLab, Woodpecker
    "BITBUCKET_COMMIT",
    "BUILDKITE_COMMIT",
    "BUILD_SOURCEVERSION",  # Azure Pipelines
    "CIRCLE_SHA1",
    "DRONE_COMMIT_SHA",
    "GIT_COMMIT",  # Jenkins
)
_LINKS = (
    "CI_JOB_URL",  # GitLab
    "CI_PIPELINE_URL",  # Woodpecker
    "BUILDKITE_BUILD_URL",
    "CIRCLE_BUILD_URL",
    "DRONE_BUILD_LINK",
    "BUILD_URL",  # Jenkins
)
_RUN_OF_GITHUB = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")


def ci_fields() -> dict[str, str]:
    """Return ``git_commit`` and ``link`` of a job description, as far as a CI states them.

    A variable without a commit or a URL is ignored, because other programs may use its name.
    """
    server, repository, run = (os.environ.get(name, "") for name in _RUN_OF_GITHUB)
    links = [os.environ.get(name, "") for name in _LINKS]
    if server and repository and run:
        links.insert(0, f"{server}/{repository}/actions/runs/{run}")
    stated = {
        "git_commit": _first([os.environ.get(name, "") for name in _COMMITS], "[0-9a-fA-F]{7,64}"),
        "link": _first(links, r"https?://[\x21-\x7e]{1,2000}"),
    }
    return {name: value for name, value in stated.items() if value}


def _first(values: list[str], pattern: str) -> str:
    return next((value for value in values if re.fullmatch(pattern, value)), "")
