# Runs an sshd for one connection, its standard input and output, in a step of a race's job. The
# sender sets directory. What the step has of its job, sshd would not hand on: it is written down.
# shellcheck shell=bash disable=SC2154
umask 077
cd "$directory/ssh" && [ -O . ] || exit 1
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
sshd=$(type -P sshd) || { echo "node $SLURMD_NODENAME has no sshd" >&2; exit 127; }
env -0 | grep -z -E '^(SLURM|CUDA_|NVIDIA_|ROCR_|HIP_|ZE_|GPU_|TMPDIR=)' >".step.$$"
mv -T ".step.$$" "step.$SLURMD_NODENAME" || exit 1
for sftp in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec; do
  [ ! -x "$sftp/sftp-server" ] || break
done
printf -v shell 'exec /bin/bash %q %q' "$directory/ssh/shell" "$SLURMD_NODENAME"
exec "$sshd" -i -e -f "$directory/ssh/config" -o "ForceCommand=$shell" \
  -o "Subsystem=sftp $sftp/sftp-server"
