#!/usr/bin/env python3
"""Send tensors to a GPU elsewhere and see that they come back right, safely, and at what cost.

    tensor_service.py pair                        # server and client here, or on two nodes of a job
    tensor_service.py serve --port 8888           # a server, for clients elsewhere
    tensor_service.py client --server HOST:8888   # a client, on any machine
    tensor_service.py report FOLDER               # what the results of both say together

The server takes numbers only: a JSON header and raw bytes, from those who have the token.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from _harness.flags import positive
from _harness.main import Payload, Session, run
from _tensor_service import modes

if TYPE_CHECKING:
    import argparse

MODES = {
    "pair": modes.pair,
    "serve": modes.serve,
    "client": modes.client,
    "report": modes.report_on,
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("mode", nargs="?", choices=sorted(MODES), default="pair")
    parser.add_argument("folder", nargs="?", help="of the results that `report` reads")
    parser.add_argument("--host", default="", help="to listen on (default: the internal address)")
    parser.add_argument("--port", type=int, default=0, help="to listen on (default: a free one)")
    parser.add_argument("--server", default="", help="HOST:PORT, or the file a server published")
    parser.add_argument("--token-file", help="read, or made (default: in the report folder)")
    parser.add_argument("--publish", help="where the server says its address (same default)")
    parser.add_argument("--limit", type=positive, default=512.0, help="MiB of an upload")
    parser.add_argument("--here", action="store_true", help="both sides in each task of a job")
    parser.add_argument("--wait", type=positive, default=120.0, help="seconds for the other side")
    parser.add_argument("--patience", type=positive, default=30.0, help="seconds for an answer")


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse what fits no mode; each task of a job has a result of its own."""
    if options.folder and options.mode != "report":
        parser.error("a folder is read by `report` only")
    if not 0 <= options.port < 65536:
        parser.error("--port is between 0 and 65535")
    if options.mode == "serve" and not options.duration:
        options.timeout = 10.0 * 365 * 86400
    is_first = os.environ.get("SLURM_PROCID", "0") == "0"
    has_others = int(os.environ.get("SLURM_NTASKS", "1")) > 1 and not options.here
    if options.mode == "pair" and is_first and has_others:
        options.report_name = "tensor_service_server_result.json"


def body(session: Session) -> None:
    """Do what the mode says."""
    MODES[session.options.mode](session)


PAYLOAD = Payload(
    "tensor_service",
    "Send tensors to a GPU elsewhere: right, safe, and at what cost.",
    body,
    add_flags=add_flags,
    check=check,
    ends_with_job=lambda options: options.mode == "serve",
)

if __name__ == "__main__":
    run(PAYLOAD)
