#!/usr/bin/env bash
# The answer of an equation is the value after its last equals sign.
source "$(dirname "$0")/../lib.sh"
grade_all math
