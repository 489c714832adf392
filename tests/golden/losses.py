"""The golden cases of the losses. The format: generate.py."""

import numpy as np

from vectors import Family, Input, label

REDUCTIONS = ("mean", "sum", "none")


def probabilities(draw, shape, **more):
    """Sums over the classes need not be 1: PyTorch does not ask for it."""
    return draw.floats(draw.random.uniform(0.05, 0.95, int(np.prod(shape))), shape, **more)


def constant(draw, shape, low=0.25):
    return draw.positive(shape, low, 2.0, requires_grad=False)


def indices(draw, shape, num_classes, ignored=None):
    """With `ignored`, every third one, from the second on."""
    made = draw.classes(shape, num_classes)
    if ignored is not None:
        made.values.reshape(-1)[1::3] = ignored
    return made


def plain_cross_entropy(family, reduction):
    sizes = [(1, 1), (3, 1), (1, 2), (7, 2), (5, 3), (1, 10), (5, 10), (3, 17), (17, 2)]
    for rows, classes in sizes if reduction != "sum" else sizes[1::3]:
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


def class_indices(family, reduction):
    """cross_entropy and nll_loss with every combination of their options; one alone for the larger shapes."""
    for op in ("cross_entropy", "nll_loss"):
        for shape in ([6, 4], [4], [2, 3, 2], [2, 3, 2, 2]):
            classes = shape[-1] if len(shape) < 2 else shape[1]
            target = shape[:1] + shape[2:] if len(shape) > 1 else []
            few = len(shape) == 4 or (reduction == "sum" and len(shape) != 2)
            for weighted in (True,) if few else (False, True):
                for ignored in (None,) if not target else (-1,) if few else (None, -1, 1):
                    for smoothing in (0.0,) if op == "nll_loss" else (0.1,) if few else (0.0, 0.1, 1.0):
                        if len(shape) == 2 and op == "cross_entropy" and not (weighted or ignored or smoothing):
                            continue  # plain
                        name = f"{op} {label(shape)}{' weighted' if weighted else ''} ignores {ignored} " \
                               f"smoothing {smoothing} {reduction}"
                        draw = family.draw(name)
                        inputs = [draw.normal(shape, 2.0), indices(draw, target, classes, ignored)]
                        attrs = {} if ignored is None else {"ignore_index": ignored}
                        if smoothing:
                            attrs["label_smoothing"] = smoothing
                        family.add(name, op, inputs + ([constant(draw, [classes])] if weighted else []),
                                   reduction=reduction, **attrs)
        if reduction != "mean":
            for shape, target in (([0, 3], [0]), ([2, 3, 0], [2, 0])):
                name = f"{op} {label(shape)} {reduction}"
                draw = family.draw(name)
                family.add(name, op, [draw.normal(shape), draw.classes(target, 3)], reduction=reduction)
            name = f"{op} all ignored {reduction}"
            draw = family.draw(name)
            family.add(name, op, [draw.normal([2, 3]), Input(np.array([-100, -100], dtype=np.int64))],
                       reduction=reduction)
        name = f"{op} permuted, weighted {reduction}"
        draw = family.draw(name)
        family.add(name, op, [draw.normal([4, 2, 3], permute=[2, 0, 1]), indices(draw, [3, 2], 4, 9),
                              constant(draw, [4])], reduction=reduction, ignore_index=9)


def soft_targets(family, reduction):
    for shape in ([4, 3], [4], [2, 3, 2]) if reduction != "sum" else ([4, 3],):
        classes = shape[-1] if len(shape) < 2 else shape[1]
        for weighted in (False, True):
            for smoothing in (0.0, 0.2):
                for both in (False, True) if len(shape) == 2 else (True,):
                    how = f"{' weighted' if weighted else ''} smoothing {smoothing}{' both gradients' if both else ''}"
                    name = f"cross_entropy of probabilities {label(shape)}{how} {reduction}"
                    draw = family.draw(name)
                    inputs = [draw.normal(shape, 2.0), probabilities(draw, shape, requires_grad=both)]
                    attrs = {"label_smoothing": smoothing} if smoothing else {}
                    family.add(name, "cross_entropy", inputs + ([constant(draw, [classes])] if weighted else []),
                               reduction=reduction, **attrs)
    hard = Input([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], requires_grad=False)
    family.add(f"cross_entropy of certain probabilities {reduction}", "cross_entropy",
               [family.draw("certain").normal([2, 3]), hard], reduction=reduction)


def element_wise(family, reduction):
    for op, attrs in [("mse_loss", {}), ("l1_loss", {}), ("smooth_l1_loss", {}), ("smooth_l1_loss", {"beta": 0.5}),
                      ("huber_loss", {}), ("huber_loss", {"delta": 0.4})]:
        of = "".join(f" {key} {value}" for key, value in attrs.items())
        some = [[], [19]] if attrs or (reduction == "sum" and op != "mse_loss") else [[], [1], [19], [4, 3], [2, 3, 2]]
        for shape in some + ([[0, 3]] if reduction != "mean" else []):
            name = f"{op}{of} {label(shape)} {reduction}"
            draw = family.draw(name)
            family.add(name, op, [draw.normal(shape), draw.normal(shape, requires_grad=False)], reduction=reduction,
                       **attrs)
        name = f"{op}{of} both gradients, permuted {reduction}"
        draw = family.draw(name)
        family.add(name, op, [draw.normal([3, 4], permute=[1, 0]), draw.normal([4, 3])], reduction=reduction, **attrs)


def binary(family, reduction):
    all_weights = {"weight": [[4, 3], [3], [4, 1]], "pos_weight": [[3], [4, 3], [1]]}
    for op, given in [("binary_cross_entropy", [[], ["weight"]]),
                      ("binary_cross_entropy_with_logits", [[], ["weight"], ["pos_weight"], ["weight", "pos_weight"]])]:
        for weights in given:
            for i in range(3 if weights and reduction == "mean" else 1):
                name = f"{op} {label([4, 3], *[all_weights[w][i] for w in weights])} {' '.join(weights)} {reduction}"
                draw = family.draw(name)
                x = probabilities(draw, [4, 3]) if op == "binary_cross_entropy" else draw.normal([4, 3], 2.0)
                family.add(name, op, [x, probabilities(draw, [4, 3])] + [constant(draw, all_weights[w][i])
                                                                        for w in weights],
                           reduction=reduction, weights=weights)
        for shape in [[], [1], [19]] + ([[0, 3]] if reduction != "mean" else []):
            name = f"{op} {label(shape)} {reduction}"
            draw = family.draw(name)
            x = probabilities(draw, shape) if op == "binary_cross_entropy" else draw.normal(shape, 2.0)
            target = Input((draw.random.uniform(size=int(np.prod(shape))) < 0.5) * 1.0, shape, requires_grad=False)
            family.add(name, op, [x, target], reduction=reduction, weights=[])
    far = Input([-10000.0, -90.0, -30.0, 0.0, 30.0, 90.0, 10000.0])
    for target in (0.0, 0.25, 1.0):
        family.add(f"binary_cross_entropy_with_logits far from zero, target {target} {reduction}",
                   "binary_cross_entropy_with_logits", [far, Input([target] * 7, requires_grad=False)],
                   reduction=reduction, weights=[])


def loss():
    family = Family("loss")
    for reduction in REDUCTIONS:
        plain_cross_entropy(family, reduction)
        class_indices(family, reduction)
        soft_targets(family, reduction)
        element_wise(family, reduction)
        binary(family, reduction)
    family.write()
