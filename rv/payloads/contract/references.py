"""What GPUs reach, as far as anybody has said so in public, or it was measured for this file.

Every value says where it is from. rv lays a site's and a user's `baselines.yaml`, of the same form,
over these (`rv.accept.baselines`); a payload that runs by itself has these alone (`rates.py`).
"""

from __future__ import annotations

from typing import Any

METHOD_VERSION = 2

SQUARES = "zzc0721/torch-performance-test-data: torch.mm on randn squares, best size"
AT_10240 = "zzc0721/torch-performance-test-data#185: 10240^2"
DCGM = "NVIDIA/DCGM diag-skus, measured part of the 75 % rule"
SUPERBENCH = "microsoft/superbench-results: 729 nodes, cutlass"
SUPERBENCH_V100 = "microsoft/superbench-results: V100 on PCIe 3"
MAMF = "stas00/ml-engineering: mamf-finder"
LINKS = "stas00/ml-engineering: link benchmarks"
ALL_REDUCE = "stas00/ml-engineering: all_reduce_bench, 8 GiB or more"
COPIES = "torch copies on 4 x H200 at once, 2026-11-21"
FOUR_H200 = "torch.mm on randn, median of 30, 4 x H200 SXM at once, torch 2.11.0+cu130, 2026-11-21"
H100 = (
    "torch.mm on randn, 8192^2, median of 100 to 300, H100 SXM (700 W), "
    "torch 2.11.0+cu130, 2026-11-22"
)
H200 = (
    "torch.mm on randn, median of 30 to 100, 2 and 4 x H200 SXM at once, "
    "torch 2.11.0+cu130, 2026-11-21 and -22"
)
H100_FP8 = (
    "torch._scaled_mm on randn, 8192^2, median of 550, H100 SXM (700 W), "
    "torch 2.11.0+cu130, 2026-11-22"
)
H200_FP8 = (
    "torch._scaled_mm on randn, 8192^2, median of 100, 2 x H200 SXM at once, "
    "torch 2.11.0+cu130, 2026-11-22"
)
AZURE = "Azure/azurehpc-health-checks: the floor it enforces"
STRESS_H200 = "stress.py on 16384^2, 45 s, 2 x H200 SXM at once, torch 2.11.0+cu130, 2026-11-22"
STRESS_H100 = "stress.py on 16384^2, 25 s, one H100 SXM, torch 2.11.0+cu130, 2026-11-24"
INFERENCE_H100 = "inference.py, batch 256, one H100 SXM, torch 2.11.0+cu130, 2026-11-24"
INFERENCE_H200 = "inference.py, batch 256, one H200 SXM, torch 2.11.0+cu130, 2026-11-26"
RESNET = "NVIDIA/DeepLearningExamples: PyTorch ResNet50 v1.5, mixed precision, batch 256, 21.03"
TIMM = "huggingface/pytorch-image-models: resnet50 at 224, AMP, NHWC, PyTorch 2.1"
TWO_H200 = "allreduce.py, 2 x H200 SXM over NVLink"
TWO_H100 = "allreduce.py, 2 x H100 SXM over NVLink, NVLS off, NCCL 2.28.9, 2026-11-25"
FP64_H100 = "torch.mm on randn, 8192^2, median of 100, 2 x H100 SXM, torch 2.11.0+cu130, 2026-11-25"

GPUS: dict[str, dict[str, Any]] = {
    "v100": {"sms": 80, "memory_gb": 32, "sizes_gb": [16, 32], "links": 6,
        "peaks": {"fp64": 7.8, "fp32": 15.7, "fp16": 125, "memory": 900, "host": 15.75, "link": 150}},
    "v100-pcie": {"sms": 80, "memory_gb": 32, "sizes_gb": [16, 32],
        "peaks": {"fp64": 7, "fp32": 14, "fp16": 112, "memory": 900, "host": 15.75}},
    "t4": {"sms": 40, "memory_gb": 16,
        "peaks": {"fp32": 8.1, "fp16": 65, "memory": 320}},
    "rtx-3090": {"sms": 82, "memory_gb": 24,
        "peaks": {"fp32": 35.6, "fp16": 71, "bf16": 71, "memory": 936}},
    "a40": {"sms": 84, "memory_gb": 48,
        "peaks": {"fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7, "memory": 696}},
    "rtx-a6000": {"sms": 84, "memory_gb": 48,
        "peaks": {"fp32": 38.7, "tf32": 77.4, "fp16": 154.8, "bf16": 154.8, "memory": 768}},
    "l4": {"sms": 58, "memory_gb": 24,
        "peaks": {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "memory": 300}},
    "l40s": {"sms": 142, "memory_gb": 48,
        "peaks": {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8": 733, "memory": 864}},
    "a100-sxm4-40gb": {"sms": 108, "memory_gb": 40, "links": 12, "mesh": True,
        "peaks": {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "memory": 1555, "host": 31.5, "link": 300}},
    "a100-sxm4-80gb": {"sms": 108, "memory_gb": 80, "links": 12, "mesh": True,
        "peaks": {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "memory": 2039, "host": 31.5, "link": 300}},
    "a100-pcie": {"sms": 108, "memory_gb": 40,
        "peaks": {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "memory": 1555, "host": 31.5}},
    "h100": {"sms": 132, "memory_gb": 80, "links": 18, "mesh": True,
        "peaks": {"fp64": 67, "fp32": 67, "tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979, "memory": 3350, "host": 63, "link": 450}},
    "h100-nvl": {"sms": 132, "memory_gb": 94, "links": 12,
        "peaks": {"fp64": 60, "fp32": 60, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1671, "memory": 3938, "host": 63, "link": 300}},
    "h100-pcie": {"sms": 114, "memory_gb": 80,
        "peaks": {"fp64": 51, "fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756, "fp8": 1513, "memory": 2000, "host": 63}},
    "h200": {"sms": 132, "memory_gb": 141, "links": 18, "mesh": True,
        "peaks": {"fp64": 67, "fp32": 67, "tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979, "memory": 4800, "host": 63, "link": 450}},
    "h200-nvl": {"sms": 132, "memory_gb": 141, "links": 18,
        "peaks": {"fp64": 60, "fp32": 60, "tf32": 418, "fp16": 835, "bf16": 835, "fp8": 1671, "memory": 4800, "host": 63, "link": 450}},
    "gh200": {"sms": 132, "memory_gb": 96, "sizes_gb": [96, 120, 240, 480], "links": 18,
        "peaks": {"fp64": 67, "fp32": 67, "tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979, "memory": 4000, "link": 450}},
    "b200": {"sms": 148, "memory_gb": 180, "links": 18, "mesh": True,
        "peaks": {"fp32": 80, "tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500, "memory": 8000, "link": 900}},
    "gb200": {"sms": 148, "memory_gb": 186, "links": 18, "mesh": True,
        "peaks": {"fp32": 80, "tf32": 1250, "fp16": 2500, "bf16": 2500, "fp8": 5000, "memory": 8000, "link": 900}},
}  # fmt: skip
"""What a GPU is. Its name stands, word by word, in the product's name as the driver tells it
("NVIDIA H200 NVL" is h200-nvl, and not h200: the longest name counts) with no word beside it that
tells of another variant (`rates.model_of`). `sizes_gb` are the sizes that such names tell, where not
`memory_gb` alone: "GH200 480GB" tells of its host's memory. `peaks` are the data sheet's, dense,
without sparsity: TFLOPS by type; GB/s of memory, host link and one direction of NVLink, which is of
all `links`. With `mesh` every GPU of a node reaches every other over NVLink.
"""

Values = dict[str, tuple[float, str]]


def _of(of: dict[str, Any], values: Values) -> dict[str, Any]:
    return {
        "of": of,
        "values": {
            gpu: {"value": value, "source": source} for gpu, (value, source) in values.items()
        },
    }


def _matmul(dtype: str, values: Values) -> dict[str, Any]:
    how = {"metric": "tflops", "unit": "TFLOPS", "peak": dtype, "least": 4096}
    return _of({"payload": "check", "test": f"matmul.{dtype}", **how}, values)


def _memory(test: str, metric: str, peak: str, values: Values) -> dict[str, Any]:
    of = {"payload": "membw", "test": test, "metric": metric, "unit": "GB/s", "peak": peak}
    return _of(of, values)


def _all_reduce(world: int, values: Values) -> dict[str, Any]:
    what = {"payload": "allreduce", "test": "allreduce.all_reduce", "metric": "busbw_*"}
    return _of({**what, "unit": "GB/s", "peak": "link", "world": world, "least": 1 << 30}, values)


INFERENCE = {
    "payload": "inference",
    "test": "inference.throughput",
    "metric": "images",
    "unit": "images/s",
    "least": 128,
}
STRESS = {"payload": "stress", "test": "stress.torch", "metric": "tflops", "unit": "TFLOPS"}

REFERENCES: dict[str, dict[str, Any]] = {
    "matmul.fp64": _matmul("fp64", {
        "v100": (7.0, DCGM),
        "a100-sxm4-80gb": (18.95, SUPERBENCH),
        "a100-pcie": (7.95, DCGM),
        "h100": (60.5, FP64_H100),
        "h200": (62.9, FOUR_H200),
    }),
    "matmul.fp32": _matmul("fp32", {
        "v100": (13.55, SQUARES),
        "t4": (4.3, SQUARES),
        "rtx-3090": (24.6, SQUARES),
        "a40": (23.7, AT_10240),
        "rtx-a6000": (24.1, SQUARES),
        "l4": (12.9, SQUARES),
        "l40s": (46.9, SQUARES),
        "a100-sxm4-40gb": (18.1, SQUARES),
        "a100-sxm4-80gb": (18.36, SUPERBENCH),
        "h100": (52.1, SQUARES),
        "h200": (51.2, FOUR_H200),
        "b200": (66.2, SQUARES),
    }),
    "matmul.tf32": _matmul("tf32", {
        "a40": (59.5, AT_10240),
        "rtx-a6000": (60.0, SQUARES),
        "l4": (28.0, SQUARES),
        "a100-sxm4-80gb": (127.4, SUPERBENCH),
        "h100": (357.0, H100),
        "h200": (349.0, FOUR_H200),
        "gh200": (363.0, MAMF),
    }),
    "matmul.fp16": _matmul("fp16", {
        "v100": (88.9, SQUARES),
        "t4": (42.3, SQUARES),
        "rtx-3090": (75.7, SQUARES),
        "a40": (119.2, AT_10240),
        "rtx-a6000": (120.5, SQUARES),
        "l4": (60.0, SQUARES),
        "l40s": (264.0, SQUARES),
        "a100-sxm4-40gb": (247.6, SQUARES),
        "a100-sxm4-80gb": (258.7, SQUARES),
        "h100": (650.0, H100),
        "h200": (690.0, H200),
        "b200": (1627.6, SQUARES),
    }),
    "matmul.bf16": _matmul("bf16", {
        "rtx-3090": (76.5, SQUARES),
        "a40": (122.3, AT_10240),
        "rtx-a6000": (123.3, SQUARES),
        "l4": (63.0, SQUARES),
        "l40s": (269.2, SQUARES),
        "a100-sxm4-40gb": (246.3, SQUARES),
        "a100-sxm4-80gb": (261.2, SQUARES),
        "a100-pcie": (252.9, MAMF),
        "h100": (680.0, H100),
        "h200": (720.0, H200),
        "gh200": (828.6, MAMF),
        "b200": (1696.0, SQUARES),
    }),
    "matmul.fp8": _matmul("fp8", {
        "h100": (1235.0, H100_FP8),
        "h200": (1240.0, H200_FP8),
        "gh200": (1535.0, MAMF),
        "b200": (3432.5, SQUARES),
    }),
    "stress.bf16": _of({**STRESS, "peak": "bf16", "dtype": "bf16", "least": 12288}, {
        "h100": (606.0, STRESS_H100),
        "h200": (610.0, STRESS_H200),
    }),
    "inference.images": _of(INFERENCE, {
        "v100": (3382, RESNET),
        "t4": (1198, RESNET),
        "rtx-3090": (3687, TIMM),
        "h100": (12650, INFERENCE_H100),
        "h200": (14680, INFERENCE_H200),
    }),
    "memory.copy": _memory("membw.stream", "stream_copy", "memory", {
        "v100": (728, SUPERBENCH_V100),
        "a40": (565, DCGM),
        "rtx-a6000": (674.5, DCGM),
        "t4": (244, DCGM),
        "a100-pcie": (1293, DCGM),
        "a100-sxm4-80gb": (1564, DCGM),
        "h100-pcie": (1639, DCGM),
        "h100": (2503, LINKS),
        "h200": (4316, COPIES),
        "gb200": (5768, LINKS),
    }),
    "host.h2d": _memory("membw.host", "h2d_pinned", "host", {
        "h100": (54.8, LINKS),
        "h200": (51.5, COPIES),
        "v100": (12.4, SUPERBENCH_V100),
        "a100-sxm4-80gb": (25.9, SUPERBENCH),
    }),
    "host.d2h": _memory("membw.host", "d2h_pinned", "host", {
        "h100": (46.8, LINKS),
        "h200": (38.6, COPIES),
        "v100": (13.0, SUPERBENCH_V100),
        "a100-sxm4-80gb": (25.9, SUPERBENCH),
    }),
    "peer.one_way": _memory("membw.peer", "peer_one_way", "link", {
        "a100-sxm4-80gb": (274, LINKS),
        "h100": (378, LINKS),
        "h200": (396.4, LINKS),
        "gb200": (747, LINKS),
    }),
    "allreduce.2": _all_reduce(2, {
        "h100": (336.0, TWO_H100),
        "h200": (336.0, TWO_H200),
    }),
    "allreduce.4": _all_reduce(4, {
        "h200": (363, COPIES),
        "b200": (673, ALL_REDUCE),
    }),
    "allreduce.5": _all_reduce(5, {
        "h200": (414, ALL_REDUCE),
    }),
    "allreduce.6": _all_reduce(6, {
        "h200": (436, ALL_REDUCE),
    }),
    "allreduce.7": _all_reduce(7, {
        "h200": (460, ALL_REDUCE),
    }),
    "allreduce.8": _all_reduce(8, {
        "a100-sxm4-80gb": (235, ALL_REDUCE),
        "h100": (480, ALL_REDUCE),
        "h200": (473, ALL_REDUCE),
        "b200": (838, ALL_REDUCE),
        "v100": (110, AZURE),
    }),
}  # fmt: skip
"""By payload, test and metric (which may end in `*`); `least` is the smallest side, or number of
bytes, that a value holds from; `world` the number of GPUs; `peak` names the peak that it cannot
exceed. Those of `link` were measured where all links of a GPU lead to a switch, and hold there; where
a pair has a part of them, so does its reference (`rates.of_links`).
"""

REFERENCES |= {
    f"nccl_tests.{world}": {
        "of": {
            **REFERENCES[f"allreduce.{world}"]["of"],
            "payload": "nccl_tests",
            "test": f"nccl_tests.all_reduce.{world}",
            "world": 1,  # one process measures them all
        },
        "values": REFERENCES[f"allreduce.{world}"]["values"],
    }
    for world in (2, 4, 5, 6, 7, 8)
}
"""What nccl-tests calls busbw is what allreduce.py calls so."""


def document() -> dict[str, Any]:
    """Return all of it, in the form of a file of baselines."""
    return {"method_version": METHOD_VERSION, "gpus": GPUS, "references": REFERENCES}
