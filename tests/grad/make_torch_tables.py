#!/usr/bin/env python3
"""Writes tests/grad/torch_tables.h: PyTorch's results for the cases below, in float64.

usage: make_torch_tables.py > torch_tables.h, then clang-format -i torch_tables.h
Needs python3-torch. Inputs are waves that the C test (test_torch.c) computes itself, so only
results are stored: two numbers for each tensor, a sum over all elements with different factors and
the sum of squares. The first one changes if any element is misplaced.
"""
import math
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(k, *shape):
    count = math.prod(shape)
    values = [math.sin(0.9 * i + 0.013 * i * i + k) for i in range(count)]
    return torch.tensor(values).reshape(shape)


def project(t):
    flat = t.detach().reshape(-1).tolist()
    return (sum(v * math.cos(1.7 * i + 0.3) for i, v in enumerate(flat)),
            sum(v * v for v in flat))


def number(v):
    return repr(float(v))


def row(items):
    return "    {" + ", ".join(items) + "},"


def braces(values):
    return "{" + ", ".join(number(v) if isinstance(v, float) else str(v) for v in values) + "}"


def conv():
    cases = [  # x, features, kernel, stride, padding, dilation, groups
        ((2, 3, 5, 4), 2, (3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((1, 1, 1, 1), 1, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        ((2, 4, 7, 9), 6, (3, 2), (2, 3), (0, 1), (1, 2), 2),
        ((1, 3, 8, 6), 3, (2, 4), (1, 2), (2, 3), (3, 1), 3),
    ]
    print("typedef struct torch_conv {")
    print("    int64_t x[4], features, kernel[2], stride[2], padding[2], dilation[2], groups;")
    print("    double y[2];\n} torch_conv;")
    print("static const torch_conv torch_convs[] = {")
    for x, features, kernel, stride, padding, dilation, groups in cases:
        weight = wave(2, features, x[1] // groups, *kernel)
        y = F.conv2d(wave(1, *x), weight, wave(3, features), stride, padding, dilation, groups)
        print(row([braces(x), str(features), braces(kernel), braces(stride), braces(padding),
                   braces(dilation), str(groups), braces(project(y))]))
    print("};\n")


def pool():
    cases = [  # x, kernel, stride, padding
        ((2, 3, 6, 4), (2, 2), (2, 2), (0, 0)),
        ((1, 2, 7, 5), (3, 2), (2, 1), (1, 1)),
    ]
    print("typedef struct torch_pool {")
    print("    int64_t x[4], kernel[2], stride[2], padding[2];\n    double y[2];\n} torch_pool;")
    print("static const torch_pool torch_pools[] = {")
    for x, kernel, stride, padding in cases:
        y = F.max_pool2d(wave(1, *x), kernel, stride, padding)
        print(row([braces(x), braces(kernel), braces(stride), braces(padding),
                   braces(project(y))]))
    print("};\n")


def avg_pool():
    """First pooling with windows of a given size, then with a given number of windows (adaptive).
    """
    cases = [  # x, kernel, stride, padding, exclude_padding, windows
        ((2, 3, 6, 4), (2, 2), (2, 2), (0, 0), False, (0, 0)),
        ((1, 2, 7, 5), (3, 2), (2, 1), (1, 1), False, (0, 0)),
        ((1, 2, 7, 5), (3, 2), (2, 1), (1, 1), True, (0, 0)),
        ((2, 3, 5, 4), (0, 0), (0, 0), (0, 0), False, (1, 1)),
        ((1, 2, 7, 5), (0, 0), (0, 0), (0, 0), False, (3, 2)),
    ]
    print("typedef struct torch_avg_pool {")
    print("    int64_t x[4];\n    tri_avg_pool2d_attr attr;\n    double y[2];\n} torch_avg_pool;")
    print("static const torch_avg_pool torch_avg_pools[] = {")
    for x, kernel, stride, padding, exclude, windows in cases:
        y = F.avg_pool2d(wave(1, *x), kernel, stride, padding, count_include_pad=not exclude) \
            if kernel[0] else F.adaptive_avg_pool2d(wave(1, *x), windows)
        attr = f"{{.kernel = {braces(kernel)}, .stride = {braces(stride)}, .padding = " \
               f"{braces(padding)}, .exclude_padding = {str(exclude).lower()}, .out = " \
               f"{braces(windows)}}}"
        print(row([braces(x), attr, braces(project(y))]))
    print("};\n")


def batch_norm():
    """x [3, 2, 4, 5] in training, which updates fresh running statistics once with momentum 0.1;
    then another x in evaluation, with these statistics."""
    layer = torch.nn.BatchNorm2d(2, eps=1e-5, momentum=0.1)
    layer.weight.data, layer.bias.data = wave(2, 2), wave(3, 2)
    y = layer(wave(1, 3, 2, 4, 5))
    layer.eval()
    later = layer(wave(4, 3, 2, 4, 5))
    print(f"static const double torch_bn_y[] = {braces(project(y))};")
    print(f"static const double torch_bn_mean[] = {braces(layer.running_mean.tolist())};")
    print(f"static const double torch_bn_var[] = {braces(layer.running_var.tolist())};")
    print(f"static const double torch_bn_eval[] = {braces(project(later))};\n")


def losses():
    """Sums of losses. Scores are wave(1) * 3 of shape [6, 4], labels 0 1 2 -100 3 0, where -100 is
    ignored; predictions and targets are wave(1) and wave(2)."""
    scores, labels = wave(1, 6, 4) * 3, torch.tensor([0, 1, 2, -100, 3, 0])
    log_p = F.log_softmax(scores, -1)
    print(f"static const double torch_log_softmax[] = {braces(project(log_p))};")
    nll = F.nll_loss(scores, labels, reduction="sum")
    print(f"static const double torch_nll = {number(nll)};")
    entropy = F.cross_entropy(scores, labels, reduction="sum")
    print(f"static const double torch_cross_entropy = {number(entropy)};")
    soft = F.softmax(wave(2, 6, 4), -1)
    print(f"static const double torch_soft_labels[] = {braces(soft.flatten().tolist())};")
    entropy = F.cross_entropy(scores, soft, reduction="sum")
    print(f"static const double torch_soft_cross_entropy = {number(entropy)};")
    entropy = F.cross_entropy(scores, soft, reduction="sum", label_smoothing=0.1)
    print(f"static const double torch_smooth_cross_entropy = {number(entropy)};")
    scores.requires_grad_()
    entropy = F.cross_entropy(scores, labels, reduction="sum", label_smoothing=0.1)
    entropy.backward()
    print(f"static const double torch_smooth_labels = {number(entropy)};")
    print(f"static const double torch_smooth_labels_grad[] = {braces(project(scores.grad))};")
    scores = scores.detach()
    mse = F.mse_loss(wave(1, 6, 4), wave(2, 6, 4), reduction="sum")
    print(f"static const double torch_mse = {number(mse)};")
    binary = F.binary_cross_entropy_with_logits(scores, wave(2, 6, 4), reduction="sum")
    print(f"static const double torch_binary_cross_entropy = {number(binary)};")
    a, b = wave(1, 6, 4), wave(2, 6, 4)
    relative = (torch.linalg.vector_norm(a - b, dim=1) / torch.linalg.vector_norm(b, dim=1)).sum()
    print(f"static const double torch_relative_l2 = {number(relative)};\n")


def llama3(frequency, factor, low, high, length):
    """Llama 3's scaling of rotary frequencies, as Hugging Face's configurations describe it."""
    wavelength = 2 * math.pi / frequency
    part = ((length / wavelength - low) / (high - low)).clamp(0, 1)
    return (1 - part) * frequency / factor + part * frequency


def rotate(x, theta, first, scaling=None):
    """Rotary embedding of x [N, T, H, D] as in Hugging Face's Llama."""
    half = x.shape[3] // 2
    frequency = 1 / theta ** (torch.arange(half) * 2 / x.shape[3])
    if scaling:
        frequency = llama3(frequency, *scaling)
    angle = torch.outer(torch.arange(x.shape[1]) + first, frequency)
    cos, sin = (torch.cat([f(angle)] * 2, -1)[None, :, None] for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attend(q, k, v, scale, causal):
    """Attention of q [N, T, H, D] to k and v [N, S, K, D], where H / K heads of q read the same
    head of k and v. Returns the output and the logarithm of each query's sum of exp(scores)."""
    k, v = (t.repeat_interleave(q.shape[2] // k.shape[2], 2) for t in (k, v))
    scores = torch.einsum("nthd,nshd->nhts", q, k) * scale
    queries, keys = scores.shape[2:]
    if causal:
        unseen = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        scores = scores.masked_fill(unseen, -math.inf)
    return torch.einsum("nhts,nshd->nthd", scores.softmax(-1), v), scores.logsumexp(-1)


def transformer():
    x, weight, bias = wave(1, 3, 2, 8), wave(2, 8), wave(3, 8)
    rms = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * weight
    tables = {
        "embedding": F.embedding(torch.tensor([[0, 4, 2], [4, 4, 1]]), wave(2, 5, 3)),
        "rms_norm": rms,
        "layer_norm": F.layer_norm(x, (8,), weight, bias, 1e-3),
        "layer_norm_plain": F.layer_norm(x, (8,), None, None, 1e-3),
        "rotary": rotate(wave(1, 2, 5, 3, 8), 100.0, 2),
        "rotary_scaled": rotate(wave(1, 2, 5, 3, 8), 100.0, 2, (8, 1, 4, 24)),
        "concat": torch.cat([wave(1, 2, 3, 4), wave(2, 2, 1, 4), wave(3, 2, 1, 4)], 1),
    }
    for name, y in tables.items():
        print(f"static const double torch_{name}[] = {braces(project(y))};")
    scores, labels = wave(1, 2, 3, 4) * 3, torch.tensor([[0, 1, 2], [-100, 3, 0]])
    entropy = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
    print(f"static const double torch_cross_entropy_tokens = {number(entropy)};\n")
    cases = [  # q, k and v, scale, causal
        ((2, 5, 4, 6), (2, 5, 2, 6), 0.5, True),
        ((1, 3, 3, 4), (1, 7, 1, 4), 1.5, True),
        ((2, 4, 2, 3), (2, 6, 2, 3), 0.75, False),
    ]
    print("typedef struct torch_attention {")
    print("    int64_t q[4], k[4];\n    double scale;\n    bool causal;")
    print("    double y[2], log_sum_exp[2];\n} torch_attention;")
    print("static const torch_attention torch_attentions[] = {")
    for q, k, scale, causal in cases:
        y, log_sum_exp = attend(wave(1, *q) * 2, wave(2, *k), wave(3, *k), scale, causal)
        print(row([braces(q), braces(k), number(scale), "true" if causal else "false",
                   braces(project(y)), braces(project(log_sum_exp))]))
    print("};\n")


def updated(kind, options):
    """A parameter after each of four updates."""
    p = torch.nn.Parameter(wave(1, 5))
    optimizer = kind([p], **options)
    after = []
    for t in range(1, 5):
        p.grad = wave(10 + t, 5)
        optimizer.step()
        after.append(p.detach().tolist())
    return after


def optimizers():
    """A parameter of 5 elements after updates 1 and 4. It begins as wave(1), and the gradient of
    update t is wave(10 + t). The rate is the step's times the factor of the parameter's group."""
    sgd, adam = torch.optim.SGD, torch.optim.Adam
    adamw, adadelta = torch.optim.AdamW, torch.optim.Adadelta
    cases = [
        ("sgd", sgd, dict(lr=0.1), "{.sgd = {.momentum = 0}}"),
        ("sgd", sgd, dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.02),
         "{.sgd = {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.02}}"),
        ("sgd", sgd, dict(lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
         "{.sgd = {.momentum = 0.8, .nesterov = true, .weight_decay = 0.01}}"),
        ("adam", adam, dict(lr=0.01, betas=(0.9, 0.99), eps=1e-6),
         "{.adam = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6}}"),
        ("adam", adam, dict(lr=0.01, betas=(0.8, 0.999), weight_decay=0.1),
         "{.adam = {.beta1 = 0.8, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}}"),
        ("adam", adamw, dict(lr=0.01, weight_decay=0.1),
         "{.adam = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1,"
         " .decoupled = true}}"),
        ("adadelta", adadelta, dict(lr=1.0), "{.adadelta = {.rho = 0.9, .eps = 1e-6}}"),
        ("adadelta", adadelta, dict(lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.05),
         "{.adadelta = {.rho = 0.8, .eps = 1e-4, .weight_decay = 0.05}}"),
    ]
    print("typedef struct torch_update {")
    print("    const char *op;\n    double lr;\n    union {")
    print("        tri_sgd_attr sgd;\n        tri_adam_attr adam;")
    print("        tri_adadelta_attr adadelta;\n    } attr;")
    print("    double first[5], last[5];\n} torch_update;")
    print("static const torch_update torch_updates[] = {")
    for i, (name, kind, options, attr) in enumerate(cases):
        factor = (1, 0.5, 4)[i % 3]
        attr = attr.replace("= {", f"= {{.lr_factor = {factor}, ", 1)
        after = updated(kind, options)
        print(row([f'"{name}"', number(options["lr"] / factor), attr, braces(after[0]),
                   braces(after[3])]))
    print("};\n")


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. 2023, Symbolic Discovery of Optimization Algorithms."""
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p -= group["lr"] * (c.sign() + group["weight_decay"] * p)
                self.state[p]["exp_avg"] = beta2 * m + (1 - beta2) * p.grad


def named_optimizers():
    """As above, of optimizers by their options in a recipe."""
    optim = torch.optim
    cases = [
        ("adamax", optim.Adamax, dict(lr=0.02)),
        ("adamax", optim.Adamax, dict(lr=0.1, betas=(0.7, 0.9), eps=1e-3, weight_decay=0.1)),
        ("adagrad", optim.Adagrad, dict(lr=0.1)),
        ("adagrad", optim.Adagrad, dict(lr=0.3, lr_decay=0.2, initial_accumulator_value=0.7,
                                        eps=1e-4, weight_decay=0.05)),
        ("rmsprop", optim.RMSprop, dict(lr=0.01)),
        ("rmsprop", optim.RMSprop, dict(lr=0.02, alpha=0.8, momentum=0.9, eps=1e-3)),
        ("rmsprop", optim.RMSprop, dict(lr=0.02, alpha=0.9, centered=True, weight_decay=0.1)),
        ("rmsprop", optim.RMSprop, dict(lr=0.05, momentum=0.5, centered=True)),
        ("lion", Lion, dict(lr=0.01)),
        ("lion", Lion, dict(lr=0.1, betas=(0.8, 0.7), weight_decay=0.3)),
    ]
    print("typedef struct torch_named_update {")
    print("    const char *options;\n    double lr, first[5], last[5];\n} torch_named_update;")
    print("static const torch_named_update torch_named_updates[] = {")
    for name, kind, options in cases:
        after = updated(kind, options)
        text = ", ".join(f"{key}: {str(list(v) if isinstance(v, tuple) else v).lower()}"
                         for key, v in options.items())
        print(row([f'"{{name: {name}, {text}}}"', number(options["lr"]), braces(after[0]),
                   braces(after[3])]))
    print("};\n")


def main():
    version = torch.__version__.split("+")[0]
    print(f"// Made by make_torch_tables.py; PyTorch {version}, float64.")
    print("#ifndef TRIREME_TESTS_TORCH_TABLES_H\n#define TRIREME_TESTS_TORCH_TABLES_H\n")
    print('#include "ops/ops.h"\n')
    conv()
    pool()
    avg_pool()
    batch_norm()
    losses()
    transformer()
    optimizers()
    named_optimizers()
    print("#endif")


if __name__ == "__main__":
    main()
