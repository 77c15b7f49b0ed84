"""What models of other libraries are promised."""

from __future__ import annotations

from mutants.hunt import Mutant

_TESTS = "tests/integrations/transformers"

INTEGRATIONS = (
    Mutant(
        "what a model hands over and nobody knows is refused",
        "regard/integrations/transformers/refusals.py",
        "if value is None or name in HARMLESS:",
        "if True:",
        (f"{_TESTS}/test_attention.py -k refused",),
    ),
    Mutant(
        "the least number of a dtype is a mask",
        "regard/integrations/transformers/attention.py",
        "return None, mask.masked_fill(mask <= torch.finfo(mask.dtype).min, -torch.inf)",
        "return None, mask",
        (f"{_TESTS}/test_attention.py -k nowhere",),
    ),
    Mutant(
        "a window has as many keys as transformers says",
        "regard/integrations/transformers/mask_functions.py",
        "Window(before=sliding_window - 1, after=None",
        "Window(before=sliding_window, after=None",
        (f"{_TESTS}/test_mask_functions.py -k known",),
    ),
    Mutant(
        "tokens outside of every block see no other such token by it",
        "regard/integrations/transformers/mask_functions.py",
        "SameDocument(of_queries, of_keys.masked_fill(of_keys < 0, -2))",
        "SameDocument(of_queries, of_keys)",
        (f"{_TESTS}/test_mask_functions.py -k known",),
    ),
    Mutant(
        "heads that share keys are rows only where nothing tells them apart",
        "regard/integrations/transformers/attention.py",
        "and (self.mask is None or type(self.mask) is KeyMask)",
        "and True",
        (f"{_TESTS}/test_attention.py -k eager",),
    ),
    Mutant(
        "each layer learns a copy of its own",
        "regard/integrations/transformers/replacing.py",
        "had.weights if weights is None else copy.deepcopy(weights)",
        "had.weights if weights is None else weights",
        (f"{_TESTS}/test_replacing.py -k own",),
    ),
    Mutant(
        "what is replaced is used through what PEFT wraps it in",
        "regard/integrations/transformers/replacing.py",
        'found = getattr(module._modules.get(NAME), "active", None)',
        "found = module._modules.get(NAME)",
        (f"{_TESTS}/test_adapters.py -k saved_with_it",),
    ),
    Mutant(
        "pickles are read only when somebody asks for it",
        "regard/integrations/transformers/checkpoint_folder.py",
        "WEIGHTS[: 1 + pickles]",
        "WEIGHTS",
        (f"{_TESTS}/test_loading.py -k not_read",),
    ),
    Mutant(
        "Python of a checkpoint runs only when somebody asks for it",
        "regard/integrations/transformers/checkpoint_folder.py",
        'if options.get("trust_remote_code") is None:',
        "if False:",
        (f"{_TESTS}/test_loading.py -k only_when_asked",),
    ),
    Mutant(
        "what a checkpoint says of its attention gives way to regard",
        "regard/integrations/transformers/loading.py",
        'dict.fromkeys(("attn_implementation", "_attn_implementation"), IMPLEMENTATION)',
        '{"attn_implementation": IMPLEMENTATION}',
        (f"{_TESTS}/test_loading.py -k whatever",),
    ),
    Mutant(
        "random weights are not handed back",
        "regard/integrations/transformers/loading.py",
        "    _check_loaded(folder, model, info)\n",
        "",
        (f"{_TESTS}/test_loading.py -k random",),
    ),
    Mutant(
        "an index does not lead out of its folder",
        "regard/integrations/transformers/checkpoint_folder.py",
        "is_relative_to(inside)",
        "is_absolute()",
        (f"{_TESTS}/test_loading.py -k lead_out",),
    ),
    Mutant(
        "a recording leaves what a gradient needs as it is",
        "regard/nn/recording.py",
        "if torch.is_grad_enabled() or dropout else None",
        "if dropout else None",
        ("tests/nn/test_recording.py -k checkpointing_may",),
    ),
    Mutant(
        "a layer's name is whole",
        "regard/nn/layer_names.py",
        'name.startswith(f"{layer}.")',
        "name.startswith(layer)",
        (f"{_TESTS}/test_recording.py -k whole",),
    ),
    Mutant(
        "converted layers keep their parameters",
        "regard/nn/conversion.py",
        "new._parameters.update(old._parameters)",
        "new._parameters.update({name: nn.Parameter(each.clone()) for name, each in old.named_parameters()})",
        ("tests/nn/test_conversion.py",),
    ),
    Mutant(
        "rows of cross-attention are what their step writes",
        "regard/integrations/transformers/text_model.py",
        "queries, keys = self._of_numbers(written[1:]), source",
        "queries, keys = self._of_numbers(written[:-1]), source",
        (f"{_TESTS}/test_text_model.py -k step_writes",),
    ),
    Mutant(
        "words end at blanks, whatever the tokenizer",
        "regard/text/pieces.py",
        "return any(map(str.isspace, text[end:first])) or (",
        "return (",
        (f"{_TESTS}/test_text_model.py -k reader_takes",),
    ),
)
