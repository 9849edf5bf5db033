/* Clocks that a test can set, and that run too fast or too slow: preloaded, the seconds in a file are
 * added to the time of day, and both that and the monotonic clock drift.
 *
 *     cc -shared -fPIC -O1 -o set_clock.so set_clock.c -ldl
 *     CLOCK_OFFSET_FILE=offset LD_PRELOAD=./set_clock.so program
 *
 * The file holds three binary integers of 8 bytes: the seconds, which may change at any time; the
 * drift in millionths, and the monotonic time in nanoseconds from which on it drifts, so that all
 * processes of a machine have one clock. A deadline is turned back before the system waits for it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL
#define MILLION 1000000LL

struct clocks {
    long long offset_s, drift_ppm, since_ns;
};

static const volatile struct clocks *clocks;

__attribute__((constructor)) static void map_offset(void)
{
    const char *name = getenv("CLOCK_OFFSET_FILE");
    int fd = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        _exit(97); /* a test that does not set the clock proves nothing */
    clocks = mmap(NULL, sizeof *clocks, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (clocks == MAP_FAILED)
        _exit(97);
}

static long long ns_of(const struct timespec *at)
{
    return at->tv_sec * SECOND_NS + at->tv_nsec;
}

static void set_ns(struct timespec *at, long long ns)
{
    at->tv_sec = ns / SECOND_NS;
    at->tv_nsec = ns % SECOND_NS;
}

static long long true_ns(clockid_t id)
{
    struct timespec now;
    syscall(SYS_clock_gettime, id, &now);
    return ns_of(&now);
}

static long long drifted_ns(void)
{
    long long since_ns = clocks->since_ns, drift_ppm = clocks->drift_ppm;
    return drift_ppm == 0 ? 0 : (true_ns(CLOCK_MONOTONIC) - since_ns) / 1000 * drift_ppm / 1000;
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, id, now);
    if (failed || clocks == NULL)
        return (int)failed;
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        set_ns(now, ns_of(now) + drifted_ns() + clocks->offset_s * SECOND_NS);
    else if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)
        set_ns(now, ns_of(now) + drifted_ns());
    return 0;
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

/* When the system's clock will show what this program's clock shows at that time. */
static struct timespec turned_back(clockid_t id, const struct timespec *until)
{
    struct timespec now, then = *until;
    if (clocks == NULL || clocks->drift_ppm == 0 || id != CLOCK_MONOTONIC)
        return then;
    clock_gettime(id, &now);
    long long left_us = (ns_of(until) - ns_of(&now)) / 1000;
    set_ns(&then, true_ns(id) + left_us * MILLION / (MILLION + clocks->drift_ppm) * 1000);
    return then;
}

static void *next_of(const char *name, const char *version)
{
    void *found = dlvsym(RTLD_NEXT, name, version);
    return found != NULL ? found : dlsym(RTLD_NEXT, name);
}

int sem_clockwait(sem_t *sem, clockid_t id, const struct timespec *until)
{
    static int (*next)(sem_t *, clockid_t, const struct timespec *);
    struct timespec then = turned_back(id, until);
    if (next == NULL)
        next = next_of("sem_clockwait", "GLIBC_2.34");
    return next(sem, id, &then);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t id,
                           const struct timespec *until)
{
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec then = turned_back(id, until);
    if (next == NULL)
        next = next_of("pthread_cond_clockwait", "GLIBC_2.34");
    return next(cond, mutex, id, &then);
}

/* Its clock is an attribute that cannot be asked for: a monotonic time is far from a time of day. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    int is_monotonic = until->tv_sec < true_ns(CLOCK_REALTIME) / SECOND_NS / 2;
    struct timespec then = turned_back(is_monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME, until);
    if (next == NULL)
        next = next_of("pthread_cond_timedwait", "GLIBC_2.3.2");
    return next(cond, mutex, &then);
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *until, struct timespec *left)
{
    static int (*next)(clockid_t, int, const struct timespec *, struct timespec *);
    struct timespec then = flags == TIMER_ABSTIME ? turned_back(id, until) : *until;
    if (next == NULL)
        next = next_of("clock_nanosleep", "GLIBC_2.17");
    return next(id, flags, &then, left);
}
