#!/usr/bin/env bash
# Run rv with the Slurm of other Debian releases, each in a chroot that debootstrap makes, and print
# a table. Needs root and the Debian mirror that apt is configured with.
#
#   tests/versions.sh                   # bullseye (20.11), bookworm (22.05), trixie (24.11), forky (26.05)
#   tests/versions.sh trixie forky      # some
#   tests/versions.sh --tests trixie    # README's second command too, which takes most of an hour
#   RV_CHROOTS=/var/tmp/rv tests/versions.sh    # keep the chroots and results there, use them again
#
# Exit code 77: it cannot run here, and says why. Everything runs in namespaces of its own, so that
# no process and no mount is left, however this ends.
# SC2016: what stands in single quotes is for the shell in the chroot. SC2317: a trap calls `clean`.
# shellcheck disable=SC2016,SC2317
set -euo pipefail
# shellcheck source=examples/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../examples/setup.sh"
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
LIMIT_S=${RV_VERSIONS_LIMIT_S:-900} # for each step of a suite
TESTS_LIMIT_S=5400
IN_CHROOT=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/newer/usr/bin

cannot() {
  say "tests/versions.sh: not run: $*"
  exit 77
}

# The mirror that this machine's own packages come from.
mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    grep -E '/debian/?$' | head -n 1
}

# isolated COMMAND…: its processes and mounts end with it, and with this script.
isolated() {
  timeout --kill-after=2 "$LIMIT_S" unshare --mount --pid --ipc --uts --fork --kill-child \
    --propagation=private "$@" </dev/null &
  CHILD=$!
  wait "$CHILD"
}

clean() {
  [ -z "${CHILD:-}" ] || ! kill "$CHILD" 2>/dev/null || wait "$CHILD" || true
  rm -rf --one-file-system "$WORK"
}

# make_chroot SUITE FOLDER: a bare Debian, as in its container images.
make_chroot() {
  local script=/usr/share/debootstrap/scripts/$1
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # this debootstrap is older than the suite
  rm -rf --one-file-system "$2"
  isolated debootstrap --variant=minbase --keyring="$KEYRING" "$1" "$2" "$MIRROR" "$script" \
    >"$2.log" 2>&1 || return
  printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
  chmod +x "$2/usr/sbin/policy-rc.d"
  apt-config dump | grep -E '^Acquire::Check-' >"$2/etc/apt/apt.conf.d/checks" || true
  touch "$2/.rv-made"
}

# fill_chroot FOLDER: this checkout, and how this machine reaches the network.
fill_chroot() {
  local file
  for file in /etc/resolv.conf /etc/hosts /etc/hostname /etc/pip.conf; do
    [ ! -e "$file" ] || install -m 644 "$file" "$1$file"
  done
  [ ! -e "$CERTIFICATES" ] || install -m 644 "$CERTIFICATES" "$1/certificates"
  rm -rf "$1/rv" "$1/results"
  mkdir -p "$1/rv" "$1/results"
  git -C "$ROOT" ls-files -z --cached --others --exclude-standard |
    tar -C "$ROOT" --null --no-recursion --ignore-failed-read --owner=0 --group=0 -cf - -T - 2>/dev/null |
    tar -C "$1/rv" -xf -
}

# enter FOLDER COMMAND…: run it there. The shell here waits for orphans, as init would. The folder
# becomes the root of a mount namespace, as of a container: tests make namespaces of their own in it.
# Control groups are those of version 2, as on most machines of today: slurmd looks there.
enter() {
  isolated bash -euc '
    root=$1; shift
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t cgroup2 none "$root/sys/fs/cgroup" || true
    for folder in /dev/shm /run /tmp; do mount -t tmpfs tmpfs "$root$folder"; done
    cd "$root"
    pivot_root . .
    umount -l .
    env -i "$@"
  ' enter "$1" HOME=/root TERM=dumb LANG=C.UTF-8 PATH="$IN_CHROOT" RV_VENV=/opt/rv "${PASSED[@]}" "${@:2}"
}

# prepare_bullseye FOLDER: README asks for Debian 12, so that what differs before it is brought here:
# the names of two packages, and a Python: that of bookworm with the C library that it was made for,
# in a folder of its own.
prepare_bullseye() {
  [ ! -e "$1/opt/newer" ] || return 0
  enter "$1" bash -euc '
    echo "deb $0 bookworm main" >/etc/apt/sources.list.d/newer.list
    printf "Package: *\nPin: release n=bookworm\nPin-Priority: 1\n" >/etc/apt/preferences.d/newer
    apt-get -qq update
    apt-get -qq -y --no-install-recommends install patchelf mariadb-server-core-10.5 mariadb-client-core-10.5
    rm -f /var/cache/apt/archives/*.deb
    apt-get -qq -y --no-install-recommends --download-only -t bookworm install python3.11-venv
    for package in /var/cache/apt/archives/*.deb; do dpkg -x "$package" /opt/newer; done
    libraries=/opt/newer/lib/x86_64-linux-gnu
    patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath \
      --set-rpath "$libraries:/opt/newer/usr/lib/x86_64-linux-gnu" /opt/newer/usr/bin/python3.11
    ln -s /opt/newer/usr/share/python-wheels /usr/share/python-wheels
    rm /etc/apt/sources.list.d/newer.list
    apt-get -qq update
  ' "$MIRROR" >"$1/results/bullseye.log" 2>&1
}

quickstart() {
  enter "$1" bash -c '
    cd /rv
    examples/quickstart.sh >/results/quickstart.log 2>&1
    code=$? result=ok
    [ "$code" -eq 0 ] || result="FAILED: it ended with $code"
    printf "quickstart\t%s\t%s\n" "$result" "$SECONDS" >>/results/steps
    exit "$code"
  '
}

# all_tests FOLDER: README's second command.
all_tests() {
  LIMIT_S=$TESTS_LIMIT_S enter "$1" bash -c '
    cd /rv
    tests/run.sh >/results/tests.log 2>&1
    code=$? result=ok
    [ "$code" -eq 0 ] || result="FAILED: it ended with $code"
    printf "all tests\t%s\t%s\n" "$result" "$SECONDS" >>/results/steps
    exit "$code"
  '
}

check_suite() {
  local folder=$CHROOTS/$1
  if [ ! -e "$folder/.rv-made" ]; then
    say "$1: debootstrap"
    make_chroot "$1" "$folder" || cannot "debootstrap $1 failed: $(tail -n 1 "$folder.log")"
  fi
  fill_chroot "$folder"
  [ "$1" != bullseye ] || prepare_bullseye "$folder" || say "no Python and MariaDB for bullseye"
  say "$1: README's first command, then the rest"
  if quickstart "$folder"; then
    enter "$folder" bash -c 'cd /rv && /opt/rv/bin/python tests/versions/checks.py /results >/results/checks.log 2>&1' ||
      FAILED=1
  else
    FAILED=1
  fi
  [ "$TESTS" = no ] || all_tests "$folder" || FAILED=1
  {
    printf 'Slurm\t%s\t\n' "$(chroot "$folder" slurmctld -V 2>/dev/null | cut -d' ' -f2)"
    printf 'Python\t%s\t\n' "$(chroot "$folder" /opt/rv/bin/python -V 2>/dev/null | cut -d' ' -f2)"
    cat "$folder/results/steps" 2>/dev/null
  } >"$RESULTS/$1"
  if [ -e "$folder/results/dry-run.json" ]; then cp "$folder/results/dry-run.json" "$RESULTS/$1.json"; fi
  if grep -q FAILED "$RESULTS/$1"; then tail -n 400 "$folder"/results/*.log >&2; fi
  [ -n "${RV_CHROOTS:-}" ] || rm -rf --one-file-system "$folder"
}

# same_plans SUITE…: a line for each, whether its dry run is that of the first.
same_plans() {
  local suite
  for suite in "$@"; do
    if cmp -s "$RESULTS/$1.json" "$RESULTS/$suite.json"; then
      printf 'one plan\tok\t\n'
    else
      printf 'one plan\tFAILED: another dry run than on %s\t\n' "$1"
      FAILED=1
    fi >>"$RESULTS/$suite"
  done
}

# table SUITE…: a row for each check, a column for each suite, then what failed.
table() {
  local row suite name result seconds rows=()
  declare -A cells=()
  for suite in "$@"; do
    while IFS=$'\t' read -r name result seconds; do
      [[ " ${rows[*]} " == *" ${name// /_} "* ]] || rows+=("${name// /_}")
      cells[$suite.${name// /_}]="${result%%:*}${seconds:+ ${seconds} s}"
    done <"$RESULTS/$suite"
  done
  printf '\n%-12s' ''
  printf '%-14s' "$@"
  for row in "${rows[@]}"; do
    printf '\n%-12s' "${row//_/ }"
    for suite in "$@"; do printf '%-14s' "${cells[$suite.$row]:-not run}"; done
  done
  printf '\n'
  for suite in "$@"; do
    while IFS=$'\t' read -r name result _; do
      [[ $result != FAILED* ]] || printf '%s: %s: %s\n' "$suite" "$name" "$result"
    done <"$RESULTS/$suite"
  done
}

TESTS=no
if [ "${1:-}" = --tests ]; then
  TESTS=yes
  shift
fi
[ "$(id -u)" -eq 0 ] || cannot "chroots are for root"
unshare --mount --pid --ipc --uts --fork --kill-child true 2>/dev/null || cannot "no namespaces here"
MIRROR=$(mirror) || true
[ -n "$MIRROR" ] || cannot "apt names no Debian mirror"
need_packages debootstrap:debootstrap
PASSED=()
for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST http_proxy https_proxy no_proxy; do
  [ -z "${!name:-}" ] || PASSED+=("$name=${!name}")
done
[ ! -e "$CERTIFICATES" ] || PASSED+=(PIP_CERT=/certificates)
WORK=$(mktemp -d)
trap clean EXIT
CHROOTS=${RV_CHROOTS:-$WORK}
RESULTS=$WORK/results
mkdir -p "$CHROOTS" "$RESULTS"
FAILED=0
[ $# -gt 0 ] || set -- bullseye bookworm trixie forky
for suite in "$@"; do check_suite "$suite"; done
same_plans "$@"
table "$@"
exit "$FAILED"
