"""The numbers of a result, each with all that identifies it: what history and peers compare.

Pure. Two measurements are comparable where their `key` is equal; `subject` is the device.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rv.accept.results import Device, Metric, RunResult, TestResult
from rv.accept.untrusted import text_of, whole_of
from rv.dataclass import dataclass
from rv.payloads.contract.rates import DTYPES, RATE_UNITS, of_links

HOST_COPIES: Final = ("h2d_pinned", "d2h_pinned")
"""Rates of one GPU's link to pinned memory of the host: of its own socket, or of another."""
LANES_LOST: Final = 0.40
"""The loss of such a rate that another socket does not explain: half the lanes lose a half."""
_KNOWNDTYPES: Final = frozenset({*DTYPES.values(), "tf32", "fp8", "int8"})


SOUND, FAULTY, SHIFTED, RETIRED = "sound", "faulty", "shifted", "retired"
"""How a value stands in the history: part of the reference; judged bad; lower as those of all GPUs
were, with no new software; or of the time before a repair."""
CONTENDED: Final = "contended"
"""The same of a value measured beside somebody else: it says nothing of the GPU, good or bad."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One value of a history; `time` is seconds since the epoch, `fingerprint` the software.

    `standing` is what it counts for, `run` the run that it is of.
    """

    time: float
    value: float
    fingerprint: str
    standing: str = SOUND
    run: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement(Point):
    """One value, better `higher` or `lower`, of one device (by `gpu_uuid`) or of a whole world.

    `gpu` is the product's name; `shape` the size measured at; `world` and `nodes` are how many
    ranks, on how many nodes. `members` are the GPUs of a number that is no single one's but their
    ranks' together: their UUIDs, sorted, with spaces between. `link_share` is what part of their
    NVLinks the GPUs use, None where that is unknown.
    """

    cluster: str
    node: str
    gpu_uuid: str
    gpu: str
    device: str
    payload: str
    test: str
    metric: str
    dtype: str
    shape: str
    world: int
    method_version: int
    unit: str
    direction: str
    quick: bool = False
    nodes: int = 1
    members: str = ""
    link_share: float | None = None

    @property
    def subject(self) -> tuple[str, ...]:
        """What was measured: the GPU, or GPUs, wherever they are, else the node's device.

        How two GPUs of a node are linked differs from pair to pair.
        """
        if self.gpu_uuid or self.members:
            return ("gpu", self.gpu_uuid or self.members)
        return ("node", self.cluster, self.node)

    @property
    def device_key(self) -> tuple[str, ...]:
        """Which devices were measured: by their UUIDs, as each job numbers its own GPUs anew.

        Where no UUID is known, by the node and the number there.
        """
        is_by_uuid = self.gpu_uuid or self.members
        return self.subject if is_by_uuid else (*self.subject, self.device)

    @property
    def is_mig(self) -> bool:
        """Whether it is of a MIG slice, whose product's name says so."""
        return "MIG" in self.gpu.split()

    @property
    def key(self) -> tuple[str, ...]:
        """What was done to measure it: equal keys of one GPU model are comparable."""
        how = (self.payload, self.test, self.metric, self.dtype, self.shape, self.unit)
        ranks = (str(self.world), str(self.nodes))
        return (*how, *ranks, str(self.method_version), "quick" if self.quick else "")

    @property
    def identity(self) -> tuple[str, ...]:
        """What was measured and how: the values of one identity are one history."""
        return (*self.device_key, *self.key)

    @property
    def is_of_place(self) -> bool:
        """Whether it depends on where in the node the GPU and the process are: on their sockets."""
        return self.metric in HOST_COPIES

    @property
    def is_of_gpus(self) -> bool:
        """Whether it is a rate of a GPU, or of GPUs together: what hardware alone decides.

        Latencies, ratios, samples a second, the pace of small models, copies from pageable memory
        (which a CPU makes), copies both ways at once (which fill the host's memory), and links that
        all GPUs share vary without a fault of any GPU.
        """
        is_rate = self.direction == "higher" and self.unit in RATE_UNITS
        is_hosts = any(word in self.metric for word in ("pageable", "duplex", "model_tflops"))
        is_shared = is_hosts or self.test.endswith("all_at_once")
        return bool(self.gpu and (self.gpu_uuid or self.world > 1)) and is_rate and not is_shared

    @property
    def has_own_level(self) -> bool:
        """Whether its own history judges it: a run over several nodes has others each time."""
        return self.is_of_gpus and self.nodes == 1


def measurements(result: RunResult, run: str, cluster: str, time_s: float) -> Iterator[Measurement]:
    """List the comparable numbers of a result: those of which one direction is better.

    Their time is when the job began, as the clocks of nodes differ; else the result's own, and for
    one without any `time_s` (seconds since the epoch).
    """
    when = result.began or (result.timestamp.timestamp() if result.timestamp else time_s)
    for test in result.tests:
        device = device_of(test, result)
        for metric in test.metrics:
            if metric.value is None or not metric.direction:
                continue
            yield Measurement(
                run=run,
                time=when,
                cluster=cluster,
                node=node_of(test, result),
                gpu_uuid=device.uuid if device else "",
                gpu=device.name if device else common_name(result),
                device=test.device,
                payload=result.test_type,
                test=test.name,
                metric=metric.name,
                dtype=dtype_of(test, metric),
                shape=shape_of(test, metric),
                world=result.world_size,
                method_version=result.method_version,
                fingerprint=fingerprint(result.env),
                unit=metric.unit,
                direction=metric.direction,
                value=metric.value,
                standing=metric.standing,
                quick=result.quick,
                nodes=result.nnodes,
                members="" if device else _members(result),
                link_share=of_links(metric.more.get("link_share")),
            )


def _members(result: RunResult) -> str:
    """Name the GPUs of all ranks; "" for one rank, on CPUs, and where a UUID is missing."""
    uuids = sorted(bare_uuid(device.uuid) for device in result.devices)
    is_known = result.world_size > 1 and result.backend != "gloo" and all(uuids)
    return " ".join(uuids) if is_known else ""


def fingerprint(env: Mapping[str, Any]) -> str:
    """Name the software that numbers depend on."""
    names = ("torch", "cuda", "driver")
    return " ".join(f"{name} {text_of(env.get(name)) or '-'}" for name in names)


def device_of(test: TestResult, result: RunResult) -> Device | None:
    """Return the GPU that a test ran on; None for the CPU, for several, and where it is unknown."""
    kind, _, index = test.device.partition(":")
    devices = _devices_at(test.host, result)
    if kind == "cuda" and not index.isdecimal():
        return devices[0] if len(devices) == 1 else None
    if kind == "cuda":
        return next((device for device in devices if device.index == int(index)), None)
    return next((device for device in devices if device.uuid == test.device != ""), None)


def _devices_at(host: str, result: RunResult) -> list[Device]:
    return [d for d in result.devices if not host or d.host in ("", host)]


def bare_uuid(uuid: str) -> str:
    """Strip the kind from a UUID: torch says `5c…`, the driver `GPU-5c…` or `MIG-5c…`."""
    return uuid.strip().lower().removeprefix("gpu-").removeprefix("mig-")


def common_name(result: RunResult) -> str:
    """Return the product name that all GPUs of a result have; "" on a CPU, or for a mix."""
    names = {device.name for device in result.devices}
    return names.pop() if len(names) == 1 and result.backend != "gloo" else ""


def node_of(test: TestResult, result: RunResult) -> str:
    """The node that a test speaks of, which another rank's node may have reported."""
    return test.host or result.hostname


def dtype_of(test: TestResult, metric: Metric) -> str:
    """Return the short name of a metric's number type, such as bf16; "" where it has none."""
    name = text_of(metric.more.get("dtype")) or text_of(test.details.get("dtype"))
    name = name or test.name.rpartition(".")[2]
    short = DTYPES.get(name, name)
    return short if short in _KNOWNDTYPES else ""


def shape_of(test: TestResult, metric: Metric) -> str:
    """The size that a metric was measured at, as text; "" where there is only one."""
    for source in (metric.more, test.details):
        for name in ("shape", "size", "bytes"):
            if name in source:
                value = source[name]
                return "x".join(map(str, value)) if isinstance(value, list) else text_of(value)
    return ""


def size_of(shape: str) -> int:
    """The smallest side of a shape, or the number of bytes; 0 for none."""
    sides = [whole_of(part) for part in shape.split("x")]
    return min((side for side in sides if side is not None), default=0)
