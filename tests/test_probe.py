"""The probe: one step of each sort that the course's exercises need, on real objects."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from autograder.probe import carry_out, serve, undisturbed
from autograder.probe.objects import _MIXES, make
from autograder.wire import ANSWER, Array, Opaque, Plan, Raised, decode, encode


def array(*shape, dtype=torch.float32, **options):
    generator = torch.Generator().manual_seed(sum(shape))
    return Array.of(torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype), **options)


def carried(plan, answer):
    """The findings, after the same journey that they make from a learner's process."""
    (seen,) = decode(serve("answer", encode([plan]), {"answer": answer}))
    assert repr(seen) == repr(carry_out(plan, answer)), "in this process and over the wire must be the same"
    return seen


def test_a_function_is_called_and_its_inputs_looked_at_afterwards():
    plan = Plan()
    x = plan.put(array(2, 3))
    result, after = plan.call(ANSWER, x, factor=2.0), plan.look(x)

    def in_place(x, factor):
        return x.mul_(factor), None, 1.5

    seen = carried(plan, in_place)
    assert torch.equal(seen[result][0].value(), array(2, 3).value() * 2) and seen[result][1:] == (None, 1.5)
    assert seen[after].data != array(2, 3).data, "the change in place must be seen"


def test_an_input_may_be_laid_out_so_that_view_fails():
    plan = Plan()
    result = plan.call(ANSWER, array(2, 3, 4, layout="strided"))
    assert "view" in carried(plan, lambda x: x.view(2, 12))[result].message
    assert carried(plan, lambda x: x.reshape(2, 12))[result].shape == (2, 12)


def test_bfloat16_and_float64_come_back_as_they_are():
    plan = Plan()
    results = [plan.call(ANSWER, array(3, dtype=dtype)) for dtype in (torch.bfloat16, torch.float64)]
    seen = carried(plan, lambda x: x + 1)
    assert [seen[result].dtype for result in results] == ["bfloat16", "float64"]


def test_an_exception_is_a_finding_and_what_depends_on_it_is_not_reached():
    plan = Plan()
    bad = plan.call(ANSWER, -1)
    later = plan.call(bad.forward, 3)
    good = plan.call(ANSWER, 1)

    def answer(n):
        if n < 0:
            raise ValueError("n must not be negative")
        return n

    seen = carried(plan, answer)
    assert seen[bad].kind == "ValueError" and "Exception" in seen[bad].bases and "negative" in seen[bad].message
    assert seen[later] == seen[bad] and seen[good] == 1


def test_sys_exit_and_recursion_are_findings_too():
    plan = Plan()
    result = plan.call(ANSWER)

    def recursion():
        return recursion()

    assert carried(plan, exit)[result].kind == "SystemExit"
    assert carry_out(plan, recursion)[result].kind == "RecursionError"


class TwoLayers(nn.Module):
    def __init__(self, d, h, bias=True):
        super().__init__()
        self.h = h
        self.W_q, self.W_k = nn.Linear(d, d, bias=bias), nn.Linear(d, d, bias=bias)
        self.blocks = nn.ModuleList([nn.Linear(d, d, bias=False)])
        self.blocks[0].weight = self.W_k.weight
        self.register_buffer("table", torch.zeros(3, d))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.W_q(x) + self.table[: x.shape[1]]), self.W_k(x)


def test_a_module_is_built_loaded_by_name_run_and_described():
    plan = Plan()
    module = plan.build(4, 2)
    missing = plan.load(module, {"W_q.weight": array(4, 4), "W_q.bias": array(5), "W_z.weight": array(4, 4)})
    plan.mode(module, False)
    result = plan.call(module, array(2, 3, 4))
    facts, weights, h, nothing = plan.facts(module), plan.weights(module), plan.look(module.h), plan.look(module.d_k)
    seen = carried(plan, TwoLayers)
    assert seen[module] == Opaque("TwoLayers")
    assert seen[missing] == ["W_q.bias", "W_z.weight"], "a wrong shape and an unknown name"
    assert seen[result][0].shape == (2, 3, 4) and seen[h] == 2 and seen[nothing].kind == "AttributeError"
    assert seen[weights]["W_q.weight"].data == array(4, 4).data
    assert seen[facts]["classes"]["W_q"][0] == "Linear" and seen[facts]["shared"] == [["W_k.weight", "blocks.0.weight"]]
    assert seen[facts]["buffers"] == {"table": [(3, 4), "torch.float32"]} and not any(seen[facts]["modes"].values())


def test_a_plain_object_has_no_module_facts():
    plan = Plan()
    facts = plan.facts(plan.build())
    assert "not an nn.Module" in carried(plan, object)[facts].message


def test_gradients_with_respect_to_inputs_and_parameters():
    plan = Plan()
    module = plan.build(4, 2)
    plan.mode(module, False)
    x = plan.put(array(2, 3, 4, grad=True))
    result = plan.call(module, x)
    grads = plan.grad([(result[0], array(2, 3, 4)), (result[1], array(2, 3, 4))], [x], names=module)
    inputs, named = carried(plan, TwoLayers)[grads]
    assert inputs[0].shape == (2, 3, 4) and named["W_q.weight"].shape == (4, 4)
    assert sorted(named) == ["W_k.bias", "W_k.weight", "W_q.bias", "W_q.weight"]


def test_a_detached_result_is_said_to_carry_no_gradient():
    plan = Plan()
    x = plan.put(array(2, grad=True))
    grads = plan.grad([(plan.call(ANSWER, x), array(2))], [x])
    assert "no gradient" in carried(plan, lambda x: x.detach())[grads].message


def test_modules_move_to_another_dtype_and_to_the_meta_device():
    plan = Plan()
    module = plan.build(4, 2)
    plan.to(module, "float64")
    result = plan.call(module, array(2, 3, 4, dtype=torch.float64))
    plan.to(module, "meta")
    weights = plan.facts(module)
    seen = carried(plan, TwoLayers)
    assert seen[result][0].dtype == "float64" and seen[weights]["buffers"]["table"][1] == "torch.float64"


def test_identity_and_shared_memory_are_facts():
    plan = Plan()
    x = plan.put(array(2, 3))
    y = plan.call(ANSWER, x)
    same = plan.same(x, y)
    assert carried(plan, lambda x: x)[same] == {"object": True, "memory": True}
    assert carried(plan, lambda x: x[:])[same] == {"object": False, "memory": True}
    assert carried(plan, lambda x: x.clone())[same] == {"object": False, "memory": False}


def test_draws_come_from_the_given_generator_or_are_seen_not_to():
    plan = Plan()
    first, generator, second = plan.rng(), plan.make("generator", 5), None
    draws = plan.call(ANSWER, generator)
    second = plan.rng()
    honest = carried(plan, lambda g: torch.randn(3, generator=g))
    cheat = carried(plan, lambda g: torch.randn(3))
    assert honest[first] == honest[second] and cheat[first] != cheat[second]
    assert torch.equal(honest[draws].value(), torch.randn(3, generator=torch.Generator().manual_seed(5)))


def test_runs_are_seeded_and_leave_the_callers_random_state_alone():
    plan = Plan(seed=7)
    result = plan.call(ANSWER)
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    draws = [carry_out(plan, lambda: (torch.randn(2), np.random.rand(2)))[result] for _ in range(2)]
    assert draws[0] == draws[1]
    assert torch.equal(before[0], torch.get_rng_state()) and np.array_equal(before[1], np.random.get_state()[1])


def test_torchs_switches_are_put_back():
    plan = Plan()
    plan.call(ANSWER)

    def upset():
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)

    carry_out(plan, upset)
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()


def test_random_states_are_kept_once_around_several_plans():
    plan = Plan(seed=3)
    plan.call(ANSWER)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    with undisturbed():
        for _ in range(2):
            carry_out(plan, lambda: (torch.rand(2), np.random.rand(2), random.random()))
        assert not torch.equal(torch.get_rng_state(), states[0]), "inside it nothing is put back"
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all() and random.getstate() == states[2]


def test_answers_are_tried_on_one_thread():
    plan, threads = Plan(), torch.get_num_threads()
    step = plan.call(ANSWER)
    try:
        torch.set_num_threads(2)
        assert carry_out(plan, torch.get_num_threads).found[step.name] == 1 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_a_plan_is_carried_out_no_further_than_until_says():
    plan, calls = Plan(), []
    steps = [plan.call(ANSWER, number) for number in range(4)]

    def answer(number):
        calls.append(number)
        return number

    seen = carry_out(plan, answer, until=lambda name, finding: finding == 1)
    assert calls == [0, 1] and list(seen.found) == [step.name for step in steps[:2]]


@pytest.mark.parametrize("call", [lambda block, x, y: block(x, y), lambda block, x, y: block(other=y, x=x)])
def test_a_bypassed_module_hands_on_its_first_input_and_logs_devices(call):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Linear(2, 2)

        def forward(self, x, y):
            return call(self.block, x, y) + 1

    plan = Plan()
    module = plan.build()
    bypass = plan.bypass(module.block)
    x = plan.put(Array.of(torch.ones(3)))
    result, log = plan.call(module, x, plan.to(x, "meta")), plan.log(bypass)
    seen = carried(plan, Half)
    assert torch.equal(seen[result].value(), torch.full((3,), 2.0)) and seen[log] == [["cpu", "meta"]]


def test_prints_and_warnings_of_the_answer_are_dropped(capsys, recwarn):
    plan = Plan()
    result = plan.call(ANSWER)

    def noisy():
        import sys
        import warnings

        print("hello")
        print("oh no", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        return 1

    assert carry_out(plan, noisy)[result] == 1
    assert capsys.readouterr() == ("", "") and not recwarn.list


@pytest.mark.parametrize("kind", ["attention", "causal attention", "cumulative sum", "table", "convolution", "mean"])
@pytest.mark.parametrize("as_tuple", [False, True])
def test_a_predicate_is_asked_about_layers(kind, as_tuple):
    def is_permutation_equivariant(layer, x, perm):
        training = layer.training
        layer.eval()
        ahead, behind = layer(x[:, perm]), layer(x)
        layer.train(training)
        ahead, behind = (out[0] if isinstance(out, tuple) else out for out in (ahead, behind))
        return torch.allclose(ahead, behind[:, perm], atol=1e-5)

    plan = Plan()
    size = (5, 4) if kind == "table" else (4, 4)
    layer = plan.make("layer", kind, array(*size), dropout=0.5, as_tuple=as_tuple)
    verdict = plan.call(ANSWER, layer, array(2, 5, 4), Array.of(torch.tensor([2, 0, 1, 4, 3])))
    mode, log = plan.look(layer.training), plan.log(layer)
    seen = carried(plan, is_permutation_equivariant)
    assert seen[verdict] is (kind in ("attention", "mean")), seen[verdict]
    # Two calls, in each of them neither the layer nor the dropout in it in train mode.
    assert seen[mode] is True and seen[log] == [[False, False], [False, False]]


def test_no_layer_says_of_which_kind_it_is():
    for kind in _MIXES:
        layer = make("layer", kind, torch.eye(3))
        plain = {value for value in vars(layer).values() if isinstance(value, str)}
        assert not plain and layer.mix.__name__ == "<lambda>"


@pytest.mark.parametrize("leak", [None, (1, 3)])
def test_a_predicate_is_asked_about_models_that_leak(leak):
    def leaks_future(model, ids, vocab_size):
        for j in range(1, ids.shape[1]):
            other = ids.clone()
            other[:, j] = (ids[:, j] + 1) % vocab_size
            if not torch.equal(model(ids)[:, :j], model(other)[:, :j]):
                return True
        return False

    mix = torch.ones(5, 5).tril()
    if leak:
        mix[leak] = 0.3
    plan = Plan()
    model = plan.make("embed_mix_head", array(9, 3), Array.of(mix), array(3, 6))
    verdict = plan.call(ANSWER, model, Array.of(torch.randint(0, 9, (2, 5))), 9)
    log = plan.log(model)
    seen = carried(plan, leaks_future)
    assert seen[verdict] is (leak is not None) and all(call["valid"] for call in seen[log])


def test_a_list_of_modules_is_given_and_left_without_gradients():
    def gradient_by_depth(blocks, x, G):
        outputs = []
        for block in blocks:
            x = block(x)
            outputs.append(x)
        return torch.stack([g.norm() for g in torch.autograd.grad((x * G).sum(), outputs)])

    plan = Plan()
    blocks = plan.make("modules", [array(4, 4), array(4, 4), array(4, 4)], activation="tanh")
    norms = plan.call(ANSWER, blocks, array(2, 3, 4), array(2, 3, 4))
    facts = plan.facts(blocks)
    seen = carried(plan, gradient_by_depth)
    assert seen[norms].shape == (3,) and seen[facts]["with_grad"] == []


def test_a_holder_of_projections_and_an_activation_are_given():
    def head_contributions(mha, x):
        return (mha.W_v(x) @ mha.W_o.weight.T).expand(mha.h, *x.shape)

    plan = Plan()
    weights = {name: array(6, 6) for name in ("W_q", "W_k", "W_v", "W_o")} | {"W_o.bias": array(6)}
    mha = plan.make("projections", 2, weights)
    result, d_k = plan.call(ANSWER, mha, array(1, 3, 6)), plan.look(mha.d_k)
    seen = carried(plan, head_contributions)
    assert seen[result].shape == (2, 1, 3, 6) and seen[d_k] == 3
    plan = Plan()
    module = plan.build(plan.make("function", "gelu"))
    result = plan.call(module, array(4))
    assert torch.allclose(carried(plan, lambda f: f)[result].value(), nn.functional.gelu(array(4).value()))


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_train_step_is_given_a_tiny_model_and_an_optimizer(optimizer):
    def train_step(model, batch, optimizer, pad_id):
        src, tgt = batch
        optimizer.zero_grad()
        logits = model(src, tgt[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=pad_id)
        loss.backward()
        optimizer.step()
        return loss.item()

    plan = Plan()
    model = plan.make("tiny_seq2seq", array(7, 4), array(8, 4), array(4, 8), dropout=0.1)
    steps = plan.make("optimizer", optimizer, model, lr=0.1)
    batch = [Array.of(torch.randint(1, 7, (3, 4))), Array.of(torch.randint(1, 8, (3, 5)))]
    loss = plan.call(ANSWER, model, tuple(batch), steps, pad_id=0)
    after, calls, norms = plan.weights(model), plan.log(model), plan.log(steps)
    seen = carried(plan, train_step)
    assert seen[loss] > 0 and seen[after]["head"].data != array(4, 8).data
    assert len(seen[norms]) == 1 and seen[norms][0] > 0
    assert seen[calls][0]["training"] and seen[calls][0]["grad"] and seen[calls][0]["autocast"] is False


def test_a_decoder_is_given_a_scripted_model_and_its_calls_are_logged():
    @torch.no_grad()
    def greedy_decode(model, src, bos_id, eos_id, max_len):
        memory, ids = model.encode(src), torch.full((len(src), 1), bos_id)
        for _ in range(max_len):
            ids = torch.cat([ids, model.decode(ids, memory, src)[:, -1].argmax(-1, keepdim=True)], 1)
        return ids[:, 1:]

    def says(token):
        return Array.of(nn.functional.one_hot(torch.tensor(token), 6).float())

    script = [((4, 5), (1,), says(3)), ((4, 5), (1, 3), says(2)), ((5,), (1,), says(2))]
    plan = Plan()
    model = plan.make("scripted", [list(line) for line in script], says(0), 0)
    ids = plan.call(ANSWER, model, Array.of(torch.tensor([[4, 5], [5, 0]])), 1, 2, 3)
    log = plan.log(model)
    seen = carried(plan, greedy_decode)
    assert seen[ids].value().tolist() == [[3, 2, 0], [2, 0, 0]]
    assert [call["call"] for call in seen[log]] == ["encode", "decode", "decode", "decode"]
    assert seen[log][1] == {"call": "decode", "shape": (2, 1), "training": True, "grad": False}
    with pytest.raises(ValueError, match="does not belong"):
        scripted = make("scripted", [], torch.zeros(6), 0)
        scripted.decode(torch.ones(1, 1), scripted.encode(torch.ones(1, 2)), torch.zeros(1, 2))


def test_calls_of_a_part_of_a_module_are_watched():
    plan = Plan()
    module = plan.build(4, 2)
    watch = plan.watch(module.W_q)
    plan.call(module, array(2, 3, 4))
    log = plan.log(watch)
    assert carried(plan, TwoLayers)[log] == [{"shape": (2, 3, 4), "training": True, "grad": True}]


def test_what_has_no_plain_form_comes_back_as_the_name_of_its_type():
    plan = Plan()
    result = plan.call(ANSWER)
    for value, name in ((object(), "object"), ({1}, "set"), (1 << 5000, "int of more"), (np.array(["a"]), "ndarray")):
        assert name in carry_out(plan, lambda value=value: value)[result].kind


def test_an_array_too_large_to_bring_back_is_only_named():
    plan = Plan()
    result = plan.call(ANSWER)
    assert "shape (2048, 2048)" in carry_out(plan, lambda: torch.zeros(2048, 2048))[result].kind


def test_a_missing_answer_is_an_exception_of_every_step():
    plan = Plan()
    result = plan.call(ANSWER, 1)
    (seen,) = decode(serve("softmax", encode([plan]), {}))
    assert isinstance(seen[result], Raised) and seen[result].kind == "NameError"


def test_the_registry_is_closed():
    with pytest.raises(KeyError):
        make("os.system", "true")


BORROWED = {
    "the object itself": "from autograder.probe.model import EncoderDecoder as answer",
    "its methods": "from autograder.probe import model as right\nclass answer(torch.nn.Module):\n"
                   "    residual, forward = right._Block.residual, right._EncoderBlock.forward",
    "its subclass": "from autograder.probe.model import EncoderDecoder\nclass answer(EncoderDecoder): pass",
    "looked up": "def answer(layer):\n    return sys.modules['autograder.probe.objects']._MIXES",
    "looked up within": "def answer(layer):\n    return [k for k in __import__('autograder.probe').objects._MIXES]",
}
OWN = {
    "a function": "def answer(x):\n    return 'my autograder passes'", "a class": "class answer(torch.nn.Linear): pass",
    "a partial": "import functools\nanswer = functools.partial(max, 1)", "a builtin": "answer = abs",
    "an object": "class A:\n    def __call__(self, x): return x\nanswer = A()", "torch's": "answer = torch.softmax",
}


@pytest.mark.parametrize("code", [*BORROWED.values(), *OWN.values()], ids=[*BORROWED, *OWN])
def test_an_answer_made_of_the_graders_own_code_is_told_from_ones_own(code):
    """The probe has models that are right answers of chapters 6 to 8."""
    namespace = {"__name__": "__main__"}
    exec("import sys, torch\n" + code, namespace)
    plan = Plan()
    plan.defaults(ANSWER)
    found = decode(serve("answer", encode([plan]), namespace))[0].found
    borrowed = getattr(found.get("answer"), "kind", "") == "Borrowed"
    assert borrowed == (code in BORROWED.values())
