#!/usr/bin/env python3
"""Golden vectors: values and gradients as PyTorch computes them, for the tests to compare with.

    sudo apt-get install python3-torch           # Debian 12: PyTorch 1.13
    /usr/bin/python3 tests/golden/generate.py    # rewrites the .json files beside this script

PyTorch is needed only here; the tests read the files. A name as an argument (`generate.py reduce softmax`) rewrites
only those families. Each case draws from its own generator, seeded with its name: adding one leaves the others as they
are. Run twice on one machine, the files are equal; another BLAS may change last digits.

Every file but two, one case a line:

    {"torch": version, "cases": [{
      "name":        unique in the file
      "op":          as the function or method is called (below)
      "attrs":       its arguments that are no tensors, by name
      "inputs":      [{"shape", "data" (row-major), "dtype": "float" | "i64", "requires_grad"}, ...]
                     an optional "permute": the op gets input.permute(that), which is not contiguous
      "grad_output": {"shape", "data"} for backward, or null where there is nothing to differentiate
      "indices":     only max and min over a dimension: the positions, {"shape", "data", "dtype": "i64"}
      "f64", "f32":  {"output": {"shape", "data"}, "grads": [one per input; null if not required]}
    }]}

"float" values are exact in f32, so that one set serves both dtypes; `f64` and `f32` hold what PyTorch computes in
either. The output of argmax has "dtype": "i64".

Ops whose call is not plain from their attributes:

    add sub mul div        two inputs; or one and attrs {"scalar", "side"}: "right" x - 2.5, "left" 2.5 - x
    sum mean               attrs {"dims": list or null, "keepdim"}
    max min argmax         attrs {"dim": number or null, "keepdim"}
    squeeze                attrs {"dim": number or null}
    cat stack              all inputs are the list
    index_select           inputs x, index
    linear linear_relu     inputs x [..., in], weight [out, in] and perhaps bias [out]
    cross_entropy          inputs logits, target (i64); attrs {"reduction"}
    mse_loss               inputs input, target; attrs {"reduction"}

training.json: runs of an optimiser, see training(). init.json: what nn.Linear's initial values obey, see init().
"""

import json
import math
import pathlib
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {"f64": torch.float64, "f32": torch.float32}


# ---- numbers and tensors as JSON ----


def number(value, dtype):
    """The shortest decimal that reads back as the same value of that dtype."""
    if dtype == torch.int64:
        return int(value)
    assert math.isfinite(value), "JSON has no infinities"
    short = float(str(np.float32(value))) if dtype == torch.float32 else float(value)
    assert dtype != torch.float32 or np.float32(short) == np.float32(value)
    return short


def encode(tensor):
    tensor = tensor.detach()
    data = [number(v, tensor.dtype) for v in tensor.reshape(-1).tolist()]
    return {"shape": list(tensor.shape), "data": data}


def write(family, text):
    path = HERE / f"{family}.json"
    path.write_text(text)
    print(f"{path.name:16s} {path.stat().st_size / 1024:7.1f} KiB")


# ---- inputs ----


class Input:
    """A tensor of a case: exact in f32, with or without gradient, handed to the op permuted or as it is."""

    def __init__(self, values, shape=None, requires_grad=True, permute=None):
        values = np.asarray(values)
        self.integer = values.dtype.kind == "i"
        values = values if self.integer else values.astype(np.float32)
        self.values = values if shape is None else values.reshape(shape)
        self.requires_grad = requires_grad and not self.integer
        self.permute = permute

    def leaf(self, dtype):
        tensor = torch.from_numpy(np.array(self.values))
        return tensor if self.integer else tensor.to(dtype).requires_grad_(self.requires_grad)

    def json(self):
        dtype = torch.int64 if self.integer else torch.float32
        out = encode(self.leaf(dtype))
        out |= {"dtype": "i64" if self.integer else "float", "requires_grad": self.requires_grad}
        return out if self.permute is None else out | {"permute": self.permute}


class Draw:
    """Random inputs that depend on the case's name alone. Only draws that NumPy keeps the same in all versions."""

    def __init__(self, name):
        self.random = np.random.RandomState(zlib.crc32(name.encode()))

    def normal(self, shape, scale=1.0, **more):
        return Input(scale * self.random.standard_normal(math.prod(shape)), shape, **more)

    def positive(self, shape, low=0.1, high=4.0, **more):
        return Input(self.random.uniform(low, high, math.prod(shape)), shape, **more)

    def away_from_zero(self, shape, **more):
        """Either sign, at least 0.3: divisors, and values on a clear side of a kink."""
        count = math.prod(shape)
        signs = np.where(self.random.uniform(size=count) < 0.5, -1, 1)
        return Input(signs * self.random.uniform(0.3, 2.0, count), shape, **more)

    def distinct(self, shape, offset=0.0, **more):
        """No two values closer than 0.1: no ties."""
        count = math.prod(shape)
        steps = self.random.permutation(count) + self.random.uniform(0.0, 0.9, count)
        return Input(offset + (steps - count / 2) / 9, shape, **more)

    def classes(self, shape, num_classes):
        return Input(self.random.randint(0, num_classes, shape, dtype=np.int64))


# ---- running a case ----


def arithmetic(fn):
    def run(attrs, x, *other):
        if other:
            return fn(x, other[0])
        return fn(x, attrs["scalar"]) if attrs["side"] == "right" else fn(attrs["scalar"], x)

    return run


def sliced(attrs, x):
    index = [slice(None)] * x.dim()
    index[attrs["dim"]] = slice(attrs["start"], attrs["end"], attrs["step"])
    return x[tuple(index)]


def over_dims(method):
    def run(attrs, x):
        return method(x) if attrs["dims"] is None else method(x, dim=attrs["dims"], keepdim=attrs["keepdim"])

    return run


def extreme(method):
    def run(attrs, x):
        return method(x) if attrs["dim"] is None else method(x, attrs["dim"], attrs["keepdim"])

    return run


def method(name):
    """The method of that name, called with the attributes in their order."""
    return lambda attrs, x: getattr(x, name)(*attrs.values())


OPS = {
    "add": arithmetic(lambda a, b: a + b),
    "sub": arithmetic(lambda a, b: a - b),
    "mul": arithmetic(lambda a, b: a * b),
    "div": arithmetic(lambda a, b: a / b),
    "matmul": lambda attrs, a, b: a.matmul(b),
    "sum": over_dims(torch.sum),
    "mean": over_dims(torch.mean),
    "max": extreme(torch.max),
    "min": extreme(torch.min),
    "argmax": extreme(torch.argmax),
    "slice": sliced,
    "squeeze": lambda attrs, x: x.squeeze() if attrs["dim"] is None else x.squeeze(attrs["dim"]),
    "cat": lambda attrs, *parts: torch.cat(parts, attrs["dim"]),
    "stack": lambda attrs, *parts: torch.stack(parts, attrs["dim"]),
    "index_select": lambda attrs, x, index: x.index_select(attrs["dim"], index),
    "linear": lambda attrs, x, weight, bias=None: F.linear(x, weight, bias),
    "linear_relu": lambda attrs, x, weight, bias=None: F.relu(F.linear(x, weight, bias)),
    "cross_entropy": lambda attrs, logits, target: F.cross_entropy(logits, target, reduction=attrs["reduction"]),
    "mse_loss": lambda attrs, x, target: F.mse_loss(x, target, reduction=attrs["reduction"]),
}
for plain in ("neg exp log sqrt abs pow relu softmax log_softmax reshape transpose permute narrow select expand "
              "unsqueeze flatten").split():
    OPS[plain] = method(plain)


def run(op, attrs, inputs, grad_output, dtype):
    """Output, positions (or None) and gradients, in one dtype."""
    leaves = [i.leaf(dtype) for i in inputs]
    given = [leaf if i.permute is None else leaf.permute(i.permute) for leaf, i in zip(leaves, inputs)]
    output, indices = OPS[op](attrs, *given), None
    if isinstance(output, tuple):
        output, indices = output
    if output.requires_grad:
        if grad_output is None:
            grad_output = torch.from_numpy(Draw(f"{op} {attrs}").normal(list(output.shape)).values)
        output.backward(grad_output.to(dtype))
    return output, indices, [leaf.grad for leaf in leaves], grad_output


class Family:
    """Collects cases and writes them."""

    def __init__(self, name):
        self.name, self.cases, self.names = name, [], set()

    def draw(self, name):
        assert name not in self.names, f"two cases called '{name}'"
        self.names.add(name)
        return Draw(f"{self.name}/{name}")

    def add(self, name, op, inputs, **attrs):
        case = {"name": name, "op": op, "attrs": attrs, "inputs": [i.json() for i in inputs]}
        grad_output, exact = None, None
        for key, dtype in DTYPES.items():
            output, indices, grads, grad_output = run(op, attrs, inputs, grad_output, dtype)
            result = {"output": encode(output), "grads": [None if g is None else encode(g) for g in grads]}
            assert all((g is not None) == (i.requires_grad and output.requires_grad) for g, i in zip(grads, inputs))
            if output.dtype == torch.int64:
                result["output"]["dtype"] = "i64"
            if key == "f64":
                exact = result
                case["grad_output"] = None if grad_output is None else encode(grad_output)
                if indices is not None:
                    case["indices"] = encode(indices) | {"dtype": "i64"}
            else:
                self.check_close(name, exact, result)
            case[key] = result
        self.cases.append(case)

    def check_close(self, name, exact, result):
        """f32 must be f64 but for rounding: anything else is an ill-posed case (a tie, a kink, an overflow)."""
        pairs = [(exact["output"], result["output"])] + list(zip(exact["grads"], result["grads"]))
        for a, b in pairs:
            if a is None or not a["data"]:
                continue
            a, b = np.array(a["data"]), np.array(b["data"])
            assert np.abs(a - b).max() <= 1e-6 * max(np.abs(a).max(), 1e-30), f"{self.name}/{name} is ill-posed"

    def write(self):
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in self.cases)
        write(self.name, f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}\n')


def label(*shapes):
    return " ".join("x".join(map(str, s)) if s else "0-d" for s in shapes)


# ---- families ----


def pointwise():
    family = Family("pointwise")
    pairs = [
        ([3, 4], [3, 4]), ([37], [37]), ([3, 4], [4]), ([4], [3, 4]), ([3, 1], [1, 4]), ([2, 3, 4], [3, 1]),
        ([2, 1, 4, 1], [3, 1, 5]), ([2, 3, 2, 2], [2, 3, 2, 2]), ([2, 3, 2, 2], [3, 1, 1]), ([1, 1, 1], [2]),
        ([5, 1], [5, 1]), ([1], [1]), ([], [3]), ([2, 3], []), ([], []), ([1], []), ([0], [1]), ([0, 3], [3]),
        ([2, 0, 3], [2, 1, 1]),
    ]
    for op in ("add", "sub", "mul", "div"):
        for a, b in pairs:
            name = f"{op} {label(a, b)}"
            draw = family.draw(name)
            family.add(name, op, [draw.normal(a), draw.away_from_zero(b)])
        for side in ("right", "left"):
            name = f"{op} scalar {side}"
            family.add(name, op, [family.draw(name).away_from_zero([3, 5])], scalar=-2.5, side=side)
        draw = family.draw(f"{op} permuted")
        family.add(f"{op} permuted", op,
                   [draw.normal([4, 3, 2], permute=[2, 0, 1]), draw.away_from_zero([3, 4], permute=[1, 0])])
        draw = family.draw(f"{op} one gradient")
        family.add(f"{op} one gradient", op, [draw.normal([2, 3], requires_grad=False), draw.away_from_zero([3])])

    shapes = [[], [1], [37], [3, 5], [2, 3, 4], [4, 1, 3, 2], [0], [2, 0]]
    ranges = {"neg": "normal", "exp": "normal", "log": "positive", "sqrt": "positive", "relu": "away_from_zero",
              "abs": "away_from_zero"}
    for op, values in ranges.items():
        for shape in shapes:
            name = f"{op} {label(shape)}"
            family.add(name, op, [getattr(family.draw(name), values)(shape)])
        name = f"{op} permuted"
        family.add(name, op, [getattr(family.draw(name), values)([3, 2, 4], permute=[1, 2, 0])])
    family.add("relu at zero", "relu", [Input([0.0, -0.0, 1.5, -1.5])])
    family.add("abs at zero", "abs", [Input([0.0, 1.5, -1.5])])
    family.add("exp wide", "exp", [Input([-1000.0, -88.0, -20.0, -1.0, 0.0, 1e-7, 1.0, 20.0])])
    family.add("exp large", "exp", [Input([60.0, 80.0, 88.0])])
    family.add("log wide", "log", [Input([1e-30, 1e-10, 0.5, 0.99999, 1.0, 1.00001, 2.0, 1e10, 1e30])])

    for exponent in (2.0, 3.0, 0.5, -1.5, 1.0, 0.0, -1.0):
        for shape in ([], [3, 5], [37], [0]):
            name = f"pow {exponent} {label(shape)}"
            family.add(name, "pow", [family.draw(name).positive(shape, 0.3)], exponent=exponent)
    for exponent in (2.0, 3.0, 1.0, 0.0):
        family.add(f"pow {exponent} of negatives and zero", "pow", [Input([-2.5, -1.0, -0.3, 0.0, 0.7])],
                   exponent=exponent)
    family.write()


def matmul():
    family = Family("matmul")
    for a, b in [
        ([3, 5], [5, 4]), ([1, 1], [1, 1]), ([1, 7], [7, 5]), ([7, 5], [5, 1]), ([7, 1], [1, 5]), ([1, 9], [9, 1]),
        ([17, 33], [33, 9]), ([9, 6], [6, 17]), ([6, 65], [65, 3]), ([8, 8], [8, 8]),
        ([5], [5]), ([1], [1]), ([33], [33]), ([4, 5], [5]), ([1, 5], [5]), ([5], [5, 4]), ([5], [5, 1]),
        ([3, 0], [0, 4]), ([0], [0]), ([3, 0], [0]), ([0, 5], [5, 4]), ([3, 5], [5, 0]), ([0, 5], [5]),
    ]:
        draw = family.draw(label(a, b))
        family.add(label(a, b), "matmul", [draw.normal(a), draw.normal(b)])
    swap = [1, 0]
    for name, permute_a, permute_b in [("a transposed", swap, None), ("b transposed", None, swap), ("both", swap, swap)]:
        draw = family.draw(name)
        a = draw.normal([5, 7] if permute_a else [7, 5], permute=permute_a)
        family.add(name, "matmul", [a, draw.normal([3, 5] if permute_b else [5, 3], permute=permute_b)])
    draw = family.draw("transposed x vector")
    family.add("transposed x vector", "matmul", [draw.normal([5, 7], permute=swap), draw.normal([5])])
    draw = family.draw("vector x transposed")
    family.add("vector x transposed", "matmul", [draw.normal([5]), draw.normal([7, 5], permute=swap)])
    for name, grad_a, grad_b in [("gradient of a only", True, False), ("gradient of b only", False, True)]:
        draw = family.draw(name)
        family.add(name, "matmul",
                   [draw.normal([3, 4], requires_grad=grad_a), draw.normal([4, 2], requires_grad=grad_b)])
    family.write()


def reduce():
    family = Family("reduce")
    sums = [
        ([], None, False), ([1], None, False), ([37], None, False), ([3, 5], None, False), ([2, 3, 4], None, False),
        ([1], [0], False), ([37], [0], True), ([3, 5], [0], False), ([3, 5], [1], False), ([3, 5], [-1], True),
        ([19, 33], [0], False), ([2, 3, 4], [0], False), ([2, 3, 4], [1], False), ([2, 3, 4], [2], True),
        ([2, 3, 4], [0, 2], False), ([2, 3, 4], [2, 0], True), ([2, 3, 4], [-2, -1], False),
        ([2, 3, 4], [0, 1, 2], False), ([2, 3, 2, 3], [1, 3], False), ([2, 3, 2, 3], [0, 2], True),
        ([3, 0], [0], False),
    ]
    empty = [([0], None, False), ([0, 3], [0], False), ([2, 0], [1], True), ([0, 3], None, False)]
    for op in ("sum", "mean"):
        for shape, dims, keepdim in sums + (empty if op == "sum" else []):
            name = f"{op} {label(shape)} over {dims or 'all'}{' keepdim' if keepdim else ''}"
            family.add(name, op, [family.draw(name).normal(shape)], dims=dims, keepdim=keepdim)
        for dims in (None, [0], [1], [0, 2]):
            name = f"{op} permuted over {dims or 'all'}"
            family.add(name, op, [family.draw(name).normal([4, 5, 3], permute=[2, 0, 1])], dims=dims, keepdim=False)
    # One sign and many of them: adding up one by one would lose digits in f32.
    family.add("sum long", "sum", [family.draw("sum long").positive([2049])], dims=None, keepdim=False)

    extremes = [
        ([], None, False), ([1], None, False), ([37], None, False), ([3, 5], None, False), ([2, 3, 4], None, False),
        ([7], 0, False), ([3, 5], 0, False), ([3, 5], 1, False), ([3, 5], -1, True), ([1, 4], 0, False),
        ([4, 1], 1, False), ([5, 37], 1, False), ([2, 3, 4], 1, False), ([2, 3, 4], 0, True),
        ([2, 3, 2, 3], 2, False), ([2, 3, 2, 3], -3, True), ([0, 3], 1, False),
    ]
    for op in ("max", "min", "argmax"):
        for shape, dim, keepdim in extremes:
            name = f"{op} {label(shape)} over {'all' if dim is None else dim}{' keepdim' if keepdim else ''}"
            family.add(name, op, [family.draw(name).distinct(shape)], dim=dim, keepdim=keepdim)
        for sign, offset in (("negative", -100.0), ("positive", 100.0)):
            name = f"{op} all {sign}"
            family.add(name, op, [family.draw(name).distinct([3, 4], offset)], dim=1, keepdim=False)
        for dim in (None, 0, 2):
            name = f"{op} permuted over {'all' if dim is None else dim}"
            family.add(name, op, [family.draw(name).distinct([4, 5, 3], permute=[2, 0, 1])], dim=dim, keepdim=False)
    family.write()


def view():
    family = Family("view")
    one = [
        ("reshape", [3, 4], {"shape": [2, 6]}), ("reshape", [3, 4], {"shape": [12]}),
        ("reshape", [2, 3, 4], {"shape": [-1, 4]}), ("reshape", [6], {"shape": [2, -1, 1]}),
        ("reshape", [1, 1], {"shape": []}), ("reshape", [], {"shape": [1, 1]}), ("reshape", [0, 3], {"shape": [3, 0]}),
        ("transpose", [3, 4], {"dim0": 0, "dim1": 1}), ("transpose", [2, 3, 4], {"dim0": 0, "dim1": -1}),
        ("transpose", [2, 3], {"dim0": 1, "dim1": 1}), ("permute", [2, 3, 4], {"order": [2, 0, 1]}),
        ("permute", [2, 3, 2, 3], {"order": [3, -2, 0, 1]}), ("permute", [], {"order": []}),
        ("slice", [7], {"dim": 0, "start": 1, "end": 6, "step": 2}),
        ("slice", [4, 7], {"dim": 1, "start": 0, "end": 7, "step": 3}),
        ("slice", [4, 7], {"dim": 0, "start": -3, "end": -1, "step": 1}),
        ("slice", [4, 7], {"dim": -1, "start": 2, "end": 100, "step": 4}),
        ("slice", [4, 7], {"dim": 0, "start": 2, "end": 2, "step": 1}),
        ("slice", [2, 3, 4], {"dim": 1, "start": 1, "end": 3, "step": 1}),
        ("narrow", [7], {"dim": 0, "start": 2, "length": 3}), ("narrow", [4, 7], {"dim": 1, "start": 0, "length": 7}),
        ("narrow", [2, 3, 4], {"dim": -2, "start": 1, "length": 2}),
        ("narrow", [3, 4], {"dim": 0, "start": 3, "length": 0}),
        ("select", [7], {"dim": 0, "index": 3}), ("select", [3, 4], {"dim": 0, "index": -1}),
        ("select", [3, 4], {"dim": 1, "index": 2}), ("select", [2, 3, 4], {"dim": -2, "index": 0}),
        ("expand", [3, 1], {"shape": [3, 4]}), ("expand", [1], {"shape": [2, 3]}),
        ("expand", [3, 1], {"shape": [2, -1, 4]}), ("expand", [], {"shape": [2, 2]}),
        ("expand", [2, 3], {"shape": [2, 3]}), ("expand", [1, 3], {"shape": [0, 3]}),
        ("squeeze", [1, 3, 1], {"dim": None}), ("squeeze", [1, 3, 1], {"dim": 0}), ("squeeze", [1, 3, 1], {"dim": -1}),
        ("squeeze", [2, 3], {"dim": 1}), ("squeeze", [1, 1], {"dim": None}),
        ("unsqueeze", [3, 4], {"dim": 0}), ("unsqueeze", [3, 4], {"dim": 1}), ("unsqueeze", [3, 4], {"dim": -1}),
        ("unsqueeze", [], {"dim": 0}),
        ("flatten", [2, 3, 4], {"start_dim": 0, "end_dim": -1}), ("flatten", [2, 3, 4], {"start_dim": 1, "end_dim": -1}),
        ("flatten", [2, 3, 2, 2], {"start_dim": 1, "end_dim": 2}), ("flatten", [], {"start_dim": 0, "end_dim": -1}),
    ]
    for op, shape, attrs in one:
        name = f"{op} {label(shape)} {' '.join(f'{k}={v}' for k, v in attrs.items())}"
        family.add(name, op, [family.draw(name).normal(shape)], **attrs)
    for op, attrs in [("reshape", {"shape": [4, 6]}), ("flatten", {"start_dim": 0, "end_dim": 1}),
                      ("transpose", {"dim0": 0, "dim1": 2}), ("permute", {"order": [1, 2, 0]}),
                      ("slice", {"dim": 1, "start": 0, "end": 4, "step": 3}),
                      ("select", {"dim": 0, "index": 1})]:
        name = f"{op} of permuted"
        family.add(name, op, [family.draw(name).normal([3, 4, 2], permute=[2, 1, 0])], **attrs)

    for shapes, dim in [
        ([[2], [3]], 0), ([[2, 3], [1, 3]], 0), ([[2, 3], [2, 1], [2, 2]], 1), ([[2, 3], [2, 1]], -1),
        ([[2, 1, 3], [2, 2, 3]], 1), ([[2, 2, 1], [2, 2, 2]], 2), ([[1, 2, 2], [2, 2, 2]], 0), ([[2, 3]], 0),
        ([[0, 3], [2, 3]], 0), ([[0, 3], [0, 3]], 1),
    ]:
        name = f"cat {label(*shapes)} along {dim}"
        draw = family.draw(name)
        family.add(name, "cat", [draw.normal(s) for s in shapes], dim=dim)
    draw = family.draw("cat one gradient, one permuted")
    family.add("cat one gradient, one permuted", "cat",
               [draw.normal([2, 3], requires_grad=False), draw.normal([3, 4], permute=[1, 0])], dim=0)
    for shape, count, dim in [([], 3, 0), ([3], 2, 0), ([3], 2, 1), ([2, 3], 3, 0), ([2, 3], 2, 1), ([2, 3], 2, -1),
                              ([2, 3], 1, 0)]:
        name = f"stack {count} of {label(shape)} along {dim}"
        draw = family.draw(name)
        family.add(name, "stack", [draw.normal(shape) for _ in range(count)], dim=dim)

    for shape, index, dim in [
        ([5], [4, 0, 0, 2], 0), ([4, 3], [1, 1, 1], 0), ([4, 3], [3, 0, 2, 1, 0], 0), ([4, 3], [2, 2, 0], 1),
        ([2, 3, 4], [0, 3, 3], -1), ([2, 3, 4], [2, 1, 2], 1), ([4, 3], [], 0), ([1, 3], [0, 0, 0, 0], 0),
    ]:
        name = f"index_select {label(shape)} {index} along {dim}"
        family.add(name, "index_select", [family.draw(name).normal(shape), Input(np.array(index, dtype=np.int64))],
                   dim=dim)
    draw = family.draw("index_select of permuted")
    family.add("index_select of permuted", "index_select",
               [draw.normal([3, 4], permute=[1, 0]), Input(np.array([3, 3, 0], dtype=np.int64))], dim=0)
    family.write()


def softmax():
    family = Family("softmax")
    shapes = [([1], 0), ([7], 0), ([37], 0), ([3, 5], 0), ([3, 5], 1), ([3, 5], -1), ([4, 1], 1), ([1, 10], 1),
              ([2, 3, 4], 0), ([2, 3, 4], 1), ([2, 3, 4], 2), ([2, 3, 2, 3], -2), ([0, 5], 1)]
    for op in ("softmax", "log_softmax"):
        for shape, dim in shapes:
            name = f"{op} {label(shape)} over {dim}"
            family.add(name, op, [family.draw(name).normal(shape, 2.0)], dim=dim)
        name = f"{op} permuted"
        family.add(name, op, [family.draw(name).normal([5, 3, 2], 2.0, permute=[2, 0, 1])], dim=1)
        family.add(f"{op} large", op, [Input([[1000.0, -1000.0, 999.0], [-1000.0, -1001.0, -1000.5], [0.0, 1000.0, 1e3]])],
                   dim=1)
        family.add(f"{op} of equal values", op, [Input([[1000.0] * 4, [-1000.0] * 4, [0.0] * 4])], dim=1)
        name = f"{op} far apart"
        family.add(name, op, [family.draw(name).normal([4, 6], 300.0)], dim=0)
    family.write()


def loss():
    family = Family("loss")
    for reduction in ("mean", "sum", "none"):
        for rows, classes in [(1, 1), (3, 1), (1, 2), (7, 2), (5, 3), (1, 10), (7, 10), (3, 17), (33, 4)]:
            name = f"cross_entropy {rows}x{classes} {reduction}"
            draw = family.draw(name)
            family.add(name, "cross_entropy", [draw.normal([rows, classes], 2.0), draw.classes([rows], classes)],
                       reduction=reduction)
        name = f"cross_entropy one row without batch {reduction}"
        draw = family.draw(name)
        family.add(name, "cross_entropy", [draw.normal([5]), draw.classes([], 5)], reduction=reduction)
        large = Input([[1000.0, -1000.0, 999.0], [-1000.0, -1001.0, -1000.5], [0.0, 1000.0, -1000.0]])
        family.add(f"cross_entropy large logits {reduction}", "cross_entropy",
                   [large, Input(np.array([0, 2, 0], dtype=np.int64))], reduction=reduction)
        name = f"cross_entropy permuted {reduction}"
        draw = family.draw(name)
        family.add(name, "cross_entropy", [draw.normal([5, 3], permute=[1, 0]), draw.classes([3], 5)],
                   reduction=reduction)
        for shape in ([], [1], [37], [4, 3], [2, 3, 2]):
            name = f"mse_loss {label(shape)} {reduction}"
            draw = family.draw(name)
            family.add(name, "mse_loss", [draw.normal(shape), draw.normal(shape, requires_grad=False)],
                       reduction=reduction)
        name = f"mse_loss both gradients, permuted {reduction}"
        draw = family.draw(name)
        family.add(name, "mse_loss", [draw.normal([3, 4], permute=[1, 0]), draw.normal([4, 3])], reduction=reduction)
    family.write()


def linear():
    family = Family("linear")
    sizes = [([5], 3), ([1], 1), ([1, 10], 1), ([4, 5], 3), ([7, 1], 4), ([9, 17], 5), ([1, 5], 33), ([2, 3, 4], 5),
             ([2, 1, 3, 4], 2), ([0, 5], 3), ([3, 0], 2)]
    for op in ("linear", "linear_relu"):
        for with_bias in (True, False):
            for shape, out in sizes:
                if shape[-1] == 0 and op == "linear_relu":
                    continue  # all that is left is the bias, or a zero on the kink
                name = f"{op} {label(shape)} to {out}{'' if with_bias else ', no bias'}"
                draw = family.draw(name)
                inputs = [draw.normal(shape), draw.normal([out, shape[-1]])]
                family.add(name, op, inputs + ([draw.normal([out])] if with_bias else []))
        name = f"{op} permuted"
        draw = family.draw(name)
        family.add(name, op, [draw.normal([5, 4], permute=[1, 0]), draw.normal([5, 3], permute=[1, 0]), draw.normal([3])])
        name = f"{op}, x without gradient"
        draw = family.draw(name)
        family.add(name, op, [draw.normal([4, 5], requires_grad=False), draw.normal([3, 5]), draw.normal([3])])
        name = f"{op}, weight frozen"
        draw = family.draw(name)
        family.add(name, op, [draw.normal([4, 5]), draw.normal([3, 5], requires_grad=False),
                              draw.normal([3], requires_grad=False)])
    family.write()


# ---- training ----

SIZES = [5, 7, 3]
STEPS = 12
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]

RUNS = [
    # name, optimiser and its options, scheduler and its options, clip to this norm
    ("sgd", "SGD", {"lr": 0.1}, None, None),
    ("sgd momentum", "SGD", {"lr": 0.1, "momentum": 0.9}, None, None),
    ("sgd nesterov", "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}, None, None),
    ("sgd weight decay", "SGD", {"lr": 0.1, "weight_decay": 0.05}, None, None),
    ("sgd dampening", "SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}, None, None),
    ("sgd nesterov, weight decay", "SGD", {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.01, "nesterov": True}, None,
     None),
    ("adam", "Adam", {"lr": 1e-3}, None, None),
    ("adam large steps", "Adam", {"lr": 0.05}, None, None),
    ("adam weight decay", "Adam", {"lr": 0.01, "weight_decay": 0.1}, None, None),
    ("adam betas eps", "Adam", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-3}, None, None),
    ("adamw", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, None, None),
    ("adamw strong decay", "AdamW", {"lr": 0.01, "weight_decay": 0.5}, None, None),
    ("adamw betas eps", "AdamW", {"lr": 0.01, "betas": [0.5, 0.9], "eps": 1e-4, "weight_decay": 0.1}, None, None),
    ("sgd cosine", "SGD", {"lr": 0.2, "momentum": 0.9}, ("CosineAnnealingLR", {"T_max": 12}), None),
    ("sgd cosine and up again", "SGD", {"lr": 0.2}, ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.02}), None),
    ("sgd step", "SGD", {"lr": 0.2}, ("StepLR", {"step_size": 4, "gamma": 0.5}), None),
    ("adam step", "Adam", {"lr": 0.02}, ("StepLR", {"step_size": 5, "gamma": 0.1}), None),
    ("sgd clip", "SGD", {"lr": 0.5}, None, 0.1),
    ("sgd clip never reached", "SGD", {"lr": 0.1}, None, 1000.0),
    ("adamw cosine clip", "AdamW", {"lr": 0.02, "weight_decay": 0.1}, ("CosineAnnealingLR", {"T_max": 12}), 0.2),
]


def train(initial, batches, spec, dtype):
    _, optimizer, options, scheduler, max_norm = spec
    net = torch.nn.Sequential(torch.nn.Linear(*SIZES[:2]), torch.nn.ReLU(), torch.nn.Linear(*SIZES[1:])).to(dtype)
    net.load_state_dict({name: initial[name].leaf(dtype).detach() for name in NAMES})
    opt = getattr(torch.optim, optimizer)(net.parameters(), **options)
    schedule = getattr(torch.optim.lr_scheduler, scheduler[0])(opt, **scheduler[1]) if scheduler else None
    losses, rates, norms = [], [], []
    for step in range(STEPS):
        x, target = batches[step % len(batches)]
        rates.append(opt.param_groups[0]["lr"])
        opt.zero_grad()
        value = F.cross_entropy(net(x.leaf(dtype)), target.leaf(dtype))
        value.backward()
        if max_norm is not None:
            norms.append(number(torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm).item(), dtype))
        opt.step()
        if schedule:
            schedule.step()
        losses.append(number(value.item(), dtype))
    result = {"losses": losses, "lrs": rates, "weights": {k: encode(v) for k, v in net.state_dict().items()}}
    return result | {"norms": norms} if norms else result


def training():
    """{"torch", "sizes", "steps", "loss", "initial": {name: tensor}, "batches": [{"x", "target"}], "cases": [...]}.

    The net is Linear, ReLU, Linear; step i trains on batch i modulo their number; the loss is the mean cross-entropy.
    A case: {"name", "optimizer": {"type", its options}, "scheduler": {"type", its options} or null, stepped once after
    each step of the optimiser, "clip_max_norm": number or null, "f64", "f32": {"losses" before each step, "lrs" used in
    each, "norms" before clipping (only with it), "weights" at the end}}. Initial values and batches are exact in f32.
    """
    draw = Draw("training")
    hidden, classes = SIZES[1:]
    shapes = [[hidden, SIZES[0]], [hidden], [classes, hidden], [classes]]
    initial = {name: draw.normal(shape, 0.5, requires_grad=False) for name, shape in zip(NAMES, shapes)}
    batches = [(draw.normal([rows, SIZES[0]], requires_grad=False), draw.classes([rows], classes)) for rows in (8, 8, 5)]
    cases = []
    for spec in RUNS:
        name, optimizer, options, scheduler, max_norm = spec
        case = {"name": name, "optimizer": {"type": optimizer} | options,
                "scheduler": {"type": scheduler[0]} | scheduler[1] if scheduler else None, "clip_max_norm": max_norm}
        cases.append(case | {key: train(initial, batches, spec, dtype) for key, dtype in DTYPES.items()})
        for key in NAMES:
            a, b = (np.array(cases[-1][dtype]["weights"][key]["data"]) for dtype in DTYPES)
            assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max(), f"training/{name} is ill-conditioned"
    head = {
        "torch": torch.__version__, "sizes": SIZES, "steps": STEPS, "loss": "cross_entropy",
        "initial": {name: encode(i.leaf(torch.float32)) for name, i in initial.items()},
        "batches": [{"x": encode(x.leaf(torch.float32)), "target": encode(target.leaf(torch.float32)) | {"dtype": "i64"}}
                    for x, target in batches],
    }
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    write("training", json.dumps(head, separators=(",", ":"))[:-1] + f',"cases":[\n{lines}\n]}}\n')


def init():
    """{"torch", "rule", "layers": [{"in", "out", "bound", "std", "weight": seen, "bias": seen}]}.

    Weight and bias of nn.Linear are uniform in (-bound, bound) with bound = 1 / sqrt(in), so their standard deviation
    is bound / sqrt(3) (kaiming_uniform with a = sqrt(5) for the weight). "seen" is what PyTorch drew: min, max, mean,
    std and count; other generators draw other values within the same bounds.
    """
    torch.manual_seed(0)
    layers = []
    for inputs, outputs in [(1, 4096), (5, 7), (64, 256), (256, 128), (784, 256)]:
        layer = torch.nn.Linear(inputs, outputs, dtype=torch.float64)
        bound = 1 / math.sqrt(inputs)
        entry = {"in": inputs, "out": outputs, "bound": bound, "std": bound / math.sqrt(3)}
        for name, values in layer.named_parameters():
            values = values.detach().numpy()
            assert np.abs(values).max() <= bound
            entry[name] = {"min": values.min(), "max": values.max(), "mean": values.mean(), "std": values.std(),
                           "count": values.size}
        layers.append(entry)
    rule = "weight and bias ~ U(-bound, bound), bound = 1 / sqrt(in)"
    lines = ",\n".join(json.dumps(layer) for layer in layers)
    write("init", f'{{"torch": "{torch.__version__}", "rule": "{rule}", "layers": [\n{lines}\n]}}\n')


FAMILIES = {f.__name__: f for f in (pointwise, matmul, reduce, view, softmax, loss, linear, training, init)}


def main():
    unknown = [name for name in sys.argv[1:] if name not in FAMILIES]
    if unknown:
        sys.exit(f"unknown family {', '.join(unknown)}; there are: {' '.join(FAMILIES)}")
    torch.set_num_threads(1)  # more threads may add up in another order
    for name in sys.argv[1:] or FAMILIES:
        FAMILIES[name]()


if __name__ == "__main__":
    main()
