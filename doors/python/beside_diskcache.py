"""This door beside diskcache, for the table of the README: puts, gets, durable puts, and what kill -9 leaves.

Run in an environment with both: python beside_diskcache.py [FOLDER]
"""

import os
import random
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time

COUNT, LENGTH, DURABLE = 20_000, 4096, 300


def body(number):
    return number.to_bytes(8, "little") * (LENGTH // 8)


class Picaflor:
    def __init__(self, folder, durable):
        import picaflor

        options = {"durable_within": 0 if durable else 1.0}
        self.store = picaflor.Store(folder + "/store", capacity=512 << 20, memory=64 << 20, **options)

    def put(self, key, value):
        self.store.put(key, value)

    def get(self, key):
        return self.store.get(key)


class Diskcache:
    def __init__(self, folder, durable):
        import diskcache

        self.cache = diskcache.Cache(folder, sqlite_synchronous=2 if durable else 1, size_limit=512 << 20)

    def put(self, key, value):
        self.cache.set(key, value)

    def get(self, key):
        return self.cache.get(key)


def timed(calls):
    times = []
    for call in calls:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    cut = statistics.quantiles(times, n=100)
    return f"p50 {cut[49]:.1f} us, p99 {cut[98]:.1f} us, mean {statistics.fmean(times):.1f} us"


def child(kind, folder):
    """Measures, and kills itself."""
    cache = kind(folder, durable=False)
    print("  puts  ", timed(lambda n=n: cache.put(f"/object/{n}", body(n)) for n in range(COUNT)))
    order = random.Random(1).choices(range(COUNT), k=COUNT)
    print("  gets  ", timed(lambda n=n: cache.get(f"/object/{n}") for n in order))
    print("  memory of the process", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MiB at most")
    os.makedirs(folder + "/durable")
    durable = kind(folder + "/durable", durable=True)
    print("  durable puts", timed(lambda n=n: durable.put(f"/object/{n}", body(n)) for n in range(DURABLE)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    for kind in [Diskcache, Picaflor]:
        place = tempfile.mkdtemp(dir=folder)
        print(kind.__name__, flush=True)
        if (pid := os.fork()) == 0:
            child(kind, place)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
        for name, count, durable in [("", COUNT, False), ("/durable", DURABLE, True)]:
            begin = time.perf_counter()
            cache = kind(place + name, durable)
            opened = (time.perf_counter() - begin) * 1e3
            left = sum(cache.get(f"/object/{n}") == body(n) for n in range(count))
            print(f"  after kill -9{name}: {left} of {count}, opened in {opened:.1f} ms", flush=True)
            del cache
        shutil.rmtree(place)


main()
