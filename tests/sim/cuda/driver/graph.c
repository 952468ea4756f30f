/* Graphs: work with an order, captured once. An executable graph is a copy that holds addresses as they were. */
#include <stdlib.h>
#include "sim.h"

enum { INSTANTIATE_FLAGS = 15 };

struct graph *graph_new(void) {
    struct graph *graph = fresh(sizeof *graph);
    object_add(&graph->object, KIND_GRAPH);
    return graph;
}

struct node *graph_add(struct graph *graph, struct work work, struct node *const *before, size_t before_count) {
    struct node *node = fresh(sizeof *node);
    node->work = work;
    for (size_t i = 0; i < before_count; i++)
        append((void **)&node->before, &node->before_count, sizeof *before, &before[i]);
    append((void **)&graph->nodes, &graph->count, sizeof node, &node);
    return node;
}

static void dispose(struct object *object) /* what never had a handle is not in the table */
{
    if (object->handle != 0) object_drop(object);
    else free(object);
}

void graph_free(struct graph *graph) {
    for (size_t i = 0; i < graph->count; i++) {
        work_release(&graph->nodes[i]->work);
        free(graph->nodes[i]->before);
        dispose(&graph->nodes[i]->object);
    }
    free(graph->nodes);
    dispose(&graph->object);
}

void exec_free(struct exec *exec) {
    task_drop(&exec->last); /* what was launched goes on */
    graph_free(exec->graph);
    object_drop(&exec->object);
}

static size_t index_of(const struct graph *graph, const struct node *node) {
    size_t index = 0;
    while (graph->nodes[index] != node) index++;
    return index;
}

static struct graph *copy_of(const struct graph *graph) {
    struct graph *copy = fresh(sizeof *copy);
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];
        struct node **before = fresh(node->before_count * sizeof *before);
        for (size_t j = 0; j < node->before_count; j++) before[j] = copy->nodes[index_of(graph, node->before[j])];
        graph_add(copy, work_keep(node->work), before, node->before_count);
        free(before);
    }
    return copy;
}

static CUresult create(CUhandle *out, unsigned flags) {
    if (out == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = graph_new()->object.handle;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUhandle handle) {
    struct graph *graph = object_get(handle, KIND_GRAPH);
    if (graph == NULL) return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph);
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUhandle *out, CUhandle handle, uint64_t flags) {
    struct graph *graph = object_get(handle, KIND_GRAPH);
    if (out == NULL || graph == NULL || flags & ~(uint64_t)INSTANTIATE_FLAGS) return CUDA_ERROR_INVALID_VALUE;
    struct exec *exec = fresh(sizeof *exec);
    exec->graph = copy_of(graph);
    *out = object_add(&exec->object, KIND_EXEC);
    return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUhandle handle) {
    struct exec *exec = object_get(handle, KIND_EXEC);
    if (exec == NULL) return CUDA_ERROR_INVALID_VALUE;
    exec_free(exec);
    return CUDA_SUCCESS;
}

static CUresult upload(CUhandle exec, CUhandle handle) {
    struct stream *stream;
    CUresult code = stream_find(handle, &stream);
    if (code != CUDA_SUCCESS || object_get(exec, KIND_EXEC) == NULL) return code ? code : CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != NULL) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream_submit(handle, (struct work){.kind = WORK_NOTHING});
}

/* One node: behind those before it in the graph, the first ones behind the stream. */
static struct task *launch_node(const struct exec *exec, size_t index, struct task **tasks, struct task *start,
                                unsigned speed, CUhandle stream) {
    const struct node *node = exec->graph->nodes[index];
    struct task **before = NULL;
    size_t count = 0;
    append((void **)&before, &count, sizeof *before, &start);
    for (size_t i = 0; i < node->before_count; i++)
        append((void **)&before, &count, sizeof *before, &tasks[index_of(exec->graph, node->before[i])]);
    struct event *event = object_get(node->work.event, KIND_EVENT);
    if (node->work.kind == WORK_WAIT_EVENT && event != NULL && event->last != NULL)
        append((void **)&before, &count, sizeof *before, &event->last);
    struct task *task = task_add(work_keep(node->work), stream, speed, before, count);
    if (node->work.kind == WORK_RECORD && event != NULL) event_set(event, task);
    free(before);
    return task;
}

static bool events_live(const struct exec *exec) {
    for (size_t i = 0; i < exec->graph->count; i++)
        if (exec->graph->nodes[i]->work.event != 0 && object_get(exec->graph->nodes[i]->work.event, KIND_EVENT) == NULL)
            return false;
    return true;
}

/* Behind the stream's earlier work, and behind the same executable graph's earlier launches. */
static CUresult launch(CUhandle exec_handle, CUhandle handle) {
    struct stream *stream;
    struct exec *exec = object_get(exec_handle, KIND_EXEC);
    CUresult code = stream_find(handle, &stream);
    if (code != CUDA_SUCCESS || exec == NULL) return code ? code : CUDA_ERROR_INVALID_VALUE;
    if (!events_live(exec)) {
        violation("a graph was launched whose event is destroyed");
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture != NULL) return capture_launch(stream, exec);
    if (stream == stream_null() && (code = capture_forbids_legacy()) != CUDA_SUCCESS) return code;
    stream_order(stream, (struct work){.kind = WORK_NOTHING}, &exec->last, exec->last != NULL);
    struct task **tasks = fresh((exec->graph->count + 1) * sizeof *tasks);
    for (size_t i = 0; i < exec->graph->count; i++)
        tasks[i] = launch_node(exec, i, tasks, stream->last, stream->speed, stream->object.handle);
    stream_order(stream, (struct work){.kind = WORK_NOTHING}, tasks, exec->graph->count);
    for (size_t i = 0; i < exec->graph->count; i++) task_drop(&tasks[i]);
    free(tasks);
    task_drop(&exec->last);
    exec->last = stream->last;
    task_hold(exec->last);
    return CUDA_SUCCESS;
}

static bool same_shape(const struct graph *a, const struct graph *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        if (a->nodes[i]->work.kind != b->nodes[i]->work.kind || a->nodes[i]->before_count != b->nodes[i]->before_count)
            return false;
        for (size_t j = 0; j < a->nodes[i]->before_count; j++)
            if (index_of(a, a->nodes[i]->before[j]) != index_of(b, b->nodes[i]->before[j])) return false;
    }
    return true;
}

static CUresult update(CUhandle exec_handle, CUhandle handle, CUgraphExecUpdateResultInfo *info) {
    enum { UPDATE_SUCCESS, UPDATE_ERROR, UPDATE_TOPOLOGY_CHANGED };
    struct exec *exec = object_get(exec_handle, KIND_EXEC);
    struct graph *graph = object_get(handle, KIND_GRAPH);
    if (exec == NULL || graph == NULL || info == NULL) return CUDA_ERROR_INVALID_VALUE;
    bool same = same_shape(exec->graph, graph);
    *info = (CUgraphExecUpdateResultInfo){.result = same ? UPDATE_SUCCESS : UPDATE_TOPOLOGY_CHANGED};
    if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    graph_free(exec->graph);
    exec->graph = copy_of(graph);
    return CUDA_SUCCESS;
}

static CUresult nodes(CUhandle handle, CUhandle *out, size_t *count) {
    struct graph *graph = object_get(handle, KIND_GRAPH);
    if (graph == NULL || count == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; out != NULL && i < *count; i++) {
        struct node *node = i < graph->count ? graph->nodes[i] : NULL;
        if (node != NULL && node->object.handle == 0) object_add(&node->object, KIND_NODE);
        out[i] = node ? node->object.handle : 0;
    }
    if (out == NULL || *count > graph->count) *count = graph->count;
    return CUDA_SUCCESS;
}

static CUresult node_type(CUhandle handle, int *type) {
    enum { KERNEL = 0, MEMCPY = 1, MEMSET = 2, HOST = 3, EMPTY = 5, WAIT_EVENT = 6, EVENT_RECORD = 7 };
    static const int types[] = {EMPTY, MEMCPY, MEMSET, HOST, KERNEL, EVENT_RECORD, WAIT_EVENT, EMPTY, EMPTY};
    struct node *node = object_get(handle, KIND_NODE);
    if (node == NULL || type == NULL) return CUDA_ERROR_INVALID_VALUE;
    *type = types[node->work.kind];
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUhandle *graph, unsigned flags) { API(NEEDS_CONTEXT, create(graph, flags)); }
CUresult cuGraphDestroy(CUhandle graph) { API(NEEDS_CONTEXT | RELEASES, destroy(graph)); }
CUresult cuGraphGetNodes(CUhandle graph, CUhandle *out, size_t *count) { API(NEEDS_CONTEXT, nodes(graph, out, count)); }
CUresult cuGraphNodeGetType(CUhandle node, int *type) { API(NEEDS_CONTEXT, node_type(node, type)); }
CUresult cuGraphInstantiateWithFlags(CUhandle *exec, CUhandle graph, uint64_t flags) {
    API(NEEDS_CONTEXT | UNSAFE, instantiate(exec, graph, flags));
}
CUresult cuGraphUpload(CUhandle exec, CUhandle stream) { API(NEEDS_CONTEXT, upload(exec, stream)); }
CUresult cuGraphLaunch(CUhandle exec, CUhandle stream) { API(NEEDS_CONTEXT, launch(exec, stream)); }
CUresult cuGraphExecDestroy(CUhandle exec) { API(NEEDS_CONTEXT | UNSAFE | RELEASES, exec_destroy(exec)); }
CUresult cuGraphExecUpdate_v2(CUhandle exec, CUhandle graph, CUgraphExecUpdateResultInfo *info) {
    API(NEEDS_CONTEXT, update(exec, graph, info));
}
