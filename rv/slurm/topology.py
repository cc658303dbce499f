"""What `scontrol show topology` prints: which switch, or block, each node is on."""

import re
from typing import Final

from rv.slurm.hostlist import expand

SCRIPT: Final = "timeout --foreground -k 1 20 scontrol show topology </dev/null 2>/dev/null\n"
"""It fails, or says that there is none, where the site describes no topology."""

_LEAF: Final = re.compile(
    r"^\s*(?:SwitchName=(\S{1,100}) Level=0\b|BlockName=(\S{1,100})\b).*?\bNodes=(\S+)",
    re.MULTILINE,
)
_MOST_NODES: Final = 100_000


def parse_show_topology(text: str) -> dict[str, str]:
    """Return each node's leaf switch, or its block; {} where Slurm knows of none.

    A node that stands at two leaves is of the first.
    """
    leaves: dict[str, str] = {}
    for switch, block, nodes in _LEAF.findall(text):
        for node in expand(nodes) if len(leaves) < _MOST_NODES else ():
            leaves.setdefault(node, switch or block)
    return leaves
