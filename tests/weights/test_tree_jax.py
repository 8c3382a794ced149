"""jax in trees: only where the caller has imported it, and never by mapper."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from mapper.errors import StructureError
from tests.weights.streams import loaded, saved

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.filterwarnings("ignore")


def test_mapper_never_imports_jax():
    code = (
        "import sys, io, mapper; mapper.save_tree(io.BytesIO(), {'a': [1]}); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn"]
)
def test_an_array_comes_back_bit_for_bit(dtype):
    tree = {"w": jnp.arange(6).reshape(2, 3).astype(dtype), "one": jnp.ones((), dtype)}
    back = loaded(saved(tree), {key: jnp.zeros_like(leaf) for key, leaf in tree.items()})
    assert all(isinstance(leaf, jax.Array) for leaf in back.values())
    assert all(np.asarray(back[key]).tobytes() == np.asarray(tree[key]).tobytes() for key in tree)


def test_a_shape_struct_has_only_shape_and_dtype():
    like = {"j": jax.ShapeDtypeStruct((2,), "float32"), "t": jax.ShapeDtypeStruct((2,), "bfloat16")}
    back = loaded(saved({"j": jnp.ones(2), "t": torch.ones(2).bfloat16()}), like)
    assert isinstance(back["j"], jax.Array)
    assert isinstance(back["t"], torch.Tensor)
    for wrong in (jnp.ones(3), jnp.ones(2, "float16"), 1.0):
        with pytest.raises(StructureError) as caught:
            loaded(saved({"j": wrong}), {"j": like["j"]})
        assert caught.value.path == "['j']"


def test_jax_is_not_numpy():
    for stored, here in (
        (jnp.ones(2), np.ones(2, "f4")),
        (np.ones(2, "f4"), jnp.ones(2)),
        (jnp.ones(2), torch.ones(2)),
    ):
        with pytest.raises(StructureError, match="type"):
            loaded(saved([stored]), [here])


def test_a_wider_type_than_jax_has_here_is_an_error():
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
        data = saved([jnp.ones(2, "float64")])
        struct = jax.ShapeDtypeStruct((2,), "float64")
    with pytest.raises(StructureError, match="float64"):
        loaded(data, [struct])


def test_what_is_registered_with_jax_is_a_container():
    @jax.tree_util.register_pytree_with_keys_class
    class Registered:
        def __init__(self, w, b):
            self.w, self.b = w, b

        def tree_flatten_with_keys(self):
            key = jax.tree_util.GetAttrKey
            return ((key("w"), self.w), (key("b"), self.b)), None

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children)

    like = [Registered(jnp.zeros(2), {"x": 0})]
    back = loaded(saved([Registered(jnp.ones(2), {"x": 3})]), like)
    assert type(back[0]) is Registered
    assert (float(back[0].w.sum()), back[0].b) == (2.0, {"x": 3})
    with pytest.raises(StructureError) as caught:
        loaded(saved([Registered(jnp.ones(3), {"x": 3})]), like)
    assert caught.value.path == "[0].w"


def test_what_is_registered_without_names_counts_its_children():
    class Numbered:
        def __init__(self, *parts):
            self.parts = parts

    jax.tree_util.register_pytree_node(
        Numbered, lambda node: (node.parts, None), lambda aux, parts: Numbered(*parts)
    )
    assert loaded(saved(Numbered(1, None, 2.0)), Numbered(0, None, 0.0)).parts == (1, None, 2.0)
    with pytest.raises(StructureError) as caught:
        loaded(saved(Numbered(1, 2)), Numbered(1, 2.0))
    assert caught.value.path == "[1]"


def test_random_keys_of_jax_have_no_bits_to_store():
    from mapper.errors import UnsupportedLeaf

    with pytest.raises(UnsupportedLeaf) as caught:
        saved({"key": [jax.random.key(0)]})
    assert caught.value.path == "['key'][0]"
