"""What holds the product to transactions that are tried again."""

from __future__ import annotations

from pathlib import Path

import edgeyard

TRIED_ONCE = {"scheduler/engine/election.py"}
"""Who leads is looked at again every second: a try that fails needs no other at once."""


def test_the_product_opens_no_transaction_that_is_tried_once() -> None:
    source = Path(edgeyard.__file__).parent.parent.parent
    found = {
        str(path.relative_to(source))
        for folder in ("scheduler", "benchmark_api", "plugins", "simulator", "training", "deploy")
        for path in (source / folder).rglob("*.py")
        if "store.write()" in path.read_text()
    }
    assert found == TRIED_ONCE
