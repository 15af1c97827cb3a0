"""The job description's ``parameters``, as all engines read them.

Imported on boards: only the standard library, Python 3.10.
"""

from __future__ import annotations

from typing import Collection, Mapping, Sequence

from edgeyard.errors import RunFailed


def check_names(parameters: Mapping[str, object], known: Collection[str], engine: str) -> None:
    """Check that an engine has all stated parameters.

    Raises:
        RunFailed: ``user_input``, naming the first that it does not have.
    """
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise bad_parameter(
            unknown[0][:50], f"unknown to engine {engine}, which has {', '.join(sorted(known))}"
        )


def read_threads(parameters: Mapping[str, object], allowed: int) -> int:
    """Return the parameter ``threads``, by default as many as the board allows.

    Raises:
        RunFailed: ``user_input``: it is not a number of threads that the board allows.
    """
    wish = parameters.get("threads", allowed)
    if type(wish) is not int or not 1 <= wish <= allowed:
        raise bad_parameter(
            "threads",
            f"{wish!r} is not a whole number from 1 to {allowed}, the number of threads that the "
            "board allows",
        )
    return wish


def read_choice(
    parameters: Mapping[str, object], name: str, accepted: Sequence[str], default: str
) -> str:
    """Return a parameter that is one of several words.

    Raises:
        RunFailed: ``user_input``: it is none of them.
    """
    wish = parameters.get(name, default)
    if not isinstance(wish, str) or wish not in accepted:
        raise bad_parameter(name, f"{wish!r} is not one of {', '.join(accepted)}")
    return wish


def bad_parameter(name: str, reason: str) -> RunFailed:
    """Return the failure of a parameter whose value an engine does not accept."""
    return RunFailed("user_input", f"parameters/{name}: {reason}")
