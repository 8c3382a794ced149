"""Networks of published code, small, under its names: what lies between the layers is that code's."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.small_chains import Named


def settled(model):
    """The model with statistics and vectors of their own."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("running_var"):
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
            elif tensor.dim() == 1 and tensor.is_floating_point():
                tensor.add_(torch.randn(tensor.shape) * 0.1)
    return model.eval()


def linear(*sizes, between=nn.ReLU):
    layers = [layer for size in pairwise(sizes) for layer in (nn.Linear(*size), between())]
    return nn.Sequential(*layers[:-1])


def whole(name, layers):
    return Named(lambda self, x: getattr(self, name)(x), **{name: nn.Sequential(*layers)})


def generator():
    layers = []
    for inputs, outputs, stride in ((5, 16, 1), (16, 8, 2), (8, 6, 2), (6, 4, 2)):
        padding = stride - 1
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)]
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
    last = nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False)
    return whole("main", [*layers, last, nn.Tanh()]), torch.randn(2, 5, 1, 1)


def patches():
    layers = [nn.Conv2d(3, 4, 4, 2, 1), nn.LeakyReLU(0.2)]
    for inputs, outputs, stride in ((4, 8, 2), (8, 16, 2), (16, 20, 1)):
        layers += [nn.Conv2d(inputs, outputs, 4, stride, 1, bias=False), nn.BatchNorm2d(outputs)]
        layers += [nn.LeakyReLU(0.2)]
    return whole("model", [*layers, nn.Conv2d(20, 1, 4, 1, 1)]), torch.randn(1, 3, 48, 40)


def cycle():
    """Norms of each map store nothing: numbers alone tell of them."""

    def block(width):
        layers = []
        for _ in range(2):
            layers += [nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU()]
        return Named(lambda self, x: x + self.conv_block(x), conv_block=nn.Sequential(*layers[:-1]))

    def wide(layer, width):
        return [layer, nn.InstanceNorm2d(width), nn.ReLU()]

    layers = [nn.ReflectionPad2d(3), *wide(nn.Conv2d(3, 4, 7), 4)]
    layers += [*wide(nn.Conv2d(4, 8, 3, 2, 1), 8), *wide(nn.Conv2d(8, 12, 3, 2, 1), 12)]
    layers += [block(12) for _ in range(3)]
    layers += wide(nn.ConvTranspose2d(12, 8, 3, 2, 1, 1), 8) + wide(nn.ConvTranspose2d(8, 4, 3, 2, 1, 1), 4)
    return whole("model", [*layers, nn.ReflectionPad2d(3), nn.Conv2d(4, 3, 7), nn.Tanh()]), torch.randn(
        1, 3, 16, 24
    )


def u_net():
    def twice(inputs, outputs):
        layers = []
        for size in (inputs, outputs):
            layers += [nn.Conv2d(size, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return Named(lambda self, x: self.double_conv(x), double_conv=nn.Sequential(*layers))

    def down(inputs, outputs):
        layers = nn.Sequential(nn.MaxPool2d(2), twice(inputs, outputs))
        return Named(lambda self, x: self.maxpool_conv(x), maxpool_conv=layers)

    def up(inputs):
        def call(self, pair):
            return self.conv(torch.cat((pair[1], self.up(pair[0])), 1))

        layers = {"up": nn.ConvTranspose2d(inputs, inputs // 2, 2, 2), "conv": twice(inputs, inputs // 2)}
        return Named(call, **layers)

    def call(self, x):
        kept = [self.inc(x)]
        for number in range(1, 5):
            kept.append(getattr(self, f"down{number}")(kept[-1]))
        x = kept.pop()
        for number in range(1, 5):
            x = getattr(self, f"up{number}")((x, kept.pop()))
        return self.outc(x)

    last = Named(lambda self, x: self.conv(x), conv=nn.Conv2d(2, 3, 1))
    layers = {f"down{number}": down(2**number, 2 ** (number + 1)) for number in range(1, 5)}
    layers |= {f"up{number}": up(2 ** (6 - number)) for number in range(1, 5)}
    return Named(call, inc=twice(3, 2), **layers, outc=last), torch.randn(1, 3, 32, 48)


def slices():
    """A U-Net whose layers have the name of their block in theirs (paper 1505.04597)."""

    def twice(inputs, outputs, name):
        layers = {}
        for number, size in enumerate((inputs, outputs), 1):
            layers[f"{name}conv{number}"] = nn.Conv2d(size, outputs, 3, padding=1, bias=False)
            layers[f"{name}norm{number}"] = nn.BatchNorm2d(outputs)
            layers[f"{name}relu{number}"] = nn.ReLU()
        return nn.Sequential(OrderedDict(layers))

    def call(self, x):
        kept = []
        for number in range(1, 5):
            kept.append(getattr(self, f"encoder{number}")(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.bottleneck(x)
        for number in range(4, 0, -1):
            x = torch.cat((getattr(self, f"upconv{number}")(x), kept.pop()), 1)
            x = getattr(self, f"decoder{number}")(x)
        return torch.sigmoid(self.conv(x))

    layers = {f"encoder{n}": twice(2**n if n > 1 else 3, 2 ** (n + 1), f"enc{n}") for n in range(1, 5)}
    layers["bottleneck"] = twice(32, 64, "bottleneck")
    for n in range(4, 0, -1):
        layers[f"upconv{n}"] = nn.ConvTranspose2d(2 ** (n + 2), 2 ** (n + 1), 2, 2)
        layers[f"decoder{n}"] = twice(2 ** (n + 2), 2 ** (n + 1), f"dec{n}")
    return Named(call, **layers, conv=nn.Conv2d(4, 1, 1)), torch.randn(1, 3, 32, 48)


def temporal():
    """Blocks of dilated convolutions over the past (paper 1803.01271), without a head."""

    def block(inputs, outputs, dilation):
        def call(self, x):
            y = self.net(x)
            return F.relu(y + (self.downsample(x) if inputs != outputs else x))

        def padded(conv):
            return nn.Sequential(nn.ConstantPad1d((2 * dilation, 0), 0.0), conv)

        first, second = (nn.Conv1d(size, outputs, 3, dilation=dilation) for size in (inputs, outputs))
        net = nn.Module()
        net.add_module("0", first)
        net.add_module("4", second)
        net.forward = lambda x: F.relu(padded(second)(F.relu(padded(first)(x))))
        short = {"downsample": nn.Conv1d(inputs, outputs, 1)} if inputs != outputs else {}
        return Named(call, conv1=first, conv2=second, net=net, **short)

    blocks = [block(*sizes) for sizes in ((3, 6, 1), (6, 6, 2), (6, 4, 4))]
    return whole("network", blocks), torch.randn(1, 3, 20)


def mixer():
    """Residuals around a depthwise convolution, then a pointwise one (paper 2201.09792)."""

    def residual():
        layers = nn.Sequential(nn.Conv2d(6, 6, 5, groups=6, padding=2), nn.GELU(), nn.BatchNorm2d(6))
        return Named(lambda self, x: x + self.fn(x), fn=layers)

    def block():
        return nn.Sequential(residual(), nn.Conv2d(6, 6, 1), nn.GELU(), nn.BatchNorm2d(6))

    stem = nn.Sequential(nn.Conv2d(3, 6, 4, 4), nn.GELU(), nn.BatchNorm2d(6))
    blocks = nn.Sequential(block(), block())
    return Named(
        lambda self, x: self.head(self.blocks(self.stem(x)).mean((2, 3))),
        stem=stem,
        blocks=blocks,
        head=nn.Linear(6, 5),
    ), torch.randn(1, 3, 32, 24)


def small_resnet():
    def block(inputs, outputs, stride):
        def call(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + self.shortcut(x))

        layers = {
            "conv1": nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            "bn1": nn.BatchNorm2d(outputs),
        }
        layers |= {"conv2": nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), "bn2": nn.BatchNorm2d(outputs)}
        short = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        return Named(call, **layers, shortcut=nn.Sequential(*(short if inputs != outputs else [])))

    def call(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))

    stages = {
        f"layer{number}": nn.Sequential(block(inputs, outputs, stride), block(outputs, outputs, 1))
        for number, (inputs, outputs, stride) in enumerate(((4, 4, 1), (4, 8, 2), (8, 12, 2)), 1)
    }
    first = {"conv1": nn.Conv2d(3, 4, 3, 1, 1, bias=False), "bn1": nn.BatchNorm2d(4)}
    return Named(call, **first, **stages, linear=nn.Linear(12, 5)), torch.randn(2, 3, 16, 16)


def autoencoder():
    def call(self, x):
        x = F.relu(self.fc1(x))
        mean, spread = self.fc21(x), self.fc22(x)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(mean)))), mean, spread

    sizes = {"fc1": (784, 6), "fc21": (6, 3), "fc22": (6, 3), "fc3": (3, 6), "fc4": (6, 784)}
    return Named(call, **{name: nn.Linear(*size) for name, size in sizes.items()}), torch.randn(2, 784)


def digits():
    def call(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), -1)

    layers = {"conv1": nn.Conv2d(1, 3, 3), "conv2": nn.Conv2d(3, 64, 3), "fc1": nn.Linear(9216, 128)}
    return Named(call, **layers, fc2=nn.Linear(128, 10)), torch.randn(2, 1, 28, 28)


def pixels():
    maps = [
        nn.Conv2d(4, 3, 8, 4),
        nn.ReLU(),
        nn.Conv2d(3, 5, 4, 2),
        nn.ReLU(),
        nn.Conv2d(5, 64, 3),
        nn.ReLU(),
    ]
    model = whole("network", [*maps, nn.Flatten(), nn.Linear(3136, 7), nn.ReLU(), nn.Linear(7, 6)])
    model.call = lambda self, x: self.network(x / 255.0)
    return model, torch.randint(0, 256, (2, 4, 84, 84)).float()


def agent():
    layers = {"critic": linear(4, 64, 64, 1, between=nn.Tanh), "actor": linear(4, 64, 64, 2, between=nn.Tanh)}
    return Named(lambda self, x: (self.actor(x), self.critic(x)), **layers), torch.randn(3, 4)


def part(call, **layers):
    return Named(call, **layers)


def actor_critic(hidden=64, between=nn.Tanh):
    def call(self, x):
        policy, value = self.mlp_extractor.policy_net(x), self.mlp_extractor.value_net(x)
        return self.action_net(policy), self.value_net(value)

    def net():
        return nn.Sequential(*linear(5, hidden, hidden, between=between), between())

    nets = {"policy_net": net(), "value_net": net()}
    model = part(
        call,
        mlp_extractor=part(None, **nets),
        action_net=nn.Linear(hidden, 3),
        value_net=nn.Linear(hidden, 1),
    )
    model.log_std = nn.Parameter(torch.zeros(3))  # no sample is drawn
    return model, torch.randn(2, 5)


def deterministic_agent():
    def call(self, x):
        action = torch.tanh(self.actor.mu(x))
        seen = torch.cat((x, action), -1)
        return action, self.critic.qf0(seen), self.critic.qf1(seen)

    def nets():
        critic = part(None, qf0=linear(8, 7, 6, 1), qf1=linear(8, 7, 6, 1))
        return part(None, mu=linear(5, 7, 6, 3)), critic

    actor, critic = nets()
    copy, other = nets()  # of some steps ago
    return part(call, actor=actor, critic=critic, actor_target=copy, critic_target=other), torch.randn(2, 5)


def soft_agent():
    def call(self, x):
        hidden = self.actor.latent_pi(x)
        action, spread = torch.tanh(self.actor.mu(hidden)), self.actor.log_std(hidden)
        seen = torch.cat((x, action), -1)
        return action, spread, self.critic.qf0(seen), self.critic.qf1(seen)

    def critic():
        return part(None, qf0=linear(8, 7, 6, 1), qf1=linear(8, 7, 6, 1))

    latent = nn.Sequential(*linear(5, 7, 6), nn.ReLU())
    actor = part(None, latent_pi=latent, mu=nn.Linear(6, 3), log_std=nn.Linear(6, 3))
    return part(call, actor=actor, critic=critic(), critic_target=critic()), torch.randn(2, 5)


def continuous_agent():
    nets = {
        "critic": linear(5, 64, 64, 1, between=nn.Tanh),
        "actor_mean": linear(5, 64, 64, 3, between=nn.Tanh),
    }
    model = part(lambda self, x: (self.actor_mean(x), self.critic(x)), **nets)
    model.actor_logstd = nn.Parameter(torch.zeros(1, 3))  # no sample is drawn
    return model, torch.randn(2, 5)


def bounded_actor():
    def call(self, x):
        x = torch.relu(self.fc2(torch.relu(self.fc1(x))))
        return torch.tanh(self.fc_mu(x)) * self.action_scale + self.action_bias

    model = part(call, fc1=nn.Linear(5, 256), fc2=nn.Linear(256, 256), fc_mu=nn.Linear(256, 3))
    model.register_buffer("action_scale", torch.tensor([2.0, 0.5, 1.0]))
    model.register_buffer("action_bias", torch.tensor([0.0, -1.0, 0.5]))
    return model, torch.randn(2, 5)


def faces():
    """A residual network for faces (1801.07698): a norm before each block, slopes in it, steps in its second convolution."""

    def block(inputs, outputs, stride):
        def call(self, x):
            y = self.bn3(self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x))))))
            return y + (self.downsample(x) if hasattr(self, "downsample") else x)

        layers = {
            "bn1": nn.BatchNorm2d(inputs),
            "conv1": nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            "bn2": nn.BatchNorm2d(outputs),
            "prelu": nn.PReLU(outputs),
            "conv2": nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False),
            "bn3": nn.BatchNorm2d(outputs),
        }
        if stride > 1:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            layers["downsample"] = nn.Sequential(*shortcut)
        return part(call, **layers)

    def call(self, x):
        x = self.prelu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.features(self.fc(self.bn2(x).flatten(1)))

    layers = {
        "conv1": nn.Conv2d(3, 4, 3, padding=1, bias=False),
        "bn1": nn.BatchNorm2d(4),
        "prelu": nn.PReLU(4),
    }
    for at, (inputs, outputs) in enumerate(((4, 4), (4, 6), (6, 8), (8, 9)), 1):
        layers[f"layer{at}"] = nn.Sequential(block(inputs, outputs, 2), block(outputs, outputs, 1))
    ends = {"bn2": nn.BatchNorm2d(9), "fc": nn.Linear(9 * 2 * 2, 7), "features": nn.BatchNorm1d(7)}
    return part(call, **layers, **ends), torch.randn(2, 3, 32, 32)


def apart_from_its_trend():
    """A series in a slow trend and the rest (2205.13504)."""

    def call(self, x):
        ends = x[:, :1].expand(-1, 12, -1), x, x[:, -1:].expand(-1, 12, -1)
        x = x.transpose(1, 2)
        trend = torch.nn.functional.avg_pool1d(torch.cat(ends, 1).transpose(1, 2), 25, stride=1)
        return (self.Linear_Seasonal(x - trend) + self.Linear_Trend(trend)).transpose(1, 2)

    maps = {f"Linear_{word}": nn.Linear(18, 6) for word in ("Seasonal", "Trend")}
    return part(call, **maps), torch.randn(2, 18, 4)


PUBLISHED = (
    generator, patches, cycle, u_net, small_resnet, autoencoder, digits, pixels, actor_critic, deterministic_agent,
    soft_agent, slices, temporal, continuous_agent, bounded_actor, apart_from_its_trend, faces,
)  # fmt: skip
