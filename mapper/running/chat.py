"""A chat as the text that a model was trained on: the template beside the weights, filled in by a process of its own.

A template is a program of whoever wrote it. It runs in jinja2's sandbox, without access to what objects are made of, and in
a process that the system stops at a second of work or at little memory: a loop without an end harms nobody.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from mapper.errors import FormatError, SourceError
from mapper.running.beside import Beside
from mapper.running.extras import need
from mapper.running.tokenizing import Words

SECONDS = 10  # until an answer, the start of Python included
MEGABYTES = 512  # of the process that fills a template in
CHARACTERS = 1_000_000  # of what it writes
_START = "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path']; from mapper.running.template import main; main(job)"


def prompt_of(beside: Beside, words: Words, text: str | list[dict[str, str]]) -> str:
    """The text of a chat in which a user has said `text`, or pictures and a text, up to where the model is to answer. Raises SourceError."""
    template = template_of(beside)
    if template is None:
        raise SourceError(
            f"{beside.source}: no chat template beside the weights or in their metadata; leave --chat out"
        )
    return filled(template, [{"role": "user", "content": text}], words.special)


def template_of(beside: Beside) -> str | None:
    """The template that is for chats without tools; None where there is none."""
    said = beside.text("chat_template.jinja")
    if said is not None:
        return said
    settings = (
        beside.json(name).get("chat_template") for name in ("chat_template.json", "tokenizer_config.json")
    )
    for told in (*settings, beside.gguf.get("tokenizer.chat_template")):
        if isinstance(told, str):
            return told
        named = (
            {row.get("name"): row.get("template") for row in told if isinstance(row, dict)}
            if isinstance(told, list)
            else {}
        )
        if isinstance(named.get("default"), str):
            return str(named["default"])
    return None


def filled(template: str, messages: list[dict[str, Any]], special: dict[str, str]) -> str:
    """The template with the messages in it. Raises FormatError for a template that fails, MapperError without jinja2."""
    need("jinja2", "chats")
    job: dict[str, Any] = {
        "template": template,
        "values": {"messages": messages, "add_generation_prompt": True, **special},
        "megabytes": MEGABYTES,
        "seconds": SECONDS,
        "path": sys.path,
        "characters": CHARACTERS,
    }
    command = [sys.executable, "-I", "-c", _START]
    try:
        done = subprocess.run(command, input=json.dumps(job).encode(), capture_output=True, timeout=SECONDS)
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
    except (subprocess.TimeoutExpired, ValueError):
        answer = {}
    if "text" in answer:
        return str(answer["text"])
    why = answer.get("error") or f"it takes more than {SECONDS} seconds or {MEGABYTES} MB"
    raise FormatError(f"the chat template cannot be filled in: {why}")
