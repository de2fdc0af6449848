"""What chapters 6 to 8 hand out to learners, for their catalogues: the parts of solutions/transformer.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from autograder.errors import CourseError


def _reference() -> ModuleType:
    path = Path(__file__).parents[2] / "solutions" / "transformer.py"
    if not path.is_file():
        raise CourseError("solutions/transformer.py is not there; install the grader from a checkout: pip install -e .")
    spec = importlib.util.spec_from_file_location("transformer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_model = _reference()
MultiHeadAttention = _model.MultiHeadAttention
FeedForward = _model.FeedForward
EncoderBlock = _model.EncoderBlock
DecoderBlock = _model.DecoderBlock
PositionalEncoding = _model.PositionalEncoding
causal_mask = _model.causal_mask
padding_mask = _model.padding_mask
