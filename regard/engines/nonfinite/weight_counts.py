"""Columns beside the values that count, in the same run, how much weight each row gives to what is broken."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engines.nan_safe import broken_keys, infinite_part, without_broken
from regard.engines.nonfinite.marks import needs_reach
from regard.problem import AttentionProblem
from regard.weights import Sigmoid


@dataclass(frozen=True)
class Counts:
    """Columns beside the values, which pool to how much weight a row gives to what is broken."""

    columns: Tensor  # (..., n_keys, 2 · width): NaN or +inf, then NaN or −inf; width is 1 if all components are alike
    components: Tensor | None  # those of the values that are broken somewhere; None for all
    reach: bool  # whether one more column is there, whose gradient says which keys have weight

    @staticmethod
    @torch.no_grad()
    def of(problem: AttentionProblem) -> Counts | None:
        """The columns for a problem's values; None if all are finite."""
        values, rule = problem.values, type(problem.rule)
        keys = broken_keys(values)
        if not keys.numel():
            return None
        some, components = values[..., keys, :], None
        broken = (some * 0).reshape(-1, some.shape[-1]).sum(0) != 0
        if not bool(broken.all()):
            components = broken.nonzero().flatten()
            some = some[..., components]
        up, down = (some == torch.inf) | some.isnan(), (some == -torch.inf) | some.isnan()
        if all(bool((each == each[..., :1]).all()) for each in (up, down)):
            up, down = up[..., :1], down[..., :1]
        # In float16 a small weight would vanish; larger than this, the sum of a row could overflow.
        unit = 2.0**15 if values.dtype == torch.float16 else 1.0
        marked = torch.cat([up, down], -1).to(values.dtype) * unit
        columns = values.new_zeros(*values.shape[:-1], marked.shape[-1]).index_copy_(-2, keys, marked)
        return Counts(columns, components, needs_reach(problem.rule) or rule is Sigmoid)

    def beside(self, values: Tensor) -> Tensor:
        """The values, 0 for what is broken, and the columns that count."""
        last = [torch.zeros_like(values[..., :1])] if self.reach else []
        return torch.cat([without_broken(values), self.columns, *last], -1)

    def split(self, pooled: Tensor, value_dim: int) -> tuple[Tensor, Tensor, Tensor]:
        """The output with what is broken where it has weight, the rows that give it any, and those without NaN."""
        output, width = pooled[..., :value_dim], self.columns.shape[-1] // 2
        up, down = pooled[..., value_dim:][..., : 2 * width].ne(0).split(width, -1)
        part = infinite_part(up, down).to(output.dtype)
        if self.components is None:
            output = output + part
        else:
            output = output.index_copy(-1, self.components, output[..., self.components] + part)
        touched = (up | down).any(-1, keepdim=True)
        return output, touched, touched & ~(up & down).any(-1, keepdim=True)
