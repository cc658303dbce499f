"""The programs a sandbox is made of, and the one command that installs those that are missing."""

import os
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.sandbox import processes

PACKAGES: Final = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "sinfo": "slurm-client",
    "scontrol": "slurm-client",
    "munged": "munge",
}
ACCOUNTING_PACKAGES: Final = {
    "slurmdbd": "slurmdbd",
    "sacctmgr": "slurm-client",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
}


def require(*, accounting: bool, path: str | None = None) -> None:
    """Refuse to start without the packages; name all that are missing at once."""
    wanted = PACKAGES | (ACCOUNTING_PACKAGES if accounting else {})
    missing = [name for name in wanted if processes.program(name, path) is None]
    if missing:
        packages = list(dict.fromkeys(wanted[name] for name in missing))
        raise RvError(
            ErrorKind.SANDBOX,
            f"the sandbox needs {', '.join(missing)}, not found on PATH",
            hint=install_command(packages),
        )


def install_command(packages: list[str]) -> str:
    """What to type, as this user."""
    sudo = "" if os.getuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y --no-install-recommends {' '.join(packages)}"


def path_of(name: str) -> str:
    """The full path of a program that `require` has seen."""
    return processes.program(name) or name
