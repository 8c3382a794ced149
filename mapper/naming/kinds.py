"""Every tensor gets exactly one leaf: modules by the names and shapes of their tensors, the rest bare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from mapper._dataclass import dataclass
from mapper.architecture import BARE, NORMS, Place
from mapper.checkpoint import TensorInfo
from mapper.naming.members import DOWN, UP, UPDATED
from mapper.naming.tree import Node
from mapper.naming.vocabulary import Match, Spot, Vocabulary
from mapper.words import is_index, parts

_CONVOLUTIONS = {3: "Conv1d", 4: "Conv2d", 5: "Conv3d"}
_PARAMETRIZED = "parametrizations"
_NORM_SCALE, _NORM_SHIFT = (
    "norm_scale",
    "norm_shift",
)  # purposes of tensors that are a weight and a bias in a norm alone
# what either norm may have
SCALE_ALONE = ("weight has 1 dimension, no bias", "a scale alone in what is called a norm")
_INTEGERS = ("I64", "I32", "I16", "U64", "U32", "U16", "BOOL")


@dataclass
class Found:
    """A leaf before it has a role."""

    spot: Spot
    kind: str
    tensors: dict[str, TensorInfo]
    why: str
    sure: bool = True  # False: the default of its kind, open to the vote of its neighbours

    @property
    def is_module(self) -> bool:
        """Whether it owns tensors by name; else it is one tensor itself."""
        return "" not in self.tensors


def find_leaves(root: Node, vocabulary: Vocabulary) -> list[Found]:
    """Every tensor of the tree in exactly one leaf, folded."""
    found = [leaf for spot in _folders(root, vocabulary) for leaf in _Folder(spot, vocabulary).leaves()]
    vote_on_norms(found)
    return found


def _folders(root: Node, vocabulary: Vocabulary) -> Iterator[Spot]:
    waiting = [Spot(Place(), (), root, ())]
    while waiting:
        spot = waiting.pop()
        yield spot
        inside = [
            child
            for child in _children(spot)
            if not _is_parametrization(child) and not _is_update(spot, child)
        ]
        waiting.extend(reversed(inside))


def _children(spot: Spot) -> Iterator[Spot]:
    for part, child in spot.node.distinct():
        if child.children or (child.info is not None and isinstance(part, tuple)):
            yield spot.child(part, child)


def _is_parametrization(spot: Spot) -> bool:
    """`parametrizations.weight.original0` belongs to the module that holds it."""
    return spot.place[-1] == _PARAMETRIZED and spot.node.at("weight") is not None


def _is_update(spot: Spot, child: Spot) -> bool:
    """`lora_A.weight` and `lora_B.weight` beside a weight belong to the module that has it."""
    return bool(updates(spot.node)) and f"{child.place[-1]}.weight" in UPDATED


def updates(node: Node) -> dict[str, TensorInfo]:
    """The two tensors of a low-rank update beside a weight; nothing where there are not both, or no weight."""
    if (weight := node.at("weight")) is None or weight.info is None:
        return {}
    for pair in zip(DOWN, UP, strict=True):
        found = {name: part.info for name in pair if (part := node.at(*name.split("."))) and part.info}
        if len(found) == len(pair):
            return found
    return {}


class _Folder:
    """The leaves that stand directly in one folder."""

    def __init__(self, spot: Spot, vocabulary: Vocabulary):
        self.spot, self.vocabulary = spot, vocabulary
        self.own = {word: info for word, info in spot.node.tensors().items() if not is_index(word)}
        self.purposes = {word: self.purpose(word) for word in self.own}

    def purpose(self, word: str) -> str:
        """What a tensor name means for a module: weight, bias, statistics, recurrent ...; "" for a bare one."""
        if not word:
            return ""
        known = self.vocabulary.tensors.get(word)
        if known == _NORM_SHIFT:
            return "bias" if self.is_shifted_norm() else ""
        if known:
            is_norm = known != _NORM_SCALE or self.is_lone_norm() or self.is_norm_by_place()
            return known if is_norm or self.is_shifted_norm() else ""
        stem = word.removesuffix("_reverse").rstrip("0123456789")
        return self.vocabulary.tensors.get(stem, "") if stem.endswith("_l") else ""

    def leaves(self) -> Iterator[Found]:
        if self.spot.node.info is not None and self.spot.place and isinstance(self.spot.place[-1], tuple):
            yield self.bare(self.spot, self.spot.node.info)
        module = self.module()
        if module:
            yield module
        for word, info in self.own.items():
            if module is None or word not in module.tensors:
                spot = self.spot.child(word, self.spot.node.children[word])
                yield self.bare(spot, info)

    def module(self) -> Found | None:
        """The module whose tensors these are, if they are one's."""
        tensors = {word: self.own[word] for word, purpose in self.purposes.items() if purpose}
        tensors |= self.parametrized()
        purposes = {self.purposes.get(word, "weight") for word in tensors}
        added = updates(self.spot.node)
        if not purposes:
            return None
        if not self.spot.place and not (
            "recurrent" in purposes and len(tensors) == len(self.spot.node.children)
        ):
            return None  # a module without a name is no attribute: its tensors stand by themselves
        kind, why, sure = self.kind(tensors, purposes)
        if kind in BARE:
            return None
        return Found(self.spot, kind, tensors | added, why, sure)

    def is_counted(self, tensors: Mapping[str, TensorInfo]) -> bool:
        """Whether one number stands beside running statistics: of how many inputs they are."""
        others = (word for word, info in self.own.items() if word not in tensors and info.size == 1)
        return not self.vocabulary.words("count").isdisjoint(others)

    def parametrized(self) -> dict[str, TensorInfo]:
        node = self.spot.node.at(_PARAMETRIZED, "weight")
        if node is None:
            return {}
        steps = [
            ("", node),
            *((f"{word}.", inner) for word in ("0", "1") if (inner := node.at(word)) is not None),
        ]
        return {
            f"{_PARAMETRIZED}.weight.{at}{word}": info
            for at, inner in steps
            for word, info in inner.tensors().items()
        }

    def kind(self, tensors: dict[str, TensorInfo], purposes: set[str]) -> tuple[str, str, bool]:
        if purposes == {"statistics"} and self.is_counted(tensors):
            return "Buffer", "", True  # what inputs were like so far (of agents), no norm of torch
        if "statistics" in purposes:
            return "BatchNorm", "has running statistics", True
        shape = self.weight_shape(tensors)
        bias = next((tensors[word].shape for word in tensors if self.purposes.get(word) == "bias"), None)
        match = None if self.is_scale_of_element(purposes) else self.decided(shape, bias)
        if match:
            return match.entry.target, match.entry.where, True
        if "recurrent" in purposes:
            return *_recurrent(tensors), True
        if purposes == {"bias"}:
            return self.lone_bias(tensors)
        if purposes == {"scale"} and len(shape) == 1 and self.is_lone_norm():
            return "RMSNorm", SCALE_ALONE[1], False
        if purposes == {"scale"} or (
            "scale" in purposes and shape == bias and len(shape) > 1 and _is_row(shape)
        ):
            return "Parameter", "", True  # two scales of channels of maps
        if bias is not None and len(bias) > 1 and len(shape) > 2 and shape != bias:
            return "Parameter", "", True  # a shift with several axes is no bias of a convolution
        if purposes == {_NORM_SCALE} and _is_row(shape):
            return "RMSNorm", SCALE_ALONE[1], False
        return self.by_shape(shape, bias)

    def by_shape(self, shape: tuple[int, ...], bias: tuple[int, ...] | None) -> tuple[str, str, bool]:
        if len(shape) > 1 and shape == bias:
            return "LayerNorm", "weight and bias have one shape", True
        if len(shape) == 2 and shape[0] == 1 and bias is None and self.is_called_norm():
            return "RMSNorm", "a norm by its name, one row", True
        if len(shape) == 1 and bias is None and self.follows_convolution(shape[0]):
            return "PReLU", "one slope for each channel of the convolution before it", True
        if shape == (1,) and bias is None and self.is_between_maps():
            return "PReLU", "one slope, beside a map in a list", True
        if shape == (1,) and bias is None and not self.is_called_norm():
            return "Parameter", "", True  # one slope of a rectifier, or a scale
        if len(shape) in _CONVOLUTIONS:
            kind = _CONVOLUTIONS[len(shape)]
            if bias and bias[0] != shape[0]:
                return (
                    kind.replace("Conv", "ConvTranspose"),
                    "bias is as long as the second extent of weight",
                    True,
                )
            if self.gives_second_extent(shape):
                return kind.replace("Conv", "ConvTranspose"), "the norms beside it are as wide as that", True
            return kind, f"weight has {len(shape)} dimensions", True
        if len(shape) == 2:
            return "Linear", "weight has 2 dimensions", True
        if len(shape) == 1 and bias and self.follows_convolution_of_rows(shape[0]):
            return "GroupNorm", "behind a convolution over one axis, whose channels come first", True
        if len(shape) == 1 and bias:
            return "LayerNorm", "weight and bias have 1 dimension", False
        if len(shape) == 1:
            return "RMSNorm", SCALE_ALONE[0], False
        return "Parameter", "", True

    def gives_second_extent(self, shape: tuple[int, ...]) -> bool:
        """Whether norms in the same list show that a weight is of [in, out]: the next gives no other size a sense.

        Behind the last one there is none: what the norm before it passes on is then read in no groups of [out, in].
        """
        last = self.spot.place[-1]
        at = last[0] if isinstance(last, tuple) and len(last) == 1 else None
        if at is None or shape[0] == shape[1]:
            return False
        if after := self.norm_width(at + 1):
            return after == shape[1]
        before = next((width for place in range(at - 1, at - 4, -1) if (width := self.norm_width(place))), 0)
        return before == shape[0] and shape[1] > 1 and before % shape[1] > 0

    def norm_width(self, at: int) -> int:
        """How wide the norm at a place of the list is; 0 where none stands: slopes of a rectifier have no bias."""
        weight, bias = (self.spot.nodes[-1].at(str(at), name) for name in ("weight", "bias"))
        shape = weight.info.shape if weight is not None and weight.info is not None else ()
        return shape[0] if len(shape) == 1 and bias is not None else 0

    def follows_convolution(self, channels: int) -> bool:
        """Whether the module before it in a list is a convolution to so many channels, or its norm; one slope does for all."""
        shape = self.beside(-1 if self.norm_before() != channels else -2)
        return len(shape) in _CONVOLUTIONS and channels in (1, shape[0])

    def norm_before(self) -> int:
        """How wide a norm right before it in a list is; 0 for none."""
        last = self.spot.place[-1]
        return self.norm_width(last[0] - 1) if isinstance(last, tuple) and len(last) == 1 else 0

    def follows_convolution_of_rows(self, channels: int) -> bool:
        """Whether it is a convolution over one axis to just so many; the slope of a rectifier may stand between."""
        before = -2 if self.beside(-1) == (1,) else -1
        shape = self.beside(before)
        return len(shape) == 3 and channels == shape[0]

    def is_between_maps(self) -> bool:
        """Whether a map or convolution stands before or behind it in a list; a norm or what stores nothing may be between."""
        return any(len(self.beside(step)) > 1 for step in (-3, -2, -1, 1))

    def beside(self, step: int) -> tuple[int, ...]:
        """The shape of the weight that many places further in the list; () where none is."""
        last = self.spot.place[-1]
        weight = self.spot.nodes[-1].at(str(last[0] + step), "weight") if isinstance(last, tuple) else None
        return weight.info.shape if weight is not None and weight.info is not None else ()

    def is_called_norm(self) -> bool:
        """Whether its name has a word for norms in it."""
        word = self.spot.place[-1]
        return isinstance(word, str) and not parts(word).isdisjoint(self.vocabulary.words("norm"))

    def is_lone_norm(self) -> bool:
        """Whether a folder is called a norm and holds one row alone."""
        (tensor,) = self.own.values() if len(self.own) == 1 else (None,)
        is_alone = len(self.spot.node.children) == 1 and bool(self.spot.place)
        return tensor is not None and is_alone and _is_row(tensor.shape) and self.is_called_norm()

    def is_shifted_norm(self) -> bool:
        """Whether a folder is called a norm and holds a scale and a shift of one shape, and nothing else.

        `g` and `b`, a row for channels of maps, [1, channels, 1, 1], are one in a list too.
        """
        known = {self.vocabulary.tensors.get(word) for word in self.own}
        shapes = {info.shape for info in self.own.values()}
        is_pair = known == {_NORM_SCALE, _NORM_SHIFT} and len(self.spot.node.children) == 2
        if not is_pair or len(shapes) != 1:
            return False
        (shape,) = shapes
        is_of_maps = "g" in self.own and len(shape) > 2 and shape[0] == 1 and _is_row(shape)
        return is_of_maps or (len(shape) == 1 and self.is_called_norm())

    def is_norm_by_place(self) -> bool:
        """Whether the vocabulary says that a norm stands here."""
        match = self.vocabulary.decide("kinds", self.spot)
        return match is not None and match.entry.target in NORMS

    def is_scale_of_element(self, purposes: set[str]) -> bool:
        """Whether it is one scale beside other modules of a list's element: no module's."""
        is_element = bool(self.spot.place) and isinstance(self.spot.place[-1], tuple)
        return purposes <= {"scale", _NORM_SCALE} and is_element and len(self.spot.node.children) > 1

    def lone_bias(self, tensors: dict[str, TensorInfo]) -> tuple[str, str, bool]:
        """A folder with a bias and nothing else is a Linear whose tied weight is not stored."""
        alone = self.spot.place and len(self.spot.node.children) == 1
        shape = next(iter(tensors.values())).shape
        if alone and len(shape) == 1 and shape != (1,):  # one number is added to an output
            return "Linear", "a bias alone: its weight is tied", True
        return "Parameter", "", True

    def weight_shape(self, tensors: dict[str, TensorInfo]) -> tuple[int, ...]:
        """The shape of the largest weight: of `weight_g` and `weight_v` the second."""
        weights = [
            info
            for word, info in tensors.items()
            if self.purposes.get(word, "weight") in ("weight", "scale", _NORM_SCALE)
        ]
        return max(weights, key=lambda info: info.size).shape if weights else ()

    def decided(self, shape: tuple[int, ...], bias: tuple[int, ...] | None) -> Match | None:
        for match in self.vocabulary.matches("kinds", self.spot):
            entry = match.entry
            if (entry.ranks and len(shape) not in entry.ranks) or entry.bias not in (None, bias is not None):
                continue
            if entry.kernel and not set(shape[2:]) <= set(entry.kernel):
                continue
            if not (entry.target.startswith("ConvTranspose") and bias and _is_forward(shape, bias)):
                return match
        return None

    def bare(self, spot: Spot, info: TensorInfo) -> Found:
        for match in self.vocabulary.matches("kinds", spot):
            entry = match.entry
            if entry.target in BARE and (not entry.ranks or len(info.shape) in entry.ranks):
                return Found(spot, entry.target, {"": info}, entry.where)
        if info.dtype in _INTEGERS:
            return Found(spot, "Buffer", {"": info}, f"dtype {info.dtype}")
        return Found(spot, "Parameter", {"": info}, "owned by no module")


def _recurrent(tensors: dict[str, TensorInfo]) -> tuple[str, str]:
    """The kind by the gates of all layers and directions, and what there is of these; a cell is one of one layer."""
    gates = set()
    for word, info in tensors.items():
        if word.startswith("weight_hh") and len(info.shape) == 2:
            projection = tensors.get(word.replace("weight_hh", "weight_hr"))
            hidden = info.shape[1] if projection is None else projection.shape[-1]
            gates.add(info.shape[0] // hidden if hidden else 0)
    inputs = [word for word in tensors if word.startswith("weight_ih")]
    layers = sum(not word.endswith("_reverse") for word in inputs)
    count = gates.pop() if len(gates) == 1 else 0
    why = (
        f"{count} gates"
        + (f", {layers} layers" if layers > 1 else "")
        + (", both directions" if len(inputs) > layers else "")
    )
    return {3: "GRU", 4: "LSTM"}.get(count, "RNN"), why


def _is_row(shape: tuple[int, ...]) -> bool:
    """Whether all but one of the extents are 1."""
    return sum(extent > 1 for extent in shape) <= 1


def _is_forward(shape: tuple[int, ...], bias: tuple[int, ...]) -> bool:
    """Whether the bias is as long as the first extent of the weight and not as the second: no transposed convolution."""
    return len(shape) > 1 and bias[0] == shape[0] and shape[1] not in (1, shape[0])


def vote_on_norms(found: list[Found]) -> None:
    """Norms whose kind neither words nor statistics decided follow the closest other norms, by majority."""
    votes: dict[tuple[object, ...], Counter[str]] = {}
    for leaf in found:
        if leaf.kind in NORMS:
            for at in range(len(leaf.spot.place)):
                votes.setdefault(leaf.spot.place[:at], Counter())[_ballot(leaf)] += leaf.spot.place.instances
    for leaf in found:
        if not leaf.sure and (leaf.kind == "RMSNorm" or leaf.spot.words[-1:] == ("norm",)):
            _follow(leaf, votes)


def _ballot(leaf: Found) -> str:
    return leaf.kind + ("" if len(leaf.tensors) > 1 else " without bias")


def _follow(leaf: Found, votes: dict[tuple[object, ...], Counter[str]]) -> None:
    rival = (
        ("GroupNorm", "LayerNorm")
        if len(leaf.tensors) > 1
        else ("LayerNorm without bias", "RMSNorm without bias")
    )
    for at in range(len(leaf.spot.place) - 1, -1, -1):
        counts = votes.get(leaf.spot.place[:at], Counter())
        others, same = counts[rival[0]], counts[rival[1]] - leaf.spot.place.instances
        if others + same:
            if others > same:
                leaf.kind = rival[0].partition(" ")[0]
                leaf.why += f"; as the norms around it ({others} of {others + same})"
            return
