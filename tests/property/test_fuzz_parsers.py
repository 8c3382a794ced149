"""Changed inputs of every parser: an answer, or a refusal in one line. `tools/fuzz.py` goes on for as long as one likes."""

from __future__ import annotations

import io
import random
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import FormatError
from tests.fuzzing import TARGETS, execute, seeds, words
from tests.onnx_files import beside, held, initialiser, model

WORDS = words()
CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2**16), st.integers(0, 2**16)), min_size=1, max_size=6
)


def changed(data: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    """Bytes replaced, words put in or over others, stretches cut out or doubled."""
    found = bytearray(data)
    for kind, place, value in changes:
        at = place % max(len(found), 1)
        word = WORDS[value % len(WORDS)]
        if kind == 0:
            found[at : at + 1] = bytes([value % 256])
        elif kind == 1:
            found[at : at + value % 2 * len(word)] = word
        elif kind == 2:
            del found[at : at + 1 + value % 16]
        else:
            found[at:at] = found[at : at + value % 64]
    return bytes(found)


@pytest.mark.parametrize("name", TARGETS)
@given(changes=CHANGES, which=st.integers(0, 7))
@settings(max_examples=80)
def test_changed_inputs_are_read_or_refused(
    name: str, changes: list[tuple[int, int, int]], which: int
) -> None:
    good = seeds(name)
    execute(TARGETS[name], changed(good[which % len(good)], changes))


@pytest.mark.parametrize("name", TARGETS)
def test_noise_is_refused(name: str) -> None:
    source = random.Random(0)
    for size in (0, 1, 7, 8, 9, 64, 600):
        for _ in range(5):
            assert not execute(TARGETS[name], source.randbytes(size))


# ------------------------------------------------------------------------------------------------------- once found
def test_a_damaged_archive_does_not_quote_all_of_a_name() -> None:
    """A record's name of thousands of bytes stands in the standard library's message."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a" * 3000, b"")
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
    data = bytearray(file.getvalue())
    at = data.index(b"archive/data.pkl")
    data[at] ^= 1  # the name before the record is no longer that in the directory
    data[at - 4 : at - 2] = (5000).to_bytes(2, "little")
    assert not execute(TARGETS["torch-zip"], bytes(data) + bytes(9000))
    assert not execute(
        TARGETS["torch-zip"], bytes(data[: at - 4]) + (3100).to_bytes(2, "little") + bytes(data[at - 2 :])
    )


def test_a_tensor_of_a_model_is_not_also_in_a_file_beside_it() -> None:
    """Also where the header alone is read, of a file on the hub."""
    twice = model(
        initialiser("a", [2], 1, beside("d.bin", length=8)), initialiser("a", [2], 1, held(9, bytes(8)))
    )
    with pytest.raises(FormatError, match="two initialisers"):
        TARGETS["onnx"].parse(twice)
