/* Memory. Two ranges of addresses, never used twice between resets:

   - device: closed to the host for ever; the library reaches its bytes through a second mapping (the view).
   - pinned: open to the host while it is allocated; the view stays open while the host is fenced out.

   Fresh bytes are poison, and a guard zone stands before and behind every allocation. Nothing freed is valid again. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "sim.h"

enum { POISON = 0xFB, GUARD = 0xFD, PAGE = 4096, GUARD_BYTES = 256, DEVICE_ALIGNMENT = 256 };
static const uint64_t RANGE_BYTES = 1ull << 38;   /* 256 GiB of addresses; pages exist once they are touched */
static const uint64_t DEVICE_TOTAL = 16ull << 30; /* a common card */

struct range {
    char *address, *view;
    uint64_t used;
};
struct allocation {
    enum place place;
    uint64_t address, bytes;
    unsigned flags;
    bool *defined; /* a byte each, on the device */
};

static struct range device, pinned;
static int pinned_file = -1;
static struct allocation *living;
static size_t living_count;
static uint64_t device_limit = 16ull << 30;
static bool fence;
static struct sigaction previous_fault;

static bool inside(const struct range *range, uint64_t address) {
    return address >= (uintptr_t)range->address && address - (uintptr_t)range->address < RANGE_BYTES;
}

static void on_fault(int number, siginfo_t *info, void *machine) {
    uint64_t address = (uintptr_t)info->si_addr;
    if (inside(&device, address)) violation_in_signal("the host touched device memory");
    if (inside(&pinned, address))
        violation_in_signal(
            "the host touched pinned memory that is freed, not allocated, or in use by unfinished work");
    sigaction(SIGSEGV, &previous_fault, NULL);
    (void)number;
    (void)machine; /* returning runs the instruction again, under the handler that was there before */
}

static void *map(int protection, int flags, int file) {
    void *memory = mmap(NULL, RANGE_BYTES, protection, flags | MAP_NORESERVE, file, 0);
    if (memory != MAP_FAILED) return memory;
    perror("ticksim: can't reserve addresses");
    abort();
}

void memory_start(void) {
    device.address = map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    device.view = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    pinned_file = memfd_create("ticksim-pinned", MFD_CLOEXEC);
    if (pinned_file < 0 || ftruncate(pinned_file, (off_t)RANGE_BYTES) != 0) abort();
    pinned.address = map(PROT_NONE, MAP_SHARED, pinned_file);
    pinned.view = map(PROT_READ | PROT_WRITE, MAP_SHARED, pinned_file);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, &previous_fault);
}

void memory_reset(void) {
    madvise(device.view, device.used, MADV_DONTNEED);
    if (pinned.used) {
        mprotect(pinned.address, pinned.used, PROT_NONE);
        if (ftruncate(pinned_file, 0) != 0 || ftruncate(pinned_file, (off_t)RANGE_BYTES) != 0) abort();
    }
    device.used = pinned.used = 0;
    for (size_t i = 0; i < living_count; i++) free(living[i].defined);
    free(living);
    living = NULL;
    living_count = 0;
    device_limit = DEVICE_TOTAL;
}

static struct range *range_of(enum place place) { return place == PLACE_DEVICE ? &device : &pinned; }

void *memory_view(uint64_t address) {
    if (inside(&device, address)) return device.view + (address - (uintptr_t)device.address);
    if (inside(&pinned, address)) return pinned.view + (address - (uintptr_t)pinned.address);
    return (void *)(uintptr_t)address;
}

static uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

/* Guard zones stand on both sides on the device. A pinned allocation starts its page, as the driver's do: the page
   before is closed, the rest of its last page is guarded. */
static unsigned char *guard_before(const struct allocation *a) {
    return (unsigned char *)memory_view(a->address) - GUARD_BYTES;
}

static unsigned char *guard_behind(const struct allocation *a) {
    return (unsigned char *)memory_view(a->address) + a->bytes;
}

static size_t guard_behind_bytes(const struct allocation *a) {
    uint64_t to = a->place == PLACE_DEVICE ? DEVICE_ALIGNMENT : PAGE;
    return round_up(a->bytes, to) - a->bytes + (a->place == PLACE_DEVICE ? GUARD_BYTES : 0);
}

static void dress(const struct allocation *a) {
    memset(memory_view(a->address), POISON, a->bytes);
    if (a->place == PLACE_DEVICE) memset(guard_before(a), GUARD, GUARD_BYTES);
    memset(guard_behind(a), GUARD, guard_behind_bytes(a));
}

static bool damaged(const unsigned char *zone, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (zone[i] != GUARD) return true;
    return false;
}

static bool check(const struct allocation *a) {
    if (a->place == PLACE_REGISTERED) return false;
    bool before = a->place == PLACE_DEVICE && damaged(guard_before(a), GUARD_BYTES);
    bool behind = damaged(guard_behind(a), guard_behind_bytes(a));
    if (before || behind)
        violation("the guard zone %s %s allocation 0x%llx of %llu bytes was written to", before ? "before" : "behind",
                  a->place == PLACE_DEVICE ? "device" : "pinned", (unsigned long long)a->address,
                  (unsigned long long)a->bytes);
    return before || behind;
}

uint64_t memory_check_guards(void) {
    uint64_t count = 0;
    for (size_t i = 0; i < living_count; i++) count += check(&living[i]);
    return count;
}

static struct allocation *find(uint64_t address) {
    for (size_t i = 0; i < living_count; i++)
        if (living[i].address == address) return &living[i];
    return NULL;
}

static void remember(struct allocation a) { append((void **)&living, &living_count, sizeof a, &a); }

static struct allocation forget(struct allocation *a) {
    struct allocation gone = *a;
    *a = living[--living_count];
    return gone;
}

static uint64_t total(enum place place) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < living_count; i++)
        if (living[i].place == place) bytes += living[i].bytes;
    return bytes;
}

static CUresult allocate(enum place place, size_t bytes, unsigned flags, uint64_t *address) {
    struct range *range = range_of(place);
    uint64_t room = round_up(bytes, PAGE) + (uint64_t)2 * PAGE;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > RANGE_BYTES || range->used + room > RANGE_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
    struct allocation a = {
        .place = place, .address = (uintptr_t)range->address + range->used + PAGE, .bytes = bytes, .flags = flags};
    range->used += room;
    if (place == PLACE_PINNED &&
        mprotect((void *)(uintptr_t)a.address, round_up(bytes, PAGE), PROT_READ | PROT_WRITE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    dress(&a);
    if (place == PLACE_DEVICE) a.defined = fresh(bytes);
    remember(a);
    *address = a.address;
    return CUDA_SUCCESS;
}

/* Frees at once. Work that still uses the memory is the caller's fault: the driver happens to wait for it in some
   versions, and nothing may count on that. */
static CUresult release(uint64_t address, enum place place) {
    struct allocation *a = find(address);
    if (a == NULL || a->place != place) return CUDA_ERROR_INVALID_VALUE;
    struct task *user;
    if (tasks_touch((struct span){a->address, a->bytes, true}, &user))
        violation("memory at 0x%llx was freed while %s (work %llu) uses it or was not waited for",
                  (unsigned long long)address, work_name(&user->work), (unsigned long long)user->number);
    check(a);
    struct allocation gone = forget(a);
    free(gone.defined);
    if (place == PLACE_REGISTERED) return CUDA_SUCCESS;
    uint64_t pages = round_up(gone.bytes, PAGE);
    madvise(memory_view(gone.address), pages, place == PLACE_DEVICE ? MADV_DONTNEED : MADV_REMOVE);
    if (place == PLACE_PINNED) mprotect((void *)(uintptr_t)gone.address, pages, PROT_NONE);
    return CUDA_SUCCESS;
}

void memory_free_all(void) {
    while (living_count > 0) release(living[0].address, living[0].place);
}

CUresult memory_alloc_device(CUdeviceptr *address, size_t bytes) {
    if (address == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > memory_device_free()) return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate(PLACE_DEVICE, bytes, 0, address);
}

CUresult memory_free_device(CUdeviceptr address) {
    return address == 0 ? CUDA_SUCCESS : release(address, PLACE_DEVICE);
}

CUresult memory_alloc_host(void **address, size_t bytes, unsigned flags) {
    uint64_t at = 0;
    if (address == NULL || (flags & ~(unsigned)(HOST_PORTABLE | HOST_MAPPED | HOST_WRITE_COMBINED)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = allocate(PLACE_PINNED, bytes, flags, &at);
    if (code == CUDA_SUCCESS) *address = (void *)(uintptr_t)at;
    return code;
}

CUresult memory_free_host(void *address) { return release((uintptr_t)address, PLACE_PINNED); }

CUresult memory_register(void *address, size_t bytes, unsigned flags) {
    uint64_t start = (uintptr_t)address;
    if (address == NULL || bytes == 0 || (flags & ~(unsigned)HOST_REGISTER_FLAGS) || inside(&device, start))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < living_count; i++)
        if (start < living[i].address + living[i].bytes && living[i].address < start + bytes)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    remember((struct allocation){.place = PLACE_REGISTERED, .address = start, .bytes = bytes, .flags = flags});
    return CUDA_SUCCESS;
}

CUresult memory_unregister(void *address) {
    CUresult code = release((uintptr_t)address, PLACE_REGISTERED);
    return code == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : code;
}

static struct allocation *around(uint64_t address, uint64_t bytes) {
    for (size_t i = 0; i < living_count; i++) {
        struct allocation *a = &living[i];
        if (address >= a->address && address - a->address <= a->bytes && bytes <= a->bytes - (address - a->address))
            return a;
    }
    return NULL;
}

void memory_wrote(struct span span) {
    struct allocation *a = around(span.address, span.bytes);
    if (a != NULL && a->defined != NULL) memset(a->defined + (span.address - a->address), true, span.bytes);
}

uint64_t memory_undefined(struct span span) {
    const struct allocation *a = around(span.address, span.bytes);
    uint64_t count = 0;
    if (a == NULL || a->defined == NULL) return 0;
    const bool *defined = a->defined + (span.address - a->address);
    if (memchr(defined, false, span.bytes) == NULL) return 0;
    for (uint64_t i = 0; i < span.bytes; i++) count += !defined[i];
    return count;
}

struct memory memory_at(uint64_t address, uint64_t bytes) {
    const struct allocation *a = around(address, bytes);
    if (a != NULL) return (struct memory){a->place, a->address, a->bytes, a->flags};
    bool ours = inside(&device, address) || inside(&pinned, address) || address == 0;
    return (struct memory){.place = ours ? PLACE_ILLEGAL : PLACE_PAGEABLE, .start = address, .bytes = bytes};
}

void memory_fence(bool on) {
    fence = on;
    for (size_t i = 0; i < living_count; i++)
        if (living[i].place == PLACE_PINNED) memory_fence_span((struct span){living[i].address, living[i].bytes, true});
}

void memory_fence_span(struct span span) {
    static const int protections[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
    if (!inside(&pinned, span.address) || memory_at(span.address, span.bytes).place != PLACE_PINNED) return;
    for (uint64_t page = span.address / PAGE * PAGE; page < span.address + span.bytes; page += PAGE)
        mprotect((void *)(uintptr_t)page, PAGE, protections[fence ? tasks_closing(page, page + PAGE) : 0]);
}

uint64_t memory_describe(char *text, size_t text_bytes) {
    static const char *const names[] = {"", "device memory", "pinned host memory", "registered host memory", ""};
    size_t used = strlen(text);
    for (size_t i = 0; i < living_count; i++) {
        if (used < text_bytes)
            used +=
                (size_t)snprintf(text + used, text_bytes - used, "%s at 0x%llx, %llu bytes\n", names[living[i].place],
                                 (unsigned long long)living[i].address, (unsigned long long)living[i].bytes);
    }
    return living_count;
}

void memory_stats(struct ticksim_stats *stats) {
    for (size_t i = 0; i < living_count; i++)
        ++*(living[i].place == PLACE_DEVICE ? &stats->device_allocations : &stats->host_allocations);
    stats->device_bytes = total(PLACE_DEVICE);
    stats->host_bytes = total(PLACE_PINNED) + total(PLACE_REGISTERED);
}

void memory_device_limit(uint64_t bytes) { device_limit = bytes; }
uint64_t memory_device_total(void) { return device_limit; }

uint64_t memory_device_free(void) {
    uint64_t used = total(PLACE_DEVICE);
    return used < device_limit ? device_limit - used : 0;
}
