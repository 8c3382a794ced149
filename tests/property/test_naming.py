"""Naming does not depend on the order of keys, on prefixes, or on what else a file holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.architecture import Leaf
from mapper.checkpoint import TensorInfo
from mapper.naming.blocks import build_blocks
from mapper.naming.resolve import resolve
from mapper.naming.tree import grow
from mapper.naming.vocabulary import Vocabulary
from mapper.rulebook.rulebook import Rulebook

VOCABULARY = Vocabulary(Rulebook(kinds=["vocabulary"]).vocabulary)
LAYER = {
    "attention.self.query.weight": (4, 4),
    "attention.self.key.weight": (4, 4),
    "attention.output.dense.weight": (4, 4),
    "attention.output.LayerNorm.weight": (4,),
    "attention.output.LayerNorm.bias": (4,),
    "intermediate.dense.weight": (8, 4),
    "output.dense.weight": (4, 8),
}
MODEL = {f"encoder.layer.{at}.{name}": shape for at in range(3) for name, shape in LAYER.items()}
MODEL |= {"embeddings.word_embeddings.weight": (9, 4), "pooler.dense.weight": (4, 4)}

words = st.text(alphabet=st.sampled_from("abcnormlayerweight.0123_/é"), max_size=24)
names = st.lists(words, unique=True, min_size=1, max_size=30)
shapes = st.lists(st.integers(0, 5), max_size=5).map(tuple)


def read(shapes_by_name):
    """Key -> kind, block and role."""
    tensors = {name: TensorInfo(tuple(shape), "F32") for name, shape in shapes_by_name.items()}
    leaves = resolve(grow(tensors), VOCABULARY)
    build_blocks(leaves, VOCABULARY)
    keys = [(key, leaf) for leaf in leaves for key in Leaf.keys(leaf)]
    assert sorted(key for key, _ in keys) == sorted(tensors)
    return {key: (leaf.kind, leaf.block, leaf.role) for key, leaf in keys}


@given(st.permutations(list(MODEL)))
@settings(max_examples=25)
def test_the_order_of_keys_never_matters(order):
    tensors = {name: TensorInfo(MODEL[name], "F32") for name in order}
    expected = {name: TensorInfo(shape, "F32") for name, shape in MODEL.items()}
    assert resolve(grow(tensors), VOCABULARY) == resolve(grow(expected), VOCABULARY)


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.module.backbone.", "anything.else."])
def test_renaming_a_prefix_changes_paths_only(prefix):
    plain = read(MODEL)
    assert read({prefix + name: shape for name, shape in MODEL.items()}) == {
        prefix + name: reading for name, reading in plain.items()
    }


@given(st.lists(st.text("xyz", min_size=1, max_size=6), unique=True, max_size=6))
@settings(max_examples=25)
def test_unrelated_tensors_only_add_to_what_has_no_role(extra):
    plain = read(MODEL)
    found = read({**MODEL, **{f"unrelated_{word}": (3,) for word in extra}})
    assert {key: found[key] for key in MODEL} == plain
    assert all(found[f"unrelated_{word}"][2] is None for word in extra)


@given(names, st.data())
@settings(max_examples=150)
def test_any_names_and_shapes_are_read_whole(keys, data):
    read({key: data.draw(shapes) for key in keys})
