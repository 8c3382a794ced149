"""openai/gpt-oss-20b: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family gpt_oss).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
about this header: the transformers docstring names this repository, but the defaults differ in
num_hidden_layers, num_local_experts
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    experts: int = 32  # shape: model.layers.{0..23}.mlp.router.weight [32, 2880]
    intermediate_size: int = 2880  # shape: model.layers.{0..23}.mlp.experts.gate_up_proj_bias [32, 5760]
    hidden_size: int = 2880  # shape: lm_head.weight [201088, 2880]
    heads: int = 64  # shape: model.layers.{0..23}.self_attn.sinks [64]
    head_dim: int = 64  # shape: model.layers.{0..23}.self_attn.q_proj.weight [4096, 2880]
    kv_heads: int = 8  # shape: model.layers.{0..23}.self_attn.k_proj.weight [512, 2880]
    experts_per_token: int = 4  # config: num_experts_per_tok
    gate_limit: float = 7.0  # config: swiglu_limit
    gate_slope: float = 1.702  # default: swiglu_alpha, left out: the default of gpt_oss
    norm_eps: float = 1e-5  # config: rms_norm_eps
    vocab_size: int = 201088  # shape: lm_head.weight [201088, 2880]
    layer_types: tuple[str, ...] = ("sliding_attention", "full_attention") * 12  # config: layer_types
    window: int = 128  # config: sliding_window
    rotary_base: int = 150000  # config: rope_theta
    rotary_factor: float = 32.0  # config: rope_scaling.factor
    rotary_original_positions: int = 4096  # config: rope_scaling.original_max_position_embeddings
    rotary_beta_fast: float = 32.0  # config: rope_scaling.beta_fast
    rotary_beta_slow: float = 1.0  # config: rope_scaling.beta_slow
    # rule: vocabulary/config_rotary.yaml: 0.1 * log(rotary.factor) + 1
    rotary_attention_factor: float = 1.3465735902799727

    @property
    def attention_scale(self) -> float:
        return self.head_dim**-0.5  # rule: vocabulary/config_attention.yaml: attention.head_dim ** -0.5


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def softmax_masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Attention weights from scores, in float32 and cast back. scores (B, H, T, S) -> (B, H, T, S)"""
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)


def attend_sinks(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor, scale: float, is_causal: bool = False
) -> Tensor:
    """Attention with one learned score per head that takes weight and gives nothing (gpt-oss).

    q (B, H, T, D), k, v (B, K, S, D), sinks (H,) -> (B, H, T, D)
    """
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    scores = q @ k.transpose(-1, -2) * scale  # (B, H, T, S)
    if is_causal:
        mask = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    sinks = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return softmax_masked(torch.cat((scores, sinks), dim=-1), None)[..., :-1] @ v


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def combine_experts(x: Tensor, y: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """Weighs sorted outputs and adds them up per position.

    y (N * count, W), weights (..., count) -> like x
    """
    y = (y * weights.flatten()[order, None]).to(x.dtype)
    flat = torch.zeros_like(x).flatten(0, -2)
    return flat.index_add(0, order // weights.shape[-1], y).view_as(x)


def unpack_mxfp4(blocks: Tensor, scales: Tensor, like: Tensor) -> Tensor:
    """The numbers of MXFP4 blocks in the dtype of a tensor; a byte holds two of them, the low bits first.

    blocks uint8 (..., G, 16), scales uint8 (..., G), an exponent plus 127 each -> (..., G * 32)
    """
    sizes = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # one bit of sign, two of exponent, one of mantissa
    table = torch.tensor((*sizes, *(-size for size in sizes)), dtype=like.dtype, device=blocks.device)
    numbers = table[torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2).int()]  # (..., G, 32)
    return torch.ldexp(numbers, scales.int()[..., None] - 127).to(like.dtype).flatten(-2)


def expert_linear_mxfp4(
    rows: Tensor, blocks: Tensor, scales: Tensor, bias: Tensor, sizes: list[int]
) -> Tensor:
    """Each block of rows through its expert's linear layer, unpacked expert by expert.

    rows (N, I), blocks uint8 (E, O, I / 32, 16), scales uint8 (E, O, I / 32), bias (E, O) -> (N, O)
    """
    every = torch.compiler.is_compiling()  # a graph has no branches
    parts = [
        F.linear(part, unpack_mxfp4(blocks[i], scales[i], rows), bias[i])
        for i, part in enumerate(rows.split(sizes))
        if every or len(part)
    ]
    return torch.cat(parts) if parts else rows.new_zeros(0, blocks.shape[1])


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_frequencies_yarn(
    positions: Tensor,
    rotary_dim: int,
    base: float,
    factor: float,
    original_positions: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Tensor:
    """Frequencies slowed by `factor` where a wave makes few turns (yarn, paper 2309.00071). -> (R / 2,)"""
    fast = rotary_frequencies(positions, rotary_dim, base)
    # the channel that makes n turns over the original context is per_log * log(context / (2 pi n))
    per_log = rotary_dim / (2 * math.log(base))
    low = per_log * math.log(original_positions / (beta_fast * 2 * math.pi))
    high = per_log * math.log(original_positions / (beta_slow * 2 * math.pi))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    index = torch.arange(rotary_dim // 2, dtype=torch.float32, device=positions.device)
    slow = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
    return fast / factor * slow + fast * (1 - slow)


def rotary_tables_scaled(
    x: Tensor, positions: Tensor, frequencies: Tensor, factor: float
) -> tuple[Tensor, Tensor]:
    """rotary_tables times an attention factor (yarn, longrope). positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return (angles.cos() * factor).to(x.dtype), (angles.sin() * factor).to(x.dtype)


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int, after: int = 0) -> Tensor:
    """Shows each query itself, the window - 1 keys before it and `after` behind. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None] + after) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def sort_by_expert(x: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """Positions once per chosen expert, sorted by expert.

    x (..., W), chosen (..., count) -> rows (N * count, W), their order, how many each expert has
    """
    expert = chosen.flatten()
    order = expert.argsort(stable=True)
    sizes = F.one_hot(expert, experts).sum(dim=0).tolist()
    return x.flatten(0, -2)[order // chosen.shape[-1]], order, sizes


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Experts(nn.Module):
    """model.layers.*.mlp.experts: holds what the module around it computes with."""

    gate_up_proj_blocks: Tensor
    gate_up_proj_scales: Tensor
    down_proj_blocks: Tensor
    down_proj_scales: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.register_buffer(
            "gate_up_proj_blocks",
            torch.zeros(
                config.experts, 2 * config.intermediate_size, config.hidden_size // 32, 16, dtype=torch.uint8
            ),
        )
        self.register_buffer(
            "gate_up_proj_scales",
            torch.zeros(
                config.experts, 2 * config.intermediate_size, config.hidden_size // 32, dtype=torch.uint8
            ),
        )
        self.gate_up_proj_bias = nn.Parameter(torch.zeros(config.experts, 2 * config.intermediate_size))
        self.register_buffer(
            "down_proj_blocks",
            torch.zeros(
                config.experts, config.hidden_size, config.intermediate_size // 32, 16, dtype=torch.uint8
            ),
        )
        self.register_buffer(
            "down_proj_scales",
            torch.zeros(
                config.experts, config.hidden_size, config.intermediate_size // 32, dtype=torch.uint8
            ),
        )
        self.down_proj_bias = nn.Parameter(torch.zeros(config.experts, config.hidden_size))


class Attention(nn.Module):
    """model.layers.*.self_attn: self-attention with rotary embeddings and a causal mask and attention
    sinks.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim)
        self.sinks = nn.Parameter(torch.zeros(config.heads))
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = attend_sinks(q, k, v, mask, self.sinks, self.scale, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class MixtureOfExperts(nn.Module):
    """model.layers.*.mlp: mixture of experts with router scores by softmax, top-k experts of each token,
    normalised weights and MXFP4 weights, biases and clamped, interleaved gates.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.experts_per_token = config.experts_per_token
        self.moe_experts = config.experts
        self.gate_limit = config.gate_limit
        self.gate_slope = config.gate_slope
        self.router = nn.Linear(config.hidden_size, config.experts)
        self.experts = Experts(config)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        scores = logits.softmax(dim=-1, dtype=torch.float32)
        chosen = scores.topk(self.experts_per_token, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        rows, order, sizes = sort_by_expert(x, chosen, self.moe_experts)
        rows = expert_linear_mxfp4(
            rows,
            self.experts.gate_up_proj_blocks,
            self.experts.gate_up_proj_scales,
            self.experts.gate_up_proj_bias,
            sizes,
        )
        gate = rows[..., ::2].clamp(max=self.gate_limit)
        up = rows[..., 1::2].clamp(-self.gate_limit, self.gate_limit)
        rows = expert_linear_mxfp4(
            gate * torch.sigmoid(self.gate_slope * gate) * (up + 1),
            self.experts.down_proj_blocks,
            self.experts.down_proj_scales,
            self.experts.down_proj_bias,
            sizes,
        )
        return combine_experts(x, rows, weights, order)


class Layer(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a mixture of experts."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = MixtureOfExperts(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """model: a stack of layers with a causal mask for each type of layer, full attention or a sliding
    window, rotary embeddings and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layer_types = config.layer_types
        self.window = config.window
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.rotary_factor = config.rotary_factor
        self.rotary_original_positions = config.rotary_original_positions
        self.rotary_beta_fast = config.rotary_beta_fast
        self.rotary_beta_slow = config.rotary_beta_slow
        self.rotary_attention_factor = config.rotary_attention_factor
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(len(config.layer_types)))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        masks = self.decoder_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            x = layer(x, cos, sin, masks[kind])
        return self.norm(x)

    def decoder_mask(self, x: Tensor, attention_mask: Tensor | None) -> dict[str, Tensor | None]:
        full = None if attention_mask is None else causal_mask(x, attention_mask)
        near = sliding_mask(x, attention_mask, self.window)
        return {"full_attention": full, "sliding_attention": near}

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = rotary_frequencies_yarn(
            positions,
            self.rotary_dim,
            self.rotary_base,
            self.rotary_factor,
            self.rotary_original_positions,
            self.rotary_beta_fast,
            self.rotary_beta_slow,
            truncate=False,
        )
        return rotary_tables_scaled(x, positions, frequencies, self.rotary_attention_factor)


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.to(torch.bfloat16)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.model(input_ids, attention_mask, position_ids)
        logits = self.lm_head(x)
        return Output(logits=logits, last_hidden_state=x)


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
# {"config": {"architectures": ["GptOssForCausalLM"], "attention_bias": true, "head_dim": 64, "hidden_size":
# 2880, "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
# "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
# "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
# "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
# "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
# "full_attention"], "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
# "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
# "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
# "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}, "rms_norm_eps": 1e-05, "rope_scaling":
# {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type":
# "yarn", "truncate": false}, "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0,
# "tie_word_embeddings": false, "vocab_size": 201088}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled", "about this header: the transformers docstring names this repository, but the defaults differ in
# num_hidden_layers, num_local_experts"]}
# sha256 of all above: e878c0741a220a63
