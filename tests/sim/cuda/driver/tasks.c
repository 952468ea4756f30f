/* Work on its way. Every enqueued piece is a task that waits for those before it: in its stream, behind an event, in
   its graph. Among the tasks that may run a seeded choice is made, and nothing runs unless a call makes progress, or
   the background thread does: as late, and in any order, as the rules allow.

   A task is `done` when it has run, and `observed` when the host knows so: by a wait, a successful query, or a host
   function behind it. Until then the host may not touch what it uses, and no other task may unless ordered behind it.
   That is checked when a task is added, whatever order then comes about. */
#include <pthread.h>
#include <stdlib.h>
#include "sim.h"

enum { SPANS_MAX = 16 };

static struct task *first, *last; /* those that are not observed, oldest first */
static uint64_t number, mark, done_count;
static struct task *host_task; /* with the thread that runs host functions */
static bool host_thread_started;

void task_hold(struct task *task) { task->references++; }

void task_drop(struct task **slot) {
    struct task *task = *slot;
    *slot = NULL;
    if (task == NULL || --task->references > 0) return;
    work_release(&task->work);
    free(task->before);
    free(task->after);
    free(task);
}

static void drop_before(struct task *task) {
    for (size_t i = 0; i < task->before_count; i++) task_drop(&task->before[i]);
    task->before_count = 0;
}

static bool overlap(struct span a, struct span b) {
    return (a.writes || b.writes) && a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

static void mark_ancestors(struct task *task) {
    struct task **stack = NULL;
    size_t count = 0;
    mark++;
    append((void **)&stack, &count, sizeof *stack, &task);
    while (count > 0) {
        struct task *at = stack[--count];
        for (size_t i = 0; i < at->before_count; i++) {
            struct task *before = at->before[i];
            if (before->mark == mark || before->observed) continue;
            before->mark = mark;
            append((void **)&stack, &count, sizeof *stack, &before);
        }
    }
    free(stack);
}

static void check_races(struct task *task) {
    struct span mine[SPANS_MAX], theirs[SPANS_MAX];
    size_t my_count = work_spans(&task->work, mine, SPANS_MAX);
    if (my_count == 0 || first == NULL) return;
    mark_ancestors(task);
    for (struct task *other = first; other != NULL; other = other->next) {
        if (other->mark == mark) continue;
        size_t their_count = work_spans(&other->work, theirs, SPANS_MAX);
        for (size_t i = 0; i < my_count; i++)
            for (size_t j = 0; j < their_count; j++)
                if (overlap(mine[i], theirs[j])) {
                    violation(
                        "race: %s (work %llu) and %s (work %llu) use memory at 0x%llx and neither waits for the other",
                        work_name(&other->work), (unsigned long long)other->number, work_name(&task->work),
                        (unsigned long long)task->number, (unsigned long long)mine[i].address);
                    return;
                }
    }
}

static void fence_task(const struct task *task) {
    struct span spans[SPANS_MAX];
    size_t count = work_spans(&task->work, spans, SPANS_MAX);
    for (size_t i = 0; i < count; i++) memory_fence_span(spans[i]);
}

struct task *task_add(struct work work, CUhandle stream, unsigned speed, struct task *const *before,
                      size_t before_count) {
    struct task *task = fresh(sizeof *task);
    *task = (struct task){.number = ++number, .references = 2, .speed = speed, .stream = stream, .work = work};
    for (size_t i = 0; i < before_count; i++) {
        struct task *other = before[i];
        if (other == NULL || other->observed) continue;
        task_hold(other);
        append((void **)&task->before, &task->before_count, sizeof other, &other);
        if (other->done) continue;
        append((void **)&other->after, &other->after_count, sizeof task, &task);
        task->waiting_for++;
    }
    check_races(task);
    task->previous = last;
    *(last ? &last->next : &first) = task;
    last = task;
    fence_task(task);
    return task; /* one reference is the list's, one the caller's */
}

static void unlink_task(struct task *task) {
    *(task->previous ? &task->previous->next : &first) = task->next;
    *(task->next ? &task->next->previous : &last) = task->previous;
    fence_task(task);
    task_drop(&task);
}

void task_observe(struct task *task) {
    struct task **stack = NULL;
    size_t count = 0;
    if (task == NULL || task->observed) return;
    append((void **)&stack, &count, sizeof *stack, &task);
    task->observed = true;
    for (size_t at = 0; at < count; at++)
        for (size_t i = 0; i < stack[at]->before_count; i++) {
            struct task *before = stack[at]->before[i];
            if (before->observed) continue;
            before->observed = true;
            append((void **)&stack, &count, sizeof *stack, &before);
        }
    while (count > 0) { /* the oldest first: each is still held by those behind it */
        struct task *oldest = stack[--count];
        task_hold(oldest);
        drop_before(oldest);
        unlink_task(oldest);
        task_drop(&oldest);
    }
    free(stack);
}

static void observe_before(struct task *task) {
    while (task->before_count > 0) {
        struct task *before = task->before[--task->before_count];
        task_observe(before);
        task_drop(&before);
    }
}

static void finish(struct task *task) {
    task->done = true;
    task->finished_ns = virtual_ns(1000);
    done_count++;
    for (size_t i = 0; i < task->after_count; i++) task->after[i]->waiting_for--;
    task->after_count = 0;
    call_signal();
}

/* The driver runs host functions on a thread of its own, one after the other, and so does this. */
static void *run_host_functions(void *nothing) {
    (void)nothing;
    call_lock();
    in_host_function = true;
    for (;;) {
        struct task *task = host_task;
        if (task == NULL || !task->running) {
            call_pause();
            continue;
        }
        CUhostFn host = task->work.host;
        void *user = task->work.user;
        call_unlock();
        host(user);
        call_lock();
        finish(task);
        task->running = false;
        host_task = NULL;
        task_drop(&task);
    }
    return NULL;
}

static void start_host_function(struct task *task) {
    pthread_t thread;
    if (!host_thread_started && pthread_create(&thread, NULL, run_host_functions, NULL) != 0) abort();
    if (!host_thread_started) pthread_detach(thread);
    host_thread_started = true;
    observe_before(task);
    task_hold(task);
    task->running = true;
    host_task = task;
    call_signal();
    /* Mostly it is short, and waiting keeps the seed's order; one that waits for the caller must not be waited for. */
    for (int i = 0; i < 20 && host_task == task; i++) call_pause();
}

/* What reads memory that nothing has written gets poison; a real device would give it whatever was there. */
static void check_defined(const struct task *task) {
    struct span spans[SPANS_MAX];
    size_t count = work_spans(&task->work, spans, SPANS_MAX);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = spans[i].writes ? 0 : memory_undefined(spans[i]);
        if (bytes > 0)
            violation("%s (work %llu) reads %llu bytes at 0x%llx that nothing has written", work_name(&task->work),
                      (unsigned long long)task->number, (unsigned long long)bytes,
                      (unsigned long long)spans[i].address);
    }
}

static void note_written(const struct task *task) {
    struct span spans[SPANS_MAX];
    size_t count = work_spans(&task->work, spans, SPANS_MAX);
    for (size_t i = 0; i < count; i++)
        if (spans[i].writes) memory_wrote(spans[i]);
}

static bool may_run(const struct task *task) {
    if (task->done || task->running || task->waiting_for > 0) return false;
    if (task->work.kind == WORK_HOST && host_task != NULL) return false;
    return work_ready(&task->work);
}

static struct task *choose(void) {
    struct task *chosen = NULL;
    uint64_t weights = 0;
    for (struct task *task = first; task != NULL; task = task->next) {
        if (!may_run(task)) continue;
        weights += task->speed;
        if (random_below(weights) < task->speed) chosen = task;
    }
    return chosen;
}

bool task_run_one(void) {
    struct task *task = choose();
    bool finished = false;
    if (task == NULL) return false;
    if (task->progress == 0) check_defined(task);
    CUresult fault = task->progress == 0 && task->work.kind != WORK_NOTHING ? work_fault() : CUDA_SUCCESS;
    if (fault != CUDA_SUCCESS) {
        context_fail(fault);
    } else if (task->work.kind == WORK_HOST) {
        start_host_function(task);
    } else if (!work_step(&task->work, &task->progress, &finished)) {
        violation("%s (work %llu) uses an address that is not allocated, or no longer", work_name(&task->work),
                  (unsigned long long)task->number);
        context_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    } else if (finished) {
        note_written(task);
        finish(task);
        if (task->work.kind == WORK_WRITE_VALUE) observe_before(task); /* the host may see it in memory */
    }
    return true;
}

void tasks_progress(unsigned steps_max) {
    for (uint64_t steps = random_below(steps_max + 1ull); steps > 0 && task_run_one(); steps--) {
    }
}

static bool anything_left(void) {
    for (struct task *task = first; task != NULL; task = task->next)
        if (!task->done) return true;
    return false;
}

CUresult tasks_wait(struct task *task) {
    if (task != NULL) task_hold(task);
    while (sticky == CUDA_SUCCESS && (task != NULL ? !task->done : anything_left()))
        if (!task_run_one()) call_pause();
    if (task != NULL && task->done) task_observe(task);
    while (task == NULL && sticky == CUDA_SUCCESS && first != NULL) task_observe(last);
    task_drop(&task);
    return sticky;
}

bool tasks_touch(struct span span, struct task **found) {
    struct span spans[SPANS_MAX];
    for (*found = first; *found != NULL; *found = (*found)->next) {
        size_t count = work_spans(&(*found)->work, spans, SPANS_MAX);
        for (size_t i = 0; i < count; i++)
            if (overlap(span, spans[i])) return true;
    }
    return false;
}

unsigned tasks_closing(uint64_t start, uint64_t end) {
    struct span spans[SPANS_MAX];
    unsigned closing = 0;
    for (struct task *task = first; task != NULL; task = task->next) {
        if (task->observed) continue;
        size_t count = work_spans(&task->work, spans, SPANS_MAX);
        for (size_t i = 0; i < count; i++)
            if (spans[i].address < end && start < spans[i].address + spans[i].bytes)
                closing = spans[i].writes ? 2 : closing ? closing : 1;
    }
    return closing;
}

/* After a sticky error nothing runs any more, and nothing counts as using memory. */
void tasks_abandon(void) {
    for (struct task *task = first; task != NULL; task = task->next) {
        task->done |= !task->running;
        task->after_count = 0;
    }
    while (last != NULL) {
        struct task *task = last;
        task->observed = true;
        drop_before(task);
        unlink_task(task);
    }
    call_signal();
}

void tasks_clear(void) {
    while (host_task != NULL) call_pause();
    tasks_abandon();
    number = mark = done_count = 0;
}

void tasks_stats(struct ticksim_stats *stats) {
    stats->work_done = done_count;
    for (struct task *task = first; task != NULL; task = task->next) {
        stats->work_unobserved++;
        stats->work_pending += !task->done;
    }
}
