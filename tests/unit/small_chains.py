"""Small networks as chains of layers, each with made-up inputs and the answers to all that is asked of it."""

from __future__ import annotations

import torch
from torch import nn


def sequential(*layers):
    torch.manual_seed(0)
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith(("running_mean", "running_var")):
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return model.eval()


class Named(nn.Module):
    """Layers by names, called in the order of `forward`."""

    def __init__(self, forward, **layers):
        super().__init__()
        torch.manual_seed(0)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.call = forward

    def forward(self, x):
        return self.call(self, x)


def lenet():
    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))

    layers = {"conv1": nn.Conv2d(1, 4, 5), "conv2": nn.Conv2d(4, 6, 5)}
    return Named(forward, **layers, fc1=nn.Linear(96, 10), fc2=nn.Linear(10, 3)), torch.randn(2, 1, 28, 28)


def u_net():
    def twice(size, out):
        one, other = nn.Conv2d(size, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        return nn.Sequential(one, nn.BatchNorm2d(out), nn.ReLU(), other, nn.ReLU())

    def forward(self, x):
        first = self.inc(x)
        second = self.down1(torch.max_pool2d(first, 2))
        x = self.up1(self.down2(torch.max_pool2d(second, 2)))
        x = self.up2(self.conv1(torch.cat((second, x), 1)))
        return self.out(self.conv2(torch.cat((first, x), 1)))

    layers = {
        "inc": twice(1, 4),
        "down1": twice(4, 4),
        "down2": twice(4, 8),
    }  # widths alone do not tell which maps
    layers |= {"up1": nn.ConvTranspose2d(8, 4, 2, 2), "conv1": twice(8, 4)}
    layers |= {"up2": nn.ConvTranspose2d(4, 4, 2, 2), "conv2": twice(8, 4), "out": nn.Conv2d(4, 1, 1)}
    return Named(forward, **layers).eval(), torch.randn(1, 1, 8, 12)


def vae():
    """The mean and the spread of paper 1312.6114, numbered as in torch's own example: `fc21` and `fc22` are the second."""

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        mean, spread = self.fc21(x), self.fc22(x)
        return torch.sigmoid(self.fc4(torch.relu(self.fc3(mean)))), mean, spread

    sizes = {"fc1": (9, 6), "fc21": (6, 3), "fc22": (6, 3), "fc3": (3, 6), "fc4": (6, 9)}
    return Named(forward, **{name: nn.Linear(*size) for name, size in sizes.items()}), torch.randn(2, 9)


def vae_of_maps():
    """Names say which layer is the spread: sizes would allow a chain that ends in the mean."""

    def forward(self, x):
        x = torch.relu(self.enc(x)).flatten(1)
        mean, spread = self.fc_mu(x), self.fc_logvar(x)
        return self.dec(torch.relu(self.fc_dec(mean)).unflatten(1, (4, 3, 3))), mean, spread

    layers = {"enc": nn.Conv2d(1, 4, 2, 2), "dec": nn.ConvTranspose2d(4, 1, 2, 2), "fc_mu": nn.Linear(36, 2)}
    layers |= {"fc_logvar": nn.Linear(36, 2), "fc_dec": nn.Linear(2, 36)}
    return Named(forward, **layers), torch.randn(2, 1, 6, 6)


def beside():
    actor, critic = (nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, width)) for width in (3, 1))
    model = Named(lambda self, x: (self.actor(x), self.critic(x)), actor=actor, critic=critic)
    return model, torch.randn(2, 5)


def deviation():
    """Mean and deviation of all frames (x-vectors), and norms whose counters stand before all else in the file."""

    def forward(self, x):
        x = self.bn2(torch.relu(self.tdnn2(self.bn(torch.relu(self.tdnn1(x))))))
        return self.fc(torch.cat((x.mean(2), x.std(2)), 1))

    layers = {"tdnn1": nn.Conv1d(3, 4, 3), "bn": nn.BatchNorm1d(4), "tdnn2": nn.Conv1d(4, 4, 1)}
    model = Named(forward, **layers, bn2=nn.BatchNorm1d(4), fc=nn.Linear(8, 2)).eval()
    return model, torch.randn(2, 3, 9)


def dueling():
    def forward(self, x):
        x = torch.relu(self.features(x)).flatten(1)
        value, advantage = self.value(x), self.advantage(x)
        return value + advantage - advantage.mean(1, keepdim=True), advantage, value

    def head(outputs):
        return nn.Sequential(nn.Linear(4 * 9, 5), nn.ReLU(), nn.Linear(5, outputs))

    layers = {"features": nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3))}
    return Named(forward, **layers, advantage=head(4), value=head(1)), torch.randn(2, 2, 7, 7)


def two_branches():
    """Detectors and descriptors by letters alone, which sizes would also allow as a chain of grouped convolutions."""

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        found = self.convDb(torch.relu(self.convDa(x)))
        return nn.functional.normalize(found, dim=1), self.convPb(torch.relu(self.convPa(x)))

    layers = {"conv1": nn.Conv2d(1, 4, 3, padding=1), "conv2": nn.Conv2d(4, 4, 3, padding=1)}
    layers |= {"convDa": nn.Conv2d(4, 8, 3, padding=1), "convDb": nn.Conv2d(8, 8, 1)}
    layers |= {"convPa": nn.Conv2d(4, 8, 3, padding=1), "convPb": nn.Conv2d(8, 5, 1)}
    return Named(forward, **layers), torch.randn(1, 1, 6, 6)


def named_block():
    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = x + self.res1(x)
        return self.fc(x.mean((2, 3)))

    def block():
        return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())

    layers = {"conv1": nn.Conv2d(1, 4, 3, padding=1), "res1": nn.Sequential(block(), block())}
    return Named(forward, **layers, fc=nn.Linear(4, 2)), torch.randn(1, 1, 6, 6)


def tagger():
    def forward(self, x):
        return self.fc(self.lstm(self.embedding(x))[0])

    lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
    return Named(forward, fc=nn.Linear(10, 7), lstm=lstm, embedding=nn.Embedding(9, 6)), torch.arange(6)[None]


def speaker():
    def forward(self, x):
        states = self.gru(x)[1]
        return nn.functional.normalize(self.linear(torch.cat((states[-2], states[-1]), dim=-1)), dim=-1)

    gru = nn.GRU(4, 5, 2, batch_first=True, bidirectional=True)
    return Named(forward, gru=gru, linear=nn.Linear(10, 3)), torch.randn(2, 7, 4)


def restored():
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.PReLU(6), nn.Conv2d(6, 12, 3, padding=1), nn.PixelShuffle(2)]
    body = sequential(*layers[:3])

    def forward(self, x):
        return nn.functional.pixel_shuffle(self.body(x), 2) + nn.functional.interpolate(x, scale_factor=2)

    return Named(forward, body=body), torch.randn(1, 3, 5, 6)


def generator():
    return sequential(
        nn.ConvTranspose2d(5, 4, 4, 2, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 2, 2),
        nn.Tanh(),
    ), torch.randn(2, 5, 3, 3)


def enlarged(*norms):
    """Maps made of a row and made larger by repetition, with a norm of them first or without; the file has the row's layer last by name."""
    up = nn.Upsample(scale_factor=2)
    inner = [
        *norms,
        up,
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        up,
        nn.Conv2d(8, 1, 3, padding=1),
    ]
    layers = {"l1": nn.Sequential(nn.Linear(5, 8 * 16)), "conv": nn.Sequential(*inner, nn.Tanh())}
    return Named(lambda self, x: self.conv(self.l1(x).unflatten(1, (8, 4, 4))), **layers).eval(), torch.randn(
        2, 5
    )


def recognizer():
    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
        x = x.permute(0, 3, 1, 2).flatten(2)
        return nn.functional.log_softmax(self.out(self.rnn(x)[0]), dim=-1)

    rnn = nn.LSTM(4 * 5, 6, batch_first=True, bidirectional=True)
    layers = {"conv": nn.Conv2d(1, 4, 3, padding=1), "bn": nn.BatchNorm2d(4), "rnn": rnn}
    return Named(forward, **layers, out=nn.Linear(12, 8)).eval(), torch.randn(1, 1, 10, 12)


def words():
    return sequential(
        nn.Conv1d(4, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(6, 6, 3, stride=2, padding=1, groups=6),
        nn.ReLU(), nn.Conv1d(6, 5, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(5, 2),
    ), torch.randn(2, 4, 16)  # fmt: skip


def finder():
    """Slopes, a window that reaches beyond the maps, features in reverse order of their axes, two heads."""

    def forward(self, x):
        x = nn.functional.max_pool2d(self.prelu1(self.conv1(x)), 3, 2, ceil_mode=True)
        x = self.prelu2(self.dense(x.permute(0, 3, 2, 1).flatten(1)))
        return torch.softmax(self.head_1(x), 1), self.head_2(x)

    layers = {
        "conv1": nn.Conv2d(3, 4, 3),
        "prelu1": nn.PReLU(4),
        "dense": nn.Linear(64, 5),
        "prelu2": nn.PReLU(5),
    }
    return Named(forward, **layers, head_1=nn.Linear(5, 2), head_2=nn.Linear(5, 4)), torch.randn(2, 3, 10, 10)


def frames():
    """A convolution over each frame, an LSTM over the frames."""

    def forward(self, x):
        y = torch.max_pool1d(torch.relu(self.conv(x.flatten(0, 1).unsqueeze(1))), 2).flatten(1)
        return self.out(self.lstm(torch.tanh(self.fc(y)).unflatten(0, x.shape[:2]))[0])

    layers = {"conv": nn.Conv1d(1, 2, 5), "fc": nn.Linear(2 * 4, 6), "lstm": nn.LSTM(6, 5, batch_first=True)}
    return Named(forward, **layers, out=nn.Linear(5, 3)), torch.randn(2, 3, 12)


def cells():
    """Cells over each position, the last of an encoder repeated for a decoder."""

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.enc_cell(step, state)
        found, other = [], None
        for _ in x.unbind(1):
            other = self.dec_cell(state, other)
            found.append(other[0])
        return self.out(torch.stack(found, 1))

    layers = {"enc_cell": nn.GRUCell(3, 5), "dec_cell": nn.LSTMCell(5, 4, bias=False)}
    return Named(forward, **layers, out=nn.Linear(4, 2)), torch.randn(2, 6, 3)


class Block(nn.Module):
    """Norms that are defined after the convolutions that they stand between."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.bn2(self.conv2(nn.functional.leaky_relu(self.bn1(self.conv1(x)), 0.3)))
        return nn.functional.leaky_relu(x + y, 0.3)


def residual():
    def forward(self, x):
        x = nn.functional.leaky_relu(self.first(x), 0.3)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))

    layers = {"first": nn.Conv2d(3, 4, 3, padding=1), "blocks": nn.ModuleList([Block(), Block()])}
    return Named(forward, **layers, fc=nn.Linear(4, 2)).eval(), torch.randn(2, 3, 6, 6)


class Causal(nn.Module):
    """Convolutions over what came before, added between two activations; the input widened by a layer of its own."""

    def __init__(self, inputs, outputs, step):
        super().__init__()
        self.step, self.downsample = (
            step,
            nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity(),
        )
        self.conv1, self.conv2 = (nn.Conv1d(n, outputs, 3, dilation=step) for n in (inputs, outputs))

    def forward(self, x):
        y = x
        for layer in (self.conv1, self.conv2):
            y = torch.relu(layer(nn.functional.pad(y, (2 * self.step, 0))))
        return torch.relu(y + self.downsample(x))


def causal():
    network = nn.Sequential(Causal(3, 5, 1), Causal(5, 5, 2))
    return Named(
        lambda self, x: self.fc(self.network(x)[..., -1]), network=network, fc=nn.Linear(5, 2)
    ), torch.randn(2, 3, 9)


class Halved(nn.Module):
    """A block of half the extent; its input goes through a convolution and a norm."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, 1, 1), nn.BatchNorm2d(6)
        self.shortcut = nn.Sequential(nn.Conv2d(4, 6, 1, 2), nn.BatchNorm2d(6))

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


def halved():
    def forward(self, x):
        return self.linear(self.layer1(torch.relu(self.bn1(self.conv1(x)))).mean((2, 3)))

    layers = {
        "conv1": nn.Conv2d(3, 4, 3, padding=1),
        "bn1": nn.BatchNorm2d(4),
        "layer1": nn.Sequential(Halved()),
    }
    return Named(forward, **layers, linear=nn.Linear(6, 2)).eval(), torch.randn(2, 3, 8, 8)


def pitch():
    """A norm of channels and positions, a layer that is added to what it reads, a convolution over all in one row."""

    def forward(self, x):
        x = nn.functional.leaky_relu(self.conv1(self.layernorm(x)), 0.3)
        x = x + nn.functional.leaky_relu(self.conv2(x), 0.3)
        return torch.softmax(self.fc(x.flatten(1).unsqueeze(1)).squeeze(1), -1)

    layers = {"layernorm": nn.LayerNorm([1, 9]), "conv1": nn.Conv1d(1, 3, 5, padding=2)}
    layers |= {"conv2": nn.Conv1d(3, 3, 5, padding=2), "fc": nn.Conv1d(1, 1, 31, padding=4, bias=False)}
    return Named(forward, **layers), torch.randn(2, 1, 9)


def fire():
    """One layer makes the maps narrow, two side by side make them wide again, as in paper 1602.07360."""

    def wide(block, x):
        x = block.squeeze(x).relu()
        return torch.cat((block.expand1x1(x), block.expand3x3(x)), 1).relu()

    def forward(self, x):
        x = wide(self.fire3, wide(self.fire2, self.conv1(x).relu()))
        return self.head(x).relu().mean((2, 3))

    def block(width):
        layers = {
            "squeeze": nn.Conv2d(width, 3, 1),
            "expand1x1": nn.Conv2d(3, 5, 1),
            "expand3x3": nn.Conv2d(3, 5, 3, padding=1),
        }
        return nn.ModuleDict(layers)

    layers = {"conv1": nn.Conv2d(2, 6, 3), "fire2": block(6), "fire3": block(10), "head": nn.Conv2d(10, 4, 1)}
    return Named(forward, **layers), torch.randn(2, 2, 7, 7)


def inception():
    """Four arms, one of two layers with norms and one behind a pooling, as in paper 1409.4842."""

    class Arms(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.branch1 = nn.Sequential(nn.Conv2d(width, 3, 1, bias=False), nn.BatchNorm2d(3), nn.ReLU())
            self.branch2 = nn.Sequential(
                nn.Conv2d(width, 2, 1, bias=False), nn.BatchNorm2d(2), nn.ReLU(),
                nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
            )  # fmt: skip
            pooled = nn.MaxPool2d(3, stride=1, padding=1)
            self.branch3 = nn.Sequential(
                pooled, nn.Conv2d(width, 2, 1, bias=False), nn.BatchNorm2d(2), nn.ReLU()
            )

        def forward(self, x):
            return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x)], 1)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.mixed1(self.conv(x).relu()), 2)
        return self.fc(self.mixed2(x).mean((2, 3)))

    layers = {
        "conv": nn.Conv2d(3, 6, 3, padding=1),
        "mixed1": Arms(6),
        "mixed2": Arms(9),
        "fc": nn.Linear(9, 2),
    }
    return Named(forward, **layers).eval(), torch.randn(2, 3, 8, 8)


def text(is_image):
    """Convolutions of several lengths over words, each with its largest value alone (paper 1408.5882)."""

    def forward(self, ids):
        x = self.embedding(ids)
        x = x.unsqueeze(1) if is_image else x.transpose(1, 2)
        return self.fc(torch.cat([conv(x).relu().flatten(2).amax(-1) for conv in self.convs], 1))

    convs = [nn.Conv2d(1, 4, (size, 6)) if is_image else nn.Conv1d(6, 4, size) for size in (2, 3, 4)]
    layers = {"embedding": nn.Embedding(11, 6), "convs": nn.ModuleList(convs), "fc": nn.Linear(12, 3)}
    return Named(forward, **layers), torch.randint(0, 11, (2, 7))
