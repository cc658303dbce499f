"""A login by ssh to a race's node: an sshd of the user's own, in a step of the race's job.

It needs no sshd of the site's on the node, and the shell is in the job's cgroup. Its host key lies
in the race directory; the public one comes over rv's connection to the login node, which has been
checked, and is what ssh then expects.
"""

from importlib.resources import files
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.render.quote import shell as quoted
from rv.slurm.printable import last_line, printable
from rv.transport.relay import LinkError
from rv.transport.standard_streams import carry
from rv.transport.tunnel import EndedError
from rv.workflow.attach import ENVIRONMENT, Place
from rv.workflow.cluster import Cluster
from rv.workflow.forward import start_relay

_PREPARING_S: Final = 60.0
_SCRIPTS: Final = files("rv.workflow") / "scripts"

# The directory was checked by rv, with what leads to it: StrictModes refuses a sticky /scratch.
_CONFIG: Final = """\
HostKey "{directory}/ssh/host_key"
AuthorizedKeysFile "{percent}/ssh/authorized_keys"
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
LogLevel ERROR
PrintMotd no
PrintLastLog no
AcceptEnv LANG LC_* COLORTERM
"""
# What sshd starts, with the name of the node: the race's environment, and the step's own variables.
_SHELL: Final = """\
node=$1
{environment}
while IFS= read -r -d '' pair; do export "$pair"; done <{directory}/ssh/step."$node"
command=${{SSH_ORIGINAL_COMMAND-}}
unset SSH_ORIGINAL_COMMAND pair
cd || exit
[ -z "$command" ] || exec "${{SHELL:-/bin/bash}}" -c "$command"
cd {workdir} 2>/dev/null
exec "${{SHELL:-/bin/bash}}" -i
"""


def prepare_login(place: Place, public_key: str, cluster: Cluster) -> str:
    """Let this key log in to a race, and return the host key that ssh is to expect.

    Raises `RvError(STAGE)` where that cannot be made there.
    """
    race = place.race
    directory = quoted(race.directory)
    shell = _SHELL.format(
        environment=ENVIRONMENT.format(directory=directory),
        directory=directory,
        workdir=quoted(race.workdir or "."),
    )
    config = _CONFIG.format(directory=race.directory, percent=race.directory.replace("%", "%%"))
    values = {"directory": race.directory, "key": public_key, "config": config, "shell": shell}
    head = "".join(f"{name}={quoted(value)}\n" for name, value in values.items())
    script = (_SCRIPTS / "ssh_prepare.sh").read_text(encoding="utf-8")
    done = cluster.transport.run(head + script, timeout_s=_PREPARING_S)
    kind, _, rest = done.stdout.strip().partition(" ")
    if done.returncode or kind != "ssh-ed25519":
        why = last_line(done.stderr) or "no host key was made"
        raise RvError(
            ErrorKind.STAGE,
            f"cannot prepare a login to race {race.race_id}: {why}",
            hint=f"rv attach {race.race_id} opens a shell without one",
        )
    return f"{kind} {printable(rest.partition(' ')[0])}"


def connect_standard_streams(place: Place, keys: int, cluster: Cluster) -> None:
    """Carry `keys` and standard output to an sshd on the node, to the end of either.

    Raises `RvError(REFUSED)` where there is none, or the step cannot start.
    """
    script = (_SCRIPTS / "sshd.sh").read_text(encoding="utf-8")
    program = f"directory={quoted(place.race.directory)}\n{script}"
    tunnel = start_relay(place, cluster, program)
    try:
        why = "" if carry(tunnel, keys) else tunnel.finish()
    except EndedError as error:
        why = error.text
    except LinkError as error:
        why = str(error)
    finally:
        tunnel.close()
    if why:
        raise RvError(
            ErrorKind.REFUSED,
            f"no login to {place.node}: {last_line(why).removeprefix('srun: error: ')}",
            hint=f"rv attach {place.race.race_id} opens a shell there without sshd",
        )
