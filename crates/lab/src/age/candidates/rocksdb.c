/* RocksDB for `picaflor lab age`: reads requests from its input and answers each on its output.
 *
 * A request is a letter; numbers are of this machine's order. Each answer begins with a length of 8 bytes, of what
 * follows it: -1 where there is nothing, -2 where a message follows, with a length of its own.
 *   W count (key length bytes)...   writes these in one batch, forced to the device
 *   D key                           deletes one
 *   G key                           its bytes
 *   S                               everything into files, and compactions to their end
 *   B                               bytes written so far: log, flushes and compactions
 */
#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(void *into, size_t bytes) {
    if (fread(into, 1, bytes, stdin) != bytes) exit(0);
}

static void *memory(size_t bytes) {
    void *given = malloc(bytes ? bytes : 1);
    if (!given) abort();
    return given;
}

static void answer(int64_t length, const void *bytes) {
    fwrite(&length, sizeof length, 1, stdout);
    if (length > 0) fwrite(bytes, 1, (size_t)length, stdout);
    if (fflush(stdout)) exit(1);
}

static void failed(char *why) {
    int64_t told = -2;
    fwrite(&told, sizeof told, 1, stdout);
    answer((int64_t)strlen(why), why);
    rocksdb_free(why);
}

static uint64_t counted(const char *all, const char *name) {
    const char *found = strstr(all, name);
    const char *count = found ? strstr(found, "COUNT : ") : NULL;
    return count ? strtoull(count + 8, NULL, 10) : 0;
}

static int is_busy(rocksdb_t *db) {
    static const char *names[] = {"rocksdb.num-running-compactions", "rocksdb.compaction-pending",
                                  "rocksdb.num-running-flushes", "rocksdb.mem-table-flush-pending"};
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        uint64_t value = 0;
        if (rocksdb_property_int(db, names[at], &value) == 0 && value > 0) return 1;
    }
    return 0;
}

static void write_all(rocksdb_t *db, const rocksdb_writeoptions_t *sync) {
    uint32_t count;
    char *why = NULL;
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    need(&count, sizeof count);
    while (count-- > 0) {
        char key[4];
        uint64_t length;
        need(key, sizeof key);
        need(&length, sizeof length);
        char *body = memory(length);
        need(body, length);
        rocksdb_writebatch_put(batch, key, sizeof key, body, length);
        free(body);
    }
    rocksdb_write(db, sync, batch, &why);
    rocksdb_writebatch_destroy(batch);
    if (why) failed(why); else answer(0, NULL);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    uint64_t volume = strtoull(arguments[2], NULL, 10);
    char *why = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_enable_blob_files(options, 1);
    rocksdb_options_set_min_blob_size(options, 1024);
    /* By default of the oldest quarter of the files; of more of them it writes twice as much and needs more room. */
    rocksdb_options_set_enable_blob_gc(options, 1);
    /* As many files on a small volume as by default on one of 16 GB. */
    rocksdb_options_set_blob_file_size(options, volume / 64);
    rocksdb_options_set_write_buffer_size(options, volume / 64);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_enable_statistics(options);
    rocksdb_t *db = rocksdb_open(options, arguments[1], &why);
    if (why) {
        failed(why);
        return 1;
    }
    answer(0, NULL);
    rocksdb_writeoptions_t *sync = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(sync, 1);
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(flush, 1);
    for (;;) {
        char what, key[4];
        why = NULL;
        need(&what, 1);
        if (what == 'W') {
            write_all(db, sync);
        } else if (what == 'D') {
            need(key, sizeof key);
            rocksdb_delete(db, sync, key, sizeof key, &why);
            if (why) failed(why); else answer(0, NULL);
        } else if (what == 'G') {
            size_t length = 0;
            need(key, sizeof key);
            char *body = rocksdb_get(db, read, key, sizeof key, &length, &why);
            if (why) failed(why); else answer(body ? (int64_t)length : -1, body);
            rocksdb_free(body);
        } else if (what == 'S') {
            rocksdb_flush(db, flush, &why);
            while (!why && is_busy(db)) usleep(5000);
            if (why) failed(why); else answer(0, NULL);
        } else if (what == 'B') {
            char *all = rocksdb_options_statistics_get_string(options);
            uint64_t bytes = counted(all, "rocksdb.wal.bytes") + counted(all, "rocksdb.flush.write.bytes")
                + counted(all, "rocksdb.compact.write.bytes");
            rocksdb_free(all);
            answer(sizeof bytes, &bytes);
        } else {
            return 2;
        }
    }
}
