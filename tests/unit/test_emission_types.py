"""What torch's own annotations do not tell, the generated source says: mypy passes over it as it is shipped."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest

import mapper

generated = lru_cache(mapper.generate)


def test_containers_that_a_forward_looks_into_may_hold_anything():
    text = generated("google-bert/bert-base-uncased")
    assert "        self.self: Any = nn.ModuleDict(" in text
    assert "        self.encoder: Any = nn.ModuleDict(" in text
    assert "from typing import Any\n" in text


def test_containers_that_are_only_called_keep_their_type():
    text = generated("openai-community/gpt2")
    assert "self.h = nn.ModuleList(" in text
    assert "Any" not in text.partition("# What this was read from")[0]


def test_a_list_that_is_a_class_says_so_of_its_elements():
    assert "    __getitem__: Any\n" in generated("timm/convnextv2_nano.fcmae_ft_in22k_in1k")


def test_a_buffer_that_is_read_is_a_tensor():
    assert "    final_logits_bias: Tensor\n" in generated("facebook/bart-large-cnn")


@pytest.mark.parametrize(
    ("name", "given", "needed"),
    [
        ("Qwen/Qwen2-VL-2B-Instruct", "pixel_values", "image_grid_thw"),
        ("Qwen/Qwen2.5-VL-3B-Instruct", "pixel_values_videos", "video_grid_thw"),
        ("Qwen/Qwen3-VL-2B-Instruct", "pixel_values", "image_grid_thw"),
    ],
)
def test_an_input_that_another_needs_is_asserted_where_that_is_given(name, given, needed):
    text = generated(name)
    assert f"if {given} is not None:\n            assert {needed} is not None\n" in text
    assert not re.search(rf"^        assert {needed}", text, re.MULTILINE)  # without images none are needed


def test_what_is_there_is_no_optional_parameter():
    """The tower of images is called where there are some, and says so."""
    text = generated("Qwen/Qwen2-VL-2B-Instruct")
    assert "def forward(self, hidden_states: Tensor, grid_thw: Tensor)" in text
