"""What users of the platform's client register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RegistrationKind(StrEnum):
    """What users of the platform's client register."""

    FAMILY = "family"  # of boards
    ENGINE = "engine"
    BOARD = "board"
    PARAMETER = "parameter"  # of engines
    LAB_BOARD = "lab_board"  # an operator added it to the inventory
    REMOVED_LAB_BOARD = "removed_lab_board"  # an operator removed it from the inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A family, engine, board or parameter that a user registered; boards come from the inventory.

    Attributes:
        name: Unique within its kind; a board's ``target_uid``.
        user_id: The user who registered it.
        body: Its description.
    """

    kind: RegistrationKind
    name: str
    user_id: str
    body: Mapping[str, object]
    created_at: datetime
