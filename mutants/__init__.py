"""Mutants: the library with one promise taken away, and the tests that must notice.

    python -m mutants                     # all of them, two at a time; at most an hour
    python -m mutants --only "ties" dropout
    python -m mutants --list

`promises.py` names each promise with the text that keeps it and the text that breaks it. A mutant is killed if a test
fails, and survives if none does: then the promise has no test. A text that is no longer found, or found twice, is an
error: the table cannot rot in silence.

Tests are picked by coverage: one run of the suite under `python -m mutants --map` notes which tests reach which lines
(`.mutants/map.json`, made anew when it is older than the sources or tests and `--map` is given). What compiled kernels
run no tracer sees, so entries may name tests of their own, which run first.
"""
