#!/usr/bin/env bash
# Set up everything that the tests and the linters need: Debian packages, and a virtual environment.
# What is there already is used as it is.
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

need_packages "${SLURM_PROGRAMS[@]}" \
  sshd:openssh-server ssh:openssh-client tcsh:tcsh fish:fish zsh:zsh \
  shellcheck:shellcheck tmux:tmux groff:groff-base modulecmd:environment-modules chromium:chromium git:git gcc:gcc make:make fio:fio rsync:rsync
# Headers, which are no program: a plugin of the tests is compiled.
[ -e /usr/include/slurm/spank.h ] || install_packages libslurm-dev
[ -e /usr/include/errno.h ] || install_packages libc6-dev
mapfile -t dev < <(dev_group)
# The payloads run on a CPU too.
need_venv tests torch "${dev[@]}"
