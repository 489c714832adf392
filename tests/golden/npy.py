#!/usr/bin/env python3
"""Small NumPy files as NumPy writes them, for the tests of data/npy.h.

    /usr/bin/python3 tests/golden/npy.py    # rewrites npy.json beside this script

    {"numpy": version,
     "read":    [{"name", "file" (its bytes in hexadecimal), "dtype" (tandem's), "shape", "data" (row-major)}, ...]
     "refused": [{"name", "file"}, ...]       files of NumPy that tandem does not read
     "written": [{"name", "file", "dtype", "shape", "data"}, ...]    what save_npy must write, byte for byte
    }
"""

import io
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
STORED = {"f2": "f16", "f4": "f32", "f8": "f64", "i8": "i64", "i4": "i32", "u1": "u8", "b1": "bool", "i1": "i32", "i2": "i32",
          "u2": "i32", "u4": "i64"}


def file(array, version=None, **more):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version, **more)
    return buffer.getvalue().hex()


def case(name, array, version=None):
    return {"name": name, "file": file(array, version), "dtype": STORED[array.dtype.str[1:]],
            "shape": list(array.shape), "data": [v.item() for v in array.ravel(order="C")]}


def values(code, shape):
    kind = np.dtype(code)
    count = int(np.prod(shape))
    if kind.kind == "f":
        return (np.arange(count) * 1.25 - 3.5).astype(kind).reshape(shape)
    if kind.kind == "b":
        return (np.arange(count) % 3 == 1).reshape(shape)
    limits = np.iinfo(kind)
    extremes = [limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1]
    return np.array([extremes[i % 6] for i in range(count)], dtype=kind).reshape(shape)


def read():
    cases = []
    for code in STORED:
        orders = ["<", ">"] if np.dtype(code).itemsize > 1 else ["|"]
        for order in orders:
            dtype = code if order == "|" else order + code
            cases.append(case(f"{dtype} C", values(dtype, (2, 3)).astype(dtype)))
            cases.append(case(f"{dtype} Fortran", np.asfortranarray(values(dtype, (2, 3)).astype(dtype))))
    for shape in [(), (1,), (5,), (0,), (2, 0, 3), (1, 1, 1, 1), (2, 1, 2, 1, 2, 1, 2, 1)]:
        cases.append(case(f"shape {shape}", values("<f4", shape)))
    cases.append(case("shape (2, 3, 4) Fortran", np.asfortranarray(values(">f8", (2, 3, 4)).astype(">f8"))))
    cases.append(case("shape (0, 3) Fortran", np.asfortranarray(values("<i4", (0, 3)))))
    cases.append(case("version 2", values("<f4", (3,)), (2, 0)))
    cases.append(case("version 3", values("<f4", (3,)), (3, 0)))
    return cases


def refused():
    arrays = {
        "longdouble": np.zeros(2, np.longdouble), "uint64": np.zeros(2, np.uint64),
        "complex64": np.zeros(2, np.complex64), "object": np.array([{}, 1], dtype=object), "bytes": np.array([b"ab"]),
        "text": np.array(["ab"]), "date": np.array(["2024-01-01"], dtype="M8[D]"),
        "span": np.array([1], dtype="m8[s]"), "raw": np.zeros(2, "V3"),
        "fields": np.zeros(2, [("size", "<f4"), ("kind", "<i4", (2,))]), "nine dimensions": np.zeros((1,) * 9),
    }
    return [{"name": name, "file": file(array)} for name, array in arrays.items()]


def written():
    cases = [case(code, values(code, (2, 3))) for code in ["f2", "f4", "f8", "i8", "i4", "u1", "b1"]]
    return cases + [case(f"shape {shape}", values("f4", shape)) for shape in [(), (5,), (0, 7), (1,) * 8]]


def main():
    sections = {"read": read(), "refused": refused(), "written": written()}
    lines = [f'{json.dumps(name)}: [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]"
             for name, cases in sections.items()]
    text = f'{{"numpy": {json.dumps(np.__version__)},\n' + ",\n".join(lines) + "}\n"
    (HERE / "npy.json").write_text(text)


main()
