"""transformers is told of regard's attention and masks, and regard of transformers' layers. Importing this does it."""

from __future__ import annotations

from regard.integrations.transformers.hosted_layers import HOST, IMPLEMENTATION
from regard.integrations.transformers.requirement import check_transformers
from regard.nn.hosts import HOSTS


def register() -> None:
    """Make "regard" an attention of transformers; a second time changes nothing."""
    check_transformers()  # first: what follows imports from it
    from transformers import AttentionInterface, AttentionMaskInterface

    from regard.integrations.transformers.attention import attention_forward
    from regard.integrations.transformers.model_mask import make_mask

    AttentionInterface.register(IMPLEMENTATION, attention_forward)
    AttentionMaskInterface.register(IMPLEMENTATION, make_mask)
    if HOST not in HOSTS:
        HOSTS.append(HOST)


register()
