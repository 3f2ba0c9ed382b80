#!/usr/bin/env bash
# 5 million is 5000000, not 5.
source "$(dirname "$0")/../lib.sh"
grade_all math
