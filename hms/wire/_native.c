/* The inner loops of packed_messages.py, compiled: the same results, a few times sooner.

   Optional: where this module was not built, packed_messages.py does it all in Python. Nothing is judged
   here. What does not add up is answered with None, and packed_messages.py finds out why and tells it.

   Layouts: packed_messages.py, ROW and DELIVERED_ROW; all numbers are little-endian. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

enum { ROW_BYTES = 32, ROW_FIELDS = 8, DELIVERED_BYTES = 48, DELIVERED_FIELDS = 10 };

static uint32_t u32_at(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t u64_at(const unsigned char *at) {
    return (uint64_t)u32_at(at) | (uint64_t)u32_at(at + 4) << 32;
}

/* A named tuple of `count` numbers; steals nothing. NULL with an exception when memory is out. */
static PyObject *row_of(PyTypeObject *type, const uint64_t *values, Py_ssize_t count) {
    PyObject *row = type->tp_alloc(type, count);
    if (row == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[i]);
        if (value == NULL) {
            Py_DECREF(row);
            return NULL;
        }
        PyTuple_SET_ITEM(row, i, value);
    }
    return row;
}

static int is_tuple_type(PyObject *type) {
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) return 1;
    PyErr_SetString(PyExc_TypeError, "the first argument is a type of tuples");
    return 0;
}

/* Whether `count` rows of `bytes` fit behind `offset`. */
static int fits(Py_ssize_t size, Py_ssize_t count, Py_ssize_t offset, Py_ssize_t bytes) {
    return offset >= 0 && offset <= size && count >= 0 && count <= (size - offset) / bytes;
}

static void read_row(const unsigned char *at, uint64_t *values) {
    values[0] = u32_at(at);
    values[1] = u32_at(at + 4);
    values[2] = u64_at(at + 8);
    values[3] = u64_at(at + 16);
    values[4] = at[24];
    values[5] = at[25];
    values[6] = at[26];
    values[7] = u32_at(at + 28);
}

static PyObject *rows_in(PyTypeObject *type, const Py_buffer *pack, Py_ssize_t count,
                         Py_ssize_t offset) {
    PyObject *rows = PyList_New(count);
    if (rows == NULL) return NULL;
    const unsigned char *at = (const unsigned char *)pack->buf + offset;
    uint64_t left = (uint64_t)(pack->len - offset - count * ROW_BYTES), values[ROW_FIELDS];
    for (Py_ssize_t i = 0; i < count; i++, at += ROW_BYTES) {
        read_row(at, values);
        uint64_t size = values[0] + values[1];
        PyObject *row = size > left ? NULL : row_of(type, values, ROW_FIELDS);
        if (row == NULL) {
            Py_DECREF(rows);
            if (PyErr_Occurred()) return NULL;
            Py_RETURN_NONE;
        }
        left -= size;
        PyList_SET_ITEM(rows, i, row);
    }
    if (left == 0) return rows;
    Py_DECREF(rows);
    Py_RETURN_NONE;
}

static PyObject *unpack_rows(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *type, *result = NULL;
    Py_buffer pack;
    Py_ssize_t count, offset = 0;
    if (!PyArg_ParseTuple(arguments, "Oy*n|n", &type, &pack, &count, &offset)) return NULL;
    if (is_tuple_type(type)) {
        if (count >= 1 && fits(pack.len, count, offset, ROW_BYTES)) {
            result = rows_in((PyTypeObject *)type, &pack, count, offset);
        } else {
            result = Py_NewRef(Py_None);
        }
    }
    PyBuffer_Release(&pack);
    return result;
}

/* Head and body of each row, as one `bytes`; None when they are not all there. */
static PyObject *payloads_in(const Py_buffer *pack, PyObject *rows, Py_ssize_t offset) {
    Py_ssize_t count = PySequence_Fast_GET_SIZE(rows);
    if (!fits(pack->len, count, offset, ROW_BYTES)) Py_RETURN_NONE;
    PyObject *payloads = PyList_New(count);
    if (payloads == NULL) return NULL;
    const char *at = (const char *)pack->buf + offset + count * ROW_BYTES;
    Py_ssize_t left = pack->len - offset - count * ROW_BYTES;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *row = PySequence_Fast_GET_ITEM(rows, i), *payload = NULL;
        if (PyTuple_Check(row) && PyTuple_GET_SIZE(row) >= 2) {
            Py_ssize_t head = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 0));
            Py_ssize_t body = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 1));
            if (!PyErr_Occurred() && head >= 0 && body >= 0 && head <= left && body <= left - head) {
                payload = PyBytes_FromStringAndSize(at, head + body);
                at += head + body;
                left -= head + body;
            }
        }
        if (payload == NULL) {
            Py_DECREF(payloads);
            if (PyErr_Occurred()) return NULL;
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(payloads, i, payload);
    }
    return payloads;
}

static PyObject *slice_payloads(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *rows;
    Py_buffer pack;
    Py_ssize_t offset = 0;
    if (!PyArg_ParseTuple(arguments, "y*O|n", &pack, &rows, &offset)) return NULL;
    PyObject *list = PySequence_Fast(rows, "rows are a sequence");
    PyObject *result = list == NULL ? NULL : payloads_in(&pack, list, offset);
    Py_XDECREF(list);
    PyBuffer_Release(&pack);
    return result;
}

/* (row, head, body) of one delivered message. */
static PyObject *delivered_one(PyTypeObject *type, const unsigned char *at, const char *payload) {
    uint64_t values[DELIVERED_FIELDS] = {
        u64_at(at),      u64_at(at + 8),  u64_at(at + 16), u32_at(at + 24), u32_at(at + 28),
        u32_at(at + 32), at[36],          at[37],          at[38],         u64_at(at + 40),
    };
    PyObject *one = PyTuple_New(3);
    if (one == NULL) return NULL;
    PyObject *row = row_of(type, values, DELIVERED_FIELDS);
    PyObject *head = PyBytes_FromStringAndSize(payload, (Py_ssize_t)values[4]);
    PyObject *body = PyBytes_FromStringAndSize(payload + values[4], (Py_ssize_t)values[5]);
    if (row == NULL || head == NULL || body == NULL) {
        Py_XDECREF(row);
        Py_XDECREF(head);
        Py_XDECREF(body);
        Py_DECREF(one);
        return NULL;
    }
    PyTuple_SET_ITEM(one, 0, row);
    PyTuple_SET_ITEM(one, 1, head);
    PyTuple_SET_ITEM(one, 2, body);
    return one;
}

static PyObject *delivered_in(PyTypeObject *type, const Py_buffer *pack, Py_ssize_t count,
                              Py_ssize_t offset) {
    PyObject *found = PyList_New(count);
    if (found == NULL) return NULL;
    const unsigned char *at = (const unsigned char *)pack->buf + offset;
    const char *payload = (const char *)at + count * DELIVERED_BYTES;
    uint64_t left = (uint64_t)(pack->len - offset - count * DELIVERED_BYTES);
    for (Py_ssize_t i = 0; i < count; i++, at += DELIVERED_BYTES) {
        uint64_t size = (uint64_t)u32_at(at + 28) + u32_at(at + 32);
        PyObject *one = size > left ? NULL : delivered_one(type, at, payload);
        if (one == NULL) {
            Py_DECREF(found);
            if (PyErr_Occurred()) return NULL;
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(found, i, one);
        payload += size;
        left -= size;
    }
    if (left == 0) return found;
    Py_DECREF(found);
    Py_RETURN_NONE;
}

static PyObject *unpack_delivered(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *type, *result = NULL;
    Py_buffer pack;
    Py_ssize_t count, offset = 0;
    if (!PyArg_ParseTuple(arguments, "Oy*n|n", &type, &pack, &count, &offset)) return NULL;
    if (is_tuple_type(type)) {
        if (fits(pack.len, count, offset, DELIVERED_BYTES)) {
            result = delivered_in((PyTypeObject *)type, &pack, count, offset);
        } else {
            result = Py_NewRef(Py_None);
        }
    }
    PyBuffer_Release(&pack);
    return result;
}

/* (magic "HM", version 1, kind, correlation, count, size) and the payload: frames.py, ENVELOPE. */
enum { ENVELOPE_BYTES = 16 };

static void put_u32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

/* frame(kind, payload, correlation, count): [envelope, payload]; None when a number is too large. */
static PyObject *frame(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    unsigned long long numbers[3] = {0, 0, 1}; /* kind, correlation, count */
    PyObject *payload = given > 1 ? Py_NewRef(arguments[1]) : PyBytes_FromStringAndSize(NULL, 0);
    if (payload == NULL) return NULL;
    int is_fit = given >= 1 && given <= 4;
    for (Py_ssize_t i = 0; is_fit && i < given; i++) {
        if (i == 1) continue;
        int at = i == 0 ? 0 : (int)i - 1;
        numbers[at] = PyLong_Check(arguments[i]) ? PyLong_AsUnsignedLongLong(arguments[i]) : ~0ULL;
        PyErr_Clear();
        is_fit = numbers[at] <= (at == 0 ? 0xFF : 0xFFFFFFFF);
    }
    Py_ssize_t size = PyObject_Size(payload);
    PyErr_Clear();
    PyObject *head = NULL, *made = NULL;
    if (is_fit && size >= 0 && size <= (Py_ssize_t)0xFFFFFFFF) {
        head = PyBytes_FromStringAndSize(NULL, ENVELOPE_BYTES);
        made = head == NULL ? NULL : PyList_New(2);
        if (made == NULL) {
            Py_XDECREF(head);
            Py_DECREF(payload);
            return NULL;
        }
        unsigned char *at = (unsigned char *)PyBytes_AS_STRING(head);
        at[0] = 'H', at[1] = 'M', at[2] = 1, at[3] = (unsigned char)numbers[0];
        put_u32(at + 4, (uint32_t)numbers[1]);
        put_u32(at + 8, (uint32_t)numbers[2]);
        put_u32(at + 12, (uint32_t)size);
        PyList_SET_ITEM(made, 0, head);
        PyList_SET_ITEM(made, 1, payload);
        return made;
    }
    Py_DECREF(payload);
    Py_RETURN_NONE;
}

/* envelope(type, kinds, parts, bytes_max, kinds): what the first part says, or None when anything
   is wrong with the frame. The last kinds, where given, are used instead of the first. */
static PyObject *envelope(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (given < 4 || given > 5) Py_RETURN_NONE;
    PyObject *kinds = arguments[given == 5 ? 4 : 1], *list = arguments[2], **parts;
    if (!(PyList_Check(list) || PyTuple_Check(list)) || PySequence_Fast_GET_SIZE(list) != 2 ||
        !PyDict_Check(kinds)) {
        Py_RETURN_NONE;
    }
    parts = PySequence_Fast_ITEMS(list);
    Py_ssize_t size = PyObject_Size(parts[1]), bytes_max = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) PyErr_Clear(), size = -1;
    if (size < 0 || size > bytes_max || !PyBytes_Check(parts[0]) ||
        PyBytes_GET_SIZE(parts[0]) != ENVELOPE_BYTES) {
        Py_RETURN_NONE;
    }
    const unsigned char *at = (const unsigned char *)PyBytes_AS_STRING(parts[0]);
    if (at[0] != 'H' || at[1] != 'M' || at[2] != 1 || u32_at(at + 12) != (uint64_t)size) {
        Py_RETURN_NONE;
    }
    PyObject *code = PyLong_FromLong(at[3]);
    PyObject *kind = code == NULL ? NULL : PyDict_GetItemWithError(kinds, code); /* borrowed */
    Py_XDECREF(code);
    if (kind == NULL) {
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NONE;
    }
    PyObject *fields[4] = {
        kind,
        PyLong_FromUnsignedLong(u32_at(at + 4)),
        PyLong_FromUnsignedLong(u32_at(at + 8)),
        PyLong_FromSsize_t(size),
    };
    PyObject *made = NULL;
    if (fields[1] != NULL && fields[2] != NULL && fields[3] != NULL) {
        made = PyObject_Vectorcall(arguments[0], fields, 4, NULL);
    }
    for (int i = 1; i < 4; i++) Py_XDECREF(fields[i]);
    return made;
}

/* A function that asks another one for what the first answers with None. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *first, *other;
} Either;

static PyObject *either_call(PyObject *self, PyObject *const *arguments, size_t given,
                             PyObject *names) {
    Either *both = (Either *)self;
    if (names == NULL || PyTuple_GET_SIZE(names) == 0) {
        PyObject *found = PyObject_Vectorcall(both->first, arguments, given, NULL);
        if (found != Py_None) return found;
        Py_DECREF(found);
    }
    return PyObject_Vectorcall(both->other, arguments, given, names);
}

static void either_end(PyObject *self) {
    Py_CLEAR(((Either *)self)->first);
    Py_CLEAR(((Either *)self)->other);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject either_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hms.wire._native.Either",
    .tp_basicsize = sizeof(Either),
    .tp_dealloc = either_end,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Either, call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
};

static PyObject *either(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "either takes two functions");
        return NULL;
    }
    Either *made = PyObject_New(Either, &either_type);
    if (made == NULL) return NULL;
    made->call = either_call;
    made->first = Py_NewRef(arguments[0]);
    made->other = Py_NewRef(arguments[1]);
    return (PyObject *)made;
}

/* In _native_columns.c. */
PyObject *message_columns(PyObject *self, PyObject *arguments);

/* In _native_log.c. */
PyObject *records_of(PyObject *self, PyObject *arguments);
PyObject *single_sends(PyObject *self, PyObject *arguments);
PyObject *crc32(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
void prepare_checksums(void);

static PyMethodDef methods[] = {
    {"unpack_rows", unpack_rows, METH_VARARGS, "(type, pack, count, offset): rows, or None."},
    {"slice_payloads", slice_payloads, METH_VARARGS, "(pack, rows, offset): payloads, or None."},
    {"unpack_delivered", unpack_delivered, METH_VARARGS,
     "(type, pack, count, offset): (row, head, body) of each, or None."},
    {"frame", (PyCFunction)(void (*)(void))frame, METH_FASTCALL,
     "(kind, payload, correlation, count): envelope and payload, or None."},
    {"envelope", (PyCFunction)(void (*)(void))envelope, METH_FASTCALL,
     "(type, kinds, parts, bytes_max, kinds): the envelope of a frame, or None."},
    {"either", (PyCFunction)(void (*)(void))either, METH_FASTCALL,
     "(first, other): a function that asks other for what first answers with None."},
    {"message_columns", message_columns, METH_VARARGS,
     "(runs, wanted, fields_of): rows, and the buffers of each wanted column, or None."},
    {"records_of", records_of, METH_VARARGS,
     "(view, at, lsn, lsn_max, salt, kind): how many verify, their end, the last batch, is_cut."},
    {"single_sends", single_sends, METH_VARARGS,
     "(run, least, most): columns of plain messages, and where other records begin."},
    {"crc32", (PyCFunction)(void (*)(void))crc32, METH_FASTCALL, "(data, start): zlib's crc32."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "The inner loops of packing.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    prepare_checksums();
    if (PyType_Ready(&either_type) < 0) return NULL;
    return PyModule_Create(&module);
}
