"""What views promise."""

from __future__ import annotations

from mutants.hunt import Mutant

VIEWS = (
    Mutant(
        "entropy is for weights that sum to 1",
        "regard/view/weights_view.py",
        'if entropy and self.kind not in ("convex", "one-hot", "uniform"):',
        "if False:",
        ("tests/test_view.py -k entropy",),
    ),
    Mutant(
        "a broken promise of a rule is found",
        "regard/view/weights_view.py",
        "if off.numel() and not float(off.max()) <= tolerance:",
        "if False:",
        ("tests/test_view_promises.py -k promise",),
    ),
    Mutant(
        "a map of masked pairs counts them as 0",
        "regard/view/readings.py",
        "return torch.where(self.shown < pairs, self.picture.clamp(min=0), self.picture)",
        "return self.picture",
        ("tests/test_view_details.py -k masked",),
    ),
    Mutant(
        "a weight of 0 has no place among the heaviest",
        "regard/view/readings.py",
        "torch.where(weights == 0, -torch.inf, weights)",
        "weights",
        ("tests/test_view.py -k top",),
    ),
    Mutant(
        "what a view keeps of the heaviest is nobody's to change",
        "regard/view/weights_view.py",
        'results["top"] = Top(*(each[..., : heaviest.k].clone() for each in self._top))',
        'results["top"] = Top(*(each[..., : heaviest.k] for each in self._top))',
        ("tests/test_view_details.py -k heaviest",),
    ),
    Mutant(
        "what a view keeps of few weights is nobody's to change",
        "regard/view/few_weights.py",
        "rows.start : rows.stop, :].clone() if",
        "rows.start : rows.stop, :] if",
        ("tests/test_view_details.py -k changed",),
    ),
    Mutant(
        "a tile is cut out where it lies among those that readers are shown",
        "regard/view/passes.py",
        "return tile[..., top - rows.start : end - rows.start, left - columns.start : right - columns.start]",
        "return tile[..., : end - top, : right - left]",
        ("tests/test_view.py -k tiles",),
    ),
    Mutant(
        "received adds up over tiles",
        "regard/view/readings.py",
        "self.total[..., columns.start : columns.stop] += weights.sum(-2)",
        "self.total[..., columns.start : columns.stop] = weights.sum(-2)",
        ("tests/test_view_details.py -k receive",),
    ),
    Mutant(
        "a view of inputs that were changed in place says so",
        "regard/view/versions.py",
        "        if name is not None:",
        "        if False:",
        ("tests/test_versions.py",),
    ),
    Mutant(
        "where rounding of scores shows, readings come from one strip",
        "regard/engines/rounding.py",
        "return size <= LIMIT  # NaN is not",
        "return True",
        ("tests/engines/test_rounding.py tests/properties/test_view_readings.py",),
    ),
    Mutant(
        "gradients of huge scores are those of the forward pass's weights",
        "regard/tensors.py",
        "    if left.shape[:-2] == right.shape[:-2] and 1 not in left.shape[:-2]:",
        "    if True:",
        ("tests/test_partials.py -k queries_broadcast",),
    ),
    Mutant(
        "rollout divides the rows of A + I by their sums",
        "regard/analysis.py",
        "/ (1 + total)",
        "/ 2",
        ("tests/test_analysis.py -k stays",),
    ),
    Mutant(
        "importance is of each text before it is averaged",
        "regard/analysis.py",
        "(own * slope).sum((-2, -1)).abs()",
        "(own * slope).sum((-2, -1)).sum(0, keepdim=True).abs()",
        ("tests/test_analysis.py -k paper",),
    ),
    Mutant(
        "distances count on both sides of the diagonal",
        "regard/view/weighted.py",
        "nearest = columns.stop - 1 if before else columns.start",
        "nearest = columns.stop - 1",
        ("tests/test_analysis.py -k dense_weights",),
    ),
    Mutant(
        "a notebook's picture takes no more weights than it may",
        "regard/view/html.py",
        "or math.prod(view.shape) > MOST_PAIRS:",
        "or False:",
        ("tests/test_notebook_pictures.py -k long",),
    ),
    Mutant(
        "an interactive picture says that its view's inputs changed, also of what was read before",
        "regard/view/notebook/answers.py",
        "        view._versions.check()\n",
        "",
        ("tests/notebook/test_answers.py -k changed",),
    ),
    Mutant(
        "an interactive picture is sent no more than it may be",
        "regard/view/notebook/answers.py",
        "min(each, MOST_CELLS)",
        "each",
        ("tests/notebook/test_answers.py -k mebibyte",),
    ),
)
