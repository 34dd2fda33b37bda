"""A polite agent with worker threads, which watch the cancel token."""

import threading

from agentctl_child import run


def main() -> int:
    """Work in four threads until the stop; give the number of ticks."""
    ticks = [0] * 4

    def work(index: int) -> None:
        while not run.cancel_token.wait(0.01):
            ticks[index] += 1

    workers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for worker in workers:
        worker.start()
    try:
        run.emit_text("working")
        for worker in workers:
            worker.join()
    finally:
        run.cancel_token.wait()
        for worker in workers:
            worker.join()
        run.checkpoint({"ticks": sum(ticks)})
    return sum(ticks)
