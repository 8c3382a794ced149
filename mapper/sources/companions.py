"""Files beside the weights that belong to a model and are no part of it: tokenizer, preprocessor, generation, pooling.

The list is closed: nothing else of a folder is ever copied, and these as bytes, unread. A link out of the folder, what
is no regular file, and what is larger than a file of this kind can be stays behind, which is said.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from mapper import limits
from mapper._units import in_bytes
from mapper.checkpoint import Companions
from mapper.errors import MapperError, SourceError, shorten
from mapper.sources.files import open_regular, reading
from mapper.sources.sharded import refuse_escape

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
    "merges.txt", "tokenizer.model", "spiece.model", "spm.model", "spm_char.model", "sentencepiece.model",
    "sentencepiece.bpe.model", "source.spm", "target.spm", "target_vocab.json", "vocab.bpe", "encoder.json", "bpe.codes",
    "dict.txt", "normalizer.json", "tekken.json", "tokenizer.model.v3", "entity_vocab.json", "word_shape.json",
    "word_pronunciation.json", "emoji.json", "vocab-src.json", "vocab-tgt.json", "alphabet.json",
)  # fmt: skip
TEMPLATES = ("chat_template.jinja", "chat_template.json")
PROCESSOR = (
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "audio_tokenizer_config.json",
)  # fmt: skip
GENERATION = ("generation_config.json",)
# Of sentence-transformers, whose modules lie in numbered folders: https://sbert.net/docs/package_reference/models.html
SENTENCES = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
STEPS = ("Pooling", "WeightedLayerPooling", "Dense", "Normalize", "LayerNorm", "Dropout", "CNN", "LSTM")
STEP_FILES = ("config.json", "model.safetensors")
LAST_STEP = 9
STEP_FOLDERS = tuple(f"{at}_{step}" for at in range(1, LAST_STEP + 1) for step in STEPS)
NAMES = (
    *TOKENIZER, *TEMPLATES, *PROCESSOR, *GENERATION, *SENTENCES,
    *(f"{folder}/{file}" for folder in STEP_FOLDERS for file in STEP_FILES),
)  # fmt: skip


def none() -> Companions:
    """Of a source that is no folder."""
    return Companions()


def within(folder: str | os.PathLike[str], source: str, follow_links: bool = False) -> Companions:
    """The files of the closed list that are in `folder`."""
    found = Companions()
    for name in NAMES:
        path = Path(folder, name)
        if not os.path.lexists(path):
            continue
        if why := _why_not(path, folder, name, source, follow_links):
            found.notes.append(f"{name} stays behind: {why}")
        else:
            found.files[name] = path
    return found


def _why_not(path: Path, folder: str | os.PathLike[str], name: str, source: str, follow_links: bool) -> str:
    """Why a file is not copied; "" where it is."""
    try:
        refuse_escape(os.fspath(folder), name, source, follow_links)
        file, size = open_regular(path)
        file.close()
    except MapperError as error:
        return error.in_command()
    return too_large(size)


def too_large(size: int) -> str:
    """Why a file of that size is not copied; "" where it is."""
    if size <= limits.COMPANION_BYTES:
        return ""
    return f"it has {in_bytes(size)}, and at most {in_bytes(limits.COMPANION_BYTES)} are copied"


def listed_in(names: Iterable[str]) -> list[str]:
    """Those of `names` that the closed list has, in its order."""
    present = set(names)
    return [name for name in NAMES if name in present]


def copy(companions: Companions, names: Collection[str], into: Path) -> None:
    """Copy some of the files as bytes, each under its name, into a folder where nothing has these names."""
    for name in names:
        place = into / name
        place.parent.mkdir(exist_ok=True)
        file, size = open_regular(companions.files[name])
        with file, reading(name):
            data = file.read(limits.COMPANION_BYTES + 1)
        if len(data) != size or too_large(size):
            raise SourceError(f"{shorten(name)} was written to while it was copied; run the command again")
        with open(place, "xb") as out:
            out.write(data)
