/*
 * A cache of pages with their images: hints, groups, options, and a large body that is read by parts.
 *
 *     scripts/install c "$HOME/.local"
 *     export PKG_CONFIG_PATH=$HOME/.local/lib/pkgconfig LD_LIBRARY_PATH=$HOME/.local/lib
 *     cc pages.c $(pkg-config --cflags --libs picaflor) -o pages
 *     ./pages cache.store
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <picaflor.h>

enum { FRONT = 1, LARGE = 1 << 20 };

/* Ends the program where a call failed, with what it had to say. */
static void check(int code)
{
    if (code != PICAFLOR_OK) {
        fprintf(stderr, "%s: %s\n", picaflor_error_name(code), picaflor_error_text());
        exit(1);
    }
}

static void put(picaflor_store *store, const char *key, const void *body, size_t len, const char *page)
{
    picaflor_write_options options = PICAFLOR_WRITE_OPTIONS_INIT;
    options.group = FRONT;
    options.ttl = 3600 * 1000;
    if (page) { /* to lie beside this one */
        options.neighbour = page;
        options.neighbour_len = strlen(page);
    }
    check(picaflor_write(store, key, strlen(key), body, len, &options));
}

int main(int argc, char **argv)
{
    static unsigned char image[LARGE];
    picaflor_options options = PICAFLOR_OPTIONS_INIT;
    picaflor_store *store;
    picaflor_object *object;
    const void *body;
    size_t len, copied;
    char part[8];

    options.capacity = 64 << 20;
    options.memory = 16 << 20;
    check(picaflor_open(argc > 1 ? argv[1] : "cache.store", &options, &store));
    check(picaflor_love(store, FRONT)); /* its objects stay in memory longest */

    put(store, "/", "<html>", 6, NULL);
    memcpy(image + LARGE / 2, "picaflor", 8);
    put(store, "/logo.png", image, LARGE, "/");
    memset(image, 0, LARGE); /* what was passed is the caller's again */

    check(picaflor_read(store, "/", 1, &object)); /* pinned, not copied */
    check(picaflor_body(object, &body, &len));
    printf("page: %.*s, group %u\n", (int)len, (const char *)body, (unsigned)picaflor_group(object));
    picaflor_done_read(object);

    check(picaflor_read(store, "/logo.png", 9, &object));
    check(picaflor_read_at(object, LARGE / 2, part, sizeof part, &copied));
    printf("image: %.*s, in the middle of %lu bytes\n", (int)copied, part, (unsigned long)picaflor_length(object));
    picaflor_done_read(object);

    check(picaflor_delete(store, "/", 1));
    printf("deleted: %s\n", picaflor_error_name(picaflor_read(store, "/", 1, &object)));
    check(picaflor_close(store)); /* everything is durable now */
    return 0;
}
