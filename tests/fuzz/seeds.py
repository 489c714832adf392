#!/usr/bin/env python3
"""Writes the hand-made inputs of corpus/: small valid files, and the shapes of bugs that other readers have had.

    python3 tests/fuzz/seeds.py

Inputs found by fuzzing have other names in the same folders and are left alone.
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


def frame(kind, key=b"", value=b"", number=1):
    return struct.pack(">BBHII", kind, 0, len(key), number, len(value)) + key + value


def safetensors(header, data=b"", length=None):
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype, shape, begin, end):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


def variables(*lines, method="env://"):
    return "\n".join([method, *lines]).encode()


SEEDS = {
    "safetensors": {
        "one": safetensors('{"a":' + entry("F32", [2], 0, 8) + "}", bytes(8)),
        "none": safetensors("{}"),
        "spaces": safetensors(' { "a" : ' + entry("U8", [], 0, 1) + " }   ", b"x"),
        "metadata": safetensors('{"__metadata__":{"format":"pt","k":"\\u00e9"},"a":' + entry("BF16", [0, 3], 0, 0) + "}"),
        "types": safetensors(
            "{" + ",".join(f'"{t}":' + entry(t, [4], 32 * i, 32 * i + s) for i, (t, s) in enumerate([("F64", 32), ("I64", 32), ("U64", 32)])) + "}",
            bytes(96)),
        "small_types": safetensors(
            "{" + ",".join(f'"{t}":' + entry(t, [4], 4 * i, 4 * i + 4) for i, t in enumerate(["I8", "BOOL", "F8_E4M3", "F8_E5M2", "U8"])) + "}",
            bytes(range(20))),
        "four_bits": safetensors('{"a":' + entry("F4", [2, 3], 0, 3) + "}", bytes(3)),
        "hole": safetensors('{"a":' + entry("U8", [1], 1, 2) + "}", bytes(2)),
        "overlap": safetensors('{"a":' + entry("U8", [2], 0, 2) + ',"b":' + entry("U8", [2], 1, 3) + "}", bytes(3)),
        "product_wraps": safetensors('{"a":' + entry("F32", [4611686018427387904, 4], 0, 0) + "}"),
        "bits_wrap": safetensors('{"a":' + entry("F32", [2], 0, 2305843009213693952) + "}"),
        "twice": safetensors('{"a":' + entry("U8", [1], 0, 1) + ',"a":' + entry("U8", [1], 1, 2) + "}", bytes(2)),
        "long_header": safetensors("{}", length=2**63),
        "nul": safetensors(b"{}\0\0"),
        "deep": safetensors("[" * 1000),
        "deep_objects": safetensors('{"a":' * 1000),
        "floats": safetensors('{"a":{"dtype":"F32","shape":[1e3],"data_offsets":[0.0,-1]}}'),
        "no_utf8": safetensors(b'{"\xff":{}}'),
        "byte_order_mark": safetensors(b"\xef\xbb\xbf{}"),
        "bad_seal": safetensors('{"__metadata__":{"tandem.xxh3":"00","tandem.seal":"11"},"a":' + entry("U8", [1], 0, 1) + "}", b"x"),
        "zip": b"PK\x03\x04" + bytes(60),
        "pickle": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + bytes(20),
        "empty": b"",
    },
    "run_flags": {
        "plain": b"-n\n2\n./mlp\n--epochs\n5",
        "none": b"",
        "help": b"--help",
        "help_of_the_program": b"-n2\n./mlp\n--help",
        "end_of_flags": b"--\n--odd name\n--\n",
        "torchruns_names": b"--nproc_per_node=2\n--max_restarts\n3\n--log_dir\nlogs\nx",
        "two_nodes": b"--nnodes\n2\n--node-rank\n1\n--rdzv\n[::1]:29500\nx",
        "no_place": b"--nnodes=2\nx",
        "wrong_place": b"--nnodes=2\n--rdzv\nhere\nx",
        "standalone": b"--standalone\n--nnodes\n2\nx",
        "numbers": b"-n\n4097\n--kill-timeout\nnan\n--heartbeat-limit\n1e9",
        "auto": b"-n\nauto\nx",
        "forgotten_value": b"-n",
        "value_in_a_flag": b"--standalone=2\nx",
        "misspelt": b"--nprocs\n2\nx",
        "minus": b"-\nx",
        "empty": b"\n\n",
    },
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
        "resumed_with_a_long_flag": b"--resume\nx\n-" + b"y" * 3000,
        "resumed_from_a_long_name": b"--resume=" + b"x" * 3000,
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
    "environment": {
        "none": variables(),
        "torchrun": variables("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
                              "MASTER_ADDR=node7", "MASTER_PORT=29500"),
        "agent": variables("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a", "MASTER_PORT=65535",
                           "TORCHELASTIC_USE_AGENT_STORE=True"),
        "agent_port": variables("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a", "MASTER_PORT=1", "TANDEM_STORE_PORT=2",
                                "TORCHELASTIC_USE_AGENT_STORE=True"),
        "open_mpi": variables("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
                              "OMPI_COMM_WORLD_LOCAL_SIZE=2"),
        "slurm": variables("SLURM_PROCID=4", "SLURM_STEP_ID=0", "SLURM_NTASKS=5", "SLURM_NNODES=3", "SLURM_NODEID=2",
                           "SLURM_LOCALID=0", "SLURM_TASKS_PER_NODE=2(x2),1", "SLURM_JOB_ID=123456",
                           "SLURM_STEP_NODELIST=gpu-[007-008,20]"),
        "slurm_nested": variables("SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_NNODES=2",
                                  "SLURM_NODEID=0", "SLURM_LOCALID=0", "SLURM_TASKS_PER_NODE=1(x9999999999)",
                                  "SLURM_JOB_ID=1", "SLURM_STEP_NODELIST=[[1]"),
        "missing": variables("RANK=0"),
        "no_rank": variables("WORLD_SIZE=2"),
        "huge": variables("RANK=99999999999999999999", "WORLD_SIZE=1048577"),
        "spaces": variables("RANK= 1", "WORLD_SIZE=2 "),
        "tcp": variables("RANK=0", "WORLD_SIZE=2", method="tcp://10.0.0.1:29500"),
        "ipv6": variables("RANK=0", "WORLD_SIZE=2", method="tcp://[fe80::1%eth0]:1"),
        "ipv6_without_brackets": variables(method="tcp://::1:80"),
        "file": variables("RANK=0", "WORLD_SIZE=2", method="file:///shared/folder"),
        "misspelt": variables(method="tpc://a:1"),
        "braces": variables("RANK={}", "WORLD_SIZE={0}", method="{}://{}"),
        "long": variables("RANK=" + "1" * 3000, "WORLD_SIZE=2"),
    },
    "frames": {
        "hello": frame(1, b"node7", struct.pack(">IIII", 1, 3, 4711, 1000)),
        "hello_of_nobody": frame(1, b"h", struct.pack(">IIII", 1, 0xFFFFFFFF, 1, 1)),
        "another_version": frame(1, b"h", struct.pack(">IIII", 2, 0, 1, 1000)),
        "set_and_get": frame(2, b"a", b"value") + frame(3, b"a") + frame(4, b"b"),
        "add": frame(5, b"n", struct.pack(">q", -5)) + frame(5, b"n", struct.pack(">q", 7)),
        "add_beyond": frame(2, b"n", b"9223372036854775807") + frame(5, b"n", struct.pack(">q", 1)),
        "add_to_text": frame(2, b"n", b"1x") + frame(5, b"n", struct.pack(">q", 1)),
        "set_and_erase": frame(2, b"a", b"1") + frame(2, b"a", b"2") + frame(6, b"a") + frame(6, b"a"),
        "control": frame(7) + frame(32) + frame(33, b"", b"over") + frame(8),
        "answers": frame(64) + frame(65, b"", b"value") + frame(66) + frame(67, b"", b"why"),
        "no_such_kind": frame(63),
        "reserved_byte": b"\2\1" + frame(2, b"a", b"b")[2:],
        "length_2_31": b"\2\0\0\1\0\0\0\1\x80" + b"\0" * 3 + b"a",
        "length_4_gib": b"\2\0\0\1\0\0\0\1\xff\xff\xff\xffa",
        "empty_key": frame(2, b"", b"x"),
        "cut_off": frame(2, b"a", b"value")[:-1],
        "http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
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
