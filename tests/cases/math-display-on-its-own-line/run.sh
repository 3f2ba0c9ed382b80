#!/usr/bin/env bash
# A formula that is open at the end of a line goes on to its end.
source "$(dirname "$0")/../lib.sh"
grade_all math
