"""The op matrix: every op, in every dtype, in every layout. Rewritten by `generate.py matrix`.

To add an op: matrix_ops.py.

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

The dtype "*" stands for f64, f32, bf16 and f16 in turn: all are compared with what PyTorch computes in f64, 16-bit
types after one rounding. A tensor of up to 40 elements is written in full; of a larger one there are "shape", 8
samples, "max" of |x|, "sum" of |x|, and "dot" with weights that no permutation keeps.
"""

import json
import math

import numpy as np
import torch

from matrix_ops import ALSO, BOOL_OF_U8, ENTRIES, FORGETTING, PAIRED, REJECTED, listed
from vectors import OPS, TYPES, write

NAMES = {dtype: name for name, dtype in TYPES.items()}
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
        leaf = torch.from_numpy(np.array(data)).to(TYPES.get(self.dtype, torch.float64))
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
        for a in TYPES:
            for b in TYPES:
                if a == b:
                    continue
                inputs = [Input("positive" if op == "power" else "normal", [6], "dense", a),
                          Input("small" if op != "div" else "nonzero", [6], "dense", b)]
                if op == "where":
                    inputs.insert(0, Input("mask", [6], "dense", "bool"))
                yield {"op": op, "attrs": {}, "layout": "pair", "inputs": [i.json() for i in inputs]} | \
                    pair_case(op, inputs, TYPES[a], TYPES[b])


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
