/* The log read in bulk: checksums, and messages that were sent one by one.

   A boot reads a million records that have a message each. Here they are checked and taken apart
   without a Python object for any of them. Nothing is judged: records stop where one does not
   verify, and what is not plain is left to be read one by one.

   Layouts, little-endian: hms/store/journal/format.py has a record's header, hms/records/sent.py a
   SENT record, hms/wire/packed_messages.py a row. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum {
    HEADER = 32, FIELDS_AT = 8, FIELDS = 24, LENGTH_AT = 8, LSN_AT = 12, EVENTS_AT = 20,
    UNSYNCED_AT = 24, KIND_AT = 28,
    ID_AT = 4, TIME_AT = 12, CLIENT_AT = 20, PRODUCER_AT = 28, SEQUENCE_AT = 32, COUNT_AT = 40,
    FLAGS_AT = 44, PLACES_HIGH_AT = 45, PLACES_LOW_AT = 46, SEQ_AT = 48, NUMBER_AT = 56,
    BITMAP_AT = 60, ROW_AT = 64, ROW_BYTES = 32, PAYLOAD_AT = ROW_AT + ROW_BYTES,
    ROW_PRIORITY = 24, ROW_KIND = 25, PRIORITY_MAX = 9, FILE_KIND = 5, WAIT_FOR_NO_LOCK = 4096,
};

static uint32_t u16_at(const unsigned char *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8; }

static uint32_t u32_at(const unsigned char *at) { return u16_at(at) | u16_at(at + 2) << 16; }

static uint64_t u64_at(const unsigned char *at) {
    return (uint64_t)u32_at(at) | (uint64_t)u32_at(at + 4) << 32;
}

/* Checksums: zlib's, which a message of 1 KiB waits 0.4 us for. */

static uint32_t table[8][256];

void prepare_checksums(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t value = n;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0xedb88320u : value >> 1;
        table[0][n] = value;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            table[k][n] = table[k - 1][n] >> 8 ^ table[0][table[k - 1][n] & 0xff];
}

static uint32_t by_table(const unsigned char *at, size_t size, uint32_t sum) {
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = u32_at(at) ^ sum, high = u32_at(at + 4);
        sum = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
              table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
    }
    for (; size > 0; at++, size--) sum = sum >> 8 ^ table[0][(sum ^ *at) & 0xff];
    return sum;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FOLDS 1

/* 64 bytes and more, in steps of 16, folded by multiplication without carries: Gopal and others,
   "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t by_folding(const unsigned char *at,
                                                                     size_t size, uint32_t sum) {
    const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_half = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i reduce = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i sums[4], here;
    for (int k = 0; k < 4; k++) sums[k] = _mm_loadu_si128((const __m128i *)at + k);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)sum));
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64)
        for (int k = 0; k < 4; k++) {
            here = _mm_loadu_si128((const __m128i *)at + k);
            here = _mm_xor_si128(here, _mm_clmulepi64_si128(sums[k], by_four, 0x00));
            sums[k] = _mm_xor_si128(here, _mm_clmulepi64_si128(sums[k], by_four, 0x11));
        }
    __m128i one = sums[0];
    for (int k = 1; k < 4; k++) {
        here = _mm_xor_si128(sums[k], _mm_clmulepi64_si128(one, by_one, 0x00));
        one = _mm_xor_si128(here, _mm_clmulepi64_si128(one, by_one, 0x11));
    }
    for (; size >= 16; at += 16, size -= 16) {
        here = _mm_loadu_si128((const __m128i *)at);
        here = _mm_xor_si128(here, _mm_clmulepi64_si128(one, by_one, 0x00));
        one = _mm_xor_si128(here, _mm_clmulepi64_si128(one, by_one, 0x11));
    }
    here = _mm_clmulepi64_si128(one, by_one, 0x10);
    one = _mm_xor_si128(_mm_srli_si128(one, 8), here);
    here = _mm_srli_si128(one, 4);
    one = _mm_clmulepi64_si128(_mm_and_si128(one, low_words), by_half, 0x00);
    one = _mm_xor_si128(one, here);
    here = _mm_clmulepi64_si128(_mm_and_si128(one, low_words), reduce, 0x10);
    here = _mm_clmulepi64_si128(_mm_and_si128(here, low_words), reduce, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(one, here), 1);
}

static int can_fold(void) {
    static int known = -1;
    if (known < 0) known = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    return known;
}
#endif

static uint32_t checksum(const unsigned char *at, size_t size, uint32_t start) {
    uint32_t sum = ~start;
#ifdef FOLDS
    if (size >= 64 && can_fold()) {
        size_t folded = size & ~(size_t)15;
        sum = by_folding(at, folded, sum);
        at += folded;
        size -= folded;
    }
#endif
    return ~by_table(at, size, sum);
}

PyObject *crc32(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    (void)self;
    Py_buffer data;
    unsigned long start = 0;
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32 takes bytes and a checksum");
        return NULL;
    }
    if (count == 2) {
        start = PyLong_AsUnsignedLong(arguments[1]);
        if (PyErr_Occurred()) return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t sum;
    if (data.len > WAIT_FOR_NO_LOCK * 16) {
        Py_BEGIN_ALLOW_THREADS
        sum = checksum(data.buf, (size_t)data.len, (uint32_t)start);
        Py_END_ALLOW_THREADS
    } else {
        sum = checksum(data.buf, (size_t)data.len, (uint32_t)start);
    }
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(sum);
}

/* (view, at, lsn, lsn_max, salt, kind): how many records of one event and of that kind follow one
   another from there on and verify; where they end; where the last one begins that was written
   behind nothing unsynced, or -1; and whether only the view's end ends them. */
PyObject *records_of(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer view;
    Py_ssize_t at;
    unsigned long long lsn, lsn_max;
    unsigned int salt, kind;
    if (!PyArg_ParseTuple(arguments, "y*nKKII", &view, &at, &lsn, &lsn_max, &salt, &kind))
        return NULL;
    Py_ssize_t count = 0, batch_at = -1;
    int is_cut = 0;
    const unsigned char *bytes = view.buf;
    Py_BEGIN_ALLOW_THREADS
    while (at >= 0 && lsn < lsn_max) {
        if (at + HEADER > view.len) {
            is_cut = 1;
            break;
        }
        const unsigned char *one = bytes + at;
        uint32_t fields_sum = u32_at(one + 4);
        if (one[KIND_AT] != kind || u64_at(one + LSN_AT) != lsn || u32_at(one + EVENTS_AT) != 1 ||
            checksum(one + FIELDS_AT, FIELDS, salt) != fields_sum)
            break;
        Py_ssize_t length = (Py_ssize_t)u32_at(one + LENGTH_AT);
        if (length > view.len - at - HEADER) {
            is_cut = 1;
            break;
        }
        if (checksum(one + HEADER, (size_t)length, fields_sum) != u32_at(one)) break;
        if (u32_at(one + UNSYNCED_AT) == 0) batch_at = at;
        at += HEADER + length + (8 - length % 8) % 8;
        count++;
        lsn++;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return Py_BuildValue("nnnN", count, at, batch_at, PyBool_FromLong(is_cut));
}

typedef struct {
    uint32_t at;     /* of the payload, in the run */
    uint32_t number; /* the only place; 0 when it has several, or none */
    enum { FREE, GONE, SPECIAL } state;
} One;

static int is_zero(const unsigned char *at, int size) {
    while (size--)
        if (*at++) return 0;
    return 1;
}

/* What a SENT record with that payload is: FREE for a message that only waits at one place. */
static void look_at(const unsigned char *payload, uint32_t length, One *one) {
    one->state = SPECIAL;
    one->number = 0;
    if (length < PAYLOAD_AT || u16_at(payload + PLACES_LOW_AT) != 1 || payload[PLACES_HIGH_AT] ||
        u32_at(payload + BITMAP_AT))
        return;
    one->number = u32_at(payload + NUMBER_AT);
    const unsigned char *row = payload + ROW_AT;
    uint64_t size = (uint64_t)u32_at(row) + u32_at(row + 4);
    if (u32_at(payload + COUNT_AT) == 1 && payload[FLAGS_AT] == 0 && is_zero(row + 8, 16) &&
        is_zero(row + 26, 6) && row[ROW_PRIORITY] <= PRIORITY_MAX && row[ROW_KIND] != FILE_KIND &&
        size == length - PAYLOAD_AT && one->number != 0)
        one->state = FREE;
}

/* Indices of those that follow `from` at its place: none of another priority, none special, and no
   number lower than one before it, in between. */
static Py_ssize_t together(const unsigned char *run, const One *all, Py_ssize_t count,
                           Py_ssize_t from, Py_ssize_t most, uint32_t *found) {
    const unsigned char *first = run + all[from].at;
    uint32_t number = all[from].number;
    uint64_t id = u64_at(first + ID_AT), seq = u64_at(first + SEQ_AT);
    Py_ssize_t chosen = 0;
    found[chosen++] = (uint32_t)from;
    for (Py_ssize_t i = from + 1; i < count && chosen < most; i++) {
        const One *one = all + i;
        if (one->number != number && one->number != 0) continue;
        if (one->state != FREE) break;
        const unsigned char *payload = run + one->at;
        uint64_t next_id = u64_at(payload + ID_AT), next_seq = u64_at(payload + SEQ_AT);
        if (next_id <= id || next_seq <= seq ||
            payload[ROW_AT + ROW_PRIORITY] != first[ROW_AT + ROW_PRIORITY])
            break;
        id = next_id;
        seq = next_seq;
        found[chosen++] = (uint32_t)i;
    }
    return chosen;
}

static const int COLUMNS_AT[] = {ID_AT, SEQ_AT, TIME_AT, CLIENT_AT, PRODUCER_AT, SEQUENCE_AT};
enum { COLUMNS = 6 };

/* (number, id, seq, time, client, producer, first sequence, offset, rows, heads). */
static PyObject *columns_of(const unsigned char *run, const One *all, const uint32_t *found,
                            Py_ssize_t count) {
    PyObject *columns[COLUMNS + 3] = {NULL}, *made = NULL;
    Py_ssize_t heads = 0;
    for (Py_ssize_t i = 0; i < count; i++) heads += u32_at(run + all[found[i]].at + ROW_AT);
    for (int k = 0; k < COLUMNS + 3; k++) {
        Py_ssize_t size = k <= COLUMNS ? 8 * count : k == COLUMNS + 1 ? ROW_BYTES * count : heads;
        columns[k] = PyBytes_FromStringAndSize(NULL, size);
        if (columns[k] == NULL) goto end;
    }
    unsigned char *to[COLUMNS + 3];
    for (int k = 0; k < COLUMNS + 3; k++) to[k] = (unsigned char *)PyBytes_AS_STRING(columns[k]);
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t at = all[found[i]].at;
        const unsigned char *payload = run + at;
        for (int k = 0; k < COLUMNS; k++) {
            const unsigned char *from = payload + COLUMNS_AT[k];
            uint64_t value = COLUMNS_AT[k] == PRODUCER_AT ? u32_at(from) : u64_at(from);
            memcpy(to[k] + 8 * i, &value, 8);
        }
        uint64_t offset = at + PAYLOAD_AT;
        memcpy(to[COLUMNS] + 8 * i, &offset, 8);
        memcpy(to[COLUMNS + 1] + ROW_BYTES * i, payload + ROW_AT, ROW_BYTES);
        uint32_t head = u32_at(payload + ROW_AT);
        memcpy(to[COLUMNS + 2], payload + PAYLOAD_AT, head);
        to[COLUMNS + 2] += head;
    }
    made = Py_BuildValue("IOOOOOOOOO", all[found[0]].number, columns[0], columns[1], columns[2],
                         columns[3], columns[4], columns[5], columns[6], columns[7], columns[8]);
end:
    for (int k = 0; k < COLUMNS + 3; k++) Py_XDECREF(columns[k]);
    return made;
}

static int put(PyObject *list, PyObject *item) {
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed;
}

/* (run, least, most): a list. Of each `least` to `most` SENT records that have a plain
   message at the same place, a tuple of columns as above; of each other one, where it begins. */
PyObject *single_sends(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer run;
    Py_ssize_t least, most, at = 0, known = 0;
    if (!PyArg_ParseTuple(arguments, "y*nn", &run, &least, &most)) return NULL;
    const unsigned char *bytes = run.buf;
    PyObject *list = NULL;
    One *all = NULL;
    uint32_t *found = NULL;
    Py_ssize_t room = run.len / HEADER + 1;
    if (run.len > UINT32_MAX || least < 1 || most < 1) {
        PyErr_SetString(PyExc_ValueError, "a run has at most 4 GiB");
        goto end;
    }
    all = PyMem_Malloc((size_t)room * sizeof *all);
    found = PyMem_Malloc((size_t)room * sizeof *found);
    list = PyList_New(0);
    if (all == NULL || found == NULL || list == NULL) {
        PyErr_NoMemory();
        Py_CLEAR(list);
        goto end;
    }
    for (; at + HEADER <= run.len; known++) {
        uint32_t length = u32_at(bytes + at + LENGTH_AT);
        if (length > run.len - at - HEADER) break;
        all[known].at = (uint32_t)(at + HEADER);
        look_at(bytes + at + HEADER, length, all + known);
        at += HEADER + length + (8 - length % 8) % 8;
    }
    for (Py_ssize_t i = 0; i < known && list != NULL; i++) {
        if (all[i].state == GONE) continue;
        int failed = 0;
        if (all[i].state == SPECIAL) {
            failed = put(list, PyLong_FromUnsignedLong(all[i].at - HEADER));
        } else {
            Py_ssize_t chosen = together(bytes, all, known, i, most, found);
            if (chosen >= least) failed = put(list, columns_of(bytes, all, found, chosen));
            for (Py_ssize_t k = 0; k < chosen && !failed; k++) {
                all[found[k]].state = GONE;
                if (chosen < least)
                    failed = put(list, PyLong_FromUnsignedLong(all[found[k]].at - HEADER));
            }
        }
        if (failed) Py_CLEAR(list);
    }
end:
    PyMem_Free(all);
    PyMem_Free(found);
    PyBuffer_Release(&run);
    return list;
}
