# Code on the cluster: a store with a directory for each tree, named by its hash and never changed.
# Files of more than a megabyte are read-only, and one file for all trees and races; of the others each
# race gets its own copy (rv/race/scripts/copy_code.sh).
# shellcheck shell=bash

# find_tree STORE TREE BASE: say which of the two is there, the tree first, and mark it as used.
find_tree() {
  local name
  mkdir -p -- "$1" || return 1
  require_safe_root "$1" || return 45
  for name in "$2" "$3"; do
    if [ -n "$name" ] && [ -d "$1/$name/files" ]; then
      touch -c -- "$1/$name"
      echo "$name"
      return 0
    fi
  done
}

# receive_tree STORE TREE BASE REMOVED_BYTES: build a tree of BASE (none: of nothing) and what comes in:
# the paths to remove, each ended by a NUL, then an archive of files/, ended by a file `whole`.
receive_tree() {
  local building
  building=$(mktemp -d -p "$1" ".$2.XXXXXXXX") || return 1
  if build_tree "$building" "$1/$3/files" "$3" "$4" && move_tree "$building" "$1/$2"; then
    prune_trees "$1" "$2"
    return 0
  fi
  rm -rf -- "$building"
  return 1
}

# build_tree DIRECTORY BASE_FILES BASE REMOVED_BYTES
build_tree() {
  mkdir -- "$1/files" || return 1
  [ -z "$3" ] || cp -al -- "$2/." "$1/files/" || return 1
  head -c "$4" >"$1/removed" || return 1
  (cd -- "$1/files" && xargs -0 -r rm -f -- <"$1/removed") || return 1
  rm -f -- "$1/removed"
  find "$1/files" -mindepth 1 -depth -type d -empty -delete || return 1
  if ! (cd -- "$1" && tar -xf - --no-same-owner --no-overwrite-dir); then
    head -c 1048576 /dev/zero >"$1/full" # tar does not say why it wrote too little
    return 1
  fi
  [ -e "$1/whole" ] || { echo "the files were cut off" >&2; return 1; }
  rm -f -- "$1/whole"
  find "$1/files" -type f -size +2048 -exec chmod a-w -- {} +
}

# move_tree DIRECTORY TREE: two clients may have built the same at once.
move_tree() {
  if mv -T -- "$1" "$2" 2>/dev/null; then return 0; fi
  [ -d "$2/files" ] && rm -rf -- "$1"
}

# prune_trees STORE NEWEST: remove trees that were not used for a week, and what was cut off.
prune_trees() {
  find "$1" -mindepth 1 -maxdepth 1 -type d -mtime +7 ! -name "$2" -exec rm -rf -- {} +
  find "$1" -mindepth 1 -maxdepth 1 -type d -name '.*' -mmin +2880 -exec rm -rf -- {} +
}

# list_results DIRECTORY PATTERN…: print bytes, time and path of the files that match, and of all
# below the folders that match; of links that are not followed `link` and the path. Each ends with a NUL.
list_results() {
  local IFS='' pattern
  cd -- "$1" || return 1
  shift
  shopt -s globstar nullglob dotglob
  for pattern; do
    list_matches "$pattern" || return 1
  done | sort -zu
}

# list_matches PATTERN: a link is followed where the pattern is its name, not where it also matches others.
list_matches() {
  local path matches paths=() follow=-H pattern=$1
  [ "$1" != . ] || pattern=
  [[ ${pattern##*/} != *[*?[]* ]] || follow=-P
  # shellcheck disable=SC2206 # the pattern is to be expanded
  matches=(./$pattern)
  [ "${matches[*]}" = "./$pattern" ] || matches+=("./$pattern") # a name may look like a pattern
  for path in "${matches[@]}"; do
    [ ! -e "$path" ] && [ ! -L "$path" ] || paths+=("$path")
  done
  [ "${#paths[@]}" -gt 0 ] || return 0
  # shellcheck disable=SC2016 # the inner shell's
  printf '%s\0' "${paths[@]}" | xargs -0 bash -c 'find "$0" "$@" -ignore_readdir_race \
    -type f -printf "%s %T@ %p\0" -o -type l -printf "link %p\0"' "$follow"
}

# send_results DIRECTORY BYTES: print an archive of the files whose names come in, each ended by a NUL;
# all names are read first, since nobody reads the archive before. Links among them were followed.
# shellcheck disable=SC2094 # it is written to its end, and then read
send_results() {
  local names
  names=$(mktemp) || return 1
  {
    rm -f -- "$names"
    head -c "$2" >&3 && cd -- "$1" &&
      tar --null --no-recursion --no-unquote --dereference --hard-dereference -T - -cf - <&4
  } 3>"$names" 4<"$names"
}
