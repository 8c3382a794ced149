from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mapper.errors import MapperError, OverwriteError
from mapper.outputs import files, temporary
from mapper.outputs.files import standing, whole_file, whole_folder, write_text


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.fixture(params=["exchanged", "one after the other"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "exchanged":
        monkeypatch.setattr(files, "_renameat2", lambda: None)
    return str(request.param)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def mine(folder: Path) -> set[str] | None:
    return {"mark", "data", "old"} if (folder / "mark").exists() else None


def put(path: Path, data: str, **others: str) -> None:
    with whole_folder(path, own=mine) as partial:
        (partial / "mark").write_text("")
        (partial / "data").write_text(data)
        for name, text in others.items():
            (partial / name).write_text(text)


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, umask: None) -> None:
    write_text(tmp_path / "a", "")
    assert mode(tmp_path / "a") == 0o640


@pytest.mark.parametrize("old", [0o600, 0o444, 0o664, 0o755])
def test_an_overwritten_file_keeps_its_mode(tmp_path: Path, umask: None, old: int) -> None:
    write_text(tmp_path / "a", "old")
    (tmp_path / "a").chmod(old)
    write_text(tmp_path / "a", "new")
    assert (mode(tmp_path / "a"), (tmp_path / "a").read_text()) == (old, "new")


def test_nobody_reads_a_private_file_while_it_is_written(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    (tmp_path / "a").chmod(0o600)
    with whole_file(tmp_path / "a") as partial:
        assert mode(partial) == 0o600


def test_a_folder_and_its_files_keep_their_modes(tmp_path: Path, way: str) -> None:
    put(tmp_path / "out", "1")
    (tmp_path / "out").chmod(0o750)
    (tmp_path / "out" / "data").chmod(0o600)
    put(tmp_path / "out", "2")
    assert (mode(tmp_path / "out"), mode(tmp_path / "out" / "data")) == (0o750, 0o600)
    assert (tmp_path / "out" / "data").read_text() == "2"


def test_nobody_else_looks_into_a_folder_while_it_is_written(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "out") as partial:
        assert mode(partial) == 0o700


def test_a_new_folder_has_the_mode_of_the_umask(tmp_path: Path, umask: None) -> None:
    put(tmp_path / "out", "")
    assert (mode(tmp_path / "out"), mode(tmp_path / "out" / "data")) == (0o750, 0o640)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/file")
    for text in ("created", "replaced"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "real" / "file").read_text() == text
        assert os.readlink(tmp_path / "link") == "real/file"
    assert len(list(tmp_path.rglob("*"))) == 3


def test_a_link_to_a_folder_is_followed(tmp_path: Path, way: str) -> None:
    put(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link", "new")
    assert (tmp_path / "real" / "data").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_a_link_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(MapperError, match="link to itself"):
        write_text(tmp_path / "loop", "")


def test_nothing_is_overwritten_where_that_is_not_allowed(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    put(tmp_path / "out", "old")
    with pytest.raises(FileExistsError, match="already exists"):
        write_text(tmp_path / "a", "new", overwrite=False)
    with (
        pytest.raises(FileExistsError, match="already exists"),
        whole_folder(tmp_path / "out", overwrite=False),
    ):
        pass
    write_text(tmp_path / "b", "new", overwrite=False)
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "out"]


def test_what_came_meanwhile_is_not_overwritten_either(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="meanwhile"), whole_file(tmp_path / "a", overwrite=False):
        (tmp_path / "a").write_text("theirs")
    assert (tmp_path / "a").read_text() == "theirs"
    with pytest.raises(FileExistsError, match="meanwhile"), whole_folder(tmp_path / "b", overwrite=False):
        put(tmp_path / "b", "theirs")
    assert (tmp_path / "b" / "data").read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_folder_with_other_things_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years")
    with pytest.raises(OverwriteError, match="did not write"):
        put(tmp_path / "out", "")
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years"


def test_an_empty_folder_is_replaced(tmp_path: Path, way: str) -> None:
    (tmp_path / "out").mkdir()
    put(tmp_path / "out", "new")
    assert (tmp_path / "out" / "data").read_text() == "new"


def test_a_file_is_not_replaced_by_a_folder_nor_a_device_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    with pytest.raises(FileExistsError, match="no folder"):
        put(tmp_path / "a", "")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not a regular file"):
        write_text(tmp_path / "pipe", "")


def test_files_of_others_in_a_replaced_folder_stay(tmp_path: Path, way: str) -> None:
    put(tmp_path / "out", "1", old="of the last save")
    (tmp_path / "out" / "README.md").write_text("mine")
    (tmp_path / "out" / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "logs" / "deep" / "a.txt").write_text("log")
    (tmp_path / "out" / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "out" / "pipe")
    put(tmp_path / "out", "2")
    assert sorted(os.listdir(tmp_path / "out")) == ["README.md", "data", "link", "logs", "mark", "pipe"]
    assert (tmp_path / "out" / "README.md").read_text() == "mine"
    assert (tmp_path / "out" / "logs" / "deep" / "a.txt").read_text() == "log"
    assert os.readlink(tmp_path / "out" / "link") == "nowhere"


def test_files_are_carried_where_the_system_has_no_second_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    put(tmp_path / "out", "1")
    (tmp_path / "out" / "README.md").write_text("mine")
    monkeypatch.setattr(os, "link", refuse)
    put(tmp_path / "out", "2")
    assert (tmp_path / "out" / "README.md").read_text() == "mine"
    write_text(tmp_path / "a", "new", overwrite=False)
    assert (tmp_path / "a").read_text() == "new"


def test_a_failure_leaves_the_old_folder_and_nothing_else(tmp_path: Path, way: str) -> None:
    put(tmp_path / "out", "old")
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "out", own=mine) as partial:
        (partial / "data").write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "out" / "data").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_leaves_the_old_and_nothing_else(tmp_path: Path) -> None:
    """A limit on the size of files acts as a full disk does: the write fails half way."""
    code = (
        "import resource, sys; from mapper.outputs.files import whole_file, whole_folder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "for way, part in ((whole_file, ''), (whole_folder, 'x')):\n"
        "    try:\n"
        "        with way(sys.argv[1] + part) as partial:\n"
        "            ((partial / 'y') if part else partial).write_bytes(bytes(1_000_000))\n"
        "    except OSError as error: print(error.errno)\n"
    )
    write_text(tmp_path / "a", "old")
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a"], capture_output=True, text=True, check=True
    )
    assert len(run.stdout.split()) == 2
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_failed_second_rename_brings_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "out", "old")
    rename, calls = os.rename, iter([True, False])
    monkeypatch.setattr(files, "_renameat2", lambda: None)

    def second_fails(source: Path, target: Path) -> None:
        if next(calls, True):
            return rename(source, target)
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(OSError, match="input/output"):
        put(tmp_path / "out", "new")
    assert (tmp_path / "out" / "data").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


KILLED = """
import os, signal, sys
from pathlib import Path
from mapper.outputs import files
from mapper.outputs.files import whole_file, whole_folder
if sys.argv[2] == "between":
    files._renameat2 = lambda: None
    rename = os.rename
    def once(source, target):
        rename(source, target)
        os.kill(os.getpid(), signal.SIGKILL)
    os.rename = once
own = lambda folder: {"data"}
with whole_folder(sys.argv[1] + "/out", own=own) as partial:
    (partial / "data").write_text("new")
    if sys.argv[2] == "writing":
        with whole_file(sys.argv[1] + "/file") as other:
            other.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, when: str) -> None:
    run = subprocess.run([sys.executable, "-c", KILLED, folder, when])
    assert run.returncode == -signal.SIGKILL


def test_what_a_killed_writer_left_goes_with_the_next_save(tmp_path: Path) -> None:
    put(tmp_path / "out", "old")
    write_text(tmp_path / "file", "old")
    killed(tmp_path, "writing")
    assert len(os.listdir(tmp_path)) == 4
    assert ((tmp_path / "file").read_text(), (tmp_path / "out" / "data").read_text()) == ("old", "old")
    write_text(tmp_path / "file", "new")
    put(tmp_path / "out", "new")
    assert sorted(os.listdir(tmp_path)) == ["file", "out"]


def test_between_two_renames_the_old_folder_is_found(tmp_path: Path) -> None:
    put(tmp_path / "out", "old")
    killed(tmp_path, "between")
    assert not (tmp_path / "out").exists()
    assert Path(standing(tmp_path / "out"), "data").read_text() == "old"


def test_a_writer_that_fails_brings_back_what_was_put_aside(tmp_path: Path) -> None:
    put(tmp_path / "out", "old")
    killed(tmp_path, "between")
    with pytest.raises(KeyError), whole_folder(tmp_path / "out", own=mine):
        raise KeyError
    assert (tmp_path / "out" / "data").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_another_path_that_begins_alike_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "out", "old")
    killed(tmp_path, "between")
    put(tmp_path / "out2", "x")
    assert standing(tmp_path / "out3") == tmp_path / "out3"
    assert Path(standing(tmp_path / "out"), "data").read_text() == "old"


def test_what_a_living_writer_has_is_left_alone(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a") as first:
        first.write_text("first")
        write_text(tmp_path / "a", "second")
        assert first.read_text() == "first"
    assert (tmp_path / "a").read_text() == "first"


def test_a_lock_keeps_a_writer_whose_number_means_nothing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary, "_lives", lambda pid, start: False)
    with whole_file(tmp_path / "a") as first:
        first.write_text("first")
        write_text(tmp_path / "a", "second")
        assert first.exists()


def test_a_number_given_out_again_is_another_process() -> None:
    start = temporary._started(os.getpid())
    assert start and temporary._lives(os.getpid(), start)
    assert not temporary._lives(os.getpid(), start + 1)


def test_many_writers_of_one_path_leave_one_whole_content(tmp_path: Path, way: str) -> None:
    def write(number: int) -> None:
        for _ in range(3):
            write_text(tmp_path / "file", str(number) * 10_000)
            put(tmp_path / "out", str(number) * 10_000)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(os.listdir(tmp_path)) == ["file", "out"]
    for path in (tmp_path / "file", tmp_path / "out" / "data"):
        text = path.read_text()
        assert len(text) == 10_000
        assert len(set(text)) == 1


def test_long_names_have_a_place(tmp_path: Path) -> None:
    name = "ö" * 120
    write_text(tmp_path / name, "text")
    assert (tmp_path / name).read_text() == "text"
