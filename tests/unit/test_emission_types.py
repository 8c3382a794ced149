"""What torch's own annotations do not tell, the generated source says: mypy passes over it as it is shipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import lru_cache

import pytest

import mapper
from mapper.errors import ArchitectureError

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


def test_a_mask_that_is_always_there_is_not_asked_for():
    call = "F.scaled_dot_product_attention(q, k, v, attn_mask=mask{})"
    assert call.format(", is_causal=mask is None") in generated("openai-community/gpt2")
    assert call.format("") in mapper.generate("openai-community/gpt2", cache=True)


OPTIONS = {
    "openai-community/gpt2": {"cache": True},
    "facebook/bart-large-cnn": {"cache": True, "hidden_states": True},
    "google-t5/t5-small": {"cache": True, "train": True},
    "Qwen/Qwen2-VL-2B-Instruct": {"cache": True, "hidden_states": True, "train": True},
    "google/gemma-3-4b-it": {"hidden_states": True, "train": True},
    "distilbert/distilbert-base-uncased": {"hidden_states": True, "train": True},
}


def test_types_are_right_with_every_option(tmp_path):
    pytest.importorskip("mypy")
    for at, (name, options) in enumerate(OPTIONS.items()):
        (tmp_path / f"model_{at}.py").write_text(mapper.generate(name, **options))
    command = [sys.executable, "-m", "mypy", "--config-file", os.devnull, "--no-incremental"]
    command += ["--follow-imports=skip", "--check-untyped-defs", *map(str, sorted(tmp_path.glob("*.py")))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout


def test_a_mask_that_leaves_out_what_is_kept_has_no_cache():
    """Patches of an image that see each other: the mask is of the new positions alone."""
    with pytest.raises(ArchitectureError, match="leave the option out"):
        mapper.generate("google/gemma-3-4b-it", cache=True)
