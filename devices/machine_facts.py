"""What a machine is, as attributes: processor, cores, system, accelerators, engines with versions.

Hosts call it for themselves, and hand this file's text to the Python of boards that they reach by
ssh: it imports nothing but the standard library, and runs on Python 3.8.
"""

import contextlib
import os
import platform
import sys
from typing import Dict, Tuple, Union

PREFIX = "fact"
MAX_CHARS = 128

ACCELERATORS = (
    ("nvidia-gpu", ("dev/nvidia0", "dev/nvhost-gpu", "dev/nvgpu/igpu0")),
    ("gpu", ("dev/dri/renderD128", "dev/mali0", "dev/kgsl-3d0")),
    ("coral-edgetpu", ("dev/apex_0",)),
    ("hailo", ("dev/hailo0",)),
    ("rockchip-npu", ("dev/rknpu", "proc/device-tree/npu")),
    ("npu", ("dev/accel/accel0",)),
)
"""Accelerators by the device files that their drivers make."""

ENGINE_PACKAGES = {
    "ort": ("onnxruntime", "onnxruntime-gpu"),
    "tflite": ("ai-edge-litert",),
    "openvino": ("openvino",),
    "ncnn": ("ncnn",),
    "ort-genai": ("onnxruntime-genai",),
}
"""Python packages by the engine that they bring; any one of them is enough."""

_MODEL_KEYS = ("model name", "Model", "Hardware", "cpu model")


def machine_facts(root: str = "/") -> Dict[str, Union[str, int]]:
    """Return what is known of this machine, by attribute."""
    found: Dict[str, Union[str, int]] = {
        "cpu.arch": platform.machine(),
        "cpu.cores": len(os.sched_getaffinity(0)),
        "cpu.model": _value(os.path.join(root, "proc/cpuinfo"), _MODEL_KEYS, ":"),
        "os.name": _value(os.path.join(root, "etc/os-release"), ("PRETTY_NAME",), "="),
        "os.kernel": platform.release(),
        "accelerators": _accelerators(root),
    }
    return {name: value for name, value in found.items() if value}


def engine_facts() -> Dict[str, Union[str, int]]:
    """Return versions of the engines that this Python has, and what ort and openvino can run on."""
    from importlib.metadata import version

    found: Dict[str, Union[str, int]] = {}
    for engine, packages in ENGINE_PACKAGES.items():
        for package in packages:
            # A missing or broken package is no reason to know nothing else.
            with contextlib.suppress(Exception):
                found.setdefault("engine." + engine + ".version", version(package))
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it writes a file, and reports its use to its maker
    try:
        import onnxruntime

        found["engine.ort.version"] = onnxruntime.__version__
        providers = onnxruntime.get_available_providers()
        found["engine.ort.execution_providers"] = ",".join(providers)
    except Exception:  # what is installed cannot be used
        found.pop("engine.ort.version", None)
    if "engine.openvino.version" in found:
        # None: it can't be imported, and OpenVINO does without. It has the converters, which take
        # half a second to load, and report that to their maker.
        sys.modules["openvino.tools.ovc"] = None  # type: ignore[assignment]
        try:
            from openvino import Core

            found["engine.openvino.execution_providers"] = ",".join(Core().available_devices)
        except Exception:  # what is installed cannot be used
            found.pop("engine.openvino.version", None)
    return found


def _accelerators(root: str) -> str:
    names = [
        name
        for name, paths in ACCELERATORS
        if any(os.path.exists(os.path.join(root, path)) for path in paths)
    ]
    if len(names) > 1 and "gpu" in names and "nvidia-gpu" in names:
        names.remove("gpu")  # the same one, by another driver
    return ",".join(names) or "none"


def _value(path: str, keys: Tuple[str, ...], sign: str) -> str:
    """Return the first value of one of the keys in a file of lines; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition(sign) for line in file]
    except OSError:
        return ""
    for key in keys:
        for name, _, value in pairs:
            text = plain(value.strip().strip('"'))
            if name.strip() == key and text:
                return text
    return ""


def plain(text: str) -> str:
    """Return a text without control characters, cut to a length that attributes may have."""
    return "".join(char for char in text if char.isprintable())[:MAX_CHARS]


def main() -> None:
    """Print all of it, the quickest first."""
    for facts in (machine_facts, engine_facts):
        for name, value in facts().items():
            sys.stdout.write(f"{PREFIX} {name} {plain(str(value))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
