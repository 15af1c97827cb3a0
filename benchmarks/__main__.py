"""``python -m benchmarks [NAME ...]``: measure, print tables, write JSON."""

import importlib
import sys

from benchmarks.tables import publish

NAMES = (
    *("runner", "api", "pages", "upload", "local", "nomad", "render", "decide", "ilp", "forecast"),
    *("sim", "lab-week"),
    "quality",
    "learn",
)
REPEATS = ("repeat-tiny", "repeat-shufflenet", "repeat-squeezenet", "repeat-slow")
SLOW_NAMES = (*REPEATS, "series", "growth", "abuse", "sandbox", "client")
"""These take minutes each."""


def main() -> int:
    """Run those that are named, or all."""
    wanted = sys.argv[1:] or list(NAMES)
    unknown = [name for name in wanted if name not in (*NAMES, *SLOW_NAMES)]
    if unknown:
        print(
            f"no benchmark {unknown[0]!r}; there are: {', '.join((*NAMES, *SLOW_NAMES))}",
            file=sys.stderr,
        )
        return 1
    for name in wanted:
        if name in REPEATS:
            rows = importlib.import_module("benchmarks.bench_repeat").run(name.split("-")[1])
        else:
            rows = importlib.import_module(f"benchmarks.bench_{name.replace('-', '_')}").run()
        publish(name, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
