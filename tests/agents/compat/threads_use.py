"""Two hundred threads at once, and what synchronises them."""

import concurrent.futures
import threading

THREADS = 200


def main() -> None:
    together = threading.Barrier(THREADS)
    threads = [threading.Thread(target=together.wait) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not together.broken
    with concurrent.futures.ThreadPoolExecutor(THREADS) as executor:
        assert sum(executor.map(int, ["1"] * 1000)) == 1000
    print("all of it works")


if __name__ == "__main__":
    main()
