#!/usr/bin/env python3
"""Exchanges files between tandem and Python's safetensors, both ways: exchange.py PROGRAM FOLDER [MODELS [SEED]].

Writes random models with Python, lets PROGRAM load and save them, and compares what Python reads then, bit for bit.
Does the same with models of PyTorch where it is installed. Exits with 77 if Python has no safetensors, numpy or
ml_dtypes.
"""

import json
import pathlib
import random
import struct
import subprocess
import sys

try:
    import ml_dtypes
    import numpy as np
    import safetensors.numpy as st
    from safetensors import safe_open
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)

try:
    import safetensors.torch as stt
    import torch
except ImportError:
    torch = None

# The type in the file, NumPy's, and NumPy's for what tandem writes after it has read such elements.
KINDS = [
    ("F32", np.float32, np.float32),
    ("F64", np.float64, np.float64),
    ("F16", np.float16, np.float16),
    ("BF16", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ("I64", np.int64, np.int64),
    ("I32", np.int32, np.int32),
    ("U8", np.uint8, np.uint8),
    ("BOOL", np.bool_, np.bool_),
    ("I8", np.int8, np.int32),
    ("I16", np.int16, np.int32),
    ("U16", np.uint16, np.int32),
    ("U32", np.uint32, np.int64),
    ("U64", np.uint64, np.int64),
    ("F8_E4M3", ml_dtypes.float8_e4m3fn, np.float16),
    ("F8_E5M2", ml_dtypes.float8_e5m2, np.float16),
]


def random_model(rng):
    tensors = {}
    for _ in range(rng.randrange(0, 12)):
        name = rng.choice(["layer.weight", "bias", "ü", "a b", '"', "encoder.0.norm.running_mean", ""]) + str(rng.random())
        shape = tuple(rng.choice([0, 1, 2, 3, 7, 16]) for _ in range(rng.randrange(0, 5)))
        kind, dtype, _ = rng.choice(KINDS)
        raw = rng.randbytes(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        array = np.frombuffer(raw, dtype=np.uint8)
        if kind == "BOOL":
            array = array & 1
        if kind == "U64":
            array = array & 0x7F
        tensors[name] = (kind, array.view(dtype).reshape(shape))
    return tensors


def write(path, tensors):
    """As Python's safetensors, which lacks some of these NumPy types."""
    header, data = {"__metadata__": {"format": "np"}}, b""
    for name, (kind, array) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def raw_tensors(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return {k: (v["dtype"], v["shape"], content[8 + length :][slice(*v["data_offsets"])]) for k, v in header.items() if k != "__metadata__"}


def random_module(rng):
    """A module of PyTorch with a state dict of several types."""
    layers = []
    for _ in range(rng.randrange(1, 6)):
        size = rng.randrange(1, 9)
        layers.append(rng.choice([torch.nn.Linear(size, 3), torch.nn.BatchNorm1d(size), torch.nn.Embedding(size, 2)]))
    module = torch.nn.Sequential(*layers).to(rng.choice([torch.float32, torch.float64, torch.float16, torch.bfloat16]))
    for dtype in [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]:
        if rng.random() < 0.5:
            module.register_buffer(f"buffer_{dtype}".replace(".", "_"), torch.randint(0, 2, (rng.randrange(0, 5), 2)).to(dtype))
    return module


def exchange_with_torch(program, folder, models, rng):
    torch.manual_seed(rng.randrange(1 << 30))
    batch = []
    for number in range(models):
        module = random_module(rng)
        source, out = folder / f"torch{number}.in", folder / f"torch{number}.out"
        stt.save_model(module, source) if number % 2 else stt.save_file(module.state_dict(), source)
        batch.append((source, out, module.state_dict()))
    subprocess.run([program] + [str(path) for source, out, _ in batch for path in (source, out)], check=True)
    for _, out, expected in batch:
        read = stt.load_file(out)
        assert set(read) == set(expected), out
        for name, tensor in expected.items():
            wanted = tensor.to(torch.int32) if tensor.dtype in (torch.int8, torch.int16) else tensor
            assert read[name].dtype == wanted.dtype and torch.equal(read[name], wanted), (out, name)
    print(f"{models} models of PyTorch {torch.__version__} exchanged, 0 differences")


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    models = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    names = {np.dtype(dtype): kind for kind, dtype, _ in KINDS}
    batch = []
    for number in range(models):
        tensors = random_model(rng)
        plain = {k: a for k, (kind, a) in tensors.items() if kind in st._TYPES}
        source = folder / f"{number}.in"
        if len(plain) == len(tensors):
            st.save_file(plain, source)
        else:
            write(source, tensors)
        with safe_open(source, "np") as file:
            assert set(file.keys()) == set(tensors), (seed, source)
        batch.append((source, folder / f"{number}.out", tensors))
    subprocess.run([program] + [str(path) for source, out, _ in batch for path in (source, out)], check=True)
    for source, out, tensors in batch:
        with safe_open(out, "np") as file:  # Python's reader accepts the file
            assert set(file.keys()) == set(tensors), (seed, out)
            read = {name: file.get_tensor(name) for name, (kind, _) in tensors.items() if kind in st._TYPES}
        written = raw_tensors(out)
        for name, (kind, array) in tensors.items():
            wanted = dict((k, w) for k, _, w in KINDS)[kind]
            expected = array.astype(wanted)
            got_kind, shape, data = written[name]
            got = np.frombuffer(data, dtype=wanted).reshape(shape)
            nan = np.issubdtype(expected.dtype, np.floating) and kind.startswith("F8") and np.isnan(expected.astype(np.float32)).any()
            assert name not in read or same(np.asarray(read[name]), got), (seed, out, name)
            assert got_kind == names[np.dtype(wanted)], (seed, out, name, got_kind)
            if nan:  # the payload of a NaN has no meaning
                assert np.array_equal(got.astype(np.float32), expected.astype(np.float32), equal_nan=True), (seed, out, name)
            else:
                assert same(got, expected), (seed, out, name)
    print(f"{models} models exchanged, 0 differences (seed {seed})")
    if torch is not None:
        exchange_with_torch(program, folder, models, rng)


main()
