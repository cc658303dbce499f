#!/bin/bash
#SBATCH --job-name="rv-abcd2345-2"
#SBATCH --comment="rv abcd2345 night-run"
#SBATCH --partition="gpu-a100"
#SBATCH --time=02:59:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=131072M
#SBATCH --gres="gpu:a100:1"
#SBATCH --array="1-8%4"
#SBATCH --chdir="/home/ada/.local/state/rv/races/abcd2345"
#SBATCH --output="/home/ada/.local/state/rv/races/abcd2345/jobs/2_%a.log"
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --export=NONE
# rv race abcd2345, submission 2: a100-80/1x4/gpu-a100
# What this job does, step by step; each step below bears its number and name.
#   1. Leave a decided race
#   2. Check every node
#   3. Reject a node that failed the check
#   4. Load the user's environment
#   5. Write down this worker
#   6. Read the tasks
#   7. Export the command's variables
#   8. Run tasks
#   9. Let others follow, or cancel them
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
    rv_state_file exhausted/2 "no node is left: $1" || exit 1
    exit 0
  fi
  trap '' TERM
  if command -v scontrol >/dev/null; then
    export -f rv_lift_hold rv_slurm
    export RV_NODE_PATH
    setsid bash -c 'rv_lift_hold "$@"' rv-lift-hold "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" "$excluded" "${SLURM_RESTART_COUNT:-0}" </dev/null >/dev/null 2>&1 &
    rv_slurm scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exit 0
  fi
  rv_state_file again/2 "$excluded"$'\n'"$SLURM_JOB_ID" || exit 1
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
  "$SLURM_JOB_ID".*:submission=2)
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

# 5. Write down this worker
# What it does is read from here; the tasks themselves are claimed, each once.
! rv_exists stop && ! rv_exists drained || exit 0
: >"workers/$RV_ME" || { rv_say "the worker's file cannot be written"; exit 1; }

# 6. Read the tasks
rv_tasks=()
while IFS= read -r -d '' rv_word; do rv_tasks+=("$rv_word"); done <task-list
rv_count=$((${#rv_tasks[@]} / 3))
[ "$rv_count" -eq 1000 ] || { rv_say "the list of tasks cannot be read"; exit 1; }

# 7. Export the command's variables
# What every command finds in its environment; the layout comes from the strategy.
export RV_SUBMISSION=2 RV_GPU=a100-80 RV_GPUS=4 RV_WORLD_SIZE=1
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
export RV_COMMAND='python t.py --lr "$RV_SET_LR"'
export RV_UMASK=${RV_UMASK:-0022}
rv_save_code='exec 3>&2 2>/dev/null; trap : TERM; (umask "$RV_UMASK"; exec "$@") 2>&3 3>&-; code=$?; echo "$code" >"$RV_RACE_DIR/.code.$RV_ME"; exit "$code"'

# 8. Run tasks
# Each slot takes the next task that nobody has claimed, until there is none or no time for another.
rv_variables=(RV_SET_LR RV_SET_SEED)
rv_worker=$RV_ME

# Adds a line to this worker's file. A full disk is waited for a while; on a network disk only sync tells of it.
rv_note() {
  local now
  for _ in 1 2 3 4 5; do
    printf -v now '%(%s)T' -1
    [ -z "${EPOCHREALTIME-}" ] || now=${EPOCHREALTIME/,/.}
    printf '\n%s %s .\n' "$1" "$now" >>"workers/$rv_worker" && sync "workers/$rv_worker" && return
    sleep 1
  done 2>/dev/null
  rv_say "the disk takes no more: $1"
  return 1
}

# Makes one's own link, for good; NFS may report that it exists already: what it holds decides. rv_owner has whose it is.
rv_link() {
  rv_owner=''
  [ -e "$1" ] || ln -T "claims/$RV_ME" "$1" 2>/dev/null
  read -r rv_owner 2>/dev/null <"$1"
  [ "$rv_owner" = "$RV_ME" ]
}

# So many tasks run at a time as there are seats, in all the jobs of the sweep.
rv_take_seat() {
  local turn
  for turn in 1 2; do
    for ((rv_seat = 1; rv_seat <= 20; rv_seat++)); do
      [ -e "seats/$rv_seat" ] || ! rv_link "seats/$rv_seat" || return 0
    done
    [ "$turn" = 2 ] || rv_free_seats || return 1
  done
  return 1
}

# Frees the seats of workers that Slurm does not run any more.
rv_free_seats() {
  local seat running moved
  running=$(rv_slurm squeue -h -u "$SLURM_JOB_USER" -t R,CG,CF,S -o %A 2>/dev/null) || return
  grep -qx "$SLURM_JOB_ID" <<<"$running" || return
  for seat in seats/[0-9]*; do
    rv_owner=''
    read -r rv_owner 2>/dev/null <"$seat"
    case $rv_owner in '' | "$rv_worker".*) continue ;; esac
    [ "${rv_owner%%.*}" = "$SLURM_JOB_ID" ] || ! grep -qx "${rv_owner%%.*}" <<<"$running" || continue
    mv -T "$seat" "seats/.$RV_ME" 2>/dev/null || continue
    moved=''
    read -r moved <"seats/.$RV_ME"
    [ "$moved" = "$rv_owner" ] || ln -T "seats/.$RV_ME" "$seat" 2>/dev/null
    rm -f "seats/.$RV_ME"
  done
}

# Whether the job's own shell is gone: not every site ends what a job leaves.
rv_is_orphan() {
  local parent
  read -r _ _ _ parent _ <"/proc/$BASHPID/stat"
  [ "$parent" != $$ ]
}

# Claims the next task; rv_at is its place in the list. What is before `next` had been claimed when that was written.
rv_claim_next() {
  ! rv_exists stop && ! rv_is_orphan || return
  rv_skip_claimed
  rv_claim_from || { ! rv_exists drained && rv_at=0 && rv_claim_from; } && return
  [ "$rv_at" -ge "$rv_count" ] || return 1
  rv_state_file drained "$RV_ME"
  return "$rv_drained"
}
rv_skip_claimed() {
  local next=0
  read -r next 2>/dev/null <next
  [[ ! $next =~ ^[0-9]{1,9}$ ]] || [ "$next" -le "$rv_at" ] || rv_at=$next
}
rv_claim_from() {
  for ((; rv_at < rv_count; rv_at++)); do
    rv_find_unclaimed || return
    [ -d "${rv_claim%/*}" ] || mkdir -p "${rv_claim%/*}"
    if rv_link "$rv_claim"; then
      [ ! -e "${rv_claim%.claim}.out" ] || continue
      ((rv_at % 16)) || rv_state_file next "$rv_at"
      return 0
    fi
    [ -n "$rv_owner" ] || { rv_say "$rv_claim cannot be made"; return 1; }
  done
  return 1
}
rv_find_unclaimed() {
  for ((; rv_at < rv_count; rv_at++)); do
    rv_claim=tasks/$((rv_at / 1000))/${rv_tasks[rv_at * 3]}.claim
    [ -e "$rv_claim" ] || return 0
  done
  return 1
}

# Whether there is time for a task as long as the longest so far; a worker that has run none tries one.
rv_has_time() {
  local longest=0
  read -r longest 2>/dev/null <longest
  [ "$rv_ran" -eq 0 ] || [ $((10740 - SECONDS)) -gt $((longest + longest / 10 + 10)) ]
}

rv_terminate() {
  rv_cause=TERM rv_terms=$((rv_terms + 1))
  [ -n "$rv_pid" ] || return
  kill -TERM -- "-$rv_pid" "$rv_pid" 2>/dev/null
  [ "$rv_terms" -le 3 ] || kill -KILL -- "-$rv_pid" "$rv_pid" 2>/dev/null
}

# Runs the task at rv_at, in a session of its own. What it leaves behind would keep the GPU from the next.
rv_run_task() {
  local folder=$RV_RACE_DIR/tasks/$((rv_at / 1000)) at=$((rv_at * 3)) name begun=$SECONDS
  export RV_TASK_ID=${rv_tasks[at]}
  for name in "${rv_variables[@]}"; do
    at=$((at + 1))
    export "$name=${rv_tasks[at]}"
  done
  rv_note "start $RV_TASK_ID" && : >".code.$RV_ME" && cd /home/ada/project || return
  RV_INSTANCE=$RV_RACE.$RV_ME.$RV_TASK_ID SLURM_UMASK=$RV_UMASK setsid bash -c "${rv_save_code:?}" rv bash -c "${RV_COMMAND:?}" </dev/null >>"$folder/$RV_TASK_ID.out" 2>>"$folder/$RV_TASK_ID.err" &
  rv_pid=$!
  rv_enter || return
  [ -z "$rv_cause" ] || rv_terminate
  wait "$rv_pid"
  rv_code=$?
  [ "$rv_code" -ne 143 ] || sleep 0.2
  if [ -n "$rv_cause" ]; then
    while kill -0 "$rv_pid" 2>/dev/null; do sleep 0.1; done
    read -r rv_saved_code 2>/dev/null <".code.$RV_ME"
    rv_code=${rv_saved_code:-$rv_code}
  fi
  rv_pid=''
  rv_note "end $RV_TASK_ID $rv_code ${rv_cause:--}" || return
  begun=$((SECONDS - begun)) at=0
  read -r at 2>/dev/null <longest
  [ "$begun" -le "${at:-0}" ] || rv_state_file longest "$begun"
  # What is left of the command on this node, found by RV_INSTANCE in its environment.
  rv_find_leftovers() { mapfile -t rv_pids < <(grep -lsz "^RV_INSTANCE=$RV_RACE.$RV_ME.$RV_TASK_ID\$" /proc/[0-9]*/environ | cut -d/ -f3); }
  for rv_kill in TERM KILL; do
    for _ in {1..10}; do
      rv_find_leftovers
      [ "${#rv_pids[@]}" -gt 0 ] || break 2
      kill "-$rv_kill" "${rv_pids[@]}" 2>/dev/null
      sleep 0.2
    done
  done
}

# What a slot ends with: no task left, or no time.
rv_drained=10 rv_no_time=11

# One task after the other, on the GPUs of this slot.
rv_slot() {
  local code=0
  rv_at=0 rv_ran=0 rv_pid='' rv_terms=0
  trap rv_terminate TERM
  export RV_ME=$rv_worker.$1
  [ -z "$2" ] || export CUDA_VISIBLE_DEVICES=$2
  MASTER_PORT=$((MASTER_PORT + $1)) PET_MASTER_PORT=$((PET_MASTER_PORT + $1))
  printf '%s\n' "$RV_ME" submission=2 "nodes=$SLURM_JOB_NODELIST" "host=$SLURMD_NODENAME" whole >"claims/$RV_ME"
  sync "claims/$RV_ME" && [ "$(tail -n 1 "claims/$RV_ME")" = whole ] || { rv_say "no claim can be written"; return 1; }
  rv_take_seat || return
  while [ -z "$rv_cause" ]; do
    rv_has_time || { code=$rv_no_time; break; }
    rv_claim_next || { code=$?; break; }
    rv_run_task || { code=1; break; }
    rv_ran=$((rv_ran + 1)) rv_at=$((rv_at + 1))
  done
  [ -z "$rv_cause" ] || [ "$rv_ran" -le 1 ] || [ "$SECONDS" -lt 9666 ] || code=$rv_no_time
  rm -f "seats/$rv_seat"
  return "$code"
}

# Cancels the jobs of this sweep that wait; those that run end by themselves.
rv_cancel_waiting() {
  rv_slurm squeue -h -a -u "$SLURM_JOB_USER" -t PD --name=rv-abcd2345-1,rv-abcd2345-2,rv-abcd2345-3 -o %F 2>/dev/null | sort -u | {
    mapfile -t ids
    [ "${#ids[@]}" -eq 0 ] || rv_slurm scancel -Q -t PENDING "${ids[@]}" 2>/dev/null
  }
}

# Sends a worker in this one's place, where tasks are left. Where no more jobs may be submitted, others that end make room.
rv_send_worker() {
  local line id
  rv_at=0
  for _ in {1..6}; do
    ! rv_exists stop && rv_skip_claimed && rv_find_unclaimed || return
    id=''
    line=$(rv_slurm timeout 30 sbatch --parsable --begin=now --array=1 jobs/2.sh 2>"jobs/2.err" </dev/null)
    [[ ! $line =~ ^([0-9]+)(\;.*)?$ ]] || id=${BASH_REMATCH[1]}
    [ -z "$id" ] || { echo "$id" >>jobs/2.id; return; }
    sleep 5
  done
}

# The GPUs of each slot. Where the node is given whole there are several.
rv_shares=('')
IFS=, read -ra rv_gpus <<<"${CUDA_VISIBLE_DEVICES-}"
for ((rv_slots = 0; rv_slots < 4 && (rv_slots + 1) * 1 <= ${#rv_gpus[@]}; rv_slots++)); do
  rv_shares[rv_slots]=$(IFS=,; echo "${rv_gpus[*]:rv_slots * 1:1}")
done
rv_pids=()
for rv_slot in "${!rv_shares[@]}"; do
  rv_slot "$rv_slot" "${rv_shares[rv_slot]}" &
  rv_pids+=($!)
done
rv_stop_slots() {
  rv_cause=TERM
  kill -TERM "${rv_pids[@]}" 2>/dev/null
}
trap rv_stop_slots TERM
[ -z "$rv_cause" ] || rv_stop_slots
# Ends the tasks where Slurm sends no signal: after `rv stop`, where Slurm has lost touch with the node, and without
# the job's own shell.
(
  trap 'kill "$rv_nap"; exit' TERM
  while :; do
    sleep 30 &
    rv_nap=$!
    wait "$rv_nap"
    ! rv_exists stop && ! rv_is_orphan || kill -TERM "${rv_pids[@]}" || exit
  done
) </dev/null >/dev/null 2>&1 &
rv_watcher=$!
rv_codes=' '
for rv_pid in "${rv_pids[@]}"; do
  while wait "$rv_pid"; rv_code=$?; kill -0 "$rv_pid" 2>/dev/null; do :; done
  rv_codes+="$rv_code "
done
kill "$rv_watcher" 2>/dev/null

# 9. Let others follow, or cancel them
case $rv_codes in
  *" $rv_no_time "*) rv_send_worker ;;
  *" $rv_drained "*) rv_cancel_waiting ;;
esac
exit 0
