"""What is known of one place of a chain: what the user said there, what names and sizes show, what was said of all, a default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mapper.architecture import Fact, Leaf, Question
from mapper.checkpoint import COUNTER
from mapper.errors import HintError, shorten
from mapper.inference.asking import doc_of
from mapper.inference.evidence import Known
from mapper.inference.facts import Facts, OfLayer
from mapper.inference.hints import Given
from mapper.inference.scopes import Scope, leaf_scope, words_at
from mapper.rulebook.chain import ChainWords

# Facts of which each layer has a question of its own.
APART = ("chain.reads", "chain.normed", "chain.kind", "chain.state")
_LEAKY = "leaky_relu"
_USUAL = 1e-05  # of torch's batch norms
Evidence = tuple[str, str]  # a value, and what shows it


@dataclass
class Answers:
    """Looks facts up and gathers what nobody knows, each fact once for all the places that lack it."""

    facts: Facts
    root: Scope
    words: ChainWords
    asked: dict[str, dict[str, None]] = field(default_factory=dict)  # fact -> what it could be
    assumed: dict[str, str] | None = None  # of a trial: what is taken for an answer; nothing is noted then
    trail: list[str] = field(default_factory=list)  # what was asked for since it was last emptied
    lacking: dict[str, dict[str, None]] = field(
        default_factory=dict
    )  # fact -> the layers where it is unknown
    apart: list[Question] = field(default_factory=list)  # of APART
    ruled_out: set[Evidence] = field(default_factory=set)  # facts with values that no answer for all may have
    names: frozenset[str] = frozenset()  # paths of layers: `bn2` is no `block1.bn2` where there is a `bn2`

    def find(
        self,
        leaf: Leaf,
        fact: str,
        *,
        shown: Evidence | None = None,
        usual: Evidence | None = None,
        default: Evidence | None = None,
        among: tuple[str, ...] = (),
        of: Leaf | None = None,
        is_told: bool = True,
        is_apart: bool = False,
    ) -> str | None:
        """The value of a fact at a layer, as text; None if it is asked for. What is said of the layer that it is `of` counts too.

        `shown` is what its own code, names and shapes show there, `usual` what is usual of such a layer, `default` what is taken
        where nothing else is known (`Facts.of_layer` has the order). Unless `is_told`, nothing said is of it; where it `is_apart`,
        nothing that is said of all.
        """
        scope = leaf_scope(self.root, leaf)
        of_layer = OfLayer(
            self._told(scope, fact, of) if is_told else None,
            self._shown(scope, fact, shown, usual),
            Known(default[0], "default", default[1]) if default else None,
            is_apart,
        )
        known, hint = self.facts.of_layer(scope, fact, of_layer)
        if known is not None:
            known = Known(_text(known.value), known.evidence, known.source)
            return self._use(scope, fact, known, hint.source if hint else "")
        if self.assumed is not None and fact in self.assumed:
            return self.assumed[fact]
        self._ask(leaf, fact, among or self.words.candidates.get(fact, ()), is_apart or fact in APART)
        return None

    def _told(self, scope: Scope, fact: str, of: Leaf | None) -> Given | None:
        """What was said of a fact at a layer, or at the one that it is of."""
        scopes = [scope, *([leaf_scope(self.root, of)] if of else [])]
        return next(filter(None, (self._of(each, fact) for each in scopes)), None)

    def _shown(
        self, scope: Scope, fact: str, shown: Evidence | None, usual: Evidence | None
    ) -> Iterator[Known]:
        """What a layer shows itself, and what is usual of such layers; nothing is looked up before it is asked for."""
        if shown:
            other = self.facts.get(scope, fact)
            evidence = "name" if other is None or _text(other.value) == shown[0] else "default"
            yield Known(shown[0], evidence, shown[1])
        if usual:
            yield Known(usual[0], "default", usual[1])

    def _ask(self, leaf: Leaf, fact: str, candidates: Sequence[str], is_apart: bool) -> None:
        """Note that nobody knows a fact at a layer."""
        self.trail.append(fact)
        place = leaf.place.first()
        if is_apart:
            self.apart.append(Question(fact, place, tuple(candidates), place, doc=doc_of(self.facts, fact)))
            return
        self.asked.setdefault(fact, {}).update(dict.fromkeys(candidates))
        self.lacking.setdefault(fact, {})[place] = None

    def supposing(self, assumed: dict[str, str]) -> Answers:
        """Answers for a trial, with what is taken for an answer; nothing of it is noted here."""
        return Answers(self.facts, self.root, self.words, assumed=assumed, names=self.names)

    def epsilon(self, leaf: Leaf) -> None:
        """The epsilon of a norm: asked for, but for one of torch's batch norms, most of which have torch's own."""
        fact = "norm.eps"
        if self.facts.get(leaf_scope(self.root, leaf), fact) is not None:
            return
        if leaf.kind != "BatchNorm" or COUNTER not in leaf.tensors:
            self.find(leaf, fact)
            return
        text = self.find(leaf, fact, default=(str(_USUAL), f"torch's own, as {COUNTER} is"))
        leaf.facts["eps"] = Fact(fact, float(text or _USUAL), leaf.place.first(), "default", "torch")

    def stated(self, leaf: Leaf, fact: str) -> str:
        """What a config says of a fact that is never asked for; "" for nothing."""
        scope = leaf_scope(self.root, leaf)
        known = self.facts.get(scope, fact)
        return self._use(scope, fact, replace(known, value=_text(known.value))) if known else ""

    def sloped(self, leaf: Leaf, activation: str | None) -> str | None:
        """An activation; a leaky ReLU that a config names with the slope that it states beside the name."""
        if activation != _LEAKY:
            return activation
        known = self.facts.get(leaf_scope(self.root, leaf), "chain.activation")
        slope = self.stated(leaf, "chain.slope") if known and known.evidence == "config" else ""
        return f"{activation}_{slope}" if slope else activation

    def _of(self, scope: Scope, fact: str) -> Given | None:
        """What was said of a fact at one layer: of several the one that says most of its path (`blocks.0.bn1`, not `bn1`)."""
        told = (
            item
            for item in self.facts.hints.given
            if item.name == fact and item.at and scope.matches(item.at)
        )
        own = scope.block.home.first()
        told = (item for item in told if item.at == own or item.at not in self.names)
        return max(told, key=lambda item: len(words_at(item.at)), default=None)

    def told_at(self, leaf: Leaf, fact: str) -> str:
        """What was said of a fact at one layer; "" for nothing."""
        scope = leaf_scope(self.root, leaf)
        item = self._of(scope, fact)
        return (
            self._use(scope, fact, Known(_text(item.value), "given", item.source), item.source)
            if item
            else ""
        )

    def published(self, leaf: Leaf, fact: str) -> str:
        """What was said of a fact at one layer, or what a published code has there; "" for nothing."""
        scope = leaf_scope(self.root, leaf)
        known = None if self.told_at(leaf, fact) else self.facts.get(scope, fact)
        return self._use(scope, fact, known, known.source) if known else self.told_at(leaf, fact)

    def told(self, fact: str) -> str:
        """What was said of a fact of the whole, or what a published code has; "" for nothing."""
        known = self.facts.hints.stated(self.root, fact) or self.facts.get(self.root, fact)
        return self._use(self.root, fact, known, known.source) if known else ""

    def _use(self, scope: Scope, fact: str, known: Known, source: str = "") -> str:
        if self.assumed is not None:
            return str(known.value)
        if source:
            self.facts.hints.heard.add(source)
        heard = set(self.facts.hints.heard)
        self.facts.use(scope, fact, known)
        self.facts.hints.heard.intersection_update(heard)  # an answer that a rule goes before was not
        return str(known.value)

    def narrow(self, candidates: dict[str, dict[str, None]]) -> None:
        """Ask only for these values of some facts."""
        for fact, values in candidates.items():
            self.asked[fact] = {value: None for value in self.asked[fact] if value in values}

    def questions(self) -> list[Question]:
        """One for each fact, but for what has another answer at each layer."""
        shared = (
            Question(
                fact,
                ", ".join(_few(list(self.lacking[fact]))),
                tuple(value for value in values if (fact, value) not in self.ruled_out),
                doc=doc_of(self.facts, fact),
                places=tuple(self.lacking[fact]),
            )
            for fact, values in self.asked.items()
        )
        return [*self.apart, *shared]

    def refuse(self, leaf: Leaf, fact: str, value: str, why: str) -> HintError:
        """The error for an answer that does not go with a layer."""
        return HintError(f"--set {fact}: {shorten(value)} at {leaf.place}: {why}", fact=fact)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _few(names: list[str], most: int = 3) -> list[str]:
    return names if len(names) <= most else [*names[:most], f"{len(names) - most} more"]
