"""A stand-in for Agent57's update in PyTorch: the same layers, losses and optimisers.

benchmarks/agent57_beside_torch.py runs it, by a Python that has PyTorch and NumPy and nothing of
retrax. The first line on standard input has the sizes, in JSON; each further line asks for an
update, and its seconds are printed.

What it leaves out: masks, resets of the memory within a sequence, metrics, and weights of the
batch. Its LSTM has one bias that is trained, as ours, and one that is not.
"""

import copy
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Torso(nn.Sequential):
    """uint8 images `[B, 1, 84, 84]` -> features `[B, D]`."""

    def __init__(self, convolutions):
        layers, channels = [], 1
        for outputs, kernel, stride in convolutions:
            layers += [nn.Conv2d(channels, outputs, kernel, stride), nn.ReLU()]
            channels = outputs
        super().__init__(*layers, nn.Flatten())

    def forward(self, images):
        return super().forward(images.float() / 255.0)


def size_of(torso):
    with torch.no_grad():
        return torso(torch.zeros((1, 1, 84, 84), dtype=torch.uint8)).shape[1]


class Values(nn.Module):
    """R2D2's network: torso, linear layer, LSTM, dueling heads."""

    def __init__(self, sizes):
        super().__init__()
        actions, hidden = sizes["actions"], sizes["head"]
        self.torso = Torso(sizes["convolutions"])
        self.linear = nn.Linear(size_of(self.torso), sizes["torso"])
        others = actions + 2 + sizes["arms"]
        self.lstm = nn.LSTM(sizes["torso"] + others, sizes["lstm"])
        nn.init.zeros_(self.lstm.bias_hh_l0).requires_grad_(False)
        self.value, self.advantage = (
            nn.Sequential(nn.Linear(sizes["lstm"], hidden), nn.ReLU(), nn.Linear(hidden, outputs))
            for outputs in (1, actions)
        )

    def forward(self, images, others, memory):
        """`[T + 1, B, ...]` -> `[T + 1, B, A]`."""
        features = functional.relu(self.linear(self.torso(images.flatten(0, 1))))
        features = features.unflatten(0, images.shape[:2])
        outputs, _ = self.lstm(torch.cat([features, others], -1), memory)
        advantage = self.advantage(outputs)
        return self.value(outputs) + advantage - advantage.mean(-1, keepdim=True)


def embedding(sizes, outputs):
    torso = Torso(sizes["convolutions"])
    return nn.Sequential(torso, nn.Linear(size_of(torso), outputs))


def squash(x, epsilon=1e-3):
    return torch.sign(x) * (torch.sqrt(x.abs() + 1) - 1) + epsilon * x


def unsquash(x, epsilon=1e-3):
    root = torch.sqrt(1 + 4 * epsilon * (x.abs() + 1 + epsilon))
    return torch.sign(x) * (((root - 1) / (2 * epsilon)) ** 2 - 1)


def retrace(q_t, greedy_t, taken_t, reward, discount, trace):
    """Transformed Retrace targets `[T, B]`; `q_t` `[T, B, A]` are the target network's values."""
    values = unsquash(q_t)
    expected = values.gather(-1, greedy_t[..., None])[..., 0]
    taken = values.gather(-1, taken_t[..., None])[..., 0]
    target, targets = torch.zeros_like(expected[0]), []
    for t in reversed(range(len(reward))):
        after = 0.0 if t + 1 == len(reward) else trace[t] * (target - taken[t])
        target = reward[t] + discount * (expected[t] + after)
        targets.append(target)
    return squash(torch.stack(targets[::-1]))


class Learner:
    """Everything that an update reads and writes."""

    def __init__(self, sizes):
        torch.manual_seed(0)
        self.sizes = sizes
        self.online = nn.ModuleList([Values(sizes), Values(sizes)])
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.embedding = embedding(sizes, sizes["embedding"])
        self.classifier = nn.Sequential(
            nn.Linear(2 * sizes["embedding"], sizes["classifier"]),
            nn.ReLU(),
            nn.Linear(sizes["classifier"], sizes["actions"]),
        )
        self.predictor = embedding(sizes, sizes["novelty"])
        self.random = copy.deepcopy(self.predictor).requires_grad_(False)
        # Of each group: its parameters, learning rate and weight decay.
        groups = [(list(net.parameters()), 1e-4, 0.0) for net in self.online]
        both = [*self.embedding.parameters(), *self.classifier.parameters()]
        groups += [(both, 5e-4, 1e-5), (list(self.predictor.parameters()), 5e-4, 0.0)]
        groups = [([p for p in params if p.requires_grad], *rest) for params, *rest in groups]
        self.optimizers = [
            torch.optim.Adam(params, rate, eps=1e-4, weight_decay=decay)
            for params, rate, decay in groups
        ]
        self.groups = [params for params, *_ in groups]
        self.sample = random_sample(sizes)

    def update(self):
        loss = self._value_loss() + self._auxiliary_loss()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for params, optimizer in zip(self.groups, self.optimizers, strict=True):
            nn.utils.clip_grad_norm_(params, 40.0)
            optimizer.step()
        return float(loss.detach())

    def _value_loss(self):
        images, others, memory, action, reward, mu = self.sample
        q = [net(images, others, memory) for net in self.online]
        with torch.no_grad():
            q_target = [net(images, others, memory) for net in self.target]
            greedy = (q[0] + 0.3 * q[1])[1:].argmax(-1)
            trace = 0.95 * torch.clamp((greedy == action[1:]).float() / mu[1:], max=1.0)
        loss = 0.0
        for mine, target in zip(q, q_target, strict=True):
            with torch.no_grad():
                y = retrace(target[1:], greedy, action[1:], reward, 0.997, trace)
            taken = mine[:-1].gather(-1, action[:-1, :, None])[..., 0]
            loss = loss + ((y - taken) ** 2).sum(0).mean()
        return loss

    def _auxiliary_loss(self):
        images, _, _, action, _, _ = self.sample
        frames = min(self.sizes["frames"], self.sizes["rows"] - 1)
        before, after = (x.flatten(0, 1) for x in (images[-frames - 1 : -1], images[-frames:]))
        embedded = torch.cat([self.embedding(before), self.embedding(after)], -1)
        chosen = action[-frames - 1 : -1].flatten()
        dynamics = functional.cross_entropy(self.classifier(embedded), chosen)
        novelty = (self.predictor(after) - self.random(after)) ** 2
        return dynamics + novelty.sum(-1).mean()


def random_sample(sizes):
    """Images, other inputs, memory, actions, rewards and mu of B sequences of T + 1 rows."""
    rows, batch, actions = sizes["rows"], sizes["batch"], sizes["actions"]
    images = torch.randint(0, 256, (rows, batch, 1, 84, 84), dtype=torch.uint8)
    others = torch.rand((rows, batch, actions + 2 + sizes["arms"]))
    memory = torch.zeros((1, batch, sizes["lstm"])), torch.zeros((1, batch, sizes["lstm"]))
    action = torch.randint(0, actions, (rows, batch))
    return images, others, memory, action, torch.rand((rows - 1, batch)), torch.ones((rows, batch))


def main():
    learner = Learner(json.loads(sys.stdin.readline()))
    trained = sum(p.numel() for params in learner.groups for p in params)
    about = {"parameters": trained, "torch": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps(about), flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        learner.update()
        print(json.dumps(time.perf_counter() - started), flush=True)


if __name__ == "__main__":
    main()
