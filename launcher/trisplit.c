/* `trisplit`: prints what `trisplit run SCRIPT` printed before; hands everything else to Python.

   It makes the very key that Python makes (scripts/runner.name_of) of what it reads itself. What it cannot
   know, which node this is and which rules hold, Python has put in a seal (scripts/sealing.py), which counts
   as long as every file named in it is as it was. Whatever is odd is handed over, before a byte is printed. */
#define _GNU_SOURCE
#include "asking.h"
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PYTHON "trisplit-py" /* what an installer wrote beside us, for the Python it installed to */
#define SCHEMA "1"           /* cache/key.py */
#define MOST_BYTES (16 << 20)
#define MOST_LEDGER_BYTES (4 << 20) /* cache/ledger.py: it is made shorter when it grows past a piece */
#define PIECE_BYTES (64 << 10)
#define LEAST_STACK_BYTES (2 << 20)
#define MOST_COUNTED_USES 4096
#define COUNTED_AT_ONCE 8

struct bytes {
    char *at;
    size_t n;
};

static char **words;
static uid_t us;
static const char *door = ""; /* the folder we lie in */
static int store;

static _Noreturn void hand_over(void) {
    char path[PATH_MAX + sizeof "/" PYTHON];
    strcpy(stpcpy(path, door), "/" PYTHON);
    if (*door) execv(path, words);
    fprintf(stderr, "error: %s cannot be started: %s\n  fix: install trisplit again\n", path, strerror(errno));
    _exit(1);
}

static void need(int holds) {
    if (!holds) hand_over();
}

/* Memory that is never given back; little of it, and from a place that is there already. */
static char *room(size_t n) {
    static char first[16 << 10];
    static size_t used;
    if (n > sizeof first - used) return malloc(n);
    used += n;
    return first + used - n;
}

static char *joined(const char *left, const char *right) {
    char *to = room(strlen(left) + strlen(right) + 1);
    need(to != 0);
    strcpy(stpcpy(to, left), right);
    return to;
}

/* A path without links; it stays until the next one is asked for. */
static char *real(const char *path) {
    static char found[PATH_MAX];
    return path ? realpath(path, found) : 0;
}

/* Where we lie, by the path we were started by, or where that says nothing by /proc. */
static void find_door(void) {
    char *found = real((const char *)getauxval(AT_EXECFN));
    if (!found) found = real("/proc/self/exe");
    if (!found) return;
    *strrchr(found, '/') = 0;
    door = joined(found, "");
}

/* A regular file, whole, and a zero byte; not one that is longer than we take. It stays open. */
static struct bytes whole(int fd, const struct stat *is) {
    need(S_ISREG(is->st_mode) && is->st_size <= MOST_BYTES);
    size_t left = (size_t)is->st_size;
    struct bytes all = {room(left + 1), 0};
    need(all.at != 0);
    for (ssize_t n; left && (n = read(fd, all.at + all.n, left)) != 0; all.n += (size_t)n, left -= (size_t)n)
        need(n > 0);
    all.at[all.n] = 0;
    return all;
}

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

static long long number(char **at) {
    long long n = 0;
    need(**at >= '0' && **at <= '9');
    for (; **at >= '0' && **at <= '9'; ++*at) n = 10 * n + (**at - '0');
    return n;
}

static long long number_then(char **at, char after) {
    long long n = number(at);
    need(**at == after);
    ++*at;
    return n;
}

/* --- keys: cache/key.canonical ------------------------------------------------------------------------ */

static void add_head(struct sha256 *sum, char tag, uint64_t n) {
    unsigned char head[9] = {(unsigned char)tag};
    for (int i = 0; i < 8; i++) head[1 + i] = (unsigned char)(n >> (56 - 8 * i));
    sha256_add(sum, head, sizeof head);
}

static void add(struct sha256 *sum, char tag, const char *content, size_t n) {
    add_head(sum, tag, n);
    sha256_add(sum, content, n);
}

static void add_text(struct sha256 *sum, const char *text) { add(sum, 's', text, strlen(text)); }

static void begin_key(struct sha256 *sum, const char *kind) {
    sha256_begin(sum);
    add_head(sum, '(', 9 + strlen(SCHEMA) + 9 + strlen(kind));
    add(sum, 'i', SCHEMA, strlen(SCHEMA));
    add_text(sum, kind);
}

/* --- entries of one stream: cache/store.py ------------------------------------------------------------ */

struct kept {
    struct bytes body;
    long long cpu_us, wall_us;
};

static int open_kept(const char *key, const char *suffix, int flags) {
    char name[HEX_CHARS + 3];
    snprintf(name, sizeof name, "%s%s", key, suffix);
    return openat(store, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
}

static int is_kept(const char *key) {
    char name[HEX_CHARS + 3];
    snprintf(name, sizeof name, "%s.0", key);
    return !faccessat(store, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

static struct bytes whole_of_ours(const char *key, const char *suffix) {
    struct stat is;
    int fd = open_kept(key, suffix, O_RDONLY);
    need(fd >= 0 && !fstat(fd, &is) && is.st_uid == us);
    return whole(fd, &is);
}

static struct kept read_kept(const char *key, const char *surface) {
    struct kept kept = {.body = whole_of_ours(key, ".0")};
    struct bytes beside = whole_of_ours(key, ".d");
    char hex[HEX_CHARS + 1], expected[2 * HEX_CHARS + 64];
    struct sha256 sum;
    sha256_begin(&sum);
    sha256_add(&sum, kept.body.at, kept.body.n);
    sha256_end(&sum, hex);
    snprintf(expected, sizeof expected, "%s  %s.0\n{\"surface\":\"%s\",", hex, key, surface);
    need(strlen(beside.at) == beside.n && starts(beside.at, expected));
    static const char cpu[] = ",\"cpu_us\":", wall[] = "\"wall_us\":";
    char *costs = 0;
    for (char *at = beside.at; (at = strstr(at, cpu)); at++) costs = at;
    need(costs != 0);
    costs += sizeof cpu - 1;
    kept.cpu_us = number_then(&costs, ',');
    need(starts(costs, wall));
    costs += sizeof wall - 1;
    kept.wall_us = number_then(&costs, '}');
    need(!strcmp(costs, "\n"));
    return kept;
}

/* --- the script --------------------------------------------------------------------------------------- */

struct script {
    struct bytes source;
    const char *path; /* without links */
    const char *language, *kind;
    int may_load; /* another file, which is part of a key that we do not make */
};

/* Whether a name, which begins with no dot, ends with an extension. */
static int has_extension(const char *name, const char *extension) {
    const char *dot = strrchr(name, '.');
    return *name != '.' && dot && !strcmp(dot, extension);
}

static int is_plain_text(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80) return 0;
    return 1;
}

/* Whether it may load another file by a path that stands in it: scripts/closure.py looks closer. */
static int may_load(struct bytes source) {
    char *at = source.at, *end = source.at + source.n;
    while ((at = memmem(at, (size_t)(end - at), "require", 7))) {
        at += 7;
        at += strspn(at, " \t\n\r\f\v");
        if (*at == '(') return 1;
    }
    return 0;
}

static int sees_its_place(struct bytes source) {
    static const char *const words_for_it[] = {"__filename", "__dirname", "arguments", "\\u"};
    for (size_t i = 0; i < sizeof words_for_it / sizeof *words_for_it; i++)
        if (memmem(source.at, source.n, words_for_it[i], strlen(words_for_it[i]))) return 1;
    return 0;
}

/* What the nearest package.json says scripts are. Python has read each once and kept what it said. */
static const char *kind_around(const char *path) {
    static const char name[] = "/package.json";
    char *file = room(strlen(path) + sizeof name);
    need(file != 0);
    strcpy(file, path);
    for (char *slash; (slash = strrchr(file, '/')); *slash = 0) {
        strcpy(slash, name);
        int fd = openat(AT_FDCWD, file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) {
            need(errno == ENOENT || errno == ENOTDIR);
            continue;
        }
        struct stat is;
        need(!fstat(fd, &is));
        struct bytes content = whole(fd, &is);
        char key[HEX_CHARS + 1];
        struct sha256 sum;
        begin_key(&sum, "package");
        add_text(&sum, "content");
        add(&sum, 'b', content.at, content.n);
        sha256_end(&sum, key);
        struct bytes said = read_kept(key, "engine").body;
        return strcmp(said.at, "module") ? strcmp(said.at, "commonjs") ? (hand_over(), "") : "commonjs" : "module";
    }
    return "commonjs";
}

static struct script read_script(const char *named) {
    static const struct {
        const char *extension, *language, *kind;
    } known[] = {{".js", "javascript", 0},         {".cjs", "javascript", "commonjs"},
                 {".mjs", "javascript", "module"}, {".ts", "typescript", 0},
                 {".cts", "typescript", "commonjs"}, {".mts", "typescript", "module"}};
    struct script script = {.language = 0};
    const char *name = strrchr(named, '/') ? strrchr(named, '/') + 1 : named;
    size_t which = 0, n_known = sizeof known / sizeof *known;
    while (which < n_known && !has_extension(name, known[which].extension)) which++;
    need(which < n_known);

    int fd = openat(AT_FDCWD, named, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat held, there;
    char *path = real(named);
    need(fd >= 0 && path && !fstat(fd, &held) && !lstat(path, &there));
    script.path = joined(path, "");
    need(held.st_ino == there.st_ino && held.st_dev == there.st_dev);
    need(has_extension(strrchr(script.path, '/') + 1, known[which].extension));
    need(is_plain_text(script.path) && !strstr(script.path, "/node_modules/"));
    script.source = whole(fd, &held);
    script.may_load = may_load(script.source);
    script.language = known[which].language;
    script.kind = known[which].kind;
    return script;
}

/* --- what is around ----------------------------------------------------------------------------------- */

static void check_limits(void) {
    static const int endless[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_FSIZE};
    struct rlimit limit;
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++)
        need(!getrlimit(endless[i], &limit) && limit.rlim_cur == RLIM_INFINITY);
    need(!getrlimit(RLIMIT_STACK, &limit));
    need(limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= LEAST_STACK_BYTES);
}

static void open_store(void) {
    const char *named = getenv("TRISPLIT_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *in = "/results";
    if (!named || !*named) named = cache, in = "/trisplit/results";
    if (!named || !*named) named = home, in = "/.cache/trisplit/results";
    need(named && *named == '/');
    char *path = joined(named, in);
    struct stat is;
    us = geteuid();
    store = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    need(store >= 0 && !fstat(store, &is) && is.st_uid == us && !(is.st_mode & 077));
}

/* The node that Python would find on PATH; where this is a folder, it has no seal. */
static const char *find_node(void) {
    const char *at = getenv("PATH");
    need(at != 0);
    char *found = room(strlen(at) + sizeof "/node");
    need(found != 0);
    for (;; at++) {
        size_t n = strcspn(at, ":");
        need(*at == '/');
        memcpy(found, at, n);
        strcpy(found + n, at[n - 1] == '/' ? "node" : "/node");
        if (!access(found, X_OK)) return found;
        at += n;
        need(*at == ':');
    }
}

/* --- the seal ----------------------------------------------------------------------------------------- */

extern char **environ;

/* Whether a variable whose name begins with `avoided` is set, other than those allowed in the lines after. */
static int is_meddled(const char *avoided, const char *lines) {
    for (char **one = environ; *one; one++) {
        size_t n = strcspn(*one, "=");
        if (n < strlen(avoided) || !starts(*one, avoided)) continue;
        int allowed = 0;
        for (const char *line = lines; starts(line, "allow "); line = strchr(line, '\n') + 1)
            allowed |= strcspn(line + 6, "\n") == n && !strncmp(line + 6, *one, n);
        if (!allowed) return 1;
    }
    return 0;
}

static void need_as_it_was(char *line) {
    long long was[7];
    for (int i = 0; i < 7; i++) was[i] = number_then(&line, i == 3 || i == 5 ? '.' : ' ');
    struct stat is;
    need(!stat(line, &is) && was[0] == (long long)is.st_dev && was[1] == (long long)is.st_ino);
    need(was[2] == is.st_size && was[3] == is.st_mtim.tv_sec && was[4] == is.st_mtim.tv_nsec);
    need(was[5] == is.st_ctim.tv_sec && was[6] == is.st_ctim.tv_nsec);
}

struct seal {
    char engine[HEX_CHARS + 1], world[HEX_CHARS + 1];
};

static struct seal read_seal(const char *node) {
    struct seal seal = {"", ""};
    struct sha256 sum;
    struct stat is;
    char key[HEX_CHARS + 1];
    begin_key(&sum, "seal");
    add_text(&sum, "command");
    add_text(&sum, node);
    add_text(&sum, "door");
    add_text(&sum, door);
    sha256_end(&sum, key);
    /* It holds its own digest, which saves opening a second file. */
    static const char last[] = "sha256 ";
    struct bytes body = whole_of_ours(key, ".0");
    need(strlen(body.at) == body.n && body.n > HEX_CHARS + sizeof last);
    char *said = body.at + body.n - HEX_CHARS - 1, hex[HEX_CHARS + 1];
    sha256_begin(&sum);
    sha256_add(&sum, body.at, body.n - HEX_CHARS - sizeof last);
    sha256_end(&sum, hex);
    need(!memcmp(said, hex, HEX_CHARS) && starts(said + 1 - sizeof last, last) && said[HEX_CHARS] == '\n');
    said[1 - (int)sizeof last] = 0;
    char *allowed = strstr(body.at, "allow ");
    need(allowed != 0);
    for (char *line = body.at, *next; *line; line = next) {
        next = strchr(line, '\n') + 1;
        if (starts(line, "allow ")) continue;
        next[-1] = 0;
        if (starts(line, "file ")) need_as_it_was(line + 5);
        else if (starts(line, "none ")) need(stat(line + 5, &is) != 0);
        else if (starts(line, "avoid ")) need(!is_meddled(line + 6, allowed));
        else if (starts(line, "engine ")) snprintf(seal.engine, sizeof seal.engine, "%s", line + 7);
        else if (starts(line, "world ")) snprintf(seal.world, sizeof seal.world, "%s", line + 6);
        else hand_over();
    }
    need(strlen(seal.engine) == HEX_CHARS && strlen(seal.world) == HEX_CHARS);
    return seal;
}

/* --- a hit -------------------------------------------------------------------------------------------- */

/* scripts/runner.name_of: parts by name, in the order of the names. */
static void name_it(const struct script *script, const struct seal *seal, char **arguments, char key[]) {
    struct sha256 sum;
    uint64_t n = 0;
    begin_key(&sum, "script");
    add_text(&sum, "arguments");
    for (char **one = arguments; *one; one++) {
        need(is_plain_text(*one)); /* what others mean depends on the locale */
        n += 9 + strlen(*one);
    }
    add_head(&sum, '(', n);
    for (char **one = arguments; *one; one++) add_text(&sum, *one);
    add_text(&sum, "engine");
    add_text(&sum, seal->engine);
    add_text(&sum, "kind");
    add_text(&sum, script->kind);
    add_text(&sum, "language");
    add_text(&sum, script->language);
    add_text(&sum, "parts");
    uint64_t part = 9 + script->source.n + 1 + 9;
    add_head(&sum, '[', 9 + part);
    add_head(&sum, '(', part);
    add(&sum, 'b', script->source.at, script->source.n);
    sha256_add(&sum, "f", 1);
    add_head(&sum, '(', 0);
    add_text(&sum, "paths");
    if (sees_its_place(script->source)) {
        add_head(&sum, '[', 9 + strlen(script->path));
        add_text(&sum, script->path);
    } else {
        sha256_add(&sum, "n", 1);
    }
    add_text(&sum, "terminals");
    add_head(&sum, '(', 2);
    sha256_add(&sum, isatty(1) ? "t" : "f", 1);
    sha256_add(&sum, isatty(2) ? "t" : "f", 1);
    add_text(&sum, "world");
    add_text(&sum, seal->world);
    sha256_end(&sum, key);
}

/* All of it; like node's console it does not mind if nobody listens. */
static void print(int fd, struct bytes body) {
    signal(SIGPIPE, SIG_IGN);
    while (body.n) {
        ssize_t n = write(fd, body.at, body.n);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd until = {.fd = fd, .events = POLLOUT};
            poll(&until, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return;
        } else if (n > 0) {
            body.at += n, body.n -= (size_t)n;
        }
    }
}

static long long micros(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* The ledger, locked against being replaced; cache/ledger.py makes it shorter, so that is left to Python. */
static int open_ledger(void) {
    for (int i = 0; i < 50; i++) {
        int fd = openat(store, "ledger.jsonl", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
        struct stat is;
        need(fd >= 0);
        int locked = !flock(fd, LOCK_SH | LOCK_NB);
        need(locked || errno == EWOULDBLOCK);
        need(!fstat(fd, &is));
        need(is.st_size <= MOST_LEDGER_BYTES || is.st_size % PIECE_BYTES < PIECE_BYTES - 1024);
        if (locked && is.st_nlink) return fd;
        close(fd);
        if (!locked) nanosleep(&(struct timespec){.tv_nsec = 1000000}, 0);
    }
    hand_over();
}

static void put_down(int ledger, const char *key, const struct kept *kept, long long began_us) {
    long long cpu_us = micros(CLOCK_PROCESS_CPUTIME_ID), wall_us = micros(CLOCK_MONOTONIC) - began_us;
    char line[512];
    int n = snprintf(line, sizeof line,
                     "{\"at_s\":%lld,\"surface\":\"script\",\"outcome\":\"hit\",\"key\":\"%s\",\"spent_cpu_us\":%lld,"
                     "\"spent_wall_us\":%lld,\"skipped_cpu_us\":%lld,\"skipped_wall_us\":%lld}\n",
                     (long long)time(0), key, cpu_us, wall_us, kept->cpu_us - cpu_us, kept->wall_us - wall_us);
    if (write(ledger, line, (size_t)n) < 0) return; /* a full disk is no reason to fail */
}

/* One hit in eight is counted, as eight: counting takes longer than hashing. */
static void count_use(const char *key, long long chance) {
    struct stat is;
    if (chance % COUNTED_AT_ONCE) return;
    int fd = open_kept(key, ".u", O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0 || fstat(fd, &is)) return;
    if (is.st_size < MOST_COUNTED_USES ? write(fd, "........", COUNTED_AT_ONCE) < 0 : futimens(fd, 0)) return;
}

/* Prints what a resident answers, if there is one and it does. */
static void ask_resident(const char *named, char **arguments, const char *node) {
    static char folder[PATH_MAX];
    int to = find_resident(store, us);
    if (to < 0 || !getcwd(folder, sizeof folder)) return;
    char *path = *named == '/' ? joined(named, "") : joined(joined(folder, "/"), named);
    struct packed greeting = {0}, question = {0};
    pack_greeting(&greeting, folder, node, environ);
    pack_ask(&question, path, arguments);
    struct unpacked answer = asked(to, &greeting, &question);
    if (!answer.at || take_list(&answer) != 3) return;
    take_piece(&answer, 1); /* how it came to it */
    uint32_t exit_code = take_number(&answer, 1), n = take_list(&answer);
    struct unpacked frames = answer;
    for (uint32_t i = 0; i < n && !answer.failed; i++) {
        answer.failed |= take_list(&answer) != 2;
        uint32_t fd = take_number(&answer, 1);
        answer.failed |= fd != 1 && fd != 2;
        take_piece(&answer, 0);
    }
    if (answer.failed || answer.at != answer.end || exit_code > 127) return;
    for (uint32_t i = 0; i < n; i++) {
        take_list(&frames);
        int fd = (int)take_number(&frames, 1);
        struct iovec data = take_piece(&frames, 0);
        print(fd, (struct bytes){data.iov_base, data.iov_len});
    }
    _exit((int)exit_code);
}

int main(int argc, char **argv) {
    long long began_us = micros(CLOCK_MONOTONIC);
    struct stat is;
    words = argv;
    find_door();
    need(argc >= 3 && !strcmp(argv[1], "run") && *argv[2] && *argv[2] != '-');
    for (int fd = 0; fd < 3; fd++) need(!fstat(fd, &is));
    check_limits();
    open_store();
    struct script script = read_script(argv[2]);
    if (!script.kind) script.kind = kind_around(script.path);
    char key[HEX_CHARS + 1];
    const char *node = find_node();
    struct seal seal = read_seal(node);
    name_it(&script, &seal, argv + 3, key);
    if (script.may_load || !is_kept(key)) {
        ask_resident(argv[2], argv + 3, node);
        hand_over();
    }
    struct kept kept = read_kept(key, "script");
    int ledger = open_ledger();
    print(1, kept.body);
    put_down(ledger, key, &kept, began_us);
    count_use(key, began_us);
    return 0;
}
