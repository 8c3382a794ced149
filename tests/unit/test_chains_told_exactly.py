"""What is said of layers is taken as it was said, of each of them, or is refused in words: never half of it."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper.architecture import Place
from mapper.errors import HintError
from mapper.inference.chains.combined import Reader
from mapper.inference.chains.elements import element_of, unfolded
from mapper.inference.chains.links import MAPS as FORM_OF_MAPS
from mapper.inference.chains.links import ROWS, Data
from mapper.inference.chains.owners import nodes_of
from mapper.inference.chains.texts import NAME, names_in
from mapper.inference.chains.value import NoReadingError, Value
from tests.unit.test_chains_told import MAPS, PLAIN, given, layers

LAYOUT = "chain.layout"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mean(a.0) & b", ("a.0", "b")),
        ("last(each(out))", ("out",)),
        ("2 * x_1", ("x_1",)),
    ],
)
def test_names_of_functions_are_no_names_of_layers(text, names):
    assert names_in(text) == names
    assert "*+" not in NAME.pattern  # which Python 3.10 cannot read


def square(path, file):
    one, other = torch.randn(4, 4), torch.randn(4, 4)
    arrays = {"W1": one, "b1": torch.zeros(4), "W2": other, "b2": torch.zeros(4)}
    numpy.savez(path / file, **{name: value.numpy() for name, value in arrays.items()})
    return one, other, path / file


@torch.no_grad()
def test_how_matrices_are_stored_may_be_said_of_each_layer(tmp_path):
    one, other, path = square(tmp_path, "model.npz")
    first, second = (
        leaf.place.first() for leaf in mapper.inspect(path).architecture.leaves if leaf.kind == "Linear"
    )
    hints = {"chain.activation": "tanh", "chain.output": "none"}
    x = torch.randn(2, 4)
    said = {f"{first}:{LAYOUT}": "in_out", f"{second}:{LAYOUT}": "in_out"}
    torch.testing.assert_close(mapper.build(path, hints=hints | said)(x).output, torch.tanh(x @ one) @ other)
    said = {LAYOUT: "in_out", f"{second}:{LAYOUT}": "out_in"}
    torch.testing.assert_close(
        mapper.build(path, hints=hints | said)(x).output, torch.tanh(x @ one) @ other.T
    )


def test_another_layout_than_sizes_show_is_refused(tmp_path):
    net = layers(fc1=nn.Linear(9, 6), fc2=nn.Linear(6, 2))
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(HintError, match="show the other one"):
        mapper.build(tmp_path / "model.safetensors", hints={**PLAIN, LAYOUT: "in_out"})
    mapper.build(tmp_path / "model.safetensors", hints={**PLAIN, LAYOUT: "out_in"})


@pytest.mark.parametrize(
    ("text", "wide", "wanted"),
    [
        ("a + b * c", Data(ROWS, 4, is_sequence=True), "a + (b * c)[:, None]"),
        ("a + b * c", Data(FORM_OF_MAPS, 4, 2), "a + (b * c)[..., None, None]"),
        ("a + b", Data(FORM_OF_MAPS, 4, 2), "a + b[..., None, None]"),
    ],
)
def test_a_product_of_vectors_beside_positions_or_maps_stays_whole(text, wide, wanted):
    row = Data(ROWS, 4, is_single=True)
    known = {name: Value(name, row, (name,), is_name=True) for name in "bc"}
    known["a"] = Value("a", wide, ("a",), is_name=True)
    assert Reader(text, known, lambda word, value: None).read().text == wanted


@pytest.mark.parametrize("word", ["stacked_12345", "stacked_0", "shuffled_0"])
def test_a_number_in_a_word_is_read_whole(word):
    form = Data(FORM_OF_MAPS, 4, 2) if word.startswith("shuffled") else Data(ROWS, 4, is_sequence=True)
    with pytest.raises(NoReadingError, match="no function is called"):
        Reader(f"{word}(a)", {"a": Value("a", form, ("a",))}, lambda word, value: None).read()


def halved():
    return layers(one=nn.Linear(9, 8), two=nn.Linear(4, 6), three=nn.Linear(3, 5))


@torch.no_grad()
def test_halves_of_two_layers_are_outputs_of_their_own():
    net, x = halved(), torch.randn(2, 9)
    hints = {"chain.output": "none", "chain.halved": "first_half"}
    made = vars(mapper.build(net.state_dict(), hints=hints)(x))
    first = net["one"](x)
    second = net["two"](first[:, :4])
    torch.testing.assert_close(made["second_half"], first[:, 4:])
    torch.testing.assert_close(made["first_half_2"], second[:, :3])
    torch.testing.assert_close(made["output"], net["three"](second[:, :3]))


@torch.no_grad()
@pytest.mark.parametrize("word", ["apart", "distance"])
def test_halves_of_two_inputs_are_outputs_of_each(word):
    net, inputs = halved(), (torch.randn(2, 9), torch.randn(2, 9))
    hints = {"chain.output": "none", "chain.halved": "first_half", "chain.paired": word}
    made = vars(mapper.build(net.state_dict(), hints=hints)(*inputs))
    torch.testing.assert_close(made["second_half"], net["one"](inputs[0])[:, 4:])
    torch.testing.assert_close(made["second_half_of_inputs_2"], net["one"](inputs[1])[:, 4:])


def test_a_word_with_apart_in_it_is_no_word():
    net = layers(one=nn.Linear(9, 8), two=nn.Linear(8, 6))
    with pytest.raises(HintError, match="cosapartine"):
        mapper.build(net.state_dict(), hints=PLAIN | {"chain.paired": "cosapartine"})


def test_layers_that_read_each_other_are_refused():
    net = layers(fc=nn.Linear(4, 4), out=nn.Linear(4, 4))
    said = {"fc:chain.reads": "last(each(out))", "out:chain.reads": "fc"}
    with pytest.raises(HintError, match="reads what comes of itself"):
        mapper.build(net.state_dict(), hints=PLAIN | said)


@torch.no_grad()
def test_two_rows_of_characters_may_stand_side_by_side():
    def gru(inputs, outputs):
        return nn.GRU(inputs, outputs, batch_first=True)

    net = layers(
        one_emb=nn.Embedding(8, 3),
        one_rnn=gru(3, 4),
        other_emb=nn.Embedding(7, 2),
        other_rnn=gru(2, 5),
        word_rnn=gru(9, 6),
        fc=nn.Linear(6, 2),
    )
    said = {"one_emb:chain.reads": "one", "other_emb:chain.reads": "other", "one_rnn:chain.reads": "one_emb"}
    said |= {"other_rnn:chain.reads": "other_emb", "fc:chain.reads": "word_rnn"}
    said |= {"word_rnn:chain.reads": "each(last(one_rnn)) & each(last(other_rnn))", "chain.positions": "all"}
    said |= {"chain.inputs": "one, other", "chain.output": "none"}
    one, other = torch.randint(8, (2, 4, 5)), torch.randint(7, (2, 4, 3))
    found = [
        net[f"{name}_rnn"](net[f"{name}_emb"](ids.flatten(0, 1)))[0][:, -1].unflatten(0, (2, 4))
        for name, ids in (("one", one), ("other", other))
    ]
    wanted = net["fc"](net["word_rnn"](torch.cat(found, -1))[0])
    torch.testing.assert_close(given(net, said, one, other), wanted)


@torch.no_grad()
def test_a_table_is_the_last_of_what_is_compared():
    """What is looked for in it may be an expression with commas of its own."""
    net = layers(
        a=nn.Conv2d(3, 4, 3, padding=1),
        b=nn.Conv2d(3, 4, 3, padding=1),
        codebook=nn.Embedding(9, 4),
        dec=nn.Conv2d(4, 3, 3, padding=1),
    )
    said = {
        "a:chain.reads": "inputs",
        "b:chain.reads": "inputs",
        "dec:chain.reads": "nearest(max(a, b), codebook)",
    }
    x = torch.randn(2, 3, 4, 5)
    found = torch.maximum(net["a"](x), net["b"](x)).permute(0, 2, 3, 1)
    table = net["codebook"].weight
    rows = table[torch.cdist(found.flatten(0, 2), table).argmin(1)].view(found.shape).permute(0, 3, 1, 2)
    hints = MAPS | said | {"chain.activation": "none"}
    torch.testing.assert_close(given(net, hints, x), net["dec"](rows))


def test_a_size_that_is_none_is_refused():
    net = layers(one=nn.Conv2d(3, 4, 3), two=nn.Conv2d(4, 2, 3))
    with pytest.raises(HintError, match="many"):
        mapper.build(net.state_dict(), hints=MAPS | {"chain.padding": 0, "chain.least": "many"})


def test_slopes_may_stand_in_a_list_beside_norms():
    """Their number is that of no layer, and they belong to none."""
    made = {f"convs.{at}": nn.Conv1d(4, 4, 3) for at in range(2)}
    made |= {f"beside.{at}": nn.BatchNorm1d(4) for at in range(2)} | {"beside.2": nn.PReLU(1)}
    leaves = mapper.inspect(layers(**made).state_dict()).architecture.leaves
    leaves = [
        replace(leaf, kind="PReLU", place=Place(leaf.place[:-1])) if leaf.kind == "Parameter" else leaf
        for leaf in leaves
    ]
    assert nodes_of([element_of(one) for leaf in leaves for one in unfolded(leaf)]) is None
