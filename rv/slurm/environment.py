"""Which environment variables Slurm's commands may see, and which of the caller's go with a job."""

import re
from collections.abc import Mapping
from typing import Final

_SLURM: Final = (
    "(SLURM|SLURMD|SLURMCTLD|SLURMDBD|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SACCTMGR|SINFO|SCANCEL"
    "|SCONTROL|SPRIO|SSHARE|SSTAT|SREPORT|SDIAG|SCRON|SCRONTAB|SATTACH|STRIGGER|SBCAST|SGATHER"
    "|SMAP|SVIEW)_.*"
)
# Each of these changes what the same lines do in a child bash, or cannot be set in bash: where `cd`
# goes, which programs are found, how deep functions go, how long `read` waits, what grep looks for.
_BASH: Final = (
    "(BASH.*|ENV|SHELLOPTS|E?UID|PPID|CDPATH|GLOBIGNORE|IFS|POSIXLY_CORRECT|EXECIGNORE|FUNCNEST"
    "|TMOUT|PS4|GREP_OPTIONS)"
)
SCRUBBED_FORM: Final = f"{_SLURM}|{_BASH}"
"""Which variables Slurm's commands do not see, but for SLURM_CONF, as bash matches names too."""

_SESSION: Final = (
    r"PWD|OLDPWD|SHLVL|_|PS[0-4]|PROMPT_COMMAND|HOSTNAME|HOST|TMPDIR|TMP|TEMP|MAIL|KRB5CCNAME"
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_RUNTIME_DIR|XDG_SESSION_.*|XDG_SEAT|XDG_VTNR"
    r"|DBUS_SESSION_BUS_ADDRESS|SSH_.*|TERM|TERM_.*|TERMCAP|COLORTERM|LC_TERMINAL.*|COLUMNS|LINES"
    r"|WINDOWID|TMUX.*|STY|GPG_TTY|GPG_AGENT_INFO|VSCODE_.*|INVOCATION_ID|JOURNAL_STREAM"
    r"|SYSTEMD_EXEC_PID"
)
_DEVICES: Final = r"(?:CUDA|NVIDIA|ROCR|HIP)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK"
_RANKS: Final = (
    r"MASTER_(?:ADDR|PORT)|(?:LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(?:LOCAL_|GROUP_|ROLE_)?WORLD_SIZE"
    r"|NNODES|PET_.*|TORCHELASTIC_.*|PMIX?_.*|OMPI_COMM_WORLD_.*|MPI_LOCALN?RANK.*|RV_.*"
    r"|OMP_NUM_THREADS"
)
_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_SHELL_OWN: Final = r"_|PWD|OLDPWD|SHLVL"
_OF_RV: Final = r"(?:RV|rv)_.*"
_DEFAULT_ONLY: Final = ("OMP_NUM_THREADS",)
_STAYS: Final = (_SLURM, _BASH, _SESSION, _DEVICES, _RANKS)


def scrubbed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what Slurm's commands run with: the caller's variables without Slurm's own.

    SLURM_CONF stays. Output is in the C locale with ISO times, and nothing runs before a script's
    first line.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name == "SLURM_CONF" or not re.fullmatch(SCRUBBED_FORM, name, re.DOTALL)
    }
    return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def caller_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return which of the caller's variables go with a job.

    Left behind are Slurm's variables (the job has its own), what belongs to this login session or
    this machine (terminal, X11, ssh, temporary folders, ticket caches), GPU numbers, ranks and
    rendezvous of a surrounding job, OMP_NUM_THREADS (rv sets it from the CPUs the job gets),
    exported bash functions, and names that a shell cannot assign.
    """
    return {
        name: value
        for name, value in environ.items()
        if re.fullmatch(_IDENTIFIER, name) and not any(re.fullmatch(form, name) for form in _STAYS)
    }


def why_refused(name: str) -> str:
    """Return why a user may not set a variable of this name for a job, "" where they may.

    Refused is what rv or Slurm sets for each job, which would not be what the user wrote, and what
    changes how the job script itself is read. PATH, LD_PRELOAD and LD_LIBRARY_PATH may be set: the
    job script calls Slurm's commands without them.
    """
    if not re.fullmatch(_IDENTIFIER, name):
        return "a name has letters, digits and underscores, and begins with no digit"
    if re.fullmatch(_SLURM, name):
        return "it is Slurm's own: --sbatch gives sbatch an option"
    if re.fullmatch(_OF_RV, name):
        return "names that begin with RV_ or rv_ are rv's own"
    if re.fullmatch(_BASH, name) or re.fullmatch(_SHELL_OWN, name):
        return "it changes how bash reads the job script: set it in the command itself"
    if name not in _DEFAULT_ONLY and (re.fullmatch(_RANKS, name) or re.fullmatch(_DEVICES, name)):
        return "rv or Slurm sets it in each job: set it in the command itself"
    return ""
