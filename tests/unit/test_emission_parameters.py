"""The parameters of a generated class: joined where they always agree, derived, and without what all of them begin with."""

from __future__ import annotations

import ast
import random

import pytest

from mapper.architecture import Fact, Place
from mapper.emission.drafts import Argument, ClassText, Draft
from mapper.emission.module_tree import Folder
from mapper.emission.parameters import tidy


def class_of(**values):
    """A class whose constructor is given these values in two places, each in one line of its own."""
    parameters = {name: [Argument(name, value) for value in pair] for name, pair in values.items()}
    return ClassText("Unit", [], parameters, False, list(parameters))


def given(done: ClassText) -> dict[str, list[object]]:
    return {name: [argument.value for argument in held] for name, held in done.parameters.items()}


def test_channels_that_agree_everywhere_are_one():
    done = class_of(one_in_channels=(8, 4), one_out_channels=(8, 4), two_in_channels=(8, 4))
    tidy(done)
    assert given(done) == {"channels": [8, 4]}
    assert done.resolved == ["channels"] * 3


def test_channels_that_differ_once_stay_two():
    done = class_of(one_in_channels=(8, 4), one_out_channels=(8, 2), two_stride=(1, 2))
    tidy(done)
    assert list(given(done)) == ["one_in_channels", "one_out_channels", "two_stride"]


def test_values_that_agree_by_chance_stay_two():
    done = class_of(one_stride=(2, 4), two_channels=(2, 4))
    tidy(done)
    assert list(given(done)) == ["one_stride", "two_channels"]


def test_padding_by_half_of_the_kernel_is_written_so():
    done = class_of(one_kernel_size=(3, 7), one_padding=(1, 3), two_padding=(1, 3))
    tidy(done)
    assert list(given(done)) == ["one_kernel_size", "padding"]  # of two leaves, one without that kernel
    done = class_of(patch_stride=(2, 4), patch_kernel_size=(3, 7), patch_padding=(1, 3))
    tidy(done)
    assert given(done) == {"stride": [2, 4], "kernel_size": [3, 7]}
    assert done.resolved == ["stride", "kernel_size", "kernel_size // 2"]
    assert done.is_short


def test_no_parameter_becomes_a_keyword_or_a_number():
    done = class_of(conv_0_kernel_size=(3, 5), unit_0_kernel_size=(3, 5))
    tidy(done)
    assert given(done) == {"kernel_size": [3, 5]}
    done = class_of(in_is=(1, 2), in_size=(3, 4))
    tidy(done)
    assert list(given(done)) == ["in_is", "in_size"]


def test_what_a_fact_names_keeps_its_name():
    fact = Fact("patches.stride", 2, "", "shape", "")
    held = [Argument("stride", value, ast.Name("stride"), {"stride": fact}) for value in (2, 4)]
    done = ClassText("Unit", [], {"patches_stride": held, "patches_base": held}, False, ["patches_stride"])
    tidy(done)
    assert list(done.parameters) == ["patches_stride", "patches_base"]


def test_a_width_that_two_parts_share_is_one_parameter():
    fact = Fact("layer.inner_size", 8, "", "shape", "")
    inner = [Argument("inner_size", value, ast.Name("inner_size"), {"inner_size": fact}) for value in (8, 4)]
    plain = [Argument("expansion_out_channels", value) for value in (8, 4)]
    kernels = [Argument("kernel_size", value) for value in (8, 4)]
    parameters = {"expansion_out_channels": plain, "inner_size": inner, "kernel_size": kernels}
    done = ClassText(
        "Unit", [], parameters, False, ["expansion_out_channels", "2 * inner_size", "kernel_size"]
    )
    tidy(done)
    assert list(done.parameters) == ["inner_size", "kernel_size"]
    assert done.resolved == ["inner_size", "2 * inner_size", "kernel_size"]


def test_an_extent_of_a_tensor_by_itself_is_the_width_that_it_always_has():
    done = class_of(alpha_size1=(8, 4), conv_channels=(8, 4), conv_stride=(8, 4))
    tidy(done)
    assert given(done) == {"channels": [8, 4], "stride": [8, 4]}
    assert done.resolved == ["channels", "channels", "stride"]
    done = class_of(alpha_size1=(8, 8), conv_channels=(8, 8))  # by chance, it may be
    tidy(done)
    assert list(given(done)) == ["alpha_size1", "conv_channels"]


def test_two_groups_of_other_values_do_not_get_one_name():
    same = {"one_in_channels": (8, 4), "two_out_channels": (8, 4)}
    done = class_of(**same, three_in_channels=(16, 2), four_out_channels=(16, 2))
    tidy(done)
    assert sorted(given(done).values()) == [[8, 4], [16, 2]]
    assert len(set(done.resolved)) == 2


def test_a_shorter_name_is_not_that_of_another_parameter():
    done = class_of(conv_stride=(1, 2), conv_conv_stride=(3, 4))
    tidy(done)
    assert [given(done)[text] for text in done.resolved] == [[1, 2], [3, 4]]


def test_names_begin_with_a_letter_and_hide_nothing():
    done = class_of(left_3x3_in_channels=(3, 5), right_3x3_in_channels=(3, 5))
    tidy(done)
    assert all(name.isidentifier() for name in given(done))
    done = class_of(has_range=(1, 2), has_zip=(3, 4))
    tidy(done)
    assert list(given(done)) == ["has_range", "has_zip"]


def test_a_parameter_is_not_called_like_what_a_comprehension_binds():
    done = class_of(one_in_channels=(8, 4), one_out_channels=(8, 4))
    draft = Draft(Folder(Place(())))
    draft.loops.add("channels")
    done.drafts.append(draft)
    tidy(done)
    assert "channels" not in given(done)


@pytest.mark.parametrize("seed", range(200))
def test_every_argument_keeps_its_values(seed):
    """Whatever is joined and renamed: the text of an argument names a parameter of its values, or half of one."""
    draw = random.Random(seed)
    words = ["conv", "one", "in", "3x3", "0", "down"]
    ends = ["in_channels", "out_channels", "stride", "kernel_size", "padding", "features", "hidden_size"]
    names = {"_".join([*draw.choices(words, k=draw.randint(0, 2)), draw.choice(ends)]) for _ in range(6)}
    names = {name for name in sorted(names) if name.isidentifier()}
    values = {name: draw.choice([(3, 5), (1, 2), (8, 4)]) for name in sorted(names)}
    done = class_of(**values)
    tidy(done)
    for (name, pair), text in zip(values.items(), done.resolved, strict=True):
        found, _, half = text.partition(" // ")
        held = given(done)[found]
        assert [value // 2 for value in held] == [*pair] if half else held == [*pair], (name, text)
        assert found.isidentifier()


def test_a_word_that_stands_twice_in_a_row_is_said_once():
    done = class_of(in_channels=(8, 4), layers_layers_in_channels=(16, 8), layers_layers_stride=(1, 2))
    tidy(done)
    assert list(given(done)) == ["in_channels", "layers_in_channels", "layers_stride"]
    taken = class_of(a_b_size=(1, 2), a_a_b_size=(3, 4))
    tidy(taken)
    assert list(given(taken)) == ["b_size", "a_b_size"]
