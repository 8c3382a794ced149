"""Models on the Hugging Face hub, through its client: the cache first, headers by ranges."""

from __future__ import annotations

import os
import string
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mapper import limits
from mapper.checkpoint import Checkpoint, Companions
from mapper.errors import FormatError, MapperError, MissingSourceError, SourceError, listed, shorten
from mapper.sources import pipeline, settings, sharded, transfer
from mapper.sources.companions import listed_in, too_large, within
from mapper.sources.directory import (
    ADAPTER,
    ADAPTER_STEM,
    INDEX_SUFFIX,
    WHOLE,
    Choice,
    choose,
    config_beside,
    directory_name,
    open_directory,
    open_file,
    open_shard,
    read_table,
    say_which_shard,
)
from mapper.sources.documents import check_config, parse
from mapper.sources.download import CONNECTIONS, Download, in_parallel
from mapper.sources.files import SNIFFED, refuse_impostor
from mapper.sources.hub_cache import MAIN, find_snapshot
from mapper.sources.joining import joined
from mapper.sources.onnx import SUFFIX as BESIDE_SUFFIX
from mapper.sources.pipeline import PIPELINE
from mapper.sources.reach import endpoint as endpoint
from mapper.sources.reach import out_of_reach
from mapper.sources.remote import BLOCK, START, RangeFile
from mapper.sources.shards import Shard
from mapper.words import close_to

PUNCTUATION = "-_."
CONFIG = "config.json"
ENTRY_BYTES = 90  # that a tensor takes in a header beside its name, rounded up
TITLE_BYTES = 200  # that a header has besides its tensors; one that is longer takes a second request
_LOOKED_AT, _LIKE = (
    1000,
    0.8,
)  # names of a folder beside a path that is not there, and how like it one of them must be


class Repo(NamedTuple):
    """One revision of a repository as the hub describes it."""

    name: str
    revision: str
    commit: str
    files: list[str]


def is_id(text: str) -> bool:
    """Whether `text` could be the id of a model on the hub: `name` or `owner/name`."""
    parts = text.split("/")
    allowed = set(string.ascii_letters + string.digits + PUNCTUATION)
    return len(parts) <= 2 and all(
        0 < len(part) <= limits.HUB_NAME_CHARACTERS
        and allowed.issuperset(part)
        and part.strip(PUNCTUATION)
        and ".." not in part
        for part in parts
    )


def is_revision(text: str) -> bool:
    """Whether `text` could be a branch, tag or commit."""
    allowed = set(string.ascii_letters + string.digits + PUNCTUATION + "/+")
    return (
        0 < len(text) <= limits.HUB_REVISION_CHARACTERS
        and allowed.issuperset(text)
        and all(part.strip(".") for part in text.split("/"))
    )


def split_file(text: str) -> tuple[str, str] | None:
    """`owner/name:FILE`, one file of a repository that has several, as its two parts; None for another text."""
    name, colon, file = text.partition(":")
    owned = "/" in name and is_id(name.partition("@")[0])
    return (name, file) if colon and owned and sharded.is_inside(file) else None


def open_hub(
    name: str, purpose: str, revision: str | None, file: str | None = None, part: str = ""
) -> Checkpoint:
    """The checkpoint of the model `name`: from the cache if its weights are there, else from the hub.

    With `file` that file of the repository holds the weights, else those that `choose` picks; of a pipeline all models
    together, by their headers alone, or the `part` of it.
    """
    snapshot = find_snapshot(name, revision)
    cached = None if snapshot is None else _open_cached(snapshot, name, revision, file, part)
    if (
        snapshot is not None
        and cached is not None
        and (file is not None or _is_surely_whole(snapshot, cached))
    ):
        return cached
    with _client_errors(name, revision), _quiet():
        try:
            _require_connection(name, "not in the cache" if snapshot is None else "only in part in the cache")
            with _client_errors(name, revision):
                repo = _describe(name, revision)
        except SourceError:
            if cached is None:
                raise
            cached.notes.append(
                "from the cache, which may not have all files of the model: the hub did not say"
            )
            return cached
        label = _label(repo.name, revision, file)
        if file is None and PIPELINE in repo.files:
            return _open_pipeline(repo, purpose, label, part)
        choice = _choose(repo, file)
        if cached is not None and snapshot is not None and _holds(snapshot, repo, choice):
            return cached
        if purpose == "weights":
            return _open_snapshot(_download(repo, choice), label, file)
        return _headers(repo, choice, label)


def _open_pipeline(repo: Repo, purpose: str, label: str, part: str) -> Checkpoint:
    """The models of a pipeline together, by their headers, or one of them: then its weights where they are wanted."""
    index = _document(repo, PIPELINE, limits.CONFIG_BYTES)
    check_config(index, PIPELINE)

    def open_member(folder: str) -> Checkpoint:
        choice = _choose(repo, None, f"{folder}/")
        if purpose == "weights" and part:
            return open_directory(_download(repo, choice, f"{folder}/") / folder, label)
        return _headers(repo, choice, label, f"{folder}/")

    def each(action: Callable[[str], pipeline.Member], folders: list[str]) -> list[pipeline.Member]:
        return in_parallel(action, folders, CONNECTIONS)

    return pipeline.open_members(index, label, part, open_member, each)


def _holds(snapshot: Path, repo: Repo, choice: Choice) -> bool:
    """Whether the snapshot is what the hub has now."""
    return snapshot.name == repo.commit and choose(os.listdir(snapshot), "") == choice


def _open_cached(
    snapshot: Path, name: str, revision: str | None, file: str | None, part: str
) -> Checkpoint | None:
    """The checkpoint in the cache; None where its weights are not there, or not all of them."""
    try:
        return _open_snapshot(snapshot, _label(directory_name(snapshot), revision, file), file, part)
    except SourceError:  # the cache may hold a part, such as the config alone
        return None
    except FormatError as error:
        remedy = f"it is so in the cache; remove {snapshot.parent.parent} and run the command again"
        raise FormatError(f"{name}: {error}; {remedy}") from error


def _is_surely_whole(snapshot: Path, cached: Checkpoint) -> bool:
    """Whether the names of the files show that none is missing.

    One file by another name than the usual may be one of several, and arrays are as many as there are.
    """
    if cached.parts:
        return False
    choice = choose(os.listdir(snapshot / cached.part), "")
    return choice.listing is not None or choice.files[0] in WHOLE or bool(sharded.numbered(choice.files))


def _label(name: str, revision: str | None, file: str | None) -> str:
    """What reports call the source: what may be given to name it again."""
    return name + (f"@{revision}" if revision else "") + (f":{file}" if file else "")


def _open_snapshot(snapshot: Path, label: str, file: str | None, part: str = "") -> Checkpoint:
    if file is None:
        checkpoint = open_directory(snapshot, label, part=part)
        if checkpoint.parts or checkpoint.part:  # what lies at the top belongs to the whole
            return checkpoint
    else:
        checkpoint = open_file(snapshot / file)
        checkpoint.source = label
        if checkpoint.config is None:  # of a file in a folder: the repository's
            checkpoint.config = config_beside(snapshot)[0]
    checkpoint.companions = partial(_companions, snapshot, directory_name(snapshot), label)
    return checkpoint


def _companions(snapshot: Path, name: str, label: str) -> Companions:
    """The tokenizer and what else belongs to the model: in the cache, and on the hub at the same commit."""
    alone = "files of a tokenizer and the like are taken from the cache alone"
    if reason := out_of_reach():
        notes = [f"{alone}: {reason}"]
    else:
        try:
            with _client_errors(name, snapshot.name), _quiet():
                repo = _describe(name, snapshot.name)
                download = Download(repo.name, snapshot.name, snapshot.name)
                left = download.fetch(listed_in(repo.files), limits.COMPANION_BYTES)
            notes = [f"{file} stays behind: {too_large(size)}" for file, size in left.items()]
        except MapperError as error:
            notes = [f"{alone}: {error.in_command()}"]
    found = within(snapshot, label)
    found.notes += notes
    return found


def _choose(repo: Repo, file: str | None, folder: str = "") -> Choice:
    """The files of the model in a folder of the repository, "" for its top, or the `file` of it."""
    if file is None:
        names = [name[len(folder) :] for name in repo.files if name.startswith(folder)]
        found = choose(names, f"{repo.name}/{folder}".removesuffix("/"), f"{repo.name}:{folder}")
        listing = None if found.listing is None else folder + found.listing
        return Choice([folder + name for name in found.files], listing, found.note)
    if file not in repo.files:
        similar = [name for name in repo.files if name.endswith(os.path.splitext(file)[1])]
        hint = f"of that kind it has {listed(similar)}" if similar else "nor one of that kind"
        raise MissingSourceError(f"{repo.name}: the hub has no file {shorten(file)} in it; {hint}")
    return Choice([], file) if file.endswith(INDEX_SUFFIX) else Choice([file])


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Ask the hub itself for something else than a model; SourceError where it does not answer."""
    if reason := out_of_reach():
        raise SourceError(f"{what}: {reason}; a connection is needed")
    with _client_errors(what, None), _quiet():
        yield


def _require_connection(name: str, cached: str) -> None:
    """Raise MissingSourceError within seconds if the hub is switched off or out of reach."""
    remedy = "give a local directory, or fetch it once with a connection"
    if reason := out_of_reach():
        raise MissingSourceError(f"{name}: no local path{_near(name)}, {cached}, and {reason}; {remedy}")


def _near(name: str) -> str:
    """` (did you mean 'bert/model.safetensors'?)`, or that the folder of a path is here and the rest of it is not; "" of an id."""
    folder, last = os.path.split(name)
    try:
        entries = sorted(os.listdir(folder or "."))
    except OSError:
        return ""
    if close := close_to(last, entries[:_LOOKED_AT], alike=_LIKE):
        return f" (did you mean {shorten(os.path.join(folder, close[0]))}?)"
    return f" ({shorten(folder)} is a folder here, without {shorten(last)})" if folder else ""


@contextmanager
def _client_errors(name: str, revision: str | None) -> Iterator[None]:
    """What the hub's client raises, as one line each."""
    from huggingface_hub import errors

    try:
        yield
    except MapperError:
        raise
    except errors.GatedRepoError as error:
        hint = f"ask for access at {endpoint()}/{name}, then log in with `hf auth login` or set HF_TOKEN"
        raise SourceError(f"{name}: the model is gated; {hint}") from error
    except errors.RevisionNotFoundError as error:
        raise MissingSourceError(
            f"{name}: the hub has no revision {shorten(revision or MAIN)} of it"
        ) from error
    except errors.RepositoryNotFoundError as error:
        hint = "check the name, or log in with `hf auth login` if it is private"
        missing = f"{name}: no local path{_near(name)}, and the hub has no such model; {hint}"
        raise MissingSourceError(missing) from error
    except errors.EntryNotFoundError as error:
        raise MissingSourceError(
            f"{name}: the hub lists a file that it does not have; run the command again"
        ) from error
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        raise SourceError(f"{name}: {_refusal(error)}") from error


def _refusal(error: Exception) -> str:
    """What the hub's answer means for who asked, and what to do."""
    status = transfer.status_of(error)
    if status == 401:
        return "the hub does not accept the token; check HF_TOKEN, or log in with `hf auth login`"
    if status == 403:
        return "the hub forbids it; check what the token (HF_TOKEN or `hf auth login`) is allowed"
    return f"the hub did not answer as expected ({transfer.reason(error)}); try again"


_CLIENTS = ("huggingface_hub", "httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "json")


@contextmanager
def _quiet() -> Iterator[None]:
    """No log lines of the client, and progress bars on a terminal only."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
        logging,
    )

    level = logging.get_verbosity()
    hide = not sys.stderr.isatty() and not are_progress_bars_disabled()
    logging.set_verbosity_error()
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if hide:
            enable_progress_bars()


def _describe(name: str, revision: str | None) -> Repo:
    from huggingface_hub import HfApi

    def ask() -> Repo:
        api = HfApi(endpoint=endpoint())
        info = api.model_info(name, revision=revision, timeout=transfer.READ_SECONDS)
        files = [sibling.rfilename for sibling in info.siblings or []]
        # A short id is answered with the full one.
        full, commit = info.id or name, info.sha or revision or MAIN
        if not (is_id(full) and is_revision(commit) and all(isinstance(file, str) for file in files)):
            raise ValueError(f"it names {shorten(str(full))} at {shorten(str(commit))}")
        return Repo(full, revision or MAIN, commit, files)

    try:
        return transfer.repeat(name, ask)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        if isinstance(error, (MapperError, OSError)):
            raise
        said = str(error).split("\n")[0][:200]
        raise FormatError(
            f"{name}: {endpoint()} does not describe a model as the hub does ({said}); check HF_ENDPOINT"
        ) from error


def _download(repo: Repo, choice: Choice, folder: str = "") -> Path:
    """The folder of the cache that has the files of `choice`, those they name, and the config beside them."""
    download = Download(repo.name, repo.commit, repo.revision)
    wanted = [folder + CONFIG, *([PIPELINE] if folder else []), *_adapter_config(choice)]
    small = [name for name in (*wanted, *_settings_files(repo, folder)) if name in repo.files]
    if choice.listing is not None:
        small.append(choice.listing)
    download.fetch(small)
    weights = choice.files
    if choice.listing is not None:
        parts = sharded.read_index(download.snapshot / choice.listing)
        weights = list(_listed_shards(repo, parts, choice.listing))
    download.fetch(weights)
    for file in weights:
        if file.lower().endswith(BESIDE_SUFFIX):
            download.fetch(list(_beside(repo, open_shard(download.snapshot / file), file).values()))
    return download.finish()


def _beside(repo: Repo, shard: Shard, file: str) -> dict[str, str]:
    """The files in which the weight file `file` says that tensors of it lie: as it names them, and on the hub."""
    found = {}
    for location in shard.beside:
        if not sharded.is_inside(location):
            raise FormatError(f"{shard.name}: names the file {shorten(location)}, which is not beside it")
        found[location] = _folder(file) + location
        if found[location] not in repo.files:
            raise MissingSourceError(f"{repo.name}: the hub lacks {shorten(location)}, which {file} names")
    return found


def _listed_shards(repo: Repo, parts: dict[str, list[str]], listing: str) -> dict[str, list[str]]:
    """The keys of each shard by the index `listing`; MissingSourceError if the hub lacks one."""
    shards = {_folder(listing) + file: keys for file, keys in parts.items()}
    absent = [file for file in shards if file not in repo.files]
    if absent:
        seen = f"{len(absent)} of {len(parts)} shards of {listing}"
        raise MissingSourceError(f"{repo.name}: the hub lacks {seen}: {listed(absent)}")
    return shards


def _folder(file: str) -> str:
    return file[: file.rfind("/") + 1]


def _adapter_config(choice: Choice) -> list[str]:
    """The name of the settings that belong to the weights of an adapter."""
    return [
        _folder(file) + ADAPTER
        for file in choice.files
        if file[len(_folder(file)) :].startswith(ADAPTER_STEM)
    ]


def _headers(repo: Repo, choice: Choice, label: str, folder: str = "") -> Checkpoint:
    """The checkpoint without its weights: the config, and the first bytes of each weight file.

    Nothing of it is written: the cache holds what was downloaded, and may be one that cannot be written.
    """
    config, notes = _config_beside(repo, folder)
    parts: dict[str, list[str]] = {file: [] for file in choice.files}
    if choice.listing is not None:
        index = _document(repo, choice.listing, limits.HEADER_BYTES)
        parts = _listed_shards(repo, sharded.shard_names(index, choice.listing), choice.listing)
    shards = in_parallel(lambda part: _remote_shard(repo, *part), list(parts.items()), CONNECTIONS)
    for shard, keys in zip(shards, parts.values(), strict=True):
        if choice.listing is not None:
            sharded.check_against_index(shard, keys, choice.listing)
    for shard in shards:
        _beside(repo, shard, shard.name)
    checkpoint = joined(shards, label, config, [*([choice.note] if choice.note else []), *notes])
    for name in _adapter_config(choice):
        if name in repo.files:
            checkpoint.adapter = _document(repo, name, limits.CONFIG_BYTES)
            check_config(checkpoint.adapter, name)
    if len(shards) == 1 and choice.listing is None:
        place = _folder(shards[0].name)
        beside = [name[len(place) :] for name in repo.files if _folder(name) == place]
        say_which_shard(checkpoint, shards[0].name[len(place) :], beside)
    return checkpoint


def _config_beside(repo: Repo, folder: str) -> tuple[dict[str, Any] | None, list[str]]:
    """The config of the model in a folder, or the settings that another library has for it; and a note on these."""
    if folder + CONFIG in repo.files:
        config = _document(repo, folder + CONFIG, limits.CONFIG_BYTES)
        check_config(config, CONFIG)
        return config, []
    there = [name[len(folder) :] for name in _settings_files(repo, folder)]
    said = settings.of_files(there, lambda name: _settings(repo, folder + name))
    return (said.config, [settings.note(said)]) if said else (None, [])


def _settings_files(repo: Repo, folder: str) -> list[str]:
    """The files with settings of other libraries in a folder that has no config."""
    there = [] if folder + CONFIG in repo.files else settings.file_names()
    return [folder + name for name in there if folder + name in repo.files]


def _settings(repo: Repo, file: str) -> dict[str, Any]:
    """What a file with settings on the hub says."""
    limit = limits.RULE_FILE_BYTES if file.endswith(settings.YAML) else limits.CONFIG_BYTES
    return settings.parse_settings(_text(repo, file, limit), file)


def _address(repo: Repo, file: str) -> tuple[str, dict[str, str]]:
    """The address of a file, and the headers that a request for it has: the token among them."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    return hf_hub_url(repo.name, file, revision=repo.commit, endpoint=endpoint()), build_hf_headers()


def _document(repo: Repo, file: str, limit: int) -> dict[str, Any]:
    """The JSON object in `file` on the hub, of at most `limit` bytes."""
    return parse(_text(repo, file, limit), file)


def _text(repo: Repo, file: str, limit: int) -> bytes:
    """What is in `file` on the hub, of at most `limit` bytes."""
    url, headers = _address(repo, file)
    data = transfer.repeat(f"{repo.name}: {file}", lambda: transfer.read_whole(url, headers, limit, file))
    refuse_impostor(data[:SNIFFED], len(data), file)
    return data


def _remote_shard(repo: Repo, file: str, keys: list[str]) -> Shard:
    """The table of one weight file on the hub. The `keys` that an index gives it say how long it may be."""
    url, headers = _address(repo, file)
    guess = TITLE_BYTES + sum(map(len, keys)) + ENTRY_BYTES * len(keys)
    first = -(-guess // BLOCK) * BLOCK if keys else START
    start, size = transfer.read_range(url, headers, 0, first)
    ranges = RangeFile(lambda at, end: transfer.read_range(url, headers, at, end)[0], size, start, file)
    return read_table(ranges, size, file, offsets=False)  # type: ignore[arg-type]
