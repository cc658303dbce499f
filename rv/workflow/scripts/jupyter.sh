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

# Succeeds where Jupyter is known to be idle: no cell runs, no browser is connected, no terminal is open.
rv_is_idle() {
  "${RV_PYTHON:-python3}" - "$port" 2>/dev/null <<'END'
import json, os, sys, urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def ask(what):
    address = "http://127.0.0.1:%s/api/%s" % (sys.argv[1], what)
    headers = {"Authorization": "token " + os.environ["JUPYTER_TOKEN"]}
    with opener.open(urllib.request.Request(address, headers=headers), timeout=30) as answer:
        return json.load(answer)

used = [kernel for kernel in ask("kernels") if kernel["execution_state"] == "busy" or kernel["connections"]]
sys.exit(1 if used or ask("terminals") else 0)
END
}

# rv_end_unheld PID: end the process once nobody renewed the lease for an hour and it is idle. A laptop
# may sleep meanwhile, and a cell that runs is waited for; the client may have been killed, too.
rv_end_unheld() {
  local lease_s=3600 held=$SECONDS known='' found
  while sleep 2 && kill -0 "$1" 2>/dev/null; do
    found=$(cat "$RV_RACE_DIR/lease" 2>/dev/null)
    [ "$found" = "$known" ] || held=$SECONDS known=$found
    [ $((SECONDS - held)) -gt "$lease_s" ] || continue
    # Asked again later, but not after another hour.
    rv_is_idle || { held=$((SECONDS - lease_s + lease_s / 12)); continue; }
    echo "rv: no client for $lease_s s, and nothing runs: Jupyter ends" >&2
    kill -TERM "$1"
    for _ in {1..15}; do
      sleep 2
      kill -0 "$1" 2>/dev/null || return
    done
    kill -KILL "$1"
    return
  done
}
rv_end_unheld "$$" </dev/null &
root=()
[ "$EUID" -ne 0 ] || root=(--allow-root)
exec jupyter "$kind" --no-browser --ip=127.0.0.1 --port="$port" --port-retries=0 "${root[@]}"
