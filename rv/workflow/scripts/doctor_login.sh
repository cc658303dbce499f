# What races need of a login node: a record for each fact, KEY, a tab, VALUE, ended by a NUL.
# The sender sets race_root. Nothing of it stays there.
# shellcheck shell=bash disable=SC2154

say() { printf '%s\t%s\0' "$1" "$2"; }

say clock "$(date +%s.%N)"

# What a login shell or the user's own prints breaks rsync and scp, and may break more.
say noise "$({ timeout 10 bash --login -c true; env -u SHLVL timeout 10 "${SHELL:-/bin/sh}" -c true; } 2>/dev/null </dev/null | head -n 3)"

missing=
for name in sbatch squeue scancel scontrol sacct sacctmgr srun; do
  command -v "$name" >/dev/null || missing="$missing $name"
done
say missing "${missing# }"
if version=$(timeout 10 sbatch --version 2>&1); then say version "$version"; else say broken "sbatch: ${version##*$'\n'}"; fi

if said=$(timeout 10 sacct -X -n -S now-1minute -o JobID 2>&1); then say sacct yes; else say sacct "${said##*$'\n'}"; fi

# The deepest folder of the race root that is there: what is made below it is removed again.
above=$race_root
while [ ! -d "$above" ] && [ "$above" != / ]; do above=$(dirname -- "$above"); done
say above "$above"
say free "$(df -P -k -- "$above" | awk 'NR == 2 { print $4 }')"
say inodes "$(df -P -i -- "$above" | awk 'NR == 2 { print $4 }')"
if command -v quota >/dev/null; then say quota "$(timeout 10 quota -q 2>/dev/null | grep -v '^$' | head -n 1)"; fi

if version=$(timeout 10 python3 --version 2>/dev/null); then say python3 "$version"; fi
for name in tmux abduco; do
  if timeout 5 "$name" "$([ "$name" = tmux ] && echo -V || echo -v)" >/dev/null 2>&1; then say keeper "$name"; fi
done
