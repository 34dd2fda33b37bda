"""Processes: signals, timers, sessions, groups, pseudo-terminals, subprocess in its variants."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios


def signals() -> None:
    came: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, lambda number, _: came.append(number))
    os.kill(os.getpid(), signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()
    subprocess.run(["true"], check=True)
    assert set(came) == {signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.sigtimedwait({signal.SIGUSR1}, 30) is not None
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def groups() -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    descriptor = os.pidfd_open(child.pid)
    assert not select.select([descriptor], [], [], 0)[0]
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait(30) == -signal.SIGKILL
    assert select.select([descriptor], [], [], 30)[0]
    stopped = subprocess.Popen(["sleep", "60"], process_group=0)
    os.kill(stopped.pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
    stopped.kill()
    stopped.wait(30)


def subprocesses() -> None:
    done = subprocess.run(
        ["cat"], input=b"x" * (1 << 20), stdout=subprocess.PIPE, check=True, timeout=60
    )
    assert len(done.stdout) == 1 << 20
    try:
        subprocess.run(["sleep", "60"], timeout=0.05, check=True)
    except subprocess.TimeoutExpired:
        pass
    daemon, told = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.write(told, b"up")
        os._exit(0)
    os.wait()
    assert os.read(daemon, 2) == b"up"
    assert os.posix_spawnp("true", ["true"], os.environ) > 0
    os.wait()


def terminals() -> None:
    master, slave = pty.openpty()
    assert os.isatty(slave)
    assert os.ttyname(slave).startswith("/dev/pts/")
    termios.tcsetwinsize(slave, (40, 100))
    child = subprocess.Popen(
        ["sh", "-c", "stty size; tty; read line; echo got $line"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, b"typed\n")
    said = b""
    try:
        while data := os.read(master, 1024):
            said += data
    except OSError:  # its other end is closed
        pass
    assert child.wait(30) == 0
    assert b"40 100" in said, said
    assert b"/dev/pts/" in said, said
    assert b"got typed" in said, said
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "echo to the terminal > /dev/tty"])
    assert b"to the terminal" in os.read(master, 1024)
    os.waitpid(pid, 0)


def main() -> None:
    signals()
    groups()
    subprocesses()
    terminals()
    sys.stdout.write("all of it works\n")


if __name__ == "__main__":
    main()
