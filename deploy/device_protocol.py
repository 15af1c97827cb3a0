"""Makes ``*_pb2`` from the ``.proto`` files.

``python -m deploy.device_protocol`` needs grpcio-tools, which only
development has. What it makes asks for a protobuf at least as new as the one that made it: the
``edgedevice`` extra says which.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "devices/edgedevice/proto"
_PACKAGE = Path("edgeyard/devices/edgedevice/proto")


def generate(out: Path) -> Sequence[str]:
    """Write the modules into ``out``; their names.

    Raises:
        RuntimeError: protoc refused the files; it has said why on stderr.
    """
    import tempfile
    from importlib.resources import files

    from grpc_tools import protoc

    sources = sorted(FOLDER.glob("*.proto"))
    with tempfile.TemporaryDirectory() as work:
        # protoc must see the files under the path by which Python imports them
        tree = Path(work) / "in" / _PACKAGE
        tree.mkdir(parents=True)
        for source in sources:
            (tree / source.name).write_bytes(source.read_bytes())
        made = Path(work) / "out"
        made.mkdir()
        status = protoc.main(
            [
                "protoc",
                f"-I{Path(work) / 'in'}",
                f"-I{files('grpc_tools') / '_proto'}",
                f"--python_out={made}",
                f"--pyi_out={made}",
                *(str(tree / source.name) for source in sources),
            ]
        )
        if status != 0:
            raise RuntimeError(f"protoc ended with status {status}")
        names = []
        for module in sorted((made / _PACKAGE).iterdir()):
            (out / module.name).write_text(module.read_text(encoding="utf-8"), encoding="utf-8")
            names.append(module.name)
    return names


if __name__ == "__main__":
    sys.stderr.write("wrote " + ", ".join(generate(FOLDER)) + "\n")
