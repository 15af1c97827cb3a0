"""A language model on a real board: submitted, measured, shown, drawn, compared, exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from tests.builders.networks import DEMO

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

JOB: dict[str, Any] = {
    "model": DEMO / "tiny_llama",
    "runtime": "ort-genai",
    "benchmark_type": "GENAI",
    "target_uid": "emumid-0001-0001",
    "user_time": "60 s",
}


def run(*words: str) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return found.output


def test_tokens_per_second_are_the_number_of_a_language_model(
    client: Client, tmp_path: Path
) -> None:
    lengths = {"prompt_length": 16, "output_length": 32}
    done, other = (
        client.submit(
            **JOB, parameters={**lengths, "requests": requests}, wait=True, progress=False
        )
        for requests in (6, 7)
    )
    found = client.results(done)
    primary = found.primary
    assert primary is not None
    assert (primary.metric.name, primary.metric.better) == ("decode_tokens_per_s", "higher")
    row = found.answer.summary
    assert row is not None
    assert (row.primary_metric, row.primary_value) == ("decode_tokens_per_s", primary.value)
    numbers = np.load(found.download("generation.npz", tmp_path / "generation.npz"))
    assert numbers["token_ms"].shape[1] == 31
    shown = " ".join(run("results", done.benchmark_id).split())
    for words in ("decode_tokens_per_s", "higher is better", "time to first token", "of a token"):
        assert words in shown
    compared = json.loads(run("results", done.benchmark_id, other.benchmark_id, "-o", "json"))
    assert {each["primary_metric"] for each in compared} == {"decode_tokens_per_s"}
    listed = json.loads(run("list", "--type", "GENAI", "-o", "json"))
    assert done.benchmark_id in json.dumps(listed)
    assert "ort-genai" in run("hcl", done.benchmark_id)
    (file,) = json.loads(run("show", done.benchmark_id, "-o", "json"))["files"]
    assert (file["role"], file["name"]) == ("language_model", "tiny_llama.zip")


def test_own_tokens_are_inferred_with_the_logits_of_the_next_one(
    client: Client, tmp_path: Path
) -> None:
    inputs = tmp_path / "prompts.npz"
    np.savez(inputs, input_ids=np.array([[1, 2, 3]]))
    job = {**JOB, "benchmark_type": "TYPE1", "dataset": inputs, "keep_outputs": True}
    found = client.results(client.submit(**job, wait=True, progress=False))
    outputs = np.load(found.download("outputs.npz", tmp_path / "outputs.npz"))
    assert any(outputs[name].shape[-1] == 259 for name in outputs.files)


def test_a_prompt_that_is_too_long_is_refused_before_a_board_is_used(client: Client) -> None:
    refused = CliRunner().invoke(
        app,
        [
            *("submit", "--model", str(DEMO / "tiny_llama"), "--runtime", "ort-genai"),
            *("--type", "GENAI", "--target", "emumid", "--parameter", "prompt_length=2000"),
        ],
    )
    assert refused.exit_code == 1, refused.output
    assert "context of 1024" in " ".join(refused.output.split())
