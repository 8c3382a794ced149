"""A file of ranges reads as the file itself, and fetches nothing twice, whatever its reader does."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from mapper.sources.remote import AHEAD, BLOCK, RangeFile

PATTERN = bytes(range(251)) * 1_000
STEPS = st.lists(
    st.tuples(st.sampled_from([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END]), st.integers(-99_999, 99_999), st.integers(-1, 40_000)),
    max_size=12,
)  # fmt: skip


@given(st.integers(0, 5 * AHEAD + 77), st.integers(0, 3 * BLOCK), STEPS)
def test_ranges_read_as_the_file(size: int, first: int, steps: list[tuple[int, int, int]]) -> None:
    data = PATTERN[:size]
    fetched: set[int] = set()

    def fetch(start: int, end: int) -> bytes:
        assert 0 <= start < end <= size
        bytes_now = set(range(start, end))
        assert not bytes_now & fetched
        fetched.update(bytes_now)
        return data[start:end]

    ranges, plain = RangeFile(fetch, size, data[:first]), io.BytesIO(data)
    for whence, offset, count in steps:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: plain.tell(), io.SEEK_END: size}[whence]
        offset = max(offset, -base)
        assert ranges.seek(offset, whence) == plain.seek(offset, whence)
        assert ranges.read(count) == plain.read(count)
        assert ranges.tell() == plain.tell()
