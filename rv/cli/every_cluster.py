"""`--cluster all`: what each cluster with a name has, and a race on the one that starts first."""

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

from rv.cli.caller import PATIENCE_S, keep_located, now_s, with_rates
from rv.errors import EXIT_RV_FAILED, ErrorKind, RvError
from rv.models.request import Command
from rv.transport.query_retry import Patience
from rv.ui import console
from rv.ui.cluster_views import offer_document, offers_table, status_document, status_parts
from rv.ui.plan_views import plan_document, plan_text
from rv.workflow.all_clusters import Offer, ask_each, first_to_start, offers
from rv.workflow.cluster import Cluster
from rv.workflow.environments import planned, working_directory
from rv.workflow.launch import Launch, prepare
from rv.workflow.locate import locate
from rv.workflow.option_defaults import read_config, with_defaults
from rv.workflow.options import RequestOptions
from rv.workflow.queries import free_gpus
from rv.workflow.read_options import build_request, patience_s
from rv.workflow.which_cluster import named_clusters

_MOST_STATUS_S: Final = 30.0
_ONE_ONLY: Final = "racing on {0} alone: races on two clusters would have no claim in common"
_CONNECTING: Final = threading.Lock()


def race_on_the_best(options: RequestOptions, command: Command | None) -> RequestOptions:
    """Ask every cluster, say what each has, and return the options for the one that starts first.

    Raises `RvError` where none can serve the request.
    """
    made = _offers(options, command)
    console.say(str(offers_table(_rows(made))))
    best = first_to_start(made)
    console.say(_ONE_ONLY.format(best.name))
    return _options_for(options, best.name)


def show_best_plan(options: RequestOptions, command: Command | None) -> None:
    """Show what each cluster has, and the plan on the one that starts first."""
    made = _offers(options, command)
    best = first_to_start(made)
    launch = best.launch
    if launch is None:
        return
    if options.json:
        document = plan_document(launch.plan, launch.names, launch.scripts)
        rows = [offer_document(*row) for row in _rows(made)]
        console.emit_json({"cluster": best.name, "clusters": rows, **document})
        return
    plan = plan_text(launch.plan, launch.sbatch_lines, launch.request.widen_after)
    console.answer(offers_table(_rows(made)), _ONE_ONLY.format(best.name), *plan)


def show_status(*, json: bool) -> int:
    """Show the GPUs of every cluster; return the exit code, 0 where one of them answered."""
    answers = ask_each(_names(), lambda name: free_gpus(_fresh(name, 0.0)), _MOST_STATUS_S)
    each_answer = list(answers.items())
    if json:
        console.emit_json({"clusters": [status_document(*pair) for pair in each_answer]})
    else:
        width = console.answer_width()
        console.answer(*(part for pair in each_answer for part in status_parts(*pair, width)))
    has_answer = any(not isinstance(answer, RvError) for _, answer in each_answer)
    return 0 if has_answer else EXIT_RV_FAILED


def _names() -> list[str]:
    """Name the clusters. Raises `RvError(CONFIG)` where none has a name."""
    names = list(named_clusters(os.environ).named)
    if not names:
        raise RvError(
            ErrorKind.CONFIG, "no cluster has a name", hint="rv init USER@HOST gives one its name"
        )
    return names


def _offers(options: RequestOptions, command: Command | None) -> list[Offer]:
    if options.snapshot:
        raise RvError(
            ErrorKind.USAGE, "--snapshot is one cluster, and not all", hint="leave one of them out"
        )
    limit_s = patience_s(options) or PATIENCE_S
    names = _names()
    console.say(f"asking {', '.join(names)} …")

    def ask(name: str) -> Launch:
        own = _options_for(options, name)
        cluster = _fresh(name, patience_s(options))
        request = planned(build_request(own, command), cluster.race_root)
        site = with_rates(own.config.site, request, cluster.key)
        return prepare(request, cluster, working_directory(), {}, now_s(), site)

    return offers(ask_each(names, ask, limit_s))


def _options_for(options: RequestOptions, name: str) -> RequestOptions:
    """Return the options with the defaults that the files set for one cluster."""
    typed = replace(options, cluster=name)
    return with_defaults(typed, set(options.typed), read_config(name))


def _fresh(name: str, limit_s: float) -> Cluster:
    """Find a cluster, whose answer is to be one of this moment."""
    with _one_question_at_a_time():
        cluster = locate(name, os.environ)
    keep_located(name, cluster)
    cluster.cache.forget()
    return replace(cluster, patience=Patience(limit_s=limit_s))


@contextmanager
def _one_question_at_a_time() -> Iterator[None]:
    """On a terminal one login after the other: two would ask for second factors in one line."""
    with _CONNECTING if sys.stdin.isatty() else nullcontext():
        yield


def _rows(made: Iterable[Offer]) -> list[tuple[str, Any, str, RvError | None]]:
    return [
        (offer.name, offer.best, offer.launch.plan.cost_unit if offer.launch else "", offer.error)
        for offer in made
    ]
