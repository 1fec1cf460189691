/* SHA-256 (FIPS 180-4), over pieces of any length. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DIGEST_BYTES 32
#define HEX_CHARS 64

struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64];
};

static const uint32_t SHA256_ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t sha256_rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha256_block(struct sha256 *one, const unsigned char *bytes) {
    uint32_t w[64], *s = one->state;
    uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (int i = 0; i < 16; i++, bytes += 4)
        w[i] = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (sha256_rotated(x, 7) ^ sha256_rotated(x, 18) ^ x >> 3) +
               (sha256_rotated(y, 17) ^ sha256_rotated(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = h + (sha256_rotated(e, 6) ^ sha256_rotated(e, 11) ^ sha256_rotated(e, 25)) +
                      ((e & f) ^ (~e & g)) + SHA256_ROUND[i] + w[i];
        uint32_t t2 = (sha256_rotated(a, 2) ^ sha256_rotated(a, 13) ^ sha256_rotated(a, 22)) +
                      ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
}

static void sha256_begin(struct sha256 *one) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(one->state, first, sizeof first);
    one->n_bytes = 0;
}

static void sha256_add(struct sha256 *one, const void *piece, size_t n) {
    const unsigned char *bytes = piece;
    size_t held = one->n_bytes % 64;
    one->n_bytes += n;
    if (held + n >= 64 && held) {
        memcpy(one->block + held, bytes, 64 - held);
        sha256_block(one, one->block);
        bytes += 64 - held, n -= 64 - held, held = 0;
    }
    for (; !held && n >= 64; bytes += 64, n -= 64) sha256_block(one, bytes);
    if (n) memcpy(one->block + held, bytes, n);
}

/* The digest as hexadecimal digits and a zero byte. */
static void sha256_end(struct sha256 *one, char hex[HEX_CHARS + 1]) {
    static const char digits[] = "0123456789abcdef";
    uint64_t n_bits = one->n_bytes * 8;
    unsigned char last[8];
    for (int i = 0; i < 8; i++) last[i] = (unsigned char)(n_bits >> (56 - 8 * i));
    sha256_add(one, "\x80", 1);
    while (one->n_bytes % 64 != 56) sha256_add(one, "", 1);
    sha256_add(one, last, 8);
    for (int i = 0; i < DIGEST_BYTES; i++) {
        unsigned byte = one->state[i / 4] >> (24 - 8 * (i % 4)) & 0xff;
        *hex++ = digits[byte >> 4];
        *hex++ = digits[byte & 15];
    }
    *hex = 0;
}
