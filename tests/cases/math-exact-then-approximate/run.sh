#!/usr/bin/env bash
# An exact value followed by its decimal approximation counts as the exact value.
source "$(dirname "$0")/../lib.sh"
grade_all math
