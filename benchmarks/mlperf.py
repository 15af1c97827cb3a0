"""``python -m benchmarks.mlperf [--traces FOLDER]``: the same model on latencies of real boards.

Reads the single-stream latencies of MLPerf Inference's edge systems (v0.5 to v4.1, MLCommons,
Apache-2.0) from ``mlperf_inference_latency.csv.gz``, which is not part of Edgeyard. Each row is a
run: the engine is the framework's family, the board is the system as it was submitted. Whole boards
are held out: all systems with one chip, whatever their threads, power mode, clock or framework.
Nothing that was trained here is shipped.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.examples import Run, examples
from benchmarks.judge import Fold, JudgmentRow, pinball_and_mape
from benchmarks.train import COLUMNS, fit_run_time, inputs_for, seen
from edgeyard.scheduler.learning.features import normalise
from edgeyard.scheduler.learning.network import QUANTILES

TRACES = Path(__file__).parents[2] / "shared" / "traces"
FILE = "mlperf_inference_latency.csv.gz"
FOLDS = 5

_CHIPS = (
    ("xavier", r"carmel|xavier"),
    ("orin", r"orin|a78|armv8 processor rev 1"),
    ("rk3588", r"rk3588"),
    ("rk3399", r"a72 mp2"),
    ("s922x", r"s922x"),
    ("a311d2", r"a311d2"),
    ("kirin", r"a73 mp4"),
    ("bcm2711", r"bcm2835|a72 mp4"),
    ("bcm2837", r"bcm2837"),
    ("m1", r"apple m1|macbookpro18"),
    ("cloud ai 100", r"cloud ai 100"),
    ("a100", r"a100"),
    ("h100", r"h100"),
    ("a30", r"nvidia a30"),
    ("a10", r"nvidia a10\b"),
    ("a2", r"nvidia a2\b"),
    ("a40", r"nvidia a40"),
    ("t4", r"\bt4\b"),
    ("l4", r"nvidia l4\b"),
    ("a5000", r"a5000"),
    ("speedai", r"speedai"),
    ("warboy", r"warboy"),
    ("alveo u250", r"alveo u250"),
    ("dna-f200", r"dna-f200"),
    ("centaur", r"centaur"),
    ("graviton 1", r"^cortex-a72"),
    ("neoverse", r"neoverse"),
)
"""Chips that several processor and accelerator names mean; the first that is found counts."""


def chip_of(processor: str, accelerator: str) -> str:
    """What is held out together."""
    text = f"{processor} {accelerator}".lower()
    for name, pattern in _CHIPS:
        if re.search(pattern, text):
            return name
    own = accelerator if accelerator not in ("", "-", "N/A") else processor
    return re.sub(r"\(r\)|\(tm\)|@.*|cpu|\d+-core|processor|\s+", " ", own.lower()).strip()


def read_runs(folder: Path) -> list[Run]:
    """One run a system, model and framework: the median of those that were submitted.

    Left out: rows whose folder names another board than their processor (``odroid`` with NVIDIA
    Carmel, ``rpi3`` with Cortex-A72), and rows without either.
    """
    with gzip.open(folder / FILE, "rt", newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["scenario"] == "singlestream"]
    latencies: dict[tuple[str, ...], list[float]] = {}
    shape: dict[tuple[str, ...], tuple[int | None, int]] = {}
    for line in lines:
        processor, system = line["processor"], line["system"]
        if not (processor or line["accel"].strip("-")):
            continue
        if ("odroid" in system and "Carmel" in processor) or (
            "rpi3" in system and "A72" in processor
        ):
            continue
        engine = re.match(r"[A-Za-z]*", line["framework"])
        key = (
            chip_of(processor, line["accel"]),
            f"{line['submitter']}/{system}",
            line["model"],
            (engine.group() if engine else "").lower() or "other",
            line["accel"],
        )
        if line["lat_p50_ns"]:
            latencies.setdefault(key, []).append(float(line["lat_p50_ns"]) / 1e9)
            shape[key] = (_whole(line["cores"]), _bytes(line["mem"]))
    chips = {chip: f"c{index}" for index, chip in enumerate(sorted({key[0] for key in latencies}))}
    return [
        Run(
            system=chip,
            board=board,
            family=chips[chip],
            model=model,
            engine=engine,
            variant="",
            nb_inference=1,
            run_s=float(np.median(found)),
            ram_bytes=shape[chip, board, model, engine, accelerator][1],
            threads=shape[chip, board, model, engine, accelerator][0],
        )
        for (chip, board, model, engine, accelerator), found in sorted(latencies.items())
    ]


def judge(runs: Sequence[Run], folds: int = FOLDS, seed: int = 0) -> list[JudgmentRow]:
    """On boards that were never seen, next to the median of the model and the plain history."""
    systems = np.random.default_rng(seed).permutation(sorted({run.system for run in runs}))
    found: list[Fold] = []
    for fold in range(folds):
        held = set(systems[fold::folds].tolist())
        past = [run for run in runs if run.system not in held]
        mine = [run for run in runs if run.system in held]
        rows = seen(past, seed)
        inputs = inputs_for(rows.values)
        network = fit_run_time(rows, inputs)
        tested = examples(mine, past, COLUMNS, QUANTILES)
        x = normalise(tested.values, inputs).astype(np.float64)
        plain = examples(past, [], COLUMNS, QUANTILES)
        found.append((tested, network.predict(x), np.zeros(len(tested)), plain))
    return pinball_and_mape("new boards", found, QUANTILES)


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(?:(\d+)x )?\s*([\d.]+)\s*([MGT])i?B?", text.strip())
    if not match:
        return 1 << 30
    count, size, unit = match.groups()
    return int(int(count or 1) * float(size) * {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES)
    wanted = parser.parse_args()
    if not (wanted.traces / FILE).is_file():
        print(f"{wanted.traces / FILE} is not there; name its folder with --traces")
        return 2
    runs = read_runs(wanted.traces)
    chips = {run.system for run in runs}
    models = {run.model for run in runs}
    print(f"{len(runs)} runs, {len(chips)} boards, {len(models)} models")
    for each in judge(runs):
        print(f"| {each.row()} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
