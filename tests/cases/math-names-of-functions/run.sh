#!/usr/bin/env bash
# A definition of a function, whatever its name, gives the right side.
source "$(dirname "$0")/../lib.sh"
grade_all math
