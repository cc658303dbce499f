"""What GPUs say of themselves: masks by bits, figures that are missing, and what is too much."""

import io
import itertools
import json
import stat
import sys
import time
import types
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stress
from _harness.report import Report
from _telemetry.fake import AT_REST, HEALTHY, Fake
from _telemetry.gates import findings, is_harmful, reasons, underloaded
from _telemetry.sampler import Load, Sampler
from _telemetry.timeline import MOST, Timeline
from contract.nvidia import Smi, open_source, serial_numbers
from contract.readings import Counters, Reading, grown

UUID = "5c3a0001-aaaa-bbbb-cccc-000000000001"


def load(reading: Reading = HEALTHY, after: Counters = AT_REST, n: int = 100) -> Load:
    """A GPU that said the same thing for ten seconds."""
    made = Load(before=AT_REST, after=after)
    for _ in range(n):
        made.add(reading, 0.1)
    return made


def codes(made: Load) -> list[tuple[str, str]]:
    return [(status, code) for status, code, _ in findings(made)]


def sampled(source: Fake) -> dict[str, Load]:
    """Let the sampler look at least ten times."""
    with Sampler(source) as sampler:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (
            sampler.loads and min(seen.samples for seen in sampler.loads.values()) >= 10
        ):
            time.sleep(0.01)
    return sampler.loads


@pytest.mark.parametrize(
    ("mask", "harmful"),
    [(0, False), (0x1, False), (0x4, False), (0x44, True), (0x8, True), (0x24, True), (0x80, True)],
)
def test_a_mask_is_tested_bit_by_bit(mask: int, harmful: bool) -> None:
    """Hot and at the power limit is hot: whole masks compared for equality miss it."""
    assert is_harmful(mask) is harmful


def test_reasons_have_names_and_unknown_bits_are_shown() -> None:
    assert reasons(0x44) == ["software power cap", "hardware thermal slowdown"]
    assert reasons(0x4000) == ["0x4000"]


def test_a_healthy_gpu_at_its_power_limit_has_no_findings() -> None:
    assert codes(load()) == []
    assert load().as_json()["throttle_s"] == {"software power cap": 10.0}


@pytest.mark.parametrize(
    ("celsius", "found"),
    [
        (84, []),
        (85, [("WARN", "too_hot")]),
        (89, [("WARN", "too_hot")]),
        (90, [("FAIL", "too_hot")]),
    ],
)
def test_heat_warns_from_85_and_fails_near_the_slowdown(
    celsius: float, found: list[tuple[str, str]]
) -> None:
    assert codes(load(Reading(temperature_c=celsius))) == found


@pytest.mark.parametrize(
    ("slowed", "found"),
    [(1, []), (3, [("WARN", "throttled_thermal")]), (22, [("FAIL", "throttled_thermal")])],
)
def test_throttling_is_judged_by_its_share_of_the_time(
    slowed: int, found: list[tuple[str, str]]
) -> None:
    made = load(Reading(reasons=0x4), n=200 - slowed)
    for _ in range(slowed):
        made.add(Reading(reasons=0x44), 0.1)

    assert codes(made) == found


@pytest.mark.parametrize(
    ("masks", "heat_s", "code", "said"),
    [
        ((0x88,), 0.0, "throttled_power", "by its power supply"),
        ((0x84, 0x84, 0x40), 0.0, "throttled_power", "by its power supply"),
        ((0x88, 0x40, 0x40), 0.0, "throttled_thermal", "by heat 100.0%"),
        ((0x88,), 60.0, "throttled_thermal", "by heat 100.0%"),
        ((0x20,), 0.0, "throttled_thermal", "by heat 100.0%"),
        ((0x8,), 0.0, "throttled_thermal", "by heat or power supply"),
    ],
)
def test_a_power_brake_is_not_looked_for_as_heat(
    masks: tuple[int, ...], heat_s: float, code: str, said: str
) -> None:
    """By what slowed it longest; a hardware slowdown without a cause may be either."""
    made = Load(before=Counters(thermal_ns=0), after=Counters(thermal_ns=int(heat_s * 1e9)))
    for mask in masks * 50:
        made.add(Reading(reasons=mask), 0.1)
    ((status, found, reason),) = findings(made)
    assert (status, found) == ("FAIL", code)
    assert said in reason


def test_throttling_between_two_looks_is_known_from_the_drivers_own_clock() -> None:
    made = load(after=Counters(thermal_ns=2_000_000_000))
    made.before = Counters(thermal_ns=0)

    assert codes(made) == [("FAIL", "throttled_thermal")]


def test_a_counter_that_was_reset_did_not_grow() -> None:
    assert grown(9, 7) == 0
    assert grown(None, 7) is None


@pytest.mark.parametrize(
    ("gen", "width", "found"),
    [
        (5, 16, []),
        (4, 16, [("WARN", "pcie_degraded")]),
        (5, 8, [("WARN", "pcie_degraded")]),
        (5, 4, [("FAIL", "pcie_degraded")]),
        (1, 16, [("FAIL", "pcie_degraded")]),
    ],
)
def test_the_link_to_the_host_is_judged_at_its_best(
    gen: float, width: float, found: list[tuple[str, str]]
) -> None:
    """At rest a GPU lowers it: the best that was seen under load counts."""
    made = load(replace(HEALTHY, pcie_gen=gen, pcie_width=width))
    made.add(replace(HEALTHY, pcie_gen=1.0, pcie_width=width), 0.1)
    assert codes(made) == found


def test_a_clock_that_nobody_explains_is_locked() -> None:
    """Heat, power and idleness explain one; a clock that is the default one needs no explanation."""
    slow = replace(HEALTHY, sm_mhz=1200.0)
    assert codes(load(replace(slow, reasons=0x0))) == [("WARN", "clocks_capped")]
    assert codes(load(replace(slow, reasons=0x2))) == [("WARN", "clocks_capped")]
    assert codes(load(slow)) == []  # at its power limit
    assert codes(load(replace(slow, reasons=None))) == []
    assert codes(load(replace(slow, reasons=0x0, utilisation=40.0))) == []
    usual = replace(AT_REST, default_applications_mhz=1210.0)
    assert codes(load(replace(slow, reasons=0x0), after=usual)) == []


def test_a_gpu_that_tells_nothing_is_not_accused_of_anything() -> None:
    made = load(Reading(), Counters())

    assert codes(made) == []
    assert underloaded(made) == []
    assert made.as_json()["samples"] == 100


def test_a_gpu_that_was_to_be_busy_and_was_not_is_told() -> None:
    [(status, code, _)] = underloaded(load(Reading(utilisation=60)))

    assert (status, code) == ("WARN", "underloaded")
    assert underloaded(load(Reading(utilisation=99))) == []


def test_the_median_clock_of_many_readings() -> None:
    made = Load()
    for mhz in (1980, 1755, 1755, 1755, 1200):
        made.add(Reading(sm_mhz=mhz), 0.1)

    assert made.clock == 1755
    assert Load().clock is None


def test_the_sampler_adds_up_what_it_sees_and_names_the_faulty_gpu() -> None:
    loads = sampled(Fake(["gpu-a", "gpu-b"], {"temperature": 91}))

    assert codes(loads["gpu-a"]) == [("FAIL", "too_hot")]
    assert codes(loads["gpu-b"]) == []
    assert loads["gpu-b"].utilisation.value == 99.0


@pytest.mark.parametrize(
    ("fault", "value", "code"),
    [
        ("throttle-mask", 0x44, ("FAIL", "throttled_thermal")),
        ("throttle-mask", 0x88, ("FAIL", "throttled_power")),
        ("temperature", 91, ("FAIL", "too_hot")),
        ("pcie-gen", 1, ("FAIL", "pcie_degraded")),
        ("pcie-width", 8, ("WARN", "pcie_degraded")),
    ],
)
def test_every_fault_of_the_fake_is_found(fault: str, value: float, code: tuple[str, str]) -> None:
    assert codes(sampled(Fake(["gpu-a"], {fault: value}))["gpu-a"]) == [code]


def test_the_sampler_forgets_the_warm_up_and_keeps_a_log() -> None:
    log = io.StringIO()
    with Sampler(Fake(["gpu-a"]), log) as sampler:
        end = time.monotonic() + 60
        while not sampler.latest() and time.monotonic() < end:
            time.sleep(0.01)
        sampler.restart()
        assert sampler.loads == {} or sampler.loads["gpu-a"].samples < 3

    line = json.loads(log.getvalue().splitlines()[0])
    assert (line["uuid"], line["temperature_c"]) == ("gpu-a", 66.0)


def test_what_comes_after_the_work_is_not_counted() -> None:
    """A GPU that idles after its burn was not underloaded in it."""
    with Sampler(Fake(["gpu-a"])) as sampler:
        seen = sampled_in(sampler, 3)
        sampler.freeze()
        with sampler._lock:
            before = seen.samples
        after = sampler.latest()
        time.sleep(5 * Fake.interval)

    assert after
    assert seen.samples == before


def sampled_in(sampler: Sampler, samples: int) -> Load:
    """Wait until a sampler that runs has looked a few times."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with sampler._lock:
            found = sampler.loads.get("gpu-a")
        if found is not None and found.samples >= samples:
            return found
        time.sleep(0.01)
    raise AssertionError("nothing was sampled")


def pynvml(**functions: Any) -> types.ModuleType:
    """A driver's library that knows one GPU and only these of its functions."""
    module = types.ModuleType("pynvml")

    def by_uuid(uuid: str) -> str:
        if uuid != f"GPU-{UUID}":
            raise LookupError(uuid)
        return uuid

    for name, value in {"nvmlInit": lambda: None, "nvmlDeviceGetHandleByUUID": by_uuid}.items():
        setattr(module, name, value)
    for name, value in functions.items():
        setattr(module, name, value)
    return module


def refuse(*_: object) -> None:
    raise RuntimeError("Not Supported")


def test_nvml_is_found_by_uuid_and_all_its_figures_are_optional(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch names a GPU without its `GPU-`; what the driver refuses or lacks is None."""
    module = pynvml(
        nvmlDeviceGetTemperature=lambda _handle, _sensor: 71,
        nvmlDeviceGetPowerUsage=lambda _handle: 655_500,
        nvmlDeviceGetUtilizationRates=refuse,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _handle: 0x44,
        nvmlDeviceGetRemappedRows=lambda _handle: (0, 0, 1, 0),
        nvmlDeviceGetTotalEccErrors=lambda _handle, kind, _counter: 3 * kind,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)

    source = open_source([UUID, "somebody-else"])

    assert source is not None
    assert source.name == "nvml"
    assert source.read() == {UUID: Reading(temperature_c=71, power_w=655.5, reasons=0x44)}
    counted = source.counters()[UUID]
    assert counted == Counters(
        ecc_uncorrected=3, ecc_corrected=0, rows_pending=True, rows_failed=False, rows_remapped=0
    )


def test_without_a_driver_there_is_no_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(nvmlInit=refuse))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert open_source([UUID]) is None


SMI = f"""#!/bin/sh
case "$1" in
  *clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field'; exit 2 ;;
  --query-gpu=uuid,clocks_throttle_reasons.active) echo "GPU-{UUID}, 0x0000000000000044" ;;
  --query-gpu=uuid,utilization*) echo "GPU-{UUID}, 97, 83, [N/A], 1740, 139000, 5, 16, 0x0000000000000044"
                                 echo "GPU-of-another-job, 0, 30, 70, 345, 0, 1, 16, 0x1" ;;
  --query-gpu=uuid,serial) echo "GPU-{UUID}, 1654922000123"
                           echo "GPU-of-a-desktop, [N/A]"
                           echo "GPU-of-another, 0" ;;
esac
"""


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    """An nvidia-smi of an old driver, which knows the old name of a field only."""
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_nvidia_smi_answers_where_nvml_is_missing(
    smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", f"{smi.parent}:/bin:/usr/bin")

    source = open_source([UUID])

    assert source is not None
    assert source.name == "nvidia-smi"
    assert source.read() == {UUID: Reading(97, 83, None, 1740, 139000, 0x44, 5, 16)}


def test_serial_numbers_are_those_of_boards_that_have_one(
    smi: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By UUID without its kind, as torch has it."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert serial_numbers(str(smi)) == {UUID: "1654922000123"}
    assert serial_numbers(str(tmp_path / "none")) == {}


def test_a_timeline_keeps_the_whole_load_in_few_points_however_long_it_is() -> None:
    """A day at ten readings a second: evenly spread, with the heat at its end."""
    made, day = Timeline(), 86400
    for tenth in range(0, 10 * day, 7):
        hot = tenth > 9 * day
        made.add(tenth / 10, Reading(temperature_c=90.0 if hot else 60.0, power_w=tenth))
    told = made.as_json()
    assert set(told) == {"at_s", "temperature_c", "power_w"}, "no clock was read"
    assert MOST // 2 <= len(told["at_s"]) <= MOST
    assert (told["at_s"][0], told["temperature_c"][-1]) == (0.0, 90.0)
    steps = [b - a for a, b in itertools.pairwise(told["at_s"])]
    assert max(steps) < 1.1 * min(steps)
    assert told["at_s"][-1] > 0.98 * day
    assert Timeline().as_json() == {}


def test_an_nvidia_smi_that_fails_tells_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    broken.chmod(0o755)

    source = Smi(str(broken), [UUID])

    assert (source.read(), source.counters()) == ({}, {})


def test_a_gpu_that_nothing_was_read_of_is_told() -> None:
    """Heat and throttling of one are judged, of the other nothing is known; it is no PASS."""
    counted = Load()
    counted.add(HEALTHY, 1.0)
    ranks = SimpleNamespace(rank=0, nodes=1, world=1)
    report = Report("stress", ranks)  # type: ignore[arg-type]
    session: Any = SimpleNamespace(
        report=report, options=SimpleNamespace(mode="constant", rotate=None)
    )
    sampler: Any = SimpleNamespace(
        loads={"a": counted, "b": Load()}, source=SimpleNamespace(name="nvml")
    )
    stress._judge_telemetry(session, {"cuda:0": "a", "cuda:1": "b", "cuda:2": "c"}, sampler)

    assert [(t["device"], t["status"], t["code"]) for t in report.tests] == [
        ("cuda:0", "PASS", None),
        ("cuda:1", "WARN", "telemetry_unreadable"),
        ("cuda:2", "WARN", "telemetry_unreadable"),
    ]
