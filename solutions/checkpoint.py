"""A training run on disk: everything that the next step depends on, written so that a kill leaves a whole file."""

import os
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from autograder.errors import CourseError

FORMAT = "number words 1"


def random_states(device: torch.device) -> dict[str, Any]:
    """The states of Python's, NumPy's, torch's and the device's generators, as plain data."""
    kind, keys, *rest = cast(Any, np.random.get_state())
    states = {"python": random.getstate(), "numpy": [kind, torch.tensor(keys.tolist()), *rest],
              "torch": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Put every generator back to where `random_states` found it; a device of another kind keeps its own."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.tolist(), *rest))
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


def write_whole(path: Path, write: Any) -> None:
    """Let `write(file)` fill a file beside `path`, then put it in its place at one stroke, on disk before it counts."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, RuntimeError) as problem:     # the second is torch's, when its file cannot be written to
        reason = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
        raise CourseError(f"{path}: cannot be written ({reason}); name another place") from problem
    finally:
        part.unlink(missing_ok=True)


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint; whoever is killed meanwhile finds the previous one."""
    write_whole(path, lambda file: torch.save({"format": FORMAT, **state}, file))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint, to the CPU, as data: nothing in the file is run."""
    if not path.is_file():
        raise CourseError(f"{path}: there is no checkpoint; name one that --checkpoint has written")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:      # of zipfile, pickle or torch, as they please
        raise CourseError(f"{path}: is damaged or no checkpoint; name one that --checkpoint has written") from problem
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise CourseError(f"{path}: is no checkpoint of this trainer (format '{FORMAT}'); train anew")
    return state
