"""Runs PyTorch's version of kernel_bench's cases, on one thread. kernel_bench starts this program and writes lines to its
stdin: a case as a JSON object, answered by "ok" or "no", and "time SECONDS", answered by the seconds of a call in a
block of about that length. Results go to memory that exists already wherever PyTorch lets them."""

import json
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64}


def random(dtype, *sizes, scale=1.0, shift=0.0):
    return ((torch.rand(*sizes) * 2 - 1) * scale + shift).to(dtype)


def spatial(name, dtype, sizes):
    """Channels last, PyTorch's best layout."""
    if name.endswith("pool"):
        planes, side = sizes
        x = random(dtype, 1, planes, side, side)
        return (lambda: F.max_pool2d(x, 2)) if name == "max_pool" else (lambda: F.avg_pool2d(x, 2))
    batch, groups, ins, outs, side, window, stride, padding = sizes

    def image(*sizes):
        return random(dtype, *sizes).to(memory_format=torch.channels_last)

    x, weight = image(batch, groups * ins, side, side), image(groups * outs, ins, window, window)
    convolve = lambda: F.conv2d(x, weight, None, stride, padding, 1, groups)
    if name == "conv":
        return convolve
    grad = image(*convolve().shape)
    wanted = [name == "conv data gradient", name == "conv weight gradient", False]
    return lambda: torch.ops.aten.convolution_backward(
        grad, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, wanted)


UNARY = {
    name: getattr(torch, name)
    for name in "neg abs sign sqrt rsqrt floor ceil round exp expm1 log log1p tanh sigmoid sin cos".split()
}
BINARY = {name: getattr(torch, name) for name in "add sub mul div maximum minimum pow".split()}
PLAIN = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "clamp": lambda x: torch.clamp(x, 0.7, 1.5),
}
POSITIVE = {"sqrt", "rsqrt", "log", "log1p", "pow", "div"}
COMPARE = {"eq": torch.eq, "lt": torch.lt, "ge": torch.ge, "logical_and": torch.logical_and}
LOSSES = {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "binary": F.binary_cross_entropy,
    "binary_logits": F.binary_cross_entropy_with_logits,
}


def element_wise(name, dtype, sizes):
    if len(sizes) != 1:
        return None
    shift = {"scale": 2, "shift": 2.5} if name in POSITIVE else {"scale": 4}
    if name in UNARY or name in BINARY or name in COMPARE:
        a = random(dtype, *sizes, **shift)
        out = torch.empty(*sizes, dtype=torch.bool if name in COMPARE else dtype)
        if name in UNARY:
            return lambda: UNARY[name](a, out=out)
        b = random(dtype, *sizes, **shift)
        function = BINARY.get(name) or COMPARE[name]
        return lambda: function(a, b, out=out)
    if name in PLAIN:
        a = random(dtype, *sizes, scale=4)
        return lambda: PLAIN[name](a)
    if name in LOSSES:
        x = random(dtype, *sizes, scale=0.49, shift=0.5)
        t = random(dtype, *sizes, scale=0.5, shift=0.5)
        return lambda: LOSSES[name](x, t)
    if name == "where":
        condition = torch.rand(*sizes) < 0.5
        a, b = random(dtype, *sizes), random(dtype, *sizes)
        return lambda: torch.where(condition, a, b)
    if name == "dropout":
        a = random(dtype, *sizes)
        return lambda: F.dropout(a, 0.3)
    if name == "norm":
        a = random(dtype, *sizes)
        return lambda: torch.linalg.vector_norm(a)
    if name in ("add in place", "clip_by_value", "moving_average"):
        a, b = random(dtype, *sizes), random(dtype, *sizes, scale=1e-3)
        return {
            "add in place": lambda: a.add_(b),
            "clip_by_value": lambda: a.clamp_(-0.5, 0.5),
            "moving_average": lambda: a.lerp_(b, 0.001),
        }[name]
    if name in ("fill", "uniform", "normal", "integer", "arange", "linspace"):
        out = torch.empty(*sizes, dtype=dtype)
        return {
            "fill": lambda: out.fill_(0.5),
            "uniform": lambda: out.uniform_(0, 1),
            "normal": lambda: out.normal_(0, 1),
            "integer": lambda: out.random_(0, 10),
            "arange": lambda: torch.arange(sizes[0], out=out),
            "linspace": lambda: torch.linspace(-1, 1, sizes[0], out=out),
        }[name]
    if name.startswith("copy to "):
        a = random(dtype, *sizes)
        out = torch.empty(*sizes, dtype=DTYPES[name[8:]])
        return lambda: out.copy_(a)
    return None


def product(name, dtype, sizes):
    if name == "batched product":
        count, side = sizes
        a, b, out = (random(dtype, count, side, side) for _ in range(3))
        return lambda: torch.bmm(a, b, out=out)
    batch, inputs, outputs = sizes
    if name == "product":
        a, b, out = random(dtype, batch, inputs), random(dtype, outputs, inputs).t(), (batch, outputs)
    elif name == "product data gradient":
        a, b, out = random(dtype, batch, outputs), random(dtype, outputs, inputs), (batch, inputs)
    else:
        a, b, out = random(dtype, batch, outputs).t(), random(dtype, batch, inputs), (outputs, inputs)
    result = torch.empty(*out, dtype=dtype)
    return lambda: torch.mm(a, b, out=result)


def over_rows(name, dtype, sizes):
    if name in ("softmax", "log_softmax"):
        x = random(dtype, *sizes, scale=4)
        return lambda: getattr(torch, name)(x, 1)
    if name in ("softmax gradient", "log_softmax gradient"):
        g, y = random(dtype, *sizes), random(dtype, *sizes, scale=0.1, shift=0.5)
        gradient = torch._softmax_backward_data if name == "softmax gradient" else torch._log_softmax_backward_data
        return lambda: gradient(g, y, 1, dtype)
    if name == "layer_norm":
        x, w, b = random(dtype, *sizes), random(dtype, sizes[1]), random(dtype, sizes[1])
        return lambda: F.layer_norm(x, sizes[1:], w, b)
    if name == "layer_norm gradient":
        x, g, w = random(dtype, *sizes), random(dtype, *sizes), random(dtype, sizes[1])
        _, mean, rstd = torch.native_layer_norm(x, sizes[1:], w, w, 1e-5)
        return lambda: torch.ops.aten.native_layer_norm_backward(g, x, sizes[1:], mean, rstd, w, w, [True] * 3)
    if name in ("batch_norm", "batch_norm evaluation"):
        x = random(dtype, *sizes)
        w, b, mean, var = (random(dtype, sizes[1], scale=0.1, shift=1) for _ in range(4))
        return lambda: F.batch_norm(x, mean, var, w, b, training=name == "batch_norm")
    if name == "batch_norm gradient":
        x, g = random(dtype, *sizes), random(dtype, *sizes)
        w, mean, var = (random(dtype, sizes[1], scale=0.1, shift=1) for _ in range(3))
        backward = torch.ops.aten.native_batch_norm_backward
        return lambda: backward(g, x, w, mean, var, mean, var, True, 1e-5, [True] * 3)
    if name in ("cross_entropy", "cross_entropy with gradient"):
        logits = random(dtype, *sizes, scale=4).requires_grad_(name != "cross_entropy")
        target = torch.randint(sizes[1], (sizes[0],))
        if name == "cross_entropy":
            return lambda: F.cross_entropy(logits, target)
        return lambda: torch.autograd.grad(F.cross_entropy(logits, target), logits)
    if name == "nll_loss":
        x, target = random(dtype, *sizes, shift=-2), torch.randint(sizes[1], (sizes[0],))
        return lambda: F.nll_loss(x, target)
    return None


def reduction(name, dtype, sizes):
    kind, _, over = name.partition(" of ")
    if kind not in ("sum", "mean", "count_nonzero", "max", "argmax", "cumsum"):
        return None
    x = random(dtype, *sizes)
    function = {"max": torch.amax}.get(kind, getattr(torch, kind))
    if kind == "cumsum":
        flat = x if over else x.view(-1)
        out = torch.empty_like(flat)
        dim = 0 if over != "rows" else 1
        return lambda: torch.cumsum(flat, dim, out=out)
    if over:
        return lambda: function(x, dim=1 if over == "rows" else 0)
    return lambda: function(x)


def moves(name, dtype, sizes):
    if name == "copy transposed":
        x, out = random(dtype, *sizes), torch.empty(*sizes, dtype=dtype)
        return lambda: out.copy_(x.t())
    if name in ("add row", "add column"):
        x, out = random(dtype, *sizes), torch.empty(*sizes, dtype=dtype)
        other = random(dtype, 1, sizes[1]) if name == "add row" else random(dtype, sizes[0], 1)
        return lambda: torch.add(x, other, out=out)
    if name in ("index_select", "index_add"):
        x, out = random(dtype, *sizes), torch.zeros(*sizes, dtype=dtype)
        index = torch.randint(sizes[0], (sizes[0],))
        if name == "index_select":
            return lambda: torch.index_select(x, 0, index, out=out)
        return lambda: out.index_add_(0, index, x)
    if name in ("gather", "scatter_add"):
        x, out = random(dtype, *sizes), torch.zeros(*sizes, dtype=dtype)
        index = torch.randint(sizes[1], tuple(sizes))
        if name == "gather":
            return lambda: torch.gather(x, 1, index, out=out)
        return lambda: out.scatter_add_(1, index, x)
    return None


def optimizer(name, dtype, sizes):
    makers = {
        "sgd": lambda p: torch.optim.SGD(p, lr=1e-4),
        "sgd momentum": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=1e-4),
        "adam amsgrad": lambda p: torch.optim.Adam(p, lr=1e-4, amsgrad=True),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-4),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-4),
    }
    if name not in makers:
        return None
    parameter = torch.nn.Parameter(random(dtype, *sizes))
    parameter.grad = random(dtype, *sizes, scale=1e-2)
    return makers[name]([parameter]).step


def make(case):
    name, dtype, sizes = case["name"], DTYPES[case["dtype"]], case["sizes"]
    if "product" in name:
        return product(name, dtype, sizes)
    if name.startswith("conv") or name.endswith("pool"):
        return spatial(name, dtype, sizes)
    for kind in (optimizer, over_rows, reduction, moves, element_wise):
        run = kind(name, dtype, sizes)
        if run is not None:
            return run
    return None


def seconds_of(run, calls):
    begin = time.thread_time()
    for _ in range(calls):
        run()
    return time.thread_time() - begin


def main():
    torch.set_num_threads(1)
    answer = lambda text: print(text, flush=True)
    answer("PyTorch")
    run, calls, gradients = None, 0, False
    for line in sys.stdin:
        gradients = gradients if line.startswith("time ") else "with gradient" in line
        with torch.set_grad_enabled(gradients):
            if line.startswith("time "):
                if calls == 0:
                    run()
                    calls = max(1, int(float(line.split()[1]) / max(seconds_of(run, 1), 1e-8)))
                answer(seconds_of(run, calls) / calls)
                continue
            run, calls = None, 0
            try:
                run = make(json.loads(line))
                if run is not None:
                    run()
            except (RuntimeError, TypeError, NotImplementedError):  # this version cannot do that
                run = None
            answer("no" if run is None else "ok")


if __name__ == "__main__":
    main()
