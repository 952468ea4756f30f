/* Streams and events: what waits for what. */
#include <stdlib.h>
#include "sim.h"

static struct stream null_stream = {.speed = 1}; /* the legacy default stream */

struct stream *stream_null(void) { return &null_stream; }

void streams_clear(void) {
    task_drop(&null_stream.last);
    for (struct stream *s; (s = object_next(KIND_STREAM, 0)) != NULL;) {
        task_drop(&s->last);
        free(s->frontier);
        object_drop(&s->object);
    }
    for (struct event *e; (e = object_next(KIND_EVENT, 0)) != NULL;) {
        task_drop(&e->last);
        free(e->nodes);
        object_drop(&e->object);
    }
}

CUresult stream_find(CUhandle handle, struct stream **stream) {
    *stream = handle == 0 || handle == STREAM_LEGACY_HANDLE ? &null_stream : object_get(handle, KIND_STREAM);
    return *stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

void event_set(struct event *event, struct task *task) {
    if (task != NULL) task_hold(task);
    task_drop(&event->last);
    event->last = task;
    event->capture_id = 0;
}

/* The latest work of each blocking stream: what the legacy stream waits for. */
static void append_blocking(struct task ***tasks, size_t *count) {
    for (struct stream *s = object_next(KIND_STREAM, 0); s != NULL; s = object_next(KIND_STREAM, s->object.handle))
        if (!(s->flags & STREAM_NON_BLOCKING) && s->last != NULL)
            append((void **)tasks, count, sizeof **tasks, &s->last);
}

/* Work on the legacy stream waits for every blocking stream, and the other way round. */
CUresult stream_order(struct stream *stream, struct work work, struct task *const *more, size_t more_count) {
    struct task **before = NULL;
    size_t count = 0;
    if (stream->last != NULL) append((void **)&before, &count, sizeof *before, &stream->last);
    for (size_t i = 0; i < more_count; i++) append((void **)&before, &count, sizeof *before, &more[i]);
    if (stream == &null_stream) append_blocking(&before, &count);
    else if (!(stream->flags & STREAM_NON_BLOCKING) && null_stream.last != NULL)
        append((void **)&before, &count, sizeof *before, &null_stream.last);
    struct task *task = task_add(work, stream->object.handle, stream->speed, before, count);
    free(before);
    task_drop(&stream->last);
    stream->last = task;
    return CUDA_SUCCESS;
}

CUresult stream_submit(CUhandle handle, struct work work) {
    struct stream *stream;
    CUresult code = stream_find(handle, &stream);
    if (code == CUDA_SUCCESS && stream->capture != NULL) return capture_add(stream, work);
    if (code == CUDA_SUCCESS && stream == &null_stream) code = capture_forbids_legacy();
    if (code == CUDA_SUCCESS) return stream_order(stream, work, NULL, 0);
    work_release(&work);
    return code;
}

static CUresult create(CUhandle *out, unsigned flags, int priority) {
    static const unsigned speeds[] = {1, 1, 8, 64};
    if (out == NULL || (flags & ~(unsigned)STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
    struct stream *stream = fresh(sizeof *stream);
    stream->flags = flags;
    stream->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    stream->speed = speeds[random_below(4)];
    *out = object_add(&stream->object, KIND_STREAM);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUhandle *out, unsigned flags) { API(NEEDS_CONTEXT, create(out, flags, 0)); }

CUresult cuStreamCreateWithPriority(CUhandle *out, unsigned flags, int priority) {
    API(NEEDS_CONTEXT, create(out, flags, priority));
}

static CUresult destroy(CUhandle handle) {
    struct stream *stream = object_get(handle, KIND_STREAM);
    if (stream == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != NULL) { /* what the driver does is not documented: it must not happen */
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    task_drop(&stream->last); /* its work goes on */
    free(stream->frontier);
    object_drop(&stream->object);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUhandle stream) { API(NEEDS_CONTEXT | RELEASES, destroy(stream)); }

static CUresult property(CUhandle handle, void *out, char which) {
    struct stream *stream;
    CUresult code = stream_find(handle, &stream);
    if (code != CUDA_SUCCESS || out == NULL) return code ? code : CUDA_ERROR_INVALID_VALUE;
    if (which == 'p') *(int *)out = stream->priority;
    if (which == 'f') *(unsigned *)out = stream->flags;
    if (which == 'c') *(CUhandle *)out = context_primary()->object.handle;
    if (which == 'i') *(uint64_t *)out = stream->object.handle;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUhandle stream, int *out) { API(NEEDS_CONTEXT, property(stream, out, 'p')); }
CUresult cuStreamGetFlags(CUhandle stream, unsigned *out) { API(NEEDS_CONTEXT, property(stream, out, 'f')); }
CUresult cuStreamGetCtx(CUhandle stream, CUhandle *out) { API(NEEDS_CONTEXT, property(stream, out, 'c')); }
CUresult cuStreamGetId(CUhandle stream, uint64_t *out) { API(NEEDS_CONTEXT, property(stream, out, 'i')); }

/* A stream or a context that is captured can be neither asked nor waited for; that ends the capture. */
static CUresult askable(CUhandle handle, struct stream **stream) {
    CUresult code = stream_find(handle, stream);
    if (code != CUDA_SUCCESS) return code;
    if (*stream == &null_stream && (code = capture_forbids_legacy()) != CUDA_SUCCESS) return code;
    if ((*stream)->capture == NULL) return capture_forbids_unsafe();
    bool was_invalid = (*stream)->capture->invalid;
    capture_invalidate((*stream)->capture);
    return was_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* What has ended when the stream has. */
static size_t tasks_of(struct stream *stream, struct task ***tasks) {
    size_t count = 0;
    if (stream->last != NULL) append((void **)tasks, &count, sizeof **tasks, &stream->last);
    if (stream == &null_stream) append_blocking(tasks, &count);
    return count;
}

static CUresult query(CUhandle handle) {
    struct stream *stream;
    CUresult code = askable(handle, &stream);
    if (code != CUDA_SUCCESS) return code;
    tasks_progress(3);
    if (sticky != CUDA_SUCCESS) return sticky;
    struct task **tasks = NULL;
    size_t count = tasks_of(stream, &tasks);
    for (size_t i = 0; i < count; i++)
        if (!tasks[i]->done) code = CUDA_ERROR_NOT_READY;
    for (size_t i = 0; code == CUDA_SUCCESS && i < count; i++) task_observe(tasks[i]);
    free(tasks);
    return code;
}

static CUresult synchronize(CUhandle handle) {
    struct stream *stream;
    CUresult code = askable(handle, &stream);
    if (code != CUDA_SUCCESS) return code;
    struct task **tasks = NULL;
    size_t count = tasks_of(stream, &tasks);
    for (size_t i = 0; i < count; i++) task_hold(tasks[i]);
    for (size_t i = 0; i < count; i++) {
        if (code == CUDA_SUCCESS) code = tasks_wait(tasks[i]);
        task_drop(&tasks[i]);
    }
    free(tasks);
    return code;
}

CUresult cuStreamQuery(CUhandle stream) { API(NEEDS_CONTEXT, query(stream)); }
CUresult cuStreamSynchronize(CUhandle stream) { API(NEEDS_CONTEXT, synchronize(stream)); }

static CUresult wait_event(CUhandle handle, CUhandle event_handle, unsigned flags) {
    struct stream *stream;
    struct event *event = object_get(event_handle, KIND_EVENT);
    CUresult code = stream_find(handle, &stream);
    bool handled = false;
    if (code != CUDA_SUCCESS || event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0 && (flags != EVENT_EXTERNAL || stream->capture == NULL)) return CUDA_ERROR_INVALID_VALUE;
    if (flags == EVENT_EXTERNAL)
        return capture_add(stream, (struct work){.kind = WORK_WAIT_EVENT, .event = event_handle});
    code = capture_wait(stream, event, &handled);
    if (code != CUDA_SUCCESS || handled) return code;
    if (stream == &null_stream && (code = capture_forbids_legacy()) != CUDA_SUCCESS) return code;
    return stream_order(stream, (struct work){.kind = WORK_WAIT_EVENT, .event = event_handle}, &event->last,
                        event->last != NULL);
}

CUresult cuStreamWaitEvent(CUhandle stream, CUhandle event, unsigned flags) {
    API(NEEDS_CONTEXT, wait_event(stream, event, flags));
}

static CUresult event_create(CUhandle *out, unsigned flags) {
    if (out == NULL || flags & ~7u || ((flags & EVENT_INTERPROCESS) && !(flags & EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    struct event *event = fresh(sizeof *event);
    event->flags = flags;
    *out = object_add(&event->object, KIND_EVENT);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUhandle *out, unsigned flags) { API(NEEDS_CONTEXT, event_create(out, flags)); }

static CUresult event_destroy(CUhandle handle) {
    struct event *event = object_get(handle, KIND_EVENT);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    task_drop(&event->last);
    free(event->nodes);
    object_drop(&event->object);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUhandle event) { API(NEEDS_CONTEXT | RELEASES, event_destroy(event)); }

static CUresult record(CUhandle event_handle, CUhandle handle, unsigned flags) {
    struct stream *stream;
    struct event *event = object_get(event_handle, KIND_EVENT);
    CUresult code = stream_find(handle, &stream);
    if (code != CUDA_SUCCESS || event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0 && (flags != EVENT_EXTERNAL || stream->capture == NULL)) return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = WORK_RECORD, .event = event_handle};
    if (stream->capture != NULL)
        return flags == EVENT_EXTERNAL ? capture_add(stream, work) : capture_record(stream, event);
    if (stream == &null_stream && (code = capture_forbids_legacy()) != CUDA_SUCCESS) return code;
    stream_order(stream, work, NULL, 0);
    event_set(event, stream->last);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUhandle event, CUhandle stream) { API(NEEDS_CONTEXT, record(event, stream, 0)); }

CUresult cuEventRecordWithFlags(CUhandle event, CUhandle stream, unsigned flags) {
    API(NEEDS_CONTEXT, record(event, stream, flags));
}

static CUresult event_askable(CUhandle handle, struct event **event) {
    *event = object_get(handle, KIND_EVENT);
    if (*event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if ((*event)->capture_id == 0) return capture_forbids_unsafe();
    struct capture *capture = capture_by_id((*event)->capture_id);
    if (capture != NULL) capture_invalidate(capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

static CUresult event_query(CUhandle handle) {
    struct event *event;
    CUresult code = event_askable(handle, &event);
    if (code != CUDA_SUCCESS) return code;
    tasks_progress(3);
    if (sticky != CUDA_SUCCESS) return sticky;
    if (event->last != NULL && !event->last->done) return CUDA_ERROR_NOT_READY;
    task_observe(event->last);
    return CUDA_SUCCESS;
}

static CUresult event_synchronize(CUhandle handle) {
    struct event *event;
    CUresult code = event_askable(handle, &event);
    return code == CUDA_SUCCESS && event->last != NULL ? tasks_wait(event->last) : code;
}

CUresult cuEventQuery(CUhandle event) { API(NEEDS_CONTEXT, event_query(event)); }
CUresult cuEventSynchronize(CUhandle event) { API(NEEDS_CONTEXT, event_synchronize(event)); }

static CUresult elapsed(float *ms, CUhandle start_handle, CUhandle end_handle) {
    struct event *start, *end;
    CUresult code = event_askable(start_handle, &start);
    if (code == CUDA_SUCCESS) code = event_askable(end_handle, &end);
    if (code != CUDA_SUCCESS) return code;
    if ((start->flags | end->flags) & EVENT_DISABLE_TIMING || start->last == NULL || end->last == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->last->done || !end->last->done) return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)end->last->finished_ns - (double)start->last->finished_ns) / 1e6f;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUhandle start, CUhandle end) { API(NEEDS_CONTEXT, elapsed(ms, start, end)); }
