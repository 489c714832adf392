#!/usr/bin/env python3
"""Writes the hand-made inputs of corpus/: small valid files, and the shapes of bugs that other readers have had.

    python3 tests/fuzz/seeds.py

What fuzzing found stands beside them under other names and is left alone.
"""

import gzip
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def npy(dictionary, elements=b"", version=1, length=None):
    header = dictionary.encode("latin1")
    length = len(header) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", length) + header + elements


def descr(code, shape, order=False):
    return f"{{'descr': '{code}', 'fortran_order': {order}, 'shape': {shape}, }}"


def idx(code, *sizes, elements=b""):
    return bytes([0, 0, code, len(sizes)]) + b"".join(struct.pack(">I", size) for size in sizes) + elements


SEEDS = {
    "cli": {
        "none": b"",
        "help": b"--help",
        "help_after_rubbish": b"--frobnicate\n-h",
        "version": b"--version",
        "many": b"--epochs\n3\n--lr\n1e-2\n--hidden\n64,32\n--optimizer\nsgd\n--json\n--quiet",
        "equals": b"--epochs=3\n--lr=.5\n--seed=9223372036854775807",
        "octal": b"--epochs\n010",
        "sign": b"--batch-size\n+4\n--threads\n-1",
        "huge": b"--seed\n18446744073709551616",
        "not_a_number": b"--lr\nnan\n--dropout\ninf",
        "empty_entry": b"--hidden\n256,,10",
        "empty_value": b"--target\n",
        "forgotten_value": b"--out\n--json",
        "last_is_a_flag": b"--epochs",
        "flag_with_value": b"--json=false",
        "misspelt": b"--epoch\n3",
        "positional": b"data.csv\n-\n--\n--json",
        "device": b"--device\ncuda:99\n--device\ncpu:-1",
        "long_device": b"--device\ncpu:-1-h" + b"x" * 3000,
        "repeated": b"--epochs\n3\n--epochs\n4",
        "long": b"--target\n" + b"x" * 3000,
        "braces": b"--target\n{}\n--scaling\n{0}",
    },
    "csv": {
        "plain": b"Aa,b\n1,2\n3,4\n",
        "quotes": b'Asize,"big, ""very""\nbig"\n1,"x"\n',
        "quoted_numbers": b'A"a","b"\r\n"1","2"\r\n',
        "no_last_newline": b"Aa\n1",
        "byte_order_mark": b"A\xef\xbb\xbfa,b\n1,2\n",
        "open_quote": b'Aa,b\n1,"2\n3,4\n',
        "quote_at_the_end": b'Aa\n"',
        "ragged": b"Aa,b\n1,2,3\n",
        "missing": b"Aa,b\n1,\n,NA\n",
        "missing_kept": b"Ba,b\n1,\nNA,x\n",
        "missing_dropped": b"Ca,b\n1,\n2,3\n",
        "text_late": b"Aa\n1\n2\nx\n",
        "huge_numbers": b"Aa\n1e999\n-1e-999\n",
        "no_header": b"I1,2\n3,4\n",
        "tabs": b"Qa\tb\n1\t2\n",
        "carriage_returns": b"Aa,b\r1,2\r\r",
        "long_field": b"Aa\n" + b"x" * 300,
        "many_columns": b"A" + b"1," * 70 + b"1\n",
        "nul": b"Aa\n1\0\n",
    },
    "gzip": {
        "plain": b"a,b\n1,2\n",
        "packed": gzip.compress(b"a,b\n1,2\n", mtime=0),
        "two_members": gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0),
        "empty_member": gzip.compress(b"", mtime=0),
        "bytes_behind": gzip.compress(b"a", mtime=0) + b"tail",
        "wrong_sum": gzip.compress(b"abc", mtime=0)[:-8] + b"\0" * 8,
        "bomb": gzip.compress(b"\0" * 200_000, mtime=0),
        "name_and_comment": b"\x1f\x8b\x08\x18" + b"\0" * 6 + b"name\0comment\0" + gzip.compress(b"x", mtime=0)[10:],
        "magic_only": b"\x1f\x8b",
    },
    "idx": {
        "u8": idx(0x08, 2, 3, elements=b"abcdef"),
        "i8": idx(0x09, 2, 1, elements=b"\x7f\x80"),
        "i16": idx(0x0B, 2, elements=b"abcd"),
        "i32": idx(0x0C, 1, elements=b"abcd"),
        "f32": idx(0x0D, 1, 1, elements=b"abcd"),
        "f64": idx(0x0E, 1, elements=b"abcdefgh"),
        "eight_dimensions": idx(0x08, *[1] * 8, elements=b"x"),
        "truncated": idx(0x08, 60000, 28, 28, elements=b"x" * 10),
        "product_wraps_to_0": idx(0x0E, *[0x10000] * 4),
        "product_wraps_to_1": idx(0x08, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, elements=b"x"),
        "size_0": idx(0x08, 0),
        "header_only": idx(0x08, 3)[:6],
        "packed": gzip.compress(idx(0x08, 1, elements=b"x"), mtime=0),
    },
    "npy": {
        **{code.strip("<>|"): npy(descr(code, "(2,)"), b"\1" * 16)[: 10 + len(descr(code, "(2,)")) + 2 * int(code[-1])]
           for code in ["<f4", "<f8", "<i8", "<i4", "|u1", "|b1", "|i1", "<i2", "<u2", "<u4"]},
        "big_endian": npy(descr(">i4", "(1, 1)"), b"abcd"),
        "fortran": npy(descr("<i2", "(2, 3)", True), b"abcdefghijkl"),
        "scalar": npy(descr("<f4", "()"), b"abcd"),
        "empty": npy(descr("<f4", "(0, 3)")),
        "version_2": npy(descr("|u1", "(1,)"), b"x", version=2),
        "version_3": npy(descr("|u1", "(1,)"), b"x", version=3),
        "twelve_bytes_ask_for_4_GiB": b"\x93NUMPY\2\0\xff\xff\xff\xff",
        "product_wraps_to_0": npy(descr("<f8", "(4294967296, 4294967296)")),
        "bytes_wrap_to_0": npy(descr("<f8", "(2305843009213693952,)")),
        "size_is_too_long": npy(descr("<f8", "(99999999999999999999999,)")),
        "negative": npy(descr("<f8", "(-1,)")),
        "zero_hides_overflow": npy(descr("<f8", "(0, 4294967296, 4294967296)")),
        "object": npy(descr("|O", "(1,)"), b"\x80\4N."),
        "fields": npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", b"abcd"),
        "nested": npy("{'descr': " + "[" * 100 + "]" * 100 + "}"),
        "escape": npy("{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1,), }", b"abcd"),
        "twice": npy("{'shape': (1,), 'shape': (2,), 'descr': '|u1', 'fortran_order': False}", b"ab"),
        "call": npy("{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (1,), }"),
    },
}


def main():
    for target, seeds in SEEDS.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (folder / name).write_bytes(content)


main()
