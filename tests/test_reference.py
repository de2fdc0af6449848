"""solutions/transformer.py: what the chapters ask of learners holds of it, too, and so does what it adds."""

import sys
from pathlib import Path

import pytest
import torch

from autograder.checks import EXERCISES, check

sys.path.insert(0, str(Path(__file__).parent.parent / "solutions"))   # instructors run it from there

import transformer  # noqa: E402

OTHERS = {"MultiHeadAttention": "returns weights only where they are asked for",
          "cached_greedy_decode": "asks the model for one step, which only this model has"}
ASKED = [name for name in EXERCISES if hasattr(transformer, name) and name not in OTHERS]
DECODERS = ("greedy_decode", "cached_greedy_decode", "beam_search")


def translator(**options) -> transformer.Transformer:
    torch.manual_seed(0)
    return transformer.Transformer(11, 12, 8, 2, 2, 16, dropout=0.0, **options).eval()


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(1, 11, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("exercise", ASKED)
def test_reference_passes_the_check_of_every_exercise_that_it_answers(exercise):
    check(exercise, getattr(transformer, exercise))


def test_all_of_chapter_8_is_among_them_or_listed():
    assert {one.name for one in EXERCISES.values() if one.chapter == "08_transformer"} <= {*ASKED, *OTHERS}


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_model_without_padding_says_the_same_where_there_is_none(norm):
    plain, masked = translator(padded=False, norm=norm), translator(norm=norm)
    src, tgt = ids(3, 5), ids(3, 7)
    with torch.no_grad():
        torch.testing.assert_close(plain(src, tgt), masked(src, tgt))
        src[0, 3:] = 0
        assert not torch.allclose(plain(src, tgt)[0], masked(src, tgt)[0], atol=1e-3)   # it was told that there is none


@pytest.mark.parametrize("decoder", DECODERS)
def test_model_without_padding_decodes_the_same(decoder):
    said = [getattr(transformer, decoder)(translator(padded=padded), ids(1, 5), 1, 2, 6) for padded in (True, False)]
    assert said[0].tolist() == said[1].tolist()


def test_cached_decoder_says_what_the_other_says():
    src = ids(5, 6)
    src[1:, 3:] = 0
    said = [getattr(transformer, decoder)(translator(), src, 1, 2, 9) for decoder in DECODERS[:2]]
    assert said[0].tolist() == said[1].tolist()


@pytest.mark.parametrize("decoder", DECODERS)
def test_decoded_ids_may_be_trained_on(decoder):
    """A tensor of inference mode could not: autograd refuses to keep it."""
    net = translator()
    decoded = getattr(transformer, decoder)(net, ids(1, 5), 1, 2, 6)
    net(ids(1, 5), decoded).sum().backward()
    assert net.tgt_embedding.weight.grad is not None
