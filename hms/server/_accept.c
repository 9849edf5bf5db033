/* What libzmq calls in place of accept(), so that no connection takes the last descriptor of the
 * process and none ends it: docs/decisions/0080-no-connection-takes-the-last-descriptor.md.
 *
 * install() finds the entries of libzmq in the tables of the dynamic linker and sets those of
 * accept() and accept4() to the functions below. Nothing else of the process is changed.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RESERVED_MIN = 32, PAUSE_NS = 1000000 };

static atomic_ullong put_off;

/* A process gets the lowest free number, so one that is this high tells that all below it are
 * taken. The limit is asked each time: it can be changed from outside. */
static int is_reserved(int at) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    int next = fcntl(at, F_DUPFD_CLOEXEC, 0);
    if (next < 0)
        return errno == EMFILE;
    close(next);
    rlim_t reserved = limit.rlim_cur / 10;
    if (reserved < RESERVED_MIN)
        reserved = RESERVED_MIN;
    return (rlim_t)next + reserved >= limit.rlim_cur;
}

/* Nothing is accepted now. libzmq asks again at once, so it waits a little. */
static int later(void) {
    struct timespec pause = {0, PAUSE_NS};
    nanosleep(&pause, NULL);
    atomic_fetch_add(&put_off, 1);
    errno = EAGAIN;
    return -1;
}

/* libzmq asserts that accept() fails for a few reasons only, which is not so. What is wrong with a
 * connection, or with the machine, is not its own fault: there is none for it, for now. */
static int told(int made) {
    if (made >= 0)
        return made;
    switch (errno) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EBADF: /* these and the following are libzmq's own faults */
    case EFAULT:
    case EINVAL:
    case ENOTSOCK:
        return made;
    }
    return later();
}

static int guarded_accept(int at, struct sockaddr *address, socklen_t *length) {
    return is_reserved(at) ? later() : told(accept(at, address, length));
}

static int guarded_accept4(int at, struct sockaddr *address, socklen_t *length, int flags) {
    return is_reserved(at) ? later() : told(accept4(at, address, length, flags));
}

static uintptr_t instead_of(const char *name) {
    if (strcmp(name, "accept") == 0)
        return (uintptr_t)guarded_accept;
    if (strcmp(name, "accept4") == 0)
        return (uintptr_t)guarded_accept4;
    return 0;
}

/* The tables of one library, as its dynamic section names them. */
struct tables {
    const struct dl_phdr_info *library;
    const ElfW(Sym) *symbols;
    const char *names;
    int replaced;
};

/* Part of what the linker has filled in is read-only from then on; only that is made writable, and
 * read-only again. */
static int replace(const struct tables *in, uintptr_t at, uintptr_t function) {
    uintptr_t mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1), page = at & mask;
    size_t size = at + sizeof function - page;
    int is_relro = 0;
    for (int i = 0; i < in->library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &in->library->dlpi_phdr[i];
        uintptr_t from = in->library->dlpi_addr + part->p_vaddr;
        /* The linker protects whole pages only: the last one may be written to by others. */
        if (part->p_type == PT_GNU_RELRO && page >= (from & mask)
            && page < ((from + part->p_memsz) & mask))
            is_relro = 1;
    }
    if (is_relro && mprotect((void *)page, size, PROT_READ | PROT_WRITE) != 0)
        return 0;
    __atomic_store_n((uintptr_t *)at, function, __ATOMIC_RELEASE);
    if (is_relro)
        mprotect((void *)page, size, PROT_READ);
    return 1;
}

static void look_at(struct tables *in, uintptr_t info, uintptr_t offset) {
#if __ELF_NATIVE_CLASS == 64
    size_t symbol = ELF64_R_SYM(info);
#else
    size_t symbol = ELF32_R_SYM(info);
#endif
    uintptr_t function = symbol ? instead_of(in->names + in->symbols[symbol].st_name) : 0;
    if (function)
        in->replaced += replace(in, in->library->dlpi_addr + offset, function);
}

static void look_through(struct tables *in, uintptr_t at, size_t size, int has_addends) {
    if (has_addends) {
        const ElfW(Rela) *one = (const ElfW(Rela) *)at;
        for (size_t i = 0; i < size / sizeof *one; i++)
            look_at(in, one[i].r_info, one[i].r_offset);
    } else {
        const ElfW(Rel) *one = (const ElfW(Rel) *)at;
        for (size_t i = 0; i < size / sizeof *one; i++)
            look_at(in, one[i].r_info, one[i].r_offset);
    }
}

static int look_at_library(struct dl_phdr_info *library, size_t size, void *replaced) {
    (void)size;
    const char *slash = strrchr(library->dlpi_name, '/');
    if (strstr(slash ? slash : library->dlpi_name, "zmq") == NULL)
        return 0;
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < library->dlpi_phnum; i++)
        if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
    if (entry == NULL)
        return 0;
    uintptr_t of[DT_NUM] = {0};
    for (; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag > 0 && entry->d_tag < DT_NUM)
            of[entry->d_tag] = entry->d_un.d_val;
    /* glibc has made addresses of them, other linkers leave the offsets. */
    static const int pointers[] = {DT_SYMTAB, DT_STRTAB, DT_JMPREL, DT_RELA, DT_REL};
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
        if (of[pointers[i]] && of[pointers[i]] < library->dlpi_addr)
            of[pointers[i]] += library->dlpi_addr;
    if (!of[DT_SYMTAB] || !of[DT_STRTAB])
        return 0;
    struct tables in = {library, (const ElfW(Sym) *)of[DT_SYMTAB], (const char *)of[DT_STRTAB], 0};
    if (of[DT_JMPREL])
        look_through(&in, of[DT_JMPREL], of[DT_PLTRELSZ], of[DT_PLTREL] == DT_RELA);
    if (of[DT_RELA])
        look_through(&in, of[DT_RELA], of[DT_RELASZ], 1);
    if (of[DT_REL])
        look_through(&in, of[DT_REL], of[DT_RELSZ], 0);
    *(int *)replaced += in.replaced;
    return 0;
}

static PyObject *install(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    int replaced = 0;
    dl_iterate_phdr(look_at_library, &replaced);
    return PyLong_FromLong(replaced);
}

static PyObject *count_put_off(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyLong_FromUnsignedLongLong(atomic_load(&put_off));
}

static PyMethodDef methods[] = {
    {"install", install, METH_NOARGS,
     "Set libzmq's entries of accept() and accept4(); how many were found."},
    {"put_off", count_put_off, METH_NOARGS,
     "How often a connection was left to wait so far."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "hms.server._accept", "See accept_guard.py.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__accept(void) {
    return PyModule_Create(&module);
}
