# Runs Jupyter for the client that waits for it, on a port of this node's loopback. The token comes
# in the environment: arguments can be seen by other users. RV_RACE_DIR/jupyter tells port and page.
# shellcheck shell=bash
if ! type -P jupyter >/dev/null; then
  echo 'rv: there is no jupyter in the environment of this job: pip install jupyterlab there; --venv, --conda, --modules and --setup choose it' >&2
  exit 127
fi
kind=lab
type -P jupyter-lab >/dev/null || ! type -P jupyter-notebook >/dev/null || kind=notebook
port=$("${RV_PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || exit
(umask 077; printf '%s\n' "$port" "$kind" >"$RV_RACE_DIR/.jupyter.$$") && mv -T "$RV_RACE_DIR/.jupyter.$$" "$RV_RACE_DIR/jupyter" || exit
root=()
[ "$EUID" -ne 0 ] || root=(--allow-root)
exec jupyter "$kind" --no-browser --ip=127.0.0.1 --port="$port" --port-retries=0 "${root[@]}"
