#!/usr/bin/env python3
"""Writes in place into what shares memory with other tensors: an exported network computes what
the same network without them computes, or is refused with one line that names the operation.
Which results share memory is PyTorch's (torch.export of 2.15, whose strides stand here).

usage: test_writes.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from programs import Program, check_equal, step  # noqa: E402
from runs import TRIREME, check_all, run  # noqa: E402

FIRST = "h N,4,6 = linear.default(x, p_a_weight)\n"
LAST = "\nz N,4,6 = linear.default(h, p_b_weight)"
WEIGHTS = {"a.weight": [6, 6], "b.weight": [6, 6]}
PARTS = FIRST + """h1 N,{1},{2} = slice.Tensor(h, {0}, 0, {3})
h2 N,{1},{2} = slice.Tensor(h, {0}, {3}, {4})
h3 N,{5},{6} = slice.Tensor(h, {0}, {4}, 9)
hm N,{1},{2} = mul.Tensor(h2, 3.0)
hn N,4,6 = cat.default([h1, hm, h3], {0})
z N,4,6 = linear.default(hn, p_b_weight)"""
ROWS = PARTS.format(1, "1", 6, 1, 2, 2, 6)  # row 1 three times
COLUMNS = PARTS.format(2, "4", 2, 2, 4, 4, 2)  # columns 2 and 3 three times
ALL = FIRST + "hm N,4,6 = mul.Tensor(h, 3.0)\nz N,4,6 = linear.default(hm, p_b_weight)"
NONE = FIRST + LAST[1:]
SUM = """
e N,4,6 = {}
z N,4,6 = linear.default(e, p_b_weight)"""
folder = None


def path_of(name):
    return os.path.join(folder, f"{name}.pt2".replace(" ", "_"))


def same(name, text, wanted, last=LAST):
    """`text` writes into what it makes of h; `wanted`: the same network without writes."""
    steps = []
    for kind, lines in [("a", FIRST + text + last), ("b", wanted)]:
        program, path = Program([4, 6], WEIGHTS, lines), path_of(f"{name} {kind}")
        program.write(path, ["z"])
        steps.append(step(path, program))
    check_equal(name, *steps)


def refused(name, text, texts, last=LAST, batch=-1):
    text = FIRST + text + last
    program = Program([4, 6], WEIGHTS, text.replace("N", "1") if batch == 1 else text, batch)
    path = path_of(name)
    program.write(path, ["z"])
    # The command shows why the network cannot be trained.
    shown = run([TRIREME, "model", "show", path], code=None)
    said = " ".join((shown.stdout + shown.stderr).split())
    for one in texts:
        assert one in said, f"{name}: '{one}' is not in '{said}'"


def check_reshapes():
    """A reshape of what is not in row-major order is a view where the strides allow it."""
    columns = "s N,4,2/24,6,1 = slice.Tensor(h, 2, 2, 4)\n"
    same("columns", columns + """v N,4,2,1/24,6,1,1 = reshape.default(s, [-1, 4, 2, 1])
w N,4,2,1/24,6,1,1 = mul_.Tensor(v, 3.0)""", COLUMNS)
    same("columns split", columns + """v N,2,2,2/24,12,6,1 = reshape.default(s, [-1, 2, 2, 2])
w N,2,2,2/24,12,6,1 = mul_.Tensor(v, 3.0)""", COLUMNS)
    same("columns joined", columns + """v N,8 = flatten.using_ints(s, 1)
w N,8 = mul_.Tensor(v, 3.0)""", NONE)
    same("row", """s N,1,6/24,6,1 = slice.Tensor(h, 1, 1, 2)
v N,6/24,1 = flatten.using_ints(s, 1)
w N,6/24,1 = mul_.Tensor(v, 3.0)""", ROWS)
    same("rows of samples", """s N,2,6/24,6,1 = slice.Tensor(h, 1, 1, 3)
v 4,6 = reshape.default(s, [-1, 6])
w 4,6 = mul_.Tensor(v, 3.0)""", NONE)
    same("ravel", "v 48 = ravel.default(h)\nw 48 = mul_.Tensor(v, 3.0)", ALL)
    turned = "t N,6,4/24,1,6 = transpose.int(h, 1, 2)\n"
    same("turned", turned + """v N,3,2,4/24,2,1,6 = reshape.default(t, [-1, 3, 2, 4])
w N,3,2,4/24,2,1,6 = mul_.Tensor(v, 3.0)""", ALL)
    same("turned flat", turned + """v N,24 = reshape.default(t, [-1, 24])
w N,24 = mul_.Tensor(v, 3.0)""", NONE)
    # What is computed of turned axes keeps their strides.
    same("turned again", turned + """u N,6,4/24,1,6 = mul.Tensor(t, 1.0)
v N,24 = reshape.default(u, [-1, 24])
w N,24 = mul_.Tensor(v, 3.0)
g N,4,6 = transpose.int(u, 1, 2)""", NONE, last=SUM.format("clone.default(g)"))


def check_copies():
    same("contiguous", "v N,4,6 = contiguous.default(h)\nw N,4,6 = mul_.Tensor(v, 3.0)", ALL)
    same("contiguous of turned", """t N,6,4/24,1,6 = transpose.int(h, 1, 2)
v N,6,4 = contiguous.default(t)
w N,6,4 = mul_.Tensor(v, 3.0)""", NONE)
    same("one head", """s N,4,1,6 = view.default(h, [-1, 4, 1, 6])
t N,1,4,6/24,6,6,1 = transpose.int(s, 1, 2)
v N,1,4,6/24,6,6,1 = contiguous.default(t)
w N,1,4,6/24,6,6,1 = mul_.Tensor(v, 3.0)""", ALL)
    same("squeeze", """s N,1,6/24,6,1 = slice.Tensor(h, 1, 1, 2)
v N,6/24,1 = squeeze.dim(s, 1)
w N,6/24,1 = mul_.Tensor(v, 3.0)""", ROWS)
    same("to", "v N,4,6 = to.dtype(h, 7)\nw N,4,6 = mul_.Tensor(v, 3.0)", ALL)
    same("to copy", "v N,4,6 = to.dtype(h, 7, copy=True)\nw N,4,6 = mul_.Tensor(v, 3.0)", NONE)
    text = "v N,4,6 = dropout.default(h, p={}, train=True)\nw N,4,6 = mul_.Tensor(v, 3.0)"
    same("dropout of none", text.format("0.0"), ALL)


def check_read():
    """Views without a way back are made again when their base was written."""
    text = "v N,6,4/24,1,6 = {}\nw N,4,6 = mul_.Tensor(h, 3.0)\ng N,4,6 = transpose.int(v, 1, 2)"
    for call in ["mT.default(h)", "adjoint.default(h)", "swapaxes.default(h, 1, 2)"]:
        same(call, text.format(call), ALL, last=SUM.format("clone.default(g)"))
    same("parts", """v+u N,2,6/24,6,1 = tensor_split.sections(h, 2, 1)
w N,4,6 = mul_.Tensor(h, 3.0)
g N,4,6 = cat.default([v, u], 1)""", ALL, last=SUM.format("clone.default(g)"))


def check_without_gradients():
    """Within torch.no_grad(), only what is made there may be written."""
    for name, text, code in [
            ("no_grad view", "v N,1,6/24,6,1 = slice.Tensor(h, 1, 1, 2)\n"
             "w N,1,6/24,6,1 = mul_.Tensor(v, 3.0)", 2),
            ("no_grad", "w N,4,6 = mul_.Tensor(h, 3.0)", 2),
            ("no_grad new", "w N,4,6 = mul.Tensor(h, 3.0)", 0)]:
        program, path = Program([4, 6], WEIGHTS, FIRST + text + LAST), path_of(name)
        program.without_gradients(len(program.nodes) - 2)
        program.write(path, ["z"])
        found = run([TRIREME, "model", "check", path], code).stderr
        assert ("torch.no_grad()" in found) == (code == 2), found


def check_refusals():
    way = ["written in place", "a slice"]
    for call in ["mT.default(h)", "adjoint.default(h)", "swapaxes.default(h, 1, 2)"]:
        refused(f"write {call}", f"v N,6,4/24,1,6 = {call}\nw N,6,4/24,1,6 = mul_.Tensor(v, 3.0)",
                [f"aten.{call.split('(')[0]}", *way])
    refused("write parts", """v+u N,2,6/24,6,1 = tensor_split.sections(h, 2, 1)
w N,2,6/24,6,1 = mul_.Tensor(u, 3.0)""", ["aten.tensor_split.sections", *way])
    # It is not known here whether these share memory: either may be written, not both be read.
    either = "v N,6,4/24,1,6 = einsum.default('ijk->ikj', [h])\n"
    way = ["aten.einsum.default", "may share memory", ".clone()"]
    refused("write einsum", either + "w N,6,4/24,1,6 = mul_.Tensor(v, 3.0)", way)
    both = "\ng N,4,6 = transpose.int(v, 1, 2)"
    refused("read einsum", either + "w N,4,6 = mul_.Tensor(h, 3.0)" + both, way,
            last=SUM.format("clone.default(g)"))
    same("written einsum", either + "w N,6,4/24,1,6 = mul_.Tensor(v, 3.0)" + both, ALL,
         last=SUM.format("clone.default(g)"))
    # A view of one sample, and of several a copy.
    refused("one sample", """s N,2,6/24,6,1 = slice.Tensor(h, 1, 1, 3)
v 2,6 = reshape.default(s, [-1, 6])
w 2,6 = mul_.Tensor(v, 3.0)""", ["aten.reshape.default", *way[1:]], batch=1)
    # What is returned is read, too.
    refused("returned einsum", either + "w N,4,6 = mul_.Tensor(h, 3.0)", way,
            last=LAST + "\nz2 N,6,4 = einsum.default('ijk->ijk', [v])")
    refused("turn in place", """v N,6/24,1 = select.int(h, 1, 0)
w N,6,4/24,1,6 = transpose_.default(h, 1, 2)
u N,4,6 = transpose_.default(w, 1, 2)""", ["aten.transpose_.default", "in place"])


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-writes-") as folder:
        return check_all([check_reshapes, check_copies, check_read, check_without_gradients,
                          check_refusals])


sys.exit(main())
