"""Latencies of real boards: the single-stream ones of MLPerf Inference's edge systems.

From ``mlperf_inference_latency.csv.gz`` (v0.5 to v4.1, MLCommons, Apache-2.0), which is not part of
Edgeyard. Each row is a run: the engine is the framework's family, the board is the system as it was
submitted. One group is all systems with one chip, whatever their threads, power mode, clock or
framework.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
from pathlib import Path

import numpy as np

from benchmarks.examples import Run

TRACES = Path(os.environ.get("EDGEYARD_TRACES") or Path(__file__).parents[2] / "shared" / "traces")
FILE = "mlperf_inference_latency.csv.gz"

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
            group=chip,
            board=board,
            family=chips[chip],
            model=model,
            engine=engine,
            nb_inference=1,
            run_s=float(np.median(found)),
            ram_bytes=shape[chip, board, model, engine, accelerator][1],
            cores=shape[chip, board, model, engine, accelerator][0],
        )
        for (chip, board, model, engine, accelerator), found in sorted(latencies.items())
    ]


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(?:(\d+)x )?\s*([\d.]+)\s*([MGT])i?B?", text.strip())
    if not match:
        return 1 << 30
    count, size, unit = match.groups()
    return int(int(count or 1) * float(size) * {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit])
