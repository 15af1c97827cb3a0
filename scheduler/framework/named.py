"""Policies by the names that commands take: simulations, replays, the test environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.framework.baselines import BASELINES
from edgeyard.scheduler.framework.policy import Policy, built_in_policies, load_policy
from edgeyard.scheduler.framework.registry import Kind, Registry


def is_text(reference: str) -> bool:
    """Return whether a reference means a policy with a text of its own: not a queue policy."""
    return reference in built_in_policies() or reference in BASELINES or Path(reference).exists()


def policy_named(reference: str, known: Registry) -> Policy:
    """Return a policy of Edgeyard, a baseline, one of a TOML file, or a changed ``default``.

    Args:
        reference: A name, a path, or the name of a queue policy, which ``default`` then has.
        known: All plugins.

    Raises:
        InvalidInput: There is no such policy, or its file is wrong.
    """
    try:
        if is_text(reference):
            return load_policy(reference)
    except ConfigError as error:
        raise InvalidInput.at("--policy", "; ".join(error.problems)) from error
    queue_policies = known.names(Kind.QUEUE_POLICY)
    if reference not in queue_policies:
        names = ", ".join(dict.fromkeys((*built_in_policies(), *BASELINES)))
        others = ", ".join(each for each in queue_policies if not is_text(each))
        accepted = f"{names}, a TOML file, or a queue policy: {others}"
        reason = f"{reference!r} is neither a file nor the name of a policy"
        raise InvalidInput.at("--policy", reason, accepted)
    try:
        known.queue_policy(reference)
    except ConfigError as error:
        raise InvalidInput.at("--policy", "; ".join(error.problems)) from error
    return replace(load_policy("default"), name=reference, queue_policy=reference)
