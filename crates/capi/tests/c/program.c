/*
 * What a C program does with a store: every call of the header on a file at argv[1], checked. Ends with 0 and the word
 * "done", or with 1 and the line where something was not as the header says.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picaflor.h"

static void fail(int line, const char *what)
{
    fprintf(stderr, "program.c:%d: %s (last text: %s)\n", line, what, picaflor_error_text());
    exit(1);
}

#define CHECK(what)                \
    do {                           \
        if (!(what))               \
            fail(__LINE__, #what); \
    } while (0)

#define KEY(text) (text), strlen(text)

static const char *name_of(int code)
{
    return picaflor_error_name(code);
}

/* Bytes that tell which object they are of, and where in it. */
static void fill(unsigned char *body, size_t len, uint32_t seed)
{
    for (size_t at = 0; at < len; at++)
        body[at] = (unsigned char)((seed * 2654435761u + at * 40503u) >> 7);
}

static int is_filled(const void *body, size_t len, uint32_t seed)
{
    const unsigned char *bytes = body;
    for (size_t at = 0; at < len; at++)
        if (bytes[at] != (unsigned char)((seed * 2654435761u + at * 40503u) >> 7))
            return 0;
    return 1;
}

static picaflor_store *open_store(const char *path)
{
    picaflor_options options = PICAFLOR_OPTIONS_INIT;
    options.preset = "picaflor";
    options.capacity = 64 << 20;
    options.memory = 24 << 20;
    options.mode = PICAFLOR_STORE;
    picaflor_store *store;
    CHECK(picaflor_open(path, &options, &store) == PICAFLOR_OK);
    CHECK(store != NULL);
    return store;
}

/* Reads an object, compares it byte for byte, gives it back. */
static void expect(picaflor_store *store, const char *key, size_t len, uint32_t seed)
{
    picaflor_object *object;
    const void *body;
    size_t found;
    CHECK(picaflor_read(store, KEY(key), &object) == PICAFLOR_OK);
    CHECK(picaflor_length(object) == len);
    CHECK(picaflor_body(object, &body, &found) == PICAFLOR_OK);
    CHECK(found == len && is_filled(body, len, seed));
    picaflor_done_read(object);
}

static void put(picaflor_store *store, const char *key, size_t len, uint32_t seed, const picaflor_write_options *options)
{
    unsigned char *body = malloc(len ? len : 1);
    CHECK(body != NULL);
    fill(body, len, seed);
    CHECK(picaflor_write(store, KEY(key), body, len, options) == PICAFLOR_OK);
    /* The buffer is the caller's again. */
    memset(body, 0xee, len);
    free(body);
}

static void versions(void)
{
    CHECK(picaflor_interface() >= PICAFLOR_INTERFACE);
    CHECK(strchr(picaflor_version(), '.') != NULL);
    CHECK(strcmp(name_of(PICAFLOR_OK), "PICAFLOR_OK") == 0);
    CHECK(strcmp(name_of(PICAFLOR_FULL), "PICAFLOR_FULL") == 0);
    CHECK(strcmp(name_of(-999), "unknown") == 0 && strcmp(name_of(1), "unknown") == 0);
    CHECK(picaflor_error_text()[0] == 0);
}

static void write_and_read(picaflor_store *store)
{
    const size_t lengths[] = { 0, 1, 63, 4096, 100000, 255 << 10, 3 << 20 };
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char key[32];
        snprintf(key, sizeof key, "length/%zu", lengths[i]);
        put(store, key, lengths[i], i, NULL);
        expect(store, key, lengths[i], i);
    }

    /* A key is bytes. */
    const char odd[] = "a\0b\xff";
    CHECK(picaflor_write(store, odd, 4, "x", 1, NULL) == PICAFLOR_OK);
    CHECK(picaflor_lookup(store, odd, 4, NULL) == PICAFLOR_OK);
    CHECK(picaflor_lookup(store, odd, 3, NULL) == PICAFLOR_ABSENT);

    /* Written past the memory, in one cluster and in several; read in parts. */
    unsigned char *large = malloc(5 << 20);
    unsigned char part[5000];
    CHECK(large != NULL);
    fill(large, 5 << 20, 77);
    CHECK(picaflor_write_nomem(store, KEY("nomem/small"), large, 1000, NULL) == PICAFLOR_OK);
    CHECK(picaflor_write_nomem(store, KEY("nomem/large"), large, 5 << 20, NULL) == PICAFLOR_OK);
    expect(store, "nomem/small", 1000, 77);
    picaflor_object *object;
    CHECK(picaflor_read(store, KEY("nomem/large"), &object) == PICAFLOR_OK);
    size_t copied = 9;
    CHECK(picaflor_read_at(object, 262000, part, sizeof part, &copied) == PICAFLOR_OK);
    CHECK(copied == sizeof part && memcmp(part, large + 262000, sizeof part) == 0);
    CHECK(picaflor_read_at(object, (5 << 20) - 10, part, sizeof part, &copied) == PICAFLOR_OK);
    CHECK(copied == 10 && memcmp(part, large + (5 << 20) - 10, 10) == 0);
    CHECK(picaflor_read_at(object, UINT64_MAX, part, sizeof part, &copied) == PICAFLOR_OK && copied == 0);
    CHECK(picaflor_read_at(object, 0, NULL, 0, &copied) == PICAFLOR_OK && copied == 0);
    picaflor_done_read(object);
    free(large);
}

static void what_goes_with_an_object(picaflor_store *store)
{
    picaflor_write_options options = PICAFLOR_WRITE_OPTIONS_INIT;
    options.group = 3;
    options.ttl = 3600 * 1000;
    options.metadata = "text/html";
    options.metadata_len = 9;
    put(store, "page", 7000, 1, &options);
    options.neighbour = "page";
    options.neighbour_len = 4;
    options.ttl = 0;
    put(store, "image", 2000, 2, &options);

    picaflor_object *page, *image;
    const void *metadata;
    size_t len;
    CHECK(picaflor_read(store, KEY("page"), &page) == PICAFLOR_OK);
    CHECK(picaflor_read(store, KEY("image"), &image) == PICAFLOR_OK);
    CHECK(picaflor_metadata(page, &metadata, &len) == PICAFLOR_OK);
    CHECK(len == 9 && memcmp(metadata, "text/html", 9) == 0);
    CHECK(picaflor_group(page) == 3 && picaflor_group(image) == 3);
    CHECK(picaflor_expires(page) > UINT64_C(1700000000000) && picaflor_expires(image) == 0);
    CHECK(picaflor_generation(image) > picaflor_generation(page));

    /* A pin outlives what happens to the key. */
    const void *body;
    CHECK(picaflor_body(page, &body, &len) == PICAFLOR_OK);
    put(store, "page", 10, 9, NULL);
    CHECK(picaflor_delete(store, KEY("image")) == PICAFLOR_OK);
    CHECK(len == 7000 && is_filled(body, len, 1));
    CHECK(picaflor_length(image) == 2000);
    picaflor_done_read(page);
    picaflor_done_read(image);
    expect(store, "page", 10, 9);
}

static void groups(picaflor_store *store)
{
    uint32_t group = 99;
    CHECK(picaflor_love(store, 3) == PICAFLOR_OK);
    CHECK(picaflor_hate(store, 4) == PICAFLOR_OK);
    CHECK(picaflor_hate(store, 5) == PICAFLOR_OK && picaflor_neither(store, 5) == PICAFLOR_OK);
    CHECK(picaflor_set_checkpoint(store, 3, 200) == PICAFLOR_OK);
    CHECK(picaflor_set_checkpoint(store, 4, 0) == PICAFLOR_OK);
    CHECK(picaflor_set_page(store, 3, 1000) == PICAFLOR_OPTION);
    CHECK(strstr(picaflor_error_text(), "page") != NULL);
    CHECK(picaflor_love(store, 0) == PICAFLOR_INVALID);
    CHECK(strstr(picaflor_error_text(), "group 0") != NULL);
    for (uint32_t i = 0; i < 40; i++) {
        picaflor_write_options options = PICAFLOR_WRITE_OPTIONS_INIT;
        char key[32];
        snprintf(key, sizeof key, "grouped/%" PRIu32, i);
        options.group = 1 + i % 4;
        put(store, key, 3000 + i, i, &options);
    }
    for (uint32_t i = 0; i < 40; i++) {
        char key[32];
        snprintf(key, sizeof key, "grouped/%" PRIu32, i);
        CHECK(picaflor_lookup(store, KEY(key), &group) == PICAFLOR_OK && group == 1 + i % 4);
    }
    group = 99;
    CHECK(picaflor_lookup(store, KEY("grouped/40"), &group) == PICAFLOR_ABSENT && group == 99);
    CHECK(picaflor_collocate(store, KEY("grouped/1"), KEY("grouped/2")) == PICAFLOR_OK);
    put(store, "grouped/2", 3002, 2, NULL);
    CHECK(picaflor_lookup(store, KEY("grouped/2"), &group) == PICAFLOR_OK && group == 0);
}

static void deletes(picaflor_store *store)
{
    picaflor_object *object = (picaflor_object *)store;
    put(store, "gone", 100, 5, NULL);
    CHECK(picaflor_delete(store, KEY("gone")) == PICAFLOR_OK);
    CHECK(picaflor_read(store, KEY("gone"), &object) == PICAFLOR_ABSENT);
    CHECK(object == NULL);
    CHECK(picaflor_lookup(store, KEY("gone"), NULL) == PICAFLOR_ABSENT);
    CHECK(picaflor_delete(store, KEY("gone")) == PICAFLOR_ABSENT);
    put(store, "gone", 100, 6, NULL);
    CHECK(picaflor_invalidate(store, KEY("gone")) == PICAFLOR_OK);
    CHECK(picaflor_read(store, KEY("gone"), &object) == PICAFLOR_ABSENT);
    CHECK(picaflor_invalidate(store, KEY("gone")) == PICAFLOR_OK);
}

/* The daemons of a store that has no threads of its own. */
static void daemons(const char *path)
{
    picaflor_options options = PICAFLOR_OPTIONS_INIT;
    picaflor_store *store;
    char key[32];
    uint32_t i;
    options.preset = "hummingbird";
    options.capacity = 64 << 20;
    options.memory = 8 << 20;
    options.cluster = 64 << 10;
    options.unpacked = 1 << 20;
    options.next_cluster = PICAFLOR_NEXT_TO_WRITE;
    options.pack_order = PICAFLOR_PACK_GREEDY_DUAL + 1;
    CHECK(picaflor_open(path, &options, &store) == PICAFLOR_INVALID && strstr(picaflor_error_text(), "pack_order"));
    options.pack_order = PICAFLOR_PACK_LRU_HEAD;
    options.cluster_age = PICAFLOR_AGE_UNUSED;
    options.cluster_age_time = 3600 * 1000;
    options.daemons = PICAFLOR_DAEMONS_BY_CALL;
    CHECK(picaflor_open(path, &options, &store) == PICAFLOR_OK);
    CHECK(picaflor_run_daemon(store, PICAFLOR_RUN_PACK, 0) == PICAFLOR_ABSENT);
    CHECK(picaflor_grow(store, 1 << 16) == PICAFLOR_OPTION && strstr(picaflor_error_text(), "opened with fewer"));
    CHECK(picaflor_grow(store, 2 * options.capacity) == PICAFLOR_OK && picaflor_grow(NULL, 0) == PICAFLOR_INVALID);
    for (i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "object %" PRIu32, i);
        put(store, key, 3000, i, NULL);
    }
    CHECK(picaflor_run_daemon(store, PICAFLOR_RUN_PACK, 0) == PICAFLOR_OK);
    while (picaflor_run_daemon(store, PICAFLOR_RUN_PACK_HEAD, 0) == PICAFLOR_OK)
        picaflor_run_daemon(store, PICAFLOR_RUN_ALL, 0);
    while (picaflor_run_daemon(store, PICAFLOR_RUN_ALL, 0) == PICAFLOR_OK)
        ;
    CHECK(picaflor_run_daemon(store, PICAFLOR_RUN_FREE_MEMORY, 0) == PICAFLOR_OK);
    CHECK(picaflor_run_daemon(store, PICAFLOR_RUN_FREE_MEMORY, 0) == PICAFLOR_ABSENT);
    CHECK(picaflor_run_daemon(store, PICAFLOR_RUN_FREE_DISK, 0) == PICAFLOR_ABSENT);
    CHECK(picaflor_run_daemon(store, PICAFLOR_RUN_FREE_DISK + 1, 0) == PICAFLOR_INVALID);
    for (i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "object %" PRIu32, i);
        CHECK(picaflor_lookup(store, KEY(key), NULL) == PICAFLOR_OK);
    }
    CHECK(picaflor_close(store) == PICAFLOR_OK);
}

static void errors(picaflor_store *store, const char *path)
{
    picaflor_object *object;
    const void *body;
    size_t len;
    char *long_key = calloc(1, 9000);
    CHECK(long_key != NULL);
    CHECK(picaflor_write(NULL, "k", 1, "b", 1, NULL) == PICAFLOR_INVALID);
    CHECK(strstr(picaflor_error_text(), "store is a null pointer") != NULL);
    CHECK(picaflor_write(store, NULL, 1, "b", 1, NULL) == PICAFLOR_INVALID);
    CHECK(picaflor_write(store, "k", 1, NULL, 1, NULL) == PICAFLOR_INVALID);
    CHECK(picaflor_write(store, "k", 1, "b", SIZE_MAX, NULL) == PICAFLOR_INVALID);
    CHECK(picaflor_write(store, NULL, 0, "b", 1, NULL) == PICAFLOR_LIMIT);
    CHECK(picaflor_write(store, long_key, 9000, "b", 1, NULL) == PICAFLOR_LIMIT);
    CHECK(picaflor_read(store, "k", 1, NULL) == PICAFLOR_INVALID);
    CHECK(picaflor_read(NULL, "k", 1, &object) == PICAFLOR_INVALID && object == NULL);
    CHECK(picaflor_body(NULL, &body, &len) == PICAFLOR_INVALID);
    CHECK(picaflor_metadata(NULL, &body, &len) == PICAFLOR_INVALID);
    CHECK(picaflor_read_at(NULL, 0, long_key, 1, &len) == PICAFLOR_INVALID);
    CHECK(picaflor_delete(NULL, "k", 1) == PICAFLOR_INVALID && picaflor_flush(NULL) == PICAFLOR_INVALID);
    CHECK(picaflor_collocate(store, NULL, 1, "k", 1) == PICAFLOR_INVALID);
    CHECK(picaflor_lookup(NULL, "k", 1, NULL) == PICAFLOR_INVALID && picaflor_love(NULL, 1) == PICAFLOR_INVALID);
    CHECK(picaflor_length(NULL) == 0 && picaflor_group(NULL) == 0 && picaflor_generation(NULL) == 0);
    CHECK(picaflor_expires(NULL) == 0 && picaflor_receipt(NULL) == NULL && picaflor_close(NULL) == PICAFLOR_OK);
    picaflor_done_read(NULL);
    picaflor_write_options unset = { .group = 3 };
    CHECK(picaflor_write(store, "k", 1, "b", 1, &unset) == PICAFLOR_INVALID);
    CHECK(strstr(picaflor_error_text(), "sizeof") != NULL);
    unsigned char *body_17 = calloc(1, 17 << 20);
    CHECK(body_17 != NULL);
    CHECK(picaflor_write(store, "k", 1, body_17, 17 << 20, NULL) == PICAFLOR_TOO_LARGE);
    free(body_17);
    free(long_key);

    picaflor_store *second = store;
    picaflor_options options = PICAFLOR_OPTIONS_INIT;
    options.preset = "no-such-preset";
    CHECK(picaflor_open(path, &options, &second) == PICAFLOR_OPTION && second == NULL);
    CHECK(strstr(picaflor_error_text(), "stream-pack") != NULL);
    options.preset = NULL;
    options.mode = 7;
    CHECK(picaflor_open(path, &options, &second) == PICAFLOR_INVALID);
    CHECK(picaflor_open(NULL, NULL, &second) == PICAFLOR_INVALID);
    CHECK(picaflor_open(path, NULL, NULL) == PICAFLOR_INVALID);
    CHECK(picaflor_open("/no/such/folder/store", NULL, &second) == PICAFLOR_IO && second == NULL);
    CHECK(strstr(picaflor_error_text(), "/no/such/folder/store") != NULL);
    CHECK(strcmp(name_of(PICAFLOR_IO), "PICAFLOR_IO") == 0);
}

/* A store says that it is full; what was in it stays. */
static void full(picaflor_store *store)
{
    char key[32];
    int code = PICAFLOR_OK;
    uint32_t count = 0;
    unsigned char *body = malloc(1 << 20);
    CHECK(body != NULL);
    for (; code == PICAFLOR_OK && count < 100; count++) {
        snprintf(key, sizeof key, "full/%" PRIu32, count);
        fill(body, 200000, count);
        code = picaflor_write(store, KEY(key), body, 200000 + (count % 2) * 800000, NULL);
        if (code == PICAFLOR_OK)
            expect(store, "page", 10, 9);
    }
    free(body);
    CHECK(code == PICAFLOR_FULL);
    CHECK(strstr(picaflor_error_text(), "full") != NULL);
    for (uint32_t i = 0; i + 1 < count; i++) {
        snprintf(key, sizeof key, "full/%" PRIu32, i);
        CHECK(picaflor_delete(store, KEY(key)) == PICAFLOR_OK);
    }
}

struct worker {
    picaflor_store *store;
    uint32_t number;
};

static void *work(void *given)
{
    struct worker *worker = given;
    CHECK(picaflor_error_text()[0] == 0);
    for (uint32_t i = 0; i < 400; i++) {
        char key[32];
        snprintf(key, sizeof key, "thread/%" PRIu32 "/%" PRIu32, worker->number, i % 50);
        put(worker->store, key, 500 + i * 7, i, NULL);
        expect(worker->store, key, 500 + i * 7, i);
        /* One key that both write: some version of it, whole. */
        put(worker->store, "shared", 3000, worker->number, NULL);
        picaflor_object *object;
        const void *body;
        size_t len;
        CHECK(picaflor_read(worker->store, KEY("shared"), &object) == PICAFLOR_OK);
        CHECK(picaflor_body(object, &body, &len) == PICAFLOR_OK);
        CHECK(len == 3000 && (is_filled(body, len, 0) || is_filled(body, len, 1)));
        picaflor_done_read(object);
        if (i % 10 == 9)
            CHECK(picaflor_delete(worker->store, KEY(key)) == PICAFLOR_OK);
    }
    CHECK(picaflor_read(worker->store, NULL, 1, (picaflor_object **)&worker->store) == PICAFLOR_INVALID);
    return NULL;
}

static void threads(picaflor_store *store)
{
    pthread_t ids[2];
    struct worker workers[2] = { { store, 0 }, { store, 1 } };
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&ids[i], NULL, work, &workers[i]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
}

static void again(const char *path)
{
    picaflor_store *store = open_store(path), *second;
    CHECK(strstr(picaflor_receipt(store), "objects") != NULL);
    expect(store, "page", 10, 9);
    expect(store, "length/3145728", 3 << 20, 6);
    expect(store, "nomem/large", 5 << 20, 77);
    expect(store, "thread/1/48", 500 + 398 * 7, 398);
    uint32_t group;
    CHECK(picaflor_lookup(store, KEY("grouped/3"), &group) == PICAFLOR_OK && group == 4);
    CHECK(picaflor_lookup(store, KEY("gone"), NULL) == PICAFLOR_ABSENT);
    CHECK(picaflor_lookup(store, KEY("image"), NULL) == PICAFLOR_ABSENT);
    CHECK(picaflor_lookup(store, KEY("thread/0/49"), NULL) == PICAFLOR_ABSENT);
    CHECK(picaflor_close(store) == PICAFLOR_OK);

    picaflor_options options = PICAFLOR_OPTIONS_INIT;
    options.mode = PICAFLOR_STORE;
    options.read_only = 1;
    CHECK(picaflor_open(path, &options, &second) == PICAFLOR_OK);
    expect(second, "page", 10, 9);
    CHECK(picaflor_write(second, "k", 1, "b", 1, NULL) == PICAFLOR_READ_ONLY);
    CHECK(picaflor_delete(second, KEY("page")) == PICAFLOR_READ_ONLY);
    /* An object outlives its store. */
    picaflor_object *object;
    const void *body;
    size_t len;
    CHECK(picaflor_read(second, KEY("page"), &object) == PICAFLOR_OK);
    CHECK(picaflor_close(second) == PICAFLOR_OK);
    CHECK(picaflor_body(object, &body, &len) == PICAFLOR_OK && len == 10 && is_filled(body, 10, 9));
    picaflor_done_read(object);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    versions();
    picaflor_store *store = open_store(argv[1]);
    CHECK(strstr(picaflor_receipt(store), "objects") != NULL);
    write_and_read(store);
    what_goes_with_an_object(store);
    groups(store);
    deletes(store);
    errors(store, argv[1]);
    full(store);
    CHECK(picaflor_flush(store) == PICAFLOR_OK);
    threads(store);
    CHECK(picaflor_close(store) == PICAFLOR_OK);
    again(argv[1]);
    char path[4096];
    snprintf(path, sizeof path, "%s-daemons", argv[1]);
    daemons(path);
    puts("done");
    return 0;
}
