#!/usr/bin/env bash
# The answer of a function definition, with any name, is its right side.
source "$(dirname "$0")/../lib.sh"
grade_all math
