"""Models of files that a test has just made: no child process tries them, which takes a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeyard.scheduler.learning.check import CheckedModel
from edgeyard.scheduler.learning.manifest import Manifest
from edgeyard.scheduler.learning.model import Model, open_session
from edgeyard.scheduler.learning.queue_model import QueueManifest, QueueModel

if TYPE_CHECKING:
    import onnxruntime


def unchecked_model(manifest: Manifest, data: bytes) -> Model:
    """Load an ONNX file as a scorer's model."""
    return Model(manifest, *_opened(data))


def unchecked_queue_model(manifest: QueueManifest, data: bytes) -> QueueModel:
    """Load an ONNX file as the model of a queue policy."""
    return QueueModel(manifest, *_opened(data))


def _opened(data: bytes) -> tuple[CheckedModel, onnxruntime.InferenceSession]:
    """Return what a check would have found, as far as a run needs it, and the session."""
    session = open_session(data)
    found = CheckedModel(
        input_name=session.get_inputs()[0].name,
        output_name=session.get_outputs()[0].name,
        nodes=0,
        parameters=0,
    )
    return found, session
