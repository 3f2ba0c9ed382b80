#!/usr/bin/env bash
# A label that is a list holds all accepted answers: the best grade counts.
source "$(dirname "$0")/../lib.sh"
timeout 60 "$B" grade --rm-type f1 --input "$CASE/cases.jsonl" --output rewards || wrong "grade fails"
[ "$(grep -c '"reward":1,' rewards)" = 4 ] || wrong "f1: $(cat rewards)"
cat >list.jsonl <<'END'
{"want": 1, "label": ["1/3", 0.5], "response": "\\boxed{\\frac{1}{2}}"}
{"want": 0, "label": ["1/3", 0.5], "response": "\\boxed{\\frac{1}{4}}"}
{"want": 1, "label": "[\"72\"]", "response": "It is \\boxed{72}"}
END
CASE=$T cp list.jsonl cases.jsonl
CASE=$T grade_all math
