#!/usr/bin/env bash
# Every benchmark, on sandboxes of their own (scale needs none); prints ratios measured in this run.
#   tests/bench/run.sh [startup|submit|dry_run|losers|round_trips|rpcs|scale|sweep|sync|watching ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-${RV_VENV:-.venv}/bin/python}
for name in "${@:-startup submit dry_run losers round_trips rpcs scale sync watching}"; do
  for one in $name; do
    PYTHONPATH=".:tests/bench" "$python" "tests/bench/$one.py"
  done
done
