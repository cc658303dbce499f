"""The launcher, and its configuration.

Hydra imports this whenever a program of its starts, so rv itself is imported where it is used. The
class also takes the configuration of hydra-submitit-launcher, where
`hydra.launcher._target_=hydra_plugins.rv_launcher.launcher.RvLauncher` stands beside it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

LOG = logging.getLogger(__name__)


@dataclass
class RvConfig:
    """The parameters that `rv.Executor` takes; None is its own default. `options` are rv's."""

    _target_: str = "hydra_plugins.rv_launcher.launcher.RvLauncher"
    folder: str = "${hydra.sweep.dir}/.rv/%j"
    name: str = "${hydra.job.name}"
    cluster: str | None = None
    gpus_per_node: int | None = None
    nodes: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    timeout_min: int | None = None
    max_num_timeout: int = 0
    array_parallelism: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(
    group="hydra/launcher", name="rv", node=RvConfig, provider="rv_launcher"
)


class HydraJob:
    """One job of a sweep, as it is called on its node."""

    def __init__(self, context: HydraContext, function: TaskFunction, config: DictConfig) -> None:
        self.context, self.function, self.config = context, function, config

    def __call__(self, overrides: list[str], number: int, state: Any) -> JobReturn:
        """Run the program's function with its overrides."""
        import rv

        Singleton.set_state(state)
        setup_globals()
        config = self.context.config_loader.load_sweep_config(self.config, overrides)
        job: Any = config.hydra.job
        with open_dict(job):
            job.id, job.num = rv.JobEnvironment().job_id, number
        return run_job(
            hydra_context=self.context,
            task_function=self.function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )


class ResumableHydraJob(HydraJob):
    """One that is called again when its time is over; its function finds its own checkpoints."""

    def checkpoint(self, *args: Any) -> Any:
        """Return the same call."""
        import rv

        return rv.DelayedSubmission(self, *args)


class RvLauncher(Launcher):
    """Runs the jobs of `--multirun` as races, and waits for all of them."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters: dict[str, Any] = {
            name: OmegaConf.to_container(value, resolve=True)
            if OmegaConf.is_config(value)
            else value
            for name, value in parameters.items()
        }
        self.setting: tuple[HydraContext, TaskFunction, DictConfig] | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what a sweep is of."""
        self.setting = (hydra_context, task_function, config)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit the jobs together; return what each came to, in order."""
        if self.setting is None:
            raise RuntimeError("setup() was not called")
        import rv

        config = self.setting[2]
        parameters = dict(self.parameters)
        folder = parameters.pop("folder", None) or parameters.pop("submitit_folder")
        most = parameters.pop("max_num_timeout", 0)
        executor = rv.Executor(folder, max_num_timeout=most)
        executor.update_parameters(**_of_executor(parameters))
        sweep = Path(str(config.hydra.sweep.dir))
        sweep.mkdir(parents=True, exist_ok=True)
        if "mode" in config.hydra.sweep:
            sweep.chmod(int(str(config.hydra.sweep.mode), 8))
        numbers = range(initial_job_idx, initial_job_idx + len(job_overrides))
        for number, overrides in zip(numbers, job_overrides, strict=True):
            LOG.info("\t#%d : %s", number, " ".join(filter_overrides(overrides)))
        job = (ResumableHydraJob if most else HydraJob)(*self.setting)
        states = [Singleton.get_state() for _ in numbers]
        jobs = executor.map_array(job, [list(each) for each in job_overrides], numbers, states)
        LOG.info("rv: %s", " ".join(each.job_id for each in jobs))
        return [each.result() for each in jobs]


def _of_executor(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the executor's parameters; what it has only with Slurm's prefix gets that."""
    from rv.api.parameters import is_known

    found = dict(parameters)
    found |= found.pop("options", None) or {}
    found.pop("submitit_folder", None)
    return {name if is_known(name) else f"slurm_{name}": each for name, each in found.items()}
