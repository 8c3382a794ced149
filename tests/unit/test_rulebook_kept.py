"""What is kept of rule files for the next process is what reading them gives, and no damage to it changes a result."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from mapper.errors import RuleError
from mapper.rulebook import rulebook, shelf
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.shelf import Shelf

SHIPPED = Path(__file__).resolve().parents[2] / "rules"
KIND = "families"


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three families alone, one of which extends another; their examples in the same files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "rules"
    (folder / KIND).mkdir(parents=True)
    for name in ("bert", "distilbert", "roberta"):
        said, beside = ((SHIPPED / kind / f"{name}.yaml").read_text() for kind in (KIND, "examples"))
        (folder / KIND / f"{name}.yaml").write_text(said + beside.removeprefix(f"examples_of: {name}\n"))
    return folder


def read(folder: Path) -> tuple[Any, ...]:
    """All that the files say, and what they are found by."""
    found = Shelf(KIND, [folder])
    whole = [document.whole() for document in found.documents]
    return (
        _plain(found.index),
        [(item.data, item.marks) for item in whole],
        found.compiled().text,
    )


def kept(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "cache" / "mapper").glob(f"{KIND}-*.kept")
    return found


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are parsed from now on."""
    seen: list[str] = []
    real = shelf.parse_yaml
    monkeypatch.setattr(
        shelf, "parse_yaml", lambda text, label, path: seen.append(label) or real(text, label, path)
    )
    return seen


def test_the_second_process_parses_nothing_and_knows_the_same(
    rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, seen = Shelf(KIND, [rules]), parsed(monkeypatch)
    _ = first.index
    assert len(seen) == 3
    second = Shelf(KIND, [rules])
    assert second.index == _plain(first.index)
    for one, other in zip(first.documents, second.documents, strict=True):
        bare = one.without("examples")
        assert (other.path, other.label, other.data, other.marks) == (
            one.path,
            one.label,
            bare.data,
            bare.marks,
        )
        assert other.lacks == "examples"
    assert len(seen) == 3


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, (tuple, list)) else value


def test_no_damaged_byte_changes_what_is_read(rules: Path, tmp_path: Path) -> None:
    expected = read(rules)
    path = kept(tmp_path)
    whole = path.read_bytes()
    for at in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        assert read(rules) == expected, at


def test_no_length_at_which_it_is_cut_off_changes_what_is_read(rules: Path, tmp_path: Path) -> None:
    expected = read(rules)
    path = kept(tmp_path)
    whole = path.read_bytes()
    for length in (0, 1, 13, 14, 20, 33, 34, 35, *range(100, len(whole), len(whole) // 20), len(whole) - 1):
        path.write_bytes(whole[:length])
        assert read(rules) == expected, length


@pytest.mark.parametrize(
    "head", [b"[]", b"{}", b"5", b'{"text": 1}', b'{"text":"","readers":"","index":5,"spans":[]}']
)
def test_a_file_with_a_right_checksum_and_nothing_in_it_is_not_believed(
    rules: Path, tmp_path: Path, head: bytes
) -> None:
    expected = read(rules)
    made = Shelf(KIND, [rules]).compiled()
    made.head, made.body = head, b""
    kept(tmp_path).write_bytes(made.packed())
    assert read(rules) == expected


def test_a_changed_file_is_read_anew_and_no_other(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, documents, text = read(rules)
    path = rules / KIND / "bert.yaml"
    path.write_text(path.read_text().replace("family: bert", "family: treb"), encoding="utf-8")
    with pytest.raises(RuleError, match="no family 'bert' to extend"):
        _ = Shelf(KIND, [rules]).index
    for other in ("distilbert", "roberta"):
        inheriting = rules / KIND / f"{other}.yaml"
        inheriting.write_text(
            inheriting.read_text().replace("extends: bert", "extends: treb"), encoding="utf-8"
        )
    seen = parsed(monkeypatch)
    _, changed, other_text = read(rules)
    assert other_text != text
    assert changed[0][0]["family"] == "treb"
    assert len(seen) == len([1 for new, old in zip(changed, documents, strict=True) if new != old])


def test_a_file_that_is_gone_or_new_is_noticed(rules: Path) -> None:
    count = len(read(rules)[1])
    (rules / KIND / "distilbert.yaml").rename(rules / KIND / "distilbert.txt")
    assert len(read(rules)[1]) == count - 1
    (rules / KIND / "distilbert.txt").rename(rules / KIND / "another.yaml")
    assert len(read(rules)[1]) == count


def test_other_code_that_reads_them_does_not_believe_it(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(rules)
    (first, *others) = shelf.readers()
    changed = first._replace(path=str(rules / KIND / "bert.yaml"), size=1, time=1)
    monkeypatch.setattr(shelf, "readers", lambda: [changed, *others])
    seen = parsed(monkeypatch)
    read(rules)
    assert len(seen) == 3


def test_many_that_write_it_at_once_leave_a_whole_one(rules: Path, tmp_path: Path) -> None:
    expected: list[Any] = []
    threads = [threading.Thread(target=lambda: expected.append(read(rules))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(expected) == 8 and all(item == expected[0] for item in expected)
    assert [path.suffix for path in (tmp_path / "cache" / "mapper").iterdir()] == [".kept"]
    assert Shelf(KIND, [rules])._kept is not None


def test_where_nothing_can_be_kept_all_is_read_each_time(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read(rules)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert read(rules) == expected
    assert read(rules) == expected


def test_what_is_kept_is_the_same_wherever_and_whenever_it_is_made(rules: Path, tmp_path: Path) -> None:
    first = Shelf(KIND, [rules]).compiled().packed()
    other = tmp_path / "elsewhere"
    shutil.copytree(rules, other)
    for path in (other / KIND).iterdir():
        os.utime(path, (1, 1))
    shutil.rmtree(tmp_path / "cache")
    assert Shelf(KIND, [other]).compiled().packed() == first


def test_a_folder_of_ones_own_is_kept_beside_the_shipped_rules(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rulebook, "shipped_folder", lambda: rules)
    own = tmp_path / "own" / KIND / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("family: mine\nextends: bert\nmodel_types: [mine]\n", encoding="utf-8")
    for _ in range(2):
        (mine,) = Rulebook([tmp_path / "own"], kinds=[KIND]).own_families(["mine", "bert"])
        assert mine.names == Rulebook(kinds=[KIND]).families[0].names
        assert mine.file == f"{tmp_path / 'own'}/families/mine.yaml"
    assert len(list((tmp_path / "cache" / "mapper").glob(f"{KIND}-*.kept"))) == 2
    own.unlink()
    assert "mine" not in [entry.name for entry in Rulebook([tmp_path / "own"], kinds=[KIND]).family_entries]
