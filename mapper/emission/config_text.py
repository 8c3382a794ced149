"""The text of the one dataclass of sizes: fields with what they are known from, and what is computed from them."""

from __future__ import annotations

from mapper.architecture import Fact
from mapper.emission.config_class import Sizes
from mapper.emission.expressions import comment, comment_row, literal
from mapper.emission.line_breaks import lines
from mapper.emission.printing import WIDTH
from mapper.emission.repeated import tuple_text


def config_text(sizes: Sizes) -> str:
    """The class of the sizes that a file reads; empty where it reads none."""
    used = sizes.used
    if not used:
        return ""
    rows = [
        "@dataclass(frozen=True)",
        "class Config:",
        '    """Sizes, each with what it is known from."""',
        "",
    ]
    for name, fact in used.items():
        if name not in sizes.derived:
            value = fact.value
            text = tuple_text(value) if isinstance(value, (tuple, list)) else literal(value)
            row = lines(f"{name}: {annotation_of(value)} = {text}", 4)
            rows += _explained(row, fact)
    for name, text in sizes.derived.items():
        head = f"    def {name}(self) -> {annotation_of(used[name].value)}:"
        rows += ["", "    @property", head, *_explained(lines(f"return {text}", 8), used[name])]
    return "\n".join(rows)


def _explained(rows: list[str], fact: Fact) -> list[str]:
    """A row with what its size is known from, behind it or above."""
    why = f"# {comment(f'{fact.known_from}: {fact.source}')}"
    if len(rows) == 1 and len(rows[0]) + len(why) + 2 <= WIDTH:
        return [f"{rows[0]}  {why}"]
    pad = " " * (len(rows[0]) - len(rows[0].lstrip()))
    return [comment_row(pad + why, WIDTH), *rows]


def annotation_of(value: object) -> str:
    """The annotation of a size."""
    if isinstance(value, (tuple, list)):
        names = [type(item).__name__ if item is not None else "None" for item in value]
        kinds = dict.fromkeys(names)
        if len(names) == 2 and len(kinds) == 1:
            return f"tuple[{', '.join(names)}]"  # the sides of an image, say
        return f"tuple[{' | '.join(kinds)}, ...]" if kinds else "tuple[()]"
    return type(value).__name__
