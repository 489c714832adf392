"""The ops of the matrix (matrix.py), and where tandem differs from PyTorch.

To add an op: one line in ENTRIES here (and in OPS of vectors.py, if it is not there yet), one in ops.cpp; then run
`generate.py matrix`. An entry says what each input holds and which sizes it has, in rows r and columns c; the layouts,
dtypes and special values follow from it. What its inputs may hold:

    normal     either sign, up to 4; whole numbers of all 8 bits
    small      up to 2 in size; 0 ... 4 as integers
    positive   1/4 ... 4; 1 ... 16
    nonzero    at least 1/2 away from 0; 1 away
    mask       bools, whatever the dtype in question
    index c    i64 positions below c

An op whose name ends with _ gets a copy to change. The first word of a name is the op; others tell entries apart.
"""

from vectors import TYPES


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
for name, kind in {"neg": "normal", "abs": "nonzero", "sign": "nonzero", "relu": "nonzero", "exp": "normal", "expm1": "small",
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
    "cumsum columns": reduce(dim=1),
    "cumsum rows": reduce("positive", dim=0),
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
    "nll_loss": Entry([("normal", "r c"), ("index c", "r")], {"reduction": "sum"}),
    "mse_loss": Entry([("normal", "r c"), ("small", "r c")], {"reduction": "sum"}),
    "l1_loss": Entry([("normal", "r c"), ("small", "r c")], {"reduction": "none"}),
    "smooth_l1_loss": Entry([("normal", "r c"), ("small", "r c")], {"reduction": "sum", "beta": 1.0}),
    "huber_loss": Entry([("normal", "r c"), ("small", "r c")], {"reduction": "sum", "delta": 0.5}),
    "layer_norm": Entry([("normal", "r c"), ("nonzero", "c"), ("small", "c")],
                        lambda r, c: {"normalized_shape": [c], "eps": 1e-5},
                        skip=["one", "broadcast"]),
    "embedding": Entry([("index c", "r"), ("normal", "c k")], {"padding_idx": None}),
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
for name in TYPES:
    ENTRIES[f"to {name}"] = Entry([("small", "r c")], {"dtype": name})
for name in "neg abs sign relu exp expm1 log log1p sqrt rsqrt sin cos floor ceil round tanh sigmoid".split():
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

# What tandem rejects with a DTypeError though PyTorch computes: products, logsumexp, losses and tables of integers; sign,
# clamp and scattered sums of bools.
REJECTED = {"i64 i32 u8": ["matmul", "linear", "linear_relu", "logsumexp", "l1_loss", "embedding"],
            "bool": "logsumexp sign sign_ clamp embedding scatter_add scatter_add_".split()}
# What it computes though PyTorch rejects: activations of integers and bools, as f32; subtracting a number from bools;
# the place of the first true one.
ALSO = {"i64 i32 u8 bool": "silu gelu leaky_relu elu softplus".split(), "bool": "sub argmax argmin".split()}
# any() and all() of u8 are u8 in PyTorch, for history's sake.
BOOL_OF_U8 = ["any", "all"]

# What they overwrite gets no gradient; zeros in PyTorch.
FORGETTING = ["fill_", "copy_"]


def listed(table, op, dtype):
    return any(op in ops for dtypes, ops in table.items() if dtype in dtypes.split())


# Ops on two types, each with each.
PAIRED = "add mul div maximum power eq lt where add_ copy_".split()
