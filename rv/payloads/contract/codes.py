"""The stable codes of what can go wrong: whose fault each is, and what to do about it.

The actions follow AWS's ladder (isolate, reset, retry, fix). Results, reports and histories refer
to codes by name: never rename one. A test's own `class` and `action` win over this table.
"""

from __future__ import annotations

from typing import NamedTuple

HARDWARE, FABRIC, SOFTWARE, CONFIG = "HARDWARE", "FABRIC", "SOFTWARE", "CONFIG"
CONTENTION = "CONTENTION"
"""Something else is at work on the same GPU: no fault of the GPU, nor of the node."""
STORAGE = "STORAGE"
"""A file system gave other bytes than were written. Most are shared: no node is avoided for it."""
UNKNOWN = "UNKNOWN"

EXCLUDE = "leave this node out and tell its administrators"
RETRY = "run it again; if it stays, leave this node out and tell its administrators"
LINKS = "run it again on other nodes to find the node or the link that both runs share"
TRANSPORT = "see which NCCL_ variables are set; then IOMMU and ACS, or the ports between nodes"
ENVIRONMENT = "fix the environment: torch, its CUDA build, or the modules that are loaded"
ASK = "ask for what the node can give, or ask another node"
LOOK = "look at the details; nothing is proven broken"
FIX = "look at the reason, and fix what it names"
REPORT = "report it with the result file: the program or its libraries are at fault"
RESET = "leave this node out until its administrators have reset or replaced the GPU"
UNCAP = "ask the administrators whether the limit is meant"
FREE = "free the GPU, or ask for another node"


class Code(NamedTuple):
    """The class of a fault, one of those above, and what to do."""

    fault: str
    action: str


UNKNOWN_CODE = Code(UNKNOWN, RETRY)

CODES: dict[str, Code] = {
    # devices
    "gpu_not_visible": Code(HARDWARE, EXCLUDE),
    "gpu_mismatch": Code(CONFIG, ASK),
    "gpu_not_ours": Code(HARDWARE, EXCLUDE),
    "neighbour_reachable": Code(CONFIG, "tell the administrators: jobs are not kept apart"),
    "no_gpu": Code(CONFIG, "ask for a GPU, or for the CPU with --device cpu"),
    "fake_gpu": Code(CONFIG, "none: the sandbox's GPUs are pretended; test real ones elsewhere"),
    "cuda_error": Code(HARDWARE, RETRY),
    "driver_mismatch": Code(SOFTWARE, ENVIRONMENT),
    "torch_without_cuda": Code(SOFTWARE, ENVIRONMENT),
    "torch_without_arch": Code(SOFTWARE, ENVIRONMENT),
    "out_of_memory": Code(CONFIG, "ask for less memory or fewer workers"),
    "unsupported": Code(CONFIG, "none: this device cannot do it"),
    "nvml_unavailable": Code(SOFTWARE, "install nvidia-ml-py to see temperatures and throttling"),
    # results that are wrong
    "wrong_result": Code(HARDWARE, EXCLUDE),
    "not_repeatable": Code(HARDWARE, EXCLUDE),
    "digest_mismatch": Code(HARDWARE, EXCLUDE),
    "residual_too_large": Code(HARDWARE, EXCLUDE),
    "memory_mismatch": Code(HARDWARE, EXCLUDE),
    "wrong_collective": Code(FABRIC, LINKS),
    "host_copy_mismatch": Code(HARDWARE, EXCLUDE),
    "peer_copy_mismatch": Code(FABRIC, EXCLUDE),
    "storage_mismatch": Code(STORAGE, "stop using this file system and tell its administrators"),
    # speed
    "below_floor": Code(HARDWARE, RETRY),
    "below_reference": Code(HARDWARE, LOOK),
    "above_peak": Code(SOFTWARE, "distrust the number: wrong type, sparsity or timing"),
    "peer_outlier": Code(HARDWARE, EXCLUDE),
    "peers_disagree": Code(UNKNOWN, "measure both groups again beside a node known to be good"),
    "regression": Code(HARDWARE, RETRY),
    "fleet_shift": Code(SOFTWARE, "compare driver, firmware and power limits with those before"),
    "no_reference": Code(CONFIG, "none: rv accept baseline make, or a baselines.yaml, gives one"),
    "jitter": Code(HARDWARE, LOOK),
    "straggler": Code(FABRIC, RETRY),
    "underloaded": Code(SOFTWARE, LOOK),
    "unbalanced": Code(SOFTWARE, LOOK),
    "slow_link": Code(HARDWARE, EXCLUDE),
    "slow_fabric": Code(FABRIC, LINKS),
    "slow_path": Code(FABRIC, "tell the administrators which link it is; the nodes are sound"),
    "wrong_transport": Code(FABRIC, TRANSPORT),
    "transport_unknown": Code(FABRIC, LOOK),
    "slow_storage": Code(UNKNOWN, "run it again at another hour; if it stays, tell administrators"),
    "overloaded": Code(CONFIG, "use fewer workers than there are CPUs"),
    # who else is on the GPU
    "gpu_busy": Code(CONTENTION, FREE),
    "memory_held": Code(CONTENTION, FREE),
    "contended": Code(CONTENTION, FREE),
    # telemetry
    "throttled_thermal": Code(HARDWARE, EXCLUDE),
    "throttled_power": Code(HARDWARE, EXCLUDE),
    "too_hot": Code(HARDWARE, EXCLUDE),
    "ecc_uncorrectable": Code(HARDWARE, EXCLUDE),
    "ecc_before": Code(HARDWARE, RESET),
    "ecc_corrected": Code(HARDWARE, LOOK),
    "row_remap": Code(HARDWARE, EXCLUDE),
    "rows_remapped": Code(HARDWARE, LOOK),
    "gpu_needs_repair": Code(HARDWARE, RESET),
    "xid": Code(HARDWARE, EXCLUDE),
    "sxid": Code(FABRIC, EXCLUDE),
    "xid_of_program": Code(SOFTWARE, "run it again; if it stays, suspect the GPU"),
    "power_capped": Code(CONFIG, UNCAP),
    "clocks_capped": Code(CONFIG, UNCAP),
    "pcie_degraded": Code(HARDWARE, EXCLUDE),
    "pcie_replays": Code(HARDWARE, LOOK),
    "link_errors": Code(FABRIC, EXCLUDE),
    "link_crc": Code(FABRIC, LOOK),
    "link_down": Code(FABRIC, EXCLUDE),
    "telemetry_unreadable": Code(UNKNOWN, "let this user read nvidia-smi or NVML on the node"),
    "dcgm_failed": Code(HARDWARE, EXCLUDE),
    "dcgm_warned": Code(HARDWARE, LOOK),
    "dcgm_setup": Code(CONFIG, "ask the administrators to set the node up as DCGM says"),
    "dcgm_unavailable": Code(SOFTWARE, "ask the administrators whether nv-hostengine runs"),
    "dcgm_absent": Code(CONFIG, "none: NVIDIA DCGM is not installed here"),
    # ranks
    "rdzv_timeout": Code(FABRIC, LINKS),
    "rank_missing": Code(FABRIC, LINKS),
    "one_rank": Code(CONFIG, "start one rank a GPU: torchrun, and then the script's name"),
    "collective_timeout": Code(FABRIC, LINKS),
    "node_rank_clash": Code(CONFIG, "give every node a NODE_RANK of its own"),
    # training, checkpoints, data
    "nan_loss": Code(HARDWARE, RETRY),
    "loss_not_falling": Code(SOFTWARE, RETRY),
    "gradient_mismatch": Code(SOFTWARE, REPORT),
    "replica_divergence": Code(HARDWARE, LINKS),
    "not_sharded": Code(SOFTWARE, REPORT),
    "resume_mismatch": Code(SOFTWARE, REPORT),
    "reshard_mismatch": Code(SOFTWARE, REPORT),
    "checkpoint_corrupt": Code(STORAGE, "run it again on another file system"),
    "signal_ignored": Code(SOFTWARE, REPORT),
    "checkpoint_lost": Code(SOFTWARE, REPORT),
    "steps_lost": Code(SOFTWARE, REPORT),
    "wrong_samples": Code(SOFTWARE, REPORT),
    "worker_died": Code(CONFIG, "use fewer workers, or ask for more memory"),
    "shm_too_small": Code(CONFIG, "use fewer workers, or a larger /dev/shm"),
    "too_many_workers": Code(CONFIG, "use no more workers than there are CPUs"),
    # processes and services
    "worker_failed": Code(HARDWARE, RETRY),
    "process_leak": Code(SOFTWARE, REPORT),
    "memory_leak": Code(SOFTWARE, REPORT),
    "launch_failed": Code(SOFTWARE, "read the launch log that the details name"),
    "server_unreachable": Code(FABRIC, LINKS),
    "client_died": Code(SOFTWARE, RETRY),
    "wrong_answer": Code(SOFTWARE, REPORT),
    "late_answer": Code(FABRIC, RETRY),
    "not_refused": Code(SOFTWARE, REPORT),
    "engine_missing": Code(CONFIG, "none: the built-in engine was used"),
    "engine_failed": Code(HARDWARE, RETRY),
    # could not run, or not to its end
    "no_torch": Code(SOFTWARE, ENVIRONMENT),
    "no_numpy": Code(CONFIG, "install numpy beside torch, of a version that this torch takes"),
    "tool_absent": Code(CONFIG, "none: install the program to have this measured, too"),
    "not_asked": Code(CONFIG, "none: it was not asked for"),
    "not_run": Code(CONFIG, "give it more time, or run it by itself"),
    "not_started": Code(CONFIG, "end what the reason names, or ask for other nodes or more time"),
    "no_result": Code(SOFTWARE, RETRY),
    "results_lost": Code(CONFIG, "see whether the disk is full, or was cleaned; then run it again"),
    "not_written": Code(CONFIG, "name a report folder that can be written: --report-dir"),
    "could_not_run": Code(SOFTWARE, "read the reason; run it again with --verbose"),
    "timeout": Code(SOFTWARE, "give it more time with --timeout, or run it again elsewhere"),
    "killed": Code(CONFIG, "ask for more memory; if it had enough, run it again"),
    "interrupted": Code(CONFIG, "run it again to its end"),
    "preempted": Code(CONFIG, "run it again: it goes on from its checkpoint if it has one"),
    "no_effect": Code(CONFIG, "plant the fault where it shows: see docs/payloads.md"),
    # found by rv when it collects and judges results
    "crashed": Code(SOFTWARE, RETRY),
    "usage": Code(CONFIG, FIX),
    "result_unreadable": Code(SOFTWARE, RETRY),
    "result_stale": Code(SOFTWARE, RETRY),
    "result_foreign": Code(SOFTWARE, RETRY),
    "result_invalid": Code(SOFTWARE, RETRY),
    "metric_missing": Code(SOFTWARE, RETRY),
    # of the result files of older acceptance programs
    "no_progress": Code(SOFTWARE, FIX),
    "failed": Code(SOFTWARE, FIX),
    "exit_code": Code(SOFTWARE, FIX),
}


OF_SPEED = (
    "below_floor", "below_reference", "peer_outlier", "regression", "jitter", "straggler",
    "underloaded", "unbalanced", "slow_link", "slow_fabric",
)  # fmt: skip
"""What a GPU that is shared with others shows though it is sound."""


def meaning(code: str) -> Code:
    """Return the class and the action of a code; of an unknown one UNKNOWN, to be run again."""
    return CODES.get(code, UNKNOWN_CODE)


CAUSED_BY_A_KILL = (
    "rank_missing",
    "collective_timeout",
    "rdzv_timeout",
    "interrupted",
    "no_result",
)
"""What the other ranks say where one was killed: they wait for it, and are ended."""
