"""Attention while torch traces it: torch.compile, torch.export and the transforms of torch.func."""

from regard.traced.routes import attend_traced

__all__ = ["attend_traced"]
