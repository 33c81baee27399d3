#!/usr/bin/env python3
"""Clay codes from their definition, in plain Python: the oracle of `oracle.rs`.

It shares nothing with the crate but the definition: GF(2^8) with 0x11d, the normalised Cauchy matrix, coupling by 2, nodes
numbered data, zeros, parity, and plane digits with that of section 0 most significant. It encodes by solving all planes
in the order of their score, and checks the parity equations of each plane afterwards.

    clay_oracle.py encode K M D SUB_BYTES   SHA-256 over the parity chunks, for the data of `noise` from seed 1
    clay_oracle.py plain K M D SUB_BYTES    the same over the Cauchy matrix 1 / (i + (m + j)), which nobody scaled
    clay_oracle.py reads K M D LOSSES       least, mean and most chunks read over all sets of so many lost chunks
"""
import hashlib, itertools, sys

EXP, LOG = [0] * 510, [0] * 256
value = 1
for power in range(255):
    EXP[power] = EXP[power + 255] = value
    LOG[value] = power
    value = value << 1 ^ (0x11D if value & 0x80 else 0)


def mul(a, b):
    return EXP[LOG[a] + LOG[b]] if a and b else 0


def inv(a):
    return EXP[255 - LOG[a]]


TABLES = [bytes(mul(c, x) for x in range(256)) for c in range(256)]


def times(c, row):
    return row.translate(TABLES[c])


def add(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def noise(seed, count):
    out = bytearray()
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(seed >> 56)
    return seed, bytes(out)


def cauchy(i, j):
    return inv(i ^ (255 - j))


def normalised(i, j, m):
    return mul(mul(cauchy(i, j), cauchy(0, 0)), inv(mul(cauchy(0, j), cauchy(i, 0))))


def plain(i, j, m):
    return inv(i ^ (m + j))


def eliminate(equations, unknowns):
    """Solves `equations` (coefficients of the unknowns, right side) by Gauss and Jordan."""
    for col in range(unknowns):
        pivot = next(r for r in range(col, unknowns) if equations[r][0][col])
        equations[col], equations[pivot] = equations[pivot], equations[col]
        scale = inv(equations[col][0][col])
        equations[col] = ([mul(scale, c) for c in equations[col][0]], times(scale, equations[col][1]))
        for r in range(unknowns):
            factor = equations[r][0][col]
            if r != col and factor:
                coefs = [a ^ mul(factor, b) for a, b in zip(equations[r][0], equations[col][0])]
                equations[r] = (coefs, add(equations[r][1], times(factor, equations[col][1])))
    return [right for _, right in equations[:unknowns]]


class Clay:
    G = 2

    def __init__(self, k, m, d, coefficient=normalised):
        self.k, self.m, self.q, self.coefficient = k, m, d - k + 1, coefficient
        self.zeros = -(k + m) % self.q
        self.nodes = k + m + self.zeros
        self.t = self.nodes // self.q
        self.alpha = self.q**self.t

    def digit(self, z, y):
        return z // self.q ** (self.t - 1 - y) % self.q

    def pair(self, node, z):
        y, x = divmod(node, self.q)
        return y * self.q + self.digit(z, y), z + (x - self.digit(z, y)) * self.q ** (self.t - 1 - y)

    def checks(self):
        data = self.nodes - self.m
        row = lambda i: [self.coefficient(i, j, self.m) for j in range(data)]
        return [row(i) + [int(i == p) for p in range(self.m)] for i in range(self.m)]

    def encode(self, data, sub_bytes):
        lost = range(self.nodes - self.m, self.nodes)
        zero = bytes(sub_bytes)
        C = {(node, z): data[node][z * sub_bytes : (z + 1) * sub_bytes] if node < self.k else zero
             for node in range(lost[0]) for z in range(self.alpha)}
        U, checks = {}, self.checks()
        score = lambda z: sum(self.pair(node, z)[0] == node for node in lost)
        for z in sorted(range(self.alpha), key=score):
            for node in range(lost[0]):
                other = self.pair(node, z)
                if other == (node, z):
                    U[node, z] = C[node, z]
                elif other[0] in lost:  # U = (1 + g^2) C + g U*, U* of a lower score
                    U[node, z] = add(times(1 ^ mul(self.G, self.G), C[node, z]), times(self.G, U[other]))
                else:
                    U[node, z] = add(C[node, z], times(self.G, C[other]))
            equations = []
            for check in checks:
                right = zero
                for node in range(lost[0]):
                    right = add(right, times(check[node], U[node, z]))
                equations.append(([check[node] for node in lost], right))
            for node, u in zip(lost, eliminate(equations, self.m)):
                U[node, z] = u
        det = inv(1 ^ mul(self.G, self.G))
        for node, z in itertools.product(lost, range(self.alpha)):
            other = self.pair(node, z)
            if other == (node, z):
                C[node, z] = U[node, z]
            elif other[0] in lost:
                C[node, z] = times(det, add(U[node, z], times(self.G, U[other])))
            else:
                C[node, z] = add(U[node, z], times(self.G, C[other]))
        self.verify(C, zero)
        return [b"".join(C[node, z] for z in range(self.alpha)) for node in lost]

    def verify(self, C, zero):
        """The definition once more, from the stored symbols alone."""
        checks = self.checks()
        for z in range(self.alpha):
            U = []
            for node in range(self.nodes):
                other = self.pair(node, z)
                U.append(C[node, z] if other == (node, z) else add(C[node, z], times(self.G, C[other])))
            for check in checks:
                total = zero
                for c, u in zip(check, U):
                    total = add(total, times(c, u))
                assert total == zero, f"plane {z}"

    def least_reads(self, lost):
        """Chunks read by the best repair in stages: see clay/stages.rs, counted here without planes."""
        section = [(i if i < self.k else i + self.zeros) // self.q for i in range(self.k + self.m)]
        best = [float(self.k)]

        def stage(left, hit, share, cost):
            if not left:
                best[0] = min(best[0], cost)
            for y, e in left.items():
                for s in range(e, self.q + 1):
                    room = self.m - sum(left.values()) - (self.q - s)
                    free = sum(i not in lost and section[i] not in hit | {y} for i in range(self.k + self.m))
                    if room < 0:
                        continue
                    total = cost + (self.k + self.m - len(lost) - min(room, free)) * share * s / self.q
                    rest = {other: e for other, e in left.items() if other != y and s < self.q}
                    stage(rest, hit | {y}, share * (1 - s / self.q), total)

        hit = [section[i] for i in lost]
        stage({y: hit.count(y) for y in hit}, frozenset(), 1.0, 0.0)
        return best[0]


def main(command, k, m, d, last):
    code = Clay(k, m, d, plain if command == "plain" else normalised)
    if command in ("encode", "plain"):
        seed, data = 1, []
        for _ in range(k):
            seed, chunk = noise(seed, code.alpha * last)
            data.append(chunk)
        print(hashlib.sha256(b"".join(code.encode(data, last))).hexdigest())
    elif command == "reads":
        counts = [code.least_reads(lost) for lost in itertools.combinations(range(k + m), last)]
        print("%.3f %.3f %.3f" % (min(counts), sum(counts) / len(counts), max(counts)))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
