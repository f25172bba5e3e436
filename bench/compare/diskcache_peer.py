"""diskcache as a peer: the child of `compare` that `src/work.rs` is for the peers that are crates.

diskcache_peer.py MODE FOLDER SYNC MEMORY CAPACITY NUMBER
"""

import resource
import struct
import sys
import time

import diskcache

KEYS = 300
MASK = (1 << 64) - 1


def mix(number):
    a = (number + 0x9E3779B97F4A7C15) & MASK
    b = ((a ^ (a >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    c = ((b ^ (b >> 27)) * 0x94D049BB133111EB) & MASK
    return c ^ (c >> 31)


def change(seed, number):
    random = mix((mix(seed) + number) & MASK)
    length = 100_000 if (random >> 40) % 50 == 0 else 64 + (random >> 16) % 2000 * 8
    return random % KEYS, length if (random >> 32) % 5 else None


def body(seed, number, key, length):
    word = struct.pack("<Q", mix(seed ^ mix(number)))
    return struct.pack("<QQ", number, key) + word * (length // 8 - 2)


def number_of(seed, key, found):
    if len(found) < 8:
        return None
    (number,) = struct.unpack_from("<Q", found)
    of, length = change(seed, number)
    return number if of == key and length and body(seed, number, key, length) == found else None


def name(key):
    return f"object/{key}"


def work(cache, seed):
    def tell(number):
        sys.stdout.buffer.write(struct.pack("<QQ", number, time.time_ns() // 1000))
        sys.stdout.buffer.flush()

    tell(MASK)
    number = 0
    while True:
        key, length = change(seed, number)
        if length:
            cache.set(name(key), body(seed, number, key, length))
        else:
            cache.delete(name(key))
        tell(number)
        number += 1


def judge(cache, seed, begin):
    print(int((time.perf_counter() - begin) * 1e6))
    for key in range(KEYS):
        try:
            found = cache.get(name(key))
        except Exception as error:  # whatever it is, it is what its user would get
            print(name(key), repr(error), file=sys.stderr)
            print("!")
            continue
        number = None if found is None else number_of(seed, key, found)
        print("-" if found is None else "?" if number is None else number)
    cache.close()


def memory(cache, objects):
    for number in range(objects):
        cache.set(name(number), body(1, number, number, 512))
    for number in range(20_000):
        cache.get(name(mix(number) % objects))
    line = next(line for line in open("/proc/self/status") if line.startswith("RssAnon:"))
    print(int(line.split()[1]) * 1024)


def processor():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


def tails(cache, asked):
    times, misses, before = [], 0, processor()
    for number in asked:
        asked_name = name(number)
        begin = time.perf_counter()
        found = cache.get(asked_name)
        times.append((time.perf_counter() - begin) * 1e6)
        misses += found is None or len(found) != 4096
    used = (processor() - before) / len(times)
    times.sort()
    at = [times[int(len(times) * part)] for part in (0.5, 0.99, 0.999)]
    print(*(f"{time:.2f}" for time in at), f"{used:.2f}", misses)


def load(cache, objects):
    for number in range(objects):
        cache.set(name(number), body(1, number, number, 4096))
    cache.close()


def main():
    mode, folder, sync, _memory, capacity, number = sys.argv[1:]
    begin, number = time.perf_counter(), int(number)
    cache = diskcache.Cache(folder, sqlite_synchronous=2 if sync == "sync" else 1, size_limit=int(capacity))
    if mode == "work":
        work(cache, number)
    elif mode == "judge":
        judge(cache, number, begin)
    elif mode == "memory":
        memory(cache, number)
    elif mode == "hot":
        load_hot = [(key, body(1, key, key, 4096)) for key in range(1000)]
        for key, value in load_hot:
            cache.set(name(key), value)
        tails(cache, (mix(n) % 1000 for n in range(number)))
    elif mode == "load":
        load(cache, number)
    elif mode == "cold":
        tails(cache, (n * 0x9E3779B9 % number for n in range(number // 4)))


main()
