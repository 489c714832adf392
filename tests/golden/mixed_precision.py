"""Golden runs of torch.amp.GradScaler, and of optimisers in f32 whose gradients are rounded to 16 bits."""

import json

import numpy as np
import torch

from vectors import TYPES, Draw, encode, number, write

STEPS = 50
SHAPES = [[3, 4], [5]]
GRADIENTS = 7  # the gradient of step i is number i modulo these

SCALERS = [
    # name, optimiser and its options, the scaler's options, steps with an infinity, clip to this norm
    ("sgd", "SGD", {"lr": 0.1}, {"init_scale": 8.0, "growth_interval": 4}, [0, 7, 8, 20], None),
    ("sgd momentum", "SGD", {"lr": 0.1, "momentum": 0.9}, {"init_scale": 65536.0, "growth_interval": 3}, [0, 1, 30],
     None),
    ("sgd odd factors", "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True},
     {"init_scale": 3.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 2}, [5, 6, 7, 40], None),
    ("adam", "Adam", {"lr": 0.01}, {"init_scale": 1024.0, "growth_interval": 5}, [0, 1, 2, 17, 33, 49], None),
    ("adamw odd factors", "AdamW", {"lr": 0.01, "weight_decay": 0.1},
     {"init_scale": 7.0, "growth_factor": 3.0, "backoff_factor": 0.1, "growth_interval": 4}, [3, 25], None),
    ("adam amsgrad, maximize", "Adam", {"lr": 0.01, "amsgrad": True, "maximize": True},
     {"init_scale": 256.0, "growth_interval": 6}, [10], None),
    ("rmsprop", "RMSprop", {"lr": 0.01, "momentum": 0.5}, {"init_scale": 128.0, "growth_interval": 5}, [0, 22], None),
    ("adagrad", "Adagrad", {"lr": 0.1, "lr_decay": 0.1}, {"init_scale": 128.0, "growth_interval": 5}, [0, 22], None),
    ("sgd clip", "SGD", {"lr": 0.1, "momentum": 0.9}, {"init_scale": 512.0, "growth_interval": 5}, [2, 9], 1.5),
    ("adamw clip", "AdamW", {"lr": 0.01}, {"init_scale": 512.0, "growth_interval": 5}, [2, 9, 10], 1.5),
    ("scale at the end of f32", "SGD", {"lr": 0.1}, {"init_scale": 2.0**125, "growth_interval": 1}, [30], None),
]

MASTERS = [
    # name, optimiser and its options
    ("sgd", "SGD", {"lr": 0.01}),
    ("sgd momentum", "SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    ("adam", "Adam", {"lr": 1e-3}),
    ("adamw", "AdamW", {"lr": 1e-3, "weight_decay": 0.1}),
    ("adam amsgrad", "Adam", {"lr": 1e-3, "amsgrad": True, "weight_decay": 0.1}),
    ("rmsprop", "RMSprop", {"lr": 1e-3, "momentum": 0.5, "centered": True, "eps": 0.01}),
    ("adagrad", "Adagrad", {"lr": 0.01}),
]


def train_scaled(initial, gradients, spec):
    _, kind, options, scaler_options, infinite, max_norm = spec
    parameters = [i.leaf(torch.float32) for i in initial]
    optimizer = getattr(torch.optim, kind)(parameters, **options)
    scaler = torch.amp.GradScaler("cpu", **scaler_options)
    scales, trackers = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = sum((p * g.leaf(torch.float32).detach()).sum() for p, g in zip(parameters, gradients[step % GRADIENTS]))
        scaler.scale(loss).backward()
        if step in infinite:
            parameters[-1].grad[-1] = torch.inf
        if max_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        scaler.step(optimizer)
        scaler.update()
        scales.append(number(scaler.get_scale(), torch.float64))
        trackers.append(scaler.state_dict()["_growth_tracker"])
    return {"scales": scales, "growth_trackers": trackers, "weights": [encode(p) for p in parameters]}


def train_master(initial, gradients, spec, dtype):
    _, kind, options = spec
    parameters = [i.leaf(dtype).detach().float().requires_grad_() for i in initial]
    optimizer = getattr(torch.optim, kind)(parameters, **options)
    for step in range(STEPS):
        for p, g in zip(parameters, gradients[step % GRADIENTS]):
            p.grad = g.leaf(dtype).detach().float()
        optimizer.step()
    return [encode(p) for p in parameters]


def mixed_precision():
    """{"torch", "steps", "initial": [tensor], "gradients": [[one per parameter]], "scaled": [...], "masters": [...]}.

    Step i has gradients i modulo their number. "scaled": {"name", "optimizer": {"type", its options}, "scaler": its
    options, "infinite": steps in which the last gradient's last element is infinite, "clip_max_norm": number or null,
    "scales", "growth_trackers": after each step, "weights": at the end}, all in f32; the loss is the sum of parameters
    times gradients. "masters": {"name", "optimizer", "bf16", "f16": the weights at the end, in f32, of parameters that
    began as the rounding of "initial", and were stepped with gradients of that rounding}. Needs PyTorch 2.3.
    """
    draw = Draw("mixed_precision")
    initial = [draw.normal(shape) for shape in SHAPES]
    gradients = [[draw.normal(shape) for shape in SHAPES] for _ in range(GRADIENTS)]
    scaled, masters = [], []
    for spec in SCALERS:
        name, kind, options, scaler, infinite, max_norm = spec
        scaled.append({"name": name, "optimizer": {"type": kind} | options, "scaler": scaler, "infinite": infinite,
                       "clip_max_norm": max_norm} | train_scaled(initial, gradients, spec))
    for spec in MASTERS:
        name, kind, options = spec
        masters.append({"name": name, "optimizer": {"type": kind} | options}
                       | {key: train_master(initial, gradients, spec, TYPES[key]) for key in ("bf16", "f16")})
    head = {"torch": torch.__version__, "steps": STEPS, "initial": [i.json() for i in initial],
            "gradients": [[g.json() for g in each] for each in gradients]}
    parts = {"scaled": scaled, "masters": masters}
    text = json.dumps(head, separators=(",", ":"))[:-1]
    for key, cases in parts.items():
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        text += f',"{key}":[\n{lines}\n]'
    write("mixed_precision", text + "}\n")
