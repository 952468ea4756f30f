/* The device, its one (primary) context, and which context a thread works in. */
#include <stdio.h>
#include <string.h>
#include "sim.h"

enum { DRIVER_VERSION = 13000, STACK_MAX = 16 };

bool sim_initialised;
CUresult sticky;
static struct context *primary; /* NULL while nobody retains it */
static _Thread_local CUhandle stack[STACK_MAX];
static _Thread_local int depth;

struct context *context_primary(void) { return primary; }

CUresult context_current(struct context **context) {
    CUhandle handle = depth > 0 ? stack[depth - 1] : 0;
    *context = object_get(handle, KIND_CONTEXT);
    if (*context != NULL) return CUDA_SUCCESS;
    return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

void context_fail(CUresult code) {
    if (sticky == CUDA_SUCCESS) sticky = code;
    tasks_abandon();
}

void contexts_clear(void) {
    if (primary != NULL) object_drop(&primary->object);
    primary = NULL;
}

static void close_primary(void) {
    if (primary == NULL) return;
    check_leaks_now();
    tasks_clear();
    captures_clear();
    streams_clear();
    memory_free_all();
    contexts_clear();
}

static CUresult start(unsigned flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    sim_initialised = true;
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) { API(NEEDS_NOTHING, start(flags)); }

static CUresult tell(int device, void *out, const void *value, size_t bytes) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
    memcpy(out, value, bytes);
    return CUDA_SUCCESS;
}

static CUresult name(char *out, int bytes, CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (out == NULL || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
    snprintf(out, (size_t)bytes, "Simulated CUDA device");
    return CUDA_SUCCESS;
}

static CUresult attribute(int *out, int which, CUdevice device) {
    static const struct {
        int which, value;
    } known[] = {
        {1, 1024}, // threads per block
        {2, 1024}, // and along x
        {3, 1024}, // along y
        {4, 64},   // along z
        {10, 32},  // threads per warp
        {16, 64},  // multiprocessors
        {19, 1},   // maps host memory
        {31, 1},   // runs kernels at the same time
        {40, 2},   // copy engines
        {41, 1},   // unified addresses
        {75, 8},   // compute capability, major
        {76, 9},   // and minor
        {78, 1},   // stream priorities
        {91, 1},   // registered memory has one address
    };
    int value = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].which == which) value = known[i].value;
    return which < 1 ? CUDA_ERROR_INVALID_VALUE : tell(device, out, &value, sizeof value);
}

CUresult cuDriverGetVersion(int *out) { API(NEEDS_NOTHING, tell(0, out, &(int){DRIVER_VERSION}, sizeof(int))); }
CUresult cuDeviceGetCount(int *out) { API(NEEDS_INIT, tell(0, out, &(int){1}, sizeof(int))); }
CUresult cuDeviceGet(CUdevice *out, int ordinal) { API(NEEDS_INIT, tell(ordinal, out, &(int){0}, sizeof(int))); }
CUresult cuDeviceGetName(char *out, int bytes, CUdevice device) { API(NEEDS_INIT, name(out, bytes, device)); }
CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice device) {
    API(NEEDS_INIT, tell(device, out, "simulated device", 16));
}
CUresult cuDeviceGetAttribute(int *out, int which, CUdevice device) { API(NEEDS_INIT, attribute(out, which, device)); }
CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device) {
    API(NEEDS_INIT, tell(device, out, &(size_t){memory_device_total()}, sizeof(size_t)));
}

static CUresult retain(CUhandle *out, CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (sticky != CUDA_SUCCESS) return sticky;
    if (primary == NULL) {
        primary = fresh(sizeof *primary);
        object_add(&primary->object, KIND_CONTEXT);
    }
    primary->retains++;
    *out = primary->object.handle;
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (primary == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary->retains == 0) close_primary();
    return CUDA_SUCCESS;
}

static CUresult reset(CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    close_primary();
    return CUDA_SUCCESS;
}

static CUresult set_flags(CUdevice device, unsigned flags) {
    enum { FLAGS = 0xff };
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    return flags & ~(unsigned)FLAGS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; /* how a wait waits: all alike here */
}

static CUresult state(CUdevice device, unsigned *flags, int *active) {
    int is_active = primary != NULL;
    CUresult code = tell(device, flags, &(unsigned){0}, sizeof *flags);
    return code == CUDA_SUCCESS ? tell(device, active, &is_active, sizeof is_active) : code;
}

CUresult cuDevicePrimaryCtxRetain(CUhandle *out, CUdevice device) { API(NEEDS_INIT, retain(out, device)); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { API(NEEDS_INIT, release(device)); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { API(NEEDS_INIT, reset(device)); }
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) { API(NEEDS_INIT, set_flags(device, flags)); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    API(NEEDS_INIT, state(device, flags, active));
}

static CUresult push(CUhandle context) {
    if (object_get(context, KIND_CONTEXT) == NULL || depth == STACK_MAX) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUhandle *out) {
    if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    CUhandle top = stack[--depth];
    return tell(0, out ? out : &(CUhandle){0}, &top, sizeof top);
}

static CUresult set_current(CUhandle context) {
    if (context != 0 && object_get(context, KIND_CONTEXT) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth > 0) depth--;
    return context != 0 ? push(context) : CUDA_SUCCESS;
}

static CUresult get_current(CUhandle *out) {
    struct context *context;
    context_current(&context);
    return tell(0, out, &(CUhandle){context ? context->object.handle : 0}, sizeof *out);
}

static CUresult synchronize(void) {
    CUresult code = capture_forbids_context();
    return code == CUDA_SUCCESS ? tasks_wait(NULL) : code;
}

static CUresult priorities(int *least, int *greatest) {
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUhandle context) { API(NEEDS_INIT, push(context)); }
CUresult cuCtxPopCurrent_v2(CUhandle *out) { API(NEEDS_INIT, pop(out)); }
CUresult cuCtxSetCurrent(CUhandle context) { API(NEEDS_INIT, set_current(context)); }
CUresult cuCtxGetCurrent(CUhandle *out) { API(NEEDS_INIT, get_current(out)); }
CUresult cuCtxGetDevice(CUdevice *out) { API(NEEDS_CONTEXT, tell(0, out, &(int){0}, sizeof(int))); }
CUresult cuCtxSynchronize(void) { API(NEEDS_CONTEXT, synchronize()); }
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) { API(NEEDS_CONTEXT, priorities(least, greatest)); }
