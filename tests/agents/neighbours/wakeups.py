"""Hundreds of processes that wake up every 100 microseconds, in the way that VARIANT names.

Wake-ups, not work: who sleeps long, spins or yields is no trouble.
"""

import ctypes
import os
import signal
import struct
import threading
import time

from _wire import NEIGHBOURS, VARIANT, up

KIND = "cpu"
VARIANTS = ("sleep", "timerfd", "itimer", "pipes", "threads", "futex")
PROCESSES = max(2, 600 // NEIGHBOURS)
EVERY_S = 0.0001


def sleep() -> None:
    while True:
        time.sleep(EVERY_S)


def timerfd() -> None:
    """Timers of descriptors know no timer slack."""
    libc = ctypes.CDLL(None)
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
    every = struct.pack("qqqq", 0, int(EVERY_S * 1e9), 0, int(EVERY_S * 1e9))
    libc.timerfd_settime(timer, 0, every, None)
    while True:
        os.read(timer, 8)


def itimer() -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)
    while True:
        signal.pause()


def pipes() -> None:
    """Two that wake each other by pipes: no timer at all."""
    (mine, to_me), (others, to_other) = os.pipe(), os.pipe()
    if os.fork() == 0:
        mine, to_other = others, to_me
    else:
        os.write(to_other, b".")
    while os.read(mine, 1):
        os.write(to_other, b".")


def threads() -> None:
    for _ in range(7):
        threading.Thread(target=sleep, daemon=True).start()
    sleep()


def futex() -> None:
    """Two threads that wake each other."""
    turns = threading.Semaphore(1), threading.Semaphore(0)

    def play(mine: int) -> None:
        while True:
            turns[mine].acquire()
            turns[1 - mine].release()

    threading.Thread(target=play, args=(1,), daemon=True).start()
    play(0)


HOW = {"sleep": sleep, "timerfd": timerfd, "itimer": itimer, "pipes": pipes}
HOW |= {"threads": threads, "futex": futex}
made = 0
try:
    for _ in range(PROCESSES // (8 if VARIANT == "threads" else 2 if VARIANT == "pipes" else 1)):
        if os.fork() == 0:
            HOW[VARIANT]()
        made += 1
except OSError:
    pass
up(f"{made} processes")
HOW[VARIANT]()
