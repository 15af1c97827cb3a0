"""Models of files that a test has just made: no child process tries them, which takes a second."""

from __future__ import annotations

from edgeyard.scheduler.learning.check import CheckedModel
from edgeyard.scheduler.learning.manifest import Manifest
from edgeyard.scheduler.learning.model import Model, open_session
from edgeyard.scheduler.learning.queue_model import QueueManifest, QueueModel


def unchecked_model(manifest: Manifest, data: bytes) -> Model:
    """Load an ONNX file as a scorer's model."""
    return Model(manifest, _names_of(data), open_session(data))


def unchecked_queue_model(manifest: QueueManifest, data: bytes) -> QueueModel:
    """Load an ONNX file as the model of a queue policy."""
    return QueueModel(manifest, _names_of(data), open_session(data))


def _names_of(data: bytes) -> CheckedModel:
    session = open_session(data)
    return CheckedModel(
        input_name=session.get_inputs()[0].name,
        output_name=session.get_outputs()[0].name,
        nodes=0,
        parameters=0,
        trial_bytes=0,
    )
