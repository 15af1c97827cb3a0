"""``python -m tests.fuzz``: both lanes with random numbers, for minutes."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys

from tests.fuzz import readers

REQUESTS = readers.ROOT / "tests" / "fuzz" / "test_api.py"


def main() -> int:
    """Hunt in the readers, then over the API; 0 where nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=1500, help="contents of each reader")
    parser.add_argument("--seed", type=int, help="of the random numbers; default: a new one")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if given.seed is None else given.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    examples = str(given.examples)
    command = [sys.executable, "-m", "tests.fuzz.readers", "--examples", examples]
    found = subprocess.run([*command, "--seed", str(seed)], cwd=readers.ROOT).returncode
    requests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout", "3600", str(REQUESTS)],
        cwd=readers.ROOT,
        env={
            **os.environ,
            "FUZZ_EXAMPLES": str(max(10, given.examples // 50)),
            "FUZZ_SEED": str(seed),
        },
    ).returncode
    return found or requests


if __name__ == "__main__":
    raise SystemExit(main())
