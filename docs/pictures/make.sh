#!/usr/bin/env bash
# Make live-wait.svg anew: a race that waits on a busy sandbox, as a terminal shows it.
#
#   docs/pictures/make.sh        # needs tmux and the virtual environment of tests/run.sh
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
export PATH="${RV_VENV:-$PWD/.venv}/bin:$PATH" RV_CLUSTER=sandbox:pictures
WORK=$(mktemp -d)
trap 'tmux -S "$WORK/tmux" kill-server || true; rv sandbox down --name pictures; rm -rf "$WORK"' EXIT

rv sandbox up --name pictures --profile campus
rv sandbox load --name pictures --share 1.0 --min 2m --max 4m
until [ "$(rv status --json | grep -c '"waiting_jobs": 0')" -le 6 ]; do sleep 1; done
sleep 20
tmux -S "$WORK/tmux" -f /dev/null new-session -d -x 112 -y 14 "env TERM=screen-256color PS1='$ ' bash --norc --noprofile"
tmux -S "$WORK/tmux" send-keys "clear; rv up --gpu 8 --time 1h --run 'torchrun train.py'" Enter
until tmux -S "$WORK/tmux" capture-pane -p | grep -q '^00:1[0-9].*best'; do sleep 1; done
tmux -S "$WORK/tmux" capture-pane -p -e >"$WORK/screen"
tmux -S "$WORK/tmux" send-keys C-c
python - "$WORK/screen" docs/pictures/live-wait.svg <<'PY'
import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

screen, picture = map(Path, sys.argv[1:])
lines = screen.read_text().rstrip().splitlines()
console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
console.print(Text.from_ansi("\n".join(lines)))
svg = console.export_svg(title="rv up", unique_id="wait")
# No fonts from elsewhere: the reader's own will do.
svg = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
picture.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
PY
