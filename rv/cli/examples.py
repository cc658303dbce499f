"""The examples at the end of each command's help and manual page: a line, and what it does."""

from collections.abc import Mapping, Sequence
from typing import Final

EXAMPLES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "": (
        ("rv up --gpu 4 --dry-run", "the plan; submits nothing"),
        ("rv run --gpu 4 -- torchrun train.py", "race, run it, follow its output"),
        ("rv ps", "what waits, what runs and how it ended"),
    ),
    "up": (
        ("rv up --gpu 4 --dry-run", "the plan; submits nothing"),
        ('rv up -g 4 -r "torchrun train.py"', "race, and run it in the first that starts"),
        ("rv up --type a100,h200 --time 2h", "a shell with one of these GPUs"),
    ),
    "run": (
        ("rv run --gpu 4 -- torchrun train.py", "race, run it, follow its output"),
        ("rv run -d --time 90m -- bash job.sh", "submit, and return at once"),
        ("rv run check.py --mig", "a bundled check of the GPU, on one MIG slice"),
    ),
    "sweep": (
        ("rv sweep --set lr=1,2 -- python t.py {lr}", "a task for each value"),
        ("rv sweep --array 0-99%10 -- python t.py {}", "100 tasks, 10 at once"),
        ("rv sweep --set s=1..5 --dry-run -- echo {s}", "the tasks and jobs only"),
    ),
    "ps": (
        ("rv ps", "what waits and runs, and what ended in the last day"),
        ("rv ps -a", "older races too"),
        ("rv ps --json", "for a script"),
    ),
    "logs": (
        ("rv logs -f", "the output of the latest race, to its end"),
        ("rv logs train --tail 50", "the last 50 lines of the race of that name"),
        ("rv logs --pull logs", "copy all its logs into logs/RACE"),
    ),
    "wait": (
        ("rv wait", "until the latest race is over, with its exit code"),
        ("rv wait prepare train", "until both are; the worst of their codes"),
        ("rv wait --all --timeout 2h", "until none is left, two hours at most"),
    ),
    "rerun": (
        ("rv rerun train", "the same request and command again"),
        ("rv rerun train --failed", "only if it did not succeed"),
        ("rv rerun train --time 8h", "with another walltime"),
    ),
    "stop": (
        ("rv stop", "cancel the only race that is not over"),
        ("rv stop train", "cancel the race of that name"),
        ("rv stop --all", "cancel every one"),
    ),
    "attach": (
        ("rv attach", "a shell beside the latest race's command"),
        ("rv attach train --node 1", "on its second node"),
        ("rv attach -- nvidia-smi", "run that there instead"),
    ),
    "exec": (
        ("rv exec -- squeue --me", "your queue, on the login node"),
        ("rv exec -- 'module avail | head'", "a shell line"),
        ("rv exec --timeout 10m -- du -sh ~", "give it more time"),
    ),
    "forward": (
        ("rv forward 8888", "port 8888 here leads to 8888 of the race's node"),
        ("rv forward train 6006:16006", "its port 6006, as 16006 here"),
        ("rv forward -d 8888", "in the background; --list and --stop"),
    ),
    "ssh-config": (
        ("rv ssh-config --install", "then ssh rv-RACE reaches its node"),
        ("rv ssh-config", "only print what would be written"),
        ("rv ssh-config --cluster lab", "of another cluster"),
    ),
    "gpu": (
        ("rv gpu", "utilization, memory and power of the latest race's GPUs"),
        ("rv gpu -w", "again every 5 s"),
        ("rv gpu train --node 1", "only its second node"),
    ),
    "sync": (
        ("rv sync status", "what would be sent"),
        ("rv sync push", "send the work tree as it is now"),
        ("rv sync pull -o runs/", "fetch what the latest race wrote there"),
    ),
    "sync push": (
        ("rv sync push", "send the work tree as it is now"),
        ("rv sync push --send .env", "with a file that looks like a secret"),
        ("rv sync push --cluster lab", "to another cluster"),
    ),
    "sync watch": (
        ("rv sync watch", "send what changes, until Ctrl-C"),
        ("rv sync watch --send .env", "with a file that looks like a secret"),
        ("rv sync watch --cluster lab", "to another cluster"),
    ),
    "sync status": (
        ("rv sync status", "what would be sent, and what stays here"),
        ("rv sync status --send .env", "with a file that looks like a secret"),
        ("rv sync status --json", "for a script"),
    ),
    "sync pull": (
        ("rv sync pull", "what the latest race wrote, as its -o named it"),
        ("rv sync pull train -o 'ckpt/*.pt'", "other files, of the race of that name"),
        ("rv sync pull --to results", "not into the work tree but there"),
    ),
    "status": (
        ("rv status", "free and total GPUs, who waits, your limits"),
        ("rv status --cluster all", "on every cluster with a name"),
        ("rv status --json", "for a script"),
    ),
    "cost": (
        ("rv cost --gpu 4 --time 8h", "what each model would cost, and when it starts"),
        ("rv cost -g 8 --type a100,h200", "only of these"),
        ("rv cost --gpu 4 --json", "for a script"),
    ),
    "explain": (
        ("rv explain", "why the latest race waits, and what would start now"),
        ("rv explain train", "of the race of that name"),
        ("rv explain --json", "for a script"),
    ),
    "snapshot": (
        ("rv snapshot > cluster.json", "keep the cluster as it is now"),
        ("rv snapshot --cluster lab", "of another cluster"),
        ("rv up --dry-run --snapshot cluster.json", "plan with it, anywhere"),
    ),
    "env": (
        ("rv env set HF_TOKEN", "asks for the value, and keeps it for every job"),
        ("rv env list", "the names; values are not shown"),
        ("rv env import .env", "keep all variables of a file"),
    ),
    "env set": (
        ("rv env set HF_TOKEN", "asks for the value without showing it"),
        ("rv env set HF_TOKEN < token", "from a file"),
        ("rv env set WANDB_MODE offline", "a value that is no secret"),
    ),
    "env list": (
        ("rv env list", "the names; values are not shown"),
        ("rv env list --json", "for a script"),
        ("rv env unset HF_TOKEN", "forget one"),
    ),
    "env unset": (
        ("rv env unset HF_TOKEN", "forget a variable"),
        ("rv env unset HF_TOKEN WANDB_MODE", "forget two"),
        ("rv env list", "which there are"),
    ),
    "env import": (
        ("rv env import .env", "keep all variables of a file"),
        ("rv env import ~/.config/tokens", "of another file"),
        ("rv env list", "which there are"),
    ),
    "init": (
        ("rv init you@login.site", "connect, discover, write the configuration"),
        ("rv init you@login.site --name lab", "with a name of your own"),
        ("rv init local --dry-run", "this machine's Slurm; writes nothing"),
    ),
    "config": (
        ("rv config", "each value, and the file and line it comes from"),
        ("rv config set defaults.time 4h", "change one in your own file"),
        ("rv config --json", "for a script"),
    ),
    "config set": (
        ("rv config set defaults.time 4h", "a default for every launch"),
        ("rv config set cluster lab", "the cluster that is meant unless named"),
        ("rv config set --project defaults.gpu 8", "in the project's rv.yaml"),
    ),
    "config unset": (
        ("rv config unset defaults.time", "another file's, or rv's own, counts again"),
        ("rv config unset --project defaults.gpu", "in the project's rv.yaml"),
        ("rv config", "what counts now"),
    ),
    "doctor": (
        ("rv doctor", "each link, from here to a job on a node"),
        ("rv doctor --cluster lab --wait 5m", "of another cluster, with more time"),
        ("rv doctor --json", "for a script"),
    ),
    "completion": (
        ("rv completion bash > ~/.rv.bash", "for bash; source it in ~/.bashrc"),
        ("rv completion zsh > ~/.zfunc/_rv", "for zsh, in a folder of its fpath"),
        ("rv completion fish > ~/.config/fish/completions/rv.fish", "for fish"),
    ),
    "accept": (
        ("rv accept run --gpu 8", "test the GPUs of one node"),
        ("rv accept sweep --profile accept", "test every node, and compare them"),
        ("rv accept report", "a page about the latest"),
    ),
    "accept list": (
        ("rv accept list", "what each payload tests"),
        ("rv accept list --json", "for a script"),
        ("rv accept run check", "run one of them"),
    ),
    "accept run": (
        ("rv accept run --gpu 8", "all payloads, quickly"),
        ("rv accept run --profile burnin --gpu 8", "thoroughly"),
        ("rv accept run --resume last", "judge the latest, whose client ended before it"),
    ),
    "accept sweep": (
        ("rv accept sweep", "every node, one job each"),
        ("rv accept sweep --nodes a1,b[2-4] check", "only these, with one payload"),
        ("rv accept sweep --resume last", "go on with the latest"),
    ),
    "accept avoid": (
        ("rv accept avoid", "the nodes that plans leave out, and why"),
        ("rv accept avoid --forget a1", "send jobs there again"),
        ("rv accept avoid --json", "for a script"),
    ),
    "accept repaired": (
        ("rv accept repaired a1", "what was judged bad there no longer counts"),
        ("rv accept repaired b[2-4]", "of several nodes"),
        ("rv accept repaired a1 --anew", "with other GPUs: forget their usual speed"),
    ),
    "accept report": (
        ("rv accept report", "rv-report/, about the latest sweep or run"),
        ("rv accept report --format md", "what failed, as text for a ticket"),
        ("rv accept report -o /tmp/page last", "into another folder"),
    ),
    "accept compare": (
        ("rv accept compare before.json last", "a kept file with the latest run"),
        ("rv accept compare RUN last", "two runs that rv keeps"),
        ("rv accept compare RUN last --json", "for a script"),
    ),
    "accept export": (
        ("rv accept export last", "JUnit XML on stdout"),
        ("rv accept export last --format csv -o run.csv", "a table, into a file"),
        ("rv accept export last --format jsonl", "every measurement"),
    ),
    "accept history": (
        ("rv accept history", "how each GPU's numbers changed, the worst first"),
        ("rv accept history --worst 5", "the five worst"),
        ("rv accept history --runs", "the runs that are kept"),
    ),
    "accept drain": (
        ("rv accept drain a1 --dry-run", "show the line for scontrol"),
        ("rv accept drain a1", "drain it, with its newest failure as the reason"),
        ("rv accept drain a1 --yes", "without being asked"),
    ),
    "accept baseline": (
        ("rv accept baseline show", "every reference with its source"),
        ("rv accept baseline show --gpu H200", "of one model"),
        ("rv accept baseline make", "this cluster's own, from its history"),
    ),
    "accept baseline show": (
        ("rv accept baseline show", "every reference with its source"),
        ("rv accept baseline show --gpu H200", "of one model"),
        ("rv accept baseline show --cluster lab", "with that cluster's own values"),
    ),
    "accept baseline make": (
        ("rv accept baseline make", "from at least three clean nodes"),
        ("rv accept baseline make --cluster lab", "of another cluster"),
        ("rv accept baseline make --json", "for a script"),
    ),
    "sandbox": (
        ("rv sandbox up", "a real Slurm cluster on this machine"),
        ("rv up --gpu 2 --run hostname --cluster sandbox", "race on it"),
        ("rv sandbox down", "end it, and remove all of it"),
    ),
    "sandbox up": (
        ("rv sandbox up", "a small cluster"),
        ("rv sandbox up --profile campus", "a large one, of many partitions"),
        ("rv sandbox up --name two", "beside another"),
    ),
    "sandbox down": (
        ("rv sandbox down", "end it, and remove all of it"),
        ("rv sandbox down --name two", "another one"),
        ("rv sandbox down --json", "for a script"),
    ),
    "sandbox status": (
        ("rv sandbox status", "what runs, and how to use it by hand"),
        ("rv sandbox status --name two", "of one"),
        ("rv sandbox status --json", "for a script"),
    ),
    "sandbox load": (
        ("rv sandbox load", "keep 80% of the GPUs busy"),
        ("rv sandbox load --share 1 --max 1h", "all of them, with longer jobs"),
        ("rv sandbox load --stop", "end the load and its jobs"),
    ),
    "sandbox fault": (
        ("rv sandbox fault n1 missing-gpu", "its nvidia-smi shows one GPU less"),
        ("rv sandbox fault n1 hang", "its nvidia-smi never answers"),
        ("rv sandbox fault n1 --clear", "make it honest again"),
    ),
}
"""Three of each command, by its words after `rv`; "" is `rv` itself."""
