"""Small networks layer by layer, for drawn/chains.py: what people write of convolutions, recurrent and linear layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.drawn.chains import Sketch

SIDE = {1: (40,), 2: (20, 20)}


def _convolutions(s: Sketch, x: Tensor) -> Tensor:
    """Convolutions with norms and activations, each with a pooling or a stride."""
    one = s.one
    for number in range(1, one.depth + 1):
        s.begin()
        stride = 1 if one.pooling else 2
        x = s.normed(s.conv(x, one.width * min(number, 3), stride=stride))
        if one.pooling and (number < 4) and min(x.shape[2:]) > 1:
            x = s.pool(x, one.pooling)
    return x


def _linears(s: Sketch, x: Tensor, out: int, hidden: int = 12, words: bool = True) -> Tensor:
    """Linear layers with activations between them."""
    s.part("classifier", is_linear=True)
    for number in range(1, s.one.linears + 1):
        s.begin()
        is_last = number == s.one.linears
        x = s.linear(x, out if is_last else hidden + 2 * (s.one.linears - number))
        if not is_last:
            x = s.act(x)
            s.drop()
    return x


def images(s: Sketch) -> None:
    """Convolutions, and linear layers behind them (LeNet)."""
    x = s.take(2, s.pick((1, 3)), *SIDE[s.one.axes])
    x = _convolutions(s, x)
    s.end(_linears(s, s.reduce(x, s.one.reduction), 5), s.one.output)


def vectors(s: Sketch) -> None:
    """Linear layers."""
    one = s.one
    x = s.take(2, 10)
    s.part("layers", is_linear=True)
    for _ in range(one.depth):
        s.begin()
        x = s.normed(s.linear(x, one.width + 6))
        s.drop()
    s.begin()
    s.end(s.linear(x, 3), one.output)


def heads(s: Sketch) -> None:
    """Two heads: an actor and a critic, or a value and advantages (1511.06581)."""
    one = s.one
    words = s.pick(
        (("actor", "critic"), ("fc_pi", "fc_v"), ("policy_head", "value_head"), ("advantage", "value"))
    )
    x = s.take(2, 8)
    s.part("trunk", is_linear=True)
    for _ in range(one.depth):
        s.begin()
        x = s.act(s.linear(x, 16))
    if words[0] == "advantage":
        first, second = s.linear(x, 4, name="advantage"), s.linear(x, 1, name="value")
        s.outputs["output"] = second + first - first.mean(1, keepdim=True)
        return
    first = s.linear(x, 4, name=words[0])
    s.end(first, s.pick(("none", "softmax")), name=words[0])
    second = s.linear(x, 1, name=words[1])
    s.end(second, "none", name=words[1])


def words(s: Sketch) -> None:
    """Words, recurrent layers, a linear layer."""
    one = s.one
    ids = s.take(2, 7, words=30, name="input_ids")
    table = s.pick(("embedding", "embed", "emb", "word_embeddings", "encoder"))
    s.classes[table] = "Embedding"
    x = s.put(table, nn.Embedding(30, 10))(ids)
    s.main = table
    s.tell(table, "chain.positions", "all")
    name = s.pick(("lstm", "rnn", "gru", "encoder_rnn"))
    x = s.recurrent(x, 8, name, read=one.read, layers=one.layers, both=one.both_ways)
    if one.linears > 1 and one.read != "all":
        x = s.act(s.linear(x, 9, name="fc1"), "relu")
    x = s.linear(x, 4, name=s.pick(("fc", "linear", "out", "fc_out", "classifier")))
    s.end(x, one.output, is_sequence=x.dim() == 3)


def series(s: Sketch) -> None:
    """One or two recurrent layers over features, a linear layer."""
    one = s.one
    x = s.take(2, 9, 5)
    names = s.pick((("lstm",), ("lstm1", "lstm2"), ("rnn",), ("gru",), ("lstm_1", "lstm_2")))
    for name in names:
        is_last = name == names[-1]
        x = s.recurrent(
            x, 8, name, read=one.read if is_last else "all", layers=one.layers, both=one.both_ways
        )
    for number in range(1, one.linears):
        x = s.act(s.linear(x, 9, name=f"fc{number}"), "relu")
    x = s.linear(x, 3, name=s.pick(("fc", "linear", "out", "output_layer")))
    s.end(x, one.output, is_sequence=x.dim() == 3)


def convolved_series(s: Sketch) -> None:
    """Convolutions in time, a recurrent layer, a linear one."""
    one = s.one
    x = s.take(2, 4, 24)
    for number in range(1, min(one.depth, 2) + 1):
        s.begin()
        x = s.normed(s.conv(x, one.width * number, padding=1))
        if one.pooling:
            x = s.pool(x, one.pooling)
    x = s.recurrent(
        x.transpose(1, 2), 8, s.pick(("lstm", "rnn")), read=one.read, layers=one.layers, both=one.both_ways
    )
    x = s.linear(x, 3, name="fc")
    s.end(x, one.output, is_sequence=x.dim() == 3)


def cells(s: Sketch) -> None:
    """A cell that goes over positions, a linear layer."""
    one = s.one
    x = s.take(2, 6, 4)
    name = s.pick(("cell", "lstm_cell", "rnn_cell", "lstmcell"))
    cell = s.put(name, getattr(nn, f"{one.cell}Cell")(4, 7))
    s._enter(name)
    state, found = None, []
    for step in x.unbind(1):
        state = cell(step, state)
        found.append(state[0] if isinstance(state, tuple) else state)
    y = s.of_sequence(torch.stack(found, 1), one.read)
    y = s.linear(y, 3, name=s.pick(("fc", "linear", "out")))
    s.end(y, one.output, is_sequence=y.dim() == 3)


def residual(s: Sketch) -> None:
    """Blocks whose input is added (1512.03385), the first of each width through a convolution of its own."""
    one = s.one
    x = s.take(2, 3, 16, 16)
    stem = s.pick((("conv1", "bn1"), ("conv", "bn"), ("stem.0", "stem.1")))
    x = s.conv(x, one.width, 3, name=stem[0])
    x = s.act(s.norm(x, stem[1]), _plain(s))
    folder = s.pick(("layers.{}", "blocks.{}", "layer{}", "res{}", "res_block{}", "layer1.{}"))
    start = 0 if folder.endswith(".{}") else 1
    short = s.pick((("shortcut.0", "shortcut.1"), ("downsample.0", "downsample.1"), ("skip", "")))
    words = s.pick((("conv1", "bn1", "conv2", "bn2"), ("conv.0", "conv.1", "conv.3", "conv.4")))
    for number in range(one.depth):
        wider = number > 0 and one.variant < 2
        x = _block(s, x, folder.format(number + start), words, short, wider)
    x = s.reduce(x, "mean")
    s.end(s.linear(x, 5, name=s.pick(("fc", "linear", "classifier"))), "none")


def _plain(s: Sketch) -> str:
    return "relu" if s.one.activation == "prelu" else s.one.activation


def _block(
    s: Sketch, x: Tensor, home: str, words: tuple[str, ...], short: tuple[str, str], wider: bool
) -> Tensor:
    out, stride = (2 * x.shape[1], 2) if wider else (x.shape[1], 1)
    s.classes[home] = "BasicBlock"
    first = f"{home}.{words[0]}"
    y = s.conv(x, out, 3, stride, 1, name=first)
    y = s.act(s.norm(y, f"{home}.{words[1]}"), _plain(s))
    y = s.norm(s.conv(y, out, 3, 1, 1, name=f"{home}.{words[2]}"), f"{home}.{words[3]}")
    last, norm = s.main, s.norm_name
    before = s.one.variant % 2 == 0
    if wider:
        x = s.conv(x, out, 1, stride, 0, name=f"{home}.{short[0]}", bias=s.one.bias)
        x = s.norm(x, f"{home}.{short[1]}") if short[1] else x
    s.main = last
    s.tell(first, "chain.residual", "before_activation" if before else "after_activation")
    if before:
        s.norm_name = norm
        return s.act(x + y, _plain(s))
    return x + y


def autoencoder(s: Sketch) -> None:
    """Linear layers to a few numbers and back."""
    one = s.one
    x = s.take(2, 24)
    sizes = (24, 16, 12, 8, 4)[: one.depth + 1]
    for folder, way in (("encoder", sizes[1:]), ("decoder", sizes[-2::-1])):
        s.part(folder, is_linear=True)
        for number, size in enumerate(way, 1):
            is_end = folder == "decoder" and number == len(way)
            name = f"{folder}.{s.index}" if one.variant < 2 else f"{folder[:3]}_fc{number}"
            x = s.linear(x, size, name=name)
            s.index += 1
            if not is_end and (number < len(way) or one.variant % 2):
                x = s.act(x, _plain(s))
    s.end(x, s.pick(("sigmoid", "none")))


def maps_autoencoder(s: Sketch) -> None:
    """Convolutions down, transposed ones up, or upsampling with convolutions."""
    one = s.one
    x = s.take(2, 1, 16, 16)
    count = min(one.depth, 3)
    widths = [one.width * 2**number for number in range(count)]
    folder, other = s.pick((("encoder", "decoder"), ("enc", "dec"), ("encoder_", "decoder_")))
    is_listed = one.variant < 2 and not folder.endswith("_")
    s.part(folder)
    for number, width in enumerate(widths, 1):
        name = f"{folder}.{s.index}" if is_listed else f"{folder.rstrip('_')}_conv{number}"
        s.index += 1
        x = s.conv(x, width, 3, 1 if one.pooling else 2, 1, name=name)
        x = s.act(x, _plain(s))
        x = s.pool(x, one.pooling) if one.pooling else x
    s.part(other)
    for number, width in enumerate([*widths[-2::-1], 1], 1):
        name = f"{other}.{s.index}" if is_listed else f"{other.rstrip('_')}_conv{number}"
        s.index += 1
        kernel, padding, more = s.pick(((2, 0, 0), (3, 1, 1), (4, 1, 0)))
        x = s.up(x, width, kernel, 2, padding, more, name=name)
        x = s.act(x, _plain(s)) if number < count else x
    s.end(x, s.pick(("sigmoid", "none", "tanh")))
    s.tell(s.main, "chain.skip", "none")


def variational(s: Sketch) -> None:
    """A mean and a spread between linear layers (1312.6114); no sample is drawn."""
    names = s.pick((("fc1", "fc21", "fc22", "fc3", "fc4"), ("encoder.0", "fc_mu", "fc_logvar", "decoder.0", "decoder.2"),
                    ("fc1", "mu", "logvar", "fc2", "fc3"), ("enc", "mean_layer", "logvar_layer", "dec1", "dec2")))  # fmt: skip
    x = s.take(2, 20)
    y = s.act(s.linear(x, 12, name=names[0]), _plain(s))
    mean = s.linear(y, 3, name=names[1])
    spread = s.linear(y, 3, name=names[2])
    z = s.act(s.linear(mean, 12, name=names[3]), _plain(s))
    s.outputs |= {"mean": mean, "spread": spread}
    s.end(s.linear(z, 20, name=names[4]), s.pick(("sigmoid", "none")))


def u_net(s: Sketch) -> None:
    """Maps of the way down beside those of the way up (1505.04597)."""
    one = s.one
    depth = min(max(one.depth, 2), 3)
    down, middle, up, twice, last = s.pick((
        ("down{}", "bottleneck", "up{}", "conv_up{}", "final"), ("enc{}", "bottleneck", "upconv{}", "dec{}", "final_conv"),
        ("encoder{}", "center", "upconv{}", "decoder{}", "conv_last"), ("downs.{}", "bottleneck", "ups.{}", "up_convs.{}", "final_conv"),
        ("dconv_down{}", "mid", "upconv{}", "dconv_up{}", "conv_last"),
    ))  # fmt: skip
    start = 0 if "." in down else 1
    x, kept = s.take(2, s.pick((1, 3)), 16, 16), []
    width = one.width
    for number in range(depth):
        x = _twice(s, x, width * 2**number, down.format(number + start))
        kept.append(x)
        x = s.pool(x, "max")
    x = _twice(s, x, width * 2**depth, middle)
    order = s.pick(("earlier_first", "later_first"))
    falls = s.pick((True, False)) and "." not in up
    for number in reversed(range(depth)):
        at = (number if falls else depth - 1 - number) + start
        x = s.up(x, width * 2**number, name=up.format(at))
        pair = (kept.pop(), x) if order == "earlier_first" else (x, kept.pop())
        x = _twice(s, torch.cat(pair, 1), width * 2**number, twice.format(at), joined=order)
    s.end(s.conv(x, s.pick((1, 2)), 1, name=last), s.pick(("none", "sigmoid")))
    s.tell(last, "chain.skip", "none")


def _twice(s: Sketch, x: Tensor, out: int, home: str, joined: str = "") -> Tensor:
    one = s.one
    s.classes[home] = "DoubleConv"
    if one.variant % 2:
        names = ("conv1", "bn1", "conv2", "bn2")
    else:
        names = ("0", "1", "3", "4") if one.norm else ("0", "", "2", "")
        names = tuple(f"double_conv.{name}" for name in names) if one.variant == 2 else names
    for conv, norm in (names[:2], names[2:]):
        x = s.conv(x, out, 3, 1, 1, name=f"{home}.{conv}")
        if joined:
            s.tell(s.main, "chain.joined", joined)
            joined = ""
        x = s.act(s.norm(x, f"{home}.{norm}"), _plain(s))
    return x


def larger(s: Sketch) -> None:
    """A larger image: slopes, residual blocks, pixels of channels (1609.04802)."""
    one = s.one
    x = s.take(1, 3, 9, 10)
    first, last = s.pick(
        (("conv_in", "conv_out"), ("conv1", "conv2"), ("head", "tail"), ("input_conv", "output_conv"))
    )
    y = s.conv(x, one.width, 3, 1, 1, name=first)
    if one.activation == "prelu":
        s.pick((1,))
        y = s.act(y, name=f"prelu_{first}")
    else:
        y = s.act(y)
    for number in range(one.depth):
        home = f"body.{number}"
        s.classes[home] = "ResBlock"
        z = s.act(s.conv(y, one.width, 3, 1, 1, name=f"{home}.conv1"), _plain(s))
        z = s.conv(z, one.width, 3, 1, 1, name=f"{home}.conv2")
        s.tell(f"{home}.conv1", "chain.residual", "after_activation")
        y = y + z
    y = s.conv(y, 12, 3, 1, 1, name=last)
    s.tell(last, "chain.shuffle", 2)
    s.tell(last, "chain.skip", "none")
    s.end(F.pixel_shuffle(y, 2))


def siamese(s: Sketch) -> None:
    """One network, or both of a pair through it; an embedding of unit length, or none."""
    x = _convolutions(s, s.take(2, 1, 20, 20))
    y = _linears(s, s.reduce(x, "flatten"), 6)
    s.end(y, s.pick(("normalised", "none")))


def dense(s: Sketch) -> None:
    """Each convolution reads all that came before it (1608.06993)."""
    one = s.one
    x = s.take(2, 3, 12, 12)
    y = s.act(s.conv(x, one.width, 3, 1, 1, name="conv0"), _plain(s))
    s.tell("conv0", "chain.reads", "inputs")
    text = "conv0"
    folder = s.pick(("dense.conv{}", "block.layers.{}", "dense_layers.{}", "conv_d{}"))
    for number in range(1, one.depth + 1):
        name = folder.format(number - ("." in folder and folder.endswith("{}") and "conv" not in folder))
        s.reads = text
        z = s.act(s.conv(y, 4, 3, 1, 1, name=name), _plain(s))
        y = torch.cat((y, z), 1)
        text += f" & {name}"
    s.reads = f"mean({text})"
    s.end(s.linear(y.mean((2, 3)), 4, name="fc"))


def excited(s: Sketch) -> None:
    """Channels gated by what their means say (1709.01507)."""
    one = s.one
    x = s.take(2, 3, 12, 12)
    y = s.act(s.norm(s.conv(x, one.width, 3, 1, 1, name="conv1"), "bn1"), _plain(s))
    home = s.pick(("se.fc", "se", "se1.fc", "attention.fc"))
    names = (f"{home}.0", f"{home}.2") if home.endswith("fc") else (f"{home}.fc1", f"{home}.fc2")
    s.classes[home.partition(".")[0]] = "SEBlock"
    s.reads = "mean(conv1)"
    z = s.act(s.linear(y.mean((2, 3)), max(one.width // 2, 2), name=names[0]), "relu")
    s.reads = names[0]
    z = torch.sigmoid(s.linear(z, one.width, name=names[1]))
    s.reads = f"conv1 * sigmoid({names[1]})"
    y = y * z[..., None, None]
    y = s.act(s.norm(s.conv(y, 2 * one.width, 3, 1, 1, name="conv2"), "bn2"), _plain(s))
    s.reads = "mean(conv2)"
    s.reduced = "mean"
    s.end(s.linear(y.mean((2, 3)), 4, name="fc"))


def attentive(s: Sketch) -> None:
    """A recurrent layer, and attention over its positions."""
    one = s.one
    ids = s.take(2, 7, words=30, name="input_ids")
    table, name = s.pick((("embedding", "lstm"), ("emb", "rnn"), ("embed", "gru")))
    x = s.put(table, nn.Embedding(30, 10))(ids)
    s.main = table
    s.reads = table
    x = s.recurrent(x, 8, name, read="all", both=one.both_ways)
    word = s.pick(("attention", "attn", "score", "attention.score"))
    s.reads = name
    scores = s.linear(x, 1, name=word)
    s.reads = f"sum(softmax({word}) * {name})"
    y = (F.softmax(scores, 1) * x).sum(1)
    s.end(s.linear(y, 4, name=s.pick(("fc", "out"))))


def generator(s: Sketch) -> None:
    """Transposed convolutions from a vector to an image (1511.06434), or a linear layer first."""
    one = s.one
    if one.variant < 2:
        x = s.take(2, 6, 1, 1)
        strides: tuple[tuple[int, int], ...] = ((1, 0), (2, 1), (2, 1))
    else:
        x = s.take(2, 6)
        y = s.act(
            s.linear(x, 16 * 16, name=s.pick(("fc", "l1.0", "linear"))),
            "relu" if one.variant == 2 else "none",
        )
        x = y.unflatten(1, (16, 4, 4))
        strides = ((2, 1), (2, 1))
    folder = s.pick(("main", "model", "net", "deconv"))
    widths = (12, 8, 3) if len(strides) == 3 else (8, 3)
    index = 0
    for number, ((stride, padding), width) in enumerate(zip(strides, widths, strict=True), 1):
        name = f"deconv{number}" if folder == "deconv" else f"{folder}.{index}"
        x = s.up(x, width, 4, stride, padding, name=name)
        if number < len(strides):
            x = s.norm(x, f"bn{number}" if folder == "deconv" else f"{folder}.{index + 1}", kind="batch")
            x = s.act(x, "relu")
        index += 3
    s.end(x, "tanh")
    s.tell(s.main, "chain.skip", "none")


def pairs(s: Sketch) -> None:
    """Users and items (1708.05031): two tables side by side, linear layers."""
    one = s.one
    users, items = s.pick(
        (("user_embedding", "item_embedding"), ("user_emb", "movie_emb"), ("embed_user", "embed_item"))
    )
    found = []
    for name, count in ((users, 20), (items, 30)):
        ids = s.take(4, words=count, name=f"{name}_ids")
        s.main = name
        s.tell(name, "chain.reads", f"{name}_ids")
        found.append(s.put(name, nn.Embedding(count, 8))(ids))
    x = torch.cat(found, -1)
    text = f"{users} & {items}"
    for number in range(1, one.linears + 1):
        s.reads, text = text, f"fc{number}"
        x = s.linear(x, 12 if number < one.linears else 1, name=f"fc{number}")
        x = s.act(x, _plain(s)) if number < one.linears else x
    s.truth["chain.inputs"] = f"{users}_ids,{items}_ids"
    s.end(x, s.pick(("none", "sigmoid")))


def arms(s: Sketch) -> None:
    """Convolutions of several lengths over words (1408.5882)."""
    ids = s.take(2, 9, words=30, name="input_ids")
    table = s.pick(("embedding", "embed", "word_embeddings"))
    x = s.put(table, nn.Embedding(30, 10))(ids).transpose(1, 2)
    s.main = table
    found = []
    for number, kernel in enumerate((2, 3, 4)):
        name = f"convs.{number}" if s.one.variant < 3 else f"conv{number + 1}"
        y = s.act(s.conv(x, 6, kernel, 1, 0, name=name, bias=True), "relu")
        found.append(y.amax(-1))
    s.reduced = "max"
    s.end(s.linear(torch.cat(found, 1), 3, name="fc"))


def depthwise(s: Sketch) -> None:
    """Convolutions of each channel by itself, then of one place (1704.04861)."""
    one = s.one
    x = s.take(2, 3, 16, 16)
    names = s.pick((("features.{}.conv.0", "features.{}.conv.1", "features.{}.conv.3", "features.{}.conv.4"),
                    ("blocks.{}.depthwise", "blocks.{}.bn1", "blocks.{}.pointwise", "blocks.{}.bn2")))  # fmt: skip
    x = s.act(s.norm(s.conv(x, 8, 3, 2, 1, name="conv1"), "bn1"), "relu")
    for number in range(one.depth):
        deep, first, point, second = (name.format(number) for name in names)
        s.classes[deep.rpartition(".")[0].removesuffix(".conv")] = "DepthwiseSeparableConv"
        x = s.act(s.norm(s.conv(x, x.shape[1], 3, 1, 1, groups=x.shape[1], name=deep), first), "relu")
        x = s.act(s.norm(s.conv(x, 8 * (number + 2), 1, 1, 0, name=point), second), "relu")
    s.end(s.linear(s.reduce(x, "mean"), 4, name="fc"))


def attention(s: Sketch) -> None:
    """Self-attention of one head between linear layers."""
    x = s.take(2, 7, 5)
    table = s.pick(("input_proj", "embed", "fc_in"))
    x = s.linear(x, 8, name=table)
    home = s.pick(("attn", "attention", "self_attn"))
    words = s.pick(
        (("q", "k", "v"), ("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("W_q", "W_k", "W_v"))
    )
    q, k, v = (s.linear(x, 8, name=f"{home}.{word}") for word in words)
    s.classes[home] = "SelfAttention"
    y = F.softmax(q @ k.transpose(1, 2) / 8**0.5, -1) @ v
    y = s.linear(y, 8, name=f"{home}.{s.pick(('out', 'out_proj', 'proj'))}")
    y = x + y
    s.outputs["output"] = s.linear(y.mean(1), 3, name=s.pick(("fc_out", "head")))


RECIPES: dict[str, Callable[[Sketch], None]] = {
    one.__name__: one
    for one in (
        images, vectors, heads, words, series, convolved_series, cells, residual, autoencoder, maps_autoencoder, variational,
        u_net, larger, siamese, dense, excited, attentive, generator, pairs, arms, depthwise, attention,
    )
}  # fmt: skip
