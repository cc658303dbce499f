"""rv beside ssh through a network that delays; both over a connection that is shared already.

Wanted: at 50 ms each way a second `rv ps` takes at most 1.5 times `ssh HOST squeue`. rv asks in a
login shell, as a job needs its environment: what profiles cost there is in the second ratio too.
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

ROUNDS = 5
DELAYS_S = (0.01, 0.05, 0.2)


def main() -> None:
    """Print a line for each delay."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed rv has its bytecode
    folder = Path(tempfile.mkdtemp(prefix="rvb", dir="/tmp"))
    with cluster("campus") as target:
        home = folder / "home"
        home.mkdir()
        server = SshServer(path=folder / "s")
        server.settings = [f"SetEnv HOME={home} SLURM_CONF={os.environ['SLURM_CONF']}"]
        server.start()
        assert target
        try:
            for delay_s in DELAYS_S:
                _measure(delay_s, folder, server)
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)


def _measure(delay_s: float, folder: Path, server: SshServer) -> None:
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
    _seconds([*RV, "ps"], env, 1)
    seconds = {
        "ssh true": _seconds([*ssh, "true"], env),
        "ssh squeue": _seconds([*ssh, "squeue"], env),
        "ssh login": _seconds([*ssh, "bash --login -c squeue"], env),
        "rv ps": _seconds([*RV, "ps"], env),
    }
    for _ in range(ROUNDS):
        seconds["rv run -d, 12 jobs"] = min(
            seconds.get("rv run -d, 12 jobs", 1e9), _seconds(up, env, 1)
        )
        _seconds([*RV, "stop", "--all"], env, 1)
        time.sleep(1)
    ratio, of_login = (seconds["rv ps"] / seconds[name] for name in ("ssh squeue", "ssh login"))
    each = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    print(f"round trips, {delay_s * 1000:.0f} ms each way: {each}; ps/squeue {ratio:.2f}"
          f" (in a login shell {of_login:.2f})")  # fmt: skip
    proxy.close()


def _seconds(command: list[str], env: dict[str, str], rounds: int = ROUNDS) -> float:
    """Return the median of so many runs."""
    times = []
    for _ in range(rounds):
        began_s = time.monotonic()
        subprocess.run(command, env=env, check=False, capture_output=True)
        times.append(time.monotonic() - began_s)
    return median(times)


if __name__ == "__main__":
    main()
