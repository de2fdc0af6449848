"""Carries out a plan on a learner's object: a small interpreter of the steps in `autograder.wire.Plan`."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import linecache
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import nn

from autograder.probe.objects import make
from autograder.wire import MAX_BITS, MAX_ITEMS, MAX_TEXT, Array, Opaque, Plan, Raised, Ref, Seen, Step, decode, encode

MAX_ARRAY = 8 << 20  # bytes of one array that comes back


class _NotReached(Exception):
    """A step needs the result of one that raised."""

    def __init__(self, raised: Raised):
        self.raised = raised


class Borrowed(Exception):
    """An answer is made of the grader's own code."""


def serve(expression: str, request: bytes, namespace: dict[str, Any]) -> bytes:
    """Carry out the encoded plans on what `expression` is in the learner's namespace; the findings, encoded."""
    plans = decode(request)
    try:
        answer = eval(expression, namespace)  # the expression is our own test cell's
        if name := _borrowed(answer):
            raise Borrowed(f"{name} is the grader's own code, or looks into it: the answer has to be yours")
    except Exception as error:
        raised = _raised(error, "answer")
        return encode([Seen({"answer": raised, **{step.out: raised for step in plan.steps}}) for plan in plans])
    with undisturbed():
        return encode([carry_out(plan, answer) for plan in plans])


def _borrowed(answer: Any) -> str:
    """The part of an answer that is this package's or names it, "" where there is none: the package has models, too."""
    if str(getattr(answer, "__module__", "")).startswith(_OWN_NAME):
        return getattr(answer, "__qualname__", "it")
    kinds = [kind for kind in getattr(answer, "__mro__", ()) if kind.__module__.startswith(("__main__", _OWN_NAME))]
    for part in [answer, *(value for kind in kinds for value in (kind, *vars(kind).values()))]:
        code = getattr(getattr(part, "__func__", part), "__code__", None)
        owner = str(getattr(part, "__module__", ""))
        if owner.startswith(_OWN_NAME) or (isinstance(code, CodeType) and _names_us(code)):
            return getattr(part, "__qualname__", "it")
    return ""


def _names_us(code: CodeType) -> bool:
    """Does a function, or one within it, say this package's name?"""
    said = [*code.co_names, *(value for value in code.co_consts if isinstance(value, str))]
    inner = [value for value in code.co_consts if isinstance(value, CodeType)]
    return any(text == "autograder" or text.startswith(_OWN_NAME) for text in said) or any(map(_names_us, inner))


def carry_out(plan: Plan, answer: Any, until: Callable[[str, Any], bool] = lambda name, finding: False) -> Seen:
    """Do each step in order and keep what it asks for; stop where `until` says so of a finding.

    An exception is a finding; the steps that depend on it come back as the same finding. What the
    learner's code prints or warns is dropped; random states and torch's switches are as before afterwards.
    """
    values: dict[str, Any] = {"answer": answer}
    seen = Seen()
    with undisturbed(), _unheard():
        _reseed(plan.seed)
        for step in plan.steps:
            values[step.out] = found = _attempt(step, values)
            if step.bring or isinstance(found, Raised):
                seen.found[step.out] = kept = found if isinstance(found, Raised) else plain(found)
                if until(step.out, kept):
                    break
    return seen


def _attempt(step: Step, values: dict[str, Any]) -> Any:
    try:
        return _OPERATIONS[step.op](values, *step.args)
    except _NotReached as stop:
        return stop.raised
    except (Exception, SystemExit) as error:
        return _raised(error, step.out)


_held = False  # are the random states kept already?


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Torch on one thread; afterwards random states as before, kept once around several plans, for it takes 0.2 ms.

    Models on trial are small: a second thread gains nothing, and beside a busy neighbour all takes ten times as long.
    """
    global _held
    if _held:
        yield
        return
    _held, states = True, (torch.get_rng_state(), np.random.get_state(), random.getstate())
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        _held = False
        torch.set_num_threads(threads)
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Nothing is printed or warned of, and torch's switches are afterwards as before."""
    switches, sink = (torch.get_default_dtype(), torch.is_grad_enabled()), io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            torch.set_grad_enabled(True)
            yield
    finally:
        torch.set_default_dtype(switches[0])
        torch.set_grad_enabled(switches[1])


def _reseed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed also formats a stack trace per device: 0.1 ms
    np.random.seed(seed)
    random.seed(seed)


# ---- to plain data and back -----------------------------------------------------------------------------------


def plain(value: Any, depth: int = 0) -> Any:
    """What can be said of a value as plain data; `Opaque` with the name of its type where nothing can."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return _plain_array(value)
    if isinstance(value, (bool, float, str, int)):
        return _plain_scalar(value)
    if isinstance(value, (Raised, Opaque, Array)):
        return value
    if depth < 6 and isinstance(value, (list, tuple)) and len(value) <= MAX_ITEMS:
        items = [plain(item, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if depth < 6 and isinstance(value, dict) and len(value) <= MAX_ITEMS:
        return {str(key)[:MAX_TEXT]: plain(item, depth + 1) for key, item in value.items()}
    return Opaque(type(value).__name__)


_AS_THEY_ARE = {type(None), bool, float}


def _plain_array(value: Any) -> Array | Opaque:
    if isinstance(value, torch.Tensor) and value.device.type == "meta":
        return Opaque("Tensor on meta")  # it has no numbers to bring back
    size = value.numel() * value.element_size() if isinstance(value, torch.Tensor) else value.nbytes
    if size > MAX_ARRAY:
        return Opaque(f"{type(value).__name__} of shape {tuple(value.shape)}")
    try:
        return Array.of(value)
    except TypeError:
        return Opaque(f"{type(value).__name__} of dtype {value.dtype}")


def _plain_scalar(value: Any) -> Any:
    for kind in (bool, float, str):
        if isinstance(value, kind):
            return kind(value)[:MAX_TEXT] if kind is str else kind(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_BITS else Opaque(f"int of more than {MAX_BITS} bits")
    return None


def _raised(error: BaseException, step: str) -> Raised:
    bases = tuple(kind.__name__ for kind in type(error).__mro__)
    return Raised(type(error).__name__, bases, _text_of(error)[:MAX_TEXT], _learner_line(error), step)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message can't be printed)"


def _learner_line(error: BaseException) -> str:
    """The last line of the traceback that is the learner's own: not a library's, not this package's."""
    line, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "site-packages" not in name and not name.startswith(_OWN_FOLDER) and "/lib/python" not in name:
            line = linecache.getline(name, trace.tb_lineno).strip() or line
        trace = trace.tb_next
    return line[:200]


_OWN_NAME = "autograder."
_OWN_FOLDER = __file__.rsplit("/", 1)[0]


def _real(value: Any, values: dict[str, Any]) -> Any:
    """The object that plain data stands for: arrays are made, references followed."""
    if type(value) in _AS_THEY_ARE or type(value) in (str, int):
        return value
    if isinstance(value, Array):
        return value.value()
    if isinstance(value, Ref):
        return _follow(value, values)
    if isinstance(value, (list, tuple)):
        return type(value)(_real(item, values) for item in value)
    if isinstance(value, dict):
        return {key: _real(item, values) for key, item in value.items()}
    return value


def _follow(ref: Ref, values: dict[str, Any]) -> Any:
    found = values[ref.name]
    if isinstance(found, Raised):
        raise _NotReached(found)
    for part in ref.path:
        found = getattr(found, part) if isinstance(part, str) else found[part]
    return found


# ---- operations -----------------------------------------------------------------------------------------------


def _put(values: dict[str, Any], value: Any) -> Any:
    return _real(value, values)


def _make(values: dict[str, Any], kind: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return make(kind, *_real(args, values), **_real(kwargs, values))


def _call(values: dict[str, Any], target: Ref, args: list[Any], kwargs: dict[str, Any]) -> Any:
    function = _follow(target, values)
    return function(*_real(args, values), **_real(kwargs, values))


def _load(values: dict[str, Any], module: Ref, weights: dict[str, Array]) -> list[str]:
    root, missing = _follow(module, values), []
    reached = {"": root}  # several weights are of one part
    with torch.no_grad():
        for name, array in weights.items():
            try:
                slot = _slot(reached, name)
                if tuple(slot.shape) != array.shape:
                    raise ValueError
                slot.copy_(array.value())
            except (AttributeError, TypeError, ValueError, IndexError, KeyError, RuntimeError):
                missing.append(name)
    return missing


def _slot(reached: dict[str, Any], name: str) -> Any:
    """What a dotted name stands for, by way of what was reached before."""
    if name not in reached:
        path, _, part = name.rpartition(".")
        owner = _slot(reached, path)
        reached[name] = owner[int(part)] if part.isdigit() else getattr(owner, part)
    return reached[name]


def _grad(values: dict[str, Any], of: list[Any], wrt: list[Ref], names: Ref | None) -> Any:
    loss = sum((_follow(ref, values) * factor.value()).sum() for ref, factor in of)
    inputs = [_follow(ref, values) for ref in wrt]
    named = [] if names is None else list(_follow(names, values).named_parameters())
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise RuntimeError("the result carries no gradient: it was detached from its inputs")
    found = torch.autograd.grad(loss, [*inputs, *(p for _, p in named)], allow_unused=True, retain_graph=True)
    return list(found[: len(inputs)]), dict(zip((name for name, _ in named), found[len(inputs) :]))


def _mode(values: dict[str, Any], module: Ref, training: bool) -> None:
    _follow(module, values).train(training)


def _to(values: dict[str, Any], module: Ref, where: str) -> Any:
    return _follow(module, values).to(getattr(torch, where) if hasattr(torch, where) else where)


def _facts(values: dict[str, Any], target: Ref) -> dict[str, Any]:
    module = _follow(target, values)
    if not isinstance(module, nn.Module):
        raise TypeError(f"a {type(module).__name__}, not an nn.Module")
    shared: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        shared.setdefault(id(parameter), []).append(name)
    return {
        "training": module.training,
        "classes": {name: [kind.__name__ for kind in type(m).__mro__] for name, m in module.named_modules()},
        "modes": {name: m.training for name, m in module.named_modules()},
        "parameters": {name: [tuple(p.shape), str(p.dtype), p.requires_grad] for name, p in module.named_parameters()},
        "buffers": {name: [tuple(b.shape), str(b.dtype)] for name, b in module.named_buffers()},
        "shared": [names for names in shared.values() if len(names) > 1],
        "with_grad": [name for name, p in module.named_parameters() if p.grad is not None],
    }


def _weights(values: dict[str, Any], target: Ref) -> dict[str, torch.Tensor]:
    module = _follow(target, values)
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _same(values: dict[str, Any], left: Ref, right: Ref) -> dict[str, bool]:
    a, b = _follow(left, values), _follow(right, values)
    return {"object": a is b, "memory": _storage(a) is not None and _storage(a) == _storage(b)}


def _storage(value: Any) -> int | None:
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().data_ptr() if value.device.type != "meta" else None
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return value.__array_interface__["data"][0]
    return None


class _Watch:
    """A log of one module's calls."""

    def __init__(self, module: nn.Module, values: bool):
        self.log: list[dict[str, Any]] = []
        self.values = values
        module.register_forward_pre_hook(self._enter)

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        shape = tuple(args[0].shape) if args and isinstance(args[0], torch.Tensor) else None
        self.log.append({"shape": shape, "training": module.training, "grad": torch.is_grad_enabled()})
        if self.values and shape is not None:
            self.log[-1]["input"] = args[0].detach().clone()


class _Bypass:
    """Takes the place of a module's forward."""

    def __init__(self, module: nn.Module):
        self.log: list[list[str]] = []
        module.forward = self._forward

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        self.log.append(sorted({value.device.type for value in given if isinstance(value, torch.Tensor)}))
        return args[0] if args else kwargs.get("x", given[0])


def _log(values: dict[str, Any], target: Ref) -> list[Any]:
    return list(_follow(target, values).log)


def _defaults(values: dict[str, Any], target: Ref) -> dict[str, Any]:
    parameters = inspect.signature(_follow(target, values)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _rng(values: dict[str, Any]) -> str:
    states = (torch.get_rng_state().numpy().tobytes(), np.random.get_state(), random.getstate())
    switches = (str(torch.get_default_dtype()), torch.is_grad_enabled())
    return hashlib.sha256(pickle.dumps((states, switches))).hexdigest()


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "put": _put,
    "make": _make,
    "call": _call,
    "look": lambda values, target: _follow(target, values),
    "load": _load,
    "grad": _grad,
    "mode": _mode,
    "to": _to,
    "facts": _facts,
    "weights": _weights,
    "same": _same,
    "watch": lambda values, module, inputs: _Watch(_follow(module, values), inputs),
    "bypass": lambda values, module: _Bypass(_follow(module, values)),
    "log": _log,
    "defaults": _defaults,
    "rng": _rng,
    "reseed": lambda values, seed: _reseed(seed),
}
