"""Roles by shapes and neighbours, where no word says them."""

from __future__ import annotations

import pytest

from mapper.architecture import Leaf, Place
from mapper.checkpoint import TensorInfo
from mapper.naming.shown_roles import with_shown_roles
from mapper.naming.vocabulary import Vocabulary
from tests.shipped import RULEBOOK

VOCABULARY = Vocabulary(RULEBOOK.vocabulary)

LAYER = (("tower", None), ("layers", (0, 1)))
NETWORK = (*LAYER, ("feed_forward", None))
ATTENTION = (*LAYER, ("attention", None))


def leaf(
    place: str, shape: tuple[int, ...], block: tuple = (), role: str | None = None, kind: str = "Linear"
) -> Leaf:
    words = [(0, 1) if word == "*" else (int(word),) if word.isdigit() else word for word in place.split(".")]
    return Leaf(Place(words), kind, {"weight": TensorInfo(shape, "F32")}, "", block, role)


def norm(place: str, block: tuple = (), role: str | None = None) -> Leaf:
    return leaf(place, (8,), block, role, "LayerNorm")


def roles(*leaves: Leaf) -> list[str | None]:
    return [shown.role for shown in with_shown_roles(leaves, VOCABULARY)]


@pytest.mark.parametrize(
    ("shapes", "said", "shown"),
    [
        ([(20, 8), (8, 20)], [None, None], ["up", "down"]),
        ([(20, 8), (8, 10)], [None, None], ["gate_up", "down"]),
        ([(20, 8), (8, 10)], ["up", "down"], ["gate_up", "down"]),
        ([(20, 8), (20, 8), (8, 20)], [None, None, None], ["first", "second", "down"]),
        ([(20, 8), (20, 8), (8, 20)], ["gate", None, "down"], ["gate", "up", "down"]),
        ([(20, 8), (20, 8), (8, 20)], ["gate", "up", None], ["gate", "up", "down"]),
        ([(8, 8), (8, 8)], [None, None], [None, None]),
        ([(20, 8), (8, 12)], [None, None], [None, None]),
    ],
)
def test_the_maps_of_a_feed_forward_network(
    shapes: list[tuple[int, int]], said: list[str | None], shown: list[str]
) -> None:
    maps = [
        leaf(f"h.*.net.m{at}", shape, NETWORK, role)
        for at, (shape, role) in enumerate(zip(shapes, said, strict=True))
    ]
    assert roles(*maps) == shown


def test_two_maps_in_no_common_folder_are_a_feed_forward_network() -> None:
    blocks = [(*LAYER, (name, None)) for name in ("feed_forward", "feed_forward_2")]
    wide, back = leaf("h.*.ffn_in", (20, 8), blocks[0]), leaf("h.*.ffn_out", (8, 20), blocks[1])
    shown = with_shown_roles([wide, back], VOCABULARY)
    assert [(one.block, one.role) for one in shown] == [(NETWORK, "up"), (NETWORK, "down")]
    other = leaf("h.*.ffn_gate", (20, 8), blocks[0])
    assert roles(wide, back, other) == [None, None, None]


@pytest.mark.parametrize(
    ("rows", "inside", "shown"),
    [(24, 8, ["qkv", "output"]), (12, 8, ["qkv", "output"]), (8, 8, [None, None]), (7, 4, [None, None])],
)
def test_a_fused_map_gives_more_than_the_map_behind_it_reads(
    rows: int, inside: int, shown: list[str | None]
) -> None:
    maps = [leaf("h.*.mix.a", (rows, 8), ATTENTION), leaf("h.*.mix.b", (8, inside), ATTENTION)]
    assert roles(*maps) == shown


@pytest.mark.parametrize("lacking", ["query", "key", "value"])
def test_the_map_that_is_left_beside_two_of_query_key_and_value(lacking: str) -> None:
    shapes = {"query": (8, 8), "key": (4, 8), "value": (4, 8), "output": (8, 8)}
    maps = [
        leaf(f"h.*.mix.{name}", shape, ATTENTION, None if name == lacking else name)
        for name, shape in shapes.items()
    ]
    assert roles(*maps) == [*shapes]
    other = leaf("h.*.mix.other", (6, 8), ATTENTION)
    assert roles(*(one for one in maps if one.role), other)[-1] is None


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["Wq", "Wk", "Wv", "W"], ["query", "key", "value", "output"]),
        (["q2", "k2", "v2", "out"], ["query", "key", "value", "output"]),
        (["Wq", "Wk", "Wx", "W"], [None] * 4),
    ],
)
def test_three_maps_whose_names_differ_by_the_letters_q_k_and_v(
    names: list[str], shown: list[str | None]
) -> None:
    assert roles(*(leaf(f"h.*.mix.{name}", (8, 8), ATTENTION) for name in names)) == shown


def test_a_fused_map_is_known_beside_an_output_that_a_word_names() -> None:
    maps = [leaf("h.*.mix.x", (24, 8), ATTENTION), leaf("h.*.mix.out", (8, 8), ATTENTION, "output")]
    assert roles(*maps) == ["qkv", "output"]


@pytest.mark.parametrize(
    ("shapes", "shown"),
    [
        ([(6, 8)], ["linear"]),
        ([(5, 8), (6, 5)], ["up", "down"]),
        ([(6, 5), (5, 8)], ["down", "up"]),
        ([(10, 8), (6, 5)], ["up", "down"]),
        ([(5, 8), (6, 7)], [None, None]),
    ],
)
def test_the_maps_of_a_projector_are_linked_by_their_shapes(
    shapes: list[tuple[int, int]], shown: list[str | None]
) -> None:
    block = (("projector", None),)
    maps = [leaf(f"bridge.m{at}", shape, block) for at, shape in enumerate(shapes)]
    assert roles(*maps) == shown
    assert roles(*maps, norm("bridge.n", block))[-1] == ("norm" if shown[0] else None)


@pytest.mark.parametrize("shapes", [[(5, 8), (6, 5)], [(5, 8), (8, 5)]])
def test_maps_in_the_folder_of_a_projector_are_no_network_beside_it(shapes: list[tuple[int, int]]) -> None:
    block = (("projector", None),)
    maps = [leaf(f"bridge.m{at}", shape, (("feed_forward", None),)) for at, shape in enumerate(shapes)]
    shown = with_shown_roles([norm("bridge.n", block, "norm"), *maps], VOCABULARY)[1:]
    assert [(one.block, one.role) for one in shown] == [(block, "up"), (block, "down")]


def test_what_stands_before_a_known_map_that_predicts_words_is_its_head() -> None:
    token = leaf("words.table", (50, 8), (("tower", None), ("embeddings", None)), "token", "Embedding")
    last = leaf("zig", (50, 8), (("lm_head", None),), "decoder")
    assert roles(token, last, leaf("top.a", (8, 8)), norm("top.b"))[2:] == ["dense", "norm"]
    assert roles(token, last, leaf("top.a", (8, 8)), leaf("top.c", (8, 8)))[2:] == [None, None]
    assert roles(token, last, leaf("top.a", (8, 8)), norm("other.b"))[2:] == [None, None]
    named = norm("top.b", (("tower", None),), "final_norm")
    assert roles(token, last, leaf("top.a", (8, 8)), named, norm("other.b"))[2:] == [
        "dense",
        "norm",
        "final_norm",
    ]


def sub_layers() -> list[Leaf]:
    names = {"query": ATTENTION, "key": ATTENTION, "value": ATTENTION, "output": ATTENTION}
    maps = [leaf(f"h.*.att.{name}", (8, 8), block, name) for name, block in names.items()]
    return [
        *maps,
        leaf("h.*.net.up", (20, 8), NETWORK, "up"),
        leaf("h.*.net.down", (8, 20), NETWORK, "down"),
    ]


def test_norms_with_a_number_have_the_order_of_the_sub_layers() -> None:
    shown = roles(norm("h.*.n2", LAYER), norm("h.*.n1", LAYER), *sub_layers())
    assert shown[:2] == ["norm_feed_forward", "norm_attention"]
    assert roles(norm("h.*.n2", LAYER), norm("h.*.n3", LAYER), *sub_layers())[:2] == [None, None]


def test_the_norm_that_is_left_beside_that_in_the_folder_of_the_attention() -> None:
    inside, outside = norm("h.*.att.n", LAYER, "norm_attention"), norm("h.*.n", LAYER)
    assert roles(inside, outside, *sub_layers())[:2] == ["norm_attention", "norm_feed_forward"]
    beside = norm("h.*.m", LAYER, "norm_attention")
    assert roles(beside, outside, *sub_layers())[:2] == ["norm_attention", None]


def test_the_only_norm_in_the_folder_of_the_layers_is_the_final_one() -> None:
    token = leaf("words.table", (50, 8), (("tower", None), ("embeddings", None)), "token", "Embedding")
    norms = [norm("stack.h.*.a", LAYER, "norm_attention"), norm("stack.h.*.b", LAYER, "norm_feed_forward")]
    last = norm("stack.n", (("tower", None),))
    assert roles(token, *norms, last)[-1] == "final_norm"
    beside = leaf("stack.table", (50, 8), (("tower", None), ("embeddings", None)), "token", "Embedding")
    assert roles(beside, *norms, last)[-1] is None


def test_a_map_from_the_width_of_words_to_that_of_layers_belongs_to_the_embeddings() -> None:
    embeddings = (("tower", None), ("embeddings", None))
    token = leaf("words.table", (50, 6), embeddings, "token", "Embedding")
    norms = [norm("stack.h.*.a", LAYER, "norm_attention")]
    widening = leaf("wider", (8, 6), (("tower", None),))
    shown = with_shown_roles([token, *norms, widening], VOCABULARY)[-1]
    assert (shown.block, shown.role) == (embeddings, "projection")
    assert roles(token, *norms, leaf("wider", (6, 8), (("tower", None),)))[-1] is None


@pytest.mark.parametrize(("width", "shown"), [(16, "classifier"), (12, None)])
def test_the_only_map_behind_the_layers_of_an_image_is_the_classifier(width: int, shown: str | None) -> None:
    last = leaf("layer.1.c", (16, 8, 3, 3), LAYER, "convolution", "Conv2d")
    assert roles(last, leaf("zig", (10, width))) == ["convolution", shown]
    assert roles(last, leaf("zig", (10, width)), leaf("zag", (10, width)))[1:] == [None, None]


WIDE = (("tower", None), ("embeddings", None))


@pytest.mark.parametrize(
    ("table", "sides", "shown"),
    [
        (8, (6, 8), "output_projection"),  # it reads what the layers give
        (6, (8, 6), "projection"),  # it reads words and gives what the layers read
        (8, (8, 8), "projection"),  # nothing shows which
    ],
)
def test_a_projection_stands_where_its_sides_fit(table: int, sides: tuple[int, int], shown: str) -> None:
    words = leaf("embed", (20, table), WIDE, "token", "Embedding")
    projection = leaf("embedding_projection", sides, WIDE, "projection")
    assert roles(words, projection, norm("layers.*.norm", LAYER, "norm_attention"))[1] == shown


@pytest.mark.parametrize(
    ("place", "sides", "shown"),
    [
        ("output", (8, 8), "output_projection"),
        ("output", (9, 8), "lm_head"),  # words of another modality, or letters
        ("lm_head", (8, 8), "lm_head"),  # letters, of which there may be as many
    ],
)
def test_an_output_as_wide_as_the_layers_is_no_head_of_words(
    place: str, sides: tuple[int, int], shown: str
) -> None:
    last, other = leaf(place, sides, (), "lm_head"), norm("layers.*.norm", LAYER, "norm_attention")
    assert roles(last, other)[0] == shown
    words = leaf("embed", (8, 8), WIDE, "token", "Embedding")
    assert roles(last, other, words)[0] == "lm_head"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (["norm_attention", "norm_after_attention"], ["norm_attention", "norm_feed_forward"]),
        (["norm_after_attention", "norm_feed_forward"], ["norm_after_attention", "norm_feed_forward"]),
        (
            ["norm_attention", "norm_after_attention", "norm_feed_forward"],
            ["norm_attention", "norm_after_attention", "norm_feed_forward"],
        ),
    ],
)
def test_a_norm_behind_attention_is_that_of_the_feed_forward_network_which_has_no_other(
    said: list[str], shown: list[str]
) -> None:
    norms = [norm(f"h.*.n_{role}", LAYER, role) for role in said]
    assert roles(*norms, *sub_layers())[: len(said)] == shown


def test_the_norm_that_is_left_without_attention_is_that_of_what_mixes_positions() -> None:
    maps = [leaf("h.*.net.up", (20, 8), NETWORK, "up"), leaf("h.*.net.down", (8, 20), NETWORK, "down")]
    left, known = norm("h.*.wave.n", LAYER), norm("h.*.n", LAYER, "norm_feed_forward")
    assert roles(left, known, *maps)[0] == "norm_attention"
    assert roles(norm("h.*.m", LAYER), known, norm("h.*.wave.n", LAYER), *maps)[0] is None
