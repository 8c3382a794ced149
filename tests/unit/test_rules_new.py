"""`mapper rules new`: a draft that reads, with the checkpoint as its first example and every guess marked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mapper._trial import run_header
from mapper.architecture import Leaf, Place
from mapper.authoring.check import check_rules
from mapper.authoring.draft import draft
from mapper.authoring.expectations import check_example
from mapper.authoring.shorten import short_header
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import expand, header
from mapper.rulebook.family_file import read_family
from mapper.rulebook.rulebook import Rulebook, rulebook_of
from mapper.rulebook.strict import load_yaml


def checkpoint(**renamed: str) -> Checkpoint:
    """A decoder of a type that nobody lists; `renamed` says which of its words are others."""
    shapes = {
        "model.embed_tokens.weight": (99, 32),
        "model.norm.weight": (32,),
        **{
            f"model.layers.{at}.{name}.weight": shape
            for at in range(2)
            for name, shape in {
                "input_layernorm": (32,), "post_attention_layernorm": (32,), "self_attn.q_proj": (32, 32),
                "self_attn.k_proj": (32, 32), "self_attn.v_proj": (32, 32), "self_attn.o_proj": (32, 32),
                "mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32), "mlp.down_proj": (32, 48),
            }.items()
        },
    }  # fmt: skip
    tensors = {}
    for name, shape in shapes.items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        tensors[name] = TensorInfo(shape, "F32")
    return Checkpoint("nobody/knows-it", "manifest", tensors, {"model_type": "nobodys", "layer_scale": 1e-12})


def test_a_header_written_short_expands_to_itself() -> None:
    places = [("a", (0, 1), "q_proj"), ("a", (0, 1), "k_proj"), ("top", "norm1"), ("top", "norm2")]
    info = {"weight": TensorInfo((4, 4), "F32"), "bias": TensorInfo((4,), "F32")}
    leaves = [Leaf(Place(place), "Linear", info, "", (), None) for place in places]
    short = short_header(leaves)
    names = {name: shape for pattern, shape in short.items() for name in expand(pattern)}
    assert names == {
        f"{path}.{tensor}": list(shape.shape)
        for leaf in leaves
        for path in leaf.place.expand()
        for tensor, shape in info.items()
    }
    assert list(short)[:2] == ["a.{0..1}.{q,k}_proj.weight", "a.{0..1}.{q,k}_proj.bias"]
    assert "top.norm{1,2}.weight" in short


def test_a_draft_is_a_family_file_that_reads(tmp_path: Path) -> None:
    file = tmp_path / "nobodys.yaml"
    file.write_text(draft(checkpoint(), SHIPPED))
    family = read_family(load_yaml(file))
    assert family.model_types == ("nobodys",)
    first, near_miss = family.examples
    assert header(first).tensors.keys() == checkpoint().tensors.keys()
    assert header(near_miss).tensors.keys() < checkpoint().tensors.keys()
    assert first.config == {"model_type": "nobodys", "layer_scale": 1e-12}


def own(**renamed: str) -> Checkpoint:
    """A decoder of nobody's, in words of its own."""
    width, rows = 32, 99
    shapes: dict[str, tuple[int, ...]] = {
        "wrd.weight": (rows, width), "ord.weight": (64, width), "out_norm.weight": (width,), "out.weight": (rows, width),
    }  # fmt: skip
    layer = {
        "mix.wq": (width, width), "mix.wk": (width, width), "mix.wv": (width, width), "mix.wo": (width, width),
        "n1": (width,), "n2": (width,), "ff.one": (44, width), "ff.two": (width, 44),
    }  # fmt: skip
    for at in range(2):
        for name, shape in layer.items():
            shapes[f"blocks.{at}.{name}.weight"] = shape
            shapes[f"blocks.{at}.{name}.bias"] = shape[:1]
    tensors = {
        ".".join(renamed.get(word, word) for word in name.split(".")): TensorInfo(shape, "F32")
        for name, shape in shapes.items()
    }
    config = {
        "model_type": "own", "architectures": ["OwnForCausalLM"], "vocab_size": rows, "hidden_size": width, "n_heads": 4,
        "max_position_embeddings": 64, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
    }  # fmt: skip
    return Checkpoint("own/thing", "manifest", tensors, config)


SHIPPED = rulebook_of(())
FACTS = """facts:
  attention.rotary: {value: false, why: learned positions}
  rotary: {value: false, why: learned positions}
  attention.causal: {value: true, why: a decoder}
  norm.placement: {value: pre, why: each norm stands before its block}
"""


def rows(text: str) -> dict[str, str]:
    """The names of a draft with what is said of each; commented rows are questions."""
    lines = [line for line in text.splitlines() if re.match(r'#?  "', line)]
    return {re.findall(r'"([^"]*)"', line)[0]: line for line in lines if not line.startswith("      ")}


def settled(text: str, tmp_path: Path, roles: dict[str, str]) -> Path:
    """The draft as somebody would finish it: roles corrected or added, facts said."""
    for name, role in roles.items():
        line = rows(text)[name]
        text = text.replace(line, f'  "{name}": {role}')
    text = (
        text.replace("#facts:", f"{FACTS}#facts:")
        if "#facts:" in text
        else text.replace("examples:", f"{FACTS}examples:")
    )
    if roles and "\nnames:" not in text:
        first = next(f'  "{name}": {role}' for name, role in roles.items())
        text = text.replace(first, f"names:\n{first}", 1)
    file = tmp_path / "families" / "own.yaml"
    file.parent.mkdir()
    file.write_text(
        re.sub(r"expect: {(unmapped|family): .*}  #", "expect: {reading: exact, unmapped: []}  #", text)
    )
    return file


@pytest.mark.parametrize(
    ("renamed", "guesses"),
    [
        ({"n1": "ln_attn", "n2": "zz"}, {"zz": ("norm_feed_forward", "other norm")}),
        ({"out_norm": "zz"}, {"zz": ("final_norm", "the only norm")}),
        (
            {},
            {
                "wrd": ("embeddings.token", "99 rows"),
                "ord": ("embeddings.position", "64 rows"),
                "out": ("/lm_head", "99"),
            },
        ),
    ],
)
def test_a_guess_comes_from_place_shape_and_neighbours(
    renamed: dict[str, str], guesses: dict[str, tuple[str, str]]
) -> None:
    said = rows(draft(own(**renamed), SHIPPED))
    for name, (role, why) in guesses.items():
        assert (
            said[name].startswith((f'  "{name}": {role}  # guessed: ', f'  "{name}": {{role: {role}, '))
            and why in said[name]
        ), said[name]


@pytest.mark.parametrize(
    "renamed",
    [
        {"wq": "za", "wk": "zb", "wv": "zc", "wo": "zd"},  # all square, and called like nothing
        {"wrd": "aaa", "out": "bbb"},  # a table or a head
        {"n1": "nx", "n2": "ny"},  # which norm is first, nothing says
    ],
)
def test_what_nothing_tells_apart_is_not_guessed(renamed: dict[str, str]) -> None:
    said = rows(draft(own(**renamed), SHIPPED))
    lines = [line for name, line in said.items() if name.rpartition(".")[2] in renamed.values()]
    assert len(lines) == len(renamed) and all(line.startswith("#") for line in lines)


@pytest.mark.parametrize("renamed", [{}, {"wv": "xyzzy"}, {"wk": "xyzzy"}, {"ff": "chan"}])
def test_what_shapes_and_neighbours_show_is_a_row_with_its_reason(renamed: dict[str, str]) -> None:
    """Of the two maps of a feed-forward network one is wider inside, and of four maps of attention one alone is left.

    A family vouches for all names of its types: what no rule names would be a finding.
    """
    said = rows(draft(own(**renamed), SHIPPED))
    of_network = [row for name, row in said.items() if name.endswith((".one", ".two"))]
    assert len(of_network) == 2 and all(
        "the wider side of a feed-forward network" in row for row in of_network
    )
    assert all(row.lstrip().startswith('"') for row in said.values())  # none is left to say


def test_no_word_of_three_letters_is_like_another() -> None:
    """`tok` was once taken for `to_k`, a key."""
    text = draft(own(wrd="tok"), SHIPPED)
    assert ": key" not in text and "to_k" not in text


@pytest.mark.parametrize(
    ("renamed", "roles"),
    [
        ({}, {}),
        (
            {"wq": "za", "wk": "zb", "wv": "zc", "wo": "zd"},
            {
                f"mix.z{letter}": f"attention.{role}"
                for letter, role in zip("abcd", ("query", "key", "value", "output"), strict=True)
            },
        ),
        (
            {"wrd": "aaa", "out": "bbb"},
            {"aaa": "{role: embeddings.token, kind: Embedding}", "bbb": "/lm_head"},
        ),
        ({"n1": "nx", "n2": "ny"}, {"nx": "norm_attention", "ny": "norm_feed_forward"}),
    ],
)
def test_a_draft_that_is_settled_checks_and_runs(
    tmp_path: Path, renamed: dict[str, str], roles: dict[str, str]
) -> None:
    checkpoint = own(**renamed)
    settled(draft(checkpoint, SHIPPED), tmp_path, roles)
    rulebook = Rulebook([tmp_path])
    family = next(family for family in rulebook.families if family.name == "own")
    assert [check_example(example, family, rulebook) for example in family.examples] == [[], []]
    architecture = infer(checkpoint, rulebook)
    assert architecture.reading == "exact"
    run_header(architecture)


def test_a_list_of_layers_that_no_word_names_is_said(tmp_path: Path) -> None:
    text = draft(own(blocks="pile"), SHIPPED)
    start = text.index("#   vocabulary: layers")
    (tmp_path / "vocabulary").mkdir()
    file = tmp_path / "vocabulary" / "layers.yaml"  # as the draft says
    file.write_text("".join(line[4:] + "\n" for line in text[start:].splitlines()[:2]))
    again = draft(own(blocks="pile"), Rulebook([tmp_path]))
    assert "no list of layers" in text and "no list of layers" not in again
    shown = "two norms in the order of their names"  # of one layer
    assert all(shown not in rows(text)[norm] and shown in rows(again)[norm] for norm in ("n1", "n2"))


def test_patterns_of_a_draft_are_each_said_once() -> None:
    text = draft(own(), SHIPPED)
    patterns = re.findall(r'^  - "(.*)"$', text, flags=re.MULTILINE)
    assert patterns and len(set(patterns)) == len(patterns)


def test_facts_are_asked_and_never_guessed() -> None:
    text = draft(own(), SHIPPED)
    assert "#  rotary: {value: ..., why: ...}  # one of false, true" in text
    assert not re.search(r"^facts:", text, flags=re.MULTILINE)


def test_names_of_a_family_there_is_are_taken_over_from_it(tmp_path: Path) -> None:
    text = draft(checkpoint(), SHIPPED)
    assert "extends: llama  # if nothing differs" in text and "\nrecognise" not in text
    file = tmp_path / "nobodys.yaml"
    file.write_text(text)
    family = read_family(load_yaml(file))
    assert (family.extends, family.by_type_only, family.recognise) == ("llama", True, ())
    rulebook = Rulebook()
    (found,) = check_rules(rulebook, [file])
    assert found.problems == []
    architecture = infer(checkpoint(), rulebook)
    assert architecture.family == "nobodys"


def test_a_draft_of_a_listed_type_has_a_name_of_its_own() -> None:
    rulebook = Rulebook()
    family = next(family for family in rulebook.families if family.name == "gpt2")
    assert draft(header(family.examples[0]), rulebook).startswith("family: gpt2_2\n")
