/* Handles. They count up and are never used twice, so a handle kept too long names nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"

static const CUhandle HANDLE_BASE = 0xC0DA0000000ull; /* nothing is mapped there */
static const CUhandle HANDLE_STEP = 64;

static struct object **table;
static size_t table_size;
static CUhandle table_first; /* the handle of table[0] */

void *fresh(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (memory == NULL) {
        fputs("ticksim: no memory left on the host\n", stderr);
        abort();
    }
    return memory;
}

void append(void **array, size_t *count, size_t item_bytes, const void *item) {
    if ((*count & (*count - 1)) == 0) { /* full: sizes are powers of two */
        void *larger = realloc(*array, (*count ? *count * 2 : 1) * item_bytes);
        if (larger == NULL) abort();
        *array = larger;
    }
    memcpy((char *)*array + *count * item_bytes, item, item_bytes);
    ++*count;
}

CUhandle object_add(struct object *object, enum kind kind) {
    if (table_first == 0) table_first = HANDLE_BASE;
    object->handle = table_first + table_size * HANDLE_STEP;
    object->kind = kind;
    append((void **)&table, &table_size, sizeof *table, &object);
    return object->handle;
}

void *object_get(CUhandle handle, enum kind kind) {
    if (handle < table_first || (handle - table_first) % HANDLE_STEP != 0) return NULL;
    size_t index = (handle - table_first) / HANDLE_STEP;
    struct object *object = index < table_size ? table[index] : NULL;
    return object != NULL && object->kind == kind ? object : NULL;
}

void *object_next(enum kind kind, CUhandle after) {
    for (size_t i = after ? (after - table_first) / HANDLE_STEP + 1 : 0; i < table_size; i++)
        if (table[i] != NULL && table[i]->kind == kind) return table[i];
    return NULL;
}

void object_drop(struct object *object) {
    table[(object->handle - table_first) / HANDLE_STEP] = NULL;
    free(object);
}

void objects_clear(void) {
    table_first = (table_first ? table_first : HANDLE_BASE) + table_size * HANDLE_STEP;
    free(table);
    table = NULL;
    table_size = 0;
}
