"""Configuration of a sandbox as text: pure, so tested without Slurm."""

from pathlib import Path

import pytest

from rv.errors import RvError
from rv.sandbox import daemons, gpu, layout, processes, schema, slurmconf
from rv.sandbox.layout import Layout
from rv.sandbox.profile import Mebibytes
from rv.sandbox.records import Record

PLACE = Layout(directory=Path("/d"), run=Path("/d/run"))
MIXED = """\
cluster: lab
cred_expire: 5
slurm_conf: {killwait: 30, JobRequeue: 0}
scheduler: {bf_interval: 7, bf_continue: null}
nodes:
  - prefix: n
    gres:
      - {type: a100, count: 2}
      - {type: 1g.10gb, count: 4, mig: 1g.10gb}
partitions:
  - {name: p, nodes: [n], exclusive: true, hidden: true, max_mem_per_cpu: 8000, billing: {CPU: 0, GRES/gpu: 2.5}}
"""


def conf(text: str = MIXED) -> str:
    return slurmconf.slurm_conf(schema.parse(text, where="x"), PLACE, base=17000, user="me")


def test_settings_of_a_profile_win_whatever_their_case() -> None:
    """Slurm would complain about a key that is there twice."""
    lines = conf().splitlines()
    assert [line for line in lines if line.lower().startswith("killwait")] == ["KillWait=30"]
    assert "JobRequeue=0" in lines
    assert "AuthInfo=socket=/d/run/munge.sock,cred_expire=5" in lines
    assert "SchedulerParameters=bf_interval=7,bf_continue" in lines


def test_a_partition_has_what_the_profile_says() -> None:
    """And nothing else."""
    line = conf().splitlines()[-1]
    assert line == (
        "PartitionName=p Nodes=n1 MaxMemPerCPU=8000 OverSubscribe=EXCLUSIVE Hidden=YES "
        'TRESBillingWeights="CPU=0,GRES/gpu=2.5" State=UP'
    )


def test_kinds_on_one_node_have_distinct_device_numbers() -> None:
    """CUDA_VISIBLE_DEVICES is made of them."""
    text = slurmconf.gres_conf(schema.parse(MIXED, where="x"), PLACE)
    assert text.splitlines() == [
        "NodeName=n1 Name=gpu Type=a100 File=/d/dev/gpu[0-1]",
        "NodeName=n1 Name=gpu Type=1g.10gb File=/d/dev/gpu[2-5]",
    ]


def test_cloud_nodes_are_powered_down_and_have_no_slurmd() -> None:
    """And slurm.conf has what Slurm needs for such nodes, which others do not have."""
    text = MIXED.replace("  - prefix: n\n", "  - {prefix: c, cloud: true}\n  - prefix: n\n")
    assert schema.parse(text, where="x").running_nodes == ("n1",)
    lines = conf(text).splitlines()
    assert "PrivateData=cloud" in lines
    assert [line.rpartition(" ")[2] for line in lines if line.startswith("NodeName=c1")] == [
        "State=CLOUD"
    ]
    assert "PrivateData=cloud" not in conf()


def test_every_node_has_a_port_of_its_own() -> None:
    """The first two are the controller's and slurmdbd's."""
    profile = schema.load_profile("campus")
    text = slurmconf.slurm_conf(profile, PLACE, base=17000, user="me")
    ports = [word for word in text.split() if word.startswith("Port=")]
    assert ports == [f"Port={17002 + number}" for number in range(len(profile.node_names))]
    assert slurmconf.port_count(profile) == len(profile.node_names) + 2


def test_a_deep_folder_gets_short_socket_paths() -> None:
    """sun_path ends at 108 bytes."""
    near, deep = Path("/home/me/.local/state/rv/sandbox/default"), Path("/" + "deep/" * 20)
    assert layout.run_directory(near, 6) == near / "run"
    assert str(layout.run_directory(deep, 20)).startswith("/tmp/rv-")


def devices() -> list[gpu.Device]:
    csv = "0, NVIDIA H100 80GB HBM3, 81559\n1, NVIDIA H100 80GB HBM3, 81559\n3, Tesla T4, 15360\nnoise\n"
    return gpu.parse_devices(csv, ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia3"])


def test_real_devices_become_a_cluster_of_one_node() -> None:
    """Models are typed, files are the real ones, and there is nothing fake about it."""
    profile = gpu.gpu_profile(devices(), cpus=16, memory=128000)
    text = slurmconf.gres_conf(profile, PLACE)
    assert text.splitlines() == [
        "NodeName=gpu1 Name=gpu Type=h100 File=/dev/nvidia0,/dev/nvidia1",
        "NodeName=gpu1 Name=gpu Type=t4 File=/dev/nvidia3",
    ]
    assert profile.nodes[0].memory == 128000
    assert slurmconf.fake_device_count(profile) == 0
    assert "Gres=gpu:h100:2,gpu:t4:1" in slurmconf.slurm_conf(profile, PLACE, base=17000, user="me")


def test_a_gpu_without_a_device_file_is_left_out() -> None:
    """nvidia-smi can list what this container does not have."""
    found = gpu.parse_devices("0, NVIDIA A40, 46068\n1, NVIDIA A40, 46068\n", ["/dev/nvidia1"])
    assert found == [
        gpu.Device(index=1, name="NVIDIA A40", memory=Mebibytes(46068), file="/dev/nvidia1")
    ]


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA RTX A6000", "rtxa6000"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_product_name_becomes_a_gres_type(product: str, kind: str) -> None:
    """As sites name their types."""
    assert gpu.gres_type(product) == kind


def test_missing_packages_are_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is missing is named, with the command that installs it."""
    monkeypatch.setattr("rv.sandbox.processes.DAEMON_PATH", "/nonexistent")
    with pytest.raises(RvError) as caught:
        processes.require(accounting=True, path="/nonexistent")
    assert "slurmctld, slurmd, sbatch" in caught.value.message
    assert caught.value.hint.removeprefix("sudo ") == (
        "apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge "
        "slurmdbd mariadb-server-core mariadb-client-core"
    )


def test_the_database_is_there_before_slurmdbd_asks_for_it(record: Record) -> None:
    """slurmdbd 26.05 with MariaDB 11.8 fails where it has to make it, and at 11.6's isolation."""
    command = daemons.command(record, daemons.MARIADBD)
    assert f"--init-file={record.layout.database_sql}" in command
    assert "--loose-innodb-snapshot-isolation=OFF" in command
    conf = slurmconf.slurmdbd_conf(record.layout, base=17000, user="me")
    (database,) = [line for line in conf.splitlines() if line.startswith("StorageLoc=")]
    assert database.removeprefix("StorageLoc=") in slurmconf.DATABASE_SQL.split()[-1]


@pytest.mark.parametrize(
    ("version", "is_said"),
    [
        ("slurm-wlm 20.11.4\n", False),
        ("slurm 21.08.8-2\n", True),
        ("slurm-wlm 22.05.8\n", True),
        ("slurm-wlm 26.05.5\n", True),
    ],
)
def test_a_slurm_with_one_cgroup_plugin_is_not_told_which(version: str, is_said: bool) -> None:
    """20.11: `Parse error in file cgroup.conf line 1: "CgroupPlugin=cgroup/v1"`."""
    text = slurmconf.cgroup_conf(PLACE, version)
    assert ("CgroupPlugin=cgroup/v1\n" in text) == is_said
    assert f"CgroupMountpoint={PLACE.cgroup}\n" in text


def test_only_the_daemons_are_told_to_keep_to_one_address() -> None:
    """A client's srun listens too, on the address that the nodes reach."""
    profile = schema.parse(
        MIXED.replace("JobRequeue: 0", "CommunicationParameters: keepalivetime=9"), where="x"
    )
    text = slurmconf.daemons_conf(profile, PLACE, "NoInAddrAny,NoCtldInAddrAny")
    assert text.splitlines() == [
        "Include /d/slurm.conf",
        "CommunicationParameters=keepalivetime=9,NoInAddrAny,NoCtldInAddrAny",
    ]
    assert "NoInAddrAny" not in conf()
    assert (
        slurmconf.daemons_conf(schema.parse(MIXED, where="x"), PLACE, "")
        == "Include /d/slurm.conf\n"
    )
    there = slurmconf.slurm_conf(profile, PLACE, base=17000, user="me", address="127.0.1.1")
    assert "SlurmctldHost=localhost(127.0.1.1)" in there
    assert "NodeAddr=127.0.1.1 " in there
