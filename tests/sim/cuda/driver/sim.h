/* What the files of the simulated driver share. One lock (control.c) guards all of it: functions here want it held. */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include "ticksim.h"

/* ---- objects.c: handles are never used twice, so that one kept too long is found out. */
enum kind { KIND_CONTEXT, KIND_STREAM, KIND_EVENT, KIND_GRAPH, KIND_NODE, KIND_EXEC, KINDS };
struct object {
    CUhandle handle;
    enum kind kind;
};
CUhandle object_add(struct object *object, enum kind kind);
void *object_get(CUhandle handle, enum kind kind); /* NULL where it is none, or no longer */
void object_drop(struct object *object);           /* also frees it */
void *object_next(enum kind kind, CUhandle after); /* walks the living: start with 0 */
void objects_clear(void);
void *fresh(size_t bytes); /* zeroed memory; ends the process where there is none */
void append(void **array, size_t *count, size_t item_bytes, const void *item);

/* ---- memory.c */
enum place { PLACE_PAGEABLE, PLACE_DEVICE, PLACE_PINNED, PLACE_REGISTERED, PLACE_ILLEGAL };
struct span {
    uint64_t address, bytes;
    bool writes;
};
struct memory {
    enum place place;
    uint64_t start, bytes;
    unsigned flags;
};
void memory_start(void);
void memory_reset(void);
void memory_free_all(void);
CUresult memory_alloc_device(CUdeviceptr *address, size_t bytes);
CUresult memory_free_device(CUdeviceptr address);
CUresult memory_alloc_host(void **address, size_t bytes, unsigned flags);
CUresult memory_free_host(void *address);
CUresult memory_register(void *address, size_t bytes, unsigned flags);
CUresult memory_unregister(void *address);
struct memory memory_at(uint64_t address, uint64_t bytes); /* PLACE_ILLEGAL where it is ours but not wholly alive */
void *memory_view(uint64_t address);                       /* where the library itself reaches it */
uint64_t memory_check_guards(void);
void memory_wrote(struct span span);
uint64_t memory_undefined(struct span span); /* bytes of device memory there that nothing has written */
uint64_t memory_describe(char *text, size_t text_bytes);
void memory_stats(struct ticksim_stats *stats);
void memory_device_limit(uint64_t bytes);
uint64_t memory_device_free(void), memory_device_total(void);
void memory_fence(bool on);
void memory_fence_span(struct span span); /* brings the pages in step with the work that is unobserved */

/* ---- work.c: one piece of work, as a stream or a graph node holds it */
enum work_kind {
    WORK_NOTHING,
    WORK_COPY,
    WORK_FILL,
    WORK_HOST,
    WORK_KERNEL,
    WORK_RECORD,
    WORK_WAIT_EVENT,
    WORK_WAIT_VALUE,
    WORK_WRITE_VALUE
};
struct payload {
    size_t references;
    size_t region_count;
    struct ticksim_region *regions;
    size_t bytes;
    unsigned char data[];
};
struct work {
    enum work_kind kind;
    uint64_t target, source, bytes; /* copy: bytes; fill: bytes; values: `value` at target */
    uint64_t value;
    unsigned value_bytes, value_flags;
    CUhostFn host;
    void *user;
    ticksim_kernel kernel;
    CUhandle event;
    struct payload *payload; /* a kernel's arguments and regions, or the staged source of a copy */
};
const char *work_name(const struct work *work);
size_t work_spans(const struct work *work, struct span *spans, size_t spans_max);
struct work work_keep(struct work work); /* one more holder of the payload */
void work_release(struct work *work);
bool work_ready(const struct work *work);
/* Does all of it, or a part where `*progress` says so on return; false where an address is illegal. */
bool work_step(struct work *work, uint64_t *progress, bool *finished);

/* ---- tasks.c: work on its way. A task that waits for no other may run. */
struct task {
    uint64_t number, mark;
    size_t references, waiting_for;
    bool done, observed, running;
    uint64_t progress, finished_ns;
    unsigned speed;
    CUhandle stream;
    struct work work;
    struct task **before;
    size_t before_count;
    struct task **after;
    size_t after_count;
    struct task *next, *previous; /* among those that the host has not observed */
};
struct task *task_add(struct work work, CUhandle stream, unsigned speed, struct task *const *before,
                      size_t before_count);
void task_hold(struct task *task);
void task_drop(struct task **task);
void task_observe(struct task *task); /* the host knows that it and all before it have ended */
bool task_run_one(void);
void tasks_progress(unsigned steps_max);
CUresult tasks_wait(struct task *task); /* until it is done, then observed. NULL: until nothing is left */
bool tasks_touch(struct span span, struct task **found);
unsigned tasks_closing(uint64_t start, uint64_t end); /* 0 open, 1 read by unobserved work, 2 written */
void tasks_abandon(void);
void tasks_clear(void);
void tasks_stats(struct ticksim_stats *stats);

/* ---- streams, captures, graphs */
struct node {
    struct object object;
    struct work work;
    struct node **before;
    size_t before_count;
    CUhandle graph;
};
struct graph {
    struct object object;
    struct node **nodes;
    size_t count;
};
struct exec {
    struct object object;
    struct graph *graph;
    struct task *last;
};
struct capture {
    uint64_t id;
    int mode;
    CUhandle origin, graph;
    uint64_t thread;
    bool invalid;
    struct capture *next;
};
struct stream {
    struct object object;
    unsigned flags;
    int priority;
    unsigned speed;
    struct task *last;
    struct capture *capture;
    struct node **frontier;
    size_t frontier_count;
};
struct event {
    struct object object;
    unsigned flags;
    struct task *last;
    uint64_t capture_id; /* 0 where it was not last recorded in a capture */
    struct node **nodes;
    size_t node_count;
};
CUresult stream_find(CUhandle handle, struct stream **stream);
CUresult stream_submit(CUhandle handle, struct work work); /* takes the work's payload */
CUresult stream_order(struct stream *stream, struct work work, struct task *const *more, size_t more_count);
struct stream *stream_null(void);
void streams_clear(void);
void event_set(struct event *event, struct task *task);

struct capture *capture_by_id(uint64_t id);
CUresult capture_begin(struct stream *stream, int mode);
CUresult capture_end(struct stream *stream, CUhandle *graph);
CUresult capture_add(struct stream *stream, struct work work);
CUresult capture_launch(struct stream *stream, struct exec *exec);
CUresult capture_record(struct stream *stream, struct event *event);
CUresult capture_wait(struct stream *stream, struct event *event, bool *handled);
void capture_invalidate(struct capture *capture);
CUresult capture_forbids_unsafe(void);  /* by this thread's mode; invalidates what it would have harmed */
CUresult capture_forbids_context(void); /* while anything in the context is captured */
CUresult capture_forbids_legacy(void);  /* while a blocking stream is captured */
int capture_exchange_mode(int mode);
void captures_clear(void);

struct graph *graph_new(void);
struct node *graph_add(struct graph *graph, struct work work, struct node *const *before, size_t before_count);
void graph_free(struct graph *graph);
void exec_free(struct exec *exec);

/* ---- control.c */
struct context {
    struct object object;
    uint64_t retains;
};
enum {
    NEEDS_NOTHING = 0,
    NEEDS_INIT = 1,
    NEEDS_CONTEXT = 2,
    UNSAFE = 4 /* in a capture */,
    RELEASES = 8 /* after an error too */
};
CUresult call_begin(const char *name, unsigned needs);
CUresult call_end(CUresult code, unsigned needs);
void call_unlock(void); /* around a host function */
void call_lock(void);
void call_pause(void); /* waits until another thread got on */
void call_signal(void);
extern _Thread_local bool in_host_function;
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void violation_in_signal(const char *text); /* async-signal-safe; ends the process */
uint64_t random_below(uint64_t bound);
uint64_t thread_number(void);
uint64_t virtual_ns(uint64_t step);
CUresult work_fault(void); /* the fault injected into the next piece of work */
struct context *context_primary(void);
void context_fail(CUresult code);
extern CUresult sticky; /* the error that every call returns from now on; only a new process helps */
CUresult context_current(struct context **context); /* of this thread */
void check_leaks_now(void);
void contexts_clear(void);
extern bool sim_initialised;

/* One function of the API: what it needs, then what it does. */
#define API(needs, result) \
    CUresult code_ = call_begin(__func__, needs); \
    if (code_ == CUDA_SUCCESS) code_ = (result); \
    return call_end(code_, needs)
#endif
