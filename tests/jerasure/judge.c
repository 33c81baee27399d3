/* Jerasure beside libclaystone: `judge SPEC...` reads the generator matrix of each code from libclaystone, by encoding unit
 * vectors, and gives it to jerasure_matrix_encode and jerasure_matrix_decode. Both must make the same parity of the same
 * noise, jerasure must get back what it lost of our chunks, and we what we lost of jerasure's. Prints a line for each code;
 * exits with 1 at the first difference. */
#include <claystone.h>
#include <jerasure.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4096 + 64, PATTERNS = 60 };

static uint64_t state = 1;

static unsigned char noise(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 56;
}

static void must(claystone_status status, const char *spec) {
    if (status == CLAYSTONE_OK) return;
    fprintf(stderr, "%s: %s\n", spec, claystone_last_error());
    exit(1);
}

static uint8_t **buffers(int count) {
    uint8_t **all = malloc(sizeof *all * count);
    for (int i = 0; i < count; i++) {
        void *buffer;
        if (posix_memalign(&buffer, 64, BYTES) != 0) exit(2);
        all[i] = memset(buffer, 0, BYTES);
    }
    return all;
}

static void release(uint8_t **all, int count) {
    for (int i = 0; i < count; i++) free(all[i]);
    free(all);
}

/* Row r, column c: the parity r of a stripe whose data chunk c is ones and all others zeros. */
static int *generator(const claystone_code *code, const char *spec, int k, int m, uint8_t **chunks) {
    int *matrix = malloc(sizeof *matrix * k * m);
    for (int c = 0; c < k; c++) {
        memset(chunks[c], 1, BYTES);
        must(claystone_encode(code, (const uint8_t *const *)chunks, chunks + k, BYTES), spec);
        for (int r = 0; r < m; r++) matrix[r * k + c] = chunks[k + r][0];
        memset(chunks[c], 0, BYTES);
    }
    return matrix;
}

/* Recovers the chunks of `lost` from the others of `chunks` into `out`. */
static void recover(const claystone_code *code, const char *spec, int n, uint8_t **chunks, const int *lost, int count,
                    uint8_t **out) {
    uint32_t costs[256];
    uint16_t want[256];
    for (int i = 0; i < n; i++) costs[i] = 1;
    for (int i = 0; i < count; i++) {
        costs[lost[i]] = CLAYSTONE_LOST;
        want[i] = lost[i];
    }
    claystone_plan *plan;
    must(claystone_plan_read(code, want, count, costs, n, BYTES, 1, &plan), spec);
    const uint8_t *fetched[256];
    size_t lengths[256], reads = claystone_plan_reads(plan);
    for (size_t i = 0; i < reads; i++) {
        claystone_read read;
        must(claystone_plan_chunk(plan, i, &read), spec);
        fetched[i] = chunks[read.chunk];
        lengths[i] = BYTES;
    }
    must(claystone_recover(code, plan, fetched, lengths, reads, out, count, BYTES), spec);
    claystone_plan_free(plan);
}

static void judge(const char *spec) {
    claystone_code *code;
    claystone_shape shape;
    must(claystone_code_new(spec, &code), spec);
    must(claystone_code_shape(code, &shape), spec);
    int k = shape.data, m = shape.parity, n = k + m;
    uint8_t **ours = buffers(n), **theirs = buffers(n), **out = buffers(n);
    int *matrix = generator(code, spec, k, m, ours);

    for (int i = 0; i < k; i++)
        for (int at = 0; at < BYTES; at++) ours[i][at] = theirs[i][at] = noise();
    must(claystone_encode(code, (const uint8_t *const *)ours, ours + k, BYTES), spec);
    jerasure_matrix_encode(k, m, 8, matrix, (char **)theirs, (char **)theirs + k, BYTES);
    for (int i = k; i < n; i++)
        if (memcmp(ours[i], theirs[i], BYTES) != 0) {
            fprintf(stderr, "%s: parity %d differs from jerasure's\n", spec, i - k);
            exit(1);
        }

    /* Jerasure decodes from the first k chunks that are left, which is enough where any k are. */
    int patterns = shape.tolerance == m ? PATTERNS : 0;
    for (int pattern = 0; pattern < patterns; pattern++) {
        int lost[257], count = 0, wanted = 1 + pattern % m;
        while (count < wanted) {
            int chunk = noise() % n, known = 0;
            for (int i = 0; i < count; i++) known |= lost[i] == chunk;
            if (!known) lost[count++] = chunk;
        }
        lost[count] = -1;
        recover(code, spec, n, theirs, lost, count, out);
        for (int i = 0; i < count; i++) memset(theirs[lost[i]], 0xee, BYTES);
        int failed = jerasure_matrix_decode(k, m, 8, matrix, 0, lost, (char **)theirs, (char **)theirs + k, BYTES);
        for (int i = 0; i < count; i++)
            if (failed || memcmp(ours[lost[i]], theirs[lost[i]], BYTES) != 0 || memcmp(ours[lost[i]], out[i], BYTES) != 0) {
                fprintf(stderr, "%s: chunk %d of %d lost ones comes back different\n", spec, lost[i], count);
                exit(1);
            }
    }
    printf("%s: %d parity chunks equal, %d patterns of losses recovered by both\n", spec, m, patterns);
    free(matrix);
    release(ours, n);
    release(theirs, n);
    release(out, n);
    claystone_code_free(code);
}

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) judge(arguments[i]);
    return 0;
}
