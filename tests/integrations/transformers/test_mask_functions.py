"""Masks of transformers are read as masks of regard: the same pairs, by objects that skip what is hidden."""

from types import SimpleNamespace

import pytest
import torch
from transformers import masking_utils as theirs

import regard.integrations.transformers  # noqa: F401
from regard import Causal, KeyMask, SameDocument, Window
from regard.errors import OptionError
from regard.grid import Grid
from regard.integrations.transformers.evaluated_mask import Evaluated
from regard.integrations.transformers.model_mask import ModelMask, make_mask
from regard.masks import And, Mask, Or

BATCH, N = 3, 9
PADDED = torch.ones(BATCH, N, dtype=torch.bool)
PADDED[0, :4] = False  # on the left
PADDED[1, 6:] = False  # on the right
DOCUMENTS = torch.tensor([[0] * 9, [0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1, 1]])
BLOCKS = torch.tensor([[-1] * 9, [-1, 0, 0, 0, -1, -1, 1, 1, -1], [-1, -1, -1, 2, 2, 2, 2, -1, -1]])
LEFT = torch.tensor([4, 0, 0])

FUNCTIONS = {
    "causal": theirs.causal_mask_function,
    "bidirectional": theirs.bidirectional_mask_function,
    "window": theirs.sliding_window_causal_mask_function(3),
    "window on both sides": theirs.sliding_window_bidirectional_mask_function(2),
    "no window": theirs.sliding_window_causal_mask_function(0),
    "chunked": theirs.chunked_causal_mask_function(4, LEFT),
    "packed": theirs.and_masks(theirs.causal_mask_function, theirs.packed_sequence_mask_function(DOCUMENTS)),
    "blocks": theirs.or_masks(theirs.causal_mask_function, theirs.blockwise_overlay(BLOCKS)),
    "offset": theirs.add_offsets_to_mask_function(theirs.causal_mask_function, 2, 1),
    "padding": theirs.and_masks(theirs.bidirectional_mask_function, theirs.padding_mask_function(PADDED)),
    "nested": theirs.and_masks(
        theirs.or_masks(theirs.sliding_window_causal_mask_function(2), theirs.blockwise_overlay(BLOCKS)),
        theirs.packed_sequence_mask_function(DOCUMENTS),
    ),
}


def parts_of(mask: Mask) -> list[Mask]:
    return [each for part in mask.masks for each in parts_of(part)] if isinstance(mask, And | Or) else [mask]


def both(function, *, n_queries=N, n_keys=N, **options):
    given = {"batch_size": BATCH, "q_length": n_queries, "kv_length": n_keys, "mask_function": function, **options}
    return make_mask(**given), theirs.sdpa_mask(**given, allow_is_causal_skip=False)


@pytest.mark.parametrize("padding", [None, PADDED], ids=["all there", "padded"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_known_functions_are_recognised_and_allow_the_same_pairs(name, padding):
    mask, wanted = both(FUNCTIONS[name], attention_mask=padding)
    if mask is None:
        assert wanted.all()
        return
    assert isinstance(mask, Mask)
    assert not any(isinstance(each, Evaluated) for each in parts_of(mask.mask))
    assert torch.equal(mask.dense(), wanted)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("causal", [Causal]),
        ("window", [Window, Causal]),
        ("window on both sides", [Window]),
        ("chunked", [SameDocument, Causal]),
        ("packed", [Causal, SameDocument]),
        ("blocks", [Causal, SameDocument]),
    ],
)
def test_each_is_the_mask_that_regard_has_for_it(name, kinds):
    mask, _ = both(FUNCTIONS[name])
    assert [type(each) for each in parts_of(mask.mask)] == kinds
    padded, _ = both(FUNCTIONS[name], attention_mask=PADDED)
    assert [type(each) for each in parts_of(padded.mask)] == [*kinds, KeyMask]


@pytest.mark.parametrize("tensor", [False, True], ids=["number", "tensor"])
@pytest.mark.parametrize("name", ["causal", "window", "chunked"])
def test_queries_of_a_cache_stand_where_it_says(name, tensor):
    offset = torch.tensor(5) if tensor else 5  # caches of a fixed size have it in a tensor
    for n_queries, n_keys in ((1, N), (3, N), (3, N + 4)):
        mask, wanted = both(FUNCTIONS[name], n_queries=n_queries, n_keys=n_keys, q_offset=offset, attention_mask=PADDED)
        assert torch.equal(mask.dense(), wanted)


def test_positions_as_the_first_versions_say_them():
    mask = make_mask(batch_size=BATCH, cache_position=torch.arange(5, 8), kv_length=N, attention_mask=PADDED)
    _, wanted = both(theirs.causal_mask_function, n_queries=3, q_offset=5, attention_mask=PADDED)
    assert torch.equal(mask.dense(), wanted)


def test_keys_of_a_sliding_cache_begin_later():
    mask, wanted = both(FUNCTIONS["window"], n_queries=2, n_keys=5, q_offset=7, kv_offset=4, attention_mask=PADDED)
    assert torch.equal(mask.dense(), wanted)


def test_where_nothing_is_masked_there_is_no_mask():
    one_query = {"batch_size": BATCH, "q_length": 1, "kv_length": N, "q_offset": N - 1}
    assert make_mask(**one_query, attention_mask=torch.ones(BATCH, N)) is None
    assert make_mask(**one_query, mask_function=theirs.sliding_window_causal_mask_function(N)) is None
    everything = {"batch_size": BATCH, "q_length": N, "kv_length": N}
    assert make_mask(**everything, mask_function=theirs.bidirectional_mask_function) is None
    # Some models must have a mask that they can index.
    kept = make_mask(**one_query, allow_is_causal_skip=False)
    assert kept.mask is None
    assert kept[:, 0].all()


def test_a_plain_causal_mask_is_the_one_that_pytorch_has_kernels_for():
    mask, _ = both(theirs.causal_mask_function)
    assert type(mask.mask) is Causal
    assert mask.mask.align is None


@pytest.mark.parametrize("use_vmap", [False, True])
def test_other_functions_are_evaluated_by_tiles(use_vmap):
    def mine(batch, head, query, key):
        return (key % 3 == batch) & (DOCUMENTS[batch, query] == DOCUMENTS[batch, key])

    function = theirs.or_masks(theirs.causal_mask_function, mine)
    mask, wanted = both(function, use_vmap=use_vmap, attention_mask=PADDED)
    assert [type(each) for each in parts_of(mask.mask)] == [Causal, Evaluated, KeyMask]
    assert torch.equal(mask.dense(), wanted)
    grid = Grid((BATCH, 2, 4), N, N)  # heads that share keys
    tile = mask.mask.tile(range(2, 5), range(1, 8), grid)
    assert torch.equal(tile.expand(BATCH, 2, 4, 3, 7)[:, 1, 2], wanted[:, 0, 2:5, 1:8])
    listed = mask.mask.indices(range(N), grid)
    assert torch.equal((listed >= 0).sum(-1)[:, 0, 0], wanted[:, 0].sum(-1))


def test_a_mask_that_was_made_before_is_handed_on():
    mask, _ = both(theirs.causal_mask_function)
    assert make_mask(BATCH, N, N, attention_mask=mask) is mask
    assert mask.contiguous() is mask.to("cpu") is mask


def test_for_models_that_compute_with_their_mask_it_is_a_tensor():
    mask, wanted = both(FUNCTIONS["window"], attention_mask=PADDED)
    assert (mask.shape, mask.ndim, mask.dtype, mask.device) == (wanted.shape, 4, torch.bool, wanted.device)
    for made, same in (
        (mask[:, 0, 2:], wanted[:, 0, 2:]),
        (mask.float(), wanted.float()),
        (mask.to(torch.float16), wanted.half()),
        (~mask, ~wanted),
        (mask & ~wanted, wanted & ~wanted),
        (wanted | mask, wanted),
        (torch.cat([mask, wanted], -1), torch.cat([wanted, wanted], -1)),
        (torch.where(mask, 0.0, -1.0), torch.where(wanted, 0.0, -1.0)),
    ):
        assert torch.equal(made, same)
    assert not hasattr(mask, "no such thing")
    assert "KeyMask" in repr(mask)
    assert isinstance(mask & Causal(), Mask)


def test_models_that_lengthen_their_mask_are_given_numbers():
    config = SimpleNamespace(model_type="deepseek_v4")
    mask = make_mask(1, 3, 3, config=config, dtype=torch.bfloat16)
    assert torch.equal(mask == 0, torch.ones(1, 1, 3, 3, dtype=torch.bool).tril())
    assert mask.amin() == torch.finfo(torch.bfloat16).min


def test_what_nobody_knows_is_refused():
    with pytest.raises(OptionError, match="`tilt` must be left out or None for a mask .* got float, which regard does"):
        make_mask(1, 2, 2, tilt=0.5)
    assert isinstance(make_mask(1, 2, 2, local_size=3, dtype=torch.float32, config=object()), ModelMask)
