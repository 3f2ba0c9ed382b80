#!/usr/bin/env bash
# gpqa: the letter is read in brackets, emphasis, quotation marks, dollars and boxes.
source "$(dirname "$0")/../lib.sh"
grade_all gpqa
