"""The server's log: one line an event, JSON or text, nothing in it that could forge a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_CHARACTERS = 1000
"""Maximum characters of a logged value, so that a user's text can't fill the disk."""


class JsonLines(logging.Formatter):
    """``{"at", "level", "logger", "message", ...extra}``; JSON escapes line breaks."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        entry: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _short(record.getMessage()),
            **{key: _short(value) for key, value in extras(record).items()},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextLines(logging.Formatter):
    """Format a line for people: time, level, message, ``key=value`` of the rest."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of text, followed by its traceback if it has one."""
        at = datetime.fromtimestamp(record.created, UTC)
        rest = " ".join(f"{key}={_plain(value)}" for key, value in extras(record).items())
        line = f"{at:%H:%M:%S} {record.levelname.lower():<7} {_plain(record.getMessage())} {rest}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line.rstrip()


def configure(level: str, form: str) -> None:
    """Send everything to stderr; called once, by the command line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # They tell every job and every request at INFO: not what one tells a colleague.
    for name in ("httpx", "httpcore", "alembic", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns of every broken form, which its sender gets as the answer: anyone could fill the log.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)


def extras(record: logging.LogRecord) -> dict[str, object]:
    """Return the facts that a call gave in addition to its message."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > _MAX_CHARACTERS:
        return value[:_MAX_CHARACTERS] + "…"
    return value


def _plain(value: object) -> str:
    text = str(_short(str(value)))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
