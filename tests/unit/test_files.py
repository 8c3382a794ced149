from __future__ import annotations

from pathlib import Path

import pytest

from mapper.errors import SourceError
from mapper.outputs.files import whole_file, whole_folder, write_text


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "model.py", "a\r\nb\n")
    assert (tmp_path / "model.py").read_bytes() == b"a\r\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "model.py", "old")
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "model.py") as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "model.py").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]


def test_a_new_file_may_be_read_by_whom_the_user_lets(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_text(tmp_path / "model.py", "")
    assert (tmp_path / "model.py").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_missing_folder_and_a_folder_in_the_way_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no folder .*missing; make it first"):
        write_text(tmp_path / "missing" / "model.py", "")
    with pytest.raises(SourceError, match="is a folder"):
        write_text(tmp_path, "")


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out") as partial:
        (partial / "model.py").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with whole_folder(tmp_path / "out") as partial:
        (partial / "model.py").write_text("all")
    assert (tmp_path / "out" / "model.py").read_text() == "all"


def test_a_folder_with_something_in_it_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with whole_folder(tmp_path / "out") as partial:
        (partial / "mine").write_text("")
    with pytest.raises(SourceError, match="already exists"), whole_folder(tmp_path / "out"):
        pass
