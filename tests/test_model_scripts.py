"""The scripts that time the model and check it on a GPU: they run, and say so where there is none."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def check_cuda() -> dict:
    return runpy.run_path(str(ROOT / "tools" / "check_cuda.py"))


@pytest.fixture(scope="module")
def benchmark() -> dict:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import model

    return vars(model)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA: run tools/check_cuda.py")
def test_machine_without_cuda_is_told_so_in_one_line(check_cuda, capsys):
    assert check_cuda["main"]([]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith("error: no CUDA device: torch ") and "run this on a machine that has one" in said.err


def test_every_section_runs_and_passes_on_a_cpu(check_cuda, capsys):
    assert check_cuda["main"](["--device", "cpu", "--tiny", "--compile-backend", "eager"]) == 0
    said = capsys.readouterr().out
    assert "9 checks passed, 0 failed" in said and "FAILED" not in said
    for word in ("float32 against the CPU", "attention by flash", "compiled", "cached_greedy_decode", "resume",
                 "skipped: only CUDA can say", "skipped: 0 CUDA devices"):
        assert word in said


def test_device_that_computes_something_else_fails_the_check(check_cuda):
    bench = check_cuda["Bench"](torch.device("cpu"), check_cuda["TINY"])
    right, wrong = bench.model(), bench.model()
    with torch.no_grad():
        wrong.encoder[0].feed_forward.W_1.weight[0, 0] += 0.5
    rows = [check_cuda["agreement"]("", bench.loss_and_gradient(net), bench.loss_and_gradient(right), 1e-3)
            for net in (bench.model(), wrong)]
    assert [row.passed for row in rows] == [True, False]


def test_peers_of_the_benchmark_do_the_same_work(benchmark):
    """Same numbers of parameters (nn.Transformer has a bias and a norm where ours has), causal, blind to padding."""
    size = benchmark["Size"](16, 2, 2, 32, 30, 3, 6)
    made = {name: net.eval() for name, net in benchmark["models"](size).items()}
    counts = {name: sum(one.numel() for one in net.parameters()) for name, net in made.items()}
    assert len(set(counts.values())) == 1
    made["naive"].load_state_dict(made["ours"].state_dict())
    src, tgt = benchmark["batch"](size)
    assert (src == 0).any()
    with torch.no_grad():
        assert torch.allclose(made["naive"](src, tgt), made["ours"](src, tgt), atol=1e-5)
        for net in made.values():
            later, longer = tgt.clone(), torch.cat([src, torch.zeros(3, 2, dtype=torch.long)], dim=1)
            later[:, -1] = 5
            assert torch.allclose(net(src, later)[:, :-1], net(src, tgt)[:, :-1], atol=1e-5)
            assert torch.allclose(net(longer, tgt), net(src, tgt), atol=1e-5)


def test_benchmark_prints_every_ratio(benchmark, capsys):
    benchmark["main"](["--quick", "--rounds", "1"])
    said = capsys.readouterr().out
    assert all(word in said for word in (") nn ", ") naive", "of peak", ") anew", ") nn anew", "slower than a peer"))
