"""Pictures among the words of a text: the words that stand for them, and what the model is given beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mapper.errors import FormatError, HintError, SourceError
from mapper.running.pictures import opened, prepared
from mapper.running.preprocessors import FILE, JOINT, settings_of
from mapper.running.session import Session
from mapper.running.tables import rows
from mapper.running.tokenizing import Words
from mapper.running.vocabularies import SETTINGS, word_of

TABLE = "prompts"
_FEATURES = 1_000_000  # of one picture, the most that settings may ask for


def with_pictures(
    session: Session, words: Words, text: str, is_whole: bool
) -> tuple[list[int], dict[str, Tensor]]:
    """The ids of a text with places for the features of its pictures, and what the model is given beside them.

    Raises SourceError for a processor that no row has, HintError where a text names more or fewer pictures than are given.
    """
    row, said = _row(session)
    settings, prepares = settings_of(session, "images")
    pixels = [prepared(opened(item), settings, prepares) for item in session.wishes.images]
    counts = [_count(row, said, settings, item.shape) for item in pixels]
    ids = words.encode(_placed(session, row, text, counts), is_whole=is_whole).ids
    place = words.tokenizer.token_to_id(row["place"])
    if ids.count(place) != sum(counts):
        raise FormatError(
            f"{session.source}: its tokenizer has no word {row['place']!r} for a part of a picture; download its files again"
        )
    marks = torch.tensor([[int(at == place) for at in ids]])
    more = {"token_type_ids": marks, "mm_token_type_ids": marks}
    if not prepares.get("packed"):
        return ids, {"pixel_values": torch.from_numpy(np.stack(pixels)), **more}
    sizes = [[1, *(side // settings["patch_size"] for side in item.shape[1:])] for item in pixels]
    packed = np.concatenate([patches(item, settings) for item in pixels])
    return ids, {"pixel_values": torch.from_numpy(packed), "image_grid_thw": torch.tensor(sizes), **more}


def content_of(session: Session, text: str) -> list[dict[str, str]]:
    """What a user says in a chat: the pictures, then the text."""
    return [*({"type": "image"} for _ in session.wishes.images), {"type": "text", "text": text}]


def _row(session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row of the processor that the files beside the weights name, and its settings. Raises SourceError."""
    known = rows(TABLE, session.folders)
    files = [session.beside.json(file) for file in (SETTINGS, FILE, JOINT)]
    name = next((said["processor_class"] for said in reversed(files) if "processor_class" in said), None)
    row = next((row for row in known if name in row["classes"]), None)
    if row is not None:
        told = {key: word_of(value) for said in files for key, value in said.items() if value is not None}
        return row, {**row["settings"], **told}
    names = ", ".join(name for row in known for name in row["classes"])
    raise SourceError(
        f"{session.source}: how pictures stand among words is known of {names}, and not of {name or 'a model without processor_class in ' + JOINT}; leave --image out"
    )


def _count(row: dict[str, Any], said: dict[str, Any], settings: dict[str, Any], shape: Sequence[int]) -> int:
    """How many features a picture [3, height, width] has. Raises FormatError."""
    try:
        count = COUNTS[row["count"]](said, settings, shape)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise FormatError(f"the settings of the processor do not fit together: {error!r}") from error
    if not 0 < count <= _FEATURES:
        raise FormatError(f"the settings of the processor ask for {count:,} features of a picture")
    return count


def _patches(said: dict[str, Any], settings: dict[str, Any], shape: Sequence[int]) -> int:
    patch = int(said["patch_size"])
    count = (shape[1] // patch) * (shape[2] // patch) + int(said["num_additional_image_tokens"])
    return (
        count - 1 if said["vision_feature_select_strategy"] == "default" else count
    )  # without the class token


def _stated(said: dict[str, Any], settings: dict[str, Any], shape: Sequence[int]) -> int:
    return int(said["image_seq_length"])


def _merged(said: dict[str, Any], settings: dict[str, Any], shape: Sequence[int]) -> int:
    step = int(settings["patch_size"]) * int(settings["merge_size"])
    return (shape[1] // step) * (shape[2] // step)


COUNTS = {"patches": _patches, "stated": _stated, "merged": _merged}


def _placed(session: Session, row: dict[str, Any], text: str, counts: Sequence[int]) -> str:
    """The text in which each picture's word is as many as it has features."""
    word = row["word"]
    if word not in text:
        session.note(f"the text does not say where its pictures are ({word}): they go before it")
        text = (word + row["between"]) * len(counts) + text
    parts = text.split(word)
    if len(parts) - 1 != len(counts):
        raise HintError(
            f"{session.source}: the text has {word} {len(parts) - 1} times, and {len(counts)} pictures are given with --image"
        )
    filled = [f"{row['before']}{row['place'] * count}{row['after']}" for count in counts]
    return parts[0] + "".join(f"{made}{part}" for made, part in zip(filled, parts[1:], strict=True))


def patches(pixels: NDArray[Any], settings: dict[str, Any]) -> NDArray[Any]:
    """A picture as rows of patches, those that are merged side by side. pixels [3, H, W] -> [patches, 3 frames size size]"""
    size, merge, frames = (int(settings[key]) for key in ("patch_size", "merge_size", "temporal_patch_size"))
    channels, height, width = pixels.shape
    grid = (height // size // merge, width // size // merge)
    x = np.repeat(pixels[None], frames, axis=0)  # a still picture is a film of equal frames
    x = x.reshape(frames, channels, grid[0], merge, size, grid[1], merge, size)
    x = x.transpose(2, 5, 3, 6, 1, 0, 4, 7)
    return np.ascontiguousarray(x.reshape(grid[0] * grid[1] * merge**2, channels * frames * size * size))
