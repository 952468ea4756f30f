/* Stream capture. The rules are those of the driver API's reference (cuStreamBeginCapture,
   cuThreadExchangeStreamCaptureMode, the CUDA_ERROR_STREAM_CAPTURE_* codes) and of the programming guide's "Prohibited
   and Unhandled Operations" and "Invalidation". What they forbid fails with its code, and the capture it would have
   harmed is invalid until cuStreamEndCapture, which then returns no graph. */
#include <stdlib.h>
#include <string.h>
#include "sim.h"

static struct capture *captures;
static uint64_t last_id;
static _Thread_local int thread_mode = CAPTURE_MODE_GLOBAL;

struct capture *capture_by_id(uint64_t id) {
    struct capture *capture = captures;
    while (capture != NULL && capture->id != id) capture = capture->next;
    return capture;
}

void capture_invalidate(struct capture *capture) { capture->invalid = true; }

void captures_clear(void) {
    while (captures != NULL) {
        struct capture *next = captures->next;
        free(captures);
        captures = next;
    }
    for (struct exec *e; (e = object_next(KIND_EXEC, 0)) != NULL;) exec_free(e);
    for (struct graph *g; (g = object_next(KIND_GRAPH, 0)) != NULL;) graph_free(g);
}

int capture_exchange_mode(int mode) {
    int before = thread_mode;
    thread_mode = mode;
    return before;
}

static bool harmed_by_this_thread(const struct capture *capture) {
    if (thread_mode == CAPTURE_MODE_RELAXED) return false;
    if (capture->thread == thread_number()) return capture->mode != CAPTURE_MODE_RELAXED;
    return thread_mode == CAPTURE_MODE_GLOBAL && capture->mode == CAPTURE_MODE_GLOBAL;
}

CUresult capture_forbids_unsafe(void) {
    CUresult code = CUDA_SUCCESS;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        if (!harmed_by_this_thread(capture)) continue;
        capture_invalidate(capture);
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return code;
}

CUresult capture_forbids_context(void) {
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) capture_invalidate(capture);
    return captures != NULL ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_forbids_legacy(void) {
    CUresult code = CUDA_SUCCESS;
    for (struct stream *s = object_next(KIND_STREAM, 0); s != NULL; s = object_next(KIND_STREAM, s->object.handle)) {
        if (s->capture == NULL || s->flags & STREAM_NON_BLOCKING) continue;
        capture_invalidate(s->capture);
        code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return code;
}

CUresult capture_begin(struct stream *stream, int mode) {
    if (mode < CAPTURE_MODE_GLOBAL || mode > CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (stream == stream_null()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != NULL) return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = fresh(sizeof *capture);
    *capture = (struct capture){.id = ++last_id,
                                .mode = mode,
                                .origin = stream->object.handle,
                                .next = captures,
                                .graph = graph_new()->object.handle,
                                .thread = thread_number()};
    captures = capture;
    stream->capture = capture;
    stream->frontier_count = 0;
    return CUDA_SUCCESS;
}

static void set_nodes(struct node ***nodes, size_t *count, struct node *const *from, size_t from_count) {
    struct node **copy = fresh(from_count * sizeof *copy);
    if (from_count > 0) memcpy(copy, from, from_count * sizeof *copy);
    free(*nodes);
    *nodes = copy;
    *count = from_count;
}

static void join_nodes(struct stream *stream, struct node *const *more, size_t more_count) {
    struct node **all = NULL;
    size_t count = 0;
    for (size_t i = 0; i < stream->frontier_count; i++)
        append((void **)&all, &count, sizeof *all, &stream->frontier[i]);
    for (size_t i = 0; i < more_count; i++) {
        bool known = false;
        for (size_t j = 0; j < count; j++) known |= all[j] == more[i];
        if (!known) append((void **)&all, &count, sizeof *all, &more[i]);
    }
    set_nodes(&stream->frontier, &stream->frontier_count, all, count);
    free(all);
}

static CUresult usable(const struct capture *capture) {
    return capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult capture_add(struct stream *stream, struct work work) {
    CUresult code = usable(stream->capture);
    if (code == CUDA_SUCCESS && (work.kind == WORK_WAIT_VALUE || work.kind == WORK_WRITE_VALUE)) {
        capture_invalidate(stream->capture); /* the library keeps no such nodes */
        code = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (code != CUDA_SUCCESS) {
        work_release(&work);
        return code;
    }
    struct graph *graph = object_get(stream->capture->graph, KIND_GRAPH);
    struct node *node = graph_add(graph, work, stream->frontier, stream->frontier_count);
    set_nodes(&stream->frontier, &stream->frontier_count, &node, 1);
    return CUDA_SUCCESS;
}

/* The launched graph's nodes become nodes of this one, between a node before them all and a node behind. */
CUresult capture_launch(struct stream *stream, struct exec *exec) {
    CUresult code = usable(stream->capture);
    if (code != CUDA_SUCCESS) return code;
    struct graph *graph = object_get(stream->capture->graph, KIND_GRAPH);
    struct node **twins = fresh(exec->graph->count * sizeof *twins);
    capture_add(stream, (struct work){.kind = WORK_NOTHING});
    for (size_t i = 0; i < exec->graph->count; i++) {
        const struct node *node = exec->graph->nodes[i];
        struct node **before = NULL;
        size_t count = 0;
        for (size_t j = 0; j < i; j++)
            for (size_t k = 0; k < node->before_count; k++)
                if (node->before[k] == exec->graph->nodes[j])
                    append((void **)&before, &count, sizeof *before, &twins[j]);
        if (count == 0) append((void **)&before, &count, sizeof *before, &stream->frontier[0]);
        twins[i] = graph_add(graph, work_keep(node->work), before, count);
        free(before);
    }
    join_nodes(stream, twins, exec->graph->count);
    free(twins);
    return capture_add(stream, (struct work){.kind = WORK_NOTHING});
}

CUresult capture_record(struct stream *stream, struct event *event) {
    CUresult code = usable(stream->capture);
    if (code != CUDA_SUCCESS) return code;
    event_set(event, NULL);
    event->capture_id = stream->capture->id;
    set_nodes(&event->nodes, &event->node_count, stream->frontier, stream->frontier_count);
    return CUDA_SUCCESS;
}

CUresult capture_wait(struct stream *stream, struct event *event, bool *handled) {
    struct capture *theirs = event->capture_id ? capture_by_id(event->capture_id) : NULL;
    if (stream->capture == NULL && event->capture_id == 0) return CUDA_SUCCESS;
    *handled = true;
    if (stream->capture == NULL && theirs == NULL) return CUDA_ERROR_CAPTURED_EVENT; /* of a capture that has ended */
    if (stream->capture != NULL && usable(stream->capture) != CUDA_SUCCESS)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture != NULL && theirs != stream->capture) {
        capture_invalidate(stream->capture);
        if (theirs != NULL) capture_invalidate(theirs);
        return theirs != NULL ? CUDA_ERROR_STREAM_CAPTURE_MERGE : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (theirs->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == stream_null()) {
        capture_invalidate(theirs);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture == NULL) stream->frontier_count = 0;
    stream->capture = theirs; /* a fork */
    join_nodes(stream, event->nodes, event->node_count);
    return CUDA_SUCCESS;
}

static bool joined(const struct stream *origin, const struct graph *graph) {
    for (size_t i = 0; i < graph->count; i++) {
        bool found = false;
        for (size_t j = i + 1; j < graph->count && !found; j++)
            for (size_t k = 0; k < graph->nodes[j]->before_count; k++)
                found |= graph->nodes[j]->before[k] == graph->nodes[i];
        for (size_t j = 0; j < origin->frontier_count; j++) found |= origin->frontier[j] == graph->nodes[i];
        if (!found) return false;
    }
    return true;
}

static void leave(struct capture *capture) {
    for (struct stream *s = object_next(KIND_STREAM, 0); s != NULL; s = object_next(KIND_STREAM, s->object.handle))
        if (s->capture == capture) s->capture = NULL;
    struct capture **slot = &captures;
    while (*slot != capture) slot = &(*slot)->next;
    *slot = capture->next;
    free(capture);
}

CUresult capture_end(struct stream *stream, CUhandle *out) {
    struct capture *capture = stream->capture;
    CUresult code = CUDA_SUCCESS;
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    if (capture == NULL) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream->object.handle) code = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CAPTURE_MODE_RELAXED && capture->thread != thread_number())
        code = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (code != CUDA_SUCCESS) { /* it goes on, and can only be ended as it should have been */
        capture_invalidate(capture);
        return code;
    }
    struct graph *graph = object_get(capture->graph, KIND_GRAPH);
    if (capture->invalid) code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(stream, graph)) code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (code == CUDA_SUCCESS) *out = graph->object.handle;
    else graph_free(graph);
    leave(capture);
    return code;
}

static CUresult begin(CUhandle handle, int mode) {
    struct stream *stream;
    CUresult code = stream_find(handle, &stream);
    return code == CUDA_SUCCESS ? capture_begin(stream, mode) : code;
}

static CUresult end(CUhandle handle, CUhandle *graph) {
    struct stream *stream;
    CUresult code = stream_find(handle, &stream);
    return code == CUDA_SUCCESS ? capture_end(stream, graph) : code;
}

static CUresult exchange(int *mode) {
    if (mode == NULL || *mode < CAPTURE_MODE_GLOBAL || *mode > CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    *mode = capture_exchange_mode(*mode);
    return CUDA_SUCCESS;
}

static int status_of(const struct stream *stream) {
    if (stream->capture == NULL) return CAPTURE_STATUS_NONE;
    return stream->capture->invalid ? CAPTURE_STATUS_INVALIDATED : CAPTURE_STATUS_ACTIVE;
}

static CUresult info(CUhandle handle, int *status, uint64_t *id, CUhandle *graph, const CUhandle **nodes,
                     size_t *count) {
    struct stream *stream;
    CUresult code = stream_find(handle, &stream);
    if (code != CUDA_SUCCESS || status == NULL) return code ? code : CUDA_ERROR_INVALID_VALUE;
    if (stream == stream_null() && (code = capture_forbids_legacy()) != CUDA_SUCCESS) return code;
    *status = status_of(stream);
    if (*status != CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id != NULL) *id = stream->capture->id;
    if (graph != NULL) *graph = stream->capture->graph;
    if (nodes != NULL) *nodes = NULL; /* the count is kept, the handles are not */
    if (count != NULL) *count = nodes == NULL ? stream->frontier_count : 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUhandle stream, int mode) { API(NEEDS_CONTEXT, begin(stream, mode)); }
CUresult cuStreamEndCapture(CUhandle stream, CUhandle *graph) { API(NEEDS_CONTEXT, end(stream, graph)); }
CUresult cuThreadExchangeStreamCaptureMode(int *mode) { API(NEEDS_INIT, exchange(mode)); }

CUresult cuStreamIsCapturing(CUhandle stream, int *status) {
    API(NEEDS_CONTEXT, info(stream, status, NULL, NULL, NULL, NULL));
}

CUresult cuStreamGetCaptureInfo_v2(CUhandle stream, int *status, uint64_t *id, CUhandle *graph, const CUhandle **nodes,
                                   size_t *count) {
    API(NEEDS_CONTEXT, info(stream, status, id, graph, nodes, count));
}

CUresult cuStreamGetCaptureInfo_v3(CUhandle stream, int *status, uint64_t *id, CUhandle *graph, const CUhandle **nodes,
                                   const void **edges, size_t *count) {
    if (edges != NULL) *edges = NULL;
    API(NEEDS_CONTEXT, info(stream, status, id, graph, nodes, count));
}
