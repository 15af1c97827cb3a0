"""Log lines as hclog writes them: JSON on stderr, which Nomad takes apart and logs as its own."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Dict

_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error"}
_MAX_TEXT_CHARS = 4000
"""go-plugin reads lines of up to 64 KiB."""

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class HclogFormatter(logging.Formatter):
    """One JSON object a line; ``extra`` becomes its further keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        at = datetime.fromtimestamp(record.created, timezone.utc)
        entry: Dict[str, object] = {
            "@level": _LEVELS.get(record.levelname, "error"),
            # hclog puts a colon behind it
            "@message": record.getMessage()[:_MAX_TEXT_CHARS].rstrip("."),
            "@module": record.name,
            "@timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        for key, value in vars(record).items():
            if key not in _OWN and value != "":
                plain = isinstance(value, (int, float, bool)) or value is None
                entry[key] = value if plain else str(value)[:_MAX_TEXT_CHARS]
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)[-_MAX_TEXT_CHARS:]
        return json.dumps(entry)
