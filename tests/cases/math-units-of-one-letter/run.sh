#!/usr/bin/env bash
# 12\text{ m} is 12 with a unit, as 12\text{ cm} is; 12m is a product.
source "$(dirname "$0")/../lib.sh"
grade_all math
