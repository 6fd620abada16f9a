#!/usr/bin/env python3
"""Makes tests/parity/goldens/*.json with PyTorch (Debian: python3-torch, python3-numpy).

usage: /usr/bin/python3 tests/parity/make_goldens.py [MODEL …]

A golden is the expected result of one model with one optimizer. PyTorch computes it in double
precision, from the single-precision data and weights of formula.py. So it has almost no rounding.
It also says how far each tensor moved from its start. Then the same run is repeated in single
precision, with sums in different orders. The largest distance to the golden ("rounding") shows how
far apart two correct programs may be; the test allows ten times that. A golden is refused if this
is so much that a wrong optimizer could pass.
"""
import array
import functools
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import formula

HERE = os.path.dirname(os.path.abspath(__file__))
SINGLES = 4  # runs in single precision


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), 1)


class MnistConvnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self.layer(1, 16)
        self.layer2 = self.layer(16, 32)
        self.fc = nn.Linear(1568, 10)

    @staticmethod
    def layer(channels_in, channels_out):
        return nn.Sequential(nn.Conv2d(channels_in, channels_out, 5, padding=2),
                             nn.BatchNorm2d(channels_out), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.fc(torch.flatten(self.layer2(self.layer1(x)), 1))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 784))

    def forward(self, x):
        return self.decoder(self.encoder(torch.flatten(x, 1)))


class DenoiseCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_in = self.layer(1, 64)
        self.conv_hidden = nn.ModuleList([self.layer(64, 64) for _ in range(3)])
        self.conv_out = self.layer(64, 1)

    @staticmethod
    def layer(channels_in, channels_out):
        return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.LeakyReLU())

    def forward(self, x):
        x = self.conv_in(x)
        for layer in self.conv_hidden:
            x = layer(x)
        return self.conv_out(x)


class MlpJax(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 512)
        self.fc2 = nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


class LlamaAttention(nn.Module):
    """Attention with rotary positions, where groups of heads of queries share one head of keys and
    values."""
    def __init__(self, config):
        super().__init__()
        hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads, self.theta = config["num_key_value_heads"], config["rope_theta"]
        self.width = hidden // self.heads
        bias = config["attention_bias"]
        self.q_proj = nn.Linear(hidden, self.heads * self.width, bias)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.width, bias)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.width, bias)
        self.o_proj = nn.Linear(self.heads * self.width, hidden, bias)

    def rotate(self, x):
        """Turns the pair of dimensions (i, i + width / 2) of position t by t / theta^(2i / width).
        """
        half = self.width // 2
        frequency = 1 / self.theta ** (torch.arange(half, dtype=torch.float64) * 2 / self.width)
        angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), frequency)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        low, high = x[..., :half], x[..., half:]
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (projection(x).reshape(n, t, -1, self.width).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q), self.rotate(k)
        k, v = (a.repeat_interleave(self.heads // self.kv_heads, 1) for a in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(self.width)
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).reshape(n, t, -1))


class LlamaNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config["hidden_size"]))
        self.eps = config["rms_norm_eps"]

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class LlamaMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, False)
        self.up_proj = nn.Linear(hidden, inner, False)
        self.down_proj = nn.Linear(inner, hidden, False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(config), LlamaMlp(config)
        self.input_layernorm, self.post_attention_layernorm = LlamaNorm(config), LlamaNorm(config)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Hugging Face's LlamaForCausalLM, with its names, as far as the models here need it."""
    def __init__(self, name):
        super().__init__()
        config = formula.LLAMA[name]
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.model.layers = nn.ModuleList([LlamaLayer(config)
                                           for _ in range(config["num_hidden_layers"])])
        self.model.norm = LlamaNorm(config)
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        head = self.lm_head if hasattr(self, "lm_head") else self.model.embed_tokens
        return F.linear(self.model.norm(x), head.weight)


MODELS = {"mnist-cnn": MnistCnn, "mnist-convnet": MnistConvnet, "autoencoder": Autoencoder,
          "denoise-cnn": DenoiseCnn, "mlp-jax": MlpJax,
          **{name: functools.partial(Llama, name) for name in formula.LLAMA}}
CLASSES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
           "adadelta": torch.optim.Adadelta}


def to_torch(entry):
    dtype, shape, values = entry
    return torch.tensor(values, dtype={"F32": torch.float32, "I64": torch.int64}[dtype]) \
        .reshape(shape)


def from_torch(tensor):
    flat = tensor.detach().reshape(-1).contiguous()
    dtype = "I64" if flat.dtype == torch.int64 else "F32"
    values = array.array("q" if dtype == "I64" else "f", flat.tolist())
    return dtype, tuple(tensor.shape), values


def build(model, weights):
    """The model with the given weights; a name too many or too few is an error."""
    net = MODELS[model]()
    net.load_state_dict({name: to_torch(entry) for name, entry in weights.items()}, strict=True)
    return net


def loss_of(model, net, batch):
    if model == "denoise-cnn":
        return F.mse_loss(net(batch["inputs"]), batch["targets"])
    if model == "autoencoder":
        return F.mse_loss(net(batch["images"]), torch.flatten(batch["images"], 1))
    if model in formula.LLAMA:
        ids = batch["input_ids"]
        return F.cross_entropy(net(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss = F.nll_loss if model == "mnist-cnn" else F.cross_entropy
    return loss(net(batch["images"]), batch["labels"])


def batches(model, data, dtype, shuffled=False):
    """The batch of each step. `shuffled`: takes the samples of each batch in another order, which
    changes only the order of sums."""
    data = {name: to_torch(entry) for name, entry in data.items()}
    data = {name: t.to(dtype) if t.is_floating_point() else t for name, t in data.items()}
    for step in range(formula.STEPS):
        begin = step % formula.STEPS_PER_EPOCH * formula.BATCH[model]
        size = formula.BATCH[model]
        order = begin + (torch.randperm(size) if shuffled else torch.arange(size))
        yield {name: t[order] for name, t in data.items()}


def tensors_of(net):
    return {name: t.reshape(-1).tolist() for name, t in net.state_dict().items()}


def make_optimizer(net, options):
    parameters = net.parameters()
    if "groups" in options:
        settings = {name: formula.group_of(name, options) for name, _ in net.named_parameters()}
        parameters = []
        for name, parameter in net.named_parameters():
            own = settings[name]
            parameter.requires_grad_(not own["frozen"])
            if not own["frozen"]:
                parameters.append({"params": [parameter], "weight_decay": own["weight_decay"],
                                   "lr": own["lr_factor"] * options["lr"]})
    given = {key: value for key, value in options.items() if key not in ("name", "groups")}
    return CLASSES[options["name"]](parameters, **given)


def train(model, options, weights, data, dtype, shuffled=False):
    """Returns the loss of each step, computed before the step's update, and the tensors after the
    last step."""
    net = build(model, weights).to(dtype)
    optimizer = make_optimizer(net, options)
    losses = []
    for batch in batches(model, data, dtype, shuffled):
        optimizer.zero_grad()
        loss = loss_of(model, net, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, tensors_of(net)


def distance(a, b):
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b)))


def golden(model, optimizer, weights, data):
    options = formula.OPTIMIZERS[optimizer]
    losses, tensors = train(model, options, weights, data, torch.float64)
    torch.manual_seed(0)
    singles = [train(model, options, weights, data, torch.float32, shuffled=i > 0)
               for i in range(SINGLES)]
    noisy = formula.NOISE_ONLY.get(model, ())
    found, worst = {}, 0.0
    for name, values in tensors.items():
        if name in noisy and options["name"].startswith("adam"):
            continue
        found[name] = {"sketch": formula.sketch(values),
                       "moved": distance(values, weights[name][2]),
                       "rounding": max(distance(values, single[name]) for _, single in singles)}
        if name not in noisy:
            worst = max(worst, found[name]["rounding"] / max(found[name]["moved"], 1e-30))
    if formula.TIMES_ROUNDING * worst > formula.MAX_TENSOR_LIMIT:
        sys.exit(f"{model} {optimizer}: single precision is {worst:.1e} from double")
    rounding = max(abs(a - b) / abs(b) for single, _ in singles for a, b in zip(single, losses))
    if formula.loss_limit(rounding) > formula.MAX_LOSS_LIMIT:
        sys.exit(f"{model} {optimizer}: a loss differs by {rounding:.1e} in single precision")
    print(f"{model:14} {optimizer:9} loss {losses[0]:.6f} -> {losses[-1]:.6f}   rounding: "
          f"losses {rounding:.1e}, tensors {worst:.1e} of how far they moved", flush=True)
    return {"model": model, "optimizer": options, "torch": torch.__version__, "losses": losses,
            "rounding": {"losses": rounding, "tensors": worst}, "tensors": found}


def rounded(value):
    """Rounds all numbers to ten digits, which is a hundred times finer than single precision."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def main():
    os.makedirs(os.path.join(HERE, "goldens"), exist_ok=True)
    for model in sys.argv[1:] or MODELS:
        weights, data = formula.initial_weights(model), formula.data_set(model)
        for optimizer in formula.CHOICE.get(model, formula.OPTIMIZERS):
            result = rounded(golden(model, optimizer, weights, data))
            path = os.path.join(HERE, "goldens", f"{model}-{optimizer}.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(result, f, separators=(",", ":"))
                f.write("\n")


if __name__ == "__main__":
    main()
