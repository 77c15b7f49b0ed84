"""`python -m regard.testing`: the contract from a command line, in slices that can be resumed."""

from __future__ import annotations

from regard.testing.__main__ import main

FEW = ["--engine", "reference", "--dtype", "float32", "--every", "900"]


def test_a_run_is_resumed_where_it_ended(tmp_path, capsys):
    file = tmp_path / "done.jsonl"
    assert main([*FEW, "--resume", str(file), "--minutes", "0"]) == 0
    assert "cases were not run" in capsys.readouterr().out
    assert main([*FEW, "--resume", str(file)]) == 0
    whole = capsys.readouterr().out
    assert "0 failed" in whole
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:10])  # ended within a line
    assert main([*FEW, "--resume", str(file)]) == 0
    assert capsys.readouterr().out.partition(", in ")[0] == whole.partition(", in ")[0]
    assert sorted(file.read_text().splitlines()) == sorted(lines)
