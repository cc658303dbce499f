"""A whole `rv up --dry-run` on the campus sandbox. Wanted: at most 0.5 s of wall time.

Cold: nothing is cached. Warm: limits are cached, the cluster is asked. Shared: within 30 s.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cluster import cluster, rv
from timing import alternate


def main() -> None:
    """Print medians and the ratio to a bare `scontrol show node` of the same cluster."""
    with cluster("campus") as target:
        cache = Path(os.environ["XDG_CACHE_HOME"]) / "rv"

        def dry_run() -> None:
            done = rv("up", "--dry-run")
            assert done.returncode == 0, done.stderr

        def cold() -> None:
            for file in cache.glob("*.*"):
                if file.is_file():
                    file.unlink()
            dry_run()

        def warm() -> None:
            for file in cache.glob("*.probe"):
                file.unlink()
            dry_run()

        seconds = alternate(
            {
                "python": lambda: subprocess.run(
                    [sys.executable, "-c", "import typer, jinja2, yaml"]
                ),
                "scontrol": lambda: target.transport.run("scontrol show node -d -o", timeout_s=30),
                "cold": cold,
                "warm": warm,
                "shared": dry_run,
            },
            rounds=9,
        )
    floor = seconds["python"] + seconds["scontrol"]
    for name in ("cold", "warm", "shared"):
        ratio = seconds[name] / floor
        print(
            f"dry run, {name}: {seconds[name]:.3f} s (want <= 0.5), {ratio:.1f} x the floor",
            end=" ",
        )
        print(f"of importing its libraries and one scontrol ({floor:.3f} s)")


if __name__ == "__main__":
    assert shutil.which("sbatch"), "Slurm is needed"
    main()
