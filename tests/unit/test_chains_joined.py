"""Maps of an earlier layer that a later one reads too: added, interpolated, or of every layer of a block."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper
from mapper.errors import HintError
from tests.unit.test_chains_told import MAPS, asked, given, layers


def conv(inputs, outputs, **more):
    return nn.Conv2d(inputs, outputs, 3, **{"padding": 1, **more})


def link_net():
    """A network whose way up adds the maps of the way down (LinkNet, 1707.03718)."""
    return layers(
        **{"enc1.0": conv(2, 4), "enc2.0": conv(4, 8, stride=2), "up": nn.ConvTranspose2d(8, 4, 2, 2)},
        **{"dec1.0": conv(4, 4), "final": nn.Conv2d(4, 1, 1)},
    )


@torch.no_grad()
@pytest.mark.parametrize("said", ["added", "added+relu", "none"])
def test_it_is_asked_whether_larger_maps_are_added_to_earlier_ones(said):
    net, x = link_net(), torch.randn(1, 2, 8, 8)
    hints = {**MAPS, "enc2.0:chain.stride": 2, "up:chain.activation": "none", "dec1.0:chain.kind": "plain"}
    hints |= {"chain.up_stride": 2, "chain.up_padding": 0}
    assert asked(net, hints) == {"chain.joined": ("none", "added")}
    first = F.relu(net["enc1.0"](x))
    larger = net["up"](F.relu(net["enc2.0"](first)))
    read = {"none": larger, "added": first + larger, "added+relu": F.relu(first + larger)}[said]
    wanted = net["final"](F.relu(net["dec1.0"](read)))
    torch.testing.assert_close(given(net, {**hints, "chain.joined": said}, x), wanted)
    for wrong in ("earlier_first", "added+nothing"):
        with pytest.raises(HintError, match=r"allowed: none, added|no activation"):
            mapper.build(net.state_dict(), hints={**hints, "chain.joined": wrong})


def test_a_kernel_of_another_size_shows_nothing_of_the_kind():
    """`dec1` reads as many channels as it gives, and what is transposed beside it has two places."""
    assert asked(link_net())["dec1.0:chain.kind"] == ("transposed", "plain")


def test_nothing_is_added_within_a_list_or_around_a_row():
    encoder = nn.Sequential(conv(1, 4, stride=2), nn.ReLU(), conv(4, 6, stride=2))
    decoder = nn.Sequential(
        nn.ConvTranspose2d(6, 4, 3, 2, 1, 1), nn.ReLU(), nn.ConvTranspose2d(4, 1, 3, 2, 1, 1)
    )
    assert "chain.joined" not in asked(layers(encoder=encoder, decoder=decoder))
    row = layers(conv1=conv(1, 8, stride=2), fc1=nn.Linear(128, 5), fc2=nn.Linear(5, 128))
    row |= layers(up1=nn.ConvTranspose2d(8, 8, 4, 2, 1), up2=conv(8, 1))
    assert "chain.joined" not in asked(row)


@torch.no_grad()
@pytest.mark.parametrize(("word", "more"), [("bilinear_2", {}), ("aligned_2", {"align_corners": True})])
def test_a_way_up_without_transposed_convolutions_reads_earlier_maps(word, more):
    """A U-Net (1505.04597) that interpolates: its convolutions read as many channels as two layers give."""
    net, x = layers(inc=conv(2, 4), down1=conv(4, 8), down2=conv(8, 8)), torch.randn(1, 2, 8, 8)
    net |= layers(up1=conv(16, 4), up2=conv(8, 4), outc=nn.Conv2d(4, 3, 1))
    joined = asked(net)
    assert joined["chain.joined"] == ("earlier_first", "later_first")
    assert {"bilinear_2", "aligned_2"} <= {*joined["chain.pooling"]}
    hints = {**MAPS, "chain.joined": "later_first", "chain.residual": "none", "inc:chain.pooling": "max_2"}
    hints |= {"down1:chain.pooling": "max_2", "down2:chain.pooling": word, "up1:chain.pooling": word}
    first = F.relu(net["inc"](x))
    second = F.relu(net["down1"](F.max_pool2d(first, 2)))
    read = F.relu(net["down2"](F.max_pool2d(second, 2)))
    for name, earlier in (("up1", second), ("up2", first)):
        read = F.interpolate(read, scale_factor=2, mode="bilinear", **more)
        read = F.relu(net[name](torch.cat((read, earlier), 1)))
    torch.testing.assert_close(given(net, hints, x), net["outc"](read))
    with pytest.raises(HintError, match=r"as large as what up1 reads"):
        mapper.build(net.state_dict(), hints={**hints, "down2:chain.pooling": "none"})


@torch.no_grad()
def test_layers_of_a_dense_block_read_all_that_came_before():
    """DenseNet (1608.06993): norm, activation and convolution, each beside what it read."""
    net = layers(stem=conv(2, 6)).eval()
    for at in range(3):
        net |= layers(
            **{
                f"dense.layers.{at}.0": nn.BatchNorm2d(6 + 4 * at),
                f"dense.layers.{at}.2": conv(6 + 4 * at, 4),
            }
        )
    net |= layers(trans=nn.Conv2d(18, 5, 1))
    net.eval()
    found = asked(net)
    second = "stem & dense.layers.0.2 & dense.layers.1.2"
    assert found["dense.layers.1.2:chain.reads"][0] == "stem & dense.layers.0.2"
    assert found["dense.layers.2.2:chain.reads"][0] == second
    assert found["trans:chain.reads"][0] == f"{second} & dense.layers.2.2"
    hints = {name: candidates[0] for name, candidates in found.items() if name.endswith("reads")}
    hints |= {**MAPS, "chain.activation": "none"}
    hints |= {f"dense.layers.{at}.0:chain.activation": "relu" for at in range(3)}
    read = net["stem"](x := torch.randn(2, 2, 6, 6))
    for at in range(3):
        more = net[f"dense.layers.{at}.2"](F.relu(net[f"dense.layers.{at}.0"](read)))
        read = torch.cat((read, more), 1)
    torch.testing.assert_close(given(net, hints, x), net["trans"](read))


@torch.no_grad()
@pytest.mark.parametrize(("home", "last"), [("body.{}", "body.2"), ("body.{}", "mid"), ("block{}", "after")])
@pytest.mark.parametrize("said", ["added", "none"])
def test_a_long_skip_goes_around_residual_blocks_with_a_factor(said, home, last):
    """EDSR (1707.02921): blocks that count a tenth, a convolution behind them, and what they read."""
    blocks = [home.format(at) for at in (0, 1)]
    net = layers(head=conv(3, 4), **{f"{block}.conv{n}": conv(4, 4) for block in blocks for n in (1, 2)})
    net |= layers(**{last: conv(4, 4)}, tail=conv(4, 3))
    hints = {
        **MAPS,
        "chain.activation": "none",
        "chain.residual": "before_activation*0.1",
        "chain.skip": "none",
    }
    hints |= {f"{block}.conv1:chain.activation": "relu" for block in blocks}
    assert asked(net, hints) == {"chain.long_skip": ("none", "added")}
    first = read = net["head"](x := torch.randn(1, 3, 6, 6))
    for block in blocks:
        read = read + 0.1 * net[f"{block}.conv2"](F.relu(net[f"{block}.conv1"](read)))
    read = net[last](read) + (first if said == "added" else 0)
    torch.testing.assert_close(given(net, {**hints, "chain.long_skip": said}, x), net["tail"](read))
    for wrong in ({"chain.long_skip": "before"}, {"chain.residual": "before_activation*x"}):
        with pytest.raises(HintError, match="allowed"):
            mapper.build(net.state_dict(), hints=hints | {"chain.long_skip": said} | wrong)


@torch.no_grad()
def test_a_norm_of_which_it_is_told_what_it_reads_stands_by_itself():
    """Behind a sum, where its number puts it behind a layer."""
    net = layers(conv1=conv(2, 4), conv2=conv(4, 4), bn2=nn.BatchNorm2d(4), out=conv(4, 1)).eval()
    first = F.relu(net["conv1"](x := torch.randn(2, 2, 6, 6)))
    wanted = net["out"](net["bn2"](F.relu(net["conv2"](first)) + first))
    hints = {
        "bn2:chain.reads": "relu(conv2) + relu(conv1)",
        "conv2:chain.reads": "relu(conv1)",
        "out:chain.reads": "bn2",
    }
    torch.testing.assert_close(given(net, {**MAPS, "chain.activation": "none", **hints}, x), wanted)


@torch.no_grad()
def test_heads_of_several_layers_share_a_word():
    """A policy and a value over the maps of one trunk (1712.01815)."""
    net = layers(conv=conv(3, 6), bn=nn.BatchNorm2d(6)).eval()
    net |= layers(**{f"res_{at}.conv{n}": conv(6, 6) for at in (0, 1) for n in "AB"})
    net |= layers(
        p_conv=nn.Conv2d(6, 2, 1), p_fc=nn.Linear(24, 5), v_conv=nn.Conv2d(6, 1, 1), v_fc1=nn.Linear(12, 4)
    )
    net |= layers(v_fc2=nn.Linear(4, 1))
    net.eval()
    read = F.relu(net["bn"](net["conv"](x := torch.randn(2, 3, 3, 4))))
    for at in (0, 1):
        read = F.relu(read + net[f"res_{at}.convB"](F.relu(net[f"res_{at}.convA"](read))))
    value = F.relu(net["v_fc1"](F.relu(net["v_conv"](read)).flatten(1)))
    hints = {**MAPS, "chain.activation_before_norm": "false", "chain.residual": "before_activation"}
    found = mapper.build(net.state_dict(), hints={**hints, "chain.reduction": "flatten"})(x)
    torch.testing.assert_close(found.p_fc, net["p_fc"](F.relu(net["p_conv"](read)).flatten(1)))
    torch.testing.assert_close(found.v_fc2, net["v_fc2"](value))


def test_it_is_said_how_to_say_what_layers_read_whose_order_nothing_shows():
    sizes = [(14, 8), (8, 8), (8, 1)]
    net = layers(**{f"l{at}": nn.Linear(*sizes[(at - 1) % 3]) for at in range(1, 7)})
    missing = mapper.inspect(net.state_dict()).architecture.missing
    assert any("--set 'l2:chain.reads=l1'" in text for text in missing)


def test_the_example_of_what_a_layer_reads_is_of_two_whose_sizes_fit():
    net = layers(
        alpha=nn.Linear(32, 1), feature=nn.Linear(32, 32), points=nn.Linear(15, 32), views=nn.Linear(41, 16)
    )
    missing = mapper.inspect(net.state_dict()).architecture.missing
    assert any("--set 'alpha:chain.reads=feature'" in text for text in missing)


def test_no_value_is_offered_for_all_blocks_that_one_of_them_cannot_have():
    """Beside a convolution of one place around a block there is something to add."""
    plain = {f"unit1.{name}": conv(4, 4) for name in ("a", "b")}
    around = {"unit2.a": conv(4, 8), "unit2.b": conv(8, 8), "unit2.downsample": nn.Conv2d(4, 8, 1)}
    net = layers(stem=conv(3, 4), **plain, **around, fc=nn.Linear(8, 2))
    questions = mapper.inspect(net.state_dict()).architecture.questions
    (residual,) = (question for question in questions if question.fact == "chain.residual")
    assert {"unit1.a", "unit2.a"} <= {*residual.places}
    assert "none" not in residual.candidates and "before_activation" in residual.candidates


def test_heads_are_what_is_left_of_the_longest_trunk_in_any_order_of_the_file():
    """`actor` and `critic` stand before `fc1` and `fc2` where a container sorts by names."""
    net = layers(fc1=nn.Linear(8, 6), fc2=nn.Linear(6, 6), actor=nn.Linear(6, 4), critic=nn.Linear(6, 1))
    for names in (sorted(net), list(net)):
        state = {f"{name}.{key}": value for name in names for key, value in net[name].state_dict().items()}
        made = mapper.build(state, hints={"chain.activation": "relu", "chain.output": "none"})
        assert set(vars(made(torch.randn(2, 8)))) == {"actor", "critic"}
