"""Pack what the published config classes have into the table that the package ships.

    python tools/bundle_config_fields.py [--out FILE]

For each model type that a rule file lists, and for each part of its config: the fields of its class with their
defaults, other names of them, names that its code asks a config for without declaring them, which class reads
each part, and how rotary positions are filled in. Facts only, asked of the installed transformers; types that it
does not have (those of timm) have no row. The same version gives the same bytes: `mapper/catalogue/README.md`.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import logging
import math
import re
import zipfile
from collections.abc import Container
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "mapper" / "catalogue" / "config_fields.zip"
OLDEST_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip can express: no build dates
ROPE = ("rope_scaling", "rope_theta", "partial_rotary_factor")  # where older files have them
THETA = 123456.0  # a base that no class has by itself
UNSTATED: Any = object()
READ = re.compile(  # `config.NAME`, `getattr(config, "NAME")`
    r"""(?:[cC]onfig|cfg)\.([a-z]\w*)|(?:get|has)attr\(\s*[\w.]*(?:config|cfg)\s*,\s*["'](\w+)["']"""
)
TAKEN = re.compile(  # `kwargs.pop("NAME")`, `kwargs["NAME"]`, `"NAME" in kwargs`
    r"""kwargs(?:\.\w+\(\s*|\[)["'](\w+)["']|["'](\w+)["'] (?:not )?in kwargs"""
)


def listed_types() -> list[str]:
    """Every model type that a shipped rule file vouches for."""
    from mapper.rulebook.rulebook import Rulebook

    return sorted({name for family in Rulebook().families for name in family.model_types})


# --- one class


def row_of(kind: type) -> dict[str, Any]:
    """What a config class has, as JSON."""
    specs = kind.sub_configs_defaults
    own = {field.name: default_of(field) for field in dataclasses.fields(kind)}
    base = {field.name for field in dataclasses.fields(base_class())}
    fields = {name: value for name, value in own.items() if name not in specs and name not in base}
    fields |= filled_in(kind, fields)
    parts = {name: part_of(kind, name, spec) for name, spec in specs.items()}
    asked = asked_for(kind) - set(own) - set(kind.attribute_map) - other_fields(kind)
    row: dict[str, Any] = {
        "fields": {name: value for name, value in fields.items() if value is not UNSTATED},
        "undefaulted": sorted(name for name, value in fields.items() if value is UNSTATED),
        "aliases": aliases_of(kind, own),
        "asked": sorted(asked),
        "computed": sorted(computed(kind) - set(own) - asked),
        "parts": parts,
        "flat": [name for name in parts if is_flat(kind, name)],
    }
    if "rope_parameters" in own:
        row["rope"] = rope_of(kind)
    return {key: value for key, value in row.items() if value not in ({}, [])}


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field as JSON has it; UNSTATED where JSON has no such value."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    return as_json(value)


def as_json(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        items = [as_json(item) for item in value]
        return UNSTATED if any(item is UNSTATED for item in items) else items
    if isinstance(value, dict):
        items = {str(key): as_json(item) for key, item in value.items()}
        return UNSTATED if any(item is UNSTATED for item in items.values()) else items
    if isinstance(value, float) and not math.isfinite(value):
        return UNSTATED
    return value if value is None or isinstance(value, (bool, int, float, str)) else UNSTATED


def computed(kind: type) -> set[str]:
    """What a class works out by itself and writes to files, where nothing reads it."""
    made = example(kind)
    return (
        {name for name in vars(made) if not name.startswith("_")} - set(ROPE) if made is not None else set()
    )


def filled_in(kind: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields that are null as declared and get a value of their own, whatever the others are."""
    made = example(kind)
    found = {name: as_json(getattr(made, name, None)) for name, value in fields.items() if value is None}
    found = {name: value for name, value in found.items() if is_plain(value)}
    for name, value in fields.items() if found else ():
        other = example(kind, **{name: another(value)}) if another(value) is not None else None
        for target in list(found) if other is not None else ():
            if target != name and as_json(getattr(other, target, None)) != found[target]:
                del found[target]  # it follows from that one
    return found


def is_plain(value: Any) -> bool:
    """Whether it is a number or a text: lists follow from arithmetic, or from fields of older files."""
    return isinstance(value, (bool, int, float, str))


def aliases_of(kind: type, own: Container[str]) -> dict[str, str]:
    """Other name -> declared field: some classes keep a field under a name that they do not declare."""
    pairs = kind.attribute_map.items()
    return {other if inner in own else inner: inner if inner in own else other for other, inner in pairs}


def another(value: Any) -> Any:
    """A value that a field could have, too; None where nothing can be told."""
    if isinstance(value, bool):
        return not value
    return value * 2 if isinstance(value, (int, float)) and value else None


def part_of(kind: type, name: str, spec: Any) -> dict[str, Any]:
    """Which class reads a part of a config: one for all, or that of the type which the part names, and else this."""
    from transformers import PreTrainedConfig

    fixed = issubclass(spec.config_class, PreTrainedConfig)
    reader = spec.config_class if fixed else class_of(spec.model_type)
    made = example(kind)
    stated = part_given(kind, name, reader)
    found = {
        "reader": key_of(reader),
        "fixed": fixed,
        "there": made is not None and getattr(made, name, None) is not None,
        "made": otherwise(getattr(made, name, None), reader),
        "with": otherwise(stated, reader),
        "unless": "backbone" if name == "backbone_config" else "",  # older files name a network there
    }
    return {key: value for key, value in found.items() if value not in (False, {}, "")}


def part_given(kind: type, name: str, reader: type) -> Any:
    """What a class makes of a part of which a file says only the type."""
    try:
        return getattr(kind(**{name: {"model_type": reader.model_type}}), name)
    except Exception:
        return None


def otherwise(made: Any, reader: type) -> dict[str, Any]:
    """The fields of a part that are otherwise than its class has them by itself."""
    plain = example(reader)
    if not isinstance(made, reader) or plain is None:
        return {}
    base = {field.name for field in dataclasses.fields(base_class())} | set(reader.sub_configs_defaults)
    names = [field.name for field in dataclasses.fields(reader) if field.name not in base]
    said = {name: (value_of(made, name), value_of(plain, name)) for name in names}
    return {name: value for name, (value, usual) in said.items() if value is not UNSTATED and value != usual}


def value_of(made: Any, name: str) -> Any:
    """A field of an object as JSON; UNSTATED for one that differs from layer to layer."""
    try:
        return as_json(getattr(made, name, None))
    except Exception:
        return UNSTATED


def is_flat(kind: type, name: str) -> bool:
    """Whether the fields of a part may stand at the top, as older files have them."""
    inner = getattr(example(kind), name, None)
    field = "num_hidden_layers"
    if not isinstance(getattr(inner, field, None), int) or field in {
        item.name for item in dataclasses.fields(kind)
    }:
        return False
    try:
        return getattr(getattr(kind(**{field: 7}), name), field) == 7
    except Exception:
        return False


# --- rotary positions

OF_FEW = ("llama_4_scaling_beta", "mrope_section")  # what some classes read there, and most do not


def rope_of(kind: type) -> dict[str, Any]:
    """What stands in `rope_parameters` where a file says nothing of them, and what is added to what it says."""
    silent = rope_made(kind)
    layers = {
        key: {"rope_type": "default"} for key, value in (silent or {}).items() if isinstance(value, dict)
    }
    based = rope_made(kind, rope_theta=THETA)
    scaled = rope_made(kind, rope_scaling={"rope_type": "linear", "factor": 7.0})
    flat = rope_made(kind, rope_parameters={"rope_type": "default", "rope_theta": THETA})
    made = {
        "silent": silent,
        "given": rope_made(kind, rope_parameters=layers or {"rope_type": "default"}),
        "no_theta": based is not None and THETA not in leaves(based),
        "no_scaling": scaled is not None and 7.0 not in leaves(scaled),
        "no_flat": bool(layers)
        and flat is not None
        and not any(THETA in leaves(flat.get(key)) for key in layers),
        "no_fraction": not any("partial_rotary_factor" in text for text in modeling(kind)),
        "unread": [name for name in OF_FEW if not any(name in text for text in modeling(kind))] or None,
    }
    return {key: value for key, value in made.items() if value not in (None, False)}


def rope_made(kind: type, **given: Any) -> Any:
    try:
        made = kind(**copy.deepcopy(given))
    except Exception:
        return None
    return as_json(made.rope_parameters)


def leaves(value: Any) -> list[Any]:
    return [leaf for item in value.values() for leaf in leaves(item)] if isinstance(value, dict) else [value]


# --- names that code asks a config for


def asked_for(kind: type) -> set[str]:
    """Names that the modeling files read off a config, and those that the class takes out of what it is given."""
    found = set(ROPE) if hasattr(kind, "rope_parameters") else set()
    for pattern, sources in ((READ, modeling(kind)), (TAKEN, configuration(kind))):
        found.update(name for text in sources for names in pattern.findall(text) for name in names if name)
    return found | {field.name for field in dataclasses.fields(base_class())}


def other_fields(kind: type) -> set[str]:
    """Fields of the other classes of the same folder: what reads those does not read them off this one."""
    found: set[str] = set()
    for other in config_classes(folder_of(kind)):
        if other is not kind and not issubclass(kind, other):
            found.update(field.name for field in dataclasses.fields(other))
    return found - set(ROPE) - {field.name for field in dataclasses.fields(base_class())}


# --- where classes stand


def base_class() -> type:
    from transformers import PreTrainedConfig

    return PreTrainedConfig


@cache
def example(kind: type, **given: Any) -> Any:
    """An object of the class with nothing else said; None where it wants more, or other values."""
    try:
        return kind(**given)
    except Exception:
        return None


def class_of(model_type: str) -> type:
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type]


def key_of(kind: type) -> str:
    """Under which name a class has its row: its model type, or, where another class has that, its own name."""
    from transformers import CONFIG_MAPPING

    named = kind.model_type
    return named if named in CONFIG_MAPPING and CONFIG_MAPPING[named] is kind else kind.__name__


def folder_of(kind: type) -> Path:
    import inspect

    return Path(inspect.getfile(kind)).parent


@cache
def config_classes(folder: Path) -> tuple[type, ...]:
    import importlib

    found: dict[str, type] = {}
    for path in sorted(folder.glob("configuration_*.py")):
        module = importlib.import_module(f"transformers.models.{folder.name}.{path.stem}")
        for name, value in vars(module).items():
            if (
                isinstance(value, type)
                and issubclass(value, base_class())
                and value.__module__ == module.__name__
            ):
                found[name] = value
    return tuple(found.values())


def modeling(kind: type) -> list[str]:
    return [text_of(path) for path in sorted(folder_of(kind).glob("modeling_*.py"))]


def configuration(kind: type) -> list[str]:
    """The files of the class and of those that it extends, but the base of all."""
    import inspect

    files = {
        inspect.getfile(cls)
        for cls in kind.__mro__
        if issubclass(cls, base_class()) and cls is not base_class()
    }
    return [text_of(Path(path)) for path in sorted(files)]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# --- the table


def table(model_types: list[str]) -> dict[str, dict[str, Any]]:
    """The rows of these types and of all parts that they can have, by key."""
    from transformers import CONFIG_MAPPING

    waiting = [CONFIG_MAPPING[name] for name in model_types if name in CONFIG_MAPPING]
    rows: dict[str, dict[str, Any]] = {}
    while waiting:
        kind = waiting.pop()
        key = key_of(kind)
        if key in rows:
            continue
        rows[key] = row_of(kind)
        for spec in kind.sub_configs_defaults.values():
            fixed = issubclass(spec.config_class, base_class())
            waiting.append(spec.config_class if fixed else class_of(spec.model_type))
    return dict(sorted(rows.items()))


def pack(rows: dict[str, dict[str, Any]], version: str, target: Path) -> None:
    """Write `target`: one deflated JSON document for each class, sorted by name, and the version that they are from."""
    temporary = target.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, value in {"": {"transformers": version}, **rows}.items():
            record = zipfile.ZipInfo(name + ".json", OLDEST_DATE)
            record.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(record, document(value), compresslevel=9)
    temporary.replace(target)


def document(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"), allow_nan=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    import transformers

    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    rows = table(listed_types())
    pack(rows, transformers.__version__, arguments.out)
    print(f"{len(rows)} classes, {arguments.out.stat().st_size:,} bytes: {arguments.out.name}")


if __name__ == "__main__":
    main()
