#!/usr/bin/env python3
"""Groups of operations that exported networks have written out, and that one operation computes:
which ones `trireme model show` finds, and that loss and weights after a step are those of the same
network computed operation by operation.

usage: test_patterns.py BUILD_FOLDER

What a network returns is kept, so a network that returns all its values is computed as it is
written.
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from programs import Program, check_equal, step  # noqa: E402
from runs import TRIREME, check_all, run  # noqa: E402

folder = None


def found(path):
    return json.loads(run([TRIREME, "model", "show", path, "--json"]).stdout)["fused"]


def check(name, wanted, program, words=()):
    """`wanted`: what is found, and how often."""
    paths = [os.path.join(folder, f"{name}-{kind}.pt2".replace(" ", "_")) for kind in "ab"]
    program.write(paths[0], program.made()[:1])
    program.write(paths[1], program.made())
    assert found(paths[0]) == wanted, f"{name}: {found(paths[0])} is found, not {wanted}"
    assert found(paths[1]) == {}, f"{name}: {found(paths[1])} is found of what is returned"
    if not wanted:
        return
    check_equal(name, step(paths[0], program, words), step(paths[1], program, words))


FIRST = """h N,4,8 = linear.default(x, p_a_weight)
"""
WEIGHTS = {"a.weight": [8, 8], "w": [8]}


def three(text, **parameters):
    """A network of x [N, 4, 8] that begins with a linear layer."""
    return Program([4, 8], {**WEIGHTS, **parameters}, FIRST + text)


RMS = """s N,4,8 = {square}
m N,{sizes} = mean.dim(s, [{axis}], True)
e N,{sizes} = add.Tensor({e})
r N,{sizes} = rsqrt.default(e)
y N,4,8 = mul.Tensor({y})
z N,4,8 = mul.Tensor({z})"""
ROOT = """s N,4,8 = pow.Tensor_Scalar(h, 2)
m N,4,1 = mean.dim(s, [-1], True)
{two}
y N,4,8 = div.Tensor(h, r)
z N,4,8 = mul.Tensor(p_w, y)"""


def rms(square="pow.Tensor_Scalar(h, 2)", axis="-1", sizes="4,1", e="m, 1e-05", y="h, r",
        z="p_w, y", more=""):
    return three(RMS.format(square=square, axis=axis, sizes=sizes, e=e, y=y, z=z) + more)


def check_alike():
    """Pairs of operations that are the same, at the values where they could differ."""
    zeros = FIRST + """hd N,4,8 = detach.default(h)
u N,4,8 = sub.Tensor(h, hd)
"""  # whose gradients are not zero
    bound = zeros + "wd 8 = detach.default(p_w)\nb 8 = sub.Tensor(p_w, wd)\ny N,4,8 = "
    corner = FIRST + """c1 N,1,8 = slice.Tensor(x, 1, 0, 1)
c N,1,3 = slice.Tensor(c1, 2, 0, 3)
f1 N,1,8 = slice.Tensor(h, 1, 0, 1)
f N,1,3 = slice.Tensor(f1, 2, 0, 3)
z N,1,3 = mul.Tensor(c, 0.0)
i 3 = arange.start(start=0.0, end=3.0)
z1 N,1,3 = add.Tensor(z, i)
k N,1,3i = to.dtype(z1, 5)
"""
    paste = """{}
r N,1,5 = slice.Tensor(f1, 2, 3, 8)
u N,1,8 = cat.default([w, r], 2)
d N,3,8 = slice.Tensor(h, 1, 1, 4)
y N,4,8 = cat.default([u, d], 1)"""
    above = bound.replace("y N", "c 8 = add.Tensor(b, 1.0)\ny N")
    half = "m N,4,8 = relu.default(h)\nn N,4,1 = {}\ny N,4,8 = add.Tensor(n, m)"
    for number, (a, b) in enumerate([
            (zeros + "y N,4,8 = clamp_min.default(u, 0.0)", zeros + "y N,4,8 = relu.default(u)"),
            (zeros + "y N,4,8 = clamp.default(u, 0.0, 6.0)", zeros + "y N,4,8 = relu6.default(u)"),
            # At a bound that is a tensor, x and the bound share the gradient.
            (bound + "clamp.Tensor(u, b)", bound + "maximum.default(u, b)"),
            (bound + "clamp.Tensor(u, max=b)", bound + "minimum.default(u, b)"),
            (above + "clamp.Tensor(u, b, c)", bound + "maximum.default(u, b)"),
            # Between two that are equal x has all of it, and two in the wrong order are the upper.
            (bound + "clamp.Tensor(u, b, b)",
             bound.replace("y N", "e 8 = mul.Tensor(b, 0.0)\ny N") + "add.Tensor(u, e)"),
            (above + "clamp.Tensor(u, c, b)",
             bound.replace("y N", "e N,4,8 = mul.Tensor(u, 0.0)\ny N") + "add.Tensor(e, b)"),
            # An index that has less than the tensor is of its first elements.
            (corner + "y N,1,3 = gather.default(h, 2, k)", corner + "y N,1,3 = alias.default(f)"),
            (corner + "y N,4,8 = scatter.src(h, 2, k, x)",
             corner + paste.format("w N,1,3 = alias.default(c)")),
            (corner + "y N,4,8 = scatter_add.default(h, 2, k, x)",
             corner + paste.format("w N,1,3 = add.Tensor(c, f)")),
            (corner + "y N,4,8 = scatter_reduce.two(h, 2, k, x, 'mean')",
             corner + paste.format("v N,1,3 = add.Tensor(c, f)\nw N,1,3 = mul.Tensor(v, 0.5)")),
            (FIRST + half.format("linalg_vector_norm.default(m, 0, [-1], True)"),
             FIRST + half.replace("n N,4,1", "t N,4,8b = ne.Scalar(m, 0.0)\n"
                                  "f N,4,8 = to.dtype(t, 7)\nn N,4,1").format(
                                      "sum.dim_IntList(f, [-1], True)"))]):
        found_steps = []
        for side, text in ("a", a), ("b", b):
            path = os.path.join(folder, f"alike-{number}-{side}.pt2")
            program = Program([4, 8], WEIGHTS, text)
            program.write(path, program.made()[:1])
            found_steps.append(step(path, program))
        assert found_steps[0] == found_steps[1], f"{number}: {found_steps}"


TERMS = """d N,4,8 = sub.Tensor(h, x)
s N,4,8 = pow.Tensor_Scalar(d, 2)
"""
ROWS = """r N,8 = view.default(h, [-1, 8])
a N,4i = argmax.default(x, -1)
k Ni = view.default(a, [-1])
"""
LOGS = ROWS + """l N,8 = log_softmax.int(r, 1)
u N,1i = unsqueeze.default(k, 1)
g N,1 = gather.default(l, 1, u)
"""
MASK = """c Nb = ne.Scalar(k, 3)
f N = to.dtype(c, 7)
"""
SOFT = ROWS + """q1 N,8 = view.default(x, [-1, 8])
q N,8 = softmax.int(q1, 1)
"""
# A loss that is written out, and the same from torch.nn.functional.
LOSSES = {
    "mean": (TERMS + "y . = mean.default(s)", "y . = mse_loss.default(h, x)"),
    "scaled": (TERMS + "m . = mean.dim(s, [0, 1, 2])\nn . = neg.default(m)\n"
               "z . = mul.Tensor(n, -2.0)\nb . = mse_loss.default(h, x)\ny . = add.Tensor(z, b)",
               "a . = mse_loss.default(h, x)\ny . = mul.Tensor(a, 3.0)"),
    "samples": (TERMS + "n # = sym_size.int(x, 0)\nt . = sum.default(s)\nv N,4,8 = abs.default(d)\n"
                "w . = sum.dim_IntList(v, [0, 1, 2])\nq . = add.Tensor(t, w)\n"
                "y . = div.Tensor(q, n)",
                "a . = mse_loss.default(h, x)\nb . = l1_loss.default(h, x)\n"
                "c . = add.Tensor(a, b)\ny . = mul.Tensor(c, 32.0)"),
    "gathered": (LOGS + "m . = mean.default(g)\ny . = neg.default(m)",
                 ROWS + "y . = cross_entropy_loss.default(r, k)"),
    "terms": (ROWS + "t N = cross_entropy_loss.default(r, k, None, 0)\ny . = mean.default(t)",
              ROWS + "y . = cross_entropy_loss.default(r, k)"),
    "smooth terms": (ROWS + "t N = cross_entropy_loss.default(r, k, None, 0, 3, 0.1)\n"
                     + MASK + "t1 N = mul.Tensor(t, f)\na1 . = sum.default(t1)\n"
                     "b1 . = sum.default(f)\ny . = div.Tensor(a1, b1)",
                     ROWS + "y . = cross_entropy_loss.default(r, k, None, 1, 3, 0.1)"),
    "masked": (LOGS + MASK + "q N = squeeze.dim(g, 1)\nt N = mul.Tensor(q, f)\n"
               "a1 . = sum.default(t)\nb1 .i = sum.default(c)\nb2 .i = clamp.default(b1, min=1)\n"
               "y1 . = div.Tensor(a1, b2)\ny . = mul.Tensor(y1, -1.0)",
               ROWS + "y . = cross_entropy_loss.default(r, k, None, 1, 3)"),
    "soft": (SOFT + "t N = cross_entropy_loss.default(r, q, None, 0, -100, 0.3)\n"
             "y . = mean.default(t)",
             SOFT + "y . = cross_entropy_loss.default(r, q, None, 1, -100, 0.3)"),
    "soft classes": ("p N,4,8 = softmax.int(x, 1)\ny . = cross_entropy_loss.default(h, p)",
                     "p N,4,8 = softmax.int(x, 1)\nh1 N,8,4 = permute.default(h, [0, 2, 1])\n"
                     "p1 N,8,4 = permute.default(p, [0, 2, 1])\n"
                     "h2 N,4 = reshape.default(h1, [-1, 4])\n"
                     "p2 N,4 = reshape.default(p1, [-1, 4])\n"
                     "y . = cross_entropy_loss.default(h2, p2)"),
    "twice": (LOGS + MASK + "q N = squeeze.dim(g, 1)\nt N = mul.Tensor(q, f)\n"
              "a1 . = sum.default(t)\nb1 .i = sum.default(c)\ny1 . = div.Tensor(a1, b1)\n"
              "y2 . = add.Tensor(y1, y1)\ny . = mul.Tensor(y2, -0.5)",
              ROWS + "y . = cross_entropy_loss.default(r, k, None, 1, 3)"),
}


def check_losses():
    """A loss that the network has written out is the one that a function would compute, whatever
    the number of ranks."""
    for number, (name, texts) in enumerate(LOSSES.items()):
        wanted = None
        for side, text in reversed(list(enumerate(texts))):
            path = os.path.join(folder, f"loss-{number}-{side}.pt2")
            program = Program([4, 8], WEIGHTS, FIRST + text)
            program.write(path, program.made()[:1])
            fused = {"mean as a loss": 2 if name == "samples" else 1,
                     **({"cross-entropy": 1} if name == "gathered" else {})}
            if side or name == "soft classes":
                fused = {}
            assert found(path) == fused, f"{name}: {found(path)} is found, not {fused}"
            for ranks in (1, 3) if not side else (1,):
                made = step(path, program, ranks=ranks, loss=None)
                wanted = wanted or made
                check_equal(f"{name}, {ranks} ranks", made, wanted)


def check_complex():
    """Complex numbers are refused with what to do, by each operation that has them."""
    path = os.path.join(folder, "complex.pt2")
    program = three("""f N,4,8c = fft_fft.default(h)
v N,4,8 = real.default(f)
y N,4,8 = fft_fftshift.default(v)""")
    program.write(path, program.made()[:1])
    lines = run([TRIREME, "model", "check", path], 2).stderr.splitlines()
    assert [("no complex numbers" in line, name in line) for line, name in zip(
        lines, ("fft_fft.", "real.", "fftshift."), strict=True)] == [
            (True, True), (True, True), (False, True)], lines
    # One number that is no loss.
    program = three("d N,4,8 = sub.Tensor(h, x)\ns N,4,8 = square.default(d)\n"
                    "m . = mean.default(s)\ny . = sqrt.default(m)")
    program.write(path, program.made()[:1])
    assert "'output'" in run([TRIREME, "model", "check", path], 2).stderr
    # One where the bound of the counts matters, as the sum is not 0 where they are.
    program = three(ROWS + MASK + "a1 . = sum.default(h)\nb1 .i = sum.default(c)\n"
                    "b2 .i = clamp.default(b1, min=1)\ny . = div.Tensor(a1, b2)")
    program.write(path, program.made()[:1])
    assert "'output'" in run([TRIREME, "model", "check", path], 2).stderr


def check_rms_norm():
    norm = {"RMS norm": 1}
    check("rms", norm, rms())
    check("rms exchanged", norm, rms(y="r, h", z="y, p_w", axis="2", e="1e-05, m"))
    check("rms product", norm, rms(square="mul.Tensor(h, h)"))
    check("rms square", norm, rms(square="square.default(h)"))
    check("rms root", norm, three(ROOT.format(two="""e N,4,1 = add.Tensor(m, 1e-05)
r N,4,1 = sqrt.default(e)""")))
    # Without a weight; a factor that is no weight stays outside.
    check("rms times x", norm, rms(z="y, x"))
    check("rms number", norm, rms(z="y, 3.0"))
    # Gemma's weight is one less.
    check("rms one more", norm, rms(z="y, 1.0", more="""
v 8 = add.Tensor(p_w, 1.0)
u N,4,8 = mul.Tensor(y, v)""".replace("mul.Tensor(y", "mul.Tensor(z")))
    # Another axis, power, factor, or place of eps.
    check("rms axis", {}, rms(axis="1", sizes="1,8"))
    check("rms cube", {}, rms(square="pow.Tensor_Scalar(h, 3)"))
    check("rms of two", {}, rms(square="mul.Tensor(h, x)"))
    check("rms other", {}, rms(y="x, r"))
    check("rms no eps", {}, rms(e="m, 0.0"))
    check("rms twice", {}, rms(e="m, 1e-05, alpha=2"))
    check("rms late eps", {}, three(ROOT.format(two="""e N,4,1 = sqrt.default(m)
r N,4,1 = add.Tensor(e, 1e-05)""")))


LAYER = """m N,4,1 = mean.dim(h, [{axis}], True)
d N,4,8 = sub.Tensor(h, m)
{variance}
e N,4,1 = add.Tensor(v, {eps})
r N,4,1 = rsqrt.default(e)
y N,4,8 = mul.Tensor(d, r)
z N,4,8 = mul.Tensor(y, p_w)
o N,4,8 = add.Tensor(z, p_b)"""
SQUARES = "s N,4,8 = pow.Tensor_Scalar(d, 2)\nv N,4,1 = mean.dim(s, [-1], True)"


def layer(variance=SQUARES, axis="-1", eps="1e-05", text=LAYER):
    return three(text.format(variance=variance, axis=axis, eps=eps), b=[8])


def check_layer_norm():
    norm = {"layer norm": 1}
    check("layer", norm, layer())
    check("layer var", norm, layer("v N,4,1 = var.dim(h, [2], False, True)", axis="2"))
    check("layer correction", norm, layer(
        "v N,4,1 = var.correction(h, [-1], correction=0, keepdim=True)"))
    quotient = LAYER.replace("rsqrt", "sqrt")
    check("layer quotient", norm, layer(text=quotient.replace("y N,4,8 = mul", "y N,4,8 = div")))
    check("layer weight first", norm, layer(text=quotient.replace(
        "y N,4,8 = mul.Tensor(d, r)\nz N,4,8 = mul.Tensor(y, p_w)",
        "y N,4,8 = mul.Tensor(p_w, d)\nz N,4,8 = div.Tensor(y, r)")))
    check("layer unit", norm, layer(text=LAYER.replace("mul.Tensor(y, p_w)", "add.Tensor(y, x)")))
    # A slice of the samples is another tensor.
    check("layer of a slice", norm, layer(
        text="a N,4,8 = slice.Tensor(h, 0, 1, 9223372036854775807)\n"
        + LAYER.replace("(h, ", "(a, ") + "\nf 1,4,8 = slice.Tensor(h, 0, 0, 1)\n"
        "w N,4,8 = cat.default([o, f], 0)"))
    # Another variance, axis, or eps.
    check("layer unbiased", {}, layer("v N,4,1 = var.dim(h, [-1], True, True)"))
    check("layer default correction", {}, layer("v N,4,1 = var.correction(h, [-1], keepdim=True)"))
    check("layer of x", {}, layer("v N,4,1 = var.dim(x, [-1], False, True)"))
    check("layer no eps", {}, layer(eps="0.0"))
    check("layer axis", {}, layer("v N,1,8 = var.dim(h, [1], False, True)", axis="1",
                                  text=LAYER.replace("4,1 =", "1,8 =")))


GELU = """p N,4,8 = pow.Tensor_Scalar(h, {power})
q N,4,8 = mul.Tensor(p, 0.044715)
s N,4,8 = add.Tensor(h, q)
i N,4,8 = mul.Tensor(s, {factor})
t N,4,8 = tanh.default(i)
u N,4,8 = add.Tensor(t, {one})
v N,4,8 = mul.Tensor(h, 0.5)
y N,4,8 = mul.Tensor(v, u)"""


def gelu(power="3.0", factor="0.7978845608028654", one="1.0"):
    return three(GELU.format(power=power, factor=factor, one=one))


def check_gelu():
    check("gelu", {"GELU by tanh": 1}, gelu())
    check("gelu power", {}, gelu(power="2.0"))
    check("gelu factor", {}, gelu(factor="0.79"))
    check("gelu one", {}, gelu(one="0.9"))
    check("gelu other", {}, three(GELU.format(power="3.0", factor="0.7978845608", one="1.0")
                                  .replace("v N,4,8 = mul.Tensor(h", "v N,4,8 = mul.Tensor(x")))
    check("gelu fast", {"GELU by tanh": 1}, three("""c N,4,8 = mul.Tensor(h, 0.7978845608)
p N,4,8 = mul.Tensor(h, 0.044715)
q N,4,8 = mul.Tensor(p, h)
s N,4,8 = add.Tensor(q, 1.0)
i N,4,8 = mul.Tensor(c, s)
t N,4,8 = tanh.default(i)
u N,4,8 = add.Tensor(t, 1.0)
v N,4,8 = mul.Tensor(h, 0.5)
y N,4,8 = mul.Tensor(v, u)"""))
    check("gelu erf", {"GELU": 1}, three("""d N,4,8 = div.Tensor(h, 1.4142135623730951)
e N,4,8 = erf.default(d)
u N,4,8 = add.Tensor(e, 1.0)
v N,4,8 = mul.Tensor(h, u)
y N,4,8 = mul.Tensor(v, 0.5)"""))


def check_swiglu():
    gate = {"SwiGLU": 1}
    more = {"b.weight": [8, 8]}
    text = "u N,4,8 = linear.default(x, p_b_weight)\n"
    check("swiglu", gate, three(text + """s N,4,8 = silu.default(h)
y N,4,8 = mul.Tensor(s, u)""", **more))
    check("swiglu written", gate, three(text + """s N,4,8 = sigmoid.default(h)
t N,4,8 = mul.Tensor(h, s)
y N,4,8 = mul.Tensor(u, t)""", **more))
    check("swiglu sigmoid", {}, three(text + """s N,4,8 = sigmoid.default(h)
t N,4,8 = mul.Tensor(x, s)
y N,4,8 = mul.Tensor(u, t)""", **more))
    # The scale of a channel is no gate.
    check("swiglu channel", {}, three("""s N,4,8 = silu.default(h)
y N,4,8 = mul.Tensor(s, p_w)"""))


HEADS = """{0}l N,4,{2} = linear.default(x, p_{0}_weight)
{0}v N,4,{1},4 = view.default({0}l, [-1, 4, {1}, 4])
{0} N,{1},4,4 = transpose.int({0}v, 1, 2)
"""
BEHIND = """
ot N,4,{0},4 = transpose.int(o, 1, 2)
om N,4,{1} = reshape.default(ot, [-1, 4, {1}])
z N,4,8 = linear.default(om, p_o_weight)"""


def heads(text, of_q=2, of_k=2, of_v=2):
    """Attention of x [N, 4, 8] with q, k and v [N, heads, 4, 4]; `text` makes o."""
    counts = {"q": of_q, "k": of_k, "v": of_v}
    parameters = {f"{name}.weight": [4 * count, 8] for name, count in counts.items()}
    parameters["b"] = [2, 4, 4]  # which `text` may read
    before = "".join(HEADS.format(name, count, 4 * count) for name, count in counts.items())
    return Program([4, 8], {**parameters, "o.weight": [8, 4 * of_q]},
                   before + text + BEHIND.format(of_q, 4 * of_q))


ATTENTION = """kt N,2,4,4 = transpose.int(k, {axes})
s N,2,4,4 = matmul.default(q, kt)
t N,2,4,4 = {scaled}
{mask}p N,2,4,4 = softmax.int(u, {axis}, dtype=7)
o N,2,4,4 = matmul.default(p, v)"""
POSITIONS = """i 4i = arange.default(end=4)
j 4,1i = unsqueeze.default(i, 1)
"""
MASKS = {  # what makes u of t
    "none": "u N,2,4,4 = alias.default(t)\n",
    "seen": POSITIONS + "c 4,4b = le.Tensor(i, j)\nu N,2,4,4 = where.ScalarOther(c, t, -1e30)\n",
    "hidden": POSITIONS + """c 4,4b = gt.Tensor(i, j)
u N,2,4,4 = masked_fill.Scalar(t, c, -1e30)
""",
    "window": POSITIONS + """d 4,4i = sub.Tensor(i, j)
c 4,4b = ge.Scalar(d, 2)
u N,2,4,4 = masked_fill.Scalar(t, c, -1e30)
""",
    "added": POSITIONS + """d 4,4i = sub.Tensor(i, j)
c 4,4b = gt.Scalar(d, 0)
f 4,4 = to.dtype(c, 7)
g 4,4 = mul.Tensor(f, -1e30)
u N,2,4,4 = add.Tensor(t, g)
""",
    "bias": "u N,2,4,4 = add.Tensor(t, p_b)\n",
    "truth": POSITIONS + "c 4,4b = le.Tensor(i, j)\nu N,2,4,4 = add.Tensor(t, c)\n",
    "data": """a N,4 = select.int(x, 2, 0)
b N,1,1,4 = view.default(a, [-1, 1, 1, 4])
c N,1,1,4b = gt.Scalar(b, 0.3)
u N,2,4,4 = masked_fill.Scalar(t, c, -1e30)
""",
    "low": POSITIONS + "c 4,4b = gt.Tensor(i, j)\nu N,2,4,4 = masked_fill.Scalar(t, c, -2.0)\n",
}


def attention(axes="2, 3", scaled="mul.Tensor(s, 0.3)", mask="none", axis="-1", first=""):
    return heads(first + ATTENTION.format(axes=axes, scaled=scaled, mask=MASKS[mask], axis=axis))


def check_attention():
    one = {"attention": 1}
    for mask in ["none", "seen", "hidden", "window", "added", "bias"]:
        check(f"attention {mask}", one, attention(mask=mask))
    check("attention div", one, attention("-1, -2", "div.Tensor(s, 2.0)", axis="3"))
    check("attention plain", one, attention(scaled="alias.default(s)"))
    check("attention axes", {}, attention("1, 2", axis="-1"))
    check("attention axis", {}, attention(axis="2"))
    check("attention low", {}, attention(mask="low"))
    # Truth values are added as numbers, and data may hide all keys, so that all count alike.
    check("attention truth", {}, attention(mask="truth"))
    check("attention data", {}, attention(mask="data"))
    # A scale that is a tensor is none.
    check("attention scale", {}, attention(scaled="mul.Tensor(s, qs)",
                                           first="qs N,2,4,4 = mul.Tensor(q, 2.0)\n"))


REPEAT = """{0}u N,{1},1,4,4 = unsqueeze.default({0}, 2)
{0}e N,{1},{2},4,4 = expand.default({0}u, [-1, {1}, {2}, 4, 4])
{0}r N,{3},4,4 = reshape.default({0}e, [-1, {3}, 4, 4])
"""
SDPA = "o N,4,4,4 = scaled_dot_product_attention.default(q, kr, vr, is_causal=True)"


def check_groups():
    found_once = {"grouped heads": 1}
    repeat = REPEAT.format("k", 2, 2, 4) + REPEAT.format("v", 2, 2, 4)
    check("groups", found_once, heads(repeat + SDPA, of_q=4))
    check("groups interleaved", found_once, heads(
        "kr N,4,4,4 = repeat_interleave.self_int(k, 2, 1)\n"
        "vr N,4,4,4 = repeat_interleave.self_int(v, 2, 1)\n" + SDPA, of_q=4))
    # All heads one after the other, and again.
    check("groups repeated", {}, heads("kr N,4,4,4 = repeat.default(k, [1, 2, 1, 1])\n"
                                       "vr N,4,4,4 = repeat.default(v, [1, 2, 1, 1])\n" + SDPA,
                                       of_q=4))
    check("groups one", {}, heads(REPEAT.format("k", 2, 2, 4) + SDPA.replace("vr", "v"), of_q=4,
                                  of_v=4))


ROTARY = POSITIONS + """jf 4,1 = to.dtype(j, 7)
w 2 = arange.start(start=0.0, end=2.0)
ws 2 = mul.Tensor(w, {rate})
wr 2 = exp.default(ws)
a 4,2 = mul.Tensor(jf, wr)
b 4,4 = cat.default([a, a], -1)
d 4,4 = cos.default(b)
c 4,4 = mul.Tensor(d, {factor})
s 4,4 = sin.default(b)
x1 N,2,4,2 = slice.Tensor(q, {axis}, 0, 2)
x2 N,2,4,2 = slice.Tensor(q, {axis}, 2, 9223372036854775807)
n N,2,4,2 = neg.default({negated})
t N,2,4,4 = cat.default([{joined}], -1)
y1 N,2,4,4 = mul.Tensor(q, c)
y2 N,2,4,4 = mul.Tensor(t, s)
r N,2,4,4 = {sum}
o N,2,4,4 = scaled_dot_product_attention.default(r, k, v, is_causal=True)"""


def rotary(text=ROTARY, rate="-4.605170186", factor="1.0", axis="-1", negated="x2", joined="n, x1",
           total="add.Tensor(y1, y2)"):
    return heads(text.format(rate=rate, factor=factor, axis=axis, negated=negated, joined=joined,
                             sum=total))


def check_rotary():
    once = {"rotary embedding": 1}
    check("rotary", once, rotary())
    check("rotary exchanged", once, rotary(total="add.Tensor(y2, y1)", axis="3"))
    # Tables of any numbers are taken, but some as they are.
    check("rotary rate", once, rotary(rate="0.7"))
    check("rotary factor", once, rotary(factor="1.5"))
    check("rotary order", {}, rotary(joined="x1, n"))
    check("rotary sign", {}, rotary(negated="x1", joined="n, x2"))
    check("rotary difference", {}, rotary(total="sub.Tensor(y1, y2)"))
    turned = ROTARY.replace("4,2 = slice", "2,4 = slice").replace("4,2 = neg", "2,4 = neg")
    check("rotary axis", {}, rotary(turned.replace("t N,2,4,4 = cat.default([{joined}], -1)",
                                                   "t N,2,4,4 = cat.default([{joined}], 2)"),
                                    axis="2"))


# Frequencies as Llama 3 has them: slow pairs are slower by 8, and those between mixtures.
SCALED = POSITIONS + """w 8 = arange.start(start=0.0, end=8.0)
w1 8 = mul.Tensor(w, -1.4391156831212787)
w2 8 = exp.default(w1)
g0 8 = mul.Tensor(w2, {turns})
g1 8 = sub.Tensor(g0, 1.0)
g2 8 = div.Tensor(g1, {between})
g3 8 = clamp.default(g2, 0.0, 1.0)
g4 8 = mul.Tensor(g3, 0.875)
g5 8 = add.Tensor(g4, 0.125)
wr 8 = mul.Tensor(w2, g5)
jf 4,1 = to.dtype(j, 7)
a 4,8 = mul.Tensor(jf, wr)
b 4,16 = cat.default([a, a], -1)
c 4,16 = cos.default(b)
s 4,16 = sin.default(b)
l N,4,16 = linear.default(x, p_q_weight)
lv N,4,1,16 = view.default(l, [-1, 4, 1, 16])
q N,1,4,16 = transpose.int(lv, 1, 2)
x1 N,1,4,8 = slice.Tensor(q, -1, 0, 8)
x2 N,1,4,8 = slice.Tensor(q, -1, 8, 9223372036854775807)
n N,1,4,8 = neg.default(x2)
t N,1,4,16 = cat.default([n, x1], -1)
y1 N,1,4,16 = mul.Tensor(q, c)
y2 N,1,4,16 = mul.Tensor(t, s)
r N,1,4,16 = add.Tensor(y1, y2)"""


def check_scaled_rotary():
    # Two mixtures tell the bounds, or none; one does not, and there is no fast pair.
    for turns, between, is_known in ((100.0, 10.0, True), (40.0, 1e-3, True), (1e3, 3.0, False),
                                     (1.0, 30.0, False)):
        name = f"scaled {turns}"
        check(name, {"rotary embedding": 1}, Program([4, 8], {"q.weight": [16, 8]}, SCALED.format(
            turns=turns, between=between)))
        nodes = run([TRIREME, "plan", os.path.join(folder, f"{name.replace(' ', '_')}-a.pt2.yaml"),
                     "data.shapes={x: [4, 8], targets: [1, 4, 16]}", "--show", "graph"]).stdout
        assert (" = rotary " in nodes) == is_known, nodes


def check_conv1d():
    text = """v N,8 = view.default(h, [-1, 8])
a N,6 = addmm.default(p_b, v, p_c)
y N,4,6 = view.default(a, [-1, 4, 6])"""
    check("conv1d", {"linear layer, weight [in, out]": 1}, three(text, b=[6], c=[8, 6]))
    # A program for evaluation declares its weights as the file has them.
    path = os.path.join(folder, "conv1d-a.pt2")
    run([TRIREME, "eval", f"{path}.yaml", f"model.evaluation_program={path}",
         f"data.test={path}.safetensors", "--checkpoint", f"{path}.run"])
    check("conv1d twice", {}, three(text.replace("c)", "c, beta=2)"), b=[6], c=[8, 6]))
    # What else reads the weight has it as [in, out].
    check("conv1d shared", {}, three(text + """
k 6 = sum.dim_IntList(p_c, [0])
z N,4,6 = add.Tensor(y, k)""", b=[6], c=[8, 6]))


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-patterns-") as folder:
        return check_all([check_alike, check_losses, check_complex, check_rms_norm,
                          check_layer_norm, check_gelu, check_swiglu, check_attention,
                          check_groups, check_rotary, check_scaled_rotary, check_conv1d])


sys.exit(main())
