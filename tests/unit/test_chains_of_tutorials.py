"""Networks as tutorials and their readers write them, under names of their own: what sizes show, and what must be asked."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper


class Residual(nn.Module):
    """Two convolutions, and beside them one of one place, which no name tells from a third."""

    def __init__(self, inputs, outputs, stride=1, has_norm=False):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv3 = nn.Conv2d(inputs, outputs, 1, stride) if inputs != outputs else None
        self.bn3 = nn.BatchNorm2d(outputs) if has_norm and self.conv3 else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.bn3(self.conv3(x)) if self.conv3 else x)).relu()


def residual(has_norm=False):
    """A network of lists in lists, with a pooling at the end of the first."""
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    stages = [nn.Sequential(Residual(4, 4)), nn.Sequential(Residual(4, 6, 2, has_norm), Residual(6, 6))]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)]
    return nn.ModuleDict({"net": nn.Sequential(stem, *stages, *end)}).eval()


RESIDUAL = {
    "chain.stride": 1, "net.2.0.conv1:chain.stride": 2, "chain.padding": "half", "chain.activation": "relu",
    "chain.activation_before_norm": False, "chain.residual": "before_activation", "chain.reduction": "mean",
    "chain.output": "none", "chain.pooling": "none", "net.0.1:chain.pooling": "max_3_2_1",
}  # fmt: skip


def test_a_convolution_of_one_place_from_what_a_block_reads_to_what_it_gives_stands_beside_it():
    for has_norm in (False, True):
        torch.manual_seed(0)
        model, x = residual(has_norm), torch.randn(2, 3, 9, 9)
        built = mapper.build(model.state_dict(), hints=RESIDUAL)
        torch.testing.assert_close(built(x).output, model["net"](x))


@pytest.mark.parametrize("name", ["attention", "mask", "scale", "sigma"])
def test_what_may_scale_what_a_block_gives_is_not_added_to_it(name):
    block = {
        "conv1": nn.Conv2d(8, 16, 3, 1, 1),
        "conv2": nn.Conv2d(16, 16, 3, 1, 1),
        name: nn.Conv2d(8, 16, 1),
    }
    parts = {"stem": nn.Conv2d(3, 8, 3, 1, 1), "blk": nn.ModuleDict(block), "fc": nn.Linear(16, 5)}
    read = mapper.inspect(nn.ModuleDict(parts).state_dict()).architecture
    assert ("chain.reads", "fc") in {(question.fact, str(question.at)) for question in read.questions}


def test_two_heads_of_one_folder_are_not_added():
    head = {
        "conv1": nn.Conv2d(8, 16, 3, 1, 1),
        "conv2": nn.Conv2d(16, 4, 3, 1, 1),
        "boxes": nn.Conv2d(8, 4, 1),
    }
    parts = {"stem": nn.Conv2d(3, 8, 3, 1, 1), "head": nn.ModuleDict(head)}
    assert mapper.inspect(nn.ModuleDict(parts).state_dict()).architecture.reading == "skeleton"


class Bottleneck(nn.Module):
    """Three convolutions whose names do not sort as they are called, and a folder with the way beside them."""

    def __init__(self, inputs, inner, outputs):
        super().__init__()
        self.reduce, self.bn_a = nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.spatial, self.bn_b = nn.Conv2d(inner, inner, 3, 1, 1, bias=False), nn.BatchNorm2d(inner)
        self.restore, self.bn_c = nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.project = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn_b(self.spatial(self.bn_a(self.reduce(x)).relu())).relu()
        return (self.bn_c(self.restore(y)) + self.project(x)).relu()


def test_convolutions_of_a_block_may_lead_to_what_it_gives_in_the_order_of_the_file(tmp_path):
    torch.manual_seed(0)
    body, out = nn.Sequential(Bottleneck(4, 2, 8), Bottleneck(8, 3, 12)), nn.Linear(12, 5)
    stem = nn.Conv2d(3, 4, 3, 1, 1)
    model = nn.ModuleDict({"stem": stem, "body": body, "exit": out}).eval()
    torch.save(model.state_dict(), tmp_path / "x.pt")
    answers = {key: value for key, value in RESIDUAL.items() if ":" not in key}
    x = torch.randn(2, 3, 6, 6)
    wanted = out(body(stem(x).relu()).mean((2, 3)))
    torch.testing.assert_close(mapper.build(tmp_path / "x.pt", hints=answers)(x).output, wanted)


def test_two_arms_of_equal_width_that_are_read_together_are_no_sum():
    arms = {"one": nn.Conv2d(4, 8, 1), "three_a": nn.Conv2d(4, 6, 1), "three_b": nn.Conv2d(6, 8, 3)}
    stem, out = nn.Conv2d(3, 4, 3), nn.Conv2d(16, 4, 3)
    model = nn.ModuleDict({"stem": stem, "mix": nn.ModuleDict(arms), "out": out, "fc": nn.Linear(4, 2)})
    found = mapper.inspect(model.state_dict()).architecture
    assert "mix.three_a" in {each.at for each in found.questions if each.fact == "chain.reads"}


def test_what_stands_at_the_end_of_a_list_in_a_list_is_asked():
    """That `net.0.1` comes before `net.1.0` shows nothing: a pooling has no tensors."""
    found = mapper.inspect(residual().state_dict()).architecture
    (asked,) = [each for each in found.questions if each.fact == "chain.pooling"]
    assert "net.0.1" in asked.at


def test_how_far_apart_a_causal_convolution_reads_is_asked():
    """A temporal convolutional network doubles it with each block (paper 1803.01271), and nothing stored shows it."""
    model = nn.ModuleDict({"network": nn.Sequential(nn.Conv1d(2, 4, 3), nn.Conv1d(4, 4, 3))})
    answers = {"chain.stride": 1, "chain.activation": "relu", "chain.pooling": "none", "chain.output": "none"}
    asked = mapper.inspect(
        model.state_dict(), hints={**answers, "chain.padding": "causal"}
    ).architecture.questions
    assert "chain.dilation" in {each.fact for each in asked}
    told = {**answers, "chain.padding": "causal", "chain.dilation": 1, "network.1:chain.dilation": 2}
    x = torch.randn(1, 2, 9)
    y = model["network"][0](F.pad(x, (2, 0))).relu()
    wanted = F.conv1d(F.pad(y, (4, 0)), model["network"][1].weight, model["network"][1].bias, dilation=2)
    torch.testing.assert_close(mapper.build(model.state_dict(), hints=told)(x).output, wanted)


def test_the_input_of_an_encoder_comes_before_that_of_its_decoder():
    parts = {
        name: nn.ModuleDict({"embedding": nn.Embedding(rows, 3), "rnn": nn.GRU(3, 4, batch_first=True)})
        for name, rows in (("encoder", 9), ("decoder", 8))
    }
    parts["decoder"]["out"] = nn.Linear(4, 5)
    answers = {"decoder.rnn:chain.state": "encoder.rnn", "chain.positions": "all", "chain.output": "none"}
    built = mapper.build(nn.ModuleDict(parts).state_dict(), hints=answers)
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    encoder, decoder = parts["encoder"], parts["decoder"]
    _, state = encoder["rnn"](encoder["embedding"](source))
    wanted = decoder["out"](decoder["rnn"](decoder["embedding"](target), state)[0])
    torch.testing.assert_close(built(source, target).output, wanted)


def test_what_a_decoder_reads_of_an_encoders_sequence_is_asked():
    """Autoencoders of sequences give it one code, at every step (paper 1502.04681); sizes allow all positions as well."""
    parts = {"encoder": nn.LSTM(3, 4, batch_first=True), "decoder": nn.LSTM(4, 4, batch_first=True)}
    model, x = nn.ModuleDict({**parts, "out": nn.Linear(4, 3)}), torch.randn(2, 5, 3)
    (asked,) = [
        each
        for each in mapper.inspect(model.state_dict()).architecture.questions
        if each.fact == "chain.positions"
    ]
    assert "encoder" in asked.at and "last_repeated" in asked.candidates
    answers = {"encoder:chain.positions": "last_repeated", "chain.positions": "all", "chain.output": "none"}
    _, (state, _) = model["encoder"](x)
    wanted = model["out"](model["decoder"](state[-1][:, None].expand(-1, 5, -1))[0])
    torch.testing.assert_close(mapper.build(model.state_dict(), hints=answers)(x).output, wanted)


def test_a_table_of_labels_may_stand_beside_the_input():
    """A layer of 9 inputs may read three labels of a table three wide, or one beside six numbers of noise (paper 1411.1784)."""
    model = nn.ModuleDict({"label_emb": nn.Embedding(5, 3), "model": nn.Sequential(nn.Linear(9, 4))})
    answers = {"chain.output": "tanh", "model.0:chain.reads": "label_emb & inputs"}
    asked = mapper.inspect(model.state_dict()).architecture.questions
    assert ("model.0", "chain.reads") in {(each.at, each.fact) for each in asked}
    labels, noise = torch.tensor([1, 4]), torch.randn(2, 6)
    wanted = model["model"](torch.cat([model["label_emb"](labels), noise], 1)).tanh()
    built = mapper.build(model.state_dict(), hints=answers)
    torch.testing.assert_close(built(input_ids=labels, inputs=noise).output, wanted)


def test_attention_in_the_loop_of_a_decoder_is_said_to_be_none_that_answers_say():
    """Additive attention to an encoder's states (paper 1409.0473), which the next step of the decoder reads."""

    def network(reads):
        attention = nn.ModuleDict({"Wa": nn.Linear(4, 4), "Ua": nn.Linear(4, 4), "Va": nn.Linear(4, 1)})
        encoder = nn.ModuleDict({"embedding": nn.Embedding(9, 4), "gru": nn.GRU(4, 4)})
        inner = {"embedding": nn.Embedding(8, 4), "attention": attention, "gru": nn.GRU(reads, 4)}
        decoder = nn.ModuleDict({**inner, "out": nn.Linear(4, 8)})
        model = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
        return mapper.inspect(model.state_dict()).architecture.notes

    assert any(note.startswith("'decoder.gru' has room for more than") for note in network(8))
    assert not any("has room for more" in note for note in network(4))
