# Answers requests: those of rv_first, a limit in seconds and a script each, and then what comes over 43:
# a line, `SECONDS SCRIPT_BYTES INPUT_BYTES`, then the script and its input.
# An answer is a line, `MARK CODE OUTPUT_BYTES ERROR_BYTES`, then both.
# shellcheck shell=bash disable=SC2154 # the sender sets mark, rv_first, rv_operations and least_bytes
umask 077
# Jobs get the user's own locale: whoever asks for the environment finds it here.
export RV_LC_ALL=${LC_ALL-}
export LC_ALL=C SLURM_TIME_FORMAT=standard
rv_folder=
for rv_base in "${XDG_RUNTIME_DIR:-/tmp}" /tmp "$HOME"; do
  rv_folder=$(mktemp -d -p "$rv_base" .rv.XXXXXXXX 2>/dev/null) || continue
  export RV_FILES=$rv_folder/files.sh
  { printf %s "$rv_operations" >"$RV_FILES" && printf "%${least_bytes}s" "" >"$rv_folder/room"; } 2>/dev/null && break
  rm -rf -- "$rv_folder"
  rv_folder=
done
if [ -z "$rv_folder" ]; then
  printf '\n%s no room for temporary files, neither in %s nor in %s\n' "$mark" "${XDG_RUNTIME_DIR:-/tmp}" "$HOME"
  exit 1
fi
trap 'rm -rf -- "$rv_folder"' EXIT
: >"$rv_folder/room"

# rv_sizes NAME NAME: print the sizes of two files.
rv_sizes() { stat --printf '%s ' -- "$rv_folder/$1" "$rv_folder/$2"; }

# rv_pass BYTES: pass so many on; most scripts have no input, and most answers no errors.
rv_pass() { [ "$1" -eq 0 ] || head -c "$1"; }

# rv_fail TEXT: answer that there is no answer.
rv_fail() { printf '%s 256 0 %s\n%s' "$mark" "${#1}" "$1"; }

# rv_answer LIMIT: run the script that lies in the folder, and answer.
rv_answer() {
  local rv_code rv_out rv_err
  timeout -k 2 "$1" /bin/bash --noprofile --norc "$rv_folder/script" \
    <"$rv_folder/in" >"$rv_folder/out" 2>"$rv_folder/err" 43<&-
  rv_code=$?
  read -r rv_out rv_err < <(rv_sizes out err)
  if ! printf . 2>/dev/null >"$rv_folder/room"; then
    rv_fail "there was no room for an answer in $rv_folder"
    return
  fi
  printf '%s %s %s %s\n' "$mark" "$rv_code" "$rv_out" "$rv_err"
  rv_pass "$rv_out" <"$rv_folder/out" && rv_pass "$rv_err" <"$rv_folder/err"
}

# rv_end_incomplete: what came in part may mean anything. It is not run, and what follows it cannot be
# told apart.
rv_end_incomplete() {
  rv_fail "what was sent did not arrive whole: is there no room in $rv_folder?"
  exit 1
}

printf '\n%s ready\n' "$mark"
exec 44<&-
for ((rv_number = 0; rv_number < ${#rv_first[@]}; rv_number += 2)); do
  { printf %s "${rv_first[rv_number + 1]}" >"$rv_folder/script" && : >"$rv_folder/in"; } 2>/dev/null || rv_end_incomplete
  IFS= read -r -d '' rv_script <"$rv_folder/script"
  [ "$rv_script" = "${rv_first[rv_number + 1]}" ] || rv_end_incomplete
  rv_answer "${rv_first[rv_number]}"
done
# Without a limit a TMOUT of the user's would count: it waits for as long as rv does nothing.
while read -r -t 100000000 rv_limit rv_script rv_input <&43; do
  rv_pass "$rv_script" <&43 >"$rv_folder/script" && rv_pass "$rv_input" <&43 >"$rv_folder/in"
  [ "$(rv_sizes script in)" = "$rv_script $rv_input " ] || rv_end_incomplete
  rv_answer "$rv_limit"
done
