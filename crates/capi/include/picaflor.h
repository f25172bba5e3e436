/*
 * picaflor.h: a crash-safe store for web objects, for C (89 and later), C++ (17 and later), and what speaks C.
 *
 * The calls are those of Hummingbird (Shriver et al. 2001, section 3.3) and of Damelo (Ledlie 2000, section 3), over
 * the engine that also has a Rust interface. Link as `pkg-config --cflags --libs picaflor` says, or with libpicaflor_c.a
 * and -lpthread -ldl -lm.
 *
 * What a call returns. PICAFLOR_OK, which is 0, or a code less than 0. picaflor_error_name says its name,
 * picaflor_error_text what there was to say about it. No result is written but where it is said.
 *
 * Who owns what.
 *   - What you pass (keys, bodies, paths, options and what they point to) is yours, is read during the call only, and
 *     must not change during it. You may change or free it as soon as the call returns. Hummingbird's write_file kept
 *     the buffer; this one does not.
 *   - A key or body is bytes with a length and needs no zero at its end; a text (path, preset) ends with one. A length
 *     of 0 may come with a null pointer; any other null pointer is PICAFLOR_INVALID, but where null is said to be fine.
 *   - A handle (picaflor_store *, picaflor_object *) is the library's. You give it back once, with picaflor_close or
 *     picaflor_done_read, and do not use it afterwards. Both take null and do nothing.
 *   - What a call lets you read (a body, metadata, a receipt) belongs to the handle that it was asked of: read it, do
 *     not write or free it, and not once the handle is given back. Names and versions live for ever.
 *   - An object pins its bytes, in memory, until done_read: one that is never given back is memory lost. It stays as it
 *     was found, though another thread writes, deletes or collocates that key meanwhile. Large ones (more than a
 *     cluster) are pinned on the device, as long as those that nothing but handles keeps are no more than an eighth of
 *     it; beyond that, reading one fails, and says that a chunk is missing. Objects may outlive picaflor_close:
 *     the file is another process's to open all the same, and of large ones only what is in memory is still readable; the
 *     rest is PICAFLOR_CLOSED.
 *
 * Threads. Every call may be made from any thread, and any number of them at the same time on one store or on one
 * object, with two exceptions: picaflor_close and picaflor_done_read want to be the last use of their handle. A thread
 * that reads what another has written before finds it. A store is one process's: the file is locked, and a child that
 * was forked must not use it.
 *
 * Several processes. `picaflor share` serves a store to others of the same user at a Unix socket, and picaflor_open of
 * that socket gives a handle like any other (since interface 6). How the store is kept is the server's to say: of the
 * options only read_only counts there. picaflor_read copies the whole body into this process. picaflor_run_daemon and
 * picaflor_grow are for the process that has the store, and PICAFLOR_OPTION here. PICAFLOR_IO where the server has gone;
 * when it is back, the next call reaches it.
 *
 * Crashes. A write is durable within the bound of picaflor_options (by default a second), or when picaflor_flush or
 * picaflor_close has returned PICAFLOR_OK. What was deleted or replaced durably does not come back.
 *
 * Versions. Nothing here changes its meaning or number. What is new is added at the end of the option structs, whose
 * first field says how much of them the caller knows, and as new functions; PICAFLOR_INTERFACE then grows.
 */
#ifndef PICAFLOR_H
#define PICAFLOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of the interface that this header describes. */
#define PICAFLOR_INTERFACE 6

/* A store that is open. */
typedef struct picaflor_store picaflor_store;

/* An object that was found, pinned. */
typedef struct picaflor_object picaflor_object;

/* What calls return. */
enum {
    PICAFLOR_OK = 0,
    PICAFLOR_ABSENT = -1,          /* no object has this key, or it has expired */
    PICAFLOR_INVALID = -2,         /* a null pointer, or a value that this header does not have */
    PICAFLOR_OPTION = -3,          /* an option of opening that cannot work; the text says what would */
    PICAFLOR_LIMIT = -4,           /* a key outside 1 byte to 8 KiB, or more than 64 KiB of metadata */
    PICAFLOR_FULL = -5,            /* a store has no room (a cache makes room) */
    PICAFLOR_TOO_LARGE = -6,       /* larger than a quarter of the device */
    PICAFLOR_EXPIRED = -7,         /* past its expiry before it was written */
    PICAFLOR_BUSY = -8,            /* it would have had to wait, and was asked not to */
    PICAFLOR_NO_CLEAN_SPACE = -9,  /* room could not be made in time */
    PICAFLOR_INDEX_FULL = -10,     /* the index has used its share of the memory: give more */
    PICAFLOR_READ_ONLY = -11,      /* opened for reading only */
    PICAFLOR_IO = -12,             /* the device, the file system, or another process that has the store */
    PICAFLOR_DAMAGED = -13,        /* bytes do not verify; in a cache that is PICAFLOR_ABSENT */
    PICAFLOR_VERSION = -14,        /* the store has another version of the format */
    PICAFLOR_CLOSED = -15,         /* the store was closed */
    PICAFLOR_DEFECT = -16,         /* a fault of this library: close the store, and report it */
    PICAFLOR_OTHER = -17,          /* a reason that is newer than this header; the text says it */
    PICAFLOR_RECOVERING = -18      /* after a crash, where puts wait for all to be looked at: see reopening; try later */
};

/* picaflor_options.mode */
enum {
    PICAFLOR_CACHE = 0,            /* what was not used makes room */
    PICAFLOR_STORE = 1             /* nothing leaves by itself */
};

/* picaflor_options.durability */
enum {
    PICAFLOR_BOUNDED = 0,          /* a crash costs at most bound_time and bound_puts */
    PICAFLOR_EVERY_PUT = 1,        /* a write returns when it is durable */
    PICAFLOR_NONE = 2              /* what the device happens to have */
};

/* picaflor_options.reopening: a cache after a crash */
enum {
    PICAFLOR_REOPEN_BY_PRESET = 0, /* as the preset has it: hummingbird in steps, others at once */
    PICAFLOR_REOPEN_AT_ONCE = 1,   /* takes writes at once, and looks at everything behind */
    PICAFLOR_REOPEN_IN_STEPS = 2   /* PICAFLOR_RECOVERING for writes until everything was looked at */
};

/* picaflor_options.pack_order: which objects are packed into clusters first, where they wait for that */
enum {
    PICAFLOR_PACK_LRU_TAIL = 0,    /* what was asked for least recently */
    PICAFLOR_PACK_LRU_HEAD = 1,    /* what was asked for last */
    PICAFLOR_PACK_GREEDY_DUAL = 2  /* what is worth least: large ones before small ones */
};

/* picaflor_options.next_cluster: which free cluster is written next (Hummingbird: the disk data layout policy) */
enum {
    PICAFLOR_NEXT_BY_PRESET = 0,
    PICAFLOR_NEXT_OVERWRITE = 1,   /* the next one in address order, round and round */
    PICAFLOR_NEXT_TO_WRITE = 2,    /* the free one closest to the last write */
    PICAFLOR_NEXT_TO_ACCESS = 3,   /* the free one closest to the last access */
    PICAFLOR_NEXT_IN_REGION = 4    /* the next one in the region of its group (Damelo) */
};

/* picaflor_options.cluster_age: when a cluster leaves though its place is not needed (the delete cluster policy) */
enum {
    PICAFLOR_AGE_UNLIMITED = 0,
    PICAFLOR_AGE_WRITTEN = 1,      /* cluster_age_time after it was written */
    PICAFLOR_AGE_UNUSED = 2        /* the same after its last use */
};

/* picaflor_options.daemons */
enum {
    PICAFLOR_DAEMONS_THREADS = 0,  /* threads of the library */
    PICAFLOR_DAEMONS_BY_CALL = 1   /* only what picaflor_run_daemon is called for */
};

/* Daemons of picaflor_run_daemon. */
enum {
    PICAFLOR_RUN_ALL = 0,          /* a step of each */
    PICAFLOR_RUN_PACK = 1,         /* packs a cluster of objects that wait, the next ones by pack_order */
    PICAFLOR_RUN_PACK_HEAD = 2,    /* the same from the other end of the order */
    PICAFLOR_RUN_FREE_MEMORY = 3,  /* objects and clusters leave memory until `most` bytes of them are left */
    PICAFLOR_RUN_FREE_DISK = 4     /* empties a cluster that is too old; where few are clean, the next one */
};

/* All zeros but `size`, which C89 and C++17 cannot name. */
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L
#define PICAFLOR_SIZED(type) { .size = sizeof(type) }
#else
#define PICAFLOR_SIZED(type) { sizeof(type) }
#endif

/* How to open a store. All zeros but `size` are the defaults: picaflor_options options = PICAFLOR_OPTIONS_INIT; */
typedef struct picaflor_options {
    size_t size;                   /* sizeof(picaflor_options) */
    const char *preset;            /* storage manager, such as "picaflor" or "stream-pack"; null is "picaflor" */
    uint64_t capacity;             /* bytes of device, a hard cap; 0: its own size, 1 GiB for a new one. A store grows to more, or shrinks */
    uint64_t memory;               /* bytes of memory, a hard cap; 0: 256 MiB */
    uint32_t mode;                 /* PICAFLOR_CACHE, PICAFLOR_STORE; fixed when the store is made */
    uint32_t durability;           /* PICAFLOR_BOUNDED, PICAFLOR_EVERY_PUT, PICAFLOR_NONE */
    uint64_t bound_time;           /* milliseconds that a write may be volatile; 0: 1,000 */
    uint64_t bound_puts;           /* writes that may be volatile at once; 0: any number */
    uint64_t delete_time;          /* milliseconds that a delete may be volatile; 0: 1,000 */
    uint64_t delete_count;         /* deletes that may be volatile at once; 0: 1,000 */
    uint64_t default_ttl;          /* milliseconds until an object expires that has no ttl of its own; 0: never */
    uint32_t cluster;              /* bytes of a cluster, a power of two; 0: 256 KiB; fixed when the store is made */
    uint32_t open_buffers;         /* groups and servers kept apart at one time; 0: as the preset says */
    uint32_t read_only;            /* not 0: not a byte is written */
    uint32_t more_count;           /* how many paths more_places has */
    const char *const *more_places; /* the other devices of a store on several */
    uint32_t reopening;            /* PICAFLOR_REOPEN_BY_PRESET, PICAFLOR_REOPEN_AT_ONCE, PICAFLOR_REOPEN_IN_STEPS */
    /* Since interface 4: */
    uint32_t reserved;             /* not looked at */
    uint64_t unpacked;             /* bytes of objects that may wait to be packed; 0: as the preset says */
    uint32_t pack_order;           /* PICAFLOR_PACK_LRU_TAIL, ... */
    uint32_t next_cluster;         /* PICAFLOR_NEXT_BY_PRESET, ... */
    uint32_t cluster_age;          /* PICAFLOR_AGE_UNLIMITED, ... */
    uint32_t daemons;              /* PICAFLOR_DAEMONS_THREADS, PICAFLOR_DAEMONS_BY_CALL */
    uint64_t cluster_age_time;     /* milliseconds of the age */
} picaflor_options;

#define PICAFLOR_OPTIONS_INIT PICAFLOR_SIZED(picaflor_options)

/* What goes with one object: picaflor_write_options options = PICAFLOR_WRITE_OPTIONS_INIT; */
typedef struct picaflor_write_options {
    size_t size;                   /* sizeof(picaflor_write_options) */
    uint32_t group;                /* the group it belongs to, 1 and up; 0: none */
    uint32_t server;               /* any hash of the origin server's name; 0: unknown */
    uint64_t ttl;                  /* milliseconds from now until it expires; 0: as the store says */
    const void *metadata;          /* bytes kept beside it, at most 64 KiB */
    size_t metadata_len;
    const void *neighbour;         /* key of an object to lie beside */
    size_t neighbour_len;          /* 0: nobody */
    uint32_t no_wait;              /* not 0: PICAFLOR_BUSY rather than wait for the device */
    uint32_t reserved;             /* not looked at */
} picaflor_write_options;

#define PICAFLOR_WRITE_OPTIONS_INIT PICAFLOR_SIZED(picaflor_write_options)

/*
 * Opens the store in the file or block device at `path`, making it first if there is none, or reaches the one that is
 * served at the socket `path`. `options` may be null.
 * *store is the handle, or null if this fails.
 */
int picaflor_open(const char *path, const picaflor_options *options, picaflor_store **store);

/* Makes everything durable, closes the store and gives the handle back, whatever is returned. */
int picaflor_close(picaflor_store *store);

/*
 * Writes an object; an older one with this key is replaced. When this returns, every picaflor_read finds it.
 * `options` may be null. (Hummingbird: write_file; Damelo: create, whose group is options->group.)
 */
int picaflor_write(picaflor_store *store, const void *key, size_t key_len, const void *body, size_t body_len,
                   const picaflor_write_options *options);

/* The same past the memory, for what will not be asked for again soon. (Hummingbird: write_nomem_file.) */
int picaflor_write_nomem(picaflor_store *store, const void *key, size_t key_len, const void *body, size_t body_len,
                         const picaflor_write_options *options);

/*
 * Finds an object and pins it; PICAFLOR_ABSENT if there is none. *object is the handle, or null if this fails. Every
 * object is given back with picaflor_done_read. (Hummingbird: read_file; Damelo: read.)
 */
int picaflor_read(picaflor_store *store, const void *key, size_t key_len, picaflor_object **object);

/* Gives an object back; its bytes may then go. (Hummingbird: done_read_file; Damelo: release.) */
void picaflor_done_read(picaflor_object *object);

/*
 * The body in one piece, which belongs to the object. What fits in a cluster lies where it was read and is not copied;
 * a larger one is read and put together once, at the first call, and takes its length in memory until done_read.
 */
int picaflor_body(const picaflor_object *object, const void **body, size_t *len);

/*
 * Copies up to `len` bytes of the body from `offset` on to `buffer`, which is yours; *copied is how many, less than
 * asked for only at the end of the body or, with a code, where reading failed. The way to read what is larger than memory.
 */
int picaflor_read_at(const picaflor_object *object, uint64_t offset, void *buffer, size_t len, size_t *copied);

/* The metadata it was written with, which belongs to the object. */
int picaflor_metadata(const picaflor_object *object, const void **metadata, size_t *len);

/* Bytes of the body. This and the next three return 0 for null. */
uint64_t picaflor_length(const picaflor_object *object);

/* The group it was written to; 0 is none. */
uint32_t picaflor_group(const picaflor_object *object);

/* Its version: grows with every write of the store. */
uint64_t picaflor_generation(const picaflor_object *object);

/* When it expires, in milliseconds since 1970 began; 0 is never. */
uint64_t picaflor_expires(const picaflor_object *object);

/*
 * Deletes an object; PICAFLOR_ABSENT if there was none, and that is recorded too. Nobody who reads it is disturbed:
 * Hummingbird's delete_file refused then. (Damelo: remove.)
 */
int picaflor_delete(picaflor_store *store, const void *key, size_t key_len);

/*
 * The same where it does not matter whether there was one: PICAFLOR_OK either way, and a cache reads nothing to tell
 * the key from others. With a key that is absent, about once in 8,000 times another object leaves, as if evicted.
 * Since interface 4.
 */
int picaflor_invalidate(picaflor_store *store, const void *key, size_t key_len);

/*
 * Asks that b lie beside a. A hint: it is honoured when one of them is written next while the other is in memory,
 * and either may be written later. (Hummingbird: collocate_files.)
 */
int picaflor_collocate(picaflor_store *store, const void *a, size_t a_len, const void *b, size_t b_len);

/* Whether an object is there, and its group in *group, which may be null. (Damelo: lookup.) */
int picaflor_lookup(picaflor_store *store, const void *key, size_t key_len, uint32_t *group);

/* Keeps a group's objects in memory longest, and drops them last. (Damelo: love.) */
int picaflor_love(picaflor_store *store, uint32_t group);

/* Lets a group's objects leave memory first, and drops them first. (Damelo: hate.) */
int picaflor_hate(picaflor_store *store, uint32_t group);

/* Treats a group's objects as any, as before love and hate. */
int picaflor_neither(picaflor_store *store, uint32_t group);

/*
 * How many milliseconds a group's writes may be volatile, whatever the store's own bound; 0 turns syncs for their sake
 * off. Holds from the next write on. (Damelo: setCheckpoint, in seconds.)
 */
int picaflor_set_checkpoint(picaflor_store *store, uint32_t group, uint64_t milliseconds);

/*
 * Divides the clusters that a group fills from now on into pages of so many bytes, in a store of preset "damelo": a page
 * is what one read brings, and what memory holds and lets go as one. A power of two from 16,384 and a 64th of a cluster
 * up to a cluster, which is one page; PICAFLOR_OPTION otherwise, and with other presets. Since interface 2.
 */
int picaflor_set_page(picaflor_store *store, uint32_t group, uint32_t bytes);

/*
 * Runs a step of a daemon on this thread, beside the library's own or instead of them: a program that knows when it is
 * idle has the work done then. `most` is for PICAFLOR_RUN_FREE_MEMORY. PICAFLOR_OK if there was anything to do,
 * PICAFLOR_ABSENT if not; so a loop of it ends. Since interface 4. (Hummingbird: pack_files_daemon and the others.)
 */
int picaflor_run_daemon(picaflor_store *store, uint32_t daemon, uint64_t most);

/* Returns when everything written and deleted before is durable. */
int picaflor_flush(picaflor_store *store);

/*
 * Gives a store at work so many bytes in all, as `capacity` does where it is opened; it has them durably when this
 * returns. PICAFLOR_OPTION for what it cannot have, fewer than it has among that. Since interface 5.
 */
int picaflor_grow(picaflor_store *store, uint64_t capacity);

/* What opening found, kept and dropped, and why; belongs to the store. Null for null. */
const char *picaflor_receipt(const picaflor_store *store);

/* The name of a code, such as "PICAFLOR_FULL"; "unknown" for a number that is none. */
const char *picaflor_error_name(int code);

/*
 * What the last call of this thread that failed had to say, with the place, and the mend where there is one; empty if
 * none did. Belongs to the thread, until its next call that fails. (With the name, Damelo's perror.)
 */
const char *picaflor_error_text(void);

/* Version of the library, such as "0.1.0". */
const char *picaflor_version(void);

/* Number of the library's interface; less than PICAFLOR_INTERFACE if it is too old for this header. */
uint32_t picaflor_interface(void);

#ifdef __cplusplus
}
#endif

#endif
