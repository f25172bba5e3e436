/* Prints what the compiler makes of the header: sizes and offsets of the structs, numbers of the names. */
#include <stdio.h>

#include "picaflor.h"

#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define NUMBER(name) printf(#name " %d\n", (int)(name))

int main(void)
{
    SIZE(picaflor_options);
    FIELD(picaflor_options, size);
    FIELD(picaflor_options, preset);
    FIELD(picaflor_options, capacity);
    FIELD(picaflor_options, memory);
    FIELD(picaflor_options, mode);
    FIELD(picaflor_options, durability);
    FIELD(picaflor_options, bound_time);
    FIELD(picaflor_options, bound_puts);
    FIELD(picaflor_options, delete_time);
    FIELD(picaflor_options, delete_count);
    FIELD(picaflor_options, default_ttl);
    FIELD(picaflor_options, cluster);
    FIELD(picaflor_options, open_buffers);
    FIELD(picaflor_options, read_only);
    FIELD(picaflor_options, more_count);
    FIELD(picaflor_options, more_places);
    FIELD(picaflor_options, reopening);
    FIELD(picaflor_options, reserved);
    FIELD(picaflor_options, unpacked);
    FIELD(picaflor_options, pack_order);
    FIELD(picaflor_options, next_cluster);
    FIELD(picaflor_options, cluster_age);
    FIELD(picaflor_options, daemons);
    FIELD(picaflor_options, cluster_age_time);
    SIZE(picaflor_write_options);
    FIELD(picaflor_write_options, size);
    FIELD(picaflor_write_options, group);
    FIELD(picaflor_write_options, server);
    FIELD(picaflor_write_options, ttl);
    FIELD(picaflor_write_options, metadata);
    FIELD(picaflor_write_options, metadata_len);
    FIELD(picaflor_write_options, neighbour);
    FIELD(picaflor_write_options, neighbour_len);
    FIELD(picaflor_write_options, no_wait);
    FIELD(picaflor_write_options, reserved);
    NUMBER(PICAFLOR_INTERFACE);
    NUMBER(PICAFLOR_OK);
    NUMBER(PICAFLOR_ABSENT);
    NUMBER(PICAFLOR_INVALID);
    NUMBER(PICAFLOR_OPTION);
    NUMBER(PICAFLOR_LIMIT);
    NUMBER(PICAFLOR_FULL);
    NUMBER(PICAFLOR_TOO_LARGE);
    NUMBER(PICAFLOR_EXPIRED);
    NUMBER(PICAFLOR_BUSY);
    NUMBER(PICAFLOR_NO_CLEAN_SPACE);
    NUMBER(PICAFLOR_INDEX_FULL);
    NUMBER(PICAFLOR_READ_ONLY);
    NUMBER(PICAFLOR_IO);
    NUMBER(PICAFLOR_DAMAGED);
    NUMBER(PICAFLOR_VERSION);
    NUMBER(PICAFLOR_CLOSED);
    NUMBER(PICAFLOR_DEFECT);
    NUMBER(PICAFLOR_OTHER);
    NUMBER(PICAFLOR_RECOVERING);
    return 0;
}
