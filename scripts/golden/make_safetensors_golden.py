#!/usr/bin/env python3
"""Writes tests/io/safetensors_cases.jsonl and tests/io/safetensors_golden.jsonl.

Cases: headers, each with the verdict of the safetensors package (accept or reject) and the expected
error of slimexx. Golden: whole small files that the package wrote. Needs: safetensors, numpy, torch.
"""
import json
import os
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "io")


def verdict(content):
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as f:
        f.write(content)
        f.flush()
        try:
            with safe_open(f.name, framework="numpy") as s:
                list(s.keys())
            return "accept"
        except Exception:
            return "reject"


def t(shape, begin, end, dtype="F32", **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def entry(name, *args, **more):
    return {name: t(*args, **more)}


A = '"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
F = '"dtype":"F32"'
S = '"shape":[2]'
O = '"data_offsets":[0,8]'

# name, header (object, text or bytes), data bytes, our error ("" accepts)
CASES = [
    ("one", entry("a", [2], 0, 8), 8, ""),
    ("empty object", {}, 0, ""),
    ("empty object with data", {}, 1, "follow the last tensor"),
    ("rank 0", entry("a", [], 0, 4), 4, ""),
    ("rank 1000", entry("a", [1] * 1000, 0, 4), 4, ""),
    ("rank 1025", entry("a", [1] * 1025, 0, 4), 4, "more than 1024 dimensions"),
    ("shape with 0", entry("a", [3, 0, 2], 0, 0), 0, ""),
    ("0 before a huge dimension", entry("a", [0, 2**62, 2**62], 0, 0), 0, ""),
    ("0 after huge dimensions", entry("a", [2**62, 2**62, 0], 0, 0), 0, "overflows"),
    ("dimension 2^63 behind 0", entry("a", [0, 2**63], 0, 0), 0, "too large"),
    ("dimension 2^64", entry("a", [2**64], 0, 8), 8, "not expected in shape"),
    ("2^60 elements", entry("a", [2**60], 0, 2**62), 8, "overflows"),
    ("2^58 elements", entry("a", [2**58], 0, 8), 8, "hold 8"),
    ("2^58 elements, range past the file", entry("a", [2**58], 0, 2**60), 8, "truncated"),
    ("product overflow", entry("a", [2**40, 2**40], 0, 8), 8, "overflows"),
    ("bits overflow", entry("a", [2**61], 0, 8), 8, "overflows"),
    ("two in order", {**entry("a", [1], 0, 4), **entry("b", [1], 4, 8)}, 8, ""),
    ("two out of order", {**entry("a", [1], 4, 8), **entry("b", [1], 0, 4)}, 8, ""),
    ("empty tensors share an offset", {**entry("a", [0], 0, 0), **entry("b", [1], 0, 4), **entry("c", [0], 4, 4)}, 4, ""),
    ("overlap", {**entry("a", [2], 0, 8), **entry("b", [1], 4, 8)}, 8, "must continue at"),
    ("same range twice", {**entry("a", [2], 0, 8), **entry("b", [2], 0, 8)}, 8, "must continue at 8"),
    ("gap", {**entry("a", [1], 0, 4), **entry("b", [1], 8, 12)}, 12, "must continue at 4"),
    ("not from 0", entry("a", [2], 4, 12), 12, "must continue at 0"),
    ("begin after end", entry("a", [2], 8, 0), 8, "must continue at 0"),
    ("begin after end at 0", {**entry("a", [1], 0, 4), **entry("b", [1], 4, 0)}, 4, "must continue at 4"),
    ("end past the file", entry("a", [2], 0, 8), 7, "truncated"),
    ("trailing bytes", entry("a", [2], 0, 8), 9, "1 bytes follow the last tensor"),
    ("shape against offsets", entry("a", [3], 0, 8), 8, "ask for 12 bytes"),
    ("negative offset", '{"a":{%s,%s,"data_offsets":[-1,8]}}' % (F, S), 8, "not expected in data_offsets"),
    ("float offset", '{"a":{%s,%s,"data_offsets":[0,8.0]}}' % (F, S), 8, "8.0 is not expected"),
    ("exponent offset", '{"a":{%s,%s,"data_offsets":[0,8e0]}}' % (F, S), 8, "not expected"),
    ("minus zero", '{"a":{%s,%s,"data_offsets":[-0,8]}}' % (F, S), 8, "not expected"),
    ("leading zero", '{"a":{%s,%s,"data_offsets":[00,8]}}' % (F, S), 8, "not valid JSON at byte"),
    ("offset 2^64", '{"a":{%s,%s,"data_offsets":[0,18446744073709551616]}}' % (F, S), 8, "not expected"),
    ("NaN offset", '{"a":{%s,%s,"data_offsets":[0,NaN]}}' % (F, S), 8, "not valid JSON"),
    ("string offset", '{"a":{%s,%s,"data_offsets":[0,"8"]}}' % (F, S), 8, "not expected in data_offsets"),
    ("one offset", '{"a":{%s,%s,"data_offsets":[0]}}' % (F, S), 8, "fewer than two"),
    ("three offsets", '{"a":{%s,%s,"data_offsets":[0,8,8]}}' % (F, S), 8, "more than two"),
    ("offsets nested", '{"a":{%s,%s,"data_offsets":[[0,8]]}}' % (F, S), 8, "an array is not expected"),
    ("shape null", '{"a":{%s,"shape":null,%s}}' % (F, O), 8, "null is not expected as shape"),
    ("shape number", '{"a":{%s,"shape":2,%s}}' % (F, O), 8, "2 is not expected as shape"),
    ("shape true", '{"a":{%s,"shape":[true],%s}}' % (F, O), 8, "a boolean is not expected"),
    ("negative dimension", '{"a":{%s,"shape":[-2],%s}}' % (F, O), 8, "-2 is not expected in shape"),
    ("no dtype", '{"a":{%s,%s}}' % (S, O), 8, '"dtype" is missing'),
    ("no shape", '{"a":{%s,%s}}' % (F, O), 8, '"shape" is missing'),
    ("no offsets", '{"a":{%s,%s}}' % (F, S), 8, '"data_offsets" is missing'),
    ("dtype number", '{"a":{"dtype":1,%s,%s}}' % (S, O), 8, "1 is not expected as dtype"),
    ("dtype unknown", entry("a", [2], 0, 8, "F33"), 8, "unknown dtype"),
    ("dtype in lower case", entry("a", [2], 0, 8, "f32"), 8, "unknown dtype"),
    ("duplicate tensor", "{%s,%s}" % (A, A), 8, "duplicate tensor"),
    ("duplicate tensor, other content", '{"a":{"dtype":"I8","shape":[1],"data_offsets":[5,6]},%s}' % A, 8, "duplicate tensor"),
    ("duplicate dtype", '{"a":{%s,%s,%s,%s}}' % (F, F, S, O), 8, 'duplicate key "dtype"'),
    ("duplicate shape", '{"a":{%s,%s,%s,%s}}' % (F, S, S, O), 8, 'duplicate key "shape"'),
    ("duplicate offsets", '{"a":{%s,%s,%s,%s}}' % (F, S, O, O), 8, 'duplicate key "data_offsets"'),
    ("duplicate by escape", '{"a":{%s,%s,%s},"\\u0061":{%s,%s,%s}}' % (F, S, O, F, S, O), 8, "duplicate tensor"),
    ("unknown field", entry("a", [2], 0, 8, x=[1, {"y": [None, True, 1.5, "z"]}]), 8, ""),
    ("unknown field too deep", '{"a":{%s,%s,%s,"x":%s1%s}}' % (F, S, O, "[" * 200, "]" * 200), 8, "nested deeper"),
    ("depth 10^5", "[" * 100000, 0, "not expected in place of the header object"),
    ("depth 10^5 inside", '{"a":{"x":' + "[" * 100000, 0, "nested deeper"),
    ("tensor as array", '{"a":["F32",[2],[0,8]]}', 8, "an array is not expected"),
    ("tensor null", '{"a":null}', 0, "null is not expected"),
    ("tensor string", '{"a":"x"}', 0, "is not expected"),
    ("dtype as object", '{"a":{"dtype":{"F32":null},%s,%s}}' % (S, O), 8, "an object is not expected as dtype"),
    ("metadata", {"__metadata__": {"format": "pt", "k": ""}, **entry("a", [2], 0, 8)}, 8, ""),
    ("metadata at the end", {**entry("a", [2], 0, 8), "__metadata__": {"format": "pt"}}, 8, ""),
    ("metadata null", {"__metadata__": None}, 0, ""),
    ("metadata number", {"__metadata__": {"n": 1}}, 0, "not expected as metadata"),
    ("metadata null value", {"__metadata__": {"n": None}}, 0, "not expected as metadata"),
    ("metadata nested", {"__metadata__": {"n": {}}}, 0, "an object is not expected"),
    ("metadata array", {"__metadata__": []}, 0, "an array is not expected as __metadata__"),
    ("metadata string", {"__metadata__": "x"}, 0, "not expected as __metadata__"),
    ("duplicate metadata", '{"__metadata__":{},"__metadata__":{}}', 0, "duplicate key"),
    ("duplicate metadata key", '{"__metadata__":{"a":"1","a":"2"}}', 0, "duplicate metadata key"),
    ("leading blank", " {}", 0, ""),
    ("trailing blanks", "{} \n\t\r  ", 0, ""),
    ("trailing NUL", "{}\0\0\0\0\0\0", 0, "not valid JSON"),
    ("trailing text", "{}x", 0, "not valid JSON"),
    ("second object", "{}{}", 0, "not valid JSON"),
    ("trailing comma", "{%s,}" % A, 8, "not valid JSON"),
    ("comment", "{/**/}", 0, "not valid JSON"),
    ("single quotes", "{'a':1}", 0, "not valid JSON"),
    ("byte-order mark", "\ufeff{}", 0, "byte-order mark"),
    ("empty header", "", 0, "not valid JSON"),
    ("one brace", "{", 0, "not valid JSON"),
    ("array", "[]", 0, "an array is not expected"),
    ("number", "1", 0, "not expected in place of the header object"),
    ("null", "null", 0, "null is not expected"),
    ("invalid UTF-8", b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "not valid JSON"),
    ("overlong UTF-8", b'{"\xc0\xaf":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "not valid JSON"),
    ("UTF-8 surrogate", b'{"\xed\xa0\x80":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "not valid JSON"),
    ("cut UTF-8", b'{"a\xe2\x82":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "not valid JSON"),
    ("lone surrogate escape", '{"\\ud800":{%s,%s,%s}}' % (F, S, O), 8, "not valid JSON"),
    ("surrogate pair escape", '{"\\ud83d\\ude00":{%s,%s,%s}}' % (F, S, O), 8, ""),
    ("NUL escape in a name", '{"a\\u0000b":{%s,%s,%s}}' % (F, S, O), 8, ""),
    ("raw newline in a name", '{"a\nb":{%s,%s,%s}}' % (F, S, O), 8, "not valid JSON"),
    ("empty name", entry("", [2], 0, 8), 8, ""),
    ("name of 10^4 bytes", entry("n" * 10000, [2], 0, 8), 8, ""),
    ("two normal forms", {**entry("\u00e9", [1], 0, 4), **entry("e\u0301", [1], 4, 8)}, 8, ""),
    ("path as a name", entry("../../etc/passwd", [2], 0, 8), 8, ""),
]
for dtype, bits in [("BOOL", 8), ("U8", 8), ("I8", 8), ("F8_E5M2", 8), ("F8_E4M3", 8), ("I16", 16), ("F16", 16),
                    ("BF16", 16), ("I32", 32), ("F32", 32), ("F64", 64), ("I64", 64), ("U16", 16), ("U32", 32),
                    ("U64", 64), ("C64", 64), ("F8_E8M0", 8), ("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6),
                    ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8)]:
    CASES.append((f"dtype {dtype}", entry("a", [8], 0, bits, dtype), bits, ""))
    CASES.append((f"dtype {dtype}, wrong range", entry("a", [8], 0, bits + 1, dtype), bits + 1, "ask for"))
CASES.append(("F4, odd count", entry("a", [3], 0, 2, "F4"), 2, "do not end on a byte"))
CASES.append(("F6, 5 elements", entry("a", [5], 0, 4, "F6_E2M3"), 4, "do not end on a byte"))


def write_cases():
    with open(os.path.join(OUT, "safetensors_cases.jsonl"), "w") as f:
        for name, header, data, error in CASES:
            if isinstance(header, dict):
                header = json.dumps(header, ensure_ascii=False)
            raw = header if isinstance(header, bytes) else header.encode()
            content = len(raw).to_bytes(8, "little") + raw + bytes(data)
            line = {"case": name, "data_bytes": data, "error": error, "reference": verdict(content)}
            repeat = "depth 10^5" in name or "10^4" in name or "rank 1" in name
            if isinstance(header, bytes):
                line["header_hex"] = header.hex()
            elif repeat:  # stored in short form: one text, repeated
                run = {"rank 1": "1, ", "depth ": "[", "name o": "n"}[name[:6]]
                count = header.count(run)
                assert header.count(run * count) == 1
                before, after = header.split(run * count)
                line["header_run"] = [before, run, count, after]
            else:
                line["header"] = header
            f.write(json.dumps(line) + "\n")


def write_golden():
    torch.manual_seed(0)
    dtypes = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E5M2": torch.float8_e5m2,
              "F8_E4M3": torch.float8_e4m3fn, "I16": torch.int16, "F16": torch.float16, "BF16": torch.bfloat16,
              "I32": torch.int32, "F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
    every = {}
    for i, (name, dtype) in enumerate(dtypes.items()):
        every[f"z{i:02}.{name}"] = torch.randn(3, 5).to(dtype)
        every[f"a{i:02}.{name}"] = torch.randn(7).to(dtype)
    files = {
        "one": ({"weight": torch.arange(6, dtype=torch.float32).reshape(2, 3)}, None),
        "metadata": ({"b": torch.ones(1), "a": torch.zeros(2)}, {"format": "pt"}),
        "empty": ({}, None),
        "names": ({n: torch.ones(2) for n in ['q"uote', "back\\slash", "tab\t", "\u00e9\u4e2d\U0001f600", "\x01\x7f", "/", ""]},
                  {"k\n": 'v"\u00fc'}),
        "shapes": ({"scalar": torch.tensor(3.0), "empty": torch.zeros(0, 4), "deep": torch.ones(1, 1, 2, 1, 3)}, None),
        "every dtype": (every, {"format": "pt"}),
    }
    with open(os.path.join(OUT, "safetensors_golden.jsonl"), "w") as f, tempfile.TemporaryDirectory() as d:
        for name, (tensors, metadata) in files.items():
            path = os.path.join(d, "x.safetensors")
            save_file(tensors, path, metadata)
            with open(path, "rb") as g:
                content = g.read()
            f.write(json.dumps({"case": name, "file_hex": content.hex()}) + "\n")


write_cases()
write_golden()
