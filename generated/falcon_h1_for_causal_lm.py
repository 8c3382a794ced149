"""tiiuae/Falcon-H1-0.5B-Base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family falcon_h1).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 1024  # shape: lm_head.weight [32784, 1024]
    inner_size: int = 1536  # shape: model.layers.{0..35}.mamba.out_proj.weight [1024, 1536]
    groups: int = 1  # config: mamba_n_groups
    # shape and config: model.layers.{0..35}.mamba.in_proj.weight [3352, 1024] = 2 * inner_size + 2 * ...
    state_size: int = 128
    heads: int = 24  # shape: model.layers.{0..35}.mamba.dt_bias [24]
    conv_kernel: int = 4  # shape: model.layers.{0..35}.mamba.conv1d.weight [1792, 1, 4]
    # config: ssm_multipliers
    state_space_scales: tuple[float, ...] = (
        0.3535533905932738,
        0.25,
        0.3535533905932738,
        0.5,
        0.3535533905932738,
    )
    attention_heads: int = 8  # config: num_attention_heads
    # shape and config: model.layers.{0..35}.self_attn.q_proj.weight [512, 1024] = heads * head_dim
    head_dim: int = 64
    # shape and config: model.layers.{0..35}.self_attn.k_proj.weight [128, 1024] = kv_heads * head_dim
    kv_heads: int = 2
    # rule: families/falcon_h1.yaml: attention.key_scale * attention.head_dim ** -0.5
    attention_scale: float = 0.04882812499999999
    intermediate_size: int = 2048  # shape: model.layers.{0..35}.feed_forward.gate_proj.weight [2048, 1024]
    scales: tuple[float, float] = (0.8838834764831844, 0.5859375)  # config: mlp_multipliers
    norm_eps: float = 1e-5  # config: rms_norm_eps
    attention_input_scale: float = 1.0  # config: attention_in_multiplier
    attention_output_scale: float = 0.9375  # config: attention_out_multiplier
    input_scale: float = 1.25  # config: ssm_in_multiplier
    output_scale: float = 0.23570226039551587  # config: ssm_out_multiplier
    vocab_size: int = 32784  # shape: lm_head.weight [32784, 1024]
    layers: int = 36  # name: model.layers.*
    embedding_scale: float = 5.656854249492381  # config: embedding_multiplier
    rotary_base: float = 100000000000.0  # config: rope_theta
    scale: float = 0.0390625  # config: lm_head_multiplier


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


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None = None, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of grouped queries; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)
    """
    if mask is not None and q.is_cuda:  # its fast kernels share heads only without a mask
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    shared = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=shared
    )


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def conv_causal(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Depthwise convolution that sees no later position. x (B, T, C), weight (C, 1, kernel) -> (B, T, C)"""
    x = F.pad(x.transpose(1, 2), (weight.shape[-1] - 1, 0))
    return F.conv1d(x, weight, bias, groups=weight.shape[0]).transpose(1, 2)


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


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def scale_rounded(x: Tensor, scale: float) -> Tensor:
    """x times a constant that is rounded to the dtype of x first (Gemma's embeddings)."""
    return x * torch.tensor(scale, dtype=x.dtype, device=x.device)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def split_chunks(x: Tensor) -> Tensor:
    """Chunks of 16 positions: two or more, as a count that may be 1 cannot be exported, the last of padding.

    x (B, T, ...) -> (B, n, 16, ...)
    """
    length = x.shape[1]
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, 16 * (length // 16 + 2) - length))
    return x.unfold(1, 16, 16).movedim(-1, 2)


def decay_pairs(decay: Tensor) -> Tensor:
    """What is left, at each position of a chunk, of an earlier one. (B, n, C, H) -> (B, n, C, C, H)

    Each pair's decay is summed by itself: a difference of running sums would lose the small ones.
    """
    index = torch.arange(decay.shape[2], device=decay.device)
    ahead = (index - index[:, None])[:, :, None]  # the earlier position minus the later one
    between = decay[:, :, :, None].masked_fill(ahead >= 0, 0.0).cumsum(dim=2)
    return between.masked_fill(ahead > 0, -torch.inf).exp()


def chunk_ends(factors: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> Tensor:
    """State at the end of each chunk that starts from nothing. 16 of (B, n, I, N) each -> (B, n, I, N)"""
    h = inputs[0]
    for factor, u in zip(factors[1:], inputs[1:], strict=True):
        h = factor * h + u
    return h


def join_chunks(parts: list[Tensor], length: int) -> Tensor:
    """Undoes split_chunks, from a list over the 16. 16 of (B, n, ...) -> (B, length, ...)

    A negative pad cuts the end off: a slice would need a proof that there is one.
    """
    x = torch.stack(parts, dim=2).flatten(1, 2)
    return F.pad(x, (0, 0) * (x.dim() - 2) + (0, length - x.shape[1]))


def linear_scan(decay: Tensor, x: Tensor, levels: int) -> Tensor:
    """h_t = exp(decay_t) * h_(t-1) + x_t for all t at once. decay <= 0 and x (B, T, I, N) -> (B, T, I, N)

    In chunks of 16; at the last level, where one element is 16 ** levels positions, as all pairs of elements.
    """
    if levels == 0:
        pairs = decay_pairs(decay.flatten(2)[:, None])[:, 0].unflatten(-1, decay.shape[2:])
        return (pairs * x[:, None]).sum(dim=2)
    steps = split_chunks(decay)
    factors, inputs = steps.exp().unbind(2), split_chunks(x).unbind(2)
    h = F.pad(linear_scan(steps.sum(dim=2), chunk_ends(factors, inputs), levels - 1), (0, 0, 0, 0, 1, -1))
    states = []
    for factor, u in zip(factors, inputs, strict=True):
        h = factor * h + u
        states.append(h)
    return join_chunks(states, x.shape[1])


def state_space_heads(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Runs the state space over a sequence in float32.

    x (B, T, H, P), dt (B, T, H), a (H), b and c (B, T, G, N) -> (B, T, H, P)
    """
    dtype, groups = x.dtype, x.shape[2] // b.shape[2]
    dt = dt.float()
    decay = split_chunks(dt * a.float())  # (B, n, 16, H), as all below
    u = split_chunks(x.float() * dt[..., None])
    b = split_chunks(b.float()).repeat_interleave(groups, dim=3)
    c = split_chunks(c.float()).repeat_interleave(groups, dim=3)
    between = decay_pairs(decay)
    inside = torch.einsum("bnthk,bnshk,bntsh,bnshp->bnthp", c, b, between, u)
    ends = torch.einsum("bnsh,bnshk,bnshp->bnhkp", between[:, :, -1], b, u).flatten(3)
    states = linear_scan(decay.sum(dim=2)[..., None], ends, levels=1)
    before = F.pad(states, (0, 0, 0, 0, 1, -1)).unflatten(3, (b.shape[-1], -1))
    since = decay.cumsum(dim=2).exp()
    y = inside + torch.einsum("bnthk,bnth,bnhkp->bnthp", c, since, before)
    return join_chunks(list(y.unbind(2)), x.shape[1]).to(dtype)


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class StateSpace(nn.Module):
    """model.layers.*.mamba: Mamba-2 mixer: short convolution, selective scan with one decay for each head,
    and gate, with each part of the projection times a factor of its own.
    """

    def __init__(self, config: Config):
        super().__init__()
        conv1d_channels = config.inner_size + 2 * config.groups * config.state_size
        self.inner_size = config.inner_size
        self.groups = config.groups
        self.state_size = config.state_size
        self.heads = config.heads
        self.scales = config.state_space_scales
        self.in_proj = nn.Linear(
            config.hidden_size,
            2 * config.inner_size + 2 * config.groups * config.state_size + config.heads,
            bias=False,
        )
        self.conv1d = nn.Conv1d(
            conv1d_channels, conv1d_channels, kernel_size=config.conv_kernel, groups=conv1d_channels
        )
        self.dt_bias = nn.Parameter(torch.zeros(config.heads))
        self.A_log = nn.Parameter(torch.zeros(config.heads))
        self.D = nn.Parameter(torch.zeros(config.heads))
        self.out_proj = nn.Linear(config.inner_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        mixed_size = self.inner_size + 2 * self.groups * self.state_size
        x = self.in_proj(zero_padding(x, attention_mask))
        states_size, parts = self.groups * self.state_size, []
        sizes = [self.inner_size, self.inner_size, states_size, states_size, self.heads]
        for part, scale in zip(x.split(sizes, dim=-1), self.scales, strict=True):
            parts.append(part * scale)
        x = torch.cat(parts, dim=-1)
        gate, x, dt = x.split([self.inner_size, mixed_size, self.heads], dim=-1)
        x = zero_padding(F.silu(conv_causal(x, self.conv1d.weight, self.conv1d.bias)), attention_mask)
        group_size = self.groups * self.state_size
        x, b, c = x.split([self.inner_size, group_size, group_size], dim=-1)
        x = x.unflatten(-1, (self.heads, -1))
        b, c = b.unflatten(-1, (self.groups, -1)), c.unflatten(-1, (self.groups, -1))
        dt = F.softplus(dt + self.dt_bias)
        y = state_space_heads(x, dt, -torch.exp(self.A_log.float()), b, c)
        y = (y + x * self.D[:, None]).flatten(2) * F.silu(gate)
        return self.out_proj(y)


class Attention(nn.Module):
    """model.layers.*.self_attn: self-attention with rotary embeddings and a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.q_proj = nn.Linear(config.hidden_size, config.attention_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.attention_heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = attend(q, k, v, mask, scale=self.scale, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class FeedForward(nn.Module):
    """model.layers.*.feed_forward: feed-forward network with a scaled gate (GLU) and a scale of its
    output.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.scales = config.scales
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.gate_proj(x) * self.scales[0]) * self.up_proj(x)
        return self.down_proj(y) * self.scales[1]


class Layer(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a state space side by side and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_scale = config.attention_input_scale
        self.output_scale = config.attention_output_scale
        self.layers_input_scale = config.input_scale
        self.layers_output_scale = config.output_scale
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.mamba = StateSpace(config)
        self.pre_ff_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, attention_mask: Tensor | None
    ) -> Tensor:
        y = self.input_layernorm(x)
        y = (
            self.self_attn(y * self.input_scale, cos, sin, mask) * self.output_scale
            + self.mamba(y * self.layers_input_scale, attention_mask) * self.layers_output_scale
        )
        x = x + y
        return x + self.feed_forward(self.pre_ff_layernorm(x))


class Decoder(nn.Module):
    """model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.scale = config.embedding_scale
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.final_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = scale_rounded(self.embed_tokens(input_ids), self.scale)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, cos, sin, mask, attention_mask)
        return self.final_layernorm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.scale = config.scale
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.to(torch.bfloat16)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.model(input_ids, attention_mask, position_ids)
        logits = self.lm_head(x) * self.scale
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
# {"config": {"architectures": ["FalconH1ForCausalLM"], "attention_bias": false, "attention_in_multiplier":
# 1.0, "attention_out_multiplier": 0.9375, "embedding_multiplier": 5.656854249492381, "head_dim": 64,
# "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 2048, "key_multiplier": 0.39062499999999994,
# "lm_head_multiplier": 0.0390625, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_ssm": 1536,
# "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_n_heads": 24, "mamba_norm_before_gate": false,
# "mamba_proj_bias": false, "mamba_rms_norm": false, "mlp_bias": false, "mlp_multipliers":
# [0.8838834764831844, 0.5859375], "model_type": "falcon_h1", "num_attention_heads": 8, "num_hidden_layers":
# 36, "num_key_value_heads": 2, "projectors_bias": false, "rms_norm_eps": 1e-05, "rope_theta": 100000000000.0,
# "ssm_in_multiplier": 1.25, "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5,
# 0.3535533905932738], "ssm_out_multiplier": 0.23570226039551587, "tie_word_embeddings": false, "vocab_size":
# 32784}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config),
# not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 1d449125e8315ac0
