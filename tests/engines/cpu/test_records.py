"""Records: what kernels take together is handed over field by field, and arrives as one argument."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("numba")

from regard.engines.cpu.kernels.records import Dropout, RowFacts
from regard.engines.cpu.runtime import jit


def test_a_kernel_takes_the_fields_of_its_records_in_their_order() -> None:
    def read(rule, facts, dropout):  # type: ignore[no-untyped-def]
        """What is read."""
        return rule + 10 * facts.scales + 100 * dropout.limit

    unpacked = jit._unpacked(read)
    assert list(inspect.signature(unpacked).parameters) == ["rule", *RowFacts._fields, *Dropout._fields]
    assert (unpacked.__name__, unpacked.__module__, unpacked.__doc__) == ("read", __name__, "What is read.")
    assert unpacked(1, *RowFacts(0, 2, 0), *Dropout(0, 0, 3, 0)) == 321


def test_a_kernel_without_records_is_left_alone() -> None:
    def read(rule):  # type: ignore[no-untyped-def]
        return rule

    assert jit._unpacked(read) is read


def test_a_field_without_a_type_is_refused(monkeypatch) -> None:
    def read(facts):  # type: ignore[no-untyped-def]
        return facts

    monkeypatch.setitem(jit.RECORDS, "facts", type("Odd", (), {"_fields": ("offsets", "oddity")}))
    with pytest.raises(TypeError, match=r"read has oddity\. Add the name there"):
        jit.kernel(read)
