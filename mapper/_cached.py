"""The models in the hub's cache and what each is, by their headers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper._units import in_bytes
from mapper.errors import MapperError
from mapper.sources.directory import directory_name, open_directory
from mapper.sources.files import printable
from mapper.sources.hub_cache import PARTIAL, PREFIX, cache_folder

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_FORMAT = 2  # raised when the layout of what is remembered changes


@dataclass(frozen=True)
class CachedModel:
    """One revision of a model in the cache. Where it cannot be read, `problem` says why and the reading is None."""

    name: str  # hub id
    revisions: tuple[
        str, ...
    ]  # branches and tags that name it; none for a commit that was asked for by itself
    commit: str
    path: str  # of its folder
    bytes: int  # on the disk; files that several revisions share count for each
    last_used: float  # seconds since 1970, as the file system remembers it
    family: str | None = None
    reading: str | None = None  # "exact", "unverified" or "skeleton"
    parameters: int | None = None
    tensors: int | None = None
    container: str | None = None
    what: str | None = None  # in words, where its names, its file or its settings say so: "5 models"
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As `mapper list --json` has it."""
        used = datetime.fromtimestamp(self.last_used, timezone.utc).isoformat(timespec="seconds")
        return {**asdict(self), "revisions": list(self.revisions), "last_used": used}


def cached_models() -> list[CachedModel]:
    """The models in the hub's cache, by name, read by their headers alone.

        for model in mapper.cached_models():
            print(model.name, model.family, model.reading, model.parameters, model.problem)

    One that cannot be read is in the list too, and its `problem` says why.
    """
    return list(each_cached_model())


def each_cached_model() -> Iterator[CachedModel]:
    """The models one by one: the first at once, however many there are. What each is, is remembered."""
    from mapper.rulebook.rulebook import rulebook_of

    snapshots = list(_snapshots())
    if not snapshots:
        return
    rulebook = rulebook_of(())
    memory = _Memory(rulebook.digest)
    try:
        for repository, snapshot in snapshots:
            yield _look(repository, snapshot, rulebook, memory)
    finally:
        memory.keep()


def repository_names() -> list[str]:
    """The ids of the models in the cache, readable or not."""
    return [directory_name(snapshot) for _, snapshot in _snapshots()]


def _snapshots() -> Iterator[tuple[Path, Path]]:
    """Each repository's folder with the folder of each of its revisions: one, which is not there, if it has none."""
    folder = cache_folder()
    for name in _entries(folder):
        repository = folder / name
        if not name.startswith(PREFIX) or not repository.is_dir():
            continue
        commits = _entries(repository / "snapshots")
        if not commits and not any(repository.glob(f"blobs/*{PARTIAL}")):
            continue
        for commit in commits or ["?"]:
            yield repository, repository / "snapshots" / commit


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _look(repository: Path, snapshot: Path, rulebook: Rulebook, memory: _Memory) -> CachedModel:
    files = _files(snapshot)
    known = CachedModel(
        name=directory_name(snapshot),
        revisions=tuple(_names_of(repository, snapshot.name)),
        commit=printable(snapshot.name),
        path=os.fspath(snapshot),
        bytes=sum(
            status.st_size for status in {_identity(status): status for status in files.values()}.values()
        ),
        last_used=max((status.st_atime for status in files.values()), default=repository.stat().st_mtime),
    )
    key = memory.key(files)
    found = memory.recall(key)
    if found is None:
        with _unused(files):
            found = _read(snapshot, known.name, repository, rulebook)
        memory.remember(key, found)
    return CachedModel(**{**asdict(known), **found})


def _files(snapshot: Path) -> dict[str, os.stat_result]:
    """The files of a snapshot, by path; a link to a blob that is gone is none."""
    found = {}
    for folder, _, names in os.walk(snapshot):
        for name in names:
            with suppress(OSError):
                path = os.path.join(folder, name)
                found[path] = os.stat(path)
    return found


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _names_of(repository: Path, commit: str) -> Iterator[str]:
    """The branches and tags that point at `commit`."""
    refs = repository / "refs"
    for folder, folders, names in os.walk(refs):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            with suppress(OSError, UnicodeDecodeError):
                if path.stat().st_size < 1_000 and path.read_text().strip() == commit:
                    yield printable(path.relative_to(refs).as_posix())


@contextmanager
def _unused(files: dict[str, os.stat_result]) -> Iterator[None]:
    """Let the files look unused by what the block reads of them: when a model was last used, its user decides."""
    try:
        yield
    finally:
        for path, before in files.items():
            with suppress(OSError):
                now = os.stat(path)
                if now.st_atime_ns != before.st_atime_ns and now.st_mtime_ns == before.st_mtime_ns:
                    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _read(snapshot: Path, name: str, repository: Path, rulebook: Rulebook) -> dict[str, Any]:
    """What the model in a snapshot is, or why that cannot be said."""
    from mapper._api import read_parts
    from mapper.inference import infer
    from mapper.sources.parts import parts_of

    try:
        checkpoint = open_directory(snapshot, name)
        parts = parts_of(checkpoint, rulebook)
        architecture = read_parts(checkpoint, parts, rulebook) if parts else infer(checkpoint, rulebook)
    except (MapperError, OSError) as error:
        return {"problem": _cut_short(repository) or _reason(error, name)}
    except Exception as error:  # one model must not keep the others from being listed
        return {"problem": f"this is a bug: {type(error).__name__}: {error}; see mapper inspect {name}"}
    return {
        "family": architecture.family,
        "reading": architecture.reading or None,
        "what": architecture.what or None,
        "parameters": checkpoint.parameters,
        "tensors": len(checkpoint.tensors),
        "container": checkpoint.container,
    }


def _cut_short(repository: Path) -> str | None:
    """What there is of a download that was cut."""
    sizes = []
    for path in repository.glob(f"blobs/*{PARTIAL}"):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return (
        f"a download was cut, {in_bytes(sum(sizes))} are here; mapper build goes on with it"
        if sizes
        else None
    )


def _reason(error: Exception, name: str) -> str:
    """The first part of the message: what to do about it is said by `mapper inspect`."""
    return str(error).removeprefix(f"{name}: ").partition("; ")[0]


class _Memory:
    """What each model was found to be, for the next listing: for the same files, rules and code."""

    def __init__(self, rules: str) -> None:
        from mapper._parsed import cache_folder as own_folder

        self._path = own_folder() / f"models-{_FORMAT}.json"
        self._basis = f"{rules} {_code_stamp()}"
        self._old = self._load()
        self._new: dict[str, dict[str, Any]] = {}

    def _load(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def key(self, files: dict[str, os.stat_result]) -> str:
        from mapper._parsed import digest

        stamps = (
            f"{path} {_identity(at)} {at.st_size} {at.st_mtime_ns}" for path, at in sorted(files.items())
        )
        return digest((self._basis, *stamps))

    def recall(self, key: str) -> dict[str, Any] | None:
        found = self._old.get(key)
        if not isinstance(found, dict) or set(found) != _REMEMBERED:
            return None
        self._new[key] = found
        return found

    def remember(self, key: str, found: dict[str, Any]) -> None:
        if set(found) == _REMEMBERED:  # a problem may be solved without a change to the files
            self._new[key] = found

    def keep(self) -> None:
        from mapper.outputs.files import write_text

        if self._new == self._old:
            return
        with suppress(OSError, MapperError):  # no place to keep it: the headers are read each time
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._path, json.dumps(self._new, separators=(",", ":")))


_REMEMBERED = {"what", "family", "reading", "parameters", "tensors", "container"}


def _code_stamp() -> int:
    """When this package was last written to: a reading is by its code as much as by its rules."""
    package = Path(__file__).parent
    return max(path.stat().st_mtime_ns for path in package.glob("**/*.py"))
