#!/usr/bin/env bash
# An exact value with its decimal is the exact value.
source "$(dirname "$0")/../lib.sh"
grade_all math
