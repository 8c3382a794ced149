"""A comparison as text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapper
from mapper.catalogue import find
from mapper.errors import ArchitectureError
from mapper.report import difference
from mapper.report.difference import as_text, sentence, tensors
from mapper.report.style import coloured
from mapper.weights.comparing import sides
from mapper.weights.comparing.differences import Diff
from tests.checkpoints import BERT, bert_shapes

Table = dict[str, list[int]]


def tensor_lines(diff: Diff) -> list[str]:
    """The lines about tensors, without the width of their first column."""
    return [re.sub("  +", "  ", line) for line in tensors(diff).splitlines()]


def compared(a: Table, b: Table) -> list[str]:
    return tensor_lines(mapper.diff(a, b))


def sentences(a: str, b: str) -> list[str]:
    """What is said of two models of the catalogue."""
    manifests = [{"tensors": {k: {"shape": i.shape, "dtype": i.dtype} for k, i in c.tensors.items()}, "config": c.config}
                 for c in map(find, (a, b)) if c is not None]  # fmt: skip
    return [sentence(contrast) for contrast in mapper.diff(*manifests).architecture]


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small comparisons are folded like those of more than a screen."""
    monkeypatch.setattr(difference, "SCREEN", 0)


def bert(**config: Any) -> dict[str, Any]:
    return {"tensors": bert_shapes(), "config": {**BERT, **config}}


# --------------------------------------------------------------------------------------------------------- tensors
def test_each_path_is_a_line_with_its_mark() -> None:
    a = {"same": [1], "old": [2], "w": [2, 3], "x.u": [1]}
    b = {"same": [1], "new": [], "w": [3, 2], "x.v": [1]}
    assert compared(a, b) == [
        "+ new  F32 []",
        "- old  F32 [2]",
        "~ w  shape  F32 [2, 3] → F32 [3, 2]",
        "- x.u  F32 [1]",
        "+ x.v  F32 [1]",
    ]


def test_another_dtype_is_said_with_the_shape_that_both_have() -> None:
    a, b = ({"tensors": {"w": {"shape": [2], "dtype": dtype}}} for dtype in ("F32", "BF16"))
    assert tensor_lines(mapper.diff(a, b)) == ["~ w  dtype  F32 → BF16 [2]"]


def test_a_subtree_on_one_side_is_one_line_with_its_count() -> None:
    layer = {f"encoder.layer.1.{name}": [2, 3] for name in ("a.weight", "b.weight", "c")}
    common = {"encoder.layer.0.c": [2, 3]}
    assert compared(common, {**common, **layer}) == ["+ encoder.layer.1.*  3 tensors, 18 parameters"]
    assert compared({**common, "pool.w": [1], "pool.b": [1]}, common) == ["- pool.*  2 tensors, 2 parameters"]


def test_a_subtree_of_one_tensor_is_that_tensor() -> None:
    assert compared({"a": [1]}, {"a": [1], "deep.down.w": [4]}) == ["+ deep.down.w  F32 [4]"]


def test_what_both_have_something_of_is_no_subtree() -> None:
    assert compared({"m.a": [1]}, {"m.b": [1], "m.c": [1]}) == [
        "- m.a  F32 [1]",
        "+ m.b  F32 [1]",
        "+ m.c  F32 [1]",
    ]


def test_a_tensor_that_is_also_a_folder_stands_beside_it() -> None:
    assert compared({"z": [1]}, {"z": [1], "a": [1], "a.b": [1], "a.c": [1]}) == [
        "+ a  F32 [1]",
        "+ a.*  2 tensors, 2 parameters",
    ]


def test_many_lines_that_differ_in_numbers_only_are_one() -> None:
    base = {f"layers.{at}.up": [2] for at in range(48)}
    norms = {f"layers.{at}.norm": [4] for at in range(48)}
    assert compared(base, base | norms) == ["+ layers.{0..47}.norm  F32 [4]  48 tensors"]


def test_what_fits_on_a_screen_is_not_folded() -> None:
    base = {f"layers.{at}.up": [2] for at in range(24)}
    norms = {f"layers.{at}.norm": [4] for at in range(24)}
    assert compared(base, base | norms) == [f"+ layers.{at}.norm  F32 [4]" for at in range(24)]


def test_a_few_lines_are_not_folded_among_many(folding: None) -> None:
    base = {f"layers.{at}.up": [2] for at in range(3)}
    assert len(compared(base, base | {f"layers.{at}.norm": [4] for at in range(3)})) == 3


def test_a_folded_line_says_exactly_what_it_stands_for(folding: None) -> None:
    base = {f"l.{at}.{of}.up": [2] for at in range(12) for of in range(4)}
    odd = {f"l.{at}.{of}.norm": [4] for at in (0, 2, 4, 6) for of in range(3)} | {"l.1.0.norm": [4]}
    assert compared(base, base | odd) == [
        "+ l.{0..6..2}.{0..2}.norm  F32 [4]  12 tensors",
        "+ l.1.0.norm  F32 [4]",
    ]
    some = {f"l.{at}.0.norm": [4] for at in (0, 1, 3, 7)}
    assert compared(base, base | some) == ["+ l.{0,1,3,7}.0.norm  F32 [4]  4 tensors"]


def test_folded_subtrees_are_counted_together(folding: None) -> None:
    layers = {f"l.{at}.{name}": [2] for at in range(8) for name in ("a", "b")}
    first = {key: shape for key, shape in layers.items() if int(key[2]) < 4}
    assert compared(first, layers) == ["+ l.{4..7}.*  8 tensors, 16 parameters"]


def test_values_that_differ_are_told_by_the_largest_difference(folding: None) -> None:
    import torch

    a = {f"l.{at}.w": torch.zeros(2) for at in range(5)}
    b = {key: tensor + at for at, (key, tensor) in enumerate(a.items())}
    assert tensor_lines(mapper.diff(a, b, values=True)) == [
        "~ l.{1..4}.w  value  F32 [2]  largest difference 4  4 tensors"
    ]
    nan = mapper.diff({"w": torch.zeros(1)}, {"w": torch.tensor([float("nan")])}, values=True)
    assert tensor_lines(nan) == ["~ w  value  F32 [1]  largest difference nan"]


paths = st.lists(st.sampled_from(["a", "b", "0", "1", "2", "3", "10"]), min_size=1, max_size=4).map(".".join)
tables = st.dictionaries(paths, st.sampled_from([[1], [2]]), min_size=1, max_size=12)


def expanded(line: str) -> list[str]:
    """The paths for which a line stands, "*" left as it is."""
    found = [""]
    for word in re.split(r"\.(?![^{]*})", line.split()[1]):  # not at the dots of a span
        choices = [word]
        if word.startswith("{"):
            first, *rest = word[1:-1].split("..")
            step = int(rest[1]) if len(rest) > 1 else 1
            choices = (
                [str(at) for at in range(int(first), int(rest[0]) + 1, step)]
                if rest
                else word[1:-1].split(",")
            )
        found = [f"{start}.{choice}" if start else choice for start in found for choice in choices]
    return found


@settings(max_examples=60)
@given(tables, tables)
def test_every_path_that_differs_is_told_exactly_once(folding: None, a: Table, b: Table) -> None:
    diff = mapper.diff(a, b)
    told: list[tuple[str, str]] = []
    for line in tensor_lines(diff):
        entries = {"-": diff.only_a, "+": diff.only_b, "~": diff.changed}[line[0]]
        for path in expanded(line):
            start = path.removesuffix("*")
            below = (
                [entry.path for entry in entries if entry.path.startswith(start)] if start != path else [path]
            )
            told += [(line[0], name) for name in below]
    wanted = [(mark, entry.path) for mark, entries in (("-", diff.only_a), ("+", diff.only_b), ("~", diff.changed))
              for entry in entries]  # fmt: skip
    assert sorted(told) == sorted(wanted)


# --------------------------------------------------------------------------------------------------- around them
def test_equal_sides_are_one_line() -> None:
    assert str(mapper.diff(bert(), bert())) == (
        "same names, shapes and types; values not read (--values): 39 tensors"
    )
    import torch

    weights = {"w": torch.zeros(2)}
    assert str(mapper.diff(weights, dict(weights), values=True)) == "equal: 1 tensor"


def test_the_last_line_counts() -> None:
    a = {"tensors": {"s": [1], "d": {"shape": [1], "dtype": "F16"}, "same": [1], "x": [1]}}
    b = {"tensors": {"s": [2], "d": [1], "same": [1], "y": [1], "z": [1]}}
    assert str(mapper.diff(a, b)).splitlines()[-1] == (
        "different: 1 tensor with the same names, shapes and types, 1 only in A, 2 only in B, 1 of another shape,"
        " 1 of another dtype; values not read (--values)"
    )


def test_colours_are_red_green_and_yellow() -> None:
    text = as_text(mapper.diff({"a": [1], "w": [1]}, {"b": [1], "w": [2]}), coloured)
    assert "\x1b[31m- a" in text and "\x1b[32m+ b" in text and "\x1b[33m~ w" in text
    assert "\x1b" not in str(mapper.diff({"a": [1], "w": [1]}, {"b": [1], "w": [2]}))


def test_names_cannot_write_on_the_terminal() -> None:
    hostile = {"a\x1b[2Jb": [1], "x\u202ey.z": [1], "x\u202ey.\r\nw": [1]}
    text = str(mapper.diff({"w": [1]}, {"w": [1], **hostile}))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "+ a\\x1b[2Jb" in text and "+ x\\u202ey.*" in text


# -------------------------------------------------------------------------------------------------- architecture
def test_blocks_and_facts_that_differ_are_told_in_words() -> None:
    assert sentences("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B")[:8] == [
        "model type: qwen2 in A, qwen3 in B",
        "A has biases of query, key and value in 24 attention blocks",
        "B has lm head",
        "B has query and key norms in 28 attention blocks",
        "layers: 24 in A, 28 in B",
        "hidden size: 896 in A, 1,024 in B",
        "attention heads: 14 in A, 16 in B",
        "key/value heads: 2 in A, 8 in B",
    ]


def test_a_fact_that_no_tensor_shows_is_told_of_equal_tensors() -> None:
    diff = mapper.diff(bert(), bert(num_attention_heads=4, layer_norm_eps=1e-5))
    assert diff.equal is False and diff.weights_equal is None
    assert [sentence(contrast) for contrast in diff.architecture] == [
        "attention heads: 2 in A, 4 in B",
        "attention head dim: 4 in A, 2 in B",
        "norm eps: 1e-12 in A, 1e-05 in B",
    ]
    assert str(diff).splitlines()[-1] == (
        "different in architecture alone: 39 tensors with the same names, shapes and types; values not read (--values)"
    )


def test_a_default_is_called_one() -> None:
    manifest = bert()
    del manifest["config"]["layer_norm_eps"]
    (told,) = mapper.diff(manifest, bert(layer_norm_eps=1e-5)).architecture
    assert sentence(told) == "norm eps: 1e-12 in A (a default), 1e-05 in B"


def test_equal_tensors_without_a_config_on_one_side_are_equal() -> None:
    diff = mapper.diff(bert(), bert_shapes())
    assert diff.architecture == [] and diff.equal is None
    assert str(diff) == "same names, shapes and types; values not read (--values): 39 tensors"


def test_a_mixture_of_experts_is_told_with_its_sizes() -> None:
    told = sentences("Qwen/Qwen3-0.6B", "Qwen/Qwen3-30B-A3B")
    assert "A has feed forward (intermediate size 3,072, activation silu) in 28 layers" in told
    assert any(
        line.startswith("B has mixture of experts (experts 128, intermediate size 768") for line in told
    )


def test_towers_are_told_apart() -> None:
    told = sentences("openai/clip-vit-base-patch32", "openai/clip-vit-large-patch14")
    assert "hidden size (text): 512 in A, 768 in B" in told
    assert "hidden size (vision): 768 in A, 1,024 in B" in told
    assert "layers (vision): 12 in A, 24 in B" in told


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B"),
        ("openai-community/gpt2", "google-bert/bert-base-uncased"),
        ("google-t5/t5-small", "openai/clip-vit-base-patch32"),
    ],
)
def test_exchanging_the_sides_exchanges_the_letters(a: str, b: str) -> None:
    swapped = {"A": "B", "B": "A"}

    def parts(line: str) -> list[str]:
        words = re.split("(: |, )", line)
        return sorted(
            re.sub(r"(?<![\w-])[AB](?![\w-])", lambda found: swapped[found[0]], word) for word in words
        )

    assert sorted(map(parts, sentences(a, b))) == sorted(
        sorted(re.split("(: |, )", line)) for line in sentences(b, a)
    )


def test_a_side_without_a_readable_architecture_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise ArchitectureError("it contradicts itself")

    monkeypatch.setattr("mapper.inference.infer", refuse)
    text = str(mapper.diff({"a": [1]}, {"b": [1]}))
    assert "A manifest: no architecture can be read; 1 tensor" in text
    assert "- a" in text and "+ b" in text


def test_nothing_is_inferred_where_headers_and_configs_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides.Side, "_read", lambda self, origin: pytest.fail("inferred"))
    assert mapper.diff(bert(), bert()).as_dict()["equal"] is None


def test_another_type_is_a_difference_whatever_the_tensors() -> None:
    diff = mapper.diff(bert(), bert(model_type="electra"))
    assert diff.equal is False
    assert "model type: bert in A, electra in B" in str(diff)


@pytest.mark.parametrize(
    ("field", "ours", "theirs", "told"),
    [
        ("rope_theta", 10000.0, 500000.0, "rotary base: 10,000 in A, 500,000 in B"),
        ("rope_theta", None, 500000.0, "rotary base: 10,000 in A (a default), 500,000 in B"),
        ("rms_norm_eps", 1e-6, 1e-5, "norm eps: 1e-06 in A, 1e-05 in B"),
        ("hidden_act", "silu", "gelu", "feed forward activation: silu in A, gelu in B"),
        ("tie_word_embeddings", True, False, "head tied: yes in A, no in B"),
        ("rope_scaling", None, {"rope_type": "linear", "factor": 2.0}, "2"),
        ("unheard_of", 3, 4, "config unheard_of: 3 in A, 4 in B"),
        ("unheard_of", None, 4, "B has config unheard_of 4"),
    ],
)
def test_what_the_configs_alone_show_counts(field: str, ours: Any, theirs: Any, told: str) -> None:
    """In the text, the JSON and `equal`."""
    manifest = llama()
    pair = [{**manifest, "config": {**manifest["config"], field: value}} for value in (ours, theirs)]
    for side in pair:
        side["config"] = {name: value for name, value in side["config"].items() if value is not None}
    diff = mapper.diff(*pair)
    assert diff.equal is False and diff.weights_equal is None
    assert told in str(diff)
    assert diff.as_dict()["architecture"] and diff.as_dict()["equal"] is False
    assert mapper.diff(pair[0], dict(pair[0])).equal is None


def test_what_changes_nothing_is_no_difference() -> None:
    manifest = llama()
    other = {
        **manifest,
        "config": {
            **manifest["config"],
            "transformers_version": "4.0",
            "_name_or_path": "x",
            "use_cache": False,
        },
    }
    assert mapper.diff(manifest, other).equal is None


def llama() -> dict[str, Any]:
    from tests.weights.test_pairing import LLAMA, norms

    tensors = norms("input_layernorm", "post_attention_layernorm") | {"lm_head.weight": [29, 8]}
    return {"tensors": tensors, "config": {**LLAMA, "rms_norm_eps": 1e-6, "hidden_act": "silu"}}


def test_a_head_of_one_map_and_one_of_several_are_told_apart() -> None:
    from mapper.report import contrast

    part = contrast._Part("head", 1)
    leaf = contrast._Part("leaf", 1)
    leaf.kinds["Linear"] += 1
    (told,) = contrast._kinds({("lm_head",): leaf}, {("lm_head",): part})
    assert (told.a, told.b) == ("Linear", "a block of several")
