/* Parity as ISA-L makes it: `parity K M BYTES` encodes K chunks of noise from seed 1 (a linear congruence with Knuth's
 * constants, its top byte each time) and writes the M parity chunks to standard output. */
#include <isa-l.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    if (count != 4) return 2;
    int k = atoi(arguments[1]), m = atoi(arguments[2]), bytes = atoi(arguments[3]);
    if (k < 1 || m < 1 || k + m > 256 || bytes < 1) return 2;
    unsigned char *matrix = malloc((size_t)(k + m) * k), *tables = malloc((size_t)32 * k * m);
    unsigned char *chunks[256];
    uint64_t state = 1;
    for (int i = 0; i < k + m; i++) {
        chunks[i] = calloc(1, bytes);
        for (int at = 0; i < k && at < bytes; at++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            chunks[i][at] = state >> 56;
        }
    }
    gf_gen_cauchy1_matrix(matrix, k + m, k);
    ec_init_tables(k, m, matrix + k * k, tables);
    ec_encode_data(bytes, k, m, tables, chunks, chunks + k);
    for (int i = k; i < k + m; i++) fwrite(chunks[i], 1, bytes, stdout);
    return 0;
}
