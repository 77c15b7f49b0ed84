"""A fuzzer: random attention against a float64 definition of its own, and random files and command lines.

    python -m fuzz --minutes 10                        # both, on every core
    python -m fuzz --minutes 10 --only attention
    python -m fuzz --replay attention:12345            # one case again, with all that is known of it

`definition/` is attention once more, written from the formulas and sharing no code with the library: what both say is
unlikely to be wrong in both. A case is made from one integer (`cases.py`), so that a failure is a number; numbers that
found something are kept in `seeds.txt`, and the tests replay them.
"""
