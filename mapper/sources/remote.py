"""A remote file read in ranges: as little of it is fetched as its reader asks for."""

from __future__ import annotations

import io
from collections.abc import Callable

from mapper import limits
from mapper.errors import FormatError

BLOCK = 2**12  # bytes; what is kept or fetched together
START = 2**16  # bytes of the first range; most headers fit in
AHEAD = 2**14  # bytes fetched at least
LONGEST = 2**22  # bytes fetched at most beyond what is asked for, by a reader that goes on and on


class RangeFile(io.RawIOBase):
    """A seekable view of `size` bytes. `fetch(start, end)` gives the bytes from `start` up to `end`.

    More than asked for is fetched where a reader goes on from where it was: twice as much each time, since a
    header of some megabytes read in small steps would take a request for each of them.
    """

    def __init__(
        self, fetch: Callable[[int, int], bytes], size: int, start: bytes = b"", name: str = "a remote file"
    ):
        super().__init__()
        self.name = name
        self._fetch = fetch
        self._size = size
        self._position = 0
        self._blocks: dict[int, bytes] = {}
        self._ahead = AHEAD
        self._fetched = len(start) // BLOCK * BLOCK  # where the last fetch ended
        self._keep(0, start)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"a position of {base + offset} bytes")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        start = self._position
        if start >= end:
            return b""
        self._load(start // BLOCK, (end - 1) // BLOCK)
        numbers = range(start // BLOCK, (end - 1) // BLOCK + 1)
        data = b"".join(self._blocks[number] for number in numbers)
        self._position = end
        return data[start - numbers[0] * BLOCK : end - numbers[0] * BLOCK]

    def _load(self, first: int, last: int) -> None:
        """Fetch the blocks from `first` to `last` that are not here yet: in one request, if none of them is."""
        self._check(last - first)
        number = first
        while number <= last:
            end = number
            while end <= last and end not in self._blocks:
                end += 1
            if end > number:
                self._get(*self._widened(number, end - 1))
            number = end + 1

    def _get(self, first: int, last: int) -> None:
        start, end = first * BLOCK, min((last + 1) * BLOCK, self._size)
        self._check(len(self._blocks) + last - first)
        data = self._fetch(start, end)
        if len(data) != end - start:
            raise OSError(f"{len(data):,} bytes came where {end - start:,} were asked for")
        self._fetched = end
        self._keep(first, data)

    def _check(self, blocks: int) -> None:
        if BLOCK * blocks > limits.REMOTE_BYTES:
            raise FormatError(
                f"{self.name}: its header takes more than the {limits.REMOTE_BYTES:,} bytes that are fetched of a "
                "remote file for that; download it and give its path"
            )

    def _widened(self, first: int, last: int) -> tuple[int, int]:
        """The blocks from `first` to `last` and some more, none of which is here yet."""
        self._ahead = min(2 * self._ahead, LONGEST) if first * BLOCK == self._fetched else AHEAD
        final = (self._size - 1) // BLOCK
        end = min(max(last, first + self._ahead // BLOCK - 1), final)
        while last < end and last + 1 not in self._blocks:
            last += 1
        if last == final:  # the directory of an archive stands before its last bytes
            start = max(min(first, final - AHEAD // BLOCK), 0)
            while first > start and first - 1 not in self._blocks:
                first -= 1
        return first, last

    def _keep(self, first: int, data: bytes) -> None:
        for number, at in enumerate(range(0, len(data), BLOCK), first):
            block = data[at : at + BLOCK]
            if len(block) == min(BLOCK, self._size - number * BLOCK):
                self._blocks[number] = block
