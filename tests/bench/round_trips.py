"""rv beside ssh through a network that delays; both over a connection that is shared already.

Wanted: at 50 ms each way a second `rv ps` takes at most 1.5 times `ssh HOST squeue`. rv asks in a
login shell, as a job needs its environment, and squeue by itself in none: what the scripts of
/etc/profile.d cost is measured apart (environment-modules, which the tests install, starts Tcl), and
the second ratio has it on both sides. Root only, by whom the login node gets an empty /etc/profile.d.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from cluster import RV, cluster

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.ssh.proxy import Proxy  # noqa: E402 - it lies beside the package
from tests.ssh.server import HOST, SshServer  # noqa: E402

ROUNDS = 15  # in turn: the machine gets warmer
LAUNCHES = 5
DELAYS_S = (0.01, 0.05, 0.2)
WITH_PROFILES_S = (0.05,)


def main() -> None:
    """Print a line for each delay."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed rv has its bytecode
    with cluster("campus"):
        _measure_all("an empty /etc/profile.d", DELAYS_S, is_empty=True)
        _measure_all("this machine's /etc/profile.d", WITH_PROFILES_S, is_empty=False)


def _measure_all(title: str, delays_s: tuple[float, ...], *, is_empty: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rvb", dir="/tmp"))
    for name in ("home", "profiles"):
        (folder / name).mkdir()
    server = SshServer(path=folder / "s")
    server.binds = {"/etc/profile.d": folder / "profiles"} if is_empty else {}
    server.settings = [f"SetEnv HOME={folder / 'home'} SLURM_CONF={os.environ['SLURM_CONF']}"]
    server.start()
    try:
        for delay_s in delays_s:
            _measure(title, delay_s, folder, server)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(title: str, delay_s: float, folder: Path, server: SshServer) -> None:
    proxy = Proxy([server.port], delay_s=delay_s)
    alias = f"HostKeyAlias [127.0.0.1]:{server.port}"
    server.configure_client(f"Port {proxy.port}", alias)
    runtime = folder / f"{delay_s}"
    runtime.mkdir(mode=0o700)
    changes = {
        "PATH": server.search_path,
        "XDG_RUNTIME_DIR": str(runtime),
        "RV_CLUSTER": f"ssh:{HOST}",
        "PYTHONPATH": str(ROOT),
    }
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")} | changes
    ssh = ["ssh", "-o", f"ControlPath={runtime}/rv/%C", HOST]
    up = [*RV, "run", "-d", "--gpu", "4", "--time", "5m", "--fanout", "each", "sleep 60"]
    _seconds([*RV, "ps"], env)
    commands = {
        "ssh true": [*ssh, "true"],
        "ssh squeue": [*ssh, "squeue"],
        "ssh login": [*ssh, "bash --login -c squeue"],
        "rv ps": [*RV, "ps"],
    }
    rounds = [
        {name: _seconds(words, env) for name, words in commands.items()} for _ in range(ROUNDS)
    ]
    seconds = {name: median(each[name] for each in rounds) for name in commands}
    launches = []
    for _ in range(LAUNCHES):
        launches.append(_seconds(up, env))
        _seconds([*RV, "stop", "--all"], env)
        time.sleep(1)
    seconds["rv run -d, 12 jobs"] = min(launches)
    ratio, of_login = (seconds["rv ps"] / seconds[name] for name in ("ssh squeue", "ssh login"))
    each = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    print(f"round trips, {delay_s * 1000:.0f} ms each way, {title}: {each}; ps/squeue {ratio:.2f}"
          f" (in a login shell {of_login:.2f})")  # fmt: skip
    proxy.close()


def _seconds(command: list[str], env: dict[str, str]) -> float:
    began_s = time.monotonic()
    subprocess.run(command, env=env, check=False, capture_output=True)
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()
