"""Golden runs of the optimisers, golden rates of the schedules, and the rules of nn.Linear's initial values."""

import json
import math

import numpy as np
import torch
import torch.nn.functional as F

from vectors import DTYPES, Draw, encode, number, write

SIZES = [5, 7, 3]
STEPS = 50
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
    ("sgd maximize", "SGD", {"lr": 0.01, "momentum": 0.5, "weight_decay": 0.1, "maximize": True}, None, None),
    ("adam amsgrad", "Adam", {"lr": 0.02, "amsgrad": True}, None, None),
    ("adam amsgrad, weight decay, maximize", "Adam",
     {"lr": 1e-3, "amsgrad": True, "weight_decay": 0.1, "maximize": True}, None, None),
    ("adamw amsgrad", "AdamW", {"lr": 0.02, "weight_decay": 0.1, "amsgrad": True}, None, None),
    ("rmsprop", "RMSprop", {"lr": 1e-3}, None, None),
    ("rmsprop alpha eps", "RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-3}, None, None),
    ("rmsprop weight decay", "RMSprop", {"lr": 1e-3, "weight_decay": 0.1}, None, None),
    ("rmsprop momentum", "RMSprop", {"lr": 1e-3, "momentum": 0.9}, None, None),
    ("rmsprop centered", "RMSprop", {"lr": 1e-3, "eps": 0.01, "centered": True}, None, None),
    ("rmsprop centered, momentum, weight decay", "RMSprop",
     {"lr": 1e-3, "eps": 0.01, "centered": True, "momentum": 0.5, "weight_decay": 0.01}, None, None),
    ("rmsprop maximize", "RMSprop", {"lr": 1e-4, "maximize": True}, None, None),
    ("adagrad", "Adagrad", {"lr": 0.01}, None, None),
    ("adagrad decay", "Adagrad", {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.05}, None, None),
    ("adagrad initial value eps", "Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.1, "eps": 1e-3}, None, None),
    ("adagrad maximize", "Adagrad", {"lr": 1e-3, "maximize": True}, None, None),
    ("sgd groups", "SGD", {"lr": 0.1, "momentum": 0.9, "groups": [{}, {"lr": 0.01}]}, None, None),
    ("adamw groups", "AdamW", {"lr": 0.01, "groups": [{"weight_decay": 0.2}, {"lr": 0.002, "weight_decay": 0.0}]},
     None, None),
    ("rmsprop groups cosine", "RMSprop", {"lr": 1e-3, "groups": [{"weight_decay": 0.1}, {"lr": 2e-3}]},
     ("CosineAnnealingLR", {"T_max": 30}), None),
    ("sgd cosine", "SGD", {"lr": 0.2, "momentum": 0.9}, ("CosineAnnealingLR", {"T_max": 50}), None),
    ("sgd cosine and up again", "SGD", {"lr": 0.2}, ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.02}), None),
    ("sgd step", "SGD", {"lr": 0.2}, ("StepLR", {"step_size": 4, "gamma": 0.5}), None),
    ("adam step", "Adam", {"lr": 0.02}, ("StepLR", {"step_size": 5, "gamma": 0.1}), None),
    ("sgd clip", "SGD", {"lr": 0.5}, None, 0.1),
    ("sgd clip never reached", "SGD", {"lr": 0.1}, None, 1000.0),
    ("adamw cosine clip", "AdamW", {"lr": 0.02, "weight_decay": 0.1}, ("CosineAnnealingLR", {"T_max": 50}), 0.2),
]


def train(initial, batches, spec, dtype):
    _, optimizer, options, scheduler, max_norm = spec
    net = torch.nn.Sequential(torch.nn.Linear(*SIZES[:2]), torch.nn.ReLU(), torch.nn.Linear(*SIZES[1:])).to(dtype)
    net.load_state_dict({name: initial[name].leaf(dtype).detach() for name in NAMES})
    options = dict(options)
    params = list(net.parameters())
    if "groups" in options:  # the first layer's parameters and the second's
        params = [{"params": part} | own for part, own in zip((params[:2], params[2:]), options.pop("groups"))]
    opt = getattr(torch.optim, optimizer)(params, **options)
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
    result = {"losses": losses, "weights": {k: encode(v) for k, v in net.state_dict().items()}}
    return rates, result | {"norms": norms} if norms else result


def training():
    """{"torch", "sizes", "steps", "loss", "initial": {name: tensor}, "batches": [{"x", "target"}], "cases": [...]}.

    The net is Linear, ReLU, Linear; step i trains on batch i modulo their number; the loss is the mean cross-entropy.
    A case: {"name", "optimizer": {"type", its options; perhaps "groups": [options of the first layer's parameters, of
    the second's]}, "scheduler": {"type", its options} or null, stepped once after each step of the optimiser,
    "clip_max_norm": number or null, "lrs" used in each step by the first group, "f64", "f32": {"losses" before each
    step, "norms" before clipping (only with it), "weights" at the end}}. Initial values and batches are exact in f32.
    """
    draw = Draw("training")
    hidden, classes = SIZES[1:]
    shapes = [[hidden, SIZES[0]], [hidden], [classes, hidden], [classes]]
    initial = {name: draw.normal(shape, 0.5, requires_grad=False) for name, shape in zip(NAMES, shapes)}
    batches = [(draw.normal([rows, SIZES[0]], requires_grad=False), draw.classes([rows], classes))
               for rows in (8, 8, 5)]
    cases = []
    for spec in RUNS:
        name, optimizer, options, scheduler, max_norm = spec
        case = {"name": name, "optimizer": {"type": optimizer} | options,
                "scheduler": {"type": scheduler[0]} | scheduler[1] if scheduler else None, "clip_max_norm": max_norm}
        for key, dtype in DTYPES.items():
            case["lrs"], case[key] = train(initial, batches, spec, dtype)
        cases.append(case)
        for key in NAMES:
            a, b = (np.array(cases[-1][dtype]["weights"][key]["data"]) for dtype in DTYPES)
            assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max(), f"training/{name} is ill-conditioned"
    head = {
        "torch": torch.__version__, "sizes": SIZES, "steps": STEPS, "loss": "cross_entropy",
        "initial": {name: i.json() for name, i in initial.items()},
        "batches": [{"x": x.json(), "target": target.json()} for x, target in batches],
    }
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    write("training", json.dumps(head, separators=(",", ":"))[:-1] + f',"cases":[\n{lines}\n]}}\n')


SCHEDULES = [
    # schedule and its options; for SequentialLR a list of schedules and the milestones
    ("StepLR", {"step_size": 7, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 10, 10, 30], "gamma": 0.3}),
    ("ExponentialLR", {"gamma": 0.93}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.01, "end_factor": 0.8, "total_iters": 20}),
    ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 40}),
    ("CosineAnnealingLR", {"T_max": 50}),
    ("CosineAnnealingLR", {"T_max": 12, "eta_min": 0.003}),
    ("LambdaLR", {}),
    ("OneCycleLR", {"max_lr": [0.5], "total_steps": 50}),
    ("OneCycleLR", {"max_lr": [0.5, 0.2], "epochs": 5, "steps_per_epoch": 10, "pct_start": 0.4,
                    "anneal_strategy": "linear"}),
    ("OneCycleLR", {"max_lr": [0.1], "total_steps": 61, "three_phase": True, "div_factor": 10.0,
                    "final_div_factor": 100.0, "base_momentum": 0.8, "max_momentum": 0.9}),
    ("OneCycleLR", {"max_lr": [0.1], "total_steps": 50, "pct_start": 0.0, "cycle_momentum": False}),
    ("SequentialLR", {"schedulers": [("LinearLR", {"start_factor": 0.1, "total_iters": 5}),
                                     ("CosineAnnealingLR", {"T_max": 45})], "milestones": [5]}),
    ("SequentialLR", {"schedulers": [("LinearLR", {"start_factor": 0.5, "total_iters": 3}),
                                     ("StepLR", {"step_size": 4, "gamma": 0.5}), ("ExponentialLR", {"gamma": 0.9})],
                      "milestones": [4, 30]}),
    ("ReduceLROnPlateau", {"patience": 3}),
    ("ReduceLROnPlateau", {"factor": 0.5, "patience": 2, "cooldown": 3, "min_lr": 0.01}),
    ("ReduceLROnPlateau", {"mode": "max", "factor": 0.3, "patience": 1, "threshold": 0.05, "threshold_mode": "abs"}),
    ("ReduceLROnPlateau", {"mode": "max", "factor": 0.9, "patience": 0, "threshold": 0.2}),
    ("ReduceLROnPlateau", {"factor": 0.7, "patience": 0, "threshold": 0.3, "threshold_mode": "abs"}),
]


def make_schedule(optimizer, kind, options):
    if kind == "LambdaLR":
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: 1 / (1 + 0.1 * count))
    if kind == "SequentialLR":
        options = {"schedulers": [make_schedule(optimizer, *part) for part in options["schedulers"]],
                   "milestones": options["milestones"]}
    if kind == "OneCycleLR" and len(options["max_lr"]) == 1:
        options = options | {"max_lr": options["max_lr"][0]}
    return getattr(torch.optim.lr_scheduler, kind)(optimizer, **options)


def schedules():
    """{"torch", "base_lrs", "metrics", "cases": [{"type", "options", "rates", "momentums"}]}.

    SGD with momentum 0.95 and two groups with the rates base_lrs; the schedule is stepped after each step. "rates" and
    "momentums" are what each group has in each step: [[group 0, group 1], ...]. LambdaLR has 1 / (1 + 0.1 * count);
    ReduceLROnPlateau is stepped with the metrics in turn.
    """
    random = Draw("schedules").random
    metrics = np.round(np.abs(3 * np.exp(-np.arange(STEPS) / 10) + 0.1 * random.standard_normal(STEPS)), 3).tolist()
    base = [0.1, 0.04]
    cases = []
    for kind, options in SCHEDULES:
        groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in base]
        optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.95)
        schedule = make_schedule(optimizer, kind, options)
        rates, momentums = [], []
        for step in range(STEPS):
            rates.append([group["lr"] for group in optimizer.param_groups])
            momentums.append([group["momentum"] for group in optimizer.param_groups])
            optimizer.step()
            schedule.step(*([metrics[step]] if kind == "ReduceLROnPlateau" else []))
        if kind == "SequentialLR":
            options = options | {"schedulers": [{"type": k, "options": o} for k, o in options["schedulers"]]}
        cases.append({"type": kind, "options": options, "rates": rates, "momentums": momentums})
    head = {"torch": torch.__version__, "base_lrs": base, "metrics": metrics}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    write("schedules", json.dumps(head, separators=(",", ":"))[:-1] + f',"cases":[\n{lines}\n]}}\n')


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
