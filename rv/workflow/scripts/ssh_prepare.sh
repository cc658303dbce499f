# Makes what an sshd in a step of a race needs, and prints its public host key. The sender sets
# directory (the race's), key (who may log in), config and shell (files to write).
# shellcheck shell=bash disable=SC2154
umask 077
cd "$directory" && [ -O . ] && mkdir -p ssh && cd ssh || exit 1
if [ ! -e host_key ]; then
  command -v ssh-keygen >/dev/null || { echo 'the login node has no ssh-keygen' >&2; exit 1; }
  new=new.$$.$RANDOM
  ssh-keygen -q -t ed25519 -N '' -C rv -f "$new" || exit 1
  # Two logins at once agree on one key: a link is made once.
  ln -T "$new" host_key 2>/dev/null
  rm -f "$new" "$new.pub"
fi
[ -e authorized_keys ] && grep -qxF -e "$key" authorized_keys || printf '%s\n' "$key" >>authorized_keys
for name in config shell; do
  printf '%s' "${!name}" >".$name.$$" && mv -T ".$name.$$" "$name" || exit 1
done
ssh-keygen -y -f host_key
