"""microsoft/speecht5_tts: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family speecht5).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same, the batch norms apart; `mapper generate --train`
writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 768  # shape: speech_decoder_postnet.feat_out.weight [160, 768]
    encoder_heads: int = 12  # config: encoder_attention_heads
    # shape and config: speecht5.encoder.wrapped_encoder.layers.{0..11}.attention.q_proj.weight [768, ...
    encoder_head_dim: int = 64
    dropout: float = 0.5  # config: speech_decoder_prenet_dropout
    decoder_heads: int = 12  # config: decoder_attention_heads
    # shape and config: speecht5.decoder.wrapped_decoder.layers.{0..5}.encoder_attn.q_proj.weight [768, ...
    decoder_head_dim: int = 64
    vocab_size: int = 81  # shape: speecht5.encoder.prenet.embed_tokens.weight [81, 768]
    # shape: speecht5.decoder.wrapped_decoder.layers.{0..5}.feed_forward.intermediate_dense.weight [3072, 768]
    intermediate_size: int = 3072
    norm_eps: float = 1e-5  # config: layer_norm_eps
    encoder_layers: int = 12  # name: speecht5.encoder.wrapped_encoder.layers.*
    decoder_layers: int = 6  # name: speecht5.decoder.wrapped_decoder.layers.*
    # shape: speech_decoder_postnet.layers.0.conv.weight [256, 80, 5] and 4 more
    speech_decoder_postnet_out_channels: tuple[int, ...] = (256, 256, 256, 256, 80)
    mel_bins: int = 80  # config: num_mel_bins


@dataclass
class Output:
    """What the model returns."""

    spectrogram: Tensor
    end_logits: Tensor
    encoder_last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def attend_biased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attention with a bias added to the scores; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D), bias broadcasts to (B, H, T, S) -> (B, H, T, D)
    """
    if is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    if k.shape[1] != q.shape[1]:
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def drop_shared(x: Tensor, rate: float) -> Tensor:
    """Zeros by chance at all times, not in training alone, in the same places of each row (paper 1712.05884).

    x (B, T, C) -> (B, T, C)
    """
    kept = torch.bernoulli(x[0], p=rate)
    return torch.where(kept == 1, x, 0) / (1 - rate)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


def sinusoids_interleaved(x: Tensor, positions: Tensor, size: int) -> Tensor:
    """Sine and cosine in turn, frequencies 10000 ** (-2 i / size) (paper 1706.03762).

    (B, T) -> (B, T, size)
    """
    index = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * torch.exp(index * (-math.log(10000.0) / size))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(x.dtype)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class EncoderAttention(nn.Module):
    """speecht5.encoder.wrapped_encoder.layers.*.attention: self-attention with relative position
    embeddings for keys (Shaw) that all layers share.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.encoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.out_proj = nn.Linear(config.encoder_heads * config.encoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, distances: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        bias = torch.einsum("bhtd,tsd->bhts", q, distances) * self.head_dim**-0.5
        y = attend_biased(q, k, v, bias, mask)
        return self.out_proj(merge_heads(y))


class DecoderEmbeddings(nn.Module):
    """speecht5.decoder.prenet: frames of a spectrogram through linear layers with dropout at all times,
    scaled sinusoidal position embeddings, a voice.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.dropout = config.dropout
        self.hidden_size = config.hidden_size
        self.layers = nn.ModuleList([nn.Linear(80, 256), nn.Linear(256, 256)])
        self.final_layer = nn.Linear(256, config.hidden_size)
        self.encode_positions: Any = nn.ParameterDict({"alpha": nn.Parameter(torch.zeros(()))})
        self.speaker_embeds_layer = nn.Linear(1280, config.hidden_size)

    def forward(self, decoder_input_values: Tensor, speaker_embeddings: Tensor | None) -> Tensor:
        x = decoder_input_values
        for frame_map in self.layers:
            x = drop_shared(F.relu(frame_map(x)), self.dropout)
        x = self.final_layer(x)
        x = x + self.encode_positions.alpha * sinusoids_interleaved(
            x, positions_in_order(x), self.hidden_size
        )
        voices = None
        if speaker_embeddings is not None:
            voices = F.normalize(speaker_embeddings)[:, None].expand(-1, x.shape[1], -1)
        return x if voices is None else F.relu(self.speaker_embeds_layer(torch.cat((x, voices), dim=-1)))


class DecoderAttention(nn.Module):
    """speecht5.decoder.wrapped_decoder.layers.*.self_attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """speecht5.decoder.wrapped_decoder.layers.*.encoder_attn: cross-attention with an attention mask over
    the source.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(
        self, x: Tensor, encoder_hidden_states: Tensor, cross_attention_mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(encoder_hidden_states), self.head_dim)
        v = split_heads(self.v_proj(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cross_attention_mask)
        return self.out_proj(merge_heads(y))


class EncoderEmbeddings(nn.Module):
    """speecht5.encoder.prenet: token embeddings with sinusoidal position embeddings and a learned scale."""

    def __init__(self, config: Config):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encode_positions: Any = nn.ParameterDict({"alpha": nn.Parameter(torch.zeros(()))})

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        return x + self.encode_positions.alpha * sinusoids_interleaved(
            x, positions_in_order(x), self.hidden_size
        )


class FeedForward(nn.Module):
    """speecht5.encoder.wrapped_encoder.layers.*.feed_forward,
    speecht5.decoder.wrapped_decoder.layers.*.feed_forward: feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.intermediate_dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output_dense = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_dense(F.gelu(self.intermediate_dense(x)))


class Postnet(nn.Module):
    """speech_decoder_postnet.layers.*: convolution over frames and batch norm."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size=5, padding=2, bias=False)
        self.batch_norm = nn.BatchNorm1d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.batch_norm(self.conv(x))


class DecoderLayer(nn.Module):
    """speecht5.decoder.wrapped_decoder.layers.*: a layer with attention, post-norm, cross-attention and a
    feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = DecoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.encoder_attn = CrossAttention(config)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask))
        x = self.encoder_attn_layer_norm(
            x + self.encoder_attn(x, encoder_hidden_states, cross_attention_mask)
        )
        return self.final_layer_norm(x + self.feed_forward(x))


class EncoderLayer(nn.Module):
    """speecht5.encoder.wrapped_encoder.layers.*: a layer with attention, post-norm and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.attention = EncoderAttention(config)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, distances: Tensor, mask: Tensor | None) -> Tensor:
        x = self.layer_norm(x + self.attention(x, distances, mask))
        return self.final_layer_norm(x + self.feed_forward(x))


class Encoder(nn.Module):
    """speecht5.encoder: a stack of layers with a norm before the layers, a padding mask and relative
    position embeddings that all layers share.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.prenet = EncoderEmbeddings(config)
        self.wrapped_encoder: Any = nn.ModuleDict(
            {
                "layer_norm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
                "embed_positions": nn.ModuleDict({"pe_k": nn.Embedding(320, 64)}),
                "layers": nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers)),
            }
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.wrapped_encoder.layer_norm(self.prenet(input_ids))
        mask = padding_mask(attention_mask)
        places, farthest = (
            torch.arange(x.shape[1], device=x.device),
            self.wrapped_encoder.embed_positions.pe_k.weight.shape[0] // 2,
        )
        apart = (places[:, None] - places).clamp(-farthest, farthest - 1)
        distances = self.wrapped_encoder.embed_positions.pe_k.weight[apart + farthest]
        for layer in self.wrapped_encoder.layers:
            x = layer(x, distances, mask)
        return x


class Decoder(nn.Module):
    """speecht5.decoder: a stack of layers with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.prenet = DecoderEmbeddings(config)
        self.wrapped_decoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))}
        )

    def forward(
        self,
        decoder_input_values: Tensor,
        speaker_embeddings: Tensor | None,
        attention_mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.prenet(decoder_input_values, speaker_embeddings)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.wrapped_decoder.layers:
            x = layer(x, mask, encoder_hidden_states, cross_attention_mask)
        return x


class Model(nn.Module):
    """The model: a spectrogram of what is said: an encoder, a decoder of frames, several at a time,
    convolutions over the frames.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.mel_bins = config.mel_bins
        self.speecht5: Any = nn.ModuleDict({"encoder": Encoder(config), "decoder": Decoder(config)})
        self.speech_decoder_postnet: Any = nn.ModuleDict(
            {
                "feat_out": nn.Linear(config.hidden_size, 160),
                "layers": nn.ModuleList(
                    Postnet(in_channels=in_channels, out_channels=out_channels)
                    for in_channels, out_channels in zip(
                        [80, *config.speech_decoder_postnet_out_channels[:-1]],
                        config.speech_decoder_postnet_out_channels,
                        strict=True,
                    )
                ),
                "prob_out": nn.Linear(config.hidden_size, 2),
            }
        )

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_values: Tensor,
        speaker_embeddings: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), decoder_input_values (batch, frames, 80), speaker_embeddings (batch,
        voice_size), attention_mask (batch, length), decoder_attention_mask (batch, decoder_length)
        """
        encoder_hidden_states = self.speecht5.encoder(input_ids, attention_mask)
        cross_attention_mask = padding_mask(attention_mask)
        x = self.speecht5.decoder(
            decoder_input_values,
            speaker_embeddings,
            decoder_attention_mask,
            encoder_hidden_states,
            cross_attention_mask,
        )
        frames = self.speech_decoder_postnet.feat_out(x).reshape(x.shape[0], -1, self.mel_bins)
        y = frames.transpose(1, 2)
        for convolution in self.speech_decoder_postnet.layers[:-1]:
            y = torch.tanh(convolution(y))
        for convolution in self.speech_decoder_postnet.layers[-1:]:
            y = convolution(y)
        ends = self.speech_decoder_postnet.prob_out(x).flatten(1)
        return Output(
            spectrogram=frames + y.transpose(1, 2),
            end_logits=ends,
            encoder_last_hidden_state=encoder_hidden_states,
        )


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {
        name: tensor
        for file in files
        for name, tensor in load_file(file).items()
        if not name.startswith("__aux__.")  # what is saved beside a model, for training to go on
    }
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()


# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
# {"config": {"architectures": ["SpeechT5ForTextToSpeech"], "conv_bias": false, "decoder_attention_heads": 12,
# "decoder_ffn_dim": 3072, "decoder_layers": 6, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072,
# "encoder_layers": 12, "hidden_act": "gelu", "hidden_size": 768, "layer_norm_eps": 1e-05, "model_type":
# "speecht5", "num_mel_bins": 80, "speech_decoder_prenet_dropout": 0.5, "vocab_size": 81}, "notes": ["header
# from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: recalled"]}
# sha256 of all above: 26cdac042d0bd86e
