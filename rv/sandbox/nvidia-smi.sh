#!/bin/sh
# The nvidia-smi of a fake node. Its folder holds `gpus`, a line a GPU:
#   index|uuid|product|MiB|MIG profile|number of slices
# and, when it is to lie, `fault`; when its GPUs are to be in use, `use` and `processes`, lines of
#   index|percent|MiB|watts|degrees   and   index|pid|MiB|program
# Rows are read in pipelines on purpose: each loop needs its row only inside.
# shellcheck disable=SC2030,SC2031
set -u
node="${0%/*}/../nodes/${SLURMD_NODENAME:-none}"
fault=none
[ -r "$node/fault" ] && read -r fault <"$node/fault"

case "$fault" in
error)
    echo "Failed to initialize NVML: Driver/library version mismatch"
    exit 9 ;;
hang)
    exec sleep 2147483647 ;; # one process, as a hung driver leaves: none of it outlives its job
esac
if [ ! -r "$node/gpus" ]; then
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver." >&2
    exit 9
fi

# gpus: the rows as they are to be told.
gpus() {
    held=''
    while IFS='|' read -r index uuid product memory mig slices; do
        [ "$fault" = wrong-model ] && { product='Tesla K80' memory=11441 mig='' slices=0; }
        if [ "$fault" != missing-gpu ]; then
            echo "$index|$uuid|$product|$memory|$mig|$slices"
        elif [ -n "$held" ]; then
            echo "$held"
        fi
        held="$index|$uuid|$product|$memory|$mig|$slices"
    done <"$node/gpus"
}

list() {
    gpus | while IFS='|' read -r index uuid product memory mig slices; do
        echo "GPU $index: $product (UUID: GPU-$uuid)"
        slice=0
        while [ "$slice" -lt "$slices" ]; do
            printf '  MIG %-12s Device %2d: (UUID: MIG-%s-%s)\n' "$mig" "$slice" "$uuid" "$slice"
            slice=$((slice + 1))
        done
    done
}

# in_use: sets $percent, $used, $watts and $degrees for the row in hand: idle unless told.
in_use() {
    percent=0 used=0 watts=50.00 degrees=30
    if [ -r "$node/use" ]; then
        while IFS='|' read -r of of_percent of_used of_watts of_degrees; do
            [ "$of" = "$index" ] || continue
            percent=$of_percent used=$of_used watts=$of_watts degrees=$of_degrees
        done <"$node/use"
    fi
    [ "$fault" != busy ] || percent=100 used=$((memory / 2))
    if [ -n "$mig" ]; then percent='[N/A]'; fi
}

# processes: what runs on the GPUs, in the fields of rv's own query whatever was asked for.
processes() {
    if [ "$fault" = busy ]; then
        # Somebody else's, on every GPU: the first process of the machine.
        gpus | while IFS='|' read -r index uuid product memory mig slices; do
            echo "GPU-$uuid, 1, $((memory / 2)), python"
        done
    fi
    [ -r "$node/processes" ] || return 0
    gpus | while IFS='|' read -r index uuid product memory mig slices; do
        while IFS='|' read -r of pid used program; do
            [ "$of" != "$index" ] || echo "GPU-$uuid, $pid, $used, $program"
        done <"$node/processes"
    done
}

# value FIELD: sets $value for the row in hand.
value() {
    case "$1" in
    index) value=$index ;;
    uuid | gpu_uuid) value=GPU-$uuid ;;
    name | gpu_name) value=$product ;;
    count) value=$count ;;
    driver_version) value=535.183.01 ;;
    compute_cap) value=$([ -n "$mig" ] && echo 8.0 || echo '[N/A]') ;;
    mig.mode.current) value=$([ -n "$mig" ] && echo Enabled || echo '[N/A]') ;;
    memory.total) value=$memory unit=' MiB' ;;
    memory.used) value=$used unit=' MiB' ;;
    memory.free) value=$((memory - used)) unit=' MiB' ;;
    utilization.gpu | utilization.memory) value=$percent unit=' %' ;;
    temperature.gpu) value=$degrees ;;
    power.draw) value=$watts unit=' W' ;;
    pci.bus_id | gpu_bus_id) value=$(printf '00000000:%02X:00.0' "$((index + 1))") ;;
    serial) value='[N/A]' ;;
    *) echo "Field \"$1\" is not a valid field to query." >&2; return 2 ;;
    esac
}

# row FIELDS: the row in hand as csv.
row() {
    line='' rest=$1,
    while [ -n "$rest" ]; do
        field=${rest%%,*} rest=${rest#*,} unit=''
        field=${field# }
        value "$field" || return 2
        [ -n "$units" ] && value=$value$unit
        line=${line:+$line, }$value
    done
    echo "$line"
}

query() {
    fields=$1 format=$2 units=yes
    case ",$format," in *,nounits,*) units='' ;; esac
    case ",$format," in *,noheader,*) ;; *) echo "$fields" | sed 's/,/, /g' ;; esac
    count=$(gpus | wc -l)
    gpus | while IFS='|' read -r index uuid product memory mig slices; do
        if [ -n "$wanted" ]; then
            case ",$wanted," in *",$index,"* | *",GPU-$uuid,"*) ;; *) continue ;; esac
        fi
        in_use
        row "$fields" || exit 2
    done
}

table() {
    echo '+-----------------------------------------------------------------------------+'
    echo '| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2     |'
    echo '|-------------------------------+----------------------+----------------------|'
    gpus | while IFS='|' read -r index uuid product memory mig slices; do
        printf '| %3d  %-40s %8d MiB %14s |\n' "$index" "$product" "$memory" "$mig"
    done
    echo '+-----------------------------------------------------------------------------+'
}

fields='' format=csv wanted='' action=table
while [ $# -gt 0 ]; do
    case "$1" in
    -L | --list-gpus) action=list ;;
    --query-gpu=*) action=query fields=${1#*=} ;;
    --query-gpu) action=query fields=$2; shift ;;
    --query-compute-apps=*) action=processes ;;
    --format=*) format=${1#*=} ;;
    --format) format=$2; shift ;;
    -i | --id) wanted=$2; shift ;;
    --id=*) wanted=${1#*=} ;;
    *) echo "Invalid combination of input arguments: $1" >&2; exit 6 ;;
    esac
    shift
done
case "$action" in
list) list ;;
query) query "$fields" "$format" ;;
processes) processes ;;
table) table ;;
esac
