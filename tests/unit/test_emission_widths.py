"""Extents that no flow declares: by the sizes that they have to equal, or one for all that are one width."""

from __future__ import annotations

import ast

import pytest

from mapper.catalogue import find
from mapper.emission import emit
from mapper.emission.expressions import expression
from mapper.emission.rolled import padding_text, period, repeated
from mapper.emission.rounds import Rounds, rounds_of
from mapper.inference import infer
from mapper.rulebook.examples import header, is_near_miss
from tests.shipped import RULEBOOK


def sizes_and_code(name: str) -> tuple[dict[str, str], str]:
    """The fields of the Config of a family's first example, or of a model of the catalogue, and the source behind them."""
    family = next((item for item in RULEBOOK.families if item.name == name), None)
    shown = next((item for item in family.examples if not is_near_miss(item)), None) if family else None
    text = emit(infer(header(shown) if shown else find(name), RULEBOOK))
    rows = (row.split("#")[0] for row in text.splitlines())
    pairs = (row.split(": ", 1) for row in rows if row.startswith("    ") and " = " in row and ": " in row)
    fields = {
        name.strip(): value.rpartition(" = ")[2].strip()
        for name, value in pairs
        if name.strip().isidentifier()
    }
    return fields, text.partition("class Output:")[2]


def test_the_units_of_a_codec_are_a_loop_over_its_channels() -> None:
    fields, code = sizes_and_code("facebook/encodec_24khz")
    channels = ast.literal_eval(fields["wave_encoder_channels"])
    assert len(channels) == len(ast.literal_eval(fields["wave_encoder_strides"])) + 1
    loop = code[code.index("for index, channels, inner_channels, out_channels, stride, kernel in zip(") :]
    assert "range(1, 13, 3)," in loop
    assert loop.index("config.wave_encoder_channels[:-1]") < loop.index("config.wave_encoder_channels[1:]")
    assert "(index, WaveEncoderUnits(channels=channels, out_channels=inner_channels))" in loop


@pytest.mark.parametrize(
    ("kinds", "numbers", "found"),
    [
        ([9, 1, 2, 1, 2, 1, 2, 3], [0, 1, 3, 4, 6, 7, 9, 10], Rounds(1, 2, 3, 3)),
        ([1, 2, 1, 2], [0, 1, 2, 3], None),  # few
        ([1, 2, 1, 2, 1, 2], [0, 1, 2, 3, 4, 9], None),  # not as far from each other
        ([1] * 9, [*range(9)], None),  # one class alone
        ([1, 2, 1, 2, 1, None], [0, 1, 2, 3, 4, 5], None),  # of one nothing is known
    ],
)
def test_the_same_classes_so_many_numbers_behind_each_other_are_rounds(
    kinds: list[int | None], numbers: list[int], found: Rounds | None
) -> None:
    assert rounds_of(kinds, numbers) == found


@pytest.mark.parametrize(
    ("name", "gone", "kept"),
    [
        (
            "llava-hf/llava-1.5-7b-hf",
            "output_size",
            "nn.Linear(config.projector_size, config.text_hidden_size)",
        ),
        (
            "facebook/encodec_24khz",
            "per_group",
            "out_channels=config.code_size",
        ),  # rows of codes, by an operation's words
        ("google/fnet-base", "embedding_size", "nn.Linear(config.hidden_size, config.hidden_size)"),  # tied
        ("jonatasgrosman/wav2vec2-large-xlsr-53-russian", "feature_size", "nn.LayerNorm(config.out_channels"),
    ],
)
def test_sizes_that_are_one_width_are_one_field(name: str, gone: str, kept: str) -> None:
    fields, code = sizes_and_code(name)
    assert gone not in fields
    assert kept in code


def test_leaves_that_differ_in_numbers_alone_are_a_loop_over_lists_of_the_config() -> None:
    _, code = sizes_and_code("facebook/mms-tts-eng")
    loop = code[code.index("nn.ConvTranspose1d(") :]
    assert "padding=(kernel_size - stride) // 2" in loop
    assert "for in_channels, out_channels, kernel_size, stride in zip(" in loop


def test_a_norm_is_as_long_as_the_map_before_it_where_no_flow_says_so() -> None:
    _, code = sizes_and_code("d_fine")
    assert "nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps)" in code


def test_rows_of_tables_below_each_other_and_columns_as_a_map_are_as_wide_as_before() -> None:
    fields, code = sizes_and_code("facebook/sam-vit-base")
    assert "neck_size" not in fields  # tokens see the image: both are one width
    assert "nn.Linear(config.decoder_hidden_size, config.decoder_heads * head_dim)" in code
    first = code[code.index('"upscale_conv1"') :].partition("kernel_size")[0]
    assert "config.decoder_hidden_size, config.enlarging_channels" in first


def test_prompts_are_as_wide_as_the_decoder_that_reads_them() -> None:
    _, code = sizes_and_code("facebook/sam-vit-base")
    assert (
        code.count("nn.Embedding(1, config.decoder_hidden_size)") == 7
    )  # of scores, of five kinds, of no mask
    assert "torch.zeros(2, config.decoder_hidden_size // 2)" in code


def test_what_is_joined_is_as_wide_as_its_parts_together() -> None:
    _, code = sizes_and_code("ustc-community/dfine-small-coco")
    assert "2 * (config.encoder_inner_channels // 2) + 2 * config.encoder_channels" in code


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([1, 1, 2, 2], "[size for size in sizes[1:] for _ in range(2)]"),
        ([0, 0, 1, 1, 2, 2], "[size for size in sizes for _ in range(2)]"),
        ([0, 0, 1], None),
        ([2, 2, 1, 1], None),
    ],
)
def test_elements_in_a_row_so_many_times_each_are_a_loop_in_a_loop(
    places: list[int], text: str | None
) -> None:
    node = repeated("sizes", places, 3)
    assert (node and expression(node)) == text


def test_numbers_that_come_again_are_said_once() -> None:
    assert [period((3, 7, 3, 7)), period((3, 7, 3)), period((1, 1))] == [2, 1, 2]


@pytest.mark.parametrize(
    ("paddings", "passed", "text"),
    [
        ((4, 1), {"kernel_size": (16, 4), "stride": (8, 2)}, "(kernel_size - stride) // 2"),
        ((1, 3), {"kernel_size": (3, 7)}, "kernel_size // 2"),
        ((1, 2), {"kernel_size": (3, 7)}, ""),
        ((1, 3), {}, ""),
    ],
)
def test_paddings_are_worked_out_where_they_are_the_usual_ones(
    paddings: tuple[int, ...], passed: dict[str, tuple[int, ...]], text: str
) -> None:
    assert padding_text(paddings, passed) == text


def test_a_list_whose_elements_are_called_in_turn_is_torch_s_own_sequence() -> None:
    _, code = sizes_and_code("timm/resnet18.a1_in1k")
    assert "class Stage(nn.Sequential):" in code
    assert "class Shortcut(nn.Sequential):" in code
    assert "nn.ModuleList" not in code


def test_layers_behind_a_first_one_are_counted_by_the_config_where_every_stage_has_two() -> None:
    _, code = sizes_and_code("timm/resnet18.a1_in1k")
    assert "*(Layer(channels=hidden_size) for _ in range(config.layers - 1))" in code


def test_stages_of_one_class_before_another_one_are_a_loop_over_parts_of_lists() -> None:
    _, code = sizes_and_code("laion/clap-htsat-fused")
    assert "for hidden_size, heads, layers, out_channels in zip(" in code
    assert "config.audio_hidden_sizes[:-1]" in code
    assert "config.audio_hidden_sizes[1:]" in code


def test_what_a_block_gives_is_no_inner_width_of_it() -> None:
    """The masks' embeddings are as wide as the map that they are multiplied with, not as the layers before them."""
    _, code = sizes_and_code("facebook/mask2former-swin-tiny-ade-semantic")
    assert "nn.Linear(config.inner_size, 256)" in code


def test_a_factor_by_which_a_forward_was_chosen_is_no_field() -> None:
    fields, code = sizes_and_code("laion/clap-htsat-fused")
    assert "norm_factor" not in fields
    assert (
        "nn.LayerNorm(2 * out_channels)" in code
    )  # before the projection; behind it, it would be as wide as that


def test_heads_that_a_forward_compares_with_others_stay_a_field() -> None:
    _, code = sizes_and_code("facebook/bart-large-cnn")
    assert "k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)" in code
    assert "16 * config.decoder_head_dim" not in code
