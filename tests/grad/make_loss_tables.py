#!/usr/bin/env python3
"""Writes tests/grad/loss_tables.h: what PyTorch computes, in float64, for losses: the mean, and its
gradients.

usage: make_loss_tables.py > loss_tables.h, then clang-format -i on it
Needs python3-torch. test_losses.c makes the same losses. Parameters are waves, as in
make_function_tables.py; labels, targets and lengths are computed here and there by one formula.
"""
import torch
import torch.nn.functional as F
from make_function_tables import braces
from make_torch_tables import project, wave

WEIGHTS = [0.5, 1.25, 0.0, 2.0, 0.75]
CLASSES = len(WEIGHTS)


def labels(*shape):
    count = torch.Size(shape).numel()
    values = [-100 if i % 5 == 3 else (7 * i * i + 3 * i) % CLASSES for i in range(count)]
    return torch.tensor(values).reshape(shape)


def without_one(*shape):
    """The labels, of which class 1 is ignored."""
    return labels(*shape).masked_fill(labels(*shape) == 1, -100)


def signs(*shape):
    count = torch.Size(shape).numel()
    return torch.tensor([1.0 if i % 3 else -1.0 for i in range(count)]).double().reshape(shape)


def parts(*shape):
    """Numbers from 0.1 to 0.9."""
    count = torch.Size(shape).numel()
    return torch.tensor([0.1 + 0.2 * (i * 7 % 5) for i in range(count)]).double().reshape(shape)


def targets(*shape):
    """Classes of a sequence, without class 0; each second one is the one before once more."""
    count = torch.Size(shape).numel()
    return torch.tensor([1 + i // 2 % (CLASSES - 1) for i in range(count)]).reshape(shape)


def weights():
    return torch.tensor(WEIGHTS).double()


def ctc(x, target, lengths, **options):
    return F.ctc_loss(x.log_softmax(-1).transpose(0, 1), target, lengths[0], lengths[1],
                      **options)


def cross_entropy(x, **options):
    return F.cross_entropy(x, labels(x.shape[0]), weights(), **options)


def of_sequences(x):
    return F.cross_entropy(x.flatten(0, 1), without_one(*x.shape[:-1]).flatten(), weights())


def masked(x):
    mask = parts(*x.shape)
    return (x * x * mask).sum() / mask.sum()


def several(*shape):
    """Labels of which a sample has several, as test_losses.c has them."""
    count = torch.Size(shape).numel()
    values = [-1 if i % 7 == 3 else (3 * i + i // 4) % shape[1] for i in range(count)]
    return torch.tensor(values).reshape(shape)


def gaussian(mean, variance):
    """The gradient of a variance below the least one, 0.3, is 1 in PyTorch."""
    return F.gaussian_nll_loss(mean, parts(*mean.shape), variance * variance, full=True, eps=0.3)


def bce_with_logits(x, **options):
    return F.binary_cross_entropy_with_logits(x, parts(*x.shape), **options)


# name: (function, shapes of the parameters)
LOSSES = {
    "bce_with_logits": (bce_with_logits, (3, 4)),
    "bce_with_logits weighted": (lambda x: bce_with_logits(x, weight=weights()), (4, 5)),
    "bce_with_logits positive": (lambda x: bce_with_logits(x, pos_weight=weights()), (2, 3, 5)),
    "bce_with_logits of both": (lambda x: bce_with_logits(x, weight=2 * parts(6, 1),
                                                          pos_weight=weights()), (6, 5)),
    "bce_loss weighted": (lambda x: F.binary_cross_entropy(torch.sigmoid(x), parts(4, 5),
                                                           weight=weights()), (4, 5)),
    "bce multilabel_soft_margin": (lambda x: F.multilabel_soft_margin_loss(
        x, parts(4, 5), weight=weights()), (4, 5)),
    "cross_entropy": (cross_entropy, (11, 5)),
    "cross_entropy smoothed": (lambda x: cross_entropy(x, label_smoothing=0.2), (11, 5)),
    "cross_entropy soft": (lambda x: F.cross_entropy(x, parts(4, 5), weights(),
                                                     label_smoothing=0.1), (4, 5)),
    "cross_entropy ignored": (of_sequences, (3, 4, 5)),
    "nll_loss": (lambda x: F.nll_loss(x, labels(8), weights()), (8, 5)),
    "ratio_loss": (masked, (3, 4)),
    "cosine_embedding_loss": (lambda a, b: F.cosine_embedding_loss(a, b, signs(7), 0.1), (7, 4),
                              (7, 4)),
    "triplet_margin_loss": (F.triplet_margin_loss, (5, 4), (5, 4), (5, 4)),
    "triplet_margin_loss swapped": (lambda a, p, n: F.triplet_margin_loss(
        a, p, n, margin=2, p=3, swap=True), (5, 4), (5, 4), (5, 4)),
    "hinge_embedding_loss": (lambda x: F.hinge_embedding_loss(x, signs(3, 5), 0.7), (3, 5)),
    "margin_ranking_loss": (lambda a, b: F.margin_ranking_loss(a, b, signs(9), 0.3), (9,), (9,)),
    "multilabel_soft_margin_loss": (lambda x: F.multilabel_soft_margin_loss(
        x, (signs(4, 5) + 1) / 2), (4, 5)),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, labels(8).relu(), margin=0.5,
                                                        weight=weights()), (8, 5)),
    "multilabel_margin_loss": (lambda x: F.multilabel_margin_loss(x, several(*x.shape)), (6, 5)),
    "multilabel_margin_loss of one": (lambda x: F.multilabel_margin_loss(x, several(*x.shape)),
                                      (1, 1)),
    "gaussian_nll_loss": (gaussian, (4, 3), (4, 3)),
    "poisson_nll_loss": (lambda x: F.poisson_nll_loss(x, 5 * parts(3, 4), full=True), (3, 4)),
    "poisson_nll_loss of rates": (lambda x: F.poisson_nll_loss(
        x.exp(), 5 * parts(3, 4), log_input=False, eps=1e-3), (3, 4)),
    "kl_div_loss": (lambda x: F.kl_div(x, parts(3, 4), reduction="batchmean"), (3, 4)),
    "kl_div_loss of logarithms": (lambda x: F.kl_div(x, parts(3, 4).log(), log_target=True),
                                  (3, 4)),
    "ctc_loss": (lambda x: ctc(x, targets(3, 3), ((8,) * 3, (3,) * 3)), (3, 8, 5)),
    "ctc_loss of lengths": (lambda x: ctc(x, targets(3, 4) - 1, ((9, 7, 5), (4, 1, 0)),
                                          blank=4), (3, 9, 5)),
    "ctc_loss infinite": (lambda x: ctc(x, targets(3, 4), ((6, 5, 4), (4, 4, 2)),
                                        zero_infinity=True), (3, 6, 5)),
}

# Those that test_losses.c makes by the section `loss` of a recipe.
LOSSES.update({name + " by recipe": row for name, row in {
    "cross_entropy": (lambda x: F.cross_entropy(x, labels(7)), (7, 5)),
    "cross_entropy of images": (lambda x: F.cross_entropy(
        x, without_one(2, 3, 2), weights(), label_smoothing=0.1), (2, 5, 3, 2)),
    "cross_entropy of tokens": (lambda x: F.cross_entropy(x.flatten(0, 1), labels(10)), (2, 5, 5)),
    "cross_entropy of the second": (lambda x: F.cross_entropy(x, labels(2, 5)), (2, 5, 5)),
    "cross_entropy of the next": (lambda x: F.cross_entropy(
        x[:, :-1].flatten(0, 1), labels(3, 4)[:, 1:].flatten()), (3, 4, 5)),
    "cross_entropy of soft": (lambda x: F.cross_entropy(x, parts(2, 5, 2, 2), weights(),
                                                        label_smoothing=0.2), (2, 5, 2, 2)),
    "nll": (lambda x: F.nll_loss(x, without_one(8), weights()), (8, 5)),
    "bce": (bce_with_logits, (3, 4)),
    "bce of images": (lambda x: bce_with_logits(x, pos_weight=weights().reshape(5, 1, 1)),
                      (2, 5, 2, 3)),
    "bce of one": (lambda x: F.binary_cross_entropy_with_logits(
        x[:, 0], parts(7), pos_weight=torch.tensor(2.5)), (7, 1)),
    "mse": (lambda x: F.mse_loss(x, parts(3, 4)), (3, 4)),
    "l1": (lambda x: F.l1_loss(x.flatten(), parts(12)), (3, 2, 2)),
    "huber": (lambda x: F.huber_loss(x, parts(3, 4), delta=0.3), (3, 4)),
    "smooth_l1": (lambda x: F.smooth_l1_loss(x, parts(3, 4), beta=0.2), (3, 4)),
    "relative_l2": (lambda x: ((x - parts(3, 4)).norm(dim=1) / parts(3, 4).norm(dim=1)).mean(),
                    (3, 4)),
    "kl": (lambda x: F.kl_div(x, parts(3, 4).log(), log_target=True, reduction="batchmean"),
           (3, 4)),
    "ctc_loss of lengths": (lambda x: ctc(x, targets(3, 4) - 1, ((9, 7, 5), (4, 1, 0)), blank=4),
                            (3, 9, 5)),
}.items()})


def main():
    print("// Written by make_loss_tables.py: PyTorch's means of losses, and their gradients.\n"
          "#ifndef TRIREME_TESTS_LOSS_TABLES_H\n#define TRIREME_TESTS_LOSS_TABLES_H\n\n"
          "#include <trireme/tensor.h>\n\ntypedef struct loss_case {\n    const char *name;\n"
          "    int parameters;\n    tri_shape shapes[3];\n    double mean, d[3][2];\n} loss_case;"
          "\n")
    print("static const loss_case loss_cases[] = {")
    for name, (function, *shapes) in LOSSES.items():
        parameters = [wave(k + 1, *shape).double().requires_grad_()
                      for k, shape in enumerate(shapes)]
        mean = function(*parameters)
        mean.backward()
        gradients = ", ".join(braces(project(p.grad)) for p in parameters)
        dims = ", ".join(f"{{{len(s)}, {{{', '.join(map(str, s))}}}}}" for s in shapes)
        print(f'    {{"{name}", {len(shapes)}, {{{dims}}}, {float(mean)!r}, {{{gradients}}}}},')
    print("};\n\n#endif")


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    main()
