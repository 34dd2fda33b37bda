"""multiprocessing as programs use it: every start method, pools, queues, shared memory."""

import concurrent.futures
import multiprocessing
import os
from multiprocessing import managers, shared_memory


def square(number: int) -> int:
    return number * number


def answer(inbox: "multiprocessing.Queue[int]", outbox: "multiprocessing.Queue[int]") -> None:
    outbox.put(inbox.get(timeout=30) + 1)


def count(lock: "multiprocessing.synchronize.Lock", name: str) -> None:
    memory = shared_memory.SharedMemory(name=name)
    assert memory.buf is not None
    for _ in range(100):
        with lock:
            memory.buf[0] = (memory.buf[0] + 1) % 256
    memory.close()


def use(method: str) -> None:
    multiprocessing.set_start_method(method, force=True)
    inbox: multiprocessing.Queue[int] = multiprocessing.Queue()
    outbox: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=answer, args=(inbox, outbox))
    process.start()
    inbox.put(41)
    assert outbox.get(timeout=30) == 42
    process.join(30)
    assert process.exitcode == 0


def use_shared_memory() -> None:
    context = multiprocessing.get_context("fork")
    memory = shared_memory.SharedMemory(create=True, size=16 << 20)
    assert memory.buf is not None
    assert os.path.exists(f"/dev/shm/{memory.name}")
    memory.buf[:] = bytes(len(memory.buf))
    lock = context.Lock()
    counters = [context.Process(target=count, args=(lock, memory.name)) for _ in range(2)]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join(30)
    assert memory.buf[0] == 200
    memory.close()
    memory.unlink()


def main() -> None:
    for method in ("fork", "spawn", "forkserver"):
        use(method)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, range(100)) == [n * n for n in range(100)]
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        assert list(executor.map(square, range(10))) == [n * n for n in range(10)]
    with managers.SyncManager() as manager:
        shared = manager.dict()
        shared["key"] = "value"
        assert shared["key"] == "value"
    use_shared_memory()
    print("all of it works")


if __name__ == "__main__":
    main()
