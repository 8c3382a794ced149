"""Small networks with the names that files of the world have, for tools/foreign_cases.py: what no package of its own writes.

Each is written from its paper; only the names of its parameters are those of the published files.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalSelfAttention(nn.Module):
    """Self-attention with a causal mask, under the names of nanoGPT (GPT-2's) or of minGPT's first files."""

    def __init__(self, width: int, heads: int, joined: bool) -> None:
        super().__init__()
        self.heads = heads
        if joined:
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        else:
            self.key, self.query, self.value = (nn.Linear(width, width) for _ in range(3))
            self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        joined = hasattr(self, "c_attn")
        q, k, v = self.c_attn(x).chunk(3, -1) if joined else (self.query(x), self.key(x), self.value(x))
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.c_proj(y) if joined else self.proj(y)


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, width: int, heads: int, joined: bool) -> None:
        super().__init__()
        self.ln_1 = self.ln1 = nn.LayerNorm(width)
        self.ln_2 = self.ln2 = nn.LayerNorm(width)
        if joined:
            del self.ln1, self.ln2
            self.mlp = nn.ModuleDict(
                {"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)}
            )
        else:
            del self.ln_1, self.ln_2
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.attn = CausalSelfAttention(width, heads, joined)

    def forward(self, x: Tensor) -> Tensor:
        first, second = (self.ln_1, self.ln_2) if hasattr(self, "ln_1") else (self.ln1, self.ln2)
        x = x + self.attn(first(x))
        y = second(x)
        if isinstance(self.mlp, nn.Sequential):
            return x + self.mlp(y)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](y)))


class NanoGPT(nn.Module):
    """GPT-2 (the 2019 report) under nanoGPT's names: transformer.wte, transformer.h.{n}.attn.c_attn."""

    def __init__(
        self, vocabulary: int = 100, context: int = 32, width: int = 64, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(context, width),
                "h": nn.ModuleList(Block(width, heads, True) for _ in range(layers)),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, idx: Tensor) -> Tensor:
        x = self.transformer["wte"](idx) + self.transformer["wpe"].weight[: idx.shape[1]]
        for layer in self.transformer["h"]:
            x = layer(x)
        return self.lm_head(self.transformer["ln_f"](x))


class MinGPT(nn.Module):
    """The same under the names of minGPT's first files: tok_emb, pos_emb, blocks.{n}.attn.key, ln_f, head."""

    def __init__(
        self, vocabulary: int = 100, context: int = 32, width: int = 64, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(vocabulary, width)
        self.pos_emb = nn.Parameter(torch.randn(1, context, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, False) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, idx: Tensor) -> Tensor:
        return self.head(self.ln_f(self.blocks(self.tok_emb(idx) + self.pos_emb[:, : idx.shape[1]])))


class Crnn(nn.Module):
    """Convolutions, recurrent layers and a linear layer (1507.05717): lines of text to letters."""

    def __init__(self, letters: int = 20, hidden: int = 32) -> None:
        super().__init__()
        self.cnn = nn.Sequential(OrderedDict(
            conv0=nn.Conv2d(1, 16, 3, padding=1), relu0=nn.ReLU(), pooling0=nn.MaxPool2d(2, 2),
            conv1=nn.Conv2d(16, 32, 3, padding=1), relu1=nn.ReLU(), pooling1=nn.MaxPool2d(2, 2),
        ))  # fmt: skip
        self.map_to_seq = nn.Linear(32 * 4, 24)
        self.rnn1 = nn.LSTM(24, hidden, bidirectional=True, batch_first=True)
        self.rnn2 = nn.LSTM(2 * hidden, hidden, bidirectional=True, batch_first=True)
        self.dense = nn.Linear(2 * hidden, letters)

    def forward(self, x: Tensor) -> Tensor:
        y = self.cnn(x).flatten(1, 2).transpose(1, 2)
        return self.dense(self.rnn2(self.rnn1(self.map_to_seq(y))[0])[0])


class ConvLstm(nn.Module):
    """Convolutions in time, an LSTM, and a linear layer on its last state."""

    def __init__(self, features: int = 6, hidden: int = 24, classes: int = 5) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(features, 16, 5, padding=2), nn.Conv1d(16, 20, 3, padding=1)
        self.lstm = nn.LSTM(20, hidden, 2, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv2(F.relu(self.conv1(x)))).transpose(1, 2)
        return self.fc(self.lstm(y)[0][:, -1])


class LstmClassifier(nn.Module):
    """Words, a bidirectional LSTM, and a linear layer on the last states of both directions."""

    def __init__(self, words: int = 100, width: int = 24, hidden: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, 2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, text: Tensor) -> Tensor:
        states = self.lstm(self.embedding(text))[1][0]
        return self.fc(torch.cat((states[-2], states[-1]), 1))


class LstmLanguageModel(nn.Module):
    """A word-level language model of an LSTM, as torch's own example names it: encoder, rnn, decoder."""

    def __init__(self, words: int = 100, width: int = 24, hidden: int = 32) -> None:
        super().__init__()
        self.encoder, self.rnn, self.decoder = (
            nn.Embedding(words, width),
            nn.LSTM(width, hidden, 2, batch_first=True),
            nn.Linear(hidden, words),
        )

    def forward(self, text: Tensor) -> Tensor:
        return self.decoder(self.rnn(self.encoder(text))[0])


class Vae(nn.Module):
    """A variational autoencoder of linear layers (1312.6114), under the names of torch's own example."""

    def __init__(self, pixels: int = 48, hidden: int = 32, latent: int = 6) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = (
            nn.Linear(pixels, hidden),
            nn.Linear(hidden, latent),
            nn.Linear(hidden, latent),
        )
        self.fc3, self.fc4 = nn.Linear(latent, hidden), nn.Linear(hidden, pixels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(mu)))), mu, logvar


class NamedVae(nn.Module):
    """The same with sequences and heads called by what they give."""

    def __init__(self, pixels: int = 48, hidden: int = 32, latent: int = 6) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, hidden // 2), nn.ReLU()
        )
        self.fc_mu, self.fc_logvar = nn.Linear(hidden // 2, latent), nn.Linear(hidden // 2, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden // 2),
            nn.ReLU(),
            nn.Linear(hidden // 2, hidden),
            nn.ReLU(),
            nn.Linear(hidden, pixels),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(x)
        mu, logvar = self.fc_mu(h), self.fc_logvar(h)
        return self.decoder(mu), mu, logvar


class Dueling(nn.Module):
    """A deep Q network with two heads, for the value and the advantages (1511.06581)."""

    def __init__(self, actions: int = 5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 8, 8, 4),
            nn.ReLU(),
            nn.Conv2d(8, 16, 4, 2),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, 1),
            nn.ReLU(),
        )
        self.value = nn.Sequential(nn.Linear(16 * 7 * 7, 32), nn.ReLU(), nn.Linear(32, 1))
        self.advantage = nn.Sequential(nn.Linear(16 * 7 * 7, 32), nn.ReLU(), nn.Linear(32, actions))

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x).flatten(1)
        advantage = self.advantage(y)
        return self.value(y) + advantage - advantage.mean(1, keepdim=True)


class ActorCritic(nn.Module):
    """Layers that both heads share: what to do, and what the state is worth."""

    def __init__(self, observed: int = 8, hidden: int = 32, actions: int = 4) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(observed, hidden), nn.Linear(hidden, hidden)
        self.actor, self.critic = nn.Linear(hidden, actions), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.relu(self.fc2(F.relu(self.fc1(x))))
        return self.actor(y), self.critic(y)


class Mixer(nn.Module):
    """A selective state space (2312.00752) under the names of its first release."""

    def __init__(self, width: int, states: int = 16, kernel: int = 4, expansion: int = 2) -> None:
        super().__init__()
        inner, self.rank, self.states = expansion * width, -(-width // 16), states
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, self.rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        self.A_log = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        y, gate = self.in_proj(x).chunk(2, -1)
        y = F.silu(self.conv1d(y.transpose(1, 2))[..., :length].transpose(1, 2))
        step, b, c = self.x_proj(y).split([self.rank, self.states, self.states], -1)
        step = F.softplus(self.dt_proj(step))
        decay = torch.exp(step[..., None] * -self.A_log.exp())
        state, out = torch.zeros_like(decay[:, 0]), []
        for at in range(length):
            state = decay[:, at] * state + (step[:, at] * y[:, at])[..., None] * b[:, at, None]
            out.append((state * c[:, at, None]).sum(-1))
        return self.out_proj((torch.stack(out, 1) + y * self.D) * F.silu(gate))


class MambaBlock(nn.Module):
    """A norm, and a mixer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mixer, self.norm = Mixer(width), nn.RMSNorm(width, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mixer(self.norm(x))


class MambaLM(nn.Module):
    """Mamba under the names of its first release: backbone.embedding, backbone.layers.{n}.mixer, backbone.norm_f."""

    def __init__(self, vocabulary: int = 100, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.backbone = nn.ModuleDict(
            {
                "embedding": nn.Embedding(vocabulary, width),
                "layers": nn.ModuleList(MambaBlock(width) for _ in range(layers)),
                "norm_f": nn.RMSNorm(width, eps=1e-5),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.backbone["embedding"](input_ids)
        for layer in self.backbone["layers"]:
            x = layer(x)
        return self.lm_head(self.backbone["norm_f"](x))
