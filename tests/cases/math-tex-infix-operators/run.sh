#!/usr/bin/env bash
# {3\over 4} is 3/4, and {5 \choose 2} is 10.
source "$(dirname "$0")/../lib.sh"
grade_all math
