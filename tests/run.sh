#!/usr/bin/env bash
# Set up everything that the tests need, then run all of them. Arguments go to pytest:
#
#   tests/run.sh                                # all, on real Slurm clusters on this machine
#   tests/run.sh tests/unit -k quote            # some
set -euo pipefail
# shellcheck source=examples/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../examples/setup.sh"

# Print the folder above the checkout that other users may not enter, if there is one.
closed_folder() {
  local folder=$ROOT
  while folder=$(dirname -- "$folder") && [ "$folder" != / ]; do
    setpriv --reuid=65534 --clear-groups test -x "$folder" || printf '%s\n' "$folder"
  done | tail -n 1
}

# Run a command where a closed folder, such as /root, is open and holds the checkout alone: some
# tests act as a second user, who must be able to read it. Nobody else sees the folder so.
# shellcheck disable=SC2016 # the inner shell's
in_the_open() {
  local closed=$1
  shift
  exec unshare --mount bash -c '
    kept=$(mktemp -d) && mount --bind "$2" "$kept" && mount -t tmpfs -o mode=0755 tmpfs "$1" &&
      mkdir -p "$2" && mount --bind "$kept" "$2" && umount "$kept" && rmdir "$kept" && cd "$2" || exit
    shift 2
    exec "$@"' in_the_open "$closed" "$ROOT" "$@"
}

bash "$ROOT/tests/setup.sh"
export PATH="$VENV/bin:$PATH"
# The tests start rv thousands of times: without these files each would compile all of it anew.
unset PYTHONDONTWRITEBYTECODE
# Threads of OpenMP that wait would take the processor from the tests beside them.
export OMP_WAIT_POLICY=passive
cd "$ROOT"
# Much of the time is spent waiting for Slurm: five files at once fill two cores.
# In the order of the folders: those that wait for Slurm are begun first, the short ones fill up.
[ $# -gt 0 ] || set -- --numprocesses=5 --dist=loadfile --no-loadscope-reorder --durations=30
exec </dev/null
[ "$(id -u)" -ne 0 ] || closed=$(closed_folder)
[ -z "${closed-}" ] || ! unshare --mount true || in_the_open "$closed" python -m pytest "$@"
exec python -m pytest "$@"
