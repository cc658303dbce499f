# shellcheck shell=bash
# What examples/quickstart.sh and tests/setup.sh share: Debian packages, a Python, a virtual
# environment with rv in it. Sourced, not run. Nothing here asks a question, and what is there
# already is used as it is.
#
# RV_VENV says where the virtual environment lies; by default it is .venv in the checkout.

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${RV_VENV:-$ROOT/.venv}

# What `rv sandbox` runs, and the Debian package of each.
# shellcheck disable=SC2034 # used by those who source this
SLURM_PROGRAMS=(
  slurmctld:slurmctld
  slurmd:slurmd
  sbatch:slurm-client
  munged:munge
  slurmdbd:slurmdbd
  mariadbd:mariadb-server-core
  my_print_defaults:mariadb-client-core
)

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$@"
  exit 1
}

# Debian keeps daemons where an ordinary user's PATH does not look.
has_program() { PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null; }

# Print a Python that can make a virtual environment for rv; fail where there is none.
find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.14; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

# need_packages PROGRAM:PACKAGE…: install the packages of the programs that are missing, and Python.
need_packages() {
  local pair missing=()
  for pair in "$@"; do
    has_program "${pair%%:*}" || missing+=("${pair##*:}")
  done
  [ -x "$VENV/bin/python" ] || find_python >/dev/null || missing+=(python3 python3-venv)
  [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"
}

install_packages() {
  local command=(apt-get install -y --no-install-recommends "$@") as_root=()
  say "These Debian packages are missing: $*"
  has_program apt-get || die "Install what they hold with this system's own package manager, then run this again."
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || die "Install them, then run this again:" $'\n'"  sudo apt-get update && sudo ${command[*]}"
    as_root=(sudo -n)
  fi
  say "Installing them: ${command[*]}"
  # A fresh image has no package lists; a machine in use may be busy with its own upgrades.
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=120 update </dev/null ||
    say "The package lists are old; trying with them."
  "${as_root[@]}" "${command[@]}" -qq -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 </dev/null >/dev/null ||
    die "That failed. Install them by hand, then run this again:" $'\n'"  ${command[*]}"
}

# need_venv WHAT REQUIREMENT…: make the virtual environment, and install rv and the requirements
# into it, in the versions of tests/constraints.txt, once for each state of that and pyproject.toml.
# WHAT names this set of requirements.
need_venv() {
  local what=$1 stamp state pins=$ROOT/tests/constraints.txt
  shift
  stamp=$VENV/.rv-$what
  state=$(printf '%s\n' "$ROOT" "$@" && cksum "$ROOT/pyproject.toml" "$pins")
  if [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] && "$VENV/bin/rv" --version >/dev/null 2>&1; then
    return
  fi
  make_venv
  say "Installing into $VENV: rv${*:+ $*}"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --constraint "$pins" "$@" --editable "$ROOT" </dev/null
  printf '%s\n' "$state" >"$stamp"
}

make_venv() {
  local python
  if "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    [ -w "$VENV" ] || die "$VENV belongs to somebody else. Use another: RV_VENV=~/.venvs/rv $0"
    return
  fi
  if [ -e "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ]; then
    die "$VENV is there and is no virtual environment. Name another in RV_VENV."
  fi
  python=$(find_python) ||
    die "rv needs Python 3.11 or newer, with venv. On Debian 12 or newer: apt-get install python3 python3-venv"
  say "Making a virtual environment in $VENV with $python"
  "$python" -m venv --clear "$VENV"
}
