/* How a program finds the functions: by name, and by the version of the API it was written for. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "sim.h"

/* Where the newest function of a name is not what every version means by it. NULL: the library does not speak that
   signature, and none is better than the wrong one. */
static const struct {
    const char *name;
    int since;
    const char *function;
} exceptions[] = {
    {"cuCtxSynchronize", 13000, NULL},
    {"cuCtxGetDevice", 13000, NULL},
    {"cuStreamGetCtx", 12050, NULL},
    {"cuLaunchHostFunc", 13020, NULL},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
};

static const struct {
    CUresult code;
    const char *name, *text;
} codes[] = {
#define CODE_ROW(name, value, text) {name, #name, text},
    CUDA_CODES(CODE_ROW)
#undef CODE_ROW
};

static void *symbol(const char *name, const char *suffix) {
    char full[64];
    Dl_info self;
    snprintf(full, sizeof full, "%s%s", name, suffix);
    if (dladdr(&exceptions, &self) == 0) return NULL;
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *found = library != NULL ? dlsym(library, full) : NULL;
    if (library != NULL) dlclose(library);
    return found;
}

static void *find(const char *name, int version) {
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    size_t best = sizeof exceptions / sizeof *exceptions, count = best;
    for (size_t i = 0; i < count; i++)
        if (strcmp(exceptions[i].name, name) == 0 && exceptions[i].since <= version) best = i;
    if (best < count) return exceptions[best].function ? symbol(exceptions[best].function, "") : NULL;
    void *found = NULL;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && found == NULL; i++) found = symbol(name, suffixes[i]);
    return found;
}

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    enum { FOUND, NOT_FOUND };
    (void)flags; /* which default stream: the legacy one, always */
    if (name == NULL || out == NULL) return CUDA_ERROR_INVALID_VALUE;
    *out = strncmp(name, "cu", 2) == 0 ? find(name, version) : NULL;
    if (status != NULL) *status = *out != NULL ? FOUND : NOT_FOUND;
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult describe(CUresult code, const char **out, bool name) {
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) *out = name ? codes[i].name : codes[i].text;
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult code, const char **out) { return describe(code, out, true); }
CUresult cuGetErrorString(CUresult code, const char **out) { return describe(code, out, false); }
