#!/usr/bin/env python3
"""Writes tests/grad/transformer_tables.h: what PyTorch computes, in float64, for attention with
projections and layers of transformers: value and gradients of x and of the parameters.

usage: make_transformer_tables.py > transformer_tables.h, then clang-format -i on it
Needs python3-torch. test_transformer.c makes the same layers, with the parameters in this order.
"""
import torch
from make_function_tables import print_cases, print_header
from torch.nn.utils.stateless import functional_call

torch.set_default_dtype(torch.float64)
ATTENTION = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]


def both(*names):
    return [f"{name}.{what}" for name in names for what in ("weight", "bias")]


def case(module, names, call, *inputs):
    """A row of LAYERS: the inputs, of which the first is x, then the parameters of these names."""
    assert sorted(names) == sorted(name for name, _ in module.named_parameters())
    shapes = [tuple(module.get_parameter(name).shape) for name in names]

    def function(*values):
        own = dict(zip(names, values[len(inputs):]))
        return call(lambda *args, **options: functional_call(module, own, args, options),
                    *values[:len(inputs)])

    return (function, *inputs, *shapes)


def attention(call, *inputs, bias=True, **options):
    module = torch.nn.MultiheadAttention(6, 2, bias=bias, batch_first=True, **options)
    names = ATTENTION if bias else ATTENTION[::2]
    if "kdim" in options:
        names = ["q_proj_weight", "k_proj_weight", "v_proj_weight", *names[1:]]
    if options.get("add_bias_kv"):
        names = [*names[:-2], "bias_k", "bias_v", *names[-2:]]
    return case(module, names, lambda f, *x: call(f, *x)[0], *inputs)


def hidden(t):
    return torch.ones(t, t).triu(1) > 0


def holes():
    """The mask of torch_check.h, [2, 4]: True hides a key."""
    return torch.tensor([0x52 >> i & 1 for i in range(8)]).bool().reshape(2, 4)


def encoder(**options):
    module = torch.nn.TransformerEncoderLayer(6, 3, 5, 0.0, batch_first=True, **options)
    own = [f"self_attn.{name}" for name in ATTENTION]
    linear = both("linear1", "linear2")
    names = both("norm1") + own + both("norm2") + linear if options.get("norm_first") \
        else own + both("norm1") + linear + both("norm2")
    return module, names


def encoder_layer(call=lambda f, x: f(x), **options):
    return case(*encoder(**options), call, (2, 4, 6))


def decoder_layer(norm_first):
    module = torch.nn.TransformerDecoderLayer(4, 2, 3, 0.0, batch_first=True,
                                              norm_first=norm_first)
    parts = [[f"self_attn.{name}" for name in ATTENTION],
             [f"multihead_attn.{name}" for name in ATTENTION], both("linear1", "linear2")]
    names = []
    for number, part in enumerate(parts, 1):
        own = both(f"norm{number}")
        names += own + part if norm_first else part + own
    return case(module, names, lambda f, x, memory: f(x, memory, tgt_mask=hidden(3)),
                (2, 3, 4), (2, 5, 4))


LAYERS = {
    "attention": attention(lambda f, x: f(x, x, x), (2, 4, 6)),
    "attention without bias": attention(lambda f, x: f(x, x, x), (2, 3, 6), bias=False),
    "attention causal": attention(lambda f, x: f(x, x, x, attn_mask=hidden(4)), (2, 4, 6)),
    "attention to another": attention(lambda f, q, k: f(q, k, k), (2, 3, 6), (2, 5, 6)),
    "attention of three": attention(lambda f, q, k, v: f(q, k, v), (2, 3, 6), (2, 5, 6),
                                    (2, 5, 6)),
    "attention of other widths": attention(lambda f, q, k, v: f(q, k, v), (2, 3, 6), (2, 5, 4),
                                           (2, 5, 3), kdim=4, vdim=3),
    "attention with an own key": attention(lambda f, x: f(x, x, x), (2, 3, 6), add_bias_kv=True),
    "attention with both keys": attention(
        lambda f, x: f(x, x, x, key_padding_mask=holes()), (2, 4, 6), add_bias_kv=True,
        add_zero_attn=True),
    "attention with both keys, causal": attention(
        lambda f, x: f(x, x, x, key_padding_mask=holes(), attn_mask=hidden(4)), (2, 4, 6),
        add_bias_kv=True, add_zero_attn=True),
    "attention with a zero key": attention(
        lambda f, q, k: f(q, k, k, attn_mask=torch.ones(3, 5).triu(3) > 0), (1, 3, 6), (1, 5, 6),
        add_zero_attn=True),
    "encoder layer": encoder_layer(),
    "encoder layer silu": encoder_layer(activation=torch.nn.functional.silu),
    "encoder layer padded": encoder_layer(lambda f, x: f(x, src_key_padding_mask=holes())),
    "encoder layer gelu": encoder_layer(activation="gelu"),
    "encoder layer norm first": encoder_layer(norm_first=True),
    "encoder layer causal": encoder_layer(lambda f, x: f(x, hidden(4))),
    "decoder layer": decoder_layer(False),
    "decoder layer norm first": decoder_layer(True),
}


def main():
    print_header("TRANSFORMER_TABLES", "make_transformer_tables.py",
                 lambda: print_cases("torch_transformer", LAYERS))


if __name__ == "__main__":
    main()
