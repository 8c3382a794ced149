"""Bring the bundled catalogue up to date with the hub: its most downloaded models, their headers, what is read of them.

    python tools/refresh_catalogue.py                   # the 120 most downloaded
    python tools/refresh_catalogue.py --top 300 --dry-run
    python tools/refresh_catalogue.py --accept          # keep worse readings as the new state

Headers and configs are fetched, no weights: a header is the first bytes of a file, asked for as a range. Models that
have left the top stay in the catalogue. Every entry is then read, and what is no skeleton is also built without
weights. `tools/readings.json` records how each was read; a model that was read exact and no longer is, is a
regression and keeps its old place in the record until it is exact again or accepted.

Exit code 0; 2 where the hub cannot be asked; 3 with a regression.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from bundle_catalogue import TARGET, pack  # noqa: E402

from mapper._build import build_architecture  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.sources import hub  # noqa: E402
from mapper.sources.manifest import from_document  # noqa: E402

RECORD = ROOT / "tools" / "readings.json"
TOP = 120
EXACT, FAILED = "exact", "fails"
REASONS = 5  # that the report shows of one model

Manifest = dict[str, Any]
Readings = dict[str, str]  # repository -> "exact", "unverified", "skeleton" or "fails"


@dataclass(frozen=True)
class Outcome:
    """How one entry of the catalogue is read, and what stands in the way of more."""

    repo: str
    reading: str
    reasons: tuple[str, ...] = ()


@dataclass
class Fetched:
    """What the hub gave: manifests by repository, and why there is none."""

    manifests: dict[str, Manifest] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    rulebook = Rulebook()
    try:
        fetched = fetch(top_models(given.top))
    except MapperError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    before = read_catalogue(given.catalogue)
    after = before | fetched.manifests
    recorded = known_readings(before, given.record, rulebook)
    outcomes = [read_manifest(manifest, rulebook) for manifest in after.values()]
    worse = [] if given.accept else list(regressions(recorded, outcomes))
    print("\n".join(report(before, fetched, outcomes, worse, recorded)))
    if not given.dry_run:
        pack(list(after.values()), {}, given.catalogue)
        write_readings(given.record, outcomes, worse, recorded)
    return 3 if worse else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--top", type=int, default=TOP, help=f"how many models to ask for (default {TOP})")
    parser.add_argument("--catalogue", type=Path, default=TARGET, help="the catalogue to bring up to date")
    parser.add_argument("--record", type=Path, default=RECORD, help="how each model was read")
    parser.add_argument("--accept", action="store_true", help="record worse readings, report none of them")
    parser.add_argument("--dry-run", action="store_true", help="report, write nothing")
    return parser


def top_models(count: int) -> list[tuple[str, str | None]]:
    """The hub's most downloaded models, most first: ids, and the commit that each stands at."""
    from huggingface_hub import HfApi

    with hub.asking("the list of models"):
        found = HfApi(endpoint=hub.endpoint()).list_models(
            sort="downloads", limit=count, expand=["sha", "downloads"]
        )
        return [(model.id, model.sha) for model in found]


def fetch(models: list[tuple[str, str | None]]) -> Fetched:
    """A manifest of each model, through a cache of this run alone: what is on the hub now is wanted."""
    found = Fetched()
    own = os.environ.get("HF_HUB_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HUB_CACHE"] = folder
        try:
            for repo, commit in models:
                _fetch_one(repo, commit, found)
        finally:
            os.environ.pop("HF_HUB_CACHE")
            os.environ.update({"HF_HUB_CACHE": own} if own is not None else {})
    return found


def _fetch_one(repo: str, commit: str | None, found: Fetched) -> None:
    if not hub.is_id(repo):
        found.skipped[repo] = "no id of a model"
        return
    try:
        found.manifests[repo] = manifest_of(hub.open_hub(repo, "headers", commit), repo, commit)
    except MapperError as error:
        found.skipped[repo] = str(error)


def manifest_of(checkpoint: Checkpoint, repo: str, commit: str | None) -> Manifest:
    """The header as the catalogue keeps it; mapper/catalogue/README.md has the fields."""
    at = f" at {commit[:12]}" if commit else ""
    return {
        "repo": repo,
        "evidence": f"read from the hub's files{at}",
        **({"config": checkpoint.config} if checkpoint.config is not None else {}),
        "tensors": {
            name: {"shape": list(info.shape), "dtype": info.dtype}
            for name, info in checkpoint.tensors.items()
        },
    }


def read_catalogue(path: Path) -> dict[str, Manifest]:
    """The manifests of a catalogue by repository; none where there is no file."""
    if not path.exists():
        return {}
    with zipfile.ZipFile(path) as archive:
        documents = [json.loads(archive.read(name)) for name in archive.namelist()]
    return {document["repo"]: document for document in documents}


def read_manifest(manifest: Manifest, rulebook: Rulebook) -> Outcome:
    """How the entry is read now; what is no skeleton is built without weights too."""
    repo = manifest["repo"]
    try:
        architecture = infer(from_document(manifest, repo), rulebook)
        if architecture.reading != "skeleton":
            build_architecture(architecture)
    except MapperError as error:
        return Outcome(repo, FAILED, (str(error),))
    unmapped = [f"no role for {key!r}" for key in architecture.unmapped]
    reasons = dict.fromkeys([*architecture.findings, *architecture.missing, *unmapped])
    return Outcome(repo, architecture.reading, tuple(reasons))


def known_readings(before: Mapping[str, Manifest], record: Path, rulebook: Rulebook) -> Readings:
    """How each entry was read: as recorded, or where nothing is, as its old header is read now."""
    recorded: Readings = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    return {
        repo: recorded[repo] if repo in recorded else read_manifest(manifest, rulebook).reading
        for repo, manifest in before.items()
    }


def regressions(recorded: Readings, outcomes: list[Outcome]) -> Iterator[Outcome]:
    """What was read exact before and is not now."""
    for outcome in outcomes:
        if recorded.get(outcome.repo) == EXACT and outcome.reading != EXACT:
            yield outcome


def write_readings(path: Path, outcomes: list[Outcome], worse: list[Outcome], recorded: Readings) -> None:
    kept = {outcome.repo: recorded[outcome.repo] for outcome in worse}
    readings = {outcome.repo: outcome.reading for outcome in outcomes} | kept
    text = json.dumps(dict(sorted(readings.items())), indent=1) + "\n"
    partial = path.with_suffix(".tmp")
    partial.write_text(text, encoding="utf-8", newline="")
    partial.replace(path)


def report(
    before: Mapping[str, Manifest],
    fetched: Fetched,
    outcomes: list[Outcome],
    worse: list[Outcome],
    recorded: Readings,
) -> Iterator[str]:
    """What is new, what changed, what could not be fetched, how all of it is read; regressions last."""
    for repo, manifest in fetched.manifests.items():
        if repo not in before:
            yield f"new: {repo}, {len(manifest['tensors']):,} tensors"
        elif difference := changed(before[repo], manifest):
            yield f"changed: {repo}, {difference}"
    for repo, why in fetched.skipped.items():
        yield f"skipped: {repo}: {why}" + ("; its old header stays" if repo in before else "")
    counts = {name: sum(outcome.reading == name for outcome in outcomes) for name in _names(outcomes)}
    yield f"{len(outcomes)} headers: {', '.join(f'{count} {name}' for name, count in counts.items())}"
    for outcome in outcomes:
        if outcome.reading == FAILED:
            yield f"fails: {outcome.repo}: {outcome.reasons[0]}"
    for outcome in worse:
        yield f"regression: {outcome.repo} was read {recorded[outcome.repo]}, now {outcome.reading}"
        yield from (f"  {reason}" for reason in outcome.reasons[:REASONS])
        if len(outcome.reasons) > REASONS:
            yield f"  and {len(outcome.reasons) - REASONS} more"


def _names(outcomes: list[Outcome]) -> list[str]:
    order = (EXACT, "unverified", "skeleton", FAILED)
    return [name for name in order if any(outcome.reading == name for outcome in outcomes)]


def changed(old: Manifest, new: Manifest) -> str:
    """How a header differs from the one that the catalogue had; "" where it does not."""
    ours, theirs = old["tensors"], new["tensors"]
    other = sum(ours[name] != theirs[name] for name in ours.keys() & theirs.keys())
    counts = {"added": len(theirs.keys() - ours.keys()), "gone": len(ours.keys() - theirs.keys())}
    parts = [f"{count} {word}" for word, count in {**counts, "otherwise": other}.items() if count]
    fields = _fields_changed(old.get("config") or {}, new.get("config") or {})
    told = [f"tensors: {', '.join(parts)}"] if parts else []
    return "; ".join([*told, *([f"config: {', '.join(fields)}"] if fields else [])])


def _fields_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    differ = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return differ if len(differ) <= REASONS else [*differ[:REASONS], f"{len(differ) - REASONS} more"]


if __name__ == "__main__":
    sys.exit(main())
