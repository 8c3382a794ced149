"""ai21labs/Jamba-v0.1: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family jamba).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
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

    hidden_size: int = 4096  # shape: lm_head.weight [65536, 4096]
    # shape: model.layers.{0,2,6,8,10,14,16,18,22,24,26,30}.mamba.in_proj.weight [16384, 4096]
    inner_size: int = 8192
    # shape: model.layers.{0,2,6,8,10,14,16,18,22,24,26,30}.mamba.conv1d.weight [8192, 1, 4]
    conv_kernel: int = 4
    # shape: model.layers.{0,2,6,8,10,14,16,18,22,24,26,30}.mamba.dt_proj.weight [8192, 256]
    step_rank: int = 256
    state_size: int = 16  # shape: model.layers.{0,2,6,8,10,14,16,18,22,24,26,30}.mamba.A_log [8192, 16]
    norm_eps: float = 1e-6  # config: rms_norm_eps
    heads: int = 32  # config: num_attention_heads
    # shape and config: model.layers.{4..28..8}.self_attn.q_proj.weight [4096, 4096] = heads * head_dim
    head_dim: int = 128
    # shape and config: model.layers.{4..28..8}.self_attn.k_proj.weight [1024, 4096] = kv_heads * head_dim
    kv_heads: int = 8
    # shape: model.layers.{0,2,6,8,10,14,16,18,22,24,26,30}.feed_forward.gate_proj.weight [14336, 4096]
    intermediate_size: int = 14336
    # shape: model.layers.{1..31..2}.feed_forward.experts.{0..15}.gate_proj.weight [14336, 4096]
    moe_intermediate_size: int = 14336
    experts: int = 16  # shape: model.layers.{1..31..2}.feed_forward.router.weight [16, 4096]
    experts_per_token: int = 2  # config: num_experts_per_tok
    vocab_size: int = 65536  # shape: lm_head.weight [65536, 4096]
    # name: model.layers.{0,2,6,8,10,14,16,18,22,24,26,30}
    feed_forward_layers: tuple[int, ...] = tuple(range(0, 32, 2))
    attention_layers: tuple[int, ...] = (4, 12, 20, 28)  # name: model.layers.{4..28..8}
    layers: int = 32  # name: model.layers.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


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


def sort_by_expert(x: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """Positions once per chosen expert, sorted by expert.

    x (..., W), chosen (..., count) -> rows (N * count, W), their order, how many each expert has
    """
    expert = chosen.flatten()
    order = expert.argsort(stable=True)
    sizes = F.one_hot(expert, experts).sum(dim=0).tolist()
    return x.flatten(0, -2)[order // chosen.shape[-1]], order, sizes


def combine_experts(x: Tensor, y: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """Weighs sorted outputs and adds them up per position.

    y (N * count, W), weights (..., count) -> like x
    """
    y = (y * weights.flatten()[order, None]).to(x.dtype)
    flat = torch.zeros_like(x).flatten(0, -2)
    return flat.index_add(0, order // weights.shape[-1], y).view_as(x)


def mix_experts(x: Tensor, weights: Tensor, chosen: Tensor, experts: nn.ModuleList) -> Tensor:
    """Sum of the chosen experts' outputs, weighted.

    x (..., W), weights and chosen (..., count) -> (..., W)
    """
    rows, order, sizes = sort_by_expert(x, chosen, len(experts))
    pairs = zip(experts, rows.split(sizes), strict=True)
    every = torch.compiler.is_compiling() or torch.is_grad_enabled()  # a graph has no branches; all learn
    parts = [expert(part) for expert, part in pairs if every or len(part)]
    return combine_experts(x, torch.cat(parts) if parts else rows, weights, order)


def selective_scan_steps(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """selective_scan one position after another."""
    h = x.new_zeros(x.shape[0], x.shape[2], a.shape[1])
    outputs = []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * a) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        outputs.append((h @ c[:, t, :, None]).squeeze(-1))
    return torch.stack(outputs, dim=1)


def split_chunks(x: Tensor) -> Tensor:
    """Chunks of 16 positions: two or more, as a count that may be 1 cannot be exported, the last of padding.

    x (B, T, ...) -> (B, n, 16, ...)
    """
    length = x.shape[1]
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, 16 * (length // 16 + 2) - length))
    return x.unfold(1, 16, 16).movedim(-1, 2)


def chunk_ends(factors: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> Tensor:
    """State at the end of each chunk that starts from nothing. 16 of (B, n, I, N) each -> (B, n, I, N)"""
    h = inputs[0]
    for factor, u in zip(factors[1:], inputs[1:], strict=True):
        h = factor * h + u
    return h


def decay_pairs(decay: Tensor) -> Tensor:
    """What is left, at each position of a chunk, of an earlier one. (B, n, C, H) -> (B, n, C, C, H)

    Each pair's decay is summed by itself: a difference of running sums would lose the small ones.
    """
    index = torch.arange(decay.shape[2], device=decay.device)
    ahead = (index - index[:, None])[:, :, None]  # the earlier position minus the later one
    between = decay[:, :, :, None].masked_fill(ahead >= 0, 0.0).cumsum(dim=2)
    return between.masked_fill(ahead > 0, -torch.inf).exp()


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


def selective_scan_chunks(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """selective_scan in chunks of 16 side by side: first where each ends, then all of it from its start."""
    steps = split_chunks(dt)
    factors = torch.exp(steps[..., None] * a).unbind(2)  # 16 of (B, n, I, N)
    inputs = (split_chunks(dt * x)[..., None] * split_chunks(b)[..., None, :]).unbind(2)
    h = chunk_ends(factors, inputs)
    h = F.pad(linear_scan(steps.sum(dim=2)[..., None] * a, h, levels=1), (0, 0, 0, 0, 1, -1))
    outputs = []
    for factor, u, w in zip(factors, inputs, split_chunks(c)[..., None].unbind(2), strict=True):
        h = factor * h + u
        outputs.append(h @ w)
    return join_chunks(outputs, x.shape[1]).squeeze(-1)


def selective_scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Runs the state space over a sequence in float32.

    x, dt (B, T, I), a (I, N), b, c (B, T, N) -> (B, T, I)
    """
    dtype = x.dtype
    x, dt, a, b, c = x.float(), dt.float(), a.float(), b.float(), c.float()
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        return selective_scan_steps(x, dt, a, b, c).to(dtype)
    return selective_scan_chunks(x, dt, a, b, c).to(dtype)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class StateSpace(nn.Module):
    """model.layers.*.mamba: Mamba mixer: short convolution, selective scan and gate."""

    def __init__(self, config: Config):
        super().__init__()
        self.step_rank = config.step_rank
        self.state_size = config.state_size
        self.in_proj = nn.Linear(config.hidden_size, 2 * config.inner_size, bias=False)
        self.conv1d = nn.Conv1d(
            config.inner_size, config.inner_size, kernel_size=config.conv_kernel, groups=config.inner_size
        )
        self.x_proj = nn.Linear(config.inner_size, config.step_rank + 2 * config.state_size, bias=False)
        self.dt_layernorm = nn.RMSNorm(config.step_rank, eps=config.norm_eps)
        self.b_layernorm = nn.RMSNorm(config.state_size, eps=config.norm_eps)
        self.c_layernorm = nn.RMSNorm(config.state_size, eps=config.norm_eps)
        self.dt_proj = nn.Linear(config.step_rank, config.inner_size)
        self.A_log = nn.Parameter(torch.zeros(config.inner_size, config.state_size))
        self.D = nn.Parameter(torch.zeros(config.inner_size))
        self.out_proj = nn.Linear(config.inner_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        x, gate = self.in_proj(zero_padding(x, attention_mask)).chunk(2, dim=-1)
        x = F.silu(conv_causal(x, self.conv1d.weight, self.conv1d.bias))
        x = zero_padding(x, attention_mask)
        dt, b, c = self.x_proj(x).split([self.step_rank, self.state_size, self.state_size], dim=-1)
        dt, b, c = self.dt_layernorm(dt), self.b_layernorm(b), self.c_layernorm(c)
        y = selective_scan(x, F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log.float()), b, c)
        return self.out_proj((y + x * self.D) * F.silu(gate))


class Attention(nn.Module):
    """model.layers.*.self_attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class FeedForward(nn.Module):
    """model.layers.*.feed_forward, model.layers.*.feed_forward.experts.*: feed-forward network with a gate
    (GLU).
    """

    def __init__(self, config: Config, intermediate_size: int):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LayerWithStateSpace(nn.Module):
    """model.layers.*: a layer with pre-norm, a state space and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mamba = StateSpace(config)
        self.pre_ff_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config, intermediate_size=config.intermediate_size)

    def forward(self, x: Tensor, attention_mask: Tensor | None, mask: Tensor | None) -> Tensor:
        x = x + self.mamba(self.input_layernorm(x), attention_mask)
        return x + self.feed_forward(self.pre_ff_layernorm(x))


class LayerWithAttention(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.pre_ff_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config, intermediate_size=config.intermediate_size)

    def forward(self, x: Tensor, attention_mask: Tensor | None, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), mask)
        return x + self.feed_forward(self.pre_ff_layernorm(x))


class MixtureOfExperts(nn.Module):
    """model.layers.*.feed_forward: mixture of experts with router scores by softmax and top-k experts of
    each token.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.experts_per_token = config.experts_per_token
        self.router = nn.Linear(config.hidden_size, config.experts, bias=False)
        self.experts = nn.ModuleList(
            FeedForward(config, intermediate_size=config.moe_intermediate_size) for _ in range(config.experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        scores = logits.softmax(dim=-1, dtype=torch.float32)
        chosen = scores.topk(self.experts_per_token, dim=-1).indices
        weights = scores.gather(-1, chosen)
        return mix_experts(x, weights, chosen, self.experts)


class Layer(nn.Module):
    """model.layers.*: a layer with pre-norm, a state space and a mixture of experts."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mamba = StateSpace(config)
        self.pre_ff_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = MixtureOfExperts(config)

    def forward(self, x: Tensor, attention_mask: Tensor | None, mask: Tensor | None) -> Tensor:
        x = x + self.mamba(self.input_layernorm(x), attention_mask)
        return x + self.feed_forward(self.pre_ff_layernorm(x))


class Decoder(nn.Module):
    """model: a stack of layers with a causal mask and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            LayerWithAttention(config)
            if index in config.attention_layers
            else LayerWithStateSpace(config)
            if index in config.feed_forward_layers
            else Layer(config)
            for index in range(config.layers)
        )
        self.final_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.embed_tokens(input_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.layers:
            x = layer(x, attention_mask, mask)
        return self.final_layernorm(x)


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.to(torch.bfloat16)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_ids (batch, length), attention_mask (batch, length)"""
        x = self.model(input_ids, attention_mask)
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
# {"config": {"architectures": ["JambaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
# "intermediate_size": 14336, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_state": 16,
# "mamba_proj_bias": false, "model_type": "jamba", "num_attention_heads": 32, "num_experts": 16,
# "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
# "tie_word_embeddings": false, "vocab_size": 65536}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: 89643e58bc6f23e0
