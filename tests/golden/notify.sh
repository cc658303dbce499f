#!/bin/bash
#SBATCH --job-name="rv-abcd2345-1"
#SBATCH --comment="rv abcd2345 night-run"
#SBATCH --partition="gpu-a100"
#SBATCH --time=02:59:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=131072M
#SBATCH --gres="gpu:a100:4"
#SBATCH --chdir="/home/ada/.local/state/rv/races/abcd2345"
#SBATCH --output="/home/ada/.local/state/rv/races/abcd2345/jobs/1.log"
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --export=NONE
# rv race abcd2345, submission 1: a100-80/1x4/gpu-a100
# What this job does, step by step; each step below bears its number and name.
#   1. Leave a decided race
#   2. Check every node
#   3. Reject a node that failed the check
#   4. Load the user's environment
#   5. Claim the race
#   6. Keep Slurm from running this job again
#   7. Export the command's variables
#   8. Run the command
#   9. Write the exit file
#   10. End leftover processes
#   11. Cancel the other jobs
unset SLURM_EXPORT_ENV LC_ALL LD_LIBRARY_PATH
umask 077
PATH=${PATH:+$PATH:}/usr/bin:/usr/local/bin:/usr/bin:/bin
RV_NODE_PATH=$PATH
RV_RACE=abcd2345
RV_RACE_DIR=/home/ada/.local/state/rv/races/abcd2345
RV_STRATEGY=a100-80/1x4/gpu-a100
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
  if [ "$left" -lt 1 ] || [ "${SLURM_RESTART_COUNT:-0}" -gt 7 ]; then
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

# 1. Leave a decided race
# One that is already won or stopped.
cd "$RV_RACE_DIR" || rv_leave_node "$SLURMD_NODENAME: no race directory" "$SLURMD_NODENAME"
[ -O . ] || { rv_say "$RV_RACE_DIR is another user's"; exit 1; }
! rv_exists stop || exit 0
rv_owner='' rv_submission=''
{ read -r rv_owner; read -r rv_submission; } 2>/dev/null <claim
case $rv_owner:$rv_submission in
  :*) ;;
  "$SLURM_JOB_ID".*:submission=1)
    rv_finished=''
    read -r rv_finished 2>/dev/null <ended
    [ "$rv_finished" != "$rv_owner" ] || exit 0
    rv_state_file lost "job $SLURM_JOB_ID was restarted by Slurm after its claim as ${rv_owner%.*}"
    rv_cancel_others
    exit 1
    ;;
  *) exit 0 ;;
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
rv_wait_for_better
# 5. Claim the race
# A hard link is made once, for one job, whatever the file system retries.
rv_now=${EPOCHREALTIME:-$(date +%s.%N)}
printf '%s\n' "$RV_ME" submission=1 "nodes=$SLURM_JOB_NODELIST" "host=$SLURMD_NODENAME" "started=${rv_now/,/.}" "strategy=$RV_STRATEGY" "whole" >"claims/$RV_ME"
rv_whole=''
sync "claims/$RV_ME" && mapfile -t rv_lines <"claims/$RV_ME" && rv_whole=${rv_lines[*]: -1}
[ -z "$rv_cause" ] || exit 1
! rv_exists stop || exit 0
[ "$rv_whole" = whole ] && ln -T "claims/$RV_ME" claim 2>/dev/null
rv_owner=''
read -r rv_owner 2>/dev/null <claim
if [ "$rv_owner" != "$RV_ME" ]; then
  [ -z "$rv_owner" ] || exit 0
  rv_say "the claim cannot be written"
  exit 1
fi

# 6. Keep Slurm from running this job again
rv_slurm scontrol update jobid="$SLURM_JOB_ID" requeue=0 2>/dev/null
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
(rv_cancel_others; sleep 30 & rv_nap=$!; trap 'kill "$rv_nap"; exit' TERM; wait; rv_cancel_others) </dev/null >/dev/null 2>&1 &
rv_canceller=$!
rv_terminate() {
  rv_cause=TERM
  kill -TERM -- "-$rv_pid" "$rv_pid" 2>/dev/null
}
trap rv_terminate TERM
[ -z "$rv_cause" ] || rv_terminate
# Ends the command where Slurm sends no signal: after `rv stop`, where Slurm has lost touch with it.
rv_watch() {
  local nap stops=0
  trap 'kill "$nap"; exit' TERM
  while :; do
    sleep 30 &
    nap=$!
    wait "$nap"
    kill -0 $$ 2>/dev/null || exit
    rv_exists stop || continue
    stops=$((stops + 1))
    if [ "$stops" -le 3 ]; then kill -TERM $$; else kill -KILL -- "-$rv_pid" "$rv_pid"; fi
  done
}
rv_watch </dev/null >/dev/null 2>&1 &
rv_watcher=$!
rv_sample_gpus $$ </dev/null >/dev/null 2>&1 &
rv_sampler=$!
# Sends the notices of --notify for $1 (start, end, or fail: an end without success), $2 being the
# state and $3 the exit code: each once a race, by a link that only one job can make, all at the same
# time, and 15 s at most. What one that fails says is in the job's log.
rv_notify() {
  local marked once=$1
  [ "$1" != fail ] || once=end
  export RV_EVENT=$1 RV_STATE=$2 RV_EXIT_CODE=$3 RV_NAME=night-run RV_NODES=${SLURM_JOB_NODELIST//[!A-Za-z0-9._,[\]-]/} RV_JOB_ID=$SLURM_JOB_ID
  case $1 in start | end | fail)
    ln -T "claims/$RV_ME" "notified/$once.0" 2>/dev/null
    marked=''
    read -r marked 2>/dev/null <"notified/$once.0"
    [ "$marked" != "$RV_ME" ] || rv_mail you@example.org </dev/null &
    ;;
  esac
  case $1 in fail)
    ln -T "claims/$RV_ME" "notified/$once.1" 2>/dev/null
    marked=''
    read -r marked 2>/dev/null <"notified/$once.1"
    [ "$marked" != "$RV_ME" ] || rv_post 'https://example.org/hook?token=it'"'"'s' </dev/null &
    ;;
  esac
  case $1 in end | fail)
    ln -T "claims/$RV_ME" "notified/$once.2" 2>/dev/null
    marked=''
    read -r marked 2>/dev/null <"notified/$once.2"
    [ "$marked" != "$RV_ME" ] || rv_command 'say "it'"'"'s $RV_STATE"' </dev/null &
    ;;
  esac
  wait
}

rv_command() {
  cd /home/ada/project || exit
  umask "$RV_UMASK"
  timeout -k 2 15 bash -c "$1" || rv_say "--notify: the command for $RV_EVENT ended with code $?"
}

rv_mail() {
  local subject="rv: race $RV_RACE ${RV_NAME:+$RV_NAME }$RV_STATE" to=${1:-$SLURM_JOB_USER} code=${RV_EXIT_CODE:+, exit code $RV_EXIT_CODE} text=.mail.$RV_ME.$BASHPID
  PATH=$PATH:/usr/sbin:/usr/lib
  printf '%s\n' "Race $RV_RACE is $RV_STATE$code, on $RV_NODES as job $RV_JOB_ID." "Command: "'python train.py' "Output: rv logs $RV_RACE" >"$text"
  if command -v mail >/dev/null; then
    timeout -k 2 15 mail -s "$subject" "$to" <"$text"
  elif command -v sendmail >/dev/null; then
    { printf 'To: %s\nSubject: %s\n\n' "$to" "$subject"; cat "$text"; } >"$text.whole"
    timeout -k 2 15 sendmail -t <"$text.whole"
  else
    rv_say "--notify: this node has no mail and no sendmail"
    return
  fi || rv_say "--notify: the mail of $RV_EVENT failed with code $?"
}

rv_post() {
  local secret=.url.$RV_ME.$BASHPID
  export RV_URL=$1 RV_JSON
  RV_JSON='{"race": "abcd2345", "name": "night-run", "command": "python train.py"'
  printf -v RV_JSON '%s, "event": "%s", "state": "%s", "exit_code": %s, "job_id": %s, "nodes": "%s"}' "$RV_JSON" "$RV_EVENT" "$RV_STATE" "${RV_EXIT_CODE:-null}" "$RV_JOB_ID" "$RV_NODES"
  if command -v curl >/dev/null; then
    printf 'url = "%s"\n' "$RV_URL" >"$secret"
    timeout -k 2 15 curl -fgsS -o /dev/null -H 'Content-Type: application/json' --data-binary "$RV_JSON" -K "$secret"
  else
    timeout -k 2 15 "$RV_PYTHON" -c 'import os, urllib.request as web
web.urlopen(web.Request(os.environ["RV_URL"], os.environ["RV_JSON"].encode(), {"Content-Type": "application/json"}))'
  fi || rv_say "--notify: the POST of $RV_EVENT failed with code $?"
}

rv_await_notices() { while kill -0 "$rv_notifier" 2>/dev/null; do wait "$rv_notifier"; done; }

# Tells how it ended, when all else is done. Why Slurm sent a TERM is not known here but by the time.
rv_notify_end() {
  local event=fail state=FAILED
  if [ "$rv_cause" = TIME ]; then
    state=TIMEOUT
  elif [ -n "$rv_cause" ]; then
    state=CANCELLED
    [ -e stop ] || [ "$SECONDS" -lt 10710 ] || state=TIMEOUT
  elif [ "$rv_code" -eq 0 ]; then
    event=end state=COMPLETED
  fi
  rv_await_notices
  rv_notify "$event" "$state" "$rv_code" &
  rv_notifier=$!
  rv_await_notices
}

rv_notify start RUNNING '' &
rv_notifier=$!

wait "$rv_pid"
rv_code=$?
[ "$rv_code" -ne 143 ] || sleep 0.2
if [ -n "$rv_cause" ]; then
  while kill -0 "$rv_pid" 2>/dev/null; do sleep 0.1; done
  read -r rv_saved_code 2>/dev/null <"$RV_RACE_DIR/.code.$RV_ME"
  rv_code=${rv_saved_code:-$rv_code}
fi
trap : TERM
kill "$rv_sampler" 2>/dev/null

# 9. Write the exit file
# For whoever asks later; Slurm forgets, and accounting lags.
for _ in 1 2 3 4 5; do
  rv_enter || break
  printf '%s\n' "$RV_ME" "code=$rv_code" "signal=$rv_cause" "ended=$(date +%s.%N)" >".ended.$RV_ME" && sync ".ended.$RV_ME" && mv -T ".ended.$RV_ME" ended && break
  sleep 1
done

# 10. End leftover processes
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

# 11. Cancel the other jobs
kill "$rv_canceller" "$rv_watcher" 2>/dev/null
rv_cancel_others
rv_notify_end
exit "$rv_code"
