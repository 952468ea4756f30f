/* The lock, the way into and out of every call, the seed, violations, faults to order, and the control surface. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "sim.h"

enum { INJECTIONS_MAX = 16, NAMES_MAX = 128, NAME_BYTES = 48 };
struct injection {
    char name[NAME_BYTES];
    uint64_t left;
    CUresult code;
};
struct count {
    char name[NAME_BYTES];
    uint64_t calls;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool strict = true, check_leaks, background, background_started;
static uint64_t seed, random_state, clock_ns, call_count, violation_count;
static unsigned eager; /* how many steps a call makes at most, drawn from the seed: 0 is as late as can be */
static char first_violation[512];
static struct injection injections[INJECTIONS_MAX];
static size_t injection_count;
static struct count counts[NAMES_MAX];
static size_t name_count;

_Thread_local bool in_host_function;
static _Thread_local uint64_t this_thread;
static uint64_t threads;

void call_lock(void) { pthread_mutex_lock(&lock); }
void call_unlock(void) { pthread_mutex_unlock(&lock); }
void call_signal(void) { pthread_cond_broadcast(&changed); }

void call_pause(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&changed, &lock, &until);
}

uint64_t thread_number(void) {
    if (this_thread == 0) this_thread = ++threads;
    return this_thread;
}

uint64_t random_below(uint64_t bound) /* splitmix64 */
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % bound;
}

uint64_t virtual_ns(uint64_t step) { return clock_ns += step; }

void violation(const char *format, ...) {
    char text[sizeof first_violation];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (violation_count++ == 0) memcpy(first_violation, text, sizeof text);
    if (!strict) return;
    fprintf(stderr, "ticksim: violation (seed %llu): %s\n", (unsigned long long)seed, text);
    abort();
}

void violation_in_signal(const char *text) {
    char digits[24], *at = digits + sizeof digits;
    for (uint64_t rest = seed; at == digits + sizeof digits || rest > 0; rest /= 10) *--at = (char)('0' + rest % 10);
    const char *parts[] = {"ticksim: violation (seed ", NULL, "): ", text, "\n"};
    for (size_t i = 0; i < 5; i++) {
        const char *part = i == 1 ? at : parts[i];
        size_t bytes = i == 1 ? (size_t)(digits + sizeof digits - at) : strlen(part);
        if (write(STDERR_FILENO, part, bytes) < 0) break;
    }
    abort();
}

/* "cuMemAlloc_v2" is counted and injected as "cuMemAlloc". */
static void plain_name(char *plain, const char *name) {
    snprintf(plain, NAME_BYTES, "%s", name);
    char *version = strstr(plain, "_v");
    if (version != NULL) *version = '\0';
}

static void count_call(const char *plain) {
    call_count++;
    for (size_t i = 0; i < name_count; i++)
        if (strcmp(counts[i].name, plain) == 0) {
            counts[i].calls++;
            return;
        }
    if (name_count == NAMES_MAX) return;
    counts[name_count].calls = 1;
    snprintf(counts[name_count++].name, NAME_BYTES, "%s", plain);
}

static CUresult fault(const char *name, bool any) {
    for (size_t i = 0; i < injection_count; i++) {
        struct injection *order = &injections[i];
        if (strcmp(order->name, name) != 0 && !(any && strcmp(order->name, "*") == 0)) continue;
        if (order->left == 0 || --order->left > 0) continue;
        return order->code;
    }
    return CUDA_SUCCESS;
}

CUresult work_fault(void) { return fault("work", false); }

static CUresult allowed(const char *name, unsigned needs) {
    char plain[NAME_BYTES];
    plain_name(plain, name);
    count_call(plain);
    if (in_host_function) {
        violation("%s was called from a host function", plain);
        return CUDA_ERROR_NOT_PERMITTED;
    }
    CUresult injected = fault(plain, true);
    if (injected != CUDA_SUCCESS) return injected;
    if (needs & (NEEDS_INIT | NEEDS_CONTEXT) && !sim_initialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (needs & NEEDS_CONTEXT) {
        struct context *context;
        CUresult code = context_current(&context);
        if (code != CUDA_SUCCESS) return code;
        if (sticky != CUDA_SUCCESS && !(needs & RELEASES)) return sticky;
    }
    return needs & UNSAFE ? capture_forbids_unsafe() : CUDA_SUCCESS;
}

CUresult call_begin(const char *name, unsigned needs) {
    call_lock();
    return allowed(name, needs);
}

CUresult call_end(CUresult code, unsigned needs) {
    if (code == CUDA_SUCCESS && needs & RELEASES) code = sticky;
    if (code == CUDA_SUCCESS && eager > 0) tasks_progress(eager);
    call_unlock();
    return code;
}

static void *run_in_background(void *nothing) {
    (void)nothing;
    for (;;) {
        call_lock();
        bool ran = background && task_run_one();
        call_unlock();
        struct timespec nap = {.tv_nsec = ran ? 20000 : 200000};
        nanosleep(&nap, NULL);
    }
    return NULL;
}

void ticksim_background(int run) {
    pthread_t thread;
    call_lock();
    background = run != 0;
    if (background && !background_started && pthread_create(&thread, NULL, run_in_background, NULL) != 0) abort();
    if (background && !background_started) pthread_detach(thread);
    background_started |= background;
    call_unlock();
}

void ticksim_reset(uint64_t new_seed) {
    static const unsigned eagerness[] = {0, 0, 1, 4};
    call_lock();
    tasks_clear();
    captures_clear();
    streams_clear();
    contexts_clear();
    sticky = CUDA_SUCCESS;
    objects_clear();
    memory_reset();
    seed = random_state = new_seed;
    clock_ns = call_count = violation_count = 0;
    injection_count = name_count = 0;
    first_violation[0] = '\0';
    eager = eagerness[random_below(4)];
    call_unlock();
}

uint64_t ticksim_seed(void) { return seed; }
void ticksim_strict(int on) { strict = on != 0; }
void ticksim_check_leaks(int check) { check_leaks = check != 0; }
const char *ticksim_violation(void) { return first_violation; }

void ticksim_fence(int on) {
    call_lock();
    memory_fence(on != 0);
    call_unlock();
}

void ticksim_device_bytes(uint64_t bytes) {
    call_lock();
    memory_device_limit(bytes);
    call_unlock();
}

uint64_t ticksim_check_guards(void) {
    call_lock();
    uint64_t count = memory_check_guards();
    call_unlock();
    return count;
}

void ticksim_inject(const char *name, uint64_t nth, CUresult code) {
    call_lock();
    size_t at = 0;
    while (at < injection_count && injections[at].left > 0) at++;
    if (at == INJECTIONS_MAX) abort();
    if (at == injection_count) injection_count++;
    injections[at] = (struct injection){.left = nth, .code = code};
    snprintf(injections[at].name, NAME_BYTES, "%s", name);
    call_unlock();
}

uint64_t ticksim_calls(const char *name) {
    uint64_t calls = 0;
    call_lock();
    if (strcmp(name, "*") == 0) calls = call_count;
    for (size_t i = 0; i < name_count; i++)
        if (strcmp(counts[i].name, name) == 0) calls = counts[i].calls;
    call_unlock();
    return calls;
}

static uint64_t living(enum kind kind) {
    uint64_t count = 0;
    for (struct object *object = object_next(kind, 0); object != NULL; object = object_next(kind, object->handle))
        count++;
    return count;
}

static uint64_t describe(char *text, size_t text_bytes) {
    static const char *const names[KINDS] = {"context", "stream", "event", "graph", "node", "executable graph"};
    uint64_t count = memory_describe(text, text_bytes);
    for (enum kind kind = KIND_STREAM; kind < KINDS; kind++) {
        if (kind == KIND_NODE || living(kind) == 0) continue;
        size_t used = strlen(text);
        count += living(kind);
        if (used < text_bytes)
            snprintf(text + used, text_bytes - used, "%s: %llu\n", names[kind], (unsigned long long)living(kind));
    }
    return count;
}

uint64_t ticksim_leaks(char *text, size_t text_bytes) {
    call_lock();
    if (text_bytes > 0) text[0] = '\0';
    uint64_t count = describe(text, text_bytes);
    call_unlock();
    return count;
}

void check_leaks_now(void) {
    char text[400] = "";
    struct ticksim_stats stats = {0};
    tasks_stats(&stats);
    if (check_leaks && stats.work_unobserved > 0)
        violation("the context was destroyed while %llu pieces of work were not waited for",
                  (unsigned long long)stats.work_unobserved);
    if (check_leaks && describe(text, sizeof text) > 0)
        violation("the context was destroyed while this lives in it:\n%s", text);
}

void ticksim_stats(struct ticksim_stats *stats) {
    call_lock();
    *stats = (struct ticksim_stats){.streams = living(KIND_STREAM),
                                    .events = living(KIND_EVENT),
                                    .graphs = living(KIND_GRAPH),
                                    .execs = living(KIND_EXEC),
                                    .calls = call_count,
                                    .violations = violation_count};
    memory_stats(stats);
    tasks_stats(stats);
    struct context *context = context_primary();
    stats->context_retains = context ? context->retains : 0;
    call_unlock();
}

static bool told(const char *name, bool otherwise) {
    const char *text = getenv(name);
    return text != NULL ? text[0] != '0' : otherwise;
}

/* TICKPATH_SIM_INJECT is NAME:NTH:CODE, several with commas between. */
static void inject_from(const char *text) {
    char name[NAME_BYTES];
    unsigned long long nth;
    int code, used;
    while (text != NULL && sscanf(text, " %47[^:]:%llu:%d%n", name, &nth, &code, &used) == 3) {
        ticksim_inject(name, nth, (CUresult)code);
        text += used;
        text += *text == ',';
    }
}

__attribute__((constructor)) static void load(void) {
    const char *text = getenv("TICKPATH_SIM_SEED");
    memory_start();
    ticksim_reset(text != NULL ? strtoull(text, NULL, 10) : 0);
    strict = told("TICKPATH_SIM_STRICT", true);
    check_leaks = told("TICKPATH_SIM_LEAKS", false);
    memory_fence(told("TICKPATH_SIM_FENCE", false));
    inject_from(getenv("TICKPATH_SIM_INJECT"));
}

__attribute__((destructor)) static void unload(void) {
    if (context_primary() != NULL) check_leaks_now();
}
