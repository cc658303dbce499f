#!/usr/bin/env bash
# From a fresh checkout to a race for GPUs, on a Slurm cluster that runs on this machine.
# Run it as often as you like: what is there already is used as it is.
#
#   examples/quickstart.sh
#   .venv/bin/rv sandbox down     # when you have seen enough
set -euo pipefail
# shellcheck source=examples/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

need_packages "${SLURM_PROGRAMS[@]}"
need_venv rv

export PATH="$VENV/bin:$PATH"
cd "$ROOT"
show() {
  printf '\n$ %s\n' "$1"
  bash -c "$1" </dev/null
}
show 'rv sandbox up --profile campus'
# Named, because on the login node of a real cluster rv would race there.
show 'rv up --cluster sandbox --gpu 2 --time 10m --run "python3 examples/what_i_got.py"'
show 'rv ps --cluster sandbox'
say $'\n'"To go on: source $VENV/bin/activate; rv --help. The end of the cluster: rv sandbox down"
