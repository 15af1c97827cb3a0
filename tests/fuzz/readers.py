"""``python -m tests.fuzz.readers``: every reader of foreign bytes under attack, in this process.

A reader may return or raise its documented errors. Anything else is a finding: another error, too
much time or memory, a file outside of the work folder, a connection, a program that is started.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from starlette.requests import Request

from edgeyard.benchmark_api.fetch import AddressRules
from edgeyard.benchmark_api.figures.runs import read_latencies
from edgeyard.benchmark_api.problems import BadRequest
from edgeyard.benchmark_api.routes.receiving import receive_form
from edgeyard.benchmark_api.schemas.answers import Results
from edgeyard.benchmark_api.schemas.body import WrongMediaType, read_document, read_json
from edgeyard.benchmark_api.schemas.description import parse_description, to_description
from edgeyard.benchmark_api.schemas.requests import CampaignIn, ProgressIn, UserIn, parse
from edgeyard.benchmark_api.sdk.answers import read_answer
from edgeyard.benchmark_api.sdk.errors import ApiError
from edgeyard.benchmark_api.sdk.model_folder import packed
from edgeyard.benchmark_api.sdk.results import results_of
from edgeyard.devices.constraints import compare, constraint_problem
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.operators import OPERATORS
from edgeyard.devices.runner import onnx_file, onnx_head
from edgeyard.devices.runner.arrays import headers_of
from edgeyard.devices.runner.dataset import open_dataset
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.genai_folder import open_genai
from edgeyard.devices.runner.inference import open_inputs
from edgeyard.devices.runner.model_archive import IR, PARAM, open_archive
from edgeyard.devices.runner.ncnn_param import read_param
from edgeyard.devices.runner.openvino_ir import read_ir
from edgeyard.devices.runner.preprocessing import parse_preprocessing
from edgeyard.devices.runner.spec import read_spec
from edgeyard.devices.runner.tflite_file import tflite_inputs
from edgeyard.devices.runner.training import parse_config
from edgeyard.devices.sizes import parse_size
from edgeyard.errors import (
    ConfigError,
    EdgeyardError,
    HclError,
    InvalidInput,
    RunFailed,
    TooLarge,
    Unavailable,
    UrlRefused,
)
from edgeyard.scheduler.clusters.nomad import allocations
from edgeyard.scheduler.clusters.nomad.nodes import NodeReader, devices_of, hosts_of
from edgeyard.scheduler.engine.crontab import next_fire
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.framework.policy import parse_policy, read_policy
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.learning.manifest import parse_manifest
from edgeyard.scheduler.model.quantities import duration_s, ratio
from edgeyard.scheduler.model.wire import description_from_json, description_to_json
from edgeyard.simulator.importers.machines import Selection
from edgeyard.training.importers.alibaba import import_alibaba
from edgeyard.training.importers.supercloud import import_supercloud
from edgeyard.training.ste.training import new_model
from tests.builders import answers, nomad
from tests.builders.hcl import PLATFORM_SETTINGS, a_request
from tests.builders.networks import DEMO, gemm
from tests.fuzz.mutations import contents

ROOT = Path(__file__).parents[2]
MAX_CPU_S = 3.0
"""Of one call; none should need a tenth of it."""
MAX_GROWTH_BYTES = 512 * 2**20
MAX_ADDRESS_SPACE_BYTES = 6 * 2**30
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What reads bytes of others.

    Attributes:
        read: Takes the bytes and the work folder.
        errors: What it may raise.
        tree: Whether the seeds are JSON.
    """

    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes, Path], object]
    errors: tuple[type[Exception], ...]
    tree: bool = False


def _file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _json(*values: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(each).encode() for each in values)


def _loaded(content: bytes) -> Any:
    """A value as a decoder of JSON gives it, which is how Nomad's client reads answers."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _onnx(content: bytes, folder: Path) -> None:
    path = _file(folder, "model.onnx", content)
    onnx_file.inspect(content)
    onnx_file.inspect(path)
    onnx_file.inputs_of(path)
    head = onnx_head.find_head(path)
    onnx_head.cut(path, head)


@cache
def _onnx_seeds() -> Sequence[bytes]:
    return ((DEMO / "digits.onnx").read_bytes(), gemm().SerializeToString())


def _latencies_seeds() -> Sequence[bytes]:
    data = io.BytesIO()
    np.save(data, np.array([1.5, 2.5, 3.5]))
    return (data.getvalue(),)


def _latencies(content: bytes, folder: Path) -> None:
    read_latencies(io.BytesIO(content))


def _tflite(content: bytes, folder: Path) -> None:
    from edgeyard.devices.runner.engines.tflite_variables import TrainableFile

    tflite_inputs(_file(folder, "model.tflite", content))
    TrainableFile(content).readable()


def _tflite_seeds() -> Sequence[bytes]:
    data = ROOT / "tests" / "data"
    return (
        (DEMO / "digits_trainable.tflite").read_bytes(),
        (data / "trainable_fixed.tflite").read_bytes(),
        (data / "train_without_infer.tflite").read_bytes(),
    )


_VECTOR = TensorSpec(name="x", dtype="float32", shape=(None, 4))
_PICTURE = TensorSpec(name="x", dtype="float32", shape=(None, 8, 8, 3))


def _arrays(content: bytes, folder: Path) -> None:
    data = open_dataset(_file(folder, "data.npz", content), [_VECTOR], None)
    data.batch(0, min(4, data.rows))


def _arrays_seeds() -> Sequence[bytes]:
    found = []
    for save in (np.savez, np.savez_compressed):
        out = io.BytesIO()
        save(out, x=np.ones((6, 4), np.float32), y=np.arange(6))
        found.append(out.getvalue())
    return found


def _own_inputs(content: bytes, folder: Path) -> None:
    path = _file(folder, "inputs.npz", content)
    headers_of(path)
    open_inputs(path, [_VECTOR], None)


def _own_inputs_seeds() -> Sequence[bytes]:
    out = io.BytesIO()
    np.savez(out, **{"a/x": np.ones((6, 4), np.float32), "b/x": np.ones((1, 4), np.float32)})  # type: ignore[arg-type]
    return [out.getvalue()]


def _model_archive(content: bytes, folder: Path) -> None:
    whole = open_archive(_file(folder, "model.zip", content))
    onnx_file.inspect(whole.model, whole.data)
    onnx_file.inputs_of(whole.model)


def _model_archive_seeds() -> Sequence[bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("net.onnx", gemm().SerializeToString())
        archive.writestr("net.data", b"x" * 64)
    return [out.getvalue()]


def _pair(name: str) -> Sequence[bytes]:
    return ((DEMO / name).read_bytes(),)


def _pair_archive(content: bytes, folder: Path) -> None:
    whole = open_archive(_file(folder, "model.zip", content), (IR, PARAM))
    whole.weights()


def _pair_archive_seeds() -> Sequence[bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("net.param", (DEMO / "digits.ncnn.param").read_bytes())
        archive.writestr("net.bin", b"x" * 64)
    return [out.getvalue()]


def _genai_seeds() -> Sequence[bytes]:
    return ((DEMO / "tiny_llama/genai_config.json").read_bytes(),)


def _genai_config(content: bytes, folder: Path) -> None:
    """Mutate the configuration alone: the archive's directory would stop everything else."""
    path = folder / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("genai_config.json", content)
        archive.write(DEMO / "tiny_llama/model.onnx", "model.onnx")
        archive.write(DEMO / "tiny_llama/model.onnx.data", "model.onnx.data")
    open_genai(path)


def _images(content: bytes, folder: Path) -> None:
    data = open_dataset(_file(folder, "data.zip", content), [_PICTURE], None)
    data.batch(0, min(4, data.rows))


def _picture(content: bytes, folder: Path) -> None:
    """Mutate the picture alone: the archive's checksums would stop everything else."""
    for suffix in (".png", ".tif"):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr(f"0/a{suffix}", content)
        _images(out.getvalue(), folder)


@cache
def _picture_seeds() -> Sequence[bytes]:
    from PIL import Image

    found = []
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF"):
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, kind)
        found.append(out.getvalue())
    found.append(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(/etc/passwd) (r) file\n")
    return found


@cache
def _images_seeds() -> Sequence[bytes]:
    found = []
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", compression) as archive:
            for number, picture in enumerate(_picture_seeds()[:3]):
                archive.writestr(f"{number}/a.png", picture)
            archive.writestr("dataset.json", '{"labels": {"0": 0, "1": 1, "2": 2}}')
        found.append(out.getvalue())
    return found


DESCRIPTION: Mapping[str, object] = {
    "model": "net.onnx",
    "runtime": "ort",
    "benchmark_type": "TYPE1",
    "target": "rpi4b",
    "ram": "4 GiB",
    "storage": 1024,
    "user_time": "15 min",
    "deadline": "2030-01-01T00:00:00Z",
    "constraints": [{"attribute": "memory.ram", "operator": "regexp", "value": "^(a|b)*$"}],
    "parameters": {"threads": 2},
    "input": {"x": {"shape": [1, 3], "low": 0, "high": 1.5}},
    "tags": ["nightly"],
    "cron": None,
    "extra": {"a": [1, 2, {"b": None}]},
    "odt_config": {"epochs": 1},
    "precision": "2 %",
}


def _document(content: bytes, folder: Path) -> None:
    for kind in ("application/json", "application/yaml"):
        try:
            asked = to_description(parse_description(read_document(content, kind)))
        except (InvalidInput, WrongMediaType):
            continue
        # What is taken can be kept, and is the same after it was read again.
        assert description_from_json(json.loads(json.dumps(description_to_json(asked)))) == asked
        for each in asked.constraints:
            constraint_problem(each.attribute, each.operator, each.value)
        job = a_request(description=asked)
        try:
            text = render(build_job(job, PLATFORM_SETTINGS))
        except HclError:
            continue
        parse_job(text)


def _document_seeds() -> Sequence[bytes]:
    import yaml

    return (*_json(DESCRIPTION), yaml.safe_dump(dict(DESCRIPTION)).encode())


def _bodies(content: bytes, folder: Path) -> None:
    tree = read_json(content)
    if isinstance(tree, dict):
        for shape in (ProgressIn, UserIn, CampaignIn):
            try:
                parse(shape, tree)
            except InvalidInput:
                continue


def _supercloud(content: bytes, folder: Path) -> None:
    import_supercloud(_file(folder, "jobs.csv", content), Selection(name="x", drop_large=True))


def _supercloud_seeds() -> Sequence[bytes]:
    return (
        b"job_id,cpus_req,mem_req,time_run\n74426695482326,5,15360,415\n",
        b"id_job,nodes_alloc,cpus_req,mem_req,time_submit,time_start,time_end,tres_req\n"
        b'7,2,80,1000,50,60,160,"1=80,1002=4"\n8,1,4,9223372036854775908,40,45,50,"1=4"\n',
    )


def _alibaba(content: bytes, folder: Path) -> None:
    nodes = _file(folder, "nodes.csv", b"sn,cpu_milli,memory_mib,gpu,model\na,32000,1000,2,T4\n")
    import_alibaba(_file(folder, "pods.csv", content), Selection(name="x"), nodes=nodes)


def _alibaba_seeds() -> Sequence[bytes]:
    return (
        b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,"
        b"scheduled_time\np1,1500,10,1,250,T4,100,300,200\np2,1000,10,0,0,,100,300,\n",
    )


def _hcl(content: bytes, folder: Path) -> None:
    parse_job(content.decode("utf-8", "replace"))


def _hcl_seeds() -> Sequence[bytes]:
    return (render(build_job(a_request(), PLATFORM_SETTINGS)).encode(),)


def _form(content: bytes, folder: Path) -> None:
    """The first line is the Content-Type."""
    kind, _, body = content.partition(b"\n")
    parts = [body[at : at + 1000] for at in range(0, len(body), 1000)]

    async def receive() -> dict[str, object]:
        part = parts.pop(0) if parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    headers = [(b"content-type", kind)]
    scope = {"type": "http", "method": "POST", "headers": headers, "path": "/", "query_string": b""}
    files = ContentFiles(folder / "files")
    received = asyncio.run(
        receive_form(Request(scope, receive), files, 2**20, "result_limit_bytes")
    )
    for each in received:
        assert "/" not in each.name
        assert not each.name.startswith(".")
        assert files.path(each.stored.sha256).stat().st_size == each.stored.size_bytes


def _form_seeds() -> Sequence[bytes]:
    part = (
        'multipart/form-data; boundary=b\n--b\r\nContent-Disposition: form-data; name="file"; '
        'filename="{}"\r\nContent-Type: x/y\r\n\r\ncontent\r\n--b--\r\n'
    )
    names = (
        "a.onnx",
        "../../etc/passwd",
        "a\\..\\b",
        "%2e%2e%2fx",
        "\u202ex",
        ".hidden",
        "a" * 300,
    )
    return tuple(part.format(name).encode() for name in names)


def _inventory(content: bytes, folder: Path) -> None:
    Inventory.from_file(_file(folder, "target.json", content))


def _inventory_seeds() -> Sequence[bytes]:
    board = {
        "target_uid": "rpi4b-0001-0001",
        "memory": {"ram": "4GB", "storage": "32GB"},
        "engines": {"ort": {"version": "1.2", "device": [], "supported_types": ["TYPE1"]}},
        "ssh": {"host": "10.0.0.1", "port": 22, "user": "pi"},
        "hooks": [],
    }
    local = {key: value for key, value in board.items() if key != "ssh"} | {"local": {"cpus": [0]}}
    return _json({"rpi4b": [board]}, {"rpi4b": [local]})


def _policy(content: bytes, folder: Path) -> None:
    parse_policy(content.decode("utf-8", "replace"))


def _manifest(content: bytes, folder: Path) -> None:
    parse_manifest(content.decode("utf-8", "replace"))


def _manifest_seeds() -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return (new_model("mine", Path(folder)).read_bytes(),)


_DEVICE = "daiedge/edgedevice"


def _nodes(content: bytes, folder: Path) -> None:
    for host in NodeReader(_DEVICE).hosts(content):
        for board in host.boards:
            json.dumps([board.target_uid, board.ram_bytes, dict(board.attributes)]).encode()
            for attribute in board.attributes.values():
                for operator in OPERATORS:
                    compare(attribute, operator, "4 GiB")
    nodes = _loaded(content)
    if isinstance(nodes, list):
        hosts_of(nodes, _DEVICE)


def _nodes_seeds() -> Sequence[bytes]:
    return _json(
        [
            {
                "ID": "n1",
                "Name": "pi-host",
                "Status": "ready",
                "Drain": False,
                "SchedulingEligibility": "eligible",
                "NodeResources": {
                    "Devices": [
                        {
                            "Vendor": "daiedge",
                            "Type": "edgedevice",
                            "Attributes": {
                                "target_uid": {"String": "rpi4b-0001-0001"},
                                "family": {"String": "rpi4b"},
                                "engines": {"String": "ort"},
                                "engine.ort.supported_types": {"String": "TYPE1,TYPE2"},
                                "memory.ram": {"Int": 4294967296},
                                "memory.storage": {"Int": 32000000000},
                                "dynamic.progress": {"Float": 50.5},
                                "x": {"Int": 5, "Unit": "GiB"},
                            },
                            "Instances": [{"ID": "rpi4b-0001-0001", "Healthy": True}],
                        }
                    ]
                },
            }
        ]
    )


def _allocation(content: bytes, folder: Path) -> None:
    reported = _loaded(content)
    if not isinstance(reported, dict):
        return
    state = allocations.of_run("job", reported, _DEVICE)
    placed_at = allocations.placed_at_of(reported)
    for offset_s in (None, 0.0, 1e6):
        moved = allocations.by_our_clock(state, offset_s, placed_at, NOON)
        json.dumps([moved.reason, moved.failure and moved.failure.sentence]).encode()
    allocations.of_no_run("job", reported)
    allocations.placement_problem(reported)
    allocations.first_of([reported, reported])
    devices_of(reported, "daiedge", "edgedevice")


def _allocation_seeds() -> Sequence[bytes]:
    metric = {
        "NodesAvailable": {"dc1": 0},
        "ConstraintFiltered": {"missing devices": 2, "${attr.x} = y": 1},
        "DimensionExhausted": {"devices: x": 1, "memory": 3},
        "QuotaExhausted": ["cpu"],
    }
    return _json(
        nomad.allocation(),
        nomad.allocation("running"),
        nomad.allocation("failed", nomad.terminated(137, 9, oom=True)),
        nomad.allocation("lost"),
        nomad.allocation("failed", nomad.event("Failed Artifact Download", "x: GET http://y/z")),
        nomad.allocation("failed", nomad.event("Driver Failure", "no image"), started=False),
        {"FailedTGAllocs": {"group": metric}, "Status": "dead"},
    )


def _results(content: bytes, folder: Path) -> None:
    reported = _loaded(content)
    found = results_of(read_answer(reported, Results), lambda *_: Path())
    repr((found.latency, found.verdict, found.accuracy))


def _results_seeds() -> Sequence[bytes]:
    return _json(answers.results())


def _spec(content: bytes, folder: Path) -> None:
    (folder / "local").mkdir(exist_ok=True)
    for place in (folder, folder / "local"):
        _file(place, "spec.json", content)
    environment = {"NOMAD_TASK_DIR": str(folder / "local"), "RUNTIME": "ort", "MODEL_FILENAME": "m"}
    read_spec(environment)


def _spec_seeds() -> Sequence[bytes]:
    return _json(
        {
            "engine": "ort",
            "benchmark_type": "TYPE1",
            "model": {"filename": "net.onnx", "sha256": "ab" * 32},
            "datasets": [{"filename": "d.npz"}],
            "nb_inference": 20,
            "precision": 0.02,
            "input": {"x": {"shape": [1, 3]}},
            "parameters": {"threads": 1},
            "user_time_s": 900,
            "upload_url": "http://10.0.0.1:42777/upload/x/",
            "attempt": 1,
        }
    )


def _settings(content: bytes, folder: Path) -> None:
    tree = _loaded(content)
    for read in (parse_config, parse_preprocessing):
        try:
            read(tree)
        except RunFailed:
            continue


def _settings_seeds() -> Sequence[bytes]:
    return _json(
        {"epochs": 2, "batch_size": 8, "learning_rate": 0.1, "validation_split": 0.2, "seed": 1},
        {
            "resize": [8, 8],
            "scale": 0.01,
            "mean": [0.5, 0.5, 0.5],
            "std": 1,
            "layout": "NHWC",
            "labels": {"cat": 0},
            "top_k": [1, 5],
        },
    )


def _url(content: bytes, folder: Path) -> None:
    text = content.decode("utf-8", "replace")
    with contextlib.suppress(UrlRefused):
        AddressRules(["10.0.0.0/8", "*.lab"]).check(text)
    rules = AddressRules()
    target = rules.check(text, "/model_url")
    for answer in ("127.0.0.1", "::ffff:10.0.0.1", "::1", "169.254.169.254", "8.8.8.8"):
        try:
            found = rules.addresses(target, partial(_resolved, answer))
        except UrlRefused:
            continue
        assert all(each.is_global for each in found), (text, found)


def _resolved(answer: str, host: str, port: int) -> Sequence[str]:
    return [answer]


def _url_seeds() -> Sequence[bytes]:
    return (
        b"https://example.org:8443/a/b.onnx?x=1#y",
        b"http://user:pass@10.0.0.1/x",
        b"http://[::ffff:127.0.0.1]:8080/x",
        "http://bücher.example/ü".encode(),
        b"http://0x7f.1/",
        b"http://a.lab:99999/",
    )


def _cron(content: bytes, folder: Path) -> None:
    next_fire(content.decode("utf-8", "replace")[:256], NOON)


def _constraint(content: bytes, folder: Path) -> None:
    text = content.decode("utf-8", "replace")[:256]
    for operator in OPERATORS:
        if constraint_problem("memory.ram", operator, text) is None:
            for value in ("rpi4b-0001-0001", "a" * 256, 4 * 2**30, 1.5, True, None):
                compare(value, operator, text)


def _quantity(content: bytes, folder: Path) -> None:
    text = content.decode("utf-8", "replace")
    for read in (parse_size, duration_s, ratio):
        try:
            read(text)
        except ValueError:
            continue


_NOTHING: tuple[type[Exception], ...] = ()

READERS: Mapping[str, Reader] = {
    "onnx": Reader(seeds=_onnx_seeds, read=_onnx, errors=(RunFailed,)),
    "tflite": Reader(seeds=_tflite_seeds, read=_tflite, errors=(RunFailed,)),
    "latencies": Reader(seeds=_latencies_seeds, read=_latencies, errors=()),
    "npz": Reader(seeds=_arrays_seeds, read=_arrays, errors=(RunFailed,)),
    "own inputs": Reader(seeds=_own_inputs_seeds, read=_own_inputs, errors=(RunFailed,)),
    "model archive": Reader(seeds=_model_archive_seeds, read=_model_archive, errors=(RunFailed,)),
    "model and weights": Reader(seeds=_pair_archive_seeds, read=_pair_archive, errors=(RunFailed,)),
    "openvino ir": Reader(
        seeds=lambda: _pair("digits.xml"),
        read=lambda content, _: read_ir(content, 20_000),
        errors=(RunFailed,),
    ),
    "ncnn param": Reader(
        seeds=lambda: _pair("digits.ncnn.param"),
        read=lambda content, _: read_param(content),
        errors=(RunFailed,),
    ),
    "genai folder": Reader(
        seeds=lambda: [packed(DEMO / "tiny_llama").read_bytes()],
        read=lambda content, folder: open_genai(_file(folder, "model.zip", content)),
        errors=(RunFailed,),
    ),
    "genai config": Reader(seeds=_genai_seeds, read=_genai_config, errors=(RunFailed,)),
    "image archive": Reader(seeds=_images_seeds, read=_images, errors=(RunFailed,)),
    "image": Reader(seeds=_picture_seeds, read=_picture, errors=(RunFailed,)),
    "job description": Reader(seeds=_document_seeds, read=_document, errors=_NOTHING),
    "job description, values": Reader(
        seeds=lambda: _json(DESCRIPTION), read=_document, errors=_NOTHING, tree=True
    ),
    "bodies": Reader(
        seeds=lambda: _json(
            {"progress": 50.5, "phase": "measuring", "message": "x"},
            {"user_id": "bob", "role": "host", "boards": ["rpi4b-*"], "share": 1.5},
            {"name": "x", "matrix": {"target": ["rpi4b"]}, "description": dict(DESCRIPTION)},
        ),
        read=_bodies,
        errors=(InvalidInput,),
        tree=True,
    ),
    "jobs of SuperCloud": Reader(seeds=_supercloud_seeds, read=_supercloud, errors=(InvalidInput,)),
    "pods of Alibaba": Reader(seeds=_alibaba_seeds, read=_alibaba, errors=(InvalidInput,)),
    "hcl": Reader(seeds=_hcl_seeds, read=_hcl, errors=(HclError,)),
    "form": Reader(
        seeds=_form_seeds,
        read=_form,
        errors=(BadRequest, InvalidInput, WrongMediaType, TooLarge, Unavailable),
    ),
    "inventory": Reader(seeds=_inventory_seeds, read=_inventory, errors=(ConfigError,), tree=True),
    "policy": Reader(
        seeds=lambda: [read_policy(name).encode() for name in ("default", "learned", "native")],
        read=_policy,
        errors=(ConfigError,),
    ),
    "manifest": Reader(seeds=_manifest_seeds, read=_manifest, errors=(ConfigError,)),
    "nodes of Nomad": Reader(seeds=_nodes_seeds, read=_nodes, errors=(ValueError,), tree=True),
    "allocations of Nomad": Reader(
        seeds=_allocation_seeds, read=_allocation, errors=_NOTHING, tree=True
    ),
    "results": Reader(seeds=_results_seeds, read=_results, errors=(ApiError,), tree=True),
    "spec.json": Reader(seeds=_spec_seeds, read=_spec, errors=(RunFailed,), tree=True),
    "training and preprocessing": Reader(
        seeds=_settings_seeds, read=_settings, errors=_NOTHING, tree=True
    ),
    "url": Reader(seeds=_url_seeds, read=_url, errors=(UrlRefused,)),
    "cron": Reader(
        seeds=lambda: (b"0 3 * * mon", b"*/5 1-4 29 2 *", b"0 0 31 2,4,6 *", b"1,2 * last * sun"),
        read=_cron,
        errors=(InvalidInput,),
    ),
    "constraint": Reader(
        seeds=lambda: (b"^(a|b)*c{2,5}$", b"(.*)*x", b"[^a-z\\d]+?", b"4 GiB", b"-1.5e9", b"true"),
        read=_constraint,
        errors=_NOTHING,
    ),
    "quantity": Reader(
        seeds=lambda: (b"4 GiB", b"15 min", b"2 %", b"1.5 h", b"0x10"), read=_quantity, errors=()
    ),
}


class Finding(AssertionError):
    """A reader did what it may not."""


@dataclass
class Watch:
    """What the process does while a reader reads; filled by an audit hook of the interpreter."""

    folder: Path
    active: bool = False
    seen: tuple[str, ...] = ()

    _FORBIDDEN = (
        "socket.connect",
        "socket.getaddrinfo",
        "socket.bind",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "os.symlink",
        "os.link",
    )

    def install(self) -> None:
        """Watch from now on; there is no way back."""
        code = {str(ROOT), sys.prefix, sys.base_prefix, "/usr", "/lib", "/dev", "/proc", "/sys"}
        readable = tuple(os.path.realpath(each) for each in code)
        own = os.path.realpath(self.folder)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if not self.active:
                return
            if event in self._FORBIDDEN and not self._is_own_loop(event, args):
                self.seen += (f"{event}{args!r}"[:300],)
            elif event == "open" and isinstance(args[0], str | bytes):
                path = os.path.realpath(os.fsdecode(args[0]))
                writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
                if not path.startswith(own) and (writes or not path.startswith(readable)):
                    self.seen += (f"open{args!r}"[:300],)

        sys.addaudithook(hook)

    @staticmethod
    def _is_own_loop(event: str, args: tuple[Any, ...]) -> bool:
        """asyncio wakes its loop by a pair of sockets of its own."""
        return event == "socket.bind" and len(args) > 1 and not args[1]


def attack(name: str, content: bytes, watch: Watch) -> None:
    """Let a reader read, once.

    Raises:
        Finding: It does what it may not.
    """
    reader = READERS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    watch.seen, watch.active = (), True
    began_s = time.process_time()
    problem = None
    try:
        reader.read(content, watch.folder)
    except reader.errors as error:
        if isinstance(error, EdgeyardError):
            str(error).encode("utf-8", "surrogatepass")
    except Exception:
        problem = traceback.format_exc(limit=-6)
    finally:
        watch.active = False
    took_s = time.process_time() - began_s
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if problem is not None:
        raise Finding(problem)
    if watch.seen:
        raise Finding(f"it left its folder: {', '.join(watch.seen)}")
    if took_s > MAX_CPU_S:
        raise Finding(f"it took {took_s:.1f} s of processor time")
    if grown > MAX_GROWTH_BYTES:
        raise Finding(f"it took {grown >> 20} MiB of memory")


def hunt(name: str, examples: int, seeded: int | None, watch: Watch) -> str | None:
    """Attack a reader with generated contents; the report of what was found, or None.

    Args:
        seeded: Of the random numbers; None: the same ones each time.
    """
    reader = READERS[name]
    worst: list[bytes] = []
    for each in reader.seeds():  # modules are loaded and tables made before anything is measured
        with contextlib.suppress(Exception):
            reader.read(each, watch.folder)

    def test(content: bytes) -> None:
        try:
            attack(name, content, watch)
        except Finding:
            worst[:] = [content]
            raise

    wrapped = given(content=contents(tuple(reader.seeds()), tree=reader.tree))(test)
    wrapped = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=seeded is None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )(wrapped)
    if seeded is not None:
        wrapped = seed(seeded)(wrapped)
    try:
        wrapped()
    except Exception as error:
        content = worst[0] if worst else b""
        place = Path("build/fuzz") / f"{name.replace(' ', '-').replace(',', '')}.bin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return (
            f"{name}: {error}\ncontent ({len(content)} bytes): {content[:500]!r}\n"
            f"replay: python -m tests.fuzz.readers {name!r} --replay {place}"
        )
    return None


@contextmanager
def watched() -> Iterator[Watch]:
    """A work folder, limits, and a watch over all that is opened."""
    warnings.simplefilter("ignore")  # foreign files make Pillow and NumPy warn
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE_BYTES, hard))
    with tempfile.TemporaryDirectory(prefix="edgeyard-fuzz-") as folder:
        watch = Watch(Path(folder))
        tempfile.tempdir = folder
        watch.install()
        yield watch


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt, or replay one content."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.readers", description=__doc__)
    parser.add_argument("names", nargs="*", help="readers; default: all")
    parser.add_argument("--examples", type=int, default=100, help="contents of each reader")
    parser.add_argument("--seed", type=int, help="of the random numbers; default: a fixed one")
    parser.add_argument("--replay", type=Path, help="file with one content")
    given_ = parser.parse_args(arguments)
    found = []
    with watched() as watch:
        for name in given_.names or READERS:
            if given_.replay is not None:
                attack(name, given_.replay.read_bytes(), watch)
                continue
            began = time.monotonic()
            report = hunt(name, given_.examples, given_.seed, watch)
            took_s = time.monotonic() - began
            _say(f"{'FOUND' if report else 'ok':<6} {name} ({took_s:.1f} s)")
            found += [report] if report else []
    for report in found:
        _say(f"\n{report}")
    return 1 if found else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
