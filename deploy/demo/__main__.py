"""``python -m deploy.demo``: bring Edgeyard up, submit, wait, report; ends by itself."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Unpack

from rich.console import Console
from rich.table import Table

from deploy.process import Server, start
from edgeyard.benchmark_api.bootstrap import this_machine
from edgeyard.benchmark_api.schemas.job_fields import JobFields
from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.sdk.benchmark import Benchmark
from edgeyard.benchmark_api.sdk.results import Results
from edgeyard.testbed import LoopbackNomad, saved, standing
from edgeyard.testbed.binary import find_nomad

HERE = Path(__file__).parent
RUNS = {"squeezenet": 100, "shufflenet": 100, "resnet50": 40}
"""Inferences by network: enough for a narrow interval, few enough for a demo."""
FAMILIES = {
    "emufast": "2 threads on 2 CPUs",
    "emumid": "1 thread on 1 CPU",
    "emuslow": "2 threads crowded on 1 CPU",
}
HOSTS, BOARDS = 3, 4
"""Hosts of the Nomad test bed, and boards of each family on every host."""
_MARKS = {"comparable": "", "suspect": " ~", "invalid": " !"}

out = Console(width=100 if not sys.stdout.isatty() else None, highlight=False)


def main() -> int:
    """The demo; returns 0 when all checks passed."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=__doc__)
    parser.add_argument("--nomad", action="store_true", help="on a real Nomad, brought up for it")
    parser.add_argument("--quick", action="store_true", help="one network instead of three")
    parser.add_argument("--keep", action="store_true", help="leave it all running")
    parser.add_argument("--data-dir", type=Path, help="where to keep it; default: a new folder")
    given = parser.parse_args()
    data_dir = given.data_dir or Path(tempfile.mkdtemp(prefix="edgeyard-demo-")) / "data"
    began = time.monotonic()
    where = "a real Nomad cluster" if given.nomad else "its embedded cluster"
    out.print(
        f"[bold]Edgeyard demo[/] on {where}, data in {data_dir}\n"
        f"Admin token: {data_dir / 'admin.token'}\n"
    )
    with ExitStack() as started:
        testbed = _start_nomad(data_dir, started) if given.nomad else None
        settings = testbed.folder / saved.SETTINGS if testbed else None
        server = start(data_dir, {"EDGEYARD_CONFIG": str(settings)} if settings else None)
        started.callback(server.end)
        with Client(url=server.url, token=server.token) as client:
            wrong = _run(client, ["squeezenet"] if given.quick else list(RUNS))
        took = time.monotonic() - began
        for sentence in wrong:
            out.print(f"[red]unexpected:[/] {sentence}")
        out.print(f"\nDone in {took:.0f} s." + ("" if wrong else " All checks passed."))
        if given.keep:
            _how_to_go_on(server, data_dir, testbed)
            started.pop_all()
        else:
            out.print("\nNext: `make demo KEEP=1` leaves it all running;")
            out.print("      README.md, 'Your first own benchmark', takes it from there.")
    if not given.keep and given.data_dir is None:
        shutil.rmtree(data_dir.parent, ignore_errors=True)
    return 1 if wrong else 0


def _start_nomad(data_dir: Path, started: ExitStack) -> LoopbackNomad:
    """Make a test bed next to the data folder, with the embedded cluster's boards on each host."""
    folder = data_dir.with_name(f"{data_dir.name}-nomad")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    testbed = standing.new(folder, find_nomad(), HOSTS, BOARDS, this_machine())
    started.callback(standing.end, testbed)
    standing.start(testbed, lambda sentence: out.print(f"  {sentence}", style="dim"))
    out.print(
        f"Nomad's UI: {testbed.address}/ui/jobs?namespace={testbed.namespace}\n"
        f"its token:  {folder / saved.TOKEN}\n"
    )
    return testbed


def _run(client: Client, networks: Sequence[str]) -> list[str]:
    """Submit everything at once, let the queue sort it out, then report; what was wrong."""
    import onnx

    light = Path(onnx.__file__).parent / "backend/test/data/light"

    def submit(model: Path, kind: str, family: str, **fields: Unpack[JobFields]) -> Benchmark:
        fields["tags"] = ["demo"]
        return client.submit(
            model=model, runtime="ort", benchmark_type=kind, target=family, **fields
        )

    latency = {
        (network, family): submit(
            light / f"light_{network}.onnx", "TYPE1", family, nb_inference=RUNS[network]
        )
        for network in networks
        for family in FAMILIES
    }
    accuracy = submit(HERE / "digits.onnx", "TYPE2", "emumid", dataset=HERE / "digits_test.npz")
    training = submit(
        HERE / "digits_new_head.onnx",
        "TYPE3",
        "emufast",
        dataset=HERE / "digits_train.npz",
        odt_config={"epochs": 5, "batch_size": 32, "learning_rate": 0.1, "seed": 1},
    )
    with tempfile.TemporaryDirectory() as folder:
        broken_file = Path(folder) / "broken.onnx"
        # A server refuses what is no model at once; an operator that nobody has fails on the board.
        good = (light / "light_squeezenet.onnx").read_bytes()
        broken_file.write_bytes(good.replace(b"\x07MaxPool", b"\x07NoSuch_"))
        broken = submit(broken_file, "TYPE1", "emumid")
    offline = submit(light / "light_squeezenet.onnx", "TYPE1", "rpi4b")
    awaited = [*latency.values(), accuracy, training, broken]
    out.print(
        f"{len(awaited) + 1} benchmarks submitted over HTTP; boards that share a CPU never measure "
        "at the same time.\n"
    )
    view = None if sys.stderr.isatty() else _Ends()
    client.wait(awaited, timeout=600, check=False, view=view)
    out.print()
    return [
        *_report_latency(client, latency),
        *_report_accuracy(client, accuracy),
        *_report_training(client, training),
        *_report_failure(client, broken),
        *_report_waiting(client, offline),
    ]


class _Ends:
    """Show progress in a log: one line for each benchmark that has ended."""

    def __init__(self) -> None:
        self._ended: set[str] = set()

    def update(self, benchmarks: Sequence[Benchmark]) -> None:
        """One line more for each that is new at its end."""
        for benchmark in benchmarks:
            if benchmark.ended and benchmark.benchmark_id not in self._ended:
                self._ended.add(benchmark.benchmark_id)
                out.print(
                    f"  {len(self._ended):>2}/{len(benchmarks)} {benchmark.status:<9} "
                    f"{benchmark.target_uid}  [dim]{benchmark.benchmark_id}[/]"
                )

    def note(self, sentence: str) -> None:
        """A remark."""
        out.print(f"  {sentence}")

    def __enter__(self) -> _Ends:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _report_latency(client: Client, submitted: Mapping[tuple[str, str], Benchmark]) -> list[str]:
    table = Table(title="TYPE1: median latency in ms (smaller is faster)", min_width=76)
    table.add_column("network")
    for family, how in FAMILIES.items():
        table.add_column(f"{family}\n[dim]{how}[/]", justify="right")
    wrong: list[str] = []
    notes: dict[str, None] = {}
    for network in dict.fromkeys(network for network, _ in submitted):
        cells = []
        for family in FAMILIES:
            found = client.results(submitted[network, family])
            if found.latency is None or found.latency.p50_ms is None:
                wrong.append(f"{network} on {family} is {found.status}")
                cells.append(found.status)
                continue
            verdict = found.verdict.verdict if found.verdict else "invalid"
            cells.append(f"{found.latency.p50_ms:.2f}{_MARKS[verdict]}")
            if found.verdict and verdict != "comparable":
                notes |= dict.fromkeys(reason.sentence for reason in found.verdict.reasons)
        table.add_row(network, *cells)
    out.print(table)
    out.print(
        "Boards are [bold]emulated[/]: slices of this machine by threads and CPU affinity; every "
        "number is measured.\n~ suspect, ! invalid: how far to trust the number"
        + (":" if notes else ".")
    )
    for note in list(notes)[:4]:
        out.print(f"  {note}")
    out.print()
    return wrong


def _report_accuracy(client: Client, submitted: Benchmark) -> list[str]:
    found = client.results(submitted)
    if found.accuracy is None:
        return [f"the TYPE2 benchmark is {found.status}: {_why(client, submitted)}"]
    out.print(
        f"TYPE2: [bold]{found.accuracy:.1%}[/] of {_rows(found)} handwritten digits recognised by "
        f"digits.onnx ({_p50(found)} each) on {client.benchmark(submitted).target_uid}\n"
    )
    return [] if found.accuracy > 0.8 else [f"an accuracy of {found.accuracy:.1%} is too low"]


def _report_training(client: Client, submitted: Benchmark) -> list[str]:
    found = client.results(submitted)
    training = found.report.get("training")
    losses = training.get("epoch_losses") if isinstance(training, Mapping) else None
    if not isinstance(losses, Sequence) or not losses:
        return [f"the TYPE3 benchmark is {found.status}: {_why(client, submitted)}"]
    curve = " → ".join(f"{float(loss):.3f}" for loss in losses)
    trained = training.get("trained") if isinstance(training, Mapping) else ""
    out.print(f"TYPE3: on-device training ({trained}), loss by epoch {curve}")
    files = ", ".join(file.name for file in found.files)
    out.print(f"       uploaded: {files}\n")
    return [] if losses[-1] < losses[0] else ["the training loss did not fall"]


def _report_failure(client: Client, submitted: Benchmark) -> list[str]:
    shown = client.benchmark(submitted)
    if shown.status != "failed" or shown.failure is None:
        return [f"the broken model is {shown.status}, not failed"]
    out.print("A broken model [red]failed[/], and says why:")
    out.print(f"       {shown.failure.category}: {shown.failure.sentence}\n")
    is_known = shown.failure.category == "engine_unsupported"
    return [] if is_known else [f"its failure is {shown.failure.category}"]


def _report_waiting(client: Client, submitted: Benchmark) -> list[str]:
    shown = client.benchmark(submitted)
    if shown.status != "pending" or shown.waiting_reason is None:
        return [f"the benchmark for the offline board is {shown.status}, not waiting"]
    out.print("A benchmark for a board that is offline [yellow]waits[/], and says why:")
    out.print(f"       {shown.waiting_reason.code}: {shown.waiting_reason.sentence}")
    return [] if shown.waiting_reason.code == "board_offline" else ["it does not say offline"]


def _why(client: Client, submitted: Benchmark) -> str:
    failure = client.benchmark(submitted).failure
    return failure.sentence if failure else "no reason given"


def _rows(found: Results) -> str:
    accuracy = found.report.get("accuracy")
    return str(accuracy.get("rows", "the")) if isinstance(accuracy, Mapping) else "the"


def _p50(found: Results) -> str:
    return f"{found.latency.p50_ms:.3f} ms" if found.latency and found.latency.p50_ms else "- ms"


def _how_to_go_on(server: Server, data_dir: Path, testbed: LoopbackNomad | None) -> None:
    out.print(f"\nThe server runs on at [bold]{server.url}[/] (process {server.process.pid}).")
    if link := _link_of(data_dir):
        out.print(f"  in a browser      {link}", soft_wrap=True)
        out.print("                    (once, for 10 minutes; later /ui with the admin token)")
    out.print(f"  its admin token   {data_dir / 'admin.token'}")
    out.print(f"  API documentation {server.url}/docs")
    out.print("  try\n")
    out.print(f"    export EDGEYARD_URL={server.url}")
    out.print(f"    export EDGEYARD_TOKEN=$(cat {data_dir / 'admin.token'})")
    out.print("    .venv/bin/edgeyard list")
    out.print("    .venv/bin/edgeyard boards list")
    out.print("    .venv/bin/edgeyard results --tag demo")
    out.print(f"    kill {server.process.pid}      # when you are done")
    if testbed:
        out.print(f"    .venv/bin/edgeyard testbed down --folder {testbed.folder}")
    out.print()


def _link_of(data_dir: Path) -> str:
    """Return the link that the server has printed to sign its admin in; "": none."""
    log = data_dir.with_name(f"{data_dir.name}.log").read_text(errors="replace")
    found = re.search(r"^Open (\S+) to sign in", log, re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    raise SystemExit(main())
