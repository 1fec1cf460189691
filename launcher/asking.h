/* One question to the resident: scripts/asking.py's words, as MessagePack, each behind its length. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define RESIDENT "resident" /* the socket's name in the store */
#define ANSWER_WITHIN_S 60
#define MOST_ANSWER_BYTES (64u << 20)

struct packed {
    unsigned char *at;
    size_t n, room;
    int failed;
};

static void pack_bytes(struct packed *to, const void *bytes, size_t n) {
    if (to->room - to->n < n) {
        size_t room = 2 * (to->n + n);
        unsigned char *more = realloc(to->at, room);
        if (!more) {
            to->failed = 1;
            return;
        }
        to->at = more, to->room = room;
    }
    memcpy(to->at + to->n, bytes, n);
    to->n += n;
}

static void pack_head(struct packed *to, unsigned char kind, uint32_t n) {
    unsigned char head[] = {kind, (unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                            (unsigned char)n};
    pack_bytes(to, head, sizeof head);
}

static void pack_text(struct packed *to, const char *text, size_t n) {
    pack_head(to, 0xdb, (uint32_t)n);
    pack_bytes(to, text, n);
}

static void pack_list(struct packed *to, uint32_t n) { pack_head(to, 0xdd, n); }

static void pack_truth(struct packed *to, int holds) { pack_bytes(to, holds ? "\xc3" : "\xc2", 1); }

/* Whose run it would be. */
static void pack_greeting(struct packed *to, const char *folder, const char *command, char **environment) {
    uint32_t n = 0;
    for (char **one = environment; *one; one++) n += strchr(*one, '=') != 0;
    pack_list(to, 7);
    pack_text(to, "greeting", 8);
    pack_text(to, folder, strlen(folder));
    pack_text(to, command, strlen(command));
    pack_head(to, 0xdf, n);
    for (char **one = environment; *one; one++) {
        const char *value = strchr(*one, '=');
        if (!value) continue;
        pack_text(to, *one, (size_t)(value - *one));
        pack_text(to, value + 1, strlen(value + 1));
    }
    pack_list(to, 0); /* no limits: with one we have handed over */
    pack_truth(to, isatty(1));
    pack_truth(to, isatty(2));
}

static void pack_ask(struct packed *to, const char *path, char **arguments) {
    uint32_t n = 0;
    while (arguments[n]) n++;
    pack_list(to, 3);
    pack_text(to, "ask", 3);
    pack_text(to, path, strlen(path));
    pack_list(to, n);
    for (uint32_t i = 0; i < n; i++) pack_text(to, arguments[i], strlen(arguments[i]));
}

/* --- what comes back ---------------------------------------------------------------------------------- */

struct unpacked {
    const unsigned char *at, *end;
    int failed;
};

static uint32_t take_number(struct unpacked *from, size_t n_bytes) {
    uint32_t n = 0;
    if ((size_t)(from->end - from->at) < n_bytes) {
        from->failed = 1;
        return 0;
    }
    while (n_bytes--) n = n << 8 | *from->at++;
    return n;
}

/* The length of a list, a text or bytes; `fixed`: the kind that has it in its own byte, of `mask`. */
static uint32_t take_length(struct unpacked *from, unsigned fixed, unsigned mask, unsigned kind, int has_8) {
    unsigned head = take_number(from, 1);
    if (mask && (head & ~mask) == fixed) return head & mask;
    for (unsigned size = has_8 ? 1 : 2; size <= 4; size *= 2)
        if (head == kind++) return take_number(from, size);
    from->failed = 1;
    return 0;
}

static uint32_t take_list(struct unpacked *from) { return take_length(from, 0x90, 0x0f, 0xdc, 0); }

/* A text, or bytes. */
static struct iovec take_piece(struct unpacked *from, int is_text) {
    uint32_t n = is_text ? take_length(from, 0xa0, 0x1f, 0xd9, 1) : take_length(from, 0, 0, 0xc4, 1);
    if (n > (size_t)(from->end - from->at)) from->failed = 1;
    if (from->failed) return (struct iovec){0, 0};
    from->at += n;
    return (struct iovec){(void *)(from->at - n), n};
}

static int exchange(int to, const struct packed *said, void *heard, size_t n) {
    unsigned char length[] = {(unsigned char)(said->n >> 24), (unsigned char)(said->n >> 16),
                              (unsigned char)(said->n >> 8), (unsigned char)said->n};
    if (said->failed || said->n > MOST_ANSWER_BYTES) return 0;
    if (send(to, length, sizeof length, MSG_NOSIGNAL) != sizeof length) return 0;
    for (size_t at = 0; at < said->n;) {
        ssize_t sent = send(to, said->at + at, said->n - at, MSG_NOSIGNAL);
        if (sent <= 0) return 0;
        at += (size_t)sent;
    }
    return !n || recv(to, heard, n, MSG_WAITALL) == (ssize_t)n;
}

/* A connection to the resident of the store in `folder`, if it is ours; -1 else. */
static int find_resident(int folder, uid_t us) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred other;
    socklen_t n = sizeof other;
    struct timeval within = {.tv_sec = ANSWER_WITHIN_S};
    int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" RESIDENT, folder);
    if (to >= 0 && !connect(to, (struct sockaddr *)&address, sizeof address) &&
        !getsockopt(to, SOL_SOCKET, SO_PEERCRED, &other, &n) && other.uid == us &&
        !setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within) &&
        !setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &within, sizeof within))
        return to;
    if (to >= 0) close(to);
    return -1;
}

/* What it answers, whole; without bytes where it does not. */
static struct unpacked asked(int to, const struct packed *greeting, const struct packed *question) {
    unsigned char length[4];
    if (!exchange(to, greeting, 0, 0) || !exchange(to, question, length, sizeof length)) return (struct unpacked){0};
    struct unpacked head = {length, length + sizeof length, 0};
    uint32_t n = take_number(&head, sizeof length);
    unsigned char *answer = n && n <= MOST_ANSWER_BYTES ? malloc(n) : 0;
    if (!answer || recv(to, answer, n, MSG_WAITALL) != (ssize_t)n) return (struct unpacked){0};
    return (struct unpacked){answer, answer + n, 0};
}
