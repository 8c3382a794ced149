"""`mapper rules new`: a draft that reads, with the checkpoint as its first example and every guess marked."""

from __future__ import annotations

from pathlib import Path

from mapper.architecture import Leaf, Place
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.check import check_rules
from mapper.rulebook.draft import draft
from mapper.rulebook.examples import expand, header
from mapper.rulebook.families import read_family
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.shorten import short_header
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
    file.write_text(draft(checkpoint(), Rulebook()))
    family = read_family(load_yaml(file))
    assert family.model_types == ("nobodys",)
    first, near_miss = family.examples
    assert header(first).tensors.keys() == checkpoint().tensors.keys()
    assert header(near_miss).tensors.keys() < checkpoint().tensors.keys()
    assert first.config == {"model_type": "nobodys", "layer_scale": 1e-12}


def test_a_word_like_a_known_one_is_guessed_and_marked() -> None:
    text = draft(checkpoint(gate_proj="gate_projj"), Rulebook())
    (line,) = [line for line in text.splitlines() if "gate_projj" in line and "guessed" in line]
    assert '"{root}.layers.{n}.mlp.gate_projj": feed_forward.gate' in line


def test_a_word_like_no_other_is_left_to_the_writer() -> None:
    text = draft(checkpoint(gate_proj="xyzzy"), Rulebook())
    assert '#  "{root}.layers.{n}.mlp.xyzzy": say its role; it is Linear weight [48, 32]' in text


def test_names_of_a_family_there_is_are_taken_over_from_it(tmp_path: Path) -> None:
    text = draft(checkpoint(), Rulebook())
    assert (
        "extends: llama  # if nothing differs" in text
        and "recognise" not in text.partition("by_type_only")[0]
    )
    file = tmp_path / "nobodys.yaml"
    file.write_text(text)
    family = read_family(load_yaml(file))
    assert (family.extends, family.by_type_only, family.recognise) == ("llama", True, ())
    rulebook = Rulebook()
    (found,) = check_rules(rulebook, [file])
    assert found.problems == []
    architecture = infer(checkpoint(), rulebook)
    assert architecture.family == "nobodys"
