#!/usr/bin/env python3
"""Writes the golden cases of tests/text/jinja/chat_template_test.cpp with transformers' own jinja environment.

usage: make_chat_template_golden.py TEMPLATE_DIR OUT_DIR
Needs transformers (>= 4.50) and jinja2 3.1.6. The clock is fixed at 2026-01-01 12:00.
"""
import datetime
import glob
import json
import os
import sys

import transformers.utils.chat_template_utils as oracle

import chat_template_cases as cases


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 1, 12, 0, 0)


oracle.datetime = Clock


def render(source, variables):
    """Returns {"rendered", "spans" in bytes} or {"error"}."""
    try:
        compiled = oracle._cached_compile_jinja_template(source)
        blocks, spans = [], []
        with compiled.environment.activate_tracker(blocks, spans):
            for block in compiled.generate(**variables):
                blocks.append(block)
        text = "".join(blocks)
        text.encode("utf-8")
    except Exception as error:  # any error is the expected result
        return {"error": f"{type(error).__name__}: {error}"[:80]}
    out = {"rendered": text}
    if spans:
        out["spans"] = [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]
    return out


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(path, len(rows), os.path.getsize(path))


def main():
    template_dir, out_dir = sys.argv[1:]
    features = []
    for source in cases.FEATURES:
        features.append({"source": source, **render(source, cases.VARIABLES)})
    write(os.path.join(out_dir, "features.jsonl"), features)
    write(os.path.join(out_dir, "conversations.jsonl"),
          [{"name": name, "variables": value} for name, value in cases.CONVERSATIONS.items()])
    rows = []
    for path in sorted(glob.glob(os.path.join(template_dir, "*.jinja"))):
        source = open(path, encoding="utf-8").read()
        for name, variables in cases.CONVERSATIONS.items():
            full = {"bos_token": "<s>", "eos_token": "</s>", **variables}
            rows.append({"template": os.path.basename(path), "conversation": name, **render(source, full)})
    write(os.path.join(out_dir, "golden.jsonl"), rows)
    with open(os.path.join(out_dir, "variables.json"), "w", encoding="utf-8") as f:
        json.dump(cases.VARIABLES, f, ensure_ascii=False, indent=1)
        f.write("\n")


main()
