"""A layer that is called token by token with a cache computes what it computes at once; and what a cache keeps."""

import pytest
import torch

from regard import Causal, nn
from regard.errors import DtypeError, OptionError, ShapeError

DIM, HEADS, BATCH, LENGTH, MEMORY = 12, 3, 2, 6, 5
ADDED = {
    "learned pair": {"add_bias_kv": True},
    "zero pair": {"add_zero_attn": True},
    "both pairs": {"add_bias_kv": True, "add_zero_attn": True},
}
PARTS = [1, 3, 1, 1]  # how many tokens each call has


def layer_with(**options):
    torch.manual_seed(1)
    return nn.MultiHeadAttention(DIM, HEADS, batch_first=True, dtype=torch.float64, **options)


def tokens(length, seed=2):
    return torch.randn(BATCH, length, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", ADDED)
def test_keys_that_follow_a_sequence_follow_it_once_at_every_step(name, grad):
    layer, x = layer_with(**ADDED[name], num_kv_heads=1), tokens(LENGTH)
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    wanted, wanted_weights = layer(x, x, x, attn_mask=later)
    cache, outputs, start = nn.LayerCache(), [], 0
    with torch.set_grad_enabled(grad):
        for part in x.split(PARTS, 1):
            output, weights = layer(part, part, part, mask=Causal(align="end"), cache=cache)
            stop = start + part.shape[1]
            seen = torch.cat([wanted_weights[:, start:stop, :stop], wanted_weights[:, start:stop, LENGTH:]], -1)
            torch.testing.assert_close(weights, seen)
            outputs.append(output)
            start = stop
    torch.testing.assert_close(torch.cat(outputs, 1), wanted)
    assert cache.length == LENGTH


@pytest.mark.parametrize("name", ADDED)
def test_keys_that_follow_a_memory_follow_it_once_at_every_step(name):
    layer, x, memory = layer_with(**ADDED[name]), tokens(LENGTH), tokens(MEMORY, seed=3)
    theirs = torch.nn.MultiheadAttention(DIM, HEADS, batch_first=True, dtype=torch.float64, **ADDED[name])
    theirs.load_state_dict(layer.state_dict())
    padding = torch.arange(MEMORY) >= torch.tensor([[MEMORY], [3]])
    wanted = theirs(x, memory, memory, key_padding_mask=padding)[0]
    cache = nn.LayerCache(is_fixed=True)
    steps = [layer(part, memory, memory, key_padding_mask=padding, cache=cache)[0] for part in x.split(PARTS, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), wanted)
    assert cache.length == MEMORY


def test_queries_at_a_memory_are_turned_by_their_own_place():
    layer, x, memory = layer_with(rotary=nn.Rotary(DIM // HEADS)), tokens(LENGTH), tokens(MEMORY, seed=3)
    wanted = layer(x, memory, memory)[0]
    cache = nn.LayerCache(is_fixed=True)
    steps = [layer(part, memory, memory, cache=cache)[0] for part in x.split(PARTS, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), wanted)


def test_queries_keep_their_place_when_sequences_are_reordered():
    layer, x, memory = layer_with(rotary=nn.Rotary(DIM // HEADS)), tokens(LENGTH), tokens(MEMORY, seed=3)
    index = torch.tensor([1, 1, 0])
    wanted = layer(x, memory, memory)[0].index_select(0, index)
    cache = nn.LayerCache(is_fixed=True)
    layer(x[:, :2], memory, memory, cache=cache)
    cache.reorder(index)
    memory = memory.index_select(0, index)
    got = layer(x.index_select(0, index)[:, 2:], memory, memory, cache=cache)[0]
    torch.testing.assert_close(got, wanted[:, 2:])


@pytest.mark.parametrize(
    ("other", "got"),
    [
        ((BATCH, MEMORY + 1), "2 of 6"),
        ((BATCH, MEMORY - 1), "2 of 4"),
        ((BATCH + 1, MEMORY), "3 of 5"),
        ((0, 0), "0 of 0"),
    ],
    ids=str,
)
def test_a_fixed_cache_does_not_answer_for_another_memory(other, got):
    layer, x, memory = layer_with(rotary=nn.Rotary(DIM // HEADS)), tokens(LENGTH), tokens(MEMORY, seed=3)
    cache = nn.LayerCache(is_fixed=True)
    first = layer(x[:, :1], memory, memory, cache=cache)[0]
    wrong = torch.zeros(*other, DIM, dtype=torch.float64)
    with pytest.raises(ShapeError, match=f"serves the memory that it was given first, 2 sequences of 5: got {got}"):
        layer(wrong.new_zeros(other[0], 1, DIM), wrong, wrong, cache=cache)
    # Nothing has happened to the cache.
    rest = layer(x[:, 1:], memory, memory, cache=cache)[0]
    torch.testing.assert_close(torch.cat([first, rest], 1), layer(x, memory, memory)[0])


def test_a_decoder_does_not_take_another_memory_in_the_middle():
    decoder = nn.Decoder(nn.DecoderLayer(DIM, HEADS, batch_first=True, dtype=torch.float64), 2).eval()
    cache = nn.KeyValueCache(2)
    decoder(tokens(1), tokens(MEMORY), cache=cache)
    with pytest.raises(ShapeError, match="Make a new cache for another memory"):
        decoder(tokens(1), tokens(MEMORY + 2), cache=cache)


def test_a_memory_of_nothing_is_a_memory_too():
    layer, x, nothing = layer_with(), tokens(2), tokens(0)
    cache = nn.LayerCache(is_fixed=True)
    for _ in range(2):
        output = layer(x, nothing, nothing, need_weights=False, cache=cache)[0]
        torch.testing.assert_close(output, layer.out_proj.bias.expand_as(x))
    with pytest.raises(ShapeError, match="2 sequences of 0: got 2 of 5"):
        layer(x, tokens(MEMORY), tokens(MEMORY), cache=cache)
    with pytest.raises(OptionError, match="takes keys and values once"):
        cache.extend(*cache.pairs())


@pytest.mark.parametrize("grad", [(False,), (True,), (True, False)], ids=["no grad", "grad", "by turns"])
def test_a_cache_grows_without_losing_what_it_has(grad):
    cache, keys, values = nn.LayerCache(), torch.rand(2, 3, 300, 4), torch.rand(2, 3, 300, 5)
    start = 0
    for turn, size in enumerate((1, 62, 1, 1, 135, 100)):
        with torch.set_grad_enabled(grad[turn % len(grad)]):
            got = cache.extend(keys[..., start : start + size, :], values[..., start : start + size, :])
        start += size
        assert torch.equal(got[0], keys[..., :start, :])
        assert torch.equal(got[1], values[..., :start, :])
    assert cache.nbytes >= keys.nbytes + values.nbytes


def test_a_cache_has_room_and_writes_a_token_in_place():
    cache, keys = nn.LayerCache(), torch.rand(1, 2, 1, 4)
    with torch.no_grad():
        places = {cache.extend(keys, keys)[0].data_ptr() for _ in range(40)}
    assert len(places) == 1


def test_gradients_of_queries_survive_keys_that_need_none():
    torch.manual_seed(1)
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True, vdim=3)
    for each in (layer.k_proj_weight, layer.v_proj_weight, layer.in_proj_bias):
        each.requires_grad_(False)
    x, values = torch.randn(BATCH, 4, DIM), torch.randn(BATCH, 4, 3)
    cache, parts = nn.LayerCache(), []
    for i in range(4):
        part = x[:, i : i + 1]
        parts.append(layer(part, part, values[:, i : i + 1], need_weights=False, cache=cache)[0])
    whole = layer(x, x, values, need_weights=False, mask=Causal())[0]
    got, wanted = (
        torch.autograd.grad(each.square().sum(), layer.q_proj_weight)[0] for each in (torch.cat(parts, 1), whole)
    )
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda keys: (keys[:1], keys[:1]), ShapeError, "batch, heads and size"),  # one sequence would broadcast
        (lambda keys: (keys[..., :2], keys), ShapeError, "batch, heads and size"),
        (lambda keys: (keys, keys[:, :, :1]), ShapeError, "Every key must have its value"),
        (lambda keys: (keys.double(), keys.double()), DtypeError, "its dtype, torch.float32: got torch.float64"),
    ],
    ids=["batch", "size", "values", "dtype"],
)
def test_what_does_not_fit_a_cache_leaves_it_as_it_was(change, error, text):
    cache, keys = nn.LayerCache(), torch.rand(2, 3, 2, 4)
    with torch.no_grad():
        cache.extend(keys, keys)
        with pytest.raises(error, match=text):
            cache.extend(*change(keys))
    assert cache.length == 2
    assert torch.equal(cache.pairs()[0], keys)
