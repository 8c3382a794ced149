"""Fills one chat template in: the whole work of a process that `mapper.running.chat` starts and bounds."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

_REASON = 200  # characters


def main(job: dict[str, Any]) -> None:
    """Write `{"text": …}` or `{"error": …}` to standard output."""
    limit(job["megabytes"], job["seconds"])
    try:
        answer = {"text": rendered(job["template"], job["values"], job["characters"])}
    except MemoryError:
        answer = {}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}".partition("\n")[0][:_REASON]}
    json.dump(answer, sys.stdout)


def limit(megabytes: int, seconds: int) -> None:
    """Let the system end this process where it takes more; where a system has no such limits, its starter's clock does."""
    try:
        import resource
    except ImportError:  # Windows
        return
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6, megabytes * 10**6))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def rendered(template: str, values: dict[str, Any], characters: int) -> str:
    """The template with the values in it, by the conventions of templates for chats: blocks take no line of their own."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals.update(
        raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form)
    )
    environment.filters["tojson"] = _as_json
    parts, size = [], 0
    for part in environment.from_string(template).generate(**values):
        size += len(part)
        if size > characters:
            raise ValueError(f"it writes more than {characters:,} characters")
        parts.append(part)
    return "".join(parts)


def _refuse(message: str) -> NoReturn:
    """What templates call where they have no words for a chat."""
    raise ValueError(message)


def _as_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)
