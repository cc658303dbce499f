"""The text that a probe of a large, busy cluster would bring: the same for the same seed.

Made by hand in the formats of Slurm 22.05 (tests/data/slurm/22.05/probe.txt has real ones). Nodes
are in 40 partitions of one GPU model each; 19 more hold two of these and one holds everything, so
that most nodes are in three. What nodes have in use is what their running jobs hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from rv.slurm.script import CommandOutput, parse_outputs, write_outputs

SENTINEL = "rv0123456789abcdef"
BASES = 40
MODELS = (
    "nvidia_a100-sxm4-80gb", "h100", "v100", "a40", "l40s", "h200", "rtx3090", "a6000", "t4", "",
)  # fmt: skip
CPUS, MEMORY_MIB, GPUS = 128, 1024 * 1024, 8
NOON = datetime(2026, 11, 21, 12, 0, 0)  # noqa: DTZ001 - Slurm's own clock has no zone
_REAL = Path(__file__).parents[1] / "data" / "slurm" / "22.05" / "probe.txt"


@dataclass(slots=True)
class Machine:
    """One node, and what its running jobs hold."""

    name: str
    base: int
    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0

    @property
    def model(self) -> str | None:
        """The GRES type, "" where it is untyped; None for nodes without GPUs."""
        return None if self.base % 10 == 4 else MODELS[self.base % len(MODELS)]


@dataclass(slots=True)
class Rows:
    """The queue's rows so far."""

    rows: list[str] = field(default_factory=list)

    def add(self, *columns: object) -> None:
        """Append one job's row; its id is its place."""
        self.rows.append("|".join((f"{len(self.rows) + 1}{SENTINEL}", *map(str, columns), "")))


def probe_text(nodes: int, jobs: int, seed: int = 1) -> str:
    """Return a whole probe's answer, framed by `SENTINEL`; three jobs in five run."""
    random = Random(seed)
    machines = [Machine(name=f"n{n:05d}", base=n * BASES // nodes) for n in range(nodes)]
    queue = Rows()
    _run(machines, jobs * 3 // 5, queue, random)
    _wait(machines, jobs - len(queue.rows), queue, random)
    frames = parse_outputs(_REAL.read_bytes().decode(), SENTINEL)
    assert frames is not None
    texts = {
        "config": "\n".join(
            (
                f"Configuration data as of {NOON.isoformat()}",
                *frames["config"].stdout.split("\n")[1:],
            )
        ),
        "nodes": "\n".join(_node_line(machine, random) for machine in machines),
        "partitions": "\n".join(_partition_lines(nodes)),
        "queue": "\n".join(queue.rows),
    }
    made = {name: CommandOutput(exit_code=0, stdout=text) for name, text in texts.items()}
    return write_outputs(frames | made, SENTINEL)


def partitions_of(base: int) -> tuple[str, ...]:
    """Name the partitions of a base partition's nodes."""
    pair = (f"pair{base // 2}",) if base < 38 else ()
    return (f"base{base}", *pair, "all")


def _run(machines: list[Machine], count: int, queue: Rows, random: Random) -> None:
    """Place running jobs on neighbouring nodes with room, most of them in the first partitions."""
    while len(queue.rows) < count:
        start = int(len(machines) * random.random() ** 2)
        size = random.choice((1,) * 12 + (2, 2, 4, 8))
        held = [m for m in machines[start : start + size] if m.base == machines[start].base]
        if any(machine.cpus == CPUS for machine in held):
            continue
        gpus = random.choice((0, 0, 1, 1, 2, 4, 8)) if held[0].model is not None else 0
        gpus = min([gpus, *(GPUS - machine.gpus for machine in held)])
        cpus = max(1, min([gpus * 8 or 4, *(CPUS - machine.cpus for machine in held)]))
        for machine in held:
            machine.gpus += gpus
            machine.cpus += cpus
            machine.memory_mib += cpus * 4096
        began = NOON - timedelta(seconds=random.randrange(86_400))
        ends = NOON + timedelta(seconds=random.randrange(60, 3 * 86_400))
        where = random.choice(partitions_of(held[0].base))
        names = _compressed([machine.name for machine in held])
        nodes = len(held)
        _add(queue, where, "RUNNING", (began, ends), (names, "(null)"), (nodes, cpus, gpus), random)


def _wait(machines: list[Machine], count: int, queue: Rows, random: Random) -> None:
    """Add pending jobs; Slurm has planned the start of one in twenty."""
    for number in range(count):
        start = random.randrange(len(machines))
        size = random.choice((1, 1, 1, 2, 4))
        asked = [m for m in machines[start : start + size] if m.base == machines[start].base]
        gpus = random.choice((1, 2, 4, 8)) if asked[0].model is not None else 0
        shape = (len(asked), gpus * 8 or 4, gpus)
        every = partitions_of(asked[0].base)
        where = ",".join(random.sample(every, random.randint(1, 2)))
        if number % 20:
            _add(queue, where, "PENDING", ("N/A", "N/A"), ("", "(null)"), shape, random)
            continue
        starts = NOON + timedelta(seconds=random.randrange(600, 86_400))
        planned = _compressed([machine.name for machine in asked])
        times = (starts, starts + timedelta(hours=random.randint(1, 48)))
        _add(queue, where, "PENDING", times, ("", planned), shape, random)


def _add(
    queue: Rows,
    partition: str,
    state: str,
    times: tuple[datetime | str, datetime | str],
    nodes: tuple[str, str],
    shape: tuple[int, int, int],
    random: Random,
) -> None:
    count, cpus, gpus = shape
    person = random.randrange(500)
    start, end = (t if isinstance(t, str) else t.isoformat() for t in times)
    tres = f"cpu={count * cpus},mem={count * cpus * 4}G,node={count},billing={count * cpus}"
    counted = f"{tres},gres/gpu={count * gpus}" if gpus else tres
    asked = f"gres:gpu:{gpus}" if gpus else "N/A"
    queue.add(
        f"user{person}", f"lab{person % 40}", "normal", partition, state, start, end, *nodes,
        count, count * cpus, counted, asked, "N/A", f"train-{random.randrange(10**6)}",
    )  # fmt: skip


def _compressed(names: list[str]) -> str:
    """Write neighbours as Slurm does."""
    if len(names) == 1:
        return names[0]
    return f"n[{names[0][1:]}-{names[-1][1:]}]"


def _node_line(machine: Machine, random: Random) -> str:
    used = machine.gpus
    state = "ALLOCATED" if machine.cpus == CPUS else "MIXED" if machine.cpus else "IDLE"
    drained = random.random() < 0.02
    gres, gres_used = "(null)", "gpu:0"
    if machine.model is not None:
        kind = f"gpu:{machine.model}" if machine.model else "gpu"
        gres = f"{kind}:{GPUS}(S:0-1)"
        gres_used = f"{kind}:{used}(IDX:{f'0-{used - 1}' if used > 1 else '0' if used else 'N/A'})"
    features = f"rack{machine.base},ib,{machine.model or 'a100'}"
    billed = f"cpu={CPUS},mem={MEMORY_MIB}M,billing={CPUS}"
    held = f"cpu={machine.cpus},mem={machine.memory_mib}M,gres/gpu={used}" if machine.cpus else ""
    reason = " Reason=fan: replace, ask ops [root@2026-11-21T09:14:13]" if drained else ""
    return (
        f"NodeName={machine.name} Arch=x86_64 CoresPerSocket=32  CPUAlloc={machine.cpus} "
        f"CPUEfctv={CPUS} CPUTot={CPUS} CPULoad={random.random() * 99:.2f} "
        f"AvailableFeatures={features} ActiveFeatures={features} Gres={gres} GresDrain=N/A "
        f"GresUsed={gres_used} NodeAddr=10.0.0.1 NodeHostName={machine.name} Version=22.05.8 "
        "OS=Linux 5.14.0-427.13.1.el9_4.x86_64 #1 SMP PREEMPT_DYNAMIC Wed May 1 19:11:28 UTC 2024 "
        f"RealMemory={MEMORY_MIB} AllocMem={machine.memory_mib} FreeMem=23539 Sockets=2 Boards=1 "
        f"State={state}{'+DRAIN' if drained else ''} ThreadsPerCore=2 TmpDisk=0 Weight=1 "
        f"Owner=N/A MCS_label=N/A Partitions={','.join(partitions_of(machine.base))}  "
        "BootTime=2026-11-21T08:45:39 SlurmdStartTime=2026-11-21T09:00:57 "
        f"LastBusyTime=2026-11-21T09:11:50 CfgTRES={billed},gres/gpu={GPUS} AllocTRES={held} "
        "CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 "
        f"ExtSensorsTemp=n/s{reason}"
    )


def _partition_lines(nodes: int) -> Iterator[str]:
    edges = [-(-base * nodes // BASES) for base in range(BASES + 1)]
    spans = {f"base{base}": (edges[base], edges[base + 1]) for base in range(BASES)}
    spans |= {f"pair{base // 2}": (edges[base], edges[base + 2]) for base in range(0, 38, 2)}
    spans["all"] = (0, nodes)
    for name, (first, end) in spans.items():
        yield (
            f"PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
            "Default=NO QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 "
            "Hidden=NO MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 LLN=NO "
            f"MaxCPUsPerNode=UNLIMITED Nodes=n[{first:05d}-{end - 1:05d}] PriorityJobFactor=1 "
            "PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE "
            f"PreemptMode=OFF State=UP TotalCPUs={(end - first) * CPUS} TotalNodes={end - first} "
            "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED "
            "MaxMemPerNode=UNLIMITED TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=16.0"
        )
