#!/usr/bin/env python3
"""Stands for Jupyter: an HTTP server that lets in who has the token, and takes it from nowhere else."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path.startswith("/api/"):
            self.tell_use(url.path)
            return
        is_let_in = parse_qs(url.query).get("token") == [os.environ["JUPYTER_TOKEN"]]
        body = f"{url.path} of job {os.environ['SLURM_JOB_ID']}" if is_let_in else "who are you?"
        self.send_response(200 if is_let_in else 403)
        self.end_headers()
        self.wfile.write(body.encode())

    def tell_use(self, path):
        """As Jupyter Server's REST API does; the file IN_USE says what is in use."""
        is_let_in = self.headers["Authorization"] == f"token {os.environ['JUPYTER_TOKEN']}"
        file = Path(os.environ.get("IN_USE", "/nowhere"))
        use = file.read_text() if file.exists() else ""
        state = "busy" if use == "cell" else "idle"
        kernels = [{"execution_state": state, "connections": int(use == "browser")}]
        terminals = [{"name": "1"}] if use == "terminal" else []
        self.send_response(200 if is_let_in and use != "unknown" else 403)
        self.end_headers()
        self.wfile.write(json.dumps(kernels if path == "/api/kernels" else terminals).encode())

    def log_message(self, *words):
        """The path holds the token."""


if __name__ == "__main__":
    assert sys.argv[1] == "lab", sys.argv
    assert "--ip=127.0.0.1" in sys.argv
    (port,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--port=")]
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
