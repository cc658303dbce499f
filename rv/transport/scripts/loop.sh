# Answers requests: each is a line, `SECONDS SCRIPT_BYTES INPUT_BYTES`, then the script and its input.
# An answer is a line, `MARK CODE OUTPUT_BYTES ERROR_BYTES`, then both. Requests come over 4,
# and when that has ended over 3.
# shellcheck shell=bash disable=SC2154 # the sender sets mark, files_bytes and unset_forms
set +e +u
umask 077
# Slurm's commands and bash itself are to see nothing of the user's settings for them.
for rv_name in $(compgen -e); do
  [[ ! $rv_name =~ ^($unset_forms)$ ]] || [ "$rv_name" = SLURM_CONF ] || unset "$rv_name" 2>/dev/null
done
# Jobs get the user's own locale: whoever asks for the environment finds it here.
export RV_LC_ALL=${LC_ALL-}
export LC_ALL=C SLURM_TIME_FORMAT=standard PATH="$PATH:/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin"
rv_folder=$(mktemp -d -p "${XDG_RUNTIME_DIR:-/tmp}" rv.XXXXXXXX 2>/dev/null || mktemp -d) || exit 1
trap 'rm -rf -- "$rv_folder"' EXIT
export RV_FILES=$rv_folder/files.sh
head -c "$files_bytes" <&4 >"$RV_FILES"
printf '\n%s ready\n' "$mark"
rv_serve() {
  local rv_limit rv_script rv_input rv_code rv_out rv_err
  while read -r rv_limit rv_script rv_input <&"$1"; do
    head -c "$rv_script" <&"$1" >"$rv_folder/script" && head -c "$rv_input" <&"$1" >"$rv_folder/in"
    timeout -k 2 "$rv_limit" /bin/bash --noprofile --norc "$rv_folder/script" \
      <"$rv_folder/in" >"$rv_folder/out" 2>"$rv_folder/err" 3<&- 4<&-
    rv_code=$?
    { read -r rv_out && read -r rv_err; } < <(stat -c %s -- "$rv_folder/out" "$rv_folder/err")
    printf '%s %s %s %s\n' "$mark" "$rv_code" "$rv_out" "$rv_err"
    head -c "$rv_out" "$rv_folder/out" && head -c "$rv_err" "$rv_folder/err"
  done
}
rv_serve 4
exec 4<&-
rv_serve 3
