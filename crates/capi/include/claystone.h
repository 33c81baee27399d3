/*
 * libclaystone: erasure codes and their I/O plans.
 *
 * A code is named by a text: "replica:3", "rs:4+2", "rs:1019+4", "lrc:12+2+2", "pc:2x5", "clay:16+4:19"; all families are
 * in docs/codes.md. Chunks are numbered from 0, data before parity. A tile is one codeword's part of each chunk: alpha
 * sub-chunks, so tile_bytes must be a multiple of alpha.
 *
 * Every function that returns a claystone_status checks its arguments: null pointers, counts, lengths, indices, buffers
 * that overlap. After an error nothing was written, and claystone_last_error() says what was wrong, with the numbers.
 * It cannot check that a pointer that is not null points to as many bytes as is said.
 *
 * Codes, plans and conversions never change once made: any number of threads may use one at once, as long as none frees it.
 */
#ifndef CLAYSTONE_H
#define CLAYSTONE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum claystone_status {
    CLAYSTONE_OK = 0,
    /* An argument is wrong. */
    CLAYSTONE_INVALID = 1,
    /* The text names no code. */
    CLAYSTONE_BAD_CODE = 2,
    /* Too many chunks are lost. */
    CLAYSTONE_UNRECOVERABLE = 3,
    /* A mistake in this library; please report it. */
    CLAYSTONE_INTERNAL = 4
} claystone_status;

typedef struct claystone_code claystone_code;
typedef struct claystone_plan claystone_plan;
typedef struct claystone_conversion claystone_conversion;

typedef struct claystone_shape {
    uint16_t data;
    uint16_t parity;
    /* Chunks that may be lost, whichever they are. */
    uint16_t tolerance;
    /* Sub-chunks in a tile. */
    uint32_t alpha;
} claystone_shape;

typedef struct claystone_read {
    uint16_t chunk;
    /* Ranges of sub-chunks to read of it. */
    size_t ranges;
    /* Sub-chunks in all of them. */
    uint64_t sub_chunks;
} claystone_read;

/* What a conversion should have little of. */
typedef enum claystone_goal {
    /* One place reads and computes: as few chunks read in all as are known to do. */
    CLAYSTONE_FEWEST_READS = 0,
    /* Each new parity is made of as few old ones as are known to do, even if others were read for another new one. */
    CLAYSTONE_SHORT_SUMS = 1,
    /* New parity is made of data alone, all that it covers is read, and what is wrong with old parity does not get into it. */
    CLAYSTONE_DATA_ONLY = 2
} claystone_goal;

typedef struct claystone_conversion_shape {
    /* Old stripes that go in, and new ones that come out. */
    uint16_t sources;
    uint16_t targets;
    /* Chunks that stay as they are under a new name; all data is among them. */
    size_t kept;
    /* Chunks to read, and to write. */
    size_t reads;
    size_t writes;
    /* Chunks that go into sums: each written chunk counts those that it is the sum of. */
    uint64_t combined;
} claystone_conversion_shape;

typedef struct claystone_stripe_chunk {
    /* Counted from 0, among the old stripes or the new. */
    uint16_t stripe;
    uint16_t chunk;
} claystone_stripe_chunk;

/* The cost of a chunk that cannot be read. */
#define CLAYSTONE_LOST UINT32_MAX

/* The library's version. Never null, never freed. */
const char *claystone_version(void);

/* What was wrong with this thread's last call that failed, or "". Valid until its next call; not to be freed. */
const char *claystone_last_error(void);

claystone_status claystone_code_new(const char *spec, claystone_code **code);

/* Null is allowed. */
void claystone_code_free(claystone_code *code);

claystone_status claystone_code_shape(const claystone_code *code, claystone_shape *shape);

/*
 * Has all codes of this process run with one instruction set: "scalar", "neon", "avx2", "avx2-gfni" or "avx512-gfni". It comes
 * before the first code or conversion; without it the fastest that the machine has is taken. For tests and measurements: the bytes are
 * the same. CLAYSTONE_INVALID: there is no such instruction set, the machine has not got it, or another one is in use.
 */
claystone_status claystone_force_tier(const char *tier);

/* The name of the instruction set that a code runs with. It outlives the code, and is not to be freed. */
claystone_status claystone_code_tier(const claystone_code *code, const char **tier);

/* Computes the parity buffers of one tile from its data buffers: each has tile_bytes. */
claystone_status claystone_encode(const claystone_code *code, const uint8_t *const *data, uint8_t *const *parity,
                                  size_t tile_bytes);

/* Adds `count` data chunks from `first` on to parity that began as zeros: all chunks may come one by one. */
claystone_status claystone_encode_add(const claystone_code *code, uint16_t first, const uint8_t *const *data,
                                      size_t count, uint8_t *const *parity, size_t tile_bytes);

/*
 * Plans to get the chunks in `want`. `costs` has one entry for each chunk of the code: CLAYSTONE_LOST if it cannot be
 * read, else what reading it costs; costs only rank chunks against each other. `granule` is the least that is read at
 * once, in bytes: 4096 for disks, 1 where every byte counts.
 */
claystone_status claystone_plan_read(const claystone_code *code, const uint16_t *want, size_t want_count,
                                     const uint32_t *costs, size_t cost_count, uint32_t sub_bytes, uint32_t granule,
                                     claystone_plan **plan);

/* Null is allowed. */
void claystone_plan_free(claystone_plan *plan);

/* How many chunks are read; 0 for null. */
size_t claystone_plan_reads(const claystone_plan *plan);

/* Which chunk is read as number `at`, and how many ranges of it. */
claystone_status claystone_plan_chunk(const claystone_plan *plan, size_t at, claystone_read *read);

/* One range of it: sub-chunks start to end - 1 of each tile. */
claystone_status claystone_plan_range(const claystone_plan *plan, size_t at, size_t range, uint32_t *start,
                                      uint32_t *end);

/* Bytes read of one tile, over all chunks, when ranges are widened to whole granules. */
claystone_status claystone_plan_bytes(const claystone_plan *plan, uint32_t sub_bytes, uint32_t granule,
                                      uint64_t *bytes);

/*
 * Carries out a plan on one tile: fetched[i] holds the ranges of read i one after the other, fetched_bytes[i] long;
 * out[j], tile_bytes long, receives the chunk that was wanted as number j.
 */
claystone_status claystone_recover(const claystone_code *code, const claystone_plan *plan,
                                   const uint8_t *const *fetched, const size_t *fetched_bytes, size_t fetched_count,
                                   uint8_t *const *out, size_t out_count, size_t tile_bytes);

/*
 * Which parity chunks change with the data chunk `chunk`: at most `capacity` are written to `parities`, their number to
 * `count`. `by_delta` becomes 1 if claystone_apply_delta() can change them, 0 if the tile must be encoded again.
 */
claystone_status claystone_plan_update(const claystone_code *code, uint16_t chunk, uint16_t *parities, size_t capacity,
                                       size_t *count, int *by_delta);

/* Brings `parity` up to date: `delta` is old bytes XOR new bytes of `chunk`, at the same place; both have `bytes`. */
claystone_status claystone_apply_delta(const claystone_code *code, uint16_t chunk, uint16_t parity_chunk,
                                       const uint8_t *delta, uint8_t *parity, size_t bytes);

/*
 * Names the chunks of a tile whose bytes are wrong though nobody said so. `chunks` has one entry for each chunk of the
 * code, null where it cannot be read. At most `capacity` numbers are written to `wrong`, ascending, their count to
 * `count`: 0 if the tile is right. With r chunks to spare up to r / 2 wrong ones are found; if none can be spared, or more
 * are wrong and the bytes show it, the call fails.
 */
claystone_status claystone_locate(const claystone_code *code, const uint8_t *const *chunks, uint16_t *wrong,
                                  size_t capacity, size_t *count, size_t tile_bytes);

/* Plans how stripes of the code `from` become stripes of the code `to`: data stays, parity is made anew or of the old. */
claystone_status claystone_conversion_new(const char *from, const char *to, claystone_goal goal,
                                          claystone_conversion **conversion);

/* Null is allowed. */
void claystone_conversion_free(claystone_conversion *conversion);

claystone_status claystone_conversion_plan(const claystone_conversion *conversion, claystone_conversion_shape *shape);

/* Chunk number `at` of those that stay: its name in the old stripes, and in the new. */
claystone_status claystone_conversion_kept(const claystone_conversion *conversion, size_t at,
                                           claystone_stripe_chunk *from, claystone_stripe_chunk *to);

/* Chunk number `at` of those to read, in the old stripes. */
claystone_status claystone_conversion_read(const claystone_conversion *conversion, size_t at,
                                           claystone_stripe_chunk *chunk);

/* Chunk number `at` of those to write, in the new stripes. */
claystone_status claystone_conversion_write(const claystone_conversion *conversion, size_t at,
                                            claystone_stripe_chunk *chunk);

/*
 * Makes written[i], the chunk to write number i, of fetched[j], the chunks to read: all have tile_bytes, a multiple of
 * the new code's alpha. What was dropped of the old stripes may go once the new ones are safe.
 */
claystone_status claystone_convert(const claystone_conversion *conversion, const uint8_t *const *fetched,
                                   size_t fetched_count, uint8_t *const *written, size_t written_count,
                                   size_t tile_bytes);

#ifdef __cplusplus
}
#endif

#endif
