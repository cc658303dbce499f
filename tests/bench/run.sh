#!/usr/bin/env bash
# Benchmarks, on sandboxes of their own (scale needs none); print ratios measured in this run.
#   tests/bench/run.sh [--json FILE] [--page] [scale|startup|startup_rivals|submit|dry_run|losers|rpcs|users|sweep|...]
# --json keeps the figures (so does RV_BENCH_JSON), --page makes docs/benchmark.md of those in
# tests/bench/results.json. Without names all run but time_to_start and checkpoint_windows, which take
# hours (their own options say how many seeds), and the rivals' environments come from PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-${RV_VENV:-.venv}/bin/python}
usual=(scale startup startup_rivals submit dry_run losers round_trips rpcs users sync watching)
export PYTHONPATH=".:tests/bench"
page=no
while [[ ${1:-} == --* ]]; do
  case $1 in
    --json) export RV_BENCH_JSON=$2; shift 2 ;;
    --page) page=yes; export RV_BENCH_JSON=tests/bench/results.json; shift ;;
    *) echo "what is $1?" >&2; exit 2 ;;
  esac
done
for name in "${@:-${usual[@]}}"; do
  "$python" "tests/bench/$name.py"
done
if [[ $page == yes ]]; then "$python" tests/bench/page.py; fi
