/*
 * What a C program does with a store that another process serves, at the socket argv[1]: the calls of the header, in
 * the words of a store that is opened. The server's store is of preset "damelo". With a second argument the server is
 * gone. Ends with 0 and the word "done", or with 1 and the line where something was not as the header says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picaflor.h"

#define CHECK(what)                                                                                    \
    do {                                                                                               \
        if (!(what)) {                                                                                 \
            fprintf(stderr, "served.c:%d: %s (last text: %s)\n", __LINE__, #what, picaflor_error_text()); \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

#define KEY(text) (text), strlen(text)

static picaflor_store *open_store(const char *path, uint32_t read_only)
{
    picaflor_options options = PICAFLOR_OPTIONS_INIT;
    picaflor_store *store;
    options.read_only = read_only;
    CHECK(picaflor_open(path, &options, &store) == PICAFLOR_OK && store != NULL);
    return store;
}

static void objects(picaflor_store *store)
{
    picaflor_write_options options = PICAFLOR_WRITE_OPTIONS_INIT;
    picaflor_object *object;
    const void *bytes;
    size_t len, copied;
    char part[8] = {0};
    options.group = 7;
    options.ttl = 3600 * 1000;
    options.metadata = "text/html";
    options.metadata_len = 9;
    CHECK(picaflor_write(store, KEY("page"), "<html>", 6, &options) == PICAFLOR_OK);
    options.neighbour = "page";
    options.neighbour_len = 4;
    CHECK(picaflor_write_nomem(store, KEY("logo"), "bytes", 5, &options) == PICAFLOR_OK);
    CHECK(picaflor_read(store, KEY("page"), &object) == PICAFLOR_OK);
    CHECK(picaflor_length(object) == 6 && picaflor_group(object) == 7);
    CHECK(picaflor_generation(object) > 0 && picaflor_expires(object) > 0);
    CHECK(picaflor_metadata(object, &bytes, &len) == PICAFLOR_OK && len == 9 && memcmp(bytes, "text/html", 9) == 0);
    CHECK(picaflor_read_at(object, 1, part, 4, &copied) == PICAFLOR_OK && copied == 4 && memcmp(part, "html", 4) == 0);
    CHECK(picaflor_read_at(object, 5, part, 8, &copied) == PICAFLOR_OK && copied == 1 && part[0] == '>');
    CHECK(picaflor_read_at(object, UINT64_MAX, part, 8, &copied) == PICAFLOR_OK && copied == 0);
    /* It stays as it was found, whatever becomes of the key. */
    CHECK(picaflor_write(store, KEY("page"), "<body>", 6, NULL) == PICAFLOR_OK);
    CHECK(picaflor_delete(store, KEY("page")) == PICAFLOR_OK);
    CHECK(picaflor_delete(store, KEY("page")) == PICAFLOR_ABSENT);
    CHECK(picaflor_body(object, &bytes, &len) == PICAFLOR_OK && len == 6 && memcmp(bytes, "<html>", 6) == 0);
    picaflor_done_read(object);
    CHECK(picaflor_read(store, KEY("page"), &object) == PICAFLOR_ABSENT && object == NULL);
    picaflor_done_read(object);
}

static void large(picaflor_store *store)
{
    size_t length = 3u << 20, len, at;
    char *body = malloc(length);
    const void *bytes;
    picaflor_object *object;
    CHECK(body != NULL);
    for (at = 0; at < length; at++)
        body[at] = (char)(at * 31 >> 3);
    CHECK(picaflor_write(store, KEY("large"), body, length, NULL) == PICAFLOR_OK);
    CHECK(picaflor_read(store, KEY("large"), &object) == PICAFLOR_OK);
    CHECK(picaflor_body(object, &bytes, &len) == PICAFLOR_OK && len == length && memcmp(bytes, body, len) == 0);
    picaflor_done_read(object);
    free(body);
}

static void hints(picaflor_store *store)
{
    uint32_t group = 0;
    CHECK(picaflor_lookup(store, KEY("logo"), &group) == PICAFLOR_OK && group == 7);
    CHECK(picaflor_lookup(store, KEY("logo"), NULL) == PICAFLOR_OK);
    CHECK(picaflor_lookup(store, KEY("nothing"), &group) == PICAFLOR_ABSENT && group == 7);
    CHECK(picaflor_love(store, 7) == PICAFLOR_OK && picaflor_hate(store, 8) == PICAFLOR_OK);
    CHECK(picaflor_neither(store, 7) == PICAFLOR_OK && picaflor_set_checkpoint(store, 7, 500) == PICAFLOR_OK);
    CHECK(picaflor_love(store, 0) == PICAFLOR_INVALID);
    CHECK(picaflor_set_page(store, 7, 32768) == PICAFLOR_OK);
    CHECK(picaflor_set_page(store, 7, 1000) == PICAFLOR_OPTION);
    CHECK(picaflor_set_page(store, 0, 32768) == PICAFLOR_INVALID);
    CHECK(picaflor_collocate(store, KEY("large"), KEY("logo")) == PICAFLOR_OK);
    CHECK(picaflor_invalidate(store, KEY("logo")) == PICAFLOR_OK);
    CHECK(picaflor_lookup(store, KEY("logo"), NULL) == PICAFLOR_ABSENT);
    CHECK(picaflor_flush(store) == PICAFLOR_OK);
}

static void refusals(const char *socket, picaflor_store *store)
{
    picaflor_store *reader = open_store(socket, 1);
    CHECK(strstr(picaflor_receipt(store), "served by another process") != NULL);
    CHECK(picaflor_run_daemon(store, PICAFLOR_RUN_ALL, 0) == PICAFLOR_OPTION);
    CHECK(strstr(picaflor_error_text(), "the process that has the store") != NULL);
    CHECK(picaflor_run_daemon(store, 99, 0) == PICAFLOR_INVALID);
    CHECK(picaflor_grow(store, 1u << 30) == PICAFLOR_OPTION);
    CHECK(picaflor_write(store, "", 0, "x", 1, NULL) == PICAFLOR_LIMIT);
    CHECK(picaflor_lookup(reader, KEY("large"), NULL) == PICAFLOR_OK);
    CHECK(picaflor_write(reader, KEY("no"), "x", 1, NULL) == PICAFLOR_READ_ONLY);
    CHECK(picaflor_delete(reader, KEY("large")) == PICAFLOR_READ_ONLY);
    CHECK(picaflor_invalidate(reader, KEY("large")) == PICAFLOR_READ_ONLY);
    CHECK(picaflor_close(reader) == PICAFLOR_OK);
}

int main(int argc, char **argv)
{
    picaflor_store *store;
    if (argc > 2) {
        CHECK(picaflor_open(argv[1], NULL, &store) == PICAFLOR_IO && store == NULL);
        CHECK(strstr(picaflor_error_text(), "picaflor share") != NULL);
    } else {
        CHECK(argc == 2);
        store = open_store(argv[1], 0);
        objects(store);
        large(store);
        hints(store);
        refusals(argv[1], store);
        CHECK(picaflor_close(store) == PICAFLOR_OK);
    }
    puts("done");
    return 0;
}
