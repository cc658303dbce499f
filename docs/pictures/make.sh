#!/usr/bin/env bash
# Make the pictures of the documentation anew, from real races on a sandbox, as a terminal shows them.
#
#   docs/pictures/make.sh           # needs tmux and the virtual environment of tests/run.sh
#   docs/pictures/make.sh FOLDER    # all states of the live wait into FOLDER, as pictures and as text
set -euo pipefail
FOLDER=$(realpath -- "${1:-"$(dirname -- "${BASH_SOURCE[0]}")"}")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
export PATH="${RV_VENV:-$PWD/.venv}/bin:$PATH"
mkdir -p "$FOLDER"
exec python docs/pictures/record.py "$FOLDER"
