/* A wall clock that a test can set: preloaded, it adds the seconds in a file to the time of day.
 *
 *     cc -shared -fPIC -O1 -o set_clock.so set_clock.c
 *     CLOCK_OFFSET_FILE=offset LD_PRELOAD=./set_clock.so program
 *
 * The file holds one binary integer of 8 bytes, which may change at any time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *offset_s;

__attribute__((constructor)) static void map_offset(void)
{
    const char *name = getenv("CLOCK_OFFSET_FILE");
    int fd = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        _exit(97); /* a test that does not set the clock proves nothing */
    offset_s = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (offset_s == MAP_FAILED)
        _exit(97);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && offset_s != NULL && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset_s;
    return (int)failed;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
