#!/bin/bash
#SBATCH --job-name="rv-abcd2345-1"
#SBATCH --comment="rv abcd2345 night-run"
#SBATCH --partition="gpu-a100"
#SBATCH --time=04:00:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=131072M
#SBATCH --gres="gpu:a100:4"
#SBATCH --signal=B:USR1@120
#SBATCH --chdir="/home/ada/.local/state/rv/races/abcd2345"
#SBATCH --output="/home/ada/.local/state/rv/races/abcd2345/jobs/1.log"
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --export=NONE
# rv race abcd2345, submission 1: a100-80/1x4/gpu-a100/checkpoint
# What this job does, step by step; each step below bears its number and name.
#   1. Find the segment to run
#   2. Check every node
#   3. Reject a node that failed the check
#   4. Load the user's environment
#   5. Claim the segment
#   6. Wait for an earlier instance to stop
#   7. Export the command's variables
#   8. Run the command
#   9. End leftover processes
#   10. Write how the segment ended
#   11. Send the next segment
unset SLURM_EXPORT_ENV LC_ALL LD_LIBRARY_PATH
umask 077
PATH=${PATH:+$PATH:}/usr/bin:/usr/local/bin:/usr/bin:/bin
RV_NODE_PATH=$PATH
RV_RACE=abcd2345
RV_RACE_DIR=/home/ada/.local/state/rv/races/abcd2345
RV_STRATEGY=a100-80/1x4/gpu-a100/checkpoint
RV_RANK=1
read -r rv_token </proc/sys/kernel/random/uuid
RV_ME=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.${rv_token%%-*}
export RV_RACE RV_RACE_DIR RV_STRATEGY RV_ME

rv_say() { printf 'rv: %s\n' "$*"; }

# Slurm's commands, without what the user's environment holds for the user's programs.
rv_slurm() { env -u LD_PRELOAD -u LD_LIBRARY_PATH PATH="$RV_NODE_PATH" LC_ALL=C "$@"; }

# Goes to the race directory, which whoever may rename a folder above it could have replaced.
rv_enter() { cd "$RV_RACE_DIR" && [ -O . ]; }

# Writes a state file, whole or not at all: other nodes may read it at any moment.
rv_state_file() {
  printf '%s\n' "$2" >"$RV_RACE_DIR/.mark.$RV_ME.$SLURMD_NODENAME" &&
    mv -T "$RV_RACE_DIR/.mark.$RV_ME.$SLURMD_NODENAME" "$RV_RACE_DIR/$1"
}

# Whether a file is there: it is opened, since a network disk may answer from memory otherwise.
rv_exists() { { : <"$RV_RACE_DIR/$1"; } 2>/dev/null; }

# Every other job of these names; never one by its recorded id, for Slurm gives ids out again.
rv_cancel() {
  rv_slurm squeue -h -a -u "$SLURM_JOB_USER" --name="$1" -o %A 2>/dev/null | grep -vx -e "$SLURM_JOB_ID" -e '' | {
    mapfile -t ids
    [ "${#ids[@]}" -eq 0 ] || rv_slurm scancel -Q "${ids[@]}" 2>/dev/null
  }
}
rv_cancel_others() { rv_cancel rv-abcd2345-1,rv-abcd2345-2,rv-abcd2345-3; }

# Repeats the update until the hold that Slurm puts on a requeued job (120 s) is gone.
rv_lift_hold() {
  local job=$1 excluded=$2 restart=$3 shown released=''
  trap '' TERM HUP INT
  for _ in {1..40}; do
    shown=$(rv_slurm scontrol show job -o "$job" 2>/dev/null)
    case $shown in
      *JobState=PENDING*Reason=BeginTime*" Restarts=$((restart + 1)) "*)
        rv_slurm scontrol update jobid="$job" excnodelist="$excluded"
        sleep 2
        rv_slurm scontrol update jobid="$job" starttime=now && released=yes ;;
      *JobState=RUNNING*" Restarts=$restart "* | *JobState=COMPLETING* | *JobState=REQUEUED*)
        rv_slurm scontrol update jobid="$job" excnodelist="$excluded" ;;
      *JobState=PENDING*) [ -z "$released" ] || break ;;
      '') ;;
      *) break ;;
    esac
    sleep 0.2
  done
}

# Leaves these nodes, but stays in the race: a job that merely exited would free the bad node, and
# the next job of the race would get it.
rv_leave_node() {
  local node left=0 excluded='' nodes=(a100n1 a100n2)
  for node in "${nodes[@]}"; do
    rv_exists "declined/$node" || left=$((left + 1))
  done
  for node in "$RV_RACE_DIR"/declined/*; do
    [ ! -e "$node" ] || excluded=${excluded:+$excluded,}${node##*/}
  done
  [ -z "$2" ] || excluded=${excluded:+$excluded,}$2
  rv_say "node rejected: $1"
  rm -f "$RV_RACE_DIR/turns/$RV_RANK"
  ! rv_exists stop || exit 0
  if [ "$left" -lt 1 ] || [ "${SLURM_RESTART_COUNT:-0}" -gt 500 ]; then
    rv_state_file exhausted/1 "no node is left: $1" || exit 1
    exit 0
  fi
  trap '' TERM
  if command -v scontrol >/dev/null; then
    export -f rv_lift_hold rv_slurm
    export RV_NODE_PATH
    setsid bash -c 'rv_lift_hold "$@"' rv-lift-hold "$SLURM_JOB_ID" "$excluded" "${SLURM_RESTART_COUNT:-0}" </dev/null >/dev/null 2>&1 &
    rv_slurm scontrol requeue "$SLURM_JOB_ID" && exit 0
  fi
  rv_state_file again/1 "$excluded"$'\n'"$SLURM_JOB_ID" || exit 1
  exit 0
}

rv_reject_node() {
  rv_state_file "declined/$SLURMD_NODENAME" "$1"
  rv_leave_node "$SLURMD_NODENAME: $1"
}

# Fails, with a state file that says why, on a node that does not hold what was promised.
rv_check_node() {
  reject() {
    rv_state_file "declined/$SLURMD_NODENAME" "$1"
    exit 9
  }
  nonce=''
  read -r nonce 2>/dev/null <"$RV_RACE_DIR/nonce"
  [ "$nonce" = 0123456789abcdef0123456789abcdef ] || reject "its race directory is not the shared one"
  command -v nvidia-smi >/dev/null || exit 0
  rows=$(timeout -k 1 15 nvidia-smi --query-gpu=index,uuid,memory.used,memory.total,utilization.gpu,power.draw,temperature.gpu,name --format=csv,noheader,nounits 2>&1)
  case $? in
    0) ;;
    124 | 137) reject "nvidia-smi does not answer" ;;
    *) reject "nvidia-smi failed: $(tail -n 1 <<<"$rows" | cut -c1-160)" ;;
  esac
  count_gpus() {
    local row
    count=0
    while read -r row; do [[ $row != *,* ]] || count=$((count + 1)); done <<<"$rows"
  }
  is_named() {
    local code
    shopt -s nocasematch
    [[ $name =~ $1 ]]
    code=$?
    shopt -u nocasematch
    return "$code"
  }
  count_gpus
  if [ "$count" -gt 4 ] && [[ $CUDA_VISIBLE_DEVICES =~ ^[0-9,]+$ ]]; then
    rows=$(grep -E "^ *(${CUDA_VISIBLE_DEVICES//,/|}) *," <<<"$rows")
    count_gpus
  fi
  [ "$count" -ge 4 ] || reject "only $count of 4 GPUs are there"
  promised=a100-80
  while IFS=, read -r index _ _ memory _ _ _ name; do
    memory=${memory//[!0-9]/}
    [ "${memory:-81920}" -ge 73728 ] || reject "GPU $index is a$name with $memory MiB; 81920 MiB were promised"
    is_named 'A100.*80' || rv_state_file "warnings/$SLURMD_NODENAME" "GPU $index is a$name; $promised was promised"
  done <<<"$rows"
  # Is anybody else on these GPUs? Where no context can be, nobody is asked for.
  is_in_use=''
  while IFS=, read -r _ _ used _; do
    [[ $used =~ ^\ *([0-9]{1,9})\ *$ ]] && [ "${BASH_REMATCH[1]}" -lt 64 ] || is_in_use=yes
  done <<<"$rows"
  if [ "$count" -eq 4 ] && [ -n "$is_in_use" ]; then
    processes=$(timeout -k 1 4 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name --format=csv,noheader,nounits 2>/dev/null)
    advice="--allow-busy-gpus takes it all the same"
    while IFS=, read -r index uuid used _ busy _ && [[ $processes != *nvidia-cuda-mps* ]]; do
      [[ $busy =~ [0-9] ]] || continue
      while IFS=, read -r of pid memory program; do
        pid=${pid//[!0-9]/}
        [ "$of" = "${uuid# }" ] && user=$(stat -c %U "/proc/${pid:-none}" 2>/dev/null) || continue
        grep -Eqs "/job_$SLURM_JOB_ID(/|\$)" "/proc/$pid/cgroup" && continue
        program=${program//[![:print:]]/?}
        reject "GPU $index is in use:${program:0:60} of $user (process $pid,$memory MiB; GPU$busy % busy); $advice"
      done <<<"$processes"
      used=${used//[!0-9]/}
      [ "${used:-0}" -le 1024 ] || reject "GPU $index has $used MiB in use by nobody who can be seen (GPU$busy % busy); $advice"
    done <<<"$rows"
  fi
  exit 0
}
export -f rv_check_node rv_state_file

# 1. Find the segment to run
# segments/K names the instance that runs segment K, segments/K.ended says how it went. A segment is begun once, by whoever links its name first.
# No command substitution from here on: a signal that comes while one runs takes its output away.
# One field of a state file, in rv_value.
rv_field() {
  local key value
  rv_value=''
  while IFS='=' read -r key value; do
    if [ "$key" = "$2" ]; then rv_value=$value; break; fi
  done 2>/dev/null <"$1"
}

# Seconds since the epoch, in rv_now; bash has parts of them from 5.0 on, as the locale writes them.
rv_clock() {
  printf -v rv_now '%(%s)T' -1
  [ -z "${EPOCHREALTIME-}" ] || rv_now=${EPOCHREALTIME/,/.}
}

# Whether a folder holds a checkpoint that is newer than a file. It may be a link to a larger disk.
rv_is_fresh() { find -L "$1" -type f ! -name '.rv-*' -newer "$2" -print -quit 2>/dev/null | grep -q .; }

# Whether Slurm says that a job was cancelled: the controller for some minutes, accounting for longer.
rv_was_cancelled() {
  rv_slurm timeout 30 scontrol show job -o "$1" >".before.$RV_ME" 2>/dev/null ||
    rv_slurm timeout 30 sacct -X -n -P -j "$1" -o WorkDir,State >".before.$RV_ME" 2>/dev/null
  rv_own <".before.$RV_ME" | grep -q -e ' JobState=CANCELLED ' -e '|CANCELLED'
}

# The lines of this race's jobs: Slurm gives ids out again, and a user may rename a job.
rv_own() { grep -F -e " WorkDir=$RV_RACE_DIR " -e "$RV_RACE_DIR|"; }

# Waits while a job of this race still runs.
rv_wait_for() {
  while rv_slurm timeout 30 scontrol show job -o "$1" 2>/dev/null | rv_own | grep -q ' JobState=\(RUNNING\|SUSPENDED\) '; do
    rv_say "job $1 still runs the segment before: waiting"
    sleep 5
  done
}

rv_signalled=''
trap 'rv_signalled=${rv_signalled:-$SECONDS}' USR1
cd "$RV_RACE_DIR" || rv_leave_node "$SLURMD_NODENAME: no race directory" "$SLURMD_NODENAME"
[ -O . ] || { rv_say "$RV_RACE_DIR is another user's"; exit 1; }
[ ! -e stop ] && [ ! -e ended ] || exit 0
if [ -L checkpoints ] && [ ! -d checkpoints ]; then
  rv_leave_node "$SLURMD_NODENAME: checkpoints leads to a folder that is not there" "$SLURMD_NODENAME"
fi
rv_last=0
for rv_file in segments/*; do
  rv_number=${rv_file#segments/}
  [[ $rv_number =~ ^[0-9]+$ ]] && [ "$rv_number" -gt "$rv_last" ] && rv_last=$rv_number
done
rv_owner='' rv_before=''
[ "$rv_last" -eq 0 ] || read -r rv_owner <"segments/$rv_last"
RV_SEGMENT=$((rv_last + 1))
if [ "$rv_last" -gt 0 ]; then
  case $rv_owner in
    "${1:-none}".*) [ -s "segments/$rv_last.ended" ] || rv_wait_for "$1" ;;
  esac
  if [ -s "segments/$rv_last.ended" ]; then
    rv_field "segments/$rv_last.ended" next
    if [ "$rv_value" != again ]; then
      [ -z "$rv_value" ] || ln -T "segments/$rv_last.ended" ended 2>/dev/null
      exit 0
    fi
  else
    rv_before=$rv_owner
    case $rv_owner in
      "$SLURM_JOB_ID".*) RV_SEGMENT=$rv_last ;;
      "${1:-none}".*) ;;
      *) exit 0 ;;
    esac
  fi
fi
case $rv_owner in
  "${1:-none}".*)
    if rv_was_cancelled "$1"; then
      rv_say "job $1 was cancelled: this segment does not begin"
      rv_clock
      rv_field "segments/$rv_last.ended" ended
      printf '%s\n' "$rv_owner" code=143 signal=TERM next=stopped "ended=${rv_value:-$rv_now}" >".ended.$RV_ME" && mv -T ".ended.$RV_ME" ended
      exit 0
    fi
    ;;
esac

# 2. Check every node
rv_state_file "turns/$RV_RANK" checking 2>/dev/null
timeout -k 2 20 bash -c rv_check_node </dev/null
rv_check_code=$?
[ "$rv_check_code" -lt 124 ] || rv_state_file "declined/$SLURMD_NODENAME" "the node check did not end within 20 s"

# 3. Reject a node that failed the check
! rv_exists "declined/$SLURMD_NODENAME" || rv_leave_node "$SLURMD_NODENAME: $(cat "declined/$SLURMD_NODENAME")"
[ "$rv_check_code" -eq 0 ] || rv_reject_node "the node check ended with code $rv_check_code"

# 4. Load the user's environment
# And whatever else can fail before the command starts.
unset OMP_NUM_THREADS
while IFS= read -r -d '' rv_pair; do export "${rv_pair?}"; done <environment || rv_reject_node "the environment file cannot be read"
PATH=$PATH:$RV_NODE_PATH
cd /home/ada/project 2>/dev/null || rv_reject_node 'no directory /home/ada/project on this node'
rv_enter || exit 1
{ : >>output/node0.out && : >>output/node0.err; } || { rv_say "the output cannot be written"; exit 1; }

rv_cause=''
trap 'rv_cause=TERM' TERM

# Before the claim: a job of a better strategy that is at this step too goes first. It is waited for,
# a second while it checks its node and another while it is about to claim; alone nothing waits.
rv_wait_for_better() {
  local turn state better tick
  rv_state_file "turns/$RV_RANK" ready 2>/dev/null
  for tick in {1..18}; do
    better=''
    for turn in turns/*; do
      [[ ${turn#turns/} =~ ^[0-9]+$ ]] && [ "${turn#turns/}" -lt "$RV_RANK" ] || continue
      state=''
      read -r state 2>/dev/null <"$turn"
      case $state in
        ready) better=ready && break ;;
        checking) better=checking ;;
      esac
    done
    [ -n "$better" ] && ! rv_exists claim || return 0
    [ "$better" = ready ] || [ "$tick" -le 9 ] || return 0
    sleep 0.1
  done
}
[ "$rv_last" -gt 0 ] || rv_wait_for_better
# 5. Claim the segment
# By a hard link, made once; a newer restart of the same job replaces it.
RV_TOTAL_ELAPSED=0
rv_fruitless=0
if [ "$rv_last" -gt 0 ]; then
  rv_field "segments/$rv_last" started
  rv_started=$rv_value
  rv_field "segments/$rv_last.ended" ended
  rv_until=$rv_value
  if [ -z "$rv_until" ]; then
    {
      find "claims/$rv_owner" -printf '%T@\n'
      find -L checkpoints -type f ! -name '.rv-*' -printf '%T@\n' | sort -n | tail -n 1
    } >".until.$RV_ME" 2>/dev/null
    { read -r rv_started; read -r rv_until; } <".until.$RV_ME"
    rv_until=${rv_until:-$rv_started}
  fi
  rv_ran=$((${rv_until%%.*} - ${rv_started%%.*}))
  [ "$rv_ran" -gt 0 ] || rv_ran=0
  rv_field "segments/$rv_last" elapsed
  RV_TOTAL_ELAPSED=$((rv_value + rv_ran))
  rv_field "segments/$rv_last" fruitless
  rv_is_fresh checkpoints "claims/$rv_owner" || rv_fruitless=$((rv_value + 1))
fi
export RV_SEGMENT RV_TOTAL_ELAPSED
rv_clock
case $SLURM_JOB_NAME in
  "rv-$RV_RACE-"*) rv_name=$SLURM_JOB_NAME ;;
  *) if [ "$rv_last" -gt 0 ]; then rv_name=rv-abcd2345-next; else rv_name=rv-abcd2345-1; fi ;;
esac
printf '%s\n' "$RV_ME" submission=1 "nodes=$SLURM_JOB_NODELIST" "host=$SLURMD_NODENAME" "started=$rv_now" "segment=$RV_SEGMENT" "elapsed=$RV_TOTAL_ELAPSED" total=43200 "fruitless=$rv_fruitless" "name=$rv_name" "strategy=$RV_STRATEGY" "whole" >"claims/$RV_ME"
rv_whole=''
sync "claims/$RV_ME" && mapfile -t rv_lines <"claims/$RV_ME" && rv_whole=${rv_lines[*]: -1}
[ -z "$rv_cause" ] || exit 1
! rv_exists stop || exit 0
[ "$rv_whole" = whole ] || { rv_say "the claim cannot be written"; exit 1; }
if [ "$RV_SEGMENT" -eq "$rv_last" ]; then
  [ ! -e ended ] && [ ! -s "segments/$RV_SEGMENT.ended" ] || exit 0
  ln -T "claims/$RV_ME" ".segment.$RV_ME" 2>/dev/null
  mv -T ".segment.$RV_ME" "segments/$RV_SEGMENT"
else
  ln -T "claims/$RV_ME" "segments/$RV_SEGMENT" 2>/dev/null
fi
rv_owner=''
read -r rv_owner 2>/dev/null <"segments/$RV_SEGMENT"
[ "$rv_owner" = "$RV_ME" ] || exit 0
ln -T "claims/$RV_ME" ".claim.$RV_ME" 2>/dev/null
mv -T ".claim.$RV_ME" claim || exit 1

# 6. Wait for an earlier instance to stop
# Slurm may run this job again: its command can resume. An earlier instance that still runs stops its
# command when it sees this claim.
[ -z "$rv_before" ] || sleep 15
if rv_exists stop; then
  printf -v rv_now '%(%s)T' -1
  rv_state_file ended "$RV_ME"$'\n'code=143$'\n'signal=STOP$'\n'"ended=$rv_now"
  exit 0
fi

# 7. Export the command's variables
# What every command finds in its environment; the layout comes from the strategy.
export RV_SUBMISSION=1 RV_GPU=a100-80 RV_GPUS=4 RV_WORLD_SIZE=4
export RV_OUTPUT_DIR=$RV_RACE_DIR/results RV_CHECKPOINT_DIR=$RV_RACE_DIR/checkpoints
# What the user has set stays.
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}" TOKENIZERS_PARALLELISM="${TOKENIZERS_PARALLELISM-false}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS-8}"
# Caches go to scratch where there is one: they fill home quotas.
for rv_scratch in "$SCRATCH" "/scratch/$SLURM_JOB_USER"; do
  [ -n "$rv_scratch" ] && [ -d "$rv_scratch" ] && [ -w "$rv_scratch" ] || continue
  rv_cache=$rv_scratch/.cache
  export HF_HOME="${HF_HOME:-$rv_cache/huggingface}" VLLM_CACHE_ROOT="${VLLM_CACHE_ROOT:-$rv_cache/vllm}" TORCH_HOME="${TORCH_HOME:-$rv_cache/torch}"
  export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$rv_cache/triton}" UV_CACHE_DIR="${UV_CACHE_DIR:-$rv_cache/uv}" PIP_CACHE_DIR="${PIP_CACHE_DIR:-$rv_cache/pip}" WANDB_CACHE_DIR="${WANDB_CACHE_DIR:-$rv_cache/wandb}"
  break
done
rv_cluster=$(printf '%s\n' "$SLURM_CLUSTER_NAME $SLURM_CONF" | cksum)
rv_cluster=${rv_cluster%% *}
MASTER_PORT=$((15000 + ((SLURM_JOB_ID + ${rv_cluster:-0}) * 7 + ${SLURM_RESTART_COUNT:-0}) % 16000))
while (: <"/dev/tcp/127.0.0.1/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done
export MASTER_PORT PET_MASTER_PORT=$MASTER_PORT NNODES=1 PET_NNODES=1 PET_NPROC_PER_NODE=4
export NODE_RANK=0 PET_NODE_RANK=0 MASTER_ADDR=127.0.0.1 PET_MASTER_ADDR=127.0.0.1
RV_PYTHON=$(command -v python || command -v python3 || echo python3)
export RV_PYTHON
export RV_COMMAND='python train.py'
export RV_UMASK=${RV_UMASK:-0022}
rv_save_code='exec 3>&2 2>/dev/null; trap : TERM; (umask "$RV_UMASK"; exec "$@") 2>&3 3>&-; code=$?; echo "$code" >"$RV_RACE_DIR/.code.$RV_ME"; exit "$code"'

# The chain: when the time of this job runs out, the next one goes on from the last checkpoint.
rv_checkpoints=$RV_CHECKPOINT_DIR
mkdir -p "$rv_checkpoints"
rm -f "$rv_checkpoints/.rv-stop" "$rv_checkpoints/.rv-next"
# Where in the output this segment begins: all of them write to the same files.
if ! rv_exists "segments/$RV_SEGMENT.output"; then
  stat --printf='%s %n\n' output/node* >".output.$RV_ME" 2>/dev/null
  mv -T ".output.$RV_ME" "segments/$RV_SEGMENT.output"
fi

# Signals the processes of the command on this node that catch the signal: it would kill others,
# such as torchrun's agent, whose ranks would go on without it. srun passes it on to all of them.
rv_signal_catching() {
  local pid key value name caught
  grep -lsz "^RV_INSTANCE=$RV_RACE.$RV_ME\$" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
    name='' caught=0
    while read -r key value; do
      case $key in Name:) name=$value ;; SigCgt:) caught=$value ;; esac
    done 2>/dev/null <"/proc/$pid/status"
    if [ "$name" != srun ] && (((0x$caught >> 9) & 1)); then
      kill -USR1 "$pid" 2>/dev/null
    fi
  done
  return 0
}

# Looks for the job that waits for this one to end, its id in rv_id; cancels others of that name:
# they were sent for an earlier segment, and would begin at any time.
rv_find_next() {
  local file=.next.$RV_ME.$BASHPID id waits_for
  rv_id=''
  rv_slurm squeue -h -a -u "$SLURM_JOB_USER" -t PD --name=rv-abcd2345-next -o '%A %E' >"$file" 2>/dev/null
  while read -r id waits_for; do
    if [[ $waits_for =~ ^afterany:$SLURM_JOB_ID([^0-9]|$) ]]; then
      rv_id=$id
    elif [ "$id" != "$SLURM_JOB_ID" ]; then
      rv_slurm scancel -Q "$id" 2>/dev/null </dev/null
    fi
  done <"$file"
  rm -f "$file"
}

# Sends the job of the next segment, which waits for this one to end.
rv_send_next() {
  local rv_id _
  for _ in 1 2 3; do
    [ ! -e stop ] || return 0
    rv_find_next
    [ -n "$rv_id" ] || rv_send 1 43200 14400 120
    if [ -n "$rv_id" ]; then
      echo "$rv_id" >>jobs/0.id
      rv_state_file "segments/$RV_SEGMENT.next" "$rv_id"
      return 0
    fi
    sleep 2
  done
  return 1
}

# Sends one job for the next segment, its id in rv_id: the script of a submission, the seconds that
# the command takes as a whole there and that its job had, and those before the end in which it saves.
rv_send() {
  local line
  rv_id=''
  rv_next_minutes "$2" "$3" "$4"
  rv_copy_script "$1" && mv -T "jobs/.next.$RV_ME" jobs/0.sh
  rv_slurm timeout 30 sbatch --parsable --job-name=rv-abcd2345-next --dependency="afterany:$SLURM_JOB_ID" --time="$rv_minutes" jobs/0.sh "$SLURM_JOB_ID" >".next.$RV_ME" 2>"segments/$RV_SEGMENT.err" </dev/null
  while read -r line; do [[ ! $line =~ ^([0-9]+)(\;.*)?$ ]] || rv_id=${BASH_REMATCH[1]}; done <".next.$RV_ME"
}

# Copies a submission's script. What its first job waited for is over: `--begin=22:00` would mean each
# night.
rv_copy_script() { sed -e '1,/^[^#]/{/^#SBATCH --begin=/d;/^#SBATCH --hold$/d;}' "jobs/$1.sh" >"jobs/.next.$RV_ME"; }

# Minutes to ask for, in rv_minutes: what is left of the whole time, and no more than the job had.
rv_next_minutes() {
  rv_elapsed
  local left=$(($1 - rv_spent * $1 / 43200 + $3 + 60))
  [ "$left" -lt "$2" ] || left=$2
  rv_minutes=$(((left + 59) / 60))
}

# Seconds that the command has run in all segments, in rv_spent.
rv_elapsed() { rv_spent=$((RV_TOTAL_ELAPSED + SECONDS - rv_begun)); }

rv_cancel_next() { rv_cancel rv-abcd2345-next; }

rv_out_of_time() {
  rv_signalled=$SECONDS
  rv_say "segment $RV_SEGMENT: time to checkpoint"
  : >"$rv_checkpoints/.rv-stop"
  rv_send_next &
  rv_sender=$!
  rv_signal_catching
  (
    timeout 90 tail --pid=$$ -f /dev/null
    [ $? -eq 124 ] || exit
    kill -TERM -- "-$rv_pid" "$rv_pid"
    sleep 5
    kill -KILL -- "-$rv_pid" "$rv_pid"
  ) >/dev/null 2>&1 &
  rv_deadline=$!
}

# Asks what Slurm does to this job that got a TERM; before a preemption's grace is over it runs.
rv_ask_about_term() { rv_slurm timeout 10 scontrol show job -o "$SLURM_JOB_ID" >".term.$RV_ME" 2>/dev/null; }

# Whether that TERM was of a scancel. The job completes then, and Slurm wrote into its log what of:
# a preemption, a requeue and a limit add what they are DUE TO.
rv_was_scancelled() {
  [ -n "$rv_asker" ] || return 1
  wait "$rv_asker"
  grep -q ' JobState=\(COMPLETING\|CANCELLED\) ' ".term.$RV_ME" || return 1
  grep -F " *** JOB $SLURM_JOB_ID ON " jobs/1.log | tail -n 1 | grep -q ' CANCELLED AT [^ ]* \(DUE to SIGNAL .*\)\?\*\*\*$'
}

# What comes next, in rv_next: again, done, stopped or crashed; and why, where it is no success.
rv_decide() {
  local request='' fresh=''
  rv_why=''
  if rv_is_fresh "$rv_checkpoints" "claims/$RV_ME"; then fresh=yes; fi
  rv_elapsed
  [ -f "$rv_checkpoints/.rv-next" ] && read -r request 2>/dev/null <"$rv_checkpoints/.rv-next"
  request=${request%$'\r'}
  request=${request,,}
  case $request in
    '' | again | "done") ;;
    *) rv_say ".rv-next says neither again nor done: it does not count" && request='' ;;
  esac
  rv_next=crashed
  if [ "$request" = "done" ] && [ "$rv_code" -eq 0 ]; then
    rv_next="done" rv_cause=''
  elif [ -e stop ]; then
    rv_next=stopped
    if [ "$request" = again ] || { [ -z "$request" ] && [ -n "$rv_deadline" ]; }; then
      rv_cause=${rv_cause:-STOP}
    fi
  elif [ "$request" = "done" ]; then
    rv_next="done"
  elif [ -n "$rv_cause" ] && rv_was_scancelled; then
    rv_next=stopped
  elif [ "$request" = again ]; then
    rv_next=again
  elif [ -n "$rv_cause" ]; then
    rv_next=again
  elif [ "$rv_code" -eq 0 ]; then
    rv_next="done"
    [ -z "$rv_deadline" ] || rv_next=again
  elif [ -n "$fresh" ]; then
    rv_next=again
  elif [ -n "$rv_deadline" ] && [ $((SECONDS - rv_signalled)) -ge 90 ]; then
    rv_cause=TIME rv_why="segment $RV_SEGMENT did not stop on SIGUSR1 and left no checkpoint"
  fi
  [ "$rv_next" = again ] || return 0
  if [ $((43200 - rv_spent)) -le 180 ]; then
    rv_next=crashed rv_cause=TIME rv_why="the whole time of 12:00:00 is used, in $RV_SEGMENT segments"
  elif [ "$RV_SEGMENT" -ge 18 ]; then
    rv_next=crashed rv_cause=TIME rv_why="the limit of 18 segments is reached"
  elif [ -z "$fresh" ] && [ "$rv_fruitless" -ge 2 ]; then
    rv_next=crashed rv_cause=TIME rv_why="3 segments in a row left no checkpoint"
  fi
}

# Samples this job's GPUs of this node while process $1 lives: soon after its start, then every 30 s.
# gpus/… keeps sums, a line a GPU: index, samples, those with utilization, its sum, most and all memory.
rv_sample_gpus() {
  local file="gpus/$RV_ME.$SLURMD_NODENAME" own=${CUDA_VISIBLE_DEVICES:-${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}}
  local nap=3 child='' commas rows row index uuid used total busy name lines
  local -A samples measured sums peaks
  trap 'kill "$child"; exit' TERM
  umask 077
  cd "$RV_RACE_DIR" && [ -O . ] && command -v nvidia-smi >/dev/null || return
  commas=${own//[!,]/}
  while timeout "$nap" tail --pid="$1" -f /dev/null & child=$!; wait "$child"; [ $? -eq 124 ]; do
    nap=30
    rv_slurm timeout -k 1 10 nice -n 19 nvidia-smi --query-gpu=index,uuid,memory.used,memory.total,utilization.gpu,power.draw,temperature.gpu,name --format=csv,noheader,nounits >"gpus/.rows.${file##*/}" &
    child=$!
    wait "$child" || continue
    mapfile -t rows <"gpus/.rows.${file##*/}"
    lines=''
    for row in "${rows[@]}"; do
      IFS=, read -r index uuid used total busy _ _ name <<<"${row//, /,}"
      [[ $index =~ ^[0-9]+$ && $used =~ ^[0-9]+$ && $total =~ ^[0-9]+$ ]] || continue
      if [ "${#rows[@]}" -gt $((${#commas} + 1)) ]; then
        case ,$own, in *",$index,"* | *",$uuid,"*) ;; *) continue ;; esac
      fi
      samples[$index]=$((${samples[$index]:-0} + 1))
      if [[ $busy =~ ^[0-9]+$ ]]; then
        measured[$index]=$((${measured[$index]:-0} + 1))
        sums[$index]=$((${sums[$index]:-0} + busy))
      fi
      [ "${peaks[$index]:--1}" -ge "$used" ] || peaks[$index]=$used
      lines+="$index ${samples[$index]} ${measured[$index]:-0} ${sums[$index]:-0} ${peaks[$index]} $total $name"$'\n'
    done
    [ -z "$lines" ] || { printf '%s' "$lines" >"gpus/.new.${file##*/}" && mv -T "gpus/.new.${file##*/}" "$file"; }
  done
}

# 8. Run the command
# In a session of its own.
cd /home/ada/project || exit 1
RV_INSTANCE=$RV_RACE.$RV_ME SLURM_UMASK=$RV_UMASK setsid bash -c "${rv_save_code:?}" rv bash -c "${RV_COMMAND:?}" </dev/null >>"$RV_RACE_DIR/output/node0.out" 2>>"$RV_RACE_DIR/output/node0.err" &
rv_enter || exit 1
rv_pid=$!
rv_begun=$SECONDS
rv_sender='' rv_deadline='' rv_asker=''
(rv_cancel_others; rv_find_next; sleep 30 & rv_nap=$!; trap 'kill "$rv_nap"; exit' TERM; wait; rv_cancel_others) </dev/null >/dev/null 2>&1 &
rv_canceller=$!
rv_terminate() {
  rv_cause=TERM
  : >"$rv_checkpoints/.rv-stop"
  kill -TERM -- "-$rv_pid" "$rv_pid" 2>/dev/null
  [ -n "$rv_asker" ] || { rv_ask_about_term & rv_asker=$!; }
}
trap rv_terminate TERM
[ -z "$rv_cause" ] || rv_terminate
trap 'rv_cause=SUPERSEDED; kill -KILL -- -$rv_pid $rv_pid 2>/dev/null' HUP
# Ends the command where Slurm sends no signal: after `rv stop`, where Slurm has lost touch with it,
# and where another instance goes on with the chain.
rv_watch() {
  local nap stops=0 owner
  trap 'kill "$nap"; exit' TERM
  while :; do
    sleep 10 &
    nap=$!
    wait "$nap"
    kill -0 $$ 2>/dev/null || exit
    owner=''
    read -r owner <claim
    [ -z "$owner" ] || [ "$owner" = "$RV_ME" ] || kill -HUP $$
    rv_exists stop || continue
    stops=$((stops + 1))
    if [ "$stops" -le 3 ]; then kill -TERM $$; else kill -KILL -- "-$rv_pid" "$rv_pid"; fi
  done
}
rv_watch </dev/null >/dev/null 2>&1 &
rv_watcher=$!
rv_sample_gpus $$ </dev/null >/dev/null 2>&1 &
rv_sampler=$!

while :; do
  if [ -n "$rv_signalled" ] && [ -z "$rv_deadline" ]; then rv_out_of_time; fi
  wait "$rv_pid"
  rv_code=$?
  kill -0 "$rv_pid" 2>/dev/null || break
  [ -z "$rv_cause" ] || sleep 0.1
done
read -r rv_saved_code 2>/dev/null <"$RV_RACE_DIR/.code.$RV_ME"
rv_code=${rv_saved_code:-$rv_code}
case $rv_code in 0 | 143) sleep 0.2 ;; esac
trap : TERM
for rv_helper in "$rv_watcher" "$rv_deadline" "$rv_sampler"; do [ -z "$rv_helper" ] || kill "$rv_helper" 2>/dev/null; done

# 9. End leftover processes
# What is left of the command on this node, found by RV_INSTANCE in its environment.
rv_find_leftovers() { mapfile -t rv_pids < <(grep -lsz "^RV_INSTANCE=$RV_RACE.$RV_ME\$" /proc/[0-9]*/environ | cut -d/ -f3); }
for rv_kill in TERM KILL; do
  for _ in {1..10}; do
    rv_find_leftovers
    [ "${#rv_pids[@]}" -gt 0 ] || break 2
    kill "-$rv_kill" "${rv_pids[@]}" 2>/dev/null
    sleep 0.2
  done
done
kill "$rv_canceller" 2>/dev/null
if [ "$rv_cause" = SUPERSEDED ]; then
  rv_say "another instance goes on with segment $RV_SEGMENT"
  exit 1
fi

# 10. Write how the segment ended
# After the exit file, which alone counts, where the chain is over: a full disk gets some tries.
rv_enter || exit "$rv_code"
rv_decide
rv_write() {
  local _
  rv_clock
  for _ in 1 2 3 4 5; do
    printf '%s\n' "$RV_ME" "code=$rv_code" "signal=$rv_cause" "next=$rv_next" "why=$rv_why" "ended=$rv_now" >".ended.$RV_ME" && sync ".ended.$RV_ME" && mv -T ".ended.$RV_ME" "$1" && return
    sleep 1
  done
}
[ "$rv_next" = again ] || rv_write ended
rv_write "segments/$RV_SEGMENT.ended"
if [ "$rv_next" != again ]; then
  ln -T "segments/$RV_SEGMENT.ended" ended 2>/dev/null
  rv_cancel_others
  [ -z "$rv_sender" ] || wait "$rv_sender"
  rv_cancel_next
  exit "$rv_code"
fi

# 11. Send the next segment
rv_say "segment $RV_SEGMENT ended with code $rv_code; the next goes on"
[ "$rv_cause" != TERM ] || exit "$rv_code"
if [ -n "$rv_sender" ]; then wait "$rv_sender"; else rv_send_next; fi
if [ ! -e "segments/$RV_SEGMENT.next" ] && [ ! -e stop ]; then
  trap '' TERM
  export -f rv_lift_hold rv_slurm
  export RV_NODE_PATH
  setsid bash -c 'rv_lift_hold "$@"' rv-lift-hold "$SLURM_JOB_ID" '' "${SLURM_RESTART_COUNT:-0}" </dev/null >/dev/null 2>&1 &
  rv_slurm scontrol requeue "$SLURM_JOB_ID" || rv_state_file again/0 ''
fi
exit 0
