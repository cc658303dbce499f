#!/usr/bin/env bash
# Set up everything that the tests need, then run all of them. Arguments go to pytest:
#
#   tests/run.sh                                # all, on real Slurm clusters on this machine
#   tests/run.sh tests/unit -k quote            # some
set -euo pipefail
# shellcheck source=examples/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../examples/setup.sh"

dev_group() {
  "$(find_python || echo "$VENV/bin/python")" - "$ROOT/pyproject.toml" <<'PY'
import sys
import tomllib
from pathlib import Path

print(*tomllib.loads(Path(sys.argv[1]).read_text())["dependency-groups"]["dev"], sep="\n")
PY
}

need_packages "${SLURM_PROGRAMS[@]}" shellcheck:shellcheck tmux:tmux modulecmd:environment-modules chromium:chromium
mapfile -t dev < <(dev_group)
# The payloads run on a CPU too.
need_venv tests torch "${dev[@]}"

export PATH="$VENV/bin:$PATH"
# The tests start rv thousands of times: without these files each would compile all of it anew.
unset PYTHONDONTWRITEBYTECODE
cd "$ROOT"
# Most of the time is spent waiting for Slurm, so that three files at once do not fill two cores.
# In the order of the folders: those that wait for Slurm are begun first, the short ones fill up.
[ $# -gt 0 ] || set -- --numprocesses=3 --dist=loadfile --no-loadscope-reorder --durations=30
exec python -m pytest "$@" </dev/null
