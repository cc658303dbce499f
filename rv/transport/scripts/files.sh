# What is done with files on a login node: a function for each operation of the transport.
# A code above 128 says that a program was killed, so that what was printed may be less than there is.
# shellcheck shell=bash

# all_lived CODE…: fail with 137 where one of them was killed, but for one that nobody read on (141).
all_lived() {
  local code
  for code; do
    [ "$code" -le 128 ] || [ "$code" -eq 141 ] || return 137
  done
}

# require_safe_root DIRECTORY: fail, and say why, where another user could put something in the place
# of what lies in it.
require_safe_root() {
  local here owner mode
  here=$(readlink -f -- "$1") || return 1
  while :; do
    { read -r owner && read -r mode; } < <(stat --printf='%u\n%a\n' -- "$here") || return 1
    if [ "$owner" != 0 ] && [ "$owner" != "$EUID" ]; then
      echo "$here belongs to user $owner"
      return 1
    fi
    if (((8#$mode & 8#022) && !(8#$mode & 8#1000))); then
      echo "others may rename what is in $here (mode $mode)"
      return 1
    fi
    [ "$here" != / ] || return 0
    here=$(dirname -- "$here")
  done
}

# create_tree DIRECTORY FINISH: unpack an archive beside it, run the script FINISH in it, and rename it
# into place. 45: it is not safe there. 46: FINISH failed, its code and errors follow `rv-finish`.
create_tree() {
  local parent building why code
  parent=$(dirname -- "$1")
  mkdir -p -- "$parent" || return 1
  why=$(require_safe_root "$parent") || { echo "$why"; return 45; }
  building=$(mktemp -d -p "$parent" ".${1##*/}.$(date +%s).XXXXXXXX") || return 1
  # tar itself would read backslashes in the name.
  if ! (cd -- "$building" && tar -xf - --no-same-owner); then
    rm -rf -- "$building"
    return 1
  fi
  if [ -n "$2" ]; then
    why=$(cd -- "$building" && RV_NAME=${1##*/} /bin/bash --noprofile --norc -c "$2" 2>&1 >/dev/null)
    code=$?
    if [ "$code" -ne 0 ]; then
      rm -rf -- "$building"
      printf '\nrv-finish %s %s' "$code" "$why" >&2
      return 46
    fi
  fi
  if ! mv -T -- "$building" "$1"; then
    rm -rf -- "$building"
    return 1
  fi
}

# write_file PATH: replace it by what comes in.
write_file() {
  local new
  new=$(mktemp -p "$(dirname -- "$1")" ".${1##*/}.XXXXXXXX") || return 1
  if ! cat >"$new" || ! mv -T -- "$new" "$1"; then
    rm -f -- "$new"
    return 1
  fi
}

# read_file PATH OFFSET LIMIT: print it, LIMIT bytes at most where that is not negative. 44: none there.
read_file() {
  [ ! -d "$1" ] && exec <"$1" || return 44
  if [ "$3" -lt 0 ]; then tail -c "+$(($2 + 1))"; else tail -c "+$(($2 + 1))" | head -c "$3"; fi 2>/dev/null
  all_lived "${PIPESTATUS[@]}"
}

# read_tree DIRECTORY PATTERN…: print an archive of the files that match.
read_tree() {
  local pattern name
  cd -- "$1" 2>/dev/null || return 0
  shift
  shopt -s nullglob dotglob
  for pattern; do
    # shellcheck disable=SC2231 # the pattern is to be expanded
    for name in $pattern; do [ ! -f "$name" ] || printf '%s\0' "$name"; done
  done | tar -chf - --hard-dereference --no-recursion --null --no-unquote --ignore-failed-read -T - 2>/dev/null
  all_lived "${PIPESTATUS[@]}"
}

# read_new DIRECTORY LIMIT OFFSET/NAME… -- PATTERN…: print what follows its offset in each of the files
# that match, LIMIT bytes in all; before each piece a line, BYTES NAME.
read_new() {
  local left=$2 pattern name size offset names=()
  local -A offsets=()
  cd -- "$1" 2>/dev/null || return 0
  shift 2
  while [ "$1" != -- ]; do
    offsets[${1#*/}]=${1%%/*}
    shift
  done
  shift
  shopt -s nullglob
  for pattern; do
    # Opened, since a network disk may answer from memory otherwise.
    # shellcheck disable=SC2231 # the pattern is to be expanded
    for name in $pattern; do [ -f "$name" ] && { : <"$name"; } 2>/dev/null && names+=("$name"); done
  done
  [ "${#names[@]}" -gt 0 ] || return 0
  stat --printf='%s %n\n' -- "${names[@]}" 2>/dev/null | while read -r size name; do
    offset=${offsets[$name]:-0}
    size=$((size - offset))
    [ "$size" -le "$left" ] || size=$left
    [ "$size" -gt 0 ] || continue
    left=$((left - size))
    printf '%s %s\n' "$size" "$name"
    tail -c "+$((offset + 1))" -- "$name" | head -c "$size"
    all_lived "${PIPESTATUS[@]}" || exit
  done
  all_lived "${PIPESTATUS[@]}"
}

# list_names DIRECTORY: print the names of what is in it, each ended by a NUL.
list_names() { [ -d "$1" ] && find "$1/" -mindepth 1 -maxdepth 1 -printf '%f\0' 2>/dev/null; }

# list_directories DIRECTORY: the same of the user's own directories that are not hidden.
list_directories() {
  [ -d "$1" ] && find "$1/" -mindepth 1 -maxdepth 1 -type d ! -name '.*' -uid "$EUID" ! -perm /022 -printf '%f\0' 2>/dev/null
}

# remove_tree DIRECTORY: delete a directory of the user's own.
remove_tree() { [ ! -d "$1" ] || [ ! -O "$1" ] || [ -L "$1" ] || rm -rf --one-file-system -- "$1" 2>/dev/null; }
