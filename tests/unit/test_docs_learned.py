"""What the docs say of the policy `learned` is what is in it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from edgeyard.scheduler.framework.policy import load_policy

ROOT = Path(__file__).parents[2]
WORDS = {1: "one", 2: "two", 3: "three", 4: "four"}


@pytest.mark.parametrize("page", ["docs/how-to/ste.md", "docs/explanation/ste-round.md"])
def test_pages_count_the_schedulers_of_the_policy_learned(page: str) -> None:
    kinds = Counter(
        "model" if each.name.endswith("_model") else each.name.partition("_")[0]
        for each in load_policy("learned").scorers
    )
    assert sum(kinds.values()) == kinds["model"] + kinds["ilp"] + 1
    text = " ".join((ROOT / page).read_text().split())
    models, programmes = WORDS[kinds["model"]], WORDS[kinds["ilp"]]
    assert f"{models} predictions from past runs, {programmes} integer programmes" in text
