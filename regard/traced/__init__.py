"""Attention while torch traces it: torch.compile, torch.export and the transforms of torch.func."""

from regard.scores.form_part import declare_all as _declare_all
from regard.traced.routes import attend_traced

__all__ = ["attend_traced"]

_declare_all()
