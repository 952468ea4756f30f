/* The control surface of the simulated driver: what a test may ask and order beside the CUDA driver API.

   A function here may be called at any time, from any thread, before cuInit too. The environment sets how it starts:
   TICKPATH_SIM_SEED, TICKPATH_SIM_STRICT, TICKPATH_SIM_LEAKS, TICKPATH_SIM_FENCE and TICKPATH_SIM_INJECT, which is
   NAME:NTH:CODE, several with commas between. */
#ifndef TICKSIM_H
#define TICKSIM_H

#include "cuda_driver.h"

/* What is alive, and what happened since the last reset. */
struct ticksim_stats {
    uint64_t device_allocations, device_bytes;
    uint64_t host_allocations, host_bytes; /* cuMemHostAlloc and cuMemHostRegister */
    uint64_t streams, events, graphs, execs, context_retains;
    uint64_t work_pending;    /* enqueued, not executed */
    uint64_t work_unobserved; /* enqueued, and the host cannot know yet that it has ended */
    uint64_t work_done, calls, violations;
};

/* Forgets everything, leaks included, and starts anew with this seed; strict, fence, background and check_leaks stay as
   they are. No other thread may be in a call. */
void ticksim_reset(uint64_t seed);
uint64_t ticksim_seed(void);
void ticksim_stats(struct ticksim_stats *stats);
/* How often a function was called since the last reset: "cuMemAlloc", "*" for all. */
uint64_t ticksim_calls(const char *name);

/* Whether a violation ends the process (1, how it starts) or is only kept (0). Starts 1. */
void ticksim_strict(int strict);
/* Whether host memory that unfinished work uses is closed to the host (1), page by page. Starts 0. */
void ticksim_fence(int fence);
/* Whether a thread of the library's own makes progress beside the calls (1). Then the seed fixes no order. */
void ticksim_background(int run);
/* How much device memory there is: what lives beyond it is CUDA_ERROR_OUT_OF_MEMORY. */
void ticksim_device_bytes(uint64_t bytes);
/* Whether it is a violation that things live, or work is not waited for, when the primary context goes: at its last
   release, at its reset, at the process's end. Starts 0. */
void ticksim_check_leaks(int check);

/* The first violation since the last reset, "" where there was none. Valid until the next reset. */
const char *ticksim_violation(void);
/* What lives, one line each, into text; returns how many there are. */
uint64_t ticksim_leaks(char *text, size_t text_bytes);
/* Looks at every guard zone now; returns how many are damaged. Each is a violation. */
uint64_t ticksim_check_guards(void);

/* The nth call from now (1 is the next) of `name` returns `code` and does nothing. "*" stands for every function, and
   "work" for the nth piece of work from now that is executed: it fails, and the context with it. */
void ticksim_inject(const char *name, uint64_t nth, CUresult code);

/* Kernels. `run` gets its arguments, copied when it was enqueued, and a pointer that may be dereferenced for each
   region. What it uses must be said in `regions`: `writes` is 1 where it writes, 0 where it only reads. */
struct ticksim_region {
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t writes;
};
typedef void (*ticksim_kernel)(const void *arguments, void *const *views);
CUresult ticksim_launch(CUhandle stream, ticksim_kernel run, const void *arguments, size_t argument_bytes,
                        const struct ticksim_region *regions, size_t region_count);

/* y = x @ w + b in float32. Regions: x (rows, inputs), w (inputs, outputs), b (outputs), y (rows, outputs) */
struct ticksim_affine_shape {
    uint64_t rows, inputs, outputs;
};
void ticksim_affine(const void *shape, void *const *views);

#endif
