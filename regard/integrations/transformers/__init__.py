"""Models of transformers on regard: importing this registers "regard" for attention and for masks.

Every model that follows transformers' AttentionInterface then runs with `attn_implementation="regard"`, and its weights
can be read with `regard.nn.record`, without eager code and without n × m.

Example:
    >>> import torch, transformers
    >>> import regard.integrations.transformers
    >>> from regard import nn
    >>> config = transformers.BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    >>> model = transformers.AutoModel.from_config(config, attn_implementation="regard").eval()
    >>> with nn.record(model) as seen, torch.no_grad():
    ...     output = model(torch.randint(99, (2, 10)))
    >>> seen["encoder.layer.1"].top(5).indices.shape
    torch.Size([2, 4, 10, 5])
"""

from __future__ import annotations

import regard.integrations.transformers.registration  # noqa: F401  what registers
from regard.integrations.transformers.loading import load
from regard.integrations.transformers.replacing import replace, restore
from regard.integrations.transformers.text_model import TextModel

__all__ = ["TextModel", "load", "replace", "restore"]
