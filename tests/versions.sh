#!/usr/bin/env bash
# Run rv with the Slurm of other Debian releases, each in a chroot that debootstrap makes, and print
# a table. Needs root, debootstrap, and the Debian mirror that apt is configured with.
#
#   tests/versions.sh                   # bullseye (20.11), bookworm (22.05), trixie (24.11), forky (26.05)
#   tests/versions.sh trixie forky      # some
#   RV_CHROOTS=/var/tmp/rv tests/versions.sh    # keep the chroots there, and use them again
#
# shellcheck disable=SC2016 # what stands in single quotes is for the shell in the chroot
# Exit code 77: it cannot run here, and says why. Everything runs in namespaces of its own, so that
# no process and no mount is left, however this ends.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
LIMIT=${RV_VERSIONS_LIMIT:-1200} # seconds for the checks of one suite

say() { printf '%s\n' "$*" >&2; }

cannot() {
  say "tests/versions.sh: not run: $*"
  exit 77
}

# The mirror that this machine's own packages come from.
mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    grep -E '/debian/?$' | head -n 1
}

# make_chroot SUITE FOLDER: a bare Debian, as in its container images.
make_chroot() {
  local script=/usr/share/debootstrap/scripts/$1
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # this debootstrap is older than the suite
  rm -rf --one-file-system "$2"
  debootstrap --variant=minbase --keyring="$KEYRING" "$1" "$2" "$MIRROR" "$script" >"$2.log" 2>&1 || return
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

# enter FOLDER COMMAND…: run it in the chroot. Its first process is one that waits for orphans, and
# takes all others along when it ends.
enter() {
  timeout --kill-after=10 "$LIMIT" \
    unshare --mount --pid --ipc --uts --fork --kill-child --propagation=private \
    bash -euc '
      root=$1; shift
      mount -t proc proc "$root/proc"
      mount --rbind /sys "$root/sys"
      mount --rbind /dev "$root/dev"
      mount -t cgroup2 none "$root/sys/fs/cgroup" # as on most machines of today; slurmd looks there
      for folder in /dev/shm /run /tmp; do mount -t tmpfs tmpfs "$root$folder"; done
      chroot "$root" env -i "$@"
    ' enter "$1" HOME=/root TERM=dumb LANG=C.UTF-8 "${PASSED[@]}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/newer/usr/bin "${@:2}" </dev/null
}

# prepare_bullseye FOLDER: README asks for Debian 12, so that what differs before it is brought here:
# the names of two packages, and a Python: that of bookworm with the C library that it was made for,
# in a folder of its own.
prepare_bullseye() {
  enter "$1" bash -euc '
    [ ! -e /opt/newer ] || exit 0
    echo "deb $0 bookworm main" >/etc/apt/sources.list.d/newer.list
    printf "Package: *\nPin: release n=bookworm\nPin-Priority: 1\n" >/etc/apt/preferences.d/newer
    apt-get -qq update
    apt-get -qq -y --no-install-recommends install patchelf mariadb-server-core-10.5 mariadb-client-core-10.5 >/dev/null
    rm -f /var/cache/apt/archives/*.deb
    apt-get -qq -y --no-install-recommends --download-only -t bookworm install python3.11-venv >/dev/null
    for package in /var/cache/apt/archives/*.deb; do dpkg -x "$package" /opt/newer; done
    libraries=/opt/newer/lib/x86_64-linux-gnu
    patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath \
      --set-rpath "$libraries:/opt/newer/usr/lib/x86_64-linux-gnu" /opt/newer/usr/bin/python3.11
    ln -s /opt/newer/usr/share/python-wheels /usr/share/python-wheels
    rm /etc/apt/sources.list.d/newer.list
    apt-get -qq update
  ' "$MIRROR"
}

check_suite() {
  local folder=$CHROOTS/$1
  if [ ! -e "$folder/.rv-made" ]; then
    say "$1: debootstrap"
    make_chroot "$1" "$folder" || cannot "debootstrap $1 failed: $(tail -n 1 "$folder.log")"
  fi
  fill_chroot "$folder"
  [ "$1" != bullseye ] || prepare_bullseye "$folder"
  say "$1: README's first command"
  if enter "$folder" RV_VENV=/opt/rv-venv bash -c '
    cd /rv
    begun=$SECONDS
    if examples/quickstart.sh; then result=ok; else result="FAILED with $?"; fi >/results/quickstart.log 2>&1
    printf "quickstart\t%s\t%s\n" "$result" $((SECONDS - begun)) >/results/steps
    [ "$result" = ok ]
  '; then
    say "$1: the rest"
    enter "$folder" RV_VENV=/opt/rv-venv bash -c 'cd /rv && /opt/rv-venv/bin/python tests/versions/checks.py /results >/results/checks.log 2>&1'
  fi || FAILED=1
  grep -qv "	ok	" "$folder/results/steps" && tail -n 40 "$folder"/results/*.log >&2
  mkdir -p "$RESULTS/$1"
  cp -r "$folder/results/." "$RESULTS/$1/"
  [ -n "${RV_CHROOTS:-}" ] || rm -rf --one-file-system "$folder"
}

[ "$(id -u)" -eq 0 ] || cannot "chroots are for root"
command -v debootstrap >/dev/null || cannot "no debootstrap here (apt-get install debootstrap)"
unshare --mount --pid --ipc --uts --fork --kill-child true 2>/dev/null || cannot "no namespaces here"
MIRROR=$(mirror) || true
[ -n "$MIRROR" ] || cannot "apt names no Debian mirror"
PASSED=()
for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST http_proxy https_proxy no_proxy; do
  [ -z "${!name:-}" ] || PASSED+=("$name=${!name}")
done
[ ! -e "$CERTIFICATES" ] || PASSED+=(PIP_CERT=/certificates)
WORK=$(mktemp -d)
trap 'rm -rf --one-file-system "$WORK"' EXIT
CHROOTS=${RV_CHROOTS:-$WORK}
RESULTS=$WORK/results
mkdir -p "$CHROOTS" "$RESULTS"
FAILED=0
[ $# -gt 0 ] || set -- bullseye bookworm trixie forky
for suite in "$@"; do check_suite "$suite"; done
exit "$FAILED"
