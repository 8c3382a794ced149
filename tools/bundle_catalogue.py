"""Pack a folder of manifests into the catalogue that the package ships.

    python tools/bundle_catalogue.py MANIFESTS [--index top_models.yaml]

A manifest is `{"repo", "evidence", "config", "tensors": {name: {"shape", "dtype"}}}`, as .json or .json.gz.
The index, if given, is a list of entries with `repo` and what is known about the evidence of each;
mapper/catalogue/README.md has the fields. The same manifests give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "mapper" / "catalogue" / "headers.zip"
EVIDENCE = ("config_evidence", "config_source", "key_names", "file_size_check", "note")
OLDEST_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip can express: no build dates


def read_manifest(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def read_index(path: Path | None) -> dict[str, dict[str, Any]]:
    """What the index says about each repository's evidence; nothing where it says nothing."""
    if path is None:
        return {}
    import yaml

    entries = yaml.safe_load(path.read_text())
    return {entry["repo"]: {key: entry[key] for key in EVIDENCE if entry.get(key)} for entry in entries}


def pack(manifests: list[dict[str, Any]], index: dict[str, dict[str, Any]], target: Path) -> None:
    """Write `target`: one deflated JSON document for each repository, sorted by name."""
    temporary = target.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for manifest in sorted(manifests, key=lambda manifest: manifest["repo"].lower()):
            record = zipfile.ZipInfo(manifest["repo"] + ".json", OLDEST_DATE)
            record.compress_type = zipfile.ZIP_DEFLATED
            document = {**manifest, **index.get(manifest["repo"], {})}
            archive.writestr(record, json.dumps(document, separators=(",", ":")), compresslevel=9)
    temporary.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifests", type=Path, help="a folder of .json or .json.gz files")
    parser.add_argument(
        "--index", type=Path, help="a YAML list that says more about each repository's evidence"
    )
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    paths = sorted([*arguments.manifests.glob("*.json"), *arguments.manifests.glob("*.json.gz")])
    manifests = [read_manifest(path) for path in paths]
    pack(manifests, read_index(arguments.index), arguments.out)
    print(f"{len(manifests)} headers, {arguments.out.stat().st_size:,} bytes: {arguments.out.name}")


if __name__ == "__main__":
    main()
