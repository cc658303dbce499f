# What rv runs on a login node has the environment of a login, but for what is set here.
# shellcheck shell=bash disable=SC2154 # the sender sets unset_forms
# Slurm's commands and bash itself are to see nothing of the user's settings for them.
for rv_name in $(compgen -e); do
  [[ ! $rv_name =~ ^($unset_forms)$ ]] || [ "$rv_name" = SLURM_CONF ] || unset "$rv_name" 2>/dev/null
done
export PATH="$PATH:/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin"
