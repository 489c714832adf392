"""What the golden files are made of: inputs, the run of one op, and a family of cases. The format: generate.py."""

import functools
import json
import math
import pathlib
import zlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {"f64": torch.float64, "f32": torch.float32}  # that the files of cases have results for
TYPES = DTYPES | {"bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32,
                  "u8": torch.uint8, "bool": torch.bool}


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
        out = encode(self.leaf(torch.float64))
        out |= {"dtype": "i64" if self.integer else "float", "requires_grad": self.requires_grad}
        return out if self.permute is None else out | {"permute": self.permute}


class Draw:
    """Random inputs that depend on the case's name alone. Only draws that NumPy keeps the same in all versions."""

    def __init__(self, name, grid=1024):
        self.random = np.random.RandomState(zlib.crc32(name.encode()))
        self.grid = grid

    def floats(self, values, shape, **more):
        """Multiples of 1 / grid: short to write down. A product of two multiples of 1/1024 still rounds in f32."""
        return Input(np.round(values * self.grid) / self.grid + 0.0, shape, **more)

    def normal(self, shape, scale=1.0, offset=0.0, **more):
        return self.floats(offset + scale * self.random.standard_normal(math.prod(shape)), shape, **more)

    def positive(self, shape, low=0.1, high=4.0, **more):
        return self.floats(self.random.uniform(low, high, math.prod(shape)), shape, **more)

    def away_from_zero(self, shape, **more):
        """Either sign, at least 0.3: divisors, and values on a clear side of a kink."""
        count = math.prod(shape)
        signs = np.where(self.random.uniform(size=count) < 0.5, -1, 1)
        return self.floats(signs * self.random.uniform(0.3, 2.0, count), shape, **more)

    def distinct(self, shape, offset=0.0, **more):
        """No two values closer than 0.1: no ties."""
        count = math.prod(shape)
        steps = self.random.permutation(count) + self.random.uniform(0.0, 0.5, count)
        return self.floats(offset + (steps - count / 2) / 4, shape, **more)

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
        if attrs["dims"] is None:
            return method(x)
        return method(x, dim=attrs["dims"], keepdim=attrs["keepdim"])

    return run


def extreme(method):
    def run(attrs, x):
        return method(x) if attrs["dim"] is None else method(x, attrs["dim"], attrs["keepdim"])

    return run


def running_statistics(attrs, *batches):
    layer = torch.nn.BatchNorm1d(batches[0].shape[1], momentum=attrs["momentum"]).to(batches[0].dtype)
    for batch in batches:
        layer(batch)
    assert layer.num_batches_tracked == len(batches)
    return torch.cat([layer.running_mean, layer.running_var])


def method(name):
    """The method of that name, called with the attributes in their order."""
    return lambda attrs, x: getattr(x, name)(*attrs.values())


def weighted(fn):
    def run(attrs, x, target, *weights):
        return fn(x, target, reduction=attrs["reduction"], **dict(zip(attrs["weights"], weights)))

    return run


def in_place(name):
    return lambda attrs, x, *others: getattr(x.clone(), name)(*attrs.values(), *others)


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
    "argmin": extreme(torch.argmin),
    "amax": over_dims(torch.amax),
    "amin": over_dims(torch.amin),
    "slice": sliced,
    "squeeze": lambda attrs, x: x.squeeze() if attrs["dim"] is None else x.squeeze(attrs["dim"]),
    "cat": lambda attrs, *parts: torch.cat(parts, attrs["dim"]),
    "stack": lambda attrs, *parts: torch.stack(parts, attrs["dim"]),
    "index_select": lambda attrs, x, index: x.index_select(attrs["dim"], index),
    "gather": lambda attrs, x, index: x.gather(attrs["dim"], index),
    "scatter_add": lambda attrs, x, index, source: x.scatter_add(attrs["dim"], index, source),
    "where": lambda attrs, condition, a, b: torch.where(condition != 0, a, b),
    # contiguous(): PyTorch 1.13 has the gradient in another order where one of the two is transposed.
    "masked_select": lambda attrs, x, mask: x.contiguous().masked_select((mask != 0).contiguous()),
    "masked_fill": lambda attrs, x, mask: x.masked_fill(mask != 0, attrs["value"]),
    "maximum": lambda attrs, a, b: torch.maximum(a, b),
    "minimum": lambda attrs, a, b: torch.minimum(a, b),
    "power": lambda attrs, a, b: a.pow(b),
    "gelu": lambda attrs, x: F.gelu(x, approximate=attrs["approximate"]),
    "silu": lambda attrs, x: F.silu(x),
    "leaky_relu": lambda attrs, x: F.leaky_relu(x, attrs["negative_slope"]),
    "elu": lambda attrs, x: F.elu(x, attrs["alpha"]),
    "softplus": lambda attrs, x: F.softplus(x, attrs["beta"], attrs["threshold"]),
    "var": lambda attrs, x: torch.var(x, attrs["dims"], correction=attrs["correction"], keepdim=attrs["keepdim"]),
    "std": lambda attrs, x: torch.std(x, attrs["dims"], correction=attrs["correction"], keepdim=attrs["keepdim"]),
    "norm": lambda attrs, x: torch.norm(x, attrs["p"], attrs["dims"], attrs["keepdim"]),
    "logsumexp": lambda attrs, x: torch.logsumexp(x, attrs["dims"], attrs["keepdim"]),
    "linear": lambda attrs, x, weight, bias=None: F.linear(x, weight, bias),
    "linear_relu": lambda attrs, x, weight, bias=None: F.relu(F.linear(x, weight, bias)),
    "layer_norm": lambda attrs, x, weight=None, bias=None: F.layer_norm(x, attrs["normalized_shape"], weight, bias,
                                                                        attrs["eps"]),
    "batch_norm": lambda attrs, x, mean, var, weight=None, bias=None: F.batch_norm(
        x, mean, var, weight, bias, attrs["training"], eps=attrs["eps"]),
    "running_statistics": running_statistics,
    "embedding": lambda attrs, indices, weight: F.embedding(indices, weight, attrs["padding_idx"]),
    "cross_entropy": lambda attrs, logits, target, weight=None: F.cross_entropy(logits, target, weight, **attrs),
    "nll_loss": lambda attrs, log_probs, target, weight=None: F.nll_loss(log_probs, target, weight, **attrs),
    "mse_loss": lambda attrs, x, target: F.mse_loss(x, target, **attrs),
    "l1_loss": lambda attrs, x, target: F.l1_loss(x, target, **attrs),
    "smooth_l1_loss": lambda attrs, x, target: F.smooth_l1_loss(x, target, **attrs),
    "huber_loss": lambda attrs, x, target: F.huber_loss(x, target, **attrs),
    "binary_cross_entropy": weighted(F.binary_cross_entropy),
    "binary_cross_entropy_with_logits": weighted(F.binary_cross_entropy_with_logits),
}
for spatial in ("conv1d conv2d conv_transpose1d conv_transpose2d max_pool1d max_pool2d avg_pool1d avg_pool2d "
                "adaptive_avg_pool2d adaptive_max_pool2d").split():
    OPS[spatial] = lambda attrs, *inputs, fn=getattr(F, spatial): fn(*inputs, **attrs)
OPS["pad"] = lambda attrs, x: F.pad(x, **attrs)
OPS["unfold"] = lambda attrs, x: F.unfold(x, **attrs)
OPS["interpolate"] = lambda attrs, x: F.interpolate(x, **attrs)
OPS["group_norm"] = lambda attrs, x, w, b: F.group_norm(x, attrs["num_groups"], w, b, attrs["eps"])
OPS["instance_norm"] = lambda attrs, x, w, b: F.instance_norm(x, weight=w, bias=b, eps=attrs["eps"])
OPS |= {
    "eq": lambda attrs, a, b: a == b,
    "ne": lambda attrs, a, b: a != b,
    "lt": lambda attrs, a, b: a < b,
    "le": lambda attrs, a, b: a <= b,
    "gt": lambda attrs, a, b: a > b,
    "ge": lambda attrs, a, b: a >= b,
    "split": lambda attrs, x: torch.split(x, attrs["length"], attrs["dim"])[-1],
    "to": lambda attrs, x: x.to(TYPES[attrs["dtype"]]),
    "masked_fill_": lambda attrs, x, mask: x.clone().masked_fill_(mask, attrs["value"]),
}
for changing in ("add_ sub_ mul_ div_ copy_ fill_ neg_ exp_ expm1_ log_ log1p_ sqrt_ rsqrt_ sin_ cos_ abs_ sign_ floor_ ceil_ "
                 "round_ clamp_ pow_ relu_ tanh_ sigmoid_ scatter_add_").split():
    OPS[changing] = in_place(changing)
for two in "logical_and logical_or logical_xor".split():
    OPS[two] = lambda attrs, a, b, fn=getattr(torch, two): fn(a, b)
for plain in ("neg exp log sqrt abs pow relu softmax log_softmax reshape transpose permute narrow select expand "
              "unsqueeze flatten expm1 log1p cumsum rsqrt sin cos sign floor ceil round tanh sigmoid clamp "
              "logical_not isnan any all nonzero clone").split():
    OPS[plain] = method(plain)


def run(op, attrs, inputs, dtype, grad_output):
    """Output, positions (or None) and gradients, in one dtype. grad_output(shape) draws what backward starts from."""
    leaves = [i.leaf(dtype) for i in inputs]
    given = [leaf if i.permute is None else leaf.permute(i.permute) for leaf, i in zip(leaves, inputs)]
    output, indices = OPS[op](attrs, *given), None
    if isinstance(output, tuple):
        output, indices = output
    if output.requires_grad:
        output.backward(grad_output(output.shape).leaf(dtype).detach())
    return output, indices, [leaf.grad for leaf in leaves]


class Family:
    """Collects cases and writes them."""

    def __init__(self, name, grid=1024):
        self.name, self.grid, self.cases, self.names = name, grid, [], set()

    def draw(self, name):
        return Draw(f"{self.name}/{name}", self.grid)

    def add(self, name, op, inputs, **attrs):
        assert name not in self.names, f"two cases called '{name}'"
        self.names.add(name)
        case = {"name": name, "op": op, "attrs": attrs, "inputs": [i.json() for i in inputs], "grad_output": None}
        start = functools.cache(lambda shape: self.draw(f"{name}/backward").away_from_zero(shape))
        for key, dtype in DTYPES.items():
            output, indices, grads = run(op, attrs, inputs, dtype, start)
            result = {"output": encode(output), "grads": [None if g is None else encode(g) for g in grads]}
            assert all((g is not None) == i.requires_grad for g, i in zip(grads, inputs)) or not output.requires_grad
            if output.dtype == torch.int64:
                result["output"]["dtype"] = "i64"
            case[key] = result
        if output.requires_grad:
            case["grad_output"] = encode(start(output.shape).leaf(torch.float64))
        if indices is not None:
            case["indices"] = encode(indices) | {"dtype": "i64"}
        self.check_close(name, case["f64"], case["f32"])
        if case["f32"] == case["f64"]:
            del case["f32"]
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
