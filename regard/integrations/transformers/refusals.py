"""What models hand to attention besides queries, keys and values: what is honoured elsewhere, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.errors import OptionError

# These change nothing in attention: others have taken them into account by the time attention is called.
HARMLESS = frozenset(
    {
        # The mask has it: masks of a windowed layer are made with the layer's window.
        "sliding_window",
        # Queries and keys have them: they are turned, and joined with the cache, before attention.
        "cache_position",
        "input_ids",
        "past_key_value",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "use_cache",
        # What a model gives back, and its loss.
        "labels",
        "logits_to_keep",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
        # Asks for results that do not differ from run to run: those here never do.
        "deterministic",
        # Where sequences begin, for layers that are no attention.
        "seq_idx",
    }
)

# These would change what attention computes.
REFUSED = {
    "block_indices": "blocks of keys that a kernel of its own selects",
    "cache": "a paged cache, of continuous batching",
    "cu_seq_lens_k": "lengths of packed sequences for flash attention",
    "cu_seq_lens_q": "lengths of packed sequences for flash attention",
    "cu_seqlens": "lengths of packed sequences for flash attention",
    "head_mask": "a factor for each head",
    "kernel_options": "options of flex_attention",
    "layer_head_mask": "a factor for each head",
    "max_length_k": "lengths of packed sequences for flash attention",
    "max_length_q": "lengths of packed sequences for flash attention",
}
_ADVICE = {
    "lengths of packed sequences for flash attention": "Leave it out: packed sequences are known by position_ids that "
    "begin again, in a call with use_cache=False and without an attention_mask",
    "a paged cache, of continuous batching": 'Use generate, or attn_implementation="sdpa" for continuous batching',
}


def refuse_unknown(owner: str, given: Mapping[str, Any]) -> None:
    """Raise for any argument that has a value and is not known to be harmless."""
    for name, value in given.items():
        if value is None or name in HARMLESS:
            continue
        what = REFUSED.get(name, "which regard does not know")
        advice = _ADVICE.get(what, 'Leave it out, or run this model with attn_implementation="eager"')
        raise OptionError(
            f'`{name}` must be left out or None for {owner} with attn_implementation="regard": '
            f"got {type(value).__name__}, {what}. {advice}."
        )
