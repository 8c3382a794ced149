"""What a layer reads of several others, as `chain.reads` and `chain.gives` say it: `a & b`, `a * sigmoid(b)`, `sum(softmax(c) * a)`.

`a @ b` is a product of matrices, `&` puts features or channels side by side, `+`, `-` and `*` go number by number, and a vector beside maps or positions counts at
each of them. Functions are activations, what makes one vector of positions or places, and poolings; `max(a, b)` is the larger at each place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mapper.inference.chains.elements import CONVOLUTION, RECURRENT, Element
from mapper.inference.chains.links import MAPS, ROWS, START, Data
from mapper.inference.chains.parted import of_parts
from mapper.inference.chains.value import NoReadingError, Value

_TOKEN = re.compile(r"\s*([A-Za-z_][\w.]*|\d[\w.]*(?:(?<=\de)-\d{1,2})?|[&+*/@(),-])")
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,18})?(e-?\d{1,2})?")
_KNOWN = "there are activations, softmax, sum, mean, max, last, first, total, dot, attended, then, nearest, warped, flatten, transposed, stacked_2, repeated, maps, positions, squeezed, max_2 and the like"
_TURN = "maps and positions do not go together: maps(A) makes maps of positions, positions(A) the other way"
_DEEPEST = 40  # parentheses within parentheses
EACH = "each"  # of a row of characters for each word: a vector at each position of the words
BARE = ("softmax", "sigmoid", "tanh")  # what is inside has no other activation
HALVES = ("first_half", "second_half")  # of features or channels
_SHUFFLED = "shuffled_"  # channels to pixels: `shuffled_2`
# Positions in a row that become one, their features side by side: `stacked_2` (1508.01211).
_STACKED = "stacked_"
_DIGITS = 4  # of a number in a word
_PAIR = 2
_PAIRED = 12  # vectors, of each two of which there is a product
_VECTORS = ("mean", "max", "last", "first", "final_states", "interactions")
_SEQUENCES = ("rows", "columns")  # of maps
Reduce = Callable[[str, "Value"], str | None]  # a word and a value: the expression; None for no such word


@dataclass
class Reader:
    """Reads one expression."""

    text: str
    known: Mapping[str, Value]  # by name
    functions: Reduce
    tokens: list[str] = field(default_factory=list)
    at: int = 0
    depth: int = 0

    def read(self) -> Value:
        self.tokens = list(_tokens(self.text))
        found = self.side_by_side()
        if self.at < len(self.tokens):
            raise NoReadingError(f"{self.tokens[self.at]!r} is left over")
        return found

    def several(self) -> list[Value]:
        """Values with commas between them."""
        self.tokens = list(_tokens(self.text))
        found = [self.side_by_side()]
        while self.takes(","):
            found.append(self.side_by_side())
        if self.at < len(self.tokens):
            raise NoReadingError(f"{self.tokens[self.at]!r} is left over")
        return found

    def takes(self, token: str) -> bool:
        is_next = self.tokens[self.at : self.at + 1] == [token]
        self.at += is_next
        return is_next

    def side_by_side(self) -> Value:
        parts = [self.sum()]
        while self.takes("&"):
            parts.append(self.sum())
        return parts[0] if len(parts) == 1 else _beside(parts)

    def sum(self) -> Value:
        found = self.product()
        while self.tokens[self.at : self.at + 1] in (["+"], ["-"]):
            sign = self.tokens[self.at]
            self.at += 1
            found = _by_number(found, sign, self.product())
        return found

    def product(self) -> Value:
        found = self.one()
        while self.tokens[self.at : self.at + 1] in (["*"], ["/"], ["@"]):
            sign = self.tokens[self.at]
            self.at += 1
            other = self.one()
            found = _product(found, other) if sign == "@" else _by_number(found, sign, other)
        return found

    def one(self) -> Value:
        if self.at >= len(self.tokens):
            raise NoReadingError("it ends too soon")
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            found = self.inside()
            self.close()
            return replace(found, text=f"({found.text})", is_tight=True, is_name=False)
        if self.tokens[self.at : self.at + 1] == ["("] and token not in self.known:
            self.at += 1
            return self.call(token)
        if token in self.known:
            return self.known[token]
        if _NUMBER.fullmatch(token):
            return Value(token, Data(START))
        raise NoReadingError(f"no layer is called {token!r}")

    def inside(self) -> Value:
        """What stands behind an open parenthesis."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NoReadingError(f"more than {_DEEPEST} parentheses within each other")
        found = self.side_by_side()
        self.depth -= 1
        return found

    def close(self) -> None:
        if not self.takes(")"):
            raise NoReadingError("a ) is missing")

    def call(self, word: str) -> Value:
        inner = self.inside()
        if word == "dot" and self.takes(","):
            product = _by_number(inner, "*", self.side_by_side())
            self.close()
            return replace(product, text=f"({product.text}).sum(dim=-1, keepdim=True)", data=replace(product.data, width=1), is_tight=True)  # fmt: skip
        if word == "column" and self.takes(","):
            number = self.one()
            self.close()
            if inner.data.form == ROWS:  # of features, which stay an axis
                text = f"{_tight(inner)}.narrow(-1, {number.text}, 1)"
                return replace(
                    inner, text=text, data=replace(inner.data, width=1), is_name=False, is_tight=True
                )
            return replace(inner, text=f"{inner.text}[..., {number.text}]", is_name=False)
        others = []
        while word in _OF_SEVERAL and self.takes(","):
            others.append(self.side_by_side())
        self.close()
        if others:
            return _OF_SEVERAL[word]([inner, *others])
        found = applied(word, inner, self.functions)
        if found is None:
            raise NoReadingError(
                f"no function is called {word}, or it is none of {_said(inner.data)}; {_KNOWN}"
            )
        return found


def applied(word: str, inner: Value, functions: Reduce) -> Value | None:
    """A word's function of a value."""
    if word in ("transposed", "flatten") and inner.data.form != MAPS:
        return _turned(inner) if word == "transposed" else _in_one_row(inner)
    found = of_parts(word, inner, _tight(inner)) or _of_places(word, inner)
    found = found or _of_channels(word, inner) or _by_table(word, inner, functions)
    if found is None:
        return None
    bare = inner.bare | (frozenset(inner.sources) if word in BARE and inner.is_name else frozenset())
    return Value(*found, inner.sources, bare)


def _tight(inner: Value) -> str:
    return inner.text if inner.is_tight else f"({inner.text})"


def _of_places(word: str, inner: Value) -> tuple[str, Data] | None:
    """What is computed over positions or places, or changes what they are."""
    data, tight = inner.data, _tight(inner)
    places = tuple(range(2, 2 + data.axes)) if data.form == MAPS else (1,)
    if word == "softmax":
        return f"F.softmax({inner.text}, dim={places[0] if len(places) == 1 else -1})", data
    if word == "sum":
        return f"{tight}.sum(dim={places if len(places) > 1 else places[0]})", Data(
            ROWS, data.width, is_single=True
        )
    if word == "maps" and data.form == ROWS and data.axes < 2:
        return f"{tight}.transpose(1, 2)", Data(MAPS, data.width, 1)
    if word == "positions" and data.form == MAPS and data.axes < 2:
        return f"{tight}.transpose(1, 2)", Data(ROWS, data.width, is_sequence=True)
    if (
        word == "positions" and data.form == START and data.width
    ):  # of an input, its channels before its places
        return f"{tight}.transpose(1, 2)", Data(ROWS, data.width, is_sequence=True)
    if word == "maps" and data.form == START and data.width:  # of an input, its features last
        return f"{tight}.transpose(1, 2)", Data(MAPS, data.width, 1)
    if word == "pooled" and data.form == MAPS:
        return f"F.adaptive_avg_pool{data.axes}d({inner.text}, 1)", data
    if word == "squeezed" and data.form == MAPS and data.axes > 1:  # of one place along their last axis
        return f"{tight}.squeeze(-1)", replace(data, axes=data.axes - 1)
    many = _count_of(word, _STACKED)
    if many and data.form != MAPS:
        text = f"{tight}.unflatten(1, (-1, {many})).flatten(2)"
        return text, Data(ROWS, data.width * many, is_sequence=True)
    return None


def _count_of(word: str, beginning: str) -> int:
    """The number behind the beginning of a word; 0 where there is none, or one that is too long."""
    count = word.removeprefix(beginning)
    return int(count) if word != count and count.isdecimal() and len(count) <= _DIGITS else 0


def _of_channels(word: str, inner: Value) -> tuple[str, Data] | None:
    """What makes fewer channels or features of them."""
    data, tight = inner.data, _tight(inner)
    axis = 1 if data.form == MAPS else -1
    half = replace(data, width=data.width // 2)
    if word == "glu":  # one half, as far as the other lets it
        return f"F.glu({inner.text}, dim={axis})", half
    if word == "magnitude":  # of complex numbers: their real parts are one half, the others the other
        return f"{tight}.unflatten({axis}, (2, -1)).norm(dim={axis if axis > 0 else -2})", half
    if word in HALVES:
        return f"{tight}.chunk(2, dim={axis})[{HALVES.index(word)}]", half
    factor = _count_of(word, _SHUFFLED)
    if factor and data.axes == 2:
        return f"F.pixel_shuffle({inner.text}, {factor})", replace(data, width=data.width // factor**2)
    return None


def _by_table(word: str, inner: Value, functions: Reduce) -> tuple[str, Data] | None:
    """What the vocabulary has under a word: an activation, a pooling, what makes one vector of all."""
    if word == "abs":
        return f"{_tight(inner)}.abs()", inner.data
    if word == "repeated":  # a vector, at each position of what stands beside it
        return inner.text, Data(ROWS, inner.data.width, is_single=True)
    if word == "total":  # of all numbers of each
        return f"{_tight(inner)}.sum(dim=-1, keepdim=True)", replace(inner.data, width=1)
    found = functions(word, replace(inner, text=_tight(inner)))
    if found is None:
        return None
    if word == EACH:
        return found, Data(ROWS, inner.data.width, is_sequence=True)
    if word in _SEQUENCES:  # as wide as whoever reads them says
        return found, Data(ROWS, 0, is_sequence=True)
    if word.startswith("flatten") and inner.data.form == MAPS:
        return found, Data(ROWS, 0, is_single=True)
    return found, Data(ROWS, inner.data.width, is_single=True) if word in _VECTORS else inner.data


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise NoReadingError(f"{text[at:].strip()[:20]!r} is no name and no sign")
        yield found[1]
        at = found.end()


def _beside(parts: list[Value]) -> Value:
    maps = next((part.data for part in parts if part.data.form == MAPS), None)
    if maps and any(part.data.is_sequence for part in parts):
        raise NoReadingError(_TURN)
    parts = _everywhere(parts)
    is_known = all(part.data.width for part in parts if part.data.form == ROWS)  # 0: nothing shows how wide
    width = sum(part.data.width for part in parts) if is_known else 0
    is_sequence = any(part.data.is_sequence for part in parts)
    data = Data(MAPS, width, maps.axes) if maps else Data(ROWS, width, is_sequence=is_sequence)
    return _together(
        f"torch.cat(({', '.join(part.text for part in parts)}), dim={1 if maps else -1})", data, parts
    )


def _everywhere(parts: list[Value]) -> list[Value]:
    """Values side by side, a vector at each place of the maps or positions beside it."""
    long = next((part for part in parts if part.data.form == MAPS or part.data.is_sequence), None)
    if long is None:
        return parts
    axes = long.data.axes if long.data.form == MAPS else 0
    sizes = [f"{_tight(long)}.shape[{axis}]" for axis in range(2, 2 + axes)] or [
        f"{_tight(long)}.shape[1]",
        "-1",
    ]
    index = "..., " + ", ".join(["None"] * axes) if axes else ":, None"
    ends = ", ".join([*(["-1"] if axes else []), *sizes])
    return [
        replace(part, text=f"{_tight(part)}[{index}].expand(-1, {ends})")
        if part.data.is_single or (axes and part.data.form == ROWS)
        else part
        for part in parts
    ]


def _by_number(one: Value, sign: str, other: Value) -> Value:
    wide = max(
        (one, other), key=lambda value: (value.data.form == MAPS, value.data.is_sequence, value.data.width)
    )
    if 1 < min(one.data.width, other.data.width) != wide.data.width:
        raise NoReadingError(f"{one.data.width} and {other.data.width} numbers do not go together")
    if wide.data.form == MAPS and (one.data.is_sequence or other.data.is_sequence):
        raise NoReadingError(_TURN)
    texts = [_spread(value, wide, sign) for value in (one, other)]
    return replace(_together(f" {sign} ".join(texts), wide.data, [one, other]), is_tight=False)


def _largest(parts: list[Value]) -> Value:
    """The largest of several numbers at each place."""
    if len({(part.data.width, part.data.form) for part in parts}) > 1:
        widths = " and ".join(str(part.data.width) for part in parts)
        raise NoReadingError(f"{widths} numbers do not go together")
    text = f"torch.stack(({', '.join(part.text for part in parts)})).amax(dim=0)"
    return _together(text, parts[0].data, parts)


def _product(one: Value, other: Value) -> Value:
    """A product of matrices: each row of the first by the columns of the second."""
    if MAPS in (one.data.form, other.data.form):
        raise NoReadingError("@ is a product of vectors and matrices, not of maps")
    if one.data.width and other.rows and one.data.width != other.rows:
        raise NoReadingError(f"{one.data.width} numbers and {other.rows} rows do not go together")
    data = Data(ROWS, other.data.width, is_sequence=one.data.is_sequence or bool(one.rows))
    text = f"{_tight(one)} @ {_tight(other)}"
    return replace(_together(text, data, [one, other]), is_tight=False, rows=one.rows)


def _turned(inner: Value) -> Value:
    """Features as positions, and positions as features."""
    data = Data(ROWS, inner.rows, is_sequence=inner.data.is_sequence)
    text = f"{_tight(inner)}.transpose(-1, -2)"
    return Value(text, data, inner.sources, inner.bare, rows=inner.data.width)


def _in_one_row(inner: Value) -> Value:
    """All that there is of each input in one row: as wide as whoever reads it says, where nothing else shows it."""
    data = Data(ROWS, inner.rows * inner.data.width)
    return Value(f"{_tight(inner)}.flatten(1)", data, inner.sources, inner.bare)


def _attended(parts: list[Value]) -> Value:
    """For each query the mean of values, by how its products with the keys compare (1508.04025): values are keys unless told."""
    if not 2 <= len(parts) <= 3:
        raise NoReadingError("attended is of queries, keys and maybe values")
    query, key, value = (*parts, parts[1])[:3]
    if query.data.width != key.data.width:
        raise NoReadingError(f"{query.data.width} and {key.data.width} numbers do not go together")
    text = f"F.softmax({_tight(query)} @ {_tight(key)}.transpose(1, 2), dim=-1) @ {_tight(value)}"
    return replace(_together(text, replace(query.data, width=value.data.width), parts), is_tight=False)


def _one_after_another(parts: list[Value]) -> Value:
    """The positions of each, in turn; a vector is one position."""
    if len({part.data.width for part in parts} - {0}) > 1:
        widths = " and ".join(str(part.data.width) for part in parts)
        raise NoReadingError(f"{widths} numbers do not go together")
    texts = [part.text if part.data.is_sequence else f"{_tight(part)}.unsqueeze(1)" for part in parts]
    width = max(part.data.width for part in parts)
    return _together(f"torch.cat(({', '.join(texts)}), dim=1)", Data(ROWS, width, is_sequence=True), parts)


def _products(parts: list[Value]) -> Value:
    """The products of each two vectors: of the second with the first, of the third with both, and so on (1906.00091)."""
    if not 1 < len(parts) <= _PAIRED or len({part.data.width for part in parts}) > 1:
        raise NoReadingError(f"products is of vectors as wide as each other, {_PAIRED} at most")
    pairs = [(one, other) for at, one in enumerate(parts) for other in parts[:at]]
    texts = [f"({_tight(one)} * {_tight(other)}).sum(dim=-1)" for one, other in pairs]
    return _together(f"torch.stack(({', '.join(texts)},), dim=-1)", Data(ROWS, len(pairs)), parts)


def _convolved(parts: list[Value]) -> Value:
    """Maps of one axis through kernels that no layer has, as those of a spectrum are stored; the number behind them is the stride."""
    if len(parts) < _PAIR or len(parts[1].kernels) != _PAIR + 1 or parts[0].data.form == ROWS:
        raise NoReadingError("convolved is of maps of one axis, stored kernels of three axes, and a stride")
    data = Data(MAPS, parts[1].kernels[0], 1)
    stride = f", stride={parts[2].text}" if len(parts) > _PAIR else ""
    return _together(f"F.conv1d({parts[0].text}, {parts[1].text}{stride})", data, parts)


def _cropped(parts: list[Value]) -> Value:
    """The middle of maps, as large as others: convolutions without padding leave fewer places (1505.04597)."""
    if len(parts) != _PAIR or any(part.data.form != MAPS for part in parts):
        raise NoReadingError("cropped is of maps, and of others as large as their middle")
    text, other = (_tight(part) for part in parts)
    cuts = (
        f".narrow({axis}, ({text}.shape[{axis}] - {other}.shape[{axis}]) // 2, {other}.shape[{axis}])"
        for axis in range(2, 2 + parts[0].data.axes)
    )
    return _together(text + "".join(cuts), parts[0].data, parts)


def _spread(value: Value, wide: Value, sign: str) -> str:
    """The text of a vector beside maps or positions."""
    if wide.data.form == MAPS and value.data.form == ROWS:
        return f"{_tight(value)}[..., {', '.join(['None'] * wide.data.axes)}]"
    if wide.data.is_sequence and value.data.is_single:
        return f"{_tight(value)}[:, None]"
    return value.text if sign == "+" else _tight(value)


def _together(text: str, data: Data, parts: list[Value]) -> Value:
    sources = tuple(dict.fromkeys(source for part in parts for source in part.sources))
    return Value(text, data, sources, frozenset().union(*(part.bare for part in parts)))


def in_positions(value: Value, element: Element) -> Value:
    """Rows of several tables that a convolution over one axis or a recurrent layer reads: a row for each position."""
    if element.group == RECURRENT and value.data.is_single:  # one step of a sequence
        data = replace(value.data, is_sequence=True, is_single=False)
        return replace(value, text=f"{_tight(value)}.unsqueeze(1)", data=data, is_name=False)
    is_long = element.group == RECURRENT or len(element.kernel) == 1
    if not is_long or value.data.form != ROWS or value.is_name:
        return value
    return replace(value, data=replace(value.data, is_sequence=True))


def does_not_read(element: Element, before: Data) -> str:
    """Why a layer cannot read what comes before it, in words."""
    what = "channels" if element.group == CONVOLUTION else "features"
    if before.form == START:
        return f"{element.name} is to read what it gives itself, or an input that nothing says more of"
    if before.width and before.width != element.inputs:
        return f"{element.name} reads {element.inputs} {what}, and this is {before.width} wide"
    return f"{element.name} reads {element.inputs} {what}, and this is {_said(before)}"


def _nearest(parts: list[Value]) -> Value:
    """Of each position or place the row of a table that is closest to it (1711.00937)."""
    if len(parts) != 2 or not parts[1].rows or parts[0].data.width != parts[1].data.width:
        raise NoReadingError("nearest is of maps or positions, and a table as wide as they are")
    data, text = parts[0].data, _tight(parts[0])
    if data.form != MAPS:
        return _together(f"nearest_codes({text}, {parts[1].text})[1]", data, parts)
    sizes = ", ".join(f"{text}.shape[{axis}]" for axis in range(2, 2 + data.axes))
    found = f"nearest_codes({text}.flatten(2).transpose(1, 2), {parts[1].text})[1]"
    return _together(
        f"{found}.transpose(1, 2).unflatten(2, ({sizes}{',' if data.axes == 1 else ''}))", data, parts
    )


def _warped(parts: list[Value]) -> Value:
    """Maps as an affine transform of their places shows them, six numbers of each input (1506.02025)."""
    if len(parts) != 2 or parts[0].data.form not in (MAPS, START):
        raise NoReadingError("warped is of maps and six numbers")
    maps, six = parts
    maps = replace(maps, data=replace(maps.data, form=MAPS, axes=2))
    text = f"F.affine_grid({_tight(six)}.unflatten(-1, (2, 3)), {_tight(maps)}.shape, align_corners=False)"
    return _together(f"F.grid_sample({maps.text}, {text}, align_corners=False)", maps.data, parts)


_OF_SEVERAL = {
    "warped": _warped,
    "nearest": _nearest,
    "max": _largest,
    "attended": _attended,
    "then": _one_after_another,
    "products": _products,
    "convolved": _convolved,
    "cropped": _cropped,
}


def _said(data: Data) -> str:
    return {MAPS: "maps", ROWS: "vectors"}.get(data.form, "an input")
