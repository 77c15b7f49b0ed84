"""Rollout, entropies, distances and importances of heads, held to their papers' formulas on dense matrices."""

import math

import pytest
import torch

from regard import Causal, KeyMask, Raw, Sparsemax, Window, nn, weigh
from regard.analysis import head_importance, mean_distances, mean_entropies, rollout
from regard.errors import MissingKey, OptionError, ShapeError
from regard.testing import AllocationTrap

N = 40


def encoder(layers=3, heads=4, **options):
    torch.manual_seed(0)
    layer = nn.EncoderLayer(16, heads, 32, dropout=0.0, batch_first=True, **options)
    made = nn.Encoder(layer, layers).eval()
    with torch.no_grad():
        for each in made.parameters():
            each.add_(0.4 * torch.randn_like(each))  # attention far from uniform
    return made


def decoder_of_transformers(kind="llama"):
    """A causal model of transformers whose heads share keys."""
    pytest.importorskip("transformers")
    import transformers

    import regard.integrations.transformers  # noqa: F401

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    configs = {
        "llama": lambda: transformers.LlamaConfig(vocab_size=50, num_key_value_heads=2, **sizes),
        "bert": lambda: transformers.BertConfig(vocab_size=50, hidden_dropout_prob=0.0, **sizes),
    }
    model = transformers.AutoModel.from_config(configs[kind](), attn_implementation="regard").eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(6)
    return model


def recorded(model, *arguments, **options):
    with nn.record(model) as seen, torch.no_grad():
        model(*arguments, **options)
    return seen


def dense_rollout(seen):
    """R = Ã_L ⋯ Ã₁ as Abnar and Zuidema (2020) compute it: the mean of heads, plus I, rows divided by their sums."""
    product = None
    for view in seen.views():
        augmented = view.dense().double().mean(-3) + torch.eye(view.shape[-1], dtype=torch.float64)
        augmented = augmented / augmented.sum(-1, keepdim=True)
        product = augmented if product is None else augmented @ product
    return product


def recordings():
    x = torch.randn(2, N, 16, generator=torch.Generator().manual_seed(1))
    padding = torch.zeros(2, N, dtype=torch.bool)
    padding[1, 25:] = True
    tokens = torch.randint(50, (2, N), generator=torch.Generator().manual_seed(1))
    yield "encoder", lambda: recorded(encoder(), x)
    yield "padding", lambda: recorded(encoder(), x, src_key_padding_mask=padding)
    yield "causal", lambda: recorded(encoder(mask=Causal()), x)
    yield "sparsemax", lambda: recorded(encoder(weights=Sparsemax()), x)
    torch_layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    plain = torch.nn.TransformerEncoder(torch_layer, 2, enable_nested_tensor=False).eval()
    yield "converted", lambda: recorded(nn.convert(plain), x)
    yield "llama", lambda: recorded(decoder_of_transformers("llama"), tokens)
    yield "bert", lambda: recorded(decoder_of_transformers("bert"), tokens, attention_mask=(~padding).long())


CASES = [pytest.param(make, id=name) for name, make in recordings()]


# Rollout --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", CASES)
@pytest.mark.usefixtures("few_weights")
def test_rollout_is_rows_of_the_product_of_the_paper(make):
    seen = make()
    places = [0, 17, -1]
    wanted = dense_rollout(seen)[..., places, :].float()
    found = rollout(seen, places)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(rollout(seen.views(), places), found)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3))


def test_rollout_of_a_token_that_attends_to_nothing_stays_with_it():
    x = torch.randn(1, 6, 8)
    view = weigh(x[:, None], x[:, None], x[:, None], mask=KeyMask(torch.zeros(1, 1, 6, dtype=torch.bool)))
    assert torch.equal(rollout([view, view], [2]), torch.eye(6)[None, [2]])


def test_rollout_asks_for_layers_of_one_side_and_weights_that_sum_to_one():
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)
    seen = recorded(model, torch.rand(2, 7, 16), torch.rand(2, 5, 16))
    with pytest.raises(ShapeError, match="5 queries and 7 keys. Record layers of self-attention"):
        rollout(seen, [0])
    some = [view for name, view in seen if "multihead" not in name]
    with pytest.raises(ShapeError, match="must attend among the same tokens"):
        rollout(some, [0])
    x = torch.rand(1, 2, 5, 4)
    with pytest.raises(OptionError, match="must have weights that sum to 1: got linear ones"):
        rollout([weigh(x, x, x, weights=Raw())], [0])
    assert rollout(some[:1], [0]).shape == (2, 1, 7)


@pytest.mark.parametrize(
    ("tokens", "text"), [(3, r"must be a list of positions: got 3. Use \[3\]"), ([9], r"from -7 to 6: got \[9\]")]
)
def test_positions_that_are_none(tokens, text):
    x = torch.rand(1, 2, 7, 4)
    with pytest.raises(OptionError, match=text):
        rollout([weigh(x, x, x)], tokens)


# Entropies and distances ----------------------------------------------------------------------------------------------


def dense_distances(view, counted):
    """Σ α |i − j| / Σ α of each head, over sequences (Vig and Belinkov, 2019)."""
    places = torch.arange(view.shape[-1])
    alpha = view.dense().double() * counted[:, None, :, None]
    return (alpha * (places[:, None] - places).abs()).sum((0, 2, 3)) / alpha.sum((0, 2, 3))


def dense_entropies(view, counted):
    alpha = view.dense().double()
    entropy = -torch.xlogy(alpha, alpha).sum(-1)
    return (entropy * counted[:, None]).sum((0, 2)) / counted.sum()


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.usefixtures("few_weights")
def test_entropies_and_distances_are_those_of_dense_weights(make, padded):
    seen = make()
    mask = torch.ones(2, N, dtype=torch.long)
    if padded:
        mask[1, 25:] = 0
    given = mask if padded else None
    for found, formula in (
        (mean_distances(seen, given), dense_distances),
        (mean_entropies(seen, given), dense_entropies),
    ):
        wanted = torch.stack([formula(view, mask) for view in seen.views()]).float()
        assert found.shape == (len(seen), 4)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_heads_that_are_known_have_known_entropies_and_distances():
    x = torch.zeros(1, 1, 101, 4)
    near = weigh(x, x, x, mask=Window(before=1, after=1))
    assert mean_entropies([near]).item() == pytest.approx((99 * math.log(3) + 2 * math.log(2)) / 101, rel=1e-6)
    assert mean_distances([near]).item() == pytest.approx((99 * 2 / 3 + 2 / 2) / 101, rel=1e-6)


def test_a_mask_of_another_shape_and_layers_of_other_heads_are_refused():
    x = torch.rand(2, 4, 7, 4)
    view = weigh(x, x, x)
    with pytest.raises(ShapeError, match=r"`attention_mask` must be \(2, 7\) for weights \(2, 4, 7, 7\): got \(2, 6\)"):
        mean_distances([view], torch.ones(2, 6))
    few = x[:, :2]
    with pytest.raises(ShapeError, match=r"as many heads each to make one table: got \[4, 2\]"):
        mean_entropies([view, weigh(few, few, few)])
    with pytest.raises(OptionError, match="must have a recording of calls, or views: got no call"):
        mean_entropies(nn.record(encoder()))
    with pytest.raises(OptionError, match="got Tensor"):
        mean_entropies([x])
    with pytest.raises(ShapeError, match="must have weights of heads"):
        mean_entropies([weigh(x[0, 0], x[0, 0], x[0, 0])])


@pytest.mark.parametrize("reading", [lambda seen: rollout(seen, [0, -1]), mean_distances, mean_entropies])
def test_memory_does_not_grow_with_n_times_m(reading):
    n = 2000
    queries = torch.randn(1, 2, n, 8, generator=torch.Generator().manual_seed(0))
    views = [weigh(queries, queries, queries, engine="tiled") for _ in range(2)]
    with AllocationTrap(n * n // 4, known=[queries]):
        reading(views)


# Importance -----------------------------------------------------------------------------------------------------------


class Dense(torch.nn.Module):
    """Multi-head attention by its definition, with a factor on each head and its weights kept for autograd."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, factors, mask=None):
        layer, heads = self.layer, self.layer.num_heads
        projected = torch.nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias)
        q, k, v = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in projected.chunk(3, -1))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        self.alpha = scores.softmax(-1)
        self.alpha.retain_grad()
        pooled = (self.alpha @ v) * factors[:, :, None, None]
        return layer.out_proj(pooled.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("masked", [False, True])
def test_importance_is_that_of_the_paper_and_the_sum_of_weights_times_gradients(masked):
    torch.manual_seed(0)
    layer, x, target = nn.MultiHeadAttention(16, 4, batch_first=True), torch.randn(3, 9, 16), torch.randn(3, 9, 16)
    padding = torch.zeros(3, 9, dtype=torch.bool)
    padding[0, 5:] = masked
    with head_importance(layer) as importance:
        output, _ = layer(x, x, x, key_padding_mask=padding if masked else None, need_weights=False)
        ((output - target) ** 2).sum().backward()
    dense, factors = Dense(layer), torch.ones(3, 4, requires_grad=True)
    ((dense(x, factors, padding[:, None, None]) - target) ** 2).sum().backward()
    of_the_paper = factors.grad.abs().mean(0)  # E_x |∂L(x)/∂ξ|
    by_weights = (dense.alpha * dense.alpha.grad).sum((-2, -1)).abs().mean(0)
    torch.testing.assert_close(importance.scores[0], of_the_paper, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(importance[0], by_weights, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_importance_in_models_of_transformers_is_that_of_eager_with_factors(kind):
    model = decoder_of_transformers(kind)
    tokens = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(1))
    with head_importance(model, layers=[0, 2]) as importance:
        model(tokens)[0].square().sum().backward()
    assert importance.scores.shape == (2, 4)

    model.set_attn_implementation("eager")
    kept = {}
    for name, module in model.named_modules():
        if name.endswith(("o_proj", "attention.output.dense")):
            module.register_forward_pre_hook(_keep(kept, name))
    model(tokens)[0].square().sum().backward()
    wanted = []
    for pooled in kept.values():
        parts = (each.unflatten(-1, (4, -1)) for each in (pooled.detach(), pooled.grad))
        own, slope = parts
        wanted.append((own * slope).sum((1, 3)).abs().mean(0))
    assert len(wanted) == 3
    torch.testing.assert_close(importance[2], wanted[2], atol=1e-3, rtol=1e-2)
    torch.testing.assert_close(importance.scores, torch.stack([wanted[0], wanted[2]]), atol=1e-3, rtol=1e-2)


def _keep(kept, name):
    def keep(module, inputs):
        inputs[0].retain_grad()
        kept[name] = inputs[0]

    return keep


def test_a_head_that_is_left_out_changes_the_loss_by_its_importance():
    """To first order: I = |∂L/∂ξ|, held to a difference of two losses."""
    torch.manual_seed(0)
    layer, x = nn.MultiHeadAttention(8, 2, batch_first=True).double(), torch.randn(1, 6, 8, dtype=torch.float64)
    with head_importance(layer) as importance:
        layer(x, x, x, need_weights=False)[0].square().sum().backward()
    step, losses = 1e-6, []
    for factor in (1 - step, 1 + step):
        with torch.no_grad():
            changed = layer.out_proj.weight.clone()
            changed[:, :4] *= factor  # the columns that read head 0
            pooled = layer.weigh(x, x, x).output.transpose(1, 2).flatten(2)
            losses.append((pooled @ changed.T + layer.out_proj.bias).square().sum())
    slope = (losses[1] - losses[0]) / (2 * step)
    torch.testing.assert_close(importance[0][0], slope.abs().float(), rtol=1e-4, atol=1e-4)


def test_batches_are_averaged_and_layouts_agree():
    torch.manual_seed(0)
    x = torch.randn(4, 9, 16)
    grouped = nn.MultiHeadAttention(16, 4, batch_first=True, num_kv_heads=2)
    found = []
    for batches in ((x,), (x[:1], x[1:])):
        for need_weights in (False, True):
            with head_importance(grouped) as importance:
                for batch in batches:
                    grouped(batch, batch, batch, need_weights=need_weights)[0].square().sum().backward()
            found.append(importance.scores)
    assert found[0].shape == (1, 4)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-5)


def test_a_layer_without_heads_has_one():
    layer, x = nn.SelfAttention(8, 8), torch.randn(3, 5, 8)
    with head_importance(layer) as importance:
        layer(x).square().sum().backward()
    assert importance.scores.shape == (1, 1)


def test_gradients_are_as_without_and_nothing_is_seen_outside():
    model, x = encoder().train(), torch.randn(2, 7, 16)
    model(x).square().sum().backward()
    wanted = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    with head_importance(model) as importance:
        model(x).square().sum().backward()
    assert all(torch.equal(one.grad, other) for one, other in zip(model.parameters(), wanted, strict=True))
    before = importance.scores.clone()
    model(x).square().sum().backward()
    assert torch.equal(importance.scores, before)


def test_importance_takes_no_n_times_m():
    layer, x = nn.MultiHeadAttention(8, 2, batch_first=True), torch.randn(1, 2000, 8)
    with AllocationTrap(2000 * 2000 // 4), head_importance(layer) as importance:
        layer(x, x, x, need_weights=False)[0].square().sum().backward()
    assert importance.scores.shape == (1, 2)


def test_what_was_not_differentiated_is_said():
    model = encoder()
    with head_importance(model) as importance, torch.no_grad():
        model(torch.randn(2, 7, 16))
    with pytest.raises(MissingKey, match=r"layers.0.self_attn must have been called, and a loss been differentiated"):
        importance.scores  # noqa: B018
    with pytest.raises(OptionError, match="nothing to watch"):
        head_importance(torch.nn.Linear(2, 2))
