"""Names of libraries that number the parts of a layer, or call blocks by words of their own, against the reference's outputs.

As in test_library_names: tiny models of the reference library, renamed. None of these libraries writes settings, so each
test gives as hints what no tensor shows.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import mapper
from tests.parity.harness import output, reference
from tests.parity.test_library_names import (
    DECODER,
    IDS,
    State,
    as_neighbours,
    close,
    joined,
    llama,
    renamed,
    save,
)

IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "image_size": 32,
    "patch_size": 8,
}


def pixels() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_parts_of_a_layer_in_a_list_and_patches_pixel_by_pixel(tmp_path: Path) -> None:
    config = transformers.ViTConfig(**IMAGE, qkv_bias=False, layer_norm_eps=1e-5, num_labels=5)
    model = reference("ViTForImageClassification", config)
    state = renamed(
        model.state_dict(),
        (r"^vit\.embeddings\.position_embeddings", "pos_embedding"), (r"^vit\.embeddings\.", ""), (r"^vit\.layernorm", "mlp_head.0"),
        (r"^classifier", "mlp_head.1"), (r"patch_embeddings\.projection", "to_patch_embedding.1"),
        (r"^vit\.(encoder\.layer|layers)\.(\d+)\.", r"transformer.layers.\2."), (r"layernorm_before", "0.norm"), (r"layernorm_after", "1.norm"),
        (r"attention\.attention\.(query|key|value)|attention\.(q|k|v)_proj", lambda found: "0.fn." + {"q": "query", "k": "key", "v": "value"}.get(found[2], found[1])),
        (r"attention\.(output\.dense|o_proj)", "0.fn.to_out.0"), (r"intermediate\.dense|mlp\.fc1", "1.fn.net.0"), (r"\.output\.dense|\.mlp\.fc2", ".1.fn.net.3"),
    )  # fmt: skip
    state = joined(state, ["0.fn.query", "0.fn.key", "0.fn.value"], "0.fn.to_qkv")
    patch = state["to_patch_embedding.1.weight"]
    state["to_patch_embedding.1.weight"] = patch.permute(0, 2, 3, 1).flatten(1)
    hints = {"attention.heads": 4, "head.pooling": "first"}
    built = mapper.build(save(tmp_path / "model", "vit.pt", state), hints=hints)
    close(output(built(pixels()), "logits"), model(pixels()).logits)


def test_layers_of_one_part_with_norms_of_one_row_less_one(tmp_path: Path) -> None:
    model = llama(rms_norm_eps=1e-12, num_key_value_heads=4)
    state: State = {}
    for name, tensor in model.state_dict().items():
        number = int(name.split(".")[2]) if "layers" in name else 0
        first, second = f"attn_layers.layers.{2 * number}", f"attn_layers.layers.{2 * number + 1}"
        part = name.split(".")[-2]
        if part in ("q_proj", "k_proj"):
            tensor = as_neighbours(tensor, 4)
        new = {
            "embed_tokens": "token_emb.emb.weight", "norm": "attn_layers.final_norm.g", "lm_head": "to_logits.weight",
            "input_layernorm": f"{first}.0.0.g", "post_attention_layernorm": f"{second}.0.0.g", "o_proj": f"{first}.1.to_out.weight",
            "q_proj": f"{first}.1.to_q.weight", "k_proj": f"{first}.1.to_k.weight", "v_proj": f"{first}.1.to_v.weight",
            "gate_proj": "", "up_proj": "", "down_proj": f"{second}.1.ff.2.weight",
        }[part]  # fmt: skip
        if new:
            state[new] = tensor - 1 if new.endswith(".g") else tensor.clone()
        elif part == "up_proj":
            gate = model.state_dict()[name.replace("up_proj", "gate_proj")]
            state[f"{second}.1.ff.0.proj.weight"] = torch.cat((tensor, gate))
    state["attn_layers.rotary_pos_emb.inv_freq"] = torch.ones(4)
    answers = {
        "attention.heads": 4,
        "task": "causal_lm",
        "norm.offset": True,
        "feed_forward.activation": "silu",
        "rotary.fraction": 1.0,
        "attention.norms": "none",
        "attention.plain": True,
    }
    folder = save(tmp_path / "model", "model.pt", state)
    asked = {question.fact for question in mapper.inspect(folder).architecture.questions}
    assert {"attention.heads", "norm.offset", "feed_forward.activation"} <= asked
    mapper.build(folder)  # a skeleton: the weights are asked first, and no norm has one of that name
    close(output(mapper.build(folder, hints=answers)(IDS), "logits"), model(IDS).logits)


def test_dinov2_as_first_released(tmp_path: Path) -> None:
    config = transformers.Dinov2Config(
        **{key: IMAGE[key] for key in IMAGE if key != "intermediate_size"}, mlp_ratio=2
    )
    model = reference("Dinov2Model", config)
    state = renamed(
        model.state_dict(),
        (r"embeddings\.position_embeddings", "pos_embed"), (r"embeddings\.patch_embeddings\.projection", "patch_embed.proj"), (r"^embeddings\.", ""),
        (r"^encoder\.layer\.|^layers\.", "blocks."), (r"attention\.([qkv])_proj", r"attn.\1"), (r"attention\.o_proj", "attn.proj"),
        (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"), (r"^layernorm", "norm"),
    )  # fmt: skip
    state = joined(state, ["attn.q.", "attn.k.", "attn.v."], "attn.qkv.")
    built = mapper.build(save(tmp_path / "model", "dino.pth", state), hints={"attention.heads": 4})
    found, expected = built(pixels()), model(pixels())
    close(output(found, "last_hidden_state"), expected.last_hidden_state)
    close(output(found, "pooler_output"), expected.pooler_output)


def test_the_image_encoder_of_segment_anything(tmp_path: Path) -> None:
    config = transformers.SamVisionConfig(
        hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8,
        window_size=2, global_attn_indexes=[1], mlp_dim=44, layer_norm_eps=1e-6,
    )  # fmt: skip
    model = reference("SamVisionModel", config)
    state = renamed(
        model.state_dict(),
        (r"^vision_encoder\.", ""), (r"^layers", "blocks"), (r"layer_norm(\d)\.", r"norm\1."), (r"patch_embed\.projection", "patch_embed.proj"),
        (r"neck\.conv1", "neck.0"), (r"neck\.norm1", "neck.1"), (r"neck\.conv2", "neck.2"), (r"neck\.norm2", "neck.3"),
    )  # fmt: skip
    folder = save(tmp_path / "model", "sam.pth", state)
    hints = {"attention.image_window": 2, "attention.full_layers": [1]}
    close(
        output(mapper.build(folder, hints=hints)(pixels()), "last_hidden_state"),
        model(pixels()).last_hidden_state,
    )


def test_an_encoder_of_curated_transformers(tmp_path: Path) -> None:
    sizes = {key: DECODER[key] for key in DECODER if key != "tie_word_embeddings"}
    model = reference("BertModel", transformers.BertConfig(**sizes))
    state = renamed(
        {name: tensor for name, tensor in model.state_dict().items() if "position_ids" not in name and "pooler" not in name},
        (r"word_embeddings", "piece_embeddings"), (r"token_type_embeddings", "type_embeddings"), (r"embeddings\.LayerNorm", "embeddings.embed_output_layer_norm"),
        (r"^encoder\.layer", "layers"), (r"attention\.self", "mha"), (r"attention\.output\.dense", "mha.output"),
        (r"attention\.output\.LayerNorm", "attn_residual_layer_norm"), (r"output\.LayerNorm", "ffn_residual_layer_norm"),
        (r"intermediate\.dense", "ffn.intermediate"), (r"(\d)\.output\.dense", r"\1.ffn.output"),
    )  # fmt: skip
    folder = save(tmp_path / "model", "model.pt", state)
    hints = {
        "attention.heads": 4,
        "norm.eps": 1e-12,
        "feed_forward.activation": "gelu",
        "position.counting": "all",
    }
    close(output(mapper.build(folder, hints=hints)(IDS), "last_hidden_state"), model(IDS).last_hidden_state)


def test_an_encoder_of_curated_transformers_whose_passes_share_weights(tmp_path: Path) -> None:
    sizes = {key: DECODER[key] for key in DECODER if key != "tie_word_embeddings"}
    model = reference("AlbertModel", transformers.AlbertConfig(**sizes, embedding_size=16))
    state = renamed(
        {name: tensor for name, tensor in model.state_dict().items() if "_ids" not in name and "pooler" not in name},
        (r"word_embeddings", "piece_embeddings"), (r"token_type_embeddings", "type_embeddings"), (r"embeddings\.LayerNorm", "embeddings.embed_output_layer_norm"),
        (r"^encoder\.embedding_hidden_mapping_in", "embeddings.projection"), (r"^encoder\.albert_layer_groups", "groups"), (r"albert_layers", "group_layers"),
        (r"attention\.LayerNorm", "attn_residual_layer_norm"), (r"full_layer_layer_norm", "ffn_residual_layer_norm"),
        (r"attention\.(dense|o_proj)", "mha.output"), (r"attention\.", "mha."), (r"\.ffn\.", ".ffn.intermediate."), (r"ffn_output", "ffn.output"),
    )  # fmt: skip
    folder = save(tmp_path / "model", "model.pt", state)
    hints = {
        "attention.heads": 4,
        "norm.eps": 1e-12,
        "feed_forward.activation": "gelu_new",
        "position.counting": "all",
    }
    with pytest.raises(mapper.MapperError, match="repetitions"):
        mapper.build(folder, hints=hints)
    built = mapper.build(folder, hints={**hints, "repetitions": 2})
    close(output(built(IDS), "last_hidden_state"), model(IDS).last_hidden_state)


def test_a_decoder_of_curated_transformers_whose_head_is_tied(tmp_path: Path) -> None:
    sizes = {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 99, "max_seq_len": 64}
    model = reference("MptForCausalLM", transformers.MptConfig(**sizes))
    state = renamed(
        {name: tensor for name, tensor in model.state_dict().items() if "lm_head" not in name},
        (r"^transformer\.wte", "decoder.embeddings.piece_embeddings"), (r"^transformer\.blocks", "decoder.layers"), (r"attn\.Wqkv", "mha.input"),
        (r"attn\.out_proj", "mha.output"), (r"norm_1", "attn_input_layer_norm"), (r"norm_2", "ffn_input_layer_norm"),
        (r"up_proj", "intermediate"), (r"down_proj", "output"), (r"^transformer\.norm_f", "decoder.output_layer_norm"),
    )  # fmt: skip
    folder = save(tmp_path / "model", "model.pt", state)
    built = mapper.build(folder, hints={"attention.heads": 4, "norm.eps": 1e-5})
    close(output(built(IDS), "logits"), model(IDS).logits)


FIRST_CODEC = (
    (r"^(encoder|decoder)\.layers", r"\1.model"), (r"\.conv\.", ".conv.conv."), (r"parametrizations\.weight\.original0", "weight_g"),
    (r"parametrizations\.weight\.original1", "weight_v"), (r"^quantizer\.layers\.(\d+)\.codebook", r"quantizer.vq.layers.\1._codebook"),
    (r"^(decoder\.model\.(3|6|9|12))\.(conv\.)?(conv|norm)", r"\1.convtr.\4"), (r"convtr\.conv", "convtr.convtr"),
    (r"(?<!conv)(?<!convtr)\.norm\.", ".conv.norm."),
)  # fmt: skip


def test_encodec_as_first_released(tmp_path: Path) -> None:
    config = transformers.EncodecConfig(num_filters=2, hidden_size=16, codebook_dim=16)
    model = reference("EncodecModel", config)
    path = save(tmp_path / "model", "encodec.th", renamed(model.state_dict(), *FIRST_CODEC))
    assert {question.fact for question in mapper.inspect(path).architecture.questions} == {
        "convolution.causal"
    }
    built = mapper.build(path, hints={"convolution.causal": True})
    sound = torch.randn(1, 1, 640, generator=torch.Generator().manual_seed(1))
    close(output(built(sound), "audio_values"), model(sound, bandwidth=24.0).audio_values)


def test_a_codec_of_pieces_each_divided_by_its_loudness(tmp_path: Path) -> None:
    config = transformers.EncodecConfig(
        num_filters=2, hidden_size=16, codebook_dim=16, codebook_size=16, norm_type="time_group_norm", use_causal_conv=False,
        audio_channels=2, sampling_rate=48000, normalize=True, chunk_length_s=1.0, overlap=0.01, target_bandwidths=[0.6, 1.8],
    )  # fmt: skip
    model = reference("EncodecModel", config)
    path = save(tmp_path / "model", "encodec.th", renamed(model.state_dict(), *FIRST_CODEC))
    assert mapper.inspect(path).architecture.questions
    built = mapper.build(path, hints={"codec.normalized": True})
    sound = torch.randn(1, 2, 48000 + 47520, generator=torch.Generator().manual_seed(1))
    found, expected = output(built(sound), "audio_values"), model(sound, bandwidth=1.8).audio_values
    close(found, expected)
    assert (found[..., :600] - built(sound[..., :600]).audio_values).abs().max() > 1e-3


def test_a_codec_of_pieces_by_its_config(tmp_path: Path) -> None:
    config = transformers.EncodecConfig(
        num_filters=2, hidden_size=16, codebook_dim=16, codebook_size=16, norm_type="time_group_norm", use_causal_conv=False,
        audio_channels=2, sampling_rate=800, normalize=True, chunk_length_s=1.0, overlap=0.01, target_bandwidths=[0.6, 1.8],
        upsampling_ratios=[4, 2],
    )  # fmt: skip
    model = reference("EncodecModel", config)
    model.save_pretrained(tmp_path)
    built = mapper.build(tmp_path)
    assert mapper.inspect(tmp_path).architecture.reading == "exact"
    sound = torch.randn(2, 2, 1800, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 2, 1800, dtype=torch.long)
    mask[1, :, 1500:] = 0
    for given in ({}, {"padding_mask": mask}):
        found, expected = built(sound, **given), model(sound, **given)
        close(output(found, "audio_values"), expected.audio_values)
        assert torch.equal(found.audio_codes, expected.audio_codes)


def test_a_codec_of_stereo_sound_as_a_whole(tmp_path: Path) -> None:
    config = transformers.EncodecConfig(
        num_filters=2, hidden_size=16, codebook_dim=16, codebook_size=16, norm_type="time_group_norm", use_causal_conv=False,
        audio_channels=2, sampling_rate=48000, target_bandwidths=[0.6, 1.8],
    )  # fmt: skip
    model = reference("EncodecModel", config)
    path = save(tmp_path / "model", "encodec.th", renamed(model.state_dict(), *FIRST_CODEC))
    built = mapper.build(path, hints={"codec.normalized": False})
    sound = torch.randn(1, 2, 641, generator=torch.Generator().manual_seed(1))
    close(output(built(sound), "audio_values"), model(sound, bandwidth=1.8).audio_values)
