"""What of the environment Slurm's commands see, and what goes with a job."""

import pytest

from rv.slurm.environment import caller_environment, scrubbed_environment, why_refused


@pytest.mark.parametrize(
    "name",
    ["SQUEUE_STATES", "SBATCH_JOB_NAME", "SALLOC_X", "SACCT_FORMAT", "SINFO_FORMAT", "SCANCEL_STATE", "SLURM_JOB_ID",
     "SLURM_CLUSTERS", "SCONTROL_ALL", "SACCTMGR_X", "SRUN_DEBUG", "BASH_ENV", "ENV", "SHELLOPTS", "BASH_FUNC_scontrol%%",
     "POSIXLY_CORRECT", "EXECIGNORE", "FUNCNEST", "TMOUT", "PS4", "GREP_OPTIONS", "CDPATH", "IFS", "GLOBIGNORE"],
)  # fmt: skip
def test_scrubbed(name: str) -> None:
    """A variable that changes what Slurm's commands or bash do is gone."""
    assert name not in scrubbed_environment({name: "x", "PATH": "/bin"})


def test_kept_for_slurm() -> None:
    """SLURM_CONF and everything else stay; times and locale are fixed."""
    found = scrubbed_environment(
        {"SLURM_CONF": "/c", "TZ": "UTC", "LC_ALL": "de", "SLURM_TIME_FORMAT": "relative"}
    )
    assert found == {
        "SLURM_CONF": "/c",
        "TZ": "UTC",
        "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "standard",
    }


@pytest.mark.parametrize(
    "name",
    ["SLURM_CONF", "SBATCH_ACCOUNT", "PWD", "OLDPWD", "SHLVL", "_", "TMPDIR", "DISPLAY", "SSH_AUTH_SOCK", "TERM", "XDG_RUNTIME_DIR",
     "BASH_FUNC_ml%%", "SHELLOPTS", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "PET_NNODES",
     "RV_RACE", "PMI_RANK", "OMP_NUM_THREADS", "bad-name", "1X", ""],
)  # fmt: skip
def test_left_behind(name: str) -> None:
    """Slurm's, the session's, the devices' and the ranks' variables do not go with a job."""
    assert caller_environment({name: "x"}) == {}


def test_goes_along() -> None:
    """A user's own variables, venv and modules go with the job, newlines included."""
    mine = {"PATH": "/v/bin:/bin", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "HF_TOKEN": "a\nb'c", "SQUAD_DIR": "/d",
            "LOADEDMODULES": "cuda", "OMPI_MCA_btl": "tcp", "TERMINUS": "x", "LANG": "C.UTF-8", "HOME": "/h"}  # fmt: skip
    assert caller_environment(mine) == mine


@pytest.mark.parametrize(
    "name",
    ["SLURM_CONF", "SBATCH_ACCOUNT", "RV_RACE", "rv_pair", "BASH_ENV", "IFS", "UID", "PWD", "_", "MASTER_ADDR", "RANK",
     "CUDA_VISIBLE_DEVICES", "PET_NNODES", "bad-name", "1X", "", "A B", "A\n"],
)  # fmt: skip
def test_no_user_sets(name: str) -> None:
    """What rv, Slurm or bash itself sets or reads, and what is no name."""
    assert why_refused(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "TMPDIR", "DISPLAY", "LC_ALL", "HF_TOKEN", "x", "SQUAD_DIR"],
)  # fmt: skip
def test_a_user_may_set(name: str) -> None:
    """Even what would not go along by itself, such as the folder for temporary files."""
    assert not why_refused(name)
