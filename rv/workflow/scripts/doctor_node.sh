#!/bin/bash
#SBATCH --no-requeue
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null
# Whether this node is what races need: the answer goes to the folder that the login node made.
# The sender writes folder, nonce, job_name, path and options before this.
# shellcheck disable=SC2154
unset SLURM_EXPORT_ENV LC_ALL LD_LIBRARY_PATH
umask 077
PATH=$path
cd -- "$folder" 2>/dev/null && [ "$(cat nonce)" = "$nonce" ] || exit 3

say() { printf '%s\t%s\0' "$1" "$2"; }

submission() {
  local id
  # A held job never starts, and goes at once.
  id=$(cd / && timeout 20 sbatch --parsable --hold --time=1 "${options[@]}" -J "$job_name" -o /dev/null --wrap true 2>"$folder/said") || {
    tail -n 1 "$folder/said"
    return
  }
  id=${id%%;*}
  timeout 20 scancel "${id##*$'\n'}" 2>"$folder/said" || { tail -n 1 "$folder/said"; return; }
  echo yes
}

{
  say node "${SLURMD_NODENAME:-$HOSTNAME}"
  say clock "$(date +%s.%N)"
  say submits "$(submission)"
  if version=$(timeout 10 python3 --version 2>/dev/null); then say python3 "$version"; fi
  if timeout 20 python3 -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' 2>/dev/null; then
    say torch yes
  fi
} >.answer 2>/dev/null
mv -T .answer answer
