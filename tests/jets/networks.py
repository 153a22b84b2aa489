"""Networks for the tests: what people write, in the ways that they write it."""

import math

import torch
from torch import nn


def stack(inputs, outputs, width=16, depth=2, activation=nn.Tanh):
    layers = [nn.Linear(inputs, width), activation()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class Sin(nn.Module):
    def forward(self, x):
        return torch.sin(x)


class Residual(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.second(torch.tanh(self.first(x))))


class Embedded(nn.Module):
    """Fourier features, input scaling, a residual block."""

    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(inputs, width // 2))
        self.register_buffer("center", torch.rand(inputs))
        self.body = nn.Sequential(nn.Linear(width, width), nn.SiLU(), Residual(width), nn.Linear(width, outputs))

    def forward(self, x):
        phase = 2.0 * (x - self.center) / 3.0 @ self.frequencies
        return self.body(torch.cat([torch.sin(phase), torch.cos(phase)], dim=-1))


class Periodic(nn.Module):
    """Exact period in the last coordinate; unpacks its columns as one would by hand."""

    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.body = stack(inputs + 1, outputs, width)

    def forward(self, points):
        rest, last = points[:, :-1], points[:, -1:]
        return self.body(torch.cat((rest, torch.cos(math.pi * last), torch.sin(math.pi * last)), 1))


class Modified(nn.Module):
    """Wang's modified MLP: two gates mix into every layer."""

    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.u, self.v, self.first = (nn.Linear(inputs, width) for _ in range(3))
        self.second, self.last = nn.Linear(width, width), nn.Linear(width, outputs)

    def forward(self, x):
        u, v = torch.tanh(self.u(x)), torch.tanh(self.v(x))
        h = torch.tanh(self.first(x))
        h = (1 - h) * u + h * v
        h = torch.tanh(self.second(h))
        return self.last((1 - h) * u + h * v)


class Hard(nn.Module):
    """An output transform that meets u(0, ...) = 0 exactly, with a quotient and powers for good measure."""

    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.body = stack(inputs, outputs, width)

    def forward(self, x):
        t = x[:, 0:1]
        return torch.exp(-t) * t**2 / (1.0 + t**2) * self.body(x) + torch.sqrt(1 + t**2)


class Factorised(nn.Module):
    """Random weight factorisation: W = diag(exp(s)) V."""

    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.s, self.v = nn.Parameter(torch.randn(width) * 0.1), nn.Parameter(torch.randn(width, inputs))
        self.bias = nn.Parameter(torch.zeros(width))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(width, outputs))

    def forward(self, x):
        h = torch.tanh(nn.functional.linear(x, self.v * self.s.exp().unsqueeze(1), self.bias))
        return self.last(h)


class ByColumns(nn.Module):
    """Works on [N] columns and stacks them."""

    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.body = stack(inputs, outputs, width)
        self.amplitude = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        columns = x.unbind(1)
        scaled = torch.stack([self.amplitude * torch.sin(c) - 0.5 for c in columns], dim=1)
        return self.body(scaled)


class Attention(nn.Module):
    """Attention over the coordinates of one point: no closed form."""

    def __init__(self, inputs, outputs, width=8):
        super().__init__()
        self.embed = nn.Linear(1, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.last = nn.Linear(width, outputs)

    def forward(self, x):
        tokens = self.embed(x.unsqueeze(-1))
        scores = torch.softmax(self.query(tokens) @ self.key(tokens).transpose(1, 2), dim=-1)
        return self.last(torch.tanh(scores @ tokens).mean(1))


RECOGNISED = {
    "tanh": lambda i, o: stack(i, o),
    "sin": lambda i, o: stack(i, o, activation=Sin),
    "silu": lambda i, o: stack(i, o, activation=nn.SiLU),
    "gelu": lambda i, o: stack(i, o, activation=nn.GELU),
    "softplus": lambda i, o: stack(i, o, activation=nn.Softplus),
    "sigmoid": lambda i, o: stack(i, o, activation=nn.Sigmoid),
    "linear": lambda i, o: nn.Linear(i, o),
    "embedded": Embedded,
    "periodic": Periodic,
    "modified": Modified,
    "hard": Hard,
    "factorised": Factorised,
    "by_columns": ByColumns,
}
