/* Encodes, loses, plans and recovers through the C interface, and does everything wrong that C can. */
#include "claystone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, claystone_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
#define REFUSED(call, status, says)                            \
    do {                                                       \
        CHECK((call) == (status));                             \
        CHECK(strstr(claystone_last_error(), (says)) != NULL); \
    } while (0)

static uint8_t *buffer(size_t bytes, unsigned seed) {
    uint8_t *made = malloc(bytes);
    for (size_t at = 0; at < bytes; at++) made[at] = (uint8_t)((at * 2654435761u + seed * 40503u) >> 7);
    return made;
}

/* Every family, and shortened codes of those that have them: fewer data chunks than the field, the grid or Table 1 of the
   LEC paper hold. */
static const char *const CODES[] = {
    "replica:3", "mirror:4x3", "hybrid:rsm:6+3x2", "mixed:4+2x3:0+2", "rs:1+1", "rs:4+2", "rs:10+4", "rs:252+3", "rs:201+3", "isal:6+3", "klauspost:6+3",
    "rs:1019+4", "rs:300+4", "rs:1004+19", "rs:240+19", "rsm:6+3", "lrc:12+2+2", "lrc:12+6+2", "lrc:6+2+2", "pc:2x5",
    "pc:6x5", "pc:1x3", "clay:4+2:5", "clay:3+2:4", "clay:6+3:8", "clay:5+3:7", "clay:6+3:7", "clay:10+4:13",
};

/* Single losses of a code, and as many as it tolerates at once: from every chunk on, or of a long code from some. */
static void lose_and_recover(const char *spec) {
    claystone_code *code;
    claystone_shape shape;
    CHECK(claystone_code_new(spec, &code) == CLAYSTONE_OK);
    CHECK(claystone_code_shape(code, &shape) == CLAYSTONE_OK);
    size_t chunks = (size_t)shape.data + shape.parity, sub = 67, tile = shape.alpha * sub;
    CHECK(0 < shape.tolerance && shape.tolerance <= shape.parity);
    uint8_t **all = malloc(chunks * sizeof *all);
    for (size_t at = 0; at < chunks; at++) all[at] = buffer(tile, (unsigned)at);
    CHECK(claystone_encode(code, (const uint8_t *const *)all, all + shape.data, tile) == CLAYSTONE_OK);

    uint8_t **sum = malloc(shape.parity * sizeof *sum);
    for (size_t at = 0; at < shape.parity; at++) sum[at] = calloc(1, tile);
    for (uint16_t at = 0; at < shape.data; at++) {
        const uint8_t *one = all[at];
        CHECK(claystone_encode_add(code, at, &one, 1, sum, tile) == CLAYSTONE_OK);
    }
    for (size_t at = 0; at < shape.parity; at++) CHECK(memcmp(sum[at], all[shape.data + at], tile) == 0);

    uint32_t *costs = malloc(chunks * sizeof *costs);
    uint16_t *want = malloc(shape.tolerance * sizeof *want);
    uint8_t **out = malloc(shape.tolerance * sizeof *out);
    for (size_t first = 0; first < chunks; first += chunks / (chunks > 256 ? 5 : 20) + 1) {
        for (size_t losses = 1; losses <= shape.tolerance; losses += shape.tolerance > 1 ? shape.tolerance - 1u : 1u) {
            for (size_t at = 0; at < chunks; at++) costs[at] = 1;
            for (size_t at = 0; at < losses; at++) {
                want[at] = (uint16_t)((first + at) % chunks);
                costs[want[at]] = CLAYSTONE_LOST;
                out[at] = buffer(tile, 999);
            }
            claystone_plan *plan;
            CHECK(claystone_plan_read(code, want, losses, costs, chunks, (uint32_t)sub, 1, &plan) == CLAYSTONE_OK);
            size_t reads = claystone_plan_reads(plan), total = 0;
            uint8_t **fetched = malloc(reads * sizeof *fetched);
            size_t *lengths = malloc(reads * sizeof *lengths);
            for (size_t at = 0; at < reads; at++) {
                claystone_read read;
                CHECK(claystone_plan_chunk(plan, at, &read) == CLAYSTONE_OK);
                lengths[at] = 0;
                fetched[at] = malloc(read.sub_chunks * sub);
                for (size_t range = 0; range < read.ranges; range++) {
                    uint32_t start, end;
                    CHECK(claystone_plan_range(plan, at, range, &start, &end) == CLAYSTONE_OK);
                    memcpy(fetched[at] + lengths[at], all[read.chunk] + start * sub, (end - start) * sub);
                    lengths[at] += (end - start) * sub;
                }
                CHECK(lengths[at] == read.sub_chunks * sub);
                total += lengths[at];
            }
            uint64_t bytes;
            CHECK(claystone_plan_bytes(plan, (uint32_t)sub, 1, &bytes) == CLAYSTONE_OK);
            CHECK(bytes == total);
            CHECK(claystone_recover(code, plan, (const uint8_t *const *)fetched, lengths, reads, out, losses, tile) ==
                  CLAYSTONE_OK);
            for (size_t at = 0; at < losses; at++) {
                CHECK(memcmp(out[at], all[want[at]], tile) == 0);
                free(out[at]);
            }
            for (size_t at = 0; at < reads; at++) free(fetched[at]);
            free(fetched);
            free(lengths);
            claystone_plan_free(plan);
        }
    }
    for (size_t at = 0; at < chunks; at++) free(all[at]);
    for (size_t at = 0; at < shape.parity; at++) free(sum[at]);
    free(all);
    free(sum);
    free(costs);
    free(want);
    free(out);
    claystone_code_free(code);
}

/* A change of a data chunk reaches the parity by differences, or the plan says that it cannot. */
static void change_a_chunk(const char *spec) {
    claystone_code *code;
    claystone_shape shape;
    CHECK(claystone_code_new(spec, &code) == CLAYSTONE_OK);
    CHECK(claystone_code_shape(code, &shape) == CLAYSTONE_OK);
    size_t chunks = (size_t)shape.data + shape.parity, tile = shape.alpha * 33, count;
    uint8_t **all = malloc(chunks * sizeof *all), **again = malloc(shape.parity * sizeof *again), *delta = buffer(tile, 77);
    for (size_t at = 0; at < chunks; at++) all[at] = buffer(tile, (unsigned)at);
    for (size_t at = 0; at < shape.parity; at++) again[at] = calloc(1, tile);
    uint16_t *parities = malloc(shape.parity * sizeof *parities), changed = shape.data - 1u;
    int by_delta;
    CHECK(claystone_encode(code, (const uint8_t *const *)all, all + shape.data, tile) == CLAYSTONE_OK);
    CHECK(claystone_plan_update(code, changed, parities, shape.parity, &count, &by_delta) == CLAYSTONE_OK);
    CHECK(0 < count && count <= shape.parity);
    CHECK(by_delta == (strncmp(spec, "clay", 4) != 0));
    for (size_t at = 0; at < tile; at++) all[changed][at] ^= delta[at];
    CHECK(claystone_encode(code, (const uint8_t *const *)all, again, tile) == CLAYSTONE_OK);
    for (size_t at = 0; at < count; at++) {
        uint8_t *parity = all[parities[at]];
        claystone_status expected = by_delta ? CLAYSTONE_OK : CLAYSTONE_INVALID;
        CHECK(claystone_apply_delta(code, changed, parities[at], delta, parity, tile) == expected);
    }
    for (size_t at = 0; by_delta && at < shape.parity; at++) CHECK(memcmp(again[at], all[shape.data + at], tile) == 0);
    for (size_t at = 0; at < chunks; at++) free(all[at]);
    for (size_t at = 0; at < shape.parity; at++) free(again[at]);
    free(all);
    free(again);
    free(delta);
    free(parities);
    claystone_code_free(code);
}

/* Which chunks are lost decides, where a code has rows, columns and groups. */
static void lose_too_much(const char *spec, const uint16_t *lost, size_t losses, claystone_status expected) {
    claystone_code *code;
    claystone_shape shape;
    claystone_plan *plan = NULL;
    uint32_t costs[32];
    CHECK(claystone_code_new(spec, &code) == CLAYSTONE_OK);
    CHECK(claystone_code_shape(code, &shape) == CLAYSTONE_OK);
    size_t chunks = (size_t)shape.data + shape.parity;
    CHECK(shape.tolerance < losses && chunks <= 32);
    for (size_t at = 0; at < chunks; at++) costs[at] = 1;
    for (size_t at = 0; at < losses; at++) costs[lost[at]] = CLAYSTONE_LOST;
    CHECK(claystone_plan_read(code, lost, losses, costs, chunks, 64, 1, &plan) == expected);
    CHECK((plan == NULL) == (expected == CLAYSTONE_UNRECOVERABLE));
    claystone_plan_free(plan);
    claystone_code_free(code);
}

static void change_a_byte(void) {
    claystone_code *code;
    CHECK(claystone_code_new("rs:3+2", &code) == CLAYSTONE_OK);
    uint8_t *all[5];
    for (unsigned at = 0; at < 5; at++) all[at] = buffer(10, at);
    CHECK(claystone_encode(code, (const uint8_t *const *)all, all + 3, 10) == CLAYSTONE_OK);
    uint16_t parities[2];
    size_t count;
    int by_delta;
    CHECK(claystone_plan_update(code, 1, parities, 2, &count, &by_delta) == CLAYSTONE_OK);
    CHECK(count == 2 && by_delta == 1 && parities[0] == 3 && parities[1] == 4);
    uint8_t delta[10] = {0, 0, 7};
    all[1][2] ^= 7;
    for (size_t at = 0; at < count; at++)
        CHECK(claystone_apply_delta(code, 1, parities[at], delta, all[parities[at]], 10) == CLAYSTONE_OK);
    uint8_t *again[2] = {buffer(10, 0), buffer(10, 0)};
    CHECK(claystone_encode(code, (const uint8_t *const *)all, again, 10) == CLAYSTONE_OK);
    CHECK(memcmp(again[0], all[3], 10) == 0 && memcmp(again[1], all[4], 10) == 0);
    CHECK(claystone_plan_update(code, 1, NULL, 0, &count, &by_delta) == CLAYSTONE_OK && count == 2);
    REFUSED(claystone_plan_update(code, 1, NULL, 1, &count, &by_delta), CLAYSTONE_INVALID, "parities is null");
    REFUSED(claystone_plan_update(code, 3, NULL, 0, &count, &by_delta), CLAYSTONE_INVALID, "no data chunk 3");
    REFUSED(claystone_apply_delta(code, 1, 2, delta, all[3], 10), CLAYSTONE_INVALID, "no parity chunk 2");
    for (unsigned at = 0; at < 5; at++) free(all[at]);
    free(again[0]);
    free(again[1]);
    claystone_code_free(code);
}

/* Of every family: a tile that is right, one with a wrong chunk, and one of which too little can be read to tell. */
static void find_the_wrong_one(const char *spec) {
    claystone_code *code;
    claystone_shape shape;
    CHECK(claystone_code_new(spec, &code) == CLAYSTONE_OK);
    CHECK(claystone_code_shape(code, &shape) == CLAYSTONE_OK);
    size_t chunks = (size_t)shape.data + shape.parity, tile = shape.alpha * 16, count = 9;
    uint8_t **all = malloc(chunks * sizeof *all);
    for (size_t at = 0; at < chunks; at++) all[at] = buffer(tile, (unsigned)at);
    CHECK(claystone_encode(code, (const uint8_t *const *)all, all + shape.data, tile) == CLAYSTONE_OK);
    uint16_t wrong = 999;
    CHECK(claystone_locate(code, (const uint8_t *const *)all, &wrong, 1, &count, tile) == CLAYSTONE_OK);
    CHECK(count == 0 && wrong == 999);
    if (shape.tolerance >= 2) {
        size_t damaged = chunks / 2;
        all[damaged][tile - 1] ^= 64;
        CHECK(claystone_locate(code, (const uint8_t *const *)all, &wrong, 1, &count, tile) == CLAYSTONE_OK);
        CHECK(count == 1 && wrong == damaged);
        CHECK(claystone_locate(code, (const uint8_t *const *)all, NULL, 0, &count, tile) == CLAYSTONE_OK && count == 1);
        REFUSED(claystone_locate(code, (const uint8_t *const *)all, NULL, 1, &count, tile), CLAYSTONE_INVALID, "wrong is null");
    }
    const uint8_t **none = calloc(chunks, sizeof *none);
    REFUSED(claystone_locate(code, none, &wrong, 1, &count, tile), CLAYSTONE_INVALID, "0 chunks can be read");
    for (size_t at = 0; at < chunks; at++) free(all[at]);
    free(all);
    free(none);
    claystone_code_free(code);
}

static uint32_t alpha_of(const char *spec, size_t *data, size_t *chunks) {
    claystone_code *code;
    claystone_shape shape;
    CHECK(claystone_code_new(spec, &code) == CLAYSTONE_OK);
    CHECK(claystone_code_shape(code, &shape) == CLAYSTONE_OK);
    *data = shape.data;
    *chunks = (size_t)shape.data + shape.parity;
    claystone_code_free(code);
    return shape.alpha;
}

static void encode_stripe(const char *spec, uint8_t **stripe, size_t data, size_t tile) {
    claystone_code *code;
    CHECK(claystone_code_new(spec, &code) == CLAYSTONE_OK);
    CHECK(claystone_encode(code, (const uint8_t *const *)stripe, stripe + data, tile) == CLAYSTONE_OK);
    claystone_code_free(code);
}

/* What a conversion leaves and writes is what the new code makes of the same data. */
static void convert_to(const char *from, const char *to, claystone_goal goal, size_t reads, size_t writes) {
    claystone_conversion *conversion;
    claystone_conversion_shape plan;
    claystone_stripe_chunk old, new;
    CHECK(claystone_conversion_new(from, to, goal, &conversion) == CLAYSTONE_OK);
    CHECK(claystone_conversion_plan(conversion, &plan) == CLAYSTONE_OK);
    CHECK(plan.reads == reads && plan.writes == writes && plan.combined >= plan.writes);
    size_t old_data, old_chunks, new_data, new_chunks;
    size_t tile = (size_t)alpha_of(from, &old_data, &old_chunks) * alpha_of(to, &new_data, &new_chunks) * 7;
    CHECK(plan.sources * old_data == plan.targets * new_data);
    uint8_t **sources = malloc(plan.sources * old_chunks * sizeof *sources);
    uint8_t **targets = calloc(plan.targets * new_chunks, sizeof *targets);
    for (size_t at = 0; at < plan.sources * old_chunks; at++) sources[at] = buffer(tile, (unsigned)at);
    for (size_t at = 0; at < plan.sources; at++) encode_stripe(from, sources + at * old_chunks, old_data, tile);
    for (size_t at = 0; at < plan.kept; at++) {
        CHECK(claystone_conversion_kept(conversion, at, &old, &new) == CLAYSTONE_OK);
        targets[new.stripe * new_chunks + new.chunk] = sources[old.stripe * old_chunks + old.chunk];
    }
    const uint8_t **fetched = malloc(plan.reads * sizeof *fetched);
    uint8_t **written = malloc(plan.writes * sizeof *written);
    for (size_t at = 0; at < plan.reads; at++) {
        CHECK(claystone_conversion_read(conversion, at, &old) == CLAYSTONE_OK);
        fetched[at] = sources[old.stripe * old_chunks + old.chunk];
    }
    for (size_t at = 0; at < plan.writes; at++) {
        CHECK(claystone_conversion_write(conversion, at, &new) == CLAYSTONE_OK);
        CHECK(targets[new.stripe * new_chunks + new.chunk] == NULL);
        targets[new.stripe * new_chunks + new.chunk] = written[at] = buffer(tile, 999);
    }
    CHECK(claystone_convert(conversion, fetched, plan.reads, written, plan.writes, tile) == CLAYSTONE_OK);
    for (size_t at = 0; at < plan.targets; at++) {
        uint8_t **stripe = targets + at * new_chunks, **expected = malloc(new_chunks * sizeof *expected);
        for (size_t chunk = 0; chunk < new_chunks; chunk++) {
            CHECK(stripe[chunk] != NULL);
            expected[chunk] = chunk < new_data ? stripe[chunk] : buffer(tile, 1000);
        }
        encode_stripe(to, expected, new_data, tile);
        for (size_t chunk = new_data; chunk < new_chunks; chunk++) {
            CHECK(memcmp(stripe[chunk], expected[chunk], tile) == 0);
            free(expected[chunk]);
        }
        free(expected);
    }
    for (size_t at = 0; at < plan.sources * old_chunks; at++) free(sources[at]);
    for (size_t at = 0; at < plan.writes; at++) free(written[at]);
    free(sources);
    free(targets);
    free(fetched);
    free(written);
    claystone_conversion_free(conversion);
}

static void convert_wrongly(void) {
    claystone_conversion *conversion = NULL;
    claystone_conversion_shape plan;
    claystone_stripe_chunk old, new;
    uint8_t room[96] = {0}, *written[9] = {room + 80};
    const uint8_t *fetched[9] = {room};
    REFUSED(claystone_conversion_new("rs:4+", "rs:4+2", CLAYSTONE_FEWEST_READS, &conversion), CLAYSTONE_BAD_CODE, "rs:K+M");
    REFUSED(claystone_conversion_new("rs:4+2", NULL, CLAYSTONE_FEWEST_READS, &conversion), CLAYSTONE_INVALID, "to is null");
    REFUSED(claystone_conversion_new("rs:4+2", "rs:4+2", 7, &conversion), CLAYSTONE_INVALID, "no goal 7");
    REFUSED(claystone_conversion_new("rs:4+2", "rs:6+2", CLAYSTONE_FEWEST_READS, NULL), CLAYSTONE_INVALID, "conversion is null");
    CHECK(conversion == NULL);
    claystone_conversion_free(NULL);
    CHECK(claystone_conversion_new("rsm:6+3", "rsm:12+3", CLAYSTONE_FEWEST_READS, &conversion) == CLAYSTONE_OK);
    REFUSED(claystone_conversion_plan(conversion, NULL), CLAYSTONE_INVALID, "shape is null");
    CHECK(claystone_conversion_plan(conversion, &plan) == CLAYSTONE_OK);
    REFUSED(claystone_conversion_kept(conversion, plan.kept, &old, &new), CLAYSTONE_INVALID, "no kept chunk 12");
    REFUSED(claystone_conversion_kept(conversion, 0, &old, NULL), CLAYSTONE_INVALID, "to is null");
    REFUSED(claystone_conversion_read(conversion, 6, &old), CLAYSTONE_INVALID, "no read 6");
    REFUSED(claystone_conversion_write(conversion, 3, &new), CLAYSTONE_INVALID, "no write 3");
    REFUSED(claystone_convert(conversion, fetched, 1, written, 1, 8), CLAYSTONE_INVALID, "1 fetched buffers");
    written[0] = room + 4;
    REFUSED(claystone_convert(conversion, fetched, 1, written, 1, 8), CLAYSTONE_INVALID, "overlaps");
    REFUSED(claystone_convert(NULL, fetched, 1, written, 1, 8), CLAYSTONE_INVALID, "conversion is null");
    for (size_t at = 0; at < sizeof room; at++) CHECK(room[at] == 0);
    claystone_conversion_free(conversion);
}

static void do_it_wrong(void) {
    claystone_code *code = NULL, *clay;
    claystone_shape shape;
    claystone_plan *plan = NULL;
    claystone_read read;
    uint32_t start, end;
    REFUSED(claystone_code_new("rs:4+", &code), CLAYSTONE_BAD_CODE, "rs:K+M");
    REFUSED(claystone_code_new("", &code), CLAYSTONE_BAD_CODE, "unknown code family");
    REFUSED(claystone_code_new("\xff", &code), CLAYSTONE_INVALID, "not UTF-8");
    REFUSED(claystone_code_new(NULL, &code), CLAYSTONE_INVALID, "spec is null");
    REFUSED(claystone_code_new("rs:2+1", NULL), CLAYSTONE_INVALID, "code is null");
    CHECK(code == NULL);
    claystone_code_free(NULL);
    claystone_plan_free(NULL);
    CHECK(claystone_plan_reads(NULL) == 0);
    REFUSED(claystone_code_shape(NULL, &shape), CLAYSTONE_INVALID, "code is null");

    CHECK(claystone_code_new("rs:2+1", &code) == CLAYSTONE_OK);
    CHECK(claystone_code_new("clay:4+2:5", &clay) == CLAYSTONE_OK);
    REFUSED(claystone_code_shape(code, NULL), CLAYSTONE_INVALID, "shape is null");
    uint8_t room[64] = {0};
    const uint8_t *data[4] = {room, room + 8, room + 16, room + 24}, *hole[2] = {room, NULL};
    uint8_t *parity[2] = {room + 32, room + 40};
    REFUSED(claystone_encode(code, NULL, parity, 8), CLAYSTONE_INVALID, "data is null");
    REFUSED(claystone_encode(code, hole, parity, 8), CLAYSTONE_INVALID, "data is null");
    REFUSED(claystone_encode(code, data, NULL, 8), CLAYSTONE_INVALID, "parity is null");
    REFUSED(claystone_encode(code, data, parity, SIZE_MAX), CLAYSTONE_INVALID, "longer than");
    REFUSED(claystone_encode(clay, data, parity, 7), CLAYSTONE_INVALID, "does not divide into 8");
    uint8_t *over[2] = {room + 15, room + 40}, *same[2] = {room + 32, room + 33};
    REFUSED(claystone_encode(code, data, over, 8), CLAYSTONE_INVALID, "overlaps");
    REFUSED(claystone_encode(clay, data, same, 8), CLAYSTONE_INVALID, "overlaps");
    REFUSED(claystone_encode_add(code, 2, data, 1, parity, 8), CLAYSTONE_INVALID, "no data chunk 2");
    REFUSED(claystone_encode_add(code, 1, data, 2, parity, 8), CLAYSTONE_INVALID, "2 data buffers");
    REFUSED(claystone_encode_add(code, 0, data, SIZE_MAX / 2, parity, 8), CLAYSTONE_INVALID, "longer than");

    uint16_t want[2] = {0, 0};
    uint32_t costs[3] = {CLAYSTONE_LOST, 1, 1}, lost[3] = {CLAYSTONE_LOST, CLAYSTONE_LOST, 1};
    REFUSED(claystone_plan_read(code, want, 1, costs, 2, 8, 1, &plan), CLAYSTONE_INVALID, "2 costs");
    REFUSED(claystone_plan_read(code, want, 2, costs, 3, 8, 1, &plan), CLAYSTONE_INVALID, "wanted twice");
    REFUSED(claystone_plan_read(code, want, 1, costs, 3, 0, 1, &plan), CLAYSTONE_INVALID, "sub_bytes");
    REFUSED(claystone_plan_read(code, want, 1, costs, 3, 8, 0, &plan), CLAYSTONE_INVALID, "granule");
    REFUSED(claystone_plan_read(code, NULL, 1, costs, 3, 8, 1, &plan), CLAYSTONE_INVALID, "want is null");
    REFUSED(claystone_plan_read(code, want, 1, lost, 3, 8, 1, &plan), CLAYSTONE_UNRECOVERABLE, "2 are needed");
    want[0] = 3;
    REFUSED(claystone_plan_read(code, want, 1, costs, 3, 8, 1, &plan), CLAYSTONE_INVALID, "no chunk 3");
    want[0] = 0;
    CHECK(plan == NULL);
    CHECK(claystone_plan_read(code, want, 1, costs, 3, 8, 1, &plan) == CLAYSTONE_OK);
    REFUSED(claystone_plan_chunk(plan, 2, &read), CLAYSTONE_INVALID, "no read 2");
    REFUSED(claystone_plan_range(plan, 0, 1, &start, &end), CLAYSTONE_INVALID, "no range 1");
    REFUSED(claystone_plan_range(plan, 0, 0, NULL, &end), CLAYSTONE_INVALID, "start is null");
    REFUSED(claystone_plan_range(plan, 0, 0, &start, NULL), CLAYSTONE_INVALID, "end is null");
    CHECK(claystone_plan_range(plan, 0, 0, &end, &end) == CLAYSTONE_OK && end == 1);
    size_t lengths[2] = {8, 8}, shorter[2] = {8, 7};
    REFUSED(claystone_recover(code, plan, data, shorter, 2, parity, 1, 8), CLAYSTONE_INVALID, "has 7 bytes");
    REFUSED(claystone_recover(code, plan, data, lengths, 1, parity, 1, 8), CLAYSTONE_INVALID, "1 fetched buffers");
    REFUSED(claystone_recover(code, plan, data, lengths, 2, parity, 2, 8), CLAYSTONE_INVALID, "2 out buffers");
    REFUSED(claystone_recover(code, plan, data, NULL, 2, parity, 1, 8), CLAYSTONE_INVALID, "fetched_bytes is null");
    REFUSED(claystone_recover(code, plan, data, lengths, 2, over, 1, 8), CLAYSTONE_INVALID, "overlaps");
    REFUSED(claystone_recover(clay, plan, data, lengths, 2, parity, 1, 8), CLAYSTONE_INVALID, "made by rs:2+1");
    for (size_t at = 0; at < sizeof room; at++) CHECK(room[at] == 0);
    claystone_plan_free(plan);
    claystone_code_free(code);
    claystone_code_free(clay);
}

/* Codes run with the tier that was asked for, or with the fastest; once there is one, no other can be had. */
static void run_with(const char *asked) {
    const char *tier = NULL;
    claystone_code *code = NULL;
    CHECK(claystone_code_new("rs:2+1", &code) == CLAYSTONE_OK);
    REFUSED(claystone_code_tier(NULL, &tier), CLAYSTONE_INVALID, "code is null");
    REFUSED(claystone_code_tier(code, NULL), CLAYSTONE_INVALID, "tier is null");
    CHECK(claystone_code_tier(code, &tier) == CLAYSTONE_OK);
    CHECK(asked == NULL || strcmp(tier, asked) == 0);
    CHECK(claystone_force_tier(tier) == CLAYSTONE_OK);
    if (strcmp(tier, "scalar") != 0) REFUSED(claystone_force_tier("scalar"), CLAYSTONE_INVALID, "too late");
    REFUSED(claystone_force_tier("sse9"), CLAYSTONE_INVALID, "unknown instruction set");
    REFUSED(claystone_force_tier(NULL), CLAYSTONE_INVALID, "tier is null");
    claystone_code_free(code);
}

int main(int count, char **arguments) {
    CHECK(claystone_version()[0] != 0);
    const char *tier = count > 1 ? arguments[1] : NULL;
    if (tier != NULL) CHECK(claystone_force_tier(tier) == CLAYSTONE_OK);
    run_with(tier);
    for (size_t at = 0; at < sizeof CODES / sizeof *CODES; at++) {
        lose_and_recover(CODES[at]);
        change_a_chunk(CODES[at]);
        find_the_wrong_one(CODES[at]);
        puts(CODES[at]);
    }
    const uint16_t rectangle[] = {0, 1, 5, 6}, row[] = {0, 1, 2, 3}, group[] = {0, 1, 2, 3, 12}, spread[] = {0, 6, 12, 13};
    lose_too_much("pc:2x5", rectangle, 4, CLAYSTONE_UNRECOVERABLE);
    lose_too_much("pc:2x5", row, 4, CLAYSTONE_OK);
    lose_too_much("lrc:12+2+2", group, 5, CLAYSTONE_UNRECOVERABLE);
    lose_too_much("lrc:12+2+2", spread, 4, CLAYSTONE_OK);
    lose_too_much("rs:10+4", group, 5, CLAYSTONE_UNRECOVERABLE);
    lose_too_much("clay:10+4:13", group, 5, CLAYSTONE_UNRECOVERABLE);
    convert_to("pc:2x5", "pc:6x5", CLAYSTONE_SHORT_SUMS, 18, 6);
    convert_to("lrc:12+6+2", "lrc:12+2+2", CLAYSTONE_FEWEST_READS, 6, 2);
    convert_to("rsm:6+3", "rsm:12+3", CLAYSTONE_FEWEST_READS, 6, 3);
    convert_to("rsm:6+3", "rsm:12+3", CLAYSTONE_DATA_ONLY, 12, 3);
    convert_to("rs:4+2", "clay:4+2:5", CLAYSTONE_FEWEST_READS, 4, 2);
    change_a_byte();
    convert_wrongly();
    do_it_wrong();
    return 0;
}
