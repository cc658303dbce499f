# A race's own copy of its code. Large files, which are read-only, are not copied but linked.
# shellcheck shell=bash

# copy_tree STORE TREE COPY
copy_tree() {
  local files=$1/$2/files copy=$3
  [ -d "$files" ] || { echo "the code is no longer there: $files" >&2; return 1; }
  mkdir -- "$copy" && cd -- "$files" || return 1
  (set -o pipefail
    find . ! -type f -print0 -o -type f ! -size +2048 -print0 |
      tar --null --no-recursion --no-unquote -T - -cf - | tar -xf - --no-same-owner -C "$copy") || return 1
  find . -type f -size +2048 -print0 | xargs -0 -r cp -l --parents -t "$copy" -- || return 1
}
