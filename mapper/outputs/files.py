"""Outputs that are whole or not there: written under a temporary name, synced, then renamed.

At every moment the path has its old content or its new one, also if the process is killed. A link is followed, a new
output has the mode the umask gives, and one that replaces another keeps the other's mode.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from mapper.errors import MissingSourceError, OverwriteError, SourceError
from mapper.outputs.temporary import ASIDE, PARTIAL, held, put_aside, remove, remove_leftovers, temporary

# The names in an existing folder, `below/name` in one inside of it, that a new content may drop; None for a folder
# that must stay as it is.
Own = Callable[[Path], Collection[str] | None]
_ATTEMPTS = 10  # another writer may take the path between a look and a rename
_SYNCED = 8  # files at a time
_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_HERE = -100  # AT_FDCWD of fcntl.h
OR_OVERWRITE = ", or replace it with --overwrite"
_MEANWHILE = "{} was made by another writer meanwhile; name another place"


@contextmanager
def whole_file(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`; what the caller wrote there becomes `path` when the block ends without error.

    Raises OverwriteError where something is there that may not be replaced.
    """
    target = place_of(path)
    refuse_to_replace(target, path, overwrite)
    remove_leftovers(target)
    partial = temporary(target, PARTIAL)
    old = _status(target)
    try:
        # The old mode from the first byte on: nobody may read while it is written what nobody may read then.
        mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) | 0o600
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        with held(partial):
            yield partial
            _keep_mode(partial, old)
            _sync(partial)
        if overwrite:
            os.replace(partial, target)
        else:
            _rename_to_free(partial, target)
        _sync(target.parent)
    finally:
        remove(partial)


@contextmanager
def whole_folder(
    path: str | os.PathLike[str], *, own: Own | None = None, overwrite: bool = True
) -> Iterator[Path]:
    """A temporary folder beside `path`, which becomes `path` when the block ends without error.

    An empty folder is replaced, and one for which `own` names the files that may go; all others in it are carried
    over, those whose names are taken now as `NAME.bak`, so that nothing of somebody's is ever lost. Otherwise, and
    where `overwrite` is false, OverwriteError.
    """
    target = place_of(path)
    remove_leftovers(target)
    _settled(target, lambda: _replaceable(target, own, overwrite))
    partial = temporary(target, PARTIAL)
    try:
        partial.mkdir()
        mode = stat.S_IMODE(partial.stat().st_mode)
        partial.chmod(0o700)  # files in it that will keep a private mode have it only at the end
        with held(partial):
            yield partial
            partial.chmod(mode)
            made = frozenset(_below(partial))
            _settled(target, lambda: _take_over(target, partial, own, made))
            with ThreadPoolExecutor(_SYNCED) as pool:  # the file system writes its journal once for all
                list(pool.map(_sync, [*partial.rglob("*"), partial]))
            _swap(partial, target, overwrite)
        _sync(target.parent)
    finally:
        remove(partial)  # by now the old content, where the two were exchanged


def write_text(path: Path | str, text: str, *, overwrite: bool = True) -> None:
    """Write `text` as UTF-8 with newlines as they are."""
    with whole_file(path, overwrite=overwrite) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def put_beside(path: Path) -> Path:
    """A second name for the file at `path`, `NAME.bak` or the first such that is free."""
    new = spare(path)
    _link(path, new)
    return new


def spare(path: Path, *others: Path) -> Path:
    """The first of `NAME.bak`, `NAME.bak2`, ... that is free beside `path`, and under the same name beside `others`."""
    for number in count(1):
        name = f"{path.name}.bak{number if number > 1 else ''}"
        if not any(os.path.lexists(each.with_name(name)) for each in (path, *others)):
            return path.with_name(name)
    raise AssertionError("numbers do not end")


def standing(path: Path | str) -> Path | str:
    """Where the content of `path` is: there, or put aside by a writer that ended before its second rename."""
    if os.path.exists(path):
        return path
    try:
        return put_aside(Path(os.path.realpath(path))) or path
    except ValueError:  # a zero byte
        return path


def place_of(path: str | os.PathLike[str]) -> Path:
    """Where `path` leads, in a folder that is there."""
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise SourceError(f"{path} is a link to itself; name another file")
    if not place.parent.is_dir():
        raise MissingSourceError(f"there is no folder {place.parent}; make it first")
    return place


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def refuse_to_replace(target: Path, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Raise OverwriteError where one file may not be put in the place of what is there."""
    old = _status(target)
    if old is None:
        return
    if stat.S_ISDIR(old.st_mode):
        raise OverwriteError(f"{path} is a folder; name a file in it")
    if not overwrite:
        raise OverwriteError(f"{path} already exists; name a new file{OR_OVERWRITE}")
    if not stat.S_ISREG(old.st_mode):
        raise OverwriteError(f"{path} is not a regular file (a pipe, socket or device); name a file")


def _settled(target: Path, look: Callable[[], object]) -> None:
    """Call `look` again when another writer replaced the folder at `target` meanwhile, and it saw half of each."""
    for _ in range(_ATTEMPTS):
        before = _identity(target)
        try:
            look()
        except (FileNotFoundError, OverwriteError):
            if _identity(target) == before:
                raise
            continue
        if _identity(target) == before:
            return
    raise SourceError(f"{target}: other writers keep replacing it; let one write at a time")


def _identity(path: Path) -> tuple[int, int] | None:
    status = _status(path)
    return None if status is None else (status.st_dev, status.st_ino)


def _replaceable(target: Path, own: Own | None, overwrite: bool) -> Collection[str]:
    """The names in the folder at `target` that may go. Raises OverwriteError where it may not be replaced."""
    old = _status(target)
    if old is None:
        return ()
    if not stat.S_ISDIR(old.st_mode):
        raise OverwriteError(
            f"{target} already exists and is no folder; name a new folder or remove it first"
        )
    if not overwrite:
        raise OverwriteError(f"{target} already exists; name a new folder{OR_OVERWRITE}")
    if not any(target.iterdir()):
        return ()
    names = own(target) if own is not None else None
    if names is None:
        raise OverwriteError(
            f"{target} already exists with files that mapper did not write; name a new folder or remove it first"
        )
    return names


def _take_over(target: Path, partial: Path, own: Own | None, made: frozenset[Path]) -> None:
    """Into `partial`: the modes of the folder at `target`, and the files in it that are not to be dropped."""
    for entry in _below(partial) - made:  # carried from a folder that another writer has replaced since
        remove(entry)
    if _status(target) is not None:
        _merge(target, partial, frozenset(_replaceable(target, own, True)))


def _below(folder: Path) -> set[Path]:
    """All files and folders in a folder and those inside of it."""
    return set(folder.rglob("*"))


def _merge(old: Path, new: Path, dropped: frozenset[str], above: str = "") -> None:
    """Carry from `old` into `new` all but the files named in `dropped`, each by its path from the outermost folder."""
    for entry in old.iterdir():
        name, place = above + entry.name, new / entry.name
        if _is_folder(entry) and (_is_folder(place) or any(each.startswith(f"{name}/") for each in dropped)):
            _merge_below(entry, place, dropped, f"{name}/")
        elif not os.path.lexists(place):
            if name not in dropped:
                _carry(entry, place)
        elif name not in dropped:
            _carry(entry, spare(place, entry))
        elif entry.is_file() and place.is_file():
            _keep_mode(place, entry.stat())
    _keep_mode(new, old.stat())


def _merge_below(old: Path, new: Path, dropped: frozenset[str], above: str) -> None:
    """`_merge` of a folder inside, which goes where nothing is left in it."""
    made = not new.exists()
    new.mkdir(exist_ok=True)
    _merge(old, new, dropped, above)
    if made and not any(new.iterdir()):
        new.rmdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _carry(entry: Path, new: Path) -> None:
    """The same file under a second name, where the file system has that, else a copy; a folder with all in it."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.copytree(entry, new, symlinks=True, copy_function=_link)
    else:
        _link(entry, new)


def _link(entry: Path | str, new: Path | str, *, follow_symlinks: bool = True) -> None:
    try:
        os.link(entry, new, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(entry, new, follow_symlinks=False)


def _keep_mode(new: Path, old: os.stat_result | None) -> None:
    if old is None:
        return
    made = new.stat()
    if hasattr(os, "chown") and (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):  # only the superuser gives files away
            os.chown(new, old.st_uid, old.st_gid)
    os.chmod(new, stat.S_IMODE(old.st_mode))


def _rename_to_free(partial: Path, target: Path) -> None:
    """Rename where nothing is. Raises OverwriteError if something came there meanwhile."""
    try:
        try:
            os.link(partial, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without second names
            if os.path.lexists(target):
                raise FileExistsError from None
            os.rename(partial, target)
    except FileExistsError:
        raise OverwriteError(_MEANWHILE.format(target)) from None


def _swap(new: Path, target: Path, overwrite: bool) -> None:
    """`new` at `target`; what was there is under the name `new` afterwards, or gone."""
    for _ in range(_ATTEMPTS):
        stands = _status(target) is not None
        if stands and not overwrite:
            raise OverwriteError(_MEANWHILE.format(target))
        with suppress(FileExistsError, NotADirectoryError, FileNotFoundError):  # another writer was faster
            return _swap_as_seen(new, target, stands)
    raise SourceError(f"{target}: other writers keep replacing it; let one write at a time")


def _swap_as_seen(new: Path, target: Path, stands: bool) -> None:
    if not stands:
        _rename_folder(new, target)
    elif not _exchange(new, target):
        _one_after_the_other(new, target)


def _rename_folder(new: Path, target: Path) -> None:
    try:
        os.rename(new, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another writer was faster
            raise FileExistsError from error
        raise


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; False where the system or the file system cannot."""
    rename = _renameat2()
    if rename is None:
        return False
    failed = rename(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE)
    if failed and ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(second))
    return not failed


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old C library
        return None
    rename.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    rename.restype = ctypes.c_int
    return rename


def _one_after_the_other(new: Path, target: Path) -> None:
    """The old folder aside, the new one in its place; between the two `standing` finds the old one."""
    aside = temporary(target, ASIDE)
    os.rename(target, aside)
    try:
        _rename_folder(new, target)
    except FileExistsError:  # another writer came between
        remove(aside)
        raise
    except BaseException:
        if not os.path.lexists(target):
            os.rename(aside, target)
        raise
    remove(aside)


def _sync(path: Path) -> None:
    """Onto the disk; what is neither a file nor a folder, as a pipe that was carried over, would block."""
    if path.is_symlink() or not (path.is_file() or (path.is_dir() and os.name != "nt")):
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # a carried file that only its owner may read
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
