"""Code goes from the laptop to the race, and results come back."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.ssh.conftest import Laptop
from tests.ssh.echo import Talk
from tests.ssh.test_launch import eventually

LARGE = 3 << 20


@pytest.fixture
def project(laptop: Laptop) -> Path:
    """A git work tree on the laptop, which rv is called in."""
    top = laptop.home / "my project"
    (top / "src").mkdir(parents=True)
    (top / "train.py").write_text("print('first')\n")
    (top / "src" / "lib.py").write_text("x = 1\n")
    (top / "run.sh").write_text("#!/bin/sh\ncat train.py\n")
    (top / "run.sh").chmod(0o755)
    (top / ".gitignore").write_text("*.log\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    return top


def git(top: Path, *words: str) -> str:
    """Call git as somebody."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    done = subprocess.run(
        ["git", "-C", str(top), *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def rv(laptop: Laptop, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run rv in a folder of the laptop."""
    return laptop.rv(*words, folder=folder)


def run(laptop: Laptop, folder: Path, line: str, *options: str) -> str:
    """Run a command in a race to its end, and return its output."""
    done = rv(laptop, folder, "run", "--gpu", "1", "--time", "5m", *options, line)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stores(laptop: Laptop) -> list[Path]:
    """The trees on the cluster."""
    races = laptop.home.parent / "away" / ".local/state/rv/races"
    return sorted(races.glob(".code-*/*/*"))


def test_the_work_tree_is_what_the_command_sees(laptop: Laptop, project: Path) -> None:
    """Tracked files as they are now and new ones, not ignored ones; said before submitting."""
    (project / "train.py").write_text("print('changed')\n")
    (project / "new.txt").write_text("new\n")
    (project / "big.log").write_text("ignored\n")
    commit = git(project, "rev-parse", "--short=7", "HEAD")
    done = rv(
        laptop, project, "run", "--gpu", "1", "--time", "5m", "find . -type f | sort; cat train.py"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "./.gitignore", "./new.txt", "./run.sh", "./src/lib.py", "./train.py", "print('changed')",
    ]  # fmt: skip
    assert f"synced 5 files (56 B), {commit}+dirty" in done.stderr
    assert done.stderr.index("synced") < done.stderr.index("submitted")
    race = json.loads(rv(laptop, project, "ps", "--json").stdout)["races"][0]
    assert (race["code"]["commit"], race["code"]["dirty"]) == (commit, True)
    assert race["code"]["branch"] == "main"


def test_only_what_changed_is_sent(laptop: Laptop, project: Path) -> None:
    """By content: a file that was touched is not sent, one that was renamed is."""
    assert "synced 4 files" in rv(laptop, project, "sync", "push").stderr
    (project / "train.py").touch()
    assert "synced 0 files" in rv(laptop, project, "sync", "push").stderr
    (project / "train.py").write_text("print('other')\n")
    (project / "src" / "lib.py").rename(project / "src" / "core.py")
    assert "synced 2 files" in rv(laptop, project, "sync", "push").stderr
    assert run(laptop, project, "ls src; cat train.py") == "core.py\nprint('other')\n"
    assert len(stores(laptop)) == 2


def test_a_folder_below_is_where_the_command_runs(laptop: Laptop, project: Path) -> None:
    """As it would be on the laptop."""
    assert run(laptop, project / "src", "cat lib.py; ../run.sh 2>&1 | head -1; ls ..") == (
        "x = 1\ncat: train.py: No such file or directory\nrun.sh\nsrc\ntrain.py\n"
    )


def test_a_running_job_keeps_its_files(laptop: Laptop, project: Path) -> None:
    """The next sync makes another copy; what a job writes changes no other's."""
    line = "for n in $(seq 100); do [ -e ../go ] && break; sleep 0.2; done; cat train.py"
    client = laptop.start("run", "--gpu", "1", "--time", "5m", line, folder=project)
    eventually(lambda: (laptop.home.parent / "away" / ".local/state/rv/races").glob("*/claim"))
    eventually(lambda: states(laptop, project)[:1] == ["RUNNING"])
    (project / "train.py").write_text("print('second')\n")
    assert run(laptop, project, "cat train.py; echo mine >>train.py") == "print('second')\n"
    assert run(laptop, project, "cat train.py") == "print('second')\n"
    for race in (laptop.home.parent / "away" / ".local/state/rv/races").glob("[!.]*"):
        (race / "go").touch()
    out, err = client.communicate(timeout=60)
    assert (client.returncode, out) == (0, "print('first')\n"), err


def states(laptop: Laptop, folder: Path) -> list[str]:
    """Of all races, newest first."""
    races = json.loads(rv(laptop, folder, "ps", "--json").stdout)["races"]
    return [race["state"] for race in races]


def test_a_large_file_is_shared_and_read_only(laptop: Laptop, project: Path) -> None:
    """It is on the disk once, whatever number of trees and races have it."""
    (project / "weights.bin").write_bytes(os.urandom(LARGE))
    for text in ("a\n", "b\n"):
        (project / "note").write_text(text)
        assert run(laptop, project, "stat -c %A weights.bin") == "-r--------\n"
    away = laptop.home.parent / "away"
    copies = [path.stat() for path in away.rglob("weights.bin")]
    assert (len(copies), len({one.st_ino for one in copies})) == (4, 1)


def test_names_modes_and_links(laptop: Laptop, project: Path) -> None:
    """Any name that git takes; programs stay programs, links links."""
    odd = project / "a b'c\"d$e\\f\n;g ü -x"
    odd.write_text("odd\n")
    (project / "-rf").write_text("dash\n")
    (project / "link").symlink_to("train.py")
    (project / os.fsdecode(b"bytes-\xff")).write_text("bytes\n")
    (project / "empty").touch()
    line = "cat a* ./-rf bytes*; readlink link; test -x run.sh && test ! -x train.py && ls | wc -l"
    assert run(laptop, project, line) == "odd\ndash\nbytes\ntrain.py\n9\n"
    odd.unlink()
    (project / "link").unlink()
    (project / "link").mkdir()
    (project / "link" / "inner").write_text("now a folder\n")
    assert run(laptop, project, "cat link/inner; ls | wc -l") == "now a folder\n7\n"
    (project / "link" / "inner").unlink()
    (project / "link").rmdir()
    (project / "link").write_text("now a file\n")
    assert run(laptop, project, "cat link") == "now a file\n"


def test_secrets_stay_unless_they_are_named(laptop: Laptop, project: Path) -> None:
    """And .rvignore keeps what git does not."""
    for name in (".env", "src/id_rsa", "server.pem", ".env.example", "notes.txt"):
        (project / name).write_text("secret\n")
    (project / ".rvignore").write_text("notes.txt\nsrc/*.py\n")
    git(project, "add", "-f", ".env")
    done = rv(laptop, project, "sync", "push")
    assert "not sent, as they look like secrets: .env, server.pem, src/id_rsa" in done.stderr
    assert run(laptop, project, "find . -type f | sort | tr '\n' ' '") == (
        "./.env.example ./.gitignore ./.rvignore ./run.sh ./train.py "
    )
    assert run(laptop, project, "cat .env", "--send", ".env") == "secret\n"


def test_a_submodule_is_sent_with_the_rest(laptop: Laptop, project: Path) -> None:
    """So is a work tree that lies in this one."""
    other = project / "other"
    other.mkdir()
    (other / "inner.py").write_text("inner\n")
    git(other, "init", "-q")
    assert run(laptop, project, "cat other/inner.py; ls -A other") == "inner\ninner.py\n"


def test_without_git_nothing_is_sent(laptop: Laptop) -> None:
    """The command runs in the home there, and the files that it names are named."""
    (laptop.home / "train.py").touch()
    done = laptop.rv("run", "--gpu", "1", "--time", "5m", "cat train.py; pwd")
    assert "train.py: not sent (this folder is no git work tree)" in done.stderr
    assert done.stdout == f"{laptop.home.parent / 'away'}\n"
    done = laptop.rv("sync", "push")
    assert (done.returncode, "git init" in done.stderr) == (2, True), done.stderr


def test_a_git_that_fails_is_not_taken_for_none(
    laptop: Laptop, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is not submitted without its code, unless the user says so."""
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for words in (("run", "--gpu", "1", "python3 -m src.lib"), ("sync", "push")):
        done = rv(laptop, project, *words)
        assert done.returncode == 125, done.stderr
        assert "error[config]: git: fatal: detected dubious ownership" in done.stderr
        assert f"git config --global --add safe.directory '{project}'" in done.stderr
    assert states(laptop, project) == []
    assert run(laptop, project, "pwd", "--no-sync") == f"{laptop.home.parent / 'away'}\n"


def test_a_home_is_never_sent(laptop: Laptop) -> None:
    """Though it be a git work tree, as some keep their settings."""
    git(laptop.home, "init", "-q")
    (laptop.home / "private.txt").write_text("private\n")
    assert run(laptop, laptop.home, "pwd") == f"{laptop.home.parent / 'away'}\n"
    assert stores(laptop) == []


def test_a_folder_with_nothing_to_send(laptop: Laptop, project: Path) -> None:
    """Is there all the same."""
    (project / "runs").mkdir()
    (project / "runs" / "1.log").write_text("ignored\n")
    assert run(laptop, project / "runs", "ls; cat ../train.py") == "print('first')\n"


def test_no_sync_runs_in_the_home_there(laptop: Laptop, project: Path) -> None:
    """As it did before."""
    assert run(laptop, project, "pwd", "--no-sync") == f"{laptop.home.parent / 'away'}\n"
    assert stores(laptop) == []


def test_a_payload_needs_no_code(laptop: Laptop, project: Path) -> None:
    """It is rv's own."""
    done = rv(laptop, project, "run", "--gpu", "1", "--time", "5m", "check.py --help")
    assert "synced" not in done.stderr
    assert stores(laptop) == []


def test_a_file_that_changes_while_it_is_sent(laptop: Laptop, project: Path) -> None:
    """Is sent as it is in the end, or named where it changes all the time."""
    script = "while :; do date +%N >>growing; done"
    writer = subprocess.Popen(["bash", "-c", script], cwd=project)
    try:
        eventually((project / "growing").exists)
        done = rv(laptop, project, "sync", "push")
    finally:
        writer.kill()
        writer.wait()
    if done.returncode:
        assert "error[config]: growing changes while it is sent" in done.stderr
    assert rv(laptop, project, "sync", "push").returncode == 0
    tree = max(stores(laptop), key=lambda path: path.stat().st_mtime)
    assert (tree / "files" / "growing").read_bytes() == (project / "growing").read_bytes()
    assert [path.name for path in tree.parent.iterdir() if path.name.startswith(".")] == []


def test_a_full_disk_leaves_nothing_behind(laptop: Laptop, project: Path) -> None:
    """It is named, and what was there stays."""
    away = laptop.home.parent / "away"
    small = away / "small"
    small.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2M,mode=0700", "tmpfs", str(small)], check=True
    )
    try:
        profile = away / ".bash_profile"
        profile.write_text(profile.read_text() + f"export RV_RACE_ROOT={small}/races\n")
        (project / "weights.bin").write_bytes(os.urandom(LARGE))
        done = rv(laptop, project, "run", "--gpu", "1", "--time", "5m", "true")
        assert done.returncode == 125
        assert "error[stage]: the code cannot be sent: " in done.stderr
        assert "the disk is full, on " in done.stderr
        assert list(small.glob("races/.code-*/*/*")) == []
        (project / "weights.bin").unlink()
        assert rv(laptop, project, "sync", "push").returncode == 0
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_results_come_back_and_nothing_of_mine_is_lost(laptop: Laptop, project: Path) -> None:
    """Only what -o named, into the folder of the command; what I changed since stays."""
    line = "mkdir -p out/deep 'o d d'; echo 1 >out/a; echo 2 >out/deep/b; echo 3 >'o d d/c'; echo 4 >other"
    run(laptop, project, line, "-o", "out", "-o", "o*d/c")
    done = rv(laptop, project, "sync", "pull", "--json")
    assert json.loads(done.stdout)["fetched"] == ["o d d/c", "out/a", "out/deep/b"], done.stderr
    assert (project / "out/deep/b").read_text() == "2\n"
    assert not (project / "other").exists()
    assert "fetched 0 files (0 B) of 3" in rv(laptop, project, "sync", "pull").stderr
    (project / "out/a").write_text("mine\n")
    (project / "out/deep/b").unlink()
    done = rv(laptop, project, "sync", "pull")
    assert "fetched 1 file (2 B) of 3" in done.stderr
    assert "not replaced, as they differ here: out/a" in done.stderr
    assert (project / "out/a").read_text() == "mine\n"
    assert rv(laptop, project, "sync", "pull", "--force").returncode == 0
    assert (project / "out/a").read_text() == "1\n"
    done = rv(laptop, laptop.home, "sync", "pull", "--to", str(laptop.home / "x"), "-o", "other")
    assert (laptop.home / "x" / "other").read_text() == "4\n", done.stderr


def test_results_of_a_later_race(laptop: Laptop, project: Path) -> None:
    """They replace those of an earlier one, which went with the code; links and any name come."""
    run(laptop, project, "mkdir out; echo 1 | tee out/a out/b", "-o", "out")
    rv(laptop, project, "sync", "pull")
    line = "echo 2 >out/a; echo 3 >out/$(printf '\\377'); ln -s out runs; ln -s a out/last"
    run(laptop, project, line, "-o", "./out/", "-o", "runs")
    done = rv(laptop, project, "sync", "pull", "--json")
    answer = json.loads(done.stdout)
    fetched = [os.fsencode(name) for name in answer["fetched"]]
    assert {b"out/a", b"out/\xff", b"runs/a"} <= set(fetched), done.stderr
    assert (answer["left"], answer["links"]) == ([], ["out/last", "runs/last"])
    assert "left out, as they are links: out/last, runs/last" in done.stderr
    assert [(project / folder / "a").read_text() for folder in ("out", "runs")] == ["2\n", "2\n"]
    assert (project / "out" / os.fsdecode(b"\xff")).read_text() == "3\n"
    (project / "out" / "a").write_text("mine\n")
    assert json.loads(rv(laptop, project, "sync", "pull", "--json").stdout)["left"] == ["out/a"]
    done = rv(laptop, project, "sync", "pull", "-o", "../out")
    assert (done.returncode, "names nothing below" in done.stderr) == (2, True), done.stderr


def test_results_never_leave_the_work_tree(laptop: Laptop, project: Path) -> None:
    """A link here that leads elsewhere is not written through."""
    outside = laptop.home / "outside"
    outside.mkdir()
    run(laptop, project, "mkdir out; echo 1 >out/a", "-o", "out")
    (project / "out").symlink_to(outside)
    done = rv(laptop, project, "sync", "pull")
    assert done.returncode == 125
    assert "a link leads out of the work tree" in done.stderr
    assert list(outside.iterdir()) == []


def test_watch_sends_each_change(laptop: Laptop, project: Path) -> None:
    """Until Ctrl-C."""
    client = laptop.start("sync", "watch", folder=project)
    eventually(lambda: len(stores(laptop)) == 1)
    (project / "train.py").write_text("print('watched')\n")
    eventually(lambda: len(stores(laptop)) == 2)
    time.sleep(0.5)
    client.send_signal(2)
    _, err = client.communicate(timeout=30)
    assert client.returncode == 130
    assert err.count("synced") == 2, err
    assert "Traceback" not in err


def test_watch_waits_for_a_lost_connection(laptop: Laptop, project: Path) -> None:
    """It is said once, and what changed meanwhile is sent when it is back."""
    talk = Talk(laptop.start("sync", "watch", folder=project))
    eventually(lambda: len(stores(laptop)) == 1)
    laptop.server.stop()
    (project / "train.py").write_text("print('first of two')\n")
    talk.shows("trying again")
    (project / "train.py").write_text("print('watched')\n")
    laptop.server.start()
    eventually(lambda: len(stores(laptop)) == 2)
    talk.shows("synced 1 file (17 B)")
    os.killpg(talk.client.pid, signal.SIGINT)
    assert talk.client.wait(30) == 130
    talk.close()
    assert talk.text.count("trying again") == 1, talk.text


def test_status_says_what_would_be_sent(laptop: Laptop, project: Path) -> None:
    """Without sending it."""
    status = json.loads(rv(laptop, project, "sync", "status", "--json").stdout)
    assert (status["files"], len(status["to_send"])) == (4, 4)
    rv(laptop, project, "sync", "push")
    (project / "train.py").write_text("x")
    shown = rv(laptop, project, "sync", "status").stdout
    assert "to send: 1 file (1 B): train.py" in shown
    assert len(stores(laptop)) == 1


def test_trees_that_nobody_used_for_a_week_are_removed(laptop: Laptop, project: Path) -> None:
    """The next sync does it; a race's own copy stays."""
    assert run(laptop, project, "true") == ""
    (old,) = stores(laptop)
    (project / "train.py").write_text("2\n")
    rv(laptop, project, "sync", "push")
    week_ago = time.time() - 8 * 86400
    os.utime(old, (week_ago, week_ago))
    (project / "train.py").write_text("3\n")
    rv(laptop, project, "sync", "push")
    assert old not in stores(laptop)
    assert len(stores(laptop)) == 2
    races = laptop.home.parent / "away" / ".local/state/rv/races"
    assert [path.read_text() for path in races.glob("*/code/train.py")] == ["print('first')\n"]


def test_results_that_were_cut_off_are_not_called_fetched(laptop: Laptop, project: Path) -> None:
    """The next pull fetches the rest; no half of a file is left."""
    line = (
        "mkdir out; for n in $(seq 9); do head -c 200000 /dev/urandom >out/$n; done; chmod +x out/9"
    )
    run(laptop, project, line, "-o", "out")
    programs = laptop.home.parent / "away" / "bin"
    programs.mkdir(exist_ok=True)
    tar = programs / "tar"
    tar.write_text(
        '#!/bin/bash\n[[ " $* " != *" -cf "* ]] || { /bin/tar "$@" | head -c 650000; exit; }\n'
        'exec /bin/tar "$@"\n'
    )
    tar.chmod(0o755)
    done = rv(laptop, project, "sync", "pull")
    assert done.returncode == 125
    assert "error[unreachable]: " in done.stderr
    came = sorted(path.name for path in (project / "out").iterdir())
    assert came == ["1", "2", "3"]
    tar.unlink()
    assert "fetched 6 files (1.2 MB) of 9" in rv(laptop, project, "sync", "pull").stderr
    assert [(project / "out" / name).stat().st_mode & 0o100 for name in ("8", "9")] == [0, 0o100]
