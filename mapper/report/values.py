"""`mapper inspect --values`: what is wrong, a table with the most suspicious tensors first, and each role over depth.

encoder.layer.3.attention.self.query.weight  384 × 384  -0.0000  0.0581  -0.612  0.598  0.0%  4.1  ▁▂▅█▅▂▁  exploded
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mapper._units import in_bytes
from mapper.report.style import Paint, plain
from mapper.report.wording import counted, natural, printable
from mapper.values.result import TROUBLES, Strip, TensorValues, Values

ROWS = 24  # of the table
_STRIPS = 40
_BARS = "▁▂▃▄▅▆▇█"
MARKS = {"not_finite": "N", "exploded": "!", "dead": "0", "repeated": "=", "fresh": "?"}  # in a strip
_NAME = 60
_LEAST_NAME = 24
_TIMES = (
    4.0  # of the largest deviation to the smallest that a strip is at least scaled to: less is no difference
)
_HEAD = ("tensor", "shape", "mean", "std", "min", "max", "zeros", "spectral", "values", "")


def values_text(
    values: Values, paint: Paint = plain, width: int | None = None, *, short: bool = False
) -> str:
    """The text, ending without a newline; `width` is that of the terminal, None for a file; `short`: only what is wrong."""
    lines = [_heading(values, paint), *_troubles(values, paint)]
    if short:
        return "\n".join(lines)
    lines += ["", *_table(values, paint, width)]
    if values.strips:
        lines += [
            "",
            "depth: deviation of each layer's tensor, on a scale of logarithms",
            *_depth(values.strips, paint),
        ]
    return "\n".join(lines)


def _heading(values: Values, paint: Paint) -> str:
    wrong = (
        counted(len(values.troubles), "thing") + " to look at" if values.troubles else "nothing suspicious"
    )
    style = "bad" if values.troubles else "good"
    read = f"values: {counted(len(values.tensors), 'tensor')}, {in_bytes(values.bytes_read)} read in {values.seconds:.1f} s"
    return f"{read}: {paint(style, wrong)}"


def _troubles(values: Values, paint: Paint) -> list[str]:
    wide = max((len(trouble.kind) for trouble in values.troubles), default=0)
    said = [
        f"  {paint('bad', f'{_word(trouble.kind):{wide}}')}  {printable(trouble.text)}"
        for trouble in values.troubles
    ]
    return [*said, *(f"note: {printable(note, limit=300)}" for note in values.notes)]


def _word(kind: str) -> str:
    return kind.replace("_", " ")


def _table(values: Values, paint: Paint, width: int | None) -> list[str]:
    shown = suspicious_first(values.tensors)[:ROWS]
    rows = [_HEAD, *(_row(tensor) for tensor in shown)]
    others = sum(max(len(row[at]) for row in rows) + 2 for at in range(1, len(_HEAD)))
    most = _NAME if width is None else min(max(width - others, _LEAST_NAME), _NAME)
    rows = [(printable(row[0], limit=most), *row[1:]) for row in rows]
    wide = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = [_line(row, wide) for row in rows]
    styled = [
        paint("faint", lines[0]),
        *(
            paint("bad" if t.troubles else "", line) if t.troubles else line
            for t, line in zip(shown, lines[1:], strict=True)
        ),
    ]
    left = len(values.tensors) - len(shown)
    return [*styled, *([f"and {left:,} more; all of them with --json"] if left else [])]


def suspicious_first(tensors: Iterable[TensorValues]) -> list[TensorValues]:
    """Those with troubles, the worst first; then by how far they are from the same tensor of other layers."""

    def key(tensor: TensorValues) -> tuple[object, ...]:
        worst = TROUBLES.index(tensor.troubles[0]) if tensor.troubles else len(TROUBLES)
        return worst, -tensor.apart, natural(tensor.name)

    return sorted(tensors, key=key)


def _row(tensor: TensorValues) -> tuple[str, ...]:
    shape = " × ".join(f"{extent:,}" for extent in tensor.shape) or "1"
    numbers = (number(value) for value in (tensor.mean, tensor.std, tensor.min, tensor.max))
    norm = "" if tensor.spectral_norm is None else number(tensor.spectral_norm)
    told = [_word(kind) for kind in tensor.troubles]
    told += [f"{tensor.nan:,} NaN"] * bool(tensor.nan) + [f"{tensor.inf:,} infinite"] * bool(tensor.inf)
    return (tensor.name, shape, *numbers, f"{tensor.zeros:.1%}", norm, histogram(tensor), ", ".join(told))


def _line(row: Sequence[str], wide: Sequence[int]) -> str:
    cells = [
        f"{cell:{size}}" if at in (0, 8, 9) else f"{cell:>{size}}"
        for at, (cell, size) in enumerate(zip(row, wide, strict=True))
    ]
    return "  ".join(cells).rstrip()


def number(value: float) -> str:
    """Three digits: `-0.0123`, `1.2e-05`; `-` for what is none."""
    return f"{value:.3g}" if math.isfinite(value) else "-"


def histogram(tensor: TensorValues) -> str:
    """Bars of the numbers between the least and the largest shown, `▁▂▅█▅▂▁`; "" for a constant."""
    return bars(tensor.histogram.counts) if tensor.histogram is not None else ""


def bars(counts: Sequence[float]) -> str:
    """A bar for each count, the most as high as there are; "" for none."""
    most = max(counts, default=1)
    return "".join(_BARS[min(int(len(_BARS) * count / most), len(_BARS) - 1)] for count in counts)


def strip_text(strip: Strip) -> str:
    """A bar for each layer, or the mark of what is wrong with it."""
    low, high = strip_scale(strip)
    return "".join(
        MARKS[kind] if kind else _bar(std, low, high)
        for std, kind in zip(strip.std, strip.troubles, strict=True)
    )


def strip_scale(strip: Strip) -> tuple[float, float]:
    """Logarithms of what the lowest and the highest bar stand for: of layers without troubles."""
    sound = [std for std, kind in zip(strip.std, strip.troubles, strict=True) if std > 0 and not kind]
    found = [math.log(std) for std in sound or [1.0]]
    room = max(math.log(_TIMES) - (max(found) - min(found)), 0) / 2
    return min(found) - room, max(found) + room


def _bar(std: float, low: float, high: float) -> str:
    if not std > 0:
        return _BARS[0]
    part = (math.log(std) - low) / (high - low)
    return _BARS[min(max(int(part * len(_BARS)), 0), len(_BARS) - 1)]


def _depth(strips: Sequence[Strip], paint: Paint) -> list[str]:
    shown = strips[:_STRIPS]
    wide = max(len(printable(strip.role, limit=_NAME)) for strip in shown)
    bars = max(len(strip.std) for strip in shown)
    lines = []
    for strip in shown:
        sound = [std for std, kind in zip(strip.std, strip.troubles, strict=True) if not kind]
        span = f"{number(min(sound))} to {number(max(sound))}" if sound else "-"
        name = paint("role", f"{printable(strip.role, limit=_NAME):{wide}}")
        lines.append(f"  {name}  {strip_text(strip):{bars}}  {span}")
    said = sorted({kind for strip in shown for kind in strip.troubles if kind}, key=TROUBLES.index)
    legend = [f"  {', '.join(f'{MARKS[kind]} {_word(kind)}' for kind in said)}"] if said else []
    more = (
        [f"  and {len(strips) - len(shown)} more; all of them with --json"]
        if len(strips) > len(shown)
        else []
    )
    return [*lines, *legend, *more]
