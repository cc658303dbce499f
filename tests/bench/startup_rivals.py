"""How long other people's launchers take to say what they can do, beside rv in the same run.

Each is asked for its help, submitit (which has no command) is imported; all with files that are in memory.
Wanted: `rv --help` in at most 1.5 times what `import typer` takes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.results import Figure, note
from tests.bench.rivals import installed, versions
from tests.bench.timing import alternate

ROUNDS = 9
MOST = 1.5


def main() -> None:
    """Print each one's seconds and ratio."""
    names = ["typer", "submitit", "torchx", "sky"]
    with installed(names) as bins, tempfile.TemporaryDirectory() as folder:
        # squeue wants a configuration before it says anything; nothing listens there.
        conf = Path(folder) / "slurm.conf"
        conf.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
        os.environ["SLURM_CONF"] = str(conf)
        os.environ["HOME"] = folder
        commands = {"rv --help": [sys.executable, "-m", "rv", "--help"]}
        if "typer" in bins:
            commands["import typer"] = [str(bins["typer"] / "python"), "-c", "import typer"]
        commands["squeue --help"] = ["squeue", "--help"]
        if "submitit" in bins:
            commands["import submitit"] = [
                str(bins["submitit"] / "python"),
                "-c",
                "import submitit",
            ]
        for name in ("torchx", "sky"):
            if name in bins:
                commands[f"{name} --help"] = [str(bins[name] / name), "--help"]
        seconds = alternate(
            {name: lambda argv=argv: _run(argv) for name, argv in commands.items()}, ROUNDS
        )
        tried = versions(bins)
    base = "import typer"
    unit = f"times {base}" if base in seconds else "s"
    for name, value in seconds.items():
        ratio = value / seconds.get(base, 1.0)
        most = MOST if name == "rv --help" and base in seconds else None
        version = tried.get(name.split()[-1] if "import" in name else name.split()[0], "")
        what = f"{name} ({version})" if version else name
        print(f"startup_rivals: {what}: {value * 1000:.0f} ms, {ratio:.2f} {unit}")
        note(
            "startup_rivals",
            [Figure(what=f"`{name}` {version}".strip(), value=ratio, unit=unit, most=most)],
        )


def _run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
