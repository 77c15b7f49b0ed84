"""What commands save: whole or not at all, where it was asked for and nowhere else."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.saving import save_text, saving
from regard.errors import OptionError


def pronounce(output: Path) -> str:
    result = CliRunner().invoke(app, ["pronounce", "dog", "-o", str(output)])
    assert result.exit_code == 0, result.output
    return " ".join(result.stderr.split())


def test_a_new_file_is_saved(tmp_path):
    assert pronounce(tmp_path / "dog.json") == f"saved {tmp_path}/dog.json"
    assert [each.name for each in tmp_path.iterdir()] == ["dog.json"]


def test_a_file_that_was_there_is_replaced_and_that_is_said(tmp_path):
    (tmp_path / "dog.json").write_text("mine")
    assert pronounce(tmp_path / "dog.json").endswith("dog.json, in place of the file that was there")
    assert "dog" in (tmp_path / "dog.json").read_text()


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "precious.json").write_text("mine")
    (tmp_path / "dog.json").symlink_to(tmp_path / "precious.json")
    assert pronounce(tmp_path / "dog.json").endswith("dog.json, in place of a link that was there")
    assert (tmp_path / "precious.json").read_text() == "mine"
    assert not (tmp_path / "dog.json").is_symlink()


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(OptionError, match="Is a directory"), saving(tmp_path / "a.txt") as file:
        save_text("half", file.parent)
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_saved_file_may_be_read_by_whom_the_user_lets(tmp_path):
    before = os.umask(0o022)
    try:
        pronounce(tmp_path / "dog.json")
    finally:
        os.umask(before)
    assert (tmp_path / "dog.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["a" * 5000 + ".json", "missing/dog.json"])
def test_a_place_that_cannot_be_written_is_an_error_in_words(tmp_path, name):
    result = CliRunner().invoke(app, ["pronounce", "dog", "-o", str(tmp_path / name)])
    assert result.exit_code == 1
    assert "--output must be a file that can be written" in result.stderr


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with (
        pytest.raises(OptionError, match=r"There is no folder '.*missing': make it first\.$"),
        saving(tmp_path / "missing" / "a.txt"),
    ):
        pass
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OptionError) as error, saving(tmp_path / "a.txt") as file:
        save_text("a", file)
    assert "There is no folder" not in str(error.value)
