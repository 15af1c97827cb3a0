"""Makes ``digits.xml`` and its ``digits.bin``: the network of ``digits.onnx`` as OpenVINO's IR.

``python deploy/demo/make_digits_openvino.py`` needs openvino. The same input gives the same files.
"""

from pathlib import Path

from edgeyard.devices.runner.engines.openvino import import_openvino

HERE = Path(__file__).parent


def main() -> None:
    """Write both files; weights are kept as float32."""
    openvino = import_openvino()
    model = openvino.Core().read_model(HERE / "digits.onnx")
    openvino.save_model(model, HERE / "digits.xml", compress_to_fp16=False)


if __name__ == "__main__":
    main()
