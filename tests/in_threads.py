"""Work of a test in several threads at once."""

import threading
from collections.abc import Callable


def run_in_threads(work: Callable[[int], object], count: int) -> None:
    """Run ``work(i)`` in so many threads at once; their errors reach the test."""
    errors, start = [], threading.Barrier(count)

    def run(i):
        try:
            start.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
