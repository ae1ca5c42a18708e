/* A program that finds and loads NVML as nvidia-ctk 1.20 does, and prints a spec of the GPUs that NVML lists.
 *
 *   nvidia-ctk ... [--driver-root=DIR] [--nvidia-cdi-hook-path=PATH]
 *
 * The program searches the folders in the list `folders`, below the driver's root, for the library. It resolves links,
 * and loads the library by the resulting path. Source: NVIDIA/nvidia-container-toolkit, pkg/nvcdi/lib.go and pkg/lookup
 * (library.go). It exits with 1 and NVML's error text if the library returns an error. LD_LIBRARY_PATH has no effect.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const folders[] = {
    "/", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
};

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

static void require(void *library, int code)
{
    const char *(*words)(int);

    if (code == 0)
        return;
    *(void **)&words = symbol(library, "nvmlErrorString");
    fprintf(stderr, "failed to initialize NVML: %s\n", words(code));
    exit(1);
}

static void *load(const char *root)
{
    for (size_t at = 0; at < sizeof folders / sizeof *folders; at++) {
        char path[PATH_MAX], file[PATH_MAX];
        void *library;

        snprintf(path, sizeof path, "%s%s/libnvidia-ml.so.1", root, folders[at]);
        if (!realpath(path, file))
            continue;
        library = dlopen(file, RTLD_LAZY | RTLD_GLOBAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        return library;
    }
    fprintf(stderr, "libnvidia-ml.so.1: not found\n");
    exit(1);
}

int main(int argc, char **argv)
{
    const char *root = "", *hook = "/usr/bin/nvidia-cdi-hook";
    int (*init)(void), (*count_of)(unsigned *), (*by_index)(unsigned, void **), (*uuid_of)(void *, char *, unsigned);
    int (*minor_of)(void *, unsigned *);
    unsigned count;
    void *library;

    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--driver-root=", 14)) root = argv[i] + 14;
        if (!strncmp(argv[i], "--nvidia-cdi-hook-path=", 23)) hook = argv[i] + 23;
    }
    library = load(root);
    *(void **)&init = symbol(library, "nvmlInit_v2");
    *(void **)&count_of = symbol(library, "nvmlDeviceGetCount_v2");
    *(void **)&by_index = symbol(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&uuid_of = symbol(library, "nvmlDeviceGetUUID");
    *(void **)&minor_of = symbol(library, "nvmlDeviceGetMinorNumber");
    require(library, init());
    require(library, count_of(&count));
    printf("{\"cdiVersion\": \"0.5.0\", \"kind\": \"nvidia.com/gpu\", \"devices\": [");
    for (unsigned index = 0; index < count; index++) {
        char uuid[96];
        unsigned minor;
        void *gpu;

        require(library, by_index(index, &gpu));
        require(library, uuid_of(gpu, uuid, sizeof uuid));
        require(library, minor_of(gpu, &minor));
        printf("{\"name\": \"%s\", \"containerEdits\": {\"deviceNodes\": [{\"path\": \"/dev/nvidia%u\"}]}}, ", uuid,
               minor);
    }
    printf("{\"name\": \"all\", \"containerEdits\": {\"deviceNodes\": [{\"path\": \"/dev/nvidiactl\"}]}}");
    printf("], \"containerEdits\": {\"hooks\": [{\"hookName\": \"createContainer\", \"path\": \"%s\"}]}}\n", hook);
    return 0;
}
