#!/usr/bin/env bash
# 90^o, 90\textdegree and 90{}^\circ are 90 degrees.
source "$(dirname "$0")/../lib.sh"
grade_all math
