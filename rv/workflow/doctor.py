"""Check each link from here to a job on a node, one finding each, and leave nothing behind."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.discovery import Finding, Verdict
from rv.models.quantities import short_memory
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.render.quote import shell
from rv.slurm.printable import last_line, printable
from rv.slurm.values import decimal, number
from rv.workflow.cluster import Cluster
from rv.workflow.doctor_job import NodeAnswer, ProbeFolder, probe_folder
from rv.workflow.launch import plan_request
from rv.workflow.script_records import parse_records, script

_ASKING_S: Final = 90.0
_MOST_CLOCK_S: Final = 5.0
_LEAST_MIB: Final = 1024
_LEAST_INODES: Final = 1000
_SLOW_S: Final = 5.0
_HOW_TO_SET: Final = "rv config set clusters.NAME.{} …"


@dataclass(frozen=True, kw_only=True, slots=True)
class Doctor:
    """What the checks need to know of here.

    `connect` finds the cluster; `request` is for a job without GPUs; the job may take `limit_s`
    seconds to answer. `say` hears what could not be taken away.
    """

    connect: Callable[[], Cluster]
    request: Request
    site: Site
    limit_s: float
    has_git: bool
    say: Callable[[str], None]

    def run(self) -> Iterator[Finding]:
        """Check link after link; what stands on a link that failed is not checked."""
        began_s = time.monotonic()
        try:
            cluster = self.connect()
        except RvError as error:
            yield _failed("connection", error)
            return
        connected_s = time.monotonic() - began_s
        facts, asked_s, offset_s = _login_facts(cluster)
        yield _connection(cluster, connected_s, asked_s)
        yield from _login(facts)
        snapshot = None
        try:
            snapshot = cluster.take_fresh_snapshot()
        except RvError as error:
            yield _failed("controller", error)
        if snapshot:
            yield _ok("controller", f"cluster {snapshot.config.name or '-'} answers")
            yield _accounting(snapshot, facts)
            yield _association(snapshot)
        yield from self._race_root(cluster, facts, can_submit=snapshot is not None)
        yield _clock("clock", offset_s, "this machine")
        yield from _programs(facts, has_git=self.has_git)

    def _race_root(
        self, cluster: Cluster, facts: Mapping[str, str], *, can_submit: bool
    ) -> Iterator[Finding]:
        """Check the race root from the login node, then from a node where a job can run."""
        above = facts.get("above", "/")
        with probe_folder(cluster, above, time.time(), self.say) as folder:
            try:
                folder.make()
            except RvError as error:
                yield _failed("race root", error, _HOW_TO_SET.format("race_root"))
                return
            yield _ok("race root", f"{cluster.race_root} can be written to")
            yield _links(folder.why_no_links())
            yield _space(facts)
            if can_submit:
                yield from self._node(cluster, folder)

    def _node(self, cluster: Cluster, folder: ProbeFolder) -> Iterator[Finding]:
        """Run a tiny job, and say what its node sees."""
        try:
            _, plan = plan_request(self.request, cluster, self.site)
            form = plan.strategies[0] if plan.strategies else None
        except RvError as error:
            yield Finding(check="job", verdict=Verdict.WARN, what=error.message, remedy=error.hint)
            return
        if form is None:
            why = plan.excluded[0].reason if plan.excluded else "no partition takes it"
            remedy = "rv up --gpu 0 --cpus 1 --dry-run shows why"
            yield Finding(check="job", verdict=Verdict.WARN, what=why, remedy=remedy)
            return
        yield from node_findings(folder.run_job(form, self.limit_s), cluster.race_root)


def node_findings(answer: NodeAnswer, race_root: str) -> Iterator[Finding]:
    """Judge what became of the job, and what its node sees."""
    if answer.refused:
        remedy = _HOW_TO_SET.format("defaults.partition (or account, qos)")
        yield _finding("job", Verdict.FAIL, f"Slurm refused it: {answer.refused}", remedy)
        return
    if not answer.facts:
        yield _no_answer(answer, race_root)
        return
    node = printable(answer.facts.get("node", ""))
    yield _ok("job", f"ran on {node} and answered after {answer.seconds:.1f} s")
    yield _ok("race root from a node", f"{race_root} is the same on {node}")
    said = answer.facts.get("submits", "")
    if said == "yes":
        yield _ok("submission from a node", "sbatch and scancel work there")
    else:
        what = f"a job cannot submit or cancel: {last_line(said) or 'no answer'}"
        remedy = "races and chains still work while an rv command watches them"
        yield _finding("submission from a node", Verdict.WARN, what, remedy)
    yield from _programs_on_node(answer.facts, node)


def _programs_on_node(facts: Mapping[str, str], node: str) -> Iterator[Finding]:
    if "python3" not in facts:
        remedy = "load its module in ~/.bash_profile, or set modules in defaults"
        yield _finding("python3 on a node", Verdict.WARN, f"none on {node}", remedy)
        return
    yield _ok("python3 on a node", printable(facts["python3"]))
    if "torch" in facts:
        yield _ok("torch", f"python3 on {node} has it")
    else:
        remedy = "activate your environment before rv, or --modules, where a command needs torch"
        yield _finding("torch", Verdict.WARN, f"python3 on {node} has none", remedy)


def _no_answer(answer: NodeAnswer, race_root: str) -> Finding:
    if answer.state.startswith(("PENDING", "CONFIGURING")) or not answer.state:
        what = f"did not start within {answer.seconds:.0f} s ({answer.state or 'not in the queue'})"
        remedy = "not checked from a node: later, or with --wait 5m"
        return _finding("job", Verdict.WARN, f"{what}; it is cancelled", remedy)
    what = f"a job there ({answer.state}) neither read nor wrote {race_root}"
    remedy = f"name a folder on the shared disk: {_HOW_TO_SET.format('race_root')}"
    return _finding("race root from a node", Verdict.FAIL, what, remedy)


def _login_facts(cluster: Cluster) -> tuple[dict[str, str], float, float | None]:
    """Ask the login node; how long it took, and how far its clock is ahead of this one, seconds."""
    began_s, at_s = time.monotonic(), time.time()
    cluster.transport.run("true", timeout_s=_ASKING_S)
    trip_s = time.monotonic() - began_s
    at_s = time.time()
    line = f"race_root={shell(cluster.race_root)}\n{script('doctor_login.sh')}"
    facts = dict(parse_records(cluster.transport.run(line, timeout_s=_ASKING_S).stdout))
    there_s = decimal(facts.get("clock", ""), default=-1.0)
    return facts, trip_s, there_s - (at_s + trip_s / 2) if there_s > 0 else None


def _connection(cluster: Cluster, connected_s: float, trip_s: float) -> Finding:
    how = (cluster.login.connection or "ssh") if cluster.login else "on this machine"
    what = f"{how}: {connected_s:.1f} s, then {trip_s * 1000:.0f} ms a round trip"
    if trip_s > _SLOW_S:
        return _finding("connection", Verdict.WARN, what, "try another login node or network")
    return _ok("connection", what)


def _login(facts: Mapping[str, str]) -> Iterator[Finding]:
    """Judge the login shell, and Slurm's commands."""
    if noise := last_line(facts.get("noise", "")):
        remedy = "let ~/.bashrc and profiles print on terminals only: [ -t 1 ] && …"
        yield _finding(
            "login shell", Verdict.WARN, f"it prints without a terminal: {noise}", remedy
        )
    else:
        yield _ok("login shell", "quiet")
    missing, broken = facts.get("missing", "?"), last_line(facts.get("broken", ""))
    remedy = "load the site's slurm module in ~/.bash_profile there"
    if missing or broken:
        what = f"not on PATH: {missing}" if missing else broken
        yield _finding("Slurm commands", Verdict.FAIL, printable(what), remedy)
    else:
        yield _ok("Slurm commands", printable(facts.get("version", "")))


def _accounting(snapshot: Snapshot, facts: Mapping[str, str]) -> Finding:
    if not snapshot.config.accounting:
        return _ok("accounting", "this cluster keeps none")
    unread = next((note for note in snapshot.notes if "associations" in note), "")
    said = facts.get("sacct", "")
    if unread or said != "yes":
        remedy = "rv works without it; how lost jobs ended stays unknown: tell the administrators"
        what = unread or f"sacct: {last_line(said) or 'no answer'}"
        return _finding("accounting", Verdict.WARN, printable(what), remedy)
    return _ok("accounting", "answers")


def _association(snapshot: Snapshot) -> Finding:
    accounts = [each.account for each in snapshot.associations or ()]
    is_enforced = "associations" in (snapshot.config.enforces or ())
    if accounts:
        listed = ", ".join(dict.fromkeys(accounts))
        return _ok("account", f"{snapshot.user} may charge {listed}")
    what = f"{snapshot.user} has none"
    if snapshot.associations is not None and is_enforced:
        remedy = "ask the administrators for an account: Slurm takes no job without one"
        return _finding("account", Verdict.FAIL, what, remedy)
    return _ok("account", f"{what}, and needs none")


def _links(why_not: str) -> Finding:
    if not why_not:
        return _ok("hard links", "the race root has them")
    remedy = f"name a folder on another disk: {_HOW_TO_SET.format('race_root')}"
    return _finding("hard links", Verdict.FAIL, f"the race root has none: {why_not}", remedy)


def _space(facts: Mapping[str, str]) -> Finding:
    free_kib, inodes = number(facts.get("free", "")), number(facts.get("inodes", ""))
    quota = last_line(facts.get("quota", ""))
    free_mib = None if free_kib is None else free_kib // 1024
    what = f"{short_memory(free_mib)} free" if free_mib is not None else "room is not known"
    is_low = free_mib is not None and free_mib < _LEAST_MIB
    if inodes is not None and 0 < inodes < _LEAST_INODES:
        is_low, what = True, f"{what}, room for {inodes} files"
    if is_low or quota:
        remedy = f"delete old files there, or {_HOW_TO_SET.format('race_root')}"
        return _finding("space", Verdict.WARN, f"{what}; {quota}" if quota else what, remedy)
    return _ok("space", what)


def _clock(check: str, offset_s: float | None, here: str) -> Finding:
    if offset_s is None:
        return _finding(check, Verdict.WARN, "it did not say what time it is", "try again")
    what = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} {here}"
    if abs(offset_s) > _MOST_CLOCK_S:
        remedy = f"set the clock of {here} by the network (NTP); else tell the administrators"
        return _finding(check, Verdict.WARN, what, remedy)
    return _ok(check, what)


def _programs(facts: Mapping[str, str], *, has_git: bool) -> Iterator[Finding]:
    """Judge what is handy on the login node and here, and not needed to race."""
    if "python3" in facts:
        yield _ok("python3", printable(facts["python3"]))
    else:
        remedy = "load its module in ~/.bash_profile there"
        yield _finding("python3", Verdict.WARN, "none on the login node", remedy)
    if "keeper" in facts:
        yield _ok("tmux", f"{printable(facts['keeper'])} keeps shells when a connection breaks")
    else:
        remedy = "install or load tmux there: a shell ends with its connection"
        yield _finding("tmux", Verdict.WARN, "neither tmux nor abduco there", remedy)
    if has_git:
        yield _ok("git here", "there")
    else:
        remedy = "install git here: it says which files belong to your code"
        yield _finding("git here", Verdict.WARN, "none", remedy)


def _ok(check: str, what: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, what=what)


def _finding(check: str, verdict: Verdict, what: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=verdict, what=what, remedy=remedy)


def _failed(check: str, error: RvError, otherwise: str = "") -> Finding:
    """Turn an error into a finding; each has a remedy."""
    remedy = error.hint or otherwise or "try again in a minute"
    return _finding(check, Verdict.FAIL, printable(error.message), remedy)
