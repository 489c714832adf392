"""The op matrix: every op, in every dtype, in every layout. Rewritten by `generate.py matrix`.

To add an op: one line in ENTRIES here (and in OPS of vectors.py, if it is not there yet), one in ops.cpp; then run
`generate.py matrix`. An entry says what each input holds and which sizes it has, in rows r and columns c; the layouts,
dtypes and special values follow from it.

Nothing of the inputs is stored. Element i of input k is a function of hash(i, k) (values() here and in matrix.cpp) that
is exact in all dtypes in question, so that one set of inputs serves all floating point types. The layouts:

    empty      0 x 7, dense
    one        1 x 1
    odd        5 x 7
    strided    5 x 7, each input a transposed, stepped slice with an offset of a larger tensor, which is the leaf
    broadcast  as the entry says for two inputs; else 1 x 7 expanded to 5 x 7
    large      300 x 257: beyond the chunks of all kernels, and with a rest for vectors
    special    infinities, NaN and zeros of both signs, or the integers at the ends of the type; each with each

matrix.json, one case a line:

    {"op", "attrs", "layout",
     "inputs": [[values, sizes, "dense" | "strided" | "expanded", dtype], ...]
     "out":   the result's dtype, "*" where it is that of the inputs
     "output", "grads": [one per input; null if there is none]
     "error": instead of these: "both" where PyTorch rejects the dtype too, "tandem" where it would compute}

The dtype "*" stands for f64, f32, bf16 and f16 in turn: all are compared with what PyTorch computes in f64, 16-bit types
after one rounding. A tensor of up to 40 elements is written in full; of a larger one there are "shape", 8 samples,
"max" of |x|, "sum" of |x|, and "dot" with weights that no permutation keeps.
"""

import json
import math

import numpy as np
import torch

from vectors import OPS, write

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
          "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
WHOLE = ["i64", "i32", "u8", "bool"]
SIZES = {"empty": (0, 7), "one": (1, 1), "odd": (5, 7), "strided": (5, 7), "broadcast": (5, 7), "large": (300, 257)}
BACKWARD, WEIGHTS = 98, 99  # salts


# ---- inputs by formula; the same in matrix.cpp ----


def hashes(count, salt):
    """0 ... 255: 32-bit multiplications and shifts (Murmur's last step)."""
    h = np.arange(count, dtype=np.uint64) + np.uint64((salt + 1) * 7919)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return ((h ^ (h >> np.uint64(16))) & np.uint64(255)).astype(np.int64)


def special(dtype):
    if dtype == "bool":
        return np.array([0, 1])
    if dtype == "u8":
        return np.array([0, 1, 2, 7, 127, 128, 254, 255])
    if dtype in ("i32", "i64"):
        end = 2 ** (31 if dtype == "i32" else 63)
        return np.array([-end, end - 1, -1, 0, 1, 2, -7, 63], dtype=np.int64)
    return np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5])


def values(kind, dtype, count, salt):
    if kind.startswith("special"):
        return special(dtype)[kind == "special numbers" and dtype in ("*", "f64"):]
    h = hashes(count, salt)
    kind, *limit = kind.split()
    if kind == "index":
        return h % int(limit[0])
    if kind == "mask" or dtype == "bool":
        return h % 2
    sign = np.where(h < 128, -1, 1)
    if dtype in ("i64", "i32", "u8"):
        negative = 0 if dtype == "u8" else 1
        return {"normal": h - 128 * negative, "positive": h % 16 + 1, "small": h % 5,
                "nonzero": (h % 64 + 1) * sign ** negative}[kind]
    return {"normal": (h - 128) / 32, "positive": (h % 128 + 8) / 32, "small": (h % 17 - 8) / 4,
            "nonzero": sign * (h % 64 + 16) / 32}[kind]


class Input:
    def __init__(self, kind, sizes, layout, dtype):
        self.kind, self.sizes, self.layout, self.dtype = kind, list(sizes), layout, dtype

    def json(self):
        return [self.kind, self.sizes, self.layout, self.dtype]

    def is_value(self):
        return self.kind.split()[0] not in ("index", "mask")

    def make(self, salt, as_dtype):
        """Leaf, and what the op gets."""
        sizes = self.sizes
        if self.layout == "strided":
            sizes = [s + 2 for s in reversed(sizes)]
            sizes[0] = 2 * self.sizes[-1] + 1
        elif self.layout == "expanded":
            sizes = [1] + sizes[1:]
        data = values(self.kind, "f64" if self.dtype == "*" else self.dtype, math.prod(sizes), salt).reshape(sizes)
        leaf = torch.from_numpy(np.array(data)).to(DTYPES.get(self.dtype, torch.float64))
        leaf = leaf if as_dtype is None or not self.is_value() else leaf.to(as_dtype)
        if self.is_value() and self.dtype == "*":
            leaf = leaf.to(torch.float64).requires_grad_()
        return leaf, self.view(leaf)

    def view(self, leaf):
        if self.layout == "expanded":
            return leaf.expand(self.sizes)
        if self.layout == "dense":
            return leaf
        inner = leaf[(slice(1, None, 2),) + (slice(2, None),) * (leaf.dim() - 1)]
        return inner.permute(list(reversed(range(leaf.dim()))))


# ---- the table ----


class Entry:
    """`inputs`: (kind, sizes) each; `sizes` are words out of r, c, k (3), 1 and numbers. `broadcast`: other sizes for
    the layout of that name. `special`: the kind of its special values, if it has any."""

    def __init__(self, inputs, attrs=None, broadcast=None, special=None, skip=()):
        self.inputs, self.attrs, self.broadcast, self.special = inputs, attrs or {}, broadcast, special
        self.skip = skip  # layouts in which there is nothing to compare


def unary(kind, special="special", **attrs):
    return Entry([(kind, "r c")], attrs, special=special)


def binary(a="normal", b="nonzero"):
    return Entry([(a, "r c"), (b, "r c")], {}, ["r 1", "c"], special="special")


def reduce(kind="normal", **attrs):
    return Entry([(kind, "r c")], attrs)


COMPARE = "eq ne lt le gt ge logical_and logical_or logical_xor"
ENTRIES = {}
for name, kind in {"neg": "normal", "abs": "nonzero", "sign": "nonzero", "relu": "nonzero", "exp": "normal",
                   "log": "positive", "log1p": "positive", "sqrt": "positive", "rsqrt": "positive", "sin": "normal",
                   "cos": "normal", "floor": "normal", "ceil": "normal", "round": "normal", "tanh": "small",
                   "sigmoid": "small", "silu": "normal", "clone": "normal", "logical_not": "normal",
                   "isnan": "normal"}.items():
    ENTRIES[name] = unary(kind)
ENTRIES |= {
    "gelu": unary("normal", approximate="none"),
    "gelu tanh": unary("normal", approximate="tanh"),
    "leaky_relu": unary("nonzero", negative_slope=0.25),
    "elu": unary("nonzero", alpha=0.75),
    "softplus": unary("normal", beta=1.5, threshold=20.0),
    "clamp": unary("normal", min=1, max=3),
    "pow square": unary("normal", exponent=2.0),
    "pow cube": unary("normal", exponent=3.0),
    "pow whole": unary("normal", exponent=3),
    "pow half": unary("positive", special=None, exponent=0.5),
}
for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
    ENTRIES[name] = binary()
for name in COMPARE.split():
    ENTRIES[name] = binary("small", "small")
ENTRIES["power"] = binary("positive", "small")
for name in ("add", "sub", "mul", "div"):
    for side in ("left", "right"):
        ENTRIES[f"{name} 2.5 {side}"] = Entry([("nonzero", "r c")], {"scalar": 2.5, "side": side}, special="special")
ENTRIES |= {
    "sum": reduce(dims=None, keepdim=False),
    "sum rows": reduce(dims=[0], keepdim=False),
    "sum columns": reduce(dims=[1], keepdim=True),
    "mean": reduce("positive", dims=None, keepdim=False),
    "mean rows": reduce("positive", dims=[0], keepdim=True),
    "mean columns": reduce("positive", dims=[-1], keepdim=False),
    "amax columns": reduce(dims=[1], keepdim=False),
    "amin columns": reduce(dims=[1], keepdim=True),
    "max columns": reduce(dim=1, keepdim=False),
    "min columns": reduce(dim=1, keepdim=True),
    "argmax columns": reduce(dim=1, keepdim=False),
    "argmin columns": reduce(dim=1, keepdim=True),
    "any": reduce(), "all": reduce(),
    "var columns": reduce(dims=[1], correction=1, keepdim=False),
    "std columns": reduce(dims=[1], correction=0, keepdim=True),
    "norm 2": reduce("nonzero", p=2.0, dims=[1], keepdim=False),
    "norm 3": reduce("nonzero", p=3.0, dims=[1], keepdim=True),
    "logsumexp columns": reduce(dims=[1], keepdim=False),
    "softmax columns": Entry([("normal", "r c")], {"dim": 1}),
    "softmax rows": Entry([("normal", "r c")], {"dim": 0}, skip=["broadcast"]),  # all equal: the gradient cancels
    "log_softmax columns": Entry([("normal", "r c")], {"dim": -1}),
    "matmul": Entry([("normal", "r c"), ("nonzero", "c k")], {}),
    "matmul vector": Entry([("normal", "r c"), ("nonzero", "c")], {}),
    "matmul batched": Entry([("normal", "2 r c"), ("nonzero", "2 c k")], {}, ["2 r c", "1 c k"]),
    "linear": Entry([("normal", "r c"), ("nonzero", "k c"), ("small", "k")], {}),
    "linear_relu": Entry([("normal", "r c"), ("nonzero", "k c"), ("small", "k")], {}),
    "cross_entropy": Entry([("normal", "r c"), ("index c", "r")], {"reduction": "sum"}),
    "mse_loss": Entry([("normal", "r c"), ("small", "r c")], {"reduction": "sum"}),
    "where": Entry([("mask", "r c"), ("normal", "r c"), ("small", "r c")], {}, ["r 1", "r c", "c"]),
    "masked_fill": Entry([("normal", "r c"), ("mask", "r c")], {"value": 1}, ["r c", "c"]),
    "masked_select": Entry([("normal", "r c"), ("mask", "r c")], {}, ["r c", "c"]),
    "nonzero": Entry([("small", "r c")], {}),
    "index_select": Entry([("normal", "r c"), ("index c", "4")], {"dim": 1}),
    "gather": Entry([("normal", "r c"), ("index c", "r 4")], {"dim": 1}),
    "scatter_add": Entry([("normal", "r c"), ("index c", "r 4"), ("small", "r 4")], {"dim": 1}),
    "cat": Entry([("normal", "r c"), ("small", "r 2")], {"dim": 1}),
    "stack": Entry([("normal", "r c"), ("small", "r c")], {"dim": 0}),
    "split": Entry([("normal", "r c")], {"length": 3, "dim": 1}),
    "reshape": Entry([("normal", "r c")], lambda r, c: {"shape": [c, r]}),
    "flatten": Entry([("normal", "r c")], {"start_dim": 0, "end_dim": -1}),
    "transpose": Entry([("normal", "r c")], {"dim0": 0, "dim1": 1}),
    "permute": Entry([("normal", "2 r c")], {"order": [2, 0, 1]}),
    "slice": Entry([("normal", "r c")], {"dim": 1, "start": 0, "end": -1, "step": 2}),
    "narrow": Entry([("normal", "r c")], lambda r, c: {"dim": 1, "start": c // 2, "length": c - c // 2}),
    "select": Entry([("normal", "r c")], {"dim": 1, "index": -1}),
    "expand": Entry([("normal", "r c")], lambda r, c: {"shape": [2, r, c]}),
    "unsqueeze": Entry([("normal", "r c")], {"dim": 1}),
    "squeeze": Entry([("normal", "r 1")], {"dim": 1}),
}
for name in DTYPES:
    ENTRIES[f"to {name}"] = Entry([("small", "r c")], {"dtype": name})
for name in "neg abs sign relu exp log log1p sqrt rsqrt sin cos floor ceil round tanh sigmoid".split():
    ENTRIES[f"{name}_"] = Entry(ENTRIES[name].inputs, {}, special="special")
ENTRIES["clamp_"] = unary("normal", min=1, max=3)
ENTRIES["pow_"] = unary("normal", exponent=3)
ENTRIES["fill_"] = unary("normal", value=2)
ENTRIES["masked_fill_"] = Entry([("normal", "r c"), ("mask", "r c")], {"value": 1}, ["r c", "c"])
ENTRIES["scatter_add_"] = ENTRIES["scatter_add"]
for name in "add_ sub_ mul_ div_ copy_".split():
    ENTRIES[name] = Entry([("normal", "r c"), ("nonzero", "r c")], {}, ["r c", "c"], special="special")

# sign(NaN) is 0 in PyTorch, and NaN here: a mistake should not vanish. Likewise the gradient of abs.
for name in ("sign", "sign_", "abs", "abs_"):
    ENTRIES[name].special = "special numbers"

# What tandem rejects with a DTypeError though PyTorch computes: products and logsumexp of integers; functions, extremes
# and sums in place of bools.
REJECTED = {"i64 i32 u8": ["matmul", "linear", "linear_relu", "logsumexp"],
            "bool": "logsumexp sign sign_ exp log log1p sqrt rsqrt sin cos tanh sigmoid clamp amax amin max min "
                    "scatter_add scatter_add_ masked_fill masked_fill_".split()}
# What it computes though PyTorch rejects: activations of integers, as f32; subtracting a number from bools.
ALSO = {"i64 i32 u8": "silu gelu leaky_relu elu softplus".split(), "bool": ["sub"]}
# any() and all() of u8 are u8 in PyTorch, for history's sake.
BOOL_OF_U8 = ["any", "all"]

# What they overwrite gets no gradient; zeros in PyTorch.
FORGETTING = ["fill_", "copy_"]


def listed(table, op, dtype):
    return any(op in ops for dtypes, ops in table.items() if dtype in dtypes.split())


# Ops on two types, each with each.
PAIRED = "add mul div maximum power eq lt where add_ copy_".split()

# ---- what PyTorch makes of it ----


def number(value, dtype):
    if not dtype.is_floating_point:
        return int(value)
    if not math.isfinite(value):
        return str(value)  # nan, inf, -inf
    short = float(f"{value:.15g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def encode(tensor):
    flat = tensor.detach().reshape(-1)
    coded = {"shape": list(tensor.shape)}
    if flat.numel() <= 40:
        return coded | {"data": [number(v, tensor.dtype) for v in flat.tolist()]}
    at = [k * (flat.numel() - 1) // 7 for k in range(8)]
    wide = flat.double()
    weights = torch.from_numpy((hashes(flat.numel(), WEIGHTS) - 128) / 128)
    return coded | {"samples": [number(v, tensor.dtype) for v in flat[at].tolist()]} | {
        key: number(float(v), torch.float64)
        for key, v in {"max": wide.abs().max(), "sum": wide.abs().sum(), "dot": wide @ weights}.items()}


def apply(op, attrs, given):
    output = OPS[op](attrs, *given)
    return output[0] if isinstance(output, tuple) else output


def in_f64(op, attrs, inputs, through=None):
    """Output and gradients in f64; the values go through another dtype first."""
    made = [i.make(k, through) for k, i in enumerate(inputs)]
    given = [x.double() if through and i.is_value() else x for i, (_, x) in zip(inputs, made)]
    output = apply(op, attrs, given)
    if output.requires_grad:
        start = values("nonzero", "f64", output.numel(), BACKWARD).reshape(tuple(output.shape))
        output.backward(torch.from_numpy(np.asarray(start)).to(output.dtype))
    return output, [leaf.grad for leaf, _ in made]


def as_is(op, attrs, inputs):
    """The output in the inputs' own dtypes; None where PyTorch rejects them."""
    try:
        return apply(op, attrs, [i.make(k, None)[1] for k, i in enumerate(inputs)])
    except (RuntimeError, IndexError):
        return None


def floating_case(op, attrs, inputs):
    output, grads = in_f64(op, attrs, inputs)
    to = attrs.get("dtype") if op == "to" else None
    case = {"out": to or ("*" if output.dtype == torch.float64 else NAMES[output.dtype]), "output": encode(output)}
    if op in FORGETTING:
        grads[0] = None
    return case | {"grads": [None if g is None else encode(g) for g in grads]} if any(
        g is not None for g in grads) else case


def whole_case(op, attrs, inputs):
    output = as_is(op, attrs, inputs)
    if output is None:
        return {"error": "both"}
    coded = {"out": NAMES[output.dtype]}
    if output.dtype.is_floating_point and op != "to":
        output, _ = in_f64(op, attrs, inputs, through=output.dtype)
    return coded | {"output": encode(output)}


def sizes_of(words, r, c):
    return [{"r": r, "c": c, "k": 3}.get(word) or (r if word == "r" else int(word)) for word in words.split()]


def inputs_of(entry, layout, dtype, in_place):
    if layout == "special":
        n = len(values(entry.special, dtype, 0, 0))
        shapes = [[n]] if len(entry.inputs) == 1 else [[n]] * 2 if in_place else [[n, 1], [n]]
        return [Input(entry.special, s, "dense", dtype) for s in shapes]
    r, c = SIZES[layout]
    made = []
    for k, (kind, words) in enumerate(entry.inputs):
        lay = {"strided": "strided", "broadcast": "expanded"}.get(layout, "dense")
        if layout == "broadcast" and (entry.broadcast or kind.startswith("index") or words[:2] != "r "):
            words, lay = (entry.broadcast[k] if entry.broadcast else words), "dense"
        kind = kind.replace("index c", f"index {c}")
        own = dtype if kind.split()[0] not in ("index", "mask") else "i64" if kind.startswith("index") else "bool"
        made.append(Input(kind, sizes_of(words, r, c), lay, own))
    return made


def case_of(op, entry, dtype, layout):
    r, c = SIZES.get(layout, (0, 0))
    attrs = entry.attrs(r, c) if callable(entry.attrs) else entry.attrs
    inputs = inputs_of(entry, layout, dtype, op.endswith("_"))
    case = {"op": op, "attrs": attrs, "layout": layout, "inputs": [i.json() for i in inputs]}
    case |= (floating_case if dtype == "*" else whole_case)(op, attrs, inputs)
    if listed(REJECTED, op, dtype):
        case = {key: case[key] for key in ("op", "attrs", "layout", "inputs")} | {"error": case.get("error", "tandem")}
    if dtype == "u8" and op in BOOL_OF_U8:
        case["out"] = "bool"
    return case


def cases_of(name, entry):
    op = name.split()[0]
    for dtype in ["*"] + WHOLE:
        odd = case_of(op, entry, dtype, "odd")
        if "error" not in odd:
            yield from (case_of(op, entry, dtype, layout) for layout in list(SIZES) + ["special"] * bool(entry.special)
                        if layout not in entry.skip)
        elif not listed(ALSO, op, dtype):
            yield odd  # in one layout is enough


def pairs():
    for op in PAIRED:
        for a in DTYPES:
            for b in DTYPES:
                if a == b:
                    continue
                inputs = [Input("positive" if op == "power" else "normal", [6], "dense", a),
                          Input("small" if op != "div" else "nonzero", [6], "dense", b)]
                if op == "where":
                    inputs.insert(0, Input("mask", [6], "dense", "bool"))
                yield {"op": op, "attrs": {}, "layout": "pair", "inputs": [i.json() for i in inputs]} | \
                    pair_case(op, inputs, DTYPES[a], DTYPES[b])


def pair_case(op, inputs, a, b):
    common = torch.promote_types(a, b)
    output = as_is(op, {}, inputs)
    if output is None and not (op == "power" and torch.float16 in (a, b)):  # which PyTorch 1.13 has not on a CPU
        return {"error": "both"}
    out = common if output is None else output.dtype
    if op != "copy_" and (common.is_floating_point or out.is_floating_point):
        output, _ = in_f64(op.rstrip("_"), {}, inputs, through=common if common.is_floating_point else out)
    return {"out": NAMES[out], "output": encode(output)}


def matrix():
    lines = [json.dumps(case, separators=(",", ":"))
             for case in [c for name, entry in ENTRIES.items() for c in cases_of(name, entry)] + list(pairs())]
    joined = ",\n".join(lines)
    write("matrix", f'{{"torch": "{torch.__version__}", "cases": [\n{joined}\n]}}\n')
