"""Second derivatives, as PyTorch computes them, of a few small cases of each op in the other files.

second.json: {"torch": version, "cases": [{
  "family", "name":  the case; its file has the op, the inputs and grad_output
  "grads":           of the sum of w * g over all gradients g of that case, by its inputs: {"shape", "data"}, or null
                     where it is 0
  "grad_output":     the same, by grad_output
}]}

All in f64. w is 7 k mod 11 - 5, a quarter of it, for the element at position k of a gradient.
"""

import json

import numpy as np
import torch

from vectors import HERE, OPS, encode, write

FAMILIES = "activation index linear loss matmul norm pointwise reduce softmax spatial statistics view".split()
LARGEST = 64  # elements of a case
LEFT_OUT = {"clamp at its limits"}  # newer PyTorch has another slope there
CASES = 2  # of an op with the same attributes


def tensor(values, requires_grad=False):
    data = np.array(values["data"], dtype=np.int64 if values.get("dtype") == "i64" else np.float64)
    return torch.from_numpy(data.reshape(values["shape"])).requires_grad_(requires_grad)


def weights(gradient):
    at = torch.arange(gradient.numel(), dtype=torch.float64)
    return ((at * 7 % 11 - 5) / 4).reshape(gradient.shape)


def second_derivatives(case):
    leaves = [tensor(i, i["requires_grad"]) for i in case["inputs"]]
    given = [leaf.permute(i["permute"]) if "permute" in i else leaf for leaf, i in zip(leaves, case["inputs"])]
    output = OPS[case["op"]](case["attrs"], *given)
    output = output[0] if isinstance(output, tuple) else output
    seed = tensor(case["grad_output"], True)
    asked = [leaf for leaf in leaves if leaf.requires_grad]
    first = torch.autograd.grad(output, asked, seed, create_graph=True, allow_unused=True)
    total = sum((weights(g) * g).sum() for g in first if g is not None)
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return None
    *grads, by_seed = torch.autograd.grad(total, [*asked, seed], allow_unused=True)
    by_leaf = iter(grads)
    return [*(next(by_leaf) if leaf.requires_grad else None for leaf in leaves), by_seed]


def encode_unless_zero(gradient):
    return encode(gradient) if gradient is not None and torch.count_nonzero(gradient + 0.0) else None


def second():
    lines, counts = [], {}
    for family in FAMILIES:
        for case in json.loads((HERE / f"{family}.json").read_text())["cases"]:
            size = max((len(i["data"]) for i in case["inputs"]), default=0)
            kind = (family, case["op"], json.dumps(case["attrs"]))
            if case["name"] in LEFT_OUT or case["grad_output"] is None or not 0 < size <= LARGEST:
                continue
            if counts.get(kind, 0) == CASES:
                continue
            found = second_derivatives(case)
            if found is None or not all(g is None or torch.isfinite(g + 0.0).all() for g in found):
                continue
            counts[kind] = counts.get(kind, 0) + 1
            encoded = [encode_unless_zero(g) for g in found]
            lines.append(json.dumps({"family": family, "name": case["name"], "grads": encoded[:-1],
                                     "grad_output": encoded[-1]}, separators=(",", ":")))
    text = ",\n".join(lines)
    write("second", f'{{"torch": "{torch.__version__}", "cases": [\n{text}\n]}}\n')
