"""Slurm's reasons that name a limit, as sentences: `QOSMaxGRESPerUser`, `AssocGrpCpuLimit`.

They are put together from whose limit it is, of what, over what time, and for whom, and so are the
sentences.
"""

import re
from typing import Final

_WHAT: Final = {
    "cpu": "CPU",
    "mem": "memory",
    "memory": "memory",
    "gres": "GPU",
    "node": "node",
    "license": "license",
    "bb": "burst buffer",
    "energy": "energy",
    "billing": "billing",
    "unknown": "resource",
}
_COUNTED: Final = frozenset({"CPU", "GPU", "node", "license", "resource"})
_RESOURCE: Final = rf"(?P<what>{'|'.join(_WHAT)})"
_FORM: Final = re.compile(
    rf"(?P<owner>qos|assoc)(?P<kind>grp|max|min){_RESOURCE}(?P<time>minutes|runminutes)?"
    r"(?:per(?P<whom>job|node|user))?(?:limit|notsatisfied)?"
)
_ACCOUNT_FORM: Final = re.compile(rf"max{_RESOURCE}(?P<time>runmins)?per(?P<whom>account|user)")
_OWNERS: Final = {"qos": "the QOS", "assoc": "the account"}
_JOBS: Final = {
    "qosgrpjobslimit": "everybody of this QOS together runs as many jobs as it allows",
    "qosgrpsubmitjobslimit": "everybody of this QOS together has as many jobs as it allows",
    "qosgrpwalllimit": "everybody of this QOS together has used up its time",
    "qosmaxjobsperuserlimit": "you run as many jobs as the QOS allows",
    "qosmaxsubmitjobperuserlimit": "you have as many jobs as the QOS allows",
    "qosmaxwalldurationperjoblimit": "it asks for more time than the QOS allows",
    "assocgrpjobslimit": "the account runs as many jobs as it may",
    "assocgrpsubmitjobslimit": "the account has as many jobs as it may",
    "assocgrpwalllimit": "the account has used up its time",
    "assocmaxjobslimit": "you run as many jobs as the account allows",
    "assocmaxsubmitjoblimit": "you have as many jobs as the account allows",
    "assocmaxwalldurationperjoblimit": "it asks for more time than the account allows",
    "maxjobsperaccount": "the account runs as many jobs as the QOS allows",
    "maxsubmitjobsperaccount": "the account has as many jobs as the QOS allows",
}


def limit_sentence(reason: str) -> str:
    """Say which limit is in the way; "" for a reason that names none."""
    name = reason.lower()
    if name in _JOBS:
        return _JOBS[name]
    if match := _ACCOUNT_FORM.fullmatch(name):
        who = "the account" if match["whom"] == "account" else "you"
        return _too_much(who, match["what"], "the QOS allows", at_once=bool(match["time"]))
    if match := _FORM.fullmatch(name):
        return _of_owner(match)
    return ""


def _of_owner(match: re.Match[str]) -> str:
    owner, what = _OWNERS[match["owner"]], match["what"]
    if match["kind"] == "min":
        return f"it asks for less than the {_thing(what)} that {owner} demands"
    if match["kind"] == "grp":
        return _of_group(match["owner"], what, match["time"])
    if match["whom"] == "user":
        return _too_much("you", what, f"{owner} allows")
    asked = f"{_WHAT[what]}-minutes" if match["time"] else _thing(what)
    where = "on a node" if match["whom"] == "node" else "a job"
    return f"it asks for more {asked} than {owner} allows {where}"


def _of_group(owner: str, what: str, time: str | None) -> str:
    who = "everybody of this QOS together" if owner == "qos" else "the account"
    if time == "minutes":
        return f"{who} has used up its {_WHAT[what]}-minutes"
    limit = "it allows" if owner == "qos" else "it may"
    return _too_much(who, what, limit, at_once=time == "runminutes")


def _too_much(who: str, what: str, limit: str, *, at_once: bool = False) -> str:
    """Slurm counts what runs, and this job; of minutes, those that their time limits leave."""
    asked = f"{_WHAT[what]}-minutes at a time" if at_once else _thing(what)
    return f"with it {who} would use more {asked} than {limit}"


def _thing(what: str) -> str:
    noun = _WHAT[what]
    return f"{noun}s" if noun in _COUNTED else noun
