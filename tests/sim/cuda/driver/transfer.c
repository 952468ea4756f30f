/* The memory functions of the API, copies, fills, and what else a stream can be told to do.

   When a copy reads and when it returns follows "API synchronization behavior" of the driver API's reference: from
   pageable memory the bytes are staged before the call returns, into pageable memory the call returns when they are
   there, and everything else happens when the stream gets to it. */
#include <stdlib.h>
#include <string.h>
#include "sim.h"

enum direction { ANY, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

static bool fits(enum place target, enum place source, enum direction direction) {
    if (target == PLACE_ILLEGAL || source == PLACE_ILLEGAL) return false;
    bool to_device = target != PLACE_PAGEABLE, from_device = source != PLACE_PAGEABLE; /* pinned memory is both */
    switch (direction) {
    case HOST_TO_DEVICE: return to_device && source != PLACE_DEVICE;
    case DEVICE_TO_HOST: return from_device && target != PLACE_DEVICE;
    case DEVICE_TO_DEVICE: return to_device && from_device;
    default: return true;
    }
}

static struct payload *payload_of(const void *data, size_t bytes, const struct ticksim_region *regions,
                                  size_t region_count) {
    struct payload *payload = fresh(sizeof *payload + bytes);
    payload->references = 1;
    payload->bytes = bytes;
    if (bytes > 0) memcpy(payload->data, data, bytes);
    for (size_t i = 0; i < region_count; i++)
        append((void **)&payload->regions, &payload->region_count, sizeof *regions, &regions[i]);
    return payload;
}

/* Whether the call returns only when the copy has ended. */
static bool returns_late(enum place to, enum place from, bool wait) {
    if (to == PLACE_PAGEABLE || (to != PLACE_DEVICE && from != PLACE_DEVICE)) return true;
    return wait && (to != PLACE_DEVICE || from == PLACE_PINNED || from == PLACE_REGISTERED);
}

static CUresult copy(uint64_t target, uint64_t source, size_t bytes, CUhandle handle, enum direction direction,
                     bool wait) {
    struct stream *stream;
    CUresult code = stream_find(handle, &stream);
    enum place to = memory_at(target, bytes).place, from = memory_at(source, bytes).place;
    struct work work = {.kind = WORK_COPY, .target = target, .source = source, .bytes = bytes};
    if (code != CUDA_SUCCESS) return code;
    if (bytes == 0) return CUDA_SUCCESS;
    if (!fits(to, from, direction)) return CUDA_ERROR_INVALID_VALUE;
    bool captured = stream->capture != NULL;
    if (captured && (to == PLACE_PAGEABLE || from == PLACE_PAGEABLE))
        violation("a captured copy uses pageable memory at 0x%llx: every replay would use it again",
                  (unsigned long long)(to == PLACE_PAGEABLE ? target : source));
    if (!captured && from == PLACE_PAGEABLE) work.payload = payload_of(memory_view(source), bytes, NULL, 0);
    code = stream_submit(handle, work);
    return code == CUDA_SUCCESS && !captured && returns_late(to, from, wait) ? tasks_wait(stream->last) : code;
}

static CUresult fill(CUdeviceptr target, uint64_t value, unsigned value_bytes, size_t count, CUhandle stream,
                     bool wait) {
    struct memory memory = memory_at(target, count * value_bytes);
    struct stream *found;
    CUresult code = stream_find(stream, &found);
    if (code != CUDA_SUCCESS) return code;
    if (count == 0) return CUDA_SUCCESS;
    if (memory.place == PLACE_ILLEGAL || memory.place == PLACE_PAGEABLE || target % value_bytes != 0)
        return CUDA_ERROR_INVALID_VALUE;
    code = stream_submit(stream, (struct work){.kind = WORK_FILL,
                                               .target = target,
                                               .bytes = count * value_bytes,
                                               .value = value,
                                               .value_bytes = value_bytes});
    return code == CUDA_SUCCESS && wait && memory.place != PLACE_DEVICE ? tasks_wait(found->last) : code;
}

#define AT(pointer) ((uint64_t)(uintptr_t)(pointer))
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    API(NEEDS_CONTEXT | UNSAFE, copy(to, from, bytes, 0, ANY, true));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUhandle stream) {
    API(NEEDS_CONTEXT, copy(to, from, bytes, stream, ANY, false));
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    API(NEEDS_CONTEXT | UNSAFE, copy(to, AT(from), bytes, 0, HOST_TO_DEVICE, true));
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    API(NEEDS_CONTEXT | UNSAFE, copy(AT(to), from, bytes, 0, DEVICE_TO_HOST, true));
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    API(NEEDS_CONTEXT | UNSAFE, copy(to, from, bytes, 0, DEVICE_TO_DEVICE, true));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUhandle stream) {
    API(NEEDS_CONTEXT, copy(to, AT(from), bytes, stream, HOST_TO_DEVICE, false));
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUhandle stream) {
    API(NEEDS_CONTEXT, copy(AT(to), from, bytes, stream, DEVICE_TO_HOST, false));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUhandle stream) {
    API(NEEDS_CONTEXT, copy(to, from, bytes, stream, DEVICE_TO_DEVICE, false));
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    API(NEEDS_CONTEXT | UNSAFE, fill(to, value, 1, count, 0, true));
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    API(NEEDS_CONTEXT | UNSAFE, fill(to, value, 4, count, 0, true));
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUhandle stream) {
    API(NEEDS_CONTEXT, fill(to, value, 1, count, stream, false));
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUhandle stream) {
    API(NEEDS_CONTEXT, fill(to, value, 4, count, stream, false));
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) { API(NEEDS_CONTEXT | UNSAFE, memory_alloc_device(out, bytes)); }
CUresult cuMemFree_v2(CUdeviceptr address) { API(NEEDS_CONTEXT | UNSAFE | RELEASES, memory_free_device(address)); }
CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    API(NEEDS_CONTEXT | UNSAFE, memory_alloc_host(out, bytes, flags));
}
CUresult cuMemAllocHost_v2(void **out, size_t bytes) { API(NEEDS_CONTEXT | UNSAFE, memory_alloc_host(out, bytes, 0)); }
CUresult cuMemFreeHost(void *address) { API(NEEDS_CONTEXT | UNSAFE | RELEASES, memory_free_host(address)); }
CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
    API(NEEDS_CONTEXT | UNSAFE, memory_register(address, bytes, flags));
}
CUresult cuMemHostUnregister(void *address) { API(NEEDS_CONTEXT | UNSAFE | RELEASES, memory_unregister(address)); }

/* With unified addresses, which this device has, host memory has one address for both. */
static CUresult device_pointer(CUdeviceptr *out, void *address, unsigned flags) {
    enum place place = memory_at(AT(address), 1).place;
    if (out == NULL || flags != 0 || (place != PLACE_PINNED && place != PLACE_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    *out = AT(address);
    return CUDA_SUCCESS;
}

static CUresult host_flags(unsigned *out, void *address) {
    struct memory memory = memory_at(AT(address), 1);
    if (out == NULL || memory.place != PLACE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    *out = memory.flags | HOST_MAPPED; /* as all pinned memory is under unified addressing */
    return CUDA_SUCCESS;
}

static CUresult info(size_t *free_bytes, size_t *total_bytes) {
    if (free_bytes == NULL || total_bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = memory_device_free();
    *total_bytes = memory_device_total();
    return CUDA_SUCCESS;
}

static CUresult range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    struct memory memory = memory_at(address, 1);
    if (memory.place == PLACE_ILLEGAL || memory.place == PLACE_PAGEABLE) return CUDA_ERROR_NOT_FOUND;
    if (base != NULL) *base = memory.start;
    if (bytes != NULL) *bytes = memory.bytes;
    return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void *out, int which, CUdeviceptr address) {
    enum {
        CONTEXT = 1,
        MEMORY_TYPE = 2,
        DEVICE_POINTER = 3,
        HOST_POINTER = 4,
        IS_MANAGED = 8,
        DEVICE_ORDINAL = 9,
        START = 11,
        SIZE = 12
    };
    enum { TYPE_HOST = 1, TYPE_DEVICE = 2 };
    struct memory memory = memory_at(address, 1);
    if (out == NULL || memory.place == PLACE_ILLEGAL || memory.place == PLACE_PAGEABLE) return CUDA_ERROR_INVALID_VALUE;
    bool on_device = memory.place == PLACE_DEVICE;
    switch (which) {
    case CONTEXT: *(CUhandle *)out = context_primary()->object.handle; return CUDA_SUCCESS;
    case MEMORY_TYPE: *(unsigned *)out = on_device ? TYPE_DEVICE : TYPE_HOST; return CUDA_SUCCESS;
    case DEVICE_POINTER: *(CUdeviceptr *)out = address; return CUDA_SUCCESS;
    case HOST_POINTER: *(CUdeviceptr *)out = address; return on_device ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case IS_MANAGED: *(int *)out = 0; return CUDA_SUCCESS;
    case DEVICE_ORDINAL: *(int *)out = 0; return CUDA_SUCCESS;
    case START: *(CUdeviceptr *)out = memory.start; return CUDA_SUCCESS;
    case SIZE: *(size_t *)out = memory.bytes; return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned flags) {
    API(NEEDS_CONTEXT, device_pointer(out, address, flags));
}
CUresult cuMemHostGetFlags(unsigned *out, void *address) { API(NEEDS_CONTEXT, host_flags(out, address)); }
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) { API(NEEDS_CONTEXT, info(free_bytes, total_bytes)); }
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    API(NEEDS_CONTEXT, range(base, bytes, address));
}
CUresult cuPointerGetAttribute(void *out, int which, CUdeviceptr address) {
    API(NEEDS_CONTEXT, pointer_attribute(out, which, address));
}

CUresult cuLaunchHostFunc(CUhandle stream, CUhostFn host, void *user) {
    API(NEEDS_CONTEXT, host == NULL
                           ? CUDA_ERROR_INVALID_VALUE
                           : stream_submit(stream, (struct work){.kind = WORK_HOST, .host = host, .user = user}));
}

static CUresult value_work(CUhandle stream, CUdeviceptr at, uint64_t value, unsigned bytes, unsigned flags,
                           enum work_kind kind) {
    enum place place = memory_at(at, bytes).place;
    if (at % bytes != 0 || place == PLACE_ILLEGAL || place == PLACE_PAGEABLE) return CUDA_ERROR_INVALID_VALUE;
    return stream_submit(
        stream, (struct work){.kind = kind, .target = at, .value = value, .value_bytes = bytes, .value_flags = flags});
}

CUresult cuStreamWaitValue32_v2(CUhandle stream, CUdeviceptr at, uint32_t value, unsigned flags) {
    API(NEEDS_CONTEXT, value_work(stream, at, value, 4, flags, WORK_WAIT_VALUE));
}
CUresult cuStreamWaitValue64_v2(CUhandle stream, CUdeviceptr at, uint64_t value, unsigned flags) {
    API(NEEDS_CONTEXT, value_work(stream, at, value, 8, flags, WORK_WAIT_VALUE));
}
CUresult cuStreamWriteValue32_v2(CUhandle stream, CUdeviceptr at, uint32_t value, unsigned flags) {
    API(NEEDS_CONTEXT, value_work(stream, at, value, 4, flags, WORK_WRITE_VALUE));
}
CUresult cuStreamWriteValue64_v2(CUhandle stream, CUdeviceptr at, uint64_t value, unsigned flags) {
    API(NEEDS_CONTEXT, value_work(stream, at, value, 8, flags, WORK_WRITE_VALUE));
}

static CUresult launch(CUhandle stream, ticksim_kernel run, const void *arguments, size_t argument_bytes,
                       const struct ticksim_region *regions, size_t region_count) {
    if (run == NULL || region_count > 16) return CUDA_ERROR_INVALID_VALUE;
    struct payload *payload = payload_of(arguments, argument_bytes, regions, region_count);
    return stream_submit(stream, (struct work){.kind = WORK_KERNEL, .kernel = run, .payload = payload});
}

CUresult ticksim_launch(CUhandle stream, ticksim_kernel run, const void *arguments, size_t argument_bytes,
                        const struct ticksim_region *regions, size_t region_count) {
    API(NEEDS_CONTEXT, launch(stream, run, arguments, argument_bytes, regions, region_count));
}
