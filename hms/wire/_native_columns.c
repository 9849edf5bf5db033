/* Messages of packs as the buffers of Arrow arrays, for hms/history/message_arrays.py.

   Only what every head says in the usual way is read here. Whatever else stands in one, the function
   that the caller gives is asked for its fields, so that one place knows what they are. Packs that do
   not add up are answered with None. Layouts: packed_messages.py, ROW and Head. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { ROW_BYTES = 32, HEAD_BYTES_MAX = 64 * 1024, PROPERTIES_MAX = 64 };
enum { HEAD, BODY, TEXTS, BLOBS = TEXTS + 3 };
enum { ALL, STRINGS, LONGS, DOUBLES, BOOLEANS, MAPS };
/* What a property is; ALL and BYTES have no map of their own, BIG is above what a long holds. */
enum { OF_STRING = STRINGS, OF_LONG = LONGS, OF_DOUBLE = DOUBLES, OF_BOOLEAN = BOOLEANS, BIG, BYTES };

/* ---- buffers: bytes that grow */

typedef struct {
    PyObject *bytes;
    Py_ssize_t size;
} Buffer;

/* Where the next `more` bytes go; NULL with an exception. */
static char *room(Buffer *buffer, Py_ssize_t more) {
    Py_ssize_t known = buffer->bytes == NULL ? 0 : PyBytes_GET_SIZE(buffer->bytes);
    if (more > INT32_MAX - buffer->size) {
        PyErr_SetString(PyExc_OverflowError, "a batch holds 2 GiB of one column");
        return NULL;
    }
    if (buffer->bytes == NULL || buffer->size + more > known) {
        Py_ssize_t wanted = 2 * (buffer->size + more) + 256;
        if (buffer->bytes == NULL) {
            buffer->bytes = PyBytes_FromStringAndSize(NULL, wanted);
        } else {
            _PyBytes_Resize(&buffer->bytes, wanted);
        }
        if (buffer->bytes == NULL) return NULL;
    }
    char *at = PyBytes_AS_STRING(buffer->bytes) + buffer->size;
    buffer->size += more;
    return at;
}

static int put(Buffer *buffer, const void *data, Py_ssize_t size) {
    char *at = room(buffer, size);
    if (at == NULL) return 0;
    memcpy(at, data, (size_t)size);
    return 1;
}

static int put_offset(Buffer *buffer, Py_ssize_t offset) {
    int32_t value = (int32_t)offset;
    return put(buffer, &value, sizeof value);
}

/* Hands the bytes over. */
static PyObject *taken(Buffer *buffer) {
    if (buffer->bytes == NULL) return PyBytes_FromStringAndSize(NULL, 0);
    _PyBytes_Resize(&buffer->bytes, buffer->size);
    PyObject *bytes = buffer->bytes;
    buffer->bytes = NULL;
    return bytes;
}

/* A bit for each byte. */
static PyObject *taken_bits(Buffer *flags) {
    PyObject *bits = PyBytes_FromStringAndSize(NULL, (flags->size + 7) / 8);
    if (bits == NULL || flags->size == 0) return bits;
    char *into = PyBytes_AS_STRING(bits), *from = PyBytes_AS_STRING(flags->bytes);
    memset(into, 0, (size_t)PyBytes_GET_SIZE(bits));
    for (Py_ssize_t i = 0; i < flags->size; i++) into[i >> 3] |= (char)(from[i] << (i & 7));
    return bits;
}

/* ---- columns */

typedef struct {
    int is_wanted;
    Py_ssize_t nulls;
    Buffer valid, offsets, data;
} Blobs;

typedef struct {
    int is_wanted;
    Py_ssize_t nulls, pairs;
    Buffer valid, offsets, numbers;
    Blobs keys, texts;
} Map;

typedef struct {
    Buffer rows;
    Blobs blobs[BLOBS];
    Map maps[MAPS];
    int reads_heads;
    PyObject *fields_of;
} Batch;

typedef struct {
    const char *at;
    Py_ssize_t size;
} Slice;

static int put_valid(Buffer *valid, Py_ssize_t *nulls, int is_valid) {
    char flag = (char)is_valid;
    *nulls += !is_valid;
    return put(valid, &flag, 1);
}

/* A value of a column, or null. */
static int add_blob(Blobs *blobs, const char *data, Py_ssize_t size, int is_valid) {
    if (!blobs->is_wanted) return 1;
    return put_valid(&blobs->valid, &blobs->nulls, is_valid) && put(&blobs->data, data, size) &&
           put_offset(&blobs->offsets, blobs->data.size);
}

static int add_item(Blobs *items, const char *data, Py_ssize_t size) {
    return put(&items->data, data, size) && put_offset(&items->offsets, items->data.size);
}

static int end_map(Map *map, int is_valid) {
    if (!map->is_wanted) return 1;
    return put_valid(&map->valid, &map->nulls, is_valid) && put_offset(&map->offsets, map->pairs);
}

static int add_key(Map *map, Slice key) {
    map->pairs++;
    return add_item(&map->keys, key.at, key.size);
}

static int add_text(Map *map, Slice key, const char *data, Py_ssize_t size) {
    return !map->is_wanted || (add_key(map, key) && add_item(&map->texts, data, size));
}

static int add_number(Map *map, Slice key, const void *data, Py_ssize_t size) {
    return !map->is_wanted || (add_key(map, key) && put(&map->numbers, data, size));
}

/* A row without fields: of an event that has no message, or of a head that nobody can read. */
static int add_nothing(Batch *batch) {
    for (int i = TEXTS; i < BLOBS; i++)
        if (!add_blob(&batch->blobs[i], "", 0, 0)) return 0;
    for (int i = 0; i < MAPS; i++)
        if (!end_map(&batch->maps[i], 0)) return 0;
    return 1;
}

/* ---- heads, as msgpack */

typedef struct {
    Slice name, text;
    int kind;
    int64_t whole;
    double real;
} Property;

typedef struct {
    Slice texts[3];
    int count;
    Property properties[PROPERTIES_MAX];
} Fields;

typedef struct {
    const unsigned char *at, *end;
} Cursor;

/* A big-endian number of `bytes`. */
static int read_number(Cursor *cursor, int bytes, uint64_t *value) {
    if (cursor->end - cursor->at < bytes) return 0;
    *value = 0;
    while (bytes--) *value = *value << 8 | *cursor->at++;
    return 1;
}

static int read_slice(Cursor *cursor, int bytes, Slice *slice) {
    uint64_t size;
    if (!read_number(cursor, bytes, &size) || size > (uint64_t)(cursor->end - cursor->at)) return 0;
    *slice = (Slice){(const char *)cursor->at, (Py_ssize_t)size};
    cursor->at += size;
    return 1;
}

static int is_utf8(Slice text) {
    Py_ssize_t i = 0;
    while (i < text.size && (unsigned char)text.at[i] < 0x80) i++;
    if (i == text.size) return 1;
    PyObject *decoded = PyUnicode_DecodeUTF8(text.at, text.size, NULL);
    if (decoded == NULL) PyErr_Clear();
    Py_XDECREF(decoded);
    return decoded != NULL;
}

static int read_text(Cursor *cursor, Slice *text) {
    if (cursor->at == cursor->end) return 0;
    unsigned char code = *cursor->at++;
    if (code >= 0xa0 && code <= 0xbf) {
        Py_ssize_t size = code & 31;
        if (size > cursor->end - cursor->at) return 0;
        *text = (Slice){(const char *)cursor->at, size};
        cursor->at += size;
    } else if (code < 0xd9 || code > 0xdb || !read_slice(cursor, 1 << (code - 0xd9), text)) {
        return 0;
    }
    return is_utf8(*text);
}

static int read_text_or_none(Cursor *cursor, Slice *text) {
    if (cursor->at < cursor->end && *cursor->at == 0xc0) {
        cursor->at++;
        return 1;
    }
    return read_text(cursor, text);
}

static int read_bytes(Cursor *cursor, Slice *data) {
    if (cursor->at == cursor->end || *cursor->at < 0xc4 || *cursor->at > 0xc6) return 0;
    int bytes = 1 << (*cursor->at++ - 0xc4);
    return read_slice(cursor, bytes, data);
}

static int read_real(Cursor *cursor, int bytes, double *real) {
    uint64_t bits;
    if (!read_number(cursor, bytes, &bits)) return 0;
    if (bytes == 8) {
        memcpy(real, &bits, sizeof *real);
    } else {
        uint32_t low = (uint32_t)bits;
        float value;
        memcpy(&value, &low, sizeof value);
        *real = value;
    }
    return 1;
}

static int read_whole(Cursor *cursor, unsigned char code, Property *found) {
    int bytes = 1 << (code & 3);
    uint64_t value;
    if (!read_number(cursor, bytes, &value)) return 0;
    if (code >= 0xd0 && bytes < 8 && value >> (8 * bytes - 1)) value |= UINT64_MAX << (8 * bytes);
    found->kind = code < 0xd0 && value > INT64_MAX ? BIG : OF_LONG;
    memcpy(&found->whole, &value, sizeof value);
    return 1;
}

static int read_property(Cursor *cursor, Property *found) {
    if (!read_text(cursor, &found->name) || cursor->at == cursor->end) return 0;
    unsigned char code = *cursor->at;
    if ((code >= 0xa0 && code <= 0xbf) || (code >= 0xd9 && code <= 0xdb)) {
        found->kind = OF_STRING;
        return read_text(cursor, &found->text);
    }
    if (code >= 0xc4 && code <= 0xc6) {
        found->kind = BYTES;
        return read_bytes(cursor, &found->text);
    }
    cursor->at++;
    if (code <= 0x7f || code >= 0xe0) {
        found->kind = OF_LONG;
        found->whole = code <= 0x7f ? code : (int64_t)code - 256;
        return 1;
    }
    if (code == 0xc2 || code == 0xc3) {
        found->kind = OF_BOOLEAN;
        found->whole = code & 1;
        return 1;
    }
    if (code == 0xca || code == 0xcb) {
        found->kind = OF_DOUBLE;
        return read_real(cursor, code == 0xca ? 4 : 8, &found->real);
    }
    return code >= 0xcc && code <= 0xd3 && read_whole(cursor, code, found);
}

/* No name twice: in Python the later value would take the earlier one's place. */
static int is_new(const Fields *fields, Slice name) {
    for (int i = 0; i < fields->count; i++) {
        Slice other = fields->properties[i].name;
        if (other.size == name.size && !memcmp(other.at, name.at, (size_t)name.size)) return 0;
    }
    return 1;
}

static int read_properties(Cursor *cursor, Fields *fields) {
    if (cursor->at == cursor->end) return 0;
    unsigned char code = *cursor->at++;
    uint64_t count = code & 15;
    if (code >= 0xde && code <= 0xdf) {
        if (!read_number(cursor, code == 0xde ? 2 : 4, &count)) return 0;
    } else if (code < 0x80 || code > 0x8f) {
        return 0;
    }
    if (count > (uint64_t)(PROPERTIES_MAX - fields->count)) return 0;
    while (count--) {
        Property *found = &fields->properties[fields->count];
        if (!read_property(cursor, found) || !is_new(fields, found->name)) return 0;
        fields->count++;
    }
    return 1;
}

/* The fields of an ordinary head; 0 for any other. */
static int read_head(Slice head, Fields *fields) {
    Cursor cursor = {(const unsigned char *)head.at, (const unsigned char *)head.at + head.size};
    Slice types;
    memset(fields->texts, 0, sizeof fields->texts);
    fields->count = 0;
    return *cursor.at++ == 0x96 && read_properties(&cursor, fields) && read_bytes(&cursor, &types) &&
           read_text_or_none(&cursor, &fields->texts[0]) &&
           read_text_or_none(&cursor, &fields->texts[1]) &&
           read_text_or_none(&cursor, &fields->texts[2]) && read_properties(&cursor, fields) &&
           cursor.at == cursor.end;
}

/* ---- from heads to columns */

static int add_whole_text(Map *map, const Property *property) {
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = (uint64_t)property->whole;
    int is_negative = property->kind != BIG && property->whole < 0;
    if (is_negative) left = 0 - left;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (is_negative) *--at = '-';
    return add_text(map, property->name, at, digits + sizeof digits - at);
}

static int add_real_text(Map *map, const Property *property) {
    char *text = PyOS_double_to_string(property->real, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (text == NULL) return 0;
    int is_added = add_text(map, property->name, text, (Py_ssize_t)strlen(text));
    PyMem_Free(text);
    return is_added;
}

static int add_hex_text(Map *map, const Property *property) {
    if (!add_key(map, property->name)) return 0;
    char *into = room(&map->texts.data, 2 * property->text.size);
    if (into == NULL) return 0;
    for (Py_ssize_t i = 0; i < property->text.size; i++) {
        unsigned char byte = (unsigned char)property->text.at[i];
        *into++ = "0123456789abcdef"[byte >> 4];
        *into++ = "0123456789abcdef"[byte & 15];
    }
    return put_offset(&map->texts.offsets, map->texts.data.size);
}

static int add_as_text(Map *map, const Property *property) {
    if (!map->is_wanted) return 1;
    switch (property->kind) {
        case OF_STRING:
            return add_text(map, property->name, property->text.at, property->text.size);
        case OF_DOUBLE:
            return add_real_text(map, property);
        case OF_BOOLEAN:
            return property->whole ? add_text(map, property->name, "true", 4)
                                   : add_text(map, property->name, "false", 5);
        case BYTES:
            return add_hex_text(map, property);
        default:
            return add_whole_text(map, property);
    }
}

static int add_property(Map *maps, const Property *property) {
    Map *own = &maps[property->kind < MAPS ? property->kind : ALL];
    char flag = (char)property->whole;
    if (!add_as_text(&maps[ALL], property)) return 0;
    switch (property->kind) {
        case OF_STRING:
            return add_text(own, property->name, property->text.at, property->text.size);
        case OF_LONG:
            return add_number(own, property->name, &property->whole, sizeof property->whole);
        case OF_DOUBLE:
            return add_number(own, property->name, &property->real, sizeof property->real);
        case OF_BOOLEAN:
            return add_number(own, property->name, &flag, 1);
        default:
            return 1;
    }
}

static int add_fields(Batch *batch, const Fields *fields) {
    for (int i = 0; i < 3; i++) {
        Slice text = fields->texts[i];
        const char *at = text.at == NULL ? "" : text.at;
        if (!add_blob(&batch->blobs[TEXTS + i], at, text.size, text.at != NULL)) return 0;
    }
    for (int i = 0; i < fields->count; i++)
        if (!add_property(batch->maps, &fields->properties[i])) return 0;
    for (int i = 0; i < MAPS; i++)
        if (!end_map(&batch->maps[i], 1)) return 0;
    return 1;
}

/* ---- the same of what the caller's function found */

static int text_of(PyObject *value, Slice *text) {
    text->at = PyUnicode_AsUTF8AndSize(value, &text->size);
    return text->at != NULL;
}

static int add_told_pair(Map *map, int kind, PyObject *name, PyObject *value) {
    Slice key, text;
    if (!text_of(name, &key)) return 0;
    if (kind == LONGS) {
        long long whole = PyLong_AsLongLong(value);
        return !PyErr_Occurred() && add_number(map, key, &whole, 8);
    }
    if (kind == DOUBLES) {
        double real = PyFloat_AsDouble(value);
        return !PyErr_Occurred() && add_number(map, key, &real, 8);
    }
    if (kind == BOOLEANS) {
        char flag = value == Py_True;
        return add_number(map, key, &flag, 1);
    }
    return text_of(value, &text) && add_text(map, key, text.at, text.size);
}

static int add_told_map(Map *map, int kind, PyObject *pairs) {
    PyObject *name, *value;
    Py_ssize_t place = 0;
    if (pairs == Py_None) return end_map(map, 0);
    if (!PyDict_Check(pairs)) {
        PyErr_SetString(PyExc_TypeError, "properties are a dict");
        return 0;
    }
    while (PyDict_Next(pairs, &place, &name, &value))
        if (!add_told_pair(map, kind, name, value)) return 0;
    return end_map(map, 1);
}

static int add_told(Batch *batch, PyObject *told) {
    if (!PyTuple_Check(told) || PyTuple_GET_SIZE(told) != 3 + MAPS) {
        PyErr_SetString(PyExc_TypeError, "the fields of a head are a tuple of eight");
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        PyObject *value = PyTuple_GET_ITEM(told, i);
        Slice text = {"", 0};
        if (value != Py_None && !text_of(value, &text)) return 0;
        if (!add_blob(&batch->blobs[TEXTS + i], text.at, text.size, value != Py_None)) return 0;
    }
    for (int i = 0; i < MAPS; i++)
        if (!add_told_map(&batch->maps[i], i, PyTuple_GET_ITEM(told, 3 + i))) return 0;
    return 1;
}

static int add_head(Batch *batch, Slice head) {
    Fields fields;
    if (head.size && head.size <= HEAD_BYTES_MAX && read_head(head, &fields))
        return add_fields(batch, &fields);
    PyObject *bytes = PyBytes_FromStringAndSize(head.at, head.size);
    PyObject *told = bytes == NULL ? NULL : PyObject_CallOneArg(batch->fields_of, bytes);
    int is_added = told != NULL && add_told(batch, told);
    Py_XDECREF(told);
    Py_XDECREF(bytes);
    return is_added;
}

/* ---- packs */

static uint32_t u32_at(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Rows of events without a message. */
static int add_empty(Batch *batch, Py_ssize_t size) {
    if (size < 0 || size > INT32_MAX / ROW_BYTES) {
        PyErr_SetString(PyExc_OverflowError, "a run holds too many events");
        return 0;
    }
    char *rows = room(&batch->rows, size * ROW_BYTES);
    if (rows == NULL) return 0;
    memset(rows, 0, (size_t)(size * ROW_BYTES));
    while (size--) {
        if (!add_blob(&batch->blobs[HEAD], "", 0, 0) || !add_blob(&batch->blobs[BODY], "", 0, 0) ||
            !add_nothing(batch))
            return 0;
    }
    return 1;
}

/* 1, 0 with an exception, or -1 when the pack does not add up. */
static int add_pack(Batch *batch, const Py_buffer *pack, Py_ssize_t count, Py_ssize_t skipped,
                    Py_ssize_t size) {
    if (count < 1 || count > pack->len / ROW_BYTES || skipped < 0 || size < 0 ||
        skipped > count || size > count - skipped)
        return -1;
    const unsigned char *row = (const unsigned char *)pack->buf;
    const char *at = (const char *)row + count * ROW_BYTES;
    uint64_t left = (uint64_t)(pack->len - count * ROW_BYTES);
    if (!put(&batch->rows, row + skipped * ROW_BYTES, size * ROW_BYTES)) return 0;
    for (Py_ssize_t i = 0; i < count; i++, row += ROW_BYTES) {
        uint32_t head = u32_at(row), body = u32_at(row + 4);
        if ((uint64_t)head + body > left) return -1;
        left -= (uint64_t)head + body;
        if (i >= skipped && i < skipped + size) {
            Slice slice = {at, head};
            if (!add_blob(&batch->blobs[HEAD], at, head, 1) ||
                !add_blob(&batch->blobs[BODY], at + head, body, 1) ||
                (batch->reads_heads && !add_head(batch, slice)))
                return 0;
        }
        at += (uint64_t)head + body;
    }
    return left == 0 ? 1 : -1;
}

static int add_run(Batch *batch, PyObject *run) {
    PyObject *pack;
    Py_ssize_t count, skipped, size;
    if (!PyTuple_Check(run)) {
        PyErr_SetString(PyExc_TypeError, "a run is (pack, count, skipped, size)");
        return 0;
    }
    if (!PyArg_ParseTuple(run, "Onnn", &pack, &count, &skipped, &size)) return 0;
    if (pack == Py_None) return add_empty(batch, size);
    Py_buffer view;
    if (PyObject_GetBuffer(pack, &view, PyBUF_SIMPLE) < 0) return 0;
    int is_added = add_pack(batch, &view, count, skipped, size);
    PyBuffer_Release(&view);
    return is_added;
}

/* ---- what comes out */

static PyObject *valid_bits(Buffer *valid, Py_ssize_t nulls) {
    return nulls ? taken_bits(valid) : Py_NewRef(Py_None);
}

static PyObject *blobs_of(Blobs *blobs) {
    if (!blobs->is_wanted) Py_RETURN_NONE;
    PyObject *valid = valid_bits(&blobs->valid, blobs->nulls);
    return Py_BuildValue("(NNN)", valid, taken(&blobs->offsets), taken(&blobs->data));
}

static PyObject *map_of(Map *map, int kind) {
    if (!map->is_wanted) Py_RETURN_NONE;
    PyObject *valid = valid_bits(&map->valid, map->nulls), *offsets = taken(&map->offsets);
    PyObject *keys = taken(&map->keys.offsets), *key_data = taken(&map->keys.data);
    if (kind == ALL || kind == STRINGS) {
        PyObject *texts = taken(&map->texts.offsets), *data = taken(&map->texts.data);
        return Py_BuildValue("(NNNNNN)", valid, offsets, keys, key_data, texts, data);
    }
    PyObject *numbers = kind == BOOLEANS ? taken_bits(&map->numbers) : taken(&map->numbers);
    return Py_BuildValue("(NNNNN)", valid, offsets, keys, key_data, numbers);
}

static PyObject *columns_of(Batch *batch) {
    PyObject *found = PyTuple_New(1 + BLOBS + MAPS);
    if (found == NULL) return NULL;
    PyTuple_SET_ITEM(found, 0, taken(&batch->rows));
    for (int i = 0; i < BLOBS; i++) PyTuple_SET_ITEM(found, 1 + i, blobs_of(&batch->blobs[i]));
    for (int i = 0; i < MAPS; i++)
        PyTuple_SET_ITEM(found, 1 + BLOBS + i, map_of(&batch->maps[i], i));
    for (int i = 0; i < 1 + BLOBS + MAPS; i++) {
        if (PyTuple_GET_ITEM(found, i) == NULL) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

static void forget_blobs(Blobs *blobs) {
    Py_XDECREF(blobs->valid.bytes);
    Py_XDECREF(blobs->offsets.bytes);
    Py_XDECREF(blobs->data.bytes);
}

static void forget(Batch *batch) {
    Py_XDECREF(batch->rows.bytes);
    for (int i = 0; i < BLOBS; i++) forget_blobs(&batch->blobs[i]);
    for (int i = 0; i < MAPS; i++) {
        Map *map = &batch->maps[i];
        Py_XDECREF(map->valid.bytes);
        Py_XDECREF(map->offsets.bytes);
        Py_XDECREF(map->numbers.bytes);
        forget_blobs(&map->keys);
        forget_blobs(&map->texts);
    }
}

static int begin(Batch *batch, unsigned int wanted) {
    for (int i = 0; i < BLOBS; i++) {
        batch->blobs[i].is_wanted = wanted >> i & 1;
        if (!put_offset(&batch->blobs[i].offsets, 0)) return 0;
    }
    for (int i = 0; i < MAPS; i++) {
        Map *map = &batch->maps[i];
        map->is_wanted = wanted >> (BLOBS + i) & 1;
        if (!put_offset(&map->offsets, 0) || !put_offset(&map->keys.offsets, 0) ||
            !put_offset(&map->texts.offsets, 0))
            return 0;
    }
    batch->reads_heads = wanted >> TEXTS != 0;
    return 1;
}

PyObject *message_columns(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *runs, *fields_of, *result = NULL;
    unsigned int wanted;
    if (!PyArg_ParseTuple(arguments, "OIO", &runs, &wanted, &fields_of)) return NULL;
    PyObject *list = PySequence_Fast(runs, "runs are a sequence");
    if (list == NULL) return NULL;
    Batch batch = {.fields_of = fields_of};
    int is_added = begin(&batch, wanted);
    for (Py_ssize_t i = 0; is_added == 1 && i < PySequence_Fast_GET_SIZE(list); i++)
        is_added = add_run(&batch, PySequence_Fast_GET_ITEM(list, i));
    if (is_added == 1) result = columns_of(&batch);
    if (is_added == -1) result = Py_NewRef(Py_None);
    forget(&batch);
    Py_DECREF(list);
    return result;
}
