/* Loaded before a program's libraries: the clock on the wall is CLOCK_SHIFT_S seconds off. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *to) {
    int failed = (int)syscall(SYS_clock_gettime, which, to);
    if (!failed && which == CLOCK_REALTIME) to->tv_sec += atol(getenv("CLOCK_SHIFT_S"));
    return failed;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec, to->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
