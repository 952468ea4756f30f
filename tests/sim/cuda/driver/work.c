/* What one piece of work is, what memory it touches, and how it is done. */
#include <stdlib.h>
#include <string.h>
#include "sim.h"

const char *work_name(const struct work *work) {
    static const char *const names[] = {"nothing",         "a copy",       "a memset",
                                        "a host function", "a kernel",     "an event record",
                                        "an event wait",   "a value wait", "a value write"};
    return names[work->kind];
}

struct work work_keep(struct work work) {
    if (work.payload != NULL) work.payload->references++;
    return work;
}

void work_release(struct work *work) {
    if (work->payload != NULL && --work->payload->references == 0) {
        free(work->payload->regions);
        free(work->payload);
    }
    work->payload = NULL;
}

size_t work_spans(const struct work *work, struct span *spans, size_t spans_max) {
    size_t count = 0;
    if (work->kind == WORK_KERNEL) {
        for (size_t i = 0; i < work->payload->region_count && count < spans_max; i++)
            spans[count++] = (struct span){work->payload->regions[i].address, work->payload->regions[i].bytes,
                                           work->payload->regions[i].writes != 0};
        return count;
    }
    if (work->kind == WORK_COPY || work->kind == WORK_FILL)
        spans[count++] = (struct span){work->target, work->bytes, true};
    if (work->kind == WORK_COPY && work->payload == NULL)
        spans[count++] = (struct span){work->source, work->bytes, false};
    return count;
}

static uint64_t value_at(const struct work *work) {
    uint64_t value = 0;
    memcpy(&value, memory_view(work->target), work->value_bytes);
    return value;
}

bool work_ready(const struct work *work) {
    enum { GEQ, EQ, AND, NOR };
    if (work->kind != WORK_WAIT_VALUE || memory_at(work->target, work->value_bytes).place == PLACE_ILLEGAL) return true;
    uint64_t now = value_at(work);
    switch (work->value_flags & 3) {
    case GEQ: return work->value_bytes == 4 ? (int32_t)(now - work->value) >= 0 : (int64_t)(now - work->value) >= 0;
    case EQ: return now == work->value;
    case AND: return (now & work->value) != 0;
    default: return ~(now | work->value) != 0;
    }
}

static bool reachable(uint64_t address, uint64_t bytes, bool pageable) {
    enum place place = memory_at(address, bytes).place;
    return place != PLACE_ILLEGAL && (pageable || place != PLACE_PAGEABLE);
}

static bool run_kernel(const struct work *work) {
    void *views[16];
    const struct payload *payload = work->payload;
    for (size_t i = 0; i < payload->region_count; i++) {
        if (!reachable(payload->regions[i].address, payload->regions[i].bytes, false)) return false;
        views[i] = memory_view(payload->regions[i].address);
    }
    work->kernel(payload->data, views);
    return true;
}

/* A copy may stop half-way, so that who looks too early sees half of it. */
static bool copy(const struct work *work, uint64_t *progress, bool *finished) {
    if (!reachable(work->target, work->bytes, true)) return false;
    if (work->payload == NULL && !reachable(work->source, work->bytes, true)) return false;
    const char *source = work->payload ? (const char *)work->payload->data : memory_view(work->source);
    uint64_t start = *progress;
    uint64_t end = start == 0 && work->bytes > 1 && random_below(2) ? 1 + random_below(work->bytes - 1) : work->bytes;
    memmove((char *)memory_view(work->target) + start, source + start, end - start);
    *progress = end;
    *finished = end == work->bytes;
    return true;
}

static bool fill(const struct work *work) {
    if (!reachable(work->target, work->bytes, false)) return false;
    char *target = memory_view(work->target);
    for (uint64_t at = 0; at < work->bytes; at += work->value_bytes)
        memcpy(target + at, &work->value, work->value_bytes);
    return true;
}

bool work_step(struct work *work, uint64_t *progress, bool *finished) {
    *finished = true;
    switch (work->kind) {
    case WORK_COPY: return copy(work, progress, finished);
    case WORK_FILL: return fill(work);
    case WORK_KERNEL: return run_kernel(work);
    case WORK_WRITE_VALUE:
        if (!reachable(work->target, work->value_bytes, false)) return false;
        memcpy(memory_view(work->target), &work->value, work->value_bytes);
        return true;
    case WORK_WAIT_VALUE: return reachable(work->target, work->value_bytes, false);
    default: return true;
    }
}

void ticksim_affine(const void *shape, void *const *views) {
    const struct ticksim_affine_shape *s = shape;
    const float *x = views[0], *w = views[1], *b = views[2];
    float *y = views[3];
    for (uint64_t row = 0; row < s->rows; row++)
        for (uint64_t out = 0; out < s->outputs; out++) {
            float sum = b[out];
            for (uint64_t in = 0; in < s->inputs; in++) sum += x[row * s->inputs + in] * w[in * s->outputs + out];
            y[row * s->outputs + out] = sum;
        }
}
