#!/usr/bin/env python3
"""Golden vectors: values and gradients as PyTorch computes them, for the tests to compare with.

    sudo apt-get install python3-torch           # Debian 12: PyTorch 1.13
    /usr/bin/python3 tests/golden/generate.py    # rewrites the .json files beside this script

PyTorch is needed only here; the tests read the files. A name as an argument (`generate.py reduce softmax`) rewrites
only those families. Each case draws from its own generator, seeded with its name: adding one leaves the others as they
are. Run twice on one machine, the files are equal; another BLAS may change last digits.

Every file but four, one case a line:

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

Inputs and grad_output are written exactly and are exact in f32, so that one set serves both dtypes. `f64` and `f32`
hold what PyTorch computes in either; `f32` is left out where it is equal to `f64`. The output of argmax and argmin has
"dtype": "i64".

Ops whose call is not plain from their attributes:

    add sub mul div        two inputs; or one and attrs {"scalar", "side"}: "right" x - 2.5, "left" 2.5 - x
    sum mean               attrs {"dims": list or null, "keepdim"}
    amax amin              the same
    max min argmax argmin  attrs {"dim": number or null, "keepdim"}
    squeeze                attrs {"dim": number or null}
    cat stack              all inputs are the list
    index_select gather    inputs x, index; scatter_add has the source as its third
    where                  inputs condition (i64; not 0 is true), a, b; masked_select and masked_fill: x, mask
    power                  two inputs; pow has the attribute exponent
    linear linear_relu     inputs x [..., in], weight [out, in] and perhaps bias [out]
    layer_norm             inputs x and perhaps weight, bias; attrs {"normalized_shape", "eps"}
    batch_norm             inputs x, running mean and variance and perhaps weight, bias; attrs {"training", "eps"}
    running_statistics     inputs are batches, which BatchNorm1d sees in training; the output is its running mean,
                           followed by its running variance; attrs {"momentum": number or null}
    conv... ..._pool...    inputs x and perhaps weight, bias; attrs are the arguments of torch.nn.functional
    embedding              inputs indices (i64), weight; attrs {"padding_idx": number or null}
    cross_entropy          inputs logits, target (i64, or float: probabilities) and perhaps the class weights; attrs
                           {"reduction"} and perhaps {"ignore_index", "label_smoothing"}; nll_loss likewise
    ..._loss               inputs input, target; attrs {"reduction"} and "beta" of smooth_l1_loss, "delta" of huber_loss
    binary_cross_entropy   inputs input, target, and those that the attribute "weights" lists: some of "weight" and
                           "pos_weight"; binary_cross_entropy_with_logits likewise

matrix.json: see matrix.py. training.json, schedules.json and init.json: see the functions of those names in
training.py. mixed_precision.json: see mixed_precision.py; it needs PyTorch 2.3. second.json: see second.py; it reads the other
files.
"""

import math
import sys

import numpy as np
import torch

sys.dont_write_bytecode = True  # the imports below would leave a folder beside the tests

from losses import loss
from matrix import matrix
from mixed_precision import mixed_precision
from second import second
from spatial import spatial
from training import init, schedules, training
from vectors import Draw, Family, Input, label


def pointwise():
    family = Family("pointwise", grid=16)
    pairs = [
        ([37], [37]), ([3, 4], [4]), ([4], [3, 4]), ([3, 1], [1, 4]), ([2, 3, 4], [3, 1]),
        ([2, 1, 2, 1], [3, 1, 5]), ([2, 3, 2, 2], [2, 3, 2, 2]), ([2, 3, 2, 2], [3, 1, 1]), ([1, 1, 1], [2]),
        ([1], [1]), ([], [3]), ([2, 3], []), ([], []), ([1], []), ([0], [1]), ([0, 3], [3]),
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
        for shape in ([], [19], [0]):
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
        ([17, 9], [9, 5]), ([5, 4], [4, 17]), ([1, 65], [65, 2]), ([4, 8], [8, 4]),
        ([5], [5]), ([1], [1]), ([33], [33]), ([4, 5], [5]), ([1, 5], [5]), ([5], [5, 4]), ([5], [5, 1]),
        ([2, 3, 4], [2, 4, 2]), ([2, 3, 4], [4, 2]), ([3, 4], [2, 4, 2]), ([2, 1, 3, 4], [3, 4, 2]), ([2, 3, 4], [4]),
        ([4], [2, 4, 3]), ([1, 3, 4], [5, 4, 2]), ([2, 17, 9], [2, 9, 5]), ([2, 3, 0], [2, 0, 2]), ([0, 3, 4], [4, 2]),
        ([3, 0], [0, 4]), ([0], [0]), ([3, 0], [0]), ([0, 5], [5, 4]), ([3, 5], [5, 0]), ([0, 5], [5]),
    ]:
        draw = family.draw(label(a, b))
        family.add(label(a, b), "matmul", [draw.normal(a), draw.normal(b)])
    swap = [1, 0]
    for name, permute_a, permute_b in [("a transposed", swap, None), ("b transposed", None, swap),
                                       ("both transposed", swap, swap)]:
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
    family = Family("reduce", grid=16)
    # The values don't cancel: a sum near zero has no relative accuracy to compare.
    sums = [
        ([], None, False), ([1], None, False), ([37], None, False), ([3, 5], None, False), ([2, 3, 4], None, False),
        ([1], [0], False), ([5], [0], True), ([3, 5], [0], False), ([3, 5], [1], False), ([3, 5], [-1], True),
        ([19, 3], [0], False), ([2, 3, 4], [0], False), ([2, 3, 4], [1], False), ([2, 3, 4], [2], True),
        ([2, 3, 4], [0, 2], False), ([2, 3, 4], [2, 0], True), ([2, 3, 4], [-2, -1], False),
        ([2, 3, 4], [0, 1, 2], False), ([2, 3, 2, 3], [1, 3], False), ([2, 3, 2, 3], [0, 2], True),
        ([3, 0], [0], False),
    ]
    empty = [([0], None, False), ([0, 3], [0], False), ([2, 0], [1], True), ([0, 3], None, False)]
    for op in ("sum", "mean"):
        for shape, dims, keepdim in sums + (empty if op == "sum" else []):
            name = f"{op} {label(shape)} over {dims or 'all'}{' keepdim' if keepdim else ''}"
            family.add(name, op, [family.draw(name).normal(shape, offset=1.5)], dims=dims, keepdim=keepdim)
        for dims in (None, [0], [1], [0, 2]):
            name = f"{op} permuted over {dims or 'all'}"
            values = family.draw(name).normal([2, 4, 3], offset=1.5, permute=[2, 0, 1])
            family.add(name, op, [values], dims=dims, keepdim=False)
    # One sign and many of them: adding up one by one would lose digits in f32.
    values = Draw("sum long", grid=2**16).positive([400], requires_grad=False)
    family.add("sum long", "sum", [values], dims=None, keepdim=False)

    extremes = [
        ([], None, False), ([1], None, False), ([37], None, False), ([3, 5], None, False),
        ([7], 0, False), ([3, 5], 0, False), ([3, 5], 1, False), ([3, 5], -1, True), ([1, 4], 0, False),
        ([4, 1], 1, False), ([2, 37], 1, False), ([2, 3, 4], 1, False), ([2, 3, 4], 0, True),
        ([2, 3, 2, 3], 2, False), ([2, 3, 2, 3], -3, True), ([0, 3], 1, False),
    ]
    for op in ("max", "min", "argmax", "argmin"):
        for shape, dim, keepdim in extremes:
            name = f"{op} {label(shape)} over {'all' if dim is None else dim}{' keepdim' if keepdim else ''}"
            family.add(name, op, [family.draw(name).distinct(shape)], dim=dim, keepdim=keepdim)
        for sign, offset in (("negative", -100.0), ("positive", 100.0)):
            name = f"{op} all {sign}"
            family.add(name, op, [family.draw(name).distinct([3, 4], offset)], dim=1, keepdim=False)
        for dim in (None, 0, 2):
            name = f"{op} permuted over {'all' if dim is None else dim}"
            family.add(name, op, [family.draw(name).distinct([2, 4, 3], permute=[2, 0, 1])], dim=dim, keepdim=False)
    for shape, dim in [([], 0), ([1], 0), ([37], 0), ([3, 5], 0), ([3, 5], 1), ([3, 5], -2), ([2, 3, 4], 1), ([70, 2], 0),
                       ([2, 3, 70], 1), ([0, 3], 0), ([3, 0], 1)]:
        name = f"cumsum {label(shape)} over {dim}"
        family.add(name, "cumsum", [family.draw(name).normal(shape)], dim=dim)
    for dim in (0, 2):
        name = f"cumsum permuted over {dim}"
        family.add(name, "cumsum", [family.draw(name).normal([2, 4, 3], permute=[2, 0, 1])], dim=dim)
    for op in ("amax", "amin"):
        for shape, dims in [([], None), ([37], None), ([3, 5], None), ([3, 5], [0]), ([2, 3, 4], [0, 2]),
                            ([2, 3, 4], [1]), ([2, 3, 2, 3], [1, 3]), ([0, 3], [1])]:
            for keepdim in (False, True) if dims else (False,):
                name = f"{op} {label(shape)} over {dims or 'all'}{' keepdim' if keepdim else ''}"
                family.add(name, op, [family.draw(name).distinct(shape)], dims=dims, keepdim=keepdim)
        name = f"{op} permuted"
        family.add(name, op, [family.draw(name).distinct([2, 4, 3], permute=[2, 0, 1])], dims=[0, 2], keepdim=False)
        ties = [[[1.0, 3.0], [3.0, 1.0]], [[1.0, 1.0], [2.0, 3.0]]]
        for dims in (None, [0], [1, 2]):
            family.add(f"{op} of equal ones over {dims or 'all'}", op, [Input(ties)], dims=dims, keepdim=False)
    family.write()


def view():
    family = Family("view", grid=16)
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
        ("flatten", [2, 3, 4], {"start_dim": 0, "end_dim": -1}),
        ("flatten", [2, 3, 4], {"start_dim": 1, "end_dim": -1}),
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
    shapes = [([1], 0), ([7], 0), ([19], 0), ([3, 5], 0), ([3, 5], 1), ([3, 5], -1), ([4, 1], 1), ([1, 10], 1),
              ([2, 3, 4], 0), ([2, 3, 4], 1), ([2, 3, 4], 2), ([2, 3, 2, 3], -2), ([0, 5], 1)]
    for op in ("softmax", "log_softmax"):
        for shape, dim in shapes:
            name = f"{op} {label(shape)} over {dim}"
            family.add(name, op, [family.draw(name).normal(shape, 2.0)], dim=dim)
        name = f"{op} permuted"
        family.add(name, op, [family.draw(name).normal([5, 3, 2], 2.0, permute=[2, 0, 1])], dim=1)
        large = Input([[1000.0, -1000.0, 999.0], [-1000.0, -1001.0, -1000.5], [0.0, 1000.0, 1000.0]])
        family.add(f"{op} large", op, [large], dim=1)
        family.add(f"{op} of equal values", op, [Input([[1000.0] * 4, [-1000.0] * 4, [0.0] * 4])], dim=1)
        # Not further: a softmax of nothing but zeros and ones has a gradient that cancels.
        name = f"{op} far apart"
        family.add(name, op, [family.draw(name).normal([4, 6], 5.0 if op == "softmax" else 300.0)], dim=0)
    family.write()


def linear():
    family = Family("linear")
    sizes = [([5], 3), ([1], 1), ([1, 10], 1), ([4, 5], 3), ([7, 1], 4), ([4, 17], 3), ([1, 1], 33), ([2, 3, 4], 5),
             ([2, 1, 3, 4], 2), ([0, 5], 3), ([3, 0], 2)]
    some = [([5], 3), ([1, 10], 1), ([4, 5], 3), ([2, 4], 17), ([2, 3, 4], 5), ([0, 5], 3)]
    for op in ("linear", "linear_relu"):
        for with_bias in (True, False):
            for shape, out in sizes if op == "linear" and with_bias else some:
                name = f"{op} {label(shape)} to {out}{'' if with_bias else ', no bias'}"
                draw = family.draw(name)
                inputs = [draw.normal(shape), draw.normal([out, shape[-1]])]
                family.add(name, op, inputs + ([draw.normal([out])] if with_bias else []))
        name = f"{op} permuted"
        draw = family.draw(name)
        x, weight = draw.normal([5, 4], permute=[1, 0]), draw.normal([5, 3], permute=[1, 0])
        family.add(name, op, [x, weight, draw.normal([3])])
        name = f"{op}, x without gradient"
        draw = family.draw(name)
        family.add(name, op, [draw.normal([4, 5], requires_grad=False), draw.normal([3, 5]), draw.normal([3])])
        name = f"{op}, weight frozen"
        draw = family.draw(name)
        family.add(name, op, [draw.normal([4, 5]), draw.normal([3, 5], requires_grad=False),
                              draw.normal([3], requires_grad=False)])
    family.write()


def norm():
    family = Family("norm", grid=64)
    # No size of 2: two values are always normalised to -1 and 1, and the gradient cancels.
    for shape, over in [([5], [5]), ([3, 5], [5]), ([2, 37], [37]), ([2, 3, 4], [4]), ([2, 3, 4], [3, 4]),
                        ([3, 2, 3, 3], [3, 3]), ([1, 70], [70]), ([0, 4], [4])]:
        for parts in (0, 1, 2) if len(shape) == 2 and shape[-1] < 9 else (2,):
            name = f"layer_norm {label(shape)} over {label(over)}, {['plain', 'weight', 'weight and bias'][parts]}"
            draw = family.draw(name)
            inputs = [draw.normal(shape, 2.0, 1.0), draw.away_from_zero(over), draw.normal(over)]
            family.add(name, "layer_norm", inputs[:1 + parts], normalized_shape=over, eps=1e-5)
    draw = family.draw("layer_norm permuted")
    family.add("layer_norm permuted", "layer_norm",
               [draw.normal([6, 4], permute=[1, 0]), draw.away_from_zero([6]), draw.normal([6])],
               normalized_shape=[6], eps=0.5)
    draw = family.draw("layer_norm, x without gradient")
    family.add("layer_norm, x without gradient", "layer_norm",
               [draw.normal([4, 6], requires_grad=False), draw.away_from_zero([6]), draw.normal([6])],
               normalized_shape=[6], eps=1e-5)

    for training in (True, False):
        mode = "training" if training else "evaluation"
        for shape in [[4, 3], [7, 1], [17, 5], [70, 2], [3, 2, 4], [1, 2, 5], [2, 2, 35], [0, 3]]:
            for affine in (True, False) if math.prod(shape) < 30 else (True,):
                name = f"batch_norm {label(shape)}, {mode}{'' if affine else ', plain'}"
                draw = family.draw(name)
                channels = [shape[1]]
                inputs = [draw.normal(shape, 2.0, 1.0), draw.normal(channels, requires_grad=False),
                          draw.positive(channels, 0.5, requires_grad=False)]
                inputs += [draw.away_from_zero(channels), draw.normal(channels)] if affine else []
                family.add(name, "batch_norm", inputs, training=training, eps=1e-5)
        name = f"batch_norm permuted, {mode}"
        draw = family.draw(name)
        family.add(name, "batch_norm",
                   [draw.normal([3, 4, 5], permute=[1, 0, 2]), draw.normal([3], requires_grad=False),
                    draw.positive([3], requires_grad=False), draw.away_from_zero([3]), draw.normal([3])],
                   training=training, eps=0.5)

    for momentum in (0.1, 0.9, 1.0, 0.0, None):
        for shapes in ([[4, 3]], [[4, 3], [2, 3], [5, 3], [3, 3]], [[2, 3, 4], [1, 3, 5], [6, 3]]):
            name = f"running_statistics {label(*shapes)}, momentum {momentum}"
            draw = family.draw(name)
            batches = [draw.normal(s, 2.0, 1.0 + i, requires_grad=False) for i, s in enumerate(shapes)]
            family.add(name, "running_statistics", batches, momentum=momentum)

    for shape, rows, dim in [([6], 4, 3), ([2, 3], 4, 2), ([], 3, 2), ([0], 3, 2), ([2, 1, 4], 5, 1), ([40], 3, 7)]:
        for padding in (None, 1, -1):
            name = f"embedding {label(shape)} of {rows}x{dim}, padding {padding}"
            draw = family.draw(name)
            family.add(name, "embedding", [draw.classes(shape, rows), draw.normal([rows, dim])], padding_idx=padding)
    draw = family.draw("embedding permuted")
    family.add("embedding permuted", "embedding", [draw.classes([3, 2], 4), draw.normal([3, 4], permute=[1, 0])],
               padding_idx=None)
    family.write()


def activation():
    family = Family("activation", grid=64)
    shapes = [[], [1], [37], [3, 5], [0], [2, 0]]
    functions = {
        "expm1": ("normal", {}), "log1p": ("positive", {}), "rsqrt": ("positive", {}), "sin": ("normal", {}), "cos": ("normal", {}),
        "sign": ("away_from_zero", {}), "floor": ("normal", {}), "ceil": ("normal", {}), "round": ("normal", {}),
        "tanh": ("normal", {}), "sigmoid": ("normal", {}), "silu": ("normal", {}),
        "clamp": ("away_from_zero", {"min": -0.9, "max": 1.1}),
        "leaky_relu": ("away_from_zero", {"negative_slope": 0.2}), "elu": ("away_from_zero", {"alpha": 0.7}),
        "softplus": ("normal", {"beta": 1.5, "threshold": 20.0}),
    }
    for op, (values, attrs) in functions.items():
        for shape in shapes:
            name = f"{op} {label(shape)}"
            family.add(name, op, [getattr(family.draw(name), values)(shape)], **attrs)
        name = f"{op} permuted"
        family.add(name, op, [getattr(family.draw(name), values)([3, 2, 4], permute=[1, 2, 0])], **attrs)
    for approximate in ("none", "tanh"):
        for shape in shapes:
            name = f"gelu {approximate} {label(shape)}"
            family.add(name, "gelu", [family.draw(name).normal(shape)], approximate=approximate)
    far = Input([-90.0, -30.0, -5.0, 0.0, 5.0, 30.0, 90.0])
    for op in ("tanh", "sigmoid", "silu"):
        family.add(f"{op} far from zero", op, [far])
    family.add("softplus beyond its threshold", "softplus", [far], beta=2.0, threshold=8.0)
    family.add("round to even", "round", [Input([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5])])
    family.add("clamp at its limits", "clamp", [Input([-1.0, -0.5, 0.5, 1.0, 2.0])], min=-0.5, max=1.0)
    family.write()


def index():
    family = Family("index", grid=16)

    def integers(values):
        return Input(np.array(values, dtype=np.int64))

    for name, shape, at, dim in [
        ("rows", [3, 4], [[2, 0, 1], [1, 0, 0]], 0), ("columns", [3, 4], [[3, 3], [0, 1], [2, 0]], 1),
        ("longer than the tensor", [2, 3], [[0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]], 0),
        ("one dimension", [5], [4, 4, 0], 0), ("three dimensions", [2, 3, 2], [[[2, 0]], [[1, 1]]], 1),
        ("negative dim", [2, 3], [[1, 0], [2, 2]], -1),
    ]:
        family.add(f"gather {name}", "gather", [family.draw(f"gather {name}").normal(shape), integers(at)], dim=dim)
        source = list(np.array(at).shape)
        for more in (0, 1):
            case = f"scatter_add {name}{' from more' if more else ''}"
            draw = family.draw(case)
            family.add(case, "scatter_add",
                       [draw.normal(shape), integers(at),
                        draw.normal([s + more for s in source], requires_grad=not more)], dim=dim)  # PyTorch cannot
    draw = family.draw("gather permuted")
    family.add("gather permuted", "gather", [draw.normal([4, 3], permute=[1, 0]), integers([[3, 0], [1, 1]])], dim=1)
    for shape, mask in [([2, 3], [2, 3]), ([2, 3], [3]), ([2, 3], [2, 1]), ([3], [2, 3]), ([4], [4]), ([0, 3], [3])]:
        name = f"{label(shape)} by {label(mask)}"
        draw = family.draw(name)
        choice = draw.classes(mask, 2)
        family.add(f"where {name}", "where", [choice, draw.normal(shape), draw.normal(mask)])
        family.add(f"masked_fill {name}", "masked_fill",
                   [draw.normal(list(np.broadcast_shapes(shape, mask))), choice], value=1.25)
        if 0 not in shape:
            family.add(f"masked_select {name}", "masked_select", [draw.normal(shape), choice])
    for a, b in [([37], [37]), ([3, 4], [4]), ([3, 1], [1, 4]), ([], [3]), ([0, 3], [3])]:
        for op in ("maximum", "minimum", "power"):
            name = f"{op} {label(a, b)}"
            draw = family.draw(name)
            first = draw.positive(a, 0.3) if op == "power" else draw.distinct(a)
            family.add(name, op, [first, draw.normal(b, offset=0.0 if op == "power" else 0.03125)])
    for op in ("maximum", "minimum"):
        family.add(f"{op} of equal ones", op, [Input([1.0, 2.0, -1.0]), Input([1.0, 0.5, -1.0])])
    family.add("power of zero", "power", [Input([0.0, 0.0, 2.0]), Input([2.0, 1.0, 0.0])])
    family.write()


def statistics():
    family = Family("statistics", grid=64)
    for shape, dims in [([37], [0]), ([3, 5], [0]), ([3, 5], [1]), ([2, 3, 4], [0, 2]), ([2, 3, 4], [1]),
                        ([3, 5], [0, 1])]:
        for keepdim in (False, True):
            where = f"{label(shape)} over {dims}{' keepdim' if keepdim else ''}"
            for correction in (0, 1):
                for op in ("var", "std"):
                    name = f"{op} {where} less {correction}"
                    family.add(name, op, [family.draw(name).normal(shape, offset=1.5)], dims=dims,
                               correction=correction, keepdim=keepdim)
            for p in (1.0, 2.0, 3.0, 0.5):
                name = f"norm {p} {where}"
                family.add(name, "norm", [family.draw(name).away_from_zero(shape)], p=p, dims=dims, keepdim=keepdim)
            name = f"logsumexp {where}"
            family.add(name, "logsumexp", [family.draw(name).normal(shape, 2.0)], dims=dims, keepdim=keepdim)
    family.add("norm of zeros", "norm", [Input([[0.0, 0.0], [3.0, 4.0]])], p=2.0, dims=[1], keepdim=False)
    family.add("logsumexp far apart", "logsumexp", [Input([[90.0, 0.0], [-90.0, -190.0]])], dims=[1], keepdim=False)
    family.write()


FAMILIES = {f.__name__: f for f in (pointwise, activation, matmul, reduce, statistics, view, index, softmax, loss,
                                    linear, matrix, norm, spatial, training, schedules, init, mixed_precision, second)}


def main():
    unknown = [name for name in sys.argv[1:] if name not in FAMILIES]
    if unknown:
        sys.exit(f"unknown family {', '.join(unknown)}; there are: {' '.join(FAMILIES)}")
    torch.set_num_threads(1)  # more threads may add up in another order
    for name in sys.argv[1:] or FAMILIES:
        FAMILIES[name]()


if __name__ == "__main__":
    main()
