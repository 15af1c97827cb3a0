"""Reading the server's answers as the models of the API."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from edgeyard.benchmark_api.sdk.errors import ApiError

T = TypeVar("T")


def read_answer(answer: object, shape: type[T]) -> T:
    """Return an answer as a model; fields that the model does not know are left out.

    Raises:
        ApiError: It lacks a field, or has one of another type.
    """
    try:
        return msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise ApiError(
            200,
            "unexpected_answer",
            f"the server's answer is not the one of this client's version: {error}",
        ) from error
