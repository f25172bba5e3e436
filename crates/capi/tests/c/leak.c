/* A program that does what the header forbids: it forgets an object. The test that looks for leaks must see it. */
#include "picaflor.h"

int main(int argc, char **argv)
{
    picaflor_options options = PICAFLOR_OPTIONS_INIT;
    picaflor_store *store;
    picaflor_object *object;
    options.capacity = 16 << 20;
    options.memory = 8 << 20;
    if (argc != 2 || picaflor_open(argv[1], &options, &store) != PICAFLOR_OK)
        return 2;
    if (picaflor_write(store, "a", 1, "b", 1, NULL) != PICAFLOR_OK)
        return 3;
    if (picaflor_read(store, "a", 1, &object) != PICAFLOR_OK)
        return 4;
    object = NULL;
    return picaflor_close(store) == PICAFLOR_OK ? 0 : 5;
}
