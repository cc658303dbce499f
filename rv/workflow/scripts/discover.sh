# What a login node has for races and jobs: a record for each, KEY, a tab, VALUE, ended by a NUL.
# Nothing of it stays there.
# shellcheck shell=bash

say() { printf '%s\t%s\0' "$1" "$2"; }

# folder KIND PATH: say whether it can be written to, what disk it is on, and whether that has hard links.
folder() {
  [ -d "$2" ] && [ -w "$2" ] || return 0
  # shellcheck disable=SC2016 # it is expanded there
  timeout 5 bash -c '
    probe=$(mktemp -d -p "$2" .rv-init.XXXXXXXX 2>/dev/null) || exit 0
    trap "rm -rf -- \"\$probe\"" EXIT
    links=no
    : >"$probe/a" && ln -T "$probe/a" "$probe/b" 2>/dev/null && links=yes
    printf "folder\t%s %s %s %s %s %s\0" "$1" "$(stat -f -c %T -- "$2")" \
      "$(df -P -k -- "$2" | awk "NR == 2 { print \$4 }")" "$(stat -c %d -- "$2")" "$links" "$(readlink -f -- "$2")"
  ' folder "$1" "$2"
}

tool() {
  local path
  path=$(command -v "$1") || return 0
  say tool "$1 $path"
}

folder home "$HOME"
for variable in SCRATCH PSCRATCH CSCRATCH SCRATCH_DIR SCRATCHDIR WORK WORKDIR WRKDIR PROJECT; do
  value=${!variable-}
  case $value in /?*) folder "$variable" "$value" ;; esac
done
me=$(id -un)
for above in /scratch /work /fast /data /lustre /gpfs /beegfs /mnt/scratch /lustre/scratch /gpfs/scratch; do
  folder path "$above/$me"
done
[ -z "${LMOD_VERSION-}" ] || say tool "Lmod $LMOD_VERSION"
[ -n "${LMOD_VERSION-}" ] || [ -z "${MODULESHOME-}" ] || say tool "modules $MODULESHOME"
for name in uv conda mamba apptainer singularity enroot tmux abduco rsync git; do tool "$name"; done
if version=$(timeout 5 python3 --version 2>/dev/null); then say tool "python3 ${version#Python }"; fi
