"""What lies between the layers of a chain, and the statements that it comes to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING

from mapper.inference.chains import scaling
from mapper.inference.chains.activations import activation_of
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.behind import main_of
from mapper.inference.chains.convolutions import CHANNEL, halved, setting, shuffled
from mapper.inference.chains.elements import (
    CONVOLUTION,
    EMBEDDING,
    FORK,
    LINEAR,
    NORM,
    RECURRENT,
    SLOPES,
    Element,
    Scale,
)
from mapper.inference.chains.extents import Window
from mapper.inference.chains.forks import fork, unpooled
from mapper.inference.chains.gaps import gaps_of, is_code, is_turn
from mapper.inference.chains.inputs import read_input, read_samples
from mapper.inference.chains.joins import Kept, add_kept
from mapper.inference.chains.links import MAPS, ROWS, START, Link
from mapper.inference.chains.norms import norm
from mapper.inference.chains.order import Head
from mapper.inference.chains.outputs import give, mask
from mapper.inference.chains.pairs import in_parts
from mapper.inference.chains.pixels import is_image_to_image, restore
from mapper.inference.chains.pooling import GLOBAL, fill, pooled
from mapper.inference.chains.recurrence import ask_nonlinearity
from mapper.inference.chains.reducing import LARGER, in_steps, reduce, unfold
from mapper.inference.chains.residuals import ADDED, POOLED, Span, spans_of
from mapper.inference.chains.split import is_mean, name_mean, networks_beside, split, spread_beside
from mapper.inference.chains.sums import Sums, before_first, join, keep, sum_up
from mapper.inference.chains.twins import Twins
from mapper.inference.chains.whole import is_whole, write_whole

if TYPE_CHECKING:
    from mapper.rulebook.facts import ActivationRule

INPUT, IDS = "inputs", "input_ids"
_OF_LAYERS = (  # facts of a layer itself
    "chain.stride", "chain.padding", "chain.dilation", "chain.up_stride", "chain.up_padding", "chain.groups", "norm.eps", "chain.output",
    "chain.recurrent_activation",
)  # fmt: skip
_SIDE = " & "
_NORM = "_norm"  # at the end of words of norms that store nothing
_SMOOTH = ("bilinear_2", "aligned_2")
_SEVERAL = 3  # of a sequence, side by side
_IN_TURN = 3  # activations behind the first one


@dataclass
class Written:
    """A chain as statements."""

    lines: list[str] = field(default_factory=list)
    arguments: dict[str, dict[str, str | int]] = field(default_factory=dict)  # role -> of its constructor
    problems: list[str] = field(default_factory=list)  # sizes that do not add up
    input_size: str = ""  # the smallest for which they do
    is_checked: bool = False  # whether some sizes were to add up
    has_single_rows: bool = False  # whether a layer takes a row of each input, and no sequence of them
    forward: list[str] = field(default_factory=list)  # the statements for a reader, with what is unknown


class Between:
    """Goes through a chain from its input on."""

    def __init__(
        self,
        links: Sequence[Link],
        roles: Sequence[str],
        answers: Answers,
        activations: dict[str, ActivationRule],
        heads: Sequence[Head] = (),
        branches: Sequence[Span] = (),
    ):
        self.links, self.roles, self.answers, self.activations = links, roles, answers, activations
        self.heads = heads
        self.tables = answers.words.tables
        self.gaps = gaps_of(links)
        self.written = Written()
        self.is_sequence = False  # of rows: whether there is an axis of positions now
        first = links[0].element
        self.windows: list[list[Window]] | None = [[] for _ in first.kernel]  # since the input; None: unknown
        self.name = IDS if first.group == EMBEDDING else INPUT  # of what the next layer reads
        self.has_frames = _has_frames(links) and answers.told("chain.reduction") != "columns"
        self.reads_sequence = not self.has_frames and any(link.element.group == RECURRENT for link in links)
        # Whether the arms of a fork have given vectors, or a spread beside a mean has them.
        self.is_reduced = False
        self.is_even = False  # whether an arm beside leaves maps as large as they are
        # Whether an arm beside has the same sizes, or it is a time-delay network: how far apart it reads may differ.
        self.is_alike = _gives_spread(links)
        self.is_mean = False  # whether its last layer gives a mean, beside a spread
        self.is_whole_read = False  # whether all positions of its last layer's sequence are read
        # Of recurrent layers: the state it begins with, and that it ends in.
        self.states: dict[str, tuple[str, str]] = {}
        self.is_sampled = False  # whether the input has no axis of channels
        self.spans = spans_of(links, branches, answers.words.residual)
        self.beside = [link for span in branches for link in span.branch]
        self.sums = Sums(self.spans)
        self.kept = Kept(links)
        self.twins = Twins(answers)
        self.firsts = [head.links[0] for head in heads if head.at == len(links) - 1]
        self.outputs: list[str] = []  # beside that of the last layer
        self.means: dict[str, str] = {}  # of a layer and the one beside it: their names
        self.everything = [*links, *(link for head in heads for link in head.links), *self.beside]

    def run(self) -> Written:
        if self.has_frames and self.links[0].element.group == CONVOLUTION:
            is_bare = len(self.links[0].element.kernel) == 1 and self.links[0].element.inputs == 1
            self.is_sampled = is_bare
            self.say("x.flatten(0, 1).unsqueeze(1)" if is_bare else "x.flatten(0, 1)")
        if is_whole([self.links[0].element.leaf]):
            write_whole(self, INPUT)
            return self.written
        read_input(self, self.links[0])
        networks_beside(self)
        self.twins.enter(self)
        self.through()
        if self.firsts:
            split(self)
        else:
            self.finish()
        self.written.lines = self.kept.lines(self.written.lines)
        self.written.forward = self.kept.lines(self.written.forward, is_shown=True)
        return self.written

    def through(self) -> None:
        """One layer after the other."""
        for at, link in enumerate(self.links):
            keep(self, at, link)
            self.enter(link)
            self.layer(at, link)
            name_mean(self, at)
            self.leave(at, link)
            spread_beside(self, at)

    def say(self, expression: str) -> None:
        """One statement; `x` of an expression is what passes."""
        if expression != "x":
            text = expression if self.name == "x" else re.sub(r"\bx\b", self.name, expression)
            self.add(f"x = {text}")
            self.name = "x"

    def add(self, line: str) -> None:
        """One statement, with what is unknown of it or before it."""
        self.open(of_layer=False)
        self.written.lines.append(line)
        asked = [fact for fact in self.answers.trail if fact in _OF_LAYERS]
        self.answers.trail.clear()
        names = {role: link.element.name for role, link in zip(self.roles, self.everything, strict=True)}
        shown = re.sub(r"\b[a-z]+_\d+(?=\()", lambda found: names.get(found[0], found[0]), line)
        self.written.forward.append(shown + (f"  # {', '.join(asked)}?" if asked else ""))

    def open(self, of_layer: bool) -> None:
        """What is unknown between two statements, each a line."""
        for fact in dict.fromkeys(self.answers.trail):
            if of_layer or fact not in _OF_LAYERS:
                self.written.forward.append(f"x = ?  # {fact}")

    # ------------------------------------------------------------------------------------------- before a layer
    def enter(self, link: Link) -> None:
        """Makes of what passes what a layer reads."""
        self.twins.meet(self, link)
        fill(self, link)
        before, element = link.before, link.element
        if element.group == LINEAR and before.form == ROWS:
            halved(self, link)
        if before.form == START and element.group == CONVOLUTION:
            read_samples(self, link)
        elif link.is_flattened:
            self.say("x.flatten(1).unsqueeze(1)")
            self.windows = None
        elif before.form == MAPS and element.group == LINEAR and not self.is_reduced:
            reduce(self, link)
        elif before.form == MAPS and element.group == RECURRENT:
            in_steps(self, link)
        elif before.form == ROWS and element.group == RECURRENT and self.has_frames and not self.is_sequence:
            self.say("x.unflatten(0, (inputs.shape[0], inputs.shape[1]))")
        elif before.form == ROWS and link.after.form == MAPS and element.group in (CONVOLUTION, NORM):
            self.windows = None
            if self.is_sequence:
                self.say("x.transpose(1, 2)" if len(element.kernel) == 1 else "x.unsqueeze(1)")
            else:
                unfold(self, link)

    # --------------------------------------------------------------------------------------------------- a layer
    def layer(self, at: int, link: Link) -> None:
        role, element, self.is_reduced = self.roles[at], link.element, False
        if element.group == RECURRENT:
            ask_nonlinearity(element.leaf, self.answers)
            begin, end = self.states.get(element.name, ("", "_"))
            self.add(f"x, {end} = {role}({self.name}{begin and ', ' + begin})")
            self.name = "x"
            self.is_sequence = True
        elif element.group == NORM:
            norm(self, at, link)
        elif isinstance(element, Scale):
            scaling.scale(self, link)
        elif element.group == FORK:
            self.is_reduced = fork(self, at, link)
        else:
            if element.group == CONVOLUTION:
                self.convolution(at, link)
            parts = in_parts(element.leaf)
            self.say(f"{role}(x).squeeze(1)" if link.is_flattened else f"{role}({parts})")
            self.is_sequence = self.is_sequence or element.group == EMBEDDING

    def convolution(self, at: int, link: Link) -> None:
        if link.joined:
            self.windows = None
            self.say(self.kept.join(at, self.answers) or "x")
        else:
            add_kept(self, at)
        link = shuffled(self, halved(self, link))
        found = setting(link, self.answers, is_even=self.is_even, is_alike=self.is_alike)
        step = Fraction(max(found.steps)) if found.steps else None
        self.kept.grow(1 / step if step and link.element.is_transposed else step)
        self.written.arguments[self.roles[at]] = dict(found.arguments)
        if found.padded:
            self.say(f"F.pad(x, {found.padded})")
        self.add_windows(found.windows)
        self.is_sequence = False

    def add_windows(self, windows: list[Window]) -> None:
        if self.windows is not None and len(windows) == len(self.windows):
            for known, window in zip(self.windows, windows, strict=True):
                known.append(window)
        else:
            self.windows = None

    # -------------------------------------------------------------------------------------------- after a layer
    def leave(self, at: int, link: Link) -> None:
        element = link.element
        following = next((after.element for after in (*self.links[at + 1 :], *self.firsts)), None)
        if element.group in (RECURRENT, EMBEDDING):
            is_end = at + 1 == len(self.links) and self.is_whole_read
            behind = (after.element for after in (*self.links[at + 1 :], *self.firsts))
            reader = next((one for one in behind if one.is_main), None)
            if not is_end and (reader is None or reader.group in (LINEAR, RECURRENT)):
                self.pick(link, reader)
            self.act(element)
            return
        if link.before.form == START == link.after.form or self.is_reduced:
            return
        known = None if following is None else self.before_sum(at, element)
        join(self, at, "before_activation")
        if following is None:
            if self.sums.at(at) in ADDED[1:] and element.group != SLOPES:
                of = main_of(self.links, at)
                sum_up(self, at, self.answers.find(element.leaf, "chain.activation", of=of))
            else:
                sum_up(self, at, None)
            return
        activation = "none" if element.group == SLOPES else known or self.activation(at)
        sum_up(self, at, activation)
        if link.after.form == MAPS and following.group not in (NORM, SLOPES):
            self.kept.end(at, len(self.written.lines), len(self.written.forward))
            self.pool(at, activation, element.group == SLOPES)
            join(self, at, POOLED)

    def before_sum(self, at: int, element: Element) -> str | None:
        """What is left of an activation whose norms, which store nothing, stand before the sum that a layer ends with; None for none."""
        if not self.sums.at(at) or element.group == SLOPES:
            return None
        trail = list(self.answers.trail)
        value = self.activation(at)
        self.answers.trail[:] = trail  # whoever comes to the activation itself says that it is unknown
        first, _, rest = (value or "").partition("+")
        if not first.endswith(_NORM):
            return None
        self.say(self.activated(first))
        return rest or "none"

    def pick(self, link: Link, following: Element | None) -> None:
        """What of a sequence goes on."""
        element = link.element
        among = ["all", "last", *(["final_states"] if element.is_bidirectional else []), "mean", "max"]
        among += ["sum"] if link.after.is_table else []  # a bag of words
        is_read_on = following is not None and following.group == RECURRENT
        usual = ("all", "what another recurrent layer reads") if is_read_on else None
        if is_read_on and following is not None and is_turn(element, following, self.answers.words.order):
            among, usual = ["last_repeated", "all"], None  # a code, at every step (1502.04681), or all of it
        if link.after.is_table and following is not None and following.inputs > element.outputs:
            count = following.inputs // element.outputs
            usual = (
                "flatten",
                f"{following.name} reads {following.inputs} = {count} words of {element.outputs}",
            )
        parts = 1
        if following is not None and link.after.is_recurrent:
            parts = following.inputs // element.outputs
            if parts > _SEVERAL:
                why = f"{following.name} reads {parts} positions of {element.outputs}"
                usual, parts = ("flatten", why), 1
        if parts > 1:
            among = [
                _SIDE.join(words)
                for words in permutations(("last", "mean", "max")[3 - max(parts, 2) :], parts)
            ]
        value = self.answers.find(element.leaf, "chain.positions", usual=usual, among=tuple(among))
        if value is None:
            return
        if parts > 1:
            self.say(self.side_by_side(element, value, parts))
            self.is_sequence = False
            return
        if value == "final_states" and not element.is_bidirectional:
            value = "last"
        if value not in self.tables["positions"]:
            raise self.answers.refuse(
                element.leaf, "chain.positions", value, f"possible here: {', '.join(among)}"
            )
        self.say(self.tables["positions"][value].format(half=element.outputs // 2))
        self.is_sequence = value in ("all", "last_repeated")

    def side_by_side(self, element: Element, value: str, parts: int) -> str:
        """What several words make of a sequence, as `mean & max`, for a layer that reads all of it."""
        words = [word.strip() for word in value.split(_SIDE.strip())]
        table = self.tables["positions"]
        if len(words) != parts or not set(words) <= table.keys() - {"all", "flatten", "last_repeated"}:
            raise self.answers.refuse(
                element.leaf,
                "chain.positions",
                value,
                f"needed here: {parts} words, as in {_SIDE.join(('mean', 'max'))}",
            )
        texts = [table[word].format(half=element.outputs // 2) for word in words]
        return f"torch.cat(({', '.join(texts)}), dim=-1)"

    def act(self, element: Element) -> None:
        """An activation behind a recurrent layer or a table: few have one, so it is not asked for."""
        told = self.answers.told_at(element.leaf, "chain.activation")
        if told not in ("", "none"):
            self.say(self.activated(told))

    def activation(self, at: int) -> str | None:
        """The activation after a layer that has another after it."""
        shown = self.no_activation(at) or scaling.unscaled(self, at)
        leaf = self.links[scaling.asked_at(self, at)].element.leaf
        if shown is None and self.following(at).group == NORM and self.is_before_norm(at) is None:
            return None  # it is asked for after the norm
        usual = (
            self.kept.before_join(at) or is_mean(self, at) or self.is_of_sequence(at) or self.is_halved(at)
        ) or before_first(self, at)
        of = main_of(self.links, scaling.asked_at(self, at))  # what is said is of one side of its norm alone
        is_told = shown is None or NORM not in (self.following(at).group, self.links[at].element.group)
        is_apart = not usual and is_code(self.links, at, self.answers.words.order)
        value = self.answers.find(
            leaf, "chain.activation", shown=shown, usual=usual, of=of, is_told=is_told, is_apart=is_apart
        )
        value = self.answers.sloped(leaf, value)
        if value is not None and value != "none" and not self.activated(value):
            known = ", ".join(["none", *list(self.activations)[:12]])
            raise self.answers.refuse(
                leaf, "chain.activation", value, f"no activation; allowed: {known} and more"
            )
        return value

    def is_halved(self, at: int) -> tuple[str, str] | None:
        """That no activation stands before features of which the next layer reads one half."""
        following = self.links[at + 1] if at + 1 < len(self.links) else None
        if following is None or following.element.group != LINEAR or following.groups < 2:
            return None
        return "none", f"{following.element.name} reads one half"

    def is_of_sequence(self, at: int) -> tuple[str, str] | None:
        """That a norm right behind a recurrent layer or a table has no activation behind it."""
        is_norm = at > 0 and self.links[at].element.group == NORM
        before = self.links[at - 1].element
        is_of = is_norm and before.group in (RECURRENT, EMBEDDING)
        return ("none", f"a norm of what {before.name} gives") if is_of else None

    def activated(self, value: str) -> str:
        """The expression of an activation; `leaky_relu_0.2` has a number of its own, `instance_norm+relu` are two in turn. "" where there is none."""
        expression = ""
        for word in value.split("+", _IN_TURN):
            found, before = self._activation(word), expression or "x"
            if not found:
                return ""
            expression = re.sub(r"\bx\b", lambda _, before=before: before, found)  # type: ignore[misc]
        return expression

    def _activation(self, value: str) -> str:
        found = activation_of(value, self.tables["activation"], self.activations)
        text = self.tables["output"].get(value, "")
        is_over_channels = not found and CHANNEL in text  # as softmax
        return text.format(channel=-1 if self.is_sequence else 1) if is_over_channels else found

    def following(self, at: int) -> Element:
        """What reads what a layer gives: of several heads the first."""
        return (*self.links, *self.firsts)[at + 1].element

    def no_activation(self, at: int) -> tuple[str, str] | None:
        """What shows that there is none."""
        element, following = self.links[at].element, self.following(at)
        if following.group == SLOPES and not self.gaps.after[at]:
            return "none", f"{following.name} is one"
        if self.gaps.after[at] == 0:
            return "none", self.gaps.why(at, self.links)
        if following.group == NORM:
            is_first = self.is_before_norm(at)
            return None if is_first in ("true", None) else ("none", f"after {following.name}")
        if element.group == NORM and at and self.links[at - 1].element.group in (RECURRENT, EMBEDDING):
            return None
        if element.group == NORM and at and self.links[at - 1].element.is_main:
            is_first = self.is_before_norm(at - 1)
            return None if is_first in ("false", None) else ("none", f"before {element.name}")
        return None

    def is_before_norm(self, at: int) -> str | None:
        """Whether the activation of a layer comes before the norm that follows it."""
        gap, norm = self.gaps.after[at], self.following(at).leaf
        shown = None if gap is None else (str(gap > 0).lower(), self.gaps.why(at, self.links))
        return self.answers.find(norm, "chain.activation_before_norm", shown=shown, among=("false", "true"))

    def pool(self, at: int, activation: str | None, has_slopes: bool) -> None:
        """The pooling after a convolution with all that belongs to it."""
        link, gap = self.links[at], self.gaps.after[at]
        is_filled = gap == 0 or (gap == 1 and activation not in (None, "none") and not has_slopes)
        is_filled |= gap is None and self.gaps.outside[at] == 0
        shown = ("none", self.gaps.why(at, self.links)) if is_filled else None
        asked = scaling.asked_at(self, at)
        leaf = self.links[asked].element.leaf
        shown = shown or scaling.unpooled(self, at)
        usual = self.kept.before_join(at) or is_mean(self, at) or unpooled(self, at)
        among = self.poolings(at)
        value = self.answers.find(
            leaf, "chain.pooling", shown=shown, usual=usual, among=among, of=main_of(self.links, asked)
        )
        if value is None:
            self.windows = None
            self.kept.grow(None)
        elif value != "none":
            word, _, behind = value.partition("+")  # as mean_2+log
            pooled(self, link, word)
            text = self.activated(behind) if behind else "x"
            if not text:
                raise self.answers.refuse(leaf, "chain.pooling", value, "no activation behind the pooling")
            self.say(text)

    def poolings(self, at: int) -> tuple[str, ...]:
        """What may stand behind a convolution: where earlier maps are read next to its own, those are made larger, as maps of a row are."""
        listed = self.answers.words.candidates["chain.pooling"]
        is_joined = any(after.joined for after in self.links[at + 1 : at + 2])
        among = (*listed, LARGER) if is_joined or self.written.has_single_rows else listed
        is_of_points = all(set(each.element.kernel) <= {1} for each in self.links)
        among = (*_SMOOTH, *among) if is_joined else among
        return (*GLOBAL, *among) if is_joined and is_of_points else among

    # ------------------------------------------------------------------------------------------------- the output
    def finish(self) -> None:
        """What is computed from the last layer."""
        last = self.links[-1]
        if last.after.form == MAPS and is_image_to_image(self.links):
            restore(self, last)
        self.output(last)
        mask(self, last)
        is_apart = self.twins.end(self)
        more = "".join(f", {name}={name}" for name in self.outputs)
        both = f"output={self.name}.chunk(2)[0], output_2={self.name}.chunk(2)[1]"
        found = both if is_apart else f"output={self.name}"
        self.add(f"return output({found}{more})")

    def output(self, last: Link) -> None:
        """What is computed from what a layer gives that no other reads."""
        give(self, last)


def _has_frames(links: Sequence[Link]) -> bool:
    """Whether a recurrent layer reads one vector for each of the maps that convolutions make: there are several in a row."""
    flat = (at for at, link in enumerate(links) if link.before.form == MAPS and link.element.group == LINEAR)
    first = next(flat, len(links))
    return any(link.element.group == RECURRENT for link in links[first:])


def _gives_spread(links: Sequence[Link]) -> bool:
    """Whether a row has two numbers for each channel of a sequence, as its mean and its spread (x-vectors)."""
    flat = (link for link in links if link.before.form == MAPS and link.element.group == LINEAR)
    return any(link.before.axes == 1 and link.places == 2 for link in flat)
