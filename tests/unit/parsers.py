"""Every parser of rv, as a function of one text, with samples of what it is made for."""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import rv
from rv.accept import baselines, payload_command, result_files
from rv.accept.results import ResultError
from rv.api import pickles
from rv.bundle import payload_names
from rv.cli.run import split_arguments
from rv.config import documents
from rv.models import code, container, job, notice, quantities, snapshot, sweep
from rv.payloads._burn import soak
from rv.payloads._collectives import nccl_log
from rv.payloads._nccl_tests import output as nccl_output
from rv.payloads._storage import fio_output
from rv.payloads.contract import dcgm, filesystems, references, smi_text, xids
from rv.planner import catalogue, eligibility
from rv.race import directory, gpu_use, output
from rv.sandbox import gpu, loader, schema
from rv.slurm import (
    environment,
    hostlist,
    job_record,
    nvidia_smi,
    sacct,
    sacctmgr,
    scontrol,
    script,
    squeue,
    topology,
    values,
)
from rv.slurm.cache import SnapshotCache
from rv.slurm.printable import last_line, printable
from rv.workflow import (
    command_line,
    discover,
    fetch_results,
    fetched_files,
    forward,
    known_programs,
    past,
    script_records,
    shellwords,
    sweep_tasks,
    user_variables,
)

DATA: Final = Path(__file__).parents[1] / "data"
ROOT: Final = Path(__file__).parents[2]
S: Final = "rv0123456789abcdef"
_PREFIXES: Final = ("parse", "read_", "load_", "split_", "from_")
_MAKERS: Final = ("_script", "_command", "_line")
"""Functions of `rv.slurm` that take a sentinel and return a command."""


@dataclass(frozen=True, kw_only=True)
class Parser:
    """A parser and samples of its text; `of` is the name of the function that it stands for."""

    of: str
    parse: Callable[[str], Any]
    samples: tuple[str, ...]


def _slurm(pattern: str) -> tuple[str, ...]:
    paths = sorted((DATA / "slurm").glob(pattern))
    return tuple(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def _probe(name: str) -> str:
    found = script.parse_outputs(_slurm("22.05/probe.txt")[0], S)
    assert found is not None
    return found[name].stdout


RACE: Final = {
    "race_id": "abcd2345", "cluster": "k", "name": "mine", "command": "true", "payload": "", "is_shell": False,
    "submitted_at": 1763700000.0, "min_job_age": 300.0, "message_timeout": 10.0, "waves": [[1], [2]],
    "entries": [{"number": 1, "name": "rv-abcd2345-1", "strategy": "a100 1x1 direct gpu", "gpus": 1, "walltime": 3600.0, "cost": 1.5},
                {"number": 2, "name": "rv-abcd2345-2", "strategy": "v100 1x1 direct gpu", "gpus": 1, "walltime": 3600.0, "instead_of": 1}],
    "chain": {"total": 7200.0},
}  # fmt: skip
"""A race's record, as it is written down."""

MOUNTS: Final = (
    "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
    "60 29 0:52 / /scratch rw,relatime shared:3 - lustre 192.0.2.1@o2ib:/work rw,flock\n"
)
"""Lines of /proc/self/mountinfo."""

STATE_FILES: Final = {
    "claim": "7.0\nsubmission=1\nnodes=a[1-2]\nhost=a1\nstarted=1763700010.5\nsegment=2\nelapsed=60.5\nname=rv-abcd2345-1\nstrategy=x\n",
    "ended": "7.0\ncode=137\nsignal=9\nended=1763700020\nnext=again\nwhy=it was time\n",
    "lost": "job 7 ran again",
    "jobs/1.id": "7\n8\n",
    "jobs/2.refused": "Invalid qos specification",
    "declined/a1": "GPU 0 fell off the bus",
    "exhausted/2": "no node is left",
    "again/1": "",
    "warnings/a1": "another model",
    "absent/2": "1763700000\n",
    "segments/1": "6.0\nsubmission=1\nstarted=1763700000\n",
    "segments/1.ended": "6.0\ncode=0\n",
}
"""What jobs leave in a race's directory."""

CONFIG: Final = (
    """\
defaults:
  time: '2:59:00'
  type: [a100, h100]
  cpus: 4
  strict_gpu: true
  fanout: each
  sbatch: {nice: 1, reservation: ''}
max_fanout: 4
prices:
  unit: EUR
  per_gpu_hour: {a100-80: 2.5, h100: 4}
skip_partitions: [debug, old]
aliases:
  big: [h200, h100]
""",
    "# nothing\n",
)
_TIMES: Final = (
    "2026-11-21T04:19:35",
    "N/A",
    "1-02:03:04",
    "04:00:00",
    "90m",
    "1d12h",
    "2:59:00",
    "30",
    "1-12:30",
)
_SIZES: Final = (
    "8G",
    "8192M",
    "15.6Gn",
    "64GiB",
    "1.5T",
    "cpu=4,mem=20G,gres/gpu:a100=2",
    "CPU=1.0,Mem=0.5G",
)
_LISTS: Final = ("a[01-03,7],b-x1,c[1-2]-ib[0-1]", "n[001-100]", "a,b,c", "(null)")
_GRES: Final = (
    "gpu:a100:4(S:0-1),gpu:1g.10gb:7(IDX:0,2-3)",
    "gres/gpu:h200:8,shard:8(S:0,1)",
    "gres:gpu:nvidia_a100_1g.10gb:3",
)
_STATES: Final = (
    "IDLE+DRAIN",
    "MIXED+PLANNED",
    "idle~",
    "CANCELLED by 123",
    "COMPLETED+",
    "RUNNING",
)
_LINES: Final = (
    "torchrun --nproc_per_node=2 train.py --lr 1e-3", "cd src && python train.py | tee log", "srun -n4 bash -c 'x \"$y\"' <in >out",
    "cat <<EOF\na\nEOF\n", "accelerate launch --num_processes 4 a.py; echo $(date) `id` ${a:-b}",
)  # fmt: skip
_WORDS: Final = (
    "--gpu 4 -- python x.py",
    "check.py --mig --time 10m",
    "-g2 --type=a100 train.py",
    "'two words' -x a1",
)
_CONSTRAINTS: Final = ("a&b", "a|b", "[a|b]", "a*2", "[a*2&b*2]", "(a|b)&c")
_AROUND: Final = command_line.KnownFiles(
    is_file=lambda path: path.endswith("x.py"), payloads=payload_names(), nearby=("train.py",)
)
_KINDS: Final = {
    "time": str,
    "type": str,
    "cpus": int,
    "strict_gpu": bool,
    "sbatch": list,
    "max_cost": float,
}


RESULT: Final = json.dumps(
    {
        "schema": "rv.accept/1", "summary": {"status": "PASS"},
        "test_info": {"test_type": "check", "hostname": "a1", "timestamp": "2026-11-21T04:19:35+00:00", "argv": ["x"], "world": {"rank": 0}},
        "tests": [{"name": "gemm", "status": "PASS", "metrics": [{"name": "tflops", "value": 1.5, "unit": "TFLOP/s"}]}],
    }
)  # fmt: skip
"""A result of the acceptance suite, in short."""


GPU_USE: Final = {
    "gpus/7.0.0a1b2c3d.a1": "0 12 12 144 9216 81920 NVIDIA A100-SXM4-80GB\n1 12 0 0 70000 81920 NVIDIA A100-SXM4-80GB\n",
    "gpus/8.0.0a1b2c3e.a1": "0 3 3 300 10 81920 NVIDIA A100-SXM4-80GB\n",
}  # fmt: skip
"""What jobs measured of their GPUs."""


def _gpu_files(written: str) -> Any:
    """Read the sums from their JSON; what is none is the contents of one file."""
    try:
        files = {str(name): str(value) for name, value in json.loads(written).items()}
    except (ValueError, AttributeError, RecursionError):
        files = dict.fromkeys(GPU_USE, written)
    return gpu_use.read_gpu_sums(
        {name: value.encode("utf-8", "surrogatepass") for name, value in files.items()}
    )


def _marks(written: str) -> Any:
    """Read marks from their JSON; what is none is the contents of all of them."""
    try:
        files = {str(name): str(value) for name, value in json.loads(written).items()}
    except (ValueError, AttributeError, RecursionError):
        files = dict.fromkeys(STATE_FILES, written)
    return directory.read_state_files(
        {name: value.encode("utf-8", "surrogatepass") for name, value in files.items()}
    )


class _File:
    """A file that is not on a disk: what `read_document` takes."""

    def __init__(self, written: str) -> None:
        self._written = written

    def __str__(self) -> str:
        return "config.yaml"

    def read_text(self, encoding: str) -> str:
        return self._written.encode(encoding, "surrogatepass").decode(encoding)


def _entry(
    function: Callable[..., Any], *samples: str, parse: Callable[[str], Any] | None = None
) -> Parser:
    name = f"{function.__module__}:{function.__name__}"
    return Parser(of=name, parse=parse or function, samples=samples)


def _result(written: str) -> Any:
    """Read a result of the acceptance suite; its own error is as good as rv's."""
    try:
        return result_files.parse(written)
    except ResultError as error:
        return str(error)


def _layer(written: str) -> Any:
    document = documents.read_document(_File(written))  # type: ignore[arg-type]
    return baselines.read_layer(document, "site")


_GPUS: Final = (
    f"{S} a1 own 0,1\n{S} a1 gpu 0, GPU-1, 9216, 81920, 12, 90.50, 41, NVIDIA A100-SXM4-80GB\n"
    f"{S} b1 failed has no nvidia-smi\n{S} a1 gpu 1, GPU-2, [N/A], 81920, [N/A], [N/A], [N/A], A, B\n"
    f"{S} a1 process GPU-1, 4711, 9000, ada, python train.py, x\n{S} a1 process GPU-1, x, , , \n"
)
_NVLINKS: Final = tuple(p.read_text() for p in sorted((DATA / "nvidia_smi").glob("*nvlink*.txt")))
_XIDS: Final = (
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    "4,812,99,-;NVRM: Xid (PCI:0000:43:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9)\n"
)
_QUEUE: Final = _slurm("22.05/own_queue.txt")
_MANIFEST: Final = f"f {'ab' * 32} 12 train.py\0x {'cd' * 32} 3 src/run.sh\0"


def _manifest(text: str) -> object:
    """What is none is `ValueError`, and all is sent again."""
    try:
        return code.read_manifest(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return {}


def _dotenv(text: str) -> object:
    """A line that is none is `ValueError`, and rv says which."""
    try:
        return user_variables.parse_dotenv(text.splitlines())
    except ValueError:
        return {}


def _or_nothing(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """What a payload reads of another program is none: `ValueError`, and the verdict says so."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            return None

    return read


PARSERS: Final = (
    _entry(result_files.parse, RESULT, parse=_result),
    _entry(nccl_output.parse_report, (DATA / "nccl_tests/report.json").read_text(), parse=_or_nothing(nccl_output.parse_report)),
    _entry(nccl_output.parse_table, *(p.read_text() for p in sorted((DATA / "nccl_tests").glob("*.txt"))), parse=_or_nothing(nccl_output.parse_table)),
    _entry(fio_output.parse_fio, *(p.read_text() for p in sorted((DATA / "fio").glob("*.json"))), parse=_or_nothing(fio_output.parse_fio)),
    _entry(
        baselines.read_layer,
        json.dumps(references.document()),
        parse=_layer,
    ),
    _entry(nccl_log.parse_nccl_log, *(p.read_text() for p in sorted((DATA / "nccl").glob("*.txt")))),
    _entry(filesystems.parse_mount_type, MOUNTS, parse=lambda t: filesystems.parse_mount_type(t, "/scratch/me")),
    _entry(sacctmgr.parse_qos, _probe("qos"), parse=lambda t: sacctmgr.parse_qos(t, t)),
    _entry(sacctmgr.parse_associations, _probe("associations"), _probe("association_limits"), parse=lambda t: sacctmgr.parse_associations(t, t, "lab")),
    _entry(sacctmgr.parse_accounts, "Cluster|Account|ParentName|GrpTRES|GrpJobs\nlab|root||||\nlab|a|root|gres/gpu=6|4\n"),
    _entry(scontrol.parse_record, *_slurm("*/show_node.txt")),
    _entry(scontrol.record_lines, *_slurm("*/show_node.txt"), parse=lambda t: tuple(scontrol.record_lines(t, "NodeName"))),
    _entry(script.parse_outputs, *_slurm("22.05/probe.txt"), parse=lambda t: script.parse_outputs(t, S)),
    _entry(scontrol.parse_node_gres, *_GRES, parse=lambda t: scontrol.parse_node_gres(t, t, t)),
    _entry(hostlist.expand, *_LISTS),
    _entry(environment.why_refused, "A", "SLURM_CONF", "rv_x", "1"),
    _entry(user_variables.parse_dotenv, "# x\nexport A='b' # c\nB=\"\\n\"\n", parse=_dotenv),
    _entry(script.has_succeeded, f"x\n{S} end 0\n", parse=lambda t: script.has_succeeded(t, S)),
    _entry(squeue.keep_own, *_QUEUE, parse=lambda t: squeue.keep_own(f"{t}\n{S} end 0\n", S, SnapshotCache(directory=Path("/dev/null/none"), key="")) and squeue.parse_squeue_own(f"{t}\n{S} end 0\n", S)),
    _entry(sweep_tasks.parse_sets, "lr=1e-3,'a,b',1..5", parse=lambda t: sweep_tasks.parse_sets([t])),
    _entry(sweep_tasks.parse_array, "0-99:3,7%10"),
    _entry(sweep.read_tasks, "3\0001e-3\000x\0004\000\000y\000", parse=lambda t: sweep.read_tasks(t.encode("utf-8", "replace"), 2)),
    _entry(fetch_results.parse_results, "12 1700000000.1234567890 ./out/a\0003 1700000001 ./o d/b\nc\0link ./l\0", parse=lambda t: fetch_results.parse_results(t.encode("utf-8", "surrogatepass"), ["."])),
    _entry(fetched_files.parse_memory, "12 1700000000123456789 12 1700000000000000000 out/a\0003 17 -1 0 o d/b\nc\0", parse=lambda t: fetched_files.parse_memory(t.encode("utf-8", "surrogatepass"))),
    _entry(code.read_manifest, _MANIFEST, parse=_manifest),
    _entry(squeue.parse_squeue_own, *_QUEUE, parse=lambda t: squeue.parse_squeue_own(f"{t}\n{S} end 0\n", S)),
    _entry(scontrol.parse_show_job, *_slurm("22.05/own_show_jobs.txt"), parse=lambda t: scontrol.parse_show_job(f"{t}\n{S} end 0\n", S)),
    _entry(sacct.parse_sacct, *_slurm("22.05/own_sacct.txt"), parse=lambda t: sacct.parse_sacct(f"{t}\n{S} end 0\n", S)),
    _entry(job_record.own_job_name, "/home/a b/races/abcd2345/jobs/3.sh", "/r/abcd2345/jobs/0.sh 12", parse=lambda t: job_record.own_job_name("mine", t)),
    _entry(sacct.is_behind, f"x\n{S} behind\n", parse=lambda t: sacct.is_behind(t, S)),
    _entry(scontrol.parse_show_node, *_slurm("*/show_node.txt")),
    _entry(scontrol.parse_node_states, *_STATES),
    _entry(scontrol.parse_show_partition, *_slurm("*/show_partition.txt")),
    _entry(squeue.parse_squeue, _probe("queue"), parse=lambda t: squeue.parse_squeue(t, S)),
    _entry(scontrol.parse_show_reservation, *_slurm("*/show_reservation.txt")),
    _entry(snapshot.read_snapshot, *(p.read_text() for p in sorted((DATA / "snapshots").glob("[cf]*.json"))), parse=lambda t: snapshot.read_snapshot(t, "c.json")),
    _entry(topology.parse_show_topology, "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=a[1-2]\nSwitchName=top Level=1 LinkSpeed=1 Nodes=a[1-4] Switches=s[1-2]\n", "BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\n"),
    _entry(scontrol.parse_show_config, *_slurm("*/show_config.txt")),
    _entry(scontrol.parse_config_time, *_slurm("*/show_config.txt")),
    _entry(printable, "\x1b[31mred\x1b[0m", "\x1b]0;title\x07x"),
    _entry(last_line, "one\n\x1b[1mtwo\x1b[0m\n \n"),
    _entry(values.parse_tres, *_SIZES),
    _entry(values.parse_billing_weights, *_SIZES),
    _entry(values.parse_gpu_request, *_GRES),
    _entry(squeue.parse_work_folders, "7 rv-abcd2345-1 /home/ada/my races/abcd2345\n8 rv-x-1 /\n"),
    _entry(squeue.parse_squeue_waiting, f"7{S}|4294|gpu|Resources|\n7_[1-3%2]{S}|1|a,b|(Priority)|", parse=lambda t: squeue.parse_squeue_waiting(f"{t}\n{S} end 0\n", S)),
    _entry(values.number, "12", "UNLIMITED"),
    _entry(values.count, "12", "UNLIMITED"),
    _entry(values.decimal, "1.500000", parse=lambda t: values.decimal(t, default=1.0)),
    _entry(values.time, *_TIMES),
    _entry(values.duration, *_TIMES),
    _entry(values.config_seconds, "120 sec", "5 min", "1 hours"),
    _entry(values.memory_mib, *_SIZES),
    _entry(values.non_null, "(null)", "x"),
    _entry(values.comma_list, "a,b,c"),
    _entry(values.allow_list, "ALL", "a,b"),
    _entry(job.job_state, *_STATES),
    _entry(quantities.parse_duration, *_TIMES),
    _entry(quantities.parse_memory_mib, *_SIZES),
    _entry(quantities.parse_sized_memory_mib, *_SIZES),
    _entry(catalogue.mig_profile, "1g.10gb", "nvidia_a100_3g.40gb"),
    _entry(catalogue.normal, "NVIDIA_A100-SXM4", "x"),
    _entry(eligibility.parse_constraint, *_CONSTRAINTS),
    _entry(eligibility.feature_names, *_CONSTRAINTS),
    _entry(eligibility.meets, *_CONSTRAINTS, parse=lambda t: eligibility.meets(frozenset({"a"}), t)),
    _entry(documents.parse_document, *CONFIG, parse=lambda t: documents.parse_document(t, "config.yaml")),
    _entry(documents.read_document, *CONFIG, parse=lambda t: documents.read_document(_File(t))),  # type: ignore[arg-type]
    _entry(directory.read_record, json.dumps(RACE), parse=lambda t: directory.read_record(t, "/r/abcd2345")),
    _entry(directory.read_state_files, json.dumps(STATE_FILES), *STATE_FILES.values(), parse=_marks),
    _entry(nvidia_smi.parse_gpus, _GPUS, *(p.read_text() for p in sorted((DATA / "nvidia_smi").glob("*.csv"))), parse=lambda t: nvidia_smi.parse_gpus(t, S)),
    _entry(smi_text.parse_query, *(p.read_text() for p in sorted((DATA / "nvidia_smi").glob("*.xml")))),
    _entry(smi_text.parse_links, *_NVLINKS, parse=lambda t: smi_text.parse_links(t, t)),
    _entry(soak.parse_soak, '{"asked_s": 9.0, "seconds": 3.0, "runs": 1, "devices": {"a": {"products": 5, "compared": 5, "wrong": 0}}}', parse=lambda t: soak.parse_soak(t, 9.0, ["a"])),
    _entry(dcgm.parse_diag, *(p.read_text() for p in sorted((DATA / "dcgm").glob("*.json")))),
    _entry(dcgm.parse_discovery, (DATA / "dcgm" / "documented.discovery.txt").read_text()),
    _entry(xids.parse_xids, _XIDS),
    _entry(xids.read_xid, *_XIDS.splitlines()),
    _entry(output.read_sizes, "120 output/node0.out\n7 output/node10.err\n", "5 output/node0.out"),
    _entry(gpu_use.read_gpu_sums, json.dumps(GPU_USE), *GPU_USE.values(), parse=_gpu_files),
    _entry(gpu.parse_devices, "0, NVIDIA H200, 143771\n1, NVIDIA H200, 143771\n", parse=lambda t: gpu.parse_devices(t, ["/dev/nvidia0"])),
    _entry(loader.parse_nodes, *_slurm("*/show_node.txt")),
    _entry(loader.parse_waiting, "7|gpu|gres:gpu:2|Resources\n8|gpu|gres/gpu:1|QOSMaxGRESPerUser\n"),
    _entry(schema.parse, *(p.read_text() for p in sorted((ROOT / "rv/sandbox/profiles").glob("*.yaml"))), parse=lambda t: schema.parse(t, where="x.yaml")),
    _entry(discover.parse_discovery, "banner\nfolder\thome ext2/ext3 999 64 yes /home/ada\0folder\tSCRATCH lustre 5000000 65 no /big/a b\0tool\tuv /usr/bin/uv\0"),
    _entry(past.read_past, '[{"race_id": "k3f9a2bc", "submitted_at": 1.0, "source": "idle", "waited_s": 2.0, "gpus": 4, "run_s": null}]'),
    _entry(payload_command.read_typed, "acceptance smoke: check membw", "acceptance burnin: stress"),
    _entry(script_records.parse_records, "banner\nclock\t1763700000.5\0noise\thello\nworld\0half"),
    _entry(shellwords.simple_commands, *_LINES),
    _entry(known_programs.read_invocation, *_LINES, parse=lambda t: [known_programs.read_invocation(words) for words in shellwords.simple_commands(t)]),
    _entry(command_line.from_line, *_LINES, parse=lambda t: command_line.from_line(t, _AROUND)),
    _entry(command_line.from_words, *_LINES, parse=lambda t: command_line.from_words(t.split(" "), _AROUND)),
    _entry(forward.parse_port, "8888", "8888:9999", "8888:0"),
    _entry(container.read_image, "ubuntu:24.04", "nvcr.io#nvidia/pytorch:24.05-py3", "docker://a/b@sha256:0f", "./my image.sif"),
    _entry(container.read_mount, "/a", "/a:/b", "/a:/b:ro", "/a:rw"),
    _entry(notice.read_notice, "start,end=mail", "fail=mailto:you@example.org", "end=https://example.org/a?b", "end=echo it's"),
    _entry(pickles.read_call_header, '{"tasks_per_node": 2, "nodes": 1, "path": ["/a"], "python": "3.11", "stderr_to_stdout": false}\nx', parse=lambda t: pickles.read_call_header(t.encode("utf-8", "replace"))),
    _entry(pickles.read_result_header, '{"traceback": "Traceback", "has_value": true}\nx', parse=lambda t: pickles.read_result_header(t.encode("utf-8", "replace"))),
    _entry(split_arguments, *_WORDS, parse=lambda t: split_arguments(t.split(" "), {"--gpu": True, "-g": True, "--mig": False})),
)  # fmt: skip

BY_FILE: Final = frozenset(
    {
        "rv.accept.kept_records:read_record",
        "rv.accept.result_files:read_file",
        "rv.accept.result_files:read_folder",
        "rv.accept.result_files:read_tree",
        "rv.accept.store:load_kept",
        "rv.accept.store:load_sweep",
        "rv.workflow.option_defaults:read_config",
        "rv.cli.run:read_line",
        "rv.cli.run:read_words",
        "rv.config.gpu_models:load_catalogue",
        "rv.files:read_regular",
        "rv.config.strategy_families:load_families",
        "rv.race.directory:load_all_state_files",
        "rv.race.directory:load_state_files",
        "rv.race.directory:load_race",
        "rv.race.directory:load_races",
        "rv.race.gpu_use:load_gpu_sums",
        "rv.race.verdict_file:load_verdict",
        "rv.sandbox.records:read_all",
        "rv.sandbox.schema:load_profile",
        "rv.config.clusters_file:read_clusters",
        "rv.config.settings:load_clusters",
        "rv.config.settings:load_config",
        "rv.config.settings_file:read_settings",
        "rv.transport.host_keys:read_known_hosts",
        "rv.transport.paramiko_keys:read_key",
        "rv.transport.ssh_config_file:read_settings",
        "rv.workflow.templates:read_template",
        "rv.workflow.past:load_past",
        "rv.workflow.user_variables:load_variables",
        "rv.workflow.work_tree:read_work_tree",
    }
)
"""Those that read files by way of the parsers above: the malformed command lines go through them."""


def parsers_in_rv() -> Iterator[str]:
    """Find every parser by its name, and in `rv.slurm` by its taking a text."""
    for found in pkgutil.walk_packages(rv.__path__, "rv."):
        if found.name.startswith(("rv.payloads", "rv.__main__")):
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            function = inspect.unwrap(value) if callable(value) else value
            if not inspect.isfunction(function) or function.__module__ != found.name:
                continue
            if not name.startswith("_") and _is_parser(found.name, name, function):
                yield f"{found.name}:{name}"


def _is_parser(module: str, name: str, function: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    takes_text = first is not None and first.annotation is str
    if module.startswith("rv.slurm.") and takes_text and not name.endswith(_MAKERS):
        return True
    return name.startswith(_PREFIXES)
