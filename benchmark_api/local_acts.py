"""Acts on the server's own machine: by its commands, by a signal, by a file that was changed."""

from __future__ import annotations

import os
import pwd
from datetime import datetime

from edgeyard.scheduler.model.acts import Acting, Door

SIGNAL, FILE = "signal", "file"
"""Names of who acts where the machine does not report which user sent a signal or wrote a file."""

_LOCAL = "local:"
"""Before the name of a user of the machine: no account has a colon in its name."""


def acting_here(kind: str, at: datetime, by: str | None = None, reason: str = "") -> Acting:
    """Return who acts on this machine.

    Args:
        kind: Type of the act.
        at: Now.
        by: `SIGNAL` or `FILE`; None: the user of the machine who runs this process.
        reason: Why, in their words.
    """
    name = _LOCAL + (by or _user_here())
    return Acting(door=Door.SERVER, address="", at=at, kind=kind, user_id=name, reason=reason)


def _user_here() -> str:
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container's user may have no name
        return str(number)
