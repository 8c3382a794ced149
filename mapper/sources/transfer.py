"""Requests to the hub: tried again where a failure may pass, bounded in time, and said when it takes long."""

from __future__ import annotations

import email.utils
import http
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from mapper._progress import note
from mapper._units import duration
from mapper.errors import FormatError, MapperError, SourceError

READ_SECONDS = 15.0  # without a byte
TRIES = 5  # of one request, the first among them
FIRST_WAIT = 1.0  # seconds; each wait is twice the one before
LONGEST_WAIT = 60.0  # seconds that the hub may ask for; a rate limit of the hub is per five minutes
PROGRESS = 2**20  # bytes after which a download that breaks again has all its tries again
SLOWEST = 10_000  # bytes a second of a header; a connection that drips is given up
SKIPPED = 2**24  # bytes read for nothing where a server sends no parts of a file
PASSING = frozenset({408, 429, 500, 502, 503, 504})
# By name, since the client's own client has had three names, and its classes a home in each.
_BROKEN = frozenset({"TimeoutException", "NetworkError", "RemoteProtocolError", "ProxyError"})

Result = TypeVar("Result")


def repeat(
    what: str,
    action: Callable[[], Result],
    reached: Callable[[], int] = lambda: 0,
    sleep: Callable[[float], object] | None = None,
) -> Result:
    """What `action` returns; where it fails in a way that may pass, it is tried again, with a note.

    `reached` says how many bytes are here: a transfer that gets on may be cut any number of times. What does not
    pass is raised as it is.
    """
    tries, before = 0, reached()
    while True:
        try:
            return action()
        except Exception as error:
            if not _may_pass(error):
                raise
            if reached() - before >= PROGRESS:
                tries, before = 0, reached()
            tries += 1
            if tries >= TRIES:
                message = f"{what}: {reason(error)}, {TRIES} times in a row; run the command again later"
                raise SourceError(message) from error
            pause = _pause(what, error, tries)
            note(f"{what}: {reason(error)}; trying again in {duration(pause)} ({tries} of {TRIES - 1})")
        (sleep or time.sleep)(pause)


def status_of(error: BaseException) -> int | None:
    """The status with which the hub refused, or None where it did not answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


def reason(error: BaseException) -> str:
    """What went wrong with a request, in a few words."""
    status = status_of(error)
    if status is not None:
        return f"the hub answers {_phrase(status)}"
    names = {base.__name__ for base in type(error).__mro__}
    if "TimeoutException" in names or isinstance(error, TimeoutError):
        return f"no byte came for {READ_SECONDS:.0f} s"
    said = str(error).strip().split("\n")[0][:200] or type(error).__name__
    return f"the connection broke ({said})" if _may_pass(error) else said


def _phrase(status: int) -> str:
    try:
        return f"{status} ({http.HTTPStatus(status).phrase.lower()})"
    except ValueError:
        return str(status)


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, MapperError):
        return False
    status = status_of(error)
    if status is not None:
        return status in PASSING
    return isinstance(error, (ConnectionError, TimeoutError)) or any(
        base.__name__ in _BROKEN for base in type(error).__mro__
    )


def _pause(what: str, error: BaseException, tries: int) -> float:
    """Seconds to wait: what the hub asks for, else twice as long each time."""
    asked = _asked_for(getattr(getattr(error, "response", None), "headers", {}))
    if asked is None:
        return FIRST_WAIT * 2.0 ** (tries - 1)
    if asked > LONGEST_WAIT:
        hint = "a token (HF_TOKEN) raises its limits" if status_of(error) == 429 else "run the command then"
        raise SourceError(
            f"{what}: {reason(error)} and asks to come back in {duration(asked)}; {hint}"
        ) from error
    return asked


def _asked_for(headers: Any) -> float | None:
    """The seconds, or the date, of `Retry-After`; else the reset of a `RateLimit` that is used up."""
    text = (headers.get("Retry-After") or "").strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    if text:
        try:
            return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
        except (ValueError, TypeError, OverflowError):
            return None
    fields = [part.strip().partition("=")[::2] for part in (headers.get("RateLimit") or "").split(";")]
    limit = dict(fields)
    reset = limit.get("t", "")
    return float(reset) if limit.get("r") == "0" and reset.isdecimal() and len(reset) < 10 else None


class Answer(NamedTuple):
    """The body of an answer as it comes: where in the file it starts, and how long the file is."""

    start: int
    size: int | None  # None: the server does not say
    pieces: Iterator[bytes]


@contextmanager
def opened(url: str, headers: dict[str, str], start: int = 0, end: int | None = None) -> Iterator[Answer]:
    """The bytes of `url` from `start` up to `end`; from 0 where the server does not send parts of a file.

    Raises what the hub's client raises where the hub refuses.
    """
    from huggingface_hub import get_session
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    headers = {**headers, "Accept-Encoding": "identity"}
    if start or end is not None:
        headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
    with get_session().stream(
        "GET", url, headers=headers, timeout=READ_SECONDS, follow_redirects=True
    ) as response:
        status, name = response.status_code, url.rpartition("/")[2]
        given = response.headers.get("Content-Range", "")
        if status == 416:  # nothing at `start`: the end of the file, or an empty one
            yield Answer(start, _number(given.rpartition("/")[2]) or 0, iter(()))
            return
        hf_raise_for_status(response)
        if status not in (200, 206):
            raise SourceError(f"{name}: the hub answers {_phrase(status)}, not with the file; try again")
        encoded = response.headers.get("Content-Encoding", "identity").lower() != "identity"
        if status == 200:
            size = None if encoded else _number(response.headers.get("Content-Length"))
            yield Answer(0, size, response.iter_bytes())
            return
        sent = given.removeprefix("bytes ").partition("/")[0].partition("-")[0].strip()
        if encoded or _number(sent) != start:
            seen = "compressed bytes" if encoded else f"the range {given[:60]!r}"
            raise SourceError(f"{name}: the hub sends {seen} where bytes from {start:,} on were asked for")
        yield Answer(start, _number(given.rpartition("/")[2]), response.iter_bytes())


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


def read_range(url: str, headers: dict[str, str], start: int, end: int) -> tuple[bytes, int]:
    """The bytes from `start` up to `end`, and the size of the whole file. Never more is kept."""
    name = url.rpartition("/")[2]
    return repeat(name, lambda: _read_range(url, headers, start, end, name))


def _read_range(url: str, headers: dict[str, str], start: int, end: int, name: str) -> tuple[bytes, int]:
    with opened(url, headers, start, end) as answer:
        remedy = "download it and give its path"
        if answer.start < start and end > SKIPPED:
            raise SourceError(f"{name}: the server does not send parts of a file; {remedy}")
        if answer.size is None:
            raise SourceError(f"the hub does not say how long the file is ({name}); {remedy}")
        wanted = min(end, answer.size) - answer.start
        data = take(answer.pieces, wanted, name)
        if len(data) < wanted:
            raise ConnectionError(f"it ended after {len(data):,} of {wanted:,} bytes")
    return data[start - answer.start :], answer.size


def read_whole(url: str, headers: dict[str, str], limit: int, name: str) -> bytes:
    """All bytes of a small file; FormatError where there are more than `limit`."""
    with opened(url, headers) as answer:
        size = answer.size or 0
        data = take(answer.pieces, limit + 1, name) if size <= limit else b""
        if max(size, len(data)) > limit:
            raise FormatError(f"{name}: {max(size, len(data)):,} bytes, at most {limit:,} are read")
        if len(data) < size:
            raise ConnectionError(f"it ended after {len(data):,} of {size:,} bytes")
        return data


def take(pieces: Iterator[bytes], wanted: int, name: str) -> bytes:
    """The first `wanted` bytes, or fewer where there are no more; SourceError where they only drip."""
    data = bytearray()
    deadline = time.monotonic() + 4 * READ_SECONDS + wanted / SLOWEST
    while len(data) < wanted:
        piece = next(pieces, None)
        if piece is None:
            break
        data += piece
        if time.monotonic() > deadline:
            raise SourceError(f"{name}: only {len(data):,} of {wanted:,} bytes came in a minute; try again")
    return bytes(data[:wanted])
