#!/usr/bin/env python3
"""Writes tests/grad/recurrent_tables.h: what PyTorch computes, in float64, for recurrent layers:
the outputs and the last states, joined, and gradients of x, of the first states and of all
parameters.

usage: make_recurrent_tables.py > recurrent_tables.h, then clang-format -i on it
Needs python3-torch. test_recurrent.c makes the same layers.
"""
import torch
from make_function_tables import print_cases, print_header

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def lengths(samples, steps):
    """Those of sequences, from 1 to `steps`, as torch_check.h fills an "index below" it."""
    return torch.tensor([1 + (i * i + i // 2 + 1) % steps for i in range(samples)])


def layer(kind, x, hidden, layers=1, directions=1, bias=True, states=0, time_first=False,
          projection=0, packed=False):
    """A row of LAYERS. x: samples, steps and inputs. states: how many first states are given.
    packed: the sequences have lengths."""
    samples, steps, inputs = x
    size = projection or hidden
    sizes = (size, hidden)[:states]
    shapes = [(samples, layers * directions, s) for s in sizes]
    for number in range(layers):
        reads = inputs if number == 0 else size * directions
        width = GATES[kind] * hidden
        own = [(width, reads), (width, size)] + [(width,), (width,)] * bias
        own += [(projection, hidden)] * (projection > 0)
        shapes += own * directions

    def function(x, *parameters):
        first = [s.transpose(0, 1) for s in parameters[:states]]
        for s in (size, hidden)[len(first):1 + (kind == "lstm")]:
            first.append(torch.zeros(layers * directions, samples, s, dtype=x.dtype))
        if packed:
            return torch.cat(packed_layer(x, first, parameters[states:]))
        y, *last = getattr(torch._VF, kind)(
            x, first if kind == "lstm" else first[0], list(parameters[states:]), bias, layers, 0.0,
            True, directions == 2, not time_first)
        return torch.cat([y.flatten()] + [s.transpose(0, 1).flatten() for s in last])

    def packed_layer(x, first, own):
        order = torch.nn.utils.rnn
        whole = order.pack_padded_sequence(x, lengths(samples, steps), not time_first,
                                           enforce_sorted=False)
        first = [s.index_select(1, whole.sorted_indices) for s in first]
        y, *last = getattr(torch._VF, kind)(
            whole.data, whole.batch_sizes, first if kind == "lstm" else first[0], list(own), bias,
            layers, 0.0, True, directions == 2)
        y, _ = order.pad_packed_sequence(order.PackedSequence(
            y, whole.batch_sizes, whole.sorted_indices, whole.unsorted_indices), not time_first,
            total_length=steps)
        last = [s.index_select(1, whole.unsorted_indices) for s in last]
        return [y.flatten()] + [s.transpose(0, 1).flatten() for s in last]

    return (function, (steps, samples, inputs) if time_first else x, *shapes)


# Sizes are samples, steps, inputs and units.
LAYERS = {
    "lstm": layer("lstm", (3, 5, 4), 6),
    "lstm of one": layer("lstm", (1, 1, 1), 1),
    "lstm without bias": layer("lstm", (2, 7, 3), 5, bias=False),
    "lstm of layers": layer("lstm", (2, 4, 3), 5, layers=3),
    "lstm both ways": layer("lstm", (2, 6, 3), 4, layers=2, directions=2, states=2),
    "lstm from a state": layer("lstm", (3, 4, 2), 7, states=2),
    "lstm time first": layer("lstm", (3, 5, 4), 6, directions=2, states=2, time_first=True),
    "lstm of blocks": layer("lstm", (7, 3, 16), 32),
    "lstm of many": layer("lstm", (17, 9, 5), 19, states=2),
    "lstm projected": layer("lstm", (3, 5, 4), 6, projection=3),
    "lstm projected to one": layer("lstm", (1, 1, 1), 2, projection=1, states=2),
    "lstm projected both ways": layer("lstm", (2, 4, 3), 5, layers=2, directions=2,
                                      projection=2, bias=False),
    "lstm projected of states": layer("lstm", (2, 3, 3), 5, directions=2, projection=4,
                                      states=2),
    "lstm projected time first": layer("lstm", (3, 4, 2), 3, projection=2, states=2,
                                       time_first=True),
    "lstm packed": layer("lstm", (5, 6, 4), 3, packed=True),
    "lstm packed of one": layer("lstm", (1, 1, 1), 1, packed=True),
    "lstm packed both ways": layer("lstm", (5, 6, 3), 4, layers=2, directions=2, states=2,
                                   packed=True),
    "lstm packed projected": layer("lstm", (4, 5, 3), 5, directions=2, states=2, projection=2,
                                   time_first=True, packed=True),
    "gru": layer("gru", (3, 5, 4), 6),
    "gru of one": layer("gru", (1, 1, 1), 1),
    "gru without bias": layer("gru", (2, 7, 3), 5, bias=False),
    "gru both ways": layer("gru", (2, 6, 3), 4, layers=2, directions=2, states=1),
    "gru from a state": layer("gru", (3, 4, 2), 7, states=1),
    "gru time first": layer("gru", (3, 5, 4), 6, states=1, time_first=True),
    "gru of blocks": layer("gru", (7, 3, 16), 64),
    "gru packed": layer("gru", (5, 6, 4), 3, states=1, packed=True),
    "gru packed both ways": layer("gru", (5, 6, 3), 4, layers=2, directions=2, states=1,
                                  time_first=True, packed=True),
    "rnn packed both ways": layer("rnn_tanh", (5, 6, 3), 4, directions=2, states=1, packed=True),
    "rnn": layer("rnn_tanh", (3, 5, 4), 6),
    "rnn of one": layer("rnn_tanh", (1, 1, 1), 1),
    "rnn both ways": layer("rnn_tanh", (2, 6, 3), 4, layers=2, directions=2, states=1),
    "rnn relu": layer("rnn_relu", (3, 3, 4), 2, states=1),
    "rnn relu without bias": layer("rnn_relu", (2, 4, 3), 3, layers=2, bias=False),
}


def cell(kind, samples, inputs, hidden, states):
    """One step, from `states` first states."""
    width = GATES[kind] * hidden
    shapes = [(samples, hidden)] * states + [(width, inputs), (width, hidden), (width,), (width,)]

    def function(x, *parameters):
        zero = torch.zeros(samples, hidden, dtype=x.dtype)
        first = list(parameters[:states]) + [zero] * 2
        own = parameters[states:]
        if kind == "lstm":
            return torch.cat([s.flatten() for s in torch.lstm_cell(x, first[:2], *own)])
        return getattr(torch, f"{kind}_cell")(x, first[0], *own).flatten()

    return (function, (samples, inputs), *shapes)


LAYERS["lstm cell"] = cell("lstm", 3, 4, 5, 2)
LAYERS["lstm cell from zero"] = cell("lstm", 2, 3, 2, 0)
LAYERS["gru cell"] = cell("gru", 3, 4, 5, 1)
LAYERS["rnn cell"] = cell("rnn_tanh", 2, 3, 4, 1)


def main():
    print_header("RECURRENT_TABLES", "make_recurrent_tables.py",
                 lambda: print_cases("torch_recurrent", LAYERS))


if __name__ == "__main__":
    main()
